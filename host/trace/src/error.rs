//! Errors of trace files.

use std::fmt;
use std::path::PathBuf;

/// A part of a trace that is missing or damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Number of the first step that is lost.
    pub from: u64,
    /// Number of the first step after the loss; no step is lost if `to == Some(from)`. `None` at the end of a trace
    /// whose length is not known: every step from `from` on is lost.
    pub to: Option<u64>,
    /// Bytes of the damaged part in the file; 0 if they are missing.
    pub bytes: u64,
    /// Offset of the loss in the file.
    pub offset: u64,
    pub why: String,
}

impl Lost {
    /// Whether steps are lost. False if only an index is lost, or bytes that never were a part of the trace.
    pub fn loses_steps(&self) -> bool {
        self.to != Some(self.from)
    }

    /// Number of lost steps, if known.
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
    #[error("cannot {doing} the trace {}: {source}; check {}", path.display(), what_to_check(source))]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} exists and is not a trace: it is not overwritten; name another file or remove it", .0.display())]
    WouldOverwrite(PathBuf),
    #[error("{} exists: name another file, or remove it", .0.display())]
    Exists(PathBuf),
    #[error(
        "{} has steps of a recording that is no longer {}: move it beside that trace, under the trace's name with .open, \
         or remove it, or name another file",
        open.display(), trace.display()
    )]
    Orphan { open: PathBuf, trace: PathBuf },
    #[error("{} is being recorded by another program: name another file", .0.display())]
    Busy(PathBuf),
    #[error("{} is not a trace: {why}; name a file that --record wrote", path.display())]
    NotATrace { path: PathBuf, why: String },
    #[error("trace {} cannot be read because its header is lost: {lost}; copy the file again from where it was recorded, or record again", path.display())]
    Damaged { path: PathBuf, lost: Lost },
    #[error("trace {} is incomplete and cannot be packed, because the copy would not show the loss: {lost}", path.display())]
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
    #[error("the place at which the replay is to begin (--from) is not in the trace")]
    NoBeginning,
    #[error(
        "the replay would end before step #{begin}, with which it begins: name a later place to end (--until), or an earlier \
         one to begin (--from)"
    )]
    EndsFirst { begin: u64 },
    #[error(
        "trace {}: recording stopped: {why}; earlier steps can be replayed, {dropped} later steps are not recorded",
        path.display()
    )]
    Stopped { path: PathBuf, dropped: u64, why: String },
}

/// What the owner of a trace should look at after this error.
fn what_to_check(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => "its path",
        ErrorKind::PermissionDenied => "its permissions",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "the disk's space",
        _ => "its path, its permissions and the disk's space",
    }
}
