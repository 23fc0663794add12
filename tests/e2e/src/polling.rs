//! Waits for a state by polling.

use std::time::{Duration, Instant};

/// A state that is not reached within this time never will be, even on a machine under load.
const GIVE_UP: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(4);

/// Polls until `poll` succeeds. A failure reports the error of the last poll.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the polled state decides, not the time")]
pub fn eventually<T>(what: &str, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + GIVE_UP;
    loop {
        match poll() {
            Ok(value) => return value,
            Err(state) if Instant::now() >= end => panic!("{what}: not after {GIVE_UP:?}: {state}"),
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

/// Polls until the condition is true.
#[track_caller]
pub fn until(what: &str, mut poll: impl FnMut() -> bool) {
    eventually(what, || if poll() { Ok(()) } else { Err("it is not so".into()) });
}
