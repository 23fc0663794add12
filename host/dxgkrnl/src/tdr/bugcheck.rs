//! Bugchecks: what Windows has no way back from.
//!
//! The first one is kept. The host is down from there on: every adapter is stopped for its users, so devices are
//! STOPPED, waits end as removed, queued work is dropped, and calls answer DEVICE_REMOVED.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// A bugcheck: code and parameters as on the blue screen, and the reason in words.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Bugcheck {
    pub code: u32,
    pub parameters: [u64; 4],
    pub why: String,
}

/// `VIDEO_SCHEDULER_INTERNAL_ERROR`: a driver told the scheduler what cannot be.
pub(crate) const VIDEO_SCHEDULER_INTERNAL_ERROR: u32 = 0x119;
