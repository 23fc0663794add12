//! Observers of every kernel step: the checkers of a scenario.

use std::fmt;

use dxgkrnl::{Effects, Input, Kernel, Nanos};

/// The kernel type of a daemon.
pub type DaemonKernel = Kernel;

/// Called under the kernel lock after each step, in the order of the steps. The effects are in memory and in the
/// outboxes; none of them is sent yet. It must neither panic nor call the daemon, and all clients wait for it.
pub trait Observer: Send + Sync {
    fn step(&self, now: Nanos, input: &Input, effects: &Effects, kernel: &DaemonKernel);
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
