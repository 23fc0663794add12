//! VidSch: queues, the packets in them, and the way to the engines.
//!
//! A [`Queue`] holds packets in the order of their submission. Each context has one; each hardware queue of a
//! context has one of its own (`hwqueue.rs`). What is said of a context below holds for either.
//!
//! ```text
//!   queue                     head can go on when ..                 and then
//!   Wait(wait)                the wait has ended                     is gone
//!   WaitAtHead(items)         no command runs                        is gone, or a Wait from now on
//!   Acquire(..)               no command runs, and all of it can be  mutexes are owned, semaphores count
//!                             had at once (`legacy.rs`)              down
//!   Signal(..)                no command runs (SignalAtSubmission:   fence values change, waits end
//!                             the engine was given the last one)
//!   Broadcast(id)             as a Signal                            the last queue signals
//!   PageTables(operations)    no command runs                        the address space changes
//!   Command(bytes)            no command runs                        it is ready for the engine; the queue
//!                                                                    runs until DMA_COMPLETED
//!   HwCommand{id, bytes}      MaxInFlightHwQueueBuffers allows       the miniport gets it; it runs until the
//!                                                                    progress fence has the id
//! ```
//! Packets of one queue take effect in the order of submission (SCH-001); queues do not hold each
//! other up (FEN-024).
//!
//! `head.rs` says when the head packet can go on, with two finer rules;
//! `context.rs` makes and ends contexts, `signal.rs` has the packets of signals and waits, `ready.rs` what comes
//! next on an engine, `dispatch.rs` how it gets there and back, `engine.rs` what is with the miniport and what it
//! reports, `priority.rs` the calls that set priorities; `hwqueue.rs`, `doorbell.rs` and `suspend.rs` are hardware
//! scheduling.

mod context;
mod dispatch;
mod doorbell;
mod engine;
mod head;
mod hwqueue;
mod priority;
mod ready;
mod signal;
mod suspend;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::{EventId, Handle, NtStatus, SignalFlags};

pub(crate) use context::Context;
pub(crate) use dispatch::{QUANTUM_NS, ReadyCommand};
pub use doorbell::DoorbellStatus;
pub(crate) use engine::{HARDWARE_QUEUE_DEPTH, InFlight, OnEngine, Submitted};
pub(crate) use hwqueue::HwQueue;
pub(crate) use priority::CLASS_NORMAL;
pub(crate) use ready::Level;
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::address::VaUpdate;
use crate::ddi::{Edge, EngineId, HwContext, Miniport, Orderer};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::legacy::Acquire;
use crate::waits::{WaitId, WaitItem};

/// Packets in the order of their submission, and what the engine has of them.
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
    /// The hardware queue that it is the queue of.
    pub hw_queue: Option<u32>,
    /// What the engine has of this hardware queue, oldest first.
    pub in_flight: VecDeque<HwSubmission>,
}

impl Queue {
    /// True if no command of it runs or is about to.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.ready.is_none() && self.in_flight.is_empty()
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
    /// A wait that begins when it is reached. Holds its objects.
    WaitAtHead(Vec<WaitItem>),
    Signal(Signal),
    Broadcast(u32),
    Command(Vec<u8>),
    HwCommand {
        progress_fence_id: u64,
        commands: Vec<u8>,
    },
    /// The update of an address space, of a companion (`paging.rs`).
    PageTables(Vec<VaUpdate>),
}

impl Packet {
    /// What it counts against the process's limit of queued bytes.
    pub(crate) fn weight(&self) -> usize {
        const PACKET_BYTES: usize = 64;
        PACKET_BYTES
            + match self {
                Packet::Wait(_) | Packet::Broadcast(_) => 0,
                Packet::Acquire(acquire) => acquire.objects.len() * size_of::<u32>(),
                Packet::WaitAtHead(items) => items.len() * size_of::<WaitItem>(),
                Packet::Signal(signal) => signal.targets.len() * size_of::<(u32, u64)>(),
                Packet::Command(commands) | Packet::HwCommand { commands, .. } => commands.len(),
                Packet::PageTables(operations) => operations.len() * size_of::<VaUpdate>(),
            }
    }
}

/// What a signal packet does when it is reached.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Signal {
    pub process: ProcessId,
    pub flags: SignalFlags,
    /// Objects (kept alive by the packet) and their values.
    pub targets: Vec<(u32, u64)>,
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
    /// What its CPU event is set with if it never happens.
    pub status: Option<NtStatus>,
}

impl<M: Miniport> Kernel<M> {
    /// A queue for a context, or for a hardware queue of it.
    pub(crate) fn new_queue(&mut self, device: u32, engine: EngineId, context: u32) -> u32 {
        let process = self.devices[device].process;
        let packets = VecDeque::new();
        self.queues.insert(Queue {
            process,
            device,
            engine,
            context,
            packets,
            running: None,
            ready: None,
            turn: 0,
            hw_queue: None,
            in_flight: VecDeque::new(),
        })
    }

    /// Ends the queue of a context: what the engine has of it is dropped, if it does not end with its context, and
    /// then what is queued.
    pub(crate) fn end_queue(&mut self, id: u32, effects: &mut Effects) {
        let ready = self.unready(id);
        let queue = self.queues.remove(id).expect("its owner is live");
        let (engine, context) = (queue.engine, queue.context);
        if let Some(submission_fence_id) = queue.running {
            self.in_flight.forget(engine, self.now, submission_fence_id);
            self.touched.insert(engine);
        }
        let kept = ready.as_ref().and_then(|command| command.resubmits);
        let not_submitted = ready.iter().filter(|command| command.resubmits.is_none());
        let not_submitted = not_submitted.map(|command| &command.commands[..]);
        self.cancel_commands((engine, context), not_submitted.chain(commands(&queue.packets)), effects);
        let submitted = queue.running.or(kept).map(|submission_fence_id| (engine, submission_fence_id));
        self.with_miniport(effects, |miniport, now, callbacks| {
            miniport.destroy_context(now, HwContext(context), submitted, callbacks);
        });
        if submitted.is_some() {
            // A buffer that was dropped will not complete: what it wrote is looked at now.
            self.evaluate_written(queue.process, effects);
        }
        self.drop_packets(queue.process, queue.packets, None, effects);
        if queue.hw_queue.is_none() {
            self.edge(Edge::Gone(Orderer::Context(HwContext(context))));
        }
    }

    pub(crate) fn enqueue(&mut self, queue: u32, packet: Packet) {
        let process = self.queues[queue].process;
        self.process_mut(process).queued_bytes += packet.weight();
        self.queues[queue].packets.push_back(packet);
        self.runnable.push_back(queue);
    }

    /// Drops what was queued in a queue of this process: no value changes. CPU events among it are set
    /// if there is a status to say, or else never.
    pub(crate) fn drop_packets(
        &mut self,
        process: ProcessId,
        queue: VecDeque<Packet>,
        status: Option<NtStatus>,
        effects: &mut Effects,
    ) {
        self.process_mut(process).queued_bytes -= queue.iter().map(Packet::weight).sum::<usize>();
        for packet in queue {
            match packet {
                Packet::Wait(wait) => {
                    self.edges.forget(wait);
                    self.end_wait(wait, effects);
                }
                Packet::Acquire(acquire) => self.drop_acquire(acquire, effects),
                Packet::WaitAtHead(items) => {
                    for item in items {
                        self.release_reference(item.object, effects);
                    }
                }
                Packet::Signal(signal) => self.drop_signal(signal, status, effects),
                Packet::Broadcast(broadcast) => {
                    self.broadcasts[broadcast].broken = true;
                    self.broadcasts[broadcast].status = status;
                    self.reach_broadcast(broadcast, effects);
                }
                Packet::Command(_) | Packet::HwCommand { .. } | Packet::PageTables(_) => {}
            }
        }
    }

    /// Lets every queue go on that can, until none can.
    #[inline]
    pub(crate) fn run_queues(&mut self, effects: &mut Effects) {
        if !self.is_settled() {
            self.settle(effects);
        }
    }

    /// Whether there is nothing to go on with, as after most inputs.
    #[inline]
    fn is_settled(&self) -> bool {
        self.touched.is_empty()
            && self.runnable.is_empty()
            && self.awaiting_begin.is_empty()
            && self.tdr.is_settled()
            && self.native.is_settled()
            && !self.miniport.has_died()
    }

    fn settle(&mut self, effects: &mut Effects) {
        loop {
            self.stop_died(effects);
            self.dispatch_touched(effects);
            if self.recover(effects) {
                continue;
            }
            match self.runnable.pop_front() {
                Some(queue) => while self.run_head(queue, effects) {},
                None if self.release_begun() || self.update_monitored_values(effects) => {}
                None => return,
            }
        }
    }

    /// Takes the head packet of a queue if it can go on; true if it did.
    pub(crate) fn run_head(&mut self, id: u32, effects: &mut Effects) -> bool {
        if matches!(self.queues.get(id).and_then(|queue| queue.packets.front()), Some(Packet::Acquire(_))) {
            return self.try_acquire(id, effects);
        }
        if !self.head_is_ready(id) {
            return false;
        }
        self.passed(id);
        let queue = &mut self.queues[id];
        let Some(packet) = queue.packets.pop_front() else { return false };
        let process = queue.process;
        self.process_mut(process).queued_bytes -= packet.weight();
        match packet {
            Packet::Wait(_) | Packet::Acquire(_) => {}
            Packet::WaitAtHead(items) => self.begin_at_head(id, items, effects),
            Packet::Signal(signal) => self.apply_signal(signal, effects),
            Packet::Broadcast(broadcast) => self.reach_broadcast(broadcast, effects),
            Packet::Command(commands) => self.start_command(id, commands, effects),
            Packet::HwCommand { progress_fence_id, commands } => {
                self.start_hw_command(id, progress_fence_id, commands, effects);
            }
            Packet::PageTables(operations) => self.update_page_tables(id, &operations, effects),
        }
        true
    }
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
        | Packet::HwCommand { .. } => None,
    })
}
