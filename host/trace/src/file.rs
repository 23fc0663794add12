//! The trace file that blocks are appended to, and the creation of its open block.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::TraceError;
use crate::block::MAGIC;
use crate::staging::{self, SideFile, Staging};

/// What a power failure may lose. A kill of the recording program never loses anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durable {
    /// Everything that the operating system has not written yet, by default about 30 seconds.
    #[default]
    No,
    /// The open block, of 64 KiB at most: each block is on the disk before recording continues.
    Block,
    /// Everything since the caller last synced [`crate::Recorder::file`] to the disk.
    Flushed,
}

/// A trace file that is being recorded.
pub(crate) struct TraceFile {
    path: PathBuf,
    file: File,
    /// Where the next block begins.
    offset: u64,
    durable: Durable,
}

/// Options for a file that only its owner can access, whatever the umask, because a trace has everything that guests
/// sent.
pub(crate) fn owner_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl TraceFile {
    /// Creates the file and its open block.
    pub fn create(path: &Path, trace: u64, durable: Durable) -> Result<(TraceFile, Staging), TraceError> {
        let create = |source| io_error("create", path, source);
        refuse_orphan(path)?;
        // The file is truncated only once it is known to be a trace or empty.
        let file = owner_only().create(true).truncate(false).open(path).map_err(create)?;
        refuse_recorded(&file, path)?;
        refuse_to_overwrite(&file, path)?;
        // An empty file may have been there, with a mode of its own. Sandboxed threads, which may not set any, make new files.
        if file.metadata().map_err(create)?.mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600)).map_err(create)?;
        }
        let staging = Staging::create(path, trace).map_err(create)?;
        file.set_len(0).map_err(create)?;
        (&file).rewind().map_err(create)?;
        Ok((TraceFile { path: path.to_owned(), file, offset: 0, durable }, staging))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn durable(&self) -> Durable {
        self.durable
    }

    /// Appends a block and returns its offset. A failed write leaves nothing of the block.
    pub fn write(&mut self, block: &[u8]) -> io::Result<u64> {
        let mut written = self.file.write_all(block);
        if self.durable == Durable::Block {
            written = written.and_then(|()| self.file.sync_data());
        }
        let begin = self.offset;
        if let Err(error) = written {
            let _ = self.file.set_len(begin);
            let _ = self.file.seek(io::SeekFrom::Start(begin));
            return Err(error);
        }
        self.offset += block.len() as u64;
        Ok(begin)
    }

    /// Makes all later writes fail as on a full disk, or succeed again.
    #[cfg(test)]
    pub fn fill_disk(&mut self, full: bool) -> io::Result<()> {
        let path = if full { Path::new("/dev/full") } else { &self.path };
        self.file = OpenOptions::new().write(true).open(path)?;
        self.file.seek(io::SeekFrom::Start(self.offset)).map(drop)
    }

    /// Makes each later sync fail, and no write.
    #[cfg(test)]
    pub fn fail_syncs(&mut self) -> io::Result<()> {
        self.file = OpenOptions::new().write(true).open("/dev/null")?;
        Ok(())
    }

    /// A duplicate of the file's descriptor, for a caller that syncs it to the disk.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Syncs the file after the last block, if it is to be durable.
    pub fn finish(&mut self) -> Result<(), TraceError> {
        if self.durable != Durable::No {
            self.file.sync_data().map_err(|source| io_error("write", &self.path, source))?;
        }
        Ok(())
    }
}

/// Opens a regular file to read it. A FIFO would wait for a writer for ever, and a device may have no end.
///
/// # Errors
///
/// The file cannot be opened, or [`io::ErrorKind::Unsupported`]: it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::Unsupported, "it is not a regular file")),
    }
}

/// The path of a file that accompanies another: its name with this suffix.
pub fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn io_error(doing: &'static str, path: &Path, source: io::Error) -> TraceError {
    TraceError::Io { doing, path: path.to_owned(), source }
}

/// Refuses a path beside which is the open block of another recording: its trace was moved away without it, and its steps
/// are nowhere else.
fn refuse_orphan(path: &Path) -> Result<(), TraceError> {
    let is_there = std::fs::metadata(path).is_ok_and(|found| !found.is_file() || found.len() > 0);
    let has_steps = matches!(staging::read(path), Ok(SideFile::Open(_) | SideFile::Unreadable { .. }));
    if is_there || !has_steps {
        return Ok(());
    }
    Err(TraceError::Orphan { open: staging::path_of(path), trace: path.to_owned() })
}

/// Writes a trace into a new file beside the path, which then replaces the trace at the path. So a full disk destroys no
/// older trace, and a reader finds either the old or the new one.
///
/// # Errors
///
/// Fails with I/O errors, and if the file at the path is no trace or is being recorded.
pub(crate) fn replace_trace<T>(
    path: &Path,
    write: impl FnOnce(File) -> io::Result<T>,
) -> Result<T, TraceError> {
    let io = |source| io_error("write", path, source);
    refuse_orphan(path)?;
    let old = match owner_only().open(path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io(error)),
    };
    if let Some(file) = &old {
        refuse_recorded(file, path)?;
        refuse_to_overwrite(file, path)?;
    }
    let part = beside(path, ".part");
    if let Ok(left) = File::open(&part) {
        // A part that a killed daemon left.
        refuse_to_overwrite(&left, &part)?;
        std::fs::remove_file(&part).map_err(io)?;
    }
    let file = owner_only().create_new(true).open(&part).map_err(io)?;
    let written = write(file).and_then(|result| {
        std::fs::rename(&part, path)?;
        Ok(result)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    // The lock of the replaced file lasts until here, so that no recorder begins in it.
    drop(old);
    written.map_err(io)
}

/// Locks a file, or refuses it if it is not regular or a recorder has it.
fn refuse_recorded(file: &File, path: &Path) -> Result<(), TraceError> {
    if !file.metadata().map_err(|source| io_error("open", path, source))?.is_file() {
        return Err(TraceError::NotATrace { path: path.to_owned(), why: "it is not a regular file".into() });
    }
    // On a file system without locks, assume that there is no other recorder.
    if flock(file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
        return Err(TraceError::Busy(path.to_owned()));
    }
    Ok(())
}

/// Refuses a file that is neither empty nor a trace, so that a mistyped path destroys no other file.
fn refuse_to_overwrite(file: &File, path: &Path) -> Result<(), TraceError> {
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(|source| io_error("read", path, source))?;
    if start.is_empty() || start == MAGIC { Ok(()) } else { Err(TraceError::WouldOverwrite(path.to_owned())) }
}
