//! The broker's thread: sockets, the link to the host and process ends, over one epoll. It sleeps until one of them, or
//! the broker's next deadline, has something for it; at rest there is no deadline.

mod clients;
mod link;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::broker::{Broker, Effect, Input, Machine};
use crate::console::say;
use clients::{Clients, Ready};
use link::LinkSocket;

/// epoll's name of the listening socket, of the link, and the first of the clients'.
const LISTENER: u64 = 0;
const LINK: u64 = 1;
const FIRST_CLIENT: u64 = 2;

/// Makes the connection to the host. The error is in words for a person.
pub type Connect = Box<dyn FnMut() -> Result<OwnedFd, String> + Send>;

/// Performs what the broker asks for, and tells it what happens.
pub struct Driver<M: Machine<Descriptor = OwnedFd>> {
    broker: Broker<M>,
    epoll: OwnedFd,
    clients: Clients,
    connect: Connect,
    link: Option<LinkSocket>,
    started: Instant,
}

impl<M: Machine<Descriptor = OwnedFd>> Driver<M> {
    /// Serves the processes that connect to `listener`, a non-blocking SOCK_SEQPACKET socket.
    pub fn new(broker: Broker<M>, listener: OwnedFd, connect: Connect) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let clients = Clients::new(listener, &epoll)?;
        Ok(Self { broker, epoll, clients, connect, link: None, started: Instant::now() })
    }

    /// Waits for something to happen and deals with it; for ever.
    pub fn run(&mut self) -> Errno {
        loop {
            if let Err(error) = self.turn() {
                return error;
            }
        }
    }

    /// One wake-up.
    fn turn(&mut self) -> Result<(), Errno> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let timeout = self.broker.next_deadline().map(|deadline| deadline.saturating_sub(self.now()));
        let timeout = timeout.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let events = match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => &*events,
            Err(Errno::INTR) => &[],
            Err(error) => return Err(error),
        };
        for event in events {
            self.ready(event.data.u64(), event.flags);
        }
        if self.broker.next_deadline().is_some_and(|deadline| deadline <= self.now()) {
            self.feed(Input::Deadline);
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn ready(&mut self, key: u64, flags: epoll::EventFlags) {
        match key {
            LISTENER => {
                while let Some((client, pid)) = self.clients.accept(&self.epoll) {
                    self.feed(Input::ClientArrived { client, pid });
                }
            }
            LINK => self.link_ready(flags),
            _ => match self.clients.ready(key, flags) {
                Some((client, Ready::Packet(bytes))) => {
                    self.feed(Input::Packet { client, bytes });
                    let listening = self.broker.listens_to(client);
                    self.clients.listen(&self.epoll, client, listening);
                }
                Some((client, Ready::Gone)) => {
                    self.clients.close(&self.epoll, client);
                    self.feed(Input::ClientGone { client });
                }
                None => {}
            },
        }
    }

    fn link_ready(&mut self, flags: epoll::EventFlags) {
        let Some(link) = &mut self.link else { return };
        if flags.contains(epoll::EventFlags::OUT) {
            link.flush(&self.epoll);
        }
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

    /// Tells the broker of an input and performs its effects, with all that follows from them.
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
            Effect::Reply { client, reply, descriptors } => {
                if self.clients.reply(&self.epoll, client, &reply, &descriptors).is_err() {
                    self.clients.close(&self.epoll, client);
                    return Some(Input::ClientGone { client });
                }
            }
            Effect::Close { client } => self.clients.close(&self.epoll, client),
            Effect::Say(words) => say(&words),
        }
        None
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
