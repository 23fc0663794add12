//! The miniport, and when it next wants to be told the time.
//!
//! Every input asks for that, so it is kept from one change of the miniport to the next. Whoever borrows the
//! miniport to change it makes it unknown again: there is no other way to one that can be written to.

use core::ops::{Deref, DerefMut};

use crate::Nanos;
use crate::ddi::Miniport;

/// See the module.
pub(crate) struct Driver<M> {
    miniport: M,
    /// `None` if it must be asked.
    due: Option<Option<Nanos>>,
}

impl<M: Miniport> Driver<M> {
    pub fn new(miniport: M) -> Self {
        Driver { miniport, due: None }
    }

    /// [`Miniport::next_deadline`], kept.
    pub fn due(&mut self) -> Option<Nanos> {
        let miniport = &self.miniport;
        *self.due.get_or_insert_with(|| miniport.next_deadline())
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
