//! Messages of clients, with every descriptor that comes along.
//!
//! Descriptors that a message brings and nobody takes are closed by the kernel within the call that reads the message,
//! and that close may block ([`super::closing`]). So whatever a client sends is read with room for as many as a message
//! can have, also where none are expected.
//!
//! `unsafe`: C is spoken, to read into memory that nobody has written yet.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::SocketType;

/// `SCM_MAX_FD` of the kernel.
pub const DESCRIPTORS_PER_MESSAGE_MAX: usize = 253;
/// Words of room for a message's descriptors, with its header: aligned as that has to be.
const CONTROL_WORDS: usize =
    (size_of::<libc::cmsghdr>() + DESCRIPTORS_PER_MESSAGE_MAX * size_of::<RawFd>()).div_ceil(8);

/// What came.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message; of a packet that was longer than the room for it, its own length.
    pub bytes: usize,
    /// Closed over an exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Reads a message without waiting for one.
pub fn receive(socket: BorrowedFd<'_>, to: &mut [u8]) -> Result<Received, Errno> {
    // SAFETY: bytes that were written before may be written again.
    unsafe { receive_to(socket, to.as_mut_ptr(), to.len()) }
}

/// The same, behind what is there, as far as there is room.
pub fn receive_behind(socket: BorrowedFd<'_>, to: &mut Vec<u8>) -> Result<Received, Errno> {
    let (length, room) = (to.len(), to.spare_capacity_mut());
    let room_bytes = room.len();
    // SAFETY: the room is the vector's own, and nobody else's during the call.
    let received = unsafe { receive_to(socket, room.as_mut_ptr().cast(), room_bytes) }?;
    // SAFETY: so many bytes of it were written.
    unsafe { to.set_len(length + received.bytes.min(room_bytes)) };
    Ok(received)
}

/// # Safety
///
/// So many bytes can be written there.
unsafe fn receive_to(socket: BorrowedFd<'_>, to: *mut u8, bytes: usize) -> Result<Received, Errno> {
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
    // SAFETY: the kernel has filled in the control messages that the header says there are.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: it is one of those; its data are as long as it says, and need not be aligned.
        unsafe {
            if ((*message).cmsg_level, (*message).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                let length = (*message).cmsg_len as usize - (data as usize - message as usize);
                for at in 0..length / size_of::<RawFd>() {
                    // A descriptor of a message is ours from the call on.
                    descriptors.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    Ok(Received { bytes, descriptors })
}

/// Has a byte out of band come as any other, with the descriptors that it brings: nobody would take those.
pub(super) fn read_all_in_band(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::net::sockopt::set_socket_oobinline(socket, true)
}

/// Whether a Unix socket that is hung up has nothing in it that was not read, not even a packet without bytes.
pub(super) fn has_nothing_unread(socket: BorrowedFd<'_>) -> bool {
    let is_stream = rustix::net::sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    // Each packet is then one with credentials, for which there is no room here: that tells an empty one from none. In a
    // stream nothing is empty.
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
            assert_eq!(receive(ours.as_fd(), &mut to).unwrap_err(), Errno::AGAIN);
            send(&theirs, b"bytes", &many);
            let received = receive(ours.as_fd(), &mut to).unwrap();
            assert_eq!((received.bytes, received.descriptors.len()), (5, DESCRIPTORS_PER_MESSAGE_MAX));
            assert_eq!(&to[..5], b"bytes");
            send(&theirs, b"more", &many[..1]);
            let mut behind = Vec::with_capacity(64);
            behind.push(b'+');
            let received = receive_behind(ours.as_fd(), &mut behind).unwrap();
            assert_eq!((received.descriptors.len(), &behind[..]), (1, &b"+more"[..]));
            drop(theirs);
            assert_eq!(receive(ours.as_fd(), &mut to).unwrap().bytes, 0);
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
        let received = receive(ours.as_fd(), &mut [0; 8]).unwrap();
        assert_eq!((received.bytes, received.descriptors.len()), (1, 1));
        rustix::net::shutdown(&ours, rustix::net::Shutdown::Both).unwrap();
        assert!(has_nothing_unread(ours.as_fd()));
    }

    #[test]
    fn of_a_packet_that_is_too_long_its_length_is_told() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        send(&theirs, &[7; 100], &[]);
        let received = receive(ours.as_fd(), &mut [0; 10]).unwrap();
        assert_eq!(received.bytes, 100);
    }
}
