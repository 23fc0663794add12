//! What [`crate::Kernel::why`] answers: plain data.

use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::Handle;

use crate::{Nanos, ProcessId};

/// What is asked: by default for everything that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Of this process only.
    pub process: Option<u32>,
    /// The wait that the guest gave this name only.
    pub event: Option<u64>,
    /// What waits at least that long only.
    pub older_than: Nanos,
    /// Causes to tell of at most.
    pub most: usize,
    /// Of those who wait for one cause so many are told of.
    pub waiters: usize,
    /// What time it is, if that is later than the last thing that the kernel was told.
    pub now: Nanos,
}

impl Default for Question {
    fn default() -> Self {
        Question { process: None, event: None, older_than: 0, most: 64, waiters: 8, now: 0 }
    }
}

/// Why what waits, waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Why {
    pub now: Nanos,
    /// How many wait of those that were asked for.
    pub waiting: usize,
    /// What they wait for, each once, who has waited longest first.
    pub causes: Vec<Cause>,
    /// How many wait for causes beyond [`Question::most`], or were too many to look at.
    pub left_out: usize,
}

/// Waits that end by one and the same thing, if they do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    pub verdict: Verdict,
    /// Who waits, longest first; not all of them if they are many.
    pub waiters: Vec<Waiter>,
    pub waiters_count: usize,
    /// The way from the first waiter to what it comes down to.
    pub chain: Vec<Step>,
    /// Of a cycle: the step that the last one needs again.
    pub back_to: Option<usize>,
    /// What must be reached at the end of the way, if it is a value.
    pub root: Option<Missing>,
    /// Who could do that, by what right.
    pub could: Vec<Source>,
    /// Signals that are under way and do not reach it.
    pub too_low: Vec<Source>,
    /// What could have and is gone, as far as it is remembered.
    pub gone: Vec<Gone>,
    /// One signal that would release the first waiter.
    pub release: Option<Release>,
}

/// What becomes of a wait if nothing but what is known happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Work that is under way releases it. When the packet that it comes down to ends, if that is known.
    Progressing { due: Option<Nanos> },
    /// A process has to act, and nothing that is known keeps it from it.
    WaitsFor { process: u32 },
    /// The driver of this engine cannot tell what its work does.
    Unknown { engine: (u32, u32) },
    /// It waits for itself: the last of the chain are the members. How many.
    Cycle { members: usize },
    /// Nobody who could signal is left.
    DeadEnd,
    /// The engine is done and nobody was told. When timeout detection looks at it, if it does.
    LostInterrupt { engine: (u32, u32), looked_at: Option<Nanos> },
    /// The engine runs a packet that does not end. The same.
    Hang { engine: (u32, u32), looked_at: Option<Nanos> },
    /// The guest's kernel froze this process.
    Frozen { process: u32 },
    /// A context of this process is suspended, or its adapter powered down.
    Suspended { process: u32, adapter: u32 },
    /// Work is in the ring of a queue of user-mode submission, and no doorbell has told the engine.
    NotRung { process: u32 },
    /// The adapter or the device that it needs is gone.
    Removed { adapter: u32 },
}

impl Verdict {
    /// One word, as scenarios, JSON and the text have it.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Progressing { .. } => "progressing",
            Verdict::WaitsFor { .. } => "waits-for",
            Verdict::Unknown { .. } => "unknown",
            Verdict::Cycle { .. } => "cycle",
            Verdict::DeadEnd => "dead-end",
            Verdict::LostInterrupt { .. } => "lost-interrupt",
            Verdict::Hang { .. } => "hang",
            Verdict::Frozen { .. } => "frozen",
            Verdict::Suspended { .. } => "suspended",
            Verdict::NotRung { .. } => "not-rung",
            Verdict::Removed { .. } => "removed",
        }
    }

    /// The names that there are.
    pub const NAMES: [&str; 11] = [
        "progressing",
        "waits-for",
        "unknown",
        "cycle",
        "dead-end",
        "lost-interrupt",
        "hang",
        "frozen",
        "suspended",
        "not-rung",
        "removed",
    ];

    /// Nothing that is under way, and no process that is free to act, ends the wait.
    pub const fn is_stuck(self) -> bool {
        !matches!(self, Verdict::Progressing { .. } | Verdict::WaitsFor { .. } | Verdict::Unknown { .. })
    }
}

/// A process, also one that is gone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Owner {
    pub process: u32,
    pub pid: u32,
    pub name: String,
    /// 0: the host.
    pub vm: u32,
    pub vm_name: String,
}

/// A synchronization object or keyed mutex.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Which: the same number as long as it lives. Keyed mutexes have numbers of their own.
    pub number: u32,
    /// In words: "fence", "native fence", "mutex".
    pub kind: &'static str,
    /// The handles that it is open by, with their processes; the waiter's first. A few of them.
    pub handles: Vec<(ProcessId, Handle)>,
    /// A name of its NT handles.
    pub name: Option<String>,
}

/// What a wait still needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    pub thing: Object,
    /// The value now. Of a keyed mutex the key.
    pub current: u64,
    /// The value that it needs. Of a keyed mutex the key.
    pub needed: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaiterKind {
    /// A thread or an event of the process: the guest's name for the wait.
    Cpu { event: u64 },
    /// A queue of the process, in words.
    Queue { queue: String },
    /// The acquire of a keyed mutex.
    KeyedMutex { event: u64 },
    /// A queue whose head takes mutexes or semaphores.
    Taker { queue: String },
    /// Work that an engine has: a submission that waits in hardware, hangs, or has ended unheard.
    Work { queue: String, submission_fence_id: u64 },
    /// The wait has ended; the process is frozen and has not heard of it.
    Held { events: u32 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    pub party: Owner,
    pub kind: WaiterKind,
    /// The queue that waits, or whose work does, by its handle: none of a wait on a CPU, and of what no handle names.
    pub queue: Option<Handle>,
    /// One of its objects is enough.
    pub any: bool,
    /// How many of how many objects are reached.
    pub reached: usize,
    pub of: usize,
    /// `None`: nobody wrote it down.
    pub since: Option<Nanos>,
    /// It ends by itself then: the timeout of an acquire.
    pub ends: Option<Nanos>,
    pub missing: Vec<Missing>,
}

/// One step of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub kind: StepKind,
    pub text: String,
    pub process: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    Wait,
    Value,
    Queue,
    Engine,
    Process,
}

impl StepKind {
    pub const fn name(self) -> &'static str {
        match self {
            StepKind::Wait => "wait",
            StepKind::Value => "value",
            StepKind::Queue => "queue",
            StepKind::Engine => "engine",
            StepKind::Process => "process",
        }
    }
}

/// Who could signal, or will.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    pub process: u32,
    pub text: String,
}

/// Something that could have signaled and is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gone {
    pub at: Nanos,
    pub party: Owner,
    pub text: String,
}

/// A signal that would release the first waiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    pub thing: Object,
    pub value: u64,
    /// It was tried on a copy of the state, and the wait ended.
    pub tried: bool,
}
