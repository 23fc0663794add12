//! Frozen processes: they hear of wake-ups when they are thawed.

use crate::common::{P, World};
use d3dkmt::{Call, EventId, Handle, NtStatus, WaitFromCpuFlags, limits};
use dxgkrnl::{HostEvent, Input, ProcessId};

const Q: ProcessId = ProcessId(2);

fn freeze(world: &mut World, process: ProcessId, frozen: bool) {
    world.input(Input::ProcessFrozen { process, frozen });
}

fn wait(world: &mut World, device: Handle, object: Handle, value: u64, event: u64) {
    world.ok(Call::WaitFromCpu {
        device,
        objects: vec![object].into(),
        values: vec![value].into(),
        flags: WaitFromCpuFlags::empty(),
        event: EventId(event),
    });
}

fn woken(world: &mut World) -> Vec<(ProcessId, u64)> {
    let events = std::mem::take(&mut world.effects.events);
    events
        .into_iter()
        .map(|HostEvent { process, target, status }| {
            assert_eq!(status, NtStatus::SUCCESS);
            (process, target.event().expect("a wait of its").0)
        })
        .collect()
}

fn held(world: &World, process: ProcessId) -> Option<u32> {
    let processes = world.kernel.snapshot().processes;
    processes.into_iter().find(|one| one.process == process.0).unwrap().held_wakes
}

/// A process with a device and a fence, and so many waits for 1, 2, ... of it that are events of the same numbers.
fn waiting(waits: u64) -> (World, Handle, Handle) {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    world.filling(|world| (1..=waits).for_each(|value| wait(world, device, fence, value, value)));
    (world, device, fence)
}

#[test]
fn a_frozen_process_hears_of_what_woke_it_when_it_is_thawed_and_in_that_order() {
    let (mut world, device, fence) = waiting(3);
    freeze(&mut world, P, true);
    freeze(&mut world, P, true);
    for value in [2, 1, 3] {
        world.signal(device, fence, value);
    }
    assert_eq!((woken(&mut world), held(&world, P)), (vec![], Some(3)));
    assert_eq!(world.kernel.belongings(P).held_wakes, 3);
    freeze(&mut world, P, false);
    assert_eq!((woken(&mut world), held(&world, P)), (vec![(P, 1), (P, 2), (P, 3)], None));
    freeze(&mut world, P, false);
    assert_eq!(woken(&mut world), [], "told once");
    wait(&mut world, device, fence, 9, 4);
    world.signal(device, fence, 9);
    assert_eq!(woken(&mut world), [(P, 4)], "at once again");
}

#[test]
fn nobody_else_is_held_up_by_a_frozen_process() {
    let (mut world, device, fence) = waiting(1);
    world.attach(Q);
    world.process = Q;
    let own = world.device();
    let other = world.fence(own, 0).object;
    wait(&mut world, own, other, 1, 77);
    freeze(&mut world, P, true);
    world.signal(own, other, 1);
    assert_eq!(woken(&mut world), [(Q, 77)]);
    // Its values are stored all the same: the memory is not frozen.
    world.process = P;
    world.stores();
    world.signal(device, fence, 1);
    assert_eq!((woken(&mut world), world.stores().len()), (vec![], 1));
}

#[test]
fn a_process_that_dies_frozen_leaves_nothing() {
    let (mut world, device, fence) = waiting(2);
    freeze(&mut world, P, true);
    world.signal(device, fence, 1);
    world.input(Input::ProcessGone { process: P });
    freeze(&mut world, P, false);
    assert_eq!(woken(&mut world), []);
    assert_eq!(world.kernel.belongings(P), Default::default());
    assert_eq!(world.kernel.miscounted(), None);
    assert!(world.kernel.snapshot().is_empty());
    freeze(&mut world, ProcessId(99), true);
    assert_eq!(world.kernel.miscounted(), None, "there is no such process to freeze");
}

#[test]
fn wake_ups_beyond_the_limit_thaw_the_process_rather_than_be_lost() {
    let most = limits::HELD_WAKES_PER_PROCESS_MAX as u64;
    let (mut world, device, fence) = waiting(most + 1);
    freeze(&mut world, P, true);
    world.signal(device, fence, most - 1);
    assert_eq!((woken(&mut world).len(), held(&world, P)), (0, Some(most as u32 - 1)));
    world.signal(device, fence, most + 1);
    let expected: Vec<_> = (1..=most + 1).map(|event| (P, event)).collect();
    assert_eq!((woken(&mut world), held(&world, P)), (expected, None));
    assert!(world.effects.notes.iter().any(|note| note.text.contains("65536 wake-ups are held")));
}
