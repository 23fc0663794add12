//! NT handles: the host gives their tokens, the driver makes them, and the last close is reported to the host.

use d3dkmt::ShareToken;
use proto::attach::guestd_to_host;

use super::quotas::Charge;
use super::state::{ClientState, Link, Pending};
use super::{Broker, ClientId, Effect, Machine, refused};

impl<M: Machine> Broker<M> {
    pub(super) fn ask_for_nt_handle(&mut self, client: ClientId, process: u32) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        match self.quotas.nt_handles.take(entry.peer.user, 1) {
            Ok(charge) => {
                entry.state = ClientState::MakingNtHandle { process };
                let body = guestd_to_host::Body::MakeNtHandle(process);
                self.tell_host(body, Pending::MakeNtHandle { client, charge });
            }
            // Not counted as misbehaviour, like a refusal of the host.
            Err(over) => self.reply(client, refused(over.to_string()), Vec::new()),
        }
    }

    /// Ends the client's wait for an NT handle. Returns its process.
    fn stop_making(&mut self, client: ClientId) -> Option<u32> {
        let entry = self.clients.get_mut(&client)?;
        let ClientState::MakingNtHandle { process } = entry.state else { return None };
        entry.state = ClientState::Attached { process };
        Some(process)
    }

    pub(super) fn nt_handle_made(&mut self, client: ClientId, token: ShareToken, charge: Charge) {
        self.nt_handles.insert(token, charge);
        match self.stop_making(client) {
            Some(process) => self.effects.push(Effect::GiveNtHandle { client, process, token }),
            // The client has gone meanwhile.
            None => self.nt_handle_closed(token),
        }
    }

    /// Refuses without counting it as misbehaviour, because other processes may have used up the limit.
    pub(super) fn nt_handle_refused(&mut self, client: ClientId, words: String) {
        if self.stop_making(client).is_some() {
            self.reply(client, refused(words), Vec::new());
        }
    }

    pub(super) fn nt_handle_not_made(&mut self, client: ClientId, token: ShareToken, why: String) {
        self.nt_handle_closed(token);
        self.say_refusal(format!("a process gets no NT handle: {why}"));
        if self.clients.contains_key(&client) {
            self.reply(client, refused(why), Vec::new());
        }
    }

    /// An NT handle was closed. Handles of an earlier link are unknown to this host. A restarted host learns which
    /// handles are left when it is welcomed.
    pub(super) fn nt_handle_closed(&mut self, token: ShareToken) {
        let is_told = matches!(self.link, Link::Up | Link::Finishing { .. });
        if self.nt_handles.remove(&token).is_some() && is_told {
            let body = guestd_to_host::Body::NtHandleClosed(token.0.to_vec());
            self.tell_host(body, Pending::NtHandleClosed);
        }
    }
}
