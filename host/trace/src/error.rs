//! What can go wrong with a trace file: what, where, what to do next.

use std::fmt;
use std::path::PathBuf;

/// Where a file is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where the block begins, or the record if its block is whole.
    pub offset: u64,
    /// Number of the block, counted from the file's beginning.
    pub block: u32,
    /// The last record before the damage; `None` if even the header is gone.
    pub last_good: Option<u64>,
    pub why: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} at byte {} is damaged: {}; ", self.block, self.offset, self.why)?;
        match self.last_good {
            Some(last) => write!(
                f,
                "the last good record is #{last}. What is before it can be used, the rest cannot: \
                 copy the file again from where it was recorded, or record again"
            ),
            None => write!(f, "no record is readable: copy the file again, or record again"),
        }
    }
}

/// Why a trace cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot {doing} the trace {}: {source}; check the path, its permissions and the disk's space", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} exists and is no trace: it is not overwritten; name another file or remove it", .0.display())]
    WouldOverwrite(PathBuf),
    #[error("{} is no trace: {why}; name a file that --record wrote", path.display())]
    NotATrace { path: PathBuf, why: String },
    #[error("trace {}: {damage}", path.display())]
    Damaged { path: PathBuf, damage: Damage },
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
    #[error("trace {}: recording has stopped after an earlier failure; what was written before it can be replayed", .0.display())]
    Stopped(PathBuf),
}
