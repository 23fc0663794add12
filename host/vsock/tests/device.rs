//! The device through its rings, as a guest sees it, and through its API, as the daemon does.

mod services;

use front_end::{CID, FREE_AREA, GuestVm, is_readable};
use services::{ABORT, ABORT_IN_ACCEPT, ECHO, Event, GATHER, HOARD, PUT_OFF, RECORD, REFUSED, Rig, STUCK};
use std::time::Duration;
use vsock_device::limits::{QUEUED_BYTES_PER_CONNECTION_MAX, WINDOW_BYTES};
use vsock_device::packet::{Header, Operation, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};
use vsock_device::{CloseReason, ConnectError, SendError};

fn shutdown(guest: &mut GuestVm, peer: u32, local: u32, flags: u32) {
    let mut header = guest.header(Operation::SHUTDOWN, peer, local);
    header.flags = flags;
    guest.send(header, &[]);
}

#[test]
fn configuration_space_is_the_cid() {
    let rig = Rig::new();
    assert_eq!(GuestVm::boot(&rig.socket).config(), CID);
}

#[test]
fn bytes_are_echoed_with_and_without_event_index() {
    for features in [front_end::FEATURES, front_end::FEATURES & !(1 << 29), 1 << 32] {
        let rig = Rig::new();
        let mut guest = GuestVm::boot_with(&rig.socket, features, 0);
        guest.connect(1000, ECHO);
        for round in 0..1000u32 {
            guest.send_payload(1000, ECHO, &round.to_le_bytes());
            let (header, payload) = guest.receive();
            assert_eq!((header.operation, &payload[..]), (Operation::RW, &round.to_le_bytes()[..]));
        }
    }
}

#[test]
fn a_large_payload_comes_back_in_order_in_small_buffers() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1000, ECHO);
    let payload: Vec<u8> = (0..65536u32).map(|n| (n * 7 / 3) as u8).collect();
    guest.send_payload(1000, ECHO, &payload);
    let mut received = Vec::new();
    while received.len() < payload.len() {
        let (header, part) = guest.receive();
        if header.operation == Operation::RW {
            received.extend(part);
        }
    }
    assert_eq!(received, payload);
}

#[test]
fn a_port_without_service_is_refused() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.send(guest.header(Operation::REQUEST, 1000, REFUSED), &[]);
    assert_eq!(guest.receive_operation(), Operation::RST);
    assert_eq!(rig.device.stats().connections, 0);
}

#[test]
fn idle_follows_the_last_packet_of_a_kick() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1000, GATHER);
    for _ in 0..20 {
        guest.post(guest.header(Operation::RW, 1000, GATHER), b"abc");
    }
    guest.tx.kick_if_wanted();
    assert_eq!(guest.receive().1.len(), 60);
}

#[test]
fn the_host_connects_to_the_guest() {
    let rig = Rig::new();
    assert_eq!(rig.device.connect(7, rig.note(7)).unwrap_err(), ConnectError::NotAttached);
    let mut guest = GuestVm::boot(&rig.socket);
    guest.config();
    let connection = rig.device.connect(7, rig.note(7)).unwrap();
    connection.send(b"hello").unwrap();
    let (request, _) = guest.receive();
    assert_eq!((request.operation, request.dst_port), (Operation::REQUEST, 7));
    guest.send(guest.header(Operation::RESPONSE, 7, request.src_port), &[]);
    assert_eq!(guest.receive().1, b"hello");
    assert!(matches!(rig.next(), Event::Connected(7)));
    guest.send_payload(7, request.src_port, b"welcome");
    assert!(matches!(rig.next(), Event::Received(7, bytes) if bytes == b"welcome"));
    rig.device.connect(8, rig.note(8)).unwrap();
    let (request, _) = guest.receive();
    guest.send(guest.header(Operation::RST, 8, request.src_port), &[]);
    rig.assert_closed(8, CloseReason::Refused);
}

#[test]
fn both_halves_close_in_order() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1000, ECHO);
    rig.accepted();
    guest.send_payload(1000, ECHO, b"last words");
    shutdown(&mut guest, 1000, ECHO, SHUTDOWN_SEND);
    assert_eq!(guest.receive().1, b"last words");
    assert_eq!(guest.receive_operation(), Operation::SHUTDOWN);
    assert_eq!(guest.receive_operation(), Operation::RST);
    assert!(matches!(rig.next(), Event::PeerFinished(1000)));
    rig.assert_closed(1000, CloseReason::Finished);

    guest.connect(1000, RECORD);
    let connection = rig.accepted();
    connection.send(b"mine").unwrap();
    connection.finish();
    assert_eq!(connection.send(b"more"), Err(SendError::Closed));
    assert_eq!(guest.receive().1, b"mine");
    let (end, _) = guest.receive();
    assert_eq!((end.operation, end.flags), (Operation::SHUTDOWN, SHUTDOWN_SEND));
    guest.send_payload(1000, RECORD, b"yours");
    assert!(matches!(rig.next(), Event::Received(1000, bytes) if bytes == b"yours"));
    shutdown(&mut guest, 1000, RECORD, SHUTDOWN_SEND | SHUTDOWN_RECEIVE);
    assert_eq!(guest.receive_operation(), Operation::RST);
}

#[test]
fn resets_work_from_every_side() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    let connection = rig.accepted();
    guest.send(guest.header(Operation::RST, 1, RECORD), &[]);
    rig.assert_closed(1, CloseReason::ResetByGuest);
    assert_eq!(connection.send(b"late"), Err(SendError::Closed));

    guest.connect(1, RECORD);
    rig.accepted().reset();
    rig.assert_closed(1, CloseReason::ResetByHost);
    assert_eq!(guest.receive_operation(), Operation::RST);

    guest.connect(1, ABORT);
    rig.accepted();
    guest.send_payload(1, ABORT, b"x");
    rig.assert_closed(1, CloseReason::ResetByHost);
    assert_eq!(guest.receive_operation(), Operation::RST);

    guest.send(guest.header(Operation::REQUEST, 1, ABORT_IN_ACCEPT), &[]);
    rig.accepted();
    rig.assert_closed(1, CloseReason::ResetByHost);
    assert_eq!(guest.receive_operation(), Operation::RST);
    assert_eq!(rig.device.stats().connections, 0);
}

#[test]
fn a_guest_without_credit_delays_no_other_connection_and_resumes() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.buf_alloc = 10_000;
    guest.connect(1, RECORD);
    let connection = rig.accepted();
    connection.send(&[1; 50_000]).unwrap();
    let mut received: usize = (0..3).map(|_| guest.receive().1.len()).sum();
    assert_eq!(received, 10_000);
    connection.send(&vec![1; QUEUED_BYTES_PER_CONNECTION_MAX - 40_000]).unwrap();
    assert_eq!(connection.send(&[1]), Err(SendError::Full));
    // Another connection is not delayed.
    guest.connect(2, ECHO);
    rig.accepted();
    while received < 10_000 + QUEUED_BYTES_PER_CONNECTION_MAX {
        let mut update = guest.header(Operation::CREDIT_UPDATE, 1, RECORD);
        update.fwd_cnt = received as u32;
        guest.send(update, &[]);
        let target = (received + 10_000).min(10_000 + QUEUED_BYTES_PER_CONNECTION_MAX);
        while received < target {
            received += guest.receive().1.len();
        }
    }
    assert!(matches!(rig.next(), Event::Writable(1)));
}

#[test]
fn a_guest_without_buffers_gets_queued_bytes_when_it_offers_some() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    let connection = rig.accepted();
    for n in 0..200u32 {
        connection.send(&n.to_le_bytes()).unwrap();
        connection.send(&n.to_le_bytes()).unwrap();
    }
    let mut received = Vec::new();
    for _ in 0..front_end::queue::QUEUE_SIZE {
        received.extend(guest.receive_and_keep_buffer().1);
    }
    assert!(received.len() < 1600);
    guest.offer_buffers(front_end::queue::QUEUE_SIZE);
    while received.len() < 1600 {
        received.extend(guest.receive().1);
    }
    let expected: Vec<u8> = (0..200u32).flat_map(|n| [n.to_le_bytes(), n.to_le_bytes()].concat()).collect();
    assert_eq!(received, expected);
}

#[test]
fn manual_credit_stops_the_guest_until_bytes_are_consumed() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, HOARD);
    let connection = rig.accepted();
    for _ in 0..4 {
        guest.send_payload(1, HOARD, &vec![0; WINDOW_BYTES as usize / 4]);
        assert!(matches!(rig.next(), Event::Received(1, _)));
    }
    connection.consumed(WINDOW_BYTES / 2);
    let (update, _) = guest.receive();
    assert_eq!((update.operation, update.fwd_cnt), (Operation::CREDIT_UPDATE, WINDOW_BYTES / 2));
    for _ in 0..2 {
        guest.send_payload(1, HOARD, &vec![0; WINDOW_BYTES as usize / 4]);
        assert!(matches!(rig.next(), Event::Received(1, _)));
    }
    guest.send_payload(1, HOARD, b"too much");
    rig.assert_closed(1, CloseReason::ProtocolViolation);
    assert_eq!(guest.receive_operation(), Operation::RST);
}

#[test]
fn a_thousand_connections_work_at_once() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    for peer in 0..1000 {
        guest.connect(2000 + peer, ECHO);
    }
    assert_eq!(rig.device.stats().connections, 1000);
    for peer in 0..1000u32 {
        guest.send_payload(2000 + peer, ECHO, &peer.to_le_bytes());
        let (header, payload) = guest.receive();
        assert_eq!((header.dst_port, &payload[..]), (2000 + peer, &peer.to_le_bytes()[..]));
    }
    for peer in 0..1000 {
        shutdown(&mut guest, 2000 + peer, ECHO, SHUTDOWN_SEND | SHUTDOWN_RECEIVE);
        assert_eq!(guest.receive_operation(), Operation::RST);
    }
    assert_eq!(rig.device.stats().connections, 0);
}

#[test]
fn guest_memory_is_stored_to_by_guest_address() {
    let rig = Rig::new();
    assert!(rig.device.memory().is_none());
    let guest = GuestVm::boot(&rig.socket);
    let Event::Memory(memory) = rig.events.recv_timeout(front_end::PATIENCE).unwrap() else { panic!() };
    memory.check(FREE_AREA, 4096).unwrap();
    memory.store_u64(FREE_AREA + 8, 0x1122_3344_5566_7788).unwrap();
    let stored: u64 =
        vm_memory::Bytes::read_obj(&guest.memory, vm_memory::GuestAddress(FREE_AREA + 8)).unwrap();
    assert_eq!(stored, 0x1122_3344_5566_7788);
    assert!(memory.store_u64(0, 1).is_err());
    assert!(rig.device.memory().is_some());
    drop(guest);
    assert!(matches!(rig.next(), Event::Disconnected));
    assert!(memory.store_u64(FREE_AREA + 8, 1).is_err());
    assert!(rig.device.memory().is_none());
}

#[test]
fn two_vms_that_send_into_each_other_do_not_deadlock() {
    let (left, right) = (Rig::with_cid(CID), Rig::with_cid(CID));
    let mut guests = [GuestVm::boot(&left.socket), GuestVm::boot(&right.socket)];
    // Guest port 1 receives what the other guest sends on its port 2.
    for guest in &mut guests {
        guest.connect(1, RECORD);
    }
    left.daemon.relays.lock().unwrap().insert(2, right.accepted());
    right.daemon.relays.lock().unwrap().insert(2, left.accepted());
    for guest in &mut guests {
        guest.connect(2, RECORD);
    }
    let senders = guests.map(|mut guest| {
        std::thread::spawn(move || {
            for round in 0..2000u32 {
                guest.send_payload(2, RECORD, &round.to_le_bytes());
            }
            let mut received = 0;
            while received < 8000 {
                received += guest.receive().1.len();
            }
        })
    });
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn many_threads_send_on_one_connection_without_losing_a_byte() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    let connection = rig.accepted();
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let connection = connection.clone();
            std::thread::spawn(move || (0..5000).for_each(|_| connection.send(b"12345678").unwrap()))
        })
        .collect();
    let (mut received, mut reported) = (Vec::new(), 0);
    while received.len() < 4 * 5000 * 8 {
        received.extend(guest.receive().1);
        if received.len() - reported > 50_000 {
            reported = received.len();
            let mut update = guest.header(Operation::CREDIT_UPDATE, 1, RECORD);
            update.fwd_cnt = reported as u32;
            guest.send(update, &[]);
        }
    }
    assert!(received.chunks(8).all(|chunk| chunk == b"12345678"));
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn a_guest_is_notified_of_taken_packets_in_batches_and_of_the_last_ones_soon() {
    let rig = Rig::new();
    // Without EVENT_IDX the guest requests every notification.
    let mut guest = GuestVm::boot_with(&rig.socket, front_end::FEATURES & !(1 << 29), 0);
    guest.connect(1, ECHO);
    let mut calls = 0;
    for round in 0..64u32 {
        guest.send_payload(1, ECHO, &round.to_le_bytes());
        guest.receive();
        calls += u32::from(guest.tx.call.read().is_ok());
    }
    // One for 16 packets; more only if a millisecond passed between two of them.
    assert!(calls < 64, "{calls} calls for 64 packets");
    let notified = is_readable(&guest.tx.call, Duration::from_secs(10)) || calls > 0;
    assert!(notified, "the guest was never notified");
    guest.send_payload(1, ECHO, b"the last one");
    guest.receive();
    assert!(
        is_readable(&guest.tx.call, Duration::from_secs(10)),
        "the guest was not notified of the last packet"
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "nothing is to happen for a while")]
fn a_device_at_rest_does_not_wake_up() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, ECHO);
    guest.send_payload(1, ECHO, b"x");
    guest.receive();
    // The device's last action is to notify the guest of taken packets.
    assert!(is_readable(&guest.tx.call, Duration::from_secs(10)));
    // Returns once the device is idle: the reply to a request follows all earlier work.
    guest.config();
    let before = rig.device.stats();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let after = rig.device.stats();
    // The request itself may be counted late.
    assert!(after.wakeups - before.wakeups <= 1, "{before:?} {after:?}");
}

#[test]
fn a_guest_that_adds_buffers_as_fast_as_they_are_filled_keeps_no_sender() {
    let rig = Rig::new();
    // Without EVENT_IDX, for whose fields the endless ring has no room: each pass over the ring calls.
    let mut guest = GuestVm::boot_with(&rig.socket, front_end::FEATURES & !(1 << 29), 0);
    guest.buf_alloc = 1 << 20;
    guest.connect(1000, RECORD);
    let connection = rig.accepted();
    guest.start_endless_receive_ring(1);
    let before = rig.device.stats();
    let bytes = vec![7; 100_000];
    connection.send(&bytes).unwrap();
    let deadline = std::time::Instant::now() + front_end::PATIENCE;
    while rig.device.stats().bytes_sent - before.bytes_sent < bytes.len() as u64 {
        assert!(std::time::Instant::now() < deadline, "the worker does not continue");
        std::thread::yield_now();
    }
    let after = rig.device.stats();
    let passes = after.signals - before.signals;
    let per_pass = (after.packets_sent - before.packets_sent).div_ceil(passes);
    assert!(per_pass <= u64::from(front_end::queue::QUEUE_SIZE) / 2 + 1, "{per_pass} buffers in a pass");
}

#[test]
fn endpoints_with_a_backlog_have_turns() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    for peer in [1, 2, 3] {
        guest.connect(peer, PUT_OFF);
        rig.accepted();
    }
    for (peer, bytes) in [(1, &[0; 4][..]), (2, &[0; 2]), (3, &[0; 1])] {
        guest.post(guest.header(Operation::RW, peer, PUT_OFF), bytes);
    }
    guest.tx.kick_if_wanted();
    let turns: Vec<u32> = (0..7)
        .map(|_| match rig.next() {
            Event::Turn(port) => port,
            other => panic!("no turn but {other:?}"),
        })
        .collect();
    assert_eq!(turns, [1, 2, 3, 1, 2, 1, 1]);
}

#[test]
fn an_endpoint_with_endless_turns_delays_no_other() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, PUT_OFF);
    guest.connect(2, PUT_OFF);
    guest.connect(3, ECHO);
    guest.send_payload(1, PUT_OFF, &[STUCK]);
    for round in 0..100u32 {
        guest.send_payload(3, ECHO, &round.to_le_bytes());
        assert_eq!(guest.receive().1, round.to_le_bytes());
    }
    guest.send_payload(2, PUT_OFF, &[0; 50]);
    let mut turns = 0;
    while turns < 50 {
        turns += usize::from(matches!(rig.next(), Event::Turn(2)));
    }
    // The device still answers QEMU.
    guest.send_memory_table();
}

#[test]
fn a_backlog_is_processed_before_an_endpoint_is_closed() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, PUT_OFF);
    rig.accepted();
    guest.post(guest.header(Operation::RW, 1, PUT_OFF), &[0; 3]);
    let flags = SHUTDOWN_SEND | SHUTDOWN_RECEIVE;
    guest.post(Header { flags, ..guest.header(Operation::SHUTDOWN, 1, PUT_OFF) }, &[]);
    guest.tx.kick_if_wanted();
    assert!(matches!(rig.next(), Event::PeerFinished(1)));
    for _ in 0..3 {
        assert!(matches!(rig.next(), Event::Turn(1)));
    }
    rig.assert_closed(1, CloseReason::Finished);
    assert_eq!(guest.receive_operation(), Operation::RST);
    // When the VM is gone, its backlog is dropped.
    guest.connect(2, PUT_OFF);
    rig.accepted();
    guest.send_payload(2, PUT_OFF, &[STUCK]);
    drop(guest);
    rig.assert_closed(2, CloseReason::Disconnected);
}
