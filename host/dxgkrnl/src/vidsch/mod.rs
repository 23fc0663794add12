//! VidSch: queues, the packets in them, and the way to the engines.
//!
//! A [`Queue`] holds packets in the order of their submission. Each context has one; each hardware queue of a
//! context has one of its own (`hw_queue.rs`). What is said of a context below holds for either.
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
//! State: `queue.rs`, `context.rs`, `hw_queue.rs`, `doorbell.rs`, `suspension.rs`, `engine.rs` (what is with the
//! miniport), `ready.rs` (what comes next on an engine). Behaviour: `run.rs` makes, ends and runs queues, `head.rs`
//! decides when the head packet can go on, `context_calls.rs`, `signal.rs`, `priority_calls.rs`, `hw_queue_calls.rs`
//! and `doorbell_calls.rs` are the calls, `dispatch.rs` gives engines their work, `interrupts.rs` takes it back,
//! `suspend.rs` stops and resumes hardware contexts.

mod context;
mod context_calls;
mod dispatch;
mod doorbell;
mod doorbell_calls;
mod engine;
mod head;
mod hw_queue;
mod hw_queue_calls;
mod interrupts;
pub(crate) mod priority;
mod priority_calls;
mod queue;
mod ready;
mod ready_command;
mod run;
mod signal;
mod suspend;
mod suspension;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

pub(crate) use context::Context;
pub use doorbell::DoorbellStatus;
pub(crate) use engine::{HARDWARE_QUEUE_DEPTH, InFlight, OnEngine, Submitted};
pub(crate) use hw_queue::HwQueue;
pub(crate) use queue::{Broadcast, HwSubmission, Packet, Queue, Signal, commands};
pub(crate) use ready::Level;
pub(crate) use ready_command::QUANTUM_NS;

use crate::Nanos;
use crate::ddi::{EngineId, Interrupt};
use crate::slab::Slab;

/// The scheduler's tables, and the work that it has still to do.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct VidSch {
    pub(crate) contexts: Slab<Context>,
    pub(crate) queues: Slab<Queue>,
    pub(crate) broadcasts: Slab<Broadcast>,
    pub(crate) in_flight: InFlight,
    pub(crate) hw_queues: Slab<HwQueue>,
    /// Hardware queues by the object of their progress fence.
    pub(crate) progress_fences: BTreeMap<u32, u32>,
    /// When suspends that are not acknowledged are overdue, and their contexts.
    pub(crate) suspend_deadlines: BTreeSet<(Nanos, u32)>,
    /// Adapters on their way to D3, and whether they are there.
    pub(crate) powered_down: BTreeMap<u32, bool>,
    /// Queues that may be able to go on.
    pub(crate) runnable: VecDeque<u32>,
    /// Queues whose head waits for their engine to begin what it has of them (FEN-048).
    pub(crate) awaiting_begin: BTreeSet<u32>,
    /// Engines that may have room or something to run.
    pub(crate) touched: BTreeSet<EngineId>,
    pub(crate) dispatching: bool,
    /// Callbacks of a driver are being processed.
    pub(crate) working_off: bool,
    /// Queues of paging buffers that are done: what follows in them comes before the next paging buffer is chosen.
    pub(crate) paged: VecDeque<u32>,
    /// Interrupts that no DPC has processed yet.
    pub(crate) interrupts: VecDeque<Interrupt>,
}
