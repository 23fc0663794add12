//! The stream of a process in a VM, as an endpoint of the VM's vsock device: turns, credit, and its end behind its calls.

use std::sync::Arc;

use dxgkrnl::ProcessId;
use vsock_device::{CloseReason, Connection, Credit, Endpoint};

use super::VmShared;
use crate::channel::Channel;
use crate::limits::CREDIT_BYTES;

/// The stream of a guest process in a VM.
pub(super) struct ChannelEndpoint {
    vm: Arc<VmShared>,
    channel: Channel,
    connection: Connection,
    /// Bytes for which the guest has no credit back.
    outstanding: usize,
    /// The process, while it is listed as having sent calls that are not made yet.
    waits: Option<ProcessId>,
    /// Its place among the streams that hold bytes which are not worked off.
    held: Option<u64>,
    /// The guest will send no more.
    finished: bool,
    closed: bool,
}

impl ChannelEndpoint {
    pub(super) fn new(vm: Arc<VmShared>, channel: Channel, connection: Connection) -> Self {
        let (outstanding, waits, held, finished, closed) = (0, None, None, false, false);
        ChannelEndpoint { vm, channel, connection, outstanding, waits, held, finished, closed }
    }

    fn turn(&mut self) {
        match self.channel.turn() {
            Ok(more) => {
                self.give_credit();
                self.note_held(self.channel.pending_bytes());
                self.list(more);
                if !more && self.finished {
                    self.finish();
                }
            }
            Err(error) => {
                self.channel.close_with(&error);
                self.end();
                // Half-close first would let the Goodbye out; then whatever the guest still sends is ignored.
                self.connection.finish();
            }
        }
    }

    /// For what is worked off. A frame of the greatest length fits what is left of the window.
    fn give_credit(&mut self) {
        let done = self.outstanding.saturating_sub(self.channel.pending_bytes());
        if done >= CREDIT_BYTES {
            self.outstanding -= done;
            self.connection.consumed(done as u32);
        }
    }

    /// The VM knows how much is not worked off. By far the most often that is nothing, and was nothing.
    fn note_held(&mut self, bytes: usize) {
        if bytes == 0 && self.held.is_none() {
            return;
        }
        // Before Hello a stream holds next to nothing, and not for long.
        if let Some(client) = self.channel.client() {
            self.vm.holds(&mut self.held, bytes, client);
        }
    }

    /// The VM knows whether the process has sent calls that are not made yet.
    fn list(&mut self, waits: bool) {
        if waits == self.waits.is_some() {
            return;
        }
        match self.waits.take() {
            Some(process) => self.vm.calls_are_made(process),
            None => {
                self.waits = self.channel.client().map(|client| client.id);
                self.waits.into_iter().for_each(|process| self.vm.calls_wait(process));
            }
        }
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
        self.note_held(0);
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
        // What waits for a turn has its place already.
        if self.channel.has_more() {
            self.note_held(self.channel.pending_bytes());
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

    fn go_on(&mut self) {
        self.turn();
        self.channel.idle();
    }

    fn peer_finished(&mut self) {
        if self.closed {
            return;
        }
        self.finished = true;
        if !self.channel.has_more() {
            self.finish();
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
