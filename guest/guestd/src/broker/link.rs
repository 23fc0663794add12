//! The broker's link to the host: its states, the hello, and the host's answers.

use std::collections::BTreeMap;
use std::time::Duration;

use d3dkmt::FeatureId;
use fair_queue::Queue as _;
use proto::Versions;
use proto::attach::host_to_guestd::Body;
use proto::attach::{Attached, DetachBacking, GuestdHello, GuestdWelcome, HostToGuestd, guestd_to_host};

use super::awaiting_pages::WantedPages;
use super::quotas::{Charge, Uid};
use super::rings::RingAreas;
use super::state::{ClientState, Link, Pending, Process, ProcessState, Registration, ResumeRight};
use super::{Broker, ClientId, Effect, FIRST_PAGES, Input, Machine};
use crate::limits::{
    DEADLINES_AT_ONCE_MAX, GREETING_MAX, INTRODUCTION_MAX, LINK_WORDS_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};

impl<M: Machine> Broker<M> {
    pub(super) fn link_opened(&mut self, now: Duration) {
        self.link = Link::Greeting { until: now + GREETING_MAX };
        let hello = GuestdHello {
            version: proto::PROTOCOL_VERSION,
            version_min: Versions::OURS.oldest(),
            kernel: self.config.kernel.clone(),
            features: FeatureId::MODELLED.map(|feature| feature.0).to_vec(),
        };
        self.tell_host(guestd_to_host::Body::Hello(hello), Pending::Hello);
    }

    /// The host is gone, and all its knowledge of processes with it, unless a restarted host resumes them (`resuming`).
    /// It can no longer store into any page.
    pub(super) fn link_lost(&mut self, now: Duration, why: &str) {
        let pause = match &self.link {
            Link::Down { pause, .. } | Link::Opening { pause, .. } => *pause,
            Link::Greeting { .. } | Link::Finishing { .. } => RETRY_PAUSE_MAX,
            Link::Up => RETRY_PAUSE_MIN,
        };
        let was_up = self.link.is_up();
        self.stop_awaiting_pages();
        let waiting = self.strand();
        let ended = self.end_all_processes();
        if waiting == 0 {
            // Nor does it know the pages that this one kept.
            self.free_kept();
        }
        if was_up && waiting == 0 {
            // No client returns to the host, so its next daemon will not know the sync files of this one.
            self.forget_nt_handles();
        }
        if was_up || ended > 0 {
            let wait = if waiting > 0 { format!(", {waiting} wait for it") } else { String::new() };
            self.say_once(format!("the host is gone ({why}); processes ended: {ended}{wait}"));
        } else {
            self.say_once(format!("no connection to the host, trying again: {why}"));
        }
        let next = (pause * 2).min(RETRY_PAUSE_MAX);
        self.link = Link::Down { retry: now + pause, pause: next, why: why.to_owned() };
    }

    /// Logs a line at most once since the last welcome, because the link is retried again and again.
    fn say_once(&mut self, words: String) {
        if self.logged_lines.len() < LINK_WORDS_MAX && self.logged_lines.insert(words.clone()) {
            self.effects.push(Effect::Say(words));
        }
    }

    /// Frees every process, and closes the clients that have one or are getting one. Clients that wait for the host
    /// keep waiting.
    fn end_all_processes(&mut self) -> usize {
        self.pending.clear();
        let ended = self.processes.len();
        let with_host = |state: &ClientState<M::Descriptor>| match state {
            ClientState::Fresh { .. }
            | ClientState::Held { .. }
            | ClientState::Returning { .. }
            | ClientState::Stranded { .. } => false,
            ClientState::Attaching
            | ClientState::Resuming
            | ClientState::Adding { .. }
            | ClientState::MakingNtHandle { .. }
            | ClientState::AwaitingPages { .. }
            | ClientState::AttachingBacking { .. }
            | ClientState::DetachingBacking { .. }
            | ClientState::SharingBacking { .. }
            | ClientState::AwaitingEvent { .. }
            | ClientState::Attached { .. } => true,
        };
        let clients = self.clients.iter().filter(|(_, client)| with_host(&client.state));
        for client in clients.map(|(client, _)| *client).collect::<Vec<_>>() {
            self.clients.remove(&client);
            self.effects.push(Effect::Close { client });
        }
        for (process, entry) in std::mem::take(&mut self.processes) {
            if !entry.registered.is_empty() {
                self.effects.push(Effect::CloseEventChannels { process });
            }
            self.free_process(entry);
        }
        ended
    }

    /// Gives up a link whose host breaks the protocol.
    pub(super) fn garbled(&mut self, now: Duration, how: &str) {
        self.finish_link(now, format!("the host breaks the protocol, its connection is closed: {how}"));
    }

    /// Closes the link. Nothing is freed yet, because the host may store into pages until it has closed its end too.
    fn finish_link(&mut self, now: Duration, words: String) {
        match self.link {
            Link::Greeting { .. } | Link::Up => {
                self.say_once(words);
                self.effects.push(Effect::FinishLink);
                self.link = Link::Finishing { until: now + GREETING_MAX };
            }
            Link::Down { .. } | Link::Opening { .. } | Link::Finishing { .. } => {}
        }
    }

    pub(super) fn deadline(&mut self, now: Duration) {
        match &self.link {
            Link::Down { retry, pause, why } if *retry <= now => {
                self.link = Link::Opening { pause: *pause, why: why.clone() };
                self.effects.push(Effect::OpenLink);
            }
            Link::Greeting { until } | Link::Finishing { until } if *until <= now => {
                self.effects.push(Effect::DropLink);
                self.link_lost(now, "it does not answer");
            }
            Link::Down { .. }
            | Link::Opening { .. }
            | Link::Greeting { .. }
            | Link::Up
            | Link::Finishing { .. } => {}
        }
        self.free_some();
        self.handle_due(now);
    }

    /// Handles some of the clients whose deadline is reached.
    fn handle_due(&mut self, now: Duration) {
        while let Some((_, client)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now).copied()
        {
            self.deadlines.pop_first();
            if let Some(entry) = self.clients.get(&client) {
                self.due.push(entry.peer.user, client);
            }
        }
        for _ in 0..DEADLINES_AT_ONCE_MAX {
            let Some(client) = self.due.pop() else { return };
            let Some(entry) = self.clients.get(&client) else { continue };
            let goes_on = self.link.is_up() && entry.waits_for_host();
            if let Some(deadline) = entry.deadline().filter(|deadline| goes_on || *deadline <= now) {
                self.deadlines.remove(&(deadline, client));
                self.wait_is_over(now, client);
            }
        }
    }

    /// The host that a client waits for is there, or its deadline is reached.
    fn wait_is_over(&mut self, now: Duration, client: ClientId) {
        match self.clients.get(&client).map(|client| &client.state) {
            Some(ClientState::Held { name, rings, .. }) if self.link.is_up() => {
                let (name, rings) = (name.clone(), *rings);
                self.attach_to_host(client, name, rings);
            }
            Some(ClientState::Returning { process, token, rings, .. }) if self.link.is_up() => {
                let (process, token, rings) = (*process, token.clone(), *rings);
                self.ask_for_session(now, client, process, token, rings);
            }
            // The process asks again until its own time limit: only the host may refuse to resume it.
            Some(ClientState::Returning { .. }) => self.close_silently(client),
            Some(ClientState::AwaitingPages { .. }) => self.pages_may_be_free(client),
            Some(ClientState::Fresh { .. }) => {
                let seconds = INTRODUCTION_MAX.as_secs();
                self.expel(client, format!("it has asked for nothing in {seconds} s"));
            }
            Some(ClientState::Held { .. }) => {
                let why = match &self.link {
                    Link::Down { why, .. } | Link::Opening { why, .. } => why.as_str(),
                    Link::Greeting { .. } | Link::Up | Link::Finishing { .. } => "it does not answer",
                };
                self.expel(client, format!("the host is not there: {why}"));
            }
            Some(
                ClientState::Resuming
                | ClientState::Stranded { .. }
                | ClientState::Attaching
                | ClientState::Adding { .. }
                | ClientState::MakingNtHandle { .. }
                | ClientState::AttachingBacking { .. }
                | ClientState::DetachingBacking { .. }
                | ClientState::SharingBacking { .. }
                | ClientState::AwaitingEvent { .. }
                | ClientState::Attached { .. },
            )
            | None => unreachable!("client {} has no deadline", client.0),
        }
    }

    pub(super) fn host_says(&mut self, now: Duration, message: HostToGuestd) {
        match self.link {
            Link::Greeting { .. } | Link::Up => {}
            // Messages of a link that is closing or closed are ignored.
            Link::Finishing { .. } | Link::Down { .. } | Link::Opening { .. } => return,
        }
        if message.request == 0 {
            return match message.body {
                Some(Body::Ended(process)) => self.ended_by_host(process),
                Some(Body::SyncFileReady(bytes)) => match proto::convert::token(&bytes, "sync_file_ready") {
                    Ok(token) => self.sync_file_ready(token),
                    Err(_) => self.garbled(now, "the token of a sync file is not 16 bytes"),
                },
                Some(Body::BackingReleased(DetachBacking { process, address })) => {
                    self.backing_released(process, address);
                }
                Some(_) | None => {
                    let known = "`ended`, `sync_file_ready` or `backing_released`";
                    self.garbled(now, &format!("a message of its own is none of {known}"));
                }
            };
        }
        let Some(pending) = self.pending.remove(&message.request) else {
            return self.garbled(now, &format!("it answers request {}, which is not open", message.request));
        };
        let answer = if message.refused.is_empty() { Ok(message.body) } else { Err(message.refused) };
        if let Err(why) = self.answered(now, pending, answer) {
            self.garbled(now, why);
        }
    }

    /// Handles an answer. An error says how the host breaks the protocol.
    fn answered(
        &mut self,
        now: Duration,
        pending: Pending<M>,
        answer: Result<Option<Body>, String>,
    ) -> Result<(), &'static str> {
        match (pending, answer) {
            (Pending::Hello, Ok(Some(Body::Welcome(welcome)))) => self.welcomed(now, welcome),
            (Pending::Hello, Err(words)) => {
                self.finish_link(now, format!("the host refuses this guest: {words}"))
            }
            (Pending::Attach { client, user, charge, rings }, Ok(Some(Body::Attached(attached)))) => {
                return self.attached(client, user, charge, rings, attached);
            }
            (Pending::Attach { client, .. }, Err(words)) => self.expel(client, words),
            (Pending::AddMemory { client, process }, Ok(Some(Body::FirstSlot(first_slot)))) => {
                self.memory_added(client, process, first_slot);
            }
            (Pending::AddMemory { client, process }, Err(words)) => {
                self.memory_refused(client, process, words)
            }
            (Pending::Detach { process }, Ok(Some(Body::Detached(true)))) => {
                self.detached(process);
            }
            (Pending::Detach { process }, Ok(Some(Body::Kept(kept)))) => {
                self.keep(process, &kept.addresses);
                self.detached(process);
            }
            // The host stores nothing for a process that it does not know.
            (Pending::Detach { process }, Err(words)) => {
                let text = format!("process {process} is freed; the host refused to detach it: {words}");
                self.effects.push(Effect::Say(text));
                self.detached(process);
            }
            (Pending::MakeNtHandle { client, charge }, Ok(Some(Body::NtHandle(bytes)))) => {
                let token = proto::convert::token(&bytes, "nt_handle");
                let token = token.map_err(|_| "the token of an NT handle is not 16 bytes")?;
                self.nt_handle_made(client, token, charge);
            }
            (Pending::MakeNtHandle { client, .. }, Err(words)) => self.nt_handle_refused(client, words),
            // An NT handle that the host does not know is closed already.
            (Pending::NtHandleClosed, Ok(Some(Body::NtHandleClosed(true))) | Err(_)) => {}
            (
                pending @ (Pending::AttachBacking { .. }
                | Pending::DetachBacking { .. }
                | Pending::ShareBacking { .. }
                | Pending::KeptBacking { .. }),
                answer,
            ) => return self.backing_answered(pending, answer),
            (Pending::RegisterEvent(registration), Ok(Some(Body::EventChannel(token)))) => {
                self.event_channel_made(registration, token);
            }
            (
                Pending::RegisterEvent(Registration { client, process, .. })
                | Pending::Settle { client, process }
                | Pending::ReattachBacking { client, process },
                Err(words),
            ) => self.forward_answer(client, process, Err(words)),
            // The host sends no wakes for an event that it does not know.
            (Pending::UnregisterEvent { client, process }, Ok(Some(Body::Forgotten(true))) | Err(_)) => {
                if let Some(client) = client {
                    self.forward_answer(client, process, Ok(()));
                }
            }
            (Pending::Settle { client, process }, Ok(Some(Body::Rung(rung)))) => {
                self.settle_rung(client, process, &rung);
            }
            (Pending::Returning, Ok(Some(Body::Returned(true)))) => {}
            // An NT handle that the host has no room for counts as unknown to it.
            (Pending::NtHandleHeld, Ok(Some(Body::NtHandleHeld(true))) | Err(_)) => {}
            (Pending::Resume { client, process, rings }, Ok(Some(Body::Resumed(resumed)))) => {
                return self.resumed(client, process, rings, resumed);
            }
            (Pending::Resume { client, process, .. }, Err(words)) => self.not_resumed(client, process, words),
            (Pending::ReattachBacking { client, process }, Ok(Some(Body::BackingAttached(true)))) => {
                self.forward_answer(client, process, Ok(()));
            }
            // Clients that wait for this answer are closed with the link.
            (pending @ Pending::Returning, Err(_)) | (pending, Ok(_)) => return Err(pending.wrong_answer()),
        }
        Ok(())
    }

    /// The host accesses no memory of the process any more.
    fn detached(&mut self, process: u32) {
        let process = self.processes.remove(&process);
        process.into_iter().for_each(|process| self.free_process(process));
    }

    fn welcomed(&mut self, now: Duration, welcome: GuestdWelcome) {
        let GuestdWelcome { version, vm, events_max, resuming, features, rings } = welcome;
        let ours = Versions::OURS;
        if !ours.contains(version) {
            return self.finish_link(
                now,
                format!("the host speaks protocol version {version}, guestd speaks {ours}"),
            );
        }
        self.link = Link::Up;
        self.events_max = events_max.min(self.config.events_max);
        self.host_uses_rings = rings;
        self.logged_lines.clear();
        let lacking = FeatureId::MODELLED.iter().filter(|feature| !features.contains(&feature.0));
        let without: String = lacking.map(|feature| format!(", without feature {feature}")).collect();
        self.effects.push(Effect::Say(format!("connected to the host as VM {vm}{without}")));
        self.return_to_host(resuming);
        self.end_waits_for_host();
        self.handle_due(now);
    }

    /// Lets the clients that wait for the host go on, in turns: rings for one take milliseconds.
    fn end_waits_for_host(&mut self) {
        for (client, entry) in &self.clients {
            if entry.waits_for_host() {
                self.due.push(entry.peer.user, *client);
            }
        }
    }

    fn attached(
        &mut self,
        client: ClientId,
        user: Uid,
        charge: Charge,
        rings: Option<RingAreas<M>>,
        attached: Attached,
    ) -> Result<(), &'static str> {
        let process = attached.process;
        if self.processes.contains_key(&process) {
            return Err("it gives one process number to two processes");
        }
        if self.stranded.contains_key(&process) {
            return Err("it gives a process the number of one that waits for it");
        }
        let state = ProcessState::Alive { client, stream: None };
        let right = ResumeRight { token: attached.resume_token, within_ms: attached.resume_ms };
        self.processes.insert(
            process,
            Process {
                state,
                user,
                regions: Vec::new(),
                backing: BTreeMap::new(),
                rings,
                registered: BTreeMap::new(),
                token: attached.token,
                right,
                charge,
            },
        );
        match self.clients.get_mut(&client) {
            Some(entry) => {
                entry.state = ClientState::Attached { process };
                let wanted = WantedPages::Fences { pages: FIRST_PAGES, first: true, first_slot: None };
                self.want_pages(client, process, wanted);
            }
            None => self.leave(process),
        }
        Ok(())
    }

    /// The host has refused the memory, so it will not store there.
    fn memory_refused(&mut self, client: ClientId, process: u32, words: String) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        let state = std::mem::replace(&mut entry.state, ClientState::Attached { process });
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.regions.pop();
        }
        let first = matches!(state, ClientState::Adding { first: true, .. });
        self.refuse_memory(client, words, first);
    }

    fn ended_by_host(&mut self, process: u32) {
        let Some(ProcessState::Alive { client, .. }) = self.processes.get(&process).map(|entry| &entry.state)
        else {
            // The broker's detach and the host's message have crossed.
            return;
        };
        let client = *client;
        self.effects.push(Effect::Say(format!("process {process} is ended by the host")));
        self.close_silently(client);
    }
}

/// One line for logs and tests.
impl std::fmt::Display for Input {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LinkOpened => write!(formatter, "link opened"),
            Self::LinkLost { why } => write!(formatter, "link lost: {why}"),
            Self::LinkGarbled { why } => write!(formatter, "link garbled: {why}"),
            Self::FromHost(message) => write!(formatter, "from host: {message:?}"),
            Self::ClientArrived { client, peer } => {
                write!(formatter, "client {} arrived, pid {}, user {}", client.0, peer.pid, peer.user.0)
            }
            Self::Packet { client, bytes } => {
                write!(formatter, "client {} sent {} bytes", client.0, bytes.len())
            }
            Self::ClientGone { client } => write!(formatter, "client {} gone", client.0),
            Self::NtHandleClosed { token } => write!(formatter, "NT handle {token:?} closed"),
            Self::NtHandleNotMade { client, token, why } => {
                write!(formatter, "NT handle {token:?} not made for client {}: {why}", client.0)
            }
            Self::EventChannelNotOpened { client, process, event, why } => {
                write!(
                    formatter,
                    "no event_channel for event {event} of process {process}, client {}: {why}",
                    client.0
                )
            }
            Self::Deadline => write!(formatter, "deadline"),
        }
    }
}
