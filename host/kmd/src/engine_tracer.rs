//! The engine tracer: a callback that receives the execution of command lists as it happens, for tools that explain it.
//!
//! With a tracer, the debug layer checks the lists of every process; a process that has none gets no messages from it.
//! Nothing else changes.
//!
//! ```text
//!   a buffer starts ──▶ Begun{commands, resources, messages} ──▶ Started, Ended of each packet ──▶ Over
//!                       Race, when the second of its accesses is checked
//! ```

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

use d3dkmt::isa::ResourceDesc;
use dxgkrnl::ddi::EngineId;
use dxgkrnl::{EngineType, Nanos, ProcessId};

pub use barriers::{Message, Severity};
pub use hazards::{Accessed, Agent, CommandId, Conflict, Missing, Report};

/// A command buffer that starts.
#[derive(Clone, Debug)]
pub struct Begun {
    /// From 1, over all engines of the driver.
    pub number: u64,
    pub engine: EngineId,
    pub engine_type: EngineType,
    pub process: ProcessId,
    /// The queue's number in race reports, and the number of this buffer on the queue, from 1.
    pub queue: u64,
    pub of_queue: u64,
    pub at: Nanos,
    pub commands: Vec<u8>,
    /// The resources of the process, by number.
    pub resources: Vec<(u32, ResourceDesc)>,
    /// The messages of the debug layer about this buffer, up to its first packet that waits in hardware.
    pub messages: Vec<Message>,
}

/// How a command buffer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Complete,
    /// An access to this GPU address, which is not in the page table, faulted.
    PageFault(u64),
    /// A command that the engine does not support, or whose resource does not exist.
    Illegal,
    /// A reset aborted the buffer.
    Reset,
    /// The buffer was dropped with its context or queue.
    Dropped,
    /// The adapter was stopped or reset.
    Stopped,
}

/// What an engine reports to the tracer. Packets are numbered from 0 in their buffer.
#[derive(Clone, Debug)]
pub enum EngineEvent {
    Begun(Box<Begun>),
    /// A packet that takes time has started.
    Started {
        number: u64,
        packet: u32,
        at: Nanos,
    },
    /// A packet is complete. A packet with several barriers has one such event for each.
    Ended {
        number: u64,
        packet: u32,
        at: Nanos,
    },
    /// A buffer is over; sent once. `at` is `None` if the adapter was stopped, because that DDI has no time.
    Over {
        number: u64,
        at: Option<Nanos>,
        ending: Ending,
    },
    /// More messages of the debug layer about a buffer, behind a packet that has waited in hardware.
    Messages {
        number: u64,
        messages: Vec<Message>,
    },
    /// Two accesses race; the second was just checked. `name` is the resource's, empty if it has none.
    Race {
        adapter: Option<u32>,
        name: String,
        report: Report,
    },
}

/// The callback that receives the events.
pub type EngineTracer = Box<dyn FnMut(EngineEvent) + Send>;

/// The engine tracer, if there is one.
#[derive(Default)]
pub(crate) struct EngineTracers {
    tracer: RefCell<Option<EngineTracer>>,
    last: u64,
}

impl EngineTracers {
    pub fn new(tracer: EngineTracer) -> Self {
        EngineTracers { tracer: RefCell::new(Some(tracer)), last: 0 }
    }

    pub fn is_there(&self) -> bool {
        self.tracer.borrow().is_some()
    }

    /// The number of the buffer that starts; 0 without a tracer.
    pub fn next(&mut self) -> u64 {
        self.last += u64::from(self.is_there());
        self.last
    }

    pub fn emit(&self, event: impl FnOnce() -> EngineEvent) {
        if let Some(tracer) = &mut *self.tracer.borrow_mut() {
            tracer(event());
        }
    }

    pub fn started(&self, number: u64, packet: u32, at: Nanos) {
        self.emit(|| EngineEvent::Started { number, packet, at });
    }

    pub fn ended(&self, number: u64, packet: u32, at: Nanos) {
        self.emit(|| EngineEvent::Ended { number, packet, at });
    }

    pub fn over(&self, number: u64, at: Option<Nanos>, ending: Ending) {
        self.emit(|| EngineEvent::Over { number, at, ending });
    }
}
