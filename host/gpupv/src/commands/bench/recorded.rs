//! A trace that is recorded while `guest-bench` wants it: what that costs is measured beside the same without.

use std::path::PathBuf;
use std::sync::Arc;

use proto::bench::Record;
use serde_json::Value;

use crate::daemon::kernel_host::KernelHost;

/// What a line of `guest-bench` asks for, if it asks.
pub fn asked(line: &str) -> Option<Record> {
    let value: Value = serde_json::from_str(line).ok()?;
    Record::parse(value["ask"].as_str()?)
}

/// Where it is recorded.
pub struct Recorded {
    kernel_host: Arc<KernelHost>,
    folder: tempfile::TempDir,
}

impl Recorded {
    pub fn new(kernel_host: Arc<KernelHost>) -> anyhow::Result<Recorded> {
        Ok(Recorded { kernel_host, folder: tempfile::Builder::new().prefix("gpupv-").tempdir()? })
    }

    /// Returns when it is so.
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
