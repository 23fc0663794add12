//! The kind of thread that a driver's process has, and what restricts it.

use sandbox::violation::Ending;
#[cfg(target_arch = "x86_64")]
use sandbox::{BackendError, Filters};
use sandbox::{CapabilitySet, Files, Kind, Level, Request};

/// Every thread of the process: the driver's code runs in any of them.
#[derive(Debug, Clone, Copy)]
pub struct ThreadKind;

impl Kind for ThreadKind {
    const ALL: &'static [ThreadKind] = &[ThreadKind];
    const ENDING: Ending = Ending {
        program: "driver-host",
        what: "the driver",
        why: "which no driver may make. See docs/SECURITY.md",
    };

    fn word(self) -> &'static str {
        "driver"
    }

    fn reads_clients(self) -> bool {
        false
    }

    #[cfg(target_arch = "x86_64")]
    fn filters(self) -> Result<Filters, BackendError> {
        crate::forbidden::filters()
    }
}

/// Restricts this process before it loads a driver, and while it has one thread. The same for each command, so that a driver
/// that works in a scenario works in a daemon. Returns what the system lacks; an error says why a driver must not be loaded.
pub fn restrict(level: Level) -> Result<Vec<String>, String> {
    // It reads files: its shared object, libraries, data of its own. It writes none.
    let files = Files { read: vec!["/".into()], ..Files::default() };
    let capabilities = CapabilitySet::empty();
    let request = Request { level, user: None, files, capabilities, starts_programs: false };
    sandbox::begin::<ThreadKind>(&request).map_err(|error| error.to_string())?;
    sandbox::enter(ThreadKind);
    Ok(sandbox::status().unwrap_or_default().missing)
}
