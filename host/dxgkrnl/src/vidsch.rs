//! VidSch: contexts, the packets in their queues, and the way to the engines.
//!
//! ```text
//!   queue of a context        head can go on when ..                 and then
//!   Wait(wait)                the wait has ended                     is gone
//!   Signal(..)                no command runs (SignalAtSubmission:   fence values change, waits end
//!                             always)
//!   Broadcast(id)             as a Signal                            the last context signals
//!   Command(bytes)            no command runs                        the miniport gets it; the context
//!                                                                    runs until DMA_COMPLETED
//! ```
//! Packets of one context take effect in the order of submission (SCH-001); contexts do not hold each
//! other up (FEN-024).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{
    CreateContextFlags, EventId, GpuSignal, Handle, NtStatus, Reply, SignalFlags, SyncObjectFlags, limits,
};

use crate::ddi::{BadCommands, Callback, EngineId, HwContext, Interrupt, Miniport, Submission};
use crate::effects::Effects;
use crate::kernel::{Called, Kernel, Refusal, invalid, refuse};
use crate::policy::LowerGpuSignal;
use crate::process::Local;
use crate::sync::queueable;
use crate::waits::{WaitId, WaitItem, WaitOwner};
use crate::{Nanos, ProcessId};

pub(crate) struct Context {
    pub process: ProcessId,
    pub handle: Handle,
    pub device: u32,
    pub engine: EngineId,
    pub flags: CreateContextFlags,
    pub queue: VecDeque<Packet>,
    /// The submission that the engine has of this context.
    pub running: Option<u64>,
}

#[derive(Debug)]
pub(crate) enum Packet {
    Wait(WaitId),
    Signal(Signal),
    Broadcast(u32),
    Command(Vec<u8>),
}

impl Packet {
    /// What it counts against the process's limit of queued bytes.
    pub(crate) fn weight(&self) -> usize {
        const PACKET_BYTES: usize = 64;
        PACKET_BYTES
            + match self {
                Packet::Wait(_) | Packet::Broadcast(_) => 0,
                Packet::Signal(signal) => signal.targets.len() * size_of::<(u32, u64)>(),
                Packet::Command(commands) => commands.len(),
            }
    }
}

/// What a signal packet does when it is reached.
#[derive(Debug)]
pub(crate) struct Signal {
    pub process: ProcessId,
    pub flags: SignalFlags,
    /// Objects (kept alive by the packet) and their values.
    pub targets: Vec<(u32, u64)>,
    pub event: Option<EventId>,
}

/// A signal that waits for several contexts to reach it (FEN-040).
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub signal: Signal,
    /// Contexts that have not reached it.
    pub remaining: u32,
    /// A context ended before it: the signal never happens.
    pub broken: bool,
    /// What its CPU event is set with if it never happens.
    pub status: Option<NtStatus>,
}

/// Submissions that are with the miniport.
#[derive(Default)]
pub(crate) struct InFlight {
    engines: BTreeMap<EngineId, OnEngine>,
}

#[derive(Default)]
struct OnEngine {
    last: u64,
    /// Submission fence ids, which grow, and their contexts.
    submitted: VecDeque<(u64, u32)>,
}

impl InFlight {
    /// The next `SubmissionFenceId` of an engine, for this context.
    fn begin(&mut self, engine: EngineId, context: u32) -> u64 {
        let engine = self.engines.entry(engine).or_default();
        engine.last += 1;
        engine.submitted.push_back((engine.last, context));
        engine.last
    }

    /// Takes out the oldest submission of an engine up to this one; its context.
    ///
    /// Ids grow on each engine (SCH-005) and there is one last completed id of it (SCH-007): the report of
    /// one is the report of all before it, should theirs have been lost.
    fn complete(&mut self, engine: EngineId, submission_fence_id: u64) -> Option<u32> {
        let submitted = &mut self.engines.get_mut(&engine)?.submitted;
        let oldest = submitted.front().filter(|(id, _)| *id <= submission_fence_id)?.1;
        submitted.pop_front();
        Some(oldest)
    }

    /// This one will not complete.
    fn forget(&mut self, engine: EngineId, submission_fence_id: u64) {
        let Some(engine) = self.engines.get_mut(&engine) else { return };
        if let Ok(at) = engine.submitted.binary_search_by_key(&submission_fence_id, |(id, _)| *id) {
            engine.submitted.remove(at);
        }
    }

    /// Nothing of this adapter will complete.
    pub fn forget_adapter(&mut self, adapter: u32) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.submitted.clear();
        }
    }
}

impl<M: Miniport> Kernel<M> {
    pub(crate) fn create_context(
        &mut self,
        process: ProcessId,
        device: Handle,
        node_ordinal: u32,
        engine_affinity: u32,
        flags: CreateContextFlags,
    ) -> Called {
        let device = self.active_device(process, device)?;
        let adapter = self.devices[device].adapter;
        let nodes = self.config.adapters[adapter as usize].nodes.len();
        if node_ordinal as usize >= nodes {
            return invalid(format!("node {node_ordinal} does not exist, the adapter has {nodes}"));
        }
        if engine_affinity > 1 {
            return invalid(format!("EngineAffinity {engine_affinity:#x} names an engine that is not there"));
        }
        if flags.unknown() != 0 {
            return invalid(format!("context flags {:#x} have reserved bits set", flags.bits()));
        }
        if self.process(process).contexts >= limits::CONTEXTS_PER_PROCESS_MAX {
            let why = format!("the process has {} contexts, the limit", limits::CONTEXTS_PER_PROCESS_MAX);
            return refuse(NtStatus::NO_MEMORY, why);
        }
        let id = self.contexts.insert(Context {
            process,
            handle: Handle::NULL,
            device,
            engine: EngineId { adapter, node: node_ordinal },
            flags,
            queue: VecDeque::new(),
            running: None,
        });
        match self.insert_handle(process, Local::Context(id)) {
            Ok(handle) => {
                self.contexts[id].handle = handle;
                self.process_mut(process).contexts += 1;
                self.devices[device].children.insert(handle);
                Ok(Reply::Context(handle))
            }
            Err(refusal) => {
                self.contexts.remove(id);
                Err(refusal)
            }
        }
    }

    /// Ends a context with everything queued in it; a command on the engine is dropped as well.
    pub(crate) fn destroy_context(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> Called {
        let id = self.context(process, handle)?;
        self.process_mut(process).handles.remove(handle);
        let context = self.contexts.remove(id).expect("a handle names a live context");
        self.devices[context.device].children.remove(&handle);
        self.process_mut(process).contexts -= 1;
        let running = context.running.map(|submission_fence_id| (context.engine, submission_fence_id));
        if let Some((engine, submission_fence_id)) = running {
            self.in_flight.forget(engine, submission_fence_id);
        }
        self.with_miniport(effects, |miniport, now, callbacks| {
            miniport.destroy_context(now, HwContext(id), running, callbacks);
        });
        // A buffer that was dropped will not complete: what it wrote is looked at now.
        self.evaluate_written(process, effects);
        self.drop_packets(process, context.queue, None, effects);
        Ok(Reply::None)
    }

    /// Drops what was queued in a context of this process: no value changes. CPU events among it are set
    /// if there is a status to say, or else never.
    pub(crate) fn drop_packets(
        &mut self,
        process: ProcessId,
        queue: VecDeque<Packet>,
        status: Option<NtStatus>,
        effects: &mut Effects,
    ) {
        self.process_mut(process).queued_bytes -= queue.iter().map(Packet::weight).sum::<usize>();
        for packet in queue {
            match packet {
                Packet::Wait(wait) => drop(self.end_wait(wait, effects)),
                Packet::Signal(signal) => self.drop_signal(signal, status, effects),
                Packet::Broadcast(broadcast) => {
                    self.broadcasts[broadcast].broken = true;
                    self.broadcasts[broadcast].status = status;
                    self.reach_broadcast(broadcast, effects);
                }
                Packet::Command(_) => {}
            }
        }
    }

    pub(crate) fn context(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        match self.process(process).handles.get(handle) {
            Some(Local::Context(context)) => Ok(*context),
            _ => invalid(format!("{handle} is no context handle of this process")),
        }
    }

    /// A context that can take one more packet.
    fn open_context(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        let id = self.context(process, handle)?;
        let context = &self.contexts[id];
        self.require_active(context.device)?;
        if context.queue.len() >= limits::PACKETS_PER_CONTEXT_MAX {
            let why = format!("the queue of context {handle} is full: {} packets", context.queue.len());
            return refuse(NtStatus::NO_MEMORY, why);
        }
        let queued = self.process(process).queued_bytes;
        if queued >= limits::QUEUED_BYTES_PER_PROCESS_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("the process has {queued} bytes queued, the limit"));
        }
        Ok(id)
    }

    fn enqueue(&mut self, context: u32, packet: Packet) {
        let process = self.contexts[context].process;
        self.process_mut(process).queued_bytes += packet.weight();
        self.contexts[context].queue.push_back(packet);
        self.runnable.push_back(context);
    }

    /// `SignalSynchronizationObjectFromGpu` and `..2`.
    pub(crate) fn signal_from_gpu(
        &mut self,
        process: ProcessId,
        contexts: &[Handle],
        signal: &GpuSignal,
        flags: SignalFlags,
    ) -> Called {
        if flags.unknown() != 0 {
            return invalid(format!("signal flags {:#x} have reserved bits set", flags.bits()));
        }
        let most = limits::BROADCAST_CONTEXTS_MAX;
        if contexts.is_empty() || contexts.len() > most {
            return invalid(format!("a signal takes 1 to {most} contexts, not {}", contexts.len()));
        }
        let ids = contexts
            .iter()
            .map(|handle| self.open_context(process, *handle))
            .collect::<Result<Vec<_>, _>>()?;
        let device = self.contexts[ids[0]].device;
        if ids.iter().any(|id| self.contexts[*id].device != device) {
            return invalid("the contexts of a broadcast are not of one device");
        }
        let enqueue_event = flags.contains(SignalFlags::ENQUEUE_CPU_EVENT);
        let (targets, event) = match signal {
            GpuSignal::CpuEvent { event } if enqueue_event => (Vec::new(), Some(*event)),
            GpuSignal::CpuEvent { .. } => return invalid("a CPU event needs the flag EnqueueCpuEvent"),
            GpuSignal::Monitored { .. } if enqueue_event => {
                return invalid("EnqueueCpuEvent takes an event and no objects");
            }
            GpuSignal::Monitored { objects, values } => {
                let resolved = self.resolve(process, device, objects, values, SyncObjectFlags::NO_SIGNAL)?;
                (resolved.iter().map(|item| (item.object, item.value)).collect(), None)
            }
        };
        for (object, _) in &targets {
            self.objects[*object].references += 1;
        }
        let signal = Signal { process, flags, targets, event };
        if let [context] = ids[..] {
            self.enqueue(context, Packet::Signal(signal));
        } else {
            let broadcast = Broadcast { signal, remaining: ids.len() as u32, broken: false, status: None };
            let broadcast = self.broadcasts.insert(broadcast);
            for context in ids {
                self.enqueue(context, Packet::Broadcast(broadcast));
            }
        }
        Ok(Reply::None)
    }

    /// `WaitForSynchronizationObjectFromGpu`. What is satisfied now leaves no packet.
    pub(crate) fn wait_from_gpu(
        &mut self,
        process: ProcessId,
        context: Handle,
        objects: &[Handle],
        values: &[u64],
    ) -> Called {
        let context = self.open_context(process, context)?;
        let device = self.contexts[context].device;
        let items = self.resolve(process, device, objects, values, SyncObjectFlags::NO_WAIT)?;
        if let Some(wait) = self.begin_wait(WaitOwner::Gpu { context }, false, items) {
            self.enqueue(context, Packet::Wait(wait));
        }
        Ok(Reply::None)
    }

    /// The objects of a queued signal or wait, checked.
    fn resolve(
        &self,
        process: ProcessId,
        device: u32,
        objects: &[Handle],
        values: &[u64],
        denied_by: SyncObjectFlags,
    ) -> Result<Vec<WaitItem>, Refusal> {
        let most = limits::OBJECTS_WAITED_ON_MAX;
        if objects.is_empty() || objects.len() > most || objects.len() != values.len() {
            let (objects, values) = (objects.len(), values.len());
            return invalid(format!(
                "{objects} objects and {values} values; both must be 1 to {most} and equal"
            ));
        }
        let resolve_one = |(handle, value): (&Handle, &u64)| {
            let (open, object) = self.sync_object(process, *handle)?;
            queueable(self.objects[object].object_type, objects.len())?;
            self.check_adapter(self.objects[object].adapter, device, *handle)?;
            self.check_right(open, object, denied_by)?;
            let (handle, value) = (*handle, *value);
            Ok(WaitItem { object, open: Some(open), handle, value, satisfied: false })
        };
        objects.iter().zip(values).map(resolve_one).collect()
    }

    /// `D3DKMTSubmitCommand`.
    pub(crate) fn submit_command(
        &mut self,
        process: ProcessId,
        contexts: &[Handle],
        commands: Vec<u8>,
    ) -> Called {
        let context = match contexts {
            [context] => self.open_context(process, *context)?,
            [] => return invalid("a submission names at least one context"),
            more => {
                let why = format!("{} broadcast contexts: linked adapters are not modelled", more.len());
                return refuse(NtStatus::NOT_SUPPORTED, why);
            }
        };
        if self.contexts[context].flags.contains(CreateContextFlags::SYNCHRONIZATION_ONLY) {
            return invalid("the context is SynchronizationOnly");
        }
        if let Err(BadCommands(why)) = self.miniport.validate(&commands) {
            return invalid(why);
        }
        self.enqueue(context, Packet::Command(commands));
        Ok(Reply::None)
    }

    /// Lets every context go on that can, until none can.
    pub(crate) fn run_contexts(&mut self, effects: &mut Effects) {
        while let Some(context) = self.runnable.pop_front() {
            while self.run_head(context, effects) {}
        }
    }

    /// Takes the head packet of a context if it can go on; true if it did.
    fn run_head(&mut self, id: u32, effects: &mut Effects) -> bool {
        let Some(context) = self.contexts.get_mut(id) else { return false };
        let idle = context.running.is_none();
        let ready = match context.queue.front() {
            None => false,
            Some(Packet::Wait(wait)) => !self.waits.contains(*wait),
            Some(Packet::Signal(signal)) => idle || signal.flags.contains(SignalFlags::SIGNAL_AT_SUBMISSION),
            Some(Packet::Broadcast(id)) => {
                idle || self.broadcasts[*id].signal.flags.contains(SignalFlags::SIGNAL_AT_SUBMISSION)
            }
            Some(Packet::Command(_)) => idle,
        };
        if !ready {
            return false;
        }
        let Some(packet) = context.queue.pop_front() else { return false };
        let process = context.process;
        self.process_mut(process).queued_bytes -= packet.weight();
        match packet {
            Packet::Wait(_) => {}
            Packet::Signal(signal) => self.apply_signal(signal, effects),
            Packet::Broadcast(broadcast) => self.reach_broadcast(broadcast, effects),
            Packet::Command(commands) => self.start_command(id, commands, effects),
        }
        true
    }

    fn start_command(&mut self, id: u32, commands: Vec<u8>, effects: &mut Effects) {
        let context = &mut self.contexts[id];
        let engine = context.engine;
        let submission_fence_id = self.in_flight.begin(engine, id);
        context.running = Some(submission_fence_id);
        let submission = Submission {
            engine,
            context: HwContext(id),
            process: context.process,
            submission_fence_id,
            commands,
        };
        self.with_miniport(effects, |miniport, now: Nanos, callbacks| {
            miniport.submit_command(now, submission, callbacks);
        });
    }

    fn apply_signal(&mut self, signal: Signal, effects: &mut Effects) {
        for (object, value) in &signal.targets {
            let current = self.objects[*object].value;
            let lower = *value < current && !signal.flags.contains(SignalFlags::ALLOW_FENCE_REWIND);
            match self.config.policy.lower_gpu_signal {
                LowerGpuSignal::Ignored if lower => {
                    let text = format!("queued signal {value} is below the fence's value {current}: ignored");
                    self.note(signal.process, text, effects);
                }
                LowerGpuSignal::Ignored | LowerGpuSignal::Applied => self.set_value(*object, *value, effects),
            }
        }
        self.drop_signal(signal, Some(NtStatus::SUCCESS), effects);
    }

    /// The packet is over: its event is set if there is a status to say, and it keeps nothing alive.
    fn drop_signal(&mut self, signal: Signal, status: Option<NtStatus>, effects: &mut Effects) {
        if let (Some(event), Some(status)) = (signal.event, status) {
            self.wake(signal.process, event, status, effects);
        }
        for (object, _) in signal.targets {
            self.release_reference(object, effects);
        }
    }

    /// One more context reached a broadcast signal, or ended with it in its queue.
    fn reach_broadcast(&mut self, id: u32, effects: &mut Effects) {
        self.broadcasts[id].remaining -= 1;
        if self.broadcasts[id].remaining > 0 {
            return;
        }
        let broadcast = self.broadcasts.remove(id).expect("the last context takes it out");
        if broadcast.broken {
            self.drop_signal(broadcast.signal, broadcast.status, effects);
        } else {
            self.apply_signal(broadcast.signal, effects);
        }
    }

    /// What a miniport asked for.
    pub(crate) fn callback(&mut self, callback: Callback, effects: &mut Effects) {
        match callback {
            Callback::GpuStore { engine, process, gpu_address, value } => {
                self.gpu_store(engine, process, gpu_address, value, effects);
            }
            Callback::NotifyInterrupt(Interrupt::DmaCompleted { engine, submission_fence_id }) => {
                while let Some(id) = self.in_flight.complete(engine, submission_fence_id) {
                    let context = &mut self.contexts[id];
                    context.running = None;
                    let process = context.process;
                    self.runnable.push_back(id);
                    self.evaluate_written(process, effects);
                }
            }
            Callback::NotifyInterrupt(Interrupt::MonitoredFenceSignaled { .. }) => {
                // It names an engine, not a fence: whatever was written anywhere is looked at.
                let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
                for process in processes {
                    self.evaluate_written(process, effects);
                }
            }
        }
    }

    /// An engine wrote to memory: the value is visible at once; waits are looked at on an interrupt.
    fn gpu_store(
        &mut self,
        engine: EngineId,
        process: ProcessId,
        gpu_address: u64,
        value: u64,
        effects: &mut Effects,
    ) {
        let Some(owner) = self.processes.get_mut(&process) else { return };
        let open = owner.slots.owner_at(gpu_address).map(|open| &self.opens[open]);
        // An open with NoSignal is mapped for reading only, one with NoGPUAccess not at all; and a fence is
        // mapped on its own adapter.
        let unwritable = SyncObjectFlags::NO_GPU_ACCESS | SyncObjectFlags::NO_SIGNAL;
        match open {
            Some(open)
                if !open.flags.intersects(unwritable)
                    && self.objects[open.object].adapter == engine.adapter =>
            {
                let object = open.object;
                owner.written.push(object);
                self.store_value(object, value, effects);
            }
            _ => {
                let node = engine.node;
                let text = format!(
                    "node {node} stored to GPU address {gpu_address:#x}: nothing it may write is there"
                );
                self.note(process, text, effects);
            }
        }
    }

    fn evaluate_written(&mut self, process: ProcessId, effects: &mut Effects) {
        let Some(owner) = self.processes.get_mut(&process) else { return };
        for object in core::mem::take(&mut owner.written) {
            // It may be gone by now; whoever has its place loses nothing by being looked at.
            if self.objects.get(object).is_some() {
                self.evaluate(object, effects);
            }
        }
    }
}
