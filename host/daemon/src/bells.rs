//! Bells of a VM: for each event that guestd keeps for a process, a stream to guestd.
//!
//! ```text
//!   KeepEvent on guestd's link ──▶ a token, once usable ──▶ guestd's stream to BELL_PORT begins with it
//!     ──▶ a byte for each wake ──▶ ForgetEvent, or the process or guestd is gone: the stream ends
//! ```
//! The guest sends nothing more on it. If guestd ends the stream itself, wakes go by the process's stream again.

use std::collections::BTreeMap;
use std::sync::Arc;

use d3dkmt::EventId;
use d3dkmt::limits::BELLS_PER_VM_MAX;
use proto::limits::TOKEN_BYTES;
use vsock_device::locks::{Held, Rank, Ranked};
use vsock_device::{CloseReason, Connection, Endpoint};

use super::guest::Guest;
use super::kept_events::Way;
use super::newcomers::{Newcomer, accepted_from};
use super::seat::{Token, random};
use super::vm::VmShared;

/// Those whose stream is not there yet.
pub struct Bells(Ranked<BTreeMap<Token, (Arc<Guest>, EventId)>>);

impl Default for Bells {
    fn default() -> Self {
        Bells(Ranked::new(Rank::Bells, BTreeMap::new()))
    }
}

impl Bells {
    fn lock(&self) -> Held<'_, BTreeMap<Token, (Arc<Guest>, EventId)>> {
        self.0.lock_or_abort()
    }

    /// Keeps an event of a process, whose stream is to come with this token. `kept` are those of all others of the VM.
    pub fn announce(&self, guest: &Arc<Guest>, name: EventId, kept: usize) -> anyhow::Result<Token> {
        anyhow::ensure!(kept < BELLS_PER_VM_MAX, "{kept} events of the VM are kept, the limit");
        let token = random()?;
        let mut waiting = self.lock();
        waiting.retain(|_, (guest, name)| guest.outbox.keeps(*name));
        guest.outbox.keep_event(name, Way::Bell(None))?;
        waiting.insert(token, (guest.clone(), name));
        Ok(token)
    }

    /// guestd is gone, and its processes.
    pub fn forget_all(&self) {
        self.lock().clear();
    }

    fn redeem(&self, token: &Token) -> Option<(Arc<Guest>, EventId)> {
        self.lock().remove(token)
    }
}

/// One connection to BELL_PORT.
pub struct BellEndpoint {
    vm: Arc<VmShared>,
    connection: Connection,
    token: Vec<u8>,
    /// Until its token has come.
    newcomer: Option<Newcomer>,
    of: Option<(Arc<Guest>, EventId)>,
}

impl BellEndpoint {
    pub fn new(vm: Arc<VmShared>, connection: Connection) -> Self {
        let newcomer = Some(accepted_from(&vm, &connection));
        BellEndpoint { vm, connection, token: Vec::new(), newcomer, of: None }
    }

    /// Takes the token's bytes; an error is a breach of the protocol.
    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        anyhow::ensure!(self.of.is_none(), "bytes come back on the stream of a bell");
        self.token.extend_from_slice(bytes);
        anyhow::ensure!(self.token.len() <= TOKEN_BYTES, "more than a token comes on the stream of a bell");
        let Ok(token) = Token::try_from(&self.token[..]) else { return Ok(()) };
        let (guest, name) = self.vm.bells.redeem(&token).ok_or_else(|| {
            anyhow::anyhow!("the token of a bell is unknown, used up, or of an event that is forgotten")
        })?;
        self.newcomer = None;
        // False if it was forgotten just now: nothing will come, and guestd ends the stream.
        if guest.outbox.connect_bell(name, self.connection.clone()) {
            self.of = Some((guest, name));
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some((guest, name)) = self.of.take() {
            guest.outbox.bell_gone(name, &self.connection);
        }
    }
}

impl Endpoint for BellEndpoint {
    fn received(&mut self, bytes: &[u8]) {
        if let Err(error) = self.take(bytes) {
            self.vm.seat.counters.protocol_errors.add(1);
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
        if let Some((guest, _)) = &self.of {
            guest.outbox.flush();
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

    fn guest(id: u32) -> Arc<Guest> {
        Arc::new(Guest::new(ProcessId(id), VmId(1), 1, String::new()))
    }

    #[test]
    fn a_token_is_of_one_event_and_works_once() {
        let (bells, guest) = (Bells::default(), guest(1));
        let first = bells.announce(&guest, EventId(1), 0).unwrap();
        let second = bells.announce(&guest, EventId(2), 1).unwrap();
        assert_ne!(first, second);
        assert_eq!(bells.redeem(&second).unwrap().1, EventId(2));
        assert!(bells.redeem(&second).is_none());
        assert!(bells.announce(&guest, EventId(1), 2).is_err(), "it has one");
        bells.forget_all();
        assert!(bells.redeem(&first).is_none());
    }

    #[test]
    fn a_vm_has_so_many_bells() {
        let (bells, guest) = (Bells::default(), guest(1));
        assert!(bells.announce(&guest, EventId(1), BELLS_PER_VM_MAX - 1).is_ok());
        let error = bells.announce(&guest, EventId(2), BELLS_PER_VM_MAX).unwrap_err().to_string();
        assert!(error.contains("the limit"), "{error}");
        assert!(!guest.outbox.keeps(EventId(2)));
    }

    #[test]
    fn tokens_of_what_is_over_are_not_kept() {
        let (bells, gone, other) = (Bells::default(), guest(1), guest(2));
        let token = bells.announce(&gone, EventId(1), 0).unwrap();
        gone.outbox.disconnect();
        bells.announce(&other, EventId(1), 0).unwrap();
        assert!(bells.redeem(&token).is_none());
        assert_eq!(Arc::strong_count(&gone), 1, "nobody holds the process any more");
    }
}
