//! Events without descriptors: each counts how often it was set.

use std::cell::Cell;
use std::rc::Rc;

use crate::port::{CallerEvent, EventError, RegisteredEvent};

/// An event of a simulated process. It is both the caller's event and the registered one, because nothing closes it.
#[derive(Clone, Default, Debug)]
pub struct SimulatedEvent(Rc<Cell<u64>>);

impl SimulatedEvent {
    /// How often it was set since the last call, as reading an eventfd does.
    pub fn take(&self) -> u64 {
        self.0.take()
    }
}

impl RegisteredEvent for SimulatedEvent {
    fn set(&self) {
        self.0.set(self.0.get() + 1);
    }
}

impl CallerEvent for SimulatedEvent {
    type Registered = SimulatedEvent;

    fn set(&self) -> Result<(), EventError> {
        RegisteredEvent::set(self);
        Ok(())
    }

    fn keep(self) -> Result<SimulatedEvent, EventError> {
        Ok(self)
    }
}
