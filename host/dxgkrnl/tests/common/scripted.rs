//! A miniport around the simulated one: it records the DDI calls, and misbehaves as the test configures it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use d3dkmt::{FeatureId, NtStatus, isa};
use dxgkrnl::ddi::*;
use dxgkrnl::{AdapterConfig, Config, Fault, Input, Nanos, ProcessId};
use kmd::SimulatedMiniport;

use super::World;

type Callbacks = Vec<Callback>;

/// State that a test and its miniport share.
pub struct Script {
    /// DDI calls, by their names in [`Miniport`], and reported interrupts.
    pub log: Vec<String>,
    /// Submissions in order of arrival.
    pub submissions: Vec<Submission>,
    pub scheduling_logs: Vec<(EngineId, SchedulingLogBuffer)>,
    /// Callbacks to make in the next call of the named DDI; those of "interrupt" when the next deadline passes.
    pub callbacks: BTreeMap<&'static str, Callbacks>,
    /// The next call of the DDI of this name fails.
    pub failing: Option<(&'static str, NtStatus)>,
    /// Nodes beside its own that are reset with an engine; `None`: its own bit is missing too.
    pub dependents: Option<u64>,
    /// `LastAbortedFenceId` that ResetEngine returns; `None`: the true one.
    pub aborted: Option<u64>,
    /// Whether the driver does not tell which context an engine runs.
    pub hides_what_runs: bool,
    /// Whether QueryEngineStatus reports engines as responsive; `None`: the truth.
    pub responsive: Option<bool>,
    pub resume_fails: bool,
    /// The DPC routine does not call NotifyDpc.
    pub forgets_dpc: bool,
    /// Suspends stay pending and are never acknowledged.
    pub holds_suspends: bool,
    /// Features to advertise beside those of a correct driver.
    pub advertised: Vec<FeatureId>,
    /// Advertises no feature at all.
    pub advertises_nothing: bool,
    /// Answers every escape with this.
    pub escape_answer: Option<Vec<u8>>,
    /// Packets of each new paging buffer before its fence write; `None`: as the simulated miniport builds them.
    pub paging: Option<Vec<isa::Packet>>,
    /// Builds no paging buffers.
    pub pages_by_cpu: bool,
    pub refuse_notification: Option<NotificationRefused>,
    /// Private data of standard allocations.
    pub standard_data: Option<Vec<u8>>,
    /// Changes the answer of each CreateAllocation.
    pub allocation_answer: Option<fn(&mut CreateAllocation)>,
    pub ddis: PerEngineTdrDdis,
    /// Happens-before relations that the kernel reported.
    pub edges: Vec<HappensBefore>,
    /// A DDI is on the stack.
    inside: bool,
}

#[derive(Clone)]
pub struct ScriptRef(Arc<Mutex<Script>>);

impl ScriptRef {
    /// Panics instead of waiting: one thread drives both the kernel and the test.
    pub fn borrow(&self) -> MutexGuard<'_, Script> {
        self.0.try_lock().expect("the script is not borrowed")
    }
}

pub struct Scripted {
    script: ScriptRef,
    simulated: SimulatedMiniport,
}

/// A world over a scripted miniport, and the state that the test shares with it.
pub fn scripted(config: Config) -> (World, ScriptRef) {
    let script = ScriptRef(Arc::new(Mutex::new(Script {
        log: Vec::new(),
        submissions: Vec::new(),
        scheduling_logs: Vec::new(),
        callbacks: BTreeMap::new(),
        failing: None,
        dependents: Some(0),
        aborted: None,
        hides_what_runs: false,
        responsive: Some(false),
        resume_fails: false,
        forgets_dpc: false,
        holds_suspends: false,
        advertised: Vec::new(),
        advertises_nothing: false,
        escape_answer: None,
        paging: None,
        pages_by_cpu: false,
        refuse_notification: None,
        standard_data: None,
        allocation_answer: None,
        ddis: PerEngineTdrDdis::all(),
        edges: Vec::new(),
        inside: false,
    })));
    (scripted_by(config, &script), script)
}

pub fn scripted_by(config: Config, script: &ScriptRef) -> World {
    let miniport = Scripted { script: script.clone(), simulated: SimulatedMiniport::default() };
    World::with_miniport(config, miniport)
}

/// A configuration of one adapter with this paging node.
pub fn paging_on(node: u32) -> Config {
    let adapter = AdapterConfig { paging_node: Some(node), ..AdapterConfig::default() };
    Config { adapters: vec![adapter], ..Config::default() }
}

impl Script {
    /// Log lines since the last call of this function.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// The same without DPCs, interrupts, and calls about processes and devices.
    pub fn ddis(&mut self) -> Vec<String> {
        const OTHERS: [&str; 6] =
            ["dpc", "interrupt", "create_process", "create_device", "destroy_process", "destroy_device"];
        let log = self.take();
        log.into_iter().filter(|line| !OTHERS.iter().any(|other| line.starts_with(other))).collect()
    }

    pub fn call_back(&mut self, ddi: &'static str, callbacks: impl IntoIterator<Item = Callback>) {
        self.callbacks.entry(ddi).or_default().extend(callbacks);
    }

    fn take_callbacks(&mut self, ddi: &str) -> Callbacks {
        self.callbacks.remove(ddi).unwrap_or_default()
    }

    fn log_interrupts(&mut self, callbacks: &[Callback]) {
        for callback in callbacks {
            if let Callback::NotifyInterrupt(interrupt) = callback {
                self.log.push(format!("interrupt {}", interrupt.number()));
            }
        }
    }
}

/// Log lines since the last call, of DDIs whose names begin with one of these.
pub fn calls(script: &ScriptRef, names: &[&str]) -> Vec<String> {
    let mut calls = script.borrow().take();
    calls.retain(|call| names.iter().any(|name| call.starts_with(name)));
    calls
}

/// Makes these callbacks at once, through a fault input that this miniport otherwise ignores.
pub fn inject(world: &mut World, script: &ScriptRef, callbacks: Vec<Callback>) {
    script.borrow().call_back("page_fault", callbacks);
    let engine = EngineId { adapter: 0, node: 0 };
    world.input(Input::Fault(Fault::PageFault { engine, gpu_address: 0, flags: 0 }));
}

/// A callback that reports an interrupt.
pub fn interrupt(interrupt: Interrupt) -> Callback {
    Callback::NotifyInterrupt(interrupt)
}

impl Scripted {
    fn failing(&self, ddi: &str) -> Result<(), NtStatus> {
        let failed = self.script.borrow().failing.take_if(|(of, _)| *of == ddi);
        failed.map_or(Ok(()), |(_, status)| Err(status))
    }

    fn resume_fails(&self, _ddi: &str) -> Result<(), ResetFailed> {
        if self.script.borrow().resume_fails { Err(ResetFailed) } else { Ok(()) }
    }

    /// Begins a DDI; asserts that no other DDI is on the stack.
    fn begin(&self, ddi: &str, line: String) {
        let mut script = self.script.borrow();
        assert!(!script.inside, "{ddi} inside of another DDI");
        script.inside = true;
        script.log.extend(line.lines().map(str::to_owned));
    }

    fn end(&self) {
        self.script.borrow().inside = false;
    }

    /// Makes the test's callbacks, then calls the simulated miniport.
    fn log_and_call<T>(
        &mut self,
        ddi: &str,
        line: String,
        callbacks: &mut Callbacks,
        simulated: impl FnOnce(&mut SimulatedMiniport, &mut Callbacks) -> T,
    ) -> T {
        self.begin(ddi, line);
        callbacks.append(&mut self.script.borrow().take_callbacks(ddi));
        let before = callbacks.len();
        let answer = simulated(&mut self.simulated, callbacks);
        self.script.borrow().log_interrupts(&callbacks[before..]);
        self.end();
        answer
    }
}

/// Logs and forwards DDIs to the simulated miniport; a test can add callbacks and failures.
macro_rules! ddis {
    ($($ddi:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)? $([$failing:ident])? = $line:expr;)*) => {
        $(fn $ddi(&mut self, $($arg: $type,)* callbacks: &mut Callbacks) $(-> $answer)? {
            $(self.$failing(stringify!($ddi))?;)?
            let line = $line.to_string();
            self.log_and_call(stringify!($ddi), line, callbacks, |simulated, callbacks| {
                simulated.$ddi($($arg,)* callbacks)
            })
        })*
    };
}

/// The same without callbacks.
macro_rules! silent_ddis {
    ($($ddi:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)? $([$failing:ident])? = $line:expr;)*) => {
        $(fn $ddi(&mut self, $($arg: $type),*) $(-> $answer)? {
            $(self.$failing(stringify!($ddi))?;)?
            self.script.borrow().log.push($line.to_string());
            self.simulated.$ddi($($arg),*)
        })*
    };
}

/// Forwards methods that the log omits to the simulated miniport.
macro_rules! forwarded {
    ($($ddi:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $ddi(&self, $($arg: $type),*) -> $answer {
            self.simulated.$ddi($($arg),*)
        })*
    };
}

#[rustfmt::skip]
impl Miniport for Scripted {
    fn happens_before(&mut self, edge: &HappensBefore) -> Vec<String> {
        self.script.borrow().edges.push(*edge);
        Vec::new()
    }

    fn get_standard_allocation_driver_data(&mut self, adapter: u32, standard: &StandardAllocationData) -> Option<Vec<u8>> {
        let mut script = self.script.borrow();
        let StandardAllocationData { kind, size } = standard;
        script.log.push(format!("get_standard_allocation_driver_data {adapter} {kind} {size:#x}"));
        script.standard_data.clone()
    }

    fn create_allocation(
        &mut self,
        adapter: u32,
        create: &mut CreateAllocation,
        callbacks: &mut Callbacks,
    ) -> Result<(), NtStatus> {
        self.failing("create_allocation")?;
        let of = |info: &AllocationInfo| format!("{} ({} bytes)", info.allocation.0, info.private_data.len());
        let all: Vec<String> = create.allocations.iter().map(of).collect();
        let resource = create.resource.map_or(0, |resource| resource.0);
        let line = format!(
            "create_allocation {adapter} {} in {resource} new {} ({} bytes)",
            all.join(" "), create.new_resource, create.private_data.len(),
        );
        let answered = self.log_and_call("create_allocation", line, callbacks, |simulated, callbacks| {
            simulated.create_allocation(adapter, create, callbacks)
        });
        if let Some(change) = self.script.borrow().allocation_answer {
            change(create);
            return Ok(());
        }
        answered
    }

    ddis! {
        preempt_command(now: Nanos, engine: EngineId, id: u64) -> Result<(), NtStatus> [failing]
            = "preempt_command";
        reset_hw_engine(now: Nanos, engine: EngineId) -> Result<(), ResetFailed>
            = format!("reset_hw_engine {}", engine.node);
        resume_hw_engine(now: Nanos, engine: EngineId) -> Result<(), ResetFailed> [resume_fails]
            = format!("resume_hw_engine {}", engine.node);
        reset_from_timeout(adapter: u32) -> Result<(), NtStatus> [failing] = "reset_from_timeout";
        memory_evicted(adapter: u32) = "memory_evicted";
        restart_from_timeout(adapter: u32) -> Result<(), NtStatus> [failing] = "restart_from_timeout";
        destroy_context(now: Nanos, context: HwContext, submitted: Option<(EngineId, u64)>)
            = format!("destroy_context {}", context.0);
        stop_device(adapter: u32) = format!("stop_device {adapter}");
        start_device(adapter: u32) -> Result<(), NtStatus> [failing] = format!("start_device {adapter}");
        destroy_process(adapter: u32, process: KmdProcess) = format!("destroy_process {adapter} {}", process.0);
        destroy_device(adapter: u32, device: KmdDevice) = format!("destroy_device {adapter} {}", device.0);
        destroy_cpu_event(adapter: u32, event: KmdCpuEvent) = format!("destroy_cpu_event {adapter} {:#x}", event.0);
        fail_object(adapter: u32, usage: u32) = format!("object_goes_bad {adapter} {usage}");
        destroy_hw_queue(now: Nanos, hw_queue: HwQueueId) = format!("destroy_hw_queue {}", hw_queue.0);
        submit_command_to_hw_queue(now: Nanos, submission: HwQueueSubmission)
            = format!("submit_command_to_hw_queue {} {}", submission.hw_queue.0, submission.progress_fence_id);
        resume_context(now: Nanos, context: HwContext) = format!("resume_context {}", context.0);
        engine_to_f1(engine: EngineId) = format!("engine_to_f1 {}", engine.node);
        ring_doorbell(now: Nanos, hw_queue: HwQueueId, buffers: Vec<Vec<u8>>)
            = format!("ring_doorbell {}", hw_queue.0);
        notify_work_submission(now: Nanos, hw_queue: HwQueueId)
            = format!("notify_work_submission {}", hw_queue.0);
        update_native_fence_logs(hw_queue: HwQueueId) = format!("update_native_fence_logs {}", hw_queue.0);
        update_monitored_values(now: Nanos, values: &[(NativeFenceId, u64)])
            = each(values, |(fence, value)| format!("update_monitored_value {} {value}", fence.0));
        update_current_values_from_cpu(now: Nanos, updates: &[CurrentValueUpdate])
            = each(updates, |CurrentValueUpdate { fence, value, always_signaled, notification_only }| format!(
                "update_current_value {} {value} always {always_signaled} notification {notification_only}",
                fence.0,
            ));
    }

    silent_ddis! {
        patch(engine: EngineId, context: HwContext, id: u64) -> Result<(), NtStatus> [failing]
            = format!("patch {id}");
        cancel_command(context: HwContext, commands: &[u8]) -> Result<(), NtStatus> [failing]
            = format!("cancel_command {}", commands.len());
        create_process(adapter: u32, new: &NewProcess) -> Result<(), NtStatus> [failing]
            = format!("create_process {adapter} {} {:?} {:?}", new.process.0, new.kind, new.name);
        create_device(adapter: u32, process: KmdProcess, device: KmdDevice) -> Result<(), NtStatus> [failing]
            = format!("create_device {adapter} {} of {}", device.0, process.0);
        create_cpu_event(adapter: u32, create: &CreateCpuEvent) -> Result<KmdCpuEvent, NtStatus> [failing]
            = format!(
                "create_cpu_event {adapter} {} on {}, flags {}", create.event.0, create.device.0, create.flags
            );
        open_allocation(adapter: u32, open: &OpenAllocation<'_>) -> Result<(), NtStatus> [failing] = format!(
            "open_allocation {adapter} {} as {} on {} create {} ({} bytes)",
            open.allocation.0, open.opened.0, open.device.0, open.create, open.private_data.len(),
        );
        close_allocation(adapter: u32, device: KmdDevice, opened: LocalAllocationId)
            = format!("close_allocation {adapter} {} on {}", opened.0, device.0);
        destroy_allocation(adapter: u32, destroy: &DestroyAllocation) = format!(
            "destroy_allocation {adapter} {:?} of {:?}",
            destroy.allocations.iter().map(|one| one.0).collect::<Vec<_>>(), destroy.resource.map(|one| one.0),
        );
        set_virtual_machine_data(adapter: u32, data: &VirtualMachineData) = format!(
            "set_virtual_machine_data {adapter} {}: secure {} linux {}", data.worker.0, data.secure, data.linux,
        );
        begin_exclusive_access(adapter: u32) = "begin_exclusive_access";
        iommu_mapping_changed(adapter: u32, process: ProcessId, added: Option<u32>)
            = format!("mapping of {} changes: {added:?}", process.0);
        end_exclusive_access(adapter: u32) = "end_exclusive_access";
        create_hw_queue(new: &NewHwQueue) -> Result<(), NtStatus>
            = format!("create_hw_queue {} of {}", new.hw_queue.0, new.context.0);
        set_power_state(adapter: u32, on: bool) = format!("set_power_state {adapter} {on}");
        create_doorbell(hw_queue: HwQueueId) -> Result<(), NtStatus> = format!("create_doorbell {}", hw_queue.0);
        disconnect_doorbell(hw_queue: HwQueueId) = format!("disconnect_doorbell {}", hw_queue.0);
        doorbell_disconnected(hw_queue: HwQueueId, status: NtStatus)
            = format!("doorbell_disconnected {}: {status}", hw_queue.0);
        event_signaled(adapter: u32, signal: &SignalEvent, status: NtStatus)
            = format!("event_signaled {adapter} {:#x}: {status}", signal.event);
        destroy_doorbell(hw_queue: HwQueueId) = format!("destroy_doorbell {}", hw_queue.0);
        set_native_fence_log_buffers(hw_queue: HwQueueId, entries: u32) -> Result<(), NtStatus> [failing]
            = format!("set_native_fence_log_buffers {} {entries}", hw_queue.0);
        create_native_fence(new: &NewNativeFence) -> Result<(), NtStatus> = format!(
            "create_native_fence {} on {}: page {} at {}, monitored {}",
            new.fence.0, new.adapter, new.storage.page, new.storage.offset_bytes, new.monitored_value,
        );
        open_native_fence(opened: &OpenedNativeFence) = format!(
            "open_native_fence {} of {} for p{} at {:#x}",
            opened.local.0, opened.fence.0, opened.process.0, opened.gpu_address,
        );
        close_native_fence(local: LocalNativeFenceId) = format!("close_native_fence {}", local.0);
        destroy_native_fence(fence: NativeFenceId) = format!("destroy_native_fence {}", fence.0);
        signal_monitored_fence(buffer: &mut Vec<u8>, signal: SignalMonitoredFence)
            = format!("signal_monitored_fence {signal:?}");
        update_page_table(adapter: u32, process: ProcessId, base: u64, bytes: u64, entry: PageTableEntry)
            = format!("update_page_table p{} {base:#x} {bytes:#x} {entry:?} of adapter {adapter}", process.0);
        destroy_periodic_frame_notification(adapter: u32, notification: u64)
            = format!("destroy_periodic_frame_notification {notification} of adapter {adapter}");
        fail_reset(engine: EngineId) = format!("fail_reset {}", engine.node);
        lose_interrupt(engine: EngineId) = format!("lose_interrupt {}", engine.node);
        hang_engine(engine: EngineId) = format!("hang_engine {}", engine.node);
    }

    forwarded! {
        validate(adapter: u32, commands: &[u8]) -> Result<(), BadCommands>;
        describe_allocation(adapter: u32, allocation: AllocationId) -> Option<AllocationDescription>;
        ring_bytes(hw_queue: HwQueueId) -> usize;
        held_bytes(adapter: u32, process: ProcessId) -> usize;
        next_deadline() -> Option<Nanos>;
        has_begun(engine: EngineId, id: u64) -> bool;
        engine_state(engine: EngineId) -> EngineState;
        pending_faults(engine: EngineId) -> PendingFaults;
        work(engine: EngineId) -> Option<Vec<EngineWork>>;
        pending_writes(adapter: u32, commands: &[u8]) -> Option<Vec<PendingWrite>>;
    }

    fn running_context(&self, engine: EngineId) -> RunningContext {
        match self.script.borrow().hides_what_runs {
            true => RunningContext::Unknown,
            false => self.simulated.running_context(engine),
        }
    }

    fn start(&mut self, config: &Config) {
        self.simulated.start(config);
    }

    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Callbacks,
    ) -> Result<(), NtStatus> {
        self.failing("submit_command")?;
        self.script.borrow().submissions.push(submission.clone());
        self.log_and_call("submit_command", "submit_command".into(), callbacks, |simulated, callbacks| {
            simulated.submit_command(now, submission, callbacks)
        })
    }

    fn dpc_routine(&mut self, adapter: u32, callbacks: &mut Callbacks) {
        let mut script = self.script.borrow();
        assert!(!script.inside, "the DPC runs inside a DDI");
        script.log.push("dpc".to_owned());
        if !script.forgets_dpc {
            callbacks.push(Callback::NotifyDpc { adapter });
        }
        callbacks.append(&mut script.take_callbacks("dpc_routine"));
    }

    fn advertised_features(&self, adapter: u32) -> Vec<FeatureId> {
        if self.script.borrow().advertises_nothing {
            return Vec::new();
        }
        let sound = self.simulated.advertised_features(adapter);
        sound.into_iter().chain(self.script.borrow().advertised.iter().copied()).collect()
    }

    fn escape(
        &mut self,
        now: Nanos,
        adapter: u32,
        escape: Escape<'_>,
        callbacks: &mut Callbacks,
    ) -> NtStatus {
        let line = format!(
            "escape {adapter} process {:?} device {:?} context {:?} flags {:#x} data {:x?}",
            escape.process.map(|id| id.0),
            escape.device.map(|id| id.0),
            escape.context.map(|id| id.0),
            escape.flags.bits(),
            escape.data,
        );
        let answer = self.script.borrow().escape_answer.clone();
        if let Some(answer) = answer {
            *escape.data = answer;
            return self.log_and_call("escape", line, callbacks, |_, _| NtStatus::SUCCESS);
        }
        if let Err(status) = self.failing("escape") {
            return self.log_and_call("escape", line, callbacks, |_, _| status);
        }
        self.log_and_call("escape", line, callbacks, |simulated, callbacks| {
            simulated.escape(now, adapter, escape, callbacks)
        })
    }

    fn per_engine_tdr_ddis(&self, _adapter: u32) -> PerEngineTdrDdis {
        self.script.borrow().ddis
    }

    fn set_scheduling_log_buffer(&mut self, engine: EngineId, buffer: SchedulingLogBuffer) {
        self.script.borrow().scheduling_logs.push((engine, buffer));
    }

    fn query_engine_status(&mut self, now: Nanos, engine: EngineId, callbacks: &mut Callbacks) -> EngineStatus {
        let responsive = self.script.borrow().responsive;
        let line = "query_engine_status".to_owned();
        self.log_and_call("query_engine_status", line, callbacks, |simulated, callbacks| match responsive {
            Some(responsive) => EngineStatus { responsive },
            None => simulated.query_engine_status(now, engine, callbacks),
        })
    }

    fn query_dependent_engine_group(&mut self, engine: EngineId) -> u64 {
        self.script.borrow().log.push("query_dependent_engine_group".to_owned());
        self.script.borrow().dependents.map_or(0, |others| others | 1 << engine.node)
    }

    fn reset_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Callbacks,
    ) -> Result<u64, ResetFailed> {
        let line = format!("reset_engine {}", engine.node);
        let result = self.log_and_call("reset_engine", line, callbacks, |simulated, callbacks| {
            simulated.reset_engine(now, engine, callbacks)
        });
        self.script.borrow().aborted.map_or(result, Ok)
    }

    fn page_fault(
        &mut self,
        now: Nanos,
        engine: EngineId,
        gpu_address: u64,
        flags: PageFaultFlags,
        callbacks: &mut Callbacks,
    ) {
        let mut instead = self.script.borrow().take_callbacks("page_fault");
        if instead.is_empty() {
            self.simulated.page_fault(now, engine, gpu_address, flags, callbacks);
        }
        callbacks.append(&mut instead);
    }

    fn suspend_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        suspend_fence: u64,
        callbacks: &mut Callbacks,
    ) -> Suspend {
        let holds_suspends = self.script.borrow().holds_suspends;
        let line = format!("suspend_context {} {suspend_fence}", context.0);
        self.log_and_call("suspend_context", line, callbacks, |simulated, callbacks| match holds_suspends {
            true => Suspend::Pending,
            false => simulated.suspend_context(now, context, suspend_fence, callbacks),
        })
    }

    fn connect_doorbell(
        &mut self,
        now: Nanos,
        hw_queue: HwQueueId,
        callbacks: &mut Callbacks,
    ) -> DoorbellConnection {
        let answer = self.simulated.connect_doorbell(now, hw_queue, callbacks);
        callbacks.append(&mut self.script.borrow().take_callbacks("connect_doorbell"));
        self.script.borrow().log.push(format!("connect_doorbell {}: {answer:?}", hw_queue.0));
        answer
    }

    fn query_adapter_info(&mut self, adapter: u32, query: QueryAdapterInfo<'_>) -> Result<(), NtStatus> {
        self.script.borrow().log.push(format!("query_adapter_info {adapter}: {:?}", query.flags));
        self.simulated.query_adapter_info(adapter, query)
    }

    fn build_paging_buffer(&mut self, operation: &PagingOperation) -> Option<Vec<u8>> {
        let mut script = self.script.borrow();
        script.log.push(format!("build_paging_buffer {operation:?}"));
        match &script.paging {
            _ if script.pages_by_cpu => None,
            Some(packets) => Some(isa::encode(packets)),
            None => self.simulated.build_paging_buffer(operation),
        }
    }

    fn create_periodic_frame_notification(
        &mut self,
        now: Nanos,
        create: CreatePeriodicFrameNotification,
    ) -> Result<u64, NotificationRefused> {
        let mut script = self.script.borrow();
        script.log.push(format!("create_periodic_frame_notification {create:?}"));
        match script.refuse_notification {
            Some(refused) => Err(refused),
            None => self.simulated.create_periodic_frame_notification(now, create),
        }
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Callbacks) {
        let before = callbacks.len();
        self.simulated.deadline(now, callbacks);
        let mut script = self.script.borrow();
        callbacks.append(&mut script.take_callbacks("interrupt"));
        script.log_interrupts(&callbacks[before..]);
    }
}

/// A line for each.
fn each<T>(items: &[T], line: impl Fn(&T) -> String) -> String {
    items.iter().map(line).collect::<Vec<_>>().join("\n")
}
