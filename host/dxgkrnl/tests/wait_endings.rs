//! Ends of CPU waits other than by a signal, the limit of waits, and the rights to wait and signal.

use covers::covers;

use crate::common::{P, World, share};
use d3dkmt::{
    Call, EventId, Handle, NtStatus, ShareToken, SignalFlags, SyncObjectFlags as F, WaitFromCpuFlags, limits,
};
use dxgkrnl::policy::{DestroyedQueuedWait, DestroyedWait, GpuWait};
use dxgkrnl::{AdapterConfig, Config, Policy, ProcessId};

const IP: NtStatus = NtStatus::INVALID_PARAMETER;
const AD: NtStatus = NtStatus::ACCESS_DENIED;
const OK: NtStatus = NtStatus::SUCCESS;

#[test]
fn an_event_id_of_a_pending_wait_is_in_use_until_it_ends() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let wait = |value| Call::WaitFromCpu {
        device,
        objects: vec![fence].into(),
        values: vec![value].into(),
        flags: WaitFromCpuFlags::empty(),
        event: EventId(50),
    };
    assert_eq!(world.status(wait(1)), OK);
    assert_eq!(world.status(wait(1)), IP);
    world.signal(device, fence, 1);
    assert_eq!(world.status(wait(2)), OK);
}

#[test]
fn a_cancelled_wait_never_wakes() {
    let mut world = World::new();
    let device = world.device();
    let (a, b) = (world.fence(device, 0).object, world.fence(device, 0).object);
    let cancelled = world.pending(device, &[(a, 1), (b, 1)], true);
    let kept = world.pending(device, &[(a, 1)], false);
    world.ok(Call::CancelWait { event: cancelled });
    world.ok(Call::CancelWait { event: cancelled });
    world.ok(Call::CancelWait { event: EventId(4711) });
    let (objects, values) = (vec![a, b], vec![1, 1]);
    world.ok(Call::SignalFromCpu {
        device,
        objects: objects.into(),
        values: values.into(),
        flags: SignalFlags::empty(),
    });
    assert_eq!(world.woken(), [kept]);
    assert!(world.kernel.snapshot().waits.is_empty());
}

#[test]
fn a_process_has_a_limited_number_of_waits() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let first = world.pending(device, &[(fence, 1)], false);
    world.filling(|world| {
        for _ in 1..limits::WAITS_PER_PROCESS_MAX {
            world.pending(device, &[(fence, 2)], false);
        }
    });
    assert_eq!(world.wait(device, &[(fence, 2)], false), Err(NtStatus::NO_MEMORY));
    assert!(world.effects.notes.last().unwrap().text.contains("the limit"));
    world.ok(Call::CancelWait { event: first });
    world.pending(device, &[(fence, 2)], false);
    world.signal(device, fence, 2);
    assert_eq!(world.woken().len(), limits::WAITS_PER_PROCESS_MAX);
}

/// Two waits through the open that is destroyed, one through the other process's.
fn destroy_under_waits(world: &mut World, flags: F) -> (EventId, EventId, EventId, Handle, Handle) {
    let device = world.device();
    let (fence, other_device, opened) = world.shared_fence(device, flags, flags);
    let bystander = world.fence(device, 0).object;
    let one = world.pending(device, &[(fence, 1)], false);
    let two = world.pending(device, &[(fence, 1), (bystander, 1), (fence, 2)], false);
    world.process = ProcessId(2);
    let theirs = world.pending(other_device, &[(opened, 1)], false);
    world.process = P;
    world.ok(Call::DestroySynchronizationObject { object: fence });
    (one, two, theirs, other_device, opened)
}

#[test]
fn destroying_a_handle_releases_the_waits_made_through_it() {
    covers!("FEN-058");
    for (policy, status) in
        [(DestroyedWait::Success, OK), (DestroyedWait::DeviceRemoved, NtStatus::DEVICE_REMOVED)]
    {
        let policy = Policy { destroyed_wait: policy, ..Policy::default() };
        let mut world = World::with_config(Config { policy, ..Config::default() });
        let (one, two, theirs, other_device, opened) = destroy_under_waits(&mut world, F::empty());
        assert!(world.effects.events.iter().all(|event| event.process == P && event.status == status));
        assert_eq!(world.woken(), [one, two], "each wait ends once, also the one that named the fence twice");
        world.process = ProcessId(2);
        assert_eq!(world.signal(other_device, opened, 1), OK);
        assert_eq!(world.woken(), [theirs]);
    }
}

#[test]
fn unwait_only_on_destroy_defers_the_release_to_the_last_handle() {
    covers!("FEN-058");
    let mut world = World::new();
    let flags = F::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY;
    let (one, two, theirs, other_device, opened) = destroy_under_waits(&mut world, flags);
    assert_eq!(world.woken(), []);
    world.process = ProcessId(2);
    assert_eq!(world.signal(other_device, opened, 1), OK);
    assert_eq!(world.woken(), [one, theirs]);
    world.ok(Call::DestroySynchronizationObject { object: opened });
    assert_eq!(world.woken(), [two]);
}

/// A fence of [`P`] that process 2 also opened; a queue of each process waits for it and then signals `done`.
struct Queued {
    world: World,
    fence: Handle,
    opened: Handle,
    gate: Handle,
    device: Handle,
    done: Handle,
}

fn queued(policy: Policy, flags: F) -> Queued {
    let mut world = World::with_config(Config { policy, ..Config::default() });
    let device = world.device();
    let (fence, _, opened) = world.shared_fence(device, flags, F::empty());
    let (done, gate) = (world.fence(device, 0).object, world.fence(device, 0).object);
    let context = world.context(device, 0);
    // It is not the head of its queue.
    assert_eq!(world.gpu_wait(context, gate, 1), OK);
    assert_eq!(world.gpu_wait(context, fence, u64::MAX >> 1), OK);
    assert_eq!(world.gpu_signal(&[context], done, 1), OK);
    Queued { world, fence, opened, gate, device, done }
}

#[test]
fn the_end_of_the_last_handle_releases_queued_waits_also_behind_others() {
    covers!("FEN-058");
    let waits = [GpuWait::LatchesWhenQueued, GpuWait::LooksAtHead];
    for (gpu_wait, is_at_head) in waits.into_iter().flat_map(|wait| [(wait, true), (wait, false)]) {
        let Queued { mut world, fence, opened, gate, device, done } =
            queued(Policy { gpu_wait, ..Policy::default() }, F::empty());
        world.ok(Call::DestroySynchronizationObject { object: fence });
        if is_at_head {
            assert_eq!(world.signal(device, gate, 1), OK);
        }
        assert_eq!(world.value(done), 0, "process 2 has a handle");
        world.process = ProcessId(2);
        world.ok(Call::DestroySynchronizationObject { object: opened });
        world.process = P;
        if !is_at_head {
            assert_eq!(world.value(done), 0, "the packet before it blocks the queue");
            assert_eq!(world.signal(device, gate, 1), OK);
        }
        assert_eq!(world.value(done), 1);
        assert_eq!(world.status(Call::GetDeviceState { device, state_type: 1 }), OK);
        let left = world.kernel.snapshot();
        assert_eq!((left.objects_alive, left.waits.len()), (2, 0), "the gate and the signaled fence remain");
        world.finish();
    }
}

#[test]
fn an_nt_handle_keeps_a_fence_and_a_queued_signal_does_not() {
    covers!("FEN-058");
    let Queued { mut world, fence, opened, gate, device, done } =
        queued(Policy::default(), F::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY);
    let wait = world.pending(device, &[(fence, 1)], false);
    let (late, signaler) = (world.fence(device, 0).object, world.context(device, 0));
    assert_eq!(world.gpu_wait(signaler, late, 1), OK);
    assert_eq!(world.gpu_signal(&[signaler], fence, 7), OK);
    let token = ShareToken([2; 16]);
    world.ok(share(fence, token));
    world.ok(Call::DestroySynchronizationObject { object: fence });
    world.process = ProcessId(2);
    world.ok(Call::DestroySynchronizationObject { object: opened });
    world.process = P;
    world.signal(device, gate, 1);
    assert_eq!((world.value(done), world.woken()), (0, vec![]));
    world.close_nt_handle(token);
    assert_eq!((world.value(done), world.woken()), (1, vec![wait]), "the CPU wait goes with the fence, too");
    // The packet that signals it executes later, and then the fence is freed.
    world.signal(device, late, 1);
    assert_eq!(world.kernel.snapshot().objects_alive, 3);
    world.finish();
}

#[test]
fn by_policy_packets_keep_a_destroyed_fence() {
    let policy = Policy { destroyed_queued_wait: DestroyedQueuedWait::KeepsFence, ..Policy::default() };
    let Queued { mut world, fence, opened, gate, device, done } = queued(policy, F::empty());
    world.ok(Call::DestroySynchronizationObject { object: fence });
    world.process = ProcessId(2);
    world.ok(Call::DestroySynchronizationObject { object: opened });
    world.process = P;
    world.signal(device, gate, 1);
    assert_eq!((world.value(done), world.kernel.snapshot().waits.len()), (0, 1));
    world.finish();
}

#[test]
fn a_latched_object_may_go_while_its_wait_stays() {
    let mut world = World::new();
    let device = world.device();
    let (a, b) = (world.fence(device, 4).object, world.fence(device, 0).object);
    let all = world.pending(device, &[(a, 1), (b, 1)], false);
    world.ok(Call::DestroySynchronizationObject { object: a });
    assert_eq!(world.woken(), []);
    // A new object reuses the table index at once: the snapshot must not show it for the latched item.
    world.fence(device, 100);
    let item = world.kernel.snapshot().waits[0].items[0].clone();
    assert_eq!((item.object, item.satisfied, item.current), (Handle::NULL, true, 1));
    world.signal(device, b, 1);
    assert_eq!(world.woken(), [all]);
}

#[test]
fn no_signal_and_no_wait_apply_to_the_open_with_the_flag() {
    covers!("FEN-050", "FEN-051", "FEN-053");
    let mut world = World::new();
    let device = world.device();
    let no_signal = world.fence_with(device, 0, F::NO_SIGNAL).object;
    assert_eq!(world.signal(device, no_signal, 1), AD);
    assert!(world.wait(device, &[(no_signal, 1)], false).is_ok());
    let no_wait = world.fence_with(device, 0, F::NO_WAIT).object;
    assert_eq!(world.wait(device, &[(no_wait, 0)], false), Err(AD));
    assert_eq!(world.signal(device, no_wait, 1), OK);

    let (fence, other_device, opened) = world.shared_fence(device, F::NO_SIGNAL, F::NO_WAIT);
    let event = world.pending(device, &[(fence, 1)], false);
    assert_eq!(world.signal(device, fence, 1), AD);
    world.process = ProcessId(2);
    assert_eq!(world.wait(other_device, &[(opened, 0)], false), Err(AD));
    assert_eq!(world.signal(other_device, opened, 1), OK);
    assert_eq!(world.woken(), [event]);
}

#[test]
fn any_device_of_the_objects_adapter_is_accepted() {
    covers!("FEN-042");
    let second = d3dkmt::Luid { low: 2, high: 0 };
    let adapters = vec![AdapterConfig::default(), AdapterConfig { luid: second, ..AdapterConfig::default() }];
    let mut world = World::with_config(Config { adapters, ..Config::default() });
    let first = AdapterConfig::default().luid;
    let [device, sibling, stranger] = [first, first, second].map(|luid| world.device_on(luid));
    let fence = world.fence(device, 0).object;
    assert_eq!(world.signal(sibling, fence, 1), OK);
    assert!(world.wait(sibling, &[(fence, 1)], false).is_ok());
    assert_eq!(world.signal(stranger, fence, 2), IP);
    assert_eq!(world.wait(stranger, &[(fence, 1)], false), Err(IP));
    let context = world.context(stranger, 0);
    assert_eq!(world.gpu_signal(&[context], fence, 2), IP);
    assert_eq!(world.gpu_wait(context, fence, 1), IP);
    for nobody in [Handle::NULL, fence, Handle(0x4000_8000)] {
        assert_eq!(world.signal(nobody, fence, 2), IP);
        assert_eq!(world.wait(nobody, &[(fence, 1)], false), Err(IP));
    }
}
