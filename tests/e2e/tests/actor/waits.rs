//! Waits, wakes, and what a barrier says about them.

use d3dkmt::{Handle, NtStatus, Reply, SyncObjectFlags};
use e2e::embedded::{Embedded, alone};
use e2e::guests::guests_can_run;
use e2e::programs::{artifacts, gpupv};
use proto::actor::{Outcome, Report, Task};

use crate::process::{Actor, plain, signal, wait};

const NO_FLAGS: SyncObjectFlags = SyncObjectFlags::empty();

fn succeeded(report: &Report) {
    assert_eq!((report.status, &report.outcome), (NtStatus::SUCCESS, &Outcome::Reply(Reply::None)));
}

#[test]
fn a_thread_waits_while_another_signals() {
    let daemon = Embedded::start();
    let mut actor = Actor::start(&daemon);
    wait_and_signal(&mut actor, || {
        assert_eq!(daemon.seat().views().snapshot().waits.len(), 1, "the host has the wait");
    });
    actor.end();
    daemon.end();
}

fn wait_and_signal(actor: &mut Actor, look_at_wait: impl Fn()) {
    let device = actor.open_device();
    let fence = actor.create_fence(device, NO_FLAGS).object;
    for value in 1..=50 {
        let waiting = actor.tell(1, plain(wait(device, fence, value)));
        actor.must(Task::Barrier);
        assert!(!actor.has_reported(waiting), "the wait for {value} is over too early");
        look_at_wait();
        actor.given(signal(device, fence, value));
        actor.must(Task::Barrier);
        assert!(actor.has_reported(waiting), "the wait for {value} was over before the barrier");
        succeeded(&actor.report(waiting));
        assert_eq!(actor.value(Task::ReadValue(fence)), value);
    }
}

#[test]
fn in_a_guest_it_is_the_same() {
    // Looking for what guests need opens files as well.
    let _alone = alone();
    if !guests_can_run() {
        return;
    }
    let with = format!("{}:/scenario-actor", artifacts().actor.display());
    let mut actor = Actor::spawn(gpupv(&["vm", "run", "--with", &with, "--", "/scenario-actor"]));
    wait_and_signal(&mut actor, || ());
    actor.tell(1, plain(d3dkmt::Call::EnumAdapters { capacity: 4 }));
    actor.must(Task::Barrier);
    let (code, words) = actor.end();
    assert_eq!(code, Some(0), "{words}");
}

#[test]
fn an_event_wait_sets_its_event_once() {
    let daemon = Embedded::start();
    let mut actor = Actor::start(&daemon);
    let device = actor.open_device();
    let fence = actor.create_fence(device, NO_FLAGS).object;
    actor.must(Task::NewEvent(3));
    for value in 1..=50 {
        assert_eq!(actor.call_with(wait(device, fence, value), Some(3)), (NtStatus::SUCCESS, Reply::None));
        actor.must(Task::Barrier);
        assert_eq!(actor.value(Task::TakeEvent(3)), 0);
        actor.given(signal(device, fence, value));
        actor.must(Task::Barrier);
        assert_eq!(actor.value(Task::TakeEvent(3)), 1);
    }
    // Reached already: set during the call, and no message is sent.
    let sent = actor.value(Task::MessagesSent);
    assert_eq!(actor.call_with(wait(device, fence, 1), Some(3)).0, NtStatus::SUCCESS);
    assert_eq!(actor.value(Task::TakeEvent(3)), 1);
    actor.must(Task::Barrier);
    assert_eq!(actor.value(Task::MessagesSent), sent, "a barrier is not counted");
    // The library keeps its own: the actor's number may go while the wait is pending.
    assert_eq!(actor.call_with(wait(device, fence, 99), Some(3)).0, NtStatus::SUCCESS);
    actor.must(Task::CloseEvent(3));
    actor.given(signal(device, fence, 99));
    for task in [Task::TakeEvent(3), Task::AwaitEvent(3), Task::CloseEvent(3)] {
        assert_eq!(actor.ask(0, task), (NtStatus::INVALID_HANDLE, Outcome::Nothing));
    }
    // An event that is none.
    assert_eq!(actor.call_with(wait(device, fence, 100), Some(3)).0, NtStatus::INVALID_PARAMETER);
    actor.end();
    daemon.end();
}

#[test]
fn a_barrier_comes_after_what_another_process_caused() {
    let daemon = Embedded::start();
    let [mut waiter, mut signaller] = [Actor::start(&daemon), Actor::start(&daemon)];
    let devices = [waiter.open_device(), signaller.open_device()];
    let (fence, opened) = crate::sharing::shared_fence(&daemon, &mut waiter, &mut signaller, devices);
    waiter.must(Task::NewEvent(1));
    for value in 1..=50 {
        let waits = wait(devices[0], fence, value);
        let blocked: Vec<_> = (1..4).map(|thread| waiter.tell(thread, plain(waits.clone()))).collect();
        assert_eq!(waiter.call_with(waits, Some(1)).0, NtStatus::SUCCESS);
        waiter.must(Task::Barrier);
        assert!(!blocked.iter().any(|tag| waiter.has_reported(*tag)));
        signaller.given(signal(devices[1], opened, value));
        waiter.must(Task::Barrier);
        for tag in blocked {
            assert!(waiter.has_reported(tag), "woken before the barrier and reported after it");
            succeeded(&waiter.report(tag));
        }
        assert_eq!(waiter.value(Task::TakeEvent(1)), 1);
        assert_eq!(waiter.value(Task::ReadValue(fence)), value);
    }
    drop([waiter, signaller]);
    daemon.end();
}

#[test]
fn a_barrier_starts_no_session() {
    let daemon = Embedded::start();
    let mut actor = Actor::start(&daemon);
    let started = actor.tell(5, Task::StartThread);
    actor.must(Task::Barrier);
    assert!(actor.has_reported(started));
    assert_eq!(actor.value(Task::MessagesSent), 0);
    assert!(daemon.seat().sessions().guests().is_empty());
    // The first call of another thread attaches; the barrier comes after it.
    let first = actor.tell(5, plain(d3dkmt::Call::EnumAdapters { capacity: 4 }));
    actor.must(Task::Barrier);
    assert!(actor.has_reported(first));
    assert_eq!(actor.value(Task::MessagesSent), 1);
    actor.end();
    daemon.end();
}

#[test]
fn a_thousand_orders_need_no_waiting() {
    const ORDERS: u64 = 1000;
    let daemon = Embedded::start();
    let mut actor = Actor::start(&daemon);
    let device = actor.open_device();
    let fence = actor.create_fence(device, NO_FLAGS).object;
    let before = actor.value(Task::MessagesSent);
    let mut bytes = Vec::new();
    let mut tags = Vec::new();
    let task = |value, object: Handle| plain(signal(device, object, value));
    for value in 1..=ORDERS {
        tags.push(actor.order((value % 4) as u32, task(value, fence), &mut bytes));
    }
    actor.write(&bytes);
    let barrier = actor.tell(9, Task::Barrier);
    actor.report(barrier);
    for tag in tags {
        assert!(actor.has_reported(tag), "a barrier comes after every order before it");
        // Four threads: a value may be passed before its turn comes.
        actor.report(tag);
    }
    assert_eq!(actor.value(Task::MessagesSent), before + ORDERS);
    assert_eq!(actor.value(Task::ReadValue(fence)), ORDERS);
    actor.end();
    daemon.end();
}
