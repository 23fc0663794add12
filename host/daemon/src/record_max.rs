//! The size limit of a recording: `--record-max`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use trace::RECORDED_BYTES_MIN;

/// The size limit of a recording. When it is reached, the trace is finished and the daemon continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordMax {
    /// Half of the free space when it begins. Clients decide how much there is to record, and one alone can cause
    /// hundreds of MiB a second; half leaves space for other users of the disk.
    #[default]
    HalfOfFree,
    Bytes(u64),
    /// Until the disk is full.
    Unlimited,
}

impl RecordMax {
    /// The limit in bytes for a trace at `path`.
    pub(super) fn bytes(self, path: &Path) -> Option<u64> {
        match self {
            RecordMax::Unlimited => None,
            RecordMax::Bytes(bytes) => Some(bytes),
            RecordMax::HalfOfFree => {
                let folder =
                    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
                // If the folder cannot be queried, creating the file fails as well and reports it.
                let found = rustix::fs::statvfs(folder).ok()?;
                Some((found.f_bavail.saturating_mul(found.f_frsize) / 2).max(RECORDED_BYTES_MIN))
            }
        }
    }
}

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];

impl FromStr for RecordMax {
    type Err = String;

    fn from_str(words: &str) -> Result<RecordMax, String> {
        match words {
            "half-of-free" => return Ok(RecordMax::HalfOfFree),
            "none" => return Ok(RecordMax::Unlimited),
            _ => {}
        }
        let bytes = UNITS.iter().find_map(|(unit, bytes)| {
            words.strip_suffix(unit)?.trim_end().parse::<u64>().ok()?.checked_mul(*bytes)
        });
        match bytes {
            Some(bytes) if bytes >= RECORDED_BYTES_MIN => Ok(RecordMax::Bytes(bytes)),
            Some(_) => Err(format!("the least is {RECORDED_BYTES_MIN} bytes (1MiB)")),
            None => {
                Err("give a size such as 4GiB, 500MiB or a number of bytes, `half-of-free` or `none`".into())
            }
        }
    }
}

impl fmt::Display for RecordMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordMax::HalfOfFree => f.write_str("half-of-free"),
            RecordMax::Unlimited => f.write_str("none"),
            RecordMax::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_other_text_is_refused_with_the_allowed_forms() {
        let parsed = |words: &str| words.parse::<RecordMax>();
        assert_eq!(parsed("4GiB"), Ok(RecordMax::Bytes(4 << 30)));
        assert_eq!(parsed("1048576"), Ok(RecordMax::Bytes(1 << 20)));
        for known in [RecordMax::HalfOfFree, RecordMax::Unlimited, RecordMax::Bytes(5 << 20)] {
            assert_eq!(parsed(&known.to_string()), Ok(known));
        }
        for (wrong, why) in [("1023KiB", "the least"), ("", "a size"), ("4GB", "a size"), ("-1", "a size")] {
            assert!(parsed(wrong).is_err_and(|error| error.contains(why)), "{wrong}");
        }
        assert!(parsed("99999999999TiB").is_err());
    }

    #[test]
    fn a_recording_may_take_half_of_the_free_space() {
        let folder = tempfile::tempdir().unwrap();
        let free = rustix::fs::statvfs(folder.path()).unwrap();
        let limit = RecordMax::HalfOfFree.bytes(&folder.path().join("t.gvt"));
        let all = free.f_blocks * free.f_frsize;
        assert!(limit.is_some_and(|bytes| bytes >= RECORDED_BYTES_MIN && bytes <= all / 2 + 1), "{limit:?}");
        assert_eq!(RecordMax::Unlimited.bytes(Path::new("t.gvt")), None);
    }
}
