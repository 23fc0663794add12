//! The thread that steps the kernel at its deadlines, so that engines progress whatever else the daemon waits for.
//!
//! It sleeps until the timer expires, and continues the kernel's unfinished work at once. While another thread holds the
//! kernel lock, that thread does most of what is due itself, so this one tries again a little later, a few times at most.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::kernel_host::KernelHost;
use super::thread_kind::ThreadKind;

/// How long the thread lets the holder of the kernel lock do what is due.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// Pauses in a row. After them the thread queues for the lock: its holder may be one that does nothing of what is due.
const PAUSES_MAX: u32 = 10;

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
    let watch = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
    let mut watched = [watch(stop.as_fd()), watch(kernel_host.timer.descriptor())];
    loop {
        wait(&mut watched, None)?;
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
        deadline(kernel_host, &mut watched)?;
    }
}

/// Steps the kernel, unless the holder of the kernel lock does what is due: the timer is armed anew then.
fn deadline(kernel_host: &KernelHost, [stop, timer]: &mut [PollFd<'_>; 2]) -> Result<(), Errno> {
    for _ in 0..PAUSES_MAX {
        if kernel_host.try_deadline() {
            return Ok(());
        }
        wait(std::slice::from_mut(stop), Some(&PAUSE))?;
        wait(std::slice::from_mut(timer), Some(&Timespec::default()))?;
        if timer.revents().is_empty() {
            return Ok(());
        }
    }
    kernel_host.deadline();
    Ok(())
}

fn wait(watched: &mut [PollFd<'_>], limit: Option<&Timespec>) -> Result<(), Errno> {
    match poll(watched, limit) {
        Err(Errno::INTR) => wait(watched, limit),
        ended => ended.map(drop),
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
