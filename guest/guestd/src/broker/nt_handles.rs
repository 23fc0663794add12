//! NT handles and sync files: the host gives their tokens, the driver makes them, and the last close is reported to the
//! host. The host reports when a sync file is ready.

use d3dkmt::ShareToken;
use proto::attach::guestd_to_host;

use super::quotas::{Charge, OverQuota, Uid};
use super::state::{ClientState, Link, Pending};
use super::{Broker, ClientId, Effect, Machine, refused};

/// Parts of the quotas that an NT handle holds.
#[derive(Debug)]
pub(super) struct NtHandleCharge {
    handle: Charge,
    /// Of a sync file: of the descriptors that the driver keeps.
    sync_file: Option<Charge>,
}

impl<M: Machine> Broker<M> {
    fn charge_nt_handle(&self, user: Uid, is_sync_file: bool) -> Result<NtHandleCharge, OverQuota> {
        let handle = self.quotas.nt_handles.take(user, 1)?;
        let sync_file = is_sync_file.then(|| self.quotas.sync_files.take(user, 1)).transpose()?;
        Ok(NtHandleCharge { handle, sync_file })
    }

    /// The user that an NT handle is charged to, until its last close is handled.
    pub fn user_of_nt_handle(&self, token: ShareToken) -> Option<Uid> {
        let charge = self.nt_handles.get(&token).or_else(|| self.nt_handles_without_host.get(&token));
        charge.map(|charge| charge.handle.user())
    }

    pub(super) fn ask_for_nt_handle(&mut self, client: ClientId, process: u32, is_sync_file: bool) {
        let Some(user) = self.clients.get(&client).map(|entry| entry.peer.user) else { return };
        let charge = self.charge_nt_handle(user, is_sync_file);
        let Some(entry) = self.clients.get_mut(&client) else { return };
        match charge {
            Ok(charge) => {
                entry.state = ClientState::MakingNtHandle { process };
                let body = guestd_to_host::Body::MakeNtHandle(process);
                self.tell_host(body, Pending::MakeNtHandle { client, charge });
            }
            Err(over) => self.refuse_over_limit(client, over.to_string()),
        }
    }

    /// Ends the client's wait for an NT handle. Returns its process.
    fn stop_making(&mut self, client: ClientId) -> Option<u32> {
        let entry = self.clients.get_mut(&client)?;
        let ClientState::MakingNtHandle { process } = entry.state else { return None };
        entry.state = ClientState::Attached { process };
        Some(process)
    }

    pub(super) fn nt_handle_made(&mut self, client: ClientId, token: ShareToken, charge: NtHandleCharge) {
        let is_sync_file = charge.sync_file.is_some();
        self.nt_handles.insert(token, charge);
        match self.stop_making(client) {
            Some(process) => {
                self.effects.push(Effect::GiveNtHandle { client, process, token, is_sync_file });
            }
            // The client has gone meanwhile.
            None => self.nt_handle_closed(token),
        }
    }

    pub(super) fn nt_handle_refused(&mut self, client: ClientId, words: String) {
        if self.stop_making(client).is_some() {
            self.refuse_over_limit(client, words);
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
        self.nt_handles_without_host.remove(&token);
        let is_told = matches!(self.link, Link::Up | Link::Finishing { .. });
        if self.nt_handles.remove(&token).is_some() && is_told {
            let body = guestd_to_host::Body::NtHandleClosed(token.0.to_vec());
            self.tell_host(body, Pending::NtHandleClosed);
        }
    }

    /// The fence of a sync file has reached its value. A token that is unknown by now is of a closed sync file.
    pub(super) fn sync_file_ready(&mut self, token: ShareToken) {
        if self.nt_handles.get(&token).is_some_and(|charge| charge.sync_file.is_some()) {
            self.effects.push(Effect::RaiseSyncFile { token });
        }
    }

    /// The host has closed all NT handles. It will report no sync file of them as ready, so all are raised now. They hold
    /// their parts of the quotas until no process has them open.
    pub(super) fn forget_nt_handles(&mut self) {
        for (token, charge) in std::mem::take(&mut self.nt_handles) {
            if charge.sync_file.is_some() {
                self.effects.push(Effect::RaiseSyncFile { token });
            }
            self.nt_handles_without_host.insert(token, charge);
        }
    }
}
