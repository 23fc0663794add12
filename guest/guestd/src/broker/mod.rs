//! The broker: gives client processes their stream to the host and their fence memory. A value: no clock, no socket.
//!
//! Primer. A process connects to a Unix socket and asks to *attach*. The broker forwards this to the host and gets a
//! process number and a one-time token. It makes a page of fence memory and sends its guest-physical address to the
//! host, which answers with the first slot of the page. It opens a stream to the host, and gives stream, memory and
//! token to the process. If both sides use *rings*, the process also gets their two areas, whose pages the host has
//! from the attach on. Later the process may *grow* its memory, and ask for NT handles: descriptors that carry a
//! token of the host, and may stay open in other processes. The host is notified when no process has one open any more.
//! A process may attach *backing* pages to its allocations, which engines read and write. Those of memory of the device
//! in a shared resource are *kept* after it has detached them or is gone, until the host releases them; meanwhile
//! processes that have opened the resource get them too. And it may *register* events
//! that the host's driver signals: each has a stream from the host, its event channel, whose bytes set it. The
//! connection stays open as long as the process lives.
//!
//! ```text
//! client:   Fresh ──Attach──▶ Held ──link up──▶ Attaching ──attached──▶ Adding ──first slot──▶ Attached
//!             │ sends nothing for INTRODUCTION_MAX ──▶ closed
//!             │                 ▲                   ▲                      ▲                      │ ▲
//!             └── link is up ───┼───────────────────┘                      └───────── Grow ───────┤ token
//!                               │                                             MakeNtHandle ─▶ Making
//!                               │                      AttachBacking, DetachBacking ─▶ AttachingBacking, TakingBack
//!                               │                                             ShareBacking ─▶ SharingBacking
//!                               │               RegisterEvent, UnregisterEvent, Settle ─▶ Asking
//!                               └─ until the host is connected, or HOST_WAIT_MAX has passed
//! process:  attached ──▶ alive ──client gone, or ended by the host──▶ leaving ──detached──▶ freed
//!             the stream is shut down when it leaves; its pages are unpinned and freed when the host has *answered*,
//!             because until then the host may store into them
//! NT handle: requested ──token──▶ given ──last close, by any process──▶ reported to the host      link lost ──▶ forgotten
//! sync file: as an NT handle; its signal is raised when the host says that it is ready, and when it is forgotten
//! stranded: host killed ──Resume by a new connection──▶ Resuming ──resumed──▶ alive     process gone, or refused ──▶ freed
//! event channel: requested ──token──▶ open ──unregistered, or the process leaves, or the link is lost──▶ closed
//! link:     Down ──OpenLink──▶ Opening ──▶ Greeting ──welcome──▶ Up     any ──lost──▶ Down: every process is freed or stranded
//!             a host that breaks the protocol: Finishing, until it has closed its end too
//! ```
//!
//! Limited resources - connections, processes, pages and regions of pinned memory, NT handles - are shared by the users
//! of the guest by `quotas`: no user ever has all of one.
//!
//! A client has at most one request in progress and is not listened to meanwhile. A client that breaks the protocol
//! gets `refused` with the reason, and its connection is closed; a request over a limit gets `refused` only. A request
//! that names what the client does not have gets `refused` too, and the sixteenth of them closes the connection.

mod awaiting_pages;
mod backing;
mod effects;
mod events;
mod growth;
mod link;
mod nt_handles;
mod quotas;
mod resuming;
mod rings;
mod state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use d3dkmt::ShareToken;
use d3dkmt::limits::{EVENT_CHANNELS_PER_VM_MAX, PROCESSES_PER_VM_MAX, SHARES_PER_VM_MAX};
use fair_queue::{FairQueue, Queue as _};
use fence_page::pages_for;
use proto::attach::{AddFenceMemory, AttachProcess, BrokerReply, BrokerRequest, GuestdToHost};
use proto::attach::{broker_request, guestd_to_host};
use proto::limits::{BROKER_PACKET_BYTES_MAX, NAME_BYTES_MAX};
use proto::{Message, Versions};

use crate::limits::{
    CLIENTS_MAX, GROW_PAGES_MAX, HOST_WAIT_MAX, INTRODUCTION_MAX, PINNED_REGIONS_MAX, REFUSALS_MAX,
    REFUSALS_SAID_MAX, REFUSALS_SAID_WINDOW, SYNC_FILES_MAX,
};
use awaiting_pages::WantedPages;
pub use effects::{ClientId, Effect, Input, Machine, MadeRegion, MadeStream, Peer, Purpose};
use growth::{FIRST_PAGES, next_pages};
use nt_handles::NtHandleCharge;
use quotas::Quota;
pub use quotas::Uid;
use rings::RingAreas;
use state::{
    BackingPages, Client, ClientState, DetachedProcess, Link, NewRegion, Pending, Pinned, Process,
    ProcessState,
};

/// The broker's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Kernel release, for the host's log.
    pub kernel: String,
    /// How long the kernel may keep pages pinned that were unpinned.
    pub unpin_time: Option<Duration>,
    /// Events that one process may register; 0 where event channels do not work.
    pub events_max: u32,
}

/// The quotas that the users of the guest share.
struct Quotas {
    connections: Quota,
    processes: Quota,
    pages: Quota,
    regions: Quota,
    nt_handles: Quota,
    sync_files: Quota,
    event_channels: Quota,
}

/// The broker. `M` makes memory and streams.
pub struct Broker<M: Machine> {
    config: Config,
    machine: M,
    quotas: Quotas,
    /// The total of the quota of pages, as the machine last gave it.
    pages_total_max: u32,
    link: Link,
    clients: BTreeMap<ClientId, Client<M::Descriptor>>,
    /// The deadlines of the clients that have one that is not reached.
    deadlines: BTreeSet<(Duration, ClientId)>,
    /// Clients whose deadline was reached, or whose host is there, unless they have another state by now. Hundreds may have
    /// the same deadline, and pages for each take milliseconds.
    due: FairQueue<Uid, VecDeque<ClientId>>,
    /// Memory that no host accesses and that is not freed yet: a process may have thousands of regions.
    freed: FairQueue<Uid, VecDeque<Pinned<M>>>,
    processes: BTreeMap<u32, Process<M>>,
    stranded: BTreeMap<u32, DetachedProcess<M>>,
    /// Pages that the host still accesses, by the process that has detached them or is gone, and their address there.
    kept: BTreeMap<(u32, u64), BackingPages<M>>,
    pending: BTreeMap<u64, Pending<M>>,
    /// NT handles and sync files that the host of this link knows and that a process may have open.
    nt_handles: BTreeMap<ShareToken, NtHandleCharge>,
    /// Those of an earlier link, which the driver watches until their last close.
    nt_handles_without_host: BTreeMap<ShareToken, NtHandleCharge>,
    /// Events that one process may register, limited by the host of this link too.
    events_max: u32,
    /// Whether the host of this link uses rings.
    host_uses_rings: bool,
    last_request: u64,
    /// The time of the input that is being handled.
    now: Duration,
    /// When this window's first refusal was logged, and how many followed.
    logged_refusals: (Duration, u32),
    /// Lines logged about the link since the last welcome.
    logged_lines: BTreeSet<String>,
    effects: Vec<Effect<M::Descriptor>>,
}

impl<M: Machine> Broker<M> {
    pub fn new(config: Config, machine: M) -> Self {
        let pages_total_max = machine.pages_total_max();
        let quotas = Quotas {
            connections: Quota::new("connections to its broker", CLIENTS_MAX as u32),
            processes: Quota::new("processes", PROCESSES_PER_VM_MAX as u32),
            pages: Quota::returning_after(config.unpin_time, "pages of pinned memory", pages_total_max),
            regions: Quota::new("regions of pinned memory", PINNED_REGIONS_MAX),
            nt_handles: Quota::new("NT handles", SHARES_PER_VM_MAX as u32),
            sync_files: Quota::new("sync files", SYNC_FILES_MAX),
            event_channels: Quota::new("event channels", EVENT_CHANNELS_PER_VM_MAX as u32),
        };
        Self {
            config,
            machine,
            quotas,
            pages_total_max,
            link: Link::new(),
            clients: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            due: FairQueue::default(),
            freed: FairQueue::default(),
            processes: BTreeMap::new(),
            stranded: BTreeMap::new(),
            kept: BTreeMap::new(),
            pending: BTreeMap::new(),
            nt_handles: BTreeMap::new(),
            nt_handles_without_host: BTreeMap::new(),
            events_max: 0,
            host_uses_rings: false,
            last_request: 0,
            now: Duration::ZERO,
            logged_refusals: (Duration::ZERO, 0),
            logged_lines: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Handles an input at the time `now` (since any fixed moment). Returns what is to be done, in order.
    pub fn handle(&mut self, now: Duration, input: Input) -> Vec<Effect<M::Descriptor>> {
        self.now = now;
        self.quotas.pages.pass(now);
        match input {
            Input::LinkOpened => self.link_opened(now),
            Input::LinkLost { why } => self.link_lost(now, &why),
            Input::LinkGarbled { why } => self.garbled(now, &why),
            Input::FromHost(message) => self.host_says(now, message),
            Input::ClientArrived { client, peer } => self.client_arrived(now, client, peer),
            Input::Packet { client, bytes } => self.packet(now, client, &bytes),
            Input::ClientGone { client } => self.client_gone(client),
            Input::NtHandleClosed { token } => self.nt_handle_closed(token),
            Input::NtHandleNotMade { client, token, why } => self.nt_handle_not_made(client, token, why),
            Input::EventChannelNotOpened { client, process, event, why } => {
                self.event_channel_not_opened(client, process, event, why);
            }
            Input::Deadline => self.deadline(now),
        }
        self.quotas.pages.pass(now);
        // It checks every process: for tests only.
        if cfg!(test) {
            assert_eq!(self.violation(), None);
        }
        std::mem::take(&mut self.effects)
    }

    /// When `Input::Deadline` is due; `None` if nothing is pending. It may have passed: one input does a limited amount of
    /// work.
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.due.is_empty() || !self.freed.is_empty() {
            return Some(self.now);
        }
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        first.into_iter().chain(self.link.deadline()).min()
    }

    /// Whether a client may send its next request. False while one is in progress.
    pub fn listens_to(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| !client.is_busy())
    }

    /// Processes that the host knows of, those that are leaving included.
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }

    fn client_arrived(&mut self, now: Duration, client: ClientId, peer: Peer) {
        let charge = match self.quotas.connections.take(peer.user, 1) {
            Ok(charge) => charge,
            Err(over) => {
                self.reply(client, refused(over.to_string()), Vec::new());
                self.effects.push(Effect::Close { client });
                return;
            }
        };
        let until = now + INTRODUCTION_MAX;
        let state = ClientState::Fresh { until };
        self.clients.insert(client, Client { peer, state, refusals: 0, charge: Some(charge) });
        self.deadlines.insert((until, client));
    }

    /// Sets the state of a client, and its deadline if the state has one. Returns the peer of its connection.
    fn change_state(&mut self, client: ClientId, state: ClientState<M::Descriptor>) -> Option<Peer> {
        let entry = self.clients.get_mut(&client)?;
        if let Some(deadline) = entry.deadline() {
            self.deadlines.remove(&(deadline, client));
        }
        entry.state = state;
        self.deadlines.extend(entry.deadline().map(|deadline| (deadline, client)));
        Some(entry.peer)
    }

    fn packet(&mut self, now: Duration, client: ClientId, bytes: &[u8]) {
        let Some(entry) = self.clients.get(&client) else { return };
        if bytes.len() > BROKER_PACKET_BYTES_MAX {
            let words = format!("a request is over {BROKER_PACKET_BYTES_MAX} bytes");
            return self.expel(client, words);
        }
        let body = match BrokerRequest::decode(bytes) {
            Ok(BrokerRequest { body: Some(body) }) => body,
            Ok(BrokerRequest { body: None }) => {
                let words = format!(
                    "the request has no body, or one of a kind unknown to this guestd, which speaks {}",
                    Versions::OURS
                );
                return match entry.state {
                    ClientState::Attached { .. } => self.refuse(client, words),
                    _ => self.expel(client, words),
                };
            }
            Err(error) => return self.expel(client, format!("the request is not a message: {error}")),
        };
        use broker_request::Body;
        match (&entry.state, body) {
            (ClientState::Fresh { .. }, Body::Attach(attach)) => self.attach(now, client, attach),
            (ClientState::Fresh { .. }, Body::Resume(resume)) => self.resume(now, client, resume),
            (ClientState::Fresh { .. }, body) => self.expel(client, too_early(&body)),
            (ClientState::Attached { process }, body) => {
                let process = *process;
                self.request(client, process, body);
            }
            // Nothing arrives from a client whose connection was closed.
            (ClientState::Stranded { .. }, _) => {}
            (
                ClientState::Held { .. }
                | ClientState::Returning { .. }
                | ClientState::Resuming
                | ClientState::Attaching
                | ClientState::Adding { .. }
                | ClientState::MakingNtHandle { .. }
                | ClientState::AwaitingPages { .. }
                | ClientState::AttachingBacking { .. }
                | ClientState::DetachingBacking { .. }
                | ClientState::SharingBacking { .. }
                | ClientState::AwaitingEvent { .. },
                _,
            ) => {
                self.expel(client, "the request before this one is not answered yet".to_owned());
            }
        }
    }

    /// Handles a request of an attached client.
    fn request(&mut self, client: ClientId, process: u32, body: broker_request::Body) {
        use broker_request::Body;
        match body {
            Body::Grow(grow) => self.grow(client, process, grow.slots),
            Body::MakeNtHandle(_) => self.ask_for_nt_handle(client, process, false),
            Body::MakeSyncFile(_) => self.ask_for_nt_handle(client, process, true),
            Body::AttachBacking(attach_backing) => {
                let broker_request::AttachBacking { address, pages } = attach_backing;
                self.want_pages(client, process, WantedPages::Backing { address, pages });
            }
            Body::DetachBacking(address) => {
                self.detach_backing(client, process, address, false);
            }
            Body::ReleaseBacking(address) => {
                self.detach_backing(client, process, address, true);
            }
            Body::ShareBacking(share) => {
                self.share_backing(client, process, share.allocation, share.offset);
            }
            // The broker has reported all kept pages to the host.
            Body::ReshareBacking(_) => {
                self.reply(client, BrokerReply { process, ..BrokerReply::default() }, Vec::new());
            }
            Body::RegisterEvent(event) => self.register_event(client, process, event),
            Body::UnregisterEvent(event) => self.unregister_event(client, process, event),
            Body::Settle(_) => self.drain_event_channels(client, process),
            Body::Regain(regain) => self.regain(client, process, regain.first_slot, regain.slots),
            Body::ReattachBacking(attach_backing) => {
                self.reattach_backing(client, process, attach_backing.address, attach_backing.pages)
            }
            // The broker has reported all open NT handles to the host.
            Body::HaveNtHandle(_) => {
                self.reply(client, BrokerReply { process, ..BrokerReply::default() }, Vec::new());
            }
            Body::Attach(_) => {
                self.refuse(client, "this connection has attached its process already".to_owned());
            }
            Body::Resume(_) => self.refuse(client, "this connection has its process already".to_owned()),
        }
    }

    fn attach(&mut self, now: Duration, client: ClientId, attach: broker_request::Attach) {
        if let Err(none) = Versions::agree(attach.version, attach.version_min, "libdxcore.so") {
            return self.expel(client, none.to_string());
        }
        let name = kept_name(attach.name);
        if self.link.is_up() {
            self.attach_to_host(client, name, attach.rings);
        } else {
            let (rings, until) = (attach.rings, now + HOST_WAIT_MAX);
            self.change_state(client, ClientState::Held { name, rings, until });
        }
    }

    fn attach_to_host(&mut self, client: ClientId, name: String, rings: bool) {
        let Some(Peer { pid, user }) = self.change_state(client, ClientState::Attaching) else { return };
        match self.quotas.processes.take(user, 1) {
            Ok(charge) => {
                let rings = self.lend_rings(user, rings);
                let attach = AttachProcess { pid, name, rings: rings.as_ref().map(RingAreas::pages) };
                let pending = Pending::Attach { client, user, charge, rings };
                self.tell_host(guestd_to_host::Body::Attach(attach), pending);
            }
            Err(over) => self.expel(client, over.to_string()),
        }
    }

    fn grow(&mut self, client: ClientId, process: u32, slots: u32) {
        if pages_for(slots) > GROW_PAGES_MAX {
            let slots_max = GROW_PAGES_MAX * fence_page::SLOTS_PER_PAGE;
            let words = format!("{slots} fence slots at once are too many, ask for at most {slots_max}");
            return self.refuse(client, words);
        }
        let held = self.processes.get(&process).map_or(0, Process::pages);
        match next_pages(held, slots) {
            Ok(pages) => {
                let wanted = WantedPages::Fences { pages, first: false, first_slot: None };
                self.want_pages(client, process, wanted);
            }
            Err(words) => self.refuse_over_limit(client, words),
        }
    }

    /// Makes memory and reports it to the host: see [`WantedPages::Fences`].
    fn add_memory(
        &mut self,
        client: ClientId,
        process: u32,
        pages: u32,
        first: bool,
        first_slot: Option<u32>,
    ) {
        let Some(user) = self.processes.get(&process).map(|entry| entry.user) else { return };
        match self.make_region(user, Purpose::Fences, pages) {
            Ok(NewRegion { memory, addresses, descriptor }) => {
                if let Some(entry) = self.processes.get_mut(&process) {
                    entry.regions.push(memory);
                }
                if let Some(client) = self.clients.get_mut(&client) {
                    client.state = ClientState::Adding { process, first, descriptor };
                }
                let add = AddFenceMemory { process, pages: addresses, first_slot };
                self.tell_host(guestd_to_host::Body::AddMemory(add), Pending::AddMemory { client, process });
            }
            Err(words) => {
                self.say_refusal(format!("process {process} gets no fence memory: {words}"));
                self.refuse_memory(client, words, first);
            }
        }
    }

    /// Follows memory that was added to the guest, or taken from it.
    fn update_pages_total(&mut self) {
        let total = self.machine.pages_total_max();
        if total != self.pages_total_max {
            self.pages_total_max = total;
            self.quotas.pages.set_total(total);
        }
    }

    /// Makes a region for a process of this user.
    fn make_region(&mut self, user: Uid, purpose: Purpose, count: u32) -> Result<NewRegion<M>, String> {
        let pages = self.quotas.pages.take(user, count).map_err(|over| over.to_string())?;
        let regions = self.quotas.regions.take(user, 1).map_err(|over| over.to_string())?;
        let MadeRegion { region, addresses, descriptor } = self.machine.make_region(purpose, count)?;
        Ok(NewRegion { memory: Pinned::new(region, pages, regions), addresses, descriptor })
    }

    /// Refuses memory. Without its first memory a process is closed, because it cannot work; one that asked for more
    /// stays.
    fn refuse_memory(&mut self, client: ClientId, words: String, first: bool) {
        if first {
            self.expel(client, words);
        } else {
            self.refuse_over_limit(client, words);
        }
    }

    /// The host has added the memory: reply with it.
    fn memory_added(&mut self, client: ClientId, process: u32, first_slot: u32) {
        // The client may have gone before the host's answer; then its process is leaving.
        let Some(entry) = self.clients.get_mut(&client) else { return };
        let state = std::mem::replace(&mut entry.state, ClientState::Attached { process });
        let ClientState::Adding { first, descriptor, .. } = state else {
            unreachable!("memory is added for a client that waits for it")
        };
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let slots = entry.regions.last().map_or(0, |region| region.pages() * fence_page::SLOTS_PER_PAGE);
        let mut reply = BrokerReply { process, first_slot, slots, ..BrokerReply::default() };
        let mut descriptors = vec![descriptor];
        if first {
            match self.machine.open_stream() {
                Ok(made_stream) => {
                    reply.token = std::mem::take(&mut entry.token);
                    reply.events_max = self.events_max;
                    reply.resume_token = entry.right.token.clone();
                    reply.resume_ms = entry.right.within_ms;
                    entry.state = ProcessState::Alive { client, stream: Some(made_stream.stream) };
                    descriptors.insert(0, made_stream.descriptor);
                    let areas = entry.rings.as_mut().map(RingAreas::take_descriptors).unwrap_or_default();
                    reply.rings = !areas.is_empty();
                    descriptors.extend(areas);
                }
                Err(words) => return self.expel(client, words),
            }
        }
        self.reply(client, reply, descriptors);
    }

    fn client_gone(&mut self, client: ClientId) {
        let Some(entry) = self.clients.remove(&client) else { return };
        if let Some(deadline) = entry.deadline() {
            self.deadlines.remove(&(deadline, client));
        }
        match entry.state {
            // The host's answer to a pending attach finds no client, and the process is detached then.
            ClientState::Fresh { .. }
            | ClientState::Held { .. }
            | ClientState::Attaching
            | ClientState::Returning { .. }
            | ClientState::Resuming => {}
            ClientState::Stranded { process } => self.stranded_gone(process),
            ClientState::Adding { process, .. }
            | ClientState::MakingNtHandle { process }
            | ClientState::AwaitingPages { process, .. }
            | ClientState::AttachingBacking { process, .. }
            | ClientState::DetachingBacking { process }
            | ClientState::SharingBacking { process }
            | ClientState::AwaitingEvent { process }
            | ClientState::Attached { process } => self.leave(process),
        }
    }

    /// Shuts the stream down and asks the host to detach the process; its pages stay until the host has answered.
    fn leave(&mut self, process: u32) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        entry.state = ProcessState::Leaving;
        if !std::mem::take(&mut entry.registered).is_empty() {
            self.effects.push(Effect::CloseEventChannels { process });
        }
        self.tell_host(guestd_to_host::Body::Detach(process), Pending::Detach { process });
    }

    /// Refuses a request over a limit. It is no misbehaviour, because other processes may have used up the limit.
    fn refuse_over_limit(&mut self, client: ClientId, words: String) {
        self.reply(client, refused(words), Vec::new());
    }

    /// Refuses a request that the library does not make. Too many are misbehaviour.
    fn refuse(&mut self, client: ClientId, words: String) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        entry.refusals += 1;
        if entry.refusals >= REFUSALS_MAX {
            return self.expel(client, words);
        }
        self.reply(client, refused(words), Vec::new());
    }

    /// Refuses a request that breaks the protocol, and closes the client.
    fn expel(&mut self, client: ClientId, words: String) {
        let Some(entry) = self.clients.get(&client) else { return };
        self.say_refusal(format!("process with pid {} is refused: {words}", entry.peer.pid));
        self.reply(client, refused(words), Vec::new());
        self.close_silently(client);
    }

    /// Closes a client's connection without a reply.
    fn close_silently(&mut self, client: ClientId) {
        self.effects.push(Effect::Close { client });
        self.client_gone(client);
    }

    /// Logs a refusal on the console, at most [`REFUSALS_SAID_MAX`] in a window.
    fn say_refusal(&mut self, words: String) {
        let (since, count) = &mut self.logged_refusals;
        if self.now.saturating_sub(*since) >= REFUSALS_SAID_WINDOW {
            (*since, *count) = (self.now, 0);
        }
        *count += 1;
        if *count <= REFUSALS_SAID_MAX {
            self.effects.push(Effect::Say(words));
        } else if *count == REFUSALS_SAID_MAX + 1 {
            let seconds = REFUSALS_SAID_WINDOW.as_secs();
            self.effects.push(Effect::Say(format!(
                "more requests are refused; the next one is logged in {seconds} s at most"
            )));
        }
    }

    fn reply(&mut self, client: ClientId, reply: BrokerReply, descriptors: Vec<M::Descriptor>) {
        self.effects.push(Effect::Reply { client, reply, descriptors });
    }

    fn tell_host(&mut self, body: guestd_to_host::Body, pending: Pending<M>) {
        self.last_request += 1;
        self.pending.insert(self.last_request, pending);
        // Nothing more is sent on a link that is being closed.
        if !matches!(self.link, Link::Finishing { .. }) {
            self.effects.push(Effect::ToHost(GuestdToHost { request: self.last_request, body: Some(body) }));
        }
    }
}

/// Why a request cannot be the first one of a connection.
fn too_early(body: &broker_request::Body) -> String {
    let what = match body {
        broker_request::Body::Attach(_) => "attach",
        broker_request::Body::Grow(_) => "ask for more fence memory",
        broker_request::Body::MakeNtHandle(_) => "ask for an NT handle",
        broker_request::Body::MakeSyncFile(_) => "ask for a sync file",
        broker_request::Body::AttachBacking(_)
        | broker_request::Body::DetachBacking(_)
        | broker_request::Body::ReleaseBacking(_)
        | broker_request::Body::ShareBacking(_) => "attach backing pages",
        broker_request::Body::RegisterEvent(_)
        | broker_request::Body::UnregisterEvent(_)
        | broker_request::Body::Settle(_) => "register events",
        broker_request::Body::Resume(_) => "resume",
        broker_request::Body::Regain(_)
        | broker_request::Body::ReattachBacking(_)
        | broker_request::Body::ReshareBacking(_)
        | broker_request::Body::HaveNtHandle(_) => "restore a session",
    };
    format!("attach before you {what}")
}

fn refused(words: String) -> BrokerReply {
    BrokerReply { refused: words, ..BrokerReply::default() }
}

/// The name as it is stored: cut at a character boundary, at most [`NAME_BYTES_MAX`] bytes.
fn kept_name(mut name: String) -> String {
    let end = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.truncate(end.unwrap_or(0));
    name
}

#[cfg(test)]
mod backing_tests;
#[cfg(test)]
mod event_tests;
#[cfg(test)]
mod kept_pages_tests;
#[cfg(test)]
mod nt_handle_tests;
#[cfg(test)]
mod quota_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod resuming_tests;
#[cfg(test)]
mod ring_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod version_tests;
