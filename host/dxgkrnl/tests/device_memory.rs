//! Memory of the device: its addresses, its budgets, its locks, and that nothing is left of it.

use covers::covers;

use crate::allocations::{destroy, open};
use crate::common::hardware::busy;
use crate::common::scripted::{inject, scripted};
use crate::common::{IP, OK, P, World};
use crate::gpu_memory::{Mapped, bring, map, page_table_updates};
use crate::paging::queue;
use d3dkmt::allocation_data::{
    AllocationData, AllocationDataFlags, SEGMENT_LOCAL, SEGMENT_NON_LOCAL, foreign,
};
use d3dkmt::limits::{DEVICE_ALLOCATION_BYTES_MAX, DEVICE_MEMORY_START, SHARED_DEVICE_BYTES_PER_VM_MAX};
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags as F, CreateContextFlags, Handle, NtStatus,
    Reply, calls, isa,
};
use dxgkrnl::ddi::{Callback, PageFaultFlags};
use dxgkrnl::{
    AdapterConfig, Config, DmaOp, Effects, EngineId, Fault, Input, Kernel, MemoryRef, ProcessId, SharedMemory,
};

const PENDING: NtStatus = NtStatus::PENDING;
const NO_MEMORY: NtStatus = NtStatus::NO_MEMORY;
const PAGE: u64 = 4096;
const SIZE: u64 = 3 * PAGE;

fn data(size: u64, segment: u32, flags: AllocationDataFlags) -> Vec<u8> {
    AllocationData { size, segment, flags, ..AllocationData::default() }.encode().to_vec()
}

fn visible(size: u64, segment: u32) -> Vec<u8> {
    data(size, segment, AllocationDataFlags::CPU_VISIBLE)
}

fn creation(device: Handle, data: &[Vec<u8>]) -> CreateAllocation {
    let info = |data: &Vec<u8>| AllocationInfo { private_data: data.clone(), ..AllocationInfo::default() };
    let allocations = data.iter().map(info).collect();
    CreateAllocation { device, allocations, ..CreateAllocation::default() }
}

fn call(create: CreateAllocation) -> Call {
    Call::CreateAllocation { create: Box::new(create) }
}

/// Allocations with their sizes and addresses.
fn make(world: &mut World, device: Handle, data: &[Vec<u8>]) -> (Vec<Handle>, Vec<u64>, Vec<u64>) {
    match world.ok(call(creation(device, data))) {
        Reply::Allocations { allocations, sizes, addresses, .. } => (allocations, sizes, addresses),
        other => panic!("{other:?}"),
    }
}

fn one(world: &mut World, device: Handle, data: Vec<u8>) -> Handle {
    make(world, device, &[data]).0[0]
}

/// Bytes that a process uses of LOCAL and of NON_LOCAL.
fn usage(world: &mut World) -> [u64; 2] {
    let adapter = world.adapter();
    [0, 1].map(|segment_group| {
        let call = Call::QueryVideoMemoryInfo { adapter, segment_group, physical_adapter: 0 };
        match world.ok(call) {
            Reply::VideoMemoryInfo { current_usage, .. } => current_usage,
            other => panic!("{other:?}"),
        }
    })
}

fn make_resident(world: &mut World, paging_queue: Handle, allocations: &[Handle]) -> (NtStatus, u64) {
    let allocations = allocations.to_vec();
    match world.call(Call::MakeResident { paging_queue, allocations, priorities: vec![], flags: 0 }) {
        (status, Reply::Residency { bytes_to_trim, .. }) => (status, bytes_to_trim),
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_has_addresses_that_no_memory_of_a_process_has_and_that_are_not_reused() {
    covers!("MEM-030");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let all = [visible(SIZE - 5, SEGMENT_LOCAL), visible(PAGE, SEGMENT_NON_LOCAL)];
    let (allocations, sizes, addresses) = make(&mut world, device, &all);
    assert_eq!(sizes, [SIZE, PAGE]);
    assert_eq!(addresses, [DEVICE_MEMORY_START, DEVICE_MEMORY_START + SIZE]);
    let state = world.kernel.snapshot().allocations;
    assert_eq!(state.iter().map(|one| one.address).collect::<Vec<_>>(), addresses);

    // Engines find it there, once it is mapped and resident.
    let paging_queue = queue(&mut world, device, 0).0;
    map(&mut world, Mapped::whole(allocations[0]).by(paging_queue));
    bring(&mut world, paging_queue, allocations[0]);
    let seen = page_table_updates(&script);
    assert!(seen.last().unwrap().contains(&format!("address: {DEVICE_MEMORY_START}, ")), "{seen:?}");
    let beyond = Mapped { pages: 4, ..Mapped::whole(allocations[0]) };
    assert_eq!(world.status(beyond.by(paging_queue)), IP);
    assert_eq!(destroy(&mut world, device, Handle::NULL, &allocations), OK);
    let seen = page_table_updates(&script);
    assert!(seen.last().unwrap().contains("NoAccess"), "{seen:?}");

    let (_, _, again) = make(&mut world, device, &all[..1]);
    assert_eq!(again, [DEVICE_MEMORY_START + SIZE + PAGE]);
    // Beside memory of the process only that of the device has an address; what grows has no size.
    let mut mixed = creation(device, &[visible(PAGE, SEGMENT_LOCAL), foreign(0, 64)]);
    mixed.allocations[1].system_memory = 0x7F00_0000_0000;
    let Reply::Allocations { sizes, addresses, .. } = world.ok(call(mixed)) else { panic!() };
    assert_eq!((sizes, addresses[1]), (vec![PAGE, 0], 0));
    world.input(Input::ProcessGone { process: P });
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn each_segment_group_has_its_own_budget_and_usage() {
    covers!("MEM-031");
    let adapter = AdapterConfig {
        local_budget_bytes: 2 * SIZE,
        non_local_budget_bytes: SIZE,
        ..AdapterConfig::default()
    };
    let mut world = World::with_config(Config { adapters: vec![adapter], ..Config::default() });
    let device = world.device();
    let paging_queue = queue(&mut world, device, 0).0;
    let mut make = |segment| one(&mut world, device, visible(SIZE, segment));
    let local = [make(SEGMENT_LOCAL), make(SEGMENT_LOCAL), make(SEGMENT_LOCAL)];
    let non_local = [make(SEGMENT_NON_LOCAL), make(SEGMENT_NON_LOCAL)];
    assert_eq!(usage(&mut world), [0, 0]);
    assert_eq!(make_resident(&mut world, paging_queue, &[local[0], local[1], non_local[0]]), (PENDING, 0));
    assert_eq!(usage(&mut world), [2 * SIZE, SIZE]);
    assert_eq!(make_resident(&mut world, paging_queue, &local[2..]), (NO_MEMORY, SIZE));
    assert!(world.notes().last().unwrap().contains("in LOCAL"));
    assert_eq!(make_resident(&mut world, paging_queue, &[local[2], non_local[1]]), (NO_MEMORY, 2 * SIZE));
    world.advance(1_000_000);
    let allocations = vec![local[0], non_local[0], local[2]];
    let residency = Call::QueryAllocationResidency { device, resource: Handle::NULL, allocations };
    assert_eq!(world.ok(residency), Reply::AllocationResidency(vec![1, 2, 3]));
    world.ok(Call::Evict { device, allocations: vec![local[0]], flags: 0 });
    assert_eq!(usage(&mut world), [SIZE, SIZE], "room in LOCAL is none in NON_LOCAL");
    assert_eq!(make_resident(&mut world, paging_queue, &non_local[1..]).0, NO_MEMORY);
    assert_eq!(make_resident(&mut world, paging_queue, &local[2..]), (PENDING, 0));
    assert_eq!(destroy(&mut world, device, Handle::NULL, &local), OK);
    assert_eq!((usage(&mut world), world.kernel.miscounted()), ([0, SIZE], None));
}

/// Resets the adapter by a page fault of a buffer.
fn reset_adapter(world: &mut World, device: Handle) {
    let flags = PageFaultFlags::ADAPTER_RESET_REQUIRED.bits();
    let engine = EngineId { adapter: 0, node: 0 };
    world.input(Input::Fault(Fault::PageFault { engine, gpu_address: 0xF000, flags }));
    let context = world.context(device, 0);
    world.submit(context, &[busy(1)]);
    world.advance(1000);
    assert_eq!(world.kernel.snapshot().adapter_resets, 1);
}

#[test]
fn a_reset_of_the_adapter_loses_what_is_in_local() {
    covers!("TDR-011");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let paging_queue = queue(&mut world, device, 0).0;
    let two = [visible(SIZE, SEGMENT_LOCAL), visible(PAGE, SEGMENT_NON_LOCAL)];
    let flags = F::CREATE_RESOURCE | F::CREATE_SHARED;
    let made = world.ok(call(CreateAllocation { flags, ..creation(device, &two) }));
    let Reply::Allocations { shared_handle, allocations, .. } = made else { panic!("{made:?}") };
    map(&mut world, Mapped::whole(allocations[0]).by(paging_queue));
    assert_eq!(make_resident(&mut world, paging_queue, &allocations), (PENDING, 0));
    world.advance(1_000_000);
    page_table_updates(&script);

    reset_adapter(&mut world, device);
    let seen = page_table_updates(&script);
    assert!(seen.last().unwrap().contains("NoAccess"), "{seen:?}");

    // A device that opens the resource after the reset finds resident what is in memory of the system, and has to make
    // the rest resident again.
    let later = world.device();
    let info = match world.ok(Call::QueryResourceInfo { device: later, shared_handle }) {
        Reply::ResourceInfo(info) => info,
        other => panic!("{other:?}"),
    };
    let opened = world.ok(Call::OpenResource { device: later, shared_handle, info });
    let Reply::OpenedResource { allocations, .. } = opened else { panic!("{opened:?}") };
    let residency = Call::QueryAllocationResidency {
        device: later,
        resource: Handle::NULL,
        allocations: allocations.clone(),
    };
    assert_eq!(world.ok(residency.clone()), Reply::AllocationResidency(vec![3, 2]));
    let paging_queue = queue(&mut world, later, 0).0;
    assert_eq!(make_resident(&mut world, paging_queue, &allocations), (PENDING, 0));
    world.advance(1_000_000);
    assert_eq!(world.ok(residency), Reply::AllocationResidency(vec![1, 2]));
    assert_eq!(world.kernel.miscounted(), None);
}

#[test]
fn memory_that_is_brought_to_local_again_stays_while_a_reset_still_takes_the_rest() {
    covers!("TDR-011");
    const OTHERS: u32 = 4000;
    let mut world = World::new();
    let device = world.device();
    let paging_queue = queue(&mut world, device, 0).0;
    for _ in 0..OTHERS {
        one(&mut world, device, visible(PAGE, SEGMENT_LOCAL));
    }
    let data = visible(SIZE, SEGMENT_LOCAL);
    let (_, shared_handle, allocation, _) = shared(&mut world, device, data.clone());
    assert_eq!(make_resident(&mut world, paging_queue, &[allocation]), (PENDING, 0));
    world.advance(1_000_000);
    world.attach(Q);

    // From here on each call is one step, so that the owner of the lost device has work left.
    let mut kernel = world.kernel;
    let mut now = 10_000_000;
    let mut call = |kernel: &mut Kernel, process, call| {
        let mut effects = Effects::default();
        kernel.handle(now, Input::Call { process, request: now, call }, &mut effects);
        now += 1;
        effects.answers.pop().expect("an answer").reply
    };
    let Reply::Context(context) =
        call(&mut kernel, P, calls::create_context(device, 0, CreateContextFlags::empty()))
    else {
        panic!()
    };
    let flags = PageFaultFlags::ADAPTER_RESET_REQUIRED.bits();
    let engine = EngineId { adapter: 0, node: 0 };
    let fault = Input::Fault(Fault::PageFault { engine, gpu_address: 0xF000, flags });
    kernel.handle(10_000_000, fault, &mut Effects::default());
    call(&mut kernel, P, calls::submit(context, isa::encode(&[busy(1)])));
    assert!(kernel.has_backlog());
    let Reply::Adapters(adapters) = call(&mut kernel, Q, Call::EnumAdapters { capacity: 1 }) else {
        panic!()
    };
    let create = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
    let Reply::Device(device) = call(&mut kernel, Q, create) else { panic!() };
    let Reply::PagingQueue { queue: paging_queue, .. } =
        call(&mut kernel, Q, calls::create_paging_queue(device))
    else {
        panic!()
    };
    let total_private_data_size = data.len() as u32;
    let info = d3dkmt::ResourceInfo { allocations: 1, total_private_data_size, ..Default::default() };
    let open = Call::OpenResource { device, shared_handle, info };
    let Reply::OpenedResource { allocations, .. } = call(&mut kernel, Q, open) else { panic!() };
    let residency = || Call::QueryAllocationResidency {
        device,
        resource: Handle::NULL,
        allocations: allocations.clone(),
    };
    assert_eq!(call(&mut kernel, Q, residency()), Reply::AllocationResidency(vec![3]));
    let (allocations, priorities) = (allocations.clone(), vec![]);
    let bring = Call::MakeResident { paging_queue, allocations, priorities, flags: 0 };
    let Reply::Residency { paging_fence_value: 1, .. } = call(&mut kernel, Q, bring) else {
        panic!("no work")
    };
    assert!(kernel.has_backlog(), "the rest of the reset is left");
    let mut effects = Effects::default();
    while let Some(due) = kernel.next_deadline().filter(|due| *due < 100_000_000) {
        kernel.handle(due.max(20_000_000), Input::Deadline, &mut effects);
    }
    while kernel.has_backlog() {
        kernel.handle(20_000_000, Input::Deadline, &mut effects);
    }
    assert_eq!(call(&mut kernel, Q, residency()), Reply::AllocationResidency(vec![1]));
    assert_eq!(kernel.miscounted(), None);
}

#[test]
fn what_was_on_its_way_to_local_at_a_reset_does_not_arrive() {
    covers!("TDR-011");
    let (mut world, script) = scripted(Config::default());
    script.borrow().paging = Some(vec![busy(1_000_000)]);
    let device = world.device();
    let paging_queue = queue(&mut world, device, 0).0;
    let local = one(&mut world, device, visible(SIZE, SEGMENT_LOCAL));
    let non_local = one(&mut world, device, visible(SIZE, SEGMENT_NON_LOCAL));
    assert_eq!(make_resident(&mut world, paging_queue, &[local, non_local]), (PENDING, 0));
    reset_adapter(&mut world, device);
    // Destroying the queue lets what it has outstanding take effect.
    world.ok(Call::DestroyPagingQueue { queue: paging_queue });
    world.advance(10_000_000);
    let resident = world.kernel.snapshot().allocations.into_iter().map(|one| (one.handle, one.resident));
    assert_eq!(resident.collect::<Vec<_>>(), [(local, false), (non_local, true)]);
    assert_eq!(world.kernel.miscounted(), None);
}

#[test]
fn what_cannot_be_is_refused_and_leaks_nothing() {
    let adapter = AdapterConfig {
        local_budget_bytes: SIZE,
        non_local_budget_bytes: 2 * DEVICE_ALLOCATION_BYTES_MAX,
        ..AdapterConfig::default()
    };
    let mut world = World::with_config(Config { adapters: vec![adapter], ..Config::default() });
    let device = world.device();
    let of = |data| creation(device, &[data]);
    let flags = |flags| CreateAllocation { flags, ..of(visible(PAGE, SEGMENT_LOCAL)) };
    let wrong = [
        ("more than the budget", NO_MEMORY, of(visible(SIZE + 1, SEGMENT_LOCAL))),
        (
            "more than a broker has",
            NO_MEMORY,
            of(visible(DEVICE_ALLOCATION_BYTES_MAX + 1, SEGMENT_NON_LOCAL)),
        ),
        ("one of two is too much", NO_MEMORY, creation(device, &[visible(PAGE, 1), visible(2 * SIZE, 1)])),
        ("an overflow", IP, of(visible(u64::MAX, SEGMENT_LOCAL))),
        ("ExistingSysMem", IP, flags(F::EXISTING_SYS_MEM)),
        ("an unknown size", NtStatus::NOT_SUPPORTED, of(foreign(PAGE, 20))),
    ];
    for (what, status, create) in wrong {
        assert_eq!(world.status(call(create)), status, "{what}");
        assert!(!world.effects.notes.last().expect("a refusal says why").text.is_empty(), "{what}");
        let state = world.kernel.snapshot();
        assert_eq!((state.resources.len(), state.allocations.len(), world.kernel.miscounted()), (0, 0, None));
    }
    one(&mut world, device, visible(DEVICE_ALLOCATION_BYTES_MAX, SEGMENT_NON_LOCAL));
}

#[test]
fn only_visible_memory_is_locked_and_locks_end_with_their_handle() {
    covers!("MEM-032", "MEM-033");
    let mut world = World::new();
    let (device, other) = (world.device(), world.device());
    let all = [visible(SIZE, SEGMENT_LOCAL), data(SIZE, SEGMENT_LOCAL, AllocationDataFlags::empty())];
    let (allocations, _, addresses) = make(&mut world, device, &all);
    let lock = |device, allocation, flags| Call::Lock { device, allocation, flags };
    let unlock = |device, allocation| Call::Unlock { device, allocation };
    assert_eq!(world.status(lock(device, allocations[1], 0)), IP, "it is invisible");
    assert!(world.notes().last().unwrap().contains("CpuVisible"));
    assert_eq!(world.status(unlock(device, allocations[1])), IP);
    assert_eq!(world.status(lock(other, allocations[0], 0)), IP, "of another device");
    assert_eq!(world.status(lock(device, allocations[0], 2)), IP, "reserved flags");
    for _ in 0..2 {
        assert_eq!(world.ok(lock(device, allocations[0], 0)), Reply::Locked { address: addresses[0] });
    }
    assert_eq!(world.status(unlock(other, allocations[0])), IP);
    world.ok(unlock(device, allocations[0]));
    // The library sends the end of a lock that it knows without waiting for an answer.
    world.input(Input::Call { process: P, request: 0, call: unlock(device, allocations[0]) });
    assert_eq!(world.kernel.snapshot().allocations[0].locks, 0);
    assert_eq!(world.status(unlock(device, allocations[0])), IP);
    world.input(Input::Call { process: P, request: 0, call: unlock(device, allocations[0]) });
    assert_eq!(world.execution_state(device), 1, "a refused unlock stops no device");
    world.ok(lock(device, allocations[0], 0));
    assert_eq!(destroy(&mut world, device, Handle::NULL, &allocations), OK);
    assert_eq!(world.status(unlock(device, allocations[0])), IP);
    assert_eq!(world.status(lock(device, allocations[0], 0)), IP);
}

const Q: ProcessId = ProcessId(2);

fn shared_flags() -> F {
    F::CREATE_RESOURCE | F::CREATE_SHARED
}

/// A shared resource of one allocation: the resource, its global handle, the allocation, and its address.
fn shared(world: &mut World, device: Handle, data: Vec<u8>) -> (Handle, Handle, Handle, u64) {
    match world.ok(call(CreateAllocation { flags: shared_flags(), ..creation(device, &[data]) })) {
        Reply::Allocations { resource, shared_handle, allocations, addresses, .. } => {
            (resource, shared_handle, allocations[0], addresses[0])
        }
        other => panic!("{other:?}"),
    }
}

fn opened(world: &mut World, device: Handle, shared_handle: Handle, data: &[u8]) -> (Handle, Handle) {
    let total_private_data_size = data.len() as u32;
    let info = d3dkmt::ResourceInfo { allocations: 1, total_private_data_size, ..Default::default() };
    match world.ok(Call::OpenResource { device, shared_handle, info }) {
        Reply::OpenedResource { resource, allocations, .. } => (resource, allocations[0]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn shared_memory_keeps_its_name_until_its_allocation_ends() {
    covers!("MEM-035", "MEM-036");
    for creator_is_killed in [false, true] {
        let (mut world, script) = scripted(Config::default());
        let (device, data) = (world.device(), visible(SIZE, SEGMENT_LOCAL));
        let (resource, global, allocation, address) = shared(&mut world, device, data.clone());
        assert!(world.kernel.is_shared_memory(P, address + SIZE - 1));
        assert!(
            !world.kernel.is_shared_memory(P, address + SIZE) && !world.kernel.is_shared_memory(Q, address)
        );
        let other = world.other(2);
        let (its_resource, its_allocation) = opened(&mut world, other, global, &data);
        let paging_queue = queue(&mut world, other, 0).0;
        map(&mut world, Mapped::whole(its_allocation).by(paging_queue));
        bring(&mut world, paging_queue, its_allocation);
        let lock = Call::Lock { device: other, allocation: its_allocation, flags: 0 };
        assert_eq!(world.ok(lock.clone()), Reply::Locked { address });
        page_table_updates(&script);

        // The creator ends. Engines of the other process still find the memory under the creator's name.
        match creator_is_killed {
            true => world.input(Input::ProcessGone { process: P }),
            false => {
                world.process = P;
                assert_eq!(destroy(&mut world, device, resource, &[]), OK);
                world.process = Q;
            }
        }
        assert_eq!(page_table_updates(&script), Vec::<String>::new(), "nothing changes for others");
        assert_eq!(world.kernel.ended_shared_memory().count(), 0);
        assert_eq!(world.ok(lock), Reply::Locked { address });
        let expected = SharedMemory { owner: P, address, bytes: SIZE };
        assert_eq!(world.kernel.shared_memory(Q, its_allocation), Some(expected));
        assert_eq!(world.kernel.shared_memory(P, allocation), None, "its own handle has ended");
        map(&mut world, Mapped::whole(its_allocation).by(paging_queue));
        world.advance(1_000_000);
        let seen = page_table_updates(&script);
        assert!(seen.last().unwrap().contains(&format!("address: {address}, ")), "{seen:?}");

        assert_eq!(destroy(&mut world, other, its_resource, &[]), OK);
        assert_eq!(world.kernel.ended_shared_memory().collect::<Vec<_>>(), [expected]);
        assert!(!world.kernel.is_shared_memory(P, address));
        assert_eq!(world.kernel.miscounted(), None);
        world.input(Input::ProcessGone { process: P });
        assert_eq!(world.kernel.ended_shared_memory().count(), 0, "it is named in one step only");
        world.input(Input::ProcessGone { process: Q });
        assert!(world.kernel.snapshot().is_empty());
    }
}

#[test]
fn engines_write_shared_memory_also_in_the_step_that_ends_its_creator() {
    covers!("MEM-036");
    let (mut world, script) = scripted(Config::default());
    let (device, data) = (world.device(), visible(SIZE, SEGMENT_LOCAL));
    let (_, global, _, address) = shared(&mut world, device, data.clone());
    let alone = make(&mut world, device, std::slice::from_ref(&data)).2[0];
    let other = world.other(2);
    let (its_resource, _) = opened(&mut world, other, global, &data);
    let fill = |address| DmaOp::Fill { to: MemoryRef::Memory { process: P, address }, bytes: 8, pattern: 7 };
    let engine = EngineId { adapter: 0, node: 0 };
    let writes = |addresses: &[u64]| {
        addresses.iter().map(|address| Callback::Dma { engine, moved: fill(*address) }).collect::<Vec<_>>()
    };
    let last = address + SIZE - 8;
    script.borrow().call_back("destroy_device", writes(&[address, alone, last, 0x7F00_0000_1000]));
    world.input(Input::ProcessGone { process: P });
    assert_eq!(std::mem::take(&mut world.effects.moves), [fill(address), fill(last)]);
    inject(&mut world, &script, writes(&[alone, last]));
    assert_eq!(std::mem::take(&mut world.effects.moves), [fill(last)], "as long as another has it open");
    world.process = Q;
    assert_eq!(destroy(&mut world, other, its_resource, &[]), OK);
    inject(&mut world, &script, writes(&[address]));
    assert_eq!(std::mem::take(&mut world.effects.moves), []);
}

#[test]
fn locks_of_shared_memory_are_of_one_handle() {
    covers!("MEM-038");
    let mut world = World::new();
    let (device, data) = (world.device(), visible(SIZE, SEGMENT_LOCAL));
    let (resource, global, allocation, _) = shared(&mut world, device, data.clone());
    world.ok(Call::Lock { device, allocation, flags: 0 });
    let other = world.other(2);
    let (_, its_allocation) = opened(&mut world, other, global, &data);
    let unlock = Call::Unlock { device: other, allocation: its_allocation };
    assert_eq!(world.status(unlock.clone()), IP, "another handle is locked");
    for _ in 0..2 {
        world.ok(Call::Lock { device: other, allocation: its_allocation, flags: 0 });
    }
    world.ok(unlock.clone());
    let locks =
        |world: &World| world.kernel.snapshot().allocations.iter().map(|one| one.locks).collect::<Vec<_>>();
    assert_eq!(locks(&world), [1, 1]);
    world.process = P;
    assert_eq!(destroy(&mut world, device, resource, &[]), OK);
    world.process = Q;
    assert_eq!(locks(&world), [1]);
    world.ok(unlock.clone());
    assert_eq!(world.status(unlock), IP);
}

#[test]
fn shared_memory_counts_once_for_each_process_and_is_limited_in_a_vm() {
    covers!("MEM-037");
    let mut world = World::new();
    let (device, second) = (world.device(), world.device());
    let data = visible(SIZE, SEGMENT_LOCAL);
    let (resource, global, allocation, _) = shared(&mut world, device, data.clone());
    let (_, again) = opened(&mut world, second, global, &data);
    let queues = [queue(&mut world, device, 0).0, queue(&mut world, second, 0).0];
    bring(&mut world, queues[0], allocation);
    bring(&mut world, queues[1], again);
    assert_eq!(usage(&mut world), [SIZE, 0], "two handles of one process");
    assert_eq!(destroy(&mut world, device, resource, &[]), OK);
    assert_eq!(usage(&mut world), [SIZE, 0], "one of them is resident");
    world.ok(Call::Evict { device: second, allocations: vec![again], flags: 0 });
    assert_eq!((usage(&mut world), world.kernel.miscounted()), ([0, 0], None));
    world.input(Input::ProcessGone { process: P });
    assert!(world.kernel.snapshot().is_empty());

    let adapter = AdapterConfig { local_budget_bytes: 1 << 40, ..AdapterConfig::default() };
    let mut world = World::with_config(Config { adapters: vec![adapter], ..Config::default() });
    let device = world.device();
    let big = visible(DEVICE_ALLOCATION_BYTES_MAX, SEGMENT_LOCAL);
    let all = SHARED_DEVICE_BYTES_PER_VM_MAX / DEVICE_ALLOCATION_BYTES_MAX;
    let made: Vec<_> = (0..all).map(|_| shared(&mut world, device, big.clone()).0).collect();
    let more =
        || call(CreateAllocation { flags: shared_flags(), ..creation(device, &[visible(1, SEGMENT_LOCAL)]) });
    assert_eq!(world.status(more()), NO_MEMORY);
    assert!(world.notes().last().unwrap().contains("of which the VM has"));
    one(&mut world, device, visible(PAGE, SEGMENT_LOCAL));
    assert_eq!(destroy(&mut world, device, made[0], &[]), OK);
    world.ok(more());
    world.guest(1, Q);
    let device = world.device();
    shared(&mut world, device, big);
}

#[test]
fn what_is_not_shared_visible_memory_of_the_device_is_given_to_no_other() {
    covers!("MEM-039");
    let mut world = World::new();
    let device = world.device();
    let hidden = data(SIZE, SEGMENT_LOCAL, AllocationDataFlags::empty());
    let private = one(&mut world, device, visible(SIZE, SEGMENT_LOCAL));
    let (_, global, invisible, _) = shared(&mut world, device, hidden.clone());
    let heap = crate::allocations::create(&mut world, device, shared_flags());
    for allocation in [private, invisible, heap.2, Handle(0x4000_4000), device] {
        assert_eq!(world.kernel.shared_memory(P, allocation), None);
        assert_eq!(world.kernel.shared_memory(Q, allocation), None);
    }
    let other = world.other(2);
    let (_, opened_invisible) = opened(&mut world, other, global, &hidden);
    assert_eq!(world.kernel.shared_memory(Q, opened_invisible), None);
    assert_eq!(world.status(Call::Lock { device: other, allocation: opened_invisible, flags: 0 }), IP);
    let (_, opened_heap) = open(&mut world, other, heap.1);
    assert_eq!(world.kernel.shared_memory(Q, opened_heap), None);
    let lock = Call::Lock { device: other, allocation: opened_heap, flags: 0 };
    assert_eq!(world.status(lock), NtStatus::NOT_SUPPORTED, "memory of a process is its own");
}
