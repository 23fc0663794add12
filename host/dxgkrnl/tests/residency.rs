//! Residency, budgets, locks and priorities of allocations.

use covers::covers;

use crate::allocations::{HEAP, create, creation, destroy, open};
use crate::common::scripted::{ScriptRef, scripted};
use crate::common::{IP, OK, P, World};
use crate::gpu_memory::{Mapped, PAGING_NS, map, page_table_updates};
use crate::paging::queue;
use d3dkmt::{Call, CreateAllocationFlags as F, CreatedSyncObject, Handle, NtStatus, Reply, limits};
use dxgkrnl::{AdapterConfig, Config, Fault, Input, ProcessId};

const PENDING: NtStatus = NtStatus::PENDING;
const NO_MEMORY: NtStatus = NtStatus::NO_MEMORY;
const Q: ProcessId = ProcessId(2);
/// Size of the tests' allocations.
const SIZE: u64 = 0x3000;
const CANT_TRIM_FURTHER: u32 = 1;
const MUST_SUCCEED: u32 = 2;

fn make_resident(paging_queue: Handle, allocations: &[Handle], flags: u32) -> Call {
    Call::MakeResident { paging_queue, allocations: allocations.to_vec(), priorities: vec![], flags }
}

fn evict(device: Handle, allocations: &[Handle]) -> Call {
    Call::Evict { device, allocations: allocations.to_vec(), flags: 0 }
}

fn residency(world: &mut World, call: Call) -> (NtStatus, u64, u64) {
    match world.call(call) {
        (status, Reply::Residency { paging_fence_value, bytes_to_trim, .. }) => {
            (status, paging_fence_value, bytes_to_trim)
        }
        other => panic!("{other:?} {:?}", world.effects.notes.last()),
    }
}

/// Resident bytes that the kernel reports to the process.
fn usage(world: &mut World) -> u64 {
    let adapter = world.adapter();
    let call = Call::QueryVideoMemoryInfo { adapter, segment_group: 1, physical_adapter: 0 };
    match world.ok(call) {
        Reply::VideoMemoryInfo { current_usage, .. } => current_usage,
        other => panic!("{other:?}"),
    }
}

/// A device, a paging queue with its fence, and a mapped allocation.
fn set_up() -> (World, ScriptRef, [Handle; 3], CreatedSyncObject) {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (paging_queue, fence) = queue(&mut world, device, 0);
    let allocation = create(&mut world, device, F::empty()).2;
    map(&mut world, Mapped::whole(allocation).by(paging_queue));
    world.advance(10 * PAGING_NS);
    (world, script, [device, paging_queue, allocation], fence)
}

/// Whether engines see the allocation, if its mapping changed since the last call.
fn engine_sees_memory(script: &ScriptRef) -> Option<bool> {
    let lines = page_table_updates(script);
    lines.last().map(|line| line.contains("Memory"))
}

#[test]
fn an_allocation_is_resident_from_its_paging_fence_value_to_its_last_evict() {
    covers!("FEN-090");
    let (mut world, script, [device, paging_queue, allocation], fence) = set_up();
    assert_eq!(engine_sees_memory(&script), Some(false), "mapped, and not resident yet");
    let one = make_resident(paging_queue, &[allocation], 0);
    assert_eq!(residency(&mut world, one.clone()), (PENDING, 2, 0));
    assert_eq!(residency(&mut world, one.clone()), (PENDING, 3, 0), "the operation is still pending");
    world.advance(PAGING_NS - 1);
    assert_eq!((engine_sees_memory(&script), world.value(fence.object)), (None, 1));
    world.advance(1);
    assert_eq!((engine_sees_memory(&script), world.value(fence.object)), (Some(true), 2));
    world.advance(PAGING_NS);
    assert_eq!(residency(&mut world, one.clone()), (OK, 0, 0), "the allocation is already resident");
    for left in [2, 1, 0] {
        assert_eq!(residency(&mut world, evict(device, &[allocation])), (OK, 0, 0));
        assert_eq!(engine_sees_memory(&script), (left == 0).then_some(false));
    }
    assert_eq!(world.status(evict(device, &[allocation])), IP, "the allocation has no residency count");
    // Evicted before it became resident.
    assert_eq!(residency(&mut world, one), (PENDING, 4, 0));
    world.ok(evict(device, &[allocation]));
    world.advance(10 * PAGING_NS);
    assert_eq!((engine_sees_memory(&script), world.value(fence.object)), (None, 4));
}

#[test]
fn residency_is_counted_for_each_handle() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (resource, shared, first) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    let (paging_queue, _) = queue(&mut world, device, 0);
    map(&mut world, Mapped::whole(first).by(paging_queue));
    let other = world.device();
    let (queue_of_other, _) = queue(&mut world, other, 0);
    let (opened, second) = open(&mut world, other, shared);
    assert_eq!(world.status(make_resident(paging_queue, &[second], 0)), IP, "of another device");
    world.call(make_resident(paging_queue, &[first], 0));
    world.call(make_resident(queue_of_other, &[second], 0));
    world.advance(10 * PAGING_NS);
    assert_eq!(
        (engine_sees_memory(&script), usage(&mut world)),
        (Some(true), SIZE),
        "two counts use the memory once"
    );
    assert_eq!(world.status(evict(device, &[second])), IP);
    world.ok(evict(device, &[first]));
    assert_eq!((engine_sees_memory(&script), usage(&mut world)), (None, SIZE));
    // A destroyed handle drops its count.
    assert_eq!(destroy(&mut world, other, opened, &[]), OK);
    assert_eq!((engine_sees_memory(&script), usage(&mut world)), (Some(false), 0));
    world.call(make_resident(paging_queue, &[first], 0));
    assert_eq!(destroy(&mut world, device, resource, &[]), OK);
    world.advance(10 * PAGING_NS);
    assert_eq!(usage(&mut world), 0);
}

#[test]
fn memory_of_a_process_that_is_gone_is_not_resident() {
    let mut world = World::new();
    let device = world.device();
    let (_, shared, _) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    let other = world.other(2);
    world.process = ProcessId(2);
    let (resource, opened) = open(&mut world, other, shared);
    let (queue_of_other, _) = queue(&mut world, other, 0);
    world.call(make_resident(queue_of_other, &[opened], 0));
    world.advance(10_000_000);
    let of = |resource, allocations| Call::QueryAllocationResidency { device: other, resource, allocations };
    let queries = [of(Handle::NULL, vec![opened]), of(resource, vec![])];
    for query in &queries {
        assert_eq!(world.ok(query.clone()), Reply::AllocationResidency(vec![2]));
    }
    let before = usage(&mut world);
    world.input(Input::ProcessGone { process: P });
    for query in &queries {
        assert_eq!(world.ok(query.clone()), Reply::AllocationResidency(vec![3]), "engines find NoAccess");
    }
    assert!(before > 0);
    assert_eq!(usage(&mut world), before, "it counts until it is evicted or destroyed");
}

#[test]
fn over_budget_make_resident_fails_unless_the_caller_insists() {
    let adapter =
        AdapterConfig { local_budget_bytes: 0, non_local_budget_bytes: 3 * SIZE, ..AdapterConfig::default() };
    let mut world = World::with_config(Config { adapters: vec![adapter], ..Config::default() });
    let device = world.device();
    let (paging_queue, _) = queue(&mut world, device, 0);
    let all: Vec<Handle> = (0..5).map(|_| create(&mut world, device, F::empty()).2).collect();
    assert_eq!(residency(&mut world, make_resident(paging_queue, &all[..2], 0)), (PENDING, 1, 0));
    let too_much = [all[1], all[2], all[3], all[4], all[4]];
    let answer = residency(&mut world, make_resident(paging_queue, &too_much, 0));
    assert_eq!(answer, (NO_MEMORY, 0, 2 * SIZE), "resident allocations need no more budget");
    assert!(world.notes().last().unwrap().contains("over the budget"));
    assert_eq!(usage(&mut world), 2 * SIZE);
    assert_eq!(world.status(evict(device, &[all[4]])), IP, "nothing was done");
    for (flags, count) in [(CANT_TRIM_FURTHER, 2), (CANT_TRIM_FURTHER | MUST_SUCCEED, 3)] {
        let answer = residency(&mut world, make_resident(paging_queue, &all[2..2 + count], flags));
        assert_eq!((answer.0, answer.2), (PENDING, (count as u64 - 1) * SIZE));
    }
    assert_eq!(usage(&mut world), 5 * SIZE);
    assert_eq!(residency(&mut world, evict(device, &all[..1])), (OK, 0, SIZE), "the number of bytes to trim");
    // Each process has a budget of its own.
    world.attach(Q);
    world.process = Q;
    let device = world.device();
    let (paging_queue, _) = queue(&mut world, device, 0);
    let own = create(&mut world, device, F::empty()).2;
    assert_eq!(residency(&mut world, make_resident(paging_queue, &[own], 0)).0, PENDING);
    assert_eq!(usage(&mut world), SIZE);
}

#[test]
fn a_list_is_made_resident_and_evicted_whole_or_not_at_all() {
    let (mut world, _, [device, paging_queue, allocation], _) = set_up();
    let most = vec![allocation; limits::MAKE_RESIDENT_ALLOCATIONS_MAX];
    let too_many = [&most[..], &[allocation]].concat();
    for list in [&[][..], &[allocation, device], &[allocation, Handle::NULL], &too_many] {
        assert_eq!(world.status(make_resident(paging_queue, list, 0)), IP);
        assert_eq!(world.status(evict(device, list)), IP);
    }
    assert_eq!(world.status(make_resident(paging_queue, &[allocation], 4)), IP, "reserved flags");
    assert_eq!(
        world.status(make_resident(paging_queue, &[allocation], MUST_SUCCEED)),
        IP,
        "it needs another"
    );
    assert_eq!(world.status(make_resident(device, &[allocation], 0)), IP, "no paging queue");
    // Priorities are ignored, and how many they are.
    let (allocations, priorities) = (vec![allocation], vec![0x5000_0000, 2]);
    let prioritized = Call::MakeResident { paging_queue, allocations, priorities, flags: 0 };
    assert_eq!(world.status(prioritized), PENDING);
    assert_eq!(world.kernel.snapshot().allocations[0].priority, 0x7800_0000);
    world.advance(10 * PAGING_NS);
    world.ok(evict(device, &[allocation]));
    assert_eq!(usage(&mut world), 0);
    let reserved = Call::Evict { device, allocations: vec![allocation], flags: 4 };
    assert_eq!(world.status(reserved), IP);
    // Up to the limit.
    let times = limits::RESIDENCY_COUNT_MAX as usize / most.len();
    for _ in 0..times {
        world.call(make_resident(paging_queue, &most, 0));
        world.advance(10 * PAGING_NS);
    }
    let rest = limits::RESIDENCY_COUNT_MAX as usize - times * most.len();
    assert_eq!(world.status(make_resident(paging_queue, &most[..rest], 0)), OK);
    assert_eq!(world.status(make_resident(paging_queue, &[allocation], 0)), NO_MEMORY);
    assert_eq!(world.status(evict(device, &most)), OK);
    assert_eq!(usage(&mut world), SIZE);
}

#[test]
fn a_device_that_is_lost_makes_nothing_resident_and_may_still_evict_and_unlock() {
    let (mut world, _, [device, paging_queue, allocation], _) = set_up();
    world.call(make_resident(paging_queue, &[allocation], 0));
    world.ok(Call::Lock { device, allocation, flags: 0 });
    let adapter = world.adapter();
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    let removed = NtStatus::DEVICE_REMOVED;
    assert_eq!(world.status(make_resident(paging_queue, &[allocation], 0)), removed);
    assert_eq!(world.status(Call::Lock { device, allocation, flags: 0 }), removed);
    assert_eq!(
        world.status(Call::AllocationPriority {
            device,
            resource: Handle::NULL,
            allocations: vec![allocation]
        }),
        removed
    );
    world.ok(evict(device, &[allocation]));
    world.ok(Call::Unlock { device, allocation });
    let call = Call::QueryVideoMemoryInfo { adapter, segment_group: 0, physical_adapter: 0 };
    assert_eq!(world.status(call), removed);
}

#[test]
fn video_memory_is_reported_by_segment_group() {
    covers!("W-292");
    let adapter = AdapterConfig {
        local_budget_bytes: 1 << 30,
        non_local_budget_bytes: 2 << 30,
        ..AdapterConfig::default()
    };
    let mut world = World::with_config(Config { adapters: vec![adapter], ..Config::default() });
    let (device, adapter) = (world.device(), world.adapter());
    let (paging_queue, _) = queue(&mut world, device, 0);
    let allocation = create(&mut world, device, F::empty()).2;
    world.call(make_resident(paging_queue, &[allocation], 0));
    let query = |adapter, segment_group, physical_adapter| Call::QueryVideoMemoryInfo {
        adapter,
        segment_group,
        physical_adapter,
    };
    for (group, budget, current_usage) in [(0, 1 << 30, 0), (1, 2 << 30, SIZE)] {
        let info = Reply::VideoMemoryInfo {
            budget,
            current_usage,
            current_reservation: 0,
            available_for_reservation: budget / 2,
        };
        assert_eq!(world.ok(query(adapter, group, 0)), info);
    }
    for wrong in [query(Handle::NULL, 0, 0), query(device, 0, 0), query(adapter, 2, 0), query(adapter, 0, 1)]
    {
        assert_eq!(world.status(wrong), IP);
    }
}

#[test]
fn an_adapter_that_starts_again_has_no_reservation() {
    let mut world = World::new();
    let adapter = world.adapter();
    let reservation = 1 << 20;
    world.ok(Call::ChangeVideoMemoryReservation {
        adapter,
        segment_group: 0,
        reservation,
        physical_adapter: 0,
    });
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    world.input(Input::Fault(Fault::StartAdapter { adapter: 0 }));
    let adapter = world.adapter();
    let query = Call::QueryVideoMemoryInfo { adapter, segment_group: 0, physical_adapter: 0 };
    let Reply::VideoMemoryInfo { current_reservation, .. } = world.ok(query) else { panic!() };
    assert_eq!(current_reservation, 0);
}

#[test]
fn a_lock_gives_the_address_of_the_creator_and_nests() {
    let mut world = World::new();
    let device = world.device();
    let (_, shared, allocation) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    let lock = |allocation, flags| Call::Lock { device, allocation, flags };
    let unlock = Call::Unlock { device, allocation };
    assert_eq!(world.status(unlock.clone()), IP, "the allocation is not locked");
    assert_eq!(world.status(lock(allocation, 1)), IP, "reserved flags");
    assert_eq!(world.status(lock(device, 0)), IP, "no allocation");
    world.filling(|world| {
        for _ in 0..limits::LOCKS_PER_ALLOCATION_MAX {
            assert_eq!(world.ok(lock(allocation, 0)), Reply::Locked { address: HEAP });
        }
    });
    assert_eq!(world.status(lock(allocation, 0)), NO_MEMORY);
    assert_eq!(world.kernel.snapshot().allocations[0].locks, limits::LOCKS_PER_ALLOCATION_MAX);
    world.filling(|world| {
        for _ in 0..limits::LOCKS_PER_ALLOCATION_MAX {
            world.ok(unlock.clone());
        }
    });
    assert_eq!(world.status(unlock.clone()), IP);
    // Another open in the same process has the same address; another process has none.
    let again = open(&mut world, device, shared).1;
    assert_eq!(world.ok(lock(again, 0)), Reply::Locked { address: HEAP });
    assert_eq!(world.status(unlock), IP, "locks are of handles");
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[again]), OK, "a lock ends with its handle");
    world.attach(Q);
    world.process = Q;
    let device = world.device();
    let theirs = open(&mut world, device, shared).1;
    assert_eq!(world.status(Call::Lock { device, allocation: theirs, flags: 0 }), NtStatus::NOT_SUPPORTED);
    assert!(world.notes().last().unwrap().contains("memory of process 1"));
}

#[test]
fn a_lock_needs_neither_residency_nor_a_reclaim() {
    let (mut world, script, [device, paging_queue, allocation], _) = set_up();
    let lock = Call::Lock { device, allocation, flags: 0 };
    assert_eq!(world.ok(lock.clone()), Reply::Locked { address: HEAP }, "not resident");
    world.call(make_resident(paging_queue, &[allocation], 0));
    world.advance(10 * PAGING_NS);
    assert_eq!(engine_sees_memory(&script), Some(true));
    let (resources, priority, flags) = (false, 2, 1);
    let allocations = vec![allocation];
    world.ok(Call::OfferAllocations { device, allocations, resources, priority, flags });
    assert_eq!(world.ok(lock), Reply::Locked { address: HEAP }, "offered");
    assert_eq!(engine_sees_memory(&script), Some(false), "the lock does not reclaim it");
}

#[test]
fn priorities_are_of_allocations_or_of_a_whole_resource() {
    let mut world = World::new();
    let device = world.device();
    let (resource, _, first) = create(&mut world, device, F::CREATE_RESOURCE);
    let second = create(&mut world, device, F::empty()).2;
    let set = |resource, allocations: &[Handle], priorities: &[u32]| Call::SetAllocationPriority {
        device,
        resource,
        allocations: allocations.to_vec(),
        priorities: priorities.to_vec(),
    };
    let of = |resource, allocations: &[Handle]| Call::AllocationPriority {
        device,
        resource,
        allocations: allocations.to_vec(),
    };
    let both = [first, second];
    let normal = 0x7800_0000;
    assert_eq!(world.ok(of(Handle::NULL, &both)), Reply::AllocationPriorities(vec![normal; 2]));
    world.ok(set(Handle::NULL, &both, &[1, 2]));
    assert_eq!(world.ok(of(Handle::NULL, &both)), Reply::AllocationPriorities(vec![1, 2]));
    world.ok(set(resource, &[], &[7]));
    assert_eq!(world.ok(of(Handle::NULL, &both)), Reply::AllocationPriorities(vec![7, 2]));
    assert_eq!(world.ok(of(resource, &[])), Reply::AllocationPriorities(vec![7]));
    for wrong in [
        set(Handle::NULL, &both, &[1]),
        set(resource, &[], &[1, 2]),
        set(resource, &[first], &[1]),
        set(Handle::NULL, &[], &[]),
        set(Handle::NULL, &[first, device], &[1, 2]),
        set(Handle::NULL, &vec![first; limits::ALLOCATIONS_PER_CALL_MAX + 1], &[1; 1025]),
        of(first, &[]),
        of(Handle::NULL, &[]),
        of(resource, &[first]),
    ] {
        assert_eq!(world.status(wrong.clone()), IP, "{wrong:?}");
    }
    assert_eq!(world.ok(of(Handle::NULL, &both)), Reply::AllocationPriorities(vec![7, 2]));
}

#[test]
fn nothing_of_residency_stays_behind() {
    for end in 0..3 {
        let (mut world, script, [device, paging_queue, allocation], _) = set_up();
        world.call(make_resident(paging_queue, &[allocation], 0));
        if end > 0 {
            world.advance(10 * PAGING_NS);
        }
        world.ok(Call::Lock { device, allocation, flags: 0 });
        let mut call = creation(device, F::empty());
        call.allocations[0].system_memory = HEAP + SIZE;
        world.ok(Call::CreateAllocation { create: Box::new(call) });
        match end {
            1 => _ = world.ok(Call::DestroyDevice { device }),
            _ => world.input(Input::ProcessGone { process: P }),
        }
        assert_ne!(engine_sees_memory(&script), Some(true));
        assert_eq!(world.kernel.miscounted(), None);
        if end == 1 {
            assert_eq!(usage(&mut world), 0);
            world.input(Input::ProcessGone { process: P });
        }
        assert_eq!(world.kernel.belongings(P), dxgkrnl::views::Belongings::default());
        assert!(world.kernel.snapshot().is_empty());
    }
}
