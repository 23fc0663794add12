//! Queues, and the packets in them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::{EventId, Handle, NtStatus, SignalFlags};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::ready_command::ReadyCommand;
use crate::ProcessId;
use crate::ddi::EngineId;
use crate::sync::legacy::Acquire;
use crate::sync::waits::{WaitId, WaitItem};
use crate::vidmm::address::QueuedUpdate;

/// Packets in the order of their submission, and the submissions that the engine has.
#[derive(Serialize, Deserialize)]
pub(crate) struct Queue {
    pub process: ProcessId,
    pub device: u32,
    pub engine: EngineId,
    /// The context that it belongs to.
    pub context: u32,
    pub packets: VecDeque<Packet>,
    /// The submission that the engine has of this queue, if it is a context's own.
    pub running: Option<u64>,
    /// Its command buffer that waits for the engine.
    pub ready: Option<ReadyCommand>,
    /// Its turn when it was submitted last.
    pub turn: u64,
    /// The hardware queue that it belongs to, if any.
    pub hw_queue: Option<u32>,
    /// Submissions of this hardware queue that the engine has, oldest first.
    pub in_flight: VecDeque<HwSubmission>,
    /// A mark that the queue has passed while work before it ran, so that it holds up nothing behind it: its round, and the
    /// last submission of a hardware queue before it.
    pub passed_mark: Option<(u64, Option<u64>)>,
}

impl Queue {
    /// True if no command of it runs or is about to.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.ready.is_none() && self.in_flight.is_empty()
    }

    /// Passes a mark.
    pub fn pass_mark(&mut self, round: u64) {
        self.passed_mark = Some((round, self.in_flight.back().map(|last| last.submission_fence_id)));
    }

    /// Takes the round of the mark that was passed, if what ran before it is done.
    pub fn take_reached_mark(&mut self) -> Option<u64> {
        let (round, last) = self.passed_mark?;
        let is_behind = |one: &HwSubmission| last.is_none_or(|last| one.submission_fence_id > last);
        let is_reached =
            self.running.is_none() && self.ready.is_none() && self.in_flight.front().is_none_or(is_behind);
        is_reached.then(|| {
            self.passed_mark = None;
            round
        })
    }
}

/// A submission of a hardware queue that the engine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct HwSubmission {
    pub submission_fence_id: u64,
    pub progress_fence_id: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Packet {
    Wait(WaitId),
    Acquire(Acquire),
    /// A wait that begins when the queue reaches it. Holds its objects.
    WaitAtHead(Vec<WaitItem>),
    Signal(Signal),
    Broadcast(u32),
    Command(Vec<u8>),
    HwCommand {
        progress_fence_id: u64,
        commands: Vec<u8>,
    },
    /// The destroys and offers of a round take effect once each queue of the device has passed its mark, and has done the
    /// work before it: see `vidmm/after_work.rs`.
    Mark(u64),
    /// The update of an address space, in a paging context (`vidmm/paging.rs`).
    PageTables(Vec<QueuedUpdate>),
}

impl Packet {
    /// Bytes that it counts against the process's limit of queued bytes.
    pub(crate) fn weight(&self) -> usize {
        const PACKET_BYTES: usize = 144;
        PACKET_BYTES
            + match self {
                Packet::Wait(_) | Packet::Broadcast(_) | Packet::Mark(_) => 0,
                Packet::Acquire(acquire) => acquire.objects.len() * size_of::<u32>(),
                Packet::WaitAtHead(items) => items.len() * size_of::<WaitItem>(),
                Packet::Signal(signal) => signal.targets.len() * size_of::<(u32, u64)>(),
                Packet::Command(commands) | Packet::HwCommand { commands, .. } => commands.len(),
                Packet::PageTables(operations) => operations.len() * size_of::<QueuedUpdate>(),
            }
    }
}

/// Objects that a packet signals, and their values: one is stored inline, in no more room than a `Vec` takes.
pub(crate) type Targets = SmallVec<[(u32, u64); 1]>;

const _: () = assert!(size_of::<Targets>() == size_of::<Vec<(u32, u64)>>());

/// The action of a signal packet when the queue reaches it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Signal {
    pub process: ProcessId,
    pub flags: SignalFlags,
    /// Objects (kept alive by the packet) and their values.
    pub targets: Targets,
    pub event: Option<EventId>,
    /// If a mutex or semaphore is among the objects: the contexts of the call, and their device.
    pub by: Vec<Handle>,
}

/// A signal that waits for several queues to reach it (FEN-040).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Broadcast {
    pub signal: Signal,
    /// Queues that have not reached it.
    pub remaining: u32,
    /// A queue ended before it: the signal never happens.
    pub broken: bool,
    /// The status with which its CPU event is set if the signal never happens.
    pub status: Option<NtStatus>,
}

/// The command buffers among packets of a context's own queue.
pub(crate) fn commands(packets: &VecDeque<Packet>) -> impl Iterator<Item = &[u8]> {
    packets.iter().filter_map(|packet| match packet {
        Packet::Command(commands) => Some(&commands[..]),
        Packet::Wait(_)
        | Packet::Acquire(_)
        | Packet::WaitAtHead(_)
        | Packet::PageTables(_)
        | Packet::Signal(_)
        | Packet::Broadcast(_)
        | Packet::Mark(_)
        | Packet::HwCommand { .. } => None,
    })
}
