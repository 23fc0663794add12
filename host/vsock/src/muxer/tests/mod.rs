//! Behaviour of the muxer, packet by packet. Random packets are in `properties`.

use super::*;
use crate::limits::{CREDIT_UPDATE_BYTES, PEER_WINDOW_BYTES_MAX, WINDOW_BYTES};

mod properties;

pub(super) const CID: u64 = 42;
const PEER: u32 = 5000;
const LOCAL: u32 = 80;

/// A packet of a well-behaved guest with a 64 KiB buffer.
pub(super) fn packet(operation: Operation) -> Header {
    Header {
        src_cid: CID,
        dst_cid: HOST_CID,
        src_port: PEER,
        dst_port: LOCAL,
        len: 0,
        socket_type: TYPE_STREAM,
        operation,
        flags: 0,
        buf_alloc: 65536,
        fwd_cnt: 0,
    }
}

fn events(muxer: &mut Muxer) -> Vec<Event> {
    let mut events = Vec::new();
    muxer.take_events(&mut events);
    events
}

/// All packets that would be sent with 4 KiB receive buffers, each with its payload.
fn packets(muxer: &mut Muxer) -> Vec<(Header, Vec<u8>)> {
    let mut packets = Vec::new();
    while muxer.has_packet() {
        let mut payload = Vec::new();
        let header = muxer.next_packet(4096, &mut payload).expect("has_packet said so");
        assert_eq!(header.len as usize, payload.len());
        packets.push((header, payload));
    }
    packets
}

fn operations(muxer: &mut Muxer) -> Vec<Operation> {
    packets(muxer).iter().map(|(header, _)| header.operation).collect()
}

fn open(muxer: &mut Muxer, credit: Credit) -> ConnectionId {
    muxer.receive(&packet(Operation::REQUEST)).unwrap();
    let [Event::Offered(id, request)] = events(muxer)[..] else { panic!("not offered") };
    assert_eq!(request, ConnectRequest { peer_port: PEER, local_port: LOCAL });
    muxer.decide(id, Some(credit));
    assert_eq!(operations(muxer), [Operation::RESPONSE]);
    assert_eq!(muxer.state(id), Some(State::Open));
    id
}

#[test]
fn a_guest_may_state_a_window_of_any_size_and_a_limited_one_is_used() {
    for (stated, used) in
        [(0, 0), (PEER_WINDOW_BYTES_MAX, PEER_WINDOW_BYTES_MAX), (u32::MAX, PEER_WINDOW_BYTES_MAX)]
    {
        let mut flow = flow::Flow::new(Ports { peer: PEER, local: LOCAL }, State::Open, Credit::Automatic);
        flow.learn_credit(&Header { buf_alloc: stated, ..packet(Operation::CREDIT_UPDATE) });
        assert_eq!(flow.peer_room(), used as usize, "{stated} is stated");
    }
}

#[test]
fn a_refused_request_is_answered_with_rst_and_forgotten() {
    let mut muxer = Muxer::new(CID);
    muxer.receive(&packet(Operation::REQUEST)).unwrap();
    let [Event::Offered(id, _)] = events(&mut muxer)[..] else { panic!() };
    assert!(!muxer.has_packet());
    muxer.decide(id, None);
    assert_eq!(operations(&mut muxer), [Operation::RST]);
    assert_eq!(muxer.connections(), 0);
    assert_eq!(events(&mut muxer), []);
}

#[test]
fn bytes_sent_before_the_decision_follow_the_response() {
    let mut muxer = Muxer::new(CID);
    muxer.receive(&packet(Operation::REQUEST)).unwrap();
    let [Event::Offered(id, _)] = events(&mut muxer)[..] else { panic!() };
    muxer.send(id, b"welcome").unwrap();
    muxer.finish(id);
    assert_eq!(muxer.send(id, b"more"), Err(SendError::Closed));
    assert!(!muxer.has_packet());
    muxer.decide(id, Some(Credit::Automatic));
    assert_eq!(operations(&mut muxer), [Operation::RESPONSE, Operation::RW, Operation::SHUTDOWN]);
    assert_eq!(muxer.state(id), Some(State::HostFinished));
}

#[test]
fn a_host_initiated_connection_opens_on_response() {
    let mut muxer = Muxer::new(CID);
    let (id, ports) = muxer.connect(7, Credit::Automatic).unwrap();
    muxer.send(id, b"early").unwrap();
    let request = packets(&mut muxer);
    assert_eq!(request.len(), 1);
    assert_eq!((request[0].0.operation, request[0].0.dst_port), (Operation::REQUEST, 7));
    let response = Header { src_port: 7, dst_port: ports.local, ..packet(Operation::RESPONSE) };
    muxer.receive(&response).unwrap();
    assert_eq!(events(&mut muxer), [Event::Connected(id)]);
    assert_eq!(packets(&mut muxer)[0].1, b"early");
    assert_eq!(muxer.receive(&response), Err(Violation::State));
}

#[test]
fn a_request_to_a_port_without_listener_is_refused() {
    let mut muxer = Muxer::new(CID);
    let (id, ports) = muxer.connect(7, Credit::Automatic).unwrap();
    packets(&mut muxer);
    muxer.receive(&Header { src_port: 7, dst_port: ports.local, ..packet(Operation::RST) }).unwrap();
    assert_eq!(events(&mut muxer), [Event::Closed(id, CloseReason::Refused)]);
    assert!(!muxer.has_packet());
}

#[test]
fn sending_stops_at_the_peers_credit_and_resumes_with_it() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.send(id, &[1; 100_000]).unwrap();
    let sent: usize = packets(&mut muxer).iter().map(|(_, payload)| payload.len()).sum();
    assert_eq!(sent, 65536);
    muxer.receive(&Header { fwd_cnt: 1000, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    let sent: usize = packets(&mut muxer).iter().map(|(_, payload)| payload.len()).sum();
    assert_eq!(sent, 1000);
    assert_eq!(muxer.queued_bytes(), 100_000 - 66_536);
}

#[test]
fn credit_beyond_what_was_sent_or_behind_earlier_credit_is_ignored() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.send(id, &[1; 100_000]).unwrap();
    packets(&mut muxer);
    for length in [65537, u32::MAX, 0x8000_0000] {
        let claim = Header { fwd_cnt: length, buf_alloc: u32::MAX, ..packet(Operation::CREDIT_UPDATE) };
        muxer.receive(&claim).unwrap();
        assert_eq!(packets(&mut muxer), []);
    }
    muxer.receive(&Header { fwd_cnt: 500, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    assert_eq!(packets(&mut muxer).len(), 1);
    muxer.receive(&Header { fwd_cnt: 400, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    assert_eq!(packets(&mut muxer), []);
}

#[test]
fn counters_wrap_without_losing_credit() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    let start = u32::MAX - 10;
    muxer.flow(id).unwrap().wind_counters(start, start);
    muxer.send(id, &[1; 65536]).unwrap();
    packets(&mut muxer);
    muxer.send(id, &[2; 65536]).unwrap();
    assert_eq!(packets(&mut muxer), []);
    let fwd_cnt = start.wrapping_add(65536);
    muxer.receive(&Header { fwd_cnt, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    let sent: usize = packets(&mut muxer).iter().map(|(_, payload)| payload.len()).sum();
    assert_eq!(sent, 65536);
    for _ in 0..4 {
        muxer.receive(&Header { len: WINDOW_BYTES, fwd_cnt, ..packet(Operation::RW) }).unwrap();
        assert_eq!(operations(&mut muxer), [Operation::CREDIT_UPDATE]);
    }
}

#[test]
fn automatic_credit_is_sent_every_quarter_of_the_window() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.receive(&Header { len: CREDIT_UPDATE_BYTES - 1, ..packet(Operation::RW) }).unwrap();
    assert_eq!(events(&mut muxer), [Event::Received(id)]);
    assert!(!muxer.has_packet());
    muxer.receive(&Header { len: 1, ..packet(Operation::RW) }).unwrap();
    let updates = packets(&mut muxer);
    assert_eq!(updates[0].0.operation, Operation::CREDIT_UPDATE);
    assert_eq!((updates[0].0.fwd_cnt, updates[0].0.buf_alloc), (CREDIT_UPDATE_BYTES, WINDOW_BYTES));
}

#[test]
fn manual_credit_stalls_the_guest_until_bytes_are_consumed() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Manual);
    muxer.receive(&Header { len: WINDOW_BYTES, ..packet(Operation::RW) }).unwrap();
    assert!(!muxer.has_packet());
    muxer.consumed(id, CREDIT_UPDATE_BYTES);
    assert_eq!(packets(&mut muxer)[0].0.fwd_cnt, CREDIT_UPDATE_BYTES);
    // More than was received counts as all of it.
    muxer.consumed(id, u32::MAX);
    assert_eq!(packets(&mut muxer)[0].0.fwd_cnt, WINDOW_BYTES);
    muxer.receive(&Header { len: WINDOW_BYTES, ..packet(Operation::RW) }).unwrap();
    events(&mut muxer);
    assert_eq!(muxer.receive(&Header { len: 1, ..packet(Operation::RW) }), Err(Violation::CreditOverrun));
    assert_eq!(events(&mut muxer), [Event::Closed(id, CloseReason::ProtocolViolation)]);
    assert_eq!(operations(&mut muxer), [Operation::RST]);
}

#[test]
fn a_credit_request_is_answered_once() {
    let mut muxer = Muxer::new(CID);
    open(&mut muxer, Credit::Automatic);
    muxer.receive(&packet(Operation::CREDIT_REQUEST)).unwrap();
    muxer.receive(&packet(Operation::CREDIT_REQUEST)).unwrap();
    assert_eq!(operations(&mut muxer), [Operation::CREDIT_UPDATE]);
}

#[test]
fn guest_half_close_leaves_the_other_half_working() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.receive(&Header { flags: SHUTDOWN_SEND, ..packet(Operation::SHUTDOWN) }).unwrap();
    assert_eq!(events(&mut muxer), [Event::PeerFinished(id)]);
    muxer.send(id, b"answer").unwrap();
    muxer.finish(id);
    assert_eq!(operations(&mut muxer), [Operation::RW, Operation::SHUTDOWN, Operation::RST]);
    assert_eq!(events(&mut muxer), [Event::Closed(id, CloseReason::Finished)]);
    assert_eq!(muxer.connections(), 0);
}

#[test]
fn host_half_close_comes_after_the_last_byte_and_still_receives() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.send(id, &[0; 70_000]).unwrap();
    muxer.finish(id);
    assert!(!operations(&mut muxer).contains(&Operation::SHUTDOWN));
    muxer.receive(&Header { fwd_cnt: 65536, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    assert_eq!(operations(&mut muxer), [Operation::RW, Operation::RW, Operation::SHUTDOWN]);
    muxer.receive(&Header { len: 9, fwd_cnt: 65536, ..packet(Operation::RW) }).unwrap();
    assert_eq!(events(&mut muxer), [Event::Received(id)]);
    let close = Header { flags: SHUTDOWN_SEND | SHUTDOWN_RECEIVE, ..packet(Operation::SHUTDOWN) };
    muxer.receive(&close).unwrap();
    assert_eq!(events(&mut muxer), [Event::PeerFinished(id), Event::Closed(id, CloseReason::Finished)]);
    assert_eq!(operations(&mut muxer), [Operation::RST]);
}

#[test]
fn a_guest_that_will_not_read_frees_the_queue_and_wakes_the_writer() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.send(id, &[0; QUEUED_BYTES_PER_CONNECTION_MAX]).unwrap();
    assert_eq!(muxer.send(id, &[0]), Err(SendError::Full));
    muxer.receive(&Header { flags: SHUTDOWN_RECEIVE, ..packet(Operation::SHUTDOWN) }).unwrap();
    assert_eq!(events(&mut muxer), [Event::Writable(id)]);
    assert_eq!(muxer.send(id, &[0]), Err(SendError::Closed));
    assert_eq!(muxer.queued_bytes(), 0);
    muxer.receive(&Header { len: 1, ..packet(Operation::RW) }).unwrap();
    assert_eq!(events(&mut muxer), [Event::Received(id)]);
}

#[test]
fn a_full_queue_is_reported_and_later_its_room() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.send(id, &[0; QUEUED_BYTES_PER_CONNECTION_MAX]).unwrap();
    let sent = QUEUED_BYTES_PER_CONNECTION_MAX * 3 / 4;
    assert_eq!(muxer.send(id, &vec![0; sent]), Err(SendError::Full));
    let mut fwd_cnt = 0;
    for _ in 0..3 {
        assert_eq!(events(&mut muxer), []);
        packets(&mut muxer);
        fwd_cnt += 65536;
        muxer.receive(&Header { fwd_cnt, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    }
    assert_eq!(events(&mut muxer), [Event::Writable(id)]);
    muxer.send(id, &vec![0; sent]).unwrap();
}

#[test]
fn one_vm_cannot_queue_more_than_its_share() {
    let mut muxer = Muxer::new(CID);
    let mut ids = Vec::new();
    let refused = loop {
        let (id, _) = muxer.connect(9, Credit::Automatic).unwrap();
        if muxer.send(id, &[0; QUEUED_BYTES_PER_CONNECTION_MAX]).is_err() {
            break id;
        }
        ids.push(id);
    };
    assert!(ids.len() < CONNECTIONS_PER_VM_MAX / 2, "few of them have all that is shared");
    let (last, _) = muxer.connect(9, Credit::Automatic).unwrap();
    muxer.send_some(last, &[0; QUEUED_BYTES_PER_CONNECTION_MAX]).unwrap();
    assert_eq!(muxer.shared_bytes, QUEUED_BYTES_SHARED_MAX);
    for id in &ids {
        muxer.reset(*id);
    }
    assert!(events(&mut muxer).contains(&Event::Writable(refused)));
    muxer.send(refused, &[0; QUEUED_BYTES_PER_CONNECTION_MAX]).unwrap();
}

#[test]
fn unread_connections_leave_each_other_one_its_own_bytes() {
    let mut muxer = Muxer::new(CID);
    let reader = open(&mut muxer, Credit::Automatic);
    while muxer.shared_bytes < QUEUED_BYTES_SHARED_MAX {
        let (id, _) = muxer.connect(9, Credit::Automatic).unwrap();
        muxer.send_some(id, &[0; QUEUED_BYTES_PER_CONNECTION_MAX]).unwrap();
    }
    packets(&mut muxer);
    let answer = [1; 3 * QUEUED_BYTES_OWN];
    let (mut sent, mut read) = (0, 0);
    // The guest reads this connection: each read makes room again.
    while sent < answer.len() {
        let count = muxer.send_some(reader, &answer[sent..]).unwrap();
        assert_eq!(count, QUEUED_BYTES_OWN);
        assert_eq!(muxer.send_some(reader, &answer), Err(SendError::Full));
        sent += count;
        read += packets(&mut muxer).iter().map(|(_, payload)| payload.len()).sum::<usize>();
        assert_eq!((read, events(&mut muxer)), (sent, vec![Event::Writable(reader)]));
    }
}

#[test]
fn a_sender_of_some_bytes_is_told_of_room_for_the_rest() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    let bytes = [0; QUEUED_BYTES_PER_CONNECTION_MAX + 1];
    assert_eq!(muxer.send_some(id, &bytes[1..]), Ok(QUEUED_BYTES_PER_CONNECTION_MAX));
    for fwd_cnt in (1..=4).map(|times| times * 65536) {
        packets(&mut muxer);
        muxer.receive(&Header { fwd_cnt, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    }
    assert_eq!(events(&mut muxer), [], "nothing is left");
    assert_eq!(muxer.send_some(id, &bytes), Ok(QUEUED_BYTES_PER_CONNECTION_MAX));
    packets(&mut muxer);
    assert_eq!(events(&mut muxer), [], "a quarter is free");
    muxer.receive(&Header { fwd_cnt: 5 * 65536, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    packets(&mut muxer);
    assert_eq!(events(&mut muxer), [Event::Writable(id)]);
}

#[test]
fn a_connection_refused_for_its_own_queue_waits_for_shared_bytes_that_others_use() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.send(id, &[0; QUEUED_BYTES_PER_CONNECTION_MAX]).unwrap();
    let wanted = QUEUED_BYTES_PER_CONNECTION_MAX / 2;
    assert_eq!(muxer.send(id, &vec![0; wanted]), Err(SendError::Full));
    // Others take the freed bytes at once.
    let mut others = Vec::new();
    for fwd_cnt in (1..=4).map(|times| times * 65536) {
        packets(&mut muxer);
        while muxer.shared_bytes < QUEUED_BYTES_SHARED_MAX {
            let (other, _) = muxer.connect(9, Credit::Automatic).unwrap();
            muxer.send_some(other, &[0; QUEUED_BYTES_PER_CONNECTION_MAX]).unwrap();
            others.push(other);
        }
        muxer.receive(&Header { fwd_cnt, ..packet(Operation::CREDIT_UPDATE) }).unwrap();
    }
    packets(&mut muxer);
    assert!(!events(&mut muxer).contains(&Event::Writable(id)));
    others.into_iter().for_each(|other| muxer.reset(other));
    assert!(events(&mut muxer).contains(&Event::Writable(id)));
    muxer.send(id, &vec![0; wanted]).unwrap();
}

#[test]
fn a_reset_of_the_guest_is_not_answered_and_its_ports_can_be_used_again() {
    let mut muxer = Muxer::new(CID);
    let first = open(&mut muxer, Credit::Automatic);
    muxer.receive(&packet(Operation::RST)).unwrap();
    assert_eq!(events(&mut muxer), [Event::Closed(first, CloseReason::ResetByGuest)]);
    assert!(!muxer.has_packet());
    let second = open(&mut muxer, Credit::Automatic);
    assert_ne!(first, second);
    assert_eq!(muxer.send(first, b"x"), Err(SendError::Closed));
    muxer.reset(first);
    assert_eq!(muxer.state(second), Some(State::Open));
}

#[test]
fn a_reset_of_the_host_closes_once_and_late_packets_get_rst() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.send(id, b"lost").unwrap();
    muxer.reset(id);
    muxer.reset(id);
    assert_eq!(events(&mut muxer), [Event::Closed(id, CloseReason::ResetByHost)]);
    assert_eq!(muxer.receive(&Header { len: 5, ..packet(Operation::RW) }), Err(Violation::NoSuchConnection));
    assert_eq!(operations(&mut muxer), [Operation::RST]);
}

#[test]
fn strangers_are_dropped_or_reset() {
    let mut muxer = Muxer::new(CID);
    let spoofed = Header { src_cid: CID + 1, ..packet(Operation::REQUEST) };
    assert_eq!(muxer.receive(&spoofed), Err(Violation::SourceCid));
    assert!(!muxer.has_packet());
    let elsewhere = Header { dst_cid: 3, ..packet(Operation::REQUEST) };
    assert_eq!(muxer.receive(&elsewhere), Err(Violation::DestinationCid));
    let seqpacket = Header { socket_type: 2, ..packet(Operation::REQUEST) };
    assert_eq!(muxer.receive(&seqpacket), Err(Violation::SocketType));
    let answers = packets(&mut muxer);
    assert_eq!((answers[0].0.src_cid, answers[1].0.socket_type), (3, 2));
    open(&mut muxer, Credit::Automatic);
    assert_eq!(muxer.receive(&packet(Operation(99))), Err(Violation::Operation));
    assert_eq!(operations(&mut muxer), [Operation::RST]);
    events(&mut muxer);
    open(&mut muxer, Credit::Automatic);
    assert_eq!(muxer.receive(&packet(Operation::REQUEST)), Err(Violation::PortsInUse));
}

#[test]
fn the_connection_table_is_bounded_and_rows_are_reused() {
    let mut muxer = Muxer::new(CID);
    for round in 0..3 {
        for peer in 0..CONNECTIONS_PER_VM_MAX as u32 {
            muxer.receive(&Header { src_port: peer, ..packet(Operation::REQUEST) }).unwrap();
        }
        let over = Header { src_port: u32::MAX, ..packet(Operation::REQUEST) };
        assert_eq!(muxer.receive(&over), Err(Violation::TooManyConnections), "round {round}");
        assert_eq!(muxer.connect(1, Credit::Automatic), Err(TooManyConnections));
        muxer.close_all(CloseReason::GuestRestarted);
        assert_eq!(muxer.connections(), 0);
        events(&mut muxer);
    }
    assert_eq!(muxer.rows.len(), CONNECTIONS_PER_VM_MAX);
}

#[test]
fn a_guest_without_buffers_cannot_grow_the_muxers_lists() {
    let mut muxer = Muxer::new(CID);
    open(&mut muxer, Credit::Automatic);
    muxer.receive(&packet(Operation::CREDIT_REQUEST)).unwrap();
    for peer in 0..10_000 {
        let port = Header { src_port: peer + 6000, ..packet(Operation::REQUEST) };
        muxer.receive(&port).unwrap();
        let Some(Event::Offered(id, _)) = events(&mut muxer).pop() else { panic!() };
        muxer.decide(id, Some(Credit::Automatic));
        muxer.send(id, &[0; 10]).unwrap();
        muxer.receive(&Header { operation: Operation::RST, ..port }).unwrap();
        let _ = muxer.receive(&Header { operation: Operation::RW, ..port });
    }
    assert!(muxer.ready.len() <= 2);
    assert!(muxer.resets.len() <= RESETS_QUEUED_MAX);
    assert_eq!((muxer.rows.len(), muxer.queued_bytes()), (2, 0));
}

#[test]
fn connections_take_turns() {
    let mut muxer = Muxer::new(CID);
    let mut ids = Vec::new();
    for peer in [1, 2] {
        muxer.receive(&Header { src_port: peer, ..packet(Operation::REQUEST) }).unwrap();
        let Some(Event::Offered(id, _)) = events(&mut muxer).pop() else { panic!() };
        muxer.decide(id, Some(Credit::Automatic));
        ids.push(id);
    }
    packets(&mut muxer);
    for id in ids {
        muxer.send(id, &[0; 3 * 4096]).unwrap();
    }
    let order: Vec<u32> = packets(&mut muxer).iter().map(|(header, _)| header.dst_port).collect();
    assert_eq!(order, [1, 2, 1, 2, 1, 2]);
}

#[test]
fn a_disowned_connection_is_reset_before_any_other_packet() {
    let mut muxer = Muxer::new(CID);
    let ports = Ports { peer: 7, local: FIRST_LOCAL_PORT };
    muxer.reset_ports(ports);
    let (_, fresh) = muxer.connect(7, Credit::Automatic).unwrap();
    assert_ne!(fresh, ports, "the guest would confuse the two");
    let sent: Vec<_> =
        packets(&mut muxer).iter().map(|(header, _)| (header.operation, header.src_port)).collect();
    assert_eq!(sent, [(Operation::RST, ports.local), (Operation::REQUEST, fresh.local)]);
    let mut changes = Vec::new();
    muxer.take_changes(&mut changes);
    assert_eq!(changes, [Change::Known(fresh), Change::Gone(ports)]);
}

#[test]
fn a_guest_of_a_parting_device_reads_all_and_sees_the_end() {
    let mut muxer = Muxer::new(CID);
    let id = open(&mut muxer, Credit::Automatic);
    muxer.take_changes(&mut Vec::new());
    muxer.part(CloseReason::Disconnected);
    assert_eq!(events(&mut muxer), [Event::Closed(id, CloseReason::Disconnected)]);
    let sent = packets(&mut muxer);
    let [(header, _)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((header.operation, header.flags), (Operation::SHUTDOWN, SHUTDOWN_RECEIVE | SHUTDOWN_SEND));
    let mut changes = Vec::new();
    muxer.take_changes(&mut changes);
    assert!(matches!(changes[..], [Change::Gone(_)]), "{changes:?}");
}
