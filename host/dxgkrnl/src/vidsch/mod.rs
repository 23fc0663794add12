//! VidSch, the scheduler: queues, the packets in them, and their way to the engines.
//!
//! A [`Queue`] holds packets in the order of their submission. Each context has one; each hardware queue of a context
//! has one of its own (`hw_queue.rs`). The rules below are for both.
//!
//! ```text
//!   queue                     head can run when ..                   and then
//!   Wait(wait)                the wait has ended                     is gone
//!   WaitAtHead(items)         no command runs                        is gone, or a Wait from now on
//!   Acquire(..)               no command runs, and all of it can be  mutexes are owned, semaphores count
//!                             had at once (`legacy.rs`)              down
//!   Signal(..)                no command runs (SignalAtSubmission:   fence values change, waits end
//!                             the last one was submitted)
//!   Broadcast(id)             as a Signal                            the last queue signals
//!   Mark(round)               always                                 is passed; once the work before the marks of a
//!                                                                    round is done, memory is destroyed or offered
//!   PageTables(operations)    no command runs                        the address space changes
//!   Command(bytes)            no command runs                        it is ready for the engine; the queue
//!                                                                    runs until DMA_COMPLETED
//!   HwCommand{id, bytes}      MaxInFlightHwQueueBuffers allows       the miniport gets it; it runs until the
//!                                                                    progress fence has the id
//! ```
//! Packets of one queue take effect in the order of submission (SCH-001); queues do not block each other (FEN-024).
//!
//! State: `queue.rs`, `context.rs`, `hw_queue.rs`, `doorbell.rs`, `suspension.rs`, `engine.rs` (work that engines
//! have), `ready.rs` (command buffers that wait for an engine), `shares.rs` (the engine time of each VM), `hw_work.rs`
//! (work that hardware schedules), `idle_waits.rs` (calls that wait for an idle GPU), `work.rs` (work of the present
//! step), `backlog.rs` (work left for later steps).
//!
//! Behaviour: `deferred.rs` leaves work for later steps and continues it. `run.rs` creates, runs and ends queues, and has
//! the loop that runs all work. `head.rs` decides when the head packet can run. `context_calls.rs`, `signal.rs`,
//! `priority_calls.rs`, `hw_queue_calls.rs` and `doorbell_calls.rs` are the calls. `engine_dispatch.rs` gives engines their
//! work, `interrupts.rs` handles their callbacks and completions, `suspend.rs` suspends and resumes hardware contexts,
//! `context_end.rs` ends contexts.

mod backlog;
mod context;
mod context_calls;
mod context_end;
mod deferred;
mod doorbell;
mod doorbell_calls;
mod engine;
mod engine_dispatch;
mod head;
mod hw_queue;
mod hw_queue_calls;
mod hw_work;
mod idle_waits;
mod interrupts;
pub(crate) mod priority;
mod priority_calls;
mod queue;
mod ready;
mod ready_command;
mod run;
mod shares;
mod signal;
mod suspend;
mod suspension;
mod work;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

pub(crate) use backlog::{DroppedPackets, Task, Turn};
pub(crate) use context::Context;
use context::WaitingEnd;
pub use doorbell::DoorbellStatus;
pub(crate) use engine::{EngineWrite, HARDWARE_QUEUE_DEPTH, InFlight, OnEngine, Submitted};
pub(crate) use hw_queue::HwQueue;
pub(crate) use hw_work::Submitter;
pub(crate) use idle_waits::{HOLD_MAX_NS, Hold, IdleWait, IdleWaits, WAIT_DELAYS, WaitingEscape};
pub(crate) use queue::{Broadcast, HwSubmission, Packet, Queue, Signal, Targets, commands};
pub(crate) use ready::Level;
pub(crate) use ready_command::QUANTUM_NS;
pub(crate) use shares::VM_SLICE_NS;
pub(crate) use work::Caller;
use work::WorkQueue;

use crate::ddi::{EngineId, Interrupt, NativeFenceId, SignaledNativeFences};
use crate::slab::Slab;
use crate::{Nanos, VmId};

/// The scheduler's tables, and the work that the kernel has still to do.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct VidSch {
    contexts: Slab<Context>,
    queues: Slab<Queue>,
    broadcasts: Slab<Broadcast>,
    in_flight: InFlight,
    hw_queues: Slab<HwQueue>,
    /// Hardware queues by the object of their progress fence.
    progress_fences: BTreeMap<u32, u32>,
    /// When suspends that are not acknowledged are overdue, and their contexts.
    suspend_deadlines: BTreeSet<(Nanos, u32)>,
    /// Adapters on their way to D3, and whether they have reached it.
    powered_down: BTreeMap<u32, bool>,
    /// Calls that wait for the work of a context, by context.
    waiting_ends: BTreeMap<u32, WaitingEnd>,
    /// Calls that wait for an idle GPU.
    idle_waits: IdleWaits,
    work: WorkQueue,
    /// Interrupts that no DPC has processed yet.
    interrupts: VecDeque<Interrupt>,
}

impl VidSch {
    #[inline]
    pub fn queue_mut(&mut self, queue: u32) -> &mut Queue {
        &mut self.queues[queue]
    }

    #[inline]
    pub fn context_mut(&mut self, context: u32) -> &mut Context {
        &mut self.contexts[context]
    }

    pub fn remove_context(&mut self, context: u32) -> Option<Context> {
        self.contexts.remove(context)
    }

    #[inline]
    pub fn hw_queue_mut(&mut self, hw_queue: u32) -> &mut HwQueue {
        &mut self.hw_queues[hw_queue]
    }

    pub fn find_hw_queue_mut(&mut self, hw_queue: u32) -> Option<&mut HwQueue> {
        self.hw_queues.get_mut(hw_queue)
    }

    #[inline]
    pub fn engine_mut(&mut self, engine: EngineId) -> &mut OnEngine {
        self.in_flight.engine(engine)
    }

    /// Queues a dispatch for each engine of an adapter that was ever used.
    pub fn dispatch_all_of(&mut self, adapter: u32) {
        let used = self.in_flight.engines.keys().filter(|engine| engine.adapter == adapter);
        used.for_each(|engine| self.work.dispatch(*engine));
    }

    #[inline]
    pub fn idle_waits(&self) -> &IdleWaits {
        &self.idle_waits
    }

    #[inline]
    pub fn idle_waits_mut(&mut self) -> &mut IdleWaits {
        &mut self.idle_waits
    }

    #[inline]
    pub fn work(&self) -> &WorkQueue {
        &self.work
    }

    #[inline]
    pub fn work_mut(&mut self) -> &mut WorkQueue {
        &mut self.work
    }

    #[inline]
    pub fn in_flight_mut(&mut self) -> &mut InFlight {
        &mut self.in_flight
    }

    /// Drops the work in the ring of a queue that ends.
    pub fn ring_ended(&mut self, queue: u32, now: Nanos) {
        self.in_flight.ring_progressed(self.queues[queue].engine, now, queue, true);
    }

    /// Forgets submissions of a hardware queue that its engine does not have any more.
    pub fn forget_ended_submissions(&mut self, queue: u32) {
        let queue = &mut self.queues[queue];
        let on_engine = &self.in_flight.engine(queue.engine).hw_work;
        queue.in_flight.retain(|one| on_engine.has(one.submission_fence_id));
    }

    /// Drops the interrupts of an adapter that no DPC has processed.
    pub fn forget_interrupts(&mut self, adapter: u32) {
        self.interrupts.retain(|interrupt| interrupt.adapter() != adapter);
    }

    /// Removes an ended native fence from the reports that no DPC has processed.
    pub fn forget_reports_of(&mut self, ended: NativeFenceId) {
        for interrupt in &mut self.interrupts {
            if let Interrupt::NativeFenceSignaled { signaled: SignaledNativeFences::These(fences), .. } =
                interrupt
            {
                fences.retain(|fence| *fence != ended);
            }
        }
    }

    /// Drops the reports about a hardware queue or context that ends and that no DPC has processed: its number may soon be
    /// another's.
    pub fn forget_reports_about(&mut self, is_about: impl Fn(&Interrupt) -> bool) {
        self.interrupts.retain(|interrupt| !is_about(interrupt));
    }

    /// Forgets the engine time of a VM that is gone.
    pub fn forget_vm(&mut self, vm: VmId) {
        for engine in self.in_flight.engines.values_mut() {
            engine.shares.forget(vm);
            engine.ready.forget(vm);
        }
    }

    /// Restarts the clocks of the engines that this VM's work is on.
    pub fn restart_clocks_of(&mut self, vm: VmId, now: Nanos) {
        self.in_flight.restart_clocks_of(vm, now);
    }

    /// Forgets that an adapter is in D3 or on its way there; true if it was.
    pub fn forget_power_down(&mut self, adapter: u32) -> bool {
        self.powered_down.remove(&adapter).is_some()
    }

    pub fn forget_adapter(&mut self, adapter: u32) {
        self.in_flight.forget_adapter(adapter);
    }

    #[inline]
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// See [`Slab::shorten`].
    pub fn shorten(&mut self, most: usize) -> usize {
        self.contexts.shorten(most)
            + self.queues.shorten(most)
            + self.broadcasts.shorten(most)
            + self.hw_queues.shorten(most)
    }

    #[inline]
    pub fn queues(&self) -> &Slab<Queue> {
        &self.queues
    }

    #[inline]
    pub fn suspend_deadlines(&self) -> &BTreeSet<(Nanos, u32)> {
        &self.suspend_deadlines
    }

    #[inline]
    pub fn contexts(&self) -> &Slab<Context> {
        &self.contexts
    }

    pub fn waiting_ends(&self) -> &BTreeMap<u32, WaitingEnd> {
        &self.waiting_ends
    }

    #[inline]
    pub fn hw_queues(&self) -> &Slab<HwQueue> {
        &self.hw_queues
    }

    #[inline]
    pub fn broadcasts(&self) -> &Slab<Broadcast> {
        &self.broadcasts
    }

    #[inline]
    pub fn progress_fences(&self) -> &BTreeMap<u32, u32> {
        &self.progress_fences
    }
}
