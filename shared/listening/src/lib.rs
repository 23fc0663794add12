//! Listening Unix sockets with a path and a mode, and the credentials of who connects.
//!
//! `bind` creates the socket's file with the mode that the umask leaves. Until `listen` is called every connect fails
//! with ECONNREFUSED. The mode is set between the two calls, so a process that the mode excludes can never connect.

mod peer;

use std::fs::Permissions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

pub use peer::{OtherPidNamespace, PeerCredentials};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Backlog of the listening socket: connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Mode of a socket that every user may connect to; the folder's mode may still deny access.
pub const EVERY_USER: u32 = 0o666;

/// Mode of a socket that only its owner and root may connect to.
pub const OWNER_ONLY: u32 = 0o600;

/// Why a path cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens there.
    #[error("{path} is in use by {owner}: stop that process or choose another path")]
    InUse {
        /// The socket.
        path: PathBuf,
        /// "process 123 (name)".
        owner: String,
    },
    /// A system call failed, or the path names a file that is not a socket.
    #[error("cannot listen on {path}: {source}")]
    Failed {
        /// The socket.
        path: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
}

/// A nonblocking listening socket at `path` with exactly the permissions `mode`.
///
/// A socket file that no process serves is replaced.
///
/// # Errors
///
/// Another process serves the socket, the file is not a socket, or a system call fails.
pub fn listen(path: &Path, kind: SocketType, mode: u32) -> Result<OwnedFd, ListenError> {
    let failed = |source: std::io::Error| ListenError::Failed { path: path.to_owned(), source };
    let refused = |error: Errno| failed(error.into());
    let address = SocketAddrUnix::new(path).map_err(refused)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).map_err(refused);
    let socket = open()?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            let is_socket = std::fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket();
            let probe = open()?;
            match rustix::net::connect(&probe, &address) {
                Ok(()) => return Err(ListenError::InUse { path: path.to_owned(), owner: peer(&probe) }),
                // The listener's backlog is full: the probe is not connected, so the owner is unknown.
                Err(Errno::AGAIN) => {
                    return Err(ListenError::InUse {
                        path: path.to_owned(),
                        owner: "another process".into(),
                    });
                }
                // A stale socket of a process that was killed.
                Err(Errno::CONNREFUSED) if is_socket => std::fs::remove_file(path).map_err(failed)?,
                Err(_) => return Err(refused(Errno::ADDRINUSE)),
            }
            rustix::net::bind(&socket, &address).map_err(refused)?;
        }
        other => other.map_err(refused)?,
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(refused)?;
    Ok(socket)
}

/// Process id and name of the peer of a connected socket, for an error text.
fn peer(socket: &OwnedFd) -> String {
    let pid = PeerCredentials::of(socket).ok().and_then(|credentials| credentials.pid().ok());
    let Some(pid) = pid.map(|pid| pid.as_raw_nonzero()) else {
        return "another process".to_owned();
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_served_path_is_kept_and_a_left_one_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let served = listen(&path, SocketType::SEQPACKET, OWNER_ONLY).unwrap();
        let error = listen(&path, SocketType::SEQPACKET, OWNER_ONLY).unwrap_err();
        let own = format!("process {} ", std::process::id());
        assert!(matches!(&error, ListenError::InUse { owner, .. } if owner.starts_with(&own)), "{error}");
        drop(served);
        listen(&path, SocketType::SEQPACKET, OWNER_ONLY).unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(listen(&path, SocketType::STREAM, OWNER_ONLY), Err(ListenError::Failed { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
