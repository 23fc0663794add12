//! NT handles of this process under the runner's names, and their transfer from other processes of the same machine: as
//! descriptors over a Unix socket, as real programs pass them.
//!
//! ```text
//!   sender                         receiver's mailbox: a listening abstract socket
//!     connect, send token + fd ──▶  (queued there; the sender is done and may exit)
//!                                   received when the receiver first needs a token that it lacks
//! ```
//! Neither side waits for the other, which may be stopped or gone.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use d3dkmt::{NtStatus, ShareToken};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

const MAILBOX_LENGTH: i32 = 4096;
const TOKEN_BYTES: usize = 16;

#[derive(Default)]
pub struct Shares(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    handles: BTreeMap<[u8; TOKEN_BYTES], Arc<OwnedFd>>,
    mailbox: Option<OwnedFd>,
    /// Connections to the mailbox whose handle has not arrived yet.
    senders: Vec<OwnedFd>,
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl Shares {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An earlier handle of the same name is closed.
    pub fn keep(&self, token: ShareToken, handle: OwnedFd) {
        self.lock().handles.insert(token.0, Arc::new(handle));
    }

    pub fn find(&self, token: ShareToken) -> Option<Arc<OwnedFd>> {
        let mut state = self.lock();
        if !state.handles.contains_key(&token.0) {
            state.take_in();
        }
        state.handles.get(&token.0).cloned()
    }

    /// Closes this process's descriptor, which is the CloseHandle of an NT handle.
    pub fn close(&self, token: ShareToken) -> NtStatus {
        let handle = self.find(token).and_then(|_| self.lock().handles.remove(&token.0));
        if handle.is_some() { NtStatus::SUCCESS } else { NtStatus::INVALID_HANDLE }
    }

    pub fn open_mailbox(&self, name: &str) -> NtStatus {
        let Ok(address) = SocketAddrUnix::new_abstract_name(name.as_bytes()) else {
            return NtStatus::OBJECT_NAME_INVALID;
        };
        let mut state = self.lock();
        if state.mailbox.is_some() {
            return NtStatus::OBJECT_NAME_COLLISION;
        }
        let open = || {
            let mailbox = socket()?;
            rustix::net::bind(&mailbox, &address)?;
            rustix::net::listen(&mailbox, MAILBOX_LENGTH)?;
            Ok(mailbox)
        };
        match open() {
            Ok(mailbox) => {
                state.mailbox = Some(mailbox);
                NtStatus::SUCCESS
            }
            Err(Errno::ADDRINUSE) => NtStatus::OBJECT_NAME_COLLISION,
            Err(_) => NtStatus::NO_MEMORY,
        }
    }

    pub fn send(&self, token: ShareToken, mailbox: &str) -> NtStatus {
        let Some(handle) = self.find(token) else { return NtStatus::INVALID_HANDLE };
        let Ok(address) = SocketAddrUnix::new_abstract_name(mailbox.as_bytes()) else {
            return NtStatus::OBJECT_NAME_INVALID;
        };
        let send = || {
            let connection = socket()?;
            rustix::net::connect(&connection, &address)?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let descriptors = [handle.as_fd()];
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one");
            let bytes = [IoSlice::new(&token.0)];
            rustix::net::sendmsg(&connection, &bytes, &mut ancillary, SendFlags::NOSIGNAL)
        };
        match send() {
            Ok(_) => NtStatus::SUCCESS,
            Err(Errno::CONNREFUSED) => NtStatus::OBJECT_NAME_NOT_FOUND,
            Err(_) => NtStatus::NO_MEMORY,
        }
    }
}

impl Kept {
    /// Receives the NT handles that have arrived.
    fn take_in(&mut self) {
        let Some(mailbox) = &self.mailbox else { return };
        while let Ok(sender) = rustix::net::accept_with(mailbox, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            self.senders.push(sender);
        }
        let handles = &mut self.handles;
        self.senders.retain(|sender| match receive(sender) {
            Ok(Some((token, handle))) => {
                handles.insert(token, Arc::new(handle));
                false
            }
            Ok(None) => false,
            Err(error) => error == Errno::AGAIN,
        });
    }
}

/// Receives the NT handle of a sender; `None` if it sent something else or is no scenario client, because any process
/// can connect to an abstract name.
fn receive(sender: &OwnedFd) -> Result<Option<([u8; TOKEN_BYTES], OwnedFd)>, Errno> {
    if rustix::net::sockopt::socket_peercred(sender)?.uid != rustix::process::getuid() {
        return Ok(None);
    }
    let mut token = [0; TOKEN_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut token)];
    let received = rustix::net::recvmsg(sender, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let handle = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(handle.filter(|_| received.bytes == TOKEN_BYTES).map(|handle| (token, handle)))
}
