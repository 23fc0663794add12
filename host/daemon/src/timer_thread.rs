//! The thread that steps the kernel at its deadlines, so that engines progress whatever else the daemon waits for.
//!
//! It sleeps until the timer expires, and continues the kernel's unfinished work at once. While other threads that hold the
//! kernel lock do what is due, it leaves that to them: to queue for the lock costs each of their turns two wake-ups.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::kernel_host::KernelHost;
use super::thread_kind::ThreadKind;

/// How long the thread waits before it looks whether others did what is due.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// Steps between two looks whether the thread is to stop.
const STEPS_MAX: usize = 64;

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
    let mut seen = 0;
    loop {
        wait(&mut watched, None)?;
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
        if others_do_it(kernel_host, &mut seen) {
            wait(&mut watched[..1], Some(&PAUSE))?;
        }
    }
}

/// Does what is due, and unfinished work, unless another thread that has the kernel lock does it: it has, since the count of
/// such steps was `seen`.
fn others_do_it(kernel_host: &KernelHost, seen: &mut u64) -> bool {
    let steps = &kernel_host.counters.deadline_steps;
    for _ in 0..STEPS_MAX {
        if !kernel_host.try_deadline() {
            let before = std::mem::replace(seen, steps.count());
            if *seen != before {
                return true;
            }
            kernel_host.deadline();
        }
        *seen = steps.count();
        if !kernel_host.has_backlog() {
            break;
        }
    }
    false
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
