//! Credentials of the process at the other end of a connected Unix socket.
//!
//! `unsafe`: the system reports process id 0 for a peer that has no number in this PID namespace, and `rustix` reads the
//! credentials into a type without that value.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;

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

/// The users that may administer a process of this one: root and its own user.
///
/// In a user namespace the system shows one number, the overflow uid, for every user that has none there. So that number is
/// nobody's, not even of a process that has it as its own.
pub fn administrators() -> Vec<u32> {
    let uid_map = std::fs::read_to_string("/proc/self/uid_map");
    // A system without user namespaces has no such file; without `/proc`, this may be one.
    let uid_map = match uid_map {
        Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self").exists() => {
            ALL_MAPPED.to_owned()
        }
        other => other.unwrap_or_default(),
    };
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    let overflow = overflow.ok().and_then(|number| number.trim().parse().ok());
    administrators_of(rustix::process::geteuid().as_raw(), &uid_map, overflow.unwrap_or(OVERFLOW_UID))
}

/// The map of users in the first namespace: each has its number.
const ALL_MAPPED: &str = "0 0 4294967295";
/// The system's overflow uid, unless an administrator changed it.
const OVERFLOW_UID: u32 = 65534;

fn administrators_of(own: u32, uid_map: &str, overflow: u32) -> Vec<u32> {
    let is_everybody_mapped = uid_map.split_whitespace().eq(ALL_MAPPED.split(' '));
    let mut users = vec![0, own];
    users.retain(|user| is_everybody_mapped || *user != overflow);
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uid_of_users_without_a_number_is_no_administrators() {
        let first = "         0          0 4294967295\n";
        let other = "     65534          1          1\n";
        assert_eq!(administrators_of(65534, first, 65534), [0, 65534]);
        assert_eq!(administrators_of(65534, other, 65534), [0]);
        assert_eq!(administrators_of(65534, "", 65534), [0], "unknown");
        assert_eq!(administrators_of(1000, other, 65534), [0, 1000]);
        assert_eq!(administrators_of(7, other, 7), [0], "the system's number may be changed");
    }
}
