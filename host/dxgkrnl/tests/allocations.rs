//! Allocations and resources: valid handles, lifetimes, and that nothing leaks. `tests/c/rows_allocation.c` checks the
//! answers that were observed on Windows.

use covers::covers;

use crate::common::{IP, OK, P, World};
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags as F, DestroyAllocationFlags, Handle,
    KeyedMutexFlags, NtStatus, Reply, ResourceInfo, RuntimeBuffer, ShareToken, StandardAllocation,
    SyncObjectFlags, SyncObjectInfo, SyncObjectType, access, calls, limits,
};
use dxgkrnl::{AdapterConfig, Config, HOST_NAME, Input, ProcessId, VmConfig};

pub(crate) const HEAP: u64 = 0x7F00_0000_0000;

pub(crate) fn creation(device: Handle, flags: F) -> CreateAllocation {
    CreateAllocation {
        device,
        flags: flags | F::EXISTING_SYS_MEM | F::STANDARD_ALLOCATION,
        standard: Some(StandardAllocation {
            kind: StandardAllocation::EXISTING_HEAP,
            size: 0x3000,
            ..Default::default()
        }),
        allocations: vec![AllocationInfo { system_memory: HEAP, ..Default::default() }],
        ..CreateAllocation::default()
    }
}

/// The resource, its global handle, and the allocation; NULL for those that the call does not create.
pub(crate) fn create(world: &mut World, device: Handle, flags: F) -> (Handle, Handle, Handle) {
    match world.ok(Call::CreateAllocation { create: Box::new(creation(device, flags)) }) {
        Reply::Allocations { resource, shared_handle, allocations, .. } => {
            assert_eq!(allocations.len(), 1);
            (resource, shared_handle, allocations[0])
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn destroy(
    world: &mut World,
    device: Handle,
    resource: Handle,
    allocations: &[Handle],
) -> NtStatus {
    let (allocations, flags) = (allocations.to_vec(), DestroyAllocationFlags::empty());
    world.status(Call::DestroyAllocation { device, resource, allocations, flags })
}

fn open_call(device: Handle, shared_handle: Handle) -> Call {
    Call::OpenResource { device, shared_handle, info: ResourceInfo { allocations: 1, ..Default::default() } }
}

pub(crate) fn open(world: &mut World, device: Handle, shared: Handle) -> (Handle, Handle) {
    match world.ok(open_call(device, shared)) {
        Reply::OpenedResource { resource, allocations, .. } => (resource, allocations[0]),
        other => panic!("{other:?}"),
    }
}

fn counts(world: &World) -> (usize, usize) {
    let state = world.kernel.snapshot();
    (state.resources.len(), state.allocations.len())
}

#[test]
fn a_list_is_destroyed_whole_or_not_at_all() {
    let mut world = World::new();
    let device = world.device();
    let (_, _, one) = create(&mut world, device, F::empty());
    let (_, _, other) = create(&mut world, device, F::empty());
    for list in [&[one, other, one][..], &[one, device], &[one, Handle::NULL], &[one, Handle(0x4000_0F00)]] {
        assert_eq!(destroy(&mut world, device, Handle::NULL, list), IP, "{list:?}");
        assert_eq!(counts(&world), (0, 2));
    }
    let (resource, _, _) = create(&mut world, device, F::CREATE_RESOURCE);
    assert_eq!(destroy(&mut world, device, resource, &[one]), IP, "a resource and a list");
    assert_eq!(destroy(&mut world, device, one, &[]), IP, "an allocation is no resource");
    let many = vec![one; limits::ALLOCATIONS_PER_CALL_MAX + 1];
    assert_eq!(destroy(&mut world, device, Handle::NULL, &many), IP);
    let flags = DestroyAllocationFlags::from_bits_retain(4);
    let call = Call::DestroyAllocation { device, resource, allocations: Vec::new(), flags };
    assert_eq!(world.status(call), IP, "reserved flags");
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[one, other]), OK);
    assert_eq!(counts(&world), (1, 1));
}

#[test]
fn an_allocation_handle_is_valid_on_its_own_device_only() {
    let mut world = World::new();
    let (device, other) = (world.device(), world.device());
    let (resource, _, allocation) = create(&mut world, device, F::CREATE_RESOURCE);
    assert_eq!(destroy(&mut world, other, Handle::NULL, &[allocation]), IP);
    assert_eq!(destroy(&mut world, other, resource, &[]), IP);
    let mut creation_on_other = creation(other, F::CREATE_RESOURCE);
    creation_on_other.resource = resource;
    assert_eq!(
        world.status(Call::CreateAllocation { create: Box::new(creation_on_other) }),
        NtStatus::INVALID_HANDLE
    );
    world.ok(Call::DestroyDevice { device: other });
    assert_eq!(counts(&world), (1, 1), "the other device's allocation stays");
    world.ok(Call::DestroyDevice { device });
    assert_eq!(counts(&world), (0, 0), "the device's allocations ended with it");
    assert_eq!(destroy(&mut world, device, resource, &[]), IP);
}

#[test]
fn a_shared_resource_lives_until_its_last_open_is_destroyed() {
    let mut world = World::new();
    let device = world.device();
    let (resource, shared, allocation) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    let (again, of_it) = open(&mut world, device, shared);
    assert!(again != resource && of_it != allocation);
    let numbers: Vec<u32> = world.kernel.snapshot().allocations.iter().map(|one| one.allocation).collect();
    assert_eq!(numbers, [numbers[0]; 2], "both are opens of one allocation");

    let other = ProcessId(2);
    world.attach(other);
    world.process = other;
    let device_of_other = world.device();
    let (theirs, _) = open(&mut world, device_of_other, shared);
    world.input(Input::ProcessGone { process: P });
    assert_eq!(counts(&world), (1, 1), "the creator has ended, the other process has it open");
    let (more, _) = open(&mut world, device_of_other, shared);
    for handle in [theirs, more] {
        assert_eq!(destroy(&mut world, device_of_other, handle, &[]), OK);
    }
    assert_eq!(
        world.status(open_call(device_of_other, shared)),
        IP,
        "destroying the last open destroys the resource"
    );
}

#[test]
fn an_allocation_leaves_its_resource_with_its_last_handle() {
    let mut world = World::new();
    let device = world.device();
    let (_, shared, allocation) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    let info = |world: &mut World| match world.ok(Call::QueryResourceInfo { device, shared_handle: shared }) {
        Reply::ResourceInfo(info) => info.allocations,
        other => panic!("{other:?}"),
    };
    let (_, second) = open(&mut world, device, shared);
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[allocation]), OK);
    assert_eq!(info(&mut world), 1, "the second open still has the allocation");
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[second]), OK);
    assert_eq!(info(&mut world), 0);
    assert_eq!(world.status(open_call(device, shared)), IP, "the resource has no allocation to open");
}

#[test]
fn a_global_handle_is_valid_in_one_vm_and_on_one_adapter() {
    let config = Config { adapters: vec![AdapterConfig::default(); 2], ..Config::default() };
    let mut world = World::with_config(config);
    let adapters = match world.ok(Call::EnumAdapters { capacity: 2 }) {
        Reply::Adapters(adapters) => adapters,
        other => panic!("{other:?}"),
    };
    let devices: Vec<Handle> = adapters
        .iter()
        .map(|adapter| match world.ok(Call::CreateDevice { adapter: adapter.handle, flags: 0 }) {
            Reply::Device(device) => device,
            other => panic!("{other:?}"),
        })
        .collect();
    let (_, shared, _) = create(&mut world, devices[0], F::CREATE_RESOURCE | F::CREATE_SHARED);
    assert_eq!(world.status(open_call(devices[1], shared)), IP, "another adapter");
    assert_eq!(
        world.status(Call::OpenSynchronizationObject { shared_handle: shared }),
        IP,
        "the handle names no synchronization object"
    );
    world.guest(1, ProcessId(9));
    let device = world.device_on(adapters[0].luid);
    assert_eq!(world.status(open_call(device, shared)), IP, "another VM");
}

#[test]
fn invalid_creations_are_refused_and_leak_nothing() {
    let mut world = World::new();
    let device = world.device();
    type Spoil = fn(&mut CreateAllocation);
    let wrong: [(&str, NtStatus, Spoil); 13] = [
        ("reserved flags", IP, |call| call.flags |= F::from_bits_retain(1 << 31)),
        ("NtSecuritySharing alone", IP, |call| call.flags |= F::NT_SECURITY_SHARING),
        ("CreateShared alone", IP, |call| call.flags |= F::CREATE_SHARED),
        ("standard flags", IP, |call| call.standard.as_mut().unwrap().flags = 1),
        ("type 2", IP, |call| call.standard.as_mut().unwrap().kind = 2),
        ("size 0", IP, |call| call.standard.as_mut().unwrap().size = 0),
        ("beyond user memory", IP, |call| call.standard.as_mut().unwrap().size = 1 << 47),
        ("past the end", IP, |call| call.standard.as_mut().unwrap().size = !0xFFF),
        ("a part of a page", IP, |call| call.allocations[0].system_memory += 8),
        ("driver data of the allocation", IP, |call| call.allocations[0].private_data = vec![1]),
        ("flags of the allocation", IP, |call| call.allocations[0].flags = 1),
        ("runtime data", IP, |call| call.runtime_data = vec![0; limits::RESOURCE_DATA_BYTES_MAX + 1]),
        ("an unknown resource", NtStatus::INVALID_HANDLE, |call| call.resource = Handle(0x4000_0F00)),
    ];
    for (what, status, spoil) in wrong {
        let mut call = creation(device, F::empty());
        spoil(&mut call);
        assert_eq!(world.status(Call::CreateAllocation { create: Box::new(call) }), status, "{what}");
        assert_eq!(counts(&world), (0, 0), "{what}");
        let note = world.effects.notes.last().expect("a refusal says why");
        assert!(!note.text.is_empty(), "{what}");
    }
    let mut most = creation(device, F::CREATE_RESOURCE);
    most.runtime_data = vec![7; limits::RESOURCE_DATA_BYTES_MAX];
    world.ok(Call::CreateAllocation { create: Box::new(most) });
}

#[test]
fn a_process_has_no_more_allocations_than_the_limit() {
    let mut world = World::new();
    let device = world.device();
    let (_, shared, _) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    world.filling(|world| {
        for _ in 1..limits::ALLOCATIONS_PER_PROCESS_MAX {
            create(world, device, F::empty());
        }
    });
    let call = Call::CreateAllocation { create: Box::new(creation(device, F::CREATE_RESOURCE)) };
    assert_eq!(world.status(call), NtStatus::NO_MEMORY);
    assert_eq!(world.status(open_call(device, shared)), NtStatus::NO_MEMORY);
    assert_eq!(counts(&world), (1, limits::ALLOCATIONS_PER_PROCESS_MAX));
    world.input(Input::ProcessGone { process: P });
    assert!(world.kernel.snapshot().is_empty());
}

fn by_token(device: Handle, token: ShareToken, allocations: u32) -> Call {
    let info = ResourceInfo { allocations, ..Default::default() };
    Call::OpenResourceFromNtHandle { device, token, info, mutex_buffer: RuntimeBuffer::default() }
}

/// Resource, allocation, keyed mutex, sync object.
fn opened(world: &mut World, call: Call) -> [Handle; 4] {
    match world.ok(call) {
        Reply::OpenedResource { resource, allocations, keyed_mutex, sync_object, .. } => {
            [resource, allocations[0], keyed_mutex, sync_object]
        }
        other => panic!("{other:?}"),
    }
}

fn share_all(objects: &[Handle], token: ShareToken) -> Call {
    share_with(objects, 0x1F_0003, token)
}

fn share_with(objects: &[Handle], desired_access: u32, token: ShareToken) -> Call {
    Call::ShareObjects { objects: objects.to_vec(), desired_access, name: None, token }
}

/// A keyed mutex without a global handle, and a MUTEX that may have an NT handle.
fn guards(world: &mut World, device: Handle) -> [Handle; 2] {
    let flags = KeyedMutexFlags::NT_SECURITY_SHARING;
    let create = Call::CreateKeyedMutex { initial_value: 0, private_data: vec![1, 2, 3], flags };
    let Reply::KeyedMutex { mutex, .. } = world.ok(create) else { panic!() };
    let info = SyncObjectInfo {
        object_type: SyncObjectType::MUTEX,
        flags: SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING,
        ..SyncObjectInfo::default()
    };
    [mutex, world.object(device, info).object]
}

#[test]
fn an_nt_handle_opens_its_resource_and_keeps_it_alive() {
    let mut world = World::new();
    let device = world.device();
    let (resource, global, allocation) =
        create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED | F::NT_SECURITY_SHARING);
    assert_eq!(global, Handle::NULL);
    let (token, second) = (ShareToken([1; 16]), ShareToken([2; 16]));
    world.ok(share_all(&[resource], token));
    world.ok(share_all(&[allocation], second));
    let info = world.ok(Call::QueryResourceInfoFromNtHandle { device, token });
    assert_eq!(info, Reply::ResourceInfo(ResourceInfo { allocations: 1, ..Default::default() }));
    assert_eq!(world.status(by_token(device, token, 2)), IP, "W-266 applies here, too");
    assert_eq!(destroy(&mut world, device, resource, &[]), OK);
    let [again, of_it, mutex, sync] = opened(&mut world, by_token(device, second, 1));
    assert!(again != resource && of_it != allocation);
    assert_eq!((mutex, sync), (Handle::NULL, Handle::NULL));
    assert_eq!(destroy(&mut world, device, again, &[]), OK);
    // An open NT handle keeps the resource alive.
    world.close_nt_handle(token);
    assert_eq!(world.status(by_token(device, token, 1)), NtStatus::INVALID_HANDLE);
    let [again, ..] = opened(&mut world, by_token(device, second, 1));
    world.close_nt_handle(second);
    assert_eq!(counts(&world), (1, 1));
    assert_eq!(destroy(&mut world, device, again, &[]), OK);
    assert_eq!((counts(&world), world.kernel.miscounted()), ((0, 0), None));
    // Closing the last NT handle destroys the resource.
    let (resource, ..) =
        create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED | F::NT_SECURITY_SHARING);
    world.ok(share_all(&[resource], token));
    world.input(Input::ProcessGone { process: P });
    world.close_nt_handle(token);
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn a_shared_resource_names_its_adapter() {
    let mut world = World::new();
    let device = world.device();
    let luid = world.kernel.config().adapters[0].luid;
    let (_, shared_handle, _) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    assert_eq!(world.ok(Call::SharedResourceAdapter { shared_handle }), Reply::AdapterLuid { luid });
    assert_eq!(world.status(Call::SharedResourceAdapter { shared_handle: Handle::NULL }), IP);
    let nt = F::CREATE_RESOURCE | F::CREATE_SHARED | F::NT_SECURITY_SHARING;
    let (resource, ..) = create(&mut world, device, nt);
    assert_eq!(world.status(Call::SharedResourceAdapter { shared_handle: resource }), IP, "a local handle");
    let token = ShareToken([1; 16]);
    let call = Call::SharedResourceAdapterFromNtHandle { token };
    assert_eq!(world.status(call.clone()), NtStatus::INVALID_HANDLE);
    world.ok(share_with(&[resource], 1, token));
    assert_eq!(world.status(call.clone()), NtStatus::ACCESS_DENIED, "no right to read");
    world.close_nt_handle(token);
    world.ok(share_all(&[resource], token));
    assert_eq!(world.ok(call.clone()), Reply::AdapterLuid { luid });
    world.ok(Call::DestroyDevice { device });
    assert_eq!(world.ok(call), Reply::AdapterLuid { luid }, "no device is needed");
}

#[test]
fn an_open_with_guards_that_runs_out_of_memory_opens_nothing() {
    let vm = VmConfig { name: HOST_NAME.into(), memory_bytes: 1 << 17, ..VmConfig::default() };
    let mut world = World::with_config(Config { vms: vec![vm], ..Config::default() });
    let device = world.device();
    let nt = F::CREATE_RESOURCE | F::CREATE_SHARED | F::NT_SECURITY_SHARING;
    let (resource, ..) = create(&mut world, device, nt);
    let [mutex, sync] = guards(&mut world, device);
    let token = ShareToken([5; 16]);
    world.ok(share_all(&[resource, mutex, sync], token));
    let mut adapters = world.open_adapters_until_memory_is_full();
    let mut refused = 0;
    while let Some(adapter) = adapters.pop() {
        world.ok(Call::CloseAdapter { adapter });
        let before = (world.kernel.belongings(P).handles, world.kernel.memory_bytes(P));
        match world.status(by_token(device, token, 1)) {
            OK => break,
            status => assert_eq!(status, NtStatus::NO_MEMORY),
        }
        assert_eq!((world.kernel.belongings(P).handles, world.kernel.memory_bytes(P)), before);
        refused += 1;
    }
    assert!(refused > 100 && !adapters.is_empty(), "{refused}");
    world.close_nt_handle(token);
    world.finish();
}

#[test]
fn an_nt_handle_names_no_resource_with_a_global_handle_and_no_resource_beside_its_allocation() {
    covers!("FEN-066");
    let mut world = World::new();
    let device = world.device();
    let nt = F::CREATE_RESOURCE | F::CREATE_SHARED | F::NT_SECURITY_SHARING;
    let (resource, _, allocation) = create(&mut world, device, nt);
    let (plain, ..) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
    let [mutex, sync] = guards(&mut world, device);
    for refused in [&[][..], &[plain], &[plain, mutex, sync], &[resource, allocation]] {
        assert_eq!(world.status(share_all(refused, ShareToken([9; 16]))), IP, "{refused:?}");
    }
}

#[test]
fn an_object_that_opens_with_its_resource_has_the_rights_of_their_nt_handle() {
    covers!("FEN-069");
    let mut world = World::new();
    let device = world.device();
    let nt = F::CREATE_RESOURCE | F::CREATE_SHARED | F::NT_SECURITY_SHARING;
    let (resource, ..) = create(&mut world, device, nt);
    let [mutex, sync] = guards(&mut world, device);
    let (all, waits) = (ShareToken([6; 16]), ShareToken([7; 16]));
    world.ok(share_all(&[resource, mutex, sync], all));
    world.ok(share_with(&[resource, mutex, sync], access::GENERIC_READ, waits));
    let device = world.other(2);
    let context = world.context(device, 0);
    let [.., object] = opened(&mut world, by_token(device, all, 1));
    let [.., only_waits] = opened(&mut world, by_token(device, waits, 1));
    for (object, answer) in [(object, OK), (only_waits, NtStatus::ACCESS_DENIED)] {
        assert_eq!(world.status(share_all(&[object], ShareToken([8; 16]))), answer);
        world.ok(calls::acquire(context, &[object]));
        assert_eq!(world.status(calls::release(context, &[object])), answer);
    }
}

#[test]
fn an_nt_handle_opens_the_mutex_and_fence_of_its_resource_and_keeps_them_alive() {
    let mut world = World::new();
    let device = world.device();
    let nt = F::CREATE_RESOURCE | F::CREATE_SHARED | F::NT_SECURITY_SHARING;
    let (resource, ..) = create(&mut world, device, nt);
    let [mutex, sync] = guards(&mut world, device);
    let token = ShareToken([5; 16]);
    world.ok(share_all(&[resource, mutex, sync], token));
    let other = ProcessId(2);
    world.attach(other);
    world.process = other;
    let device = world.device();
    let handles = |world: &World| world.kernel.belongings(other).handles;
    let before = handles(&world);
    // The buffer is too small for the mutex's data: the call opens nothing.
    let small = RuntimeBuffer { size: 1, present: true, data: vec![] };
    let info = ResourceInfo { allocations: 1, ..Default::default() };
    let call = Call::OpenResourceFromNtHandle { device, token, info, mutex_buffer: small };
    assert_eq!((world.status(call), handles(&world)), (IP, before));
    let [theirs, _, their_mutex, their_sync] = opened(&mut world, by_token(device, token, 1));
    world.input(Input::ProcessGone { process: P });
    let acquire =
        Call::AcquireKeyedMutex { mutex: their_mutex, key: 0, timeout: Some(0), event: d3dkmt::EventId(1) };
    assert_eq!(world.status(acquire), OK);
    assert_eq!(world.status(Call::DestroySynchronizationObject { object: their_sync }), OK);
    assert_eq!(destroy(&mut world, device, theirs, &[]), OK);
    opened(&mut world, by_token(device, token, 1));
    world.input(Input::ProcessGone { process: other });
    assert_eq!(world.kernel.miscounted(), None);
    world.close_nt_handle(token);
    assert!(world.kernel.snapshot().is_empty());
}
