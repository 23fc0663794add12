//! CPU waits and CPU signals: answers observed on Windows, then the rules one by one.

use covers::covers;

use crate::common::{P, World};
use d3dkmt::{
    Call, EventId, Handle, NtStatus, SignalFlags, SyncObjectFlags as F, SyncObjectInfo, SyncObjectType as T,
    WaitFromCpuFlags, WaitOutcome,
};
use dxgkrnl::{FenceStore, Input, ProcessId, VmId};

const IP: NtStatus = NtStatus::INVALID_PARAMETER;
const OK: NtStatus = NtStatus::SUCCESS;
const REWIND: SignalFlags = SignalFlags::ALLOW_FENCE_REWIND;

fn signal_many(world: &mut World, device: Handle, targets: &[(Handle, u64)], flags: SignalFlags) -> NtStatus {
    let (objects, values) = targets.iter().copied().unzip();
    world.status(Call::SignalFromCpu { device, objects, values, flags })
}

#[test]
fn cpu_operations_take_monitored_fences_only_whatever_the_value() {
    covers!("W-100", "W-101", "W-102", "W-103");
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
    covers!(
        "W-104", "W-105", "W-106", "W-107", "W-108", "W-109", "W-110", "W-111", "W-112", "W-113", "FEN-030",
        "FEN-031"
    );
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
    covers!("FEN-005", "FEN-009", "FEN-025", "FEN-065");
    let mut world = World::new();
    let device = world.device();
    let (fence, other_device, opened) = world.shared_fence(device, F::empty(), F::empty());
    let mine = world.pending(device, &[(fence, 3)], false);
    world.process = ProcessId(2);
    let theirs = world.pending(other_device, &[(opened, 2)], false);
    world.effects.clear();
    assert_eq!(world.signal(other_device, opened, 5), OK);
    // Stores come before events: a woken process reads at least the value that it waited for.
    let store = |process| FenceStore { process, slot: 1, value: 5 };
    assert_eq!(world.effects.stores, [store(P), store(ProcessId(2))]);
    let woken: Vec<_> =
        world.effects.events.iter().map(|event| (event.process, event.target.event().unwrap())).collect();
    assert_eq!(woken, [(ProcessId(2), theirs), (P, mine)]);
    assert!(world.effects.events.iter().all(|event| event.status == OK));
}

#[test]
fn fence_memory_is_never_read_back_and_is_rewritten_when_remapped() {
    covers!("FEN-004");
    let mut world = World::new();
    let device = world.device();
    let first = world.fence(device, 7);
    let second = world.fence(device, 8);
    world.signal(device, first.object, 9);
    world.stores();
    // The kernel's values replace anything that a guest wrote into its mapping.
    world.input(Input::MemoryChanged { vm: VmId::HOST });
    assert_eq!(world.stores(), [(0, 0), (first.slot.unwrap(), 9), (second.slot.unwrap(), 8)]);
    world.input(Input::MemoryChanged { vm: VmId(5) });
    assert_eq!(world.stores(), []);
}

#[test]
fn a_wait_is_answered_at_once_and_wakes_later() {
    covers!("FEN-027", "FEN-028", "FEN-032");
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
    covers!("FEN-029");
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
    covers!("FEN-128");
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    assert_eq!(world.wait(device, &[(fence, 0)], false).unwrap().1, WaitOutcome::Satisfied);
    assert_eq!(world.wait(device, &[(fence, 0), (fence, 1)], true).unwrap().1, WaitOutcome::Satisfied);
    assert!(world.kernel.snapshot().waits.is_empty());
}

#[test]
fn a_wait_for_zero_is_noted_for_the_cpu_and_for_queues() {
    covers!("FEN-132");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 1).object;
    let semaphore = SyncObjectInfo { object_type: T::SEMAPHORE, ..SyncObjectInfo::default() };
    let semaphore = world.object(device, semaphore).object;
    world.notes();
    for (value, notes) in [(0, 1), (1, 0)] {
        world.wait(device, &[(fence, value)], false).unwrap();
        let said = world.notes();
        assert_eq!(said.len(), notes, "{said:?}");
        assert!(said.iter().all(|note| note.starts_with("FENCE_ZERO_WAIT 1424")), "{said:?}");
        assert_eq!(world.gpu_wait(context, fence, value), OK);
        let said = world.notes();
        assert_eq!(said.len(), notes, "{said:?}");
        assert!(said.iter().all(|note| note.starts_with("FENCE_ZERO_WAIT 1424")), "{said:?}");
    }
    // A semaphore has no values to wait for.
    let (objects, fence_value) = (vec![semaphore].into(), 0);
    assert_eq!(world.status(Call::WaitFromGpuLegacy { context, objects, fence_value }), OK);
    assert_eq!(world.notes(), [""; 0]);
}

#[test]
fn a_reached_value_latches_through_later_rewinds() {
    covers!("FEN-033");
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
    assert_eq!(world.stores(), [(1, 7)]);
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
    covers!("FEN-041");
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let wait = |objects: usize, values: usize, flags: u32| Call::WaitFromCpu {
        device,
        objects: vec![fence; objects].into(),
        values: vec![0; values].into(),
        flags: WaitFromCpuFlags::from_bits_retain(flags),
        event: EventId(77),
    };
    let signal = |objects: usize, values: usize| {
        let (objects, values) = (vec![fence; objects], vec![0; values]);
        Call::SignalFromCpu {
            device,
            objects: objects.into(),
            values: values.into(),
            flags: SignalFlags::empty(),
        }
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
fn waits_end_lowest_value_first_then_in_registration_order() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let [high, low, low_later] = [9, 3, 3].map(|value| world.pending(device, &[(fence, value)], false));
    world.signal(device, fence, 9);
    assert_eq!(world.woken(), [low, low_later, high]);
}
