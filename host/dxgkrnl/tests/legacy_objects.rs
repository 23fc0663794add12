//! Mutexes, semaphores, legacy fences and CPU notifications in the queues of contexts.

use covers::covers;

use crate::common::{IP, OK, P, World};
use d3dkmt::isa::Packet::*;
use d3dkmt::{
    Call, CreatedSyncObject, EventId, GpuSignal, Handle, NtStatus, Reply, SignalFlags, SyncObjectFlags as F,
    SyncObjectInfo, SyncObjectType as T, calls,
};
use dxgkrnl::policy::{AbandonedMutex, DestroyedContext, ForeignMutexRelease, SemaphoreOverflow};
use dxgkrnl::snapshot::ObjectState;
use dxgkrnl::{Config, Fault, Input, Policy, ProcessId};

fn info(object_type: T) -> SyncObjectInfo {
    SyncObjectInfo { object_type, ..SyncObjectInfo::default() }
}

fn mutex(world: &mut World, device: Handle) -> Handle {
    world.object(device, info(T::MUTEX)).object
}

fn semaphore(world: &mut World, device: Handle, initial_count: u32, max_count: u32) -> Handle {
    world.object(device, SyncObjectInfo { initial_count, max_count, ..info(T::SEMAPHORE) }).object
}

/// Waits with the legacy call, which has one fence value for all objects.
fn wait(world: &mut World, context: Handle, objects: &[Handle]) -> NtStatus {
    world.status(calls::acquire(context, objects))
}

fn signal(world: &mut World, contexts: &[Handle], objects: &[Handle]) -> NtStatus {
    let signal = GpuSignal::Legacy { objects: objects.into(), fence_value: 0 };
    world.status(Call::SignalFromGpu { contexts: contexts.into(), signal, flags: SignalFlags::empty() })
}

/// A fence that is signaled when the context reaches this point of its queue.
fn mark(world: &mut World, device: Handle, context: Handle) -> Handle {
    let fence = world.fence(device, 0).object;
    assert_eq!(world.gpu_signal(&[context], fence, 1), OK);
    fence
}

/// Owner of the mutex behind this handle of the calling process.
fn owner(world: &World, mutex: Handle) -> Option<(u32, Handle)> {
    let objects = world.kernel.snapshot().objects;
    let is_mutex = |object: &&ObjectState| (object.process, object.handle) == (world.process.0, mutex);
    objects.iter().find(is_mutex).unwrap().owner
}

fn with(policy: Policy) -> World {
    World::with_config(Config { policy, ..Config::default() })
}

fn noted(world: &World, text: &str) -> bool {
    world.effects.notes.iter().any(|note| note.text.contains(text))
}

#[test]
fn a_mutex_passes_between_contexts_in_waiting_order() {
    covers!("FEN-075");
    let mut world = World::new();
    let device = world.device();
    let contexts = [0; 4].map(|_| world.context(device, 0));
    let mutex = mutex(&mut world, device);
    for context in contexts {
        assert_eq!(wait(&mut world, context, &[mutex]), OK);
    }
    let marks = contexts.map(|context| mark(&mut world, device, context));
    for (at, context) in contexts.into_iter().enumerate() {
        assert_eq!(owner(&world, mutex), Some((P.0, context)));
        assert_eq!(marks.map(|fence| world.value(fence)), [0, 1, 2, 3].map(|other| u64::from(other <= at)));
        assert_eq!(
            world.kernel.snapshot().objects.iter().find(|o| o.handle == mutex).unwrap().waiters as usize,
            3 - at
        );
        assert_eq!(signal(&mut world, &[context], &[mutex]), OK);
    }
    assert_eq!((owner(&world, mutex), world.value(mutex)), (None, 0));
    world.finish();
}

#[test]
fn a_mutex_is_taken_at_the_head_of_the_queue_after_the_work_before_it() {
    let mut world = World::new();
    let device = world.device();
    let (busy, quick) = (world.context(device, 0), world.context(device, 2));
    let mutex = mutex(&mut world, device);
    world.submit(busy, &[Busy { duration_ns: 100 }]);
    assert_eq!(wait(&mut world, busy, &[mutex]), OK);
    assert_eq!(owner(&world, mutex), None, "queued first, but not at the head");
    assert_eq!(wait(&mut world, quick, &[mutex]), OK);
    assert_eq!(owner(&world, mutex), Some((P.0, quick)));
    world.advance(200);
    assert_eq!(owner(&world, mutex), Some((P.0, quick)));
    // Work after the wait does not run before it; work after the other context's signal is irrelevant.
    world.submit(busy, &[Busy { duration_ns: 100 }]);
    let after = mark(&mut world, device, busy);
    world.advance(1000);
    assert_eq!(world.value(after), 0);
    assert_eq!(signal(&mut world, &[quick], &[mutex]), OK);
    assert_eq!((owner(&world, mutex), world.value(after)), (Some((P.0, busy)), 0));
    world.advance(100);
    assert_eq!(world.value(after), 1);
    world.finish();
}

#[test]
fn the_owner_of_a_mutex_may_take_it_again_and_frees_it_with_one_signal() {
    let mut world = World::new();
    let device = world.device();
    let (context, other) = (world.context(device, 0), world.context(device, 0));
    let mutex = mutex(&mut world, device);
    for _ in 0..3 {
        assert_eq!(wait(&mut world, context, &[mutex]), OK);
    }
    let through = mark(&mut world, device, context);
    assert_eq!(world.value(through), 1);
    assert_eq!(wait(&mut world, other, &[mutex]), OK);
    assert_eq!(owner(&world, mutex), Some((P.0, context)));
    assert_eq!(signal(&mut world, &[context], &[mutex]), OK);
    assert_eq!(owner(&world, mutex), Some((P.0, other)));
    world.finish();
}

#[test]
fn only_its_owner_releases_a_mutex_unless_the_policy_allows_others() {
    for (rule, freed) in [(ForeignMutexRelease::Ignored, false), (ForeignMutexRelease::Releases, true)] {
        let mut world = with(Policy { foreign_mutex_release: rule, ..Policy::default() });
        let device = world.device();
        let (context, other) = (world.context(device, 0), world.context(device, 0));
        let mutex = mutex(&mut world, device);
        wait(&mut world, context, &[mutex]);
        assert_eq!(
            signal(&mut world, &[other], &[mutex]),
            OK,
            "the call succeeds whatever its packet does later"
        );
        assert_eq!(owner(&world, mutex).is_none(), freed);
        assert_eq!(noted(&world, "owns: ignored"), !freed);
        signal(&mut world, &[context], &[mutex]);
        assert_eq!(owner(&world, mutex), None);
        signal(&mut world, &[context], &[mutex]);
        assert!(noted(&world, "nobody owns"));
        world.finish();
    }
}

#[test]
fn a_broadcast_frees_a_mutex_that_one_of_its_contexts_owns() {
    let mut world = World::new();
    let device = world.device();
    let contexts = [0; 2].map(|_| world.context(device, 0));
    let mutex = mutex(&mut world, device);
    wait(&mut world, contexts[1], &[mutex]);
    world.submit(contexts[0], &[Busy { duration_ns: 100 }]);
    assert_eq!(signal(&mut world, &contexts, &[mutex]), OK);
    assert_eq!(
        owner(&world, mutex),
        Some((P.0, contexts[1])),
        "not before the other context reaches the signal"
    );
    world.advance(100);
    assert_eq!(owner(&world, mutex), None);
    world.finish();
}

#[test]
fn a_mutex_of_an_owner_that_ends_is_free_unless_the_policy_keeps_it() {
    type End = fn(&mut World, Handle, Handle);
    let ends: [End; 3] = [
        |world, _, context| drop(world.ok(Call::DestroyContext { context })),
        |world, device, _| drop(world.ok(Call::DestroyDevice { device })),
        |world, _, _| world.end_process(ProcessId(2)),
    ];
    for end in ends {
        for (rule, freed) in [(AbandonedMutex::Freed, true), (AbandonedMutex::StaysOwned, false)] {
            let mut world = with(Policy {
                abandoned_mutex: rule,
                destroyed_context: DestroyedContext::AtOnce,
                ..Policy::default()
            });
            let device = world.device();
            let context = world.context(device, 0);
            let shared = SyncObjectInfo { flags: F::SHARED, ..info(T::MUTEX) };
            let CreatedSyncObject { object: mutex, shared_handle, .. } = world.object(device, shared);
            let theirs = world.other(2);
            let owner_context = world.context(theirs, 0);
            let Reply::SyncObject(opened) = world.ok(Call::OpenSynchronizationObject { shared_handle })
            else {
                panic!()
            };
            wait(&mut world, owner_context, &[opened.object]);
            world.process = P;
            wait(&mut world, context, &[mutex]);
            assert_eq!(owner(&world, mutex), Some((2, owner_context)));
            world.process = ProcessId(2);
            end(&mut world, theirs, owner_context);
            world.process = P;
            let expected = if freed { (P.0, context) } else { (2, Handle::NULL) };
            assert_eq!(owner(&world, mutex), Some(expected));
            assert!(noted(&world, "ended and owned a mutex"));
            world.finish();
        }
    }
}

#[test]
fn a_destroyed_queue_leaves_the_wait_line_and_releases_its_mutex() {
    let mut world = World::with_config(crate::common::dropping(Config::default()));
    let device = world.device();
    let contexts = [0; 3].map(|_| world.context(device, 0));
    let mutex = mutex(&mut world, device);
    for context in contexts {
        wait(&mut world, context, &[mutex]);
    }
    world.ok(Call::DestroyContext { context: contexts[1] });
    assert_eq!(world.kernel.miscounted(), None);
    world.ok(Call::DestroyContext { context: contexts[0] });
    assert_eq!(owner(&world, mutex), Some((P.0, contexts[2])));
    // With its handle destroyed, the object ends with its last packet.
    let more = world.context(device, 0);
    wait(&mut world, more, &[mutex]);
    world.ok(Call::DestroySynchronizationObject { object: mutex });
    assert_eq!(world.kernel.snapshot().objects_alive, 1);
    world.ok(Call::DestroyContext { context: more });
    assert_eq!((world.kernel.snapshot().objects_alive, world.kernel.miscounted()), (0, None));
    world.finish();
}

#[test]
fn a_semaphore_overflow_stops_the_device_by_policy() {
    for (rule, state) in [(SemaphoreOverflow::Ignored, 1), (SemaphoreOverflow::StopsDevice, 4)] {
        let mut world = with(Policy { semaphore_overflow: rule, ..Policy::default() });
        let (device, other) = (world.device(), world.device());
        let context = world.context(device, 0);
        let semaphore = semaphore(&mut world, device, 1, 1);
        assert_eq!(signal(&mut world, &[context], &[semaphore]), OK);
        assert_eq!(world.value(semaphore), 1);
        let of = |world: &mut World, device| world.ok(Call::GetDeviceState { device, state_type: 1 });
        assert_eq!(of(&mut world, device), Reply::DeviceState(state));
        assert_eq!(of(&mut world, other), Reply::DeviceState(1));
        world.finish();
    }
}

#[test]
fn several_objects_of_one_wait_are_taken_together_or_not_at_all() {
    let mut world = World::new();
    let device = world.device();
    let [both, holder, single] = [0; 3].map(|_| world.context(device, 0));
    let (a, b) = (mutex(&mut world, device), mutex(&mut world, device));
    let tokens = semaphore(&mut world, device, 1, 9);
    wait(&mut world, holder, &[b]);
    assert_eq!(wait(&mut world, both, &[a, b, tokens, tokens]), OK);
    assert_eq!(
        (owner(&world, a), world.value(tokens)),
        (None, 1),
        "a wait acquires nothing while one object is unavailable"
    );
    // A wait that can be satisfied overtakes the line. Otherwise the owner of `b` would wait for `a` for ever.
    wait(&mut world, holder, &[a]);
    assert_eq!(owner(&world, a), Some((P.0, holder)));
    signal(&mut world, &[holder], &[a]);
    signal(&mut world, &[holder], &[b]);
    assert_eq!(
        (owner(&world, b), world.value(tokens)),
        (None, 1),
        "one count does not satisfy a wait for two"
    );
    assert_eq!(world.kernel.miscounted(), None);
    signal(&mut world, &[single], &[tokens]);
    assert_eq!((owner(&world, a), owner(&world, b)), (Some((P.0, both)), Some((P.0, both))));
    assert_eq!(world.value(tokens), 0);
    world.finish();
}

#[test]
fn every_type_may_be_named_beside_values_which_mean_nothing_for_mutex_and_semaphore() {
    covers!("FEN-075");
    let mut world = World::with_config(crate::common::dropping(Config::default()));
    let device = world.device();
    let (context, other) = (world.context(device, 0), world.context(device, 0));
    let (mutex, semaphore) = (mutex(&mut world, device), semaphore(&mut world, device, 1, 2));
    let gate = world.fence(device, 0).object;
    let (objects, values) = (vec![mutex, gate, semaphore], vec![99, 5, u64::MAX]);
    assert_eq!(
        world.status(Call::WaitFromGpu { context, objects: objects.into(), values: values.into() }),
        OK
    );
    let through = mark(&mut world, device, context);
    assert_eq!((owner(&world, mutex), world.value(semaphore)), (None, 1), "the fence's value comes first");
    // The value latches from the moment the wait is queued.
    world.signal(device, gate, 5);
    assert_eq!(
        (owner(&world, mutex), world.value(semaphore), world.value(through)),
        (Some((P.0, context)), 0, 1)
    );
    let release =
        GpuSignal::Monitored { objects: vec![mutex, gate, semaphore].into(), values: vec![7, 8, 9].into() };
    let flags = SignalFlags::empty();
    assert_eq!(
        world.status(Call::SignalFromGpu { contexts: vec![context].into(), signal: release, flags }),
        OK
    );
    assert_eq!((owner(&world, mutex), world.value(semaphore), world.value(gate)), (None, 1, 8));
    // Destroyed while it waits for the value: nothing leaks.
    let (objects, values) = (vec![mutex, gate], vec![0, 100]);
    world.ok(Call::WaitFromGpu { context: other, objects: objects.into(), values: values.into() });
    world.ok(Call::DestroyContext { context: other });
    assert_eq!((world.kernel.snapshot().waits.len(), world.kernel.miscounted()), (0, None));
    world.finish();
}

#[test]
fn a_monitored_fence_is_refused_where_the_call_has_one_value() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let (fence, mutex) = (world.fence(device, 0).object, mutex(&mut world, device));
    for objects in [vec![fence], vec![mutex, fence]] {
        assert_eq!(wait(&mut world, context, &objects), IP);
        assert_eq!(signal(&mut world, &[context], &objects), IP);
        assert!(noted(&world, "a monitored fence takes a value array"));
    }
    assert_eq!((world.value(fence), owner(&world, mutex)), (0, None));
    world.finish();
}

#[test]
fn a_stopped_adapter_drops_queued_waits() {
    let mut world = World::new();
    let device = world.device();
    let contexts = [0; 2].map(|_| world.context(device, 0));
    let mutex = mutex(&mut world, device);
    for context in contexts {
        wait(&mut world, context, &[mutex]);
    }
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(world.kernel.miscounted(), None);
    assert_eq!(wait(&mut world, contexts[1], &[mutex]), NtStatus::DEVICE_REMOVED);
    world.ok(Call::DestroyContext { context: contexts[0] });
    assert_eq!(owner(&world, mutex), None);
    world.finish();
}

#[test]
fn an_object_has_a_shared_handle_only_if_it_is_shared_by_a_global_handle() {
    covers!("FEN-063");
    let mut world = World::new();
    let device = world.device();
    for object_type in [T::MUTEX, T::SEMAPHORE, T::FENCE, T::CPU_NOTIFICATION] {
        let shared =
            SyncObjectInfo { flags: F::SHARED, event: Some(EventId(1)), max_count: 5, ..info(object_type) };
        let created = world.object(device, shared);
        let Reply::SyncObject(opened) =
            world.ok(Call::OpenSynchronizationObject { shared_handle: created.shared_handle })
        else {
            panic!()
        };
        assert_eq!(opened.object.0, created.object.0 + 0x40);
        assert_eq!(opened.shared_handle, Handle::NULL);
    }
    let monitored = world.fence_with(device, 0, F::SHARED | F::NT_SECURITY_SHARING);
    assert_eq!(monitored.shared_handle, Handle::NULL);
    world.finish();
}

#[test]
fn every_policy_is_one_word_of_bits_and_one_line_of_names() {
    for bits in 0..1 << Policy::SWITCHES.len() {
        let policy = Policy::from_bits(bits).unwrap();
        assert_eq!(policy.to_bits(), bits);
        let named =
            policy.values().try_fold(Policy::default(), |all, (switch, value)| all.with(switch, value));
        assert_eq!(named, Some(policy));
    }
    assert_eq!(Policy::from_bits(1 << Policy::SWITCHES.len()), None);
}
