//! Allocations, and the resources that hold them together.
//!
//! ```text
//!   CreateAllocation ───────────────▶ allocation ◀── open ── handle of one process, on one device
//!       CreateResource: a resource ──▶ resource  ◀── open ── handle, with the opens of its allocations
//!       CreateShared: a global handle ──QueryResourceInfo, OpenResource──▶ more opens, on other devices and
//!                                                                          in other processes of the VM
//! ```
//! An allocation lives while it has an open, or its resource an NT handle. The open of a resource takes the opens of
//! its allocations with it (W-259); an allocation that is destroyed by itself leaves its resource (W-257). All are
//! children of their device. A global handle ends with the last open of its resource; what has NT handles lives as long
//! as those (`sharing/`).
//!
//! User mode makes *standard* allocations of its own memory, "existing heap": StandardAllocation and ExistingSysMem,
//! one allocation, whole pages (W-252, W-253). Their content is the process's memory itself. Others have private driver
//! data: the driver decides what they are (`create_calls.rs`).
//!
//! Memory of the device is pages that the creator's broker makes. The kernel gives it an address that no memory of a
//! process has; the creator's library attaches the pages there, and maps them wherever it likes. In a shared resource
//! it keeps this name, and its broker the pages, until the allocation ends, also when the creator is gone: who has it
//! open may lock it, and its engines find it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use d3dkmt::{Handle, limits};
use serde::{Deserialize, Serialize};

use crate::ddi::{AllocationId, LocalAllocationId, ResourceId, SegmentGroup};
use crate::slab::Slab;
use crate::{ProcessId, VmId};

#[derive(Serialize, Deserialize)]
pub(crate) struct Allocation {
    /// The process that created it, and whose memory it is.
    pub owner: ProcessId,
    /// `pSystemMem`, or the address that the kernel gave to memory of the device. Both are addresses of the owner.
    pub address: u64,
    pub size: u64,
    /// Unique among all allocations, gone ones included.
    pub number: u64,
    /// The resource that it was created with.
    pub resource: Option<u32>,
    pub opens: BTreeSet<u32>,
    /// How many of them their processes have destroyed: see `after_work.rs`.
    pub condemned: usize,
    /// How many opens of a process want it resident; none has no entry. See `residency.rs`.
    pub wanting: BTreeMap<ProcessId, u32>,
    /// The adapter whose memory it is in.
    pub adapter: u32,
    /// How often the adapter had been reset when the operation began that made it resident: engines can access it where it
    /// is mapped, unless a reset has lost it since. `None`: it is not resident. See `residency.rs`.
    pub resident: Option<u64>,
    /// `D3DDDI_ALLOCATIONPRIORITY`.
    pub priority: u32,
    /// Of an allocation with private driver data.
    pub driver: Option<Box<DriverAllocation>>,
    /// Of memory of the device in a shared resource: the VM whose processes may open it.
    pub shared_in: Option<VmId>,
}

impl Allocation {
    /// `hAllocation` of the driver.
    pub fn id(&self) -> AllocationId {
        AllocationId(self.number)
    }

    /// Whether it is memory of the device, which the owner's library attaches at an address of the kernel's choice.
    pub fn is_device_memory(&self) -> bool {
        self.address >= limits::DEVICE_MEMORY_START
    }

    /// Whether engines and the CPU may access it although its owner is gone.
    pub fn outlives_owner(&self) -> bool {
        self.shared_in.is_some()
    }

    /// Whether a process may have it in its address space.
    pub fn is_cpu_visible(&self) -> bool {
        self.driver.as_ref().is_none_or(|driver| driver.cpu_visible)
    }

    /// Counts one open of a process more, or less, that wants it resident.
    pub(super) fn count_wanting(&mut self, process: ProcessId, wants: bool) {
        let count = self.wanting.entry(process).or_default();
        match wants {
            true => *count += 1,
            false => *count -= 1,
        }
        if *count == 0 {
            self.wanting.remove(&process);
        }
    }

    /// The segment group whose budget it counts against.
    pub fn segment_group(&self) -> SegmentGroup {
        self.driver.as_ref().map_or(SegmentGroup::NonLocal, |driver| driver.segment_group)
    }

    /// Bytes of its private driver data.
    pub fn private_data(&self) -> &[u8] {
        self.driver.as_ref().map_or(&[], |driver| &driver.private_data)
    }
}

/// The driver's part of an allocation.
#[derive(Serialize, Deserialize)]
pub(crate) struct DriverAllocation {
    pub adapter: u32,
    /// As the driver left them at creation.
    pub private_data: Vec<u8>,
    pub alignment: u32,
    pub segment_group: SegmentGroup,
    pub cpu_visible: bool,
    /// Its driver does not know its size: see `growth.rs`.
    pub grows: bool,
}

/// A process's handle to an allocation.
#[derive(Serialize, Deserialize)]
pub(crate) struct AllocationOpen {
    pub process: ProcessId,
    pub handle: Handle,
    pub device: u32,
    pub allocation: u32,
    /// The open of the resource that it goes with.
    pub resource: Option<u32>,
    /// How often it was made resident and not evicted again.
    pub residency: u32,
    pub locks: u32,
    /// The handle that the creation returned.
    pub is_creators: bool,
    /// The driver's open.
    pub local: Option<LocalAllocationId>,
}

impl AllocationOpen {
    /// An open without a handle, that its driver does not know.
    pub fn new(process: ProcessId, device: u32, allocation: u32) -> Self {
        AllocationOpen {
            process,
            handle: Handle::NULL,
            device,
            allocation,
            resource: None,
            residency: 0,
            locks: 0,
            is_creators: false,
            local: None,
        }
    }
}

/// The arrival of what is dead although its adapter is there: a resource whose adapter was removed from the only VM that
/// had it, an open of an object whose adapter was removed from the VM.
pub(crate) const NO_ARRIVAL: u32 = u32::MAX;

#[derive(Serialize, Deserialize)]
pub(crate) struct Resource {
    pub vm: VmId,
    pub adapter: u32,
    /// The start of the adapter that it was created in, or [`NO_ARRIVAL`].
    pub arrival: u32,
    pub global: Option<Handle>,
    pub runtime_data: Vec<u8>,
    /// Of a resource with private driver data: the driver's number, and the data of its creation.
    pub driver: Option<(ResourceId, Vec<u8>)>,
    pub allocations: Vec<u32>,
    pub opens: usize,
    /// How many of them their processes have destroyed: see `after_work.rs`.
    pub condemned: usize,
    /// NT handles of it: see `sharing/`.
    pub shares: usize,
    /// Created with CreateShared and NtSecuritySharing.
    pub nt_shared: bool,
}

/// A process's handle to a resource.
#[derive(Serialize, Deserialize)]
pub(crate) struct ResourceOpen {
    pub process: ProcessId,
    pub handle: Handle,
    pub device: u32,
    pub resource: u32,
    /// Opens of its allocations that are left.
    pub allocations: BTreeSet<Handle>,
}

/// All allocations and resources, and their opens.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub allocations: Slab<Allocation>,
    pub allocation_opens: Slab<AllocationOpen>,
    pub resources: Slab<Resource>,
    pub resource_opens: Slab<ResourceOpen>,
    /// Allocations by the process that created them.
    pub(super) owned: BTreeSet<(ProcessId, u32)>,
    /// Those in processes' own memory, which may overlap: the process, the size, and the first address there.
    heaps: BySize,
    /// Memory of the device in shared resources, by its name.
    pub(super) shared: BTreeMap<(ProcessId, u64), u32>,
    /// Memory of the device that its process has destroyed and that queued work may still use, by its name.
    pub(super) kept: BTreeMap<(ProcessId, u64), u32>,
    /// Memory of processes whose creator has destroyed its handle, while another handle or queued work may use it: the
    /// process, the size, the first address there, and which allocation it is.
    pub(super) without_creator: BySize,
    /// Bytes of shared memory of the device in each VM.
    pub(super) shared_bytes: BTreeMap<VmId, u64>,
    /// Shared and kept memory that this step has ended: its name and size.
    #[serde(skip)]
    pub shared_ended: Vec<(ProcessId, u64, u64)>,
    pub(super) allocations_made: u64,
    /// Numbers of resources and opens for drivers.
    pub(super) driver_ids: u64,
}

/// Allocations by process, size, first address and index.
type BySize = BTreeSet<(ProcessId, u64, u64, u32)>;

/// Sizes that one look at a process's allocations considers.
const SIZES_MAX: usize = 128;

/// The sizes of a process's allocations, the greatest first, up to a limit.
fn sizes(of: &BySize, owner: ProcessId) -> impl Iterator<Item = u64> {
    let mut below = u64::MAX;
    let smaller = move || {
        let &(_, size, ..) = of.range((owner, 0, 0, 0)..(owner, below, 0, 0)).next_back()?;
        below = size;
        Some(size)
    };
    core::iter::from_fn(smaller).take(SIZES_MAX)
}

impl Memory {
    pub(super) fn insert(&mut self, allocation: Allocation) -> u32 {
        let Allocation { owner, address, size, shared_in, .. } = allocation;
        let is_heap = !allocation.is_device_memory();
        let index = self.allocations.insert(allocation);
        self.owned.insert((owner, index));
        if is_heap {
            self.heaps.insert((owner, size, address, index));
        }
        if let Some(vm) = shared_in {
            self.shared.insert((owner, address), index);
            *self.shared_bytes.entry(vm).or_default() += size;
        }
        index
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Allocation> {
        self.stop_sharing(index);
        let allocation = self.allocations.remove(index)?;
        let Allocation { owner, address, size, .. } = allocation;
        self.owned.remove(&(owner, index));
        self.heaps.remove(&(owner, size, address, index));
        self.without_creator.remove(&(owner, size, address, index));
        if self.kept.remove(&(owner, address)).is_some() {
            self.shared_ended.push((owner, address, size));
        }
        Some(allocation)
    }

    /// Makes shared memory, which nobody can open any more, memory that is only kept.
    pub(super) fn stop_sharing(&mut self, index: u32) {
        let Some(Allocation { owner, address, size, shared_in, .. }) = self.allocations.get(index) else {
            return;
        };
        let (owner, address, size, shared_in) = (*owner, *address, *size, *shared_in);
        let Some(vm) = shared_in.filter(|_| self.shared.remove(&(owner, address)).is_some()) else { return };
        self.kept.insert((owner, address), index);
        if let Some(bytes) = self.shared_bytes.get_mut(&vm) {
            *bytes -= size;
        }
        self.shared_bytes.retain(|_, bytes| *bytes > 0);
    }

    /// The shared memory of the device that has this address of a process, present or gone.
    pub fn shared_at(&self, owner: ProcessId, address: u64) -> Option<&Allocation> {
        self.named_in(&self.shared, owner, address)
    }

    /// The same for memory that its process has destroyed.
    pub fn kept_at(&self, owner: ProcessId, address: u64) -> Option<&Allocation> {
        self.named_in(&self.kept, owner, address)
    }

    /// Whether memory at an address of a process stays although the process is gone: who has it open may use it.
    pub fn outlives_owner(&self, owner: ProcessId, address: u64) -> bool {
        let kept = || self.kept_at(owner, address).filter(|kept| kept.outlives_owner());
        self.shared_at(owner, address).or_else(kept).is_some()
    }

    fn named_in(
        &self,
        names: &BTreeMap<(ProcessId, u64), u32>,
        owner: ProcessId,
        address: u64,
    ) -> Option<&Allocation> {
        let ((of, start), index) = names.range(..=(owner, address)).next_back()?;
        let allocation = &self.allocations[*index];
        (*of == owner && address - start < allocation.size).then_some(allocation)
    }

    /// Keeps the pages of memory that its process has destroyed until it ends. What is shared is kept anyway, and the
    /// process's own memory is its own.
    pub(super) fn keep(&mut self, index: u32) {
        let Allocation { owner, address, shared_in, .. } = self.allocations[index];
        if self.allocations[index].is_device_memory() && shared_in.is_none() {
            self.kept.insert((owner, address), index);
        }
    }

    /// The creator's handle of an allocation is destroyed. Its memory, if it is the process's own, stays attached as long
    /// as the allocation lives.
    pub(super) fn creator_leaves(&mut self, index: u32) {
        let Some(allocation) = self.allocations.get(index) else { return };
        if !allocation.is_device_memory() {
            self.without_creator.insert((allocation.owner, allocation.size, allocation.address, index));
        }
    }

    /// Whether an allocation that its creator has destroyed has memory of the process in this range. Looks at one allocation
    /// of each size. With more sizes than these the answer is yes, and a detach may wait for an allocation elsewhere.
    pub fn is_used_without_creator(&self, owner: ProcessId, range: Range<u64>) -> bool {
        if range.start >= limits::DEVICE_MEMORY_START {
            return false;
        }
        let mut left = SIZES_MAX;
        for size in sizes(&self.without_creator, owner) {
            // Of one size, the last one that begins before the range's end also ends last.
            let of_size = (owner, size, 0, 0)..(owner, size, range.end, 0);
            let last = self.without_creator.range(of_size).next_back();
            if last.is_some_and(|(_, _, address, _)| address.saturating_add(size) > range.start) {
                return true;
            }
            left -= 1;
        }
        left == 0
    }

    /// The parts of a range of a process's memory that no allocation has. Looks at so many sizes of allocations, and at so many
    /// allocations in the range: parts of others count as of none.
    pub fn without_allocation(&self, owner: ProcessId, range: Range<u64>) -> Vec<Range<u64>> {
        const ALLOCATIONS_MAX: usize = 64;
        let mut covered = Vec::new();
        for size in sizes(&self.heaps, owner) {
            let first = (range.start + 1).saturating_sub(size);
            let of_size = self.heaps.range((owner, size, first, 0)..(owner, size, range.end.max(first), 0));
            let ranges = of_size.map(|(_, _, address, _)| *address..address.saturating_add(size));
            covered.extend(ranges.take(ALLOCATIONS_MAX - covered.len()));
        }
        covered.sort_unstable_by_key(|covered| covered.start);
        let mut parts = Vec::new();
        let mut at = range.start;
        for Range { start, end } in covered {
            if start > at {
                parts.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            parts.push(at..range.end);
        }
        parts
    }

    /// Whether shared memory of a process begins in a range of addresses.
    pub fn shared_begins_in(&self, owner: ProcessId, range: Range<u64>) -> bool {
        self.shared.range((owner, range.start)..(owner, range.end)).next().is_some()
    }

    /// Whether the counts of shared memory of the device are those of the allocations.
    pub(super) fn shared_is_miscounted(&self) -> bool {
        let mut bytes = BTreeMap::new();
        let mut named = BTreeMap::new();
        for (index, one) in self.allocations.iter() {
            let is_kept = self.kept.contains_key(&(one.owner, one.address));
            if let Some(vm) = one.shared_in.filter(|_| !is_kept) {
                *bytes.entry(vm).or_default() += one.size;
                named.insert((one.owner, one.address), index);
            }
        }
        bytes != self.shared_bytes || named != self.shared
    }

    /// Whether memory without its creator's handle is of no allocation.
    pub(super) fn without_creator_is_miscounted(&self) -> bool {
        self.without_creator.iter().any(|(owner, size, address, index)| {
            let allocation = self.allocations.get(*index);
            allocation.is_none_or(|one| (one.owner, one.size, one.address) != (*owner, *size, *address))
        })
    }

    /// A number that names no other resource or open at a driver.
    pub(super) fn next_driver_id(&mut self) -> u64 {
        self.driver_ids += 1;
        self.driver_ids
    }

    /// Bytes of the private driver data of a resource and its allocations together.
    pub fn private_data_bytes(&self, resource: &Resource) -> usize {
        let own = resource.driver.as_ref().map_or(0, |(_, data)| data.len());
        let of = |allocation: &u32| self.allocations[*allocation].private_data().len();
        own + resource.allocations.iter().map(of).sum::<usize>()
    }

    /// Number of resources with a global handle.
    pub fn globals(&self) -> usize {
        self.resources.iter().filter(|(_, resource)| resource.global.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: ProcessId = ProcessId(1);
    const PAGE: u64 = 4096;

    /// Memory of a process of which other processes have these pages: address and size of each allocation.
    fn without_creator(pages: impl Iterator<Item = (u64, u64)>) -> Memory {
        let mut memory = Memory::default();
        for (number, (address, size)) in (1..).zip(pages) {
            let index = memory.insert(Allocation {
                owner: OWNER,
                address,
                size,
                number,
                resource: None,
                opens: BTreeSet::new(),
                condemned: 0,
                wanting: BTreeMap::new(),
                adapter: 0,
                resident: None,
                priority: 0,
                driver: None,
                shared_in: None,
            });
            memory.creator_leaves(index);
        }
        memory
    }

    #[test]
    fn parts_without_an_allocation_are_what_none_of_several_covers() {
        let pages = [(2, 1), (4, 2), (5, 3), (20, 1), (1 << 20, 9)];
        let memory = without_creator(pages.into_iter().map(|(page, pages)| (page * PAGE, pages * PAGE)));
        let parts = |first: u64, end: u64| {
            let parts = memory.without_allocation(OWNER, first * PAGE..end * PAGE);
            parts.into_iter().map(|part| (part.start / PAGE, part.end / PAGE)).collect::<Vec<_>>()
        };
        assert_eq!(parts(0, 10), [(0, 2), (3, 4), (8, 10)]);
        assert_eq!((parts(5, 8), parts(2, 3), parts(7, 9)), ([].to_vec(), [].to_vec(), [(8, 9)].to_vec()));
        assert_eq!(parts(8, 20), [(8, 20)]);
        let of_another_process = memory.without_allocation(ProcessId(2), 0..PAGE);
        assert_eq!(of_another_process.iter().collect::<Vec<_>>(), [&(0..PAGE)]);
    }

    /// A compositor may have thousands of buffers of a process.
    #[test]
    fn memory_is_in_use_only_where_an_allocation_has_some_however_many_are_elsewhere() {
        const COUNT: u64 = 5000;
        let size_of = |number: u64| PAGE << (number % 5);
        let memory = without_creator((0..COUNT).map(|number| (number << 20, size_of(number))));
        let is_used = |pages: Range<u64>| memory.is_used_without_creator(OWNER, pages);
        let behind = COUNT << 20;
        assert!(!is_used(behind..behind + PAGE));
        assert!(!memory.is_used_without_creator(ProcessId(2), 0..behind));
        for number in [0, 1, 777, COUNT - 1] {
            let (start, end) = (number << 20, (number << 20) + size_of(number));
            assert!(is_used(start..start + 1) && is_used(end - 1..end) && is_used(start..end + PAGE));
            assert!(!is_used(end..end + PAGE) && !is_used(end..end + PAGE * 100));
        }
        let many_sizes = without_creator((1..=COUNT).map(|size| (PAGE, PAGE * size)));
        assert!(many_sizes.is_used_without_creator(OWNER, 0..PAGE), "it does not look at all");
        let device = limits::DEVICE_MEMORY_START;
        assert!(!many_sizes.is_used_without_creator(OWNER, device..device + PAGE));
        assert!(many_sizes.is_used_without_creator(OWNER, PAGE * COUNT..PAGE * (COUNT + 1)));
    }
}
