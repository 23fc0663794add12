//! AF_VSOCK for the broker: blocking connections to the host.
//!
//! A vsock address is a context id (which machine) and a port. The host is always CID 2. Source ports below 1024 need
//! CAP_NET_BIND_SERVICE, by which the host knows guestd from other processes of the guest.
//!
//! `unsafe`: rustix has no vsock address, so one is laid out here as the kernel's `struct sockaddr_vm`.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use proto::limits::PRIVILEGED_PORT_END;
use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

/// `VMADDR_CID_HOST`.
pub const HOST_CID: u32 = libc::VMADDR_CID_HOST;
/// `VMADDR_CID_ANY`.
pub const ANY_CID: u32 = libc::VMADDR_CID_ANY;

/// `struct sockaddr_vm`.
#[derive(Clone, Copy)]
pub struct VsockAddress(libc::sockaddr_vm);

impl VsockAddress {
    pub fn new(cid: u32, port: u32) -> Self {
        let family = AddressFamily::VSOCK.as_raw();
        Self(libc::sockaddr_vm {
            svm_family: family,
            svm_reserved1: 0,
            svm_port: port,
            svm_cid: cid,
            svm_zero: [0; 4],
        })
    }
}

// SAFETY: `f` gets a pointer to an initialised `sockaddr_vm` that lives across the call, and its size.
unsafe impl SocketAddrArg for VsockAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f((&raw const self.0).cast(), size_of::<libc::sockaddr_vm>() as SocketAddrLen)
    }
}

/// Source ports of streams and event channels; those below are of the link.
const STREAM_PORTS: std::ops::Range<u32> = 64..PRIVILEGED_PORT_END;
/// Source ports that one stream tries: the kernel holds a port for a while after its connection is closed.
const PORTS_TRIED: u32 = 16;
/// Streams that were connected so far.
static STREAMS: AtomicU32 = AtomicU32::new(0);

/// Connects a stream or an event channel to a port of the host: from a source port below 1024, so that the host counts it
/// apart from connections of the guest's users, or from any if those are in use. The kernel's timeout is 2 s.
pub fn connect_host(port: u32) -> Result<OwnedFd, Errno> {
    match connect_from(stream_ports(STREAMS.fetch_add(1, Ordering::Relaxed)), port) {
        Err(Errno::ADDRINUSE | Errno::ACCESS) => {}
        result => return result,
    }
    loop {
        if let Some(socket) = connected(open()?, port)? {
            return Ok(socket);
        }
    }
}

/// The source ports that a stream tries: others than the stream before it.
fn stream_ports(stream: u32) -> std::ops::Range<u32> {
    let groups = (STREAM_PORTS.end - STREAM_PORTS.start) / PORTS_TRIED;
    let first = STREAM_PORTS.start + stream % groups * PORTS_TRIED;
    first..first + PORTS_TRIED
}

/// Connects a socket. `None` if it was interrupted, by a signal or by completed work of an io_uring: then the kernel
/// has dropped the connection, and a new socket is needed.
fn connected(socket: OwnedFd, port: u32) -> Result<Option<OwnedFd>, Errno> {
    match connect(&socket, &VsockAddress::new(HOST_CID, port)) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Connects the link to a port of the host, from a source port below 1024.
pub fn connect_host_privileged(port: u32) -> Result<OwnedFd, Errno> {
    connect_from((1..STREAM_PORTS.start).rev(), port)
}

/// Connects from the first of these source ports that no earlier connection still holds.
fn connect_from(sources: impl Iterator<Item = u32>, port: u32) -> Result<OwnedFd, Errno> {
    for source in sources {
        let socket = open()?;
        match bind(&socket, &VsockAddress::new(ANY_CID, source)) {
            // Interrupted: try the next port, because the kernel may still hold this one.
            Ok(()) => {
                if let Some(socket) = connected(socket, port)? {
                    return Ok(socket);
                }
            }
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::ADDRINUSE)
}

fn open() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Why the host cannot be reached, as a readable text.
pub fn connect_words(error: Errno) -> String {
    let reason = match error {
        Errno::AFNOSUPPORT => "this kernel has no vsock (are the modules loaded?)",
        Errno::NODEV | Errno::NETUNREACH | Errno::ADDRNOTAVAIL => "this machine has no vsock device",
        Errno::CONNRESET | Errno::CONNREFUSED => "no daemon listens there (is the gpupv daemon running?)",
        Errno::TIMEDOUT => "the host does not answer",
        Errno::ACCESS => "guestd may not use ports below 1024 (run it as root)",
        _ => return error.to_string(),
    };
    format!("{reason} [{error}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_try_every_port_below_1024_that_is_not_the_links() {
        let mut ports: Vec<_> = (0..60).flat_map(stream_ports).collect();
        ports.sort_unstable();
        assert!(ports.into_iter().eq(STREAM_PORTS));
        assert_ne!(stream_ports(59), stream_ports(60), "two streams in a row try other ports");
    }
}
