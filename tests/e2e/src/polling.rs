//! Waiting for a state by looking at it.

use std::time::{Duration, Instant};

/// A state that has not come after this long never will; a machine under load is slow, not that slow.
const GIVE_UP: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(4);

/// Looks until there is something to see. The error of the last look is what the failure says.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the state that is looked at decides, not the time")]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + GIVE_UP;
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(state) if Instant::now() >= end => panic!("{what}: not after {GIVE_UP:?}: {state}"),
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

/// Looks until it is true.
#[track_caller]
pub fn until(what: &str, mut look: impl FnMut() -> bool) {
    eventually(what, || if look() { Ok(()) } else { Err("it is not so".into()) });
}
