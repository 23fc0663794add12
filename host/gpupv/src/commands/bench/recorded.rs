//! Records a trace while `guest-bench` asks for it; the same figure without recording is its peer.

use std::path::PathBuf;
use std::sync::Arc;

use proto::bench::Record;
use serde_json::Value;

use crate::daemon::kernel_host::KernelHost;

/// The recording that a line of `guest-bench` asks for, if it asks for one.
pub fn asked(line: &str) -> Option<Record> {
    let value: Value = serde_json::from_str(line).ok()?;
    Record::parse(value["ask"].as_str()?)
}

/// The daemon and the folder that the trace is recorded into.
pub struct Recorded {
    kernel_host: Arc<KernelHost>,
    folder: tempfile::TempDir,
}

impl Recorded {
    pub fn new(kernel_host: Arc<KernelHost>) -> anyhow::Result<Recorded> {
        Ok(Recorded { kernel_host, folder: tempfile::Builder::new().prefix("gpupv-").tempdir()? })
    }

    /// Switches recording on or off; returns once it is in effect.
    pub fn turn_to(&self, record: Record) -> anyhow::Result<()> {
        let path: PathBuf = self.folder.path().join("recorded.gvt");
        self.kernel_host.traces().record_into(match record {
            Record::On => Some(&path),
            Record::Off => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_asks_is_asked() {
        assert_eq!(asked(r#"{"ask":"record"}"#), Some(Record::On));
        assert_eq!(asked(r#"{"ask":"large"}"#), None);
        assert_eq!(asked(""), None);
    }
}
