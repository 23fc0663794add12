//! Messages of each call, and no leaks after many clients.

use covers::covers;
use d3dkmt::{Call, NtStatus, WaitOutcome};
use e2e::embedded::Embedded;
use e2e::wire::{Attached, Client};
use proto::control::Process;

#[test]
fn a_synchronous_call_is_one_frame_each_way_and_a_one_way_call_is_one_frame() {
    covers!("GPV-015");
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    let counts = || (daemon.counters().frames_received.count(), daemon.counters().frames_sent.count());
    let (received, sent) = counts();
    for value in 1..=1000 {
        assert_eq!(client.signal(device, fence.object, value), NtStatus::SUCCESS);
    }
    assert_eq!(counts(), (received + 1000, sent + 1000));
    for _ in 0..1000 {
        client.post(&Call::GetDeviceState { device, state_type: 1 });
    }
    // Calls execute in order, so earlier calls are complete when this one is answered.
    assert_eq!(client.signal(device, fence.object, 1001), NtStatus::SUCCESS);
    assert_eq!(counts(), (received + 2001, sent + 1001));
    assert_eq!(client.wait(device, fence.object, 1002, 7), Some(WaitOutcome::Registered));
    assert_eq!(counts(), (received + 2002, sent + 1002));
    assert_eq!(daemon.counters().wakes.count(), 0);
    assert_eq!(client.signal(device, fence.object, 1002), NtStatus::SUCCESS);
    assert_eq!(counts(), (received + 2003, sent + 1004), "the answer and one wake");
    assert_eq!(daemon.counters().protocol_errors.count(), 0);
    drop(client);
    daemon.end();
}

#[test]
fn a_destroyed_fence_gives_its_slot_and_its_handle_back() {
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let state = || daemon.inspection().processes[0].clone();
    let before = state();
    for value in 0..2000 {
        let fence = client.create_fence(device, value);
        assert_eq!(client.value(&fence), value, "a reused slot has its new value");
        let destroy = Call::DestroySynchronizationObject { object: fence.object };
        assert_eq!(client.call(&destroy).0, NtStatus::SUCCESS);
    }
    let after = state();
    assert_eq!(after.calls, before.calls + 4000);
    assert_eq!(Process { calls: before.calls, ..after }, before, "slots, slots in use and handles");
    drop(client);
    daemon.end();
}

#[test]
fn two_hundred_attached_and_detached_processes_leave_nothing() {
    let daemon = Embedded::start();
    for round in 0..200 {
        match round % 4 {
            // Attaches and sends nothing more.
            0 => drop(Attached::new(&daemon.broker())),
            1 => drop(Client::new(&daemon.broker())),
            2 => {
                let mut client = Client::new(&daemon.broker());
                let device = client.open_device();
                let fence = client.create_fence(device, 0);
                client.wait(device, fence.object, 1, 1);
                client.grow(100);
            }
            // The stream ends before the broker's connection does.
            _ => {
                let client = Client::new(&daemon.broker());
                drop(client.stream);
                assert!(client.broker.reply().is_none());
            }
        }
    }
    daemon.end();
}
