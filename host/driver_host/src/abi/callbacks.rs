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
        /// DXGK_INTERRUPT_TYPE: 1 DMA_COMPLETED, 2 DMA_PREEMPTED, 3 CRTC_VSYNC, 4 DMA_FAULTED, 9 DMA_PAGE_FAULTED,
        /// 11 MONITORED_FENCE_SIGNALED, 12 HWQUEUE_PAGE_FAULTED, 14 PERIODIC_MONITORED_FENCE_SIGNALED,
        /// 15 SCHEDULING_LOG, 16 GPU_ENGINE_TIMEOUT, 17 SUSPEND_CONTEXT_COMPLETED, 20 GPU_ENGINE_STATE_CHANGE
        /// (TRANSITION_TO_F1). For 19 NATIVE_FENCE_SIGNALED see SimNativeFenceSignaled.
        InterruptType: UINT,
        NodeOrdinal: UINT,
        /// SubmissionFenceId, PreemptionFenceId, FaultedFenceId, the suspend's fence, or NotificationID.
        FenceId: UINT64,
        /// DMA_PREEMPTED.
        LastCompletedFenceId: UINT64,
        /// SUSPEND_CONTEXT_COMPLETED. HWQUEUE_PAGE_FAULTED: the queue of FenceId, which is its progress fence value; with
        /// FENCE_INVALID the context (HW_CONTEXT_VALID) or the address space (PROCESS_HANDLE_VALID).
        hContext: UINT64,
        /// DMA_PAGE_FAULTED, HWQUEUE_PAGE_FAULTED.
        FaultedVirtualAddress: UINT64,
        /// DXGK_PAGE_FAULT_FLAGS.
        PageFaultFlags: UINT,
        /// CRTC_VSYNC, PERIODIC_MONITORED_FENCE_SIGNALED.
        VidPnTargetId: UINT,
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
        /// A multiple of 4.
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
    // Since size 88: the rows above are the whole interface of the first header.
    /// An engine reads the 8 bytes of a fence, and writes them to another address.
    SimLoad GpuLoad SIM_LOAD {
        NodeOrdinal: UINT,
        Reserved: UINT,
        hAddressSpace: UINT64,
        GpuVirtualAddress: UINT64,
        TargetGpuVirtualAddress: UINT64,
    } = "";
    /// Interrupt 19 NATIVE_FENCE_SIGNALED. Elements of the list are hGlobalNativeFence, at most 64.
    SimNativeFenceSignaled NotifyInterrupt SIM_NATIVEFENCESIGNALED {
        NodeOrdinal: UINT,
        /// 0: the fences of the list are evaluated. Without a list, 1: all that are waited for, 2: monitored fences as
        /// well, 3: those that the logs of hHwQueue name, or (DXGK_NO_HANDLE) of all user-mode queues of the engine.
        Evaluate: UINT,
        hHwQueue: UINT64,
    } buffer(pSignaledNativeFenceArray, SignaledNativeFenceArraySize) = "";
    /// An engine writes an entry of a native fence log, and then the header that counts it.
    SimNativeFenceLogWrite NativeFenceLogWrite SIM_NATIVEFENCELOGWRITE {
        hHwQueue: UINT64,
        hGlobalNativeFence: UINT64,
        FenceValue: UINT64,
        /// When the queue reached the wait; 0 for a signal.
        ObservedGpuTimestamp: UINT64,
        /// Never below the one of the entry before.
        EndGpuTimestamp: UINT64,
        /// DXGK_NATIVE_FENCE_LOG_TYPE: 1 waits, 2 signals.
        LogType: UINT,
        EntryIndex: UINT,
        /// The header.
        FirstFreeEntryIndex: UINT,
        WraparoundCount: UINT,
    } = "";
    /// The kernel stores the status where the client reads it, and then calls SimDoorbellDisconnected.
    DxgkCbDisconnectDoorbell DisconnectDoorbell DXGKARGCB_DISCONNECTDOORBELL {
        hHwQueue: UINT64,
        /// D3DDDI_DOORBELLSTATUS: 2 DISCONNECTED_RETRY, 3 DISCONNECTED_ABORT.
        DisconnectReason: UINT,
        Reserved: UINT,
    } = "";
    /// An engine has run the oldest buffer of a queue's ring.
    SimRingBufferCompleted ring_bytes SIM_RINGBUFFERCOMPLETED {
        hHwQueue: UINT64,
    } = "";
}
