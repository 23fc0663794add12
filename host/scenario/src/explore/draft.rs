//! A draft of a random program: its declarations so far, and roughly the resulting state.

use d3dkmt::{CallOf, CreateContextFlags, NtStatus, SyncObjectFlags, SyncObjectType};

use super::random_lists::Memory;
use super::random_memory::DeviceMemory;
use crate::choose::Random;
use crate::program::{
    Act, Action, AdapterNumber, Binding, Expected, HandleRef, Kind, Named, NamedCall, ObjectSpec, Operation,
    Process, ProcessInfo, Program, Share as ShareName, Step, Thread, ThreadInfo, Vm, fence_name,
};
use crate::script::by_hand::new_context;

/// A fence of a process, created or opened by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub binding: Binding,
    pub device: Binding,
    /// Index into [`Draft::values`]; all opens of one fence share it.
    pub value: usize,
    pub shared: bool,
}

/// The drawn state of a process.
#[derive(Debug)]
pub(super) struct ClientProcess {
    pub process: Process,
    pub main: Thread,
    pub alive: bool,
    pub frozen: bool,
    pub held: bool,
    pub threads: u32,
    pub devices: Vec<Binding>,
    /// Contexts, each with its device.
    pub contexts: Vec<(Binding, Binding)>,
    pub fences: Vec<Fence>,
    pub events: Vec<Binding>,
    /// Keyed mutexes, created and opened.
    pub mutexes: Vec<Binding>,
    /// Mutexes and semaphores for queues.
    pub queued: Vec<Binding>,
    /// Hardware queues, each with the last id submitted.
    pub queues: Vec<(Binding, u64)>,
    /// Adapter for its escapes; opened with the first.
    pub adapter: Option<Binding>,
    /// Objects whose events the driver signals, each with the escape that announced its usage.
    pub cpu_events: Vec<(Binding, Binding)>,
    /// Memory of its command lists; created with the first.
    pub memory: Option<Memory>,
    pub allocations: Vec<DeviceMemory>,
    /// Destroyed objects and objects of other types: operands that are refused.
    pub odd: Vec<Binding>,
}

/// A shared fence that other processes can open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub binding: Binding,
    pub value: usize,
}

/// A draft of a program.
pub(super) struct Draft {
    pub program: Program,
    pub random: Random,
    pub guests: Vec<ClientProcess>,
    pub shares: Vec<Shared>,
    /// NT handles of memory of the device.
    pub memory_shares: Vec<Binding>,
    /// Value of each fence, if all calls succeeded.
    pub values: Vec<u64>,
    pub vms_alive: Vec<Vm>,
    /// Number of adapters that a device may use.
    pub adapters: u32,
    counts: [u32; KINDS.len()],
}

const KINDS: [(Kind, &str); 17] = [
    (Kind::Adapter, "A"),
    (Kind::Device, "D"),
    (Kind::Context, "C"),
    (Kind::Object, "F"),
    (Kind::KeyedMutex, "M"),
    (Kind::PagingQueue, "P"),
    (Kind::HwQueue, "Q"),
    (Kind::Allocation, "a"),
    (Kind::Resource, "R"),
    (Kind::List, "L"),
    (Kind::Messages, "m"),
    (Kind::Doorbell, "B"),
    (Kind::Address, "G"),
    (Kind::Share, "N"),
    (Kind::Event, "e"),
    (Kind::Call, "W"),
    (Kind::Register, "x"),
];

/// Returns the call that creates an object.
pub(super) fn create_object(device: Binding, info: ObjectSpec) -> NamedCall {
    CallOf::CreateSynchronizationObject { device: HandleRef::Bound(device), info, legacy: false }
}

impl Draft {
    pub fn new(seed: u64) -> Draft {
        Draft {
            program: Program { title: format!("seed {seed}"), ..Program::default() },
            random: Random::new(seed),
            guests: Vec::new(),
            shares: Vec::new(),
            memory_shares: Vec::new(),
            values: Vec::new(),
            vms_alive: Vec::new(),
            adapters: 1,
            counts: [0; KINDS.len()],
        }
    }

    /// Returns the program, with steps numbered by their printed lines.
    pub fn finish(mut self) -> Program {
        let head = crate::script::head_lines(&self.program);
        for (at, step) in self.program.steps.iter_mut().enumerate() {
            step.line = head + 1 + at as u32;
        }
        self.program
    }

    pub fn push(&mut self, action: Action) {
        self.program.steps.push(Step { line: 0, action });
    }

    pub fn start_vm(&mut self) -> Vm {
        let vm = Vm(self.program.vms.len() as u32);
        self.program.vms.push(format!("V{}", vm.0));
        self.vms_alive.push(vm);
        self.push(Action::StartVm(vm));
        vm
    }

    pub fn start_process(&mut self, vm: Option<Vm>) {
        let process = Process(self.program.processes.len() as u32);
        let main = Thread(self.program.threads.len() as u32);
        let name = format!("p{}", process.0);
        self.program.threads.push(ThreadInfo { name: name.clone(), process });
        self.program.processes.push(ProcessInfo { name, vm, main });
        self.push(Action::StartProcess(process));
        self.guests.push(ClientProcess {
            process,
            main,
            alive: true,
            frozen: false,
            held: false,
            threads: 0,
            devices: Vec::new(),
            contexts: Vec::new(),
            fences: Vec::new(),
            events: Vec::new(),
            mutexes: Vec::new(),
            queued: Vec::new(),
            queues: Vec::new(),
            adapter: None,
            cpu_events: Vec::new(),
            memory: None,
            allocations: Vec::new(),
            odd: Vec::new(),
        });
    }

    pub fn start_thread(&mut self, guest: usize) -> Thread {
        let process = self.guests[guest].process;
        let thread = Thread(self.program.threads.len() as u32);
        self.program.threads.push(ThreadInfo { name: format!("t{}", thread.0), process });
        self.guests[guest].threads += 1;
        self.push(Action::StartThread(thread));
        thread
    }

    fn name(&mut self, kind: Kind, thread: Thread) -> Binding {
        let at = KINDS.iter().position(|(known, _)| *known == kind).expect("all kinds are there");
        let name = format!("{}{}", KINDS[at].1, self.counts[at]);
        self.counts[at] += 1;
        let binding = Binding(self.program.bindings.len() as u32);
        if kind.has_fence() {
            let fence = Named { name: fence_name(&name), kind: Kind::Object, thread };
            self.program.bindings.extend([Named { name, kind, thread }, fence]);
        } else {
            self.program.bindings.push(Named { name, kind, thread });
        }
        binding
    }

    /// Adds a call of the process's first thread that names nothing.
    pub fn call(&mut self, guest: usize, operation: impl Into<Operation>) {
        let operation = operation.into();
        let thread = self.guests[guest].main;
        self.push(Action::Act(Act { thread, binding: None, operation, expected: Expected::Any }));
    }

    /// Adds a call that names something.
    pub fn push_named(&mut self, thread: Thread, kind: Kind, operation: impl Into<Operation>) -> Binding {
        let operation = operation.into();
        let binding = self.name(kind, thread);
        let expected = match kind {
            Kind::Event | Kind::Register | Kind::List => Expected::Status(NtStatus::SUCCESS),
            _ => Expected::Any,
        };
        self.push(Action::Act(Act { thread, binding: Some(binding), operation, expected }));
        binding
    }

    pub fn device(&mut self, guest: usize) -> Binding {
        let main = self.guests[guest].main;
        let adapter = if self.adapters > 1 { self.random.below(u64::from(self.adapters)) as u32 } else { 0 };
        let device =
            self.push_named(main, Kind::Device, Operation::Device { adapter: AdapterNumber(adapter) });
        self.guests[guest].devices.push(device);
        device
    }

    pub fn fence(&mut self, guest: usize, device: Binding, flags: SyncObjectFlags, initial: u64) {
        let spec = ObjectSpec {
            object_type: SyncObjectType::MONITORED_FENCE,
            flags,
            initial_value: initial,
            ..ObjectSpec::default()
        };
        let operation = create_object(device, spec);
        let main = self.guests[guest].main;
        let binding = self.push_named(main, Kind::Object, operation);
        let value = self.values.len();
        self.values.push(initial);
        let shared = flags.contains(SyncObjectFlags::SHARED);
        self.guests[guest].fences.push(Fence { binding, device, value, shared });
    }

    pub fn open(&mut self, guest: usize, device: Binding, share: Shared, flags: SyncObjectFlags) {
        let operation = CallOf::OpenSyncObject {
            device: HandleRef::Bound(device),
            token: ShareName(share.binding),
            flags,
            engine_affinity: 0,
            legacy: false,
        };
        let main = self.guests[guest].main;
        let binding = self.push_named(main, Kind::Object, operation);
        self.guests[guest].fences.push(Fence { binding, device, value: share.value, shared: false });
    }

    pub fn context(&mut self, guest: usize, device: Binding, node: u32) -> Binding {
        let flags = CreateContextFlags::empty();
        let operation = new_context(HandleRef::Bound(device), node, flags);
        let main = self.guests[guest].main;
        let context = self.push_named(main, Kind::Context, operation);
        self.guests[guest].contexts.push((context, device));
        context
    }

    /// The process has ended.
    pub fn end_process(&mut self, guest: usize) {
        let guest = &mut self.guests[guest];
        guest.alive = false;
        guest.frozen = false;
    }

    /// Returns the processes that can take a step.
    pub fn able(&self) -> Vec<usize> {
        let able = |at: &usize| self.guests[*at].alive && !self.guests[*at].frozen;
        (0..self.guests.len()).filter(able).collect()
    }

    /// Returns a copy of a random element.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        self.random.pick(from).copied()
    }
}
