//! A client that does not read is disconnected, without an effect on others.

use d3dkmt::{Call, NtStatus};
use e2e::embedded::Embedded;
use e2e::polling::until;
use e2e::wire::{Client, Steady, wait_call};
use proto::convert::call_to_frame;
use proto::frame::append;

#[test]
fn a_client_that_never_reads_its_answers_is_cut_off() {
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let mut silent = Client::new(&daemon.broker());
    let mut frames = Vec::new();
    for request in 1..=500 {
        append(&call_to_frame(request, &Call::EnumAdapters { capacity: 1 }), &mut frames);
    }
    // Far more answers than the daemon buffers for a client.
    let mut rounds = 0;
    while silent.stream.send(&frames) {
        rounds += 1;
        assert!(
            rounds < 5000,
            "the daemon must not buffer megabytes of answers for a client that does not read"
        );
        if rounds % 50 == 0 {
            steady.assert_works();
        }
    }
    until("the silent client is gone", || daemon.inspection().processes.len() == 1);
    assert_eq!(daemon.counters().protocol_errors.count(), 1);
    steady.assert_works();
    drop((silent, steady));
    daemon.end();
}

#[test]
fn a_client_that_never_reads_its_wakes_is_cut_off_while_it_is_silent() {
    const WAITS: u64 = 400_000;
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let mut silent = Client::new(&daemon.broker());
    let device = silent.open_device();
    let context = silent.create_context(device);
    let fence = silent.create_fence(device, 0);
    let mut frames = Vec::new();
    // Event ids of ten bytes each: the wakes exceed the daemon's buffer.
    for event in 0..WAITS {
        append(&call_to_frame(0, &wait_call(device, fence.object, 1, u64::MAX - event)), &mut frames);
    }
    assert!(silent.stream.send(&frames));
    // After this answer all waits are queued. Then an engine signals, and the client sends nothing more.
    assert_eq!(silent.submit_write(context, &fence, 1), NtStatus::SUCCESS);
    until("the silent client is gone", || daemon.inspection().processes.len() == 1);
    steady.assert_works();
    drop((silent, steady));
    daemon.end();
}
