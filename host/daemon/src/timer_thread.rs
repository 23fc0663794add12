//! The thread that steps the kernel at its deadlines, so that engines progress whatever else the daemon waits for.
//!
//! It sleeps until the timer expires, and continues the kernel's unfinished work at once. Between two steps it yields
//! to threads that wait for the kernel lock.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::kernel_host::KernelHost;
use super::thread_kind::ThreadKind;

/// The timer thread. Dropping it stops it.
pub(super) struct TimerThread {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl TimerThread {
    pub fn start(kernel_host: Arc<KernelHost>) -> std::io::Result<TimerThread> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let run = move || {
            sandbox::enter(ThreadKind::Timer);
            if let Err(error) = run(&kernel_host, &stopped) {
                tracing::error!("engines no longer progress: cannot wait for the timer: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("timer".into()).spawn(run)?;
        Ok(TimerThread { stop, thread: Some(thread) })
    }
}

fn run(kernel_host: &KernelHost, stop: &OwnedFd) -> Result<(), Errno> {
    let timer = kernel_host.timer.descriptor();
    loop {
        let mut ready =
            [PollFd::new(&timer, PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        }
        if !ready[1].revents().is_empty() {
            return Ok(());
        }
        kernel_host.deadline();
    }
}

impl Drop for TimerThread {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
