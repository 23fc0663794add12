//! CPU waits and CPU signals: what real Windows answers, then the rules one by one.

mod common;

use common::{P, World};
use d3dkmt::{
    Call, EventId, Handle, NtStatus, Reply, ShareToken, SignalFlags, SyncObjectFlags as F, SyncObjectInfo,
    SyncObjectType as T, WaitFromCpuFlags, WaitOutcome, limits,
};
use dxgkrnl::policy::DestroyedWait;
use dxgkrnl::{AdapterConfig, Config, FenceStore, Input, Policy, ProcessId, VmId};

const IP: NtStatus = NtStatus::INVALID_PARAMETER;
const AD: NtStatus = NtStatus::ACCESS_DENIED;
const OK: NtStatus = NtStatus::SUCCESS;
const REWIND: SignalFlags = SignalFlags::ALLOW_FENCE_REWIND;
const SHARED: F = F::SHARED.union(F::NT_SECURITY_SHARING);

fn signal_many(world: &mut World, device: Handle, targets: &[(Handle, u64)], flags: SignalFlags) -> NtStatus {
    let (objects, values) = targets.iter().copied().unzip();
    world.status(Call::SignalFromCpu { device, objects, values, flags })
}

/// A shared fence of `P` with this value, and process 2's device and handle of it.
fn shared_fence(world: &mut World, device: Handle, flags: F, opened_with: F) -> (Handle, Handle, Handle) {
    let fence = world.fence_with(device, 0, SHARED | flags).object;
    let token = ShareToken([1; 16]);
    world.ok(Call::ShareObject { object: fence, desired_access: 0, token });
    world.process = ProcessId(2);
    world.attach(ProcessId(2));
    let other_device = world.device();
    let open = Call::OpenSyncObject { device: other_device, token, flags: opened_with, engine_affinity: 0 };
    let Reply::SyncObject(opened) = world.ok(open) else { panic!() };
    world.process = P;
    world.ok(Call::CloseShare { token });
    (fence, other_device, opened.object)
}

#[test]
fn cpu_operations_take_monitored_fences_only_whatever_the_value() {
    // covers: W-100 W-101 W-102 W-103
    let mut world = World::new();
    let device = world.device();
    for object_type in [T::MUTEX, T::SEMAPHORE, T::FENCE] {
        let object = world.object(device, SyncObjectInfo { object_type, ..SyncObjectInfo::default() }).object;
        for value in [0, 1] {
            assert_eq!(world.wait(device, &[(object, value)], false), Err(IP), "{object_type:?}");
            assert_eq!(world.signal(device, object, value), IP, "{object_type:?}");
        }
    }
}

#[test]
fn the_observed_rows_of_a_monitored_fence() {
    // covers: W-104 W-105 W-106 W-107 W-108 W-109 W-110 W-111 W-112 W-113 FEN-030 FEN-031
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 1).object;
    for value in [0, 1] {
        let (_, outcome) = world.wait(device, &[(fence, value)], false).unwrap();
        assert_eq!(outcome, WaitOutcome::Satisfied);
    }
    let event = world.pending(device, &[(fence, 2)], false);
    world.advance(100_000_000);
    assert_eq!(world.woken(), []);
    assert_eq!(world.signal(device, fence, 2), OK);
    assert_eq!(world.woken(), [event]);
    assert_eq!(world.signal(device, fence, 1), IP);
    assert_eq!(world.value(fence), 2);
    assert_eq!(world.signal_flags(device, fence, 1, REWIND), OK);
    let event = world.pending(device, &[(fence, 2)], false);
    assert_eq!(world.woken(), []);
    assert_eq!(world.signal(device, fence, 2), OK);
    assert_eq!(world.woken(), [event]);
    world.ok(Call::DestroySynchronizationObject { object: fence });
}

#[test]
fn a_signal_stores_the_value_for_every_process_before_it_wakes() {
    // covers: FEN-005 FEN-009 FEN-025 FEN-065
    let mut world = World::new();
    let device = world.device();
    let (fence, other_device, opened) = shared_fence(&mut world, device, F::empty(), F::empty());
    let mine = world.pending(device, &[(fence, 3)], false);
    world.process = ProcessId(2);
    let theirs = world.pending(other_device, &[(opened, 2)], false);
    world.effects.clear();
    assert_eq!(world.signal(other_device, opened, 5), OK);
    // Stores are drained before events: whoever is woken reads at least what it waited for.
    let store = |process| FenceStore { process, slot: 0, value: 5 };
    assert_eq!(world.effects.stores, [store(P), store(ProcessId(2))]);
    let woken: Vec<_> = world.effects.events.iter().map(|event| (event.process, event.event)).collect();
    assert_eq!(woken, [(ProcessId(2), theirs), (P, mine)]);
    assert!(world.effects.events.iter().all(|event| event.status == OK));
}

#[test]
fn memory_is_never_read_back_and_is_stored_again_when_it_is_mapped_anew() {
    // covers: FEN-004
    let mut world = World::new();
    let device = world.device();
    let first = world.fence(device, 7);
    let second = world.fence(device, 8);
    world.signal(device, first.object, 9);
    world.stores();
    // Whatever a guest scribbled into its mapping, the kernel's values come again.
    world.input(Input::MemoryChanged { vm: VmId::HOST });
    assert_eq!(world.stores(), [(first.slot.unwrap(), 9), (second.slot.unwrap(), 8)]);
    world.input(Input::MemoryChanged { vm: VmId(5) });
    assert_eq!(world.stores(), []);
}

#[test]
fn a_wait_is_answered_at_once_and_wakes_later() {
    // covers: FEN-026 FEN-027 FEN-028 FEN-032
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    // `pending` asserts one answer, Registered. A blocking wait is the same call; the guest blocks.
    let event = world.pending(device, &[(fence, 10)], false);
    let waits = world.kernel.snapshot().waits;
    assert_eq!((waits.len(), waits[0].event, waits[0].items[0].value), (1, Some(event.0), 10));
    assert_eq!(world.signal(device, fence, 9), OK);
    assert_eq!(world.woken(), []);
    assert_eq!(world.signal(device, fence, 11), OK);
    assert_eq!(world.woken(), [event]);
    assert_eq!(world.signal(device, fence, 12), OK);
    assert_eq!(world.woken(), [], "an event is set once");
    assert!(world.kernel.snapshot().waits.is_empty());
}

#[test]
fn wait_all_needs_every_object_and_wait_any_one() {
    // covers: FEN-029
    let mut world = World::new();
    let device = world.device();
    let (a, b) = (world.fence(device, 0).object, world.fence(device, 0).object);
    let all = world.pending(device, &[(a, 2), (b, 2)], false);
    let any = world.pending(device, &[(a, 2), (b, 2)], true);
    world.signal(device, b, 2);
    assert_eq!(world.woken(), [any]);
    world.signal(device, a, 1);
    assert_eq!(world.woken(), []);
    world.signal(device, a, 2);
    assert_eq!(world.woken(), [all]);
    assert_eq!(world.wait(device, &[(a, 9), (b, 2)], true).unwrap().1, WaitOutcome::Satisfied);
    assert_eq!(world.wait(device, &[(a, 2), (b, 2)], false).unwrap().1, WaitOutcome::Satisfied);
}

#[test]
fn a_wait_for_zero_is_always_satisfied_and_leaves_no_waiter() {
    // covers: FEN-128
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    assert_eq!(world.wait(device, &[(fence, 0)], false).unwrap().1, WaitOutcome::Satisfied);
    assert_eq!(world.wait(device, &[(fence, 0), (fence, 1)], true).unwrap().1, WaitOutcome::Satisfied);
    assert!(world.kernel.snapshot().waits.is_empty());
}

#[test]
fn what_was_reached_once_stays_reached_whatever_the_value_does_next() {
    // covers: FEN-033
    let mut world = World::new();
    let device = world.device();
    let (a, b) = (world.fence(device, 0).object, world.fence(device, 0).object);
    let all = world.pending(device, &[(a, 5), (b, 5)], false);
    world.signal(device, a, 7);
    world.signal_flags(device, a, 1, REWIND);
    let late = world.pending(device, &[(a, 5), (b, 5)], false);
    world.signal(device, b, 5);
    assert_eq!(world.woken(), [all], "a wait never latches on a value from before it was queued");
    world.signal(device, a, 5);
    assert_eq!(world.woken(), [late]);
    // Up and down again within one call.
    let event = world.pending(device, &[(a, 20)], false);
    assert_eq!(signal_many(&mut world, device, &[(a, 30), (a, 2)], REWIND), OK);
    assert_eq!((world.woken(), world.value(a)), (vec![event], 2));
}

#[test]
fn one_object_may_be_named_twice_in_a_call() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let all = world.pending(device, &[(fence, 3), (fence, 5)], false);
    let any = world.pending(device, &[(fence, 3), (fence, 5)], true);
    world.signal(device, fence, 3);
    assert_eq!(world.woken(), [any]);
    world.signal(device, fence, 5);
    assert_eq!(world.woken(), [all]);
    world.stores();
    assert_eq!(signal_many(&mut world, device, &[(fence, 8), (fence, 7)], SignalFlags::empty()), IP);
    assert_eq!((world.value(fence), world.stores()), (5, vec![]));
    assert_eq!(signal_many(&mut world, device, &[(fence, 6), (fence, 7)], SignalFlags::empty()), OK);
    assert_eq!(world.stores(), [(0, 6), (0, 7)]);
}

#[test]
fn a_refused_signal_changes_nothing() {
    let mut world = World::new();
    let device = world.device();
    let (a, b) = (world.fence(device, 0).object, world.fence(device, 5).object);
    world.pending(device, &[(a, 1)], false);
    world.stores();
    for targets in [[(a, 9), (b, 4)], [(a, 9), (Handle(0x4000_4000), 9)], [(a, 9), (device, 9)]] {
        assert_eq!(signal_many(&mut world, device, &targets, SignalFlags::empty()), IP);
    }
    for flags in [SignalFlags::SIGNAL_AT_SUBMISSION, SignalFlags::from_bits_retain(8)] {
        assert_eq!(signal_many(&mut world, device, &[(a, 9)], flags), IP);
    }
    assert_eq!((world.value(a), world.value(b)), (0, 5));
    assert_eq!((world.stores(), world.woken()), (vec![], vec![]));
}

#[test]
fn counts_are_checked_against_each_other_and_the_limit() {
    // covers: FEN-041
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let wait = |objects: usize, values: usize, flags: u32| Call::WaitFromCpu {
        device,
        objects: vec![fence; objects],
        values: vec![0; values],
        flags: WaitFromCpuFlags::from_bits_retain(flags),
        event: EventId(77),
    };
    let signal = |objects: usize, values: usize| {
        let (objects, values) = (vec![fence; objects], vec![0; values]);
        Call::SignalFromCpu { device, objects, values, flags: SignalFlags::empty() }
    };
    assert_eq!(world.status(wait(32, 32, 0)), OK);
    assert_eq!(world.status(signal(32, 32)), OK);
    for (objects, values) in [(0, 0), (33, 33), (2, 1), (1, 2), (0, 1)] {
        assert_eq!(world.status(wait(objects, values, 0)), IP);
        assert_eq!(world.status(signal(objects, values)), IP);
    }
    assert_eq!(world.status(wait(1, 1, 2)), IP, "a reserved flag");
}

#[test]
fn waits_end_lowest_value_first_then_in_the_order_they_came() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let [high, low, low_later] = [9, 3, 3].map(|value| world.pending(device, &[(fence, value)], false));
    world.signal(device, fence, 9);
    assert_eq!(world.woken(), [low, low_later, high]);
}

#[test]
fn a_name_of_a_pending_wait_is_taken_until_it_ends() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let wait = |value| Call::WaitFromCpu {
        device,
        objects: vec![fence],
        values: vec![value],
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
    signal_many(&mut world, device, &[(a, 1), (b, 1)], SignalFlags::empty());
    assert_eq!(world.woken(), [kept]);
    assert!(world.kernel.snapshot().waits.is_empty());
}

#[test]
fn a_process_may_have_so_many_waits_and_no_more() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let first = world.pending(device, &[(fence, 1)], false);
    for _ in 1..limits::WAITS_PER_PROCESS_MAX {
        world.pending(device, &[(fence, 2)], false);
    }
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
    let (fence, other_device, opened) = shared_fence(world, device, flags, flags & !SHARED);
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
    // covers: FEN-058
    for (policy, status) in
        [(DestroyedWait::Success, OK), (DestroyedWait::DeviceRemoved, NtStatus::DEVICE_REMOVED)]
    {
        let policy = Policy { destroyed_wait: policy, ..Policy::default() };
        let mut world = World::with_config(Config { policy, ..Config::default() });
        let (one, two, theirs, other_device, opened) = destroy_under_waits(&mut world, F::empty());
        assert!(world.effects.events.iter().all(|event| event.process == P && event.status == status));
        assert_eq!(world.woken(), [one, two], "each once, also the one that named it twice");
        world.process = ProcessId(2);
        assert_eq!(world.signal(other_device, opened, 1), OK);
        assert_eq!(world.woken(), [theirs]);
    }
}

#[test]
fn unwait_only_on_destroy_defers_the_release_to_the_last_handle() {
    // covers: FEN-058
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

#[test]
fn a_latched_object_may_go_while_its_wait_stays() {
    let mut world = World::new();
    let device = world.device();
    let (a, b) = (world.fence(device, 4).object, world.fence(device, 0).object);
    let all = world.pending(device, &[(a, 1), (b, 1)], false);
    world.ok(Call::DestroySynchronizationObject { object: a });
    assert_eq!(world.woken(), []);
    // The place of what is gone is taken at once: the report must not show the newcomer.
    world.fence(device, 100);
    let item = world.kernel.snapshot().waits[0].items[0].clone();
    assert_eq!((item.object, item.satisfied, item.current), (Handle::NULL, true, 1));
    world.signal(device, b, 1);
    assert_eq!(world.woken(), [all]);
}

#[test]
fn no_signal_and_no_wait_belong_to_the_open_that_has_them() {
    // covers: FEN-050 FEN-051 FEN-053
    let mut world = World::new();
    let device = world.device();
    let no_signal = world.fence_with(device, 0, F::NO_SIGNAL).object;
    assert_eq!(world.signal(device, no_signal, 1), AD);
    assert!(world.wait(device, &[(no_signal, 1)], false).is_ok());
    let no_wait = world.fence_with(device, 0, F::NO_WAIT).object;
    assert_eq!(world.wait(device, &[(no_wait, 0)], false), Err(AD));
    assert_eq!(world.signal(device, no_wait, 1), OK);

    let (fence, other_device, opened) = shared_fence(&mut world, device, F::NO_SIGNAL, F::NO_WAIT);
    let event = world.pending(device, &[(fence, 1)], false);
    assert_eq!(world.signal(device, fence, 1), AD);
    world.process = ProcessId(2);
    assert_eq!(world.wait(other_device, &[(opened, 0)], false), Err(AD));
    assert_eq!(world.signal(other_device, opened, 1), OK);
    assert_eq!(world.woken(), [event]);
}

#[test]
fn any_device_of_the_adapter_will_do_and_none_of_another() {
    // covers: FEN-042
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
