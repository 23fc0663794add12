//! The stream of a process in a VM, as an endpoint of the VM's vsock device: turns, credit, and detach after its calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dxgkrnl::ProcessId;
use vsock_device::{CloseReason, Connection, Credit, Endpoint};

use super::VmShared;
use crate::channel::{Channel, ProtocolError};
use crate::limits::{CALLS_PER_TURN_MAX, CREDIT_BYTES};

/// The stream of a client process in a VM.
pub(super) struct ChannelEndpoint {
    vm: Arc<VmShared>,
    channel: Channel,
    connection: Connection,
    /// Received bytes whose credit is not yet returned to the guest.
    outstanding: usize,
    /// The process, while the VM lists it as having calls that are not made yet.
    waits: Option<ProcessId>,
    /// The worker looks at the ring, and the process does not kick.
    ring_is_awake: bool,
    /// The guest has finished sending.
    finished: bool,
    /// After that: what it had published is taken.
    ring_is_drained: bool,
    closed: bool,
}

impl ChannelEndpoint {
    pub(super) fn new(vm: Arc<VmShared>, channel: Channel, connection: Connection) -> Self {
        ChannelEndpoint {
            vm,
            channel,
            connection,
            outstanding: 0,
            waits: None,
            ring_is_awake: false,
            finished: false,
            ring_is_drained: false,
            closed: false,
        }
    }

    /// Runs a turn: takes from the ring, unless earlier bytes are not yet processed; then makes a limited number of calls.
    fn turn(&mut self) {
        match self.take_ring().and_then(|()| self.channel.turn(CALLS_PER_TURN_MAX)) {
            Ok(has_more) => {
                self.give_credit();
                self.channel.count_unprocessed();
                self.list(has_more || self.ring_is_awake || self.has_ring_bytes());
                if !has_more && self.finished && !self.has_ring_bytes() {
                    self.finish();
                }
            }
            Err(error) => {
                self.channel.close_with(&error);
                self.end();
                // A half-close lets the Goodbye be sent; what the guest still sends is ignored.
                self.connection.finish();
            }
        }
    }

    /// Takes what is published: what one turn may take; of a guest that has finished sending all, once.
    fn take_ring(&mut self) -> Result<(), ProtocolError> {
        if !self.channel.has_more() && !self.ring_is_drained {
            self.ring_is_drained = self.finished && !self.channel.awaits_stream();
            self.channel.take_ring(self.finished)?;
        }
        Ok(())
    }

    /// Whether the ring has something that a turn takes.
    fn has_ring_bytes(&self) -> bool {
        !self.ring_is_drained && self.channel.ring_has_bytes()
    }

    /// Returns credit for processed bytes. What is left of the window fits a frame of the greatest length.
    fn give_credit(&mut self) {
        let done = self.outstanding.saturating_sub(self.channel.pending_bytes());
        if done >= CREDIT_BYTES {
            self.outstanding -= done;
            self.connection.consumed(done as u32);
        }
    }

    /// Records with the VM whether the process has calls that are not made yet.
    fn list(&mut self, waits: bool) {
        if waits == self.waits.is_some() {
            return;
        }
        match self.waits.take() {
            Some(process) => self.vm.calls_are_made(process),
            None => {
                self.waits = self.channel.client().map(|client| client.id);
                self.waits.into_iter().for_each(|process| self.vm.add_pending_calls(process));
            }
        }
    }

    /// Whether guestd has asked to detach the process: nothing more comes by the ring.
    fn is_leaving(&self) -> bool {
        self.channel.client().is_some_and(|client| client.is_leaving.load(Ordering::Relaxed))
    }

    fn finish(&mut self) {
        if let Err(error) = self.channel.end_of_stream() {
            self.channel.close_with(&error);
        }
        self.end();
        self.connection.finish();
    }

    fn end(&mut self) {
        if let Some(client) = self.channel.client() {
            let (kernel_host, id) = (self.channel.kernel_host(), client.id);
            kernel_host.sessions().detach(id);
        }
        self.closed = true;
        self.channel.count_no_more();
        self.list(false);
    }
}

impl Endpoint for ChannelEndpoint {
    fn received(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.outstanding += bytes.len();
        self.channel.take_in(bytes);
        // A stream that waits for a turn is queued already.
        if self.channel.has_more() {
            self.channel.count_unprocessed();
        } else {
            self.turn();
        }
    }

    fn idle(&mut self) {
        self.channel.idle();
    }

    fn has_backlog(&self) -> bool {
        !self.closed && self.channel.has_more()
    }

    fn has_ring(&self) -> bool {
        !self.closed && self.channel.has_ring()
    }

    fn wake_ring(&mut self) {
        if let Some(ring) = self.channel.ring() {
            ring.wake();
            self.ring_is_awake = true;
            // A detach waits for what the process has published.
            self.list(true);
        }
    }

    fn look_at_ring(&mut self) -> bool {
        let has_bytes = self.has_ring_bytes();
        if !has_bytes && self.is_leaving() && !self.channel.has_more() {
            self.list(false);
        }
        has_bytes
    }

    fn rest_ring(&mut self) -> bool {
        let is_at_rest = self.ring_is_drained || self.channel.rest_ring();
        self.ring_is_awake &= !is_at_rest;
        self.list(!is_at_rest || self.channel.has_more());
        is_at_rest
    }

    fn process_backlog(&mut self) {
        self.turn();
        self.channel.idle();
    }

    fn peer_finished(&mut self) {
        if self.closed {
            return;
        }
        self.finished = true;
        if !self.channel.has_more() {
            self.turn();
        }
    }

    fn writable(&mut self) {
        if let Some(client) = self.channel.client() {
            client.outbox.writable();
        }
    }

    fn closed(&mut self, _reason: CloseReason) {
        if !self.closed {
            self.end();
        }
    }

    fn credit(&self) -> Credit {
        Credit::Manual
    }
}
