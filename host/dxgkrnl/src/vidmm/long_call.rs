//! Calls with so many allocations or queues that they go on over several steps: how far they have come.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use d3dkmt::{Handle, limits};
use serde::{Deserialize, Serialize};

use super::after_work::{AfterWorkCall, Due, Parked};
use crate::ddi::SegmentGroup;
use crate::error::{Refusal, invalid};

/// Bytes in each memory segment group, by its number.
pub(super) type GroupBytes = [u64; SegmentGroup::ALL.len()];

/// Bytes that are charged for an entry of a call that goes on, in its list and its tables.
const ENTRY_BYTES: usize = 96;

/// A call that goes on over several steps, and its request number.
#[derive(Serialize, Deserialize)]
pub(crate) struct LongCall {
    pub(super) request: u64,
    pub(super) rest: RestOfCall,
}

/// What a call that did not fit its step still has to do.
#[derive(Serialize, Deserialize)]
pub(crate) enum RestOfCall {
    Residency(Box<ResidencyCall>),
    /// `D3DKMTOfferAllocations`: opens that are to be offered.
    Offer(VecDeque<u32>),
    Reclaim(Box<ReclaimCall>),
    /// `D3DKMTDestroyAllocation`: allocations, or a resource.
    Destroy(VecDeque<Handle>),
    /// A destroy or an offer that waits for the work of its device: see `after_work.rs`.
    AfterWork(Box<AfterWorkCall>),
    Parked(Parked),
    /// The destroys and offers of a round whose marks are reached.
    Due(Box<Due>),
    /// `D3DKMTDestroyContext` of a context with work in these queues, or `D3DKMTDestroyPagingQueue`.
    DestroyContext {
        context: u32,
        busy: BTreeMap<u32, u64>,
    },
    /// `D3DKMTSetProcessSchedulingPriorityClass`: the next queue.
    PriorityClass(QueuePosition),
}

/// A position among the queues of a process's devices.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct QueuePosition {
    /// Index of the device's handle.
    pub device: u32,
    pub queue: u32,
}

impl LongCall {
    /// Bytes that its process is charged for it.
    pub fn weight(&self) -> u64 {
        let entries = match &self.rest {
            RestOfCall::Residency(call) => call.list.len(),
            RestOfCall::Offer(_)
            | RestOfCall::Reclaim(_)
            | RestOfCall::Destroy(_)
            | RestOfCall::AfterWork(_)
            | RestOfCall::Due(_) => limits::ALLOCATIONS_PER_CALL_MAX,
            RestOfCall::DestroyContext { .. } | RestOfCall::PriorityClass(_) | RestOfCall::Parked(_) => 0,
        };
        (entries * ENTRY_BYTES) as u64
    }
}

/// How far a call with a list has come: the next part, and where in the list or table it begins.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Part {
    Name(usize),
    Count(Option<u32>),
    Budget,
    Apply(Option<u32>),
    Gather(Option<u32>),
    /// With the fence value of the operation that makes the list resident, or 0.
    Answer(u64),
}

#[derive(Serialize, Deserialize)]
pub(super) enum Kind {
    MakeResident { queue: Handle, flags: u32 },
    Evict { device: Handle },
}

/// MakeResident or Evict of a list.
#[derive(Serialize, Deserialize)]
pub(crate) struct ResidencyCall {
    pub(super) kind: Kind,
    pub(super) list: Vec<Handle>,
    pub(super) part: Part,
    /// How often each open is named.
    pub(super) counts: BTreeMap<u32, u32>,
    /// Of MakeResident: the allocations whose counts hold, which get resident, and the bytes that are new to the process.
    pub(super) allocations: BTreeSet<u32>,
    pub(super) more: GroupBytes,
    /// Bytes of those that are not resident; `None` without any.
    pub(super) missing_bytes: Option<u64>,
    /// Those of them that no other operation of the queue makes resident, with their numbers.
    pub(super) missing: Vec<(u32, u64)>,
}

/// Reclaim of a list.
#[derive(Serialize, Deserialize)]
pub(crate) struct ReclaimCall {
    pub(super) device: u32,
    /// Of `D3DKMTReclaimAllocations2`.
    pub(super) queue: Option<Handle>,
    /// Handles that the call names.
    pub(super) names: usize,
    pub(super) opens: VecDeque<u32>,
    /// Allocations whose offers have ended and that are still to be looked at.
    pub(super) reclaimed: BTreeSet<u32>,
    pub(super) missing: Vec<(u32, u64)>,
}

impl ResidencyCall {
    pub(super) fn new(kind: Kind, list: Vec<Handle>) -> Result<Self, Refusal> {
        let most = limits::MAKE_RESIDENT_ALLOCATIONS_MAX;
        if list.is_empty() || list.len() > most {
            return invalid(format!("a list has 1 to {most} allocations, not {}", list.len()));
        }
        Ok(ResidencyCall {
            kind,
            list,
            part: Part::Name(0),
            counts: BTreeMap::new(),
            allocations: BTreeSet::new(),
            more: GroupBytes::default(),
            missing_bytes: None,
            missing: Vec::new(),
        })
    }

    /// The first open behind this one, and how often it is named.
    pub(super) fn count_behind(&self, open: Option<u32>) -> Option<(u32, u32)> {
        let mut behind = self.counts.range((open.map_or(Unbounded, Excluded), Unbounded));
        behind.next().map(|(open, times)| (*open, *times))
    }
}
