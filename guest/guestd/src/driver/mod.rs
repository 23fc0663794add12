//! The broker's thread: sockets, the link to the host and process exits, over one epoll. It sleeps until one of them is
//! ready or the broker's next deadline is reached. Without pending work there is no deadline.

mod clients;
mod closer;
mod event_channels;
mod host_stream;
mod nt_handles;

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use d3dkmt::ShareToken;
use fair_queue::{FairQueue, Queue as _};
use nt_handle::{NtHandles, SyncFileFolder};
use proto::attach::BrokerReply;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::broker::{Broker, ClientId, Effect, Input, Machine, Uid};
use crate::console::say;
use crate::limits::ACCEPTS_PER_TURN_MAX;
use clients::{Accepted, AttachedDescriptor, Clients, Ready, Received};
use event_channels::{EventChannels, is_event_channel};
use host_stream::LinkSocket;

/// epoll keys of the listening socket, the link, closed NT handles and room to receive descriptors, and the first key
/// of the clients.
const LISTENER: u64 = 0;
const LINK: u64 = 1;
const NT_HANDLES: u64 = 2;
const FREED: u64 = 3;
const FIRST_CLIENT: u64 = 4;
/// Turns of [`Driver::run_ready`]: clients and host may have something for ever.
const READY_TURNS_MAX: usize = 64;

/// Makes the connection to the host. The error is a readable text.
pub type Connect = Box<dyn FnMut() -> Result<OwnedFd, String> + Send>;

/// Performs the broker's effects, and passes it the inputs.
pub struct Driver<M: Machine<Descriptor = OwnedFd>> {
    broker: Broker<M>,
    epoll: OwnedFd,
    clients: Clients,
    /// Clients with a request, by user: a user may have hundreds. They are not listened to, so each is queued once.
    turns: FairQueue<Uid, VecDeque<ClientId>>,
    connect: Connect,
    connect_event_channel: Connect,
    link: Option<LinkSocket>,
    event_channels: EventChannels,
    /// Descriptors that came with requests in progress.
    offered: BTreeMap<ClientId, AttachedDescriptor>,
    /// The open NT handles; `None` if there are none.
    nt_handles: Option<NtHandles>,
    /// Closed NT handles of which the broker is not told yet, by the user that is charged for them.
    closed_nt_handles: FairQueue<Uid, VecDeque<ShareToken>>,
    sync_files: SyncFileFolder,
    started: Instant,
}

impl<M: Machine<Descriptor = OwnedFd>> Driver<M> {
    /// Serves the processes that connect to `listener`, a non-blocking SOCK_SEQPACKET socket. Belongs to the calling
    /// thread. A killed guestd is not resumed, so its sync files become readable.
    pub fn new(
        broker: Broker<M>,
        listener: OwnedFd,
        sync_files: SyncFileFolder,
        connect: Connect,
        connect_event_channel: Connect,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let clients = Clients::new(listener, &epoll)?;
        Ok(Self {
            broker,
            epoll,
            clients,
            turns: FairQueue::default(),
            connect,
            connect_event_channel,
            link: None,
            event_channels: EventChannels::default(),
            offered: BTreeMap::new(),
            nt_handles: None,
            closed_nt_handles: FairQueue::default(),
            sync_files,
            started: Instant::now(),
        })
    }

    /// Waits for events and handles them, until epoll fails.
    pub fn run(&mut self) -> Errno {
        loop {
            if let Err(error) = self.turn(None) {
                return error;
            }
        }
    }

    /// Handles what is ready now, and never waits. For fuzz targets, whose thread has both sides of its sockets.
    #[doc(hidden)]
    pub fn run_ready(&mut self) -> Result<(), Errno> {
        for _ in 0..READY_TURNS_MAX {
            if self.turn(Some(Duration::ZERO))? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Processes that the host knows of.
    #[doc(hidden)]
    pub fn process_count(&self) -> usize {
        self.broker.process_count()
    }

    /// Handles one wake-up of epoll, which comes after this time at the latest, some messages of the host, one request of a
    /// client, because memory for it takes milliseconds, and some closed NT handles. Returns the number of things done.
    fn turn(&mut self, limit: Option<Duration>) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let deadline = self.broker.next_deadline().map(|deadline| deadline.saturating_sub(self.now()));
        let mut reads_link = self.link.as_ref().is_some_and(LinkSocket::has_more);
        let more = reads_link || !self.turns.is_empty() || self.may_have_closed();
        let more = more.then_some(Duration::ZERO);
        let timeout = deadline.into_iter().chain(limit).chain(more).min();
        let timeout = timeout.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let events = match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => &*events,
            Err(Errno::INTR) => &[],
            Err(error) => return Err(error),
        };
        let mut count = events.len();
        for event in events {
            reads_link |= event.data.u64() == LINK;
            self.ready(event.data.u64(), event.flags);
        }
        if reads_link {
            self.read_link();
            count += 1;
        }
        if let Some(client) = self.turns.pop() {
            self.serve(client);
            count += 1;
        }
        if self.may_have_closed() {
            self.close_nt_handles();
            count += 1;
        }
        if self.broker.next_deadline().is_some_and(|deadline| deadline <= self.now()) {
            self.feed(Input::Deadline);
            count += 1;
        }
        Ok(count)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn ready(&mut self, key: u64, flags: epoll::EventFlags) {
        match key {
            LISTENER => self.accept(),
            FREED => {
                for client in self.clients.take_resting() {
                    self.clients.listen(&self.epoll, client, self.broker.listens_to(client));
                }
            }
            LINK => self.flush_link(flags),
            NT_HANDLES => self.find_closed(),
            _ if is_event_channel(key) => {
                let settled = self.event_channels.ready(&self.epoll, key);
                self.answer_settled(settled);
            }
            _ => match self.clients.ready(key, flags) {
                Some((client, Ready::Readable(user))) => {
                    self.clients.listen(&self.epoll, client, false);
                    self.turns.push(user, client);
                }
                Some((client, Ready::Gone)) => self.client_gone(client),
                None => {}
            },
        }
    }

    /// Reads and handles a request of a client, unless it is not listened to any more.
    fn serve(&mut self, client: ClientId) {
        let Some(user) = self.clients.user(client).filter(|_| self.broker.listens_to(client)) else { return };
        // The request may ask for an NT handle, to open a name. Names whose last handle its user has closed by now must be
        // gone when the host gets the request.
        if self.must_close_more(user) {
            return self.turns.push(user, client);
        }
        match self.clients.receive(&self.epoll, client) {
            Received::Packet(bytes, offered) => {
                if let Some(offered) = offered {
                    self.offered.insert(client, offered);
                }
                self.feed(Input::Packet { client, bytes });
                let listening = self.broker.listens_to(client);
                if listening {
                    self.offered.remove(&client);
                }
                self.clients.listen(&self.epoll, client, listening);
            }
            Received::Gone => self.client_gone(client),
            Received::Nothing => {}
        }
    }

    fn client_gone(&mut self, client: ClientId) {
        // What the process has closed ends before it, unless that is much.
        if let Some(user) = self.close_client(client) {
            self.must_close_more(user);
        }
        self.feed(Input::ClientGone { client });
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match self.clients.accept(&self.epoll) {
                Accepted::Client(client, peer) => self.feed(Input::ClientArrived { client, peer }),
                Accepted::Dropped => {}
                Accepted::Nothing => return,
            }
        }
    }

    fn flush_link(&mut self, flags: epoll::EventFlags) {
        if let Some(link) = self.link.as_mut().filter(|_| flags.contains(epoll::EventFlags::OUT)) {
            link.flush(&self.epoll);
        }
    }

    fn read_link(&mut self) {
        let Some(link) = &mut self.link else { return };
        for input in link.read() {
            let lost = matches!(input, Input::LinkLost { .. });
            if lost {
                self.drop_link();
            }
            self.feed(input);
            if lost {
                return;
            }
        }
    }

    /// Passes an input to the broker and performs its effects, and the inputs that result from them.
    fn feed(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.now();
            for effect in self.broker.handle(now, input) {
                inputs.extend(self.perform(effect));
            }
        }
    }

    fn perform(&mut self, effect: Effect<OwnedFd>) -> Option<Input> {
        match effect {
            Effect::OpenLink => return Some(self.open_link()),
            Effect::FinishLink => {
                if let Some(link) = &mut self.link {
                    link.finish();
                }
            }
            Effect::DropLink => self.drop_link(),
            Effect::ToHost(message) => {
                if let Some(link) = &mut self.link {
                    link.send(&message, &self.epoll);
                }
            }
            Effect::Reply { client, reply, descriptors } => return self.reply(client, &reply, &descriptors),
            Effect::GiveNtHandle { client, process, token, is_sync_file } => {
                return match self.make_nt_handle(token, is_sync_file) {
                    Ok(handle) => {
                        let reply = BrokerReply { process, ..BrokerReply::default() };
                        self.reply(client, &reply, &[handle])
                    }
                    Err(error) => Some(Input::NtHandleNotMade { client, token, why: error.to_string() }),
                };
            }
            Effect::RaiseSyncFile { token } => {
                let handles = self.nt_handles.iter();
                handles.filter_map(|handles| handles.signal_of(token)).for_each(nt_handle::Signal::raise);
            }
            Effect::OpenEventChannel { client, process, event, token } => {
                return match self.open_event_channel(client, (process, event), &token) {
                    Ok(()) => self.reply(client, &BrokerReply { process, ..BrokerReply::default() }, &[]),
                    Err(why) => Some(Input::EventChannelNotOpened { client, process, event, why }),
                };
            }
            Effect::CloseEventChannel { process, event } => {
                self.event_channels.close(&self.epoll, (process, event))
            }
            Effect::CloseEventChannels { process } => self.event_channels.close_all_of(&self.epoll, process),
            Effect::Settle { client, process, event_channels } => {
                let settled = self.event_channels.drain(&self.epoll, client, process, event_channels);
                self.answer_settled(settled);
            }
            Effect::Close { client } => _ = self.close_client(client),
            Effect::HangUp { client } => {
                self.offered.remove(&client);
                self.clients.hang_up(&self.epoll, client);
            }
            Effect::Say(words) => say(&words),
        }
        None
    }

    fn reply(&mut self, client: ClientId, reply: &BrokerReply, descriptors: &[OwnedFd]) -> Option<Input> {
        self.offered.remove(&client);
        self.clients.reply(&self.epoll, client, reply, descriptors).err().map(|_| {
            self.close_client(client);
            Input::ClientGone { client }
        })
    }

    /// Returns the user of the connection, if it was open.
    fn close_client(&mut self, client: ClientId) -> Option<Uid> {
        self.offered.remove(&client);
        let user = self.clients.close(&self.epoll, client)?;
        self.turns.change(user, |clients| clients.retain(|other| *other != client));
        Some(user)
    }

    fn open_event_channel(&mut self, client: ClientId, name: (u32, u64), token: &[u8]) -> Result<(), String> {
        let event = match self.offered.remove(&client) {
            Some(AttachedDescriptor::Eventfd(event)) => event,
            Some(AttachedDescriptor::Other) => {
                return Err("the descriptor of the event registration is no eventfd".to_owned());
            }
            None => return Err("the event registration carries no eventfd".to_owned()),
        };
        let stream = (self.connect_event_channel)()?;
        self.event_channels.open(&self.epoll, name, stream, token, &event)
    }

    /// Answers clients whose events are set as far as the host had signaled them. If a reply fails, the client is seen
    /// to be gone later.
    fn answer_settled(&mut self, settled: Vec<(ClientId, u32)>) {
        for (client, process) in settled {
            let reply = BrokerReply { process, ..BrokerReply::default() };
            let _ = self.clients.reply(&self.epoll, client, &reply, &[]);
        }
    }

    fn open_link(&mut self) -> Input {
        let opened = (self.connect)().and_then(|socket| {
            LinkSocket::new(socket, &self.epoll)
                .map_err(|error| format!("cannot use the connection: {error}"))
        });
        match opened {
            Ok(link) => {
                self.link = Some(link);
                Input::LinkOpened
            }
            Err(why) => Input::LinkLost { why },
        }
    }

    fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.close(&self.epoll);
        }
    }
}

#[cfg(test)]
mod tests;
