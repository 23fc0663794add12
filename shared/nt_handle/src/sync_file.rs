//! The descriptor of a sync file: a FIFO that becomes readable, and stays so.
//!
//! ```text
//!   broker: mkfifo DIR/TOKEN, open for reading, unlink ──▶ passed on; the broker keeps an O_PATH descriptor
//!   not ready       no writer has ever opened it: poll waits
//!   Signal::raise   a writer opens it, writes a byte and closes it: POLLIN | POLLHUP, in every process
//! ```
//! Nothing that a reader does takes POLLHUP away. A broker that is killed closes no writer, so nothing is signaled by
//! that, and its successor can raise the signal of a descriptor that a process presents. A socket pair would do neither.
//! An eventfd has no name for its token, and nobody sees its last close.
//!
//! The name carries the token. No other process can look it up: the folder is the broker's alone and gone before the
//! descriptor is passed on. The mode of the FIFO lets nobody open it again for reading, so that the last close of the
//! one open file is the last close of all (root can; see [`crate::NtHandles`]).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use d3dkmt::ShareToken;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

const NAME: &str = "gpupv-sync-file-";
/// What the kernel appends to the path of an unlinked file.
const DELETED: &str = " (deleted)";
/// Only the owner may open it, and for writing only.
const RAISED_BY_OWNER: Mode = Mode::WUSR;
/// A watch needs the right to read.
pub(crate) const WATCHED_BY_OWNER: Mode = Mode::RUSR.union(Mode::WUSR);
const MEMORY_FOLDER: &str = "/dev/shm";

/// Makes a sync file readable. Clones are of the same file.
#[derive(Debug, Clone)]
pub struct Signal(Arc<OwnedFd>);

impl Signal {
    /// The signal of a sync file that is open for reading.
    pub(crate) fn of(reader: BorrowedFd<'_>) -> Result<Signal, Errno> {
        let path = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Signal(Arc::new(rustix::fs::open(path_of(reader), path, Mode::empty())?)))
    }

    /// Makes the descriptor readable in every process that has it; has no effect if none has it. Never blocks.
    pub fn raise(&self) {
        let write = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // An error says that no process has it open.
        if let Ok(writer) = rustix::fs::open(path_of(self.0.as_fd()), write, Mode::empty()) {
            // Without the byte poll reports POLLHUP alone, which is enough.
            let _ = rustix::io::write(&writer, &[1]);
        }
    }
}

fn path_of(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// The token in the name of a sync file; `None` for any other descriptor.
pub(crate) fn token_of(descriptor: BorrowedFd<'_>) -> Option<ShareToken> {
    let status = rustix::fs::fstat(descriptor).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Fifo {
        return None;
    }
    let path = rustix::fs::readlink(path_of(descriptor), Vec::new()).ok()?;
    let name = path.to_str().ok()?.strip_suffix(DELETED)?.rsplit('/').next()?;
    let digits = name.strip_prefix(NAME).filter(|digits| digits.len() == 32 && digits.is_ascii())?;
    let mut token = [0; 16];
    for (byte, at) in token.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(ShareToken(token))
}

/// Whether a broker of this user made a sync file: no other process can make one with this owner and this mode.
pub(crate) fn is_of_broker(descriptor: BorrowedFd<'_>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    rustix::fs::fstat(descriptor)
        .is_ok_and(|status| status.st_uid == own && Mode::from_raw_mode(status.st_mode) == RAISED_BY_OWNER)
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    /// A folder that only this user can enter.
    fn new(digits: &str) -> Result<Folder, Errno> {
        let parent = Path::new(MEMORY_FOLDER);
        let parent = if parent.is_dir() { parent.to_owned() } else { std::env::temp_dir() };
        // The token is a secret until the broker passes the sync file on, so no other user can take the name first.
        let path = parent.join(format!("gpupv-{digits}"));
        rustix::fs::mkdir(&path, Mode::RWXU)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = rustix::fs::rmdir(&self.0);
    }
}

/// Creates the FIFO of a sync file. [`protect`] follows once it is watched.
pub(crate) fn create(token: ShareToken) -> Result<(OwnedFd, Signal), Errno> {
    let digits: String = token.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = Folder::new(&digits)?;
    let path = folder.0.join(format!("{NAME}{digits}"));
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, WATCHED_BY_OWNER, 0)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let reader = rustix::fs::open(&path, flags, Mode::empty());
    let _ = rustix::fs::unlink(&path);
    let reader = reader?;
    let signal = Signal::of(reader.as_fd())?;
    Ok((reader, signal))
}

/// Lets nobody open the FIFO for reading again.
pub(crate) fn protect(reader: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::fchmod(reader, RAISED_BY_OWNER)
}
