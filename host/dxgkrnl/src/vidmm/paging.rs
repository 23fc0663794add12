//! Paging queues: what they hold, and when it takes effect. `address.rs` and `residency.rs` have the calls on them.
//!
//! ```text
//!   a call on a paging queue ──▶ BuildPagingBuffer ──▶ nothing to build: done at once, value 0 (FEN-089)
//!                                    │ a DMA buffer
//!                                SignalMonitoredFence: the driver appends the write of the operation's value to
//!                                    │                 the queue's fence (FEN-094)
//!                                the paging engine runs it: the write, then DMA_COMPLETED
//! ```
//! Each operation that is not done at once answers PENDING with a value of its own, one more than the last (FEN-090).
//! An operation of many pages or allocations takes effect over several steps, and the engine's write of its value to the
//! fence then comes with the last of them.
//!
//! The fence is a monitored fence like others: waited for by CPU and GPU. Only the paging engine signals it, so its
//! open has NoSignal; it goes with its queue (FEN-091), and not before.
//!
//! VidMm's own record of an address space and of what is resident changes with the call; what engines see of it -
//! pages, allocations, the mapping of an opened fence (FEN-062) - when the paging buffer has run. The call that destroys a
//! queue waits for what is queued to it (`vidsch/context_end.rs`). A queue that ends otherwise is drained: what it had
//! outstanding takes effect at once, each page and allocation once.
//!
//! A paging queue is a queue of packets with a context of its own, of the system, on the paging engine of the adapter.
//! That engine runs one paging buffer at a time, from the queue of the highest priority that has one (FEN-092);
//! equals take turns. *Paging contexts*, one for each context with UpdateGpuVirtualAddress, come last. The wait, the
//! update and the signal are their packets, so that the context itself continues meanwhile (FEN-093). The driver
//! decides how long a paging buffer takes; one that hangs leads to an adapter reset (TDR-014).

use alloc::collections::{BTreeSet, VecDeque};

use d3dkmt::Handle;
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::vidmm::address::PageChange;

#[derive(Serialize, Deserialize)]
pub(crate) struct PagingQueue {
    pub process: ProcessId,
    pub handle: Handle,
    pub device: u32,
    /// `D3DDDI_PAGINGQUEUE_PRIORITY`.
    pub priority: i32,
    /// Number in the order of creation.
    pub number: u64,
    /// The system's context with its packets.
    pub context: u32,
    pub fence: Handle,
    pub fence_slot: u32,
    /// The value of the operation that was begun last.
    pub last_value: u64,
    /// Changes that take effect when the fence has the value of their operation.
    pub pending: VecDeque<(u64, Pending)>,
    /// Values that the engine wrote to the fence while the operations up to them take effect. The fence gets them one by
    /// one.
    pub reached: VecDeque<u64>,
    /// Allocations of which one of them makes resident, with their numbers. A later one need not name them again.
    pub becoming_resident: BTreeSet<(u32, u64)>,
}

/// A change that engines see when a paging buffer has run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Pending {
    Fence(MappedFence),
    Pages(PageChange),
    Resident(BecomingResident),
}

/// Allocations that become resident.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BecomingResident {
    /// With their numbers: see [`crate::vidmm::allocation::Allocation`].
    pub allocations: VecDeque<(u32, u64)>,
    /// How often the adapter had been reset when they were named: see the same.
    pub resets: u64,
}

impl Pending {
    /// Bytes that are charged for it, beside its packet.
    pub fn weight(&self) -> usize {
        /// The list's entry, and that of [`PagingQueue::becoming_resident`].
        const ALLOCATION_BYTES: usize = 48;
        const ENTRY_BYTES: usize = 64;
        ENTRY_BYTES
            + match self {
                Pending::Fence(_) | Pending::Pages(_) => 0,
                Pending::Resident(BecomingResident { allocations, .. }) => {
                    allocations.len() * ALLOCATION_BYTES
                }
            }
    }
}

/// Operations of a destroyed paging queue that take effect, with what their process is charged for.
#[derive(Serialize, Deserialize)]
pub(crate) struct DrainedQueue {
    pub adapter: u32,
    pub pending: VecDeque<Pending>,
}

/// An open of a fence whose mapping is pending. Its handle shows whether the index was reused meanwhile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MappedFence {
    pub open: u32,
    pub handle: Handle,
}
