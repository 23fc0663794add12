//! Frozen processes: the kernel holds their wakes until they are thawed.

use crate::common::{P, World};
use d3dkmt::{EventId, Handle, NtStatus, calls, limits};
use dxgkrnl::{HostEvent, Input, ProcessId};

const Q: ProcessId = ProcessId(2);

fn freeze(world: &mut World, process: ProcessId, frozen: bool) {
    world.input(Input::ProcessFrozen { process, frozen });
}

fn wait(world: &mut World, device: Handle, object: Handle, value: u64, event: u64) {
    world.ok(calls::wait(device, object, value, EventId(event)));
}

fn woken(world: &mut World) -> Vec<(ProcessId, u64)> {
    let events = std::mem::take(&mut world.effects.events);
    events
        .into_iter()
        .map(|HostEvent { process, target, status }| {
            assert_eq!(status, NtStatus::SUCCESS);
            (process, target.event().expect("the event of a wait").0)
        })
        .collect()
}

fn held_wakes(world: &World, process: ProcessId) -> Option<u32> {
    let processes = world.kernel.snapshot().processes;
    processes.into_iter().find(|one| one.process == process.0).unwrap().held_wakes
}

/// A process with a device and a fence, and waits for 1, 2, ... with event ids of the same numbers.
fn waiting(waits: u64) -> (World, Handle, Handle) {
    let mut world = World::new();
    let device = world.device();
    let fence = world.fence(device, 0).object;
    world.filling(|world| (1..=waits).for_each(|value| wait(world, device, fence, value, value)));
    (world, device, fence)
}

#[test]
fn a_thawed_process_gets_its_wakes_in_their_order() {
    let (mut world, device, fence) = waiting(3);
    freeze(&mut world, P, true);
    freeze(&mut world, P, true);
    for value in [2, 1, 3] {
        world.signal(device, fence, value);
    }
    assert_eq!((woken(&mut world), held_wakes(&world, P)), (vec![], Some(3)));
    assert_eq!(world.kernel.belongings(P).held_wakes, 3);
    freeze(&mut world, P, false);
    assert_eq!((woken(&mut world), held_wakes(&world, P)), (vec![(P, 1), (P, 2), (P, 3)], None));
    freeze(&mut world, P, false);
    assert_eq!(woken(&mut world), [], "each wake is delivered once");
    wait(&mut world, device, fence, 9, 4);
    world.signal(device, fence, 9);
    assert_eq!(woken(&mut world), [(P, 4)], "wakes are immediate again");
}

#[test]
fn a_frozen_process_blocks_no_other_process() {
    let (mut world, device, fence) = waiting(1);
    world.attach(Q);
    world.process = Q;
    let own = world.device();
    let other = world.fence(own, 0).object;
    wait(&mut world, own, other, 1, 77);
    freeze(&mut world, P, true);
    world.signal(own, other, 1);
    assert_eq!(woken(&mut world), [(Q, 77)]);
    // Its values are stored nevertheless: freezing holds wakes only.
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
    assert_eq!(world.kernel.miscounted(), None, "freezing an ended process is refused");
}

#[test]
fn wakes_beyond_the_limit_thaw_the_process() {
    let most = limits::HELD_WAKES_PER_PROCESS_MAX as u64;
    let (mut world, device, fence) = waiting(most + 1);
    freeze(&mut world, P, true);
    world.signal(device, fence, most - 1);
    assert_eq!((woken(&mut world).len(), held_wakes(&world, P)), (0, Some(most as u32 - 1)));
    world.signal(device, fence, most + 1);
    let expected: Vec<_> = (1..=most + 1).map(|event| (P, event)).collect();
    assert_eq!((woken(&mut world), held_wakes(&world, P)), (expected, None));
    assert!(world.effects.notes.iter().any(|note| note.text.contains("65536 wake-ups are held")));
}
