//! Memory that is destroyed or offered while queued work may use it.

use crate::allocations::create;
use crate::common::{P, World};
use d3dkmt::isa::Packet;
use d3dkmt::{Call, CreateAllocationFlags as F, DestroyAllocationFlags, Handle, NtStatus};
use dxgkrnl::{Config, Effects, Input, ProcessId, VmId};

fn destroy(device: Handle, allocations: &[Handle], flags: DestroyAllocationFlags) -> Call {
    Call::DestroyAllocation { device, resource: Handle::NULL, allocations: allocations.to_vec(), flags }
}

fn offer(device: Handle, allocations: &[Handle]) -> Call {
    let (allocations, priority) = (allocations.to_vec(), 2);
    Call::OfferAllocations { device, allocations, resources: false, priority, flags: 0 }
}

fn step(world: &mut World, input: Input) -> Effects {
    let mut effects = Effects::default();
    world.kernel.handle(world.now, input, &mut effects);
    assert_eq!(world.kernel.miscounted(), None);
    effects
}

fn call(world: &mut World, request: u64, call: Call) -> Effects {
    step(world, Input::Call { process: P, request, call })
}

/// Steps until nothing is left to do.
fn run(world: &mut World) -> Effects {
    let mut effects = Effects::default();
    while let Some(due) = world.kernel.next_deadline() {
        world.now = world.now.max(due);
        effects.append(step(world, Input::Deadline));
    }
    effects
}

fn answers(effects: &Effects) -> Vec<(u64, NtStatus)> {
    effects.answers.iter().map(|answer| (answer.request, answer.status)).collect()
}

#[test]
fn a_synchronous_destroy_is_answered_behind_the_work_of_its_device_or_when_that_ends() {
    for ends in [false, true] {
        let mut world = World::new();
        let device = world.device();
        let context = world.context(device, 0);
        let all: Vec<Handle> = (0..3).map(|_| create(&mut world, device, F::empty()).2).collect();
        world.submit(context, &[Packet::Busy { duration_ns: 1000 }]);
        let flags = DestroyAllocationFlags::SYNCHRONOUS_DESTROY;
        for (request, allocation) in (10..).zip(&all) {
            assert_eq!(answers(&call(&mut world, request, destroy(device, &[*allocation], flags))), []);
        }
        let mut later = match ends {
            true => call(&mut world, 7, Call::DestroyDevice { device }),
            false => Effects::default(),
        };
        later.append(run(&mut world));
        let mut answered = answers(&later);
        answered.sort_unstable_by_key(|(request, _)| *request);
        answered.retain(|(request, _)| *request != 7);
        assert_eq!(answered, [10, 11, 12].map(|request| (request, NtStatus::SUCCESS)));
    }
}

#[test]
fn a_queue_has_one_packet_more_however_much_is_destroyed_behind_it() {
    let mut world = World::new();
    let device = world.device();
    let [context, other] = [0, 1].map(|node| world.context(device, node));
    let fence = world.fence(device, 0);
    let all: Vec<Handle> = (0..100).map(|_| create(&mut world, device, F::empty()).2).collect();
    for queue in [context, other] {
        world.gpu_wait(queue, fence.object, 1);
    }
    let before = world.kernel.memory_bytes(P);
    for allocation in &all {
        assert_eq!(
            world.status(destroy(device, &[*allocation], DestroyAllocationFlags::empty())),
            NtStatus::SUCCESS
        );
    }
    let more = world.kernel.memory_bytes(P).unwrap() - before.unwrap();
    assert!(more <= 2 * 144, "{more} bytes more");
    world.signal(device, fence.object, 1);
    run(&mut world);
    assert!(world.kernel.memory_bytes(P) < before, "they are destroyed");
    assert_eq!(world.kernel.miscounted(), None);
}

/// Wherever a call that destroys, or the marks of its round, may be interrupted.
#[test]
fn an_adapter_may_be_removed_and_a_process_or_device_may_end_before_the_marks_are_reached() {
    const Q: ProcessId = ProcessId(5);
    for (steps, units) in (0..12).map(|steps| (steps, 2)).chain([(0, 1000), (2, 1000)]) {
        for end in 0..4 {
            let mut world = World::with_config(Config::default());
            world.guest(3, Q);
            let device = world.device();
            let fence = world.fence(device, 0);
            let contexts = [0, 0, 1, 1].map(|node| world.context(device, node));
            let all: Vec<Handle> = (0..6).map(|_| create(&mut world, device, F::empty()).2).collect();
            for context in contexts {
                world.submit(context, &[Packet::Busy { duration_ns: 1000 }]);
                world.gpu_wait(context, fence.object, 1);
            }
            world.kernel.set_work_units_per_step(units, 1000);
            let inputs = [
                destroy(device, &all[..2], DestroyAllocationFlags::SYNCHRONOUS_DESTROY),
                offer(device, &all[4..]),
                destroy(device, &all[2..4], DestroyAllocationFlags::empty()),
            ];
            for call in inputs {
                step(&mut world, Input::Call { process: Q, request: 9, call });
                for _ in 0..steps {
                    step(&mut world, Input::Deadline);
                }
            }
            let input = match end {
                0 => Input::ProcessGone { process: Q },
                1 => Input::VmAdapter { vm: VmId(3), adapter: 0, added: false },
                2 => Input::Call { process: Q, request: 1, call: Call::DestroyDevice { device } },
                _ => Input::Call {
                    process: Q,
                    request: 1,
                    call: Call::MarkDeviceAsError { device, reason: 0 },
                },
            };
            step(&mut world, input);
            run(&mut world);
            step(&mut world, Input::ProcessGone { process: Q });
            run(&mut world);
            assert!(world.kernel.processes().all(|process| process == P));
        }
    }
}

/// The work of a queue may end before its device's other queues have their marks.
#[test]
fn a_synchronous_destroy_is_answered_if_the_work_ends_while_its_marks_are_placed() {
    for units in 1..6 {
        let mut world = World::new();
        let device = world.device();
        let contexts = [0, 0, 0, 1].map(|node| world.context(device, node));
        let allocation = create(&mut world, device, F::empty()).2;
        for context in contexts {
            world.submit(context, &[Packet::Busy { duration_ns: 10 }]);
        }
        world.kernel.set_work_units_per_step(units, 1000);
        let flags = DestroyAllocationFlags::SYNCHRONOUS_DESTROY;
        let mut effects = call(&mut world, 10, destroy(device, &[allocation], flags));
        for _ in 0..8 {
            world.now += 20;
            effects.append(step(&mut world, Input::Deadline));
        }
        effects.append(run(&mut world));
        assert_eq!(answers(&effects), [(10, NtStatus::SUCCESS)], "{units} units a step");
    }
}

#[test]
fn an_offer_behind_work_goes_with_what_it_names() {
    for destroys_device in [false, true] {
        let mut world = World::new();
        let device = world.device();
        let context = world.context(device, 0);
        let all: Vec<Handle> = (0..3).map(|_| create(&mut world, device, F::empty()).2).collect();
        world.submit(context, &[Packet::Busy { duration_ns: 1000 }]);
        assert_eq!(world.status(offer(device, &all)), NtStatus::SUCCESS);
        // The step finds the work done, and ends what was offered.
        world.now += 2000;
        let end = match destroys_device {
            true => Call::DestroyDevice { device },
            false => destroy(device, &all, DestroyAllocationFlags::ASSUME_NOT_IN_USE),
        };
        call(&mut world, 1, end);
        run(&mut world);
        // Others get the places of the tables.
        let device = world.device();
        let other = create(&mut world, device, F::empty()).2;
        assert_eq!(world.status(offer(device, &[other])), NtStatus::SUCCESS);
        run(&mut world);
    }
}

#[test]
fn an_allocation_that_is_offered_again_and_again_waits_once() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0);
    let allocation = create(&mut world, device, F::empty()).2;
    world.gpu_wait(context, fence.object, 1);
    let bytes = |world: &World| world.kernel.save().unwrap().len();
    for _ in 0..10 {
        assert_eq!(world.status(offer(device, &[allocation])), NtStatus::SUCCESS);
    }
    let before = bytes(&world);
    for _ in 0..1000 {
        assert_eq!(world.status(offer(device, &[allocation])), NtStatus::SUCCESS);
    }
    assert!(bytes(&world) < before + 100, "{} bytes of state, {before} before", bytes(&world));
}
