//! Destroys and offers of memory that queued work may still use: both wait for that work.
//!
//! ```text
//!   DestroyAllocation ─▶ the handle is gone ─┐   a mark in each busy queue of the device, behind what it has
//!   OfferAllocations ────────────────────────┴─▶ all marks are reached, or their queues have ended ─▶ destroyed, offered
//! ```
//! A driver frees memory right behind the submission that uses it. So the kernel assumes that queued commands may access
//! it, unless AssumeNotInUse or OfferImmediately says otherwise (D3DDDICB_DESTROYALLOCATION2FLAGS, D3DDDI_OFFER_FLAGS).
//! With SynchronousDestroy the call is answered when the memory is destroyed; otherwise at once.
//!
//! The marks of a device are a *round*. A destroy or an offer during a round waits for the next one. So a queue has one mark
//! at most, however much is destroyed. Work in rings of user-mode submission is not known to the kernel and has no marks.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use d3dkmt::Handle;
use serde::{Deserialize, Serialize};

use crate::ProcessId;

/// Destroys and offers that wait for one round. There are no more entries than the process has opens.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Due {
    /// Handles of allocations and resources.
    pub(super) destroyed: VecDeque<Handle>,
    /// The same of calls that are answered then, with their request numbers.
    pub(super) synchronous: VecDeque<(u64, VecDeque<Handle>)>,
    /// Opens, and the number of the offer of each.
    pub(super) offered: BTreeMap<u32, u64>,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.destroyed.is_empty() && self.synchronous.is_empty() && self.offered.is_empty()
    }
}

/// The marks of a device that are under way.
#[derive(Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) process: ProcessId,
    pub(super) device: u32,
    /// Marks that are not reached, and one until all are placed.
    pub(super) remaining: u32,
    pub(super) due: Due,
    /// Destroys and offers that wait for the next round.
    pub(super) next: Due,
}

/// Memory that waits for work.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct AfterWork {
    pub(super) rounds: BTreeMap<u64, Round>,
    pub(super) begun: u64,
    /// Handles that their process has destroyed, and whose memory still exists.
    pub(super) condemned: BTreeSet<(ProcessId, Handle)>,
    /// Opens whose offer waits, and its number.
    pub(super) offers: BTreeMap<u32, u64>,
    pub(super) offers_begun: u64,
}

impl AfterWork {
    /// Whether a handle is destroyed for its process.
    #[inline]
    pub fn is_condemned(&self, process: ProcessId, handle: Handle) -> bool {
        !self.condemned.is_empty() && self.condemned.contains(&(process, handle))
    }

    /// A handle is removed. Returns whether it was destroyed before.
    pub fn remove_handle(&mut self, process: ProcessId, handle: Handle) -> bool {
        self.condemned.remove(&(process, handle))
    }

    /// The calls with SynchronousDestroy that wait: process, request, and the round under way before them.
    pub fn synchronous(&self, each: &mut dyn FnMut(ProcessId, u64, u64)) {
        for (id, Round { process, due, next, .. }) in &self.rounds {
            let calls = due.synchronous.iter().chain(&next.synchronous);
            calls.for_each(|(request, _)| each(*process, *request, *id));
        }
    }

    /// Drops the offer of an open that waits, if there is one.
    pub fn forget_offer(&mut self, open: u32) {
        self.offers.remove(&open);
    }
}

/// The action of a call behind the work of a device.
#[derive(Serialize, Deserialize)]
pub(super) enum Action {
    Destroy {
        handles: VecDeque<Handle>,
        synchronous: bool,
    },
    Offer(VecDeque<u32>),
    /// Only places the marks of a round that has its destroys and offers already.
    NextRound,
}

/// A call that looks for the busy queues of a device, and how far it has come.
#[derive(Serialize, Deserialize)]
pub(crate) struct AfterWorkCall {
    pub(super) device: Handle,
    /// The next queue.
    pub(super) from: u32,
    /// The round in which it places marks.
    pub(super) round: Option<u64>,
    pub(super) action: Action,
}

impl AfterWorkCall {
    pub(super) fn new(device: Handle, action: Action) -> Box<Self> {
        Box::new(AfterWorkCall { device, from: 0, round: None, action })
    }
}

/// A call with SynchronousDestroy whose marks are placed: it is answered once they are reached.
#[derive(Serialize, Deserialize)]
pub(crate) struct Parked {
    pub(super) round: u64,
    pub(super) is_next: bool,
    pub(super) handles: VecDeque<Handle>,
}
