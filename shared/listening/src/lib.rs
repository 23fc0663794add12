//! Listening Unix sockets with a path and a mode, the credentials of who connects, and room for the descriptors of many.
//!
//! `bind` creates the socket's file with the mode that the umask leaves of the socket's own. Until `listen` is called every
//! connect fails with ECONNREFUSED. The mode is set between the two calls, so a process that the mode excludes can never
//! connect. `folder.rs` says which folders have sockets, and why no mode is set by a path.
//!
//! A file at whose socket nobody listens is stale, and replaced. That is one step only under a lock: otherwise a second
//! process would take a socket between its `bind` and its `listen` for stale, or remove the file that a first one has
//! just put in place of a stale one.

mod descriptors;
mod folder;
mod peer;

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use descriptors::reserve_descriptors;
pub use folder::{UnsafeFolder, check_folder, make_folder};
pub use peer::{OtherPidNamespace, PeerCredentials, administrators};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Backlog of the listening socket: connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// How long a start waits for the lock of another one, which needs a few system calls, and between two tries.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_micros(100);

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

/// A listening socket. Its file is removed with it.
#[derive(Debug)]
pub struct Listener {
    // Before the descriptor: as long as that is open, no other process takes the file for stale.
    file: SocketFile,
    /// The socket, nonblocking.
    pub descriptor: OwnedFd,
}

impl Listener {
    /// The socket, whose file stays.
    pub fn into_descriptor(self) -> OwnedFd {
        std::mem::forget(self.file);
        self.descriptor
    }
}

/// The file of a socket. Dropping it removes the file, unless another socket has the path by then.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| identity(&file) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of a file.
fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// A lock on the creation of a socket's file.
struct CreationLock {
    path: PathBuf,
    _file: File,
}

impl CreationLock {
    /// Takes the lock within a time: a process that may open its file could hold it for ever.
    fn take(socket: &Path, within: Duration) -> io::Result<CreationLock> {
        let begun = Instant::now();
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        loop {
            let file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
            if !file.metadata().is_ok_and(|file| file.is_file() && file.len() == 0) {
                let why = format!("{} is in the way: it is no lock of a socket", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            // On a file system without locks, processes that start at one time are not told apart.
            if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                if begun.elapsed() >= within {
                    let why =
                        format!("another process holds {}: stop it or choose another folder", path.display());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                // The system has no wait for a lock with a limit.
                std::thread::park_timeout(LOCK_RETRY);
                continue;
            }
            // The process that had it before has removed its file.
            let named = std::fs::symlink_metadata(&path).map(|named| identity(&named));
            if named.is_ok_and(|named| file.metadata().is_ok_and(|file| identity(&file) == named)) {
                return Ok(CreationLock { path, _file: file });
            }
        }
    }
}

impl Drop for CreationLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A nonblocking listening socket at `path` with exactly the permissions `mode`.
///
/// A socket file that no process serves is replaced.
///
/// # Errors
///
/// Another process serves the socket, the file is not a socket, or a system call fails.
pub fn listen(path: &Path, kind: SocketType, mode: u32) -> Result<Listener, ListenError> {
    let failed = |source: std::io::Error| ListenError::Failed { path: path.to_owned(), source };
    let refused = |error: Errno| failed(error.into());
    let address = SocketAddrUnix::new(path).map_err(refused)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).map_err(refused);
    let socket = open()?;
    let _lock = CreationLock::take(path, LOCK_WAIT).map_err(failed)?;
    // The file never has more rights than this, and fewer if the umask says so.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode)).map_err(refused)?;
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
    let made = folder::set_mode(path, FileType::Socket, mode).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(refused)?;
    let identity = (made.st_dev, made.st_ino);
    Ok(Listener { file: SocketFile { path: path.to_owned(), identity }, descriptor: socket })
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
        // As a process that is killed leaves it.
        drop(served.into_descriptor());
        assert!(path.exists());
        drop(listen(&path, SocketType::SEQPACKET, OWNER_ONLY).unwrap());
        assert_eq!(
            folder.path().read_dir().unwrap().count(),
            0,
            "the socket's file and the lock's are removed"
        );
    }

    #[test]
    fn of_processes_that_start_at_one_stale_socket_one_serves_it() {
        const STARTS: usize = 8;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        for _ in 0..2000 {
            drop(listen(&path, SocketType::STREAM, OWNER_ONLY).unwrap().into_descriptor());
            let barrier = std::sync::Barrier::new(STARTS);
            let start = || {
                barrier.wait();
                listen(&path, SocketType::STREAM, OWNER_ONLY)
            };
            let started: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..STARTS).map(|_| scope.spawn(start)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let serving: Vec<_> = started.into_iter().filter_map(Result::ok).collect();
            let found = identity(&std::fs::symlink_metadata(&path).unwrap());
            assert!(serving.len() == 1 && serving[0].file.identity == found, "{serving:?} {found:?}");
        }
    }

    /// Another user who can write the folder exchanges the socket with a link to a file of this user.
    #[test]
    fn the_mode_of_a_file_that_a_link_names_never_changes() {
        use rustix::fs::{CWD, RenameFlags, renameat_with};

        let folder = tempfile::tempdir().unwrap();
        let [file, link, socket] = ["file", "link", "socket"].map(|name| folder.path().join(name));
        std::fs::write(&file, "secret").unwrap();
        let mode = || std::fs::metadata(&file).unwrap().mode();
        let before = mode();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = renameat_with(CWD, &link, CWD, &socket, RenameFlags::EXCHANGE);
                }
            });
            for _ in 0..2000 {
                let _ = std::fs::remove_file(&link);
                std::os::unix::fs::symlink(&file, &link).unwrap();
                drop(listen(&socket, SocketType::STREAM, 0o777).map(Listener::into_descriptor));
                for left in [&link, &socket] {
                    let _ = std::fs::remove_file(left);
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(mode(), before);
    }

    #[test]
    fn a_lock_that_another_process_keeps_ends_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let held = CreationLock::take(&path, Duration::ZERO).unwrap();
        let error = CreationLock::take(&path, Duration::from_millis(1)).err().unwrap().to_string();
        assert!(error.contains("another process holds") && error.contains("socket.lock"), "{error}");
        drop(held);
        CreationLock::take(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_listener_removes_its_own_file_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = listen(&path, SocketType::STREAM, OWNER_ONLY).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = listen(&path, SocketType::STREAM, OWNER_ONLY).unwrap();
        drop(first);
        assert!(path.exists(), "the path is the second one's");
        drop(second);
        assert!(!path.exists());
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
