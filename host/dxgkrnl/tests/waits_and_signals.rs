//! CPU waits and CPU signals: answers observed on Windows, then the rules one by one.

use covers::covers;

use crate::common::{IP, OK, P, World};
use d3dkmt::{
    Call, EventId, GpuSignal, Handle, NtStatus, SignalFlags, SyncObjectFlags as F, SyncObjectInfo,
    SyncObjectType as T, WaitFromCpuFlags, calls,
};
use dxgkrnl::{FenceStore, Input, ProcessId, VmId};

fn signal_many(world: &mut World, device: Handle, targets: &[(Handle, u64)], flags: SignalFlags) -> NtStatus {
    let (objects, values) = targets.iter().copied().unzip();
    world.status(Call::SignalFromCpu { device, objects, values, flags })
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
fn a_cpu_wait_for_zero_is_noted_once_and_a_wait_for_a_semaphore_is_not() {
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
        let noted = world.notes();
        assert_eq!(noted.len(), notes, "{noted:?}");
        assert!(noted.iter().all(|note| note.starts_with("FENCE_ZERO_WAIT 1424")), "{noted:?}");
    }
    // A semaphore has no values to wait for.
    assert_eq!(world.status(calls::acquire(context, &[semaphore])), OK);
    assert_eq!(world.notes(), [""; 0]);
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
fn lists_of_different_lengths_are_refused() {
    covers!("FEN-041");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0).object;
    for (objects, values) in [(2, 1), (1, 2), (0, 1), (1, 0)] {
        let (objects, values) = (vec![fence; objects], vec![0; values]);
        let calls = [
            Call::WaitFromCpu {
                device,
                objects: objects.clone().into(),
                values: values.clone().into(),
                flags: WaitFromCpuFlags::empty(),
                event: EventId(77),
            },
            Call::WaitFromGpu { context, objects: objects.clone().into(), values: values.clone().into() },
            Call::SignalFromCpu {
                device,
                objects: objects.into(),
                values: values.into(),
                flags: SignalFlags::empty(),
            },
        ];
        for call in calls {
            assert_eq!(world.status(call.clone()), IP, "{call:?}");
        }
    }
}

#[test]
fn a_queued_signal_needs_a_context_and_with_an_event_the_flag() {
    covers!("FEN-038");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let event = || GpuSignal::CpuEvent { event: EventId(1) };
    for (contexts, flags) in [(vec![context], SignalFlags::empty()), (vec![], SignalFlags::ENQUEUE_CPU_EVENT)]
    {
        let (contexts, signal) = (contexts.into(), event());
        assert_eq!(world.status(Call::SignalFromGpu { contexts, signal, flags }), IP);
    }
    let fence = world.fence(device, 0).object;
    assert_eq!(world.gpu_signal(&[], fence, 1), IP);
    assert_eq!((world.woken(), world.value(fence)), (vec![], 0));
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
