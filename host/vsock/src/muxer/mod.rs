//! The virtio-vsock multiplexer as a plain value: no socket, no thread, no clock, no guest memory.
//!
//! Inputs are packets of the guest ([`Muxer::receive`]) and calls of the daemon ([`Muxer::send`] and others). Outputs
//! are packets for the guest ([`Muxer::next_packet`]) and [`Event`]s for the daemon ([`Muxer::take_events`]). The
//! packet format and the credit rules are explained in [`crate::packet`].
//!
//! ```text
//!   guest's REQUEST ──▶ Offered ──accept──▶ Open ◀──RESPONSE── Requested ◀── connect()
//!                          │                │  │                   │
//!                        refuse   SHUTDOWN(send) finish()          RST
//!                          │                │  │                   │
//!                          ▼                ▼  ▼                   ▼
//!                        (gone)  GuestFinished  HostFinished     (gone)
//!                                         │        │
//!                                   finish()     SHUTDOWN(send)
//!                                         ▼        ▼
//!                                       BothFinished ──all sent──▶ RST, (gone)
//!
//!   From every state: RST of the guest, reset(), a broken rule, SHUTDOWN(both) ──▶ (gone)
//! ```
//!
//! Invariants, all of them property-tested: `Closed` is the last event of each accepted or requested connection and
//! occurs exactly once; bytes in flight never exceed what the guest granted; an RST is never answered with RST; no
//! table or queue outgrows [`crate::limits`].

mod flow;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{HashMap, VecDeque};

pub use flow::{Ports, State};
pub use words::{Change, ConnectionId, Event, SendError, TooManyConnections, Totals, Violation};

use crate::limits::{
    CONNECTIONS_PER_VM_MAX, QUEUED_BYTES_OWN, QUEUED_BYTES_PER_CONNECTION_MAX, QUEUED_BYTES_SHARED_MAX,
    RESETS_QUEUED_MAX,
};
use crate::packet::{HOST_CID, Header, Operation, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, TYPE_STREAM};
use crate::services::{CloseReason, ConnectRequest, Credit};
use flow::Flow;

/// First local port for connections that the device opens.
const FIRST_LOCAL_PORT: u32 = 0x8000_0000;

#[derive(Debug, Default)]
struct Row {
    generation: u32,
    flow: Option<Flow>,
}

/// The virtio-vsock multiplexer of one guest.
#[derive(Debug)]
pub struct Muxer {
    guest_cid: u64,
    rows: Vec<Row>,
    free_rows: Vec<u32>,
    by_ports: HashMap<Ports, u32>,
    /// Connections with something to emit, served in turns, one packet each.
    ready: VecDeque<ConnectionId>,
    resets: VecDeque<Header>,
    /// RST or SHUTDOWN packets for connections that the guest has and this muxer has not. They are sent before anything
    /// else.
    closing_packets: VecDeque<Header>,
    /// Changes since [`Muxer::take_changes`].
    changes: Vec<Change>,
    events: Vec<Event>,
    queued_bytes: usize,
    /// Bytes that connections have queued beyond their own share.
    shared_bytes: usize,
    /// Connections that wait for shared room.
    starved: Vec<ConnectionId>,
    next_local_port: u32,
    totals: Totals,
}

impl Muxer {
    /// Creates a muxer without connections for the guest with this CID.
    pub fn new(guest_cid: u64) -> Self {
        Self {
            guest_cid,
            rows: Vec::new(),
            free_rows: Vec::new(),
            by_ports: HashMap::new(),
            ready: VecDeque::new(),
            resets: VecDeque::new(),
            closing_packets: VecDeque::new(),
            changes: Vec::new(),
            events: Vec::new(),
            queued_bytes: 0,
            shared_bytes: 0,
            starved: Vec::new(),
            next_local_port: FIRST_LOCAL_PORT,
            totals: Totals::default(),
        }
    }

    /// Handles a packet of the guest. Its `header.len` bytes of payload stay with the caller, who passes them to the
    /// endpoint on [`Event::Received`].
    pub fn receive(&mut self, header: &Header) -> Result<(), Violation> {
        self.totals.packets_received += 1;
        let outcome = self.route(header);
        if outcome.is_err() {
            self.totals.violations += 1;
        }
        outcome
    }

    fn route(&mut self, header: &Header) -> Result<(), Violation> {
        if header.src_cid != self.guest_cid {
            return Err(Violation::SourceCid);
        }
        if header.dst_cid != HOST_CID {
            return Err(self.refuse(header, Violation::DestinationCid));
        }
        if header.socket_type != TYPE_STREAM {
            return Err(self.refuse(header, Violation::SocketType));
        }
        let ports = Ports { peer: header.src_port, local: header.dst_port };
        match (self.find(ports), header.operation) {
            (None, Operation::RST) => Ok(()),
            (None, Operation::REQUEST) => self.offer(ports, header),
            (None, _) => Err(self.refuse(header, Violation::NoSuchConnection)),
            (Some(id), _) => self.advance(id, header).map_err(|violation| self.close_violator(id, violation)),
        }
    }

    fn offer(&mut self, ports: Ports, header: &Header) -> Result<(), Violation> {
        let mut flow = Flow::new(ports, State::Offered, Credit::Automatic);
        flow.learn_credit(header);
        match self.insert(flow) {
            Ok(id) => {
                let request = ConnectRequest { peer_port: ports.peer, local_port: ports.local };
                self.events.push(Event::Offered(id, request));
                Ok(())
            }
            Err(TooManyConnections) => Err(self.refuse(header, Violation::TooManyConnections)),
        }
    }

    /// Handles a packet for a connection in the table.
    fn advance(&mut self, id: ConnectionId, header: &Header) -> Result<(), Violation> {
        let Some(flow) = self.flow(id) else { return Ok(()) };
        match header.operation {
            Operation::RST => {
                let refused = flow.state == State::Requested;
                let reason = if refused { CloseReason::Refused } else { CloseReason::ResetByGuest };
                self.close(id, reason);
                return Ok(());
            }
            Operation::REQUEST => return Err(Violation::PortsInUse),
            Operation::RESPONSE if flow.state == State::Requested && flow.greeting.is_none() => {
                flow.open();
                flow.learn_credit(header);
                self.events.push(Event::Connected(id));
            }
            Operation::RESPONSE => return Err(Violation::State),
            Operation::RW => {
                if !flow.state.guest_may_send() {
                    return Err(Violation::State);
                }
                if header.len > flow.window_left() {
                    return Err(Violation::CreditOverrun);
                }
                flow.learn_credit(header);
                flow.note_received(header.len);
                if header.len > 0 {
                    self.totals.bytes_received += u64::from(header.len);
                    self.events.push(Event::Received(id));
                }
            }
            Operation::CREDIT_UPDATE | Operation::CREDIT_REQUEST | Operation::SHUTDOWN
                if !flow.state.is_established() =>
            {
                return Err(Violation::State);
            }
            Operation::CREDIT_UPDATE => flow.learn_credit(header),
            Operation::CREDIT_REQUEST => {
                flow.learn_credit(header);
                flow.owes_credit_update = true;
            }
            Operation::SHUTDOWN => {
                flow.learn_credit(header);
                self.shutdown(id, header.flags);
            }
            Operation(_) => return Err(Violation::Operation),
        }
        self.refresh(id);
        Ok(())
    }

    fn shutdown(&mut self, id: ConnectionId, flags: u32) {
        let Some(flow) = self.flow(id) else { return };
        let guest_finishes = flags & SHUTDOWN_SEND != 0 && flow.state != State::GuestFinished;
        let stops_receiving = flags & SHUTDOWN_RECEIVE != 0;
        let both_finished = flow.state == State::BothFinished;
        if guest_finishes && !both_finished {
            flow.state = match flow.state {
                State::HostFinished => State::BothFinished,
                _ => State::GuestFinished,
            };
            self.events.push(Event::PeerFinished(id));
        }
        if stops_receiving {
            self.peer_stops_receiving(id);
        }
        if self.flow(id).is_some_and(|flow| flow.is_spent()) {
            self.end(id, CloseReason::Finished);
        }
    }

    /// Handles a guest that reads no more: queued bytes are dropped, and a waiting sender is woken to see it.
    fn peer_stops_receiving(&mut self, id: ConnectionId) {
        let Some(flow) = self.flow(id) else { return };
        let dropped = flow.outgoing.len();
        flow.outgoing = VecDeque::new();
        flow.owes_shutdown = false;
        flow.state = match flow.state {
            State::GuestFinished | State::BothFinished => State::BothFinished,
            _ => State::HostFinished,
        };
        let waits = std::mem::take(&mut flow.refused_bytes) > 0;
        let starved = std::mem::take(&mut flow.starves);
        self.account(dropped, 0);
        if starved {
            self.starved.retain(|other| *other != id);
        }
        if waits {
            self.events.push(Event::Writable(id));
        }
        self.relieve_starved();
    }

    /// Answers an [`Event::Offered`]. Has no effect on a connection that is closed meanwhile.
    pub fn decide(&mut self, id: ConnectionId, accepted: Option<Credit>) {
        let Some(flow) = self.flow(id) else { return };
        if flow.state != State::Offered {
            return;
        }
        match accepted {
            Some(credit) => {
                flow.open();
                flow.credit = credit;
                flow.greeting = Some(Operation::RESPONSE);
                let ports = flow.ports;
                self.changes.push(Change::Known(ports));
                self.refresh(id);
            }
            None => {
                let ports = flow.ports;
                self.remove(id);
                if !self.queue_reset(ports) {
                    self.changes.push(Change::Gone(ports));
                }
            }
        }
    }

    /// Opens a connection to a port of the guest. [`Event::Connected`] or [`Event::Closed`] reports the outcome.
    pub fn connect(
        &mut self,
        guest_port: u32,
        credit: Credit,
    ) -> Result<(ConnectionId, Ports), TooManyConnections> {
        if self.connections() >= CONNECTIONS_PER_VM_MAX {
            return Err(TooManyConnections);
        }
        let ports = loop {
            let ports = Ports { peer: guest_port, local: self.next_local_port };
            self.next_local_port = self.next_local_port.checked_add(1).unwrap_or(FIRST_LOCAL_PORT);
            let is_free = !self.by_ports.contains_key(&ports) && !self.owes_farewell(ports);
            if ports.local != u32::MAX && is_free {
                break ports;
            }
        };
        let id = self.insert(Flow::new(ports, State::Requested, credit))?;
        self.changes.push(Change::Known(ports));
        self.refresh(id);
        Ok((id, ports))
    }

    /// Queues bytes for the guest: all of them or none.
    pub fn send(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<(), SendError> {
        self.queue(id, bytes, bytes.len()).map(drop)
    }

    /// Queues as many bytes as there is room for, at least one. `Writable` is emitted once there is room for others.
    pub fn send_some(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<usize, SendError> {
        let queued = self.queue(id, bytes, bytes.len().min(1))?;
        if queued < bytes.len() {
            self.refused(id, 1);
        }
        Ok(queued)
    }

    /// Queues as many bytes as there is room for, at least `least`.
    fn queue(&mut self, id: ConnectionId, bytes: &[u8], least: usize) -> Result<usize, SendError> {
        let shared_bytes = self.shared_bytes;
        let flow = self.flow(id).ok_or(SendError::Closed)?;
        if !flow.host_may_send() {
            return Err(SendError::Closed);
        }
        let held = flow.outgoing.len();
        let room = room(held, shared_bytes);
        if room < least {
            self.refused(id, least);
            return Err(SendError::Full);
        }
        let queued = room.min(bytes.len());
        flow.outgoing.extend(&bytes[..queued]);
        self.account(held, held + queued);
        self.refresh(id);
        Ok(queued)
    }

    /// Records that a sender waits for room for `least` bytes.
    fn refused(&mut self, id: ConnectionId, least: usize) {
        let Some(flow) = self.flow(id) else { return };
        flow.refused_bytes = flow.refused_bytes.max(least).min(QUEUED_BYTES_PER_CONNECTION_MAX);
        let lacks_shared = QUEUED_BYTES_PER_CONNECTION_MAX - flow.outgoing.len() >= least;
        if lacks_shared && !std::mem::replace(&mut flow.starves, true) {
            self.starved.push(id);
        }
    }

    /// Accounts for a connection that has `after` bytes queued instead of `before`.
    fn account(&mut self, before: usize, after: usize) {
        self.queued_bytes = self.queued_bytes - before + after;
        self.shared_bytes = self.shared_bytes - beyond_own(before) + beyond_own(after);
    }

    /// Half-closes: the guest sees end of file after everything queued.
    pub fn finish(&mut self, id: ConnectionId) {
        let Some(flow) = self.flow(id) else { return };
        flow.state = match flow.state {
            // Takes effect when both sides have agreed on the connection.
            State::Offered | State::Requested => flow.state,
            State::Open => State::HostFinished,
            State::GuestFinished => State::BothFinished,
            State::HostFinished | State::BothFinished => return,
        };
        flow.owes_shutdown = true;
        self.refresh(id);
    }

    /// Closes the connection at once with RST. Queued bytes are lost.
    pub fn reset(&mut self, id: ConnectionId) {
        self.end(id, CloseReason::ResetByHost);
    }

    /// Returns credit for bytes of a connection with [`Credit::Manual`].
    pub fn consumed(&mut self, id: ConnectionId, len: u32) {
        let Some(flow) = self.flow(id) else { return };
        if flow.credit == Credit::Manual {
            flow.note_consumed(len);
            self.refresh(id);
        }
    }

    /// Sends RST for these ports, on which the guest may have a connection of an earlier daemon.
    pub fn reset_ports(&mut self, ports: Ports) {
        let reset = self.header_to(ports, Operation::RST, 0);
        self.closing_packets.push_back(reset);
    }

    fn owes_farewell(&self, ports: Ports) -> bool {
        self.closing_packets.iter().any(|header| ports_of(header) == ports)
    }

    /// Closes every connection with SHUTDOWN: after what it was sent the guest sees end of file.
    pub fn part(&mut self, reason: CloseReason) {
        for index in 0..self.rows.len() {
            let id = ConnectionId { index: index as u32, generation: self.rows[index].generation };
            if let Some(flow) = self.close_quietly(id, reason) {
                let both = SHUTDOWN_RECEIVE | SHUTDOWN_SEND;
                let farewell = self.header_to(flow.ports, Operation::SHUTDOWN, both);
                self.closing_packets.push_back(farewell);
            }
        }
    }

    /// Closes every connection without a packet, because the guest has lost them too or is gone.
    pub fn close_all(&mut self, reason: CloseReason) {
        for index in 0..self.rows.len() {
            let id = ConnectionId { index: index as u32, generation: self.rows[index].generation };
            self.close(id, reason);
        }
        self.ready.clear();
        self.starved.clear();
        self.changes.extend(self.resets.drain(..).map(|reset| Change::Gone(ports_of(&reset))));
    }

    /// Appends the changes of the guest's known connections to `changes`.
    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        changes.append(&mut self.changes);
    }

    /// Whether a packet waits for a receive buffer.
    pub fn has_packet(&mut self) -> bool {
        if !self.closing_packets.is_empty() || !self.resets.is_empty() {
            return true;
        }
        while let Some(&id) = self.ready.front() {
            match self.flow(id) {
                Some(flow) if flow.can_emit() => return true,
                Some(flow) => flow.in_ready = false,
                None => {}
            }
            self.ready.pop_front();
        }
        false
    }

    /// Returns the next packet for the guest, with at most `room` bytes of payload, which are appended to `payload`.
    pub fn next_packet(&mut self, room: usize, payload: &mut Vec<u8>) -> Option<Header> {
        if !self.has_packet() {
            return None;
        }
        if let Some(last) = self.closing_packets.pop_front().or_else(|| self.resets.pop_front()) {
            self.totals.packets_sent += 1;
            let ports = ports_of(&last);
            // A reset that answers a packet with another CID or socket type may have the ports of a connection.
            if !self.by_ports.contains_key(&ports) {
                self.changes.push(Change::Gone(ports));
            }
            return Some(last);
        }
        let id = self.ready.pop_front()?;
        let guest_cid = self.guest_cid;
        let flow = self.flow(id)?;
        flow.in_ready = false;
        let before = flow.outgoing.len();
        let header = flow.emit(guest_cid, room, payload);
        let len = header.map_or(0, |header| header.len as usize);
        let (after, is_spent) = (flow.outgoing.len(), flow.is_spent());
        self.account(before, after);
        if is_spent {
            self.end(id, CloseReason::Finished);
        }
        self.totals.bytes_sent += len as u64;
        self.totals.packets_sent += u64::from(header.is_some());
        self.refresh(id);
        self.announce_room(id);
        header
    }

    /// Appends pending events to `events`.
    pub fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    /// Whether [`Muxer::take_events`] would return any.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Connections in the table.
    pub fn connections(&self) -> usize {
        self.by_ports.len()
    }

    /// Bytes queued for the guest.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Totals since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The state of a connection; `None` when it is closed.
    pub fn state(&self, id: ConnectionId) -> Option<State> {
        let row = self.rows.get(id.index as usize)?;
        if row.generation != id.generation { None } else { row.flow.as_ref().map(|flow| flow.state) }
    }

    /// The ports of a connection; `None` when it is closed.
    pub fn ports(&self, id: ConnectionId) -> Option<Ports> {
        let row = self.rows.get(id.index as usize)?;
        if row.generation != id.generation { None } else { row.flow.as_ref().map(|flow| flow.ports) }
    }

    fn flow(&mut self, id: ConnectionId) -> Option<&mut Flow> {
        let row = self.rows.get_mut(id.index as usize)?;
        if row.generation != id.generation { None } else { row.flow.as_mut() }
    }

    fn find(&self, ports: Ports) -> Option<ConnectionId> {
        let index = *self.by_ports.get(&ports)?;
        Some(ConnectionId { index, generation: self.rows[index as usize].generation })
    }

    fn insert(&mut self, flow: Flow) -> Result<ConnectionId, TooManyConnections> {
        if self.connections() >= CONNECTIONS_PER_VM_MAX {
            return Err(TooManyConnections);
        }
        let index = self.free_rows.pop().unwrap_or_else(|| {
            self.rows.push(Row::default());
            (self.rows.len() - 1) as u32
        });
        self.by_ports.insert(flow.ports, index);
        let row = &mut self.rows[index as usize];
        row.flow = Some(flow);
        Ok(ConnectionId { index, generation: row.generation })
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Flow> {
        let row = self.rows.get_mut(id.index as usize)?;
        if row.generation != id.generation {
            return None;
        }
        let flow = row.flow.take()?;
        row.generation = row.generation.wrapping_add(1);
        self.free_rows.push(id.index);
        self.by_ports.remove(&flow.ports);
        self.account(flow.outgoing.len(), 0);
        // Otherwise dead entries would pile up behind a live one while the guest offers no receive buffers.
        if flow.in_ready {
            self.ready.retain(|other| *other != id);
        }
        if flow.starves {
            self.starved.retain(|other| *other != id);
        }
        Some(flow)
    }

    /// Closes a connection that the guest no longer has, without a packet.
    fn close(&mut self, id: ConnectionId, reason: CloseReason) -> Option<Flow> {
        let flow = self.close_quietly(id, reason)?;
        self.changes.push(Change::Gone(flow.ports));
        Some(flow)
    }

    /// Closes a connection that the guest may still have.
    fn close_quietly(&mut self, id: ConnectionId, reason: CloseReason) -> Option<Flow> {
        let flow = self.remove(id)?;
        self.events.push(Event::Closed(id, reason));
        self.relieve_starved();
        Some(flow)
    }

    /// Closes a connection with RST.
    fn end(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(flow) = self.close_quietly(id, reason) else { return };
        // A guest that was not sent the REQUEST has nothing to reset.
        if flow.greeting == Some(Operation::REQUEST) || !self.queue_reset(flow.ports) {
            self.changes.push(Change::Gone(flow.ports));
        }
    }

    fn close_violator(&mut self, id: ConnectionId, violation: Violation) -> Violation {
        self.end(id, CloseReason::ProtocolViolation);
        violation
    }

    /// Answers a packet that belongs to no connection with RST, unless it is one.
    fn refuse(&mut self, header: &Header, violation: Violation) -> Violation {
        if header.operation != Operation::RST {
            self.push_reset(Header {
                src_cid: header.dst_cid,
                dst_cid: header.src_cid,
                src_port: header.dst_port,
                dst_port: header.src_port,
                len: 0,
                socket_type: header.socket_type,
                operation: Operation::RST,
                flags: 0,
                buf_alloc: 0,
                fwd_cnt: 0,
            });
        }
        violation
    }

    /// Queues RST for these ports; false if it will not be sent.
    fn queue_reset(&mut self, ports: Ports) -> bool {
        let reset = self.header_to(ports, Operation::RST, 0);
        self.push_reset(reset)
    }

    /// Builds a packet without payload, for a connection that is in no table.
    fn header_to(&self, ports: Ports, operation: Operation, flags: u32) -> Header {
        Header {
            src_cid: HOST_CID,
            dst_cid: self.guest_cid,
            src_port: ports.local,
            dst_port: ports.peer,
            len: 0,
            socket_type: TYPE_STREAM,
            operation,
            flags,
            buf_alloc: 0,
            fwd_cnt: 0,
        }
    }

    /// Queues an RST, once: a second one for the same ports could hit the next connection on them. False if there are
    /// too many.
    fn push_reset(&mut self, reset: Header) -> bool {
        let is_there = self.resets.contains(&reset);
        let has_room = self.resets.len() < RESETS_QUEUED_MAX;
        if has_room && !is_there {
            self.resets.push_back(reset);
        }
        has_room || is_there
    }

    /// Adds a connection to the ready list if it has something to emit and is not in it.
    fn refresh(&mut self, id: ConnectionId) {
        if let Some(flow) = self.flow(id)
            && !flow.in_ready
            && flow.can_emit()
        {
            flow.in_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Emits `Writable` to a refused sender once its bytes fit, and not before half the queue is free.
    fn announce_room(&mut self, id: ConnectionId) {
        self.relieve_starved();
        self.announce_own_room(id);
    }

    fn announce_own_room(&mut self, id: ConnectionId) {
        let shared_bytes = self.shared_bytes;
        let Some(flow) = self.flow(id).filter(|flow| flow.refused_bytes > 0) else { return };
        let (held, wanted, starves) = (flow.outgoing.len(), flow.refused_bytes, flow.starves);
        let room_min = if starves { QUEUED_BYTES_OWN / 2 } else { QUEUED_BYTES_PER_CONNECTION_MAX / 2 };
        if QUEUED_BYTES_PER_CONNECTION_MAX - held < wanted.max(room_min) {
            return;
        }
        let room = room(held, shared_bytes);
        if room < wanted || (starves && room < room_min) {
            // Its own queue has enough room, but others use the shared bytes.
            flow.starves = true;
            if !starves {
                self.starved.push(id);
            }
            return;
        }
        (flow.refused_bytes, flow.starves) = (0, false);
        if starves {
            self.starved.retain(|other| *other != id);
        }
        self.events.push(Event::Writable(id));
    }

    fn relieve_starved(&mut self) {
        if self.starved.is_empty() || self.shared_bytes > QUEUED_BYTES_SHARED_MAX / 2 {
            return;
        }
        for id in std::mem::take(&mut self.starved) {
            if let Some(flow) = self.flow(id) {
                flow.starves = false;
            }
            self.announce_own_room(id);
        }
    }
}

/// Bytes that a connection with `held` queued bytes may add, of its own and of the shared ones.
fn room(held: usize, shared_bytes: usize) -> usize {
    let own_room = QUEUED_BYTES_OWN.saturating_sub(held);
    (own_room + (QUEUED_BYTES_SHARED_MAX - shared_bytes)).min(QUEUED_BYTES_PER_CONNECTION_MAX - held)
}

fn beyond_own(held: usize) -> usize {
    held.saturating_sub(QUEUED_BYTES_OWN)
}

/// The connection of a packet to the guest.
fn ports_of(header: &Header) -> Ports {
    Ports { peer: header.dst_port, local: header.src_port }
}
