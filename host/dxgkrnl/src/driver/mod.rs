//! The miniport, with its next deadline cached.
//!
//! Every input needs the deadline, so it is cached until the miniport changes. A mutable borrow of the miniport clears
//! the cache, and only [`Driver`] gives one.

mod iommu;
mod order;
pub(crate) mod race_reports;
pub(crate) mod start;

use alloc::vec::Vec;
use core::cell::Cell;
use core::mem::take;
use core::ops::{Deref, DerefMut};

use crate::ddi::{BoxedMiniport, Callback, Miniport};
use crate::{Nanos, VmId};

/// The miniport with its cached deadline.
pub(crate) struct Driver {
    miniport: BoxedMiniport,
    /// The cached deadline; `None` if the miniport has to be asked.
    due: Cell<Option<Option<Nanos>>>,
    /// Empty lists of callbacks, kept for their memory.
    callbacks: Vec<Callback>,
    dpc_callbacks: Vec<Callback>,
    /// [`Miniport::runs_outside`]
    runs_outside: bool,
}

impl Driver {
    pub fn new(miniport: BoxedMiniport) -> Self {
        let runs_outside = miniport.runs_outside();
        Driver {
            miniport,
            due: Cell::new(None),
            callbacks: Vec::new(),
            dpc_callbacks: Vec::new(),
            runs_outside,
        }
    }

    /// Whether a driver's answers are effects: see [`Miniport::take_answers`].
    #[inline]
    pub fn has_answers(&self) -> bool {
        self.runs_outside
    }

    /// [`Miniport::act_for`]
    #[inline]
    pub fn act_for(&mut self, now: Nanos, vm: impl FnOnce() -> Option<VmId>) {
        if self.runs_outside {
            self.miniport.act_for(now, vm());
        }
    }

    /// [`Miniport::next_deadline`], cached.
    #[inline]
    pub fn due(&self) -> Option<Nanos> {
        if let Some(due) = self.due.get() {
            return due;
        }
        let due = self.miniport.next_deadline();
        self.due.set(Some(due));
        due
    }

    /// The same after a step. A driver in a process of its own is asked again, because it may have died.
    #[inline]
    pub fn due_next(&self) -> Option<Nanos> {
        if self.runs_outside { self.miniport.next_deadline() } else { self.due() }
    }

    /// An empty list for the callbacks of a DDI.
    pub fn take_callbacks(&mut self) -> Vec<Callback> {
        take(&mut self.callbacks)
    }

    pub fn keep_callbacks(&mut self, callbacks: Vec<Callback>) {
        self.callbacks = callbacks;
    }

    /// An empty list for the callbacks of a DPC, which may run while a DDI's are processed.
    pub fn take_dpc_callbacks(&mut self) -> Vec<Callback> {
        take(&mut self.dpc_callbacks)
    }

    pub fn keep_dpc_callbacks(&mut self, callbacks: Vec<Callback>) {
        self.dpc_callbacks = callbacks;
    }
}

impl Deref for Driver {
    type Target = dyn Miniport + Send;

    fn deref(&self) -> &Self::Target {
        &*self.miniport
    }
}

impl DerefMut for Driver {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.due.set(None);
        &mut *self.miniport
    }
}
