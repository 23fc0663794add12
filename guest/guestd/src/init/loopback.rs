//! Sets the loopback interface up, by one rtnetlink message.
//!
//! `RTM_NEWLINK` is a `struct nlmsghdr` and a `struct ifinfomsg`; the answer is an `NLMSG_ERROR` whose code is 0 when
//! all went well. See rtnetlink(7).

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

const MESSAGE_BYTES: u32 = 32;
/// The loopback is the first interface of every network namespace.
const LOOPBACK_INDEX: i32 = 1;

pub(super) fn bring_up() -> Result<(), Errno> {
    // No protocol: `NETLINK_ROUTE` is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &message(), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (count, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    error_of(&answer[..count])
}

fn message() -> Vec<u8> {
    let mut message = Vec::with_capacity(MESSAGE_BYTES as usize);
    message.extend(MESSAGE_BYTES.to_ne_bytes());
    message.extend(libc::RTM_NEWLINK.to_ne_bytes());
    message.extend(((libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
    // Sequence and port, then family, padding and device type: all 0.
    message.extend([0; 12]);
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    // Flags, and which of them are to change.
    message.extend((libc::IFF_UP as u32).to_ne_bytes());
    message.extend((libc::IFF_UP as u32).to_ne_bytes());
    message
}

fn error_of(answer: &[u8]) -> Result<(), Errno> {
    let code = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw_os_error(-code)),
        None => Err(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::{MESSAGE_BYTES, error_of, message};
    use rustix::io::Errno;

    #[test]
    fn the_message_is_as_long_as_it_says() {
        assert_eq!(message().len(), MESSAGE_BYTES as usize);
    }

    #[test]
    fn the_kernels_refusal_is_an_error() {
        let answer = |code: i32| [&[0; 16][..], &code.to_ne_bytes()].concat();
        assert_eq!(error_of(&answer(0)), Ok(()));
        assert_eq!(error_of(&answer(-1)), Err(Errno::PERM));
        assert_eq!(error_of(&[]), Err(Errno::PROTO));
    }
}
