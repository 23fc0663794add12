//! Memory that nobody has any more goes back to the system.
//!
//! The allocator keeps what is free between pieces in use. After the end of a process that had much, that is most of what the
//! daemon has. So a thread has the allocator look for whole pages of it, a moment after something has ended, and once a
//! second at the most: it holds one arena at a time meanwhile.
//!
//! `unsafe`: C is spoken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// What ends at once with a process has ended by then.
const SETTLES: Duration = Duration::from_millis(50);
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// Memory of a big message is needed again by the next one. The allocator gives it back to the system and gets it anew
/// each time, cleared and page by page, unless it is told to keep some: that took longer than all else about an escape
/// with 64 KiB. What is kept is above what is in use, in each of a handful of arenas.
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

/// Whom to tell that something has ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    thread: OnceLock<Thread>,
    is_told: AtomicBool,
    stops: AtomicBool,
}

impl Ended {
    /// Something that may have had much memory has ended. Costs a system call only if nobody has said so lately.
    pub fn tell(&self) {
        if let Some(thread) = self.thread.get().filter(|_| !self.is_told.swap(true, Ordering::Relaxed)) {
            thread.unpark();
        }
    }

    /// Waits for a while, but not for the end of the thread; false if it is to end.
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
            if !self.is_told.load(Ordering::Relaxed) {
                std::thread::park();
                continue;
            }
            if !self.pauses(SETTLES) {
                return;
            }
            self.is_told.store(false, Ordering::Relaxed);
            give_back();
            if !self.pauses(AT_MOST_EVERY) {
                return;
            }
        }
    }
}

/// See the module. Dropping it ends it.
pub(super) struct FreeMemory {
    ended: Arc<Ended>,
    thread: Option<JoinHandle<()>>,
}

impl FreeMemory {
    pub fn start(ended: Arc<Ended>) -> std::io::Result<FreeMemory> {
        let told = Arc::clone(&ended);
        let thread = std::thread::Builder::new().name("free-memory".into()).spawn(move || told.run())?;
        let _ = ended.thread.set(thread.thread().clone());
        Ok(FreeMemory { ended, thread: Some(thread) })
    }
}

impl Drop for FreeMemory {
    fn drop(&mut self) {
        self.ended.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
