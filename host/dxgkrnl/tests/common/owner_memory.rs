//! GPU memory of a process that owns much of it: opens, mappings and operations of paging queues.
#![allow(dead_code)]

use d3dkmt::allocation_data::{AllocationData, SEGMENT_LOCAL};
use d3dkmt::gpu_va::DO_NOT_WAIT;
use d3dkmt::gpu_va::operation::{COPY, MAP};
use d3dkmt::gpu_va::protection::{NO_ACCESS, WRITE, ZERO};
use d3dkmt::limits::{ALLOCATIONS_PER_CALL_MAX, MAKE_RESIDENT_ALLOCATIONS_MAX};
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags as F, GpuVaOperation, Handle, NtStatus,
    Reply, ResourceInfo, StandardAllocation, calls,
};
use dxgkrnl::ddi::PageFaultFlags;
use dxgkrnl::{Effects, EngineId, Fault, Input, ProcessId, VmId};

use crate::owner::{Owner, World};

const PAGE: u64 = 4096;
/// Where the pieces are.
const BASE: u64 = 0x10_0000_0000;
/// A range as large as [`BASE`]'s.
const TARGET: u64 = 0x20_0000_0000;
/// As many as an address space may have.
const PIECES: u64 = 4080;

/// Maps the pages of a range one by one, each to the same page of an allocation.
fn map_alone(allocation: Handle, base: u64, pieces: u64) -> GpuVaOperation {
    GpuVaOperation {
        operation: MAP,
        base,
        size: pieces * PAGE,
        allocation,
        allocation_size: PAGE,
        ..GpuVaOperation::default()
    }
}

impl Owner {
    /// Lets time pass in which the paging engine runs.
    fn run(&mut self) {
        while let Some(due) = self.world.kernel.next_deadline() {
            self.world.kernel.handle(due, Input::Deadline, &mut Effects::default());
        }
    }

    fn new_allocation(&mut self, flags: F) -> (Handle, Handle) {
        self.new_allocation_of(flags, PAGE)
    }

    fn new_allocation_of(&mut self, flags: F, size: u64) -> (Handle, Handle) {
        let create = CreateAllocation {
            device: self.device,
            flags: flags | F::EXISTING_SYS_MEM | F::STANDARD_ALLOCATION,
            standard: Some(StandardAllocation {
                kind: StandardAllocation::EXISTING_HEAP,
                size,
                ..StandardAllocation::default()
            }),
            allocations: vec![AllocationInfo {
                system_memory: 0x7F00_0000_0000,
                ..AllocationInfo::default()
            }],
            ..CreateAllocation::default()
        };
        match self.ok(Call::CreateAllocation { create: Box::new(create) }) {
            Reply::Allocations { shared_handle, allocations, .. } => (shared_handle, allocations[0]),
            other => panic!("{other:?}"),
        }
    }

    fn new_paging_queue(&mut self) -> Handle {
        let create = calls::create_paging_queue(self.device);
        let Reply::PagingQueue { queue, .. } = self.ok(create) else { panic!("no paging queue") };
        queue
    }

    fn reserve(&mut self, base: u64) {
        let (owner, size) = (self.adapter, (PIECES * PAGE).next_multiple_of(0x1_0000));
        self.ok(Call::ReserveGpuVirtualAddress { owner, base, minimum: 0, maximum: 0, size });
    }

    fn update(&mut self, operations: Vec<GpuVaOperation>, flags: u32) {
        let (device, context, fence) = (self.device, self.context, self.fence);
        self.ok(Call::UpdateGpuVirtualAddress { device, context, fence, fence_value: 0, operations, flags });
    }

    /// Maps the pages of a range one by one, by one operation.
    fn pieces(&mut self, base: u64, pieces: u64) {
        let (_, allocation) = self.new_allocation(F::empty());
        self.update(vec![map_alone(allocation, base, pieces)], DO_NOT_WAIT);
        self.run();
    }

    /// Queues with work, and allocations, in `objects`.
    pub fn behind_many_queues(&mut self, count: u32) {
        self.queue_waits(count);
        for _ in 0..1000 {
            let (_, allocation) = self.new_allocation(F::empty());
            self.objects.push(allocation);
        }
    }

    /// Opens of one shared allocation, in `objects`.
    pub fn opens(&mut self, count: u32) {
        let (shared, _) = self.new_allocation(F::CREATE_RESOURCE | F::CREATE_SHARED);
        let (device, info) = (self.device, ResourceInfo { allocations: 1, ..ResourceInfo::default() });
        for _ in 0..count {
            match self.ok(Call::OpenResource { device, shared_handle: shared, info }) {
                Reply::OpenedResource { allocations, .. } => self.objects.push(allocations[0]),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Resident allocations in `objects`, none of them mapped, beside an address space of many pieces.
    pub fn resident(&mut self, count: u32) {
        self.reserve(BASE);
        self.pieces(BASE, PIECES);
        for _ in 0..count {
            let (_, allocation) = self.new_allocation(F::empty());
            self.objects.push(allocation);
        }
        let paging_queue = self.new_paging_queue();
        for allocations in self.objects.clone().chunks(MAKE_RESIDENT_ALLOCATIONS_MAX) {
            let allocations = allocations.to_vec();
            self.ok(Call::MakeResident { paging_queue, allocations, priorities: Vec::new(), flags: 0 });
        }
        self.run();
    }

    /// Resident memory of the device in LOCAL, half of it in resources. The page fault of the next buffer resets the
    /// adapter.
    pub fn in_local(&mut self, count: u32) {
        let data = AllocationData { size: PAGE, segment: SEGMENT_LOCAL, ..AllocationData::default() };
        let info = AllocationInfo { private_data: data.encode().to_vec(), ..AllocationInfo::default() };
        let paging_queue = self.new_paging_queue();
        for (number, from) in (0..count).step_by(ALLOCATIONS_PER_CALL_MAX).enumerate() {
            let flags = if number % 2 == 0 { F::CREATE_RESOURCE } else { F::empty() };
            let here = ALLOCATIONS_PER_CALL_MAX.min((count - from) as usize);
            let create = CreateAllocation {
                device: self.device,
                flags,
                allocations: vec![info.clone(); here],
                ..CreateAllocation::default()
            };
            let made = self.ok(Call::CreateAllocation { create: Box::new(create) });
            let Reply::Allocations { allocations, .. } = made else { panic!("{made:?}") };
            self.ok(Call::MakeResident { paging_queue, allocations, priorities: Vec::new(), flags: 0 });
        }
        self.run();
        let engine = EngineId { adapter: 0, node: 0 };
        let flags = PageFaultFlags::ADAPTER_RESET_REQUIRED.bits();
        let fault = Input::Fault(Fault::PageFault { engine, gpu_address: 0xF000, flags });
        self.world.kernel.handle(self.now, fault, &mut Effects::default());
    }

    /// As `resident`, with a paging queue in `queue`, and none of them resident any more.
    pub fn evicted(&mut self, count: u32) {
        self.resident(count);
        for allocations in self.objects.clone().chunks(MAKE_RESIDENT_ALLOCATIONS_MAX) {
            let (device, allocations) = (self.device, allocations.to_vec());
            self.ok(Call::Evict { device, allocations, flags: 0 });
        }
        self.queue = self.new_paging_queue();
        self.finish();
    }

    /// Allocations that a paging buffer is about to make resident, at `now`.
    pub fn becoming_resident(&mut self, count: u32) {
        self.evicted(count);
        let (paging_queue, allocations) = (self.queue, self.objects.clone());
        self.ok(Call::MakeResident { paging_queue, allocations, priorities: Vec::new(), flags: 0 });
        self.finish();
        self.now = self.world.kernel.next_deadline().expect("a paging buffer runs");
    }

    /// Does what steps have left.
    fn finish(&mut self) {
        self.world.kernel.finish_backlog(&mut Effects::default());
    }

    /// An allocation in `objects` that is resident, and that this process and others have mapped in twice as
    /// many pieces together.
    pub fn mapped_by_many(&mut self, count: u32) {
        const EACH: u64 = 1000;
        let (shared, allocation) = self.new_allocation(F::CREATE_RESOURCE | F::CREATE_SHARED);
        self.objects.push(allocation);
        self.map_pieces(allocation, EACH);
        let paging_queue = self.new_paging_queue();
        let allocations = vec![allocation];
        self.ok(Call::MakeResident { paging_queue, allocations, priorities: Vec::new(), flags: 0 });
        self.run();
        for other in 1..(2 * u64::from(count)).div_ceil(EACH) {
            let (process, name) = (ProcessId(100 + other as u32), "other".to_owned());
            let attached = Input::ProcessAttached { process, vm: VmId(1), pid: 100, name };
            let memory = Input::FenceMemoryAdded { process, slots: 64 };
            for input in [attached, memory] {
                self.world.kernel.handle(self.now, input, &mut Effects::default());
            }
            let world = std::mem::replace(&mut self.world, World::new());
            let mut other = Owner::of(world, process);
            other.now = self.now;
            other.open_and_map(shared, EACH);
            self.world = other.world;
        }
    }

    fn open_and_map(&mut self, shared_handle: Handle, pieces: u64) {
        let (device, info) = (self.device, ResourceInfo { allocations: 1, ..ResourceInfo::default() });
        let Reply::OpenedResource { allocations, .. } =
            self.ok(Call::OpenResource { device, shared_handle, info })
        else {
            panic!("not opened")
        };
        self.map_pieces(allocations[0], pieces);
    }

    fn map_pieces(&mut self, allocation: Handle, pieces: u64) {
        self.reserve(BASE);
        self.update(vec![map_alone(allocation, BASE, pieces)], DO_NOT_WAIT);
        self.run();
    }

    /// Allocations in `objects`, as many as one call may name, each mapped in some pieces.
    pub fn mapped(&mut self, count: u32) {
        let allocations = u64::from(count).min(ALLOCATIONS_PER_CALL_MAX as u64);
        let pieces = PIECES / allocations;
        self.reserve(BASE);
        for at in 0..allocations {
            let (_, allocation) = self.new_allocation(F::empty());
            self.objects.push(allocation);
            let base = BASE + at * pieces * PAGE;
            self.update(vec![map_alone(allocation, base, pieces)], DO_NOT_WAIT);
        }
        self.run();
    }

    /// Allocations in `objects`, each mapped in some ranges of its own.
    pub fn ranges(&mut self, count: u32) {
        // A range of an allocation has a piece, too.
        const RANGES: u64 = PIECES / 2;
        let allocations = u64::from(count).min(RANGES);
        let paging_queue = self.new_paging_queue();
        for _ in 0..allocations {
            let (_, allocation) = self.new_allocation(F::empty());
            self.objects.push(allocation);
            for _ in 0..RANGES / allocations {
                self.ok(calls::map(paging_queue, 0, allocation, 1, WRITE));
            }
        }
        self.run();
    }

    /// Maps of one range of many pieces, outstanding in a paging queue, which is in `objects`.
    pub fn maps(&mut self, count: u32) {
        self.reserve(BASE);
        let paging_queue = self.new_paging_queue();
        self.objects = vec![paging_queue];
        let map = |base, pages, protection| calls::map(paging_queue, base, Handle::NULL, pages, protection);
        let few = PIECES.min(u64::from(count));
        for at in 0..u64::from(count) - few {
            self.ok(map(BASE, PIECES, if at % 2 == 0 { ZERO } else { NO_ACCESS }));
        }
        self.ok(map(BASE, PIECES, NO_ACCESS));
        for at in 0..few / 2 {
            self.ok(map(BASE + 2 * at * PAGE, 1, ZERO));
        }
    }

    /// An allocation in `objects`, mapped over ranges of 1,000 pieces each, by a queue that the paging engine does not come
    /// to: engines see the pieces still. As many ranges as an address space takes.
    pub fn hidden_pieces(&mut self, count: u32) {
        const EACH: u64 = 1000;
        let device = self.device;
        let [held, busy, first] = [-1, 0, 1].map(|priority| {
            let create = Call::CreatePagingQueue { device, priority, physical_adapter: 0 };
            let Reply::PagingQueue { queue, fence } = self.ok(create) else { panic!("no paging queue") };
            (queue, fence.slot)
        });
        let [(_, below), (_, above)] = [(); 2].map(|()| self.new_allocation_of(F::empty(), EACH * PAGE));
        self.objects.push(above);
        self.reserve(BASE);
        let ranges = u64::from(count) / EACH;
        for at in 0..=ranges {
            self.ok(calls::map(busy.0, BASE, Handle::NULL, 1, if at % 2 == 0 { ZERO } else { NO_ACCESS }));
        }
        let mut value = 0;
        for range in 0..ranges {
            let base = TARGET + range * EACH * PAGE;
            for (base, pages) in
                [(base, EACH)].into_iter().chain((0..EACH / 2).map(|at| (base + 2 * at * PAGE, 1)))
            {
                if !self.try_map(first.0, base, below, pages) {
                    return;
                }
                value += 1;
            }
            self.run_until((first.1, value));
            if !self.try_map(held.0, base, above, EACH) {
                return;
            }
        }
    }

    /// False if the address space has no room.
    fn try_map(&mut self, queue: Handle, base: u64, allocation: Handle, pages: u64) -> bool {
        let input = self.call(calls::map(queue, base, allocation, pages, WRITE));
        let mut effects = Effects::default();
        self.world.kernel.handle(self.now, input, &mut effects);
        let status = effects.answers.pop().expect("a map is answered at once").status;
        assert!([NtStatus::PENDING, NtStatus::NO_MEMORY].contains(&status), "{status:?}");
        status == NtStatus::PENDING
    }

    /// Lets time pass until a slot has this value.
    fn run_until(&mut self, (slot, value): (Option<u32>, u64)) {
        let mut effects = Effects::default();
        while !effects.stores.iter().any(|store| (Some(store.slot), store.value) == (slot, value)) {
            self.now = self.world.kernel.next_deadline().expect("a paging buffer runs");
            self.world.kernel.handle(self.now, Input::Deadline, &mut effects);
        }
    }

    /// One update that copies many pieces again and again. They come after the call. At `now` its last paging buffer is
    /// done, and the pages are to change.
    pub fn copies(&mut self, count: u32) {
        self.reserve(BASE);
        self.reserve(TARGET);
        let size = PIECES * PAGE;
        let copy =
            GpuVaOperation { operation: COPY, base: BASE, size, destination: TARGET, ..Default::default() };
        let fence_value = 1;
        let operations = vec![copy; count.min(256) as usize];
        let (device, context, fence) = (self.device, self.context, self.fence);
        self.ok(Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags: 0 });
        // The pieces go by another context, ahead of the update.
        self.context = self.new_context();
        let fence = std::mem::replace(&mut self.fence, Handle::NULL);
        self.fence = self.new_fence(self.device);
        self.pieces(BASE, 1300);
        self.fence = fence;
        let signal = self.signal(1);
        self.world.kernel.handle(self.now, signal, &mut Effects::default());
        for _ in 0..count.min(256) {
            let kernel = &mut self.world.kernel;
            kernel.handle(self.now, Input::Deadline, &mut Effects::default());
            self.now = kernel.next_deadline().expect("a paging buffer runs");
        }
    }
}
