//! The driver's side of timeouts, faults and resets: what the DDIs carry.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

use super::engine_ids::{EngineId, HwContext, HwQueueId};
use crate::ProcessId;

bitflags! {
    /// `DXGK_PAGE_FAULT_FLAGS` (TDR-028).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct PageFaultFlags: u32 {
        const WRITE = 0x1;
        /// No fence id is known: it is 0, and one of the reset-required bits is set too (TDR-035).
        const FENCE_INVALID = 0x2;
        const ADAPTER_RESET_REQUIRED = 0x4;
        const ENGINE_RESET_REQUIRED = 0x8;
        const FATAL_HARDWARE_ERROR = 0x10;
        const IOMMU = 0x20;
        const HW_CONTEXT_VALID = 0x40;
        const PROCESS_HANDLE_VALID = 0x80;
    }

    /// The DDIs that `SupportPerEngineTDR` requires (TDR-017).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct PerEngineTdrDdis: u32 {
        const QUERY_DEPENDENT_ENGINE_GROUP = 0x1;
        const QUERY_ENGINE_STATUS = 0x2;
        const RESET_ENGINE = 0x4;
    }
}

impl PageFaultFlags {
    /// Why no driver may report these flags with this fence id; `None` if it may.
    pub fn flaw(self, fence_id: u64) -> Option<&'static str> {
        let reset = PageFaultFlags::ADAPTER_RESET_REQUIRED | PageFaultFlags::ENGINE_RESET_REQUIRED;
        if self.bits() & !PageFaultFlags::all().bits() != 0 {
            return Some("the flags have reserved bits set");
        }
        if self.contains(PageFaultFlags::FATAL_HARDWARE_ERROR) {
            return None;
        }
        if self.contains(PageFaultFlags::FENCE_INVALID) {
            if fence_id != 0 {
                return Some("FENCE_INVALID needs the fence id 0");
            }
            if !self.intersects(reset) {
                return Some("FENCE_INVALID needs ENGINE_RESET_REQUIRED or ADAPTER_RESET_REQUIRED");
            }
        }
        None
    }
}

/// The work that a fault of a hardware queue hit (TDR-036).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FaultedWork {
    /// With a valid fence id: the queue, and the progress fence id of the buffer.
    Queue { hw_queue: HwQueueId, progress_fence_id: u64 },
    /// FENCE_INVALID with HW_CONTEXT_VALID.
    Context(HwContext),
    /// FENCE_INVALID with PROCESS_HANDLE_VALID.
    Process(ProcessId),
    /// FENCE_INVALID, and no VALID bit.
    Unknown,
}

/// `DXGK_ENGINESTATUS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EngineStatus {
    /// The engine makes progress: it runs nothing, or its work has run for less than TdrDelay.
    pub responsive: bool,
}

/// The context that an engine runs at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunningContext {
    /// The driver cannot tell.
    Unknown,
    /// The engine runs nothing: all its work waits in hardware.
    None,
    /// Work of this context, in its own queue or in a hardware queue.
    Context(HwContext),
}

/// `DxgkDdiResetEngine`, `DxgkDdiResetHwEngine` or `DxgkDdiResumeHwEngine` failed: the kernel resets the adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResetFailed;

/// Why a context lost its work in `DxgkDdiResetHwEngine` (TDR-020).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u32)]
pub enum Invalidation {
    /// It caused the reset.
    Culprit = 0,
    /// It lost work though it did not cause the reset.
    Collateral = 1,
}

/// `DXGK_SCHEDULING_LOG_HEADER`: all zero when the driver gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SchedulingLogHeader {
    pub first_free_entry_index: u32,
    pub wraparound_count: u32,
    pub number_of_entries: u64,
}

/// `DxgkDdiSetSchedulingLogBuffer`: the buffer in which an engine of hardware scheduling logs what it scheduled
/// (SCH-044).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchedulingLogBuffer {
    pub header: SchedulingLogHeader,
    /// Not initialized: old contents of the memory.
    pub entries: alloc::vec::Vec<[u64; 4]>,
}

impl SchedulingLogBuffer {
    pub(crate) fn new() -> Self {
        const ENTRIES: usize = 16;
        // A pattern that no driver mistakes for an empty entry.
        const LEFT_OVER: u64 = 0xCDCD_CDCD_CDCD_CDCD;
        let entries = alloc::vec![[LEFT_OVER; 4]; ENTRIES];
        SchedulingLogBuffer { header: SchedulingLogHeader::default(), entries }
    }
}

/// `DXGK_INTERRUPT_TYPE` as a number (SCH-002).
pub mod interrupt_type {
    pub const DMA_COMPLETED: u32 = 1;
    pub const DMA_PREEMPTED: u32 = 2;
    pub const CRTC_VSYNC: u32 = 3;
    pub const DMA_FAULTED: u32 = 4;
    pub const DMA_PAGE_FAULTED: u32 = 9;
    pub const MONITORED_FENCE_SIGNALED: u32 = 11;
    pub const HWQUEUE_PAGE_FAULTED: u32 = 12;
    pub const PERIODIC_MONITORED_FENCE_SIGNALED: u32 = 14;
    pub const SCHEDULING_LOG: u32 = 15;
    pub const GPU_ENGINE_TIMEOUT: u32 = 16;
    pub const SUSPEND_CONTEXT_COMPLETED: u32 = 17;
    pub const NATIVE_FENCE_SIGNALED: u32 = 19;
    pub const GPU_ENGINE_STATE_CHANGE: u32 = 20;
}

/// The engine's own bit in the mask of `DxgkDdiQueryDependentEngineGroup`.
pub(crate) fn bit(engine: EngineId) -> u64 {
    1u64.checked_shl(engine.node).unwrap_or(0)
}
