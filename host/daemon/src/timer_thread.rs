//! The thread that steps the kernel at its deadlines, so that engines progress whatever else the daemon waits for.
//!
//! It sleeps until the timer expires, and steps at once. While other threads have the kernel lock, or do what is due by
//! themselves, they go first: to queue for the lock costs each of their turns two wake-ups.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::kernel_host::KernelHost;
use super::thread_kind::ThreadKind;

/// How long others go first.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

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
            // By default the system makes a pause twice as long.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
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
    let steps = || kernel_host.counters.deadline_steps.count();
    let mut seen = steps();
    loop {
        // The timer stays expired while something that is due is left.
        if wait(&mut watched, Some(&Timespec::default()))? == 0 {
            wait(&mut watched, None)?;
            seen = steps();
        }
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
        if steps() != seen {
            wait(&mut watched[..1], Some(&PAUSE))?;
        }
        let before = steps();
        if !kernel_host.try_deadline() {
            wait(&mut watched[..1], Some(&PAUSE))?;
            if steps() == before {
                kernel_host.deadline();
            }
        }
        seen = steps();
    }
}

fn wait(watched: &mut [PollFd<'_>], limit: Option<&Timespec>) -> Result<usize, Errno> {
    match poll(watched, limit) {
        Err(Errno::INTR) => wait(watched, limit),
        ended => ended,
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
