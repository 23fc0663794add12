//! Credentials of the process at the other end of a connected Unix socket.
//!
//! `unsafe`: the system reports process id 0 for a peer that has no number in this PID namespace, and `rustix` reads the
//! credentials into a type without that value.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::process::Pid;

/// Credentials of a peer, as of its `connect` or `socketpair`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its user.
    pub uid: u32,
    /// `None`: it has no process id here.
    pid: Option<Pid>,
}

/// The peer has no process id here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the process is outside the PID namespace of this one, which could not notice its end: \
     start both in one PID namespace, for example containers with --pid=host"
)]
pub struct OtherPidNamespace;

impl PeerCredentials {
    /// The credentials of a connected socket's peer.
    ///
    /// # Errors
    ///
    /// The descriptor is no Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<PeerCredentials> {
        let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: both pointers are of local values that nothing else uses, and `length` is the size of the first. Every
        // value of its fields is valid.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PeerCredentials { uid: credentials.uid, pid: Pid::from_raw(credentials.pid) })
    }

    /// Its process id.
    ///
    /// # Errors
    ///
    /// It is outside the PID namespace of this process.
    pub fn pid(&self) -> Result<Pid, OtherPidNamespace> {
        self.pid.ok_or(OtherPidNamespace)
    }
}
