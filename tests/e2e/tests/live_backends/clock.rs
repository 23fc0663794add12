//! A virtual clock stands still until it is advanced.

use d3dkmt::{Call, EventId, Handle, NtStatus, WaitOutcome};
use e2e::embedded::Embedded;
use e2e::wire::Client;
use gpupv::daemon::{Clock, Options};
use proto::convert::FromHost;

/// Busy time of `Client::submit_write` before its write.
const BUSY_NS: u64 = 1_000_000;

fn wake(event: u64) -> FromHost {
    FromHost::Wake { event: EventId(event), status: NtStatus::SUCCESS }
}

/// Checks that no message was pending: the next message is the answer of a new call.
fn nothing_came(client: &mut Client) {
    let (status, _) = client.call(&Call::CancelWait { event: EventId(u64::MAX) });
    assert_eq!(status, NtStatus::SUCCESS);
}

#[test]
fn work_ends_exactly_when_the_clock_is_moved_there() {
    let daemon = Embedded::start_with(Options { clock: Clock::Virtual, ..Options::default() });
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let context = client.create_context(device);
    let fence = client.create_fence(device, 0);
    assert_eq!(client.wait(device, fence.object, 1, 1), Some(WaitOutcome::Registered));
    assert_eq!(daemon.inspection().now_ns, 0, "the clock stands still");
    daemon.daemon().advance(500);
    assert_eq!(client.submit_write(context, &fence, 1), NtStatus::SUCCESS);
    daemon.daemon().advance(BUSY_NS - 1);
    nothing_came(&mut client);
    assert_eq!((client.value(&fence), daemon.inspection().now_ns), (0, 500 + BUSY_NS - 1));
    daemon.daemon().advance(1);
    assert_eq!(client.stream.read(), Ok(wake(1)));
    assert_eq!((client.value(&fence), daemon.inspection().now_ns), (1, 500 + BUSY_NS));
    drop(client);
    daemon.end();
}

#[test]
fn the_clock_stops_at_every_deadline_on_its_way() {
    let daemon = Embedded::start_with(Options { clock: Clock::Virtual, ..Options::default() });
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let context = client.create_context(device);
    let fence = client.create_fence(device, 0);
    let wait = |client: &mut Client, object: Handle, value| {
        assert_eq!(client.wait(device, object, value, value), Some(WaitOutcome::Registered));
    };
    for value in 1..=3 {
        wait(&mut client, fence.object, value);
        assert_eq!(client.submit_write(context, &fence, value), NtStatus::SUCCESS);
    }
    // Each buffer is submitted when the previous one ends, so the clock must stop at each deadline to end all three.
    daemon.daemon().advance(3 * BUSY_NS - 1);
    assert_eq!([client.stream.read(), client.stream.read()], [Ok(wake(1)), Ok(wake(2))]);
    nothing_came(&mut client);
    daemon.daemon().advance(1);
    assert_eq!(client.stream.read(), Ok(wake(3)));
    drop(client);
    daemon.end();
}

#[test]
#[should_panic(expected = "only a virtual clock can be moved")]
fn a_monotonic_clock_cannot_be_advanced() {
    Embedded::start().daemon().advance(1);
}
