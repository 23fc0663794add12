//! Each DDI as a message to the driver, and its answer.
#![allow(non_snake_case, reason = "fields of C structs have the names that C has")]

use d3dkmt::{FeatureId, NtStatus};
use driver_host::abi::{
    DXGK_ALLOCATIONINFO, DXGK_NATIVEFENCEVALUE, DXGK_NO_HANDLE, DXGKARG_BEGINEXCLUSIVEACCESS,
    DXGKARG_BUILDPAGINGBUFFER, DXGKARG_CANCELCOMMAND, DXGKARG_CLOSEALLOCATION, DXGKARG_CLOSENATIVEFENCE,
    DXGKARG_CONNECTDOORBELL, DXGKARG_CREATEALLOCATION, DXGKARG_CREATECONTEXT, DXGKARG_CREATECPUEVENT,
    DXGKARG_CREATEDEVICE, DXGKARG_CREATEDOORBELL, DXGKARG_CREATEHWQUEUE, DXGKARG_CREATENATIVEFENCE,
    DXGKARG_CREATEPERIODICFRAMENOTIFICATION, DXGKARG_CREATEPROCESS, DXGKARG_DESCRIBEALLOCATION,
    DXGKARG_DESTROYALLOCATION, DXGKARG_DESTROYCONTEXT, DXGKARG_DESTROYCPUEVENT, DXGKARG_DESTROYDEVICE,
    DXGKARG_DESTROYDOORBELL, DXGKARG_DESTROYHWQUEUE, DXGKARG_DESTROYPERIODICFRAMENOTIFICATION,
    DXGKARG_DESTROYPROCESS, DXGKARG_DISCONNECTDOORBELL, DXGKARG_DPCROUTINE, DXGKARG_ENDEXCLUSIVEACCESS,
    DXGKARG_ESCAPE, DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA, DXGKARG_NOTIFYWORKSUBMISSION,
    DXGKARG_OPENALLOCATION, DXGKARG_OPENNATIVEFENCE, DXGKARG_PATCH, DXGKARG_PREEMPTCOMMAND,
    DXGKARG_QUERYADAPTERINFO, DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS,
    DXGKARG_RESETENGINE, DXGKARG_RESETFROMTIMEOUT, DXGKARG_RESETHWENGINE, DXGKARG_RESTARTFROMTIMEOUT,
    DXGKARG_RESUMECONTEXT, DXGKARG_RESUMEHWENGINE, DXGKARG_SETNATIVEFENCELOGBUFFER, DXGKARG_SETPOWERSTATE,
    DXGKARG_SETSCHEDULINGLOGBUFFER, DXGKARG_SETVIRTUALMACHINEDATA, DXGKARG_SIGNALMONITOREDFENCE,
    DXGKARG_STOPDEVICE, DXGKARG_SUBMITCOMMANDTOHWQUEUE, DXGKARG_SUBMITCOMMANDVIRTUAL, DXGKARG_SUSPENDCONTEXT,
    DXGKARG_UPDATECURRENTVALUESFROMCPU, DXGKARG_UPDATEMONITOREDVALUES, DXGKARG_UPDATENATIVEFENCELOGS, Ddi,
    SIM_DOORBELLDISCONNECTED, SIM_ENGINETOF1, SIM_EVENTSIGNALED, SIM_IOMMUMAPPINGCHANGED,
    SIM_NATIVEFENCEWRITTEN, SIM_OBJECTFAILED, SIM_PAGEFAULT, SIM_RINGDOORBELL, SIM_VALIDATECOMMANDS,
    STATUS_PENDING,
};
use driver_host::limits::{PAGING_BUFFER_BYTES_MAX, STANDARD_DATA_BYTES_MAX};
use driver_host::messages::Allocation;
use dxgkrnl::ddi::{
    AllocationDescription, AllocationId, AllocationInfo, BadCommands, Callback, CreateAllocation,
    CreateCpuEvent, CreatePeriodicFrameNotification, CurrentValueUpdate, DestroyAllocation,
    DoorbellConnection, EngineId, EngineState, EngineStatus, Escape, FaultedWork, HwContext, HwQueueId,
    HwQueueSubmission, Interrupt, KmdCpuEvent, KmdDevice, KmdProcess, LocalAllocationId, LocalNativeFenceId,
    Miniport, NativeFenceId, NativeFenceStorage, NewHwQueue, NewNativeFence, NewProcess, NotificationRefused,
    OpenAllocation, OpenedNativeFence, PageFaultFlags, PageTableEntry, PagingOperation, PagingWork,
    PendingFaults, ProcessKind, QueryAdapterInfo, ResetFailed, RunningContext, SchedulingLogBuffer,
    SegmentGroup, SignalEvent, SignalMonitoredFence, StandardAllocationData, Submission, Suspend,
    VirtualMachineData,
};
use dxgkrnl::{Config, DriverAnswer, Nanos, ProcessId, VmId};

use super::engines::HwQueue;
use super::exchange::{Done, lose, print};
use super::work::Work;
use super::{Outside, ProcessDriver};

type Callbacks = Vec<Callback>;

/// The output arguments of an answer.
macro_rules! outputs {
    ($done:expr, $ddi:ident) => {
        match $done.ddi {
            Ddi::$ddi(arguments) => arguments,
            other => lose(format!("the answer to {} is of {}", stringify!($ddi), other.name())),
        }
    };
}

/// `STATUS_SUCCESS` without an answer.
fn accepted(done: Option<Done>) -> Result<(), NtStatus> {
    answered(done, Ok(()))
}

fn answered(done: Option<Done>, without: Result<(), NtStatus>) -> Result<(), NtStatus> {
    match done {
        Some(done) if done.is_success() => Ok(()),
        Some(done) => Err(NtStatus(done.status as u32)),
        None => without,
    }
}

fn reset(done: Option<Done>) -> Result<Done, ResetFailed> {
    done.filter(Done::is_success).ok_or(ResetFailed)
}

const UNSUPPORTED: Result<(), NtStatus> = Err(NtStatus::NOT_SUPPORTED);

impl ProcessDriver {
    /// The driver, at a DDI for this adapter.
    fn at(&mut self, adapter: u32) -> &mut Outside {
        let outside = self.0.get_mut();
        outside.adapter = adapter;
        outside
    }

    /// The driver, at a DDI with a time.
    fn at_time(&mut self, adapter: u32, now: Nanos) -> &mut Outside {
        let outside = self.at(adapter);
        outside.exchange.now = outside.exchange.now.max(now);
        outside
    }

    /// The driver, at a DDI that names an object.
    fn later(&mut self, now: Nanos) -> &mut Outside {
        let adapter = self.0.get_mut().adapter;
        self.at_time(adapter, now)
    }
}

impl Outside {
    /// Asks about each allocation of a call that succeeded whether it is a picture.
    fn describe(&mut self, allocations: &[AllocationInfo]) {
        for AllocationInfo { allocation, .. } in allocations {
            let describe = DXGKARG_DESCRIBEALLOCATION { hAllocation: allocation.0, ..Default::default() };
            let Some(done) = self.ask(describe, Vec::new()) else { return };
            if done.is_success() {
                let described = outputs!(done, DxgkDdiDescribeAllocation);
                let (width, height, format) = (described.Width, described.Height, described.Format);
                let description = AllocationDescription { width, height, format };
                self.engines.descriptions.insert(*allocation, description);
            }
        }
    }
}

#[rustfmt::skip]
impl Miniport for ProcessDriver {
    fn start(&mut self, config: &Config) {
        self.0.get_mut().exchange.configure(config);
    }

    fn validate(&self, adapter: u32, commands: &[u8]) -> Result<(), BadCommands> {
        let mut outside = self.0.borrow_mut();
        outside.adapter = adapter;
        let (done, mut printed) = outside.ask_apart(SIM_VALIDATECOMMANDS::default(), commands.to_vec());
        if done.is_none_or(|done| done.is_success()) {
            outside.early.append(&mut printed);
            return Ok(());
        }
        // What it printed is the reason.
        let lines: Vec<_> = printed.iter().map(|called| String::from_utf8_lossy(&called.text)).collect();
        let why = if lines.is_empty() { "the driver refuses the command buffer".into() } else { lines.join("; ") };
        Err(BadCommands(why))
    }

    fn submit_command(&mut self, now: Nanos, submission: Submission, callbacks: &mut Callbacks) -> Result<(), NtStatus> {
        let Submission { engine, context, process, submission_fence_id: id, resubmits, paging, commands } = submission;
        let outside = self.at_time(engine.adapter, now);
        let work = Work { submission_fence_id: id, context, process, bytes: commands.len(), queue: None, is_ring: false, is_refused: false };
        let submit = DXGKARG_SUBMITCOMMANDVIRTUAL {
            hContext: context.0.into(),
            hAddressSpace: process.0.into(),
            SubmissionFenceId: id,
            ResubmittedFenceId: resubmits.unwrap_or(DXGK_NO_HANDLE),
            NodeOrdinal: engine.node,
            Flags: u32::from(paging) | u32::from(resubmits.is_some()) << 1,
            ..DXGKARG_SUBMITCOMMANDVIRTUAL::default()
        };
        if !outside.exchange.has(engine.adapter, &submit.into()) {
            callbacks.push(Callback::NotifyInterrupt(Interrupt::DmaCompleted { engine, submission_fence_id: id }));
            return Ok(());
        }
        let before = outside.charge_to(process);
        let refusal = match resubmits {
            Some(id) => {
                let was_refused = outside.engines.engine(engine.node).take_returned(context, id);
                was_refused.then(|| "a submission that was refused is refused again".into())
            }
            None if paging => None,
            None => outside.exchange.refusal(&submit.into()),
        };
        // Known before its callbacks are converted: it may be complete already.
        outside.engines.engine(engine.node).submit(Work { is_refused: refusal.is_some(), ..work });
        let result = match refusal {
            Some(why) => {
                outside.early.push(print(why));
                outside.deliver(callbacks);
                outside.fault_refused(engine.node, callbacks);
                Ok(())
            }
            None => accepted(outside.call(submit, commands, callbacks)),
        };
        outside.exchange.vm = before;
        result
    }

    fn patch(&mut self, engine: EngineId, context: HwContext, id: u64) -> Result<(), NtStatus> {
        let (hContext, SubmissionFenceId, NodeOrdinal) = (context.0.into(), id, engine.node);
        let patch = DXGKARG_PATCH { hContext, SubmissionFenceId, NodeOrdinal, Reserved: 0 };
        accepted(self.at(engine.adapter).ask(patch, Vec::new()))
    }

    fn preempt_command(&mut self, now: Nanos, engine: EngineId, id: u64, callbacks: &mut Callbacks) -> Result<(), NtStatus> {
        let preempt = DXGKARG_PREEMPTCOMMAND { PreemptionFenceId: id, NodeOrdinal: engine.node, Reserved: 0 };
        accepted(self.at_time(engine.adapter, now).call(preempt, Vec::new(), callbacks))
    }

    fn cancel_command(&mut self, context: HwContext, commands: &[u8]) -> Result<(), NtStatus> {
        let cancel = DXGKARG_CANCELCOMMAND { hContext: context.0.into(), ..DXGKARG_CANCELCOMMAND::default() };
        accepted(self.later(0).ask(cancel, commands.to_vec()))
    }

    fn dpc_routine(&mut self, adapter: u32, callbacks: &mut Callbacks) {
        if self.at(adapter).call(DXGKARG_DPCROUTINE::default(), Vec::new(), callbacks).is_none() {
            callbacks.push(Callback::NotifyDpc { adapter });
        }
    }

    /// Not asked of the driver: the same in a replay, before the first step. A driver without a DDI refuses its calls.
    fn advertised_features(&self, adapter: u32) -> Vec<FeatureId> {
        self.0.borrow().exchange.features(adapter)
    }

    fn query_engine_status(&mut self, now: Nanos, engine: EngineId, callbacks: &mut Callbacks) -> EngineStatus {
        let outside = self.at_time(engine.adapter, now);
        let query = DXGKARG_QUERYENGINESTATUS { NodeOrdinal: engine.node, Responsive: 0 };
        let Some(done) = outside.call(query, Vec::new(), callbacks) else { return EngineStatus::default() };
        let is_responsive = outputs!(done, DxgkDdiQueryEngineStatus).Responsive != 0;
        EngineStatus { responsive: is_responsive && !outside.engines.engine(engine.node).is_stuck() }
    }

    fn query_dependent_engine_group(&mut self, engine: EngineId) -> u64 {
        let query = DXGKARG_QUERYDEPENDENTENGINEGROUP { NodeOrdinal: engine.node, ..Default::default() };
        match self.at(engine.adapter).ask(query, Vec::new()) {
            Some(done) if done.is_success() => {
                outputs!(done, DxgkDdiQueryDependentEngineGroup).DependentNodeOrdinalMask
            }
            Some(_) | None => 1u64.checked_shl(engine.node).unwrap_or(0),
        }
    }

    fn reset_engine(&mut self, now: Nanos, engine: EngineId, callbacks: &mut Callbacks) -> Result<u64, ResetFailed> {
        let outside = self.at_time(engine.adapter, now);
        if outside.engines.engine(engine.node).fails_reset() {
            return Err(ResetFailed);
        }
        let ddi = DXGKARG_RESETENGINE { NodeOrdinal: engine.node, ..DXGKARG_RESETENGINE::default() };
        let done = reset(outside.call(ddi, Vec::new(), callbacks))?;
        outside.engines.engine(engine.node).reset();
        Ok(outputs!(done, DxgkDdiResetEngine).LastAbortedFenceId)
    }

    fn reset_hw_engine(&mut self, now: Nanos, engine: EngineId, callbacks: &mut Callbacks) -> Result<(), ResetFailed> {
        let outside = self.at_time(engine.adapter, now);
        if outside.engines.engine(engine.node).fails_reset() {
            return Err(ResetFailed);
        }
        let ddi = DXGKARG_RESETHWENGINE { NodeOrdinal: engine.node, Reserved: 0 };
        let before = callbacks.len();
        reset(outside.call(ddi, Vec::new(), callbacks))?;
        outside.drop_invalidated(engine.node, callbacks, before);
        Ok(())
    }

    fn resume_hw_engine(&mut self, now: Nanos, engine: EngineId, callbacks: &mut Callbacks) -> Result<(), ResetFailed> {
        let ddi = DXGKARG_RESUMEHWENGINE { NodeOrdinal: engine.node, Reserved: 0 };
        accepted(self.at_time(engine.adapter, now).call(ddi, Vec::new(), callbacks)).map_err(|_| ResetFailed)
    }

    fn reset_from_timeout(&mut self, adapter: u32, callbacks: &mut Callbacks) -> Result<(), NtStatus> {
        let outside = self.at(adapter);
        let ddi = Ddi::from(DXGKARG_RESETFROMTIMEOUT::default());
        if outside.exchange.has(adapter, &ddi) {
            return accepted(outside.stop(ddi, callbacks));
        }
        outside.stop(DXGKARG_STOPDEVICE::default().into(), callbacks);
        Ok(())
    }

    /// `DxgkDdiBuildPagingBuffer` with a transfer of no bytes, whose paging buffer has nothing to do.
    fn memory_evicted(&mut self, adapter: u32, callbacks: &mut Callbacks) {
        let hAddressSpace = DXGK_NO_HANDLE;
        let evict = DXGKARG_BUILDPAGINGBUFFER { hAddressSpace, ..DXGKARG_BUILDPAGINGBUFFER::default() };
        self.at(adapter).call(evict, vec![0; PAGING_BUFFER_BYTES_MAX], callbacks);
    }

    fn restart_from_timeout(&mut self, adapter: u32, callbacks: &mut Callbacks) -> Result<(), NtStatus> {
        accepted(self.at(adapter).call(DXGKARG_RESTARTFROMTIMEOUT::default(), Vec::new(), callbacks))
    }

    fn page_fault(&mut self, now: Nanos, engine: EngineId, gpu_address: u64, flags: PageFaultFlags, callbacks: &mut Callbacks) {
        let fault = SIM_PAGEFAULT { GpuVirtualAddress: gpu_address, Flags: flags.bits(), NodeOrdinal: engine.node };
        self.at_time(engine.adapter, now).call(fault, Vec::new(), callbacks);
    }

    fn fail_reset(&mut self, engine: EngineId) {
        self.at(engine.adapter).engines.engine(engine.node).fail_reset();
    }

    fn create_context(&mut self, engine: EngineId, context: HwContext) -> Result<(), NtStatus> {
        let create = DXGKARG_CREATECONTEXT { hContext: context.0.into(), NodeOrdinal: engine.node, Reserved: 0 };
        accepted(self.at(engine.adapter).ask(create, Vec::new()))
    }

    fn destroy_context(&mut self, now: Nanos, context: HwContext, submitted: Option<(EngineId, u64)>, callbacks: &mut Callbacks) {
        let outside = self.later(now);
        let destroy = DXGKARG_DESTROYCONTEXT {
            hContext: context.0.into(),
            SubmissionFenceId: submitted.map_or(DXGK_NO_HANDLE, |(_, id)| id),
            NodeOrdinal: submitted.map_or(0, |(engine, _)| engine.node),
            Reserved: 0,
        };
        outside.engines.all().for_each(|engine| engine.drop_context(context));
        outside.call(destroy, Vec::new(), callbacks);
    }

    fn stop_device(&mut self, adapter: u32, callbacks: &mut Callbacks) {
        let outside = self.at(adapter);
        outside.stop(DXGKARG_STOPDEVICE::default().into(), callbacks);
        outside.engines.timer = None;
    }

    fn start_device(&mut self, adapter: u32, callbacks: &mut Callbacks) -> Result<(), NtStatus> {
        let outside = self.at(adapter);
        let start = outside.exchange.restart(adapter);
        answered(outside.call(start, Vec::new(), callbacks), UNSUPPORTED)
    }

    fn create_hw_queue(&mut self, new: &NewHwQueue) -> Result<(), NtStatus> {
        let NewHwQueue { hw_queue, context, engine, process, flags, progress_fence_gpu_address } = *new;
        let outside = self.at(engine.adapter);
        let create = DXGKARG_CREATEHWQUEUE {
            hHwQueue: hw_queue.0.into(),
            hContext: context.0.into(),
            hAddressSpace: process.0.into(),
            HwQueueProgressFenceGpuVirtualAddress: progress_fence_gpu_address,
            NodeOrdinal: engine.node,
            Flags: flags.bits(),
        };
        answered(outside.ask(create, Vec::new()), UNSUPPORTED)?;
        let queue = HwQueue { node: engine.node, context, process, progress_fence_gpu_address };
        outside.engines.hw_queues.insert(hw_queue.0, queue);
        Ok(())
    }

    fn destroy_hw_queue(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Callbacks) {
        let outside = self.later(now);
        outside.engines.hw_queues.remove(&hw_queue.0);
        outside.engines.all().for_each(|engine| engine.drop_hw_queue(hw_queue.0));
        outside.call(DXGKARG_DESTROYHWQUEUE { hHwQueue: hw_queue.0.into() }, Vec::new(), callbacks);
    }

    fn submit_command_to_hw_queue(&mut self, now: Nanos, submission: HwQueueSubmission, callbacks: &mut Callbacks) {
        let HwQueueSubmission { engine, hw_queue, context, submission_fence_id: id, progress_fence_id, commands } = submission;
        let outside = self.at_time(engine.adapter, now);
        let Some(process) = outside.engines.hw_queues.get(&hw_queue.0).map(|queue| queue.process) else { return };
        let (bytes, queue) = (commands.len(), Some((hw_queue.0, progress_fence_id)));
        outside.engines.engine(engine.node).submit(Work { submission_fence_id: id, context, process, bytes, queue, is_ring: false, is_refused: false });
        let submit = DXGKARG_SUBMITCOMMANDTOHWQUEUE {
            hHwQueue: hw_queue.0.into(),
            hContext: context.0.into(),
            SubmissionFenceId: id,
            HwQueueProgressFenceId: progress_fence_id,
            NodeOrdinal: engine.node,
            ..DXGKARG_SUBMITCOMMANDTOHWQUEUE::default()
        };
        let work = FaultedWork::Queue { hw_queue, progress_fence_id };
        outside.call_for_queue(submit.into(), commands, (engine, process, work), callbacks);
    }

    fn suspend_context(&mut self, now: Nanos, context: HwContext, suspend_fence: u64, callbacks: &mut Callbacks) -> Suspend {
        let suspend = DXGKARG_SUSPENDCONTEXT { hContext: context.0.into(), ContextSuspendFence: suspend_fence };
        match self.later(now).call(suspend, Vec::new(), callbacks) {
            Some(done) if done.status == STATUS_PENDING => Suspend::Pending,
            Some(_) | None => Suspend::Suspended,
        }
    }

    fn resume_context(&mut self, now: Nanos, context: HwContext, callbacks: &mut Callbacks) {
        self.later(now).call(DXGKARG_RESUMECONTEXT { hContext: context.0.into() }, Vec::new(), callbacks);
    }

    fn set_power_state(&mut self, adapter: u32, on: bool) {
        let state = DXGKARG_SETPOWERSTATE { DevicePowerState: if on { 1 } else { 4 }, Reserved: 0 };
        self.at(adapter).ask(state, Vec::new());
    }

    fn set_scheduling_log_buffer(&mut self, engine: EngineId, buffer: SchedulingLogBuffer) {
        let (outside, log) = (self.at(engine.adapter), (engine.node, buffer.entries.len() as u32));
        // One that is not loaded yet gets them when it starts.
        if outside.exchange.implemented.is_none() {
            return outside.exchange.scheduling_logs.push(log);
        }
        outside.ask(DXGKARG_SETSCHEDULINGLOGBUFFER { NodeOrdinal: log.0, NumberOfEntries: log.1 }, Vec::new());
    }

    fn begin_exclusive_access(&mut self, adapter: u32) {
        self.at(adapter).ask(DXGKARG_BEGINEXCLUSIVEACCESS::default(), Vec::new());
    }

    fn iommu_mapping_changed(&mut self, adapter: u32, process: ProcessId, added: Option<u32>) {
        let (AddedSlots, Removed) = (added.unwrap_or(0), u32::from(added.is_none()));
        let ddi = SIM_IOMMUMAPPINGCHANGED { hAddressSpace: process.0.into(), AddedSlots, Removed };
        self.at(adapter).ask(ddi, Vec::new());
    }

    fn end_exclusive_access(&mut self, adapter: u32) {
        self.at(adapter).ask(DXGKARG_ENDEXCLUSIVEACCESS::default(), Vec::new());
    }

    fn engine_to_f1(&mut self, engine: EngineId, callbacks: &mut Callbacks) {
        let ddi = SIM_ENGINETOF1 { NodeOrdinal: engine.node, Reserved: 0 };
        self.at(engine.adapter).call(ddi, Vec::new(), callbacks);
    }

    fn create_doorbell(&mut self, hw_queue: HwQueueId) -> Result<(), NtStatus> {
        let create = DXGKARG_CREATEDOORBELL { hHwQueue: hw_queue.0.into() };
        answered(self.later(0).ask(create, Vec::new()), UNSUPPORTED)
    }

    fn connect_doorbell(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Callbacks) -> DoorbellConnection {
        let connect = DXGKARG_CONNECTDOORBELL { hHwQueue: hw_queue.0.into(), ..Default::default() };
        let done = self.later(now).call(connect, Vec::new(), callbacks).filter(Done::is_success);
        let Some(done) = done else { return DoorbellConnection::Failed };
        match outputs!(done, DxgkDdiConnectDoorbell).DoorbellStatus {
            0 => DoorbellConnection::Connected,
            1 => DoorbellConnection::ConnectedNotify,
            2 => DoorbellConnection::Retry,
            _ => DoorbellConnection::Failed,
        }
    }

    fn disconnect_doorbell(&mut self, hw_queue: HwQueueId) {
        self.later(0).ask(DXGKARG_DISCONNECTDOORBELL { hHwQueue: hw_queue.0.into() }, Vec::new());
    }

    fn doorbell_disconnected(&mut self, hw_queue: HwQueueId, status: NtStatus) {
        let ddi = SIM_DOORBELLDISCONNECTED { hHwQueue: hw_queue.0.into(), Status: status.0, Reserved: 0 };
        self.later(0).ask(ddi, Vec::new());
    }

    fn destroy_doorbell(&mut self, hw_queue: HwQueueId) {
        self.later(0).ask(DXGKARG_DESTROYDOORBELL { hHwQueue: hw_queue.0.into() }, Vec::new());
    }

    fn ring_doorbell(&mut self, now: Nanos, hw_queue: HwQueueId, buffers: Vec<Vec<u8>>, callbacks: &mut Callbacks) {
        let outside = self.later(now);
        let Some(HwQueue { node, context, process, .. }) = outside.engines.hw_queues.get(&hw_queue.0).copied() else { return };
        for buffer in buffers {
            let queue = Some((hw_queue.0, u64::MAX));
            let work = Work { submission_fence_id: 0, context, process, bytes: buffer.len(), queue, is_ring: true, is_refused: false };
            outside.engines.engine(node).submit(work);
            let ring = SIM_RINGDOORBELL { hHwQueue: hw_queue.0.into(), ..Default::default() };
            let engine = EngineId { adapter: outside.adapter, node };
            // No number is known of a buffer in a ring.
            let work = FaultedWork::Queue { hw_queue, progress_fence_id: 0 };
            if !outside.call_for_queue(ring.into(), buffer, (engine, process, work), callbacks) {
                return;
            }
        }
    }

    fn notify_work_submission(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Callbacks) {
        self.later(now).call(DXGKARG_NOTIFYWORKSUBMISSION { hHwQueue: hw_queue.0.into() }, Vec::new(), callbacks);
    }

    fn ring_bytes(&self, hw_queue: HwQueueId) -> usize {
        self.0.borrow().engines.ring_bytes(hw_queue.0)
    }

    fn set_native_fence_log_buffers(&mut self, hw_queue: HwQueueId, entries: u32) -> Result<(), NtStatus> {
        let set = DXGKARG_SETNATIVEFENCELOGBUFFER { hHwQueue: hw_queue.0.into(), NumberOfEntries: entries, Reserved: 0 };
        answered(self.later(0).ask(set, Vec::new()), UNSUPPORTED)
    }

    fn update_native_fence_logs(&mut self, hw_queue: HwQueueId, callbacks: &mut Callbacks) {
        self.later(0).call(DXGKARG_UPDATENATIVEFENCELOGS { hHwQueue: hw_queue.0.into() }, Vec::new(), callbacks);
    }

    fn create_native_fence(&mut self, new: &NewNativeFence) -> Result<(), NtStatus> {
        let create = DXGKARG_CREATENATIVEFENCE {
            hGlobalNativeFence: new.fence.0,
            CurrentValue: new.current_value,
            MonitoredValue: new.monitored_value,
            StoragePage: new.storage.page,
            StorageOffset: new.storage.offset_bytes,
            Type: new.native_type,
        };
        answered(self.at(new.adapter).ask(create, Vec::new()), UNSUPPORTED)
    }

    fn open_native_fence(&mut self, opened: &OpenedNativeFence) {
        let open = DXGKARG_OPENNATIVEFENCE {
            hGlobalNativeFence: opened.fence.0,
            hLocalNativeFence: opened.local.0,
            hAddressSpace: opened.process.0.into(),
            GpuVirtualAddress: opened.gpu_address,
            Writable: u32::from(opened.writable),
            Reserved: 0,
        };
        self.later(0).ask(open, Vec::new());
    }

    fn close_native_fence(&mut self, local: LocalNativeFenceId) {
        self.later(0).ask(DXGKARG_CLOSENATIVEFENCE { hLocalNativeFence: local.0 }, Vec::new());
    }

    fn destroy_native_fence(&mut self, fence: NativeFenceId) {
        self.later(0).destroy_native_fence(fence.0);
    }

    fn memory_written(&mut self, storage: NativeFenceStorage, value: u64) {
        let (StoragePage, StorageOffset) = (storage.page, storage.offset_bytes);
        let ddi = SIM_NATIVEFENCEWRITTEN { StoragePage, Value: value, StorageOffset, Reserved: 0 };
        self.later(0).ask(ddi, Vec::new());
    }

    fn update_monitored_values(&mut self, now: Nanos, values: &[(NativeFenceId, u64)], callbacks: &mut Callbacks) {
        let element = |(fence, value): &(NativeFenceId, u64)| {
            DXGK_NATIVEFENCEVALUE { hGlobalNativeFence: fence.0, Value: *value, Flags: 0 }
        };
        let list = values.iter().map(element).flat_map(DXGK_NATIVEFENCEVALUE::bytes).collect();
        self.later(now).call(DXGKARG_UPDATEMONITOREDVALUES::default(), list, callbacks);
    }

    fn update_current_values_from_cpu(&mut self, now: Nanos, updates: &[CurrentValueUpdate], callbacks: &mut Callbacks) {
        let element = |update: &CurrentValueUpdate| {
            let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
            let Flags = flag(update.always_signaled, DXGK_NATIVEFENCEVALUE::ALWAYS_SIGNALED)
                | flag(update.notification_only, DXGK_NATIVEFENCEVALUE::NOTIFICATION_ONLY);
            DXGK_NATIVEFENCEVALUE { hGlobalNativeFence: update.fence.0, Value: update.value, Flags }
        };
        let list = updates.iter().map(element).flat_map(DXGK_NATIVEFENCEVALUE::bytes).collect();
        self.later(now).call(DXGKARG_UPDATECURRENTVALUESFROMCPU::default(), list, callbacks);
    }

    fn create_periodic_frame_notification(&mut self, now: Nanos, create: CreatePeriodicFrameNotification) -> Result<u64, NotificationRefused> {
        let outside = self.at_time(create.adapter, now);
        let ddi = DXGKARG_CREATEPERIODICFRAMENOTIFICATION {
            Time: create.time_100ns,
            NotificationID: create.notification_id,
            VsyncPeriod: outside.exchange.vsync_period(create.adapter, create.vidpn_target),
            VidPnTargetId: create.vidpn_target,
            ..DXGKARG_CREATEPERIODICFRAMENOTIFICATION::default()
        };
        match outside.ask(ddi, Vec::new()) {
            Some(done) if done.is_success() => Ok(outputs!(done, DxgkDdiCreatePeriodicFrameNotification).hNotification),
            Some(done) if done.status == NtStatus::NO_MEMORY.0 as i32 => Err(NotificationRefused::NoMemory),
            Some(done) if done.status == NtStatus::INVALID_PARAMETER.0 as i32 => Err(NotificationRefused::InvalidParameter),
            Some(_) | None => Err(NotificationRefused::Unsuccessful),
        }
    }

    fn destroy_periodic_frame_notification(&mut self, adapter: u32, notification: u64) {
        self.at(adapter).ask(DXGKARG_DESTROYPERIODICFRAMENOTIFICATION { hNotification: notification }, Vec::new());
    }

    fn event_signaled(&mut self, adapter: u32, signal: &SignalEvent, status: NtStatus) {
        let ddi = SIM_EVENTSIGNALED { hEvent: signal.event, Status: status.0, Reserved: 0 };
        self.at(adapter).ask(ddi, Vec::new());
    }

    fn held_bytes(&self, _adapter: u32, process: ProcessId) -> usize {
        self.0.borrow().engines.held_bytes(process)
    }

    fn get_standard_allocation_driver_data(&mut self, adapter: u32, standard: &StandardAllocationData) -> Option<Vec<u8>> {
        let ddi = DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA {
            Size: standard.size,
            StandardAllocationType: standard.kind,
            ..DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA::default()
        };
        let done = self.at(adapter).ask(ddi, vec![0; STANDARD_DATA_BYTES_MAX])?;
        done.is_success().then_some(done.buffer)
    }

    fn create_allocation(&mut self, adapter: u32, create: &mut CreateAllocation, callbacks: &mut Callbacks) -> Result<(), NtStatus> {
        let outside = self.at(adapter);
        let info = |of: &AllocationInfo| DXGK_ALLOCATIONINFO {
            hAllocation: of.allocation.0,
            Flags: if of.system_memory { DXGK_ALLOCATIONINFO::SYSTEM_MEMORY } else { 0 },
            ..DXGK_ALLOCATIONINFO::default()
        };
        let allocation = |of: &AllocationInfo| Allocation { info: info(of), private_data: of.private_data.clone() };
        let ddi = DXGKARG_CREATEALLOCATION {
            hAddressSpace: create.process.0.into(),
            hResource: create.resource.map_or(DXGK_NO_HANDLE, |resource| resource.0),
            NumAllocations: create.allocations.len() as u32,
            Flags: u32::from(create.new_resource),
            ..DXGKARG_CREATEALLOCATION::default()
        };
        let infos = create.allocations.iter().map(allocation).collect();
        let done = outside.ask_about(ddi.into(), create.private_data.clone(), infos);
        outside.deliver(callbacks);
        let Some(done) = done else { return UNSUPPORTED };
        if !done.is_success() {
            return Err(NtStatus(done.status as u32));
        }
        for (of, Allocation { info, private_data }) in create.allocations.iter_mut().zip(done.allocations) {
            // The data keep their length.
            if private_data.len() == of.private_data.len() {
                of.private_data = private_data;
            }
            of.size = Some(info.Size).filter(|size| *size != 0 || !of.system_memory);
            of.alignment = info.Alignment;
            let is_local = info.Flags & DXGK_ALLOCATIONINFO::LOCAL_SEGMENT != 0 && !of.system_memory;
            of.segment_group = if is_local { SegmentGroup::Local } else { SegmentGroup::NonLocal };
            of.cpu_visible = info.Flags & DXGK_ALLOCATIONINFO::CPU_VISIBLE != 0;
        }
        outside.describe(&create.allocations);
        Ok(())
    }

    /// What the driver said when it was created: a view of the kernel costs no message.
    fn describe_allocation(&self, _adapter: u32, allocation: AllocationId) -> Option<AllocationDescription> {
        self.0.borrow().engines.descriptions.get(&allocation).copied()
    }

    fn open_allocation(&mut self, adapter: u32, open: &OpenAllocation<'_>) -> Result<(), NtStatus> {
        let ddi = DXGKARG_OPENALLOCATION {
            hDevice: open.device.0,
            hAllocation: open.allocation.0,
            hDeviceSpecificAllocation: open.opened.0,
            Flags: u32::from(open.create),
            ..DXGKARG_OPENALLOCATION::default()
        };
        accepted(self.at(adapter).ask(ddi, open.private_data.to_vec()))
    }

    fn close_allocation(&mut self, adapter: u32, device: KmdDevice, opened: LocalAllocationId) {
        let close = DXGKARG_CLOSEALLOCATION { hDevice: device.0, hDeviceSpecificAllocation: opened.0 };
        self.at(adapter).ask(close, Vec::new());
    }

    fn destroy_allocation(&mut self, adapter: u32, destroy: &DestroyAllocation) {
        let list = destroy.allocations.iter().flat_map(|allocation| allocation.0.to_ne_bytes()).collect();
        let hResource = destroy.resource.map_or(DXGK_NO_HANDLE, |resource| resource.0);
        let ddi = DXGKARG_DESTROYALLOCATION { hResource, ..DXGKARG_DESTROYALLOCATION::default() };
        let outside = self.at(adapter);
        for allocation in &destroy.allocations {
            outside.engines.descriptions.remove(allocation);
        }
        outside.ask(ddi, list);
    }

    fn build_paging_buffer(&mut self, operation: &PagingOperation) -> Option<Vec<u8>> {
        let (number, base, size) = match operation.work {
            PagingWork::Transfer { size } => (0, 0, size),
            PagingWork::UpdatePageTable { base, size } => (10, base, size),
        };
        let ddi = DXGKARG_BUILDPAGINGBUFFER {
            hAddressSpace: operation.process.0.into(),
            Base: base,
            Size: size,
            Operation: number,
            ..DXGKARG_BUILDPAGINGBUFFER::default()
        };
        let done = self.at(operation.adapter).ask(ddi, vec![0; PAGING_BUFFER_BYTES_MAX])?;
        (done.is_success() && !done.buffer.is_empty()).then_some(done.buffer)
    }

    fn update_page_table(&mut self, adapter: u32, process: ProcessId, base: u64, bytes: u64, entry: PageTableEntry) {
        self.at(adapter).engines.update_page_table(process, base, bytes, entry);
    }

    fn signal_monitored_fence(&mut self, buffer: &mut Vec<u8>, signal: SignalMonitoredFence) {
        let ddi = DXGKARG_SIGNALMONITOREDFENCE {
            hAddressSpace: signal.process.0.into(),
            MonitoredFenceGpuVa: signal.gpu_address,
            MonitoredFenceValue: signal.value,
            ..DXGKARG_SIGNALMONITOREDFENCE::default()
        };
        let done = self.at(signal.adapter).ask(ddi, vec![0; PAGING_BUFFER_BYTES_MAX]);
        buffer.extend(done.filter(Done::is_success).map(|done| done.buffer).unwrap_or_default());
    }

    fn create_process(&mut self, adapter: u32, new: &NewProcess) -> Result<(), NtStatus> {
        let (kind, vm, worker) = match new.kind {
            ProcessKind::Host => (0, 0, None),
            ProcessKind::VirtualMachineWorker { vm } => (1, vm.0, None),
            ProcessKind::VirtualMachine { vm, worker } => (2, vm.0, Some(worker)),
        };
        let create = DXGKARG_CREATEPROCESS {
            hKmdProcess: new.process.0,
            hAddressSpace: new.address_space.map_or(DXGK_NO_HANDLE, |process| process.0.into()),
            hKmdVmWorkerProcess: worker.map_or(DXGK_NO_HANDLE, |worker| worker.0),
            Kind: kind,
            VmId: vm,
            ..DXGKARG_CREATEPROCESS::default()
        };
        let outside = self.at(adapter);
        accepted(outside.ask(create, new.name.clone().unwrap_or_default().into_bytes()))?;
        if let Some(address_space) = new.address_space {
            outside.engines.vms.insert(address_space, (new.process, VmId(vm)));
        }
        Ok(())
    }

    fn destroy_process(&mut self, adapter: u32, process: KmdProcess, callbacks: &mut Callbacks) {
        let outside = self.at(adapter);
        outside.engines.vms.retain(|_, (of, _)| *of != process);
        outside.call(DXGKARG_DESTROYPROCESS { hKmdProcess: process.0 }, Vec::new(), callbacks);
    }

    fn set_virtual_machine_data(&mut self, adapter: u32, data: &VirtualMachineData) {
        let Flags = u32::from(data.secure) | u32::from(data.linux) << 1;
        let ddi = DXGKARG_SETVIRTUALMACHINEDATA { hKmdVmWorkerProcess: data.worker.0, VmId: data.vm.0, Flags };
        self.at(adapter).ask(ddi, Vec::new());
    }

    fn query_adapter_info(&mut self, adapter: u32, query: QueryAdapterInfo<'_>) -> Result<(), NtStatus> {
        let ddi = DXGKARG_QUERYADAPTERINFO { Flags: query.flags.bits(), ..DXGKARG_QUERYADAPTERINFO::default() };
        let done = self.at(adapter).ask(ddi, query.data.to_vec());
        if let Some(done) = &done && done.is_success() {
            // A shorter reply leaves the rest of the query.
            query.data.iter_mut().zip(&done.buffer).for_each(|(to, from)| *to = *from);
        }
        answered(done, UNSUPPORTED)
    }

    fn create_device(&mut self, adapter: u32, process: KmdProcess, device: KmdDevice) -> Result<(), NtStatus> {
        let create = DXGKARG_CREATEDEVICE { hKmdProcess: process.0, hDevice: device.0 };
        accepted(self.at(adapter).ask(create, Vec::new()))
    }

    fn destroy_device(&mut self, adapter: u32, device: KmdDevice, callbacks: &mut Callbacks) {
        self.at(adapter).call(DXGKARG_DESTROYDEVICE { hDevice: device.0 }, Vec::new(), callbacks);
    }

    fn create_cpu_event(&mut self, adapter: u32, create: &CreateCpuEvent) -> Result<KmdCpuEvent, NtStatus> {
        let ddi = DXGKARG_CREATECPUEVENT { hDevice: create.device.0, hDxgCpuEvent: create.event.0, hKmdCpuEvent: 0 };
        let Some(done) = self.at(adapter).ask(ddi, Vec::new()) else { return Err(NtStatus::NOT_SUPPORTED) };
        if !done.is_success() {
            return Err(NtStatus(done.status as u32));
        }
        Ok(KmdCpuEvent(outputs!(done, DxgkDdiCreateCpuEvent).hKmdCpuEvent))
    }

    fn destroy_cpu_event(&mut self, adapter: u32, event: KmdCpuEvent, callbacks: &mut Callbacks) {
        self.at(adapter).call(DXGKARG_DESTROYCPUEVENT { hKmdCpuEvent: event.0 }, Vec::new(), callbacks);
    }

    fn escape(&mut self, now: Nanos, adapter: u32, escape: Escape<'_>, callbacks: &mut Callbacks) -> NtStatus {
        let ddi = DXGKARG_ESCAPE {
            hKmdProcess: escape.process.map_or(DXGK_NO_HANDLE, |process| process.0),
            hDevice: escape.device.map_or(DXGK_NO_HANDLE, |device| device.0),
            hContext: escape.context.map_or(DXGK_NO_HANDLE, |context| context.0.into()),
            Flags: escape.flags.bits(),
            ..DXGKARG_ESCAPE::default()
        };
        let Some(done) = self.at_time(adapter, now).call(ddi, escape.data.clone(), callbacks) else {
            return NtStatus::NOT_SUPPORTED;
        };
        // The data keep their length.
        escape.data.iter_mut().zip(&done.buffer).for_each(|(to, from)| *to = *from);
        NtStatus(done.status as u32)
    }

    fn fail_object(&mut self, adapter: u32, usage: u32, callbacks: &mut Callbacks) {
        self.at(adapter).call(SIM_OBJECTFAILED { Usage: usage, Reserved: 0 }, Vec::new(), callbacks);
    }

    fn lose_interrupt(&mut self, engine: EngineId) {
        self.at(engine.adapter).engines.engine(engine.node).lose_interrupt();
    }

    fn hang_engine(&mut self, engine: EngineId) {
        self.at(engine.adapter).engines.engine(engine.node).hang();
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let outside = self.0.borrow();
        outside.engines.timer.into_iter().chain(outside.exchange.deferred.due).min()
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Callbacks) {
        self.later(now).pass_time(now, callbacks);
    }

    fn running_context(&self, engine: EngineId) -> RunningContext {
        self.0.borrow().engines.running_context(engine.node)
    }

    fn engine_state(&self, engine: EngineId) -> EngineState {
        self.0.borrow().engines.state(engine.node)
    }

    fn pending_faults(&self, engine: EngineId) -> PendingFaults {
        self.0.borrow().engines.pending_faults(engine.node)
    }

    fn save(&self) -> Result<Vec<u8>, String> {
        ProcessDriver::save(self)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        ProcessDriver::restore(self, state)
    }

    fn runs_outside(&self) -> bool {
        true
    }

    fn act_for(&mut self, now: Nanos, vm: Option<VmId>) {
        let exchange = &mut self.0.get_mut().exchange;
        exchange.now = exchange.now.max(now);
        exchange.vm = vm;
    }

    fn take_answers(&mut self) -> Vec<DriverAnswer> {
        self.0.get_mut().take_answers()
    }

    fn supply_answers(&mut self, answers: &[DriverAnswer]) {
        self.0.get_mut().exchange.supply(answers.iter().map(|answer| answer.answer.clone()));
    }
}
