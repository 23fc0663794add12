//! The driver interface: what a kernel-mode driver implements, and what it asks of the kernel.
//!
//! Named for the DDI. A miniport never calls back: it pushes [`Callback`]s, which the kernel works off
//! in order when the DDI returns. It makes no time either: it says when it next wants to be told it.
//! Its calls are made one at a time, as at IRQL of the scheduler's thread class (level-1 synchronization).

use alloc::string::String;
use alloc::vec::Vec;

use crate::{Config, Nanos, ProcessId};

/// A hardware context for the miniport: an index that is unique while the context lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HwContext(pub u32);

/// An engine: adapter and node, by ordinal. On a link of physical adapters each node has an engine on each: `node`
/// goes on counting there, see [`crate::AdapterConfig::engines`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EngineId {
    pub adapter: u32,
    pub node: u32,
}

/// `DXGKARG_SUBMITCOMMANDVIRTUAL`: run this command buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submission {
    pub engine: EngineId,
    pub context: HwContext,
    /// Whose GPU address space the commands use.
    pub process: ProcessId,
    /// `SubmissionFenceId`: grows by one on each engine (SCH-005).
    pub submission_fence_id: u64,
    pub commands: Vec<u8>,
}

/// `DXGK_INTERRUPT_TYPE`, the ones we model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupt {
    /// 1 `DMA_COMPLETED`.
    DmaCompleted { engine: EngineId, submission_fence_id: u64 },
    /// 11 `MONITORED_FENCE_SIGNALED`: names an engine, not a fence.
    MonitoredFenceSignaled { engine: EngineId },
    /// 14 `PERIODIC_MONITORED_FENCE_SIGNALED`: {VidPnTargetId, NotificationID} of an adapter (FEN-088).
    PeriodicMonitoredFenceSignaled { adapter: u32, vidpn_target: u32, notification_id: u64 },
}

/// What a miniport asks of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Callback {
    /// `DxgkCbNotifyInterrupt`, with its DPC.
    NotifyInterrupt(Interrupt),
    /// The engine stored a 64-bit value at an address of that process's GPU address space. Where the adapter has
    /// No64BitAtomics only the low 32 bits count.
    GpuStore { engine: EngineId, process: ProcessId, gpu_address: u64, value: u64 },
}

/// What an engine does at the moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EngineState {
    /// Nothing to run.
    Idle,
    /// Runs a packet until that time.
    Running { submission_fence_id: u64, until: Nanos, queued: u32 },
    /// Runs a packet that never ends.
    Hung { submission_fence_id: u64, queued: u32 },
}

/// Faults that an engine has yet to meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PendingFaults {
    /// How many of the next interrupts are lost.
    pub interrupts_lost: u32,
    /// The next packet never ends.
    pub hangs_next: bool,
}

/// `DXGKARG_CREATEPERIODICFRAMENOTIFICATION`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatePeriodicFrameNotification {
    pub adapter: u32,
    /// `VidPnTargetId`.
    pub vidpn_target: u32,
    /// `Time`: how long before each vsync, in units of 100 ns; at most one vsync interval.
    pub time_100ns: u64,
    /// `NotificationID`: what the interrupts are to carry. No two are alike.
    pub notification_id: u64,
}

/// What `DxgkDdiCreatePeriodicFrameNotification` may answer beside STATUS_SUCCESS (FEN-087).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotificationRefused {
    /// STATUS_NO_MEMORY.
    NoMemory,
    /// STATUS_INVALID_PARAMETER.
    InvalidParameter,
    /// STATUS_UNSUCCESSFUL.
    Unsuccessful,
}

/// `DXGKARG_BUILDPAGINGBUFFER`, an update of page tables: this range of the process's GPU address space changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagingOperation {
    pub adapter: u32,
    pub process: ProcessId,
    pub base: u64,
    pub size: u64,
}

/// `DXGKARG_SIGNALMONITOREDFENCE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalMonitoredFence {
    pub process: ProcessId,
    pub gpu_address: u64,
    pub value: u64,
}

/// Why a command buffer is refused at submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadCommands(pub String);

/// A kernel-mode driver with its hardware.
pub trait Miniport {
    /// `DxgkDdiStartDevice` for every adapter of the configuration.
    fn start(&mut self, config: &Config);
    /// Checks a command buffer before it is queued.
    fn validate(&self, commands: &[u8]) -> Result<(), BadCommands>;
    /// `DxgkDdiSubmitCommandVirtual`.
    fn submit_command(&mut self, now: Nanos, submission: Submission, callbacks: &mut Vec<Callback>);
    /// `DxgkDdiDestroyContext`. `submitted` is the one submission of this context that has not completed,
    /// if any: it is dropped, running or queued.
    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Vec<Callback>,
    );
    /// `DxgkDdiStopDevice`: the engines of this adapter drop what they have and stay idle. What they wrote
    /// before stays written; the kernel counts nothing of it as completed.
    fn stop_device(&mut self, adapter: u32, callbacks: &mut Vec<Callback>);
    /// `DxgkDdiBuildPagingBuffer`: the DMA buffer that does it, which is then submitted to the adapter's engine
    /// [`crate::AdapterConfig::PAGING_NODE`]; `None` if there is nothing to do, or the CPU has done it.
    fn build_paging_buffer(&mut self, _operation: &PagingOperation) -> Option<Vec<u8>> {
        None
    }
    /// `DxgkDdiSignalMonitoredFence`: appends a fence write of the kernel's to a paging buffer (FEN-094).
    fn signal_monitored_fence(&mut self, _buffer: &mut Vec<u8>, _signal: SignalMonitoredFence) {}
    /// `DxgkDdiCreatePeriodicFrameNotification`: from now on interrupt 14 before each vsync of the target, until it is
    /// destroyed or the adapter stops. Gives `hNotification`. A driver without displays refuses.
    fn create_periodic_frame_notification(
        &mut self,
        _now: Nanos,
        _create: CreatePeriodicFrameNotification,
    ) -> Result<u64, NotificationRefused> {
        Err(NotificationRefused::Unsuccessful)
    }
    /// `DxgkDdiDestroyPeriodicFrameNotification`.
    fn destroy_periodic_frame_notification(&mut self, _adapter: u32, _notification: u64) {}
    /// [`crate::Fault::LoseInterrupt`]: the next `DxgkCbNotifyInterrupt` of this engine does not happen.
    fn lose_interrupt(&mut self, engine: EngineId);
    /// [`crate::Fault::Hang`]: the packet that runs, or else the next one to run, never ends.
    fn hang_engine(&mut self, engine: EngineId);
    /// When it next wants [`Miniport::deadline`].
    fn next_deadline(&self) -> Option<Nanos>;
    /// The time has come: engines move on to `now`.
    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>);
    /// Whether an engine has begun a submission that it was given and that did not complete yet: what stands in it was
    /// copied into the pipe (FEN-048). A driver that cannot tell counts what it was given as begun.
    fn has_begun(&self, _engine: EngineId, _submission_fence_id: u64) -> bool {
        true
    }
    /// For people and snapshots.
    fn engine_state(&self, engine: EngineId) -> EngineState;
    /// The same.
    fn pending_faults(&self, engine: EngineId) -> PendingFaults;
}
