//! Who does not read is cut off; nobody else notices.

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
    // Far more answers than the daemon keeps for anybody.
    let mut rounds = 0;
    while silent.stream.send(&frames) {
        rounds += 1;
        assert!(rounds < 5000, "megabytes of answers are kept for a client that does not read");
        if rounds % 50 == 0 {
            steady.works();
        }
    }
    until("the silent client is gone", || daemon.inspection().processes.len() == 1);
    assert_eq!(daemon.counters().protocol_errors.count(), 1);
    steady.works();
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
    // Names of ten bytes each: the wakes do not fit what the daemon keeps.
    for event in 0..WAITS {
        append(&call_to_frame(0, &wait_call(device, fence.object, 1, u64::MAX - event)), &mut frames);
    }
    assert!(silent.stream.send(&frames));
    // The answer says that all waits are queued. Then an engine signals, and the client says nothing more.
    let commands = busy_then_write(fence.gpu_address, 1);
    let submit = Call::SubmitCommand {
        contexts: vec![context],
        commands: 0,
        length: 0,
        flags: 0,
        private_data: commands,
    };
    assert_eq!(silent.call(&submit).0, NtStatus::SUCCESS);
    until("the silent client is gone", || daemon.inspection().processes.len() == 1);
    steady.works();
    drop((silent, steady));
    daemon.end();
}

/// A command buffer: the engine works for a millisecond, then stores a fence value.
fn busy_then_write(gpu_address: u64, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [d3dkmt::isa::MAGIC, 8 + 16 + 24, 2, 16] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&1_000_000u64.to_le_bytes());
    for word in [1u32, 24] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for word in [gpu_address, value] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}
