//! Data of big escapes go through memory that both sides have: against a host that looks there.

mod host;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::thread;

use d3dkmt::limits::PRIVATE_DATA_BYTES_MAX;
use d3dkmt::{Call, EscapeFlags, Handle, NtStatus, Reply};
use dxcore::client::{Answer, Session};
use dxcore::limits::LENT_DATA_BYTES_MIN;
use host::{ADAPTER, DEVICE, Peer, connect, send_packet, welcome};
use proto::attach::{BrokerReply, broker_request};
use proto::channel::to_host;

const BYTES: usize = 10_000;

fn escape(data: Vec<u8>) -> Call {
    let (context, flags) = (Handle::NULL, EscapeFlags::empty());
    Call::Escape { adapter: ADAPTER, device: DEVICE, context, kind: 0, flags, data }
}

/// An escape with data of so many bytes of one value; its answer, and what its data are then. As the C ABI does it.
fn escape_of(session: &Session, bytes: usize, value: u8) -> (Answer, Vec<u8>) {
    let Some(room) = session.room_for(bytes) else {
        let answer = session.escape(escape(vec![value; bytes]), None);
        let Reply::Escape(data) = answer.reply.clone() else { panic!("{answer:?}") };
        return (answer, data);
    };
    let mut data = vec![0; bytes];
    // SAFETY: there is room for so many bytes, which only the test's host has as well.
    unsafe {
        room.place().write_bytes(value, bytes);
        let answer = session.escape(escape(Vec::new()), Some(&room));
        room.place().copy_to(data.as_mut_ptr(), bytes);
        (answer, data)
    }
}

/// Gives what the guest asks to lend: its address, and the memory as the host has it.
fn serve_lend(peer: &Peer) -> (u64, File) {
    let (request, _) = host::receive_with_descriptor(&peer.broker).expect("the guest asks its broker");
    let Some(broker_request::Body::Lend(lend)) = request.body else { panic!("{request:?}") };
    let memory = rustix::fs::memfd_create("pages", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, u64::from(lend.pages) * 4096).unwrap();
    assert!(u64::from(lend.pages) * 4096 >= PRIVATE_DATA_BYTES_MAX as u64);
    let reply = BrokerReply { process: 1, ..BrokerReply::default() };
    send_packet(&peer.broker, &reply, &[memory.as_fd()]);
    (lend.address, memory.into())
}

/// The next frame is an escape without data of its own: request, where they are, and how many.
fn lent_escape(peer: &mut Peer) -> (u64, u64, u32) {
    let frame = peer.frame().expect("the guest sends a call");
    let Some(to_host::Body::Escape(escape)) = frame.body else { panic!("{frame:?}") };
    assert!(escape.data.is_empty());
    (frame.request, escape.lent_at, escape.lent_bytes)
}

fn bytes_of(memory: &File, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    memory.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn big_data_are_where_both_sides_have_them_and_no_message_carries_them() {
    let (session, mut peer) = connect(welcome(), 64);
    let guest = session.clone();
    let calling = thread::spawn(move || {
        let first = escape_of(&guest, BYTES, 5);
        (first, escape_of(&guest, PRIVATE_DATA_BYTES_MAX, 6))
    });
    let (address, memory) = serve_lend(&peer);
    let (request, at, bytes) = lent_escape(&mut peer);
    assert_eq!((at, bytes as usize), (address, BYTES));
    assert_eq!(bytes_of(&memory, BYTES), [5; BYTES]);
    memory.write_all_at(&[7; BYTES], 0).unwrap();
    peer.answer(request, NtStatus::SUCCESS, &Reply::Escape(Vec::new()));
    // It is lent once.
    let (request, at, bytes) = lent_escape(&mut peer);
    assert_eq!((at, bytes as usize), (address, PRIVATE_DATA_BYTES_MAX));
    assert!(bytes_of(&memory, PRIVATE_DATA_BYTES_MAX).iter().all(|byte| *byte == 6));
    peer.answer(request, NtStatus::ACCESS_DENIED, &Reply::None);
    let ((first, data), (second, _)) = calling.join().unwrap();
    assert_eq!((first.status, first.reply, data), (NtStatus::SUCCESS, Reply::Escape(vec![]), vec![7; BYTES]));
    assert_eq!(second.status, NtStatus::ACCESS_DENIED);
}

#[test]
fn one_escape_has_the_window_and_small_or_impossible_ones_never() {
    let (session, peer) = connect(welcome(), 64);
    for bytes in [0, 1, LENT_DATA_BYTES_MIN - 1, PRIVATE_DATA_BYTES_MAX + 1, usize::MAX] {
        assert!(session.room_for(bytes).is_none(), "{bytes}");
    }
    let serving = thread::spawn(move || {
        serve_lend(&peer);
        peer
    });
    let room = session.room_for(LENT_DATA_BYTES_MIN).expect("the window is free");
    assert_eq!(room.bytes(), LENT_DATA_BYTES_MIN);
    let other: Arc<Session> = session.clone();
    assert!(thread::spawn(move || other.room_for(BYTES).is_none()).join().unwrap());
    drop(room);
    assert!(session.room_for(PRIVATE_DATA_BYTES_MAX).is_some());
    // Without a host there is nothing to share.
    drop(serving.join().unwrap());
    assert_eq!(session.escape(escape(Vec::new()), None).status, dxcore::client::TRANSPORT_LOST);
    assert!(session.room_for(BYTES).is_none());
}

#[test]
fn where_nothing_can_be_lent_data_go_through_the_stream_and_nobody_asks_again() {
    let (session, mut peer) = connect(welcome(), 64);
    let guest = session.clone();
    let calling = thread::spawn(move || (escape_of(&guest, BYTES, 5), escape_of(&guest, BYTES, 6)));
    let (asked, _) = peer.serve_broker("nothing can be lent");
    assert!(matches!(asked, broker_request::Body::Lend(_)), "{asked:?}");
    for value in [5, 6] {
        let (request, call) = peer.call();
        assert_eq!(call, escape(vec![value; BYTES]));
        peer.answer(request, NtStatus::SUCCESS, &Reply::Escape(vec![value + 1; BYTES]));
    }
    let ((_, first), (_, second)) = calling.join().unwrap();
    assert_eq!((first, second), (vec![6; BYTES], vec![7; BYTES]));
}
