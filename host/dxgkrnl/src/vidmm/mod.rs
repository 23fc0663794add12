//! VidMm: allocations, GPU address spaces, and the queues in which they change.
//!
//! State: `allocation.rs`, `vaspace.rs`, `address.rs` (changes of address spaces), `paging.rs`. Behaviour: the calls of
//! each, `residency.rs`, `lock.rs`, `ring.rs` (buffers of user-mode submission).

pub(crate) mod address;
mod address_calls;
pub(crate) mod allocation;
mod allocation_calls;
pub(crate) mod lock;
pub(crate) mod paging;
mod paging_calls;
pub(crate) mod residency;
pub(crate) mod ring;
pub(crate) mod vaspace;

use alloc::collections::{BTreeMap, BTreeSet};

use allocation::Memory;
use paging::PagingQueue;
use serde::{Deserialize, Serialize};

use crate::slab::Slab;

/// The memory manager's tables.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct VidMm {
    pub(crate) memory: Memory,
    pub(crate) paging_queues: Slab<PagingQueue>,
    pub(crate) paging_queues_created: u64,
    /// Contexts in which address spaces are updated, by the context they go with.
    pub(crate) paging_contexts: BTreeMap<u32, u32>,
    /// Adapters whose engines may have shadows: see `moves/`.
    pub(crate) shadowed: BTreeSet<u32>,
}
