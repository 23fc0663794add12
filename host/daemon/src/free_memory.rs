//! Returns freed memory to the system.
//!
//! The allocator retains free memory between allocations in use. After a process that had much memory is gone, that is
//! most of the daemon's memory. So a thread trims the allocator a moment after something is freed. Meanwhile it locks one
//! arena at a time, for about 0.15 ms for each MiB that it returns, and whoever allocates from that arena waits. So what
//! many processes leave behind is returned as they end, not all at once afterwards.
//!
//! `unsafe`: calls `mallopt` and `malloc_trim`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use super::thread_kind::ThreadKind;

/// Delay in which everything else of the process is freed as well.
const SETTLES: Duration = Duration::from_millis(20);
/// After each trim the thread pauses this many times as long as the trim took.
const PAUSES: u32 = 20;

/// Has the allocator retain some free memory, because the next large message needs it again. Otherwise the allocator
/// unmaps and maps it each time, cleared and page by page: that took longer than the rest of an escape with 64 KiB.
/// Each of a handful of arenas retains it, beyond the memory in use.
pub(super) fn keep_some() {
    #[cfg(target_env = "gnu")]
    const KEPT_BYTES: libc::c_int = 1 << 20;
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes two numbers of the allocator, under its own lock.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BYTES);
    }
}

fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Notifies the thread that memory was freed.
#[derive(Debug, Default)]
pub(super) struct TrimRequest {
    thread: OnceLock<Thread>,
    is_pending: AtomicBool,
    stops: AtomicBool,
}

impl TrimRequest {
    /// Notifies the thread that something with much memory may be freed. Costs a system call only if no notification is
    /// pending.
    pub fn request(&self) {
        if let Some(thread) = self.thread.get().filter(|_| !self.is_pending.swap(true, Ordering::Relaxed)) {
            thread.unpark();
        }
    }

    /// Pauses for `time`; returns early with false if the thread is to stop.
    fn pauses(&self, time: Duration) -> bool {
        let until = std::time::Instant::now() + time;
        while !self.stops.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::park_timeout(left);
        }
        false
    }

    fn run(&self) {
        while !self.stops.load(Ordering::Relaxed) {
            if !self.is_pending.load(Ordering::Relaxed) {
                std::thread::park();
                continue;
            }
            if !self.pauses(SETTLES) {
                return;
            }
            self.is_pending.store(false, Ordering::Relaxed);
            let begun = std::time::Instant::now();
            give_back();
            if !self.pauses(begun.elapsed() * PAUSES) {
                return;
            }
        }
    }
}

/// The thread that trims the allocator. Dropping it stops it.
pub(super) struct FreeMemory {
    requests: Arc<TrimRequest>,
    thread: Option<JoinHandle<()>>,
}

impl FreeMemory {
    pub fn start(requests: Arc<TrimRequest>) -> std::io::Result<FreeMemory> {
        let trimmer = Arc::clone(&requests);
        let run = move || {
            sandbox::enter(ThreadKind::FreeMemory);
            trimmer.run();
        };
        let thread = std::thread::Builder::new().name("free-memory".into()).spawn(run)?;
        let _ = requests.thread.set(thread.thread().clone());
        Ok(FreeMemory { requests, thread: Some(thread) })
    }
}

impl Drop for FreeMemory {
    fn drop(&mut self) {
        self.requests.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
