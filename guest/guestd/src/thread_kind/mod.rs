//! The kinds of threads of the broker's process, each with a list of system calls; `sandbox` restricts them.

#[cfg(target_arch = "x86_64")]
mod lists;

use sandbox::Kind;
use sandbox::violation::Ending;

/// A kind of thread; each has a list of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadKind {
    /// The main thread: processes of the guest, and the link to the host.
    Broker,
    /// Closes what the processes of one user sent.
    Closer,
}

impl Kind for ThreadKind {
    const ALL: &'static [ThreadKind] = &[ThreadKind::Broker, ThreadKind::Closer];

    const ENDING: Ending = Ending {
        program: "gpupv-guestd",
        what: "the broker",
        why: "which is not in the list of that thread. See docs/SECURITY.md",
    };

    fn word(self) -> &'static str {
        match self {
            ThreadKind::Broker => "broker",
            ThreadKind::Closer => "closer",
        }
    }

    /// The broker's thread restricts its process itself, and starts the others.
    fn reads_clients(self) -> bool {
        false
    }

    #[cfg(target_arch = "x86_64")]
    fn filters(self) -> Result<sandbox::Filters, sandbox::BackendError> {
        lists::filters(self)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
