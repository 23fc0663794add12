//! Attacks by many opens, mappings and outstanding operations of GPU memory.

use d3dkmt::gpu_va::DO_NOT_WAIT;
use d3dkmt::gpu_va::operation::{COPY, MAP};
use d3dkmt::{
    Call, CreateAllocationFlags, CreateContextFlags, GpuVaOperation, Handle, Reply, ResourceInfo, limits,
};

use crate::attacker::{Attacked, Attacker, Stopped};
use crate::calls;
use crate::ground::Ground;
use crate::table::{Attack, attack};

pub const ATTACKS: &[Attack] = &[
    attack(
        "drained_maps",
        "C4",
        "a device whose paging queue has many maps of 4,000 pieces is destroyed",
        drained_maps,
    ),
    attack("drained_maps_vm", "C4", "the same from a VM", drained_maps).from_vm(),
    attack("offered_opens", "C6", "1,024 of many opens of one allocation are offered", offered_opens),
    attack("evictions", "C6", "many allocations are evicted beside 4,000 pieces", evictions),
    attack("copied_pieces", "C4", "updates that copy 1,300 pieces 256 times", copied_pieces),
];

const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000_0000;
const TARGET: u64 = 0x20_0000_0000;
/// Nearly as many as an address space may have.
const PIECES: u64 = 4080;

/// A range of an address space with pieces, and who maps them.
struct Mapper {
    attacker: Attacker,
    context: Handle,
    allocation: Handle,
}

impl Mapper {
    fn new(ground: &Ground<'_>) -> Attacked<Mapper> {
        let mut attacker = ground.attacker()?;
        let context = attacker.context(CreateContextFlags::empty())?;
        let allocation = attacker.allocation(PAGE)?;
        let mut mapper = Mapper { attacker, context, allocation };
        mapper.reserve(BASE)?;
        Ok(mapper)
    }

    fn reserve(&mut self, base: u64) -> Attacked {
        let reserve = calls::reserve(self.attacker.adapter, base, PIECES * PAGE);
        self.attacker.call(&reserve).map(drop)
    }

    /// An update of addresses by a context that waits for a value of a fence, unless it is 0.
    fn update(&mut self, context: Handle, fence: (Handle, u64), operations: Vec<GpuVaOperation>) -> Attacked {
        let (device, (fence, fence_value)) = (self.attacker.device, fence);
        let flags = if fence_value == 0 { DO_NOT_WAIT } else { 0 };
        let update = Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags };
        self.attacker.call(&update).map(drop)
    }

    /// Maps pages one by one, by one operation, and waits for them.
    fn pieces(&mut self, base: u64, pieces: u64) -> Attacked {
        let operation = GpuVaOperation {
            operation: MAP,
            base,
            size: pieces * PAGE,
            allocation: self.allocation,
            allocation_size: PAGE,
            ..GpuVaOperation::default()
        };
        let (context, fence) = (self.context, self.attacker.fence()?.object);
        self.update(context, (fence, 0), vec![operation])?;
        calls::come_to(&mut self.attacker.client, self.attacker.device, fence, 1);
        Ok(())
    }
}

fn drained_maps(ground: &Ground<'_>) -> Attacked {
    let mut mapper = Mapper::new(ground)?;
    let maps = ground.scale(1_000, 10_000);
    ground.repeat(|| {
        // The end of a device does not wait for its queues.
        let device = mapper.attacker.new_device()?;
        mapper.attacker.device = device;
        let (paging_queue, _) = mapper.attacker.paging_queue()?;
        let zero = |base, pages| calls::map_zero(paging_queue, base, pages);
        let nothing = || calls::map_nothing(paging_queue, BASE, PIECES);
        mapper.attacker.many((0..maps).map(|at| if at % 2 == 0 { zero(BASE, PIECES) } else { nothing() }))?;
        mapper.attacker.many((0..PIECES / 2).map(|at| zero(BASE + 2 * at * PAGE, 1)))?;
        mapper.attacker.call(&Call::DestroyDevice { device }).map(drop)
    })
}

fn offered_opens(ground: &Ground<'_>) -> Attacked {
    let mut attacker = ground.attacker()?;
    let device = attacker.device;
    let mut create = calls::allocate(device, calls::MEMORY, PAGE);
    if let Call::CreateAllocation { create } = &mut create {
        create.flags |= CreateAllocationFlags::CREATE_RESOURCE | CreateAllocationFlags::CREATE_SHARED;
    }
    let Reply::Allocations { shared_handle, .. } = attacker.call(&create)? else {
        return Err(Stopped::Broken("no resource".into()));
    };
    let info = ResourceInfo { allocations: 1, ..ResourceInfo::default() };
    let opens = (0..ground.scale(4_000, 30_000)).map(|_| Call::OpenResource { device, shared_handle, info });
    let mut allocations = Vec::new();
    for reply in attacker.all(opens)? {
        if let Reply::OpenedResource { allocations: opened, .. } = reply {
            allocations.extend(opened);
        }
    }
    allocations.truncate(limits::ALLOCATIONS_PER_CALL_MAX);
    let listed = |allocations: &[Handle]| (allocations.to_vec(), false);
    ground.repeat(|| {
        let (list, resources) = listed(&allocations);
        let (priority, flags) = (1, 0);
        attacker.call(&Call::OfferAllocations { device, allocations: list, resources, priority, flags })?;
        let (list, resources) = listed(&allocations);
        attacker.call(&Call::ReclaimAllocations { device, allocations: list, resources }).map(drop)
    })
}

fn evictions(ground: &Ground<'_>) -> Attacked {
    let mut mapper = Mapper::new(ground)?;
    mapper.pieces(BASE, PIECES)?;
    let (device, (paging_queue, _)) = (mapper.attacker.device, mapper.attacker.paging_queue()?);
    let count = ground.scale(1_000, limits::MAKE_RESIDENT_ALLOCATIONS_MAX);
    let created = mapper.attacker.all((0..count).map(|_| calls::allocate(device, calls::MEMORY, PAGE)))?;
    let handles = created.into_iter().flat_map(|reply| match reply {
        Reply::Allocations { allocations, .. } => allocations,
        _ => Vec::new(),
    });
    let allocations: Vec<Handle> = handles.collect();
    ground.repeat(|| {
        let (allocations, priorities) = (allocations.clone(), Vec::new());
        let evict = Call::Evict { device, allocations: allocations.clone(), flags: 0 };
        mapper.attacker.call(&Call::MakeResident { paging_queue, allocations, priorities, flags: 0 })?;
        mapper.attacker.call(&evict).map(drop)
    })
}

fn copied_pieces(ground: &Ground<'_>) -> Attacked {
    const COPIED: u64 = 1300;
    let mut mapper = Mapper::new(ground)?;
    mapper.reserve(TARGET)?;
    let behind = mapper.attacker.context(CreateContextFlags::empty())?;
    let size = COPIED * PAGE;
    let copy =
        GpuVaOperation { operation: COPY, base: BASE, size, destination: TARGET, ..Default::default() };
    let (paging_queue, _) = mapper.attacker.paging_queue()?;
    ground.repeat(|| {
        // The call measures what it copies: one piece yet.
        mapper.attacker.call(&calls::map_zero(paging_queue, BASE, COPIED))?;
        let fence = mapper.attacker.fence()?.object;
        mapper.update(behind, (fence, 1), vec![copy; limits::GPU_VA_OPERATIONS_MAX])?;
        mapper.pieces(BASE, COPIED)?;
        mapper.attacker.call(&calls::signal(mapper.attacker.device, fence, 1)).map(drop)
    })
}
