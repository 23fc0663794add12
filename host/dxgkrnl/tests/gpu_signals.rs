//! Signal packets: their flags, broadcasts, CPU events, and valid objects.

use covers::covers;

use crate::common::World;
use d3dkmt::isa::Packet::*;
use d3dkmt::{
    Call, EventId, GpuSignal, Handle, NtStatus, SignalFlags as S, SyncObjectFlags, SyncObjectInfo,
    SyncObjectType as T,
};
use dxgkrnl::policy::LowerGpuSignal;
use dxgkrnl::{Config, Policy};

const IP: NtStatus = NtStatus::INVALID_PARAMETER;
const OK: NtStatus = NtStatus::SUCCESS;

fn signal(world: &mut World, contexts: &[Handle], targets: &[(Handle, u64)], flags: S) -> NtStatus {
    let (objects, values) = targets.iter().copied().unzip();
    let signal = GpuSignal::Monitored { objects, values };
    world.status(Call::SignalFromGpu { contexts: contexts.into(), signal, flags })
}

fn cpu_event(world: &mut World, contexts: &[Handle], event: EventId, flags: S) -> NtStatus {
    let signal = GpuSignal::CpuEvent { event };
    world.status(Call::SignalFromGpu { contexts: contexts.into(), signal, flags })
}

#[test]
fn a_lower_queued_signal_needs_the_flag_unless_the_policy_applies_it() {
    covers!("FEN-034");
    for (lower_gpu_signal, expected) in [(LowerGpuSignal::Ignored, 8), (LowerGpuSignal::Applied, 3)] {
        let policy = Policy { lower_gpu_signal, ..Policy::default() };
        let mut world = World::with_config(Config { policy, ..Config::default() });
        let device = world.device();
        let context = world.context(device, 0);
        let fence = world.fence(device, 8).object;
        assert_eq!(signal(&mut world, &[context], &[(fence, 3)], S::empty()), OK);
        assert_eq!(world.value(fence), expected);
        let ignored = world.effects.notes.iter().any(|note| note.text.contains("below the fence's value 8"));
        assert_eq!(ignored, lower_gpu_signal == LowerGpuSignal::Ignored);
        assert_eq!(signal(&mut world, &[context], &[(fence, 2)], S::ALLOW_FENCE_REWIND), OK);
        assert_eq!(world.value(fence), 2);
    }
}

#[test]
fn signal_at_submission_signals_once_prior_work_is_submitted_to_the_engine() {
    covers!("FEN-035");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let [early, late, gate, held] = [0; 4].map(|_| world.fence(device, 0).object);
    world.submit(context, &[Busy { duration_ns: 100 }]);
    signal(&mut world, &[context], &[(early, 1)], S::SIGNAL_AT_SUBMISSION);
    signal(&mut world, &[context], &[(late, 1)], S::empty());
    assert_eq!((world.value(early), world.value(late)), (1, 0));
    world.advance(100);
    assert_eq!(world.value(late), 1);
    // A broadcast does the same in each of its contexts.
    let (both, other) = (world.fence(device, 0).object, world.context(device, 0));
    world.submit(context, &[Busy { duration_ns: 100 }]);
    world.submit(other, &[Busy { duration_ns: 100 }]);
    signal(&mut world, &[context, other], &[(both, 1)], S::SIGNAL_AT_SUBMISSION);
    assert_eq!(world.value(both), 1);
    world.advance(200);
    // An engine has two buffers at a time: a third buffer is ready but not submitted.
    let contexts = [0; 3].map(|_| world.context(device, 0));
    let submitted = [0; 3].map(|_| world.fence(device, 0).object);
    for (context, fence) in contexts.into_iter().zip(submitted) {
        world.submit(context, &[Busy { duration_ns: 100 }]);
        signal(&mut world, &[context], &[(fence, 1)], S::SIGNAL_AT_SUBMISSION);
    }
    let all = world.fence(device, 0).object;
    signal(&mut world, &contexts, &[(all, 1)], S::SIGNAL_AT_SUBMISSION);
    assert_eq!(submitted.map(|fence| world.value(fence)), [1, 1, 0]);
    world.advance(99);
    assert_eq!((world.value(submitted[2]), world.value(all)), (0, 0));
    world.advance(1);
    assert_eq!((world.value(submitted[2]), world.value(all)), (1, 1));
    world.advance(200);
    // The signal does not overtake: the queue has not reached the packet before it.
    world.gpu_wait(context, gate, 1);
    signal(&mut world, &[context], &[(held, 1)], S::SIGNAL_AT_SUBMISSION);
    assert_eq!(world.value(held), 0);
    world.signal(device, gate, 1);
    assert_eq!(world.value(held), 1);
}

#[test]
fn a_cpu_event_is_set_when_every_context_has_reached_it() {
    covers!("FEN-036", "FEN-037");
    let mut world = World::new();
    let device = world.device();
    let contexts = [0, 0, 2].map(|node| world.context(device, node));
    world.submit(contexts[0], &[Busy { duration_ns: 100 }]);
    world.submit(contexts[2], &[Busy { duration_ns: 300 }]);
    let event = EventId(900);
    assert_eq!(cpu_event(&mut world, &contexts, event, S::ENQUEUE_CPU_EVENT), OK);
    world.advance(299);
    assert_eq!(world.woken(), []);
    world.advance(1);
    assert_eq!(world.woken(), [event]);
    assert_eq!(cpu_event(&mut world, &contexts[..1], event, S::ENQUEUE_CPU_EVENT), OK);
    assert_eq!(world.woken(), [event], "an idle context reaches the packet at once");
}

#[test]
fn events_and_objects_exclude_each_other_and_reserved_flags_are_refused() {
    covers!("FEN-036", "FEN-038", "FEN-039");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0).object;
    assert_eq!(cpu_event(&mut world, &[context], EventId(1), S::empty()), IP);
    assert_eq!(signal(&mut world, &[context], &[(fence, 1)], S::ENQUEUE_CPU_EVENT), IP);
    for bit in 3..32 {
        let flags = S::from_bits_retain(1 << bit);
        assert_eq!(signal(&mut world, &[context], &[(fence, 1)], flags), IP, "bit {bit}");
        let flags = flags | S::ENQUEUE_CPU_EVENT;
        assert_eq!(cpu_event(&mut world, &[context], EventId(1), flags), IP, "bit {bit}");
    }
    assert_eq!((world.value(fence), world.woken()), (0, vec![]));
}

#[test]
fn a_broadcast_takes_effect_once_when_the_last_context_reaches_it() {
    covers!("FEN-040");
    let mut world = World::new();
    let device = world.device();
    let contexts = [0; 3].map(|_| world.context(device, 0));
    let (fence, gate) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.gpu_wait(contexts[1], gate, 1);
    let event = world.pending(device, &[(fence, 1)], false);
    world.stores();
    assert_eq!(signal(&mut world, &contexts, &[(fence, 1)], S::empty()), OK);
    world.submit(contexts[0], &[Busy { duration_ns: 50 }]);
    world.advance(100);
    assert_eq!((world.value(fence), world.stores()), (0, vec![]));
    world.signal(device, gate, 1);
    assert_eq!((world.stores(), world.woken()), (vec![(2, 1), (1, 1)], vec![event]));
}

#[test]
fn a_broadcast_whose_context_ends_before_it_never_happens() {
    let mut world = World::new();
    let device = world.device();
    let contexts = [0; 2].map(|_| world.context(device, 0));
    let (fence, gate) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.gpu_wait(contexts[1], gate, 1);
    signal(&mut world, &contexts, &[(fence, 1)], S::empty());
    world.ok(Call::DestroySynchronizationObject { object: fence });
    assert_eq!(world.kernel.snapshot().objects_alive, 2);
    world.ok(Call::DestroyContext { context: contexts[1] });
    assert_eq!(world.kernel.snapshot().objects_alive, 1, "nothing references the fence");
    world.submit(contexts[0], &[Busy { duration_ns: 5 }]);
    assert!(world.kernel.next_deadline().is_some(), "the other context continues");
}

#[test]
fn contexts_are_counted_and_must_be_of_one_device() {
    covers!("FEN-041", "FEN-042");
    let mut world = World::new();
    let (device, other) = (world.device(), world.device());
    let context = world.context(device, 0);
    let stranger = world.context(other, 0);
    let fence = world.fence(device, 0).object;
    let many: Vec<Handle> = (0..65).map(|_| world.context(device, 0)).collect();
    assert_eq!(signal(&mut world, &many[..64], &[(fence, 1)], S::empty()), OK);
    assert_eq!(world.value(fence), 1);
    assert_eq!(signal(&mut world, &many, &[(fence, 2)], S::empty()), IP);
    assert_eq!(signal(&mut world, &[], &[(fence, 2)], S::empty()), IP);
    assert_eq!(signal(&mut world, &[context, stranger], &[(fence, 2)], S::empty()), IP);
    assert_eq!(signal(&mut world, &[context, fence], &[(fence, 2)], S::empty()), IP);
    for count in [0, 33] {
        let targets = vec![(fence, 2); count];
        assert_eq!(signal(&mut world, &[context], &targets, S::empty()), IP, "{count} objects");
        let (objects, values) = (vec![fence; count], vec![2; count]);
        assert_eq!(
            world.status(Call::WaitFromGpu { context, objects: objects.into(), values: values.into() }),
            IP
        );
    }
    assert_eq!(
        world.status(Call::WaitFromGpu { context, objects: vec![fence].into(), values: vec![].into() }),
        IP
    );
    assert_eq!(signal(&mut world, &[context], &vec![(fence, 2); 32], S::empty()), OK);
    assert_eq!(world.value(fence), 2);
}

#[test]
fn a_legacy_fence_must_be_the_only_object() {
    covers!("FEN-043");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let monitored = world.fence(device, 0).object;
    let legacy =
        world.object(device, SyncObjectInfo { object_type: T::FENCE, ..SyncObjectInfo::default() }).object;
    assert_eq!(signal(&mut world, &[context], &[(legacy, 1)], S::empty()), OK);
    assert_eq!(world.value(legacy), 1);
    assert_eq!(world.gpu_wait(context, legacy, 1), OK);
    assert_eq!(signal(&mut world, &[context], &[(legacy, 2), (monitored, 2)], S::empty()), IP);
    let (objects, values) = (vec![monitored, legacy], vec![2, 2]);
    assert_eq!(
        world.status(Call::WaitFromGpu { context, objects: objects.into(), values: values.into() }),
        IP
    );
    assert_eq!((world.value(legacy), world.value(monitored)), (1, 0));
}

#[test]
fn rights_are_checked_when_a_packet_is_queued() {
    covers!("FEN-050", "FEN-051");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let no_signal = world.fence_with(device, 0, SyncObjectFlags::NO_SIGNAL).object;
    let no_wait = world.fence_with(device, 0, SyncObjectFlags::NO_WAIT).object;
    assert_eq!(signal(&mut world, &[context], &[(no_signal, 1)], S::empty()), NtStatus::ACCESS_DENIED);
    assert_eq!(world.gpu_wait(context, no_wait, 0), NtStatus::ACCESS_DENIED);
    assert_eq!(signal(&mut world, &[context], &[(no_wait, 1)], S::empty()), OK);
    assert_eq!(world.gpu_wait(context, no_signal, 0), OK);
    assert_eq!((world.value(no_signal), world.value(no_wait)), (0, 1));
}
