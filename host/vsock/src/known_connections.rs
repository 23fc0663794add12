//! The connections of a guest, in a file. A daemon that was killed leaves them open, and no packet closes them for the
//! guest, so the next daemon reads the file and resets them. (virtio-vsock has the event "the transport was reset" for
//! that; QEMU does not expose its queue.)
//!
//! The file has 8 bytes for each row: the guest's port and the host's, little-endian. A row is written before the
//! guest learns of a connection, and cleared after the guest is sent its end. If a kill interrupts the write of a new
//! row, the guest does not know the connection yet.
//!
//! The file is beside the device's socket, where any next daemon finds it. That folder may end with the daemon, as the
//! runtime directory of a systemd service does. So a daemon with a journal keeps a copy there.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::muxer::{Change, Ports};

const ROW_BYTES: usize = 8;
/// No connection has these ports (`VMADDR_PORT_ANY`).
const NO_PORTS: Ports = Ports { peer: u32::MAX, local: u32::MAX };

/// The known connections and their files, which have the same rows.
#[derive(Debug)]
pub(crate) struct Known {
    files: Vec<(PathBuf, File)>,
    rows: HashMap<Ports, u64>,
    free: Vec<u64>,
    end: u64,
}

/// Returns the path of the file for a device's socket.
pub(crate) fn path_beside(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".connections");
    path.into()
}

impl Known {
    /// Opens the files with the connections that earlier daemons left in any of them.
    pub fn open(paths: impl IntoIterator<Item = PathBuf>) -> io::Result<Known> {
        let mut known = Known { files: Vec::new(), rows: HashMap::new(), free: Vec::new(), end: 0 };
        for path in paths {
            let mut file = open(&path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            known.add_rows(&bytes);
            known.files.push((path, file));
        }
        if known.files.len() > 1 {
            known.write_all()?;
        }
        Ok(known)
    }

    fn add_rows(&mut self, bytes: &[u8]) {
        for row in bytes.chunks_exact(ROW_BYTES) {
            let port = |at: usize| row[at..].first_chunk().copied().map_or(u32::MAX, u32::from_le_bytes);
            let ports = Ports { peer: port(0), local: port(4) };
            let is_new = ports != NO_PORTS && !self.rows.contains_key(&ports);
            match is_new {
                true => _ = self.rows.insert(ports, self.end),
                false => self.free.push(self.end),
            }
            self.end += 1;
        }
    }

    /// Writes every connection into every file, and no free row: they would add up from daemon to daemon.
    ///
    /// One file has all that it had at any time. In the first, rows move ahead one after the other, and those of other files
    /// come after them. It is complete before another is overwritten.
    fn write_all(&mut self) -> io::Result<()> {
        let ports = self.ports();
        for (_, file) in &self.files {
            (0..).zip(&ports).try_for_each(|(row, ports)| write_row(file, row, *ports))?;
            file.set_len(ports.len() as u64 * ROW_BYTES as u64)?;
        }
        (self.free, self.end) = (Vec::new(), ports.len() as u64);
        self.rows = ports.into_iter().zip(0..).collect();
        Ok(())
    }

    /// Connections that the guest may have, by row of the file.
    pub fn ports(&self) -> Vec<Ports> {
        let mut ports: Vec<_> = self.rows.iter().map(|(ports, row)| (*row, *ports)).collect();
        ports.sort_unstable_by_key(|(row, _)| *row);
        ports.into_iter().map(|(_, ports)| ports).collect()
    }

    /// Writes a changed connection. An error leaves it known here but not in the file: the caller reports it once it
    /// has released its locks.
    pub fn change(&mut self, change: Change) -> io::Result<()> {
        match change {
            Change::Known(ports) if self.rows.contains_key(&ports) => Ok(()),
            Change::Known(ports) => {
                let row = self.free.pop().unwrap_or_else(|| {
                    self.end += 1;
                    self.end - 1
                });
                self.rows.insert(ports, row);
                self.write(row, ports)
            }
            Change::Gone(ports) => match self.rows.remove(&ports) {
                Some(row) => {
                    self.free.push(row);
                    self.write(row, NO_PORTS)
                }
                None => Ok(()),
            },
        }
    }

    /// Writes a row into every file. Returns the first error.
    fn write(&self, row: u64, ports: Ports) -> io::Result<()> {
        let written = self.files.iter().map(|(_, file)| write_row(file, row, ports));
        written.fold(Ok(()), io::Result::and)
    }

    /// Forgets all connections: the guest is gone. An error is for the caller to report, as of [`Known::change`].
    pub fn clear(&mut self) -> io::Result<()> {
        (self.rows, self.free, self.end) = (HashMap::new(), Vec::new(), 0);
        self.files.iter().map(|(_, file)| file.set_len(0)).fold(Ok(()), io::Result::and)
    }

    /// Makes all later writes fail as on a full disk.
    #[cfg(test)]
    pub fn fill_disk(&mut self) {
        for (_, file) in &mut self.files {
            *file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        }
    }

    /// Removes the files when the device shuts down, unless they have connections to reset for the next device.
    pub fn leave(&self) {
        for (path, _) in self.files.iter().filter(|_| self.rows.is_empty()) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens a file of connections. Where others can write, a FIFO may stand there, or a link to another file.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let options = &mut OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        let why = format!("{} is not a regular file: remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(file)
}

fn write_row(file: &File, row: u64, ports: Ports) -> io::Result<()> {
    let mut bytes = [0; ROW_BYTES];
    bytes[..4].copy_from_slice(&ports.peer.to_le_bytes());
    bytes[4..].copy_from_slice(&ports.local.to_le_bytes());
    file.write_all_at(&bytes, row * ROW_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(peer: u32) -> Ports {
        Ports { peer, local: 7 }
    }

    #[test]
    fn connections_that_are_not_gone_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_beside(&folder.path().join("vm.sock"));
        let mut known = Known::open([path.clone()]).unwrap();
        for peer in 1..=3 {
            known.change(Change::Known(ports(peer))).unwrap();
        }
        known.change(Change::Gone(ports(2))).unwrap();
        known.change(Change::Gone(ports(9))).unwrap();
        known.change(Change::Known(ports(4))).unwrap();
        known.change(Change::Known(ports(4))).unwrap();
        drop(known);
        let mut known = Known::open([path.clone()]).unwrap();
        assert_eq!(known.ports(), [ports(1), ports(4), ports(3)], "the row of 2 was free");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 24);
        known.leave();
        assert!(path.exists(), "a connection is still to be reset");
        known.clear().unwrap();
        assert!(Known::open([path.clone()]).unwrap().ports().is_empty());
        known.leave();
        assert!(!path.exists());
    }

    #[test]
    fn an_incomplete_place_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("connections");
        std::fs::write(&path, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0]).unwrap();
        let mut known = Known::open([path.clone()]).unwrap();
        assert_eq!(known.ports(), [Ports { peer: 1, local: 2 }]);
        known.change(Change::Known(ports(5))).unwrap();
        assert_eq!(Known::open([path]).unwrap().ports().len(), 2);
    }

    #[test]
    fn a_fifo_and_a_link_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let [fifo, link, file] = ["fifo", "link", "file"].map(|name| folder.path().join(name));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        std::fs::write(&file, "other").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let error = Known::open([fifo.clone()]).unwrap_err().to_string();
        assert!(error.contains("fifo is not a regular file"), "{error}");
        assert!(Known::open([link]).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"other");
    }

    /// A daemon with a journal is followed by one whose runtime directory is new, and that by one without a journal.
    #[test]
    fn each_file_alone_has_the_connections() {
        let folder = tempfile::tempdir().unwrap();
        let [beside, copy] =
            ["vm.sock.connections", "journal.connections"].map(|name| folder.path().join(name));
        let both = || Known::open([beside.clone(), copy.clone()]).unwrap();
        let mut known = both();
        (1..=3).for_each(|peer| known.change(Change::Known(ports(peer))).unwrap());
        known.change(Change::Gone(ports(1))).unwrap();
        drop(known);
        std::fs::remove_file(&beside).unwrap();
        for _ in 0..3 {
            assert_eq!(both().ports(), [ports(2), ports(3)]);
            let bytes = |path: &PathBuf| std::fs::metadata(path).unwrap().len();
            assert_eq!([&beside, &copy].map(bytes), [2 * ROW_BYTES as u64; 2], "they do not grow");
        }
        let mut known = both();
        known.change(Change::Gone(ports(3))).unwrap();
        known.change(Change::Known(ports(4))).unwrap();
        drop(known);
        for path in [&beside, &copy] {
            let known = Known::open([path.clone()]).unwrap().ports();
            assert!(known.len() == 2 && known.contains(&ports(2)) && known.contains(&ports(4)), "{known:?}");
        }
        let mut known = both();
        known.clear().unwrap();
        known.leave();
        assert!(!beside.exists() && !copy.exists());
    }
}
