//! The answer of [`crate::Kernel::why`], as plain data.

use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::Handle;

use crate::{Nanos, ProcessId};

/// A question: by default for all waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Only waits of this process.
    pub process: Option<u32>,
    /// Only the wait that has this number in the guest.
    pub event: Option<u64>,
    /// Only waits at least that old, in nanoseconds.
    pub older_than: Nanos,
    /// Causes in the answer at most, those of stuck waits before others.
    pub most: usize,
    /// Waiters of one cause in the answer at most.
    pub waiters: usize,
    /// The present time, if it is later than the kernel's last input.
    pub now: Nanos,
}

impl Default for Question {
    fn default() -> Self {
        Question { process: None, event: None, older_than: 0, most: 64, waiters: 8, now: 0 }
    }
}

impl Question {
    /// A question whose answer has every cause and waiter: for programs that look for one of them.
    pub fn unlimited(process: Option<u32>) -> Self {
        Question { process, most: usize::MAX, waiters: usize::MAX, ..Question::default() }
    }
}

/// Why waits do not end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Why {
    pub now: Nanos,
    /// Number of waiters that the question selects.
    pub waiting: usize,
    /// The causes, each once, the one with the longest wait first.
    pub causes: Vec<Cause>,
    /// Number of waiters that are left out: their cause is beyond [`Question::most`], or they are not examined.
    pub left_out: usize,
    /// Number of those left out that are stuck.
    pub stuck_left_out: usize,
    /// Number of waiters that are not examined, because there are too many: those that wait for the shortest time.
    pub unexamined: usize,
}

/// A cause: waits that the same event would end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    pub verdict: Verdict,
    /// The waiters, longest wait first; at most [`Question::waiters`] of them.
    pub waiters: Vec<Waiter>,
    pub waiters_count: usize,
    /// The path from the first waiter to its end.
    pub chain: Vec<Step>,
    /// Of a cycle: the index of the step that the last one needs again.
    pub back_to: Option<usize>,
    /// The value that has to be reached at the end of the path, if it is a value.
    pub root: Option<Missing>,
    /// The processes that could signal it, with their right.
    pub could: Vec<Source>,
    /// Pending signals that do not reach it.
    pub too_low: Vec<Source>,
    /// Parties that could have signaled it and are gone, as far as the kernel remembers.
    pub gone: Vec<Gone>,
    /// One signal that would release the first waiter.
    pub release: Option<Release>,
}

/// The outcome of a wait if only known events happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Pending work releases it. `due` is when the last packet on its path ends, if known.
    Progressing { due: Option<Nanos> },
    /// A process has to act, and nothing known prevents it.
    WaitsFor { process: u32 },
    /// The driver of this engine cannot tell what its work does.
    Unknown { engine: (u32, u32) },
    /// It waits for itself. The last steps of the chain are the members; `members` is the number that wait, and
    /// `has_process` whether one is a process that has to act, of which another thread may.
    Cycle { members: usize, has_process: bool },
    /// No other process is left that could signal.
    DeadEnd,
    /// The engine is done, but the kernel got no interrupt. `looked_at` is when timeout detection checks the engine, if
    /// it does.
    LostInterrupt { engine: (u32, u32), looked_at: Option<Nanos> },
    /// The engine runs a packet that does not end. `looked_at` as for a lost interrupt.
    Hang { engine: (u32, u32), looked_at: Option<Nanos> },
    /// The guest's kernel froze this process, or its VM is paused.
    Frozen { process: u32 },
    /// A context of this process is suspended, or its adapter powered down.
    Suspended { process: u32, adapter: u32 },
    /// Work is in the ring of a queue of user-mode submission, and no doorbell has notified the engine.
    NotRung { process: u32 },
    /// The adapter or the device that it needs is gone.
    Removed { adapter: u32 },
}

impl Verdict {
    /// The verdict's name in scenarios, JSON and text.
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

    /// All names of verdicts.
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

    /// Whether no pending work and no process that is free to act ends the wait.
    pub const fn is_stuck(self) -> bool {
        !matches!(self, Verdict::Progressing { .. } | Verdict::WaitsFor { .. } | Verdict::Unknown { .. })
    }
}

/// A process, which may be gone.
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
    /// Its number, the same as long as it lives. Keyed mutexes have separate numbers.
    pub number: u32,
    /// In words: "fence", "native fence", "mutex".
    pub kind: &'static str,
    /// Some of its handles, with their processes; the waiter's first.
    pub handles: Vec<(ProcessId, Handle)>,
    /// A name of its NT handles.
    pub name: Option<String>,
}

/// A value that a wait still needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    pub object: Object,
    /// The value now. Of a keyed mutex the key.
    pub current: u64,
    /// The value that it needs. Of a keyed mutex the key.
    pub needed: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaiterKind {
    /// A CPU wait: its number in the guest.
    Cpu { event: u64 },
    /// A queue of the process, in words.
    Queue { queue: String },
    /// The acquire of a keyed mutex.
    KeyedMutex { event: u64 },
    /// A queue whose head acquires mutexes or semaphores.
    Taker { queue: String },
    /// Work of an engine: a submission that waits in hardware, hangs, or ended without a report.
    Work { queue: String, submission_fence_id: u64 },
    /// A thread in a call that is answered once work is done: its request, and the call in words.
    Call { request: u64, call: String },
    /// The wait has ended, but the process is frozen and was not woken.
    Held { events: u32 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    pub party: Owner,
    pub kind: WaiterKind,
    /// The handle of the queue that waits, or whose work waits; `None` for a CPU wait, and for a queue without a
    /// handle.
    pub queue: Option<Handle>,
    /// One of its objects is enough.
    pub any: bool,
    /// Number of its objects that are reached, of `of` objects.
    pub reached: usize,
    pub of: usize,
    /// `None`: not recorded.
    pub since: Option<Nanos>,
    /// When it ends by itself: the timeout of an acquire.
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

/// A process that could signal, or will.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    pub process: u32,
    pub text: String,
}

/// A party that could have signaled and is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gone {
    pub at: Nanos,
    pub party: Owner,
    pub text: String,
}

/// A signal that would release the first waiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    pub object: Object,
    pub value: u64,
    /// It was tried on a copy of the state, and the wait ended.
    pub tried: bool,
}
