//! A scenario in the runner's form: names resolved to indexes, matrices expanded, everything checked.
//!
//! One file gives one [`Program`] for each case of its matrix. A program is plain data: the explorer draws programs,
//! the shrinker removes steps, and [`crate::script::print`] writes them as text.

mod bindings;
mod list;
mod operation;
mod piece;

use std::collections::{BTreeSet, HashMap};

use d3dkmt::{CallOf, NtStatus};
pub use dxgkrnl::EngineId as Engine;
use dxgkrnl::{Config, Nanos};
use serde::{Deserialize, Serialize};

pub use bindings::{
    AdapterNumber, Address, AllocationSpec, Bindings, BufferSize, GpuSignalSpec, GpuVaRange, HandleRef,
    MutexBuffer, MutexText, NamedCall, ObjectSpec, PrivateData, Share, Timeout,
};
pub use list::{ListCommand, Named as NamedIn};
pub(crate) use operation::kind_of_call;
pub use operation::{Command, Operation, WriteMode};
pub use piece::{Piece, USAGE_WORDS};

macro_rules! indexes {
    ($($(#[$doc:meta])* $name:ident),+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        })+
    };
}

indexes! {
    /// A VM of the scenario.
    Vm,
    /// A guest process.
    Process,
    /// A thread of a guest process. The first thread of a process carries its name.
    Thread,
    /// A named value: a handle, an event, an NT handle, a pending call, a value that was read.
    Binding
}

/// The backends that a scenario can run on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The kernel alone, in virtual time.
    Model,
    /// The guest client core and the kernel over a simulated link.
    Link,
    /// A real daemon, the real C ABI, real processes.
    Local,
    /// The same processes inside QEMU guests.
    Vm,
}

impl Backend {
    pub const ALL: [Backend; 4] = [Backend::Model, Backend::Link, Backend::Local, Backend::Vm];

    pub const fn name(self) -> &'static str {
        match self {
            Backend::Model => "model",
            Backend::Link => "link",
            Backend::Local => "local",
            Backend::Vm => "vm",
        }
    }
}

/// Kind of a named value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Adapter,
    Device,
    Context,
    /// A synchronization object of any type.
    Object,
    KeyedMutex,
    /// A paging queue. Its fence has its name and `.fence`.
    PagingQueue,
    /// A hardware queue. Its progress fence has its name and `.fence`.
    HwQueue,
    /// Memory of the process that engines may use.
    Allocation,
    /// A resource, which commands name by number.
    Resource,
    /// A command list: its lines record commands, and `submit` submits them.
    List,
    /// Messages of the debug layer.
    Messages,
    /// A doorbell's status.
    Doorbell,
    /// A GPU virtual address.
    Address,
    /// An NT handle.
    Share,
    Event,
    /// A call that may block.
    Call,
    /// A value that `read` loaded (a litmus register).
    Register,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Adapter => "an adapter",
            Kind::Device => "a device",
            Kind::Context => "a context",
            Kind::Object => "a synchronization object",
            Kind::KeyedMutex => "a keyed mutex",
            Kind::PagingQueue => "a paging queue",
            Kind::HwQueue => "a hardware queue",
            Kind::Allocation => "an allocation",
            Kind::Resource => "a resource",
            Kind::List => "a command list",
            Kind::Messages => "messages",
            Kind::Doorbell => "a doorbell",
            Kind::Address => "a GPU address",
            Kind::Share => "an NT handle",
            Kind::Event => "an event",
            Kind::Call => "a call",
            Kind::Register => "a value that was read",
        }
    }

    /// First letter of generated names of this kind.
    pub const fn letter(self) -> char {
        match self {
            Kind::Adapter => 'L',
            Kind::Device => 'D',
            Kind::Context => 'C',
            Kind::Object => 'F',
            Kind::KeyedMutex => 'M',
            Kind::PagingQueue => 'P',
            Kind::HwQueue => 'Q',
            Kind::Allocation => 'A',
            Kind::Doorbell => 'Z',
            Kind::Address => 'V',
            Kind::Share => 'N',
            Kind::Event => 'e',
            Kind::Call => 'W',
            Kind::Register => 'x',
            Kind::Resource => 'R',
            Kind::List => 'l',
            Kind::Messages => 'm',
        }
    }

    /// Whether it has a D3DKMT handle. Such a name can be any handle operand, also one of another kind.
    pub const fn is_handle(self) -> bool {
        match self {
            Kind::Adapter
            | Kind::Device
            | Kind::Context
            | Kind::Object
            | Kind::KeyedMutex
            | Kind::PagingQueue
            | Kind::HwQueue
            | Kind::Allocation => true,
            Kind::Resource
            | Kind::List
            | Kind::Messages
            | Kind::Doorbell
            | Kind::Address
            | Kind::Share
            | Kind::Event
            | Kind::Call
            | Kind::Register => false,
        }
    }

    /// Whether it has a fence of its own.
    pub const fn has_fence(self) -> bool {
        matches!(self, Kind::PagingQueue | Kind::HwQueue)
    }
}

/// Expected result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expected {
    Status(NtStatus),
    /// The call does not return yet.
    Blocks,
    /// Any result: only the checkers judge.
    Any,
}

/// A step of an actor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Act {
    pub thread: Thread,
    pub binding: Option<Binding>,
    pub operation: Operation,
    pub expected: Expected,
}

/// A fault of an actor, the link or the hardware.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// SIGKILL.
    Kill(Process),
    /// SIGSTOP.
    Freeze(Process),
    /// SIGCONT.
    Thaw(Process),
    /// The process's stream breaks.
    Cut(Process),
    /// The process's stream is held in both directions until it is released.
    Hold(Process),
    Release(Process),
    /// Messages that are sent from now on arrive this much later.
    Delay(Process, Nanos),
    /// The streams with messages in transit are served last first; within a stream the order stays.
    Reorder,
    /// The VM is killed.
    CrashVm(Vm),
    /// The VM is paused: none of its processes runs.
    PauseVm(Vm),
    ResumeVm(Vm),
    /// The adapter is removed from the VM, or added to it, while the VM runs.
    VmAdapter {
        vm: Vm,
        adapter: u32,
        added: bool,
    },
    Hardware(dxgkrnl::Fault),
    /// The system's clock is set to this time after the scenario's start.
    SetClock(Nanos),
    /// The context's process submits until a queue is full.
    Fill(Binding),
    RestartDaemon,
}

/// Number of times that an event was set since it was last checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventCount {
    Clear,
    Set,
    Times(u64),
}

/// Expected state of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EngineIs {
    Idle,
    Running,
    Hung,
}

/// A condition that must hold now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expectation {
    /// The value that the handle's owner reads from its fence memory; or the number that a call returned.
    Value {
        object: Binding,
        value: u64,
    },
    Blocked {
        call: Binding,
    },
    Returned {
        call: Binding,
        status: NtStatus,
    },
    Event {
        event: Binding,
        count: EventCount,
    },
    /// The private data that the call returned: of a keyed mutex, of an escape.
    Data {
        call: Binding,
        data: Vec<Piece>,
    },
    /// The status in the doorbell's status memory.
    Doorbell {
        doorbell: Binding,
        status: u32,
    },
    /// `D3DKMT_DEVICEEXECUTION_STATE` of the device, in the kernel.
    DeviceState {
        device: Binding,
        state: u32,
    },
    Engine {
        engine: Engine,
        is: EngineIs,
    },
    /// A note with this text exists since reports were last checked.
    Report {
        text: String,
    },
    NoReport,
    /// Words of 32 bits of an allocation, from the first one on; without a count, to its end.
    Words {
        allocation: Binding,
        first: u64,
        count: Option<u64>,
        word: u32,
    },
    /// The messages that were read contain this one.
    Message(WantedMessage),
    /// No messages were read.
    NoMessage {
        messages: Binding,
    },
    /// A race report with all these texts exists since races were last checked.
    Race {
        texts: Vec<String>,
    },
    NoRace,
    /// Number of frames that the process sent since the last check.
    Messages {
        process: Process,
        count: u64,
    },
    /// Number of wakes for the process since the last check.
    Wakes {
        process: Process,
        count: u64,
    },
    /// Number of CPU waits pending in the kernel.
    Waits {
        count: u64,
    },
    /// A wait of the process has this verdict, by name; and its root is this value of the object.
    Why {
        process: Process,
        verdict: &'static str,
        root: Option<(Binding, u64)>,
    },
    /// The kernel has no object of the process, or of any process.
    NothingLeft {
        process: Option<Process>,
    },
}

/// A message of the debug layer, as far as it is specified.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WantedMessage {
    pub messages: Binding,
    pub rule: u32,
    pub list: Option<u32>,
    pub command: Option<u32>,
    pub barrier: Option<u32>,
    pub resource: Option<Binding>,
    pub text: Option<String>,
}

/// Returns the name of a queue's fence.
pub fn fence_name(queue: &str) -> String {
    format!("{queue}.fence")
}

/// One action of the runner.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    StartVm(Vm),
    StartProcess(Process),
    StartThread(Thread),
    Act(Act),
    /// A line of a command list.
    Record {
        list: Binding,
        command: ListCommand,
    },
    Advance(Nanos),
    /// The process exits in order.
    Exit(Process),
    Fault(Fault),
    Expect(Expectation),
}

/// An action and its line.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// Line number from 1; 0 for a generated step.
    pub line: u32,
    pub action: Action,
}

/// A condition on the outcome of a race.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Term {
    /// A register holds this value.
    Register { register: Binding, value: u64 },
    /// A call is asleep (`true`) or has returned.
    Asleep { call: Binding, asleep: bool },
    /// A call has returned this.
    Status { call: Binding, status: NtStatus },
    /// A fence has this value at the end.
    Value { object: Binding, value: u64 },
}

impl Term {
    /// The name that the term is about.
    pub const fn binding(self) -> Binding {
        match self {
            Term::Register { register, .. } => register,
            Term::Asleep { call, .. } | Term::Status { call, .. } => call,
            Term::Value { object, .. } => object,
        }
    }
}

/// A set of outcomes: all terms hold. Each is about another name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    pub line: u32,
    pub terms: Vec<Term>,
}

/// Columns that run concurrently, and their allowed and forbidden outcomes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Race {
    pub line: u32,
    pub columns: Vec<Column>,
    pub allowed: Vec<Outcome>,
    pub forbidden: Vec<Outcome>,
}

/// The steps of one thread in a race.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Column {
    pub thread: Thread,
    pub steps: Vec<(u32, Act)>,
}

/// A name with its kind, and the thread that created it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Named {
    pub name: String,
    pub kind: Kind,
    pub thread: Thread,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProcessInfo {
    pub name: String,
    pub vm: Option<Vm>,
    pub main: Thread,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ThreadInfo {
    pub name: String,
    pub process: Process,
}

/// Settings of the hardware and the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    pub kernel: Config,
    /// GPU signals, GPU waits and submissions are one-way (GPV-015).
    pub async_submission: bool,
}

impl Program {
    /// Whether GPU signals, GPU waits and submissions of this process are one-way, by the program's setting or its
    /// VM's.
    pub fn is_asynchronous(&self, process: Process) -> bool {
        let vm = self.processes[process.index()].vm.map(|vm| &self.vms[vm.index()]);
        let of_vm = vm.is_some_and(|name| self.setting.kernel.vm(name).asynchronous);
        self.setting.async_submission || of_vm
    }
}

/// One case of a scenario.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    pub title: String,
    /// `value=5,flags=NO_WAIT`; empty if the file has no matrix.
    pub case: String,
    pub covers: Vec<String>,
    pub tags: Vec<String>,
    /// Backends that it skips, with the reason.
    pub not_on: Vec<(Backend, String)>,
    pub setting: Setting,
    pub vms: Vec<String>,
    pub processes: Vec<ProcessInfo>,
    pub threads: Vec<ThreadInfo>,
    pub bindings: Vec<Named>,
    pub steps: Vec<Step>,
    pub race: Option<Race>,
}

impl Program {
    pub fn process_of(&self, thread: Thread) -> Process {
        self.threads[thread.index()].process
    }

    pub fn owner(&self, binding: Binding) -> Process {
        self.process_of(self.bindings[binding.index()].thread)
    }

    pub fn name(&self, binding: Binding) -> &str {
        &self.bindings[binding.index()].name
    }

    /// Returns the numbers of the adapters on which the program makes resources.
    pub fn adapters_with_resources(&self) -> BTreeSet<u32> {
        let of_steps = self.steps.iter().filter_map(|step| match &step.action {
            Action::Act(act) => Some(act),
            _ => None,
        });
        let columns = self.race.iter().flat_map(|race| &race.columns);
        let of_race = columns.flat_map(|column| &column.steps).map(|(_, act)| act);
        // Of adapters and devices, by name.
        let mut adapter_of: HashMap<HandleRef, u32> = HashMap::new();
        let mut found = BTreeSet::new();
        for act in of_steps.chain(of_race) {
            let adapter = match &act.operation {
                Operation::Device { adapter }
                | Operation::Call(CallOf::OpenAdapterFromLuid { luid: adapter }) => Some(adapter.0),
                Operation::Call(CallOf::CreateDevice { adapter, .. }) => adapter_of.get(adapter).copied(),
                Operation::CreateResource { device, .. } => {
                    found.extend(adapter_of.get(device));
                    None
                }
                _ => None,
            };
            if let (Some(adapter), Some(binding)) = (adapter, act.binding) {
                adapter_of.insert(HandleRef::Bound(binding), adapter);
            }
        }
        found
    }

    /// Returns the fence of a queue: the binding after the queue's.
    pub fn fence_of(&self, queue: Binding) -> Option<Binding> {
        let has_fence = self.bindings[queue.index()].kind.has_fence();
        has_fence.then_some(Binding(queue.0 + 1))
    }
}
