//! Threads that restrict themselves and end, in a process of their own.
#![cfg(target_arch = "x86_64")]

use sandbox::thread_calls::{EVERY, conditions};
use sandbox::violation::Ending;
use sandbox::{BackendError, CapabilitySet, Files, Filters, Kind, Level, Request};

#[derive(Debug, Clone, Copy)]
struct Closer;

impl Kind for Closer {
    const ALL: &'static [Closer] = &[Closer];
    const ENDING: Ending = Ending { program: "test", what: "the test", why: "which is not in the list." };

    fn word(self) -> &'static str {
        "closer"
    }

    fn reads_clients(self) -> bool {
        false
    }

    fn filters(self) -> Result<Filters, BackendError> {
        Filters::allow(EVERY.iter().map(|call| Ok((*call, conditions(*call)?))))
    }
}

/// Clients cause threads without an end, and the system gives their numbers to others.
#[test]
fn a_thread_that_has_ended_is_forgotten() {
    let (level, files, capabilities) = (Level::Auto, Files::default(), CapabilitySet::empty());
    let request = Request { level, user: None, files, capabilities, starts_programs: false };
    sandbox::begin::<Closer>(&request).expect("it asks for no user");
    let missing = sandbox::status().expect("it began").missing;
    if missing.iter().any(|line| line.starts_with("lists of system calls")) {
        return eprintln!("skipped: {missing:?}");
    }
    let entered = || {
        sandbox::enter(Closer);
        sandbox::status().expect("it began").threads.into_values().collect::<Vec<_>>()
    };
    for _ in 0..3 {
        assert_eq!(std::thread::spawn(entered).join().expect("it ends"), ["closer"]);
        assert!(sandbox::status().expect("it began").threads.is_empty());
    }
}
