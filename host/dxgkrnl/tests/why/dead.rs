//! Dead ends: the signaler has ended, or never could signal.

use super::{
    NT, Q, R, acts, comes_down_to, could, fence_with, is_waits_for, only, open_in, past_signalers, why,
};
use crate::common::{P, World};
use d3dkmt::{
    Call, Handle, ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType as T, access,
    calls, limits,
};
use dxgkrnl::policy::AbandonedMutex;
use dxgkrnl::{AdapterConfig, Config, Fault, Grant, Input, Policy, ProcessId, VmId};

/// Opens the calling process's fence "frame" in another VM; returns the other process's device and handle.
pub(super) fn through_a_grant(
    world: &mut World,
    frame: Handle,
    vm: u32,
    other: ProcessId,
) -> (Handle, Handle) {
    world.ok(calls::share(frame, ShareToken([1; 16]), Some("frame")));
    world.guest(vm, other);
    let device = world.device();
    let (name, token) = ("frame".to_owned(), ShareToken([2; 16]));
    let desired_access = access::SYNC_OBJECT_ALL_ACCESS;
    world.ok(Call::OpenNtHandleFromName { name, desired_access, token, sync_object: true });
    (device, world.open(device, token).object)
}

#[test]
fn a_killed_signaler_is_named() {
    let mut world = World::new();
    let device = world.device();
    let other = world.other(2);
    world.process = P;
    let (fence, theirs) = fence_with(&mut world, device, (Q, other));
    world.now = 5_000_000;
    world.pending(device, &[(fence, 7)], false);
    let cause = only(&world);
    assert!(is_waits_for(&cause, 2));
    assert_eq!((comes_down_to(&cause), could(&cause)), (("waits-for", (1, fence), 0, 7), vec![1, 2]));
    world.now = 8_000_000;
    world.end_process(Q);
    world.now = 20_000_000;
    world.input(Input::Deadline);
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("dead-end", (1, fence), 0, 7));
    let text = format!("had it open as {theirs}, with the right to signal: the process ended");
    assert_eq!((past_signalers(&cause), cause.gone[0].at), (vec![(2, text.as_str())], 8_000_000));
    let report = why(&world).to_string();
    assert!(report.contains("gone: 12.0 ms ago p2 \"test\" (host) had it open"), "{report}");
    assert!(report.contains("event 1, for 15.0 ms"), "{report}");
    world.finish();
}

#[test]
fn a_process_that_closed_its_handle_is_not_a_missing_signaler() {
    let mut world = World::new();
    let device = world.device();
    let other = world.other(2);
    world.process = P;
    let (fence, theirs) = fence_with(&mut world, device, (Q, other));
    acts(&mut world, Q, |world| world.ok(Call::DestroySynchronizationObject { object: theirs }));
    world.pending(device, &[(fence, 7)], false);
    let cause = only(&world);
    assert!(is_waits_for(&cause, 1), "another thread may signal: {cause:?}");
    assert_eq!(past_signalers(&cause).len(), 1, "the closed handle is reported nevertheless");
    world.finish();
}

#[test]
fn a_vm_that_was_killed_is_named() {
    let mut world = World::with_config(Config {
        grants: vec![Grant { name: "frame".into(), vms: vec!["vm-1".into(), "vm-2".into()] }],
        ..Config::default()
    });
    world.guest(1, Q);
    let near = world.device();
    let frame = world.fence_with(near, 0, NT).object;
    through_a_grant(&mut world, frame, 2, R);
    world.process = Q;
    let context = world.context(near, 0);
    world.gpu_wait(context, frame, 3);
    world.input(Input::VmDetached { vm: VmId(2) });
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("dead-end", (2, frame), 0, 3));
    assert_eq!(cause.gone.len(), 1);
    assert_eq!((cause.gone[0].party.vm_name.as_str(), cause.gone[0].party.vm), ("vm-2", 2));
    assert!(cause.gone[0].text.ends_with("its VM ended"));
    assert_eq!(cause.root.unwrap().object.name.as_deref(), Some("frame"));
    world.finish();
}

#[test]
fn a_destroyed_device_is_named_for_the_opens_it_closed() {
    let mut world = World::new();
    let device = world.device();
    let other = world.other(2);
    world.process = P;
    let (fence, theirs) = fence_with(&mut world, device, (Q, other));
    world.pending(device, &[(fence, 1)], false);
    acts(&mut world, Q, |world| world.ok(Call::DestroyDevice { device: other }));
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("dead-end", (1, fence), 0, 1));
    let text = format!("had it open as {theirs}, with the right to signal: its device was destroyed");
    assert_eq!(past_signalers(&cause), [(2, text.as_str())]);
    world.finish();
}

#[test]
fn a_destroyed_queue_with_a_queued_signal_is_named() {
    let mut world = World::with_config(crate::common::dropping(Config::default()));
    let device = world.device();
    let context = world.context(device, 0);
    let (go, done) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.gpu_wait(context, go, 1);
    world.gpu_signal(&[context], done, 4);
    world.pending(device, &[(done, 4)], false);
    world.ok(Call::DestroyContext { context });
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("dead-end", (1, done), 0, 4));
    let text = format!("had a signal to 4 in queue {context}, and the queue was emptied: it was destroyed");
    assert_eq!(past_signalers(&cause), [(1, text.as_str())]);
    // The dropped signal would not have satisfied a wait for a higher value.
    world.ok(Call::CancelWait { event: d3dkmt::EventId(1) });
    world.pending(device, &[(done, 5)], false);
    assert!(is_waits_for(&only(&world), 1));
    world.finish();
}

#[test]
fn signals_below_the_needed_value_are_reported() {
    let mut world = World::new();
    let device = world.device();
    let (context, go) = (world.context(device, 0), world.fence(device, 0).object);
    let other = world.other(2);
    world.process = P;
    let (fence, _) = fence_with(&mut world, device, (Q, other));
    world.gpu_wait(context, go, 1);
    for value in [4, 5] {
        world.gpu_signal(&[context], fence, value);
    }
    world.pending(device, &[(fence, 6)], false);
    let question = dxgkrnl::why::Question { event: Some(1), ..Default::default() };
    let cause = world.kernel.why(&question).causes.remove(0);
    assert_eq!(comes_down_to(&cause), ("waits-for", (1, fence), 0, 6));
    let low: Vec<&str> = cause.too_low.iter().map(|source| source.text.as_str()).collect();
    assert!(low[0].ends_with(&format!("is packet 3 of 3 in context {context} of p1: up to 5")), "{low:?}");
    assert_eq!(low.len(), 2);
    world.finish();
}

#[test]
fn a_rewound_fence_names_the_process_that_rewound_it() {
    let mut world = World::new();
    let device = world.device();
    let other = world.other(2);
    world.process = P;
    let (fence, theirs) = fence_with(&mut world, device, (Q, other));
    world.signal(device, fence, 9);
    acts(&mut world, Q, |world| {
        world.signal_flags(other, theirs, 3, SignalFlags::ALLOW_FENCE_REWIND);
    });
    world.pending(device, &[(fence, 7)], false);
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("waits-for", (1, fence), 3, 7));
    assert_eq!(past_signalers(&cause), [(2, "set it back from 9 to 3")]);
    world.finish();
}

#[test]
fn the_one_missing_fence_of_64_is_named() {
    let mut world = World::new();
    let device = world.device();
    let mut fences: Vec<Handle> = (0..32).map(|_| world.fence(device, 4).object).collect();
    fences.extend((0..24).map(|_| world.fence(device, 5).object));
    let context = world.context(device, 0);
    let (first, second) = fences.split_at(32);
    world.ok(Call::WaitFromGpu { context, objects: first.into(), values: vec![5; 32].into() });
    world.ok(Call::WaitFromGpu { context, objects: second.into(), values: vec![5; 24].into() });
    for (at, fence) in first.iter().enumerate() {
        if at != 17 {
            world.signal(device, *fence, 5);
        }
    }
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause), ("waits-for", (1, first[17]), 4, 5));
    let waiter = &cause.waiters[0];
    assert_eq!((waiter.reached, waiter.of, waiter.missing.len(), waiter.any), (31, 32, 1, false));
    let event = world.pending(device, &[(first[17], 5), (first[17], 6)], true);
    let why = why(&world);
    let text = why.to_string();
    assert!(text.contains(&format!("event {}, for any of 2 objects (0 reached)", event.0)), "{text}");
    world.finish();
}

#[test]
fn only_the_paging_queue_writes_its_fence() {
    let mut world = World::new();
    let device = world.device();
    let (paging_queue, fence) = crate::paging::queue(&mut world, device, 0);
    let (_, value) = crate::paging::map(&mut world, paging_queue, 1);
    world.pending(device, &[(fence.object, value)], false);
    let cause = only(&world);
    assert_eq!(cause.verdict.name(), "progressing", "the paging buffer is under way");
    let context = world.context(device, 0);
    world.gpu_wait(context, fence.object, value + 7);
    let causes = why(&world).causes;
    let dead = causes.iter().find(|cause| cause.verdict.name() == "dead-end").unwrap();
    assert_eq!(comes_down_to(dead), ("dead-end", (1, fence.object), 0, value + 7));
    assert_eq!((could(dead), dead.too_low.len()), (vec![], 1));
    world.finish();
}

#[test]
fn a_mutex_kept_by_an_ended_owner_can_never_be_acquired() {
    let policy = Policy { abandoned_mutex: AbandonedMutex::StaysOwned, ..Policy::default() };
    let mut world = World::with_config(crate::common::dropping(Config { policy, ..Config::default() }));
    let device = world.device();
    let info = SyncObjectInfo { object_type: T::MUTEX, ..SyncObjectInfo::default() };
    let mutex = world.object(device, info).object;
    let (owner, taker) = (world.context(device, 0), world.context(device, 1));
    for context in [owner, taker] {
        world.ok(calls::acquire(context, &[mutex]));
    }
    let cause = only(&world);
    assert!(is_waits_for(&cause, 1), "its owner may release it: {cause:?}");
    assert!(cause.could[0].text.contains(&owner.to_string()));
    world.ok(Call::DestroyContext { context: owner });
    let cause = only(&world);
    assert_eq!(comes_down_to(&cause).0, "dead-end");
    assert_eq!(could(&cause), [] as [u32; 0]);
    assert!(past_signalers(&cause)[0].1.contains(&format!("owned it by {owner}")), "{:?}", cause.gone);
    world.finish();
}

#[test]
fn a_process_whose_end_takes_several_steps_signals_no_more() {
    let mut world = World::new();
    let device = world.device();
    let other = world.other(2);
    world.process = P;
    let (fence, _) = fence_with(&mut world, device, (Q, other));
    acts(&mut world, Q, |world| {
        for _ in 0..40 {
            world.fence(other, 0);
        }
    });
    world.pending(device, &[(fence, 1)], false);
    assert!(is_waits_for(&only(&world), 2));
    world.kernel.set_work_units_per_step(4, 4);
    let (now, effects) = (world.now, &mut dxgkrnl::Effects::default());
    world.kernel.handle(now, Input::ProcessGone { process: Q }, effects);
    assert!(world.kernel.is_ending(Q));
    assert_eq!(only(&world).verdict.name(), "dead-end");
    while world.kernel.has_backlog() {
        world.kernel.handle(now, Input::Deadline, effects);
    }
    assert_eq!(only(&world).verdict.name(), "dead-end");
}

#[test]
fn a_semaphore_at_zero_waits_for_its_processes() {
    let mut world = World::new();
    let device = world.device();
    let info = SyncObjectInfo { object_type: T::SEMAPHORE, max_count: 2, ..SyncObjectInfo::default() };
    let semaphore = world.object(device, info).object;
    let context = world.context(device, 0);
    world.ok(calls::acquire(context, &[semaphore]));
    let cause = only(&world);
    assert!(is_waits_for(&cause, 1));
    assert_eq!(comes_down_to(&cause), ("waits-for", (1, semaphore), 0, 1));
    world.finish();
}

#[test]
fn frozen_signalers_and_frozen_waiters_are_reported() {
    let mut world = World::new();
    let device = world.device();
    let other = world.other(2);
    world.process = P;
    let (fence, theirs) = fence_with(&mut world, device, (Q, other));
    world.pending(device, &[(fence, 1)], false);
    world.input(Input::ProcessFrozen { process: Q, frozen: true });
    let cause = only(&world);
    assert_eq!(cause.verdict, dxgkrnl::why::Verdict::Frozen { process: 2 });
    assert_eq!(comes_down_to(&cause).1, (1, fence));
    world.input(Input::ProcessFrozen { process: Q, frozen: false });
    world.input(Input::ProcessFrozen { process: P, frozen: true });
    acts(&mut world, Q, |world| world.signal(other, theirs, 1));
    let cause = only(&world);
    assert_eq!(cause.verdict, dxgkrnl::why::Verdict::Frozen { process: 1 });
    assert!(why(&world).to_string().contains("p1 \"test\" (host) has 1 pending wake-ups"));
    world.finish();
}

#[test]
fn a_stopped_adapter_is_named_for_a_wait_on_another_adapter() {
    let second = AdapterConfig { luid: d3dkmt::Luid { low: 2, high: 0 }, ..AdapterConfig::default() };
    let adapters = vec![AdapterConfig::default(), second.clone()];
    let mut world = World::with_config(Config { adapters, ..Config::default() });
    let far = world.device_on(second.luid);
    world.process = Q;
    world.attach(Q);
    let theirs = world.device_on(AdapterConfig::default().luid);
    world.process = P;
    let fence_on_first = world.fence_with(far, 0, NT | SyncObjectFlags::CROSS_ADAPTER).object;
    open_in(&mut world, fence_on_first, (Q, theirs));
    world.process = P;
    world.pending(far, &[(fence_on_first, 1)], false);
    assert!(is_waits_for(&only(&world), 2));
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    let cause = only(&world);
    assert_eq!(cause.verdict, dxgkrnl::why::Verdict::Removed { adapter: 0 });
    assert_eq!(comes_down_to(&cause), ("removed", (1, fence_on_first), 0, 1));
    world.finish();
}

#[test]
fn remembered_ends_of_handles_are_limited() {
    let mut world = World::new();
    let device = world.device();
    let other = world.other(2);
    world.process = P;
    let (first, theirs) = fence_with(&mut world, device, (Q, other));
    let (fence, _) = fence_with(&mut world, device, (Q, other));
    world.pending(device, &[(first, 1)], false);
    acts(&mut world, Q, |world| world.ok(Call::DestroySynchronizationObject { object: theirs }));
    assert_eq!(past_signalers(&only(&world)).len(), 1);
    for at in 0..limits::REMEMBERED_ENDS_MAX as u64 {
        assert_eq!(past_signalers(&only(&world)).len(), 1, "after {at}");
        world.signal(device, fence, at + 2);
        world.signal_flags(device, fence, at + 1, SignalFlags::ALLOW_FENCE_REWIND);
    }
    assert_eq!(past_signalers(&only(&world)).len(), 0, "the oldest is forgotten");
    world.finish();
}
