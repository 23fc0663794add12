//! The kinds of threads of the daemon's process, each with a list of system calls; `sandbox` restricts them.

#[cfg(target_arch = "x86_64")]
mod lists;

use sandbox::Kind;
use sandbox::violation::Ending;

/// A kind of thread; each has a list of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadKind {
    /// The main thread with the control service, and threads that answer for it.
    Control,
    /// Serves local processes.
    Local,
    /// Serves a VM: the device's threads.
    Device,
    /// Steps the kernel at its deadlines.
    Timer,
    /// Computes the states with which segments of the journal begin.
    JournalKeeper,
    /// Writes the trace to the disk.
    DiskWriter,
    /// Writes the log.
    Log,
    /// Returns freed memory to the system.
    FreeMemory,
    /// Reads what the processes of drivers in C print.
    DriverOutput,
}

impl ThreadKind {
    /// Whether it runs steps of the kernel, and with them drivers.
    pub fn runs_drivers(self) -> bool {
        match self {
            ThreadKind::Control
            | ThreadKind::Local
            | ThreadKind::Device
            | ThreadKind::Timer
            | ThreadKind::JournalKeeper => true,
            ThreadKind::DiskWriter | ThreadKind::Log | ThreadKind::FreeMemory | ThreadKind::DriverOutput => {
                false
            }
        }
    }
}

impl Kind for ThreadKind {
    const ALL: &'static [ThreadKind] = &[
        ThreadKind::Control,
        ThreadKind::Local,
        ThreadKind::Device,
        ThreadKind::Timer,
        ThreadKind::JournalKeeper,
        ThreadKind::DiskWriter,
        ThreadKind::Log,
        ThreadKind::FreeMemory,
        ThreadKind::DriverOutput,
    ];

    const ENDING: Ending = Ending {
        program: "gpupv",
        what: "the daemon",
        why: "which is not in the list of that thread. Trace and journal are complete up to here. See docs/SECURITY.md",
    };

    fn word(self) -> &'static str {
        match self {
            ThreadKind::Control => "control service",
            ThreadKind::Local => "local processes",
            ThreadKind::Device => "device of a VM",
            ThreadKind::Timer => "timer",
            ThreadKind::JournalKeeper => "journal keeper",
            ThreadKind::DiskWriter => "disk writer",
            ThreadKind::Log => "log",
            ThreadKind::FreeMemory => "free memory",
            ThreadKind::DriverOutput => "output of drivers",
        }
    }

    fn reads_clients(self) -> bool {
        matches!(self, ThreadKind::Local | ThreadKind::Device)
    }

    /// The handler of SIGTERM and SIGINT writes to a socket of the control service, and several lists have no `sendto`.
    fn handles_signals(self) -> bool {
        self == ThreadKind::Control
    }

    #[cfg(target_arch = "x86_64")]
    fn filters(self) -> Result<sandbox::Filters, sandbox::BackendError> {
        lists::filters(self)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
