//! Event channels of a VM: for each event that guestd registers for a process, a stream to guestd.
//!
//! ```text
//!   RegisterEvent on guestd's link ──▶ a token, once usable ──▶ guestd's stream to EVENT_CHANNEL_PORT begins with it
//!     ──▶ a byte for each wake ──▶ UnregisterEvent, or the process or guestd is gone: the stream is closed
//! ```
//! The guest sends only the token on it. If guestd closes the stream itself, wakes go by the process's stream again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The event channels of one VM.
pub struct EventChannels {
    /// Registered events whose stream is not connected yet, by the token of that stream.
    waiting: Ranked<BTreeMap<Token, (Arc<ClientProcess>, EventId)>>,
    /// Number of registered events of its processes.
    registered: Arc<AtomicUsize>,
}

/// One registered event, counted for its VM until it is dropped.
#[derive(Debug)]
pub struct ChannelCharge(Arc<AtomicUsize>);

impl ChannelCharge {
    /// A charge of no VM.
    #[cfg(test)]
    pub fn uncounted() -> ChannelCharge {
        ChannelCharge(Arc::new(AtomicUsize::new(1)))
    }
}

impl Drop for ChannelCharge {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for EventChannels {
    fn default() -> Self {
        let waiting = Ranked::new(Rank::EventChannels, BTreeMap::new());
        EventChannels { waiting, registered: Arc::default() }
    }
}

impl EventChannels {
    fn lock(&self) -> RankedGuard<'_, BTreeMap<Token, (Arc<ClientProcess>, EventId)>> {
        self.waiting.lock_or_abort()
    }

    /// Counts another registered event; refused if the VM has too many.
    fn charge(&self) -> anyhow::Result<ChannelCharge> {
        let more = |registered| (registered < EVENT_CHANNELS_PER_VM_MAX).then_some(registered + 1);
        match self.registered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(ChannelCharge(Arc::clone(&self.registered))),
            Err(registered) => anyhow::bail!("{registered} events of the VM are registered, the limit"),
        }
    }

    /// Registers an event of a process; returns the token that its stream must present.
    pub fn announce(&self, client: &Arc<ClientProcess>, name: EventId) -> anyhow::Result<Token> {
        let charge = self.charge()?;
        let token = random()?;
        let mut waiting = self.lock();
        waiting.retain(|_, (client, name)| client.outbox.has_registered(*name));
        client.outbox.register_event(name, EventSink::EventChannel(None, charge))?;
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
        if let Some((client, name)) = &self.event {
            client.outbox.event_channel_writable(*name);
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
    use crate::kernel_host::KernelHost;
    use crate::test_guest::{Ignored, TestGuest};
    use crate::{Clock, Options};

    fn client(id: u32) -> Arc<ClientProcess> {
        Arc::new(ClientProcess::new(ProcessId(id), VmId(1), 1, String::new()))
    }

    #[test]
    fn a_token_is_of_one_event_and_works_once() {
        let (event_channels, client) = (EventChannels::default(), client(1));
        let first = event_channels.announce(&client, EventId(1)).unwrap();
        let second = event_channels.announce(&client, EventId(2)).unwrap();
        assert_ne!(first, second);
        assert_eq!(event_channels.redeem(&second).unwrap().1, EventId(2));
        assert!(event_channels.redeem(&second).is_none());
        assert!(event_channels.announce(&client, EventId(1)).is_err(), "it is registered");
        event_channels.forget_all();
        assert!(event_channels.redeem(&first).is_none());
    }

    #[test]
    fn a_vm_has_so_many_event_channels() {
        let event_channels = EventChannels::default();
        let clients: Vec<_> = (0..=EVENT_CHANNELS_PER_VM_MAX as u32).map(client).collect();
        let (over, others) = clients.split_first().unwrap();
        for client in others {
            event_channels.announce(client, EventId(1)).unwrap();
        }
        let error = event_channels.announce(over, EventId(1)).unwrap_err().to_string();
        assert!(error.contains("the limit"), "{error}");
        assert!(!over.outbox.has_registered(EventId(1)));
        let is_counted = || event_channels.registered.load(Ordering::Relaxed);
        others[0].outbox.disconnect();
        assert!(others[1].outbox.unregister_event(EventId(1)));
        assert_eq!(is_counted(), EVENT_CHANNELS_PER_VM_MAX - 2, "what is gone does not count");
        event_channels.announce(over, EventId(1)).unwrap();
        assert!(event_channels.announce(over, EventId(1)).is_err(), "it is registered");
        assert_eq!(is_counted(), EVENT_CHANNELS_PER_VM_MAX - 1, "a refused event does not count");
    }

    #[test]
    fn tokens_of_disconnected_processes_are_dropped() {
        let (event_channels, gone, other) = (EventChannels::default(), client(1), client(2));
        let token = event_channels.announce(&gone, EventId(1)).unwrap();
        gone.outbox.disconnect();
        event_channels.announce(&other, EventId(1)).unwrap();
        assert!(event_channels.redeem(&token).is_none());
        assert_eq!(Arc::strong_count(&gone), 1, "no token refers to the process any more");
    }

    #[test]
    fn an_event_whose_channel_breaks_the_protocol_is_unregistered_and_its_connection_reset() {
        for wrong in [&[1][..], &[0; TOKEN_BYTES + 1]] {
            let kernel_host =
                KernelHost::new(&Options { clock: Clock::Virtual, ..Options::default() }).unwrap();
            let vm = VmShared::new(VmId(1), "vm1", &kernel_host, None);
            let (_guest, connection) = TestGuest::connected(&vm, Box::new(Ignored), 1 << 16);
            let client = client(1);
            let token = vm.event_channels.announce(&client, EventId(1)).unwrap();
            let mut endpoint = EventChannelEndpoint::new(vm.clone(), connection.clone());
            let (begin, rest) = token.split_at(TOKEN_BYTES / 2);
            endpoint.received(begin);
            endpoint.received(rest);
            assert!(client.outbox.has_registered(EventId(1)));
            assert_eq!(connection.send_some(&[1]).ok(), Some(1));
            endpoint.received(wrong);
            assert_eq!(kernel_host.counters.protocol_errors.count(), 1);
            assert!(!client.outbox.has_registered(EventId(1)), "nobody sets it");
            assert!(connection.send_some(&[1]).is_err());
        }
    }
}
