//! What a trace shows, as plain data: rows of what happened, what lasted, and what waits at the end.
//!
//! Times are those of the daemon's one clock, in nanoseconds since it started. Sequence numbers are those of the
//! trace's steps.

use std::collections::BTreeMap;

use dxgkrnl::ddi::EngineId;
use dxgkrnl::{Nanos, ProcessId, VmId};

use crate::latency::Latency;
use crate::stats::Stats;

/// No fence, no request: an empty cell of a row.
pub const NONE: u32 = u32::MAX;

/// A place in [`Timeline::tracks`].
pub type TrackId = u32;
/// A place in [`Timeline::fences`].
pub type FenceId = u32;
/// A place in [`Timeline::words`].
pub type Word = u32;

/// A step of the trace, and its time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment {
    pub at: Nanos,
    pub sequence: u64,
}

/// What a track is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackKind {
    /// What belongs to no VM: faults, the clock, notes about everybody.
    Kernel,
    Vm(VmId),
    Process {
        process: ProcessId,
        pid: u32,
    },
    /// A context's queue, a hardware queue or a paging queue, by its handle; 0 for one that the kernel made for itself.
    Queue {
        process: ProcessId,
        handle: u32,
        engine: EngineId,
    },
    Adapter(u32),
    Engine(EngineId),
}

/// Who does things one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Track {
    /// Comes before it in the list.
    pub parent: Option<TrackId>,
    pub kind: TrackKind,
    pub name: String,
}

/// A synchronization object, whatever handles processes have of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// `MONITORED_FENCE`, ..; `progress fence` and `paging fence` say what they are for.
    pub kind: &'static str,
    /// The name it was shared by.
    pub shared_as: Option<String>,
    /// Who opened it, and by which handle: the creator is the first. So many are kept: [`OPENS_KEPT`].
    pub opens: Vec<(ProcessId, u32)>,
    pub value: u64,
    /// How often it was signaled.
    pub signals: u64,
    /// How many waits it ended.
    pub wakes: u64,
}

/// Opens of a fence that are named.
pub const OPENS_KEPT: usize = 8;

/// One step of the trace: the kernel was told something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub moment: Moment,
    pub track: TrackId,
    /// `SignalFromCpu`, `deadline`, ..
    pub name: Word,
    /// NTSTATUS; `None` if nothing was answered.
    pub status: Option<u32>,
    /// 0 for a one-way call, and for what is no call.
    pub request: u64,
    /// The first object that is named.
    pub fence: FenceId,
    /// What it is signaled to, or waited for at.
    pub value: u64,
    /// How many waits ended.
    pub wakes: u32,
}

/// What released a wait: a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    pub moment: Moment,
    /// The process that signaled, or the queue.
    pub track: TrackId,
    pub fence: FenceId,
    pub value: u64,
    /// The submission that it came with or after, by its engine.
    pub submission: Option<(EngineId, u64)>,
}

/// How something that lasted ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should: the wait was released, the packet is done.
    Done,
    /// With another status than SUCCESS.
    Status(u32),
    /// The guest forgot its wait.
    Cancelled,
    /// Its process, queue or device ended, or was reset.
    Dropped,
    /// It had not when the trace ended.
    Pending,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Status(_) => "status",
            Outcome::Cancelled => "cancelled",
            Outcome::Dropped => "dropped",
            Outcome::Pending => "pending",
        }
    }
}

/// What is waited for.
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
    /// The guest's name for it.
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

/// What a packet in a queue is.
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
    /// A command: when the engine was given it (GPUView: queue packet to DMA packet).
    pub submitted: Option<Nanos>,
    /// A command: when the engine began.
    pub ran: Option<Nanos>,
    /// When the kernel was done with it; the trace's end if it is pending.
    pub end: Moment,
    pub outcome: Outcome,
    /// A command: engine and `SubmissionFenceId`, once it was given.
    pub submission: Option<(EngineId, u64)>,
    pub targets: Vec<(FenceId, u64)>,
}

/// An engine runs a submission; one that is preempted runs several times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub engine: TrackId,
    /// `NONE` for what a ring brought.
    pub queue: TrackId,
    pub submission_fence_id: u64,
    pub begin: Nanos,
    pub end: Nanos,
    /// Steps in which it began and ended, and the call that submitted it.
    pub sequence: u64,
    pub last: u64,
    pub call: u64,
    pub hung: bool,
    /// It still ran at the trace's end.
    pub pending: bool,
}

/// A fence has a new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    pub fence: FenceId,
    pub moment: Moment,
    pub value: u64,
}

/// What a mark is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// A note of the kernel: why a call was refused, what a policy decided.
    Note,
    /// What a test had go wrong.
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

/// Something worth a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub moment: Moment,
    pub track: TrackId,
    pub kind: MarkKind,
    pub text: Word,
}

/// A wait that is pending at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// The process, or the queue whose head waits.
    pub track: TrackId,
    /// A CPU wait: the guest's name for it.
    pub event: Option<u64>,
    pub since: Moment,
    pub any: bool,
    pub items: Vec<BlockedItem>,
    /// A keyed mutex by its handle, and the key.
    pub keyed_mutex: Option<(u32, u64)>,
    /// Why it does not end: a place in [`Timeline::reasons`].
    pub why: Option<usize>,
}

/// What pending waits come down to, in the words of `gpupv why`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// `cycle`, `dead-end`, ..
    pub verdict: &'static str,
    /// Nothing that is under way, and no process that is free to act, ends them.
    pub stuck: bool,
    /// The verdict in a sentence.
    pub sentence: String,
    /// From who has waited longest down to what it comes down to.
    pub chain: Vec<String>,
    /// Of a cycle: the place in the chain that its last step needs again.
    pub back_to: Option<usize>,
    /// Who could signal, what is gone, which signal would release the first: a line each.
    pub remarks: Vec<String>,
}

/// One thing that a pending wait wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockedItem {
    pub fence: FenceId,
    pub value: u64,
    pub current: u64,
    pub satisfied: bool,
}

/// Where the picture ends before the trace does, or the trace before its end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Integrity {
    /// The trace has an end record.
    pub ended: bool,
    /// The picture stops after this step, because of that.
    pub stopped: Option<(u64, String)>,
    /// Rows that the limits or the window left out.
    pub left_out: u64,
    /// Pending waits beyond those that are listed.
    pub blocked_left_out: u64,
}

/// Everything that can be drawn of a trace. Rows are in the order of their begin.
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
    pub integrity: Integrity,
    pub stats: Stats,
    /// Of a trace that was recorded with times.
    pub latency: Option<Latency>,
}

impl Timeline {
    pub fn word(&self, word: Word) -> &str {
        &self.words[word as usize]
    }

    /// Tracks from the outermost down to this one, by their names.
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

    /// `F3 >= 9, F4 >= 1`.
    pub fn targets(targets: &[(FenceId, u64)], joint: &str) -> String {
        const SHOWN: usize = 4;
        let mut text = String::new();
        for (at, (fence, value)) in targets.iter().take(SHOWN).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            text += &format!("{comma}F{fence} {joint} {value}");
        }
        if targets.len() > SHOWN {
            text += &format!(", {} more", targets.len() - SHOWN);
        }
        text
    }

    /// Commands by their submission.
    pub fn submissions(&self) -> BTreeMap<(EngineId, u64), &Packet> {
        self.packets.iter().filter_map(|packet| Some((packet.submission?, packet))).collect()
    }
}
