//! Reads messages of clients with every descriptor that accompanies them.
//!
//! The kernel closes descriptors for which the reader has no room, within the call that reads the message. That close
//! may block ([`super::closing`]). So every read of a client's socket has room for as many as a message can have, even
//! where none are expected.
//!
//! `unsafe`: calls `recvmsg`, to read into uninitialized memory.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::SocketType;

/// `SCM_MAX_FD` of the kernel.
pub const DESCRIPTORS_PER_MESSAGE_MAX: usize = 253;
/// Words of a control buffer for a message's descriptors and its header, aligned as it requires.
const CONTROL_WORDS: usize =
    (size_of::<libc::cmsghdr>() + DESCRIPTORS_PER_MESSAGE_MAX * size_of::<RawFd>()).div_ceil(8);

/// A message that was read.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message; for a packet that is longer than the buffer, the packet's length.
    pub bytes: usize,
    /// With close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Which messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// All.
    Descriptors,
    /// Those without descriptors. Others are refused with `EMFILE` and stay unread, and so do bytes of a stream before them.
    Bytes,
}

/// Reads a message without waiting for one.
pub fn receive(socket: BorrowedFd<'_>, to: &mut [u8], accepted: Accepted) -> Result<Received, Errno> {
    // SAFETY: the slice is writable for its length.
    unsafe { receive_to(socket, to.as_mut_ptr(), to.len(), accepted) }
}

/// The same, appended to a vector within its capacity.
pub fn receive_behind(
    socket: BorrowedFd<'_>,
    to: &mut Vec<u8>,
    accepted: Accepted,
) -> Result<Received, Errno> {
    let (length, room) = (to.len(), to.spare_capacity_mut());
    let room_bytes = room.len();
    // SAFETY: the spare capacity belongs to the vector, which is borrowed for the call.
    let received = unsafe { receive_to(socket, room.as_mut_ptr().cast(), room_bytes, accepted) }?;
    // SAFETY: `recvmsg` initialized these bytes.
    unsafe { to.set_len(length + received.bytes.min(room_bytes)) };
    Ok(received)
}

/// # Safety
///
/// `to` is writable for `bytes` bytes.
unsafe fn receive_to(
    socket: BorrowedFd<'_>,
    to: *mut u8,
    mut bytes: usize,
    accepted: Accepted,
) -> Result<Received, Errno> {
    if accepted == Accepted::Bytes {
        // What arrives after this look is not read: it may have descriptors.
        // SAFETY: as this function requires.
        bytes = bytes.min(unsafe { peek(socket, to, bytes) }?);
    }
    let mut control = [MaybeUninit::<u64>::uninit(); CONTROL_WORDS];
    let mut vector = libc::iovec { iov_base: to.cast(), iov_len: bytes };
    // SAFETY: a header of zeros is one without anything.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
    // SAFETY: all that the header points to lives as long as the call.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let Ok(bytes) = usize::try_from(count) else { return Err(last_error()) };
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has written the control messages that the header describes.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: `message` is one of those. Its data have the length that it states and may be unaligned.
        unsafe {
            if ((*message).cmsg_level, (*message).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                let length = (*message).cmsg_len as usize - (data as usize - message as usize);
                for at in 0..length / size_of::<RawFd>() {
                    // The kernel has installed the descriptor for this process.
                    descriptors.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    Ok(Received { bytes, descriptors })
}

/// Number of bytes that the next read brings, if no descriptors come with them.
///
/// # Safety
///
/// `to` is writable for `bytes` bytes.
unsafe fn peek(socket: BorrowedFd<'_>, to: *mut u8, bytes: usize) -> Result<usize, Errno> {
    let mut vector = libc::iovec { iov_base: to.cast(), iov_len: bytes };
    // SAFETY: a header of zeros is one without anything. Without room for descriptors the kernel installs none, and says that
    // some are there.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: all that the header points to lives as long as the call.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let Ok(bytes) = usize::try_from(count) else { return Err(last_error()) };
    if header.msg_flags & libc::MSG_CTRUNC == 0 { Ok(bytes) } else { Err(Errno::MFILE) }
}

/// Reads out-of-band bytes in band, with their descriptors, which would otherwise be lost.
pub(super) fn read_all_in_band(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::net::sockopt::set_socket_oobinline(socket, true)
}

/// Whether a Unix socket that is hung up has nothing unread, not even an empty packet.
pub(super) fn has_nothing_unread(socket: BorrowedFd<'_>) -> bool {
    let is_stream = rustix::net::sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    // With `SO_PASSCRED` each packet has credentials, for which there is no room here. So `MSG_CTRUNC` tells an empty
    // packet from none. A stream has no empty packets.
    if !is_stream && rustix::net::sockopt::set_socket_passcred(socket, true).is_err() {
        return false;
    }
    let mut byte = 0_u8;
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a header of zeros is one without anything.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    // SAFETY: all that the header points to lives as long as the call.
    let count =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT | libc::MSG_PEEK) };
    count == 0 && (is_stream || header.msg_flags & libc::MSG_CTRUNC == 0)
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::AsFd as _;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
        sendmsg, socketpair,
    };

    use super::*;

    fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::empty()).unwrap();
    }

    #[test]
    fn every_descriptor_that_a_message_can_have_comes_along() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let many = vec![event.as_fd(); DESCRIPTORS_PER_MESSAGE_MAX];
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            let mut to = [0; 8];
            assert_eq!(receive(ours.as_fd(), &mut to, Accepted::Descriptors).unwrap_err(), Errno::AGAIN);
            send(&theirs, b"bytes", &many);
            let received = receive(ours.as_fd(), &mut to, Accepted::Descriptors).unwrap();
            assert_eq!((received.bytes, received.descriptors.len()), (5, DESCRIPTORS_PER_MESSAGE_MAX));
            assert_eq!(&to[..5], b"bytes");
            send(&theirs, b"more", &many[..1]);
            let mut buffer = Vec::with_capacity(64);
            buffer.push(b'+');
            let received = receive_behind(ours.as_fd(), &mut buffer, Accepted::Descriptors).unwrap();
            assert_eq!((received.descriptors.len(), &buffer[..]), (1, &b"+more"[..]));
            drop(theirs);
            assert_eq!(receive(ours.as_fd(), &mut to, Accepted::Descriptors).unwrap().bytes, 0);
        }
    }

    #[test]
    fn a_byte_out_of_band_hides_no_descriptor() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        read_all_in_band(ours.as_fd()).unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights = [event.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(&theirs, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::OOB).unwrap();
        assert!(!has_nothing_unread(ours.as_fd()));
        let received = receive(ours.as_fd(), &mut [0; 8], Accepted::Descriptors).unwrap();
        assert_eq!((received.bytes, received.descriptors.len()), (1, 1));
        rustix::net::shutdown(&ours, rustix::net::Shutdown::Both).unwrap();
        assert!(has_nothing_unread(ours.as_fd()));
    }

    #[test]
    fn a_truncated_packet_reports_its_full_length() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        send(&theirs, &[7; 100], &[]);
        let received = receive(ours.as_fd(), &mut [0; 10], Accepted::Descriptors).unwrap();
        assert_eq!(received.bytes, 100);
    }
}
