//! A filter driver: it implements some DDIs itself and forwards the rest to the driver below it.

use d3dkmt::{FeatureId, NtStatus};
use dxgkrnl::ddi::{
    AllocationDescription, AllocationId, BadCommands, Callback, CreateAllocation, CreateCpuEvent,
    CreatePeriodicFrameNotification, CurrentValueUpdate, DestroyAllocation, DoorbellConnection, EngineId,
    EngineState, EngineStatus, EngineWork, Escape, HappensBefore, HwContext, HwQueueId, HwQueueSubmission,
    KmdCpuEvent, KmdDevice, KmdProcess, LocalAllocationId, LocalNativeFenceId, Miniport, NativeFenceId,
    NativeFenceStorage, NewHwQueue, NewNativeFence, NewProcess, NotificationRefused, OpenAllocation,
    OpenedNativeFence, PageFaultFlags, PageTableEntry, PagingOperation, PendingFaults, PendingWrite,
    PerEngineTdrDdis, QueryAdapterInfo, ResetFailed, RunningContext, SchedulingLogBuffer, SignalEvent,
    SignalMonitoredFence, StandardAllocationData, Submission, Suspend, VirtualMachineData,
};
use dxgkrnl::{Config, DriverAnswer, Nanos, ProcessId, VmId};

macro_rules! inner {
    ($driver:ident mut) => {
        $driver.inner_mut()
    };
    ($driver:ident) => {
        $driver.inner()
    };
}

/// Defines [`FilterDriver`] and its [`Miniport`] implementation from one list of DDIs, so that they cannot differ.
/// `tests/complete.rs` compares the list with [`Miniport`].
macro_rules! ddis {
    ($(fn $ddi:ident(&$($m:ident)?; $($arg:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        /// A driver layered on another driver. Each DDI that it does not implement is forwarded to that driver.
        /// [`Filtered`] turns it into a [`Miniport`].
        pub trait FilterDriver {
            /// The driver below this one.
            fn inner(&self) -> &dyn Miniport;
            fn inner_mut(&mut self) -> &mut dyn Miniport;
            /// [`Miniport::save`]. Not forwarded by default, because the filter driver may have its own state.
            fn save(&self) -> Result<Vec<u8>, String> {
                Err("it does not implement FilterDriver::save".into())
            }
            /// [`Miniport::restore`]
            fn restore(&mut self, state: &[u8]) -> Result<(), String> {
                let _ = state;
                Err("it does not implement FilterDriver::restore".into())
            }
            $(
                #[doc = concat!("[`Miniport::", stringify!($ddi), "`]")]
                fn $ddi(&$($m)? self, $($arg: $type),*) $(-> $answer)? {
                    inner!(self $($m)?).$ddi($($arg),*)
                }
            )*
        }

        impl<T: FilterDriver> Miniport for Filtered<T> {
            fn save(&self) -> Result<Vec<u8>, String> {
                self.0.save()
            }
            fn restore(&mut self, state: &[u8]) -> Result<(), String> {
                self.0.restore(state)
            }
            $(fn $ddi(&$($m)? self, $($arg: $type),*) $(-> $answer)? {
                self.0.$ddi($($arg),*)
            })*
        }
    };
}

/// Adapter that implements [`Miniport`] for a [`FilterDriver`].
pub struct Filtered<T>(pub T);

ddis! {
    fn start(&mut; config: &Config);
    fn validate(&; adapter: u32, commands: &[u8]) -> Result<(), BadCommands>;
    fn submit_command(&mut;
        now: Nanos, submission: Submission, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus>;
    fn patch(&mut; engine: EngineId, context: HwContext, submission_fence_id: u64) -> Result<(), NtStatus>;
    fn preempt_command(&mut;
        now: Nanos, engine: EngineId, preemption_fence_id: u64, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus>;
    fn cancel_command(&mut; context: HwContext, commands: &[u8]) -> Result<(), NtStatus>;
    fn dpc_routine(&mut; adapter: u32, callbacks: &mut Vec<Callback>);
    fn advertised_features(&; adapter: u32) -> Vec<FeatureId>;
    fn per_engine_tdr_ddis(&; adapter: u32) -> PerEngineTdrDdis;
    fn set_scheduling_log_buffer(&mut; engine: EngineId, buffer: SchedulingLogBuffer);
    fn begin_exclusive_access(&mut; adapter: u32);
    fn iommu_mapping_changed(&mut; adapter: u32, process: ProcessId, added: Option<u32>);
    fn end_exclusive_access(&mut; adapter: u32);
    fn query_engine_status(&mut; now: Nanos, engine: EngineId, callbacks: &mut Vec<Callback>) -> EngineStatus;
    fn query_dependent_engine_group(&mut; engine: EngineId) -> u64;
    fn reset_engine(&mut;
        now: Nanos, engine: EngineId, callbacks: &mut Vec<Callback>) -> Result<u64, ResetFailed>;
    fn reset_hw_engine(&mut;
        now: Nanos, engine: EngineId, callbacks: &mut Vec<Callback>) -> Result<(), ResetFailed>;
    fn resume_hw_engine(&mut;
        now: Nanos, engine: EngineId, callbacks: &mut Vec<Callback>) -> Result<(), ResetFailed>;
    fn reset_from_timeout(&mut; adapter: u32, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus>;
    fn memory_evicted(&mut; adapter: u32, callbacks: &mut Vec<Callback>);
    fn restart_from_timeout(&mut; adapter: u32, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus>;
    fn page_fault(&mut;
        now: Nanos, engine: EngineId, gpu_address: u64, flags: PageFaultFlags, callbacks: &mut Vec<Callback>);
    fn fail_reset(&mut; engine: EngineId);
    fn create_context(&mut; engine: EngineId, context: HwContext) -> Result<(), NtStatus>;
    fn destroy_context(&mut;
        now: Nanos, context: HwContext, submitted: Option<(EngineId, u64)>, callbacks: &mut Vec<Callback>);
    fn stop_device(&mut; adapter: u32, callbacks: &mut Vec<Callback>);
    fn start_device(&mut; adapter: u32, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus>;
    fn create_hw_queue(&mut; new: &NewHwQueue) -> Result<(), NtStatus>;
    fn destroy_hw_queue(&mut; now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>);
    fn submit_command_to_hw_queue(&mut;
        now: Nanos, submission: HwQueueSubmission, callbacks: &mut Vec<Callback>);
    fn suspend_context(&mut;
        now: Nanos, context: HwContext, suspend_fence: u64, callbacks: &mut Vec<Callback>) -> Suspend;
    fn resume_context(&mut; now: Nanos, context: HwContext, callbacks: &mut Vec<Callback>);
    fn set_power_state(&mut; adapter: u32, on: bool);
    fn engine_to_f1(&mut; engine: EngineId, callbacks: &mut Vec<Callback>);
    fn create_doorbell(&mut; hw_queue: HwQueueId) -> Result<(), NtStatus>;
    fn connect_doorbell(&mut;
        now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) -> DoorbellConnection;
    fn disconnect_doorbell(&mut; hw_queue: HwQueueId);
    fn doorbell_disconnected(&mut; hw_queue: HwQueueId, status: NtStatus);
    fn destroy_doorbell(&mut; hw_queue: HwQueueId);
    fn ring_doorbell(&mut;
        now: Nanos, hw_queue: HwQueueId, buffers: Vec<Vec<u8>>, callbacks: &mut Vec<Callback>);
    fn notify_work_submission(&mut; now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>);
    fn ring_bytes(&; hw_queue: HwQueueId) -> usize;
    fn held_bytes(&; adapter: u32, process: ProcessId) -> usize;
    fn kept_bytes(&; adapter: u32, process: ProcessId) -> usize;
    fn set_native_fence_log_buffers(&mut; hw_queue: HwQueueId, entries: u32) -> Result<(), NtStatus>;
    fn update_native_fence_logs(&mut; hw_queue: HwQueueId, callbacks: &mut Vec<Callback>);
    fn create_native_fence(&mut; new: &NewNativeFence) -> Result<(), NtStatus>;
    fn open_native_fence(&mut; opened: &OpenedNativeFence);
    fn close_native_fence(&mut; local: LocalNativeFenceId);
    fn destroy_native_fence(&mut; fence: NativeFenceId);
    fn native_fence_used(&mut; local: LocalNativeFenceId, callbacks: &mut Vec<Callback>);
    fn memory_written(&mut; storage: NativeFenceStorage, value: u64);
    fn happens_before(&mut; edge: &HappensBefore) -> Vec<String>;
    fn update_monitored_values(&mut;
        now: Nanos, values: &[(NativeFenceId, u64)], callbacks: &mut Vec<Callback>);
    fn update_current_values_from_cpu(&mut;
        now: Nanos, updates: &[CurrentValueUpdate], callbacks: &mut Vec<Callback>);
    fn get_standard_allocation_driver_data(&mut;
        adapter: u32, standard: &StandardAllocationData) -> Option<Vec<u8>>;
    fn create_allocation(&mut;
        adapter: u32, create: &mut CreateAllocation, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus>;
    fn open_allocation(&mut; adapter: u32, open: &OpenAllocation<'_>) -> Result<(), NtStatus>;
    fn close_allocation(&mut; adapter: u32, device: KmdDevice, opened: LocalAllocationId);
    fn destroy_allocation(&mut; adapter: u32, destroy: &DestroyAllocation);
    fn describe_allocation(&; adapter: u32, allocation: AllocationId) -> Option<AllocationDescription>;
    fn build_paging_buffer(&mut; operation: &PagingOperation) -> Option<Vec<u8>>;
    fn update_page_table(&mut;
        adapter: u32, process: ProcessId, base: u64, bytes: u64, entry: PageTableEntry);
    fn signal_monitored_fence(&mut; buffer: &mut Vec<u8>, signal: SignalMonitoredFence);
    fn create_periodic_frame_notification(&mut;
        now: Nanos, create: CreatePeriodicFrameNotification) -> Result<u64, NotificationRefused>;
    fn destroy_periodic_frame_notification(&mut; adapter: u32, notification: u64);
    fn create_process(&mut; adapter: u32, new: &NewProcess) -> Result<(), NtStatus>;
    fn destroy_process(&mut; adapter: u32, process: KmdProcess, callbacks: &mut Vec<Callback>);
    fn set_virtual_machine_data(&mut; adapter: u32, data: &VirtualMachineData);
    fn query_adapter_info(&mut; adapter: u32, query: QueryAdapterInfo<'_>) -> Result<(), NtStatus>;
    fn create_device(&mut; adapter: u32, process: KmdProcess, device: KmdDevice) -> Result<(), NtStatus>;
    fn destroy_device(&mut; adapter: u32, device: KmdDevice, callbacks: &mut Vec<Callback>);
    fn create_cpu_event(&mut; adapter: u32, create: &CreateCpuEvent) -> Result<KmdCpuEvent, NtStatus>;
    fn destroy_cpu_event(&mut; adapter: u32, event: KmdCpuEvent, callbacks: &mut Vec<Callback>);
    fn event_signaled(&mut; adapter: u32, signal: &SignalEvent, status: NtStatus);
    fn escape(&mut; now: Nanos, adapter: u32, escape: Escape<'_>, callbacks: &mut Vec<Callback>) -> NtStatus;
    fn fail_object(&mut; adapter: u32, usage: u32, callbacks: &mut Vec<Callback>);
    fn lose_interrupt(&mut; engine: EngineId);
    fn hang_engine(&mut; engine: EngineId);
    fn next_deadline(&; ) -> Option<Nanos>;
    fn deadline(&mut; now: Nanos, callbacks: &mut Vec<Callback>);
    fn has_begun(&; engine: EngineId, submission_fence_id: u64) -> bool;
    fn running_context(&; engine: EngineId) -> RunningContext;
    fn engine_state(&; engine: EngineId) -> EngineState;
    fn pending_faults(&; engine: EngineId) -> PendingFaults;
    fn work(&; engine: EngineId) -> Option<Vec<EngineWork>>;
    fn pending_writes_of_submission(&; engine: EngineId, hw_queue: Option<HwQueueId>, submission_fence_id: u64) -> Option<Vec<PendingWrite>>;
    fn pending_writes(&; adapter: u32, commands: &[u8]) -> Option<Vec<PendingWrite>>;
    fn has_died(&; ) -> bool;
    fn take_died(&mut; ) -> Option<(u32, String)>;
    fn runs_outside(&; ) -> bool;
    fn take_answers(&mut; ) -> Vec<DriverAnswer>;
    fn act_for(&mut; now: Nanos, vm: Option<VmId>);
    fn supply_answers(&mut; answers: &[DriverAnswer]);
}
