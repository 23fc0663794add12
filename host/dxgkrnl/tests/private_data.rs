//! Allocations with private driver data: what the driver sees of them, how they grow, and that nothing is left.

use covers::covers;

use crate::allocations::{HEAP, creation, destroy};
use crate::common::scripted::{ScriptRef, calls, scripted};
use crate::common::{IP, OK, P, World};
use crate::gpu_memory::Mapped;
use crate::paging::queue;
use d3dkmt::allocation_data::{AllocationData, foreign};
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags as F, GpuVaOperation, Handle, NtStatus,
    Reply, ResourceInfo, RuntimeBuffer, ShareToken, calls, limits,
};
use dxgkrnl::{Config, HOST_NAME, Input, ProcessId, VmConfig};

const PENDING: NtStatus = NtStatus::PENDING;
const PAGE: u64 = 4096;

/// Allocations one after another in the process's memory, with these private data.
fn with_data(device: Handle, flags: F, data: &[&[u8]]) -> CreateAllocation {
    let info = |(at, data): (u64, &&[u8])| AllocationInfo {
        system_memory: HEAP + at * 0x1000_0000,
        private_data: data.to_vec(),
        flags: 0,
    };
    let allocations = (0..).zip(data).map(info).collect();
    CreateAllocation { device, flags, allocations, ..CreateAllocation::default() }
}

fn call(create: CreateAllocation) -> Call {
    Call::CreateAllocation { create: Box::new(create) }
}

/// Resource, global handle, allocations and the data that the driver changed.
fn make(world: &mut World, create: CreateAllocation) -> (Handle, Handle, Vec<Handle>, Vec<u8>) {
    match world.ok(call(create)) {
        Reply::Allocations { resource, shared_handle, allocations, private_data, .. } => {
            (resource, shared_handle, allocations, private_data)
        }
        other => panic!("{other:?}"),
    }
}

fn of_driver(script: &ScriptRef) -> Vec<String> {
    calls(script, &["create_alloc", "open_alloc", "close_alloc", "destroy_alloc", "get_standard"])
}

fn size_of(world: &World, handle: Handle) -> u64 {
    let state = world.kernel.snapshot();
    state.allocations.iter().find(|one| one.handle == handle).expect("it is there").size
}

fn is_clean(world: &World) {
    let state = world.kernel.snapshot();
    assert_eq!((state.resources.len(), state.allocations.len(), world.kernel.miscounted()), (0, 0, None));
}

fn described(size: u64) -> Vec<u8> {
    AllocationData { size, ..AllocationData::default() }.encode().to_vec()
}

#[test]
fn the_driver_sees_each_open_and_close_and_destroys_last() {
    covers!("MEM-001", "MEM-007");
    let (mut world, script) = scripted(Config::default());
    let (device, other) = (world.device(), world.device());
    let mut create = with_data(device, F::CREATE_RESOURCE | F::CREATE_SHARED, &[&[1; 5], &[2; 7]]);
    create.private_data = vec![3; 9];
    of_driver(&script);
    let (resource, global, allocations, changed) = make(&mut world, create);
    assert_eq!(
        (allocations.len(), changed),
        (2, vec![]),
        "data that the driver does not know stay as they are"
    );
    let said = of_driver(&script);
    assert_eq!(said[0], "create_allocation 0 1 (5 bytes) 2 (7 bytes) in 1 new true (9 bytes)");
    assert!(
        said[1].starts_with("open_allocation 0 1 as 2 on ") && said[1].ends_with("create true (5 bytes)")
    );
    assert!(
        said[2].starts_with("open_allocation 0 2 as 3 on ") && said[2].ends_with("create true (7 bytes)")
    );

    let info = ResourceInfo {
        private_data_size: 9,
        total_private_data_size: 12,
        allocations: 2,
        ..Default::default()
    };
    let query = Call::QueryResourceInfo { device: other, shared_handle: global };
    assert_eq!(world.ok(query), Reply::ResourceInfo(info));
    let opened = world.ok(Call::OpenResource { device: other, shared_handle: global, info });
    let Reply::OpenedResource { resource: theirs, private_data, private_data_sizes, .. } = opened else {
        panic!()
    };
    assert_eq!(private_data, [&[3; 9][..], &[1; 5], &[2; 7]].concat());
    assert_eq!(private_data_sizes, [5, 7]);
    let said = of_driver(&script);
    assert_eq!(said.iter().filter(|line| line.contains("create false")).count(), 2, "{said:?}");

    assert_eq!(destroy(&mut world, device, resource, &[]), OK);
    let said = of_driver(&script);
    assert!(said.len() == 2 && said.iter().all(|line| line.starts_with("close_allocation")), "{said:?}");
    assert_eq!(destroy(&mut world, other, theirs, &[]), OK);
    let said = of_driver(&script);
    assert_eq!(said[1], "destroy_allocation 0 [1] of None");
    assert_eq!(said[3..], ["destroy_allocation 0 [2] of None", "destroy_allocation 0 [] of Some(1)"]);
    is_clean(&world);
}

#[test]
fn the_drivers_answer_goes_back_and_to_every_opener() {
    covers!("MEM-002", "MEM-006", "MEM-010");
    let mut world = World::new();
    let device = world.device();
    let data = AllocationData { size: 100, width: 8, height: 4, format: 21, ..AllocationData::default() };
    let flags = F::CREATE_RESOURCE | F::CREATE_SHARED | F::NT_SECURITY_SHARING;
    let create = with_data(device, flags, &[&data.encode(), &foreign(0, 20)]);
    let (resource, _, allocations, changed) = make(&mut world, create);
    let (answer, rest) = changed.split_at(AllocationData::BYTES);
    assert_eq!(rest, foreign(0, 20));
    let answer = AllocationData::decode(answer).unwrap();
    assert_eq!((answer.size, answer.alignment, answer.number), (PAGE, PAGE as u32, 1));
    let state = world.kernel.snapshot();
    let [first, second] = &state.allocations[..] else { panic!() };
    let picture = first.driver.as_ref().unwrap().description.unwrap();
    assert_eq!((picture.width, picture.height, picture.format), (8, 4, 21));
    assert_eq!((second.driver.as_ref().unwrap().description, second.size), (None, 0));
    assert_eq!(allocations.len(), 2);

    let token = ShareToken([7; 16]);
    let share = calls::share(resource, token, None);
    world.ok(share);
    world.attach(ProcessId(2));
    world.process = ProcessId(2);
    let device = world.device();
    let open = |total_private_data_size| {
        let info = ResourceInfo { total_private_data_size, allocations: 2, ..Default::default() };
        Call::OpenResourceFromNtHandle { device, token, info, mutex_buffer: RuntimeBuffer::default() }
    };
    assert_eq!(world.status(open(67)), IP);
    let Reply::OpenedResource { private_data, private_data_sizes, .. } = world.ok(open(68)) else { panic!() };
    assert_eq!((private_data, private_data_sizes), (changed, vec![48, 20]));
    world.input(Input::ProcessGone { process: P });
    world.input(Input::ProcessGone { process: ProcessId(2) });
    world.close_nt_handle(token);
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn a_standard_allocation_may_have_data_of_the_driver() {
    covers!("MEM-009");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    of_driver(&script);
    let (_, _, allocations, _) = make(&mut world, creation(device, F::empty()));
    assert_eq!(
        of_driver(&script),
        ["get_standard_allocation_driver_data 0 1 0x3000"],
        "no data, no allocation"
    );
    assert_eq!(destroy(&mut world, device, Handle::NULL, &allocations), OK);
    assert_eq!(of_driver(&script), [""; 0]);

    // More than an allocation may have is as good as none.
    script.borrow().standard_data = Some(vec![9; limits::ALLOCATION_DATA_BYTES_MAX + 1]);
    let (_, _, allocations, _) = make(&mut world, creation(device, F::empty()));
    assert_eq!(destroy(&mut world, device, Handle::NULL, &allocations), OK);
    assert_eq!(of_driver(&script).len(), 1);

    script.borrow().standard_data = Some(vec![9; 11]);
    script.borrow().allocation_answer = Some(|create| create.allocations[0].private_data.fill(8));
    let (resource, global, allocations, changed) =
        make(&mut world, creation(device, F::CREATE_RESOURCE | F::CREATE_SHARED));
    assert!(changed.is_empty(), "the caller has no buffer for them");
    let said = of_driver(&script);
    assert_eq!(said[1], "create_allocation 0 3 (11 bytes) in 1 new true (0 bytes)");
    let query = Call::QueryResourceInfo { device, shared_handle: global };
    let Reply::ResourceInfo(info) = world.ok(query) else { panic!() };
    assert_eq!((info.total_private_data_size, size_of(&world, allocations[0])), (11, 0x3000));
    assert_eq!(destroy(&mut world, device, resource, &[]), OK);
    assert!(of_driver(&script).contains(&"destroy_allocation 0 [3] of None".to_owned()));
    is_clean(&world);
}

#[test]
fn a_call_creates_all_of_its_allocations_or_none() {
    covers!("MEM-008");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let two = |flags| with_data(device, flags, &[&[1], &[2]]);
    for flags in [F::empty(), F::CREATE_RESOURCE, F::CREATE_RESOURCE | F::CREATE_SHARED] {
        for ddi in ["create_allocation", "open_allocation"] {
            script.borrow().failing = Some((ddi, NtStatus::NO_MEMORY));
            of_driver(&script);
            assert_eq!(world.status(call(two(flags))), NtStatus::NO_MEMORY, "{ddi} {flags:?}");
            let said = of_driver(&script);
            let destroyed = said.iter().filter(|line| line.starts_with("destroy_allocation")).count();
            let wanted = match (ddi, flags.is_empty()) {
                ("create_allocation", _) => 0,
                (_, true) => 2,
                (_, false) => 3,
            };
            assert_eq!(destroyed, wanted, "{said:?}");
            is_clean(&world);
        }
    }
    // Answers that no driver may give are violations of its contract, and of no effect.
    let wrong: [fn(&mut dxgkrnl::ddi::CreateAllocation); 5] = [
        |create| create.allocations[1].size = Some(0),
        |create| create.allocations[0].alignment = 3,
        |create| create.allocations[1].private_data.push(1),
        |create| drop(create.allocations.pop()),
        |create| create.allocations[0].segment_group = dxgkrnl::ddi::SegmentGroup::Local,
    ];
    for answer in wrong {
        script.borrow().allocation_answer = Some(answer);
        of_driver(&script);
        assert_eq!(world.status(call(two(F::CREATE_RESOURCE))), NtStatus::UNSUCCESSFUL);
        let said = of_driver(&script);
        assert!(
            said.iter().any(|line| line.starts_with("destroy_allocation 0 [") && line.contains("of Some("))
        );
        is_clean(&world);
    }
    script.borrow().allocation_answer = Some(|create| create.allocations[0].size = Some(u64::MAX - 5));
    assert_eq!(world.status(call(two(F::empty()))), IP, "memory that no process has");
    is_clean(&world);
}

/// The driver has created the allocations before the process runs out of memory for their handles.
#[test]
fn a_call_that_runs_out_of_memory_creates_none_of_its_allocations() {
    covers!("MEM-008");
    let vm = VmConfig { name: HOST_NAME.into(), memory_bytes: 1 << 16, ..VmConfig::default() };
    let (mut world, script) = scripted(Config { vms: vec![vm], ..Config::default() });
    let device = world.device();
    let (resource, ..) = make(&mut world, with_data(device, F::CREATE_RESOURCE, &[&[1]]));
    for (resource, flags) in
        [(Handle::NULL, F::empty()), (Handle::NULL, F::CREATE_RESOURCE), (resource, F::empty())]
    {
        let create = CreateAllocation { resource, ..with_data(device, flags, &[&[1], &[2]]) };
        let mut adapters = world.open_adapters_until_memory_is_full();
        let has = |world: &World| {
            let snapshot = world.kernel.snapshot();
            let memory = world.kernel.memory_bytes(P);
            (world.kernel.belongings(P).handles, memory, snapshot.resources.len(), snapshot.allocations.len())
        };
        let mut refused = 0;
        loop {
            world.ok(Call::CloseAdapter { adapter: adapters.pop().expect("there is room by then") });
            of_driver(&script);
            let before = has(&world);
            match world.call(call(create.clone())) {
                (OK, Reply::Allocations { resource: made, allocations, .. }) => {
                    let is_new = resource == Handle::NULL && made != Handle::NULL;
                    let allocations = if is_new { vec![] } else { allocations };
                    let made = if is_new { made } else { Handle::NULL };
                    assert_eq!(destroy(&mut world, device, made, &allocations), OK);
                    break;
                }
                (status, _) => assert_eq!(status, NtStatus::NO_MEMORY),
            }
            let log = of_driver(&script);
            let count = |ddi: &str| log.iter().filter(|line| line.starts_with(ddi)).count();
            assert_eq!(count("open_allocation"), count("close_allocation"), "{log:?}");
            assert_eq!(has(&world), before);
            refused += 1;
        }
        assert!(refused > 40, "{refused}");
        adapters.into_iter().for_each(|adapter| _ = world.ok(Call::CloseAdapter { adapter }));
        world.adapter();
    }
}

#[test]
fn a_resource_gets_more_allocations_until_it_is_shared() {
    covers!("MEM-008");
    let mut world = World::new();
    let device = world.device();
    let (resource, _, first, _) = make(&mut world, with_data(device, F::CREATE_RESOURCE, &[&[1]]));
    let more = |resource| CreateAllocation { resource, ..with_data(device, F::empty(), &[&[2], &[3]]) };
    let (same, _, added, _) = make(&mut world, more(resource));
    assert_eq!((same, added.len()), (resource, 2));
    let standard = CreateAllocation { resource, ..creation(device, F::empty()) };
    assert_eq!(world.status(call(standard)), IP, "W-258");
    let (of_standard, ..) = make(&mut world, creation(device, F::CREATE_RESOURCE));
    assert_eq!(world.status(call(more(of_standard))), IP, "W-258");
    assert_eq!(world.status(call(more(first[0]))), NtStatus::INVALID_HANDLE);
    let shared = F::CREATE_SHARED | F::NT_SECURITY_SHARING;
    for flags in [F::CREATE_RESOURCE, F::CREATE_SHARED, shared, F::CREATE_RESOURCE | shared] {
        assert_eq!(world.status(call(CreateAllocation { flags, ..more(resource) })), IP, "{flags:?}");
    }
    for flags in [F::CREATE_SHARED, F::CREATE_SHARED | F::NT_SECURITY_SHARING] {
        let (shared, ..) = make(&mut world, with_data(device, F::CREATE_RESOURCE | flags, &[&[1]]));
        assert_eq!(world.status(call(more(shared))), IP, "{flags:?}");
        assert_eq!(destroy(&mut world, device, shared, &[]), OK);
    }
    assert_eq!(destroy(&mut world, device, resource, &[]), OK);
    assert_eq!(destroy(&mut world, device, of_standard, &[]), OK);
    is_clean(&world);
}

#[test]
fn the_limits_of_data_and_allocations_hold() {
    let mut world = World::new();
    let device = world.device();
    let most = limits::ALLOCATION_DATA_BYTES_MAX;
    let with_bytes = |bytes: usize| {
        let mut create = with_data(device, F::CREATE_RESOURCE, &[&[7; 1000]]);
        create.private_data = vec![8; bytes - 1000];
        create
    };
    assert_eq!(world.status(call(with_bytes(most + 1))), IP);
    let before = world.kernel.memory_bytes(P).unwrap();
    let (resource, ..) = make(&mut world, with_bytes(most));
    assert!(world.kernel.memory_bytes(P).unwrap() >= before + most as u64, "the data are charged");
    let more = CreateAllocation { resource, ..with_data(device, F::empty(), &[&[1]]) };
    assert_eq!(world.status(call(more)), IP, "the resource has as much as one open returns");
    assert_eq!(destroy(&mut world, device, resource, &[]), OK);
    assert_eq!(world.kernel.memory_bytes(P).unwrap(), before);

    let many = |count: usize| with_data(device, F::CREATE_RESOURCE, &vec![&[1_u8][..]; count]);
    assert_eq!(world.status(call(many(limits::ALLOCATIONS_PER_CALL_MAX + 1))), IP);
    let (resource, _, allocations, _) = make(&mut world, many(limits::ALLOCATIONS_PER_CALL_MAX));
    assert_eq!(allocations.len(), limits::ALLOCATIONS_PER_CALL_MAX);
    let more = CreateAllocation { resource, ..with_data(device, F::empty(), &[&[1]]) };
    assert_eq!(world.status(call(more)), IP);
    world.input(Input::ProcessGone { process: P });
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn invalid_creations_with_data_are_refused_and_leak_nothing() {
    let mut world = World::new();
    let device = world.device();
    type Spoil = fn(&mut CreateAllocation);
    const NS: NtStatus = NtStatus::NOT_SUPPORTED;
    let wrong: [(&str, NtStatus, Spoil); 10] = [
        ("no data at all", IP, |call| call.allocations[0].private_data = vec![]),
        ("StandardAllocation without its struct", IP, |call| call.flags |= F::STANDARD_ALLOCATION),
        ("no allocations", IP, |call| {
            call.allocations.clear();
            call.private_data = vec![1];
        }),
        ("ExistingSysMem without memory", IP, |call| {
            call.flags |= F::EXISTING_SYS_MEM;
            call.allocations[0].system_memory = 0;
        }),
        ("a part of a page", IP, |call| call.allocations[0].system_memory += 8),
        ("beyond user memory", IP, |call| call.allocations[0].system_memory = limits::USER_END),
        ("reserved flags", IP, |call| call.allocations[0].flags = 8),
        ("a primary", NS, |call| call.allocations[0].flags = 1),
        ("a section", NS, |call| call.flags |= F::EXISTING_SECTION),
        ("memory of the device of unknown size", NS, |call| call.allocations[0].system_memory = 0),
    ];
    for (what, status, spoil) in wrong {
        let mut create = with_data(device, F::empty(), &[&[1, 2, 3]]);
        spoil(&mut create);
        assert_eq!(world.status(call(create)), status, "{what}");
        let note = world.effects.notes.last().expect("a refusal says why");
        assert!(!note.text.is_empty(), "{what}");
        is_clean(&world);
    }
}

#[test]
fn only_the_creators_mappings_let_an_allocation_grow() {
    covers!("MEM-004");
    let mut world = World::new();
    let (device, other) = (world.device(), world.device());
    let (paging, theirs) = (queue(&mut world, device, 0).0, queue(&mut world, other, 0).0);
    let flags = F::CREATE_RESOURCE | F::CREATE_SHARED;
    let (_, global, allocations, _) = make(&mut world, with_data(device, flags, &[&foreign(0, 64)]));
    let allocation = allocations[0];
    let map = |world: &mut World, paging: Handle, allocation: Handle, offset_pages: u64, pages: u64| {
        world.status(Mapped { offset_pages, pages, ..Mapped::whole(allocation) }.by(paging))
    };
    assert_eq!(size_of(&world, allocation), 0);
    assert_eq!(map(&mut world, paging, allocation, 2, 3), PENDING);
    assert_eq!(size_of(&world, allocation), 5 * PAGE);
    assert_eq!(map(&mut world, paging, allocation, 0, 1), PENDING);
    assert_eq!(size_of(&world, allocation), 5 * PAGE, "it never shrinks");
    // A map that is refused changes nothing.
    let nowhere = Mapped { base: 0x1_0000_0000, pages: 9, ..Mapped::whole(allocation) };
    assert_eq!(world.status(nowhere.by(paging)), IP);
    for (offset, pages) in [(u64::MAX, 2), (1 << 52, 1), ((limits::USER_END - HEAP) / PAGE, 1)] {
        assert_eq!(map(&mut world, paging, allocation, offset, pages), IP, "{offset} {pages}");
    }
    assert_eq!(size_of(&world, allocation), 5 * PAGE);

    let info = ResourceInfo { total_private_data_size: 64, allocations: 1, ..Default::default() };
    let opened = world.ok(Call::OpenResource { device: other, shared_handle: global, info });
    let Reply::OpenedResource { allocations: opened, .. } = opened else { panic!() };
    assert_eq!(map(&mut world, theirs, opened[0], 0, 5), PENDING);
    assert_eq!(map(&mut world, theirs, opened[0], 0, 6), IP);

    // An update lets it grow as well: all of its operations, or none.
    let context = world.context(device, 0);
    let fence = world.fence(device, 0);
    let reserve =
        Call::ReserveGpuVirtualAddress { owner: paging, base: 0, minimum: 0, maximum: 0, size: 0x2_0000 };
    let Reply::GpuVirtualAddress { address, .. } = world.ok(reserve) else { panic!() };
    let operation = |allocation, pages: u64| GpuVaOperation {
        base: address,
        size: pages * PAGE,
        allocation,
        allocation_size: pages * PAGE,
        ..GpuVaOperation::default()
    };
    let update = |operations: Vec<GpuVaOperation>| Call::UpdateGpuVirtualAddress {
        device,
        context,
        fence: fence.object,
        fence_value: 0,
        operations,
        flags: 0,
    };
    let refused = vec![operation(allocation, 8), operation(Handle(0x4000_0F00), 1)];
    assert_eq!(world.status(update(refused)), IP);
    assert_eq!(size_of(&world, allocation), 5 * PAGE);
    assert_eq!(world.status(update(vec![operation(allocation, 8), operation(allocation, 7)])), OK);
    assert_eq!(size_of(&world, allocation), 8 * PAGE);
    world.input(Input::ProcessGone { process: P });
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn what_a_resident_allocation_grows_by_is_charged_to_each_process_that_has_it() {
    covers!("MEM-005");
    let mut world = World::new();
    let device = world.device();
    let paging = queue(&mut world, device, 0).0;
    let data: [&[u8]; 2] = [&foreign(0, 64), &described(3 * PAGE)];
    let (_, _, allocations, _) = make(&mut world, with_data(device, F::empty(), &data));
    let usage = |world: &mut World| {
        let adapter = world.adapter();
        let query = Call::QueryVideoMemoryInfo { adapter, segment_group: 1, physical_adapter: 0 };
        let Reply::VideoMemoryInfo { current_usage, .. } = world.ok(query) else { panic!() };
        current_usage
    };
    let resident = |allocations: &[Handle]| Call::MakeResident {
        paging_queue: paging,
        allocations: allocations.to_vec(),
        priorities: vec![],
        flags: 0,
    };
    assert_eq!(world.status(resident(&allocations)), PENDING);
    assert_eq!(usage(&mut world), 3 * PAGE);
    let grow = |pages: u64| Mapped { pages, ..Mapped::whole(allocations[0]) }.by(paging);
    assert_eq!(world.status(grow(4)), PENDING);
    assert_eq!(usage(&mut world), 7 * PAGE);
    let evict = Call::Evict { device, allocations: vec![allocations[0]], flags: 0 };
    world.ok(evict);
    assert_eq!(usage(&mut world), 3 * PAGE);
    assert_eq!(world.status(grow(6)), PENDING);
    assert_eq!(usage(&mut world), 3 * PAGE, "it is not resident");
    assert_eq!(destroy(&mut world, device, Handle::NULL, &allocations), OK);
    assert_eq!(usage(&mut world), 0);
    is_clean(&world);
}
