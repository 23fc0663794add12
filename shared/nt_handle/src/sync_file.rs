//! The descriptor of a sync file: a FIFO that becomes readable, and stays so.
//!
//! ```text
//!   broker without a successor   mkfifo, open for reading and for writing, unlink ──▶ the reader is passed on
//!   broker that may be resumed   mkfifo, open for reading, O_PATH ──▶ the reader is passed on; the name stays
//!   Signal::raise                a writer writes a byte and is closed: POLLIN | POLLHUP, in every process
//! ```
//! Nothing that a reader does takes POLLHUP away. A socket pair would not stay readable. An eventfd has no name for its
//! token, and nobody sees its last close.
//!
//! A broker *without a successor* keeps the only writer. If it is killed, the system closes that: the file becomes
//! readable, and no process polls for ever. A broker *that may be resumed* has no writer open, so its death signals
//! nothing. Its successor finds the file by its name, also if no process presents it.
//!
//! The name carries the token. The folder is the broker's alone (see [`super::SyncFileFolder`]). The mode of the FIFO
//! lets nobody but root open it again for reading.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use d3dkmt::ShareToken;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;

const NAME: &str = "gpupv-sync-file-";
/// What the kernel appends to the path of an unlinked file.
const DELETED: &str = " (deleted)";
/// Only the owner may open it, and for writing only.
const RAISED_BY_OWNER: Mode = Mode::WUSR;
/// Fails with ENXIO if no process has the file open for reading.
const WRITER: OFlags = OFlags::WRONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// A watch needs the right to read.
const WATCHED_BY_OWNER: Mode = Mode::RUSR.union(Mode::WUSR);

/// The broker's descriptor of a sync file.
#[derive(Debug)]
enum Held {
    /// The only writer. Poll reports POLLERR once no process has the file open for reading.
    Writer(OwnedFd),
    /// An O_PATH descriptor, and the name by which a successor finds the file.
    Path { descriptor: OwnedFd, name: PathBuf },
    /// The name alone, of a file that a killed broker left and that cannot be watched.
    Name(PathBuf),
    /// It is raised or closed. Without a descriptor of the broker, the inode goes with the last reader.
    Nothing,
}

/// Makes a sync file readable. Clones are of the same file.
#[derive(Debug, Clone)]
pub struct Signal(Arc<Mutex<Held>>);

/// Whether processes have a sync file open, as far as the system says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    None,
    Some,
    /// The file is raised: the end of its inode says it.
    SeenByInode,
}

impl Signal {
    fn of(held: Held) -> Signal {
        Signal(Arc::new(Mutex::new(held)))
    }

    /// The signal of a file that has a name in the folder of a broker that may be resumed.
    pub(crate) fn of_named(file: BorrowedFd<'_>, name: PathBuf) -> Result<Signal, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path_of(file), flags, Mode::empty())?;
        Ok(Signal::of(Held::Path { descriptor, name }))
    }

    /// The signal of a file that a killed broker left under this name. It takes no descriptor.
    pub(crate) fn of_left(name: PathBuf) -> Signal {
        Signal::of(Held::Name(name))
    }

    /// The state is valid after each statement, so a panic elsewhere does not matter.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the descriptor readable in every process that has it; has no effect if none has it. Never blocks.
    pub fn raise(&self) {
        match std::mem::replace(&mut *self.held(), Held::Nothing) {
            Held::Writer(writer) => mark(&writer),
            Held::Path { descriptor, name } => {
                let writer = match open_writer(descriptor.as_fd()) {
                    // Descriptors are used up: its own one is the first to be free.
                    Err(Errno::MFILE) => {
                        drop(descriptor);
                        rustix::fs::open(&name, WRITER, Mode::empty())
                    }
                    writer => writer,
                };
                // ENXIO: no process has it open.
                writer.iter().for_each(mark);
                let _ = rustix::fs::unlink(&name);
            }
            Held::Name(name) => raise_left(&name),
            Held::Nothing => {}
        }
    }

    /// Releases what the broker has of a file that no process has open.
    pub(crate) fn release(&self) {
        match std::mem::replace(&mut *self.held(), Held::Nothing) {
            Held::Path { name, .. } | Held::Name(name) => _ = rustix::fs::unlink(&name),
            Held::Writer(_) | Held::Nothing => {}
        }
    }

    /// Closes the broker's descriptor, as its death does.
    #[cfg(test)]
    pub(crate) fn lose(&self) {
        *self.held() = Held::Nothing;
    }

    /// Asks the system whether any process has the file open for reading. To ask, a writer has to be open: from then on
    /// the file becomes readable if this broker is killed.
    pub(crate) fn readers(&self) -> Readers {
        let mut held = self.held();
        if let Held::Path { descriptor, name } = &*held {
            match open_writer(descriptor.as_fd()) {
                Ok(writer) => {
                    let _ = rustix::fs::unlink(name);
                    *held = Held::Writer(writer);
                }
                Err(Errno::NXIO) => return Readers::None,
                // Descriptors are used up: a later close asks again.
                Err(_) => return Readers::Some,
            }
        }
        match &*held {
            Held::Writer(writer) if has_no_reader(writer.as_fd()) => Readers::None,
            Held::Writer(_) | Held::Path { .. } | Held::Name(_) => Readers::Some,
            Held::Nothing => Readers::SeenByInode,
        }
    }

    /// Calls `with` with the writer, if this broker has one open.
    pub(crate) fn with_writer<R>(&self, with: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        match &*self.held() {
            Held::Writer(writer) => Some(with(writer.as_fd())),
            Held::Path { .. } | Held::Name(_) | Held::Nothing => None,
        }
    }
}

/// Without the byte poll reports POLLHUP alone, which is enough.
fn mark(writer: &OwnedFd) {
    let _ = rustix::io::write(writer, &[1]);
}

fn has_no_reader(writer: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::from_borrowed_fd(writer, PollFlags::empty())];
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

pub(crate) fn path_of(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", descriptor.as_raw_fd())
}

fn open_writer(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path_of(descriptor), WRITER, Mode::empty())
}

/// What the system knows of a file, or of a descriptor with an empty path, without asking the server of its file system: that
/// of FUSE belongs to the process that sent the descriptor, and may never answer.
fn cached_status(descriptor: BorrowedFd<'_>, path: &Path) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(descriptor, path, flags, StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID).ok()
}

fn is_own(file: &Statx) -> bool {
    file.stx_uid == rustix::process::geteuid().as_raw()
}

/// The token in the name of a sync file; `None` for any other descriptor.
pub(crate) fn token_of(descriptor: BorrowedFd<'_>) -> Option<ShareToken> {
    let status = cached_status(descriptor, Path::new(""))?;
    if FileType::from_raw_mode(status.stx_mode.into()) != FileType::Fifo {
        return None;
    }
    let path = rustix::fs::readlink(path_of(descriptor), Vec::new()).ok()?;
    let path = path.to_str().ok()?;
    token_in(path.strip_suffix(DELETED).unwrap_or(path).rsplit('/').next()?)
}

fn token_in(name: &str) -> Option<ShareToken> {
    let digits = name.strip_prefix(NAME).filter(|digits| digits.len() == 32 && digits.is_ascii())?;
    let mut token = [0; 16];
    for (byte, at) in token.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(ShareToken(token))
}

fn name_of(token: ShareToken) -> String {
    let digits: String = token.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{NAME}{digits}")
}

/// The folder in which a broker makes its sync files, beside its socket, and what becomes of them if it is killed.
///
/// Only the broker's user can enter it. A broker without a successor unlinks each file at once, so a kill leaves the
/// empty folder, or one file in it; the next broker at this socket removes both. A file has an inode of the socket's
/// file system as long as a process has it open.
#[derive(Debug, Clone)]
pub struct SyncFileFolder {
    path: PathBuf,
    is_resumed: bool,
}

impl SyncFileFolder {
    fn beside(socket: &Path, is_resumed: bool) -> SyncFileFolder {
        let mut path = socket.as_os_str().to_owned();
        path.push(".sync-files");
        SyncFileFolder { path: path.into(), is_resumed }
    }

    /// The folder of a broker without a successor. The socket must be this broker's by now. What an earlier one left
    /// is removed.
    pub fn fresh(socket: &Path) -> SyncFileFolder {
        let folder = SyncFileFolder::beside(socket, false);
        for (_, path) in folder.files() {
            let _ = rustix::fs::unlink(&path);
        }
        folder.remove();
        folder
    }

    /// The folder of a broker that may be resumed after a kill: see [`super::NtHandles::recover`].
    pub fn resumed(socket: &Path) -> SyncFileFolder {
        SyncFileFolder::beside(socket, true)
    }

    pub(crate) fn path_of(&self, token: ShareToken) -> PathBuf {
        self.path.join(name_of(token))
    }

    /// Whether a broker of this user made the sync file of this token that a client presents: no other process can make one
    /// with this owner and this mode in the file system of the folder. A FUSE server states any owner, mode and name, but
    /// not the device of another file system. An overlay of several file systems has other devices for files than for
    /// folders, so it is compared with the file that has the name.
    pub(crate) fn is_of_broker(&self, descriptor: BorrowedFd<'_>, token: ShareToken) -> bool {
        let named = cached_status(CWD, &self.path_of(token)).or_else(|| cached_status(CWD, &self.path));
        let files = cached_status(descriptor, Path::new("")).zip(named);
        files.is_some_and(|(file, named)| {
            let device = |of: &Statx| (of.stx_dev_major, of.stx_dev_minor);
            let has_mode = Mode::from_raw_mode(file.stx_mode.into()) == RAISED_BY_OWNER;
            device(&file) == device(&named) && is_own(&file) && has_mode
        })
    }

    /// Whether a broker of this user made a file in the folder, which nobody else can enter: the owner says it alone. A
    /// broker that is killed in [`while_readable`] leaves another mode, also of a file that processes wait for.
    pub(crate) fn made(&self, left: BorrowedFd<'_>) -> bool {
        cached_status(left, Path::new("")).is_some_and(|file| is_own(&file))
    }

    /// Whether the path is a folder that no other user can have made or can enter.
    fn check(&self) -> Result<(), Errno> {
        let status = rustix::fs::lstat(&self.path)?;
        let is_folder = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
        let is_own = status.st_uid == rustix::process::geteuid().as_raw();
        let is_private = Mode::from_raw_mode(status.st_mode) == Mode::RWXU;
        if is_folder && is_own && is_private { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Makes the folder if it does not exist.
    fn open(&self) -> Result<(), Errno> {
        match rustix::fs::mkdir(&self.path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.check(),
            Err(error) => Err(error),
        }
    }

    /// The sync files in it.
    pub(crate) fn files(&self) -> Vec<(ShareToken, PathBuf)> {
        let entries = self.check().ok().and_then(|()| std::fs::read_dir(&self.path).ok());
        let file = |entry: std::fs::DirEntry| Some((token_in(entry.file_name().to_str()?)?, entry.path()));
        entries.into_iter().flatten().flatten().filter_map(file).collect()
    }

    /// Removes it if it is empty.
    pub(crate) fn remove(&self) {
        if self.check().is_ok() {
            let _ = rustix::fs::rmdir(&self.path);
        }
    }

    /// Creates the FIFO of a sync file, open for reading. [`while_readable`] protects it.
    pub(crate) fn create(&self, token: ShareToken) -> Result<(OwnedFd, Signal), Errno> {
        self.open()?;
        let path = self.path_of(token);
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, WATCHED_BY_OWNER, 0)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let made = rustix::fs::open(&path, flags, Mode::empty()).and_then(|reader| {
            let signal = match self.is_resumed {
                true => Signal::of_named(reader.as_fd(), path.clone())?,
                false => Signal::of(Held::Writer(open_writer(reader.as_fd())?)),
            };
            Ok((reader, signal))
        });
        if !self.is_resumed || made.is_err() {
            let _ = rustix::fs::unlink(&path);
        }
        made
    }
}

/// Opens a sync file that a killed broker left under this name.
pub(crate) fn open_left(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Makes a sync file readable that a killed broker left, and removes its name.
pub(crate) fn raise_left(path: &Path) {
    rustix::fs::open(path, WRITER, Mode::empty()).iter().for_each(mark);
    let _ = rustix::fs::unlink(path);
}

/// Calls `with` while the owner may read the FIFO, and lets nobody open it for reading afterwards.
pub(crate) fn while_readable<R>(
    file: BorrowedFd<'_>,
    with: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    rustix::fs::chmod(path_of(file), WATCHED_BY_OWNER)?;
    let done = with();
    rustix::fs::chmod(path_of(file), RAISED_BY_OWNER)?;
    done
}
