//! The broker's Unix socket: connections of client processes, their packets, descriptors sent to them, and their
//! closing.
//!
//! A process is gone when its connection closes *or* its pidfd becomes readable: a forked child may have a copy of the
//! connection, so the connection alone does not show it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use listening::PeerCredentials;
use proto::Message;
use proto::attach::BrokerReply;
use proto::limits::BROKER_PACKET_BYTES_MAX;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketFlags, accept_with, recvmsg, sendmsg, shutdown,
};
use rustix::process::{PidfdFlags, pidfd_open};

use super::closer::{Closer, is_eventfd};
use super::{FIRST_CLIENT, FREED, LISTENER};
use crate::broker::{ClientId, Peer, Uid};
use crate::console::say;

/// Descriptors of one reply: a stream, fence memory and the areas of two rings.
const REPLY_DESCRIPTORS_MAX: usize = 4;
/// Descriptors of one packet (`SCM_MAX_FD`). The kernel closes those without room in the receiving thread.
const PACKET_DESCRIPTORS_MAX: usize = 253;

/// The broker's connections, and its listening socket.
pub(super) struct Clients {
    listener: OwnedFd,
    /// Not listened to because there is no descriptor left for another connection.
    full: bool,
    connections: BTreeMap<ClientId, Connection>,
    last: u64,
    closer: Closer,
    /// Not read because too much of what their users sent is still being closed.
    paused: BTreeSet<ClientId>,
}

struct Connection {
    socket: OwnedFd,
    process: OwnedFd,
    user: Uid,
}

/// The outcome of accepting the next connection.
pub(super) enum Accepted {
    Client(ClientId, Peer),
    /// Its process has exited, or there is no room.
    Dropped,
    /// There is none for now.
    Nothing,
}

/// The first descriptor that came along with a packet.
pub(super) enum AttachedDescriptor {
    Eventfd(OwnedFd),
    /// Another kind of file; it is being closed.
    Other,
}

/// What an event of a connection says.
pub(super) enum Ready {
    /// It has a request of this user.
    Readable(Uid),
    Gone,
}

/// The result of reading from a connection.
pub(super) enum Received {
    Packet(Vec<u8>, Option<AttachedDescriptor>),
    Gone,
    /// Nothing for now.
    Nothing,
}

fn socket_key(client: ClientId) -> EventData {
    EventData::new_u64(FIRST_CLIENT + client.0 * 2)
}

fn process_key(client: ClientId) -> EventData {
    EventData::new_u64(FIRST_CLIENT + client.0 * 2 + 1)
}

impl Clients {
    pub(super) fn new(listener: OwnedFd, epoll: impl AsFd) -> Result<Self, Errno> {
        let closer = Closer::new()?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, closer.freed(), EventData::new_u64(FREED), EventFlags::IN)?;
        let (connections, resting) = Default::default();
        Ok(Self { listener, full: false, connections, last: 0, closer, paused: resting })
    }

    /// The next connection and the process that made it.
    pub(super) fn accept(&mut self, epoll: impl AsFd) -> Accepted {
        match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => self.admit(socket, epoll.as_fd()),
            Err(Errno::INTR | Errno::CONNABORTED) => Accepted::Dropped,
            Err(Errno::AGAIN) => Accepted::Nothing,
            Err(error) => {
                // The listener would be readable all the time; the next connection that closes makes room.
                say(&format!("the broker takes no more connections for now: {error}"));
                self.full = self.listen_for_clients(epoll, false);
                Accepted::Nothing
            }
        }
    }

    fn listen_for_clients(&self, epoll: impl AsFd, listen: bool) -> bool {
        let interest = if listen { EventFlags::IN } else { EventFlags::empty() };
        epoll::modify(epoll, &self.listener, EventData::new_u64(LISTENER), interest).is_ok()
    }

    fn admit(&mut self, socket: OwnedFd, epoll: BorrowedFd<'_>) -> Accepted {
        let credentials = match PeerCredentials::of(&socket) {
            Ok(credentials) => credentials,
            Err(error) => {
                say(&format!("a connection to the broker is dropped, its process is unknown: {error}"));
                return Accepted::Dropped;
            }
        };
        let user = Uid(credentials.uid);
        let pid = match credentials.pid() {
            Ok(pid) => pid,
            Err(outside) => {
                say(&format!("a connection to the broker is dropped: {outside}"));
                self.closer.close_connection(user, socket);
                return Accepted::Dropped;
            }
        };
        self.last += 1;
        let client = ClientId(self.last);
        let watched = pidfd_open(pid, PidfdFlags::empty()).and_then(|process| {
            epoll::add(epoll, &socket, socket_key(client), EventFlags::IN)?;
            epoll::add(epoll, &process, process_key(client), EventFlags::IN)?;
            Ok(process)
        });
        match watched {
            Ok(process) => {
                self.connections.insert(client, Connection { socket, process, user });
                Accepted::Client(client, Peer { pid: pid.as_raw_nonzero().get().cast_unsigned(), user })
            }
            Err(error) => {
                // A process that has exited already is not worth a line.
                if error != Errno::SRCH {
                    say(&format!("a connection to the broker is dropped: {error}"));
                }
                let _ = epoll::delete(epoll, &socket);
                self.closer.close_connection(user, socket);
                Accepted::Dropped
            }
        }
    }

    /// Clients that were not read because of their users' unclosed descriptors, and may be read now.
    pub(super) fn take_resting(&mut self) -> BTreeSet<ClientId> {
        self.closer.acknowledge();
        std::mem::take(&mut self.paused)
    }

    /// What the event `key` says; `None` if its connection was closed meanwhile.
    pub(super) fn ready(&self, key: u64, flags: EventFlags) -> Option<(ClientId, Ready)> {
        let client = ClientId((key - FIRST_CLIENT) / 2);
        let connection = self.connections.get(&client)?;
        let is_gone = EventData::new_u64(key) == process_key(client)
            || flags.intersects(EventFlags::HUP | EventFlags::ERR);
        Some((client, if is_gone { Ready::Gone } else { Ready::Readable(connection.user) }))
    }

    /// The user of an open connection.
    pub(super) fn user(&self, client: ClientId) -> Option<Uid> {
        self.connections.get(&client).map(|connection| connection.user)
    }

    /// Reads a request, unless too much of what the user sent is still being closed.
    pub(super) fn receive(&mut self, epoll: impl AsFd, client: ClientId) -> Received {
        let Some(connection) = self.connections.get(&client) else { return Received::Nothing };
        if self.closer.is_full(connection.user) {
            self.listen(epoll, client, true);
            return Received::Nothing;
        }
        // One byte more than a packet may have, so that a longer one is noticed.
        let mut bytes = vec![0; BROKER_PACKET_BYTES_MAX + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(&connection.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Ok(message) => {
                let offered = Self::take_descriptors(&self.closer, connection.user, ancillary);
                bytes.truncate(message.bytes);
                if bytes.is_empty() { Received::Gone } else { Received::Packet(bytes, offered) }
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.listen(epoll, client, true);
                Received::Nothing
            }
            Err(_) => Received::Gone,
        }
    }

    /// Keeps an eventfd that is the first descriptor; closes all others.
    fn take_descriptors(
        closer: &Closer,
        user: Uid,
        mut ancillary: RecvAncillaryBuffer<'_>,
    ) -> Option<AttachedDescriptor> {
        let rights = ancillary.drain().filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let mut offered = None;
        for descriptor in rights.flatten() {
            match &offered {
                None if is_eventfd(descriptor.as_fd()) => {
                    offered = Some(AttachedDescriptor::Eventfd(descriptor))
                }
                None | Some(AttachedDescriptor::Eventfd(_) | AttachedDescriptor::Other) => {
                    offered.get_or_insert(AttachedDescriptor::Other);
                    closer.close(user, descriptor);
                }
            }
        }
        offered
    }

    /// Sets whether the client's next request is read. Its close is always seen.
    pub(super) fn listen(&mut self, epoll: impl AsFd, client: ClientId, listen: bool) {
        if let Some(connection) = self.connections.get(&client) {
            let rests = listen && self.closer.is_full(connection.user);
            if rests {
                self.paused.insert(client);
            }
            let interest = if listen && !rests { EventFlags::IN } else { EventFlags::empty() };
            let _ = epoll::modify(epoll, &connection.socket, socket_key(client), interest);
        }
    }

    pub(super) fn reply(
        &mut self,
        epoll: impl AsFd,
        client: ClientId,
        reply: &BrokerReply,
        descriptors: &[OwnedFd],
    ) -> Result<(), Errno> {
        let Some(connection) = self.connections.get(&client) else { return Ok(()) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPLY_DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let borrowed = descriptors.iter().map(AsFd::as_fd).collect::<Vec<_>>();
        if !borrowed.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(&borrowed));
            assert!(fits, "a reply has at most {REPLY_DESCRIPTORS_MAX} descriptors");
        }
        let bytes = reply.encode_to_vec();
        sendmsg(&connection.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        self.listen(epoll, client, true);
        Ok(())
    }

    /// Closes a client's connection; its process's exit is still reported.
    pub(super) fn hang_up(&mut self, epoll: impl AsFd, client: ClientId) {
        let Some(connection) = self.connections.get(&client) else { return };
        let _ = epoll::delete(epoll, &connection.socket);
        let _ = shutdown(&connection.socket, Shutdown::Both);
    }

    pub(super) fn close(&mut self, epoll: impl AsFd, client: ClientId) -> Option<Uid> {
        let Connection { socket, process, user } = self.connections.remove(&client)?;
        self.paused.remove(&client);
        let epoll = epoll.as_fd();
        // A copy of these may live for a moment in a child that the agent starts.
        let _ = epoll::delete(epoll, &socket);
        let _ = epoll::delete(epoll, &process);
        self.closer.close_connection(user, socket);
        drop(process);
        if self.full {
            self.full = !self.listen_for_clients(epoll, true);
        }
        Some(user)
    }
}
