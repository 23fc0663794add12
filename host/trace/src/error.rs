//! What can go wrong with a trace file: what, where, what to do next.

use std::fmt;
use std::path::PathBuf;

/// Something of a trace that is not there any more, or not to be trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Number of the first step that is lost.
    pub from: u64,
    /// Number of the first step that is there again, so that `from == Some(to)` loses no step. `None` at the end of a
    /// trace that nothing after it tells the length of: every step that was recorded from there on is lost.
    pub to: Option<u64>,
    /// Bytes of the file that it takes: 0 where they are gone.
    pub bytes: u64,
    /// Where in the file they begin.
    pub offset: u64,
    pub why: String,
}

impl Lost {
    /// False if all steps are there: what is lost was an index, or bytes that were never a part of the trace.
    pub fn loses_steps(&self) -> bool {
        self.to != Some(self.from)
    }

    /// How many steps are lost, if that can be known.
    pub fn steps(&self) -> Option<u64> {
        self.to.map(|to| to.saturating_sub(self.from))
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { from, to, bytes, offset, why } = self;
        match self.steps() {
            Some(0) => write!(f, "no step is lost")?,
            Some(1) => write!(f, "step #{from} is lost")?,
            Some(steps) => write!(f, "{steps} steps are lost, #{from} to #{}", to.unwrap_or_default() - 1)?,
            None => write!(f, "every step from #{from} on is lost")?,
        }
        write!(f, ": {why} ({bytes} bytes at byte {offset} of the file)")
    }
}

/// Why a trace cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot {doing} the trace {}: {source}; check the path, its permissions and the disk's space", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} exists and is no trace: it is not overwritten; name another file or remove it", .0.display())]
    WouldOverwrite(PathBuf),
    #[error("{} is being recorded by another program: name another file", .0.display())]
    Busy(PathBuf),
    #[error("{} is no trace: {why}; name a file that --record wrote", path.display())]
    NotATrace { path: PathBuf, why: String },
    #[error("trace {}: its header is lost, and with it what was recorded: {lost}; copy the file again from where it was recorded, or record again", path.display())]
    Damaged { path: PathBuf, lost: Lost },
    #[error("trace {} is not whole, and a copy could not tell: {lost}", path.display())]
    NotWhole { path: PathBuf, lost: Lost },
    #[error(
        "trace {} has {what} version {file}, this program has {ours}; replay it with the program that wrote it ({program})",
        path.display()
    )]
    Version { path: PathBuf, what: &'static str, file: u32, ours: u32, program: String },
    #[error(
        "trace {} describes a kernel that this program cannot build: {why}; replay it with the program that wrote it ({program})",
        path.display()
    )]
    Config { path: PathBuf, why: String, program: String },
    #[error(
        "trace {}: recording stopped: {why}; what came before can be replayed, {dropped} steps after it are not recorded",
        path.display()
    )]
    Stopped { path: PathBuf, dropped: u64, why: String },
}
