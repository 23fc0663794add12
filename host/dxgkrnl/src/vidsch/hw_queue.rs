//! The state of a hardware queue, and the rules of its packets.
//!
//! A hardware queue belongs to a context that was created with HwQueueSupported and has a [`super::queue::Queue`] of its
//! own. Its *progress fence* shows how far it is: a submission is complete when the fence has the submission's
//! `HwQueueProgressFenceId` (SCH-013), written by the driver or by the commands (SCH-017). There is no DMA_COMPLETED
//! for it: the kernel checks the fence when it evaluates the waits on it.
//!
//! ```text
//!   submitted                            with the engine                        complete
//!   Packet::HwCommand in the queue ----> Queue::in_flight, at most ------------> gone: progress fence >= id
//!     held by waits before it            MaxInFlightHwQueueBuffers (SCH-018)
//! ```
//! NoBroadcastSignal and NoBroadcastWait are rules for the fences of a D3D12 command queue, which signals and waits in
//! all of its hardware queues (SCH-015). The kernel sees a broadcast in `SubmitSignalSyncObjectsToHwQueue` alone: of
//! two or more queues those with NoBroadcastSignal are left out. A wait names one queue and is never a broadcast:
//! NoBroadcastWait is only stored, for a caller that queues several waits ([`crate::view::views::HwQueueView::flags`]).

use d3dkmt::{Handle, HwQueueFlags};
use serde::{Deserialize, Serialize};

use super::doorbell::Doorbell;
use crate::ProcessId;
use crate::native::NativeFenceLogs;

#[derive(Serialize, Deserialize)]
pub(crate) struct HwQueue {
    pub process: ProcessId,
    /// NULL once it was destroyed and only drains.
    pub handle: Handle,
    pub context: u32,
    pub queue: u32,
    pub flags: HwQueueFlags,
    /// The progress fence: its handle, which the process may not destroy, and the object.
    pub progress_fence: Handle,
    pub progress: u32,
    /// The greatest `HwQueueProgressFenceId` that was submitted.
    pub submitted: u64,
    /// User-mode submission only.
    pub doorbell: Option<Doorbell>,
    /// The last-queued value, as last seen.
    pub last_queued: u64,
    /// User-mode submission only (FEN-119).
    pub logs: Option<NativeFenceLogs>,
}

impl HwQueue {
    pub fn user_mode(&self) -> bool {
        self.flags.contains(HwQueueFlags::USER_MODE_SUBMISSION)
    }
}
