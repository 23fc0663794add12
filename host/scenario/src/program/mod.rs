//! A scenario as the runner sees it: names resolved to indexes, matrices expanded, everything checked.
//!
//! One file gives one [`Program`] for each case of its matrix. A program is plain data: the explorer
//! draws programs, the shrinker takes steps out of them, [`crate::script::print`] writes them as text.

mod bindings;
mod list;
mod operation;
mod piece;

use d3dkmt::NtStatus;
pub use dxgkrnl::EngineId as Engine;
use dxgkrnl::{Config, Nanos};

pub use bindings::{
    AdapterNumber, Address, AllocationSpec, Bindings, BufferSize, GpuSignalSpec, GpuVaRange, HandleRef,
    MutexBuffer, MutexText, NamedCall, ObjectSpec, Share, Timeout,
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
    /// Something with a name: a handle, an event, an NT handle, a call under way, a value that was read.
    Binding
}

/// The backends that a scenario can run on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

    pub fn from_name(name: &str) -> Option<Backend> {
        Backend::ALL.into_iter().find(|backend| backend.name() == name)
    }
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Adapter,
    Device,
    Context,
    /// A synchronization object of any type.
    Object,
    KeyedMutex,
    /// It brings its fence, which has its name and `.fence`.
    PagingQueue,
    /// It brings its progress fence, which has its name and `.fence`.
    HwQueue,
    /// Memory of the process that engines may use.
    Allocation,
    /// What commands name by number.
    Resource,
    /// A command list: what its lines record, `submit` takes.
    List,
    /// What the debug layer said.
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
    /// A value that `read` took (litmus registers).
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

    /// First letter of names of this kind, where nobody has chosen them.
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

    /// It has a D3DKMT handle, so it can stand wherever one is taken, also where another is meant.
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

    /// It brings a fence of its own.
    pub const fn has_fence(self) -> bool {
        matches!(self, Kind::PagingQueue | Kind::HwQueue)
    }
}

/// What a call is expected to come to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expected {
    Status(NtStatus),
    /// It does not return for now.
    Blocks,
    /// Whatever it says: the checkers judge.
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

/// What is done to an actor, the link or the hardware.
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
    /// Nothing of the process's stream arrives, either way, until it is released.
    Hold(Process),
    Release(Process),
    /// What is sent from now on arrives that much later.
    Delay(Process, Nanos),
    /// Of what is under way now, the streams' last arrives first; within a stream the order stays.
    Reorder,
    /// The VM dies.
    CrashVm(Vm),
    Hardware(dxgkrnl::Fault),
    /// The system's clock is set, so far after the scenario's start.
    SetClock(Nanos),
    /// The context's process submits until a queue is full.
    Fill(Binding),
    RestartDaemon,
}

/// An event's count of sets since it was last looked at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventCount {
    Clear,
    Set,
    Times(u64),
}

/// What an engine is expected to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EngineIs {
    Idle,
    Running,
    Hung,
}

/// What must hold now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expectation {
    /// The owner of the handle reads this from its fence memory; or the number that a call gave back.
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
    /// The private data that the call gave back: of a keyed mutex, of an escape.
    Data {
        call: Binding,
        data: Vec<Piece>,
    },
    /// What the doorbell's status memory says.
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
    /// A note with this text was given since reports were last looked at.
    Report {
        text: String,
    },
    NoReport,
    /// Words of 32 bits of an allocation, from the first one on, up to its end without a count.
    Words {
        allocation: Binding,
        first: u64,
        count: Option<u64>,
        word: u32,
    },
    /// The debug layer said this, among what was read.
    Message(WantedMessage),
    /// It said nothing.
    NoMessage {
        messages: Binding,
    },
    /// A race was told that has all these texts, since races were last looked at.
    Race {
        texts: Vec<String>,
    },
    NoRace,
    /// Frames that the process sent since this was last asked.
    Messages {
        process: Process,
        count: u64,
    },
    /// Wakes for the process since this was last asked.
    Wakes {
        process: Process,
        count: u64,
    },
    /// CPU waits pending in the kernel.
    Waits {
        count: u64,
    },
    /// Something that the process waits for has this verdict, by its word; and comes down to this value of the object.
    Why {
        process: Process,
        verdict: &'static str,
        root: Option<(Binding, u64)>,
    },
    /// The kernel has nothing of the process, or of anybody.
    NothingLeft {
        process: Option<Process>,
    },
}

/// A message of the debug layer, as far as somebody says what it is.
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

/// The name of the fence that a queue brings.
pub fn fence_name(queue: &str) -> String {
    format!("{queue}.fence")
}

/// One thing the runner does.
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
    /// The process ends in order.
    Exit(Process),
    Fault(Fault),
    Expect(Expectation),
}

/// An action and the line it stands on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// From 1; 0 for what was not written by anybody.
    pub line: u32,
    pub action: Action,
}

/// A condition on the end of a race.
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

/// A set of outcomes: all terms hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    pub line: u32,
    pub terms: Vec<Term>,
}

/// Columns that run at the same time, and how that may end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Race {
    pub line: u32,
    pub columns: Vec<Column>,
    pub allowed: Vec<Outcome>,
    pub forbidden: Vec<Outcome>,
}

/// What one thread does in a race.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Column {
    pub thread: Thread,
    pub steps: Vec<(u32, Act)>,
}

/// A name with what it stands for, and the thread that brought it about.
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

/// What the hardware and the daemon are like.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    pub kernel: Config,
    /// GPU signals, GPU waits and submissions are one-way (GPV-015).
    pub async_submission: bool,
}

impl Program {
    /// Whether GPU signals, GPU waits and submissions of this process are one-way: everybody's are, or its VM's.
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
    /// Backends it is not for, with the reason.
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

    /// The fence that a queue of this name brings: the name after its own.
    pub fn fence_of(&self, queue: Binding) -> Option<Binding> {
        let has_fence = self.bindings[queue.index()].kind.has_fence();
        has_fence.then_some(Binding(queue.0 + 1))
    }

    /// The name was given with a queue's.
    pub fn is_fence_of_queue(&self, fence: Binding) -> bool {
        let before = fence.index().checked_sub(1).and_then(|before| self.bindings.get(before));
        before.is_some_and(|before| before.kind.has_fence())
    }
}
