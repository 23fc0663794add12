//! The broker's Unix socket: connections of guest processes, their packets, descriptors handed over, and their ends.
//!
//! A process is gone when its connection closes *or* its pidfd becomes readable: a forked child may hold a copy of the
//! connection, so the connection alone does not tell.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use proto::Message;
use proto::attach::BrokerReply;
use proto::limits::BROKER_PACKET_BYTES_MAX;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketFlags, accept_with, recv, recvmsg, sendmsg, shutdown, sockopt,
};
use rustix::process::{PidfdFlags, pidfd_open};

use super::{FIRST_CLIENT, LISTENER};
use crate::broker::ClientId;
use crate::console::say;
use crate::limits::DISCARDED_PACKETS_MAX;

/// Descriptors of one reply: a stream and fence memory.
const REPLY_DESCRIPTORS_MAX: usize = 2;

/// Every connection, and the socket they come from.
pub(super) struct Clients {
    listener: OwnedFd,
    /// Not listened to because there is no descriptor left for another connection.
    full: bool,
    connections: BTreeMap<ClientId, Connection>,
    last: u64,
}

struct Connection {
    socket: OwnedFd,
    process: OwnedFd,
}

/// What a connection has for us.
pub(super) enum Ready {
    /// With the descriptor that came along.
    Packet(Vec<u8>, Option<OwnedFd>),
    Gone,
}

fn socket_key(client: ClientId) -> EventData {
    EventData::new_u64(FIRST_CLIENT + client.0 * 2)
}

fn process_key(client: ClientId) -> EventData {
    EventData::new_u64(FIRST_CLIENT + client.0 * 2 + 1)
}

impl Clients {
    pub(super) fn new(listener: OwnedFd, epoll: impl AsFd) -> Result<Self, Errno> {
        epoll::add(epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self { listener, full: false, connections: BTreeMap::new(), last: 0 })
    }

    /// The next connection and the process that made it.
    pub(super) fn accept(&mut self, epoll: impl AsFd) -> Option<(ClientId, u32)> {
        loop {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => match self.admit(socket, epoll.as_fd()) {
                    Ok(admitted) => return Some(admitted),
                    // The process has ended already.
                    Err(Errno::SRCH) => {}
                    Err(error) => say(&format!("a connection to the broker is dropped: {error}")),
                },
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return None,
                Err(error) => {
                    // Told again and again otherwise; the next connection that closes makes room.
                    say(&format!("the broker takes no more connections for now: {error}"));
                    self.full = self.listen_for_clients(epoll, false);
                    return None;
                }
            }
        }
    }

    fn listen_for_clients(&self, epoll: impl AsFd, listen: bool) -> bool {
        let wanted = if listen { EventFlags::IN } else { EventFlags::empty() };
        epoll::modify(epoll, &self.listener, EventData::new_u64(LISTENER), wanted).is_ok()
    }

    fn admit(&mut self, socket: OwnedFd, epoll: BorrowedFd<'_>) -> Result<(ClientId, u32), Errno> {
        let pid = sockopt::socket_peercred(&socket)?.pid;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        self.last += 1;
        let client = ClientId(self.last);
        epoll::add(epoll, &socket, socket_key(client), EventFlags::IN)?;
        epoll::add(epoll, &process, process_key(client), EventFlags::IN)?;
        self.connections.insert(client, Connection { socket, process });
        Ok((client, pid.as_raw_nonzero().get().cast_unsigned()))
    }

    /// What the event `key` brings; nothing if its connection was closed meanwhile.
    pub(super) fn ready(&mut self, key: u64, flags: EventFlags) -> Option<(ClientId, Ready)> {
        let client = ClientId((key - FIRST_CLIENT) / 2);
        let connection = self.connections.get(&client)?;
        if EventData::new_u64(key) == process_key(client)
            || flags.intersects(EventFlags::HUP | EventFlags::ERR)
        {
            return Some((client, Ready::Gone));
        }
        // One byte more than a packet may have, so that a longer one shows.
        let mut bytes = vec![0; BROKER_PACKET_BYTES_MAX + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(&connection.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Ok(message) if message.bytes == 0 => Some((client, Ready::Gone)),
            Ok(message) => {
                bytes.truncate(message.bytes);
                let descriptor = ancillary.drain().find_map(|part| match part {
                    RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                    _ => None,
                });
                Some((client, Ready::Packet(bytes, descriptor)))
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some((client, Ready::Gone)),
        }
    }

    /// Whether the client's next request is wanted. Its end is always seen.
    pub(super) fn listen(&self, epoll: impl AsFd, client: ClientId, listen: bool) {
        if let Some(connection) = self.connections.get(&client) {
            let wanted = if listen { EventFlags::IN } else { EventFlags::empty() };
            let _ = epoll::modify(epoll, &connection.socket, socket_key(client), wanted);
        }
    }

    pub(super) fn reply(
        &self,
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

    /// The client sees the end of its connection; the end of its process is still told.
    pub(super) fn hang_up(&mut self, epoll: impl AsFd, client: ClientId) {
        let Some(connection) = self.connections.get(&client) else { return };
        let _ = epoll::delete(epoll, &connection.socket);
        let _ = shutdown(&connection.socket, Shutdown::Both);
    }

    pub(super) fn close(&mut self, epoll: impl AsFd, client: ClientId) {
        let Some(connection) = self.connections.remove(&client) else { return };
        let epoll = epoll.as_fd();
        // A copy of these may live for a moment in a child that the agent starts.
        let _ = epoll::delete(epoll, &connection.socket);
        let _ = epoll::delete(epoll, &connection.process);
        // Closing with packets unread would make the peer see an error instead of our last reply.
        let mut byte = [0; 1];
        for _ in 0..DISCARDED_PACKETS_MAX {
            match recv(&connection.socket, &mut byte, RecvFlags::DONTWAIT) {
                Ok((count, _)) if count > 0 => {}
                Ok(_) | Err(_) => break,
            }
        }
        drop(connection);
        if self.full {
            self.full = !self.listen_for_clients(epoll, true);
        }
    }
}
