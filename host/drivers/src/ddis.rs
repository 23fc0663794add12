//! Dispatch of each DDI to the driver of its adapter. The value after `=>` is the result for a driver that has
//! panicked.

use std::collections::BTreeMap;

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

use crate::Drivers;

type Callbacks = Vec<Callback>;

/// Status of calls to an adapter whose driver has panicked.
const GONE: NtStatus = NtStatus::DEVICE_REMOVED;

/// DDIs with callbacks.
macro_rules! calling {
    ($($ddi:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)? = |$routes:ident| $adapter:expr => $dead:expr;)*) => {
        $(fn $ddi(&mut self, $($arg: $type,)* callbacks: &mut Callbacks) $(-> $answer)? {
            let $routes = &self.routes;
            let adapter = $adapter;
            self.calling(adapter, callbacks, $dead, |driver, callbacks| driver.$ddi($($arg,)* callbacks))
        })*
    };
}

/// DDIs without callbacks.
macro_rules! silent {
    ($($ddi:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)? = |$routes:ident| $adapter:expr => $dead:expr;)*) => {
        $(fn $ddi(&mut self, $($arg: $type),*) $(-> $answer)? {
            let $routes = &self.routes;
            let adapter = $adapter;
            self.on(adapter, $dead, |driver| driver.$ddi($($arg),*))
        })*
    };
}

/// Queries, through `&self`.
macro_rules! asking {
    ($($ddi:ident($($arg:ident: $type:ty),*) -> $answer:ty = |$routes:ident| $adapter:expr => $dead:expr;)*) => {
        $(fn $ddi(&self, $($arg: $type),*) -> $answer {
            let $routes = &self.routes;
            self.query($adapter, $dead, |driver| driver.$ddi($($arg),*))
        })*
    };
}

/// Groups items by adapter, each group in its original order.
fn by_adapter<T: Copy>(items: &[T], adapter_of: impl Fn(&T) -> Option<u32>) -> BTreeMap<u32, Vec<T>> {
    let mut sorted: BTreeMap<u32, Vec<T>> = BTreeMap::new();
    for item in items {
        if let Some(adapter) = adapter_of(item) {
            sorted.entry(adapter).or_default().push(*item);
        }
    }
    sorted
}

#[rustfmt::skip]
impl Miniport for Drivers {
    calling! {
        submit_command(now: Nanos, submission: Submission) -> Result<(), NtStatus>
            = |_routes| Some(submission.engine.adapter) => Ok(());
        preempt_command(now: Nanos, engine: EngineId, id: u64) -> Result<(), NtStatus>
            = |_routes| Some(engine.adapter) => Ok(());
        dpc_routine(adapter: u32) = |_routes| Some(adapter) => ();
        query_engine_status(now: Nanos, engine: EngineId) -> EngineStatus
            = |_routes| Some(engine.adapter) => EngineStatus::default();
        reset_engine(now: Nanos, engine: EngineId) -> Result<u64, ResetFailed>
            = |_routes| Some(engine.adapter) => Err(ResetFailed);
        reset_hw_engine(now: Nanos, engine: EngineId) -> Result<(), ResetFailed>
            = |_routes| Some(engine.adapter) => Err(ResetFailed);
        resume_hw_engine(now: Nanos, engine: EngineId) -> Result<(), ResetFailed>
            = |_routes| Some(engine.adapter) => Err(ResetFailed);
        reset_from_timeout(adapter: u32) -> Result<(), NtStatus> = |_routes| Some(adapter) => Ok(());
        memory_evicted(adapter: u32) = |_routes| Some(adapter) => ();
        restart_from_timeout(adapter: u32) -> Result<(), NtStatus> = |_routes| Some(adapter) => Ok(());
        page_fault(now: Nanos, engine: EngineId, gpu_address: u64, flags: PageFaultFlags)
            = |_routes| Some(engine.adapter) => ();
        stop_device(adapter: u32) = |_routes| Some(adapter) => ();
        start_device(adapter: u32) -> Result<(), NtStatus> = |_routes| Some(adapter) => Err(GONE);
        submit_command_to_hw_queue(now: Nanos, submission: HwQueueSubmission)
            = |_routes| Some(submission.engine.adapter) => ();
        suspend_context(now: Nanos, context: HwContext, suspend_fence: u64) -> Suspend
            = |routes| routes.context(context) => Suspend::Suspended;
        resume_context(now: Nanos, context: HwContext) = |routes| routes.context(context) => ();
        engine_to_f1(engine: EngineId) = |_routes| Some(engine.adapter) => ();
        connect_doorbell(now: Nanos, hw_queue: HwQueueId) -> DoorbellConnection
            = |routes| routes.hw_queue(hw_queue) => DoorbellConnection::Failed;
        ring_doorbell(now: Nanos, hw_queue: HwQueueId, buffers: Vec<Vec<u8>>)
            = |routes| routes.hw_queue(hw_queue) => ();
        notify_work_submission(now: Nanos, hw_queue: HwQueueId) = |routes| routes.hw_queue(hw_queue) => ();
        update_native_fence_logs(hw_queue: HwQueueId) = |routes| routes.hw_queue(hw_queue) => ();
        native_fence_used(local: LocalNativeFenceId) = |routes| routes.local(local) => ();
        destroy_process(adapter: u32, process: KmdProcess) = |_routes| Some(adapter) => ();
        destroy_device(adapter: u32, device: KmdDevice) = |_routes| Some(adapter) => ();
        destroy_cpu_event(adapter: u32, event: KmdCpuEvent) = |_routes| Some(adapter) => ();
        create_allocation(adapter: u32, create: &mut CreateAllocation) -> Result<(), NtStatus>
            = |_routes| Some(adapter) => Err(GONE);
        escape(now: Nanos, adapter: u32, escape: Escape<'_>) -> NtStatus = |_routes| Some(adapter) => GONE;
        fail_object(adapter: u32, usage: u32) = |_routes| Some(adapter) => ();
    }

    silent! {
        patch(engine: EngineId, context: HwContext, id: u64) -> Result<(), NtStatus>
            = |_routes| Some(engine.adapter) => Ok(());
        cancel_command(context: HwContext, commands: &[u8]) -> Result<(), NtStatus>
            = |routes| routes.context(context) => Ok(());
        set_scheduling_log_buffer(engine: EngineId, buffer: SchedulingLogBuffer)
            = |_routes| Some(engine.adapter) => ();
        begin_exclusive_access(adapter: u32) = |_routes| Some(adapter) => ();
        iommu_mapping_changed(adapter: u32, process: ProcessId, added: Option<u32>)
            = |_routes| Some(adapter) => ();
        end_exclusive_access(adapter: u32) = |_routes| Some(adapter) => ();
        query_dependent_engine_group(engine: EngineId) -> u64
            = |_routes| Some(engine.adapter) => 1u64.checked_shl(engine.node).unwrap_or(0);
        query_adapter_info(adapter: u32, query: QueryAdapterInfo<'_>) -> Result<(), NtStatus>
            = |_routes| Some(adapter) => Err(GONE);
        fail_reset(engine: EngineId) = |_routes| Some(engine.adapter) => ();
        set_power_state(adapter: u32, on: bool) = |_routes| Some(adapter) => ();
        create_doorbell(hw_queue: HwQueueId) -> Result<(), NtStatus>
            = |routes| routes.hw_queue(hw_queue) => Err(GONE);
        disconnect_doorbell(hw_queue: HwQueueId) = |routes| routes.hw_queue(hw_queue) => ();
        doorbell_disconnected(hw_queue: HwQueueId, status: NtStatus)
            = |routes| routes.hw_queue(hw_queue) => ();
        event_signaled(adapter: u32, signal: &SignalEvent, status: NtStatus) = |_routes| Some(adapter) => ();
        destroy_doorbell(hw_queue: HwQueueId) = |routes| routes.hw_queue(hw_queue) => ();
        set_native_fence_log_buffers(hw_queue: HwQueueId, entries: u32) -> Result<(), NtStatus>
            = |routes| routes.hw_queue(hw_queue) => Err(GONE);
        get_standard_allocation_driver_data(adapter: u32, standard: &StandardAllocationData) -> Option<Vec<u8>>
            = |_routes| Some(adapter) => None;
        open_allocation(adapter: u32, open: &OpenAllocation<'_>) -> Result<(), NtStatus>
            = |_routes| Some(adapter) => Err(GONE);
        close_allocation(adapter: u32, device: KmdDevice, opened: LocalAllocationId)
            = |_routes| Some(adapter) => ();
        destroy_allocation(adapter: u32, destroy: &DestroyAllocation) = |_routes| Some(adapter) => ();
        build_paging_buffer(operation: &PagingOperation) -> Option<Vec<u8>>
            = |_routes| Some(operation.adapter) => None;
        update_page_table(adapter: u32, process: ProcessId, base: u64, bytes: u64, entry: PageTableEntry)
            = |_routes| Some(adapter) => ();
        create_periodic_frame_notification(now: Nanos, create: CreatePeriodicFrameNotification)
            -> Result<u64, NotificationRefused>
            = |_routes| Some(create.adapter) => Err(NotificationRefused::Unsuccessful);
        destroy_periodic_frame_notification(adapter: u32, notification: u64) = |_routes| Some(adapter) => ();
        // A process can attach to a host even if the driver of an adapter has panicked.
        create_process(adapter: u32, new: &NewProcess) -> Result<(), NtStatus>
            = |_routes| Some(adapter) => Ok(());
        set_virtual_machine_data(adapter: u32, data: &VirtualMachineData) = |_routes| Some(adapter) => ();
        create_device(adapter: u32, process: KmdProcess, device: KmdDevice) -> Result<(), NtStatus>
            = |_routes| Some(adapter) => Err(GONE);
        create_cpu_event(adapter: u32, create: &CreateCpuEvent) -> Result<KmdCpuEvent, NtStatus>
            = |_routes| Some(adapter) => Err(GONE);
        lose_interrupt(engine: EngineId) = |_routes| Some(engine.adapter) => ();
        hang_engine(engine: EngineId) = |_routes| Some(engine.adapter) => ();
    }

    asking! {
        // Buffers queued for a driver that has panicked are dropped when its adapter stops.
        validate(adapter: u32, commands: &[u8]) -> Result<(), BadCommands> = |_routes| Some(adapter) => Ok(());
        advertised_features(adapter: u32) -> Vec<FeatureId> = |_routes| Some(adapter) => Vec::new();
        per_engine_tdr_ddis(adapter: u32) -> PerEngineTdrDdis
            = |_routes| Some(adapter) => PerEngineTdrDdis::all();
        ring_bytes(hw_queue: HwQueueId) -> usize = |routes| routes.hw_queue(hw_queue) => 0;
        held_bytes(adapter: u32, process: ProcessId) -> usize = |_routes| Some(adapter) => 0;
        kept_bytes(adapter: u32, process: ProcessId) -> usize = |_routes| Some(adapter) => 0;
        has_begun(engine: EngineId, id: u64) -> bool = |_routes| Some(engine.adapter) => true;
        running_context(engine: EngineId) -> RunningContext
            = |_routes| Some(engine.adapter) => RunningContext::None;
        engine_state(engine: EngineId) -> EngineState = |_routes| Some(engine.adapter) => EngineState::Idle;
        describe_allocation(adapter: u32, allocation: AllocationId) -> Option<AllocationDescription>
            = |_routes| Some(adapter) => None;
        pending_faults(engine: EngineId) -> PendingFaults
            = |_routes| Some(engine.adapter) => PendingFaults::default();
        work(engine: EngineId) -> Option<Vec<EngineWork>> = |_routes| Some(engine.adapter) => Some(Vec::new());
        pending_writes_of_submission(engine: EngineId, hw_queue: Option<HwQueueId>, id: u64) -> Option<Vec<PendingWrite>>
            = |_routes| Some(engine.adapter) => Some(Vec::new());
        pending_writes(adapter: u32, commands: &[u8]) -> Option<Vec<PendingWrite>>
            = |_routes| Some(adapter) => Some(Vec::new());
    }

    fn start(&mut self, config: &Config) {
        for adapter in 0..config.adapters.len() as u32 {
            // A driver detects races on its own adapter. It gets the happens-before events of all.
            let mut own = config.clone();
            for (other, of_other) in own.adapters.iter_mut().enumerate() {
                of_other.hazards &= other as u32 == adapter;
            }
            self.on(Some(adapter), (), |driver| driver.start(&own));
        }
    }

    fn create_context(&mut self, engine: EngineId, context: HwContext) -> Result<(), NtStatus> {
        let adapter = engine.adapter;
        self.on(Some(adapter), Err(GONE), |driver| driver.create_context(engine, context))?;
        self.routes.context_created(context, adapter);
        Ok(())
    }

    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Callbacks,
    ) {
        let adapter = self.routes.context(context);
        self.calling(adapter, callbacks, (), |driver, callbacks| {
            driver.destroy_context(now, context, submitted, callbacks);
        });
        self.routes.context_destroyed(context);
    }

    fn create_hw_queue(&mut self, new: &NewHwQueue) -> Result<(), NtStatus> {
        self.on(Some(new.engine.adapter), Err(GONE), |driver| driver.create_hw_queue(new))?;
        self.routes.hw_queue_created(new);
        Ok(())
    }

    fn destroy_hw_queue(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Callbacks) {
        let adapter = self.routes.hw_queue(hw_queue);
        self.calling(adapter, callbacks, (), |driver, callbacks| {
            driver.destroy_hw_queue(now, hw_queue, callbacks);
        });
        self.routes.hw_queue_destroyed(hw_queue);
    }

    fn create_native_fence(&mut self, new: &NewNativeFence) -> Result<(), NtStatus> {
        self.on(Some(new.adapter), Err(GONE), |driver| driver.create_native_fence(new))?;
        self.routes.fence_created(new);
        Ok(())
    }

    fn open_native_fence(&mut self, opened: &OpenedNativeFence) {
        self.routes.fence_opened(opened);
        self.on(self.routes.fence(opened.fence), (), |driver| driver.open_native_fence(opened));
    }

    fn close_native_fence(&mut self, local: LocalNativeFenceId) {
        self.on(self.routes.local(local), (), |driver| driver.close_native_fence(local));
        self.routes.fence_closed(local);
    }

    fn destroy_native_fence(&mut self, fence: NativeFenceId) {
        self.on(self.routes.fence(fence), (), |driver| driver.destroy_native_fence(fence));
        self.routes.fence_destroyed(fence);
    }

    fn happens_before(&mut self, edge: &HappensBefore) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for adapter in 0..self.adapters() {
            let found = self.on(Some(adapter), Vec::new(), |driver| driver.happens_before(edge));
            // A race of two processes' CPUs is found by the driver of each adapter that detects races.
            lines.extend(found.into_iter().filter(|line| !lines.contains(line)).collect::<Vec<_>>());
        }
        lines
    }

    fn memory_written(&mut self, storage: NativeFenceStorage, value: u64) {
        for adapter in self.routes.sharers(storage) {
            self.on(Some(adapter), (), |driver| driver.memory_written(storage, value));
        }
    }

    fn update_monitored_values(
        &mut self,
        now: Nanos,
        values: &[(NativeFenceId, u64)],
        callbacks: &mut Callbacks,
    ) {
        for (adapter, values) in by_adapter(values, |(fence, _)| self.routes.fence(*fence)) {
            self.calling(Some(adapter), callbacks, (), |driver, callbacks| {
                driver.update_monitored_values(now, &values, callbacks);
            });
        }
    }

    fn update_current_values_from_cpu(
        &mut self,
        now: Nanos,
        updates: &[CurrentValueUpdate],
        callbacks: &mut Callbacks,
    ) {
        for (adapter, updates) in by_adapter(updates, |update| self.routes.fence(update.fence)) {
            self.calling(Some(adapter), callbacks, (), |driver, callbacks| {
                driver.update_current_values_from_cpu(now, &updates, callbacks);
            });
        }
    }

    fn signal_monitored_fence(&mut self, buffer: &mut Vec<u8>, signal: SignalMonitoredFence) {
        self.on(Some(signal.adapter), (), |driver| driver.signal_monitored_fence(buffer, signal));
    }

    fn next_deadline(&self) -> Option<Nanos> {
        (0..self.adapters()).filter_map(|adapter| self.due(adapter)).min()
    }

    /// Calls the drivers in order of their deadlines; drivers with equal deadlines in adapter order.
    fn deadline(&mut self, now: Nanos, callbacks: &mut Callbacks) {
        let mut insistent = Vec::new();
        loop {
            let others = (0..self.adapters()).filter(|adapter| !insistent.contains(adapter));
            let dues = others.filter_map(|adapter| Some((self.due(adapter)?, adapter)));
            let Some((due, adapter)) = dues.filter(|(due, _)| *due <= now).min() else { return };
            self.calling(Some(adapter), callbacks, (), |driver, callbacks| driver.deadline(due, callbacks));
            if self.due(adapter).is_some_and(|again| again <= due) {
                // Its deadline is still due: it is called again with the next input.
                insistent.push(adapter);
            }
        }
    }

    fn save(&self) -> Result<Vec<u8>, String> {
        self.saved()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        self.restored(state)
    }

    fn has_died(&self) -> bool {
        self.died.get()
    }

    fn take_died(&mut self) -> Option<(u32, String)> {
        let mut drivers = (0..).zip(&mut self.drivers);
        let died = drivers.find_map(|(adapter, driver)| {
            if !driver.has_died() {
                return None;
            }
            // What it did before it died.
            let answers = driver.take_answers();
            let why = driver.take_died()?;
            Some((adapter, why, answers))
        });
        self.died.set(died.is_some());
        let (adapter, why, answers) = died?;
        self.answers.extend(answers.into_iter().map(|answer| DriverAnswer { adapter, ..answer }));
        Some((adapter, why))
    }

    fn runs_outside(&self) -> bool {
        self.run_outside
    }

    fn act_for(&mut self, now: Nanos, vm: Option<VmId>) {
        for driver in &mut self.drivers {
            driver.call((), &self.died, |driver| driver.act_for(now, vm));
        }
    }

    fn take_answers(&mut self) -> Vec<DriverAnswer> {
        let mut answers = std::mem::take(&mut self.answers);
        for (adapter, driver) in (0..).zip(&mut self.drivers) {
            answers.extend(driver.take_answers().into_iter().map(|answer| DriverAnswer { adapter, ..answer }));
        }
        answers
    }

    fn supply_answers(&mut self, answers: &[DriverAnswer]) {
        for (adapter, driver) in (0..).zip(&mut self.drivers) {
            let own: Vec<DriverAnswer> = answers.iter().filter(|one| one.adapter == adapter).cloned().collect();
            driver.call((), &self.died, |driver| driver.supply_answers(&own));
        }
    }
}
