//! Waits, wakes, and their order with a barrier.

use d3dkmt::{Handle, NtStatus, Reply, SyncObjectFlags, calls};
use e2e::embedded::{Embedded, lock_exclusive};
use e2e::guests::guests_can_run;
use e2e::programs::{artifacts, gpupv};
use proto::scenario_client::{Outcome, Report, Task};

use crate::process::{ScenarioClient, plain, wait};

const NO_FLAGS: SyncObjectFlags = SyncObjectFlags::empty();

fn succeeded(report: &Report) {
    assert_eq!((report.status, &report.outcome), (NtStatus::SUCCESS, &Outcome::Reply(Reply::None)));
}

#[test]
fn a_thread_waits_while_another_signals() {
    let daemon = Embedded::start();
    let mut scenario_client = ScenarioClient::start(&daemon);
    wait_and_signal(&mut scenario_client, || {
        assert_eq!(
            daemon.kernel_host().views().snapshot().waits.len(),
            1,
            "the host has registered the wait"
        );
    });
    scenario_client.end();
    daemon.end();
}

fn wait_and_signal(scenario_client: &mut ScenarioClient, inspect_wait: impl Fn()) {
    let device = scenario_client.open_device();
    let fence = scenario_client.create_fence(device, NO_FLAGS).object;
    for value in 1..=50 {
        let waiting = scenario_client.send_order(1, plain(wait(device, fence, value)));
        scenario_client.must(Task::Barrier);
        assert!(!scenario_client.has_reported(waiting), "the wait for {value} ended too early");
        inspect_wait();
        scenario_client.call_ok(calls::signal(device, fence, value));
        scenario_client.must(Task::Barrier);
        assert!(scenario_client.has_reported(waiting), "the wait for {value} had not ended at the barrier");
        succeeded(&scenario_client.report(waiting));
        assert_eq!(scenario_client.value(Task::ReadValue(fence)), value);
    }
}

#[test]
fn a_thread_waits_while_another_signals_in_a_guest() {
    // The check of guests' requirements also opens files.
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let with = format!("{}:/scenario-client", artifacts().scenario_client.display());
    let mut scenario_client =
        ScenarioClient::spawn(gpupv(&["vm", "run", "--with", &with, "--", "/scenario-client"]));
    wait_and_signal(&mut scenario_client, || ());
    scenario_client.send_order(1, plain(d3dkmt::Call::EnumAdapters { capacity: 4 }));
    scenario_client.must(Task::Barrier);
    let (code, words) = scenario_client.end();
    assert_eq!(code, Some(0), "{words}");
}

#[test]
fn an_event_wait_sets_its_event_once() {
    let daemon = Embedded::start();
    let mut scenario_client = ScenarioClient::start(&daemon);
    let device = scenario_client.open_device();
    let fence = scenario_client.create_fence(device, NO_FLAGS).object;
    scenario_client.must(Task::NewEvent(3));
    for value in 1..=50 {
        assert_eq!(
            scenario_client.call_with(wait(device, fence, value), Some(3)),
            (NtStatus::SUCCESS, Reply::None)
        );
        scenario_client.must(Task::Barrier);
        assert_eq!(scenario_client.value(Task::TakeEvent(3)), 0);
        scenario_client.call_ok(calls::signal(device, fence, value));
        scenario_client.must(Task::Barrier);
        assert_eq!(scenario_client.value(Task::TakeEvent(3)), 1);
    }
    // Already reached: the event is set during the call, without a message.
    let sent = scenario_client.value(Task::MessagesSent);
    assert_eq!(scenario_client.call_with(wait(device, fence, 1), Some(3)).0, NtStatus::SUCCESS);
    assert_eq!(scenario_client.value(Task::TakeEvent(3)), 1);
    scenario_client.must(Task::Barrier);
    assert_eq!(scenario_client.value(Task::MessagesSent), sent, "a barrier sends no message");
    // The library keeps its own descriptor, so the scenario client may close the event during the wait.
    assert_eq!(scenario_client.call_with(wait(device, fence, 99), Some(3)).0, NtStatus::SUCCESS);
    scenario_client.must(Task::CloseEvent(3));
    scenario_client.call_ok(calls::signal(device, fence, 99));
    for task in [Task::TakeEvent(3), Task::AwaitEvent(3), Task::CloseEvent(3)] {
        assert_eq!(scenario_client.ask(0, task), (NtStatus::INVALID_HANDLE, Outcome::Nothing));
    }
    // An invalid event.
    assert_eq!(scenario_client.call_with(wait(device, fence, 100), Some(3)).0, NtStatus::INVALID_PARAMETER);
    scenario_client.end();
    daemon.end();
}

#[test]
fn a_barrier_follows_wakes_caused_by_another_process() {
    let daemon = Embedded::start();
    let [mut waiter, mut signaller] = [ScenarioClient::start(&daemon), ScenarioClient::start(&daemon)];
    let devices = [waiter.open_device(), signaller.open_device()];
    let (fence, opened) = crate::sharing::shared_fence(&daemon, &mut waiter, &mut signaller, devices);
    waiter.must(Task::NewEvent(1));
    for value in 1..=50 {
        let waits = wait(devices[0], fence, value);
        let blocked: Vec<_> = (1..4).map(|thread| waiter.send_order(thread, plain(waits.clone()))).collect();
        assert_eq!(waiter.call_with(waits, Some(1)).0, NtStatus::SUCCESS);
        waiter.must(Task::Barrier);
        assert!(!blocked.iter().any(|tag| waiter.has_reported(*tag)));
        signaller.call_ok(calls::signal(devices[1], opened, value));
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
    let mut scenario_client = ScenarioClient::start(&daemon);
    let started = scenario_client.send_order(5, Task::StartThread);
    scenario_client.must(Task::Barrier);
    assert!(scenario_client.has_reported(started));
    assert_eq!(scenario_client.value(Task::MessagesSent), 0);
    assert!(daemon.kernel_host().sessions().clients().is_empty());
    // The first call of another thread attaches; the barrier comes after it.
    let first = scenario_client.send_order(5, plain(d3dkmt::Call::EnumAdapters { capacity: 4 }));
    scenario_client.must(Task::Barrier);
    assert!(scenario_client.has_reported(first));
    assert_eq!(scenario_client.value(Task::MessagesSent), 1);
    scenario_client.end();
    daemon.end();
}

#[test]
fn a_thousand_orders_are_pipelined() {
    const ORDERS: u64 = 1000;
    let daemon = Embedded::start();
    let mut scenario_client = ScenarioClient::start(&daemon);
    let device = scenario_client.open_device();
    let fence = scenario_client.create_fence(device, NO_FLAGS).object;
    let before = scenario_client.value(Task::MessagesSent);
    let mut bytes = Vec::new();
    let mut tags = Vec::new();
    let task = |value, object: Handle| plain(calls::signal(device, object, value));
    for value in 1..=ORDERS {
        tags.push(scenario_client.order((value % 4) as u32, task(value, fence), &mut bytes));
    }
    scenario_client.write(&bytes);
    let barrier = scenario_client.send_order(9, Task::Barrier);
    scenario_client.report(barrier);
    for tag in tags {
        assert!(scenario_client.has_reported(tag), "a barrier comes after every order before it");
        // Four threads: a wait's value may be passed before the wait is executed.
        scenario_client.report(tag);
    }
    assert_eq!(scenario_client.value(Task::MessagesSent), before + ORDERS);
    assert_eq!(scenario_client.value(Task::ReadValue(fence)), ORDERS);
    scenario_client.end();
    daemon.end();
}
