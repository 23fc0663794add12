//! Warnings about a guest, at a bounded rate: a hostile guest must not fill the log.

use std::time::{Duration, Instant};

use crate::limits::{COMPLAINT_PERIOD_SECONDS, COMPLAINTS_PER_PERIOD_MAX};
use crate::locks::{Rank, Ranked};

/// Decides which complaints about one VM reach the log.
#[derive(Debug)]
pub(crate) struct Complaints {
    /// `None` in a proxy, which does not know it.
    guest_cid: Option<u64>,
    budget: Ranked<Budget>,
}

#[derive(Debug, Default)]
struct Budget {
    period_start: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl Budget {
    /// Whether a complaint now is logged; `Some` has the number suppressed before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let period = Duration::from_secs(COMPLAINT_PERIOD_SECONDS);
        if self.period_start.is_none_or(|start| now.duration_since(start) >= period) {
            self.period_start = Some(now);
            self.logged = 0;
        }
        if self.logged >= COMPLAINTS_PER_PERIOD_MAX {
            self.suppressed += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl Complaints {
    pub fn new(guest_cid: u64) -> Self {
        Self { guest_cid: Some(guest_cid), budget: Ranked::new(Rank::Complaints, Budget::default()) }
    }

    /// Complaints of a proxy, about the VM whose QEMU it serves.
    pub fn of_proxy() -> Self {
        Self { guest_cid: None, budget: Ranked::new(Rank::Complaints, Budget::default()) }
    }

    /// A packet that broke a rule of virtio-vsock.
    pub fn packet(&self, peer_port: u32, local_port: u32, reason: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.admit() {
            let cid = self.guest_cid;
            tracing::warn!(cid, peer_port, local_port, suppressed, "bad vsock packet: {reason}");
        }
    }

    /// A virtqueue that the guest filled with invalid data.
    pub fn ring(&self, ring: &'static str, reason: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.admit() {
            let cid = self.guest_cid;
            tracing::warn!(cid, ring, suppressed, "bad virtqueue: {reason}");
        }
    }

    /// The file of the guest's connections could not be written.
    pub fn known_connections(&self, reason: &std::io::Error) {
        if let Some(suppressed) = self.admit() {
            let cid = self.guest_cid;
            tracing::warn!(
                cid,
                suppressed,
                "a file of the guest's connections, beside the device's socket or in the journal, cannot be written: {reason}; \
                 if the daemon is killed, its guest may not notice"
            );
        }
    }

    /// A request of QEMU that cannot be served.
    pub fn machine(&self, what: &'static str, reason: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.admit() {
            tracing::warn!(cid = self.guest_cid, suppressed, "{what}: {reason}");
        }
    }

    fn admit(&self) -> Option<u64> {
        self.budget.lock().admit(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_bounded_per_period_and_the_rest_counted() {
        let mut complaints = Budget::default();
        let start = Instant::now();
        let logged = (0..100).filter(|_| complaints.admit(start).is_some()).count();
        assert_eq!(logged, COMPLAINTS_PER_PERIOD_MAX as usize);
        let later = start + Duration::from_secs(COMPLAINT_PERIOD_SECONDS);
        assert_eq!(complaints.admit(later), Some(100 - u64::from(COMPLAINTS_PER_PERIOD_MAX)));
    }
}
