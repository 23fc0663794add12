//! A packet in a queue, and how it leaves the queue.
//!
//! The kernel reports each signal and each wait that a queue passes. So a signal that was not reported did not happen,
//! even if its packet is gone: its queue was emptied, or another queue of its broadcast was.

use std::collections::VecDeque;

use dxgkrnl::Nanos;
use dxgkrnl::ddi::EngineId;

use crate::timeline::{FenceId, Moment, Outcome, Packet, PacketKind, TrackId};

/// What a call puts into queues.
pub(super) struct NewPacket {
    pub kind: PacketKind,
    pub begin: Moment,
    pub targets: Vec<(FenceId, u64)>,
    /// Whether the kernel reports it when its queue passes it: not a CPU event, nor a signal of TopOfPipeline fences only.
    pub is_reported: bool,
    /// For a signal by several queues: the step of its call.
    pub broadcast: Option<u64>,
    /// Whether a signal may lower the value of a fence.
    pub may_rewind: bool,
}

impl NewPacket {
    /// A command, which has no objects.
    pub fn command(begin: Moment) -> Self {
        let kind = PacketKind::Command;
        NewPacket { kind, begin, targets: Vec::new(), is_reported: false, broadcast: None, may_rewind: false }
    }
}

pub(super) struct Queued {
    /// It keeps the number of its first submission.
    pub packet: Packet,
    /// Its latest submission: what a preemption has left is submitted again, with another number.
    pub current: Option<(EngineId, u64)>,
    /// When the engine stopped running it, or the signal came that a wait was for.
    pub finished: Option<Nanos>,
    /// Whether an interrupt reported its completion.
    pub completed: bool,
    pub broadcast: Option<u64>,
    pub may_rewind: bool,
    /// The outcome that the kernel reported of a signal or wait.
    pub reported: Option<Outcome>,
    /// Whether a signal comes with this packet: of a broadcast, it may come later or never.
    pub comes: Option<Outcome>,
    is_reported: bool,
    /// Objects of a signal or wait that were not reported yet.
    unreported: Vec<(FenceId, u64)>,
}

impl Queued {
    pub fn new(queue: TrackId, new: NewPacket) -> Self {
        let NewPacket { kind, begin, targets, is_reported, broadcast, may_rewind } = new;
        let unreported = if kind == PacketKind::Command { Vec::new() } else { targets.clone() };
        let packet = Packet {
            queue,
            kind,
            begin,
            submitted: None,
            ran: None,
            end: begin,
            outcome: Outcome::Pending,
            submission: None,
            targets,
        };
        Queued {
            packet,
            current: None,
            finished: None,
            completed: false,
            broadcast,
            may_rewind,
            reported: None,
            comes: None,
            is_reported,
            unreported,
        }
    }

    /// Whether it is of this kind and names this object, which was not reported for it before. A mutex or semaphore is
    /// reported with the value 0.
    pub fn takes_report(&mut self, kind: PacketKind, fence: FenceId, value: u64) -> bool {
        if self.packet.kind != kind {
            return false;
        }
        let is_it = |target: &(FenceId, u64)| target.0 == fence && (target.1 == value || value == 0);
        let at = self.unreported.iter().position(is_it);
        at.map(|at| self.unreported.swap_remove(at)).is_some()
    }

    /// Whether it is a wait with an object that was not reported for it before, which is gone.
    pub fn takes_report_of_gone(&mut self) -> bool {
        let is_wait = self.packet.kind == PacketKind::Wait;
        let is_without = self.packet.targets.is_empty() && self.reported.is_none();
        is_wait && (is_without || self.unreported.pop().is_some())
    }

    /// Whether all that keeps it in its queue is known to be over.
    pub fn is_over(&self) -> bool {
        let is_wait = self.packet.kind == PacketKind::Wait;
        self.completed || self.reported.is_some() && (!is_wait || self.unreported.is_empty())
    }

    /// Records its submission to an engine.
    pub fn submit(&mut self, submission: (EngineId, u64), at: Nanos) {
        self.finished = None;
        self.current = Some(submission);
        self.packet.submission.get_or_insert(submission);
        self.packet.submitted.get_or_insert(at.max(self.packet.begin.at));
    }

    /// How it ended, now that it has left its queue.
    pub fn outcome(&self, is_emptied: bool) -> Outcome {
        let without_report = match self.packet.kind {
            PacketKind::Command if self.completed => Outcome::Done,
            PacketKind::Wait => Outcome::Dropped,
            PacketKind::Signal if self.is_reported => Outcome::Dropped,
            PacketKind::Command | PacketKind::Signal if is_emptied => Outcome::Dropped,
            PacketKind::Command | PacketKind::Signal => Outcome::Done,
        };
        self.reported.unwrap_or(without_report)
    }
}

/// Index of the packet that left a queue first. `over` of them are over.
pub(super) fn first_gone(packets: &VecDeque<Queued>, over: usize, is_emptied: bool) -> usize {
    let first_over = || packets.iter().position(Queued::is_over);
    if let Some(at) = (over > 0).then(first_over).flatten() {
        return at;
    }
    if is_emptied {
        // A submission that still runs on the engine stays.
        return packets.len().saturating_sub(1);
    }
    let is_given = |queued: &Queued| queued.packet.submission.is_some() && queued.finished.is_none();
    let early = packets.iter().position(|queued| !is_given(queued));
    match early {
        Some(at) if packets[at].packet.kind == PacketKind::Signal => at,
        _ => 0,
    }
}

/// The first packet that takes something, such as a report.
pub(super) fn find_mut(
    packets: &mut VecDeque<Queued>,
    mut takes: impl FnMut(&mut Queued) -> bool,
) -> Option<&mut Queued> {
    packets.iter_mut().find_map(|queued| takes(queued).then_some(queued))
}

/// The packet of this submission, or of the rest of it.
pub(super) fn find(packets: &mut VecDeque<Queued>, submission: (EngineId, u64)) -> Option<&mut Queued> {
    packets.iter_mut().find(|queued| queued.current == Some(submission))
}
