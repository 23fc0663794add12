//! Unix sockets that a daemon owns by their path.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Why a path cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("{path} is in use by {owner}: stop that process, or start with another --directory")]
    Busy { path: PathBuf, owner: String },
    #[error("cannot listen on {path}: {source}")]
    Listen { path: PathBuf, source: std::io::Error },
}

/// A listening socket; its path is removed with it.
#[derive(Debug)]
pub struct Listener {
    pub descriptor: OwnedFd,
    path: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens on `path`. A socket file that nobody serves any more is replaced; one in use names its owner.
pub fn listen(path: &Path, kind: SocketType) -> Result<Listener, SocketError> {
    let failed = |source: std::io::Error| SocketError::Listen { path: path.into(), source };
    let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
    let descriptor = open().map_err(|error| failed(error.into()))?;
    let bound = match rustix::net::bind(&descriptor, &address) {
        Err(rustix::io::Errno::ADDRINUSE) => {
            let probe = open().map_err(|error| failed(error.into()))?;
            let is_socket = std::fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket();
            match rustix::net::connect(&probe, &address) {
                Ok(()) => return Err(SocketError::Busy { path: path.into(), owner: owner(&probe) }),
                // Nobody accepts: left over from a daemon that was killed.
                Err(rustix::io::Errno::CONNREFUSED) if is_socket => {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                // Somebody's file, or a socket of which no more can be told.
                Err(_) => return Err(failed(rustix::io::Errno::ADDRINUSE.into())),
            }
            rustix::net::bind(&descriptor, &address)
        }
        other => other,
    };
    bound.and_then(|()| rustix::net::listen(&descriptor, 128)).map_err(|error| failed(error.into()))?;
    Ok(Listener { descriptor, path: path.into() })
}

/// Who is at the other end of a connected socket, for people.
fn owner(socket: impl AsFd) -> String {
    match rustix::net::sockopt::socket_peercred(socket) {
        Ok(credentials) => {
            let pid = credentials.pid.as_raw_nonzero();
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        }
        Err(_) => "another process".into(),
    }
}
