//! Whoever wants to see every step of the kernel: checkers of a scenario.

use std::fmt;

use drivers::Drivers;
use dxgkrnl::{Effects, Input, Kernel, Nanos};

/// The kernel as a daemon has it.
pub type DaemonKernel = Kernel<Drivers>;

/// Called under the kernel lock after each step, in the order of the steps: the effects are in memory and in the
/// outboxes, nothing of them is sent yet. It must neither panic nor call the daemon back, and everybody
/// waits for it.
pub trait Observer: Send + Sync {
    fn step(&self, now: Nanos, input: &Input, effects: &Effects, kernel: &DaemonKernel);
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
