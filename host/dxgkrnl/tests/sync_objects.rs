//! Creation and destruction of objects: answers, memory, and what ends with a device or a process.

use std::collections::BTreeSet;

use covers::covers;

use crate::common::{IP, P, World, share};
use d3dkmt::{
    Call, Handle, HandleKind, NtStatus, Reply, SyncObjectFlags as F, SyncObjectInfo, SyncObjectType as T,
    calls,
};
use dxgkrnl::{Input, ProcessId, VmId};

fn info(object_type: T) -> SyncObjectInfo {
    SyncObjectInfo { object_type, ..SyncObjectInfo::default() }
}

fn with_flags(object_type: T, flags: F) -> SyncObjectInfo {
    SyncObjectInfo { object_type, flags, ..SyncObjectInfo::default() }
}

#[test]
fn handles_are_reused_only_late_and_with_another_generation() {
    let mut world = World::new();
    let device = world.device();
    let mut recent = BTreeSet::new();
    let mut reused = false;
    for _ in 0..3000 {
        let fence = world.fence(device, 0).object;
        reused |= fence.unique() != 1;
        assert!(recent.insert(fence), "handle {fence} was used before");
        world.ok(Call::DestroySynchronizationObject { object: fence });
        assert_eq!(world.signal(device, fence, 1), IP);
        if recent.len() > 1500 {
            recent.pop_first();
        }
    }
    assert!(reused);
}

#[test]
fn a_new_fence_has_its_value_in_memory_before_the_answer_and_two_aligned_addresses() {
    covers!("FEN-002", "FEN-003", "FEN-054");
    let mut world = World::new();
    let device = world.device();
    world.stores();
    let fence = world.fence(device, 41);
    assert_eq!(world.stores(), [(fence.slot.unwrap(), 41)]);
    assert!(fence.gpu_address != 0 && fence.gpu_address.is_multiple_of(8));
    let other = world.fence(device, 0);
    assert_ne!(other.slot, fence.slot);
    assert_ne!(other.gpu_address, fence.gpu_address);
    assert_eq!(world.fence_with(device, 0, F::NO_GPU_ACCESS).gpu_address, 0);
}

#[test]
fn a_create_without_fence_memory_requests_more() {
    let mut world = World::new();
    let device = world.device();
    for _ in 1..64 {
        world.fence(device, 0);
    }
    let create = Call::CreateSynchronizationObject { device, info: info(T::MONITORED_FENCE), legacy: false };
    assert_eq!(world.ok(create.clone()), Reply::FenceMemoryExhausted);
    world.input(Input::FenceMemoryAdded { process: P, slots: 64 });
    let Reply::SyncObject(created) = world.ok(create) else { panic!() };
    assert_eq!(created.slot, Some(64));
}

#[test]
fn device_destruction_ends_fences_and_contexts_but_not_legacy_objects() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let context = world.context(device, 0);
    let mutex = world.object(device, info(T::MUTEX)).object;
    world.ok(Call::DestroyDevice { device });
    assert_eq!(world.status(Call::DestroySynchronizationObject { object: fence }), IP);
    assert_eq!(world.status(Call::DestroyContext { context }), IP);
    world.ok(Call::DestroySynchronizationObject { object: mutex });
    assert_eq!(world.status(Call::DestroyDevice { device }), IP);
}

#[test]
fn the_end_of_a_process_leaves_nothing() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence_with(device, 0, F::SHARED | F::NT_SECURITY_SHARING).object;
    let context = world.context(device, 0);
    world.object(device, with_flags(T::MUTEX, F::SHARED));
    world.ok(share(fence, d3dkmt::ShareToken([1; 16])));
    world.submit(context, &[d3dkmt::isa::Packet::Hang]);
    world.gpu_wait(context, fence, 9);
    world.gpu_signal(&[context], fence, 9);
    world.pending(device, &[(fence, 5)], false);
    world.input(Input::ProcessGone { process: P });
    assert_eq!(world.kernel.snapshot().shares, 1, "another process may still have its NT handle");
    world.input(Input::VmDetached { vm: VmId::HOST });
    let snapshot = world.kernel.snapshot();
    assert!(snapshot.is_empty(), "{snapshot:?}");
    assert_eq!(world.kernel.next_deadline(), None);
    assert_eq!(world.woken(), []);
}

#[test]
fn adapters_are_enumerated_opened_queried_and_closed() {
    covers!("W-280", "W-281", "W-282", "W-283", "W-289", "W-290", "W-291");
    let mut world = World::new();
    assert_eq!(world.status(Call::EnumAdapters { capacity: 0 }), NtStatus::BUFFER_TOO_SMALL);
    let Reply::Adapters(list) = world.ok(Call::EnumAdapters { capacity: 1 }) else { panic!() };
    let Reply::Adapter(again) = world.ok(Call::OpenAdapterFromLuid { luid: list[0].luid }) else { panic!() };
    assert_eq!(again.0, list[0].handle.0 + 0x40);
    let luid = d3dkmt::Luid { low: 1, high: 1 };
    assert_eq!(world.status(Call::OpenAdapterFromLuid { luid }), IP);
    for (kind, size) in [(15, 4), (31, 28), (57, 4), (65, 8192), (70, 4)] {
        let query = |data| Call::QueryAdapterInfo { adapter: again, kind, data };
        assert!(matches!(world.ok(query(vec![0; size])), Reply::AdapterInfo(data) if data.len() == size));
        assert_eq!(world.status(query(vec![0; size - 1])), IP, "type {kind}");
    }
    let device = match world.ok(Call::CreateDevice { adapter: again, flags: 0 }) {
        Reply::Device(device) => device,
        other => panic!("{other:?}"),
    };
    world.ok(Call::CloseAdapter { adapter: again });
    assert_eq!(world.status(Call::CloseAdapter { adapter: again }), IP);
    assert_eq!(world.ok(Call::GetDeviceState { device, state_type: 1 }), Reply::DeviceState(1));
    world.ok(Call::CloseAdapter { adapter: list[0].handle });
    assert_eq!(world.status(Call::DestroyDevice { device }), IP);
}

#[test]
fn a_shared_fence_has_one_value_in_every_process_of_its_vm() {
    covers!("FEN-065", "FEN-067");
    let mut world = World::new();
    let device = world.device();
    let token = d3dkmt::ShareToken([7; 16]);
    let private = world.fence(device, 0).object;
    assert_eq!(world.status(share(private, token)), IP);
    let fence = world.fence_with(device, 3, F::SHARED | F::NT_SECURITY_SHARING);
    world.ok(share(fence.object, token));

    world.process = ProcessId(2);
    world.attach(ProcessId(2));
    let other_device = world.device();
    world.stores();
    let open = |device| calls::open(device, token);
    let Reply::SyncObject(opened) = world.ok(open(other_device)) else { panic!() };
    assert_eq!(world.stores(), [(opened.slot.unwrap(), 3)]);
    let event = world.pending(other_device, &[(opened.object, 8)], false);

    world.process = P;
    assert_eq!(world.signal(device, fence.object, 8), NtStatus::SUCCESS);
    assert_eq!(world.effects.stores.len(), 2);
    assert_eq!(world.woken(), [event]);

    let stranger = ProcessId(3);
    let vm = VmId(1);
    world.input(Input::VmAttached { vm, name: "one".into() });
    world.input(Input::ProcessAttached { process: stranger, vm, pid: 1, name: "s".into() });
    world.input(Input::FenceMemoryAdded { process: stranger, slots: 64 });
    world.process = stranger;
    let device = world.device();
    assert_eq!(world.status(open(device)), NtStatus::INVALID_HANDLE);
    world.input(Input::VmDetached { vm });
    world.input(Input::ProcessGone { process: P });
    world.input(Input::ProcessGone { process: ProcessId(2) });
    world.input(Input::VmDetached { vm: VmId::HOST });
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn the_answer_to_a_create_has_the_slot_and_the_global_handle() {
    covers!("GPV-024", "FEN-063", "W-061", "W-064");
    let mut world = World::new();
    let device = world.device();
    let (mut slots, mut global) = (BTreeSet::new(), BTreeSet::new());
    for value in 0..3 {
        let fence = world.fence(device, value);
        let slot = fence.slot.expect("a slot in the process's fence memory");
        assert!(slots.insert(slot), "each fence has its own slot");
        assert_eq!(world.value(fence.object), value, "the slot has the initial value");
        assert_eq!(fence.shared_handle, Handle::NULL, "the fence has no global handle");
    }
    for object_type in [T::MUTEX, T::SEMAPHORE, T::MUTEX] {
        let object = SyncObjectInfo { max_count: 1, ..with_flags(object_type, F::SHARED) };
        let shared = world.object(device, object);
        assert_eq!(shared.shared_handle.kind(), HandleKind::Global);
        assert!(global.insert(shared.shared_handle), "each object has its own global handle");
        // An object for NT handles is shared by D3DKMTShareObjects, not at creation (FEN-063).
        let named = SyncObjectInfo { flags: F::SHARED | F::NT_SECURITY_SHARING, ..object };
        assert_eq!(world.object(device, named).shared_handle, Handle::NULL);
    }
}
