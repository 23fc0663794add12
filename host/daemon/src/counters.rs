//! Exact counts, for tests and for `inspect`.

use std::sync::atomic::{AtomicU64, Ordering};

/// One count; only ever grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The same for a counter that changes under a lock only.
    pub fn add_locked(&self, count: u64) {
        if count > 0 {
            self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        }
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the daemon counts.
#[derive(Debug, Default)]
pub struct Counters {
    pub frames_received: Counter,
    pub frames_sent: Counter,
    pub fence_stores: Counter,
    pub refusals: Counter,
    pub protocol_errors: Counter,
    pub wakes: Counter,
    /// Steps that do what is due, and unfinished work.
    pub deadline_steps: Counter,
}
