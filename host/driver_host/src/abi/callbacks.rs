//! What a driver calls, from inside of a DDI only: `DxgkCb..`, and the actions of its simulated hardware (`Sim..`).

use std::ffi::c_void;

use serde::{Deserialize, Serialize};

use super::declare::rows;
use super::{Field, NTSTATUS, Pointer, Row, UINT, UINT64};

macro_rules! callbacks {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident $model:ident $arguments:ident $fields:tt $(buffer $buffer:tt)? = $default:literal;
    )*) => {
        rows! { Callback, CALLBACKS: $(
            $(#[doc = $doc])* $name $model $arguments $fields $(buffer $buffer)? = $default;
        )* }

        /// The functions that a driver may call. Each gets `DxgkHandle` first.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct DXGKRNL_INTERFACE {
            pub Size: UINT,
            pub Version: UINT,
            pub DxgkHandle: Pointer,
            $(pub $name: unsafe extern "C" fn(*mut c_void, *const $arguments) -> NTSTATUS,)*
        }

        /// Runs a macro with all rows: name and arguments.
        #[macro_export]
        macro_rules! for_each_callback {
            ($run:ident) => { $run! { $($name $arguments;)* } };
        }
    };
}

callbacks! {
    /// Reports an interrupt. The kernel records it, then calls DxgkDdiDpcRoutine.
    DxgkCbNotifyInterrupt NotifyInterrupt DXGKARGCB_NOTIFY_INTERRUPT_DATA {
        /// DXGK_INTERRUPT_TYPE: 1 DMA_COMPLETED, 2 DMA_PREEMPTED, 4 DMA_FAULTED, 9 DMA_PAGE_FAULTED,
        /// 11 MONITORED_FENCE_SIGNALED, 16 GPU_ENGINE_TIMEOUT, 17 SUSPEND_CONTEXT_COMPLETED.
        InterruptType: UINT,
        NodeOrdinal: UINT,
        /// SubmissionFenceId, PreemptionFenceId, FaultedFenceId or the suspend's fence.
        FenceId: UINT64,
        /// DMA_PREEMPTED.
        LastCompletedFenceId: UINT64,
        /// SUSPEND_CONTEXT_COMPLETED.
        hContext: UINT64,
        /// DMA_PAGE_FAULTED.
        FaultedVirtualAddress: UINT64,
        /// DXGK_PAGE_FAULT_FLAGS.
        PageFaultFlags: UINT,
        Reserved: UINT,
    } = "";
    /// Has the kernel process the recorded interrupts: DxgkDdiDpcRoutine calls it.
    DxgkCbNotifyDpc NotifyDpc DXGKARGCB_NOTIFY_DPC {
        Reserved: UINT64,
    } = "";
    /// Signals a CPU event. Not from SimTimerExpired and SimPageFault, which stand for hardware.
    DxgkCbSignalEvent SignalEvent DXGKARGCB_SIGNALEVENT {
        /// hDxgCpuEvent of DxgkDdiCreateCpuEvent.
        hEvent: UINT64,
    } = "";
    /// From inside of DxgkDdiResetHwEngine: this context loses its work.
    DxgkCbInvalidateHwContext InvalidateHwContext DXGKARGCB_INVALIDATEHWCONTEXT {
        hContext: UINT64,
        /// 0: it caused the reset, 1: it did not.
        Reason: UINT,
        Reserved: UINT,
    } = "";
    /// An engine stores 8 bytes at a GPU virtual address: a fence.
    SimStore GpuStore SIM_STORE {
        NodeOrdinal: UINT,
        Reserved: UINT,
        /// The address space of the submission, or DXGK_NO_HANDLE with hHwQueue.
        hAddressSpace: UINT64,
        /// The queue whose command buffer stores, or DXGK_NO_HANDLE.
        hHwQueue: UINT64,
        GpuVirtualAddress: UINT64,
        Value: UINT64,
    } = "";
    /// Has SimTimerExpired called at this time; SIM_NEVER for no call. There is one timer.
    SimSetTimer next_deadline SIM_SETTIMER {
        /// Nanoseconds of the kernel's time, as `Now` of a DDI.
        DueTime: UINT64,
    } = "";
    /// Writes a line of text for people: the daemon's notes and the trace have it.
    SimDebugPrint DebugPrint SIM_DEBUGPRINT {
        Reserved: UINT64,
    } buffer(pText, TextSize) = "";
    /// An engine writes a range of memory: 4 bytes, repeated.
    SimFillMemory Dma SIM_FILLMEMORY {
        NodeOrdinal: UINT,
        Pattern: UINT,
        hAddressSpace: UINT64,
        GpuVirtualAddress: UINT64,
        /// A multiple of 4.
        Bytes: UINT64,
    } = "";
    /// An engine copies a range of memory.
    SimCopyMemory Dma SIM_COPYMEMORY {
        NodeOrdinal: UINT,
        Reserved: UINT,
        hAddressSpace: UINT64,
        SourceGpuVirtualAddress: UINT64,
        TargetGpuVirtualAddress: UINT64,
        Bytes: UINT64,
    } = "";
}
