//! Each planted bug shows under its own condition only.

use crate::common::World;
use d3dkmt::{Call, Handle, NtStatus, SignalFlags, SyncObjectFlags};
use dxgkrnl::{Input, PlantedBug};

const REWIND: SignalFlags = SignalFlags::ALLOW_FENCE_REWIND;

fn planted(bug: PlantedBug) -> (World, Handle, Handle) {
    let mut world = World::new();
    world.violations = Some(Vec::new());
    world.kernel.plant(bug);
    let device = world.device();
    let fence = world.fence(device, 0).object;
    (world, device, fence)
}

/// The checker's finding for this bug.
fn assert_caught(world: &World, words: &str) {
    let violations = world.violations.as_ref().unwrap();
    assert!(violations.iter().any(|violation| violation.contains(words)), "{violations:?}");
}

#[test]
#[should_panic(expected = "lost wake")]
fn a_kernel_that_loses_a_wake_fails_every_test() {
    let mut world = World::new();
    world.kernel.plant(PlantedBug::LostWake);
    let device = world.device();
    let fence = world.fence(device, 0).object;
    for _ in 0..2 {
        world.pending(device, &[(fence, 1)], false);
    }
    world.signal(device, fence, 1);
}

#[test]
fn names_lead_back_to_bugs() {
    for bug in PlantedBug::ALL {
        assert_eq!(PlantedBug::from_name(bug.name()), Some(bug));
    }
    assert_eq!(PlantedBug::from_name("none"), None);
}

#[test]
fn lost_wake_loses_the_last_of_several() {
    let (mut world, device, fence) = planted(PlantedBug::LostWake);
    let alone = world.pending(device, &[(fence, 1)], false);
    world.signal(device, fence, 1);
    assert_eq!(world.woken(), [alone]);
    let together = [(); 3].map(|()| world.pending(device, &[(fence, 2)], false));
    world.signal(device, fence, 2);
    assert_eq!(world.woken(), together[..2]);
    assert_eq!(world.kernel.snapshot().waits, []);
    assert_caught(&world, "lost wake");
}

#[test]
fn early_wake_needs_two_items_and_one_below() {
    let (mut world, device, fence) = planted(PlantedBug::EarlyWake);
    let other = world.fence(device, 0).object;
    let single = world.pending(device, &[(fence, 4)], false);
    let double = world.pending(device, &[(fence, 4), (other, 9)], false);
    world.signal(device, fence, 2);
    assert_eq!(world.woken(), []);
    world.signal(device, fence, 3);
    assert_eq!(world.woken(), [double]);
    assert_caught(&world, "early wake");
    world.signal(device, fence, 4);
    assert_eq!(world.woken(), [single]);
}

#[test]
fn stale_value_leaves_the_second_open_behind_on_a_rewind() {
    let (mut world, device, alone) = planted(PlantedBug::StaleValue);
    let (shared, ..) = world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
    world.stores();
    world.signal(device, alone, 5);
    world.signal_flags(device, alone, 3, REWIND);
    assert_eq!(world.stores().len(), 2);
    world.signal(device, shared, 5);
    assert_eq!(world.stores().len(), 2, "both opens get a higher value");
    world.signal_flags(device, shared, 3, REWIND);
    assert_eq!(world.stores().len(), 1, "the second open is left out");
    assert_caught(&world, "stale value");
    world.signal(device, shared, 6);
    assert_eq!(world.stores().len(), 2);
}

#[test]
fn double_answer_needs_a_rewinding_signal_and_two_fences() {
    let (mut world, device, fence) = planted(PlantedBug::DoubleAnswer);
    let answers = |world: &mut World, value, flags| {
        let call =
            Call::SignalFromCpu { device, objects: vec![fence].into(), values: vec![value].into(), flags };
        world.input(Input::Call { process: world.process, request: 1, call });
        std::mem::take(&mut world.effects.answers)
    };
    assert_eq!(answers(&mut world, 3, REWIND).len(), 1, "one fence");
    world.fence(device, 0);
    let twice = answers(&mut world, 2, REWIND);
    assert_eq!(twice.len(), 2);
    assert!(twice.iter().all(|answer| answer.status == NtStatus::SUCCESS));
    assert_caught(&world, "has 2 answers");
    assert_eq!(answers(&mut world, 4, SignalFlags::empty()).len(), 1, "a signal without AllowFenceRewind");
    let reserved = SignalFlags::from_bits_retain(0x80);
    assert_eq!(answers(&mut world, 4, REWIND | reserved).len(), 1, "a refused one");
}
