//! Event ids, cancellation and the limit of CPU waits, and a wait that outlives an object of it.

use crate::common::{IP, OK, P, World};
use d3dkmt::{Call, EventId, Handle, KeyedMutexFlags, NtStatus, Reply, SignalFlags, calls, limits};
use dxgkrnl::{Effects, Input};

#[test]
fn an_event_id_of_a_pending_wait_is_in_use_until_it_ends() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let wait = |value| calls::wait(device, fence, value, EventId(50));
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

/// Made without the checker, which would follow each of a million waits.
#[test]
fn a_process_has_a_limited_number_of_waits() {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    let mut kernel = world.kernel;
    let mut step = |input| {
        let mut effects = Effects::default();
        kernel.handle(0, input, &mut effects);
        effects
    };
    let mut call = |call| step(Input::Call { process: P, request: 1, call });
    let wait = |event| calls::wait(device, fence, 1, EventId(event));
    let most = limits::WAITS_PER_PROCESS_MAX as u64;
    for event in 1..=most {
        assert_eq!(call(wait(event)).answers[0].status, OK);
    }
    let refused = call(wait(most + 1));
    assert_eq!(refused.answers[0].status, NtStatus::NO_MEMORY);
    assert!(refused.notes[0].text.contains("the limit"));
    assert_eq!(call(Call::CancelWait { event: EventId(1) }).answers[0].status, OK);
    // An acquire of a keyed mutex counts as a wait.
    let (initial_value, private_data, flags) = (0, vec![], KeyedMutexFlags::empty());
    let created = call(Call::CreateKeyedMutex { initial_value, private_data, flags });
    let Reply::KeyedMutex { mutex, .. } = created.answers[0].reply else { panic!("no mutex") };
    call(Call::AcquireKeyedMutex { mutex, key: 1, timeout: None, event: EventId(most + 3) });
    assert_eq!(call(wait(most + 1)).answers[0].status, NtStatus::NO_MEMORY);
    assert_eq!(call(Call::CancelWait { event: EventId(most + 3) }).answers[0].status, OK);
    assert_eq!(call(wait(most + 1)).answers[0].status, OK);
    assert_eq!(call(wait(most + 2)).answers[0].status, NtStatus::NO_MEMORY);
    let mut effects = call(calls::signal(device, fence, 1));
    let mut woken = 0;
    while !effects.events.is_empty() {
        woken += effects.events.len() as u64;
        effects = step(Input::Deadline);
    }
    assert_eq!(woken, most);
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
