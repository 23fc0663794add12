//! The driver's side of hardware queues, doorbells and the suspension of contexts: what the DDIs carry.

use alloc::vec::Vec;

use d3dkmt::HwQueueFlags;
use serde::{Deserialize, Serialize};

use super::engine_ids::{EngineId, HwContext, HwQueueId};
use crate::ProcessId;

/// `DXGKARG_CREATEHWQUEUE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewHwQueue {
    pub hw_queue: HwQueueId,
    pub context: HwContext,
    pub engine: EngineId,
    /// The process whose GPU address space the commands use.
    pub process: ProcessId,
    pub flags: HwQueueFlags,
    /// Address of the progress fence in that address space.
    pub progress_fence_gpu_address: u64,
}

/// `DXGKARG_SUBMITCOMMANDTOHWQUEUE`: run this command buffer after those before it in the queue.
///
/// It is complete when the progress fence has `progress_fence_id`. With `RingBufferFenceRelease` the driver writes that
/// value once nothing refers to the buffer any more; without it the buffer's own last instruction does (SCH-017).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HwQueueSubmission {
    pub engine: EngineId,
    pub hw_queue: HwQueueId,
    pub context: HwContext,
    /// Identifies it among all submissions to this engine; see [`super::Submission`]. No `DMA_COMPLETED` is expected
    /// for it.
    pub submission_fence_id: u64,
    /// `HwQueueProgressFenceId`: grows in each queue (SCH-013).
    pub progress_fence_id: u64,
    pub commands: Vec<u8>,
}

/// Result of `DxgkDdiSuspendContext`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suspend {
    /// `STATUS_SUCCESS`: nothing of the context runs, and nothing will until it is resumed.
    Suspended,
    /// `STATUS_PENDING`: [`super::Interrupt::SuspendContextCompleted`] with the same fence follows.
    Pending,
}

/// Result of `DxgkDdiConnectDoorbell`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoorbellConnection {
    /// The next ring reaches the engine.
    Connected,
    /// It is connected, but the engine reads the ring only on [`super::Miniport::notify_work_submission`].
    ConnectedNotify,
    /// All physical doorbells are in use, and the driver pushed a [`super::Callback::DisconnectDoorbell`] to free one.
    /// The kernel processes it, which stores the victim's status, and asks again.
    Retry,
    /// No physical doorbell is available.
    Failed,
}

/// `D3DDDI_DOORBELLSTATUS` of a disconnected doorbell: what its user has to do (SCH-028).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DisconnectReason {
    /// 2 `DISCONNECTED_RETRY`: connect again and submit again.
    Retry,
    /// 3 `DISCONNECTED_ABORT`: destroy everything and begin anew.
    Abort,
}
