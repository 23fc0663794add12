//! A client that does not read is disconnected, without an effect on others.

use d3dkmt::{Call, EventId, NtStatus, calls};
use e2e::embedded::Embedded;
use e2e::polling::until;
use e2e::wire::{Client, Steady};
use gpupv::daemon::limits::UNPROCESSED_BYTES_PER_PEER_MAX;
use proto::convert::call_to_frame;
use proto::frame::append;
use proto::limits::FRAME_BYTES_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
        append(
            &call_to_frame(0, &calls::wait(device, fence.object, 1, EventId(u64::MAX - event))),
            &mut frames,
        );
    }
    assert!(silent.stream.send(&frames));
    // After this answer all waits are queued. Then an engine signals, and the client sends nothing more.
    assert_eq!(silent.submit_write(context, &fence, 1), NtStatus::SUCCESS);
    until("the silent client is gone", || daemon.inspection().processes.len() == 1);
    steady.assert_works();
    drop((silent, steady));
    daemon.end();
}

/// Attack half_sent_calls: each process is within its own limits.
#[test]
fn half_frames_of_the_processes_of_one_user_have_a_limit_and_the_oldest_ends() {
    const HALF: usize = FRAME_BYTES_MAX - 1024;
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("up to the hard limit");
    let daemon = Embedded::start();
    let mut half = Vec::new();
    // The length of a frame that is never completed.
    append_length(FRAME_BYTES_MAX, &mut half);
    half.resize(HALF, 0);
    let count = UNPROCESSED_BYTES_PER_PEER_MAX / HALF + 1;
    let processes: Vec<Client> = (0..count)
        .map(|_| {
            let mut process = Client::new(&daemon.broker());
            assert!(process.stream.send(&half));
            process
        })
        .collect();
    until("one process is cut off", || daemon.inspection().processes.len() == count - 1);
    let left = daemon.inspection().processes;
    assert!(left.iter().all(|process| process.id != processes[0].process), "it had some the longest");
    let mut other = Steady::new(&daemon.broker());
    other.assert_works();
    drop((processes, other));
    daemon.end();
}

fn append_length(length: usize, bytes: &mut Vec<u8>) {
    let mut rest = length;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}
