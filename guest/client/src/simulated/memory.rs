//! Fence memory of one simulated process: the host stores, the guest loads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::port::Location;

/// The slots of a process, from 0. Only ever grows.
#[derive(Default, Debug)]
pub struct SimulatedMemory(RefCell<Vec<Cell<u64>>>);

impl SimulatedMemory {
    /// Memory of `slots` slots, all 0.
    pub fn new(slots: u32) -> Rc<SimulatedMemory> {
        let memory = Rc::new(SimulatedMemory::default());
        memory.add_slots(slots);
        memory
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.0.borrow().len() as u32
    }

    /// `count` more slots, all 0.
    pub fn add_slots(&self, count: u32) {
        let mut slots = self.0.borrow_mut();
        let grown = slots.len() + count as usize;
        slots.resize_with(grown, Cell::default);
    }

    /// Stores a fence value: the host's side. Panics if there is no such slot.
    pub fn store(&self, slot: u32, value: u64) {
        self.0.borrow()[slot as usize].set(value);
    }

    /// The value of a slot, if there is one.
    pub fn load(&self, slot: u32) -> Option<u64> {
        self.0.borrow().get(slot as usize).map(Cell::get)
    }

    /// The location of a slot, if there is one.
    pub fn locate(self: &Rc<Self>, slot: u32) -> Option<SimulatedLocation> {
        (slot < self.slots()).then(|| SimulatedLocation { memory: self.clone(), slot })
    }
}

/// Where one simulated fence's value is stored.
#[derive(Clone, Debug)]
pub struct SimulatedLocation {
    memory: Rc<SimulatedMemory>,
    slot: u32,
}

impl SimulatedLocation {
    /// The slot's number.
    pub fn slot(&self) -> u32 {
        self.slot
    }
}

impl Location for SimulatedLocation {
    fn value(&self) -> u64 {
        self.memory.load(self.slot).expect("memory never shrinks")
    }
}
