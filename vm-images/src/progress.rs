//! How long work reports its progress. The caller decides how it looks.

/// Receives the progress of long work. Every method has an empty default.
///
/// Steps do not nest: `step` ends the step before it.
pub trait Progress: Send + Sync {
    /// A step begins, such as "download linux-image-6.1.0-56-cloud-amd64".
    fn step(&self, _what: &str) {}
    /// `done` of `total` units of the step are complete; units are bytes or items.
    fn advance(&self, _done: u64, _total: u64) {}
    /// One line of output of a command that the step runs.
    fn line(&self, _text: &str) {}
    /// All steps are over.
    fn finish(&self) {}
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
