//! The timeline of a trace as plain data: events, rows with a duration, and pending waits.
//!
//! Times are those of the daemon's one clock, in nanoseconds since it started. Sequence numbers are those of the
//! trace's steps.

use std::collections::BTreeMap;

use dxgkrnl::ddi::EngineId;
use dxgkrnl::{Nanos, ProcessId, VmId};

use crate::latency::Latency;
use crate::stats::Stats;

/// Marks an empty field of a row, such as no fence.
pub const NONE: u32 = u32::MAX;

/// An index into [`Timeline::tracks`].
pub type TrackId = u32;
/// An index into [`Timeline::fences`].
pub type FenceId = u32;
/// An index into [`Timeline::words`].
pub type Word = u32;

/// A step of the trace, and its time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment {
    pub at: Nanos,
    pub sequence: u64,
}

/// The object of a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackKind {
    /// Events that belong to no VM: faults, the clock, general notes.
    Kernel,
    Vm(VmId),
    Process {
        process: ProcessId,
        pid: u32,
    },
    /// A context's queue, a hardware queue or a paging queue, by its handle; 0 for one that the kernel created for
    /// itself.
    Queue {
        process: ProcessId,
        handle: u32,
        engine: EngineId,
    },
    Adapter(u32),
    Engine(EngineId),
}

/// A track: an object with ordered events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Track {
    /// The parent track, which precedes it in the list.
    pub parent: Option<TrackId>,
    pub kind: TrackKind,
    pub name: String,
}

/// A synchronization object, independent of its handles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// `monitored fence`, ..; `progress fence` and `paging fence` name their use.
    pub kind: &'static str,
    /// The name under which it was shared.
    pub shared_as: Option<String>,
    /// Processes and handles that have it open, the creator first; at most [`OPENS_KEPT`].
    pub opens: Vec<(ProcessId, u32)>,
    pub value: u64,
    /// Number of signals.
    pub signals: u64,
    /// Number of waits that it ended.
    pub wakes: u64,
}

/// Most opens of a fence that are kept.
pub const OPENS_KEPT: usize = 8;

/// One step of the trace: an input of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub moment: Moment,
    pub track: TrackId,
    /// `SignalFromCpu`, `deadline`, ..
    pub name: Word,
    /// NTSTATUS of the answer, or with which a one-way call was refused; `None` without either.
    pub status: Option<u32>,
    /// 0 for a one-way call, and for an input that is no call.
    pub request: u64,
    /// The first object that the call names.
    pub fence: FenceId,
    /// The value that is signaled or waited for.
    pub value: u64,
    /// The other objects that the call names, with their values.
    pub others: Box<[(FenceId, u64)]>,
    /// Whether the call waits for any of its objects, not for all.
    pub any: bool,
    /// Number of waits that ended.
    pub wakes: u32,
}

/// The signal that released a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    pub moment: Moment,
    /// The process or queue that signaled.
    pub track: TrackId,
    pub fence: FenceId,
    pub value: u64,
    /// The submission with or after which it came, with its engine.
    pub submission: Option<(EngineId, u64)>,
}

/// How a wait or a packet ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Normally: the wait was released, the packet is done.
    Done,
    /// The fence that a wait was for was destroyed.
    FenceDestroyed,
    /// With another status than SUCCESS.
    Status(u32),
    /// The client cancelled its wait.
    Cancelled,
    /// It had no effect: its process, queue or device was destroyed or reset, or it is a queued signal below the value of
    /// its fence.
    Dropped,
    /// Its queue passed a broadcast signal that other queues had not reached. The signal comes with the last of them.
    Passed,
    /// It had not ended at the end of the trace.
    Pending,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::FenceDestroyed => "fence destroyed",
            Outcome::Status(_) => "status",
            Outcome::Cancelled => "cancelled",
            Outcome::Dropped => "dropped",
            Outcome::Passed => "passed",
            Outcome::Pending => "pending",
        }
    }
}

/// What a wait waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitKind {
    /// `WaitForSynchronizationObjectFromCpu`.
    Fences { any: bool },
    /// `AcquireKeyedMutex`: handle and key.
    KeyedMutex { mutex: u32, key: u64 },
}

/// A CPU wait, from its registration to its wake-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    pub process: TrackId,
    /// Its event.
    pub event: u64,
    pub kind: WaitKind,
    /// Objects and values; none for a keyed mutex.
    pub targets: Vec<(FenceId, u64)>,
    pub begin: Moment,
    /// The trace's end if it is pending.
    pub end: Moment,
    pub outcome: Outcome,
    pub cause: Option<Cause>,
}

/// Kind of a packet in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    Command,
    Signal,
    Wait,
}

impl PacketKind {
    pub fn name(self) -> &'static str {
        match self {
            PacketKind::Command => "command",
            PacketKind::Signal => "signal",
            PacketKind::Wait => "wait",
        }
    }
}

/// A packet in a queue, from the call that put it there until it is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    pub queue: TrackId,
    pub kind: PacketKind,
    /// The call.
    pub begin: Moment,
    /// For a command: when it was submitted to the engine (GPUView: queue packet to DMA packet).
    pub submitted: Option<Nanos>,
    /// For a command: when the engine started it.
    pub ran: Option<Nanos>,
    /// When it left the queue; the trace's end if it is pending.
    pub end: Moment,
    pub outcome: Outcome,
    /// For a command that was submitted: engine and `SubmissionFenceId`. What a preemption has left is submitted again with
    /// another number, which only its runs have.
    pub submission: Option<(EngineId, u64)>,
    pub targets: Vec<(FenceId, u64)>,
}

/// A run of a submission on an engine; a preempted submission has several runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub engine: TrackId,
    /// `NONE` for a buffer from a ring.
    pub queue: TrackId,
    pub submission_fence_id: u64,
    pub begin: Nanos,
    pub end: Nanos,
    /// Steps in which it began and ended, and the call that submitted it.
    pub sequence: u64,
    pub last: u64,
    pub call: u64,
    pub hung: bool,
    /// Whether it still runs at the trace's end.
    pub pending: bool,
}

/// What stored a value of a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredBy {
    /// A call, or a signal in a queue, which has a row of its own.
    Signal,
    /// An engine, for a command: its submission.
    Engine((EngineId, u64)),
    /// The loss of a device: UINT64_MAX.
    Reset,
}

/// A new value of a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    pub fence: FenceId,
    pub moment: Moment,
    pub value: u64,
    pub by: StoredBy,
}

/// Kind of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// A note of the kernel: why a call was refused, what a policy decided.
    Note,
    /// An injected fault.
    Fault,
    /// A reset, a page fault, an adapter that stopped.
    Reset,
}

impl MarkKind {
    pub fn name(self) -> &'static str {
        match self {
            MarkKind::Note => "note",
            MarkKind::Fault => "fault",
            MarkKind::Reset => "reset",
        }
    }
}

/// A note, fault or reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub moment: Moment,
    pub track: TrackId,
    pub kind: MarkKind,
    pub text: Word,
}

/// A waiter at the end of the trace: one that `why` names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// The process, or the queue that waits or whose work is blocked.
    pub track: TrackId,
    /// `event 9`, `queue`, `submission 3`, a call.
    pub what: String,
    pub since: Option<Nanos>,
    /// The call that began it, if the trace has it.
    pub step: Option<u64>,
    /// What it still needs, a line each: `F3 >= 9, is 2`.
    pub wants: Vec<String>,
    /// The fences among these.
    pub fences: Vec<FenceId>,
    /// Why it does not end: an index into [`Timeline::reasons`].
    pub why: usize,
}

/// A cause of pending waits, with the texts of `gpupv why`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// `cycle`, `dead-end`, ..
    pub verdict: &'static str,
    /// Whether no work in progress and no process that can still act will end them.
    pub stuck: bool,
    /// The verdict in a sentence.
    pub sentence: String,
    /// The chain from the longest wait down to the cause.
    pub chain: Vec<String>,
    /// For a cycle: the index in the chain to which its last step leads back.
    pub back_to: Option<usize>,
    /// Possible signalers, destroyed objects, and the signal that would release the first wait: one line each.
    pub remarks: Vec<String>,
}

/// Missing parts of the timeline or of the trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Integrity {
    /// The trace has an end record.
    pub ended: bool,
    /// The first step of a trace that begins with a state.
    pub begins_at: Option<u64>,
    /// The last step of the timeline, and why it stops there.
    pub stopped: Option<(u64, String)>,
    /// It stops because the kernel diverged from the recording, so what is blocked is not known.
    pub diverged: bool,
    /// Number of rows that were dropped by the limits.
    pub left_out: u64,
    /// Number of waiters that are not listed, because there are too many.
    pub blocked_left_out: u64,
}

/// All data of a trace's timeline. Rows are sorted by begin.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timeline {
    /// The program that wrote the trace.
    pub program: String,
    pub begin: Moment,
    pub end: Moment,
    pub words: Vec<String>,
    pub tracks: Vec<Track>,
    pub fences: Vec<Fence>,
    pub events: Vec<Event>,
    pub waits: Vec<Wait>,
    pub packets: Vec<Packet>,
    pub runs: Vec<Run>,
    pub samples: Vec<Sample>,
    pub marks: Vec<Mark>,
    pub blocked: Vec<Blocked>,
    pub reasons: Vec<Reason>,
    /// The chains of the reasons as SVG. Empty if nothing waits.
    pub why_picture: String,
    pub integrity: Integrity,
    pub stats: Stats,
    /// Only for a trace that was recorded with times.
    pub latency: Option<Latency>,
}

impl Fence {
    /// Whether its signals and waits have values: a mutex or semaphore is released and acquired without one.
    pub fn has_value(&self) -> bool {
        !["mutex", "semaphore"].contains(&self.kind)
    }
}

impl Timeline {
    pub fn word(&self, word: Word) -> &str {
        &self.words[word as usize]
    }

    /// Names of the tracks from the outermost down to this one.
    pub fn path(&self, track: TrackId) -> String {
        let track = &self.tracks[track as usize];
        match track.parent {
            Some(parent) => format!("{} / {}", self.path(parent), track.name),
            None => track.name.clone(),
        }
    }

    /// `F3` everywhere.
    pub fn fence_name(fence: FenceId) -> String {
        format!("F{fence}")
    }

    /// The track of an engine.
    pub fn engine_track(&self, engine: EngineId) -> Option<TrackId> {
        let is_it = |track: &Track| track.kind == TrackKind::Engine(engine);
        self.tracks.iter().position(is_it).map(|at| at as TrackId)
    }

    /// `F3 = 4`; `F3 = MAX` for the value that a reset stores.
    pub fn stored(sample: &Sample) -> String {
        match sample.value {
            u64::MAX => format!("F{} = MAX", sample.fence),
            value => format!("F{} = {value}", sample.fence),
        }
    }

    /// `F3 >= 9, F4 >= 1`; a mutex or semaphore has no value.
    pub fn targets(&self, targets: &[(FenceId, u64)], joint: &str) -> String {
        const SHOWN: usize = 4;
        let mut text = String::new();
        for (at, (fence, value)) in targets.iter().take(SHOWN).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            text += &format!("{comma}F{fence}");
            if self.fences[*fence as usize].has_value() {
                text += &format!(" {joint} {value}");
            }
        }
        if targets.len() > SHOWN {
            text += &format!(", {} more", targets.len() - SHOWN);
        }
        text
    }

    /// The objects and values of a wait: `F3 >= 9, F4 >= 1 (any)`.
    pub fn waited_targets(&self, targets: &[(FenceId, u64)], any: bool) -> String {
        let any = if any && targets.len() > 1 { " (any)" } else { "" };
        self.targets(targets, ">=") + any
    }

    /// Command packets by submission.
    pub fn submissions(&self) -> BTreeMap<(EngineId, u64), &Packet> {
        self.packets.iter().filter_map(|packet| Some((packet.submission?, packet))).collect()
    }
}
