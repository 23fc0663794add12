//! The miniport, and when it next wants to be told the time.
//!
//! Every input asks for that, so it is kept from one change of the miniport to the next. Whoever borrows the
//! miniport to change it makes it unknown again: there is no other way to one that can be written to.

pub(crate) mod happens_before;
mod iommu;
mod order;
pub(crate) mod start;

use alloc::vec::Vec;
use core::mem::take;
use core::ops::{Deref, DerefMut};

use crate::Nanos;
use crate::ddi::{Callback, Miniport};

/// See the module.
pub(crate) struct Driver<M> {
    miniport: M,
    /// `None` if it must be asked.
    due: Option<Option<Nanos>>,
    /// Empty lists of callbacks, kept for their memory.
    callbacks: Vec<Callback>,
    dpc_callbacks: Vec<Callback>,
}

impl<M: Miniport> Driver<M> {
    pub fn new(miniport: M) -> Self {
        Driver { miniport, due: None, callbacks: Vec::new(), dpc_callbacks: Vec::new() }
    }

    /// [`Miniport::next_deadline`], kept.
    pub fn due(&mut self) -> Option<Nanos> {
        let miniport = &self.miniport;
        *self.due.get_or_insert_with(|| miniport.next_deadline())
    }

    /// An empty list for the callbacks of a DDI.
    pub fn take_callbacks(&mut self) -> Vec<Callback> {
        take(&mut self.callbacks)
    }

    pub fn keep_callbacks(&mut self, callbacks: Vec<Callback>) {
        self.callbacks = callbacks;
    }

    /// An empty list for the callbacks of a DPC, which may run inside of a DDI's.
    pub fn take_dpc_callbacks(&mut self) -> Vec<Callback> {
        take(&mut self.dpc_callbacks)
    }

    pub fn keep_dpc_callbacks(&mut self, callbacks: Vec<Callback>) {
        self.dpc_callbacks = callbacks;
    }
}

impl<M> Deref for Driver<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.miniport
    }
}

impl<M> DerefMut for Driver<M> {
    fn deref_mut(&mut self) -> &mut M {
        self.due = None;
        &mut self.miniport
    }
}
