//! The connections that a guest has, in a file: a daemon that was killed leaves them behind, and no packet ever tells the
//! guest. The next one reads them and resets them. (There is a queue for that, with an event "the transport was reset";
//! QEMU keeps it to itself.)
//!
//! The file has 8 bytes for each place: the guest's port and the host's, little-endian. It is written before the guest
//! hears of a connection, and after it has heard of its end; a write that a kill cuts off has not been told to anybody.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::muxer::{Change, Ports};

const PLACE_BYTES: usize = 8;
/// No connection has these ports (`VMADDR_PORT_ANY`).
const NOBODY: Ports = Ports { peer: u32::MAX, local: u32::MAX };

/// See the module.
#[derive(Debug)]
pub(crate) struct Known {
    path: PathBuf,
    file: File,
    places: HashMap<Ports, u64>,
    free: Vec<u64>,
    end: u64,
}

/// The file of the device with this socket.
pub(crate) fn path_beside(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".connections");
    path.into()
}

impl Known {
    /// With what a daemon before this one has left.
    pub fn open(path: PathBuf) -> io::Result<Known> {
        let options = &mut OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut known = Known { path, file, places: HashMap::new(), free: Vec::new(), end: 0 };
        for place in bytes.chunks_exact(PLACE_BYTES) {
            let port = |at: usize| place[at..].first_chunk().copied().map_or(u32::MAX, u32::from_le_bytes);
            let ports = Ports { peer: port(0), local: port(4) };
            let is_new = ports != NOBODY && !known.places.contains_key(&ports);
            match is_new {
                true => _ = known.places.insert(ports, known.end),
                false => known.free.push(known.end),
            }
            known.end += 1;
        }
        Ok(known)
    }

    /// Connections that the guest may have, in no order that means anything.
    pub fn ports(&self) -> Vec<Ports> {
        let mut ports: Vec<_> = self.places.iter().map(|(ports, place)| (*place, *ports)).collect();
        ports.sort_unstable_by_key(|(place, _)| *place);
        ports.into_iter().map(|(_, ports)| ports).collect()
    }

    pub fn change(&mut self, change: Change) {
        let written = match change {
            Change::Known(ports) if self.places.contains_key(&ports) => Ok(()),
            Change::Known(ports) => {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.end += 1;
                    self.end - 1
                });
                self.places.insert(ports, place);
                self.write(place, ports)
            }
            Change::Gone(ports) => match self.places.remove(&ports) {
                Some(place) => {
                    self.free.push(place);
                    self.write(place, NOBODY)
                }
                None => Ok(()),
            },
        };
        if let Err(error) = written {
            tracing::warn!(
                "{}: {error}; should the daemon be killed a guest may not notice",
                self.path.display()
            );
        }
    }

    fn write(&self, place: u64, ports: Ports) -> io::Result<()> {
        let mut bytes = [0; PLACE_BYTES];
        bytes[..4].copy_from_slice(&ports.peer.to_le_bytes());
        bytes[4..].copy_from_slice(&ports.local.to_le_bytes());
        self.file.write_all_at(&bytes, place * PLACE_BYTES as u64)
    }

    /// The guest is gone, and all it had.
    pub fn clear(&mut self) {
        (self.places, self.free, self.end) = (HashMap::new(), Vec::new(), 0);
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!("{}: {error}", self.path.display());
        }
    }

    /// The device ends. What its guest still has to be told of is left to the next one.
    pub fn leave(&self) {
        if self.places.is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(peer: u32) -> Ports {
        Ports { peer, local: 7 }
    }

    #[test]
    fn what_was_known_and_not_gone_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_beside(&folder.path().join("vm.sock"));
        let mut known = Known::open(path.clone()).unwrap();
        for peer in 1..=3 {
            known.change(Change::Known(ports(peer)));
        }
        known.change(Change::Gone(ports(2)));
        known.change(Change::Gone(ports(9)));
        known.change(Change::Known(ports(4)));
        known.change(Change::Known(ports(4)));
        drop(known);
        let mut known = Known::open(path.clone()).unwrap();
        assert_eq!(known.ports(), [ports(1), ports(4), ports(3)], "the place of 2 was free");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 24);
        known.leave();
        assert!(path.exists(), "somebody is still to be told");
        known.clear();
        assert!(Known::open(path.clone()).unwrap().ports().is_empty());
        known.leave();
        assert!(!path.exists());
    }

    #[test]
    fn a_place_that_was_cut_off_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("connections");
        std::fs::write(&path, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0]).unwrap();
        let mut known = Known::open(path.clone()).unwrap();
        assert_eq!(known.ports(), [Ports { peer: 1, local: 2 }]);
        known.change(Change::Known(ports(5)));
        assert_eq!(Known::open(path).unwrap().ports().len(), 2);
    }
}
