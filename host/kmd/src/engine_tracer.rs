//! For whoever wants to understand a command list: what engines do with it is told to an engine tracer, as it happens. Nothing else
//! changes, but that a debug layer looks at the lists of every process, in silence where the process has none.
//!
//! ```text
//!   a buffer's turn ──▶ Begun{commands, resources, messages} ──▶ Started, Ended of each packet ──▶ Over
//!                       Race, when the second of its accesses is looked at
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

/// A command buffer whose turn has come.
#[derive(Clone, Debug)]
pub struct Begun {
    /// From 1, over all engines of the driver.
    pub number: u64,
    pub engine: EngineId,
    pub engine_type: EngineType,
    pub process: ProcessId,
    /// The queue as reports of races call it, and which of its buffers this is, from 1.
    pub queue: u64,
    pub of_queue: u64,
    pub at: Nanos,
    pub commands: Vec<u8>,
    /// Those that the process has.
    pub resources: Vec<(u32, ResourceDesc)>,
    /// What the debug layer says, all of it.
    pub messages: Vec<Message>,
}

/// How a command buffer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Complete,
    /// Memory that is not in the page table, at this GPU address.
    PageFault(u64),
    /// A command that the engine does not have, or whose resource is not there.
    Illegal,
}

/// What an engine tracer is told. Packets are counted from 0 in their buffer.
#[derive(Clone, Debug)]
pub enum EngineEvent {
    Begun(Box<Begun>),
    /// A packet that takes time has started.
    Started {
        number: u64,
        packet: u32,
        at: Nanos,
    },
    /// It is done. A packet with several barriers has as many of these.
    Ended {
        number: u64,
        packet: u32,
        at: Nanos,
    },
    Over {
        number: u64,
        at: Nanos,
        ending: Ending,
    },
    /// Two accesses race; the second was looked at just now. The name is the resource's, if it has one.
    Race {
        adapter: Option<u32>,
        name: String,
        report: Report,
    },
}

/// Who is told.
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

    /// The number of the buffer that begins; 0 if nobody looks.
    pub fn next(&mut self) -> u64 {
        self.last += u64::from(self.is_there());
        self.last
    }

    pub fn saw(&self, seen: impl FnOnce() -> EngineEvent) {
        if let Some(tracer) = &mut *self.tracer.borrow_mut() {
            tracer(seen());
        }
    }

    pub fn started(&self, number: u64, packet: u32, at: Nanos) {
        self.saw(|| EngineEvent::Started { number, packet, at });
    }

    pub fn ended(&self, number: u64, packet: u32, at: Nanos) {
        self.saw(|| EngineEvent::Ended { number, packet, at });
    }

    pub fn over(&self, number: u64, at: Nanos, ending: Ending) {
        self.saw(|| EngineEvent::Over { number, at, ending });
    }
}
