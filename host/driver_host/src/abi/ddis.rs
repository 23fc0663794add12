//! What the kernel calls: the DDIs of a simulated adapter, and functions that no document has (`Sim..`).

use std::ffi::c_void;

use serde::{Deserialize, Serialize};

use super::declare::rows;
use super::{Field, NTSTATUS, Pointer, Row, UINT, UINT64};

macro_rules! ddis {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident $model:ident $arguments:ident $fields:tt $(buffer $buffer:tt)? = $default:literal;
    )*) => {
        rows! { Ddi, DDIS: $(
            $(#[doc = $doc])* $name $model $arguments $fields $(buffer $buffer)? = $default;
        )* }

        /// The functions of a driver, in memory of its own. `NULL`: the driver does not have it.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct DRIVER_INITIALIZATION_DATA {
            pub Size: UINT,
            pub Version: UINT,
            $(pub $name: Option<unsafe extern "C" fn(*mut c_void, UINT64, *mut $arguments) -> NTSTATUS>,)*
        }

        impl DRIVER_INITIALIZATION_DATA {
            /// Which rows the driver has.
            pub fn implemented(&self) -> Vec<bool> {
                vec![$(self.$name.is_some(),)*]
            }

            /// Calls the driver; `None` if it does not have the function.
            ///
            /// # Safety
            ///
            /// The functions are those of a driver that is loaded, `context` is its own, and the pointers of the
            /// arguments point to as many bytes as the sizes say.
            pub unsafe fn call(&self, context: *mut c_void, now: UINT64, ddi: &mut Ddi) -> Option<NTSTATUS> {
                match ddi {
                    // SAFETY: as the caller promises.
                    $(Ddi::$name(arguments) => self.$name.map(|function| unsafe { function(context, now, arguments) }),)*
                }
            }
        }
    };
}

ddis! {
    /// The adapter starts: first of all DDIs, and again after a stop.
    DxgkDdiStartDevice start_device DXGKARG_STARTDEVICE {
        AdapterOrdinal: UINT,
        NumberOfNodes: UINT,
        /// 0 at first, 1 after a stop.
        Restart: UINT,
        /// As D3DKMT_DRIVERVERSION has it.
        WddmVersion: UINT,
    } = "it starts; after a stop, STATUS_NOT_SUPPORTED";
    /// The engines drop their work and stay idle.
    DxgkDdiStopDevice stop_device DXGKARG_STOPDEVICE {
        Reserved: UINT64,
    } = "nothing";
    /// As DxgkDdiStopDevice, before a reset after a timeout.
    DxgkDdiResetFromTimeout reset_from_timeout DXGKARG_RESETFROMTIMEOUT {
        Reserved: UINT64,
    } = "DxgkDdiStopDevice";
    DxgkDdiRestartFromTimeout restart_from_timeout DXGKARG_RESTARTFROMTIMEOUT {
        Reserved: UINT64,
    } = "nothing";
    DxgkDdiSetPowerState set_power_state DXGKARG_SETPOWERSTATE {
        /// DEVICE_POWER_STATE: 1 is D0, 4 is D3.
        DevicePowerState: UINT,
        Reserved: UINT,
    } = "nothing";
    /// Private data of the user-mode driver: the reply replaces the query.
    DxgkDdiQueryAdapterInfo query_adapter_info DXGKARG_QUERYADAPTERINFO {
        /// DXGK_QUERYADAPTERINFOFLAGS.
        Flags: UINT,
        Reserved: UINT,
    } buffer(pData, DataSize) = "STATUS_NOT_SUPPORTED";
    DxgkDdiCreateProcess create_process DXGKARG_CREATEPROCESS {
        hKmdProcess: UINT64,
        /// Its GPU address space, or DXGK_NO_HANDLE.
        hAddressSpace: UINT64,
        /// The process of its VM, or DXGK_NO_HANDLE.
        hKmdVmWorkerProcess: UINT64,
        /// 0 of the host, 1 VirtualMachineWorkerProcess, 2 VirtualMachineProcess.
        Kind: UINT,
        VmId: UINT,
    } buffer(pProcessName, ProcessNameSize) = "accepted";
    DxgkDdiDestroyProcess destroy_process DXGKARG_DESTROYPROCESS {
        hKmdProcess: UINT64,
    } = "nothing";
    DxgkDdiSetVirtualMachineData set_virtual_machine_data DXGKARG_SETVIRTUALMACHINEDATA {
        hKmdVmWorkerProcess: UINT64,
        VmId: UINT,
        /// 1 SecureVirtualMachine, 2 LinuxVirtualMachine.
        Flags: UINT,
    } = "nothing";
    DxgkDdiCreateDevice create_device DXGKARG_CREATEDEVICE {
        hKmdProcess: UINT64,
        hDevice: UINT64,
    } = "accepted";
    DxgkDdiDestroyDevice destroy_device DXGKARG_DESTROYDEVICE {
        hDevice: UINT64,
    } = "nothing";
    /// Names no device and no process: each submission and each hardware queue of the context names its address space.
    DxgkDdiCreateContext create_context DXGKARG_CREATECONTEXT {
        hContext: UINT64,
        NodeOrdinal: UINT,
        Reserved: UINT,
    } = "accepted";
    /// The driver drops the submission of the context that has not completed.
    DxgkDdiDestroyContext destroy_context DXGKARG_DESTROYCONTEXT {
        hContext: UINT64,
        /// That submission, or DXGK_NO_HANDLE.
        SubmissionFenceId: UINT64,
        NodeOrdinal: UINT,
        Reserved: UINT,
    } = "nothing";
    /// Checks a command buffer before it is queued. A failure refuses the submission; SimDebugPrint says why.
    SimValidateCommands validate SIM_VALIDATECOMMANDS {
        Reserved: UINT64,
    } buffer(pDmaBuffer, DmaBufferSize) = "every buffer is good";
    /// Runs a command buffer. DMA_COMPLETED answers it.
    DxgkDdiSubmitCommandVirtual submit_command DXGKARG_SUBMITCOMMANDVIRTUAL {
        hContext: UINT64,
        hAddressSpace: UINT64,
        SubmissionFenceId: UINT64,
        /// Flags.Resubmission: the id under which this work was preempted, or DXGK_NO_HANDLE. It comes without its buffer: the
        /// driver keeps what it preempted.
        ResubmittedFenceId: UINT64,
        NodeOrdinal: UINT,
        /// 1 Paging, 2 Resubmission.
        Flags: UINT,
    } buffer(pDmaBuffer, DmaBufferSize) = "DMA_COMPLETED at once";
    DxgkDdiPatch patch DXGKARG_PATCH {
        hContext: UINT64,
        SubmissionFenceId: UINT64,
        NodeOrdinal: UINT,
        Reserved: UINT,
    } = "nothing";
    /// DMA_PREEMPTED answers it.
    DxgkDdiPreemptCommand preempt_command DXGKARG_PREEMPTCOMMAND {
        PreemptionFenceId: UINT64,
        NodeOrdinal: UINT,
        Reserved: UINT,
    } = "nothing: work runs to completion";
    DxgkDdiCancelCommand cancel_command DXGKARG_CANCELCOMMAND {
        hContext: UINT64,
    } buffer(pDmaBuffer, DmaBufferSize) = "nothing";
    /// Calls DxgkCbNotifyDpc.
    DxgkDdiDpcRoutine dpc_routine DXGKARG_DPCROUTINE {
        Reserved: UINT64,
    } = "DxgkCbNotifyDpc";
    DxgkDdiQueryEngineStatus query_engine_status DXGKARG_QUERYENGINESTATUS {
        NodeOrdinal: UINT,
        /// Out.
        Responsive: UINT,
    } = "not responsive";
    DxgkDdiQueryDependentEngineGroup query_dependent_engine_group DXGKARG_QUERYDEPENDENTENGINEGROUP {
        NodeOrdinal: UINT,
        Reserved: UINT,
        /// Out.
        DependentNodeOrdinalMask: UINT64,
    } = "the engine alone";
    DxgkDdiResetEngine reset_engine DXGKARG_RESETENGINE {
        NodeOrdinal: UINT,
        Reserved: UINT,
        /// Out: submissions up to this one are lost.
        LastAbortedFenceId: UINT64,
    } = "it fails: the adapter is reset";
    DxgkDdiResetHwEngine reset_hw_engine DXGKARG_RESETHWENGINE {
        NodeOrdinal: UINT,
        Reserved: UINT,
    } = "it fails: the adapter is reset";
    DxgkDdiResumeHwEngine resume_hw_engine DXGKARG_RESUMEHWENGINE {
        NodeOrdinal: UINT,
        Reserved: UINT,
    } = "nothing";
    DxgkDdiCreateHwQueue create_hw_queue DXGKARG_CREATEHWQUEUE {
        hHwQueue: UINT64,
        hContext: UINT64,
        hAddressSpace: UINT64,
        HwQueueProgressFenceGpuVirtualAddress: UINT64,
        NodeOrdinal: UINT,
        /// D3DDDI_CREATEHWQUEUEFLAGS.
        Flags: UINT,
    } = "STATUS_NOT_SUPPORTED";
    DxgkDdiDestroyHwQueue destroy_hw_queue DXGKARG_DESTROYHWQUEUE {
        hHwQueue: UINT64,
    } = "nothing";
    /// The buffer is complete when the progress fence has HwQueueProgressFenceId: the driver stores it (SimStore), and
    /// reports MONITORED_FENCE_SIGNALED.
    DxgkDdiSubmitCommandToHwQueue submit_command_to_hw_queue DXGKARG_SUBMITCOMMANDTOHWQUEUE {
        hHwQueue: UINT64,
        hContext: UINT64,
        SubmissionFenceId: UINT64,
        HwQueueProgressFenceId: UINT64,
        NodeOrdinal: UINT,
        Reserved: UINT,
    } buffer(pDmaBuffer, DmaBufferSize) = "nothing: the queue hangs";
    /// STATUS_PENDING: SUSPEND_CONTEXT_COMPLETED with the same fence follows.
    DxgkDdiSuspendContext suspend_context DXGKARG_SUSPENDCONTEXT {
        hContext: UINT64,
        ContextSuspendFence: UINT64,
    } = "suspended at once";
    DxgkDdiResumeContext resume_context DXGKARG_RESUMECONTEXT {
        hContext: UINT64,
    } = "nothing";
    /// All of the call or none. The driver fills in size, alignment and flags of each allocation, and may write its
    /// private data back.
    DxgkDdiCreateAllocation create_allocation DXGKARG_CREATEALLOCATION {
        /// NumAllocations times DXGK_ALLOCATIONINFO.
        pAllocationInfo: Pointer,
        hAddressSpace: UINT64,
        /// DXGK_NO_HANDLE without a resource.
        hResource: UINT64,
        NumAllocations: UINT,
        /// 1 Resource: it is a new one.
        Flags: UINT,
    } buffer(pPrivateDriverData, PrivateDriverDataSize) = "STATUS_NOT_SUPPORTED: standard allocations only";
    DxgkDdiOpenAllocation open_allocation DXGKARG_OPENALLOCATION {
        hDevice: UINT64,
        hAllocation: UINT64,
        hDeviceSpecificAllocation: UINT64,
        /// 1 Create.
        Flags: UINT,
        Reserved: UINT,
    } buffer(pPrivateDriverData, PrivateDriverDataSize) = "accepted";
    DxgkDdiCloseAllocation close_allocation DXGKARG_CLOSEALLOCATION {
        hDevice: UINT64,
        hDeviceSpecificAllocation: UINT64,
    } = "nothing";
    DxgkDdiDestroyAllocation destroy_allocation DXGKARG_DESTROYALLOCATION {
        /// DXGK_NO_HANDLE, or the resource that ends.
        hResource: UINT64,
    } buffer(pAllocationList, AllocationListSize) = "nothing";
    /// The data with which DxgkDdiCreateAllocation is called for a standard allocation.
    DxgkDdiGetStandardAllocationDriverData get_standard_allocation_driver_data
        DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA {
        /// Of the allocation, in bytes.
        Size: UINT64,
        /// D3DKMT_STANDARDALLOCATIONTYPE.
        StandardAllocationType: UINT,
        Reserved: UINT,
    } buffer(pAllocationPrivateDriverData, AllocationPrivateDriverDataSize) = "none: the driver is not asked about it";
    /// Writes a paging buffer for the operation, and its size, or the size 0.
    DxgkDdiBuildPagingBuffer build_paging_buffer DXGKARG_BUILDPAGINGBUFFER {
        hAddressSpace: UINT64,
        /// DXGK_OPERATION_UPDATE_PAGE_TABLE: the first address.
        Base: UINT64,
        Size: UINT64,
        /// 0 DXGK_OPERATION_TRANSFER, 10 DXGK_OPERATION_UPDATE_PAGE_TABLE.
        Operation: UINT,
        Reserved: UINT,
    } buffer(pDmaBuffer, DmaBufferSize) = "the CPU does it at once";
    /// Writes commands that store a fence value, for the end of a paging buffer, and their size.
    DxgkDdiSignalMonitoredFence signal_monitored_fence DXGKARG_SIGNALMONITOREDFENCE {
        hAddressSpace: UINT64,
        MonitoredFenceGpuVa: UINT64,
        MonitoredFenceValue: UINT64,
    } buffer(pDmaBuffer, DmaBufferSize) = "none";
    DxgkDdiCreateCpuEvent create_cpu_event DXGKARG_CREATECPUEVENT {
        hDevice: UINT64,
        /// For DxgkCbSignalEvent.
        hDxgCpuEvent: UINT64,
        /// Out: the driver's own handle.
        hKmdCpuEvent: UINT64,
    } = "STATUS_NOT_SUPPORTED";
    /// When it returns, no signal of the event is in flight, and none may follow.
    DxgkDdiDestroyCpuEvent destroy_cpu_event DXGKARG_DESTROYCPUEVENT {
        hKmdCpuEvent: UINT64,
    } = "nothing";
    /// Data in and out, of one size.
    DxgkDdiEscape escape DXGKARG_ESCAPE {
        /// Each of them DXGK_NO_HANDLE if the call names none.
        hKmdProcess: UINT64,
        hDevice: UINT64,
        hContext: UINT64,
        /// D3DDDI_ESCAPEFLAGS.
        Flags: UINT,
        Reserved: UINT,
    } buffer(pPrivateDriverData, PrivateDriverDataSize) = "STATUS_NOT_SUPPORTED";
    /// The time of SimSetTimer has come.
    SimTimerExpired deadline SIM_TIMEREXPIRED {
        DueTime: UINT64,
    } = "nothing";
    /// A fault that a test injects: the packet that runs, or else the next one, faults.
    SimPageFault page_fault SIM_PAGEFAULT {
        GpuVirtualAddress: UINT64,
        /// DXGK_PAGE_FAULT_FLAGS.
        Flags: UINT,
        NodeOrdinal: UINT,
    } = "nothing";
    /// A fault that a test injects: an object of the driver fails; it signals the CPU events for this usage.
    SimObjectFailed fail_object SIM_OBJECTFAILED {
        Usage: UINT,
        Reserved: UINT,
    } = "nothing";
    /// Writes the driver's whole state, and its size. STATUS_INSUFFICIENT_RESOURCES: it needs a buffer of that size.
    SimSaveState save SIM_SAVESTATE {
        Reserved: UINT64,
    } buffer(pState, StateSize) = "no snapshots; a daemon refuses a journal";
    /// After DxgkDdiStartDevice: takes what SimSaveState wrote.
    SimRestoreState restore SIM_RESTORESTATE {
        Reserved: UINT64,
    } buffer(pState, StateSize) = "as SimSaveState";
    // Since size 360: the rows above are the whole table of the first header.
    /// After DxgkDdiStartDevice, for each engine of hardware scheduling: the driver has a scheduling log of so many
    /// entries, in memory of its own. SCHEDULING_LOG reports new ones.
    DxgkDdiSetSchedulingLogBuffer set_scheduling_log_buffer DXGKARG_SETSCHEDULINGLOGBUFFER {
        NodeOrdinal: UINT,
        NumberOfEntries: UINT,
    } = "nothing";
    /// The GPU uses CPU addresses, and their mapping is about to change: it accesses no memory until the end.
    DxgkDdiBeginExclusiveAccess begin_exclusive_access DXGKARG_BEGINEXCLUSIVEACCESS {
        Reserved: UINT64,
    } = "nothing";
    DxgkDdiEndExclusiveAccess end_exclusive_access DXGKARG_ENDEXCLUSIVEACCESS {
        Reserved: UINT64,
    } = "nothing";
    /// Between the two above: the mapping of a process's fence memory grows by 64-byte slots, or is removed.
    SimIommuMappingChanged iommu_mapping_changed SIM_IOMMUMAPPINGCHANGED {
        hAddressSpace: UINT64,
        AddedSlots: UINT,
        /// 1: it is removed.
        Removed: UINT,
    } = "nothing";
    /// Once for each allocation, after DxgkDdiCreateAllocation. A failure: it is a buffer, and not a picture.
    DxgkDdiDescribeAllocation describe_allocation DXGKARG_DESCRIBEALLOCATION {
        hAllocation: UINT64,
        /// Out.
        Width: UINT,
        Height: UINT,
        /// D3DDDIFORMAT.
        Format: UINT,
        Reserved: UINT,
    } = "every allocation is a buffer";
    /// An engine that stores a value above the MonitoredValue reports it: SimNativeFenceSignaled.
    DxgkDdiCreateNativeFence create_native_fence DXGKARG_CREATENATIVEFENCE {
        hGlobalNativeFence: UINT64,
        CurrentValue: UINT64,
        /// UINT64_MAX: there are no waits.
        MonitoredValue: UINT64,
        /// The memory of the CurrentValue: global handles of one fence on several adapters share it.
        StoragePage: UINT64,
        StorageOffset: UINT,
        /// DXGK_NATIVE_FENCE_TYPE.
        Type: UINT,
    } = "STATUS_NOT_SUPPORTED";
    /// A process has the fence mapped.
    DxgkDdiOpenNativeFence open_native_fence DXGKARG_OPENNATIVEFENCE {
        hGlobalNativeFence: UINT64,
        hLocalNativeFence: UINT64,
        hAddressSpace: UINT64,
        GpuVirtualAddress: UINT64,
        /// 1: engines may store there.
        Writable: UINT,
        Reserved: UINT,
    } = "nothing";
    DxgkDdiCloseNativeFence close_native_fence DXGKARG_CLOSENATIVEFENCE {
        hLocalNativeFence: UINT64,
    } = "nothing";
    DxgkDdiDestroyNativeFence destroy_native_fence DXGKARG_DESTROYNATIVEFENCE {
        hGlobalNativeFence: UINT64,
    } = "nothing";
    /// Elements are DXGK_NATIVEFENCEVALUE: new MonitoredValues. The kernel then reads the CurrentValues again.
    DxgkDdiUpdateMonitoredValues update_monitored_values DXGKARG_UPDATEMONITOREDVALUES {
        Reserved: UINT64,
    } buffer(pValues, ValuesSize) = "nothing";
    /// Elements are DXGK_NATIVEFENCEVALUE: the CPU changes CurrentValues, and waits of engines may end.
    DxgkDdiUpdateCurrentValuesFromCpu update_current_values_from_cpu DXGKARG_UPDATECURRENTVALUESFROMCPU {
        Reserved: UINT64,
    } buffer(pValues, ValuesSize) = "nothing";
    /// An engine of another adapter stored the CurrentValue of this memory.
    SimNativeFenceWritten memory_written SIM_NATIVEFENCEWRITTEN {
        StoragePage: UINT64,
        Value: UINT64,
        StorageOffset: UINT,
        Reserved: UINT,
    } = "nothing";
    /// A queue of user-mode submission gets two logs, empty, of so many entries: SimNativeFenceLogWrite writes them.
    DxgkDdiSetNativeFenceLogBuffer set_native_fence_log_buffers DXGKARG_SETNATIVEFENCELOGBUFFER {
        hHwQueue: UINT64,
        NumberOfEntries: UINT,
        Reserved: UINT,
    } = "STATUS_NOT_SUPPORTED: no user-mode submission";
    /// Entries that the driver has not written yet are written now.
    DxgkDdiUpdateNativeFenceLogs update_native_fence_logs DXGKARG_UPDATENATIVEFENCELOGS {
        hHwQueue: UINT64,
    } = "nothing";
    /// It is disconnected at first.
    DxgkDdiCreateDoorbell create_doorbell DXGKARG_CREATEDOORBELL {
        hHwQueue: UINT64,
    } = "STATUS_NOT_SUPPORTED";
    /// A failure: there is no physical doorbell.
    DxgkDdiConnectDoorbell connect_doorbell DXGKARG_CONNECTDOORBELL {
        hHwQueue: UINT64,
        /// Out, D3DDDI_DOORBELLSTATUS: 0 CONNECTED, 1 CONNECTED_NOTIFY (DxgkDdiNotifyWorkSubmission follows a ring),
        /// 2: DxgkCbDisconnectDoorbell frees another queue's, and the kernel asks again.
        DoorbellStatus: UINT,
        Reserved: UINT,
    } = "it fails";
    DxgkDdiDisconnectDoorbell disconnect_doorbell DXGKARG_DISCONNECTDOORBELL {
        hHwQueue: UINT64,
    } = "nothing";
    DxgkDdiDestroyDoorbell destroy_doorbell DXGKARG_DESTROYDOORBELL {
        hHwQueue: UINT64,
    } = "nothing";
    DxgkDdiNotifyWorkSubmission notify_work_submission DXGKARG_NOTIFYWORKSUBMISSION {
        hHwQueue: UINT64,
    } = "nothing";
    /// A client rang a connected doorbell, and the engine finds this buffer in the ring: a call for each buffer.
    /// SimRingBufferCompleted answers it.
    SimRingDoorbell ring_doorbell SIM_RINGDOORBELL {
        hHwQueue: UINT64,
    } buffer(pDmaBuffer, DmaBufferSize) = "nothing: the queue hangs";
    /// The result of DxgkCbDisconnectDoorbell: with STATUS_SUCCESS the physical doorbell may be used again.
    SimDoorbellDisconnected doorbell_disconnected SIM_DOORBELLDISCONNECTED {
        hHwQueue: UINT64,
        Status: UINT,
        Reserved: UINT,
    } = "nothing";
    /// A fault that a test injects: the engine enters F1. It reports GPU_ENGINE_STATE_CHANGE, and loses its doorbells.
    SimEngineToF1 engine_to_f1 SIM_ENGINETOF1 {
        NodeOrdinal: UINT,
        Reserved: UINT,
    } = "nothing";
    /// Until it is destroyed, or the adapter stops, PERIODIC_MONITORED_FENCE_SIGNALED comes so long before each vsync.
    DxgkDdiCreatePeriodicFrameNotification create_periodic_frame_notification
        DXGKARG_CREATEPERIODICFRAMENOTIFICATION {
        /// In units of 100 ns.
        Time: UINT64,
        NotificationID: UINT64,
        /// Nanoseconds from vsync to vsync, of which the first is at time 0; 0: the target is off; SIM_NEVER: there is
        /// no such target.
        VsyncPeriod: UINT64,
        /// Out.
        hNotification: UINT64,
        VidPnTargetId: UINT,
        Reserved: UINT,
    } = "STATUS_UNSUCCESSFUL";
    DxgkDdiDestroyPeriodicFrameNotification destroy_periodic_frame_notification
        DXGKARG_DESTROYPERIODICFRAMENOTIFICATION {
        hNotification: UINT64,
    } = "nothing";
    /// The result of DxgkCbSignalEvent.
    SimEventSignaled event_signaled SIM_EVENTSIGNALED {
        hEvent: UINT64,
        Status: UINT,
        Reserved: UINT,
    } = "nothing";
}
