//! One connection: its state, its credit in both directions, and what it has to send to the guest.

use std::collections::VecDeque;

use crate::limits::{
    CREDIT_UPDATE_BYTES, PACKET_BYTES_MAX, PEER_WINDOW_BYTES_MAX, QUEUE_KEPT_BYTES, WINDOW_BYTES,
};
use crate::packet::{HOST_CID, Header, Operation, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, TYPE_STREAM};
use crate::services::Credit;

/// The two ports that name a connection inside a VM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ports {
    /// Port of the guest.
    pub peer: u32,
    /// Port of CID 2.
    pub local: u32,
}

/// State of a connection. A closed connection has none: it is not in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The guest has sent REQUEST and the daemon has not yet accepted or refused it.
    Offered,
    /// The device has sent (or queued) REQUEST and the guest has not answered.
    Requested,
    /// Bytes flow both ways.
    Open,
    /// The guest has finished sending; the device may still send.
    GuestFinished,
    /// The device sends no more than what is queued; the guest may still send.
    HostFinished,
    /// Neither side queues more; the device still sends what was queued.
    BothFinished,
}

impl State {
    /// Whether a RW packet from the guest is legal.
    pub fn guest_may_send(self) -> bool {
        match self {
            State::Open | State::HostFinished => true,
            State::Offered | State::Requested | State::GuestFinished | State::BothFinished => false,
        }
    }

    /// Whether both sides have agreed on the connection.
    pub fn is_established(self) -> bool {
        match self {
            State::Offered | State::Requested => false,
            State::Open | State::GuestFinished | State::HostFinished | State::BothFinished => true,
        }
    }
}

/// A connection in the muxer's table.
#[derive(Debug)]
pub(super) struct Flow {
    pub ports: Ports,
    pub state: State,
    pub credit: Credit,
    pub outgoing: VecDeque<u8>,
    /// REQUEST or RESPONSE that must be sent before anything else.
    pub greeting: Option<Operation>,
    pub owes_credit_update: bool,
    pub owes_shutdown: bool,
    /// Whether the muxer's ready list holds this connection, so that it is there once.
    pub in_ready: bool,
    /// Bytes of room needed before `Writable`; 0 when no sender waits.
    pub refused_bytes: usize,
    /// Whether it is in the muxer's list of connections that lack shared room.
    pub starves: bool,
    peer_buf_alloc: u32,
    peer_fwd_cnt: u32,
    tx_cnt: u32,
    rx_cnt: u32,
    fwd_cnt: u32,
    sent_fwd_cnt: u32,
}

impl Flow {
    pub fn new(ports: Ports, state: State, credit: Credit) -> Self {
        Self {
            ports,
            state,
            credit,
            outgoing: VecDeque::new(),
            greeting: (state == State::Requested).then_some(Operation::REQUEST),
            owes_credit_update: false,
            owes_shutdown: false,
            in_ready: false,
            refused_bytes: 0,
            starves: false,
            peer_buf_alloc: 0,
            peer_fwd_cnt: 0,
            tx_cnt: 0,
            rx_cnt: 0,
            fwd_cnt: 0,
            sent_fwd_cnt: 0,
        }
    }

    /// Opens the connection, on which both sides have agreed.
    pub fn open(&mut self) {
        self.state = if self.owes_shutdown { State::HostFinished } else { State::Open };
    }

    /// Whether the daemon may still queue bytes.
    pub fn host_may_send(&self) -> bool {
        match self.state {
            State::Offered | State::Requested => !self.owes_shutdown,
            State::Open | State::GuestFinished => true,
            State::HostFinished | State::BothFinished => false,
        }
    }

    /// Bytes that the device may send before the guest must give credit again.
    pub fn peer_room(&self) -> usize {
        let in_flight = self.tx_cnt.wrapping_sub(self.peer_fwd_cnt);
        self.peer_buf_alloc.saturating_sub(in_flight) as usize
    }

    /// Bytes that the guest may send before the device must give credit again.
    pub fn window_left(&self) -> u32 {
        WINDOW_BYTES.saturating_sub(self.rx_cnt.wrapping_sub(self.fwd_cnt))
    }

    /// Applies the credit fields of a header.
    ///
    /// `fwd_cnt` counts if it lies between the last one and what was sent. Anything else is either stale (two guest
    /// CPUs may queue packets out of order) or false; both are ignored, and neither can widen the window.
    pub fn learn_credit(&mut self, header: &Header) {
        let advance = header.fwd_cnt.wrapping_sub(self.peer_fwd_cnt);
        let in_flight = self.tx_cnt.wrapping_sub(self.peer_fwd_cnt);
        if advance <= in_flight {
            self.peer_fwd_cnt = header.fwd_cnt;
            self.peer_buf_alloc = header.buf_alloc.min(PEER_WINDOW_BYTES_MAX);
        }
    }

    /// Accounts for `len` bytes from the guest, which fit in the window.
    pub fn note_received(&mut self, len: u32) {
        self.rx_cnt = self.rx_cnt.wrapping_add(len);
        if self.credit == Credit::Automatic {
            self.note_consumed(len);
        }
    }

    /// Returns credit for `len` bytes; more than what is outstanding counts as all of it.
    pub fn note_consumed(&mut self, len: u32) {
        let outstanding = self.rx_cnt.wrapping_sub(self.fwd_cnt);
        self.fwd_cnt = self.fwd_cnt.wrapping_add(len.min(outstanding));
        if self.fwd_cnt.wrapping_sub(self.sent_fwd_cnt) >= CREDIT_UPDATE_BYTES {
            self.owes_credit_update = true;
        }
    }

    /// Whether a packet could be sent now, given a receive buffer.
    pub fn can_emit(&self) -> bool {
        if self.greeting.is_some() {
            return true;
        }
        self.state.is_established()
            && (self.owes_credit_update
                || (self.owes_shutdown && self.outgoing.is_empty())
                || (!self.outgoing.is_empty() && self.peer_room() > 0))
    }

    /// Whether everything queued is sent and neither side will send more.
    pub fn is_spent(&self) -> bool {
        self.state == State::BothFinished && self.outgoing.is_empty() && !self.owes_shutdown
    }

    /// Builds the next packet with at most `room` bytes of payload, appended to `payload`.
    ///
    /// A payload packet reports credit as a CREDIT_UPDATE does, so it is sent first and replaces one.
    pub fn emit(&mut self, guest_cid: u64, room: usize, payload: &mut Vec<u8>) -> Option<Header> {
        if let Some(operation) = self.greeting.take() {
            return Some(self.header(guest_cid, operation, 0, 0));
        }
        if !self.state.is_established() {
            return None;
        }
        let len = self.outgoing.len().min(self.peer_room()).min(room).min(PACKET_BYTES_MAX);
        if len > 0 {
            self.take_outgoing(len, payload);
            self.tx_cnt = self.tx_cnt.wrapping_add(len as u32);
            return Some(self.header(guest_cid, Operation::RW, 0, len as u32));
        }
        if self.owes_shutdown && self.outgoing.is_empty() {
            self.owes_shutdown = false;
            let flags = if self.state == State::BothFinished {
                SHUTDOWN_SEND | SHUTDOWN_RECEIVE
            } else {
                SHUTDOWN_SEND
            };
            return Some(self.header(guest_cid, Operation::SHUTDOWN, flags, 0));
        }
        self.owes_credit_update.then(|| self.header(guest_cid, Operation::CREDIT_UPDATE, 0, 0))
    }

    fn take_outgoing(&mut self, len: usize, payload: &mut Vec<u8>) {
        let (front, back) = self.outgoing.as_slices();
        let from_front = len.min(front.len());
        payload.extend_from_slice(&front[..from_front]);
        payload.extend_from_slice(&back[..len - from_front]);
        self.outgoing.drain(..len);
        if self.outgoing.is_empty() && self.outgoing.capacity() > QUEUE_KEPT_BYTES {
            self.outgoing = VecDeque::new();
        }
    }

    fn header(&mut self, guest_cid: u64, operation: Operation, flags: u32, len: u32) -> Header {
        self.sent_fwd_cnt = self.fwd_cnt;
        self.owes_credit_update = false;
        Header {
            src_cid: HOST_CID,
            dst_cid: guest_cid,
            src_port: self.ports.local,
            dst_port: self.ports.peer,
            len,
            socket_type: TYPE_STREAM,
            operation,
            flags,
            buf_alloc: WINDOW_BYTES,
            fwd_cnt: self.fwd_cnt,
        }
    }

    /// Starts the wrapping counters just below their end, so that tests see them wrap.
    #[cfg(test)]
    pub fn wind_counters(&mut self, tx: u32, rx: u32) {
        (self.tx_cnt, self.peer_fwd_cnt) = (tx, tx);
        (self.rx_cnt, self.fwd_cnt, self.sent_fwd_cnt) = (rx, rx, rx);
    }
}
