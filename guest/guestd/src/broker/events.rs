//! Registered events: CPU events that the host's driver signals and the broker sets. The host gives a token for the
//! event channel of each; the driver module opens the channel.

use proto::attach::{BrokerReply, RegisteredEvent, Rung, guestd_to_host};

use super::state::{ClientState, Pending, Registration};
use super::{Broker, ClientId, Effect, Machine, refused};

impl<M: Machine> Broker<M> {
    pub(super) fn register_event(&mut self, client: ClientId, process: u32, event: u64) {
        let Some(entry) = self.processes.get(&process) else { return };
        let (registered, user) = (entry.registered.len(), entry.user);
        if registered >= self.events_max as usize {
            // The event's wakes go by the stream.
            let words = format!(
                "{registered} events of the process are registered, the limit is {}",
                self.events_max
            );
            return self.refuse_over_limit(client, words);
        }
        if self.is_registered(process, event) {
            return self.refuse(client, format!("event {event} is registered already"));
        }
        match self.quotas.event_channels.take(user, 1) {
            Ok(charge) => {
                let body = guestd_to_host::Body::RegisterEvent(RegisteredEvent { process, event });
                let registration = Registration { client, process, event, charge };
                self.ask(client, process, body, Pending::RegisterEvent(registration));
            }
            // As above.
            Err(over) => self.refuse_over_limit(client, over.to_string()),
        }
    }

    fn is_registered(&self, process: u32, event: u64) -> bool {
        self.processes.get(&process).is_some_and(|entry| entry.registered.contains_key(&event))
    }

    pub(super) fn ask(
        &mut self,
        client: ClientId,
        process: u32,
        body: guestd_to_host::Body,
        pending: Pending<M>,
    ) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.state = ClientState::AwaitingEvent { process };
        }
        self.tell_host(body, pending);
    }

    /// Ends the client's wait for the host's answer. False if the client is gone.
    fn stop_asking(&mut self, client: ClientId, process: u32) -> bool {
        let Some(entry) = self.clients.get_mut(&client) else { return false };
        entry.state = ClientState::Attached { process };
        true
    }

    /// Passes on a host's answer that needs no other action.
    pub(super) fn forward_answer(&mut self, client: ClientId, process: u32, answer: Result<(), String>) {
        if self.stop_asking(client, process) {
            let reply = match answer {
                Ok(()) => BrokerReply { process, ..BrokerReply::default() },
                Err(words) => refused(words),
            };
            self.reply(client, reply, Vec::new());
        }
    }

    /// The host has named an event channel. If the client is gone, the channel ends with its process.
    pub(super) fn event_channel_made(&mut self, registration: Registration, token: Vec<u8>) {
        let Registration { client, process, event, charge } = registration;
        if self.stop_asking(client, process) {
            if let Some(entry) = self.processes.get_mut(&process) {
                entry.registered.insert(event, charge);
            }
            self.effects.push(Effect::OpenEventChannel { client, process, event, token });
        }
    }

    pub(super) fn event_channel_not_opened(
        &mut self,
        client: ClientId,
        process: u32,
        event: u64,
        why: String,
    ) {
        if self.forget(process, event) {
            self.say_refusal(format!("event {event} of process {process} is not registered: {why}"));
            self.tell_host_to_forget(None, process, event);
        }
        if self.clients.contains_key(&client) {
            self.reply(client, refused(why), Vec::new());
        }
    }

    fn forget(&mut self, process: u32, event: u64) -> bool {
        let entry = self.processes.get_mut(&process);
        entry.is_some_and(|entry| entry.registered.remove(&event).is_some())
    }

    fn tell_host_to_forget(&mut self, client: Option<ClientId>, process: u32, event: u64) {
        let body = guestd_to_host::Body::UnregisterEvent(RegisteredEvent { process, event });
        let pending = Pending::UnregisterEvent { client, process };
        match client {
            Some(client) => self.ask(client, process, body, pending),
            None => self.tell_host(body, pending),
        }
    }

    /// Unregisters an event. The event channel is closed before the host is asked, so the event is never set after the
    /// reply. An event that is not registered is unregistered already: event channels end with the link to a host, and the
    /// resumed process may not know yet.
    pub(super) fn unregister_event(&mut self, client: ClientId, process: u32, event: u64) {
        if !self.forget(process, event) {
            let reply = BrokerReply { process, ..BrokerReply::default() };
            return self.reply(client, reply, Vec::new());
        }
        self.effects.push(Effect::CloseEventChannel { process, event });
        self.tell_host_to_forget(Some(client), process, event);
    }

    pub(super) fn drain_event_channels(&mut self, client: ClientId, process: u32) {
        let body = guestd_to_host::Body::Settle(process);
        self.ask(client, process, body, Pending::Settle { client, process });
    }

    /// The host has answered with its wake counts. They may include channels that were closed before the host learned
    /// of it.
    pub(super) fn settle_rung(&mut self, client: ClientId, process: u32, rung: &Rung) {
        if self.stop_asking(client, process) {
            let registered = rung
                .event_channels
                .iter()
                .filter(|event_channel| self.is_registered(process, event_channel.event));
            let event_channels =
                registered.map(|event_channel| (event_channel.event, event_channel.wakes)).collect();
            self.effects.push(Effect::Settle { client, process, event_channels });
        }
    }
}
