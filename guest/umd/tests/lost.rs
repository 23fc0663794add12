//! The transport is lost: in every state, everything pending completes with DEVICE_REMOVED.

mod host;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use client::Port;
use covers::covers;
use d3dkmt::{Call, Handle, NtStatus, Reply, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{AttachError, CallerEvent, CreatedFence, Session, TRANSPORT_LOST, attach, block_on};
use host::{DEVICE, Listener, Peer, connect, connect_with_fences, welcome};
use proto::channel::{ToGuest, Welcome};
use proto::frame::append;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::RecvFlags;

fn call(session: &Session) -> NtStatus {
    block_on(session.call(&Call::GetDeviceState { device: DEVICE, state_type: 1 })).status
}

fn wait(session: &Session, fence: &CreatedFence, event: Option<&OwnedFd>) -> NtStatus {
    let event = event.map(|event| CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap());
    block_on(session.wait_from_cpu(DEVICE, &[fence.object], &[1], WaitFromCpuFlags::empty(), event))
}

/// Every state at once: a blocked leader, followers that await answers and wakes, an armed event. Then `end` closes the
/// stream.
fn lose_with_everything_pending(end: impl FnOnce(&mut Peer)) {
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let spawn = |body: fn(&Session, &CreatedFence) -> NtStatus| {
        let (session, fence) = (session.clone(), fences[0].clone());
        thread::spawn(move || body(&session, &fence))
    };
    let asynchronous = {
        let (session, fence, event) = (session.clone(), fences[0].clone(), event.try_clone().unwrap());
        thread::spawn(move || wait(&session, &fence, Some(&event)))
    };
    let (request, _) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Registered);
    assert_eq!(asynchronous.join().unwrap(), NtStatus::SUCCESS);
    let mut pending = Vec::new();
    for _ in 0..2 {
        pending.push(spawn(|session, fence| wait(session, fence, None)));
        let (request, _) = peer.wait_call();
        peer.answer_wait(request, WaitOutcome::Registered);
    }
    for _ in 0..3 {
        pending.push(spawn(|session, _| call(session)));
        peer.call();
    }
    end(&mut peer);
    for pending in pending {
        assert_eq!(pending.join().unwrap(), NtStatus::DEVICE_REMOVED);
    }
    let long = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&long)), Ok(1));
    assert_dead(&session, &fences[0]);
    // The value can still be read.
    assert_eq!(fences[0].location.as_ref().unwrap().value(), 0);
}

fn assert_dead(session: &Arc<Session>, fence: &CreatedFence) {
    let sent = session.port().channel().messages_sent();
    assert_eq!(call(session), TRANSPORT_LOST);
    assert_eq!(wait(session, fence, None), TRANSPORT_LOST);
    let reached =
        block_on(session.wait_from_cpu(DEVICE, &[fence.object], &[0], WaitFromCpuFlags::empty(), None));
    assert_eq!(reached, TRANSPORT_LOST);
    assert!(session.is_lost());
    assert_eq!((session.port().channel().messages_sent(), session.port().channel().pending()), (sent, 0));
}

#[test]
fn the_host_closes_the_stream() {
    lose_with_everything_pending(|peer| peer.stream.shutdown(std::net::Shutdown::Both).unwrap());
}

#[test]
fn the_host_says_goodbye_with_a_reason() {
    lose_with_everything_pending(|peer| peer.goodbye("the test says so"));
}

#[test]
fn a_frame_is_cut_off() {
    lose_with_everything_pending(|peer| {
        peer.raw(&[100, 1, 2, 3]);
        peer.stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
}

#[test]
fn a_frame_is_too_long() {
    lose_with_everything_pending(|peer| peer.raw(&[0xFF, 0xFF, 0xFF, 0x7F]));
}

#[test]
fn a_frame_is_no_message() {
    lose_with_everything_pending(|peer| peer.raw(&[3, 0xFF, 0xFF, 0xFF]));
}

#[test]
fn a_frame_answers_nothing() {
    lose_with_everything_pending(|peer| peer.answer(0, NtStatus::SUCCESS, &Reply::None));
}

#[test]
fn a_second_welcome_comes() {
    lose_with_everything_pending(|peer| {
        let body = Some(proto::channel::to_guest::Body::Welcome(welcome()));
        peer.send(&ToGuest { request: 0, status: 0, body });
    });
}

#[test]
fn unknown_names_are_ignored_and_the_session_continues() {
    covers!("EVT-027");
    let (session, mut peer) = connect(welcome(), 64);
    peer.wake(d3dkmt::EventId(99), NtStatus::SUCCESS);
    peer.answer(12345, NtStatus::SUCCESS, &Reply::None);
    let guest = session.clone();
    let caller = thread::spawn(move || call(&guest));
    let (request, _) = peer.call();
    peer.answer(request, NtStatus::NOT_SUPPORTED, &Reply::None);
    assert_eq!(caller.join().unwrap(), NtStatus::NOT_SUPPORTED);
}

#[test]
fn a_write_after_the_end_is_reported_and_raises_no_signal() {
    let (session, mut peer) = connect(welcome(), 64);
    peer.goodbye("while no thread read");
    drop(peer);
    for _ in 0..3 {
        assert_eq!(call(&session), TRANSPORT_LOST);
        assert_eq!(block_on(session.submit(&Call::DestroyContext { context: Handle(1) })), TRANSPORT_LOST);
    }
    assert_eq!(session.port().channel().pending(), 0);
}

#[test]
fn an_answer_in_many_pieces_is_one_answer() {
    let (session, mut peer) = connect(welcome(), 64);
    let guest = session.clone();
    let data = vec![7; 8192];
    let expected = data.clone();
    let caller = thread::spawn(move || {
        let answer =
            block_on(guest.call(&Call::QueryAdapterInfo { adapter: Handle(1), kind: 65, data: vec![] }));
        assert_eq!(answer.reply, Reply::AdapterInfo(expected));
    });
    let (request, _) = peer.call();
    let mut bytes = Vec::new();
    append(
        &proto::convert::answer_to_frame(request, NtStatus::SUCCESS, &Reply::AdapterInfo(data)),
        &mut bytes,
    );
    for piece in bytes.chunks(97) {
        peer.raw(piece);
        thread::yield_now();
    }
    caller.join().unwrap();
}

#[test]
fn no_broker_and_a_refusal_are_different_errors() {
    let nowhere = attach(std::path::Path::new("/nonexistent/broker.sock"), "test");
    assert!(matches!(nowhere, Err(AttachError::NoBroker { .. })), "{nowhere:?}");
    let listener = Listener::new();
    let refused = thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(&listener.path, "test"));
        listener.refuse("not you");
        attaching.join().unwrap()
    });
    assert!(matches!(&refused, Err(AttachError::Refused(why)) if why == "not you"), "{refused:?}");
}

#[test]
fn a_welcome_of_another_version_is_none() {
    let listener = Listener::new();
    let other = proto::channel::Welcome { version: proto::PROTOCOL_VERSION + 1, ..welcome() };
    let session = thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(&listener.path, "test"));
        let _peer = listener.accept(other, 64);
        attaching.join().unwrap()
    });
    assert!(matches!(session, Err(AttachError::NoWelcome(_))), "{session:?}");
}

#[test]
fn dropping_a_session_ends_both_connections() {
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let waiting = {
        let (session, fence, event) = (session.clone(), fences[0].clone(), event.try_clone().unwrap());
        thread::spawn(move || wait(&session, &fence, Some(&event)))
    };
    let (request, _) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Registered);
    waiting.join().unwrap();
    drop(session);
    assert!(peer.frame().is_none());
    while !peer.broker_ended() {
        thread::yield_now();
    }
}

/// The program reads no stream in these calls.
#[test]
fn a_broker_that_has_ended_with_the_host_is_no_lack_of_memory() {
    let calls: [fn(&Session) -> Option<NtStatus>; 3] = [
        |session| session.port().make_nt_handle().err(),
        |session| session.port().make_sync_file().err(),
        |session| block_on(session.port().grow_memory(session.port().slots(), 64)).err(),
    ];
    for call in calls {
        let (session, peer) = connect(welcome(), 64);
        drop(peer);
        assert_eq!((call(&session), session.is_lost()), (Some(TRANSPORT_LOST), true));
    }
    // A thread that waits reads the stream, and may not have got to its end yet.
    let (session, mut peer) = connect(welcome(), 64);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(session.device_state(DEVICE, 2)).status);
        peer.call();
        drop(peer);
        assert_eq!(calls[0](&session), Some(TRANSPORT_LOST));
        assert_eq!(waiting.join().unwrap(), TRANSPORT_LOST);
    });
    // A host that dies may close the connection of the broker a moment before the stream, or the other way round: then the
    // broker may still refuse.
    for call in calls {
        let (session, peer) = connect(welcome(), 64);
        rustix::net::shutdown(&peer.broker, rustix::net::Shutdown::Both).unwrap();
        assert_eq!((call(&session), session.is_lost()), (Some(TRANSPORT_LOST), true));
        let (session, peer) = connect(welcome(), 64);
        peer.stream.shutdown(std::net::Shutdown::Both).unwrap();
        thread::scope(|scope| {
            let asking = scope.spawn(|| call(&session));
            peer.serve_broker("the process has ended");
            assert_eq!((asking.join().unwrap(), session.is_lost()), (Some(TRANSPORT_LOST), true));
        });
    }
    // A refusal of a host that is there.
    let (session, peer) = connect(welcome(), 64);
    thread::scope(|scope| {
        let asking = scope.spawn(|| calls[0](&session));
        peer.serve_broker("no room");
        assert_eq!((asking.join().unwrap(), session.is_lost()), (Some(NtStatus::NO_MEMORY), false));
    });
}

#[test]
fn a_broker_that_ends_without_a_reply_has_closed_its_connection() {
    let (session, peer) = connect(welcome(), 64);
    thread::scope(|scope| {
        let asking = scope.spawn(|| session.port().make_nt_handle().err());
        // The request is there: the library waits for its reply.
        let mut request = [0; 64];
        assert!(rustix::net::recv(&peer.broker, &mut request, RecvFlags::empty()).unwrap().0 > 0);
        peer.stream.shutdown(std::net::Shutdown::Both).unwrap();
        drop(peer);
        assert_eq!((asking.join().unwrap(), session.is_lost()), (Some(TRANSPORT_LOST), true));
    });
    let listener = Listener::new();
    thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(&listener.path, "test").expect_err("no reply comes"));
        listener.close_one();
        let error = attaching.join().unwrap();
        assert!(matches!(error, AttachError::Closed), "{error}");
    });
}

/// A program that reads its fence and the state of its device, and makes no other call.
#[test]
fn a_device_is_not_said_to_be_active_when_the_host_has_closed_the_stream() {
    covers!("GPV-026");
    const STATUS: u32 = 9;
    let (session, mut peer, _) =
        connect_with_fences(Welcome { status_slot_plus_one: STATUS + 1, ..welcome() }, &[0]);
    let state = || block_on(session.device_state(DEVICE, 1));
    let sent = session.port().channel().messages_sent();
    for _ in 0..3 {
        assert_eq!((state().status, state().reply), (NtStatus::SUCCESS, Reply::DeviceState(1)));
    }
    assert_eq!(session.port().channel().messages_sent(), sent);
    peer.store(STATUS, 1);
    thread::scope(|scope| {
        let asking = scope.spawn(state);
        let (request, call) = peer.call();
        assert_eq!(call, Call::GetDeviceState { device: DEVICE, state_type: 1 });
        peer.answer(request, NtStatus::SUCCESS, &Reply::DeviceState(3));
        assert_eq!(asking.join().unwrap().reply, Reply::DeviceState(3));
    });
    peer.store(STATUS, 0);
    assert_eq!(state().reply, Reply::DeviceState(1));
    drop(peer);
    assert_eq!(state().status, TRANSPORT_LOST);
}
