//! Cycles of waits.

use super::{NT, Q, R, acts, chain, comes_down_to, fence_with, is_waits_for, only, why};
use crate::allocations::create;
use crate::common::{OK, P, World};
use crate::paging::{map, queue};
use d3dkmt::{
    AcquireOutcome, Call, CreateAllocationFlags, DestroyAllocationFlags, EventId, Handle, KeyedMutexFlags,
    Reply, RuntimeBuffer, SyncObjectInfo, SyncObjectType as T, calls,
};
use dxgkrnl::why::{Verdict, Waiter, WaiterKind};
use dxgkrnl::{Input, ProcessId};

#[test]
fn two_queues_that_wait_for_each_other_are_a_cycle() {
    let mut world = World::new();
    let device = world.device();
    let (one, other) = (world.context(device, 0), world.context(device, 1));
    let (ping, pong) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.gpu_wait(one, pong, 1);
    world.gpu_signal(&[one], ping, 1);
    world.gpu_wait(other, ping, 1);
    world.gpu_signal(&[other], pong, 1);
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("cycle", (1, pong), 0, 1));
    assert_eq!((cause.verdict, cause.waiters_count), (Verdict::Cycle { members: 2, has_process: false }, 2));
    let chain = chain(&cause);
    for (context, fence) in [(one, pong), (other, ping)] {
        assert!(chain.contains(&format!("context {context} of p1 waits")), "{chain}");
        assert!(chain.contains(&format!("fence {fence} of p1 is 0, needs 1")), "{chain}");
    }
    // A signal of the process ends the cycle: nothing waits afterwards.
    world.signal(device, ping, 1);
    assert_eq!(why(&world).waiting, 0);
    world.finish();
}

/// A thread that could signal sleeps in the call that waits for the signal.
#[test]
fn a_thread_in_a_call_waits_for_the_work_that_the_call_waits_for() {
    for is_context in [false, true] {
        let mut world = World::new();
        let device = world.device();
        let (context, fence) = (world.context(device, 0), world.fence(device, 0).object);
        let allocation = create(&mut world, device, CreateAllocationFlags::empty()).2;
        world.gpu_wait(context, fence, 1);
        assert!(chain(&only(&world)).contains("its CPU waits for nothing"));
        let flags = DestroyAllocationFlags::SYNCHRONOUS_DESTROY;
        let allocations = vec![allocation];
        let (call, text) = if is_context {
            let text = format!("its CPU waits in DestroyContext, for the work of context {context}");
            (Call::DestroyContext { context }, text)
        } else {
            let destroy = Call::DestroyAllocation { device, resource: Handle::NULL, allocations, flags };
            (destroy, "its CPU waits in DestroyAllocation with SynchronousDestroy".into())
        };
        let request = world.begin(call);
        let cause = only(&world);
        assert!(matches!(cause.verdict, Verdict::Cycle { has_process: true, .. }), "{:?}", cause.verdict);
        assert_eq!(comes_down_to(&cause), ("cycle", (1, fence), 0, 1));
        assert_eq!(cause.waiters_count, 2, "the queue and the thread");
        assert!(chain(&cause).contains(&text), "{}", chain(&cause));
        let is_call = |waiter: &Waiter| matches!(waiter.kind, WaiterKind::Call { .. });
        assert!(cause.waiters.iter().any(is_call), "{:?}", cause.waiters);
        world.input(Input::Call { process: P, request: 0, call: calls::signal(device, fence, 1) });
        assert_eq!(world.answered(request).map(|answer| answer.0), Some(OK));
        world.finish();
    }
}

#[test]
fn a_process_is_said_to_wait_in_a_call_only_if_that_is_its_one_wait() {
    let mut world = World::new();
    let device = world.device();
    let (context, fence) = (world.context(device, 0), world.fence(device, 0).object);
    world.gpu_wait(context, fence, 1);
    let one_way = Call::DestroyContext { context };
    world.input(Input::Call { process: P, request: 0, call: one_way });
    let cause = only(&world);
    assert!(is_waits_for(&cause, 1) && chain(&cause).contains("its CPU waits for nothing"), "{cause:?}");
    let other = world.fence(device, 0).object;
    world.pending(device, &[(other, 1)], false);
    let texts = why(&world).to_string();
    assert!(texts.contains("its CPU has a wait itself"), "{texts}");
    assert!(!texts.contains("DestroyContext"), "{texts}");
}

#[test]
fn a_thread_that_destroys_a_paging_queue_waits_for_work_under_way() {
    let mut world = World::new();
    let device = world.device();
    let (paging_queue, _) = queue(&mut world, device, 0);
    map(&mut world, paging_queue, 1);
    let pages = world.begin(Call::DestroyPagingQueue { queue: paging_queue });
    let cause = only(&world);
    assert!(matches!(cause.verdict, Verdict::Progressing { due: Some(_) }), "{:?}", cause.verdict);
    let waits = format!("waits in DestroyPagingQueue, for the work of paging queue {paging_queue}");
    assert!(cause.waiters[0].full_line(0).contains(&waits), "{}", cause.waiters[0].full_line(0));
    world.advance(1_000_000);
    assert_eq!(world.answered(pages).map(|answer| answer.0), Some(OK));
    assert_eq!(why(&world).waiting, 0);
    world.finish();
}

#[test]
fn three_processes_that_wait_for_each_other_are_a_cycle() {
    let mut world = World::new();
    let device = world.device();
    let (second, third) = (world.other(2), world.other(3));
    let of = |world: &mut World, one: (ProcessId, Handle), other: (ProcessId, Handle)| {
        acts(world, one.0, |world| fence_with(world, one.1, other))
    };
    let (a, _) = of(&mut world, (P, device), (Q, second));
    let (b, _) = of(&mut world, (Q, second), (R, third));
    let (c, _) = of(&mut world, (R, third), (P, device));
    world.process = P;
    world.pending(device, &[(a, 1)], false);
    acts(&mut world, Q, |world| world.pending(second, &[(b, 2)], false));
    // So far only the third process, which waits for nothing, has to signal.
    let cause = only(&world);
    assert!(is_waits_for(&cause, 3), "{cause:?}");
    assert_eq!(comes_down_to(&cause).1, (2, b));
    acts(&mut world, R, |world| world.pending(third, &[(c, 3)], false));
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("cycle", (1, a), 0, 1));
    assert_eq!((cause.verdict, cause.waiters_count), (Verdict::Cycle { members: 3, has_process: true }, 3));
    let parties = ["p1 \"test\" (host) waits", "p2 \"test\" (host) waits", "p3 \"test\" (host) waits"];
    assert!(parties.iter().all(|party| chain(&cause).contains(party)), "{}", chain(&cause));
    world.finish();
}

fn keyed(world: &mut World) -> (Handle, Handle) {
    let flags = KeyedMutexFlags::empty();
    let call = Call::CreateKeyedMutex { initial_value: 0, private_data: vec![], flags };
    let Reply::KeyedMutex { mutex, shared_handle, .. } = world.ok(call) else { panic!() };
    (mutex, shared_handle)
}

fn open_keyed(world: &mut World, shared_handle: Handle) -> Handle {
    let call = Call::OpenKeyedMutex { shared_handle, buffer: RuntimeBuffer::default() };
    let Reply::KeyedMutex { mutex, .. } = world.ok(call) else { panic!() };
    mutex
}

fn acquire(world: &mut World, mutex: Handle, key: u64, event: u64) -> bool {
    let call = Call::AcquireKeyedMutex { mutex, key, timeout: None, event: EventId(event) };
    match world.call(call).1 {
        Reply::KeyedMutexAcquire { outcome, .. } => matches!(outcome, AcquireOutcome::Acquired { .. }),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_processes_that_take_two_keyed_mutexes_in_opposite_order_are_a_cycle() {
    let mut world = World::new();
    let ((a, shared_a), (b, shared_b)) = (keyed(&mut world), keyed(&mut world));
    world.attach(Q);
    let (qa, qb) = acts(&mut world, Q, |world| (open_keyed(world, shared_a), open_keyed(world, shared_b)));
    assert!(acquire(&mut world, a, 0, 1));
    assert!(acts(&mut world, Q, |world| acquire(world, qb, 0, 1)));
    assert!(!acquire(&mut world, b, 0, 2));
    let cause = only(&world);
    assert!(is_waits_for(&cause, 2), "its owner is free to release it: {cause:?}");
    assert!(!acts(&mut world, Q, |world| acquire(world, qa, 0, 2)));
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("cycle", (1, b), 0, 0));
    assert_eq!(cause.could[0].text, format!("p2 \"test\" (host) owns it by {qb}"));
    assert_eq!(cause.waiters_count, 2);
    world.finish();
}

#[test]
fn a_keyed_mutex_released_with_another_key_waits_for_processes_that_can_release_this_key() {
    let mut world = World::new();
    let (mutex, shared) = keyed(&mut world);
    world.attach(Q);
    let theirs = acts(&mut world, Q, |world| open_keyed(world, shared));
    assert!(!acquire(&mut world, mutex, 7, 1));
    let cause = only(&world);
    assert!(is_waits_for(&cause, 2));
    assert_eq!(comes_down_to(&cause), ("waits-for", (1, mutex), 0, 7));
    assert!(cause.could[0].text.contains(&theirs.to_string()), "{:?}", cause.could);
    world.finish();
}

#[test]
fn a_process_that_waits_for_its_queue_which_waits_for_the_process_is_a_cycle() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let (go, done) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.gpu_wait(context, go, 1);
    world.gpu_signal(&[context], done, 1);
    let cause = only(&world);
    assert!(is_waits_for(&cause, 1), "the process has yet to act: {cause:?}");
    world.pending(device, &[(done, 1)], false);
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause).0, "cycle");
    assert!(chain(&cause).contains(&format!("fence {go} of p1 is 0, needs 1")), "{}", chain(&cause));
    assert!(chain(&cause).contains("a signal to 1 is packet 2 of 2"), "{}", chain(&cause));
    world.finish();
}

#[test]
fn two_contexts_that_take_two_mutexes_in_opposite_order_are_a_cycle() {
    let mut world = World::new();
    let device = world.device();
    let info = SyncObjectInfo { object_type: T::MUTEX, ..SyncObjectInfo::default() };
    let (a, b) = (world.object(device, info).object, world.object(device, info).object);
    let (one, other) = (world.context(device, 0), world.context(device, 1));
    let mut take = |context, mutex| {
        world.ok(calls::acquire(context, &[mutex]));
    };
    take(one, a);
    take(other, b);
    take(one, b);
    take(other, a);
    for (context, mutex) in [(one, a), (other, b)] {
        world.ok(calls::release(context, &[mutex]));
    }
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause).0, "cycle");
    assert_eq!(cause.root.as_ref().unwrap().object.handles[0].1, b);
    assert!(
        chain(&cause).contains(&format!("mutex {b} of p1 is owned by {other} of p1")),
        "{}",
        chain(&cause)
    );
    world.finish();
}

#[test]
fn a_queue_whose_own_signal_stands_behind_its_wait_is_a_cycle_of_one() {
    let mut world = World::new();
    let device = world.device();
    let (context, fence) = (world.context(device, 0), world.fence(device, 0).object);
    world.gpu_wait(context, fence, 1);
    world.gpu_signal(&[context], fence, 1);
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("cycle", (1, fence), 0, 1));
    assert_eq!(cause.verdict, Verdict::Cycle { members: 1, has_process: false });
    world.finish();
}

#[test]
fn a_queue_that_waits_for_a_value_and_then_signals_the_next_is_no_cycle() {
    let mut world = World::with_config(dxgkrnl::Config {
        grants: vec![dxgkrnl::Grant { name: "frame".into(), vms: vec!["vm-1".into(), "vm-2".into()] }],
        ..Default::default()
    });
    world.guest(1, Q);
    let near = world.device();
    let context = world.context(near, 0);
    let frame = world.fence_with(near, 0, NT).object;
    let (far, theirs) = super::dead::through_a_grant(&mut world, frame, 2, R);
    // A timeline across VMs: the guest's process signals 5, its queue 6, and the other VM waits for 6.
    world.process = Q;
    world.gpu_wait(context, frame, 5);
    world.process = R;
    world.pending(far, &[(theirs, 6)], false);
    world.process = Q;
    world.gpu_signal(&[context], frame, 6);
    let why = why(&world);
    assert_eq!(why.causes.len(), 1, "{why}");
    let text = why.to_string();
    assert!(text.contains("p3 \"guest\" (vm2) waits on its CPU"), "{text}");
    assert!(is_waits_for(&why.causes[0], 2), "{text}");
    assert_eq!(why.causes[0].waiters_count, 2);
    world.process = Q;
    world.signal(near, frame, 5);
    assert_eq!(world.kernel.why(&Default::default()).waiting, 0);
    world.finish();
}

#[test]
fn a_keyed_mutex_of_the_waiters_own_process_may_be_released_by_another_thread() {
    let mut world = World::new();
    let (mutex, _) = keyed(&mut world);
    assert!(acquire(&mut world, mutex, 0, 1));
    assert!(!acquire(&mut world, mutex, 7, 2));
    let cause = only(&world);
    assert_eq!(cause.verdict, Verdict::Cycle { members: 1, has_process: true });
    let sentence = cause.verdict.sentence(world.now).to_string();
    assert!(sentence.ends_with("waits for itself, unless another thread acts"), "{sentence}");
    world.finish();
}
