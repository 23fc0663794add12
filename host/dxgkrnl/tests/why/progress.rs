//! Waits that running work will release are not reported as dead; and the limits of a report.

use super::{Q, acts, chain, is_waits_for, of, only, why};
use crate::common::hardware::*;
use crate::common::session::Session;
use crate::common::{P, World, dropping, share, without_timeouts};
use d3dkmt::{
    Call, Handle, Reply, ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType, calls,
};
use dxgkrnl::policy::{AbandonedMutex, FaultedDevicePoisons};
use dxgkrnl::why::{Question, Verdict};
use dxgkrnl::{Config, Effects, Input, Kernel, Policy, ProcessId};

#[test]
fn a_signal_behind_work_that_runs_is_progress() {
    let mut world = World::new();
    let device = world.device();
    let (near, far) = (world.context(device, ADVANCED), world.context(device, OTHER));
    let fences: Vec<Handle> = (0..3).map(|_| world.fence(device, 0).object).collect();
    world.submit(near, &[busy(500)]);
    world.gpu_signal(&[near], fences[0], 1);
    world.gpu_wait(far, fences[0], 1);
    world.gpu_signal(&[far], fences[1], 1);
    world.pending(device, &[(fences[1], 1)], false);
    let cause = only(&world);
    assert_eq!(cause.verdict, Verdict::Progressing { due: Some(500) });
    assert_eq!(cause.waiters_count, 2, "the queue and the thread");
    world.advance(500);
    assert_eq!(why(&world).waiting, 0);
    // Ready but not submitted; and the write of a queued buffer.
    let fence = world.fence(device, 0);
    for _ in 0..4 {
        world.submit(near, &[busy(500)]);
    }
    let contexts: Vec<Handle> = (0..3).map(|_| world.context(device, ADVANCED)).collect();
    for context in &contexts {
        world.submit(*context, &[busy(100)]);
    }
    world.submit(contexts[2], &[write(&fence, 2), busy(10)]);
    world.pending(device, &[(fence.object, 2), (fences[1], 1)], false);
    assert_eq!(only(&world).verdict.name(), "progressing");
    world.advance(1_000_000);
    assert_eq!(why(&world).waiting, 0);
    world.finish();
}

#[test]
fn signals_behind_a_hang_are_no_progress_and_those_before_it_are() {
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let (context, fence) = (world.context(device, ADVANCED), world.fence(device, 0));
    world.submit(context, &[busy(100), write(&fence, 1), d3dkmt::isa::Packet::Hang, write(&fence, 2)]);
    let before = world.pending(device, &[(fence.object, 1)], false);
    let behind = world.pending(device, &[(fence.object, 2)], false);
    let verdict_of = |world: &World, event: d3dkmt::EventId| {
        let question = Question { event: Some(event.0), ..Question::default() };
        world.kernel.why(&question).causes[0].verdict.name()
    };
    assert_eq!((verdict_of(&world, before), verdict_of(&world, behind)), ("progressing", "hang"));
    world.advance(1_000);
    assert_eq!(verdict_of(&world, behind), "hang");
    world.finish();
}

#[test]
fn a_million_waits_of_one_cause_are_one_cause_and_the_report_is_limited() {
    let mut world = World::new();
    let device = world.device();
    let (fence, context) = (world.fence(device, 0).object, world.context(device, 0));
    world.filling(|world| {
        for value in 1..=5_000 {
            world.pending(device, &[(fence, value)], false);
        }
    });
    let all = world.kernel.why(&Question::default());
    assert_eq!((all.waiting, all.causes.len(), all.causes[0].waiters_count), (5_000, 1, 4_096));
    assert_eq!((all.causes[0].waiters.len(), all.left_out, all.unexamined), (8, 904, 904));
    assert!(all.to_string().lines().count() < 60, "{all}");
    assert!(is_waits_for(&all.causes[0], 1));
    let fences: Vec<Handle> = (0..40).map(|_| world.fence(device, 0).object).collect();
    for fence in &fences {
        world.gpu_wait(context, *fence, 1);
    }
    // The process has more waits than are considered.
    let text = chain(&all.causes[0]) + &all.causes[0].could[0].text;
    assert!(text.contains("its CPU has 256 or more waits itself"), "{text}");
    let few = world.kernel.why(&Question { most: 1, ..Question::default() });
    assert_eq!(few.causes.len(), 1);
    world.now = 1_000;
    world.input(Input::Deadline);
    let old = Question { older_than: 1_001, ..Question::default() };
    assert_eq!(world.kernel.why(&old).waiting, 0);
    assert_eq!(world.kernel.why(&Question { older_than: 1_000, ..old.clone() }).waiting, 5_001);
    assert_eq!(world.kernel.why(&Question { process: Some(9), ..Question::default() }).waiting, 0);
    world.kernel.why(&Question::default());
    world.finish();
}

/// A limit of causes is one of the list: each waiter is judged.
#[test]
fn a_hang_behind_many_older_waits_is_listed_first_or_counted() {
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let (context, late) = (world.context(device, ADVANCED), world.fence(device, 0).object);
    for _ in 0..20 {
        let idle = world.fence(device, 0).object;
        world.pending(device, &[(idle, 1)], false);
    }
    world.now = 1_000;
    world.submit(context, &[d3dkmt::isa::Packet::Hang]);
    world.gpu_signal(&[context], late, 1);
    world.pending(device, &[(late, 1)], false);
    let all = world.kernel.why(&Question { most: 10, ..Question::default() });
    let hangs: Vec<_> = all.causes.iter().filter(|cause| cause.verdict.is_stuck()).collect();
    assert_eq!((all.causes.len(), hangs.len(), all.stuck_left_out), (10, 1, 0), "{all}");
    assert_eq!((hangs[0].waiters_count, all.left_out, all.unexamined), (2, 11, 0));
    let none = world.kernel.why(&Question { most: 0, ..Question::default() });
    assert_eq!((none.causes.len(), none.left_out, none.stuck_left_out), (0, 22, 2));
    assert!(none.to_string().contains("22 of 22 waits are not shown, and 2 of them are stuck"), "{none}");
    assert_eq!(world.kernel.why(&Question::unlimited(None)).causes.len(), 21);
    world.finish();
}

/// The report names the single signal that would release a wait, and none if no single signal would.
#[test]
fn the_signal_that_would_release_a_wait_is_tried_on_a_copy() {
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let (near, far) = (world.context(device, ADVANCED), world.context(device, OTHER));
    let fences: Vec<Handle> = (0..4).map(|_| world.fence(device, 0).object).collect();
    // The chain is the thread, the queue and the first fence. One signal of that fence releases all.
    world.gpu_wait(near, fences[0], 3);
    world.submit(near, &[busy(100)]);
    world.gpu_signal(&[near], fences[1], 1);
    world.gpu_wait(far, fences[1], 1);
    world.gpu_signal(&[far], fences[2], 1);
    let through = world.pending(device, &[(fences[2], 1)], false);
    // Two signals are missing: no single one releases it.
    let both = world.pending(device, &[(fences[3], 1), (fences[3], 2), (fences[0], 9)], false);
    let state = world.kernel.save().unwrap();
    let restored =
        || Kernel::restore(world.kernel.config().clone(), kmd::SimulatedMiniport::default(), &state).ok();
    let cause_of = |event: d3dkmt::EventId| {
        let question = Question { event: Some(event.0), ..Question::default() };
        world.kernel.why_and_what_if(&question, restored).causes.remove(0)
    };
    let release = cause_of(through).release.expect("a signal of the first fence releases it");
    assert_eq!((release.object.handles[0].1, release.value, release.tried), (fences[0], 3, true));
    assert_eq!(cause_of(both).release, None);
    assert_eq!(world.kernel.save().unwrap(), state, "nothing was changed");
    world.signal(device, fences[0], 3);
    world.advance(1_000);
    assert_eq!(world.woken(), [through], "as the report predicted");
    // Without a copy of the kernel the report names none.
    world.signal(device, fences[3], 2);
    let question = Question { event: Some(both.0), ..Question::default() };
    assert_eq!(world.kernel.why_and_what_if(&question, || None).causes[0].release, None);
    world.finish();
}

/// With timeout detection on, the wait for a hung engine ends by itself later: the reset poisons the fence. The report
/// still names the signal, because that one ends the wait at once.
#[test]
fn a_wait_that_timeout_detection_ends_later_has_its_release_too() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, ADVANCED);
    let fence = world.fence(device, 0).object;
    world.submit(context, &[d3dkmt::isa::Packet::Hang]);
    world.gpu_signal(&[context], fence, 7);
    world.pending(device, &[(fence, 7)], false);
    let state = world.kernel.save().unwrap();
    let restored =
        || Kernel::restore(world.kernel.config().clone(), kmd::SimulatedMiniport::default(), &state).ok();
    let why = world.kernel.why_and_what_if(&Question::default(), restored);
    assert!(matches!(why.causes[0].verdict, Verdict::Hang { looked_at: Some(_), .. }), "{why}");
    let release = why.causes[0].release.as_ref().expect("a signal of the fence releases the wait");
    assert_eq!((release.object.handles[0].1, release.value), (fence, 7));
    world.finish();
}

/// Handles one input, and leaves what does not fit its step.
fn step(world: &mut World, input: Input) {
    world.kernel.handle(world.now, input, &mut Effects::default());
    assert!(world.kernel.has_backlog());
}

#[test]
fn waits_whose_wake_up_is_left_to_later_steps_are_progressing() {
    let mut world = World::new();
    let device = world.device();
    let (fence, others_device, others) =
        world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
    world.process = Q;
    for _ in 0..20 {
        world.pending(others_device, &[(others, 10)], false);
    }
    world.kernel.set_work_units_per_step(4, 4);
    let signal = |device, object, value| {
        let (objects, values) = (vec![object].into(), vec![value].into());
        Call::SignalFromCpu { device, objects, values, flags: SignalFlags::ALLOW_FENCE_REWIND }
    };
    let (request, call) = (0, signal(others_device, others, 10));
    step(&mut world, Input::Call { process: Q, request, call });
    let left = only(&world);
    assert_eq!((left.verdict, left.waiters_count), (Verdict::Progressing { due: None }, 16));
    assert!(chain(&left).contains("the kernel's next steps end it"), "{left:?}");
    // A value that is set back has reached them nevertheless.
    let call = signal(device, fence, 0);
    step(&mut world, Input::Call { process: P, request, call });
    assert_eq!(only(&world).verdict, Verdict::Progressing { due: None });
    world.kernel.finish_backlog(&mut Effects::default());
    assert_eq!(why(&world).waiting, 0);
}

#[test]
fn waits_that_later_steps_of_a_reset_end_are_progressing() {
    let mut world = World::new();
    let lost = world.device();
    let (near, far) = (world.context(lost, ADVANCED), world.context(lost, OTHER));
    for _ in 0..20 {
        let fence = world.fence(lost, 0).object;
        world.pending(lost, &[(fence, 10)], false);
    }
    let fence = world.fence(lost, 0).object;
    world.gpu_wait(far, fence, 10);
    world.submit(near, &[d3dkmt::isa::Packet::Hang]);
    world.kernel.set_work_units_per_step(4, 4);
    let mut steps = 0;
    while let Some(due) = world.kernel.next_deadline() {
        world.kernel.handle(due, Input::Deadline, &mut Effects::default());
        steps += u32::from(world.kernel.has_backlog());
        for cause in if world.kernel.has_backlog() { why(&world).causes } else { vec![] } {
            assert!(!cause.verdict.is_stuck(), "step {steps}");
        }
    }
    assert!(steps > 10 && why(&world).waiting == 0);
    world.finish();
}

/// Handles an input, and checks the verdict on the waits of a process after this step and each that is left, while it
/// waits.
fn verdicts_while(world: &mut World, input: Input, process: u32, verdict: &str) {
    step(world, input);
    let (mut steps, question) = (0, Question { process: Some(process), ..Question::default() });
    while world.kernel.has_backlog() && world.kernel.why(&question).waiting > 0 {
        assert_eq!(of(world, process).verdict.name(), verdict, "step {steps}");
        world.kernel.handle(world.now, Input::Deadline, &mut Effects::default());
        steps += 1;
    }
    assert!(steps > 2, "{steps}");
}

#[test]
fn a_wait_that_outlives_its_device_waits_on_while_the_device_is_cleared_away() {
    let verdicts = [(true, true, "waits-for"), (false, true, "dead-end"), (false, false, "progressing")];
    for (is_open, is_shared, verdict) in verdicts {
        let mut world = World::new();
        let device = world.device();
        for _ in 0..40 {
            world.fence(device, 0);
        }
        let flags = SyncObjectFlags::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY;
        let (fence, _, others) = world.shared_fence(device, flags, SyncObjectFlags::empty());
        world.pending(device, &[(fence, 1)], false);
        if is_shared {
            world.ok(share(fence, ShareToken([9; 16])));
        }
        if !is_open {
            acts(&mut world, Q, |world| world.ok(Call::DestroySynchronizationObject { object: others }));
        }
        world.kernel.set_work_units_per_step(4, 4);
        let destroy = Input::Call { process: P, request: 0, call: Call::DestroyDevice { device } };
        verdicts_while(&mut world, destroy, 1, verdict);
        assert_eq!(why(&world).waiting, usize::from(is_shared));
    }
}

#[test]
fn a_signal_of_several_queues_of_which_one_is_being_dropped_comes_no_more() {
    let ends: [fn(Handle, Handle) -> Input; 3] = [
        |_, _| Input::ProcessGone { process: P },
        |device, _| Input::Call { process: P, request: 0, call: Call::DestroyDevice { device } },
        |_, context| Input::Call { process: P, request: 0, call: Call::DestroyContext { context } },
    ];
    for end in ends {
        let mut world = World::with_config(dropping(Default::default()));
        let device = world.device();
        let awaited = world.fence(device, 0).object;
        let (fence, others_device, others) =
            world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
        let contexts = [world.context(device, ADVANCED), world.context(device, OTHER)];
        for value in 1..=40 {
            world.gpu_wait(contexts[0], awaited, value);
        }
        world.gpu_signal(&contexts, fence, 1);
        acts(&mut world, Q, |world| world.pending(others_device, &[(others, 1)], false));
        world.kernel.set_work_units_per_step(4, 4);
        step(&mut world, end(device, contexts[0]));
        let mut steps = 0;
        while world.kernel.has_backlog() {
            let verdict = of(&world, 2).verdict;
            assert!(!matches!(verdict, Verdict::Progressing { .. }), "step {steps}: {verdict:?}");
            world.kernel.handle(world.now, Input::Deadline, &mut Effects::default());
            steps += 1;
        }
        assert!(steps > 2 && of(&world, 2).verdict.name() != "progressing");
    }
}

#[test]
fn a_wait_through_another_device_waits_on_while_the_device_of_its_fence_is_lost() {
    let policy = Policy { faulted_device_poisons: FaultedDevicePoisons::Keeps, ..Policy::default() };
    let mut world = World::with_config(Config { policy, ..Config::default() });
    let (lost, device) = (world.device(), world.device());
    let fence = world.fence(lost, 0).object;
    for _ in 0..40 {
        world.pending(device, &[(fence, 1)], false);
    }
    world.kernel.set_work_units_per_step(4, 4);
    let call = Call::MarkDeviceAsError { device: lost, reason: 0 };
    verdicts_while(&mut world, Input::Call { process: P, request: 0, call }, 1, "waits-for");
    assert_eq!(why(&world).waiting, 40);
}

#[test]
fn mutexes_of_an_owner_that_is_being_cleared_away_are_free_later_unless_the_policy_keeps_them() {
    let rules = [(AbandonedMutex::Freed, "progressing"), (AbandonedMutex::StaysOwned, "dead-end")];
    for ((rule, verdict), goes) in rules.into_iter().flat_map(|rule| [(rule, false), (rule, true)]) {
        let policy = Policy { abandoned_mutex: rule, ..Policy::default() };
        let mut world = World::with_config(dropping(Config { policy, ..Config::default() }));
        let device = world.device();
        let taker = world.context(device, 1);
        let info = SyncObjectInfo {
            object_type: SyncObjectType::MUTEX,
            flags: SyncObjectFlags::SHARED,
            ..SyncObjectInfo::default()
        };
        let mutexes: Vec<_> = (0..40).map(|_| world.object(device, info)).collect();
        let theirs = world.other(2);
        let owner = world.context(theirs, 0);
        for mutex in &mutexes {
            let open = Call::OpenSynchronizationObject { shared_handle: mutex.shared_handle };
            let Reply::SyncObject(opened) = world.ok(open) else { panic!() };
            world.ok(calls::acquire(owner, &[opened.object]));
        }
        world.process = P;
        world.ok(calls::acquire(taker, &[mutexes[39].object]));
        assert!(is_waits_for(&of(&world, 1), 2));
        world.kernel.set_work_units_per_step(4, 4);
        let end = match goes {
            true => Input::ProcessGone { process: Q },
            false => Input::Call { process: Q, request: 0, call: Call::DestroyContext { context: owner } },
        };
        verdicts_while(&mut world, end, 1, verdict);
    }
}

/// Checks reports of random sessions after some steps. A report never panics and changes nothing. Without further inputs,
/// waits reported as progressing end, and waits reported as stuck do not, also if steps have left work.
#[test]
fn in_random_sessions_progressing_waits_end_and_stuck_waits_do_not() {
    let mut counts = std::collections::BTreeMap::new();
    for (seed, steps) in (0..80).flat_map(|seed| (1..=8).map(move |part| (seed, part * 60))) {
        let mut session = Session::in_small_steps(seed, without_timeouts());
        (0..steps).for_each(|_| drop(session.step()));
        let digest = session.kernel.snapshot().digest();
        let all = session.kernel.why(&Question { most: 10_000, ..Question::default() });
        let of_each: Vec<_> = cpu_waits(&session.kernel)
            .into_iter()
            .filter(|(process, _)| !session.kernel.is_ending(ProcessId(*process)))
            .map(|wait| (wait, verdict_of(&session.kernel, wait)))
            .collect();
        assert_eq!((session.kernel.snapshot().digest(), all.left_out), (digest, 0));
        let mut kernel = session.kernel;
        // No more calls; engines run until they are idle.
        for _ in 0..10_000 {
            let Some(due) = kernel.next_deadline() else { break };
            kernel.handle(due, Input::Deadline, &mut Effects::default());
        }
        let remaining = cpu_waits(&kernel);
        let after = kernel.why(&Question { most: 10_000, ..Question::default() });
        // The report does not predict later hangs and losses.
        let spoiled =
            after.causes.iter().any(|cause| matches!(cause.verdict.name(), "hang" | "lost-interrupt"));
        for (wait, name) in of_each {
            *counts.entry(name).or_insert(0) += 1;
            let goes_on = remaining.contains(&wait);
            let as_reported = match name {
                "progressing" => !goes_on || spoiled,
                "cycle" | "dead-end" | "removed" | "hang" | "lost-interrupt" | "suspended" => goes_on,
                _ => true,
            };
            assert!(
                as_reported,
                "{all}---- seed {seed} at step {steps}: {wait:?} was reported as {name}; it ended by itself: {goes_on}\n{all}\n{after}"
            );
        }
    }
    println!("{counts:?}");
    for name in ["progressing", "dead-end", "waits-for"] {
        assert!(counts.get(name).is_some_and(|count| *count > 10), "{name}: {counts:?}");
    }
}

fn cpu_waits(kernel: &Kernel) -> Vec<(u32, u64)> {
    let mut waits = Vec::new();
    kernel.pending_waits(&mut |wait| waits.extend(wait.event.map(|event| (wait.process.0, event.0))));
    waits
}

/// The report on one wait.
fn verdict_of(kernel: &Kernel, (process, event): (u32, u64)) -> &'static str {
    let question = Question { process: Some(process), event: Some(event), ..Question::default() };
    let why = kernel.why(&question);
    assert_eq!((why.causes.len(), why.waiting), (1, 1), "{why}");
    let _ = why.to_string();
    why.causes[0].verdict.name()
}
