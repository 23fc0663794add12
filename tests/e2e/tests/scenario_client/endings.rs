//! Ends of a scenario client, and its cost.

use std::time::Instant;

use d3dkmt::{Call, NtStatus, Reply, SyncObjectFlags, calls};
use e2e::embedded::{Embedded, lock_exclusive};
use e2e::polling::until;
use e2e::served::Served;
use proto::scenario_client::Task;

use crate::process::{ScenarioClient, plain, wait};

/// A scenario client with a thread in a wait that nothing will end.
fn blocked(daemon: &Embedded) -> ScenarioClient {
    let mut scenario_client = ScenarioClient::start(daemon);
    let device = scenario_client.open_device();
    let fence = scenario_client.create_fence(device, SyncObjectFlags::empty()).object;
    scenario_client.send_order(1, plain(wait(device, fence, 1)));
    scenario_client.must(Task::Barrier);
    assert_eq!(daemon.kernel_host().views().snapshot().waits.len(), 1);
    scenario_client
}

#[test]
fn end_of_input_ends_the_client_during_a_wait() {
    let daemon = Embedded::start();
    assert_eq!(blocked(&daemon).end(), (Some(0), String::new()));
    daemon.end();
}

#[test]
fn a_client_killed_during_a_wait_leaks_nothing() {
    let daemon = Embedded::start();
    blocked(&daemon).kill();
    daemon.end();
}

#[test]
fn invalid_input_ends_the_client_with_a_reason() {
    let daemon = Embedded::start();
    let cases: [(&[u8], &str); 4] = [
        (&[0xFF; 20], "no order: frame length is not a varint"),
        (&[0x80, 0x80, 0x80, 0x01], "over the limit"),
        (&[0x02, 0x08, 0x01], "no order: Order has no body"),
        (&[0x03, 0x08, 0xFF, 0xFF], "no order: frame is not a message"),
    ];
    for (bytes, expected) in cases {
        let mut scenario_client = ScenarioClient::start(&daemon);
        scenario_client.write(bytes);
        let (code, words) = scenario_client.wait_for_end();
        assert_eq!(code, Some(2), "{words}");
        assert!(words.contains(expected), "{words}");
    }
    let mut scenario_client = ScenarioClient::start(&daemon);
    scenario_client.write(&[0x20, 0x08]);
    let (code, words) = scenario_client.end();
    assert_eq!((code, words.contains("ended inside an order")), (Some(2), true), "{words}");
    daemon.end();
}

#[test]
fn every_wait_ends_when_the_daemon_dies() {
    let _alone = lock_exclusive();
    let daemon = Served::start(&[]);
    let mut scenario_client = ScenarioClient::start_at(&daemon.broker());
    let device = scenario_client.open_device();
    let fence = scenario_client.create_fence(device, SyncObjectFlags::empty()).object;
    let blocked = scenario_client.send_order(1, plain(wait(device, fence, 1)));
    scenario_client.must(Task::NewEvent(1));
    assert_eq!(scenario_client.call_with(wait(device, fence, 2), Some(1)).0, NtStatus::SUCCESS);
    scenario_client.must(Task::Barrier);
    assert!(!scenario_client.has_reported(blocked));
    drop(daemon);
    assert_eq!(scenario_client.report(blocked).status, NtStatus::DEVICE_REMOVED);
    scenario_client.must(Task::Barrier);
    assert_eq!(scenario_client.value(Task::TakeEvent(1)), 1);
    let (status, reply) = scenario_client.call(Call::EnumAdapters { capacity: 4 });
    assert_eq!((status, reply), (NtStatus::DEVICE_REMOVED, Reply::None));
    assert_eq!(scenario_client.end().0, Some(0));
}

/// `cargo test --release -p e2e --test scenario client -- --ignored --nocapture figures`
#[test]
#[ignore = "prints what scenario clients cost on this machine; nothing is judged"]
fn figures() {
    const ACTORS: u32 = 200;
    const ORDERS: u64 = 5000;
    let daemon = Embedded::start();
    let each = |name: &str, count: u64, begun: Instant| {
        println!("{name}: {:.1} us", begun.elapsed().as_secs_f64() * 1e6 / count as f64);
    };
    let begun = Instant::now();
    for _ in 0..ACTORS {
        let mut scenario_client = ScenarioClient::start(&daemon);
        scenario_client.must(Task::StartThread);
        scenario_client.end();
    }
    each("spawn, first report, end", ACTORS.into(), begun);
    let begun = Instant::now();
    for _ in 0..ACTORS {
        let mut scenario_client = ScenarioClient::start(&daemon);
        scenario_client.call_ok(Call::EnumAdapters { capacity: 4 });
        scenario_client.end();
    }
    each("spawn, first call (attached), end", ACTORS.into(), begun);
    until("the daemon has no clients left", || daemon.kernel_host().sessions().clients().is_empty());

    let mut scenario_client = ScenarioClient::start(&daemon);
    let device = scenario_client.open_device();
    let fence = scenario_client.create_fence(device, SyncObjectFlags::empty()).object;
    let begun = Instant::now();
    (0..ORDERS).for_each(|_| assert_eq!(scenario_client.value(Task::ReadValue(fence)), 0));
    each("order without a call, round trip", ORDERS, begun);
    let begun = Instant::now();
    (1..=ORDERS).for_each(|value| drop(scenario_client.call_ok(calls::signal(device, fence, value))));
    each("order with a call, round trip", ORDERS, begun);
    let begun = Instant::now();
    (0..ORDERS).for_each(|_| scenario_client.must(Task::Barrier));
    each("barrier, round trip", ORDERS, begun);
    for thread in 1..4 {
        scenario_client.send_order(thread, plain(wait(device, fence, u64::MAX)));
    }
    let begun = Instant::now();
    (0..ORDERS).for_each(|_| scenario_client.must(Task::Barrier));
    each("barrier beside three waits, round trip", ORDERS, begun);
    let begun = Instant::now();
    let mut bytes = Vec::new();
    let orders: Vec<_> = (1..=ORDERS)
        .map(|value| {
            scenario_client.order(0, plain(calls::signal(device, fence, ORDERS + value)), &mut bytes)
        })
        .collect();
    scenario_client.write(&bytes);
    orders.into_iter().for_each(|tag| drop(scenario_client.report(tag)));
    each("order with a call, pipelined", ORDERS, begun);
    scenario_client.end();
    daemon.end();
}
