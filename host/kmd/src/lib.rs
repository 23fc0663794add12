//! The simulated miniport: engines that run the command packets of [`d3dkmt::isa`].
//!
//! | module | contents |
//! |---|---|
//! | `engine/` | one engine and its queued command buffers |
//! | `list/` | execution of command lists, with barriers and caches |
//! | `debug.rs`, `races.rs` | the debug layer and the race detector |
//! | `private.rs` | client processes, their CPU events and driver-private escapes |
//! | `allocations.rs` | allocations with private data |
//! | `display.rs`, `paging.rs` | periodic frame notifications, paging buffers |
//! | `page_table.rs`, `resources.rs` | GPU virtual addresses of each process, resources that commands name |
//! | `queues.rs`, `native.rs` | hardware queues and doorbells, native fences |
//! | [`engine_tracer`] | reports what command lists do, for tools |
//!
//! The driver sees the kernel only through [`dxgkrnl::ddi`] and its configuration.
//!
//! It is given to the kernel, which calls it. A driver of your own implements the same trait (docs/KMD.md):
//!
//! ```
//! use d3dkmt::isa::{self, Packet};
//! use dxgkrnl::ddi::Miniport;
//! use dxgkrnl::{Config, Kernel};
//! use kmd::SimulatedMiniport;
//!
//! let mut driver = SimulatedMiniport::default();
//! driver.start(&Config::default());
//! let commands = isa::encode(&[Packet::Busy { duration_ns: 20_000 }]);
//! assert!(driver.validate(0, &commands).is_ok());
//! assert!(driver.validate(0, &commands[..commands.len() - 1]).is_err(), "cut in a packet");
//!
//! let kernel = Kernel::new(Config::default(), SimulatedMiniport::default());
//! assert!(kernel.next_deadline().is_none());
//! ```
//!
//! # Stability
//!
//! The API of this crate is 0.x: a minor version may change it, and the changelog says so. Stable is what clients see of this
//! driver: the packets of [`d3dkmt::isa`], its escapes, and the format of private data of allocations.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allocations;
mod debug;
mod display;
mod engine;
pub mod engine_tracer;
mod list;
mod native;
mod page_table;
mod paging;
mod private;
mod queues;
mod races;
mod resources;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use d3dkmt::{FeatureId, NtStatus, isa};
use dxgkrnl::ddi::{
    Agent, AllocationDescription, AllocationId, BadCommands, Callback, CreateAllocation, CreateCpuEvent,
    CreatePeriodicFrameNotification, CurrentValueUpdate, DestroyAllocation, DoorbellConnection, EngineId,
    EngineState, EngineStatus, EngineWork, Escape, HappensBefore, HwContext, HwQueueId, HwQueueSubmission,
    Interrupt, Invalidation, KmdCpuEvent, KmdDevice, KmdProcess, LocalNativeFenceId, Miniport, NativeFenceId,
    NativeFenceStorage, NewHwQueue, NewNativeFence, NewProcess, NotificationRefused, OpenedNativeFence,
    PageFaultFlags, PageTableEntry, PagingOperation, PendingFaults, PendingWrite, QueryAdapterInfo,
    ResetFailed, RunningContext, SignalMonitoredFence, SignaledNativeFences, Submission, Suspend,
};
use dxgkrnl::{AdapterConfig, Config, Features, Nanos, NodeConfig, ProcessId, VidSchCaps};

use allocations::Allocations;
use debug::DebugLayers;
use display::Displays;
use engine::{Engine, NewJob, Origin};
use engine_tracer::{EngineTracer, EngineTracers};
use page_table::PageFault;
use private::Clients;
use queues::{DdiCall, Doorbells, Shared};
use races::Races;
use serde::{Deserialize, Serialize};

/// The simulated kernel-mode driver: one engine for each node of each adapter.
#[derive(Default, Serialize, Deserialize)]
pub struct SimulatedMiniport {
    engines: BTreeMap<EngineId, Engine>,
    displays: Displays,
    /// TdrDelay of the registry.
    tdr_delay_ns: Nanos,
    /// Duration of a paging buffer, by adapter.
    paging_ns: Vec<Nanos>,
    /// Features that the driver advertises, by adapter.
    advertised: Vec<Vec<FeatureId>>,
    shared: Shared,
    clients: Clients,
    allocations: Allocations,
}

impl SimulatedMiniport {
    /// A driver whose engines report the execution of command lists to `tracer`.
    pub fn traced(tracer: EngineTracer) -> Self {
        let mut miniport = SimulatedMiniport::default();
        miniport.shared.tracers = EngineTracers::new(tracer);
        miniport
    }

    fn stop_engines(&mut self, adapter: u32) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.stop(&self.shared.tracers);
        }
        self.shared.drop_rings(adapter);
        self.shared.debug.adapter_stopped(adapter);
    }

    /// Runs `act` on one engine, then checks the hardware waits for every fence that changed. `None` if there is no
    /// such engine.
    fn with_engine<R>(
        &mut self,
        id: EngineId,
        clock: Nanos,
        callbacks: &mut Vec<Callback>,
        act: impl FnOnce(&mut Engine, &mut DdiCall<'_>) -> R,
    ) -> Option<R> {
        let ddi = &mut DdiCall { clock, shared: &mut self.shared, callbacks };
        let result = act(self.engines.get_mut(&id)?, ddi);
        check_waits(&mut self.engines, ddi);
        Some(result)
    }

    /// Runs `act` on every engine, then checks the hardware waits for every fence that changed.
    fn with_engines(
        &mut self,
        clock: Nanos,
        callbacks: &mut Vec<Callback>,
        act: impl Fn(&mut Engine, &mut DdiCall<'_>),
    ) {
        let ddi = &mut DdiCall { clock, shared: &mut self.shared, callbacks };
        self.engines.values_mut().for_each(|engine| act(engine, ddi));
        check_waits(&mut self.engines, ddi);
    }

    /// Submits command buffers that the engine fetched from a ring.
    fn fetch(
        &mut self,
        now: Nanos,
        hw_queue: HwQueueId,
        buffers: Vec<Vec<u8>>,
        callbacks: &mut Vec<Callback>,
    ) {
        let Some(queue) = self.shared.queues.get(&hw_queue) else { return };
        let (id, context, process) = (queue.engine, queue.context, queue.process);
        for commands in buffers {
            let origin = Origin::Ring { hw_queue, bytes: queues::ring_bytes(&commands) };
            let new = NewJob { origin, submission_fence_id: 0, context, process, commands };
            self.with_engine(id, now, callbacks, |engine, ddi| {
                let job = engine.job(new);
                engine.submit(job, ddi);
            });
        }
    }
}

/// Checks hardware waits on each fence whose value changed, until no fence changes any more.
fn check_waits(engines: &mut BTreeMap<EngineId, Engine>, ddi: &mut DdiCall<'_>) {
    while let Some(fence) = ddi.shared.native.touched.pop_front() {
        let adapter = ddi.shared.native.adapter_of(fence);
        for (_, engine) in engines.iter_mut().filter(|(id, _)| Some(id.adapter) == adapter) {
            engine.check_waits(fence, ddi);
        }
    }
}

/// Number of bytes that these callbacks move.
fn moved_bytes(callbacks: &[Callback]) -> u64 {
    let moved = callbacks.iter().map(|callback| match callback {
        Callback::Dma { moved, .. } => moved.bytes(),
        _ => 0,
    });
    moved.fold(0, u64::saturating_add)
}

/// Features that both the hardware and the system support. A driver queries the system before it advertises a feature.
fn advertised(system: Features, adapter: &AdapterConfig) -> Vec<FeatureId> {
    let able = [
        (FeatureId::HWSCH, adapter.nodes.iter().any(|node| node.hw_queues)),
        (FeatureId::KMD_SIGNAL_CPU_EVENT, true),
        (FeatureId::USER_MODE_SUBMISSION, adapter.nodes.iter().any(|node| node.user_mode_submission)),
        (FeatureId::NATIVE_FENCE, adapter.caps.contains(VidSchCaps::NATIVE_GPU_FENCE)),
        (FeatureId::LDA_GPUPV, true),
    ];
    let found = able.into_iter().filter(|(feature, able)| *able && system.offers(*feature));
    found.map(|(feature, _)| feature).collect()
}

impl Miniport for SimulatedMiniport {
    fn start(&mut self, config: &Config) {
        self.engines.clear();
        let debug = DebugLayers::new(config);
        let tracers = core::mem::take(&mut self.shared.tracers);
        let debug = debug.watched_by(tracers.is_there());
        self.shared = Shared { races: Races::new(config), debug, tracers, ..Shared::default() };
        self.clients = Clients::default();
        self.allocations = Allocations::default();
        self.displays = Displays::new(config);
        let policy = &config.policy;
        self.tdr_delay_ns = config.tdr.delay_ns;
        self.paging_ns = config.adapters.iter().map(paging::duration_ns).collect();
        self.advertised =
            config.adapters.iter().map(|adapter| advertised(config.features, adapter)).collect();
        for (adapter, config) in config.adapters.iter().enumerate() {
            let optimized = VidSchCaps::OPTIMIZED_NATIVE_FENCE_SIGNALED_INTERRUPT;
            self.shared.optimized_interrupt.push(config.caps.contains(optimized));
            for (id, config) in config.engines(adapter as u32) {
                self.engines.insert(id, Engine::new(id, config, policy));
                // An engine of the basic kind reads its rings only when it is notified.
                let doorbells = Doorbells::new(config.doorbells, !config.signals_at_write);
                self.shared.doorbells.insert(id, doorbells);
            }
            let id = EngineId { adapter: adapter as u32, node: AdapterConfig::OWN_PAGING_NODE };
            let config = NodeConfig { signals_at_write: false, ..NodeConfig::default() };
            self.engines.insert(id, Engine::new(id, &config, policy));
        }
    }

    /// Private data for the user-mode driver: a u32 version, 1, then the query's flags as a u32.
    fn query_adapter_info(&mut self, _adapter: u32, query: QueryAdapterInfo<'_>) -> Result<(), NtStatus> {
        const VERSION: u32 = 1;
        let words = query.data.get_mut(..8).ok_or(NtStatus::BUFFER_TOO_SMALL)?;
        words[..4].copy_from_slice(&VERSION.to_le_bytes());
        words[4..].copy_from_slice(&query.flags.bits().to_le_bytes());
        Ok(())
    }

    fn validate(&self, _adapter: u32, commands: &[u8]) -> Result<(), BadCommands> {
        isa::check(commands).map_err(|error| BadCommands(error.to_string()))
    }

    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        let Submission { engine: id, context, process, submission_fence_id, resubmits, commands, .. } =
            submission;
        let new = NewJob { origin: Origin::Context, submission_fence_id, context, process, commands };
        let submitted = self.with_engine(id, now, callbacks, |engine, ddi| {
            // A resubmitted buffer continues at the packet where it was preempted.
            let saved = resubmits.and_then(|was| engine.take_saved(was));
            let job = match saved {
                Some(saved) => saved.resubmitted(submission_fence_id),
                None => engine.job(new),
            };
            engine.submit(job, ddi);
        });
        submitted.ok_or(NtStatus::INVALID_PARAMETER)
    }

    fn preempt_command(
        &mut self,
        _now: Nanos,
        engine: EngineId,
        preemption_fence_id: u64,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        let engine = self.engines.get_mut(&engine).ok_or(NtStatus::INVALID_PARAMETER)?;
        engine.preempt(preemption_fence_id, callbacks);
        Ok(())
    }

    fn advertised_features(&self, adapter: u32) -> Vec<FeatureId> {
        self.advertised.get(adapter as usize).cloned().unwrap_or_default()
    }

    fn query_engine_status(
        &mut self,
        now: Nanos,
        engine: EngineId,
        _callbacks: &mut Vec<Callback>,
    ) -> EngineStatus {
        let engine = self.engines.get(&engine);
        EngineStatus { responsive: engine.is_none_or(|engine| engine.is_responsive(now, self.tdr_delay_ns)) }
    }

    fn reset_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<u64, ResetFailed> {
        self.with_engine(engine, now, callbacks, Engine::reset).ok_or(ResetFailed)?
    }

    fn reset_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        // Contexts share no hardware state here, so a reset affects only the context that ran.
        let culprit = self.with_engine(engine, now, callbacks, Engine::reset_hw).ok_or(ResetFailed)??;
        if let Some(context) = culprit {
            callbacks.push(Callback::InvalidateHwContext { context, reason: Invalidation::Culprit });
        }
        Ok(())
    }

    fn resume_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        self.with_engine(engine, now, callbacks, Engine::resume_after_reset).ok_or(ResetFailed)
    }

    fn page_fault(
        &mut self,
        now: Nanos,
        engine: EngineId,
        gpu_address: u64,
        flags: PageFaultFlags,
        callbacks: &mut Vec<Callback>,
    ) {
        let fault = PageFault { gpu_address, flags };
        self.with_engine(engine, now, callbacks, |engine, ddi| engine.page_fault(fault, ddi));
    }

    fn fail_reset(&mut self, engine: EngineId) {
        if let Some(engine) = self.engines.get_mut(&engine) {
            engine.fail_reset();
        }
    }

    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Vec<Callback>,
    ) {
        for engine in self.engines.values_mut() {
            engine.forget_context(context, now, &self.shared.tracers);
        }
        self.shared.debug.ended(Agent::Context(context));
        if let Some((engine, submission_fence_id)) = submitted {
            self.with_engine(engine, now, callbacks, |engine, ddi| {
                engine.drop_submission(submission_fence_id, ddi);
            });
        }
    }

    fn stop_device(&mut self, adapter: u32, _callbacks: &mut Vec<Callback>) {
        self.stop_engines(adapter);
        self.displays.stop(adapter);
    }

    /// Displays go on: they are no engines (F-87).
    fn reset_from_timeout(&mut self, adapter: u32, _callbacks: &mut Vec<Callback>) -> Result<(), NtStatus> {
        self.stop_engines(adapter);
        Ok(())
    }

    fn start_device(&mut self, adapter: u32, _callbacks: &mut Vec<Callback>) -> Result<(), NtStatus> {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.stop(&self.shared.tracers);
        }
        Ok(())
    }

    fn build_paging_buffer(&mut self, operation: &PagingOperation) -> Option<Vec<u8>> {
        self.paging_ns.get(operation.adapter as usize).map(|duration_ns| paging::build(*duration_ns))
    }

    fn update_page_table(
        &mut self,
        adapter: u32,
        process: ProcessId,
        base: u64,
        bytes: u64,
        entry: PageTableEntry,
    ) {
        self.shared.page_tables.update((adapter, process), base, bytes, entry);
    }

    fn signal_monitored_fence(&mut self, buffer: &mut Vec<u8>, signal: SignalMonitoredFence) {
        paging::append_signal(buffer, signal);
    }

    fn create_periodic_frame_notification(
        &mut self,
        now: Nanos,
        create: CreatePeriodicFrameNotification,
    ) -> Result<u64, NotificationRefused> {
        self.displays.create(now, create)
    }

    fn destroy_periodic_frame_notification(&mut self, _adapter: u32, notification: u64) {
        self.displays.destroy(notification);
    }

    fn create_hw_queue(&mut self, new: &NewHwQueue) -> Result<(), NtStatus> {
        self.shared.create_hw_queue(new);
        Ok(())
    }

    fn destroy_hw_queue(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {
        let Some(queue) = self.shared.queues.remove(&hw_queue) else { return };
        self.shared.debug.ended(Agent::HwQueue(hw_queue));
        self.with_engine(queue.engine, now, callbacks, |engine, ddi| engine.drop_hw_queue(hw_queue, ddi));
    }

    fn submit_command_to_hw_queue(
        &mut self,
        now: Nanos,
        submission: HwQueueSubmission,
        callbacks: &mut Vec<Callback>,
    ) {
        let HwQueueSubmission {
            engine: id,
            hw_queue,
            context,
            submission_fence_id,
            progress_fence_id,
            commands,
        } = submission;
        let Some(queue) = self.shared.queues.get(&hw_queue) else { return };
        let (process, origin) = (queue.process, Origin::HwQueue { hw_queue, progress_fence_id });
        let new = NewJob { origin, submission_fence_id, context, process, commands };
        self.with_engine(id, now, callbacks, |engine, ddi| {
            let job = engine.job(new);
            engine.submit(job, ddi);
        });
    }

    fn suspend_context(
        &mut self,
        _now: Nanos,
        context: HwContext,
        suspend_fence: u64,
        _callbacks: &mut Vec<Callback>,
    ) -> Suspend {
        // A context runs on one engine. The others report it as suspended at once.
        let mut answer = Suspend::Suspended;
        for engine in self.engines.values_mut() {
            if engine.suspend(context, suspend_fence) == Suspend::Pending {
                answer = Suspend::Pending;
            }
        }
        answer
    }

    fn resume_context(&mut self, now: Nanos, context: HwContext, callbacks: &mut Vec<Callback>) {
        self.with_engines(now, callbacks, |engine, ddi| engine.resume(context, ddi));
    }

    fn engine_to_f1(&mut self, engine: EngineId, callbacks: &mut Vec<Callback>) {
        if let Some(state) = self.engines.get_mut(&engine) {
            state.interrupt(Interrupt::EngineToF1 { engine }, callbacks);
        }
    }

    fn create_doorbell(&mut self, _hw_queue: HwQueueId) -> Result<(), NtStatus> {
        Ok(())
    }

    fn connect_doorbell(
        &mut self,
        _now: Nanos,
        hw_queue: HwQueueId,
        callbacks: &mut Vec<Callback>,
    ) -> DoorbellConnection {
        self.shared.connect(hw_queue, callbacks)
    }

    fn disconnect_doorbell(&mut self, hw_queue: HwQueueId) {
        self.shared.disconnect(hw_queue);
    }

    fn doorbell_disconnected(&mut self, hw_queue: HwQueueId, status: NtStatus) {
        if status == NtStatus::SUCCESS {
            self.shared.disconnect(hw_queue);
        }
    }

    fn ring_doorbell(
        &mut self,
        now: Nanos,
        hw_queue: HwQueueId,
        buffers: Vec<Vec<u8>>,
        callbacks: &mut Vec<Callback>,
    ) {
        let noticed_buffers = self.shared.ring(hw_queue, buffers);
        self.fetch(now, hw_queue, noticed_buffers, callbacks);
    }

    fn notify_work_submission(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {
        let noticed_buffers = self.shared.notified(hw_queue);
        self.fetch(now, hw_queue, noticed_buffers, callbacks);
    }

    fn held_bytes(&self, adapter: u32, process: ProcessId) -> usize {
        let engines = self.engines.iter().filter(|(id, _)| id.adapter == adapter);
        engines.map(|(_, engine)| engine.held_bytes(process)).sum()
    }

    fn kept_bytes(&self, adapter: u32, process: ProcessId) -> usize {
        let space = (adapter, process);
        self.shared.resources.kept_bytes(space) + self.shared.debug.kept_bytes(space)
    }

    fn ring_bytes(&self, hw_queue: HwQueueId) -> usize {
        self.shared.queues.get(&hw_queue).map_or(0, |queue| queue.ring_bytes)
    }

    fn set_native_fence_log_buffers(&mut self, hw_queue: HwQueueId, _entries: u32) -> Result<(), NtStatus> {
        self.shared.set_logs(hw_queue);
        Ok(())
    }

    fn create_native_fence(&mut self, new: &NewNativeFence) -> Result<(), NtStatus> {
        self.shared.native.create(new);
        Ok(())
    }

    fn open_native_fence(&mut self, opened: &OpenedNativeFence) {
        self.shared.native.open(opened);
        let Some(adapter) = self.shared.native.adapter_of(opened.fence) else { return };
        let (space, address) = ((adapter, opened.process), opened.gpu_address);
        // Messages are dropped here: the debug layer reports a bad fence when a list uses it.
        self.shared.debug.fence_opened(space, address, &self.shared.native, &mut Vec::new());
    }

    fn close_native_fence(&mut self, local: LocalNativeFenceId) {
        if let Some((adapter, process, address)) = self.shared.native.close(local) {
            self.shared.debug.fence_closed((adapter, process), address);
        }
    }

    fn destroy_native_fence(&mut self, fence: NativeFenceId) {
        self.shared.native.destroy(fence);
    }

    fn native_fence_used(&mut self, local: LocalNativeFenceId, callbacks: &mut Vec<Callback>) {
        if let Some((adapter, process, address)) = self.shared.native.location(local) {
            self.shared.debug.fence_used((adapter, process), address, callbacks);
        }
    }

    fn happens_before(&mut self, edge: &HappensBefore) -> Vec<String> {
        let report_lines = self.shared.races.edge(edge);
        self.shared.trace_races(None);
        report_lines
    }

    fn memory_written(&mut self, storage: NativeFenceStorage, value: u64) {
        if let Some(fence) = self.shared.native.written_elsewhere(storage, value) {
            self.shared.record_stored(fence, None, value);
        }
    }

    fn update_monitored_values(
        &mut self,
        _now: Nanos,
        values: &[(NativeFenceId, u64)],
        callbacks: &mut Vec<Callback>,
    ) {
        for (adapter, fence) in self.shared.native.update_monitored_values(values) {
            let signaled = SignaledNativeFences::These(vec![fence]);
            let engine = EngineId { adapter, node: 0 };
            callbacks.push(Callback::NotifyInterrupt(Interrupt::NativeFenceSignaled { engine, signaled }));
        }
    }

    fn update_current_values_from_cpu(
        &mut self,
        now: Nanos,
        updates: &[CurrentValueUpdate],
        callbacks: &mut Vec<Callback>,
    ) {
        for update in updates {
            self.shared.native.update_current_value(update);
            self.shared.record_stored(update.fence, None, update.value);
        }
        self.with_engines(now, callbacks, |_, _| {});
    }

    fn create_process(&mut self, _adapter: u32, new: &NewProcess) -> Result<(), NtStatus> {
        self.clients.create_process(new);
        Ok(())
    }

    fn destroy_process(&mut self, adapter: u32, process: KmdProcess, _callbacks: &mut Vec<Callback>) {
        if let Some(space) = self.clients.destroy_process(process) {
            self.shared.resources.end_process((adapter, space));
            self.shared.debug.end_process((adapter, space));
            self.shared.native.end_process((adapter, space));
        }
    }

    fn create_device(
        &mut self,
        _adapter: u32,
        process: KmdProcess,
        device: KmdDevice,
    ) -> Result<(), NtStatus> {
        self.clients.create_device(process, device);
        Ok(())
    }

    fn destroy_device(&mut self, _adapter: u32, device: KmdDevice, callbacks: &mut Vec<Callback>) {
        self.clients.destroy_device(device);
        for (space, number) in self.shared.resources.end_device(device) {
            self.shared.debug.destroyed(space, number, callbacks);
        }
    }

    fn create_allocation(
        &mut self,
        adapter: u32,
        create: &mut CreateAllocation,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        self.allocations.create(adapter, create, callbacks)
    }

    fn destroy_allocation(&mut self, _adapter: u32, destroy: &DestroyAllocation) {
        self.allocations.destroy(destroy);
    }

    fn describe_allocation(&self, _adapter: u32, allocation: AllocationId) -> Option<AllocationDescription> {
        self.allocations.describe(allocation)
    }

    fn create_cpu_event(&mut self, adapter: u32, create: &CreateCpuEvent) -> Result<KmdCpuEvent, NtStatus> {
        self.clients.create_cpu_event(adapter, create)
    }

    fn destroy_cpu_event(&mut self, _adapter: u32, event: KmdCpuEvent, _callbacks: &mut Vec<Callback>) {
        self.clients.destroy_cpu_event(event);
    }

    fn escape(
        &mut self,
        _now: Nanos,
        adapter: u32,
        escape: Escape<'_>,
        callbacks: &mut Vec<Callback>,
    ) -> NtStatus {
        self.clients.escape(adapter, escape, &mut self.shared, callbacks)
    }

    fn fail_object(&mut self, adapter: u32, usage: u32, callbacks: &mut Vec<Callback>) {
        self.clients.fail_object(adapter, usage, None, callbacks);
    }

    fn lose_interrupt(&mut self, engine: EngineId) {
        if let Some(engine) = self.engines.get_mut(&engine) {
            engine.lose_interrupt();
        }
    }

    fn hang_engine(&mut self, engine: EngineId) {
        if let Some(engine) = self.engines.get_mut(&engine) {
            engine.hang();
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let engines = self.engines.values().filter_map(Engine::busy_until);
        engines.chain(self.displays.next_due()).min()
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        // Engines and displays advance in the order of their deadlines, so that effects are in order of time. At equal
        // times engines come first, because their interrupts are reported before those of the display (SCH-004). After
        // MOVED_BYTES_PER_STEP bytes this returns, and the kernel calls again with the same time.
        let mut moved = 0u64;
        while moved < MOVED_BYTES_PER_STEP {
            let counted = callbacks.len();
            let due =
                |(_, engine): &(&EngineId, &Engine)| engine.busy_until().is_some_and(|until| until <= now);
            let engine = self.engines.iter().filter(due).min_by_key(|(_, engine)| engine.busy_until());
            let engine = engine.and_then(|(id, engine)| Some((*id, engine.busy_until()?)));
            let display = self.displays.next_due().filter(|due| *due <= now);
            match engine.filter(|(_, clock)| display.is_none_or(|due| *clock <= due)) {
                Some((id, clock)) => drop(self.with_engine(id, clock, callbacks, Engine::finish_packet)),
                None if display.is_some() => self.displays.notify(now, callbacks),
                None => return,
            }
            moved = moved.saturating_add(moved_bytes(&callbacks[counted..]));
        }
    }

    fn save(&self) -> Result<Vec<u8>, String> {
        postcard::to_allocvec(self).map_err(|error| error.to_string())
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        let Shared { tracers, debug, races, .. } = core::mem::take(&mut self.shared);
        *self = postcard::from_bytes(state).map_err(|error| error.to_string())?;
        // This driver chooses what it observes, not the driver that was saved.
        self.shared.tracers = tracers;
        self.shared.races.configure(races);
        if debug.is_watched() && !self.shared.debug.is_watched() {
            let Shared { debug, resources, native, .. } = &mut self.shared;
            debug.watch(resources, native);
        }
        Ok(())
    }

    fn has_begun(&self, engine: EngineId, submission_fence_id: u64) -> bool {
        self.engines.get(&engine).is_none_or(|engine| engine.has_begun(submission_fence_id))
    }

    fn running_context(&self, engine: EngineId) -> RunningContext {
        self.engines.get(&engine).map_or(RunningContext::None, Engine::running_context)
    }

    fn engine_state(&self, engine: EngineId) -> EngineState {
        self.engines.get(&engine).map_or(EngineState::Idle, Engine::state)
    }

    fn pending_faults(&self, engine: EngineId) -> PendingFaults {
        self.engines.get(&engine).map_or(PendingFaults::default(), Engine::faults)
    }

    fn work(&self, engine: EngineId) -> Option<Vec<EngineWork>> {
        Some(self.engines.get(&engine).map_or(Vec::new(), Engine::work))
    }

    fn pending_writes_of_submission(
        &self,
        engine: EngineId,
        hw_queue: Option<HwQueueId>,
        submission_fence_id: u64,
    ) -> Option<Vec<PendingWrite>> {
        self.engines.get(&engine)?.pending_writes_of(hw_queue, submission_fence_id)
    }

    fn pending_writes(&self, _adapter: u32, commands: &[u8]) -> Option<Vec<PendingWrite>> {
        Some(crate::engine::pending_writes(commands))
    }
}
