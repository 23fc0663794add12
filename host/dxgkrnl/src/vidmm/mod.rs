//! VidMm: allocations, GPU address spaces, and the queues in which they change.
//!
//! State: `allocation.rs`, `vaspace.rs`, `open_pages.rs`, `address.rs` (changes of address spaces), `paging.rs`,
//! `long_call.rs`, `after_work.rs` (what waits for queued work).
//! Behaviour: the calls of each, `create_calls.rs` (creation of allocations), `growth.rs`, `residency.rs`,
//! `residency_calls.rs`, `offer.rs`, `marks.rs` (what waits for work), `lock.rs`, `ring.rs` (buffers of user-mode submission),
//! `fault_reason.rs` (notes of page faults).

pub(crate) mod address;
mod address_calls;
mod after_work;
pub(crate) mod allocation;
mod allocation_calls;
mod create_calls;
mod dma_operations;
mod fault_reason;
mod growth;
pub(crate) mod lock;
mod long_call;
mod marks;
pub(crate) mod offer;
mod open_pages;
pub(crate) mod paging;
mod paging_calls;
pub(crate) mod residency;
mod residency_calls;
pub(crate) mod ring;
pub(crate) mod vaspace;

use alloc::collections::{BTreeMap, BTreeSet};

pub(crate) use address::AllocationPages;
use after_work::AfterWork;
use allocation::{Memory, Resource};
pub(crate) use long_call::{LongCall, QueuePosition, RestOfCall};
pub(crate) use paging::DrainedQueue;
use paging::PagingQueue;
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::slab::Slab;

/// The memory manager's tables.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct VidMm {
    memory: Memory,
    paging_queues: Slab<PagingQueue>,
    paging_queues_created: u64,
    /// Contexts in which address spaces are updated, by the context they go with.
    paging_contexts: BTreeMap<u32, u32>,
    /// Adapters whose engines may have staging buffers: see `dma_operations.rs`.
    staged: BTreeSet<u32>,
    /// Opens of allocations that are offered: see `offer.rs`.
    offered: BTreeSet<u32>,
    after_work: AfterWork,
    /// Opens of the kernel's own, by allocation and process: see `ring.rs`.
    held: BTreeSet<(u32, ProcessId, u32)>,
    /// What the present call leaves for later steps.
    #[serde(skip)]
    rest_of_call: Option<RestOfCall>,
}

impl VidMm {
    /// The allocations of which the kernel has an open of its own for this process, once for each open.
    pub fn held_by(&self, process: ProcessId) -> impl Iterator<Item = u32> {
        self.held.iter().filter(move |(_, of, _)| *of == process).map(|(allocation, ..)| *allocation)
    }

    /// See [`Slab::shorten`].
    pub fn shorten(&mut self, most: usize) -> usize {
        let memory = &mut self.memory;
        self.paging_queues.shorten(most)
            + memory.allocations.shorten(most)
            + memory.allocation_opens.shorten(most)
            + memory.resources.shorten(most)
            + memory.resource_opens.shorten(most)
    }

    pub fn begin_step(&mut self) {
        self.memory.shared_ended.clear();
    }

    pub fn resource_mut(&mut self, resource: u32) -> &mut Resource {
        &mut self.memory.resources[resource]
    }

    /// Marks an adapter whose engines may have staging buffers.
    pub fn mark_staged(&mut self, adapter: u32) {
        self.staged.insert(adapter);
    }

    /// Removes the mark of an adapter; true if its engines may have had staging buffers.
    pub fn take_staged(&mut self, adapter: u32) -> bool {
        self.staged.remove(&adapter)
    }

    #[inline]
    pub fn paging_queues(&self) -> &Slab<PagingQueue> {
        &self.paging_queues
    }

    /// Bytes that a process is charged for outstanding operations of its paging queues, beside their packets.
    pub fn pending_bytes(&self, process: ProcessId) -> usize {
        let queues = self.paging_queues.iter().filter(|(_, queue)| queue.process == process);
        queues.flat_map(|(_, queue)| &queue.pending).map(|(_, pending)| pending.weight()).sum()
    }

    #[inline]
    pub fn after_work(&self) -> &AfterWork {
        &self.after_work
    }

    /// Opens of allocations that are offered.
    pub fn offered(&self) -> &BTreeSet<u32> {
        &self.offered
    }

    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    #[inline]
    pub fn paging_contexts(&self) -> &BTreeMap<u32, u32> {
        &self.paging_contexts
    }
}
