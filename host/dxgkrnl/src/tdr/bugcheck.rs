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

/// A reset of the adapter failed, or an engine timed out where the kernel does not recover.
pub(crate) const VIDEO_TDR_FAILURE: u32 = 0x116;

/// A driver reported something impossible to the scheduler, or failed one of its DDIs. The first parameter says which; the
/// numbers and their names are those of the documents of this bugcheck.
pub(crate) const VIDEO_SCHEDULER_INTERNAL_ERROR: u32 = 0x119;

/// `DRIVER_REPORTED_INVALID_FENCE_ID`. Then: the id, the last submitted and the last completed one.
pub(crate) const INVALID_FENCE_ID: u64 = 1;
/// `DRIVER_FAILED_SUBMIT_COMMAND`.
pub(crate) const FAILED_SUBMIT_COMMAND: u64 = 2;
/// `DRIVER_FAILED_PATCH_COMMAND`.
pub(crate) const FAILED_PATCH_COMMAND: u64 = 3;
/// The dependent engines of an engine that is reset leave the engine out.
pub(crate) const INVALID_NODE_MASK: u64 = 8;
pub(crate) const FAILED_CANCEL_COMMAND: u64 = 9;
pub(crate) const INVALID_ABORTED_FENCE: u64 = 0xA;
/// Flags of a page fault with FATAL_HARDWARE_ERROR.
pub(crate) const FATAL_PAGE_FAULT: u64 = 0xC;
/// Flags of a page fault that no driver may report.
pub(crate) const INVALID_DMA_FAULT_PARAMETERS: u64 = 0xD;
