//! The file that blocks are appended to, and the open block beside it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::TraceError;
use crate::block::MAGIC;
use crate::staging::Staging;

/// What a power failure may cost. The end of the recording program never costs anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durable {
    /// As much as the system has not written yet, some 30 seconds by default.
    #[default]
    No,
    /// The open block, which has 64 KiB at most: each is on the disk before recording goes on.
    Block,
    /// What came after the last time that whoever records had [`crate::Recorder::file`] written to the disk.
    Flushed,
}

/// See the module.
pub(crate) struct TraceFile {
    path: PathBuf,
    file: File,
    /// Where the next block begins.
    offset: u64,
    durable: Durable,
}

/// Options for a file that only its owner may read, whatever the umask: a trace has everything that guests sent.
pub(crate) fn owner_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl TraceFile {
    /// The file, and its open block.
    pub fn create(path: &Path, trace: u64, durable: Durable) -> Result<(TraceFile, Staging), TraceError> {
        let create = |source| io_error("create", path, source);
        // It is truncated only when it is known to be ours.
        let file = owner_only().create(true).truncate(false).open(path).map_err(create)?;
        if !file.metadata().map_err(create)?.is_file() {
            return Err(TraceError::NotATrace { path: path.to_owned(), why: "it is no file".into() });
        }
        // A file system without locks is as good as no other recorder.
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
            return Err(TraceError::Busy(path.to_owned()));
        }
        refuse_to_overwrite(&file, path)?;
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

    /// Appends a block; where it begins. Of one that could not be written nothing is left.
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

    /// Has every write fail from here on as on a full disk, or no more.
    #[cfg(test)]
    pub fn fill_disk(&mut self, full: bool) -> io::Result<()> {
        let path = if full { Path::new("/dev/full") } else { &self.path };
        self.file = OpenOptions::new().write(true).open(path)?;
        self.file.seek(io::SeekFrom::Start(self.offset)).map(drop)
    }

    /// The file itself, for who has it written to the disk.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Every block is written.
    pub fn finish(&mut self) -> Result<(), TraceError> {
        if self.durable != Durable::No {
            self.file.sync_data().map_err(|source| io_error("write", &self.path, source))?;
        }
        Ok(())
    }
}

/// A file that belongs to another: its name has this behind it.
pub fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn io_error(doing: &'static str, path: &Path, source: io::Error) -> TraceError {
    TraceError::Io { doing, path: path.to_owned(), source }
}

/// The same of a file that is not open, if it is there.
pub(crate) fn refuse_to_overwrite_at(path: &Path) -> Result<(), TraceError> {
    match File::open(path) {
        Ok(file) => refuse_to_overwrite(&file, path),
        Err(_) => Ok(()),
    }
}

/// A slip of the command line must not cost somebody's file.
fn refuse_to_overwrite(file: &File, path: &Path) -> Result<(), TraceError> {
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(|source| io_error("read", path, source))?;
    if start.is_empty() || start == MAGIC { Ok(()) } else { Err(TraceError::WouldOverwrite(path.to_owned())) }
}
