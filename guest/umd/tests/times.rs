//! Times are sent to a host that asks for them, before calls and at the exit; other hosts get none.

mod host;

use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

use d3dkmt::{Call, EventId, NtStatus, Reply, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{CallerEvent, CreatedFence, Session, block_on};
use host::{ADAPTER, DEVICE, Peer, connect, create_fence, welcome};
use proto::channel::{Times, Welcome, to_host};
use proto::convert::{call_from_body, host_time_to_frame};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The next call, and the times before it.
fn timed_call(peer: &mut Peer) -> (Times, u64, Call) {
    let Some(to_host::Body::Times(times)) = peer.frame().unwrap().body else { panic!("no times") };
    let (request, call) = peer.call();
    (times, request, call)
}

fn call(session: &Session) {
    let state = block_on(session.call(&Call::GetDeviceState { device: DEVICE, state_type: 1 }));
    assert_eq!(state.status, NtStatus::SUCCESS);
}

fn wait(session: &Session, fence: &CreatedFence, event: Option<&OwnedFd>) {
    let event = event.map(|event| CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap());
    let status =
        block_on(session.wait_from_cpu(DEVICE, &[fence.object], &[1], WaitFromCpuFlags::empty(), event));
    assert_eq!(status, NtStatus::SUCCESS);
}

/// Answers a call that is made meanwhile. Returns its times.
fn answered(session: &Session, peer: &mut Peer, host_time_ns: u64) -> Times {
    thread::scope(|scope| {
        let calling = scope.spawn(|| call(session));
        let (times, request, _) = timed_call(peer);
        peer.send(&host_time_to_frame(host_time_ns));
        peer.answer(request, NtStatus::SUCCESS, &Reply::DeviceState(0));
        calling.join().unwrap();
        times
    })
}

fn timed_session() -> (std::sync::Arc<Session>, Peer, CreatedFence) {
    let (session, mut peer) = connect(Welcome { times: true, ..welcome() }, 64);
    let guest = session.clone();
    let creating = thread::spawn(move || {
        assert_eq!(block_on(guest.create_device(ADAPTER, 0)), Ok(DEVICE));
        create_fence(&guest, 0, d3dkmt::SyncObjectFlags::empty())
    });
    let (_, request, _) = timed_call(&mut peer);
    peer.answer(request, NtStatus::SUCCESS, &Reply::Device(DEVICE));
    let (_, request, _) = timed_call(&mut peer);
    peer.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(host::created(0)));
    (session, peer, creating.join().unwrap())
}

/// Registers a wait and wakes it. Returns its name.
fn woken(peer: &mut Peer, host_time_ns: u64) -> u64 {
    let (_, request, call) = timed_call(peer);
    let Call::WaitFromCpu { event: EventId(event), .. } = call else { panic!("{call:?}") };
    peer.answer_wait(request, WaitOutcome::Registered);
    peer.send(&host_time_to_frame(host_time_ns));
    peer.wake(EventId(event), NtStatus::SUCCESS);
    event
}

#[test]
fn a_call_reports_its_begin_and_the_message_with_the_least_delay() {
    let (session, mut peer, _) = timed_session();
    let before = now();
    let first = answered(&session, &mut peer, 1_000);
    assert!(before <= first.called_ns && first.called_ns <= first.sent_ns && first.sent_ns <= now());
    assert_eq!(
        (first.received_host_ns, first.received_ns, first.woken.len()),
        (0, 0, 0),
        "the host has sent no time"
    );
    let second = answered(&session, &mut peer, 2_000);
    assert_eq!(second.received_host_ns, 1_000);
    assert!(first.sent_ns <= second.received_ns && second.received_ns <= second.called_ns);
    assert_eq!(answered(&session, &mut peer, 3_000).received_host_ns, 2_000, "each is reported once");
    assert!(session.port().channel().reports_times());
}

#[test]
fn a_wake_is_reported_with_the_next_call() {
    let (session, mut peer, fence) = timed_session();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&session, &fence, None));
        let event = woken(&mut peer, 5_000);
        waiting.join().unwrap();
        let returned = now();
        let times = answered(&session, &mut peer, 0);
        let [woken] = &times.woken[..] else { panic!("{times:?}") };
        assert_eq!((woken.event, woken.host_ns), (event, 5_000));
        assert!(0 < woken.read_ns && woken.read_ns <= woken.ran_ns && woken.ran_ns <= returned);
    });
    assert!(answered(&session, &mut peer, 0).woken.is_empty());
}

#[test]
fn an_event_is_reported_once_it_is_set_and_unreported_ones_at_the_exit() {
    let (session, mut peer, fence) = timed_session();
    session.port().channel().send_last_times();
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    thread::scope(|scope| {
        let arming = scope.spawn(|| wait(&session, &fence, Some(&event)));
        let name = woken(&mut peer, 6_000);
        arming.join().unwrap();
        let long = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&long)), Ok(1));
        // It is recorded right after the event is set: until then there is nothing to report.
        let times = loop {
            session.port().channel().send_last_times();
            peer.stream.set_nonblocking(true).unwrap();
            if let Some(frame) = peer.frame() {
                peer.stream.set_nonblocking(false).unwrap();
                break frame;
            }
            thread::yield_now();
        };
        let Some(to_host::Body::Times(times)) = times.body else { panic!("{times:?}") };
        assert_eq!((times.called_ns, times.woken.len()), (0, 1), "no call comes behind it: {times:?}");
        let woken = &times.woken[0];
        assert_eq!((woken.event, woken.host_ns), (name, 6_000));
        assert!(woken.read_ns <= woken.ran_ns, "{woken:?}");
    });
}

#[test]
fn a_host_that_does_not_ask_for_times_gets_none() {
    let (session, mut peer) = connect(welcome(), 64);
    thread::scope(|scope| {
        let calling = scope.spawn(|| call(&session));
        let frame = peer.frame().unwrap();
        assert!(call_from_body(frame.body.unwrap()).is_ok(), "the call itself");
        peer.answer(frame.request, NtStatus::SUCCESS, &Reply::DeviceState(0));
        calling.join().unwrap();
    });
    assert!(!session.port().channel().reports_times());
    session.port().channel().send_last_times();
    drop(session);
    assert_eq!(peer.frame(), None);
}
