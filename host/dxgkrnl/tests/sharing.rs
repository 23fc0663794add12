//! NT handles, names and rights; cross-adapter objects, and objects shared between VMs by a grant.

use covers::covers;

use crate::common::executed::executed;
use crate::common::{IP, OK, P, World};
use d3dkmt::isa::Packet::*;
use d3dkmt::{
    Call, CreatedSyncObject, Handle, KeyedMutexFlags, Luid, NtStatus, Reply, RuntimeBuffer, ShareToken,
    SyncObjectFlags as F, SyncObjectInfo, SyncObjectType as T, access, calls, limits,
};
use dxgkrnl::{AdapterConfig, Config, Effects, Fault, Grant, Input, ProcessId, VmId};

const IH: NtStatus = NtStatus::INVALID_HANDLE;
const AD: NtStatus = NtStatus::ACCESS_DENIED;
const NF: NtStatus = NtStatus::OBJECT_NAME_NOT_FOUND;
const NT: F = F::SHARED.union(F::NT_SECURITY_SHARING);
const READ: u32 = access::STANDARD_RIGHTS_READ;
const ALL: u32 = access::SYNC_OBJECT_ALL_ACCESS;

fn token(number: u32) -> ShareToken {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    ShareToken(bytes)
}

fn share(objects: &[Handle], desired_access: u32, name: Option<&str>, number: u32) -> Call {
    let (objects, name) = (objects.to_vec(), name.map(String::from));
    Call::ShareObjects { objects, desired_access, name, token: token(number) }
}

fn open(device: Handle, number: u32) -> Call {
    calls::open(device, token(number))
}

/// The first form: no device.
fn open_legacy(number: u32) -> Call {
    let (device, token, flags) = (Handle::NULL, token(number), F::empty());
    Call::OpenSyncObject { device, token, flags, engine_affinity: 0, legacy: true }
}

fn by_name(name: &str, desired_access: u32, number: u32) -> Call {
    Call::OpenNtHandleFromName { name: name.into(), desired_access, token: token(number), sync_object: true }
}

fn opened(world: &mut World, call: Call) -> CreatedSyncObject {
    let Reply::SyncObject(opened) = world.ok(call) else { panic!() };
    opened
}

fn mutex(world: &mut World, device: Handle, flags: F) -> Handle {
    world.object(device, SyncObjectInfo { object_type: T::MUTEX, flags, ..SyncObjectInfo::default() }).object
}

fn destroy(world: &mut World, object: Handle) {
    world.ok(Call::DestroySynchronizationObject { object });
}

/// Attaches a process of a VM, which makes the following calls; returns its device.
fn in_vm(world: &mut World, process: u32, vm: u32) -> Handle {
    world.process = ProcessId(process);
    let (process, vm) = (world.process, VmId(vm));
    world.input(Input::ProcessAttached { process, vm, pid: 7, name: "guest".into() });
    world.input(Input::FenceMemoryAdded { process, slots: 64 });
    world.device()
}

fn with_vms(grants: Vec<Grant>) -> World {
    let mut world = World::with_config(Config { grants, ..Config::default() });
    for (vm, name) in [(1, "one"), (2, "two"), (3, "three")] {
        world.input(Input::VmAttached { vm: VmId(vm), name: name.into() });
    }
    world
}

fn grant(name: &str, vms: &[&str]) -> Grant {
    Grant { name: name.into(), vms: vms.iter().map(|vm| String::from(*vm)).collect() }
}

#[test]
fn an_nt_handle_has_the_access_and_the_name_it_was_made_with() {
    covers!("W-125");
    let mut world = World::new();
    let device = world.device();
    let shared = mutex(&mut world, device, NT);
    assert_eq!(world.status(share(&[shared], READ, Some("Mutex"), 1)), OK);
    let states = world.kernel.snapshot().nt_handles;
    assert_eq!((states.len(), states[0].access, states[0].name.as_deref()), (1, READ, Some("Mutex")));
    world.finish();
}

#[test]
fn invalid_sync_object_handles_are_neither_shared_nor_destroyed() {
    covers!("W-126");
    let mut world = World::new();
    let device = world.device();
    let shared = mutex(&mut world, device, NT);
    world.ok(share(&[shared], ALL, None, 1));
    // The low half of an NT handle has both top bits clear (W-002).
    for number in [0x1234, 0x3FFF_FFFC, 4, 0] {
        assert_eq!(world.status(Call::DestroySynchronizationObject { object: Handle(number) }), IP);
        assert_eq!(world.status(share(&[Handle(number)], ALL, None, 2)), IP);
    }
    assert_eq!(world.status(share(&[device], ALL, None, 2)), IP);
    world.finish();
}

#[test]
fn an_nt_handle_of_no_object_is_refused() {
    covers!("FEN-041");
    let mut world = World::new();
    assert_eq!(world.status(share(&[], ALL, None, 1)), IP);
    assert!(world.effects.notes.last().unwrap().text.contains("1 to 3 objects"));
}

#[test]
fn a_keyed_mutex_is_not_shared_alone() {
    covers!("W-130", "W-131", "W-132", "FEN-066");
    let mut world = World::new();
    let create = |flags| Call::CreateKeyedMutex { initial_value: 0, private_data: vec![], flags };
    let Reply::KeyedMutex { mutex, shared_handle, .. } = world.ok(create(KeyedMutexFlags::empty())) else {
        panic!()
    };
    let Reply::KeyedMutex { mutex: nt, .. } = world.ok(create(KeyedMutexFlags::NT_SECURITY_SHARING)) else {
        panic!()
    };
    for object in [mutex, shared_handle, nt] {
        assert_eq!(world.status(share(&[object], ALL, None, 1)), IP);
    }
    // A sync object's token opens no keyed mutex, and an unknown token opens nothing.
    let device = world.device();
    let object = self::mutex(&mut world, device, NT);
    world.ok(share(&[object], ALL, None, 1));
    let open =
        |number| Call::OpenKeyedMutexFromNtHandle { token: token(number), buffer: RuntimeBuffer::default() };
    assert_eq!(world.status(open(1)), NtStatus::OBJECT_TYPE_MISMATCH);
    assert_eq!(world.status(open(2)), IH);
    world.finish();
}

#[test]
fn an_nt_handle_keeps_an_object_alive_after_its_creator_destroys_it() {
    covers!("W-127", "W-140", "W-141", "W-142");
    let mut world = World::new();
    let device = world.device();
    let created = mutex(&mut world, device, NT);
    world.ok(share(&[created], READ, None, 1));
    destroy(&mut world, created);
    assert_eq!(world.status(open_legacy(2)), IH);
    let opened = opened(&mut world, open_legacy(1));
    assert_eq!((opened.shared_handle, opened.slot), (Handle::NULL, None));
    destroy(&mut world, opened.object);
    assert_eq!(world.status(Call::DestroySynchronizationObject { object: opened.object }), IP);
    assert_eq!(world.kernel.snapshot().objects_alive, 1);
    world.close_nt_handle(token(1));
    assert_eq!(world.kernel.snapshot().objects_alive, 0);
    assert_eq!(world.status(open_legacy(1)), IH);
    world.finish();
}

#[test]
fn names_are_case_insensitive_and_opened_with_requested_access() {
    covers!("W-147", "W-148", "W-149", "FEN-070");
    let mut world = World::new();
    let device = world.device();
    let created = mutex(&mut world, device, NT);
    world.ok(share(&[created], READ, Some("Frame Ä"), 1));
    assert_eq!(world.status(by_name("Frame", 0, 2)), NF);
    assert_eq!(world.status(by_name("fRAME ä", 0, 2)), AD);
    assert_eq!(world.status(by_name("fRAME ä", READ, 1)), IP, "each NT handle has a token of its own");
    world.ok(by_name("fRAME ä", READ, 2));
    let spelling = Some(String::from("Frame Ä"));
    assert!(
        world.kernel.snapshot().nt_handles.iter().all(|handle| handle.name == spelling),
        "in one letter case"
    );
    destroy(&mut world, created);
    let opened = opened(&mut world, open_legacy(2));
    destroy(&mut world, opened.object);
    world.finish();
}

#[test]
fn a_name_is_in_use_while_an_nt_handle_has_it() {
    let mut world = World::new();
    let device = world.device();
    let (one, two) = (mutex(&mut world, device, NT), mutex(&mut world, device, NT));
    world.ok(share(&[one], READ, Some("name"), 1));
    assert_eq!(world.status(share(&[two], READ, Some("NAME"), 2)), NtStatus::OBJECT_NAME_COLLISION);
    world.ok(by_name("name", READ, 3));
    world.close_nt_handle(token(1));
    assert_eq!(world.status(share(&[two], READ, Some("NAME"), 2)), NtStatus::OBJECT_NAME_COLLISION);
    world.close_nt_handle(token(3));
    assert_eq!(world.status(by_name("name", READ, 4)), NF, "an open of the object does not keep its name");
    world.ok(share(&[two], READ, Some("NAME"), 2));
    // In another VM the name is a different one.
    world.input(Input::VmAttached { vm: VmId(1), name: "one".into() });
    let device = in_vm(&mut world, 2, 1);
    assert_eq!(world.status(by_name("name", READ, 5)), NF);
    let theirs = mutex(&mut world, device, NT);
    world.ok(share(&[theirs], READ, Some("name"), 5));
    world.finish();
}

#[test]
fn invalid_names_are_refused() {
    let mut world = World::new();
    let device = world.device();
    let object = mutex(&mut world, device, NT);
    let longest = "ö".repeat(limits::SHARE_NAME_UNITS_MAX);
    for name in ["", "a\\b", "\\BaseNamedObjects\\a", "a\0", &format!("{longest}x"), &"😀".repeat(131)] {
        assert_eq!(
            world.status(share(&[object], READ, Some(name), 1)),
            NtStatus::OBJECT_NAME_INVALID,
            "{name}"
        );
        assert_eq!(world.status(by_name(name, READ, 1)), NtStatus::OBJECT_NAME_INVALID, "{name}");
    }
    world.ok(share(&[object], READ, Some(&longest), 1));
    world.ok(share(&[object], READ, Some(&"😀".repeat(130)), 2));
    world.finish();
}

#[test]
fn an_nt_handle_outlives_the_process_that_made_it_and_ends_with_its_vm() {
    let mut world = World::new();
    world.input(Input::VmAttached { vm: VmId(1), name: "one".into() });
    let device = in_vm(&mut world, 2, 1);
    let fence = world.fence_with(device, 7, NT).object;
    world.ok(share(&[fence], ALL, Some("f"), 1));
    let second = in_vm(&mut world, 3, 1);
    world.end_process(ProcessId(2));
    let opened = opened(&mut world, open(second, 1)).object;
    assert_eq!(world.value(opened), 7);
    // Another VM's broker cannot close it.
    world.process = P;
    world.close_nt_handle(token(1));
    world.process = ProcessId(3);
    world.ok(by_name("F", ALL, 2));
    assert_eq!(world.kernel.snapshot().shares, 2);
    // Closed once or twice, or never shared: the count drops by one.
    for number in [1, 1, 9] {
        world.close_nt_handle(token(number));
    }
    assert_eq!(world.kernel.snapshot().shares, 1);
    assert_eq!(world.status(open(second, 1)), IH);
    world.input(Input::VmDetached { vm: VmId(1) });
    let snapshot = world.kernel.snapshot();
    assert_eq!((snapshot.shares, snapshot.objects_alive, snapshot.nt_handles.len()), (0, 0, 0));
    world.finish();
}

#[test]
fn nt_handles_of_a_vm_are_limited() {
    let mut world = World::new();
    let device = world.device();
    let object = mutex(&mut world, device, NT);
    let most = limits::SHARES_PER_VM_MAX as u32;
    world.filling(|world| {
        for number in 0..most {
            world.ok(share(&[object], READ, None, number));
        }
    });
    assert_eq!(world.status(share(&[object], READ, None, most)), NtStatus::NO_MEMORY);
    world.input(Input::VmAttached { vm: VmId(1), name: "one".into() });
    let theirs = in_vm(&mut world, 2, 1);
    let other = mutex(&mut world, theirs, NT);
    world.ok(share(&[other], READ, None, most));
    world.process = P;
    world.close_nt_handle(token(5));
    world.ok(share(&[object], READ, Some("x"), 5));
    assert_eq!(world.status(by_name("x", READ, most + 1)), NtStatus::NO_MEMORY);
    world.finish();
}

#[test]
fn a_name_of_another_vm_is_unknown_without_a_grant() {
    for grants in [vec![], vec![grant("other", &["one", "two"])], vec![grant("frame", &["one", "three"])]] {
        let mut world = with_vms(grants);
        let device = in_vm(&mut world, 2, 1);
        let fence = world.fence_with(device, 0, NT).object;
        world.ok(share(&[fence], ALL, Some("Frame"), 1));
        let theirs = in_vm(&mut world, 3, 2);
        assert_eq!(world.status(by_name("frame", ALL, 2)), NF);
        assert_eq!(world.status(open(theirs, 1)), IH, "a token does not bypass the grant");
        world.finish();
    }
}

#[test]
fn with_a_grant_two_vms_see_one_value_each_in_its_own_page() {
    let mut world = with_vms(vec![grant("FRAME", &["one", "two"])]);
    let first = in_vm(&mut world, 2, 1);
    let fence = world.fence_with(first, 3, NT);
    world.ok(share(&[fence.object], ALL, Some("Frame"), 1));
    let second = in_vm(&mut world, 3, 2);
    world.stores();
    world.ok(by_name("frame", ALL, 2));
    let theirs = opened(&mut world, open(second, 2));
    assert_eq!(world.stores(), [(theirs.slot.unwrap(), 3)]);
    let snapshot = world.kernel.snapshot();
    assert!(snapshot.nt_handles.iter().all(|handle| handle.name.as_deref() == Some("Frame")), "in both VMs");
    assert_eq!(world.status(open(second, 1)), IH, "the NT handle of the other VM stays its own");
    let event = world.pending(second, &[(theirs.object, 8)], false);
    world.process = ProcessId(2);
    world.effects.clear();
    assert_eq!(world.signal(first, fence.object, 8), OK);
    let stores: Vec<_> = world.effects.stores.iter().map(|store| (store.process.0, store.value)).collect();
    assert_eq!(stores, [(2, 8), (3, 8)]);
    assert_eq!(world.woken(), [event]);
    // A third VM is not in the grant.
    in_vm(&mut world, 4, 3);
    assert_eq!(world.status(by_name("frame", ALL, 3)), NF);
    world.finish();
}

#[test]
fn the_end_of_either_vm_leaves_the_other_intact() {
    for dies in [1, 2] {
        let mut world = with_vms(vec![grant("frame", &["one", "two"])]);
        let devices = [in_vm(&mut world, 2, 1), in_vm(&mut world, 3, 2)];
        world.process = ProcessId(2);
        let fence = world.fence_with(devices[0], 3, NT).object;
        world.ok(share(&[fence], ALL, Some("frame"), 1));
        world.process = ProcessId(3);
        world.ok(by_name("frame", ALL, 2));
        let theirs = opened(&mut world, open(devices[1], 2)).object;
        let (left, device, object) = if dies == 1 { (3, devices[1], theirs) } else { (2, devices[0], fence) };
        world.process = ProcessId(left);
        let event = world.pending(device, &[(object, 4)], false);
        world.input(Input::VmDetached { vm: VmId(dies) });
        assert_eq!((world.kernel.miscounted(), world.woken()), (None, vec![]));
        world.effects.clear();
        assert_eq!(world.signal(device, object, 4), OK);
        assert_eq!((world.effects.stores.len(), world.woken()), (1, vec![event]));
        // The name stays valid for the remaining VM, and for the other one after it attaches again.
        world.ok(by_name("frame", ALL, 5));
        let back = 10 + dies;
        let name = if dies == 1 { "one" } else { "two" };
        world.input(Input::VmAttached { vm: VmId(back), name: name.into() });
        let device = in_vm(&mut world, 6, back);
        world.ok(by_name("frame", ALL, 6));
        let again = opened(&mut world, open(device, 6)).object;
        assert!(world.wait(device, &[(again, 4)], false).is_ok());
        world.finish();
    }
}

#[test]
fn processes_of_the_host_are_the_vm_named_host() {
    let mut world = with_vms(vec![grant("frame", &["host", "one"])]);
    let device = world.device();
    let fence = world.fence_with(device, 0, NT).object;
    world.ok(share(&[fence], ALL, Some("frame"), 1));
    in_vm(&mut world, 2, 1);
    world.ok(by_name("frame", ALL, 2));
    // A VM with the name "host" is not the host.
    world.input(Input::VmAttached { vm: VmId(9), name: "host".into() });
    in_vm(&mut world, 3, 9);
    assert_eq!(world.status(by_name("frame", ALL, 3)), NF);
    world.finish();
}

/// Instructions of an open by a name that a grant has and nobody has given, beside so many names of a VM that no grant
/// has.
fn open_beside_names(count: u32) -> u64 {
    let mut world = with_vms(vec![grant("frame", &["one", "two"])]);
    let device = in_vm(&mut world, 2, 3);
    let object = mutex(&mut world, device, NT);
    world.filling(|world| {
        for number in 0..count {
            world.ok(share(&[object], ALL, Some(&format!("name {number}")), number));
        }
    });
    in_vm(&mut world, 3, 1);
    // What the allocator has left to do for the freed memory of the calls before is not counted.
    assert_eq!(world.status(by_name("frame", ALL, count)), NF);
    let process = world.process;
    let input = Input::Call { process, request: 1 << 40, call: by_name("frame", ALL, count) };
    let mut effects = Effects::default();
    executed(|| world.kernel.handle(0, input, &mut effects))
}

#[test]
fn a_name_of_a_grant_is_not_looked_for_among_the_names_of_others() {
    /// For trees that are deeper, and an allocator with more free memory; a look at each name takes 400,000.
    const FURTHER: u64 = 50_000;
    let [few, many] = [10, 2000].map(open_beside_names);
    assert!(many <= few + FURTHER, "{few} instructions beside 10 names, {many} beside 2000");
}

fn two_adapters() -> (World, Handle, Handle) {
    let second = Luid { low: 2, high: 0 };
    let adapters = vec![AdapterConfig::default(), AdapterConfig { luid: second, ..AdapterConfig::default() }];
    let mut world = World::with_config(Config { adapters, ..Config::default() });
    let first = world.device_on(AdapterConfig::default().luid);
    let second = world.device_on(second);
    (world, first, second)
}

#[test]
fn a_stopped_adapter_leaves_no_waiter_elsewhere_for_a_value_that_its_engine_has_written() {
    covers!("FEN-025");
    const BASIC: u32 = 2;
    let (mut world, first, second) = two_adapters();
    let there = world.fence_with(second, 0, NT | F::CROSS_ADAPTER);
    world.ok(share(&[there.object], ALL, None, 1));
    let here = opened(&mut world, open(first, 1));
    let context = world.context(first, BASIC);
    let write = FenceWrite { gpu_address: here.gpu_address, value: 1 };
    let event = world.pending(second, &[(there.object, 1)], false);
    world.submit(context, &[write, Busy { duration_ns: 1_000_000_000 }]);
    world.advance(1_000);
    assert_eq!((world.value(there.object), world.woken()), (1, vec![]), "no interrupt yet");
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(world.ended(), [(event, NtStatus::SUCCESS)]);
}

#[test]
fn a_cross_adapter_fence_has_one_value_that_engines_of_both_adapters_write() {
    covers!("FEN-047");
    let (mut world, first, second) = two_adapters();
    let on_first = world.fence_with(first, 0, NT | F::CROSS_ADAPTER);
    world.ok(share(&[on_first.object], ALL, None, 1));
    let on_second = opened(&mut world, open(second, 1));
    let (near, far) = (world.context(first, 0), world.context(second, 0));
    let event = world.pending(second, &[(on_second.object, 1)], false);
    assert_eq!(world.signal(first, on_first.object, 1), OK);
    assert_eq!(world.woken(), [event]);
    let waits = |world: &mut World, value| {
        [
            world.pending(first, &[(on_first.object, value)], false),
            world.pending(second, &[(on_second.object, value)], false),
        ]
    };
    let events = waits(&mut world, 2);
    world.submit(far, &[FenceWrite { gpu_address: on_second.gpu_address, value: 2 }]);
    assert_eq!((world.value(on_first.object), world.woken()), (2, events.to_vec()));
    let events = waits(&mut world, 3);
    world.submit(near, &[FenceWrite { gpu_address: on_first.gpu_address, value: 3 }]);
    assert_eq!((world.value(on_second.object), world.woken()), (3, events.to_vec()));
    // A queued signal of one adapter ends a queued wait of the other.
    assert_eq!(world.gpu_wait(far, on_second.object, 4), OK);
    assert_eq!(world.gpu_signal(&[near], on_first.object, 4), OK);
    assert_eq!(world.gpu_signal(&[far], on_second.object, 5), OK);
    assert_eq!(world.value(on_first.object), 5);
    // Each handle and each mapping belongs to its own adapter (FEN-042).
    assert_eq!(world.signal(second, on_first.object, 9), IP);
    assert_eq!(world.gpu_signal(&[far], on_first.object, 9), IP);
    world.submit(far, &[FenceWrite { gpu_address: on_first.gpu_address, value: 9 }]);
    assert_eq!(world.value(on_first.object), 5);
    world.finish();
}

#[test]
fn a_stopped_adapter_ends_the_cross_adapter_fences_that_were_created_on_it() {
    covers!("FEN-047");
    let (mut world, first, second) = two_adapters();
    let on_first = world.fence_with(first, 0, NT | F::CROSS_ADAPTER).object;
    world.ok(share(&[on_first], ALL, None, 1));
    let on_second = opened(&mut world, open(second, 1)).object;
    let near = world.pending(first, &[(on_first, 1)], false);
    let far = world.pending(second, &[(on_second, 1)], false);
    // One that was created on the other adapter goes on there.
    let there = world.fence_with(second, 0, NT | F::CROSS_ADAPTER).object;
    world.ok(share(&[there], ALL, None, 2));
    let here = opened(&mut world, open(first, 2)).object;
    let lost = world.pending(first, &[(here, 1)], false);
    let kept = world.pending(second, &[(there, 1)], false);
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    let mut ended = world.ended();
    ended.sort_unstable_by_key(|(event, _)| *event);
    assert_eq!(ended, [near, far, lost].map(|event| (event, NtStatus::DEVICE_REMOVED)));
    assert_eq!(world.signal(second, on_second, 1), NtStatus::DEVICE_REMOVED);
    assert_eq!(world.signal(second, there, 1), OK);
    assert_eq!(world.woken(), [kept]);
    world.finish();
}
