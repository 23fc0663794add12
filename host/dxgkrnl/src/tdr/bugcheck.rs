//! Bugchecks: errors from which Windows does not recover.
//!
//! The kernel keeps the first one. From then on the host is down: every adapter is stopped, so devices are STOPPED,
//! waits end with DEVICE_REMOVED, queued work is dropped, and calls return DEVICE_REMOVED.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// A bugcheck: code and parameters as on the blue screen, and the reason in words.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Bugcheck {
    pub code: u32,
    pub parameters: [u64; 4],
    pub why: String,
}

/// `VIDEO_SCHEDULER_INTERNAL_ERROR`: a driver reported something impossible to the scheduler.
pub(crate) const VIDEO_SCHEDULER_INTERNAL_ERROR: u32 = 0x119;
