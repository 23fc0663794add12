//! Event channels of a VM: for each event that guestd registers for a process, a stream to guestd.
//!
//! ```text
//!   RegisterEvent on guestd's link ──▶ a token, once usable ──▶ guestd's stream to EVENT_CHANNEL_PORT begins with it
//!     ──▶ a byte for each wake ──▶ UnregisterEvent, or the process or guestd is gone: the stream is closed
//! ```
//! The guest sends only the token on it. If guestd closes the stream itself, wakes go by the process's stream again.

use std::collections::BTreeMap;
use std::sync::Arc;

use d3dkmt::EventId;
use d3dkmt::limits::EVENT_CHANNELS_PER_VM_MAX;
use proto::limits::TOKEN_BYTES;
use vsock_device::locks::{Rank, Ranked, RankedGuard};
use vsock_device::{CloseReason, Connection, Endpoint};

use super::client_process::ClientProcess;
use super::kernel_host::{Token, random};
use super::pending_connections::{PendingConnection, accepted_from};
use super::registered_events::EventSink;
use super::vm::VmShared;

/// Registered events whose stream is not connected yet, by the token of that stream.
pub struct EventChannels(Ranked<BTreeMap<Token, (Arc<ClientProcess>, EventId)>>);

impl Default for EventChannels {
    fn default() -> Self {
        EventChannels(Ranked::new(Rank::EventChannels, BTreeMap::new()))
    }
}

impl EventChannels {
    fn lock(&self) -> RankedGuard<'_, BTreeMap<Token, (Arc<ClientProcess>, EventId)>> {
        self.0.lock_or_abort()
    }

    /// Registers an event of a process; returns the token that its stream must present. `registered` counts the events
    /// of the VM's processes.
    pub fn announce(
        &self,
        client: &Arc<ClientProcess>,
        name: EventId,
        registered: usize,
    ) -> anyhow::Result<Token> {
        anyhow::ensure!(
            registered < EVENT_CHANNELS_PER_VM_MAX,
            "{registered} events of the VM are registered, the limit"
        );
        let token = random()?;
        let mut waiting = self.lock();
        waiting.retain(|_, (client, name)| client.outbox.has_registered(*name));
        client.outbox.register_event(name, EventSink::EventChannel(None))?;
        waiting.insert(token, (client.clone(), name));
        Ok(token)
    }

    /// Forgets all tokens: guestd is gone, and so are its processes.
    pub fn forget_all(&self) {
        self.lock().clear();
    }

    fn redeem(&self, token: &Token) -> Option<(Arc<ClientProcess>, EventId)> {
        self.lock().remove(token)
    }
}

/// One connection to EVENT_CHANNEL_PORT.
pub struct EventChannelEndpoint {
    vm: Arc<VmShared>,
    connection: Connection,
    token: Vec<u8>,
    /// `Some` until its token is received.
    pending_connection: Option<PendingConnection>,
    event: Option<(Arc<ClientProcess>, EventId)>,
}

impl EventChannelEndpoint {
    pub fn new(vm: Arc<VmShared>, connection: Connection) -> Self {
        let pending_connection = Some(accepted_from(&vm, &connection));
        EventChannelEndpoint { vm, connection, token: Vec::new(), pending_connection, event: None }
    }

    /// Reads the token's bytes; an error is a protocol violation.
    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        anyhow::ensure!(self.event.is_none(), "the guest sent bytes after the token of an event channel");
        self.token.extend_from_slice(bytes);
        anyhow::ensure!(
            self.token.len() <= TOKEN_BYTES,
            "the guest sent more than a token on an event channel"
        );
        let Ok(token) = Token::try_from(&self.token[..]) else { return Ok(()) };
        let (client, name) = self.vm.event_channels.redeem(&token).ok_or_else(|| {
            anyhow::anyhow!(
                "the token of an event channel is unknown, used up, or of an event that is unregistered"
            )
        })?;
        self.pending_connection = None;
        // False if it was unregistered meanwhile: nothing will be sent, and guestd closes the stream.
        if client.outbox.connect_event_channel(name, self.connection.clone()) {
            self.event = Some((client, name));
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some((client, name)) = self.event.take() {
            client.outbox.event_channel_gone(name, &self.connection);
        }
    }
}

impl Endpoint for EventChannelEndpoint {
    fn received(&mut self, bytes: &[u8]) {
        if let Err(error) = self.take(bytes) {
            self.vm.kernel_host.counters.protocol_errors.add(1);
            self.vm.warn(|| format!("{error:#}; the connection is reset"));
            self.end();
            self.connection.reset();
        }
    }

    fn peer_finished(&mut self) {
        self.end();
        self.connection.finish();
    }

    fn writable(&mut self) {
        if let Some((client, _)) = &self.event {
            client.outbox.flush();
        }
    }

    fn closed(&mut self, _reason: CloseReason) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use dxgkrnl::{ProcessId, VmId};

    use super::*;

    fn client(id: u32) -> Arc<ClientProcess> {
        Arc::new(ClientProcess::new(ProcessId(id), VmId(1), 1, String::new()))
    }

    #[test]
    fn a_token_is_of_one_event_and_works_once() {
        let (event_channels, client) = (EventChannels::default(), client(1));
        let first = event_channels.announce(&client, EventId(1), 0).unwrap();
        let second = event_channels.announce(&client, EventId(2), 1).unwrap();
        assert_ne!(first, second);
        assert_eq!(event_channels.redeem(&second).unwrap().1, EventId(2));
        assert!(event_channels.redeem(&second).is_none());
        assert!(event_channels.announce(&client, EventId(1), 2).is_err(), "it is registered");
        event_channels.forget_all();
        assert!(event_channels.redeem(&first).is_none());
    }

    #[test]
    fn a_vm_has_so_many_event_channels() {
        let (event_channels, client) = (EventChannels::default(), client(1));
        assert!(event_channels.announce(&client, EventId(1), EVENT_CHANNELS_PER_VM_MAX - 1).is_ok());
        let error =
            event_channels.announce(&client, EventId(2), EVENT_CHANNELS_PER_VM_MAX).unwrap_err().to_string();
        assert!(error.contains("the limit"), "{error}");
        assert!(!client.outbox.has_registered(EventId(2)));
    }

    #[test]
    fn tokens_of_disconnected_processes_are_dropped() {
        let (event_channels, gone, other) = (EventChannels::default(), client(1), client(2));
        let token = event_channels.announce(&gone, EventId(1), 0).unwrap();
        gone.outbox.disconnect();
        event_channels.announce(&other, EventId(1), 0).unwrap();
        assert!(event_channels.redeem(&token).is_none());
        assert_eq!(Arc::strong_count(&gone), 1, "no token refers to the process any more");
    }
}
