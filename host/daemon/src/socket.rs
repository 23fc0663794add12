//! Unix sockets that a daemon owns by their path.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use listening::ListenError;
use rustix::net::SocketType;

/// A listening socket; its path is removed with it.
#[derive(Debug)]
pub struct Listener {
    pub descriptor: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// See [`listening::listen`].
    pub fn new(path: &Path, kind: SocketType, mode: u32) -> Result<Listener, ListenError> {
        Ok(Listener { descriptor: listening::listen(path, kind, mode)?, path: path.to_owned() })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
