//! The muxer against random guests: a hostile one, and one that conforms.

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::limits::{PEER_WINDOW_BYTES_MAX, QUEUED_BYTES_PER_VM_MAX};

/// One step of a hostile guest and a busy daemon.
#[derive(Clone, Debug)]
enum Step {
    Packet {
        operation: u16,
        peer: u32,
        local: u32,
        len: u32,
        flags: u32,
        buf_alloc: u32,
        fwd_cnt: u32,
        invalid_field: u8,
    },
    Decide(bool, bool),
    Connect(u32),
    Send(usize, usize),
    Finish(usize),
    Reset(usize),
    Consumed(usize, u32),
    Drain(usize),
    Restart,
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..10u32, 0..100_000u32, any::<u32>(), (0..10u32).prop_map(|n| u32::MAX - n)]
}

fn step() -> impl Strategy<Value = Step> {
    let local = prop_oneof![10..12u32, (0..3u32).prop_map(|n| FIRST_LOCAL_PORT + n)];
    let chunk = (0..9u16, 1..4u32, local, number(), 0..5u32, number(), number(), any::<u8>());
    prop_oneof![
        12 => chunk.prop_map(|(operation, peer, local, len, flags, buf_alloc, fwd_cnt, invalid_field)| {
            Step::Packet { operation, peer, local, len, flags, buf_alloc, fwd_cnt, invalid_field }
        }),
        4 => any::<(bool, bool)>().prop_map(|(yes, manual)| Step::Decide(yes, manual)),
        1 => (1..4u32).prop_map(Step::Connect),
        6 => (any::<usize>(), 0..300_000usize).prop_map(|(index, len)| Step::Send(index, len)),
        1 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::Reset),
        2 => (any::<usize>(), number()).prop_map(|(index, len)| Step::Consumed(index, len)),
        4 => (1..9000usize).prop_map(Step::Drain),
        1 => Just(Step::Restart),
    ]
}

/// The test's own model of connections and credit, independent of the muxer's.
#[derive(Default)]
struct Model {
    offered: VecDeque<ConnectionId>,
    /// Connections with an endpoint in the daemon.
    alive: Vec<ConnectionId>,
    closed: HashSet<ConnectionId>,
    /// By ports: bytes sent, bytes that the guest reported as taken, its buffer size.
    credit: HashMap<Ports, (u32, u32, u32)>,
}

impl Model {
    fn take_events(&mut self, muxer: &mut Muxer) {
        for event in events(muxer) {
            let id = match event {
                Event::Offered(id, _) => {
                    self.offered.push_back(id);
                    self.alive.push(id);
                    id
                }
                Event::Connected(id)
                | Event::Received(id)
                | Event::PeerFinished(id)
                | Event::Writable(id) => id,
                Event::Closed(id, _) => {
                    self.alive.retain(|other| *other != id);
                    assert!(self.closed.insert(id), "closed twice");
                    continue;
                }
            };
            assert!(!self.closed.contains(&id), "{event:?} after closed");
        }
    }

    fn learn(&mut self, header: &Header) {
        let ports = Ports { peer: header.src_port, local: header.dst_port };
        if header.operation == Operation::REQUEST {
            self.credit.insert(ports, (0, 0, 0));
        }
        if let Some((sent, taken, room)) = self.credit.get_mut(&ports)
            && header.fwd_cnt.wrapping_sub(*taken) <= sent.wrapping_sub(*taken)
        {
            (*taken, *room) = (header.fwd_cnt, header.buf_alloc.min(PEER_WINDOW_BYTES_MAX));
        }
    }

    fn check_packet(&mut self, header: &Header) {
        let ports = Ports { peer: header.dst_port, local: header.src_port };
        match header.operation {
            Operation::REQUEST => {
                self.credit.insert(ports, (0, 0, 0));
            }
            Operation::RW => {
                let (sent, taken, room) = self.credit.get_mut(&ports).expect("payload on a known connection");
                *sent = sent.wrapping_add(header.len);
                assert!(sent.wrapping_sub(*taken) <= *room, "more in flight than credit");
            }
            _ => assert_eq!(header.len, 0),
        }
    }
}

fn pick(ids: &[ConnectionId], index: usize) -> Option<ConnectionId> {
    if ids.is_empty() { None } else { Some(ids[index % ids.len()]) }
}

fn drain(muxer: &mut Muxer, model: &mut Model, room: usize) {
    let mut count = 0;
    while muxer.has_packet() {
        let mut payload = Vec::new();
        let header = muxer.next_packet(room, &mut payload).expect("has_packet said so");
        assert_eq!(header.len as usize, payload.len());
        assert!(payload.len() <= room);
        model.check_packet(&header);
        count += 1;
        assert!(count < 1_000_000, "endless packets");
    }
}

fn take_step(muxer: &mut Muxer, model: &mut Model, step: &Step) {
    match *step {
        Step::Packet { operation, peer, local, len, flags, buf_alloc, fwd_cnt, invalid_field } => {
            let header = Header {
                src_cid: if invalid_field == 1 { 7 } else { CID },
                dst_cid: if invalid_field == 2 { 7 } else { HOST_CID },
                socket_type: if invalid_field == 3 { 2 } else { TYPE_STREAM },
                src_port: peer,
                dst_port: local,
                operation: Operation(operation),
                len,
                flags,
                buf_alloc,
                fwd_cnt,
            };
            if header.operation == Operation::RST {
                drain(muxer, model, 4096);
                let _ = muxer.receive(&header);
                assert!(!muxer.has_packet(), "RST was answered");
            } else if muxer.receive(&header).is_ok() {
                model.learn(&header);
            }
        }
        Step::Decide(yes, manual) => {
            if let Some(id) = model.offered.pop_front() {
                let credit = if manual { Credit::Manual } else { Credit::Automatic };
                muxer.decide(id, yes.then_some(credit));
                if !yes {
                    model.alive.retain(|other| *other != id);
                    model.closed.insert(id);
                }
            }
        }
        Step::Connect(port) => {
            if let Ok((id, _)) = muxer.connect(port, Credit::Automatic) {
                model.alive.push(id);
            }
        }
        Step::Send(index, len) => {
            if let Some(id) = pick(&model.alive, index) {
                let _ = muxer.send(id, &vec![0; len]);
            }
        }
        Step::Finish(index) => pick(&model.alive, index).into_iter().for_each(|id| muxer.finish(id)),
        Step::Reset(index) => pick(&model.alive, index).into_iter().for_each(|id| muxer.reset(id)),
        Step::Consumed(index, len) => {
            pick(&model.alive, index).into_iter().for_each(|id| muxer.consumed(id, len));
        }
        Step::Drain(room) => drain(muxer, model, room),
        Step::Restart => muxer.close_all(CloseReason::GuestRestarted),
    }
}

fn check_limits(muxer: &Muxer) {
    let queued: usize =
        muxer.rows.iter().filter_map(|row| row.flow.as_ref()).map(|flow| flow.outgoing.len()).sum();
    assert_eq!(queued, muxer.queued_bytes());
    assert!(queued <= QUEUED_BYTES_PER_VM_MAX);
    let flows = || muxer.rows.iter().filter_map(|row| row.flow.as_ref());
    assert_eq!(flows().map(|flow| beyond_own(flow.outgoing.len())).sum::<usize>(), muxer.shared_bytes);
    assert!(muxer.shared_bytes <= QUEUED_BYTES_SHARED_MAX);
    assert_eq!(flows().filter(|flow| flow.starves).count(), muxer.starved.len());
    assert!(muxer.resets.len() <= RESETS_QUEUED_MAX);
    assert!(muxer.ready.len() <= muxer.connections());
    assert!(muxer.starved.len() <= muxer.connections());
    assert_eq!(muxer.rows.len(), muxer.connections() + muxer.free_rows.len());
    for flow in muxer.rows.iter().filter_map(|row| row.flow.as_ref()) {
        assert!(flow.outgoing.len() <= QUEUED_BYTES_PER_CONNECTION_MAX);
        assert!(!flow.is_spent(), "a spent connection stayed");
    }
}

/// Every connection that the guest may have is reported as a change, so that it can be reset if this process is killed.
fn check_known(muxer: &mut Muxer, known: &mut HashSet<Ports>) {
    let mut changes = Vec::new();
    muxer.take_changes(&mut changes);
    for change in changes {
        match change {
            Change::Known(ports) => known.insert(ports),
            Change::Gone(ports) => known.remove(&ports),
        };
    }
    for flow in muxer.rows.iter().filter_map(|row| row.flow.as_ref()) {
        assert!(flow.state == State::Offered || known.contains(&flow.ports), "{:?} is not known", flow.ports);
    }
    let to_be_reset = muxer.resets.iter().map(ports_of).collect::<HashSet<_>>();
    for ports in &*known {
        assert!(muxer.by_ports.contains_key(ports) || to_be_reset.contains(ports), "{ports:?} is gone");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_guest_breaks_a_limit_a_rule_or_the_muxer(steps in proptest::collection::vec(step(), 1..200)) {
        let mut muxer = Muxer::new(CID);
        let mut model = Model::default();
        let mut known = HashSet::new();
        for step in &steps {
            take_step(&mut muxer, &mut model, step);
            model.take_events(&mut muxer);
            check_limits(&muxer);
            check_known(&mut muxer, &mut known);
        }
        drain(&mut muxer, &mut model, 4096);
        muxer.close_all(CloseReason::Disconnected);
        model.take_events(&mut muxer);
        prop_assert!(model.alive.is_empty(), "an endpoint was never closed");
        prop_assert_eq!(muxer.queued_bytes(), 0);
    }
}

/// One step of a conforming guest, and of a daemon that sends its own bytes.
#[derive(Clone, Copy, Debug)]
enum Fair {
    HostSends(usize),
    GuestSends(u32),
    GuestTakes(u32),
    HostConsumes(u32),
    Drain(usize),
}

fn fair() -> impl Strategy<Value = Fair> {
    prop_oneof![
        (1..50_000usize).prop_map(Fair::HostSends),
        (1..65_536u32).prop_map(Fair::GuestSends),
        (1..50_000u32).prop_map(Fair::GuestTakes),
        (1..200_000u32).prop_map(Fair::HostConsumes),
        (1..5000usize).prop_map(Fair::Drain),
    ]
}

/// The guest's side of one connection, conforming to the protocol.
struct FairGuest {
    buf_alloc: u32,
    rx: u32,
    consumed: u32,
    tx: u32,
    peer_fwd: u32,
    peer_alloc: u32,
    received: Vec<u8>,
    has_end: bool,
}

impl FairGuest {
    fn receive(&mut self, muxer: &mut Muxer, room: usize) {
        while muxer.has_packet() {
            let mut payload = Vec::new();
            let header = muxer.next_packet(room, &mut payload).unwrap();
            (self.peer_fwd, self.peer_alloc) = (header.fwd_cnt, header.buf_alloc);
            self.rx = self.rx.wrapping_add(header.len);
            assert!(self.rx.wrapping_sub(self.consumed) <= self.buf_alloc, "the guest's buffer overflowed");
            assert!(!self.has_end || payload.is_empty(), "payload after SHUTDOWN");
            self.received.extend(payload);
            self.has_end |= header.operation == Operation::SHUTDOWN;
        }
    }

    fn packet(&self, operation: Operation, len: u32) -> Header {
        Header { len, buf_alloc: self.buf_alloc, fwd_cnt: self.consumed, ..packet(operation) }
    }

    fn room(&self) -> u32 {
        self.peer_alloc - self.tx.wrapping_sub(self.peer_fwd)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_fair_guest_gets_every_byte_in_order_and_is_never_punished(
        steps in proptest::collection::vec(fair(), 1..150),
        buf_alloc in 1..300_000u32,
        start in prop_oneof![Just(0u32), (0..100_000u32).prop_map(|n| u32::MAX - n)],
        manual in any::<bool>(),
    ) {
        let mut muxer = Muxer::new(CID);
        muxer.receive(&Header { buf_alloc, ..packet(Operation::REQUEST) }).unwrap();
        let [Event::Offered(id, _)] = events(&mut muxer)[..] else { panic!() };
        muxer.decide(id, Some(if manual { Credit::Manual } else { Credit::Automatic }));
        muxer.flow(id).unwrap().wind_counters(start, start);
        let mut guest = FairGuest {
            buf_alloc, rx: start, consumed: start, tx: start, peer_fwd: start, peer_alloc: 0,
            received: Vec::new(), has_end: false,
        };
        guest.receive(&mut muxer, 4096);
        let mut sent: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                Fair::HostSends(len) => {
                    let bytes: Vec<u8> = (0..len).map(|n| (sent.len() + n) as u8).collect();
                    if muxer.send(id, &bytes).is_ok() {
                        sent.extend(bytes);
                    }
                }
                Fair::GuestSends(len) => {
                    let len = len.min(guest.room());
                    prop_assert_eq!(muxer.receive(&guest.packet(Operation::RW, len)), Ok(()));
                    guest.tx = guest.tx.wrapping_add(len);
                }
                Fair::GuestTakes(len) => {
                    guest.consumed = guest.consumed.wrapping_add(len.min(guest.rx.wrapping_sub(guest.consumed)));
                    prop_assert_eq!(muxer.receive(&guest.packet(Operation::CREDIT_UPDATE, 0)), Ok(()));
                }
                Fair::HostConsumes(len) => muxer.consumed(id, len),
                Fair::Drain(room) => guest.receive(&mut muxer, room),
            }
        }
        muxer.finish(id);
        while !guest.has_end {
            guest.receive(&mut muxer, 4096);
            guest.consumed = guest.rx;
            prop_assert_eq!(muxer.receive(&guest.packet(Operation::CREDIT_UPDATE, 0)), Ok(()));
        }
        prop_assert!(guest.received == sent, "bytes lost or out of order");
        // All is consumed: the guest has credit for most of the window, and a stall is impossible.
        muxer.consumed(id, u32::MAX);
        guest.receive(&mut muxer, 4096);
        prop_assert!(guest.room() > WINDOW_BYTES / 2);
    }
}
