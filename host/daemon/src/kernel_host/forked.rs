//! A view of the kernel at one moment, while other threads continue.
//!
//! A copy of the state takes 0.8 ms for each MiB that processes have in the kernel. A fork takes a tenth of that,
//! because it copies page tables. So a child process reads the state of a kernel that is not small, as databases do,
//! and the lock is held only for the fork. The child has one thread, writes its result into a pipe and exits. It locks
//! nothing but the allocator, which the C library makes safe over a fork.
//!
//! Whether other C libraries than glibc do so is not known; there the state is copied.
//!
//! `unsafe`: a process forks.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use dxgkrnl::Kernel;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

/// Smaller states are copied, in less than 4 ms.
const FORKED_FROM_BYTES: u64 = 4 << 20;
/// A child that takes longer is killed.
const CHILD_MAX: Duration = Duration::from_secs(30);

/// Whether the state is so small, by its charged bytes, that a copy takes no longer than a fork.
pub(super) fn is_small(kernel: &Kernel) -> bool {
    kernel.charged_bytes() < FORKED_FROM_BYTES
}

pub(super) struct Child {
    pid: Pid,
    output: OwnedFd,
}

impl Child {
    /// Forks a child that writes the bytes of `produce` to a pipe. `produce` must take no lock and touch no descriptor.
    pub fn fork(produce: impl FnOnce() -> Vec<u8>) -> std::io::Result<Child> {
        let (output, written) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // SAFETY: the child calls only `produce`, which allocates, writes to the pipe, and exits without returning.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
                let write = || File::from(written).write_all(&produce());
                let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write));
                // SAFETY: `_exit` has no preconditions. It flushes and drops nothing of the parent's a second time.
                unsafe { libc::_exit(i32::from(!matches!(written, Ok(Ok(()))))) }
            }
            pid => {
                let pid = Pid::from_raw(pid).expect("a child has a number");
                Ok(Child { pid, output })
            }
        }
    }

    /// Waits for the child and returns what it wrote; `None` if it failed or was killed.
    pub fn finish(self) -> Option<Vec<u8>> {
        let output = self.read().ok();
        // A child that has written everything exits by itself, unless the close of one of its descriptors takes long.
        let _ = output.is_none().then(|| kill_process(self.pid, Signal::KILL));
        let child = pidfd_open(self.pid, PidfdFlags::empty()).ok()?;
        let _ = is_readable(&child, Instant::now() + CHILD_MAX);
        let (_, status) = waitpid(Some(self.pid), WaitOptions::NOHANG).ok()??;
        output.filter(|_| status.exit_status() == Some(0))
    }

    /// Everything that the child writes until it closes the pipe.
    fn read(&self) -> std::io::Result<Vec<u8>> {
        let mut output = Vec::new();
        let mut pipe = File::from(self.output.try_clone()?);
        let until = Instant::now() + CHILD_MAX;
        loop {
            if !is_readable(&self.output, until)? {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            let before = output.len();
            (&mut pipe).take(1 << 20).read_to_end(&mut output)?;
            if output.len() == before {
                return Ok(output);
            }
        }
    }
}

/// Waits until the descriptor is readable, or, for a pidfd, until its process has exited; false on timeout.
fn is_readable(descriptor: &OwnedFd, until: Instant) -> std::io::Result<bool> {
    let remaining = until.saturating_duration_since(Instant::now());
    let timeout = rustix::time::Timespec::try_from(remaining).map_err(std::io::Error::other)?;
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    Ok(poll(&mut polled, Some(&timeout))? > 0)
}

#[cfg(test)]
mod tests {
    use drivers::{Drivers, Registry};
    use dxgkrnl::{Config, Effects, Input, ProcessId, VmId};

    use super::*;

    fn kernel() -> Kernel {
        let config = Config::default();
        let drivers = Drivers::new(&Registry::default(), &config);
        let mut kernel = Kernel::new(config, drivers);
        attach(&mut kernel, 1);
        kernel
    }

    fn attach(kernel: &mut Kernel, process: u32) {
        let (vm, name) = (VmId::HOST, String::from("test"));
        let input = Input::ProcessAttached { process: ProcessId(process), vm, pid: 1, name };
        kernel.handle(0, input, &mut Effects::default());
    }

    #[test]
    fn a_child_sees_the_state_of_the_moment_at_which_it_was_forked() {
        let mut kernel = kernel();
        let expected = kernel.save().unwrap();
        let child = Child::fork(|| kernel.save().unwrap()).unwrap();
        attach(&mut kernel, 2);
        assert_ne!(kernel.save().unwrap(), expected);
        assert!(child.finish() == Some(expected), "the child's state is another");
    }

    #[test]
    fn a_killed_child_returns_nothing_and_leaves_no_process() {
        let child = Child::fork(|| {
            loop {
                std::thread::park();
            }
        });
        let child = child.unwrap();
        let pid = child.pid;
        kill_process(pid, Signal::KILL).unwrap();
        assert_eq!(child.finish(), None);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn a_state_of_many_processes_is_not_small() {
        let mut kernel = kernel();
        assert!(is_small(&kernel));
        (2..=FORKED_FROM_BYTES as u32 / (8 << 10)).for_each(|process| attach(&mut kernel, process));
        assert!(!is_small(&kernel));
    }
}
