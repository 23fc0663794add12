//! The driver interface: what a kernel-mode driver implements, and what it asks of the kernel.
//!
//! A driver of your own implements [`Miniport`]; docs/KMD.md walks through one. Methods are named for the DDI:
//! `DxgkDdiSubmitCommandVirtual` is `submit_command`. A method that names no DDI in its documentation is an addition of
//! this model.
//!
//! # What the kernel promises
//!
//! - One call at a time, none inside of another, as at IRQL of the scheduler's thread class (level-1
//!   synchronization). The first is `start`, for all adapters of the configuration.
//! - An id of a context, hardware queue, fence or allocation names one object from its creation to its destruction, and
//!   no DDI names it before or after. Context and queue numbers are reused; [`NativeFenceId`], [`AllocationId`],
//!   [`ResourceId`], [`KmdProcess`], [`KmdDevice`] and [`DxgCpuEvent`] never.
//! - `submission_fence_id` grows on each engine (SCH-005), also over resets; the kernel gives an engine two submissions
//!   at a time. `validate` has seen each command buffer before it is submitted.
//! - `destroy_*` comes once for each successful `create_*`, children before their parents. An object whose creation
//!   failed is not destroyed.
//! - Time is a parameter and never decreases. After `stop_device` the adapter is given no work until `start_device`; its
//!   objects are still destroyed one by one.
//!
//! # What a driver promises
//!
//! - It never calls into the kernel: it pushes [`Callback`]s, which the kernel processes in order when the DDI returns.
//! - It has no timers: `next_deadline` returns when it wants `deadline`, and the kernel asks again after each DDI.
//! - It depends on its inputs alone: no clock, no randomness, no I/O. Otherwise a trace does not replay.
//! - It names only its own adapter, contexts, queues and fences.
//! - Each submission is answered by an interrupt (`DMA_COMPLETED`, or a fault), or dropped by a DDI that says so. One
//!   that is neither is a hang, and leads to TDR after `TdrDelay`.
//!
//! A breach of the contract harms no other adapter, unless it bugchecks. The kernel notes an unknown id and ignores it.
//! It bugchecks where Windows does: a scheduler DDI or the reset of an adapter that fails, a fence id that was never
//! submitted, a completion or fault of one that is older than the last completed, dependent engines without the engine
//! itself, interrupt 19 with a dead fence, a page fault with bad flags, a fatal hardware error. A bugcheck stops the
//! adapters of all drivers. A thread that is stuck reports itself by [`Callback::Stuck`]. A driver that panics is stopped with its adapter (crate
//! `drivers`).
//!
//! # What a driver needs
//!
//! | DDI | method | without it |
//! |---|---|---|
//! | `DxgkDdiStartDevice` | [`start`](Miniport::start) | required |
//! | `DxgkDdiStartDevice`, after a stop | [`start_device`](Miniport::start_device) | STATUS_NOT_SUPPORTED: a stopped adapter stays stopped |
//! | - | [`validate`](Miniport::validate) | required |
//! | `DxgkDdiSubmitCommandVirtual` | [`submit_command`](Miniport::submit_command) | required |
//! | `DxgkDdiDestroyContext`, `StopDevice` | [`destroy_context`](Miniport::destroy_context), [`stop_device`](Miniport::stop_device) | required |
//! | - | [`next_deadline`](Miniport::next_deadline), [`deadline`](Miniport::deadline) | required |
//! | - | [`engine_state`](Miniport::engine_state), [`pending_faults`](Miniport::pending_faults) | required: snapshots, checkers |
//! | - | [`work`](Miniport::work), [`pending_writes`](Miniport::pending_writes) | `gpupv why` assumes that its work may signal anything |
//! | - | [`lose_interrupt`](Miniport::lose_interrupt), [`hang_engine`](Miniport::hang_engine) | required: faults of tests |
//! | `DxgkDdiDpcRoutine` | [`dpc_routine`](Miniport::dpc_routine) | calls `DxgkCbNotifyDpc` |
//! | `DxgkDdiPatch`, `PreemptCommand`, `CancelCommand` | [`patch`](Miniport::patch), [`preempt_command`](Miniport::preempt_command), [`cancel_command`](Miniport::cancel_command) | nothing happens: work runs to completion |
//! | `DxgkDdiCreateContext`, `CreateProcess`, `CreateDevice` | [`create_context`](Miniport::create_context), .. | accepted |
//! | `DxgkDdiQueryEngineStatus`, `ResetEngine`, `ResetHwEngine` | [`query_engine_status`](Miniport::query_engine_status), .. | not responsive; the reset fails, the adapter is reset |
//! | `DxgkDdiResetFromTimeout`, `RestartFromTimeout` | [`reset_from_timeout`](Miniport::reset_from_timeout), .. | as `stop_device`; nothing |
//! | `DxgkDdiCreateHwQueue`, `CreateDoorbell`, `CreateNativeFence`, `SetNativeFenceLogBuffer` | [`create_hw_queue`](Miniport::create_hw_queue), .. | STATUS_NOT_SUPPORTED |
//! | `DxgkDdiSuspendContext`, `ResumeContext`, `SetPowerState` | [`suspend_context`](Miniport::suspend_context), .. | suspended at once; nothing |
//! | `DxgkDdiCreateAllocation`, `OpenAllocation`, `DescribeAllocation`, .. | [`create_allocation`](Miniport::create_allocation), .. | STATUS_NOT_SUPPORTED: standard allocations only |
//! | `DxgkDdiBuildPagingBuffer` | [`build_paging_buffer`](Miniport::build_paging_buffer) | nothing to submit: the CPU did it |
//! | - | [`update_page_table`](Miniport::update_page_table) | its engines see no page tables |
//! | `DxgkDdiCreateCpuEvent`, `Escape` | [`create_cpu_event`](Miniport::create_cpu_event), [`escape`](Miniport::escape) | STATUS_NOT_SUPPORTED |
//! | - | [`save`](Miniport::save), [`restore`](Miniport::restore) | no snapshots: traces replay from their first step |
//! | `DxgkDdiCreatePeriodicFrameNotification` | [`create_periodic_frame_notification`](Miniport::create_periodic_frame_notification) | STATUS_UNSUCCESSFUL: no displays |

mod allocations;
pub(crate) mod engine_ids;
mod guests;
mod happens_before;
mod native;
mod page_map;
mod page_tables;
mod pending_writes;
mod periodic_frames;
mod queues;
mod recovery;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{FeatureId, NtStatus};
use serde::{Deserialize, Serialize};

pub use allocations::{
    AllocationDescription, AllocationId, AllocationInfo, CreateAllocation, DestroyAllocation,
    LocalAllocationId, OpenAllocation, ResourceId, SegmentGroup, StandardAllocationData,
};
pub use engine_ids::{EngineId, HwContext, HwQueueId};
pub use guests::{
    CreateCpuEvent, DxgCpuEvent, Escape, KmdCpuEvent, KmdDevice, KmdProcess, NewProcess, ProcessKind,
    QueryAdapterInfo, QueryAdapterInfoFlags, SignalEvent, VirtualMachineData,
};
pub use happens_before::{Agent, EngineStore, HappensBefore, SignalEffect};
pub use native::{
    CurrentValueUpdate, LocalNativeFenceId, NATIVE_FENCE_LOG_ENTRIES, NATIVE_FENCE_PAGE_BYTES,
    NATIVE_FENCE_STRIDE_BYTES, NativeFenceId, NativeFenceLogEntry, NativeFenceLogHeader, NativeFenceLogType,
    NativeFenceLogWrite, NativeFenceStorage, NewNativeFence, OpenedNativeFence, SignaledNativeFences,
};
pub use page_map::{Page, PageMap, Piece};
pub use page_tables::{PageTableEntry, PagingOperation, PagingWork, SignalMonitoredFence};
pub use pending_writes::{EngineWork, PendingWrite, WorkState};
pub use periodic_frames::{CreatePeriodicFrameNotification, NotificationRefused};
pub use queues::{DisconnectReason, DoorbellConnection, HwQueueSubmission, NewHwQueue, Suspend};
pub(crate) use recovery::bit as engine_bit;
pub use recovery::{
    EngineStatus, FaultedWork, Invalidation, PageFaultFlags, PerEngineTdrDdis, ResetFailed, RunningContext,
    SchedulingLogBuffer, SchedulingLogHeader, interrupt_type,
};

use crate::{Config, DmaOp, DriverAnswer, MemoryRef, Nanos, ProcessId, VmId};

/// `DXGKARG_SUBMITCOMMANDVIRTUAL`: run this command buffer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Submission {
    pub engine: EngineId,
    pub context: HwContext,
    /// The process whose GPU address space the commands use.
    pub process: ProcessId,
    /// `SubmissionFenceId`: grows on each engine (SCH-005).
    pub submission_fence_id: u64,
    /// `Flags.Resubmission`: the id under which this work was preempted, or was queued when the engine was reset. The
    /// hardware continues where it stopped; `commands` is empty. A paging buffer is resubmitted under the same id
    /// (SCH-008).
    pub resubmits: Option<u64>,
    /// `Flags.Paging`: work of the memory manager.
    pub paging: bool,
    pub commands: Vec<u8>,
}

/// `DXGK_INTERRUPT_TYPE`: the modelled types. A type that is not specified cannot be expressed (SCH-002).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Interrupt {
    /// 1 `DMA_COMPLETED`.
    DmaCompleted { engine: EngineId, submission_fence_id: u64 },
    /// 2 `DMA_PREEMPTED`: submissions after `last_completed_fence_id` go back to the scheduler.
    DmaPreempted { engine: EngineId, preemption_fence_id: u64, last_completed_fence_id: u64 },
    /// 3 `CRTC_VSYNC`. Reported after the DMA interrupts of its time (SCH-004).
    CrtcVsync { adapter: u32, target: u32 },
    /// 4 `DMA_FAULTED`.
    DmaFaulted { engine: EngineId, faulted_fence_id: u64 },
    /// 9 `DMA_PAGE_FAULTED`.
    DmaPageFaulted { engine: EngineId, faulted_fence_id: u64, gpu_address: u64, flags: PageFaultFlags },
    /// 12 `HWQUEUE_PAGE_FAULTED`.
    HwQueuePageFaulted { engine: EngineId, work: FaultedWork, gpu_address: u64, flags: PageFaultFlags },
    /// 15 `SCHEDULING_LOG`: the log of this engine has new entries.
    SchedulingLog { engine: EngineId },
    /// 16 `GPU_ENGINE_TIMEOUT`: the hardware itself found that the engine is stuck.
    GpuEngineTimeout { engine: EngineId },
    /// 11 `MONITORED_FENCE_SIGNALED`: names an engine, not a fence.
    MonitoredFenceSignaled { engine: EngineId },
    /// 17 `SUSPEND_CONTEXT_COMPLETED`: acknowledges the suspend that carried this fence (SCH-020).
    SuspendContextCompleted { engine: EngineId, context: HwContext, suspend_fence: u64 },
    /// 19 `NATIVE_FENCE_SIGNALED`.
    NativeFenceSignaled { engine: EngineId, signaled: SignaledNativeFences },
    /// 20 `GPU_ENGINE_STATE_CHANGE` with `TRANSITION_TO_F1`: the engine's doorbells are lost (SCH-033).
    EngineToF1 { engine: EngineId },
    /// 14 `PERIODIC_MONITORED_FENCE_SIGNALED`: {VidPnTargetId, NotificationID} of an adapter (FEN-088).
    PeriodicMonitoredFenceSignaled { adapter: u32, vidpn_target: u32, notification_id: u64 },
}

impl Interrupt {
    /// `DXGK_INTERRUPT_TYPE` (SCH-002).
    pub const fn number(&self) -> u32 {
        match self {
            Interrupt::DmaCompleted { .. } => interrupt_type::DMA_COMPLETED,
            Interrupt::DmaPreempted { .. } => interrupt_type::DMA_PREEMPTED,
            Interrupt::CrtcVsync { .. } => interrupt_type::CRTC_VSYNC,
            Interrupt::DmaFaulted { .. } => interrupt_type::DMA_FAULTED,
            Interrupt::DmaPageFaulted { .. } => interrupt_type::DMA_PAGE_FAULTED,
            Interrupt::MonitoredFenceSignaled { .. } => interrupt_type::MONITORED_FENCE_SIGNALED,
            Interrupt::HwQueuePageFaulted { .. } => interrupt_type::HWQUEUE_PAGE_FAULTED,
            Interrupt::SchedulingLog { .. } => interrupt_type::SCHEDULING_LOG,
            Interrupt::GpuEngineTimeout { .. } => interrupt_type::GPU_ENGINE_TIMEOUT,
            Interrupt::SuspendContextCompleted { .. } => interrupt_type::SUSPEND_CONTEXT_COMPLETED,
            Interrupt::NativeFenceSignaled { .. } => interrupt_type::NATIVE_FENCE_SIGNALED,
            Interrupt::EngineToF1 { .. } => interrupt_type::GPU_ENGINE_STATE_CHANGE,
            Interrupt::PeriodicMonitoredFenceSignaled { .. } => {
                interrupt_type::PERIODIC_MONITORED_FENCE_SIGNALED
            }
        }
    }

    /// The engine whose work it reports on. A reset of the engine makes it void.
    pub const fn engine_of_work(&self) -> Option<EngineId> {
        match self {
            Interrupt::DmaCompleted { engine, .. }
            | Interrupt::DmaPreempted { engine, .. }
            | Interrupt::DmaFaulted { engine, .. }
            | Interrupt::DmaPageFaulted { engine, .. }
            | Interrupt::HwQueuePageFaulted { engine, .. }
            | Interrupt::GpuEngineTimeout { engine } => Some(*engine),
            Interrupt::CrtcVsync { .. }
            | Interrupt::SchedulingLog { .. }
            | Interrupt::MonitoredFenceSignaled { .. }
            | Interrupt::SuspendContextCompleted { .. }
            | Interrupt::NativeFenceSignaled { .. }
            | Interrupt::EngineToF1 { .. }
            | Interrupt::PeriodicMonitoredFenceSignaled { .. } => None,
        }
    }

    /// The adapter whose interrupt line it uses.
    pub const fn adapter(&self) -> u32 {
        match self {
            Interrupt::CrtcVsync { adapter, .. }
            | Interrupt::PeriodicMonitoredFenceSignaled { adapter, .. } => *adapter,
            Interrupt::DmaCompleted { engine, .. }
            | Interrupt::DmaPreempted { engine, .. }
            | Interrupt::DmaFaulted { engine, .. }
            | Interrupt::DmaPageFaulted { engine, .. }
            | Interrupt::MonitoredFenceSignaled { engine }
            | Interrupt::HwQueuePageFaulted { engine, .. }
            | Interrupt::SchedulingLog { engine }
            | Interrupt::GpuEngineTimeout { engine }
            | Interrupt::SuspendContextCompleted { engine, .. }
            | Interrupt::NativeFenceSignaled { engine, .. }
            | Interrupt::EngineToF1 { engine } => engine.adapter,
        }
    }
}

/// A callback of a miniport into the kernel (`DxgkCb*`), or an action of its hardware.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Callback {
    /// `DxgkCbNotifyInterrupt`: the kernel records it, then calls [`Miniport::dpc_routine`].
    NotifyInterrupt(Interrupt),
    /// `DxgkCbNotifyDpc`: the kernel processes this adapter's recorded interrupts.
    NotifyDpc { adapter: u32 },
    /// The engine stored a 64-bit value at an address of that process's GPU address space. Where the adapter has
    /// No64BitAtomics only the low 32 bits count.
    GpuStore { engine: EngineId, process: ProcessId, gpu_address: u64, value: u64 },
    /// The engine read the 8 bytes of a fence at an address of that process's GPU address space, and wrote them to
    /// `to`: memory, or a staging buffer of its own adapter.
    GpuLoad { engine: EngineId, process: ProcessId, gpu_address: u64, to: MemoryRef },
    /// The engine runs a DMA operation, which names staging buffers of its own adapter only.
    Dma { engine: EngineId, moved: DmaOp },
    /// `DxgkCbInvalidateHwContext`, from inside of [`Miniport::reset_hw_engine`].
    InvalidateHwContext { context: HwContext, reason: Invalidation },
    /// The thread was inside this DDI for that long. A driver has no clock, so one that is stuck has to report it
    /// (TDR-002).
    Stuck { nanos: Nanos },
    /// [`Callback::GpuStore`] by a command buffer of a hardware queue.
    HwQueueStore { engine: EngineId, hw_queue: HwQueueId, gpu_address: u64, value: u64 },
    /// The engine wrote a native fence log.
    NativeFenceLogWrite(NativeFenceLogWrite),
    /// `DxgkCbDisconnectDoorbell`: the kernel stores the status, then passes the result to
    /// [`Miniport::doorbell_disconnected`]. From then on the physical doorbell may be reused (SCH-031).
    DisconnectDoorbell { hw_queue: HwQueueId, reason: DisconnectReason },
    /// `DxgkCbSignalEvent`, at an IRQL of DISPATCH_LEVEL at most (EVT-010). Functions that stand for hardware and its
    /// interrupt service routine may not push it: [`Miniport::deadline`], [`Miniport::page_fault`] and
    /// [`Miniport::engine_to_f1`]. The [`Miniport::dpc_routine`] that follows them may. [`Miniport::event_signaled`]
    /// receives the result.
    SignalEvent { adapter: u32, signal: SignalEvent },
    /// `DbgPrintEx`: a line of text, of which at most [`DEBUG_PRINT_BYTES_MAX`] bytes are kept, and the process that it
    /// concerns, if any.
    DebugPrint { adapter: u32, process: Option<ProcessId>, text: String },
    /// No callback: the layer between the kernel and this adapter's driver (crate `drivers`) dropped an action that
    /// breaks the contract.
    Violation { adapter: u32, what: String },
}

/// Bytes of one [`Callback::DebugPrint`] at most, as of one call of `DbgPrint`.
pub const DEBUG_PRINT_BYTES_MAX: usize = 512;

/// What an engine does at the moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EngineState {
    /// Nothing to run.
    Idle,
    /// Runs a packet until that time. [`Nanos::MAX`]: the driver does not say how long.
    Running { submission_fence_id: u64, until: Nanos, queued: u32 },
    /// Runs a packet that never ends.
    Hung { submission_fence_id: u64, queued: u32 },
}

/// Injected faults that have not happened yet on an engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct PendingFaults {
    /// How many of the next interrupts are lost.
    pub interrupts_lost: u32,
    /// The next packet never ends.
    pub hangs_next: bool,
    /// The next packet faults: address and `DXGK_PAGE_FAULT_FLAGS`.
    pub page_fault: Option<(u64, u32)>,
    /// How many of the next resets fail.
    pub resets_failing: u32,
}

/// Why a command buffer is refused at submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadCommands(pub String);

/// A driver that any thread of a host may run.
pub type BoxedMiniport = Box<dyn Miniport + Send>;

/// A kernel-mode driver with its hardware. The contract is in the documentation of [the module](self).
#[expect(unused_variables, reason = "the defaults of DDIs that a driver need not have")]
pub trait Miniport {
    /// `DxgkDdiStartDevice` for every adapter of the configuration.
    fn start(&mut self, config: &Config);
    /// Checks a command buffer for this adapter before it is queued.
    fn validate(&self, adapter: u32, commands: &[u8]) -> Result<(), BadCommands>;
    /// `DxgkDdiSubmitCommandVirtual`.
    /// An error is a bugcheck (TDR-033).
    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus>;
    /// `DxgkDdiPatch`, before the submission of the same id (SCH-006); not called with NoDmaPatching. An error is a
    /// bugcheck.
    fn patch(
        &mut self,
        engine: EngineId,
        context: HwContext,
        submission_fence_id: u64,
    ) -> Result<(), NtStatus> {
        Ok(())
    }
    /// `DxgkDdiPreemptCommand`: stop at the next point where that is possible, and report `DMA_PREEMPTED` with this id;
    /// at once if there is nothing to stop (TDR-034). The driver keeps incomplete work for its resubmission. If it
    /// reports nothing for TdrDelay but is responsive, the kernel asks again with another id, and the driver answers
    /// the newest request. An error is a bugcheck.
    fn preempt_command(
        &mut self,
        now: Nanos,
        engine: EngineId,
        preemption_fence_id: u64,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        Ok(())
    }
    /// `DxgkDdiCancelCommand`, with CancelCommandAware: this command buffer will not be submitted. An error is a
    /// bugcheck.
    fn cancel_command(&mut self, context: HwContext, commands: &[u8]) -> Result<(), NtStatus> {
        Ok(())
    }
    /// `DxgkDdiDpcRoutine`, for the recorded interrupts: has to call `DxgkCbNotifyDpc` (SCH-003).
    fn dpc_routine(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        callbacks.push(Callback::NotifyDpc { adapter });
    }
    /// The features that the driver advertises for this adapter: those that it supports and the system offers
    /// ([`crate::Features::offers`]). A feature that the system does not offer makes the start fail (SCH-043).
    fn advertised_features(&self, adapter: u32) -> Vec<FeatureId> {
        Vec::new()
    }
    /// Which of the DDIs of engine resets the driver has for this adapter.
    fn per_engine_tdr_ddis(&self, adapter: u32) -> PerEngineTdrDdis {
        PerEngineTdrDdis::all()
    }
    /// `DxgkDdiSetSchedulingLogBuffer`: for each engine of hardware scheduling, at start. Interrupt 15 reports new
    /// entries.
    fn set_scheduling_log_buffer(&mut self, engine: EngineId, buffer: SchedulingLogBuffer) {}
    /// `DxgkDdiBeginExclusiveAccess`: the GPU of this adapter uses CPU addresses, and their mapping is about to change
    /// (TDR-042).
    fn begin_exclusive_access(&mut self, adapter: u32) {}
    /// No DDI: the IOMMU's mapping of a process's fence memory grows by `added` slots, or is removed (`None`).
    fn iommu_mapping_changed(&mut self, adapter: u32, process: ProcessId, added: Option<u32>) {}
    /// `DxgkDdiEndExclusiveAccess`.
    fn end_exclusive_access(&mut self, adapter: u32) {}
    /// `DxgkDdiQueryEngineStatus`: called after a timeout, before any recovery.
    fn query_engine_status(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> EngineStatus {
        EngineStatus::default()
    }
    /// `DxgkDdiQueryDependentEngineGroup`: bit `n` is set if node `n` is reset with it. Its own bit has to be set
    /// (TDR-018).
    fn query_dependent_engine_group(&mut self, engine: EngineId) -> u64 {
        engine_bit(engine)
    }
    /// `DxgkDdiResetEngine`. Returns `LastAbortedFenceId`: incomplete submissions up to this id are lost, and the
    /// driver keeps later ones for their resubmission.
    fn reset_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<u64, ResetFailed> {
        Err(ResetFailed)
    }
    /// `DxgkDdiResetHwEngine`, for contexts of hardware scheduling. The driver reports each context that loses its work
    /// by [`Callback::InvalidateHwContext`], and keeps the work of the others for its resubmission.
    fn reset_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        Err(ResetFailed)
    }
    /// `DxgkDdiResumeHwEngine`: contexts may run again (TDR-021).
    fn resume_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        Ok(())
    }
    /// `DxgkDdiResetFromTimeout`. After it returns, the GPU accesses no memory (TDR-009). A failure is a bugcheck.
    fn reset_from_timeout(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus> {
        self.stop_device(adapter, callbacks);
        Ok(())
    }
    /// `DxgkDdiBuildPagingBuffer` with transfers of no bytes, between reset and restart: the contents of the adapter's
    /// video memory are lost (TDR-010).
    fn memory_evicted(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {}
    /// `DxgkDdiRestartFromTimeout`. A failure is a bugcheck.
    fn restart_from_timeout(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus> {
        Ok(())
    }
    /// [`crate::Fault::PageFault`]: the packet that runs, or else the next one to run, faults.
    fn page_fault(
        &mut self,
        now: Nanos,
        engine: EngineId,
        gpu_address: u64,
        flags: PageFaultFlags,
        callbacks: &mut Vec<Callback>,
    ) {
    }
    /// [`crate::Fault::ResetFails`]: the next reset of this engine fails.
    fn fail_reset(&mut self, engine: EngineId) {}
    /// `DxgkDdiCreateContext`: before any other DDI names the context.
    fn create_context(&mut self, engine: EngineId, context: HwContext) -> Result<(), NtStatus> {
        Ok(())
    }
    /// `DxgkDdiDestroyContext`. `submitted` is the one submission of this context that has not completed, if any. The
    /// driver drops it, whether it runs, is queued or is kept for its resubmission.
    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Vec<Callback>,
    );
    /// `DxgkDdiStopDevice`: the engines of this adapter drop their work and stay idle. Their earlier writes stay; the
    /// kernel counts none of the dropped work as completed.
    fn stop_device(&mut self, adapter: u32, callbacks: &mut Vec<Callback>);
    /// `DxgkDdiStartDevice` of an adapter that was stopped: its engines are idle and in D0.
    fn start_device(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }
    /// `DxgkDdiCreateHwQueue`.
    fn create_hw_queue(&mut self, new: &NewHwQueue) -> Result<(), NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }
    /// `DxgkDdiDestroyHwQueue`: its work is dropped, running or not.
    fn destroy_hw_queue(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {}
    /// `DxgkDdiSubmitCommandToHwQueue`. A queue runs in order; queues of different engines run in parallel.
    fn submit_command_to_hw_queue(
        &mut self,
        now: Nanos,
        submission: HwQueueSubmission,
        callbacks: &mut Vec<Callback>,
    ) {
    }
    /// `DxgkDdiSuspendContext`: for contexts with hardware queues. `suspend_fence` grows with each suspend of the
    /// context.
    fn suspend_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        suspend_fence: u64,
        callbacks: &mut Vec<Callback>,
    ) -> Suspend {
        Suspend::Suspended
    }
    /// `DxgkDdiResumeContext`. Contexts are created resumed (SCH-022).
    fn resume_context(&mut self, now: Nanos, context: HwContext, callbacks: &mut Vec<Callback>) {}
    /// `DxgkDdiSetPowerState`: D0 if `on`, else D3. Its contexts are suspended before D3.
    fn set_power_state(&mut self, adapter: u32, on: bool) {}
    /// [`crate::Fault::EngineToF1`]: the engine enters F1 and loses its doorbells (SCH-033).
    fn engine_to_f1(&mut self, engine: EngineId, callbacks: &mut Vec<Callback>) {}
    /// `DxgkDdiCreateDoorbell`: the new doorbell is disconnected.
    fn create_doorbell(&mut self, hw_queue: HwQueueId) -> Result<(), NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }
    /// `DxgkDdiConnectDoorbell`.
    fn connect_doorbell(
        &mut self,
        now: Nanos,
        hw_queue: HwQueueId,
        callbacks: &mut Vec<Callback>,
    ) -> DoorbellConnection {
        DoorbellConnection::Failed
    }
    /// `DxgkDdiDisconnectDoorbell`: the kernel disconnects it, and has already stored the status.
    fn disconnect_doorbell(&mut self, hw_queue: HwQueueId) {}
    /// The result of a [`Callback::DisconnectDoorbell`]: SUCCESS even if it was disconnected already, INVALID_PARAMETER
    /// if the queue has no doorbell.
    fn doorbell_disconnected(&mut self, hw_queue: HwQueueId, status: NtStatus) {}
    /// `DxgkDdiDestroyDoorbell`.
    fn destroy_doorbell(&mut self, hw_queue: HwQueueId) {}
    /// No DDI: a client process wrote to the queue's physical doorbell; the engine finds these buffers in the ring.
    fn ring_doorbell(
        &mut self,
        now: Nanos,
        hw_queue: HwQueueId,
        buffers: Vec<Vec<u8>>,
        callbacks: &mut Vec<Callback>,
    ) {
    }
    /// `DxgkDdiNotifyWorkSubmission` (SCH-029).
    fn notify_work_submission(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {}
    /// Bytes of the buffers that a queue of user-mode submission has yet to run.
    fn ring_bytes(&self, hw_queue: HwQueueId) -> usize {
        0
    }
    /// No DDI: bytes of a process's command buffers that the driver keeps on an adapter until each has run. They count
    /// against the process's limit of queued bytes, as do 128 bytes of the kernel for each buffer of a hardware queue.
    fn held_bytes(&self, adapter: u32, process: ProcessId) -> usize {
        0
    }
    /// No DDI: bytes of what the driver keeps for a process on an adapter in addition to command buffers, such as its
    /// resources. They are charged to the process.
    fn kept_bytes(&self, adapter: u32, process: ProcessId) -> usize {
        0
    }
    /// `DxgkDdiSetNativeFenceLogBuffer`, both of them: empty, with `entries` entries each. Logging is mandatory
    /// (FEN-126).
    fn set_native_fence_log_buffers(&mut self, hw_queue: HwQueueId, entries: u32) -> Result<(), NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }
    /// `DxgkDdiUpdateNativeFenceLogs`: the driver writes back cached entries before the kernel reads the logs
    /// (FEN-124).
    fn update_native_fence_logs(&mut self, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {}
    /// `DxgkDdiCreateNativeFence`.
    fn create_native_fence(&mut self, new: &NewNativeFence) -> Result<(), NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }
    /// `DxgkDdiOpenNativeFence`.
    fn open_native_fence(&mut self, opened: &OpenedNativeFence) {}
    /// `DxgkDdiCloseNativeFence`.
    fn close_native_fence(&mut self, local: LocalNativeFenceId) {}
    /// `DxgkDdiDestroyNativeFence`: after its last close.
    fn destroy_native_fence(&mut self, fence: NativeFenceId) {}
    /// No DDI: a queue or the CPU of the fence's process waits for the fence or signals it, for a driver with a debug
    /// layer. A wait that the fence's value satisfies in the process itself is not reported.
    fn native_fence_used(&mut self, local: LocalNativeFenceId, callbacks: &mut Vec<Callback>) {}
    /// No DDI: another adapter's engine stored the CurrentValue of a fence that this driver's GPU maps too. Only the
    /// memory changes (FEN-115).
    fn memory_written(&mut self, storage: NativeFenceStorage, value: u64) {}
    /// No DDI: reports a happens-before relation, for a driver that detects races. Called only if the configuration of
    /// some adapter sets `hazards`. Returns notes for people.
    fn happens_before(&mut self, edge: &HappensBefore) -> Vec<String> {
        Vec::new()
    }
    /// `DxgkDdiUpdateMonitoredValues`. The GPU may store meanwhile without an interrupt, so the kernel then rereads the
    /// CurrentValues (FEN-101).
    fn update_monitored_values(
        &mut self,
        now: Nanos,
        values: &[(NativeFenceId, u64)],
        callbacks: &mut Vec<Callback>,
    ) {
    }
    /// `DxgkDdiUpdateCurrentValuesFromCpu`.
    fn update_current_values_from_cpu(
        &mut self,
        now: Nanos,
        updates: &[CurrentValueUpdate],
        callbacks: &mut Vec<Callback>,
    ) {
    }
    /// `DxgkDdiGetStandardAllocationDriverData`: the private data of a standard allocation, with which the kernel then
    /// calls [`Miniport::create_allocation`]. `None`: the driver has none, and is not asked about the allocation.
    fn get_standard_allocation_driver_data(
        &mut self,
        adapter: u32,
        standard: &StandardAllocationData,
    ) -> Option<Vec<u8>> {
        None
    }
    /// `DxgkDdiCreateAllocation`: all of the call or none. The driver reads the private data, may replace them by data
    /// of the same length, and fills in each [`AllocationInfo`].
    fn create_allocation(
        &mut self,
        adapter: u32,
        create: &mut CreateAllocation,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }
    /// `DxgkDdiOpenAllocation`, of one allocation: once for each handle to it.
    fn open_allocation(&mut self, adapter: u32, open: &OpenAllocation<'_>) -> Result<(), NtStatus> {
        Ok(())
    }
    /// `DxgkDdiCloseAllocation`.
    fn close_allocation(&mut self, adapter: u32, device: KmdDevice, opened: LocalAllocationId) {}
    /// `DxgkDdiDestroyAllocation`: after the last close of each allocation, and of a resource after its allocations.
    fn destroy_allocation(&mut self, adapter: u32, destroy: &DestroyAllocation) {}
    /// `DxgkDdiDescribeAllocation`: of a picture; `None` for a buffer.
    fn describe_allocation(&self, adapter: u32, allocation: AllocationId) -> Option<AllocationDescription> {
        None
    }
    /// `DxgkDdiBuildPagingBuffer`: returns the paging buffer for the operation, which the kernel submits to
    /// [`crate::AdapterConfig::paging_engine`]; `None` if there is nothing to do, or the CPU has done it.
    fn build_paging_buffer(&mut self, _operation: &PagingOperation) -> Option<Vec<u8>> {
        None
    }
    /// `DxgkDdiBuildPagingBuffer`, UpdatePageTable, as engines see it: from now on these pages of a process's GPU
    /// address space have this entry. Pages that were never set have NoAccess. When a process ends, the kernel sets all
    /// its pages to NoAccess.
    fn update_page_table(
        &mut self,
        adapter: u32,
        process: ProcessId,
        base: u64,
        bytes: u64,
        entry: PageTableEntry,
    ) {
    }
    /// `DxgkDdiSignalMonitoredFence`: appends a fence write by the kernel to a paging buffer (FEN-094).
    fn signal_monitored_fence(&mut self, _buffer: &mut Vec<u8>, _signal: SignalMonitoredFence) {}
    /// `DxgkDdiCreatePeriodicFrameNotification`: from now on the driver reports interrupt 14 before each vsync of the
    /// target, until the notification is destroyed or the adapter stops. Returns `hNotification`. A driver without
    /// displays fails the call.
    fn create_periodic_frame_notification(
        &mut self,
        _now: Nanos,
        _create: CreatePeriodicFrameNotification,
    ) -> Result<u64, NotificationRefused> {
        Err(NotificationRefused::Unsuccessful)
    }
    /// `DxgkDdiDestroyPeriodicFrameNotification`.
    fn destroy_periodic_frame_notification(&mut self, _adapter: u32, _notification: u64) {}
    /// `DxgkDdiCreateProcess`: with the process's first device on the adapter.
    fn create_process(&mut self, _adapter: u32, _new: &NewProcess) -> Result<(), NtStatus> {
        Ok(())
    }
    /// `DxgkDdiDestroyProcess`.
    fn destroy_process(&mut self, _adapter: u32, _process: KmdProcess, _callbacks: &mut Vec<Callback>) {}
    /// `DxgkDdiSetVirtualMachineData`.
    fn set_virtual_machine_data(&mut self, _adapter: u32, _data: &VirtualMachineData) {}
    /// `DxgkDdiQueryAdapterInfo`: private data of the user-mode and kernel-mode drivers.
    fn query_adapter_info(&mut self, _adapter: u32, _query: QueryAdapterInfo<'_>) -> Result<(), NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }
    /// `DxgkDdiCreateDevice`.
    fn create_device(
        &mut self,
        _adapter: u32,
        _process: KmdProcess,
        _device: KmdDevice,
    ) -> Result<(), NtStatus> {
        Ok(())
    }
    /// `DxgkDdiDestroyDevice`.
    fn destroy_device(&mut self, _adapter: u32, _device: KmdDevice, _callbacks: &mut Vec<Callback>) {}
    /// `DxgkDdiCreateCpuEvent`.
    fn create_cpu_event(&mut self, _adapter: u32, _create: &CreateCpuEvent) -> Result<KmdCpuEvent, NtStatus> {
        Err(NtStatus::NOT_SUPPORTED)
    }
    /// `DxgkDdiDestroyCpuEvent`: when it returns, no signal of it is in flight, and none may follow (EVT-013, EVT-016).
    fn destroy_cpu_event(&mut self, _adapter: u32, _event: KmdCpuEvent, _callbacks: &mut Vec<Callback>) {}
    /// The result of a [`Callback::SignalEvent`]: INVALID_PARAMETER if the arguments, the event or the IRQL are wrong.
    fn event_signaled(&mut self, _adapter: u32, _signal: &SignalEvent, _status: NtStatus) {}
    /// `DxgkDdiEscape`.
    fn escape(
        &mut self,
        _now: Nanos,
        _adapter: u32,
        _escape: Escape<'_>,
        _callbacks: &mut Vec<Callback>,
    ) -> NtStatus {
        NtStatus::NOT_SUPPORTED
    }
    /// An object of the driver fails: the driver signals the CPU events that were registered for this usage.
    fn fail_object(&mut self, _adapter: u32, _usage: u32, _callbacks: &mut Vec<Callback>) {}
    /// [`crate::Fault::LoseInterrupt`]: the next `DxgkCbNotifyInterrupt` of this engine does not happen.
    fn lose_interrupt(&mut self, engine: EngineId);
    /// [`crate::Fault::Hang`]: the packet that runs, or else the next one to run, never ends.
    fn hang_engine(&mut self, engine: EngineId);
    /// When the driver next wants [`Miniport::deadline`].
    fn next_deadline(&self) -> Option<Nanos>;
    /// A deadline is due: engines advance to `now`.
    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>);
    /// Whether an engine has begun a submission that has not completed: its commands are then in the pipe (FEN-048). A
    /// driver that cannot tell counts every submission as begun.
    fn has_begun(&self, _engine: EngineId, _submission_fence_id: u64) -> bool {
        true
    }
    /// No DDI: the context whose work an engine runs, as a hardware register shows it. If the driver tells, timeout
    /// detection exempts what runs with DisableGpuTimeout, and nothing that waits (SCH-016).
    fn running_context(&self, _engine: EngineId) -> RunningContext {
        RunningContext::Unknown
    }
    /// The engine's present state, for people and snapshots.
    fn engine_state(&self, engine: EngineId) -> EngineState;
    /// Injected faults that have not happened yet, for people and snapshots.
    fn pending_faults(&self, engine: EngineId) -> PendingFaults;
    /// No DDI: the driver's whole state, for [`Miniport::restore`], or why it cannot be saved. It may leave out what
    /// `start` sets up again; equal states give equal bytes. Without it a trace has no snapshots and replays from its
    /// first step, and a daemon cannot resume after a restart.
    fn save(&self) -> Result<Vec<u8>, String> {
        Err("it does not implement Miniport::save".into())
    }
    /// No DDI: after `start` with the same configuration, restores the state that `save` returned as these bytes; or
    /// returns why it cannot.
    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        Err("it does not implement Miniport::restore".into())
    }
    /// No DDI, for people: the work of an engine, the running one first, then in order. `None`: the driver cannot tell,
    /// and its work may do anything.
    fn work(&self, _engine: EngineId) -> Option<Vec<EngineWork>> {
        None
    }
    /// The pending writes of one submission, of a hardware queue or (`None`) of a context's own queue. Its cost should
    /// not grow with the engine's other work.
    fn pending_writes_of_submission(
        &self,
        engine: EngineId,
        hw_queue: Option<HwQueueId>,
        submission_fence_id: u64,
    ) -> Option<Vec<PendingWrite>> {
        let mut work = self.work(engine)?.into_iter();
        work.find(|work| work.submission_fence_id == submission_fence_id).map(|work| work.pending_writes)
    }
    /// The pending writes of a command buffer that the kernel has not submitted yet.
    fn pending_writes(&self, _adapter: u32, _commands: &[u8]) -> Option<Vec<PendingWrite>> {
        None
    }
    /// No DDI: whether [`Miniport::take_died`] has a driver to report. The kernel asks often, so it has to be cheap.
    fn has_died(&self) -> bool {
        false
    }
    /// No DDI: the adapter of a driver that panicked, and the reason, reported once. The miniport may stand for several
    /// drivers. The kernel stops the adapter before it continues.
    fn take_died(&mut self) -> Option<(u32, String)> {
        None
    }
    /// No DDI: whether a driver runs outside of this program, so that what it does is no function of the inputs. Does
    /// not change.
    fn runs_outside(&self) -> bool {
        false
    }
    /// No DDI: what the drivers outside did since the last call. Traces keep it.
    fn take_answers(&mut self) -> Vec<DriverAnswer> {
        Vec::new()
    }
    /// No DDI: the time of the next DDIs, and the VM whose process's call leads to them, if any. Only drivers outside hear
    /// it.
    fn act_for(&mut self, now: Nanos, vm: Option<VmId>) {}
    /// No DDI: what they did in the next input when it was recorded.
    fn supply_answers(&mut self, answers: &[DriverAnswer]) {}
}
