//! Converts a recording to a scenario: inputs of the kernel become steps of actors.
//!
//! Handles become names where they were created, waits become waits with an event, and times become virtual. Steps that
//! a scenario cannot express are omitted and reported: [`Omitted`]. Inputs that backends generate themselves are also
//! left out: fence memory, the system's clock, the deadlines of engines.

mod call_ends;
mod end;
mod recorded_calls;

use std::collections::{BTreeMap, BTreeSet};

use d3dkmt::{AcquireOutcome, EventId, Handle, NtStatus, Reply, ShareToken};
use dxgkrnl::{Config, Effects, Features, Input, Nanos, ProcessId, VmId};
use proto::scenario_client::BARRIER;

use crate::checker::may_wait_for_work;
use crate::program::{
    Act, Action, Binding, Expected, Fault, HandleRef, Kind, Named, Operation, Process, ProcessInfo, Program,
    Setting, Share, Step, Thread, ThreadInfo, Vm, fence_name,
};
use crate::script::names::is_legal_name;

pub use call_ends::CallEnd;
use call_ends::CallEnds;
use end::EndSoFar;
pub use end::RecordedEnd;

/// A step that a scenario cannot express.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Omitted {
    /// Index of the step, from 0.
    pub step: usize,
    pub why: &'static str,
}

/// The result of a conversion.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Converted {
    pub program: Program,
    /// Number of steps before the ends of processes, VMs and NT handles that the recording ends with.
    pub last_ends: usize,
    /// For each step of the program: index of its recorded step, from 0.
    pub origins: Vec<usize>,
    /// Recorded steps that woke a process, with that process.
    pub wakes: Vec<(usize, Process)>,
    /// The calls that were over and the waits that had ended, in the order of their ends.
    pub ends: Vec<CallEnd>,
    pub omitted: Vec<Omitted>,
    /// What the recording ended with.
    pub end: RecordedEnd,
    /// The process and the handle of each binding that has one.
    pub handles: BTreeMap<Binding, (ProcessId, Handle)>,
    /// The number that each process of the program has in the trace.
    pub process_ids: Vec<ProcessId>,
}

impl Converted {
    /// Returns a name of the program with its process and handle in the trace: a trace counts its fences differently.
    pub fn name_in_trace(&self, name: &str) -> String {
        let at = self.program.bindings.iter().position(|named| named.name == name);
        match at.and_then(|at| self.handles.get(&Binding(at as u32))) {
            Some((process, handle)) => format!("{name} (p{}:{:#x})", process.0, handle.0),
            None => name.to_owned(),
        }
    }

    /// Returns a process of the program with its number in the trace: several programs may have one name.
    pub fn process_in_trace(&self, name: &str) -> String {
        let at = self.program.processes.iter().position(|process| process.name == name);
        match at.and_then(|at| self.process_ids.get(at)) {
            Some(process) => format!("{name} (p{})", process.0),
            None => name.to_owned(),
        }
    }
}

/// Returns the scenario of these steps, for a kernel of this configuration.
pub fn program<'a>(
    title: &str,
    config: &Config,
    steps: impl IntoIterator<Item = (Nanos, &'a Input, &'a Effects)>,
) -> Converted {
    let mut builder = Builder::new(title, config);
    let (mut origins, mut wakes, mut omitted) = (Vec::new(), Vec::new(), Vec::new());
    let mut ends = CallEnds::default();
    let mut last_ends = LastEnds::default();
    let (mut last, mut end) = (0, 0);
    for (step, (now, input, effects)) in steps.into_iter().enumerate() {
        let continues = last_ends.continue_with(now, input, effects, &builder.processes);
        if !continues {
            last_ends.steps.drain(..).for_each(|(input, effects)| builder.end.step(input, effects));
            builder.ended_last.clear();
        }
        if !matches!(input, Input::Deadline) && !is_barrier(input) {
            builder.advance(now);
        }
        if last_ends.steps.is_empty() {
            last_ends.from = builder.program.steps.len();
        }
        match builder.step(input, effects) {
            Ok(()) => ends.call(input, &builder.program),
            Err(why) => omitted.push(Omitted { step, why }),
        }
        ends.effects(step, input, effects);
        if continues {
            last_ends.steps.push((input, effects));
            if !matches!(input, Input::Deadline) {
                last_ends.now = now;
            }
        } else {
            builder.end.step(input, effects);
        }
        origins.resize(builder.program.steps.len(), step);
        let woken = effects.events.iter().filter_map(|event| builder.processes.get(&event.process));
        wakes.extend(woken.map(|process| (step, *process)));
        (last, end) = (step, end.max(now));
    }
    // Deadlines that were due at the end are included.
    builder.advance(end);
    if last_ends.steps.is_empty() {
        last_ends.from = builder.program.steps.len();
    }
    // A process that ended with the recording counts, because its last waits and values are the recording's.
    builder.processes.extend(std::mem::take(&mut builder.ended_last));
    let end = builder.end.end(&builder.processes);
    origins.resize(builder.program.steps.len(), last);
    let Builder { program, named: handles, process_ids, .. } = builder;
    let last_ends = last_ends.from;
    Converted { program, last_ends, origins, wakes, ends: ends.found, omitted, end, handles, process_ids }
}

/// The ends of processes, VMs and NT handles that a recording ends with.
#[derive(Default)]
struct LastEnds<'a> {
    /// Inputs and effects, which are no part of the [`RecordedEnd`].
    steps: Vec<(&'a Input, &'a Effects)>,
    /// The index in the program of their first step.
    from: usize,
    /// Time of the last end.
    now: Nanos,
}

impl LastEnds<'_> {
    /// Whether an input is an end, or work of the ends before it.
    fn continue_with(
        &self,
        now: Nanos,
        input: &Input,
        effects: &Effects,
        alive: &BTreeMap<ProcessId, Process>,
    ) -> bool {
        match input {
            Input::ProcessGone { .. } | Input::VmDetached { .. } | Input::NtHandleClosed { .. } => true,
            // At a later time, others do what an end made possible.
            Input::Deadline => {
                let stores = effects.stores.iter().map(|store| store.process);
                let answers = effects.answers.iter().map(|answer| answer.process);
                let events = effects.events.iter().map(|event| event.process);
                let mut reached = stores.chain(answers).chain(events);
                let reaches_others = reached.any(|process| alive.contains_key(&process));
                !self.steps.is_empty() && (now == self.now || !reaches_others)
            }
            input => !self.steps.is_empty() && is_barrier(input),
        }
    }
}

struct Builder<'a> {
    config: &'a Config,
    program: Program,
    now: Nanos,
    vms: BTreeMap<VmId, Vm>,
    /// Features that the guests' kernels negotiated.
    features: BTreeMap<Vm, Features>,
    processes: BTreeMap<ProcessId, Process>,
    process_ids: Vec<ProcessId>,
    handles: BTreeMap<(ProcessId, Handle), Binding>,
    /// What each binding named first.
    named: BTreeMap<Binding, (ProcessId, Handle)>,
    /// Process and local handle of each global handle.
    globals: BTreeMap<Handle, (ProcessId, Handle)>,
    /// NT handles, each with the processes that have used it.
    shares: BTreeMap<ShareToken, (Binding, BTreeSet<ProcessId>)>,
    events: BTreeMap<(ProcessId, EventId), Binding>,
    /// Fence at each GPU address of a process.
    fences: BTreeMap<(ProcessId, u64), Binding>,
    /// GPU addresses that calls returned.
    addresses: BTreeMap<(ProcessId, u64), Binding>,
    end: EndSoFar,
    /// Processes that ended with the recording, if nothing follows.
    ended_last: Vec<(ProcessId, Process)>,
    /// Processes that ended with their VM: the ends of their sessions may follow.
    ended_with_vm: BTreeSet<ProcessId>,
}

impl<'a> Builder<'a> {
    fn new(title: &str, config: &'a Config) -> Self {
        let setting = Setting { kernel: config.clone(), async_submission: false };
        Builder {
            config,
            program: Program { title: title.to_owned(), setting, ..Program::default() },
            now: 0,
            vms: BTreeMap::new(),
            features: BTreeMap::new(),
            processes: BTreeMap::new(),
            process_ids: Vec::new(),
            handles: BTreeMap::new(),
            named: BTreeMap::new(),
            globals: BTreeMap::new(),
            shares: BTreeMap::new(),
            events: BTreeMap::new(),
            fences: BTreeMap::new(),
            addresses: BTreeMap::new(),
            end: EndSoFar::default(),
            ended_last: Vec::new(),
            ended_with_vm: BTreeSet::new(),
        }
    }

    fn push(&mut self, action: Action) {
        self.program.steps.push(Step { line: 0, action });
    }

    fn advance(&mut self, now: Nanos) {
        if now > self.now {
            self.push(Action::Advance(now - self.now));
            self.now = now;
        }
    }

    fn vm_fault(&mut self, vm: VmId, fault: impl FnOnce(Vm) -> Fault) -> Result<(), &'static str> {
        let vm = *self.vms.get(&vm).ok_or("a VM whose start is not there")?;
        self.push(Action::Fault(fault(vm)));
        Ok(())
    }

    fn step(&mut self, input: &Input, effects: &Effects) -> Result<(), &'static str> {
        match input {
            input if is_barrier(input) => {}
            Input::VmAttached { vm, name } => self.start_vm(*vm, name),
            Input::VmDetached { vm } => {
                let vm = self.vms.remove(vm).ok_or("the end of a VM whose start is not there")?;
                self.push(Action::Fault(Fault::CrashVm(vm)));
                self.processes.retain(|id, process| {
                    let ends = self.program.processes[process.index()].vm == Some(vm);
                    self.ended_last.extend(ends.then_some((*id, *process)));
                    self.ended_with_vm.extend(ends.then_some(*id));
                    !ends
                });
            }
            Input::VmPaused { vm, paused: true } => return self.vm_fault(*vm, Fault::PauseVm),
            Input::VmPaused { vm, paused: false } => return self.vm_fault(*vm, Fault::ResumeVm),
            Input::VmAdapter { vm, adapter, added } => {
                let (adapter, added) = (*adapter, *added);
                return self.vm_fault(*vm, |vm| Fault::VmAdapter { vm, adapter, added });
            }
            Input::GuestFeatures { vm, features } => return self.guest_features(*vm, *features),
            Input::ProcessAttached { process, vm, name, .. } => self.start_process(*process, *vm, name),
            Input::ProcessGone { process } => return self.end_process(*process),
            // `fault freeze` stops a process without its kernel's knowledge.
            Input::ProcessFrozen { .. } => return Err("a guest's kernel that freezes or thaws a process"),
            Input::Fault(fault) => self.push(Action::Fault(Fault::Hardware(*fault))),
            Input::Call { process, request, call } => {
                let of = *self.processes.get(process).ok_or(NO_PROCESS)?;
                if *request == 0 && !self.program.is_asynchronous(of) {
                    self.program.setting.async_submission = true;
                }
                let answer = effects.answer_to(*process, *request);
                if answer.is_none() && *request != 0 && may_wait_for_work(call) {
                    let operation = self.operation(*process, call)?;
                    return self.blocked(*process, operation);
                }
                let answer = answer.map(|answer| (answer.status, &answer.reply));
                return self.call(*process, call, answer);
            }
            Input::DoorbellRung { process, queue, last_queued, buffers } => {
                let queue = self.handle(*process, *queue);
                for (at, buffer) in buffers.iter().enumerate() {
                    let id = last_queued + 1 + at as u64 - buffers.len() as u64;
                    let commands = self.commands(*process, buffer)?;
                    self.act(*process, Operation::RingDoorbell { queue, id, commands }, None, Expected::Any)?;
                }
            }
            Input::NtHandleClosed { token, .. } => {
                let made = self.shares.get(token).ok_or("the end of an NT handle that nobody made")?;
                let (share, owners) = (Share(made.0), made.1.clone());
                for owner in owners {
                    // The end of an owner closed the handle of that one.
                    if self.processes.contains_key(&owner) {
                        self.act(owner, Operation::CloseShare { share }, None, Expected::Any)?;
                    }
                }
            }
            // Inputs that the backends generate themselves.
            Input::FenceMemoryAdded { .. }
            | Input::FenceMemoryMapped { .. }
            | Input::MemoryChanged { .. }
            | Input::SystemTime { .. }
            | Input::Deadline => {}
        }
        Ok(())
    }

    fn end_process(&mut self, process: ProcessId) -> Result<(), &'static str> {
        if self.ended_with_vm.remove(&process) {
            return Ok(());
        }
        let ended = self.processes.remove(&process).ok_or(NO_PROCESS)?;
        self.ended_last.push((process, ended));
        self.push(Action::Fault(Fault::Kill(ended)));
        Ok(())
    }

    /// Sets the features of a VM, which apply from its start.
    fn guest_features(&mut self, vm: VmId, features: Features) -> Result<(), &'static str> {
        let vm = self.vms.get(&vm).ok_or("the features of a VM whose start is not there")?;
        if self.features.insert(*vm, features).is_some_and(|before| before != features) {
            return Err("a VM whose guest's kernel is replaced by one that knows of other features");
        }
        let name = &self.program.vms[vm.index()];
        self.program.setting.kernel.vm_mut(name).features &= features;
        Ok(())
    }

    fn start_vm(&mut self, id: VmId, name: &str) {
        let vm = Vm(self.program.vms.len() as u32);
        self.program.vms.push(self.unused(name, "vm"));
        self.vms.insert(id, vm);
        self.push(Action::StartVm(vm));
    }

    fn start_process(&mut self, id: ProcessId, vm: VmId, name: &str) {
        let process = Process(self.program.processes.len() as u32);
        let main = Thread(self.program.threads.len() as u32);
        let name = self.unused(name, "p");
        self.program.threads.push(ThreadInfo { name: name.clone(), process });
        self.program.processes.push(ProcessInfo { name, vm: self.vms.get(&vm).copied(), main });
        self.processes.insert(id, process);
        self.process_ids.push(id);
        self.push(Action::StartProcess(process));
    }

    /// Returns an unused name that is legal in a scenario: `preferred`, or one with a number.
    fn unused(&self, preferred: &str, otherwise: &str) -> String {
        let plain = is_legal_name(preferred);
        let base = if plain { preferred } else { otherwise };
        let is_taken = |name: &String| {
            self.is_actor(name) || self.program.bindings.iter().any(|binding| binding.name == *name)
        };
        let numbered =
            (self.program.threads.len() + self.program.vms.len()..).map(|at| format!("{base}{at}"));
        let mut names = [base.to_owned()].into_iter().filter(|_| plain).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or_default()
    }

    /// Whether a VM, a process or a thread has this name.
    fn is_actor(&self, name: &str) -> bool {
        self.program.vms.iter().any(|vm| vm == name)
            || self.program.threads.iter().any(|thread| thread.name == name)
    }

    /// Adds a step of a process's first thread.
    fn act(
        &mut self,
        process: ProcessId,
        operation: Operation,
        binding: Option<Binding>,
        expected: Expected,
    ) -> Result<(), &'static str> {
        let process = *self.processes.get(&process).ok_or(NO_PROCESS)?;
        let thread = self.program.processes[process.index()].main;
        self.push(Action::Act(Act { thread, binding, operation, expected }));
        Ok(())
    }

    fn bind(&mut self, process: ProcessId, kind: Kind) -> Result<Binding, &'static str> {
        let process = *self.processes.get(&process).ok_or(NO_PROCESS)?;
        let thread = self.program.processes[process.index()].main;
        let binding = Binding(self.program.bindings.len() as u32);
        let mut name = format!("{}{}", kind.letter(), binding.0);
        // A program may have the name of a handle, as D0.
        while self.is_actor(&name) {
            name.push('_');
        }
        self.program.bindings.push(Named { name: name.clone(), kind, thread });
        if kind.has_fence() {
            let name = fence_name(&name);
            self.program.bindings.push(Named { name, kind: Kind::Object, thread });
        }
        Ok(binding)
    }

    fn handle(&self, process: ProcessId, handle: Handle) -> HandleRef {
        self.handles
            .get(&(process, handle))
            .map_or(HandleRef::Raw(handle.0), |binding| HandleRef::Bound(*binding))
    }

    /// Returns the process's event for this number of the guest, created on first use.
    fn event(&mut self, process: ProcessId, event: EventId) -> Result<Binding, &'static str> {
        if let Some(known) = self.events.get(&(process, event)) {
            return Ok(*known);
        }
        let binding = self.bind(process, Kind::Event)?;
        self.events.insert((process, event), binding);
        self.act(process, Operation::NewEvent, Some(binding), Expected::Any)?;
        Ok(binding)
    }

    fn call(
        &mut self,
        process: ProcessId,
        call: &d3dkmt::Call,
        answer: Option<(NtStatus, &Reply)>,
    ) -> Result<(), &'static str> {
        let operation = self.operation(process, call)?;
        let succeeded = answer.filter(|(status, _)| status.is_success());
        let binding = match operation.result_kind() {
            // An unused result needs no name.
            Kind::Call => None,
            kind => succeeded.map(|_| self.bind(process, kind)).transpose()?,
        };
        if let (Some(binding), Some((_, reply))) = (binding, succeeded) {
            self.give(process, call, reply, binding);
        }
        if matches!(answer, Some((_, Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Registered, .. }))) {
            return self.blocked(process, operation);
        }
        let expected = match answer {
            // A wait with an event may complete at once: its status only says that it was accepted.
            Some((status, _)) if !matches!(call, d3dkmt::Call::WaitFromCpu { .. }) => {
                Expected::Status(status)
            }
            _ => Expected::Any,
        };
        self.act(process, operation, binding, expected)
    }

    /// Adds a call that does not return yet, on a thread of its own.
    fn blocked(&mut self, process: ProcessId, operation: Operation) -> Result<(), &'static str> {
        let of = *self.processes.get(&process).ok_or(NO_PROCESS)?;
        let thread = Thread(self.program.threads.len() as u32);
        let name = self.unused("", "t");
        self.program.threads.push(ThreadInfo { name, process: of });
        self.push(Action::StartThread(thread));
        let binding = Some(self.bind(process, Kind::Call)?);
        self.push(Action::Act(Act { thread, binding, operation, expected: Expected::Blocks }));
        Ok(())
    }

    /// Names the objects that a call returned.
    fn give(&mut self, process: ProcessId, call: &d3dkmt::Call, reply: &Reply, binding: Binding) {
        let mut name = |handle: Handle, binding: Binding| {
            self.handles.insert((process, handle), binding);
            self.named.insert(binding, (process, handle));
        };
        match reply {
            Reply::Adapter(handle) | Reply::Device(handle) | Reply::Context(handle) => {
                name(*handle, binding);
            }
            Reply::Adapters(adapters) => {
                if let Some(first) = adapters.first() {
                    name(first.handle, binding);
                }
            }
            Reply::SyncObject(object) | Reply::OpenedSyncFile { object, .. } => {
                name(object.object, binding);
                self.end.fence(process, object.slot, binding);
                self.fences.insert((process, object.gpu_address), binding);
                if object.shared_handle != Handle::NULL {
                    self.globals.insert(object.shared_handle, (process, object.object));
                }
            }
            Reply::KeyedMutex { mutex, shared_handle, .. } => {
                name(*mutex, binding);
                if *shared_handle != Handle::NULL {
                    self.globals.insert(*shared_handle, (process, *mutex));
                }
            }
            Reply::PagingQueue { queue, fence: created }
            | Reply::HwQueue { queue, progress_fence: created } => {
                name(*queue, binding);
                let fence = Binding(binding.0 + 1);
                name(created.object, fence);
                self.end.fence(process, created.slot, fence);
                self.fences.insert((process, created.gpu_address), fence);
            }
            Reply::Allocations { allocations, .. } | Reply::OpenedResource { allocations, .. } => {
                if let Some(first) = allocations.first() {
                    name(*first, binding);
                }
            }
            Reply::GpuVirtualAddress { address, .. } => {
                self.addresses.insert((process, *address), binding);
            }
            _ => {}
        }
        if let Some(token) = call.nt_handle_made() {
            self.shares.insert(token, (binding, BTreeSet::from([process])));
        }
    }
}

/// Whether the runner of scenarios made the call.
fn is_barrier(input: &Input) -> bool {
    matches!(input, Input::Call { call: BARRIER, .. })
}

const NO_PROCESS: &str = "a process whose start is not there";
