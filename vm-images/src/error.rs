//! Errors of preparing and starting a guest, each with what, where and what to do next.

use std::path::{Path, PathBuf};

use crate::diagnose::GuestFailure;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image could not be made or a guest could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{program} is not on PATH; to get it: {mend}")]
    ProgramMissing { program: String, mend: String },
    #[error("cannot start `{command}`: {source}")]
    CommandStart { command: String, source: std::io::Error },
    #[error("`{command}` failed ({status}){}{}", if output.is_empty() { "" } else { ":\n" }, output)]
    CommandFailed { command: String, status: String, output: String },
    #[error("no permission to run `{command}`: {reason}; run it as root, or ask who may")]
    NotPermitted { command: String, reason: String },
    #[error("this needs your decision; to do it: {what}")]
    ByHand { what: String },
    #[error("no kernel package is known to apt (looked for {packages}); refresh its lists: {mend}")]
    KernelPackageUnknown { packages: String, mend: String },
    #[error("kernel package {package} is not usable: {reason}")]
    KernelPackageUnusable { package: String, reason: String },
    #[error("no folder for the cache: set GPUPV_CACHE, XDG_CACHE_HOME or HOME")]
    CacheUnset,
    #[error("{} is not a program for the guest: {reason}", path.display())]
    NotProgram { path: PathBuf, reason: String },
    #[error("{} is a script; the guest needs its interpreter {interpreter} (add it too)", path.display())]
    Script { path: PathBuf, interpreter: String },
    #[error("{} needs shared libraries that were not found: {missing} (give their folder as a library path)", path.display())]
    LibraryMissing { path: PathBuf, missing: String },
    #[error("guest path {guest} is refused: {reason}")]
    GuestPath { guest: String, reason: String },
    #[error("GPUPV_ACCEL={value} is not known; use tcg or kvm")]
    AcceleratorUnknown { value: String },
    #[error(transparent)]
    Boot(Box<GuestFailure>),
}

/// Adds what was done and where to an [`std::io::Error`].
pub(crate) trait FileContext<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> FileContext<T> for std::result::Result<T, E> {
    fn at(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::File { what, path: path.to_owned(), source: source.into() })
    }
}
