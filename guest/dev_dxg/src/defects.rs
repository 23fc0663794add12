//! Defects of the real stack that field reports are about, each switched on by a word of `GPUPV_DXG_DEFECTS`. Without
//! it the object fails only as the driver is meant to. docs/DEV_DXG.md says what each reproduces, and its source.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::notice::print;

/// Environment variable with the defects: words separated by commas.
const DEFECTS_ENV: &str = "GPUPV_DXG_DEFECTS";

/// The defects that this process reproduces.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Defects {
    /// An escape answers 0 whatever the host answered.
    pub escape_status: bool,
    /// A refused creation of a sync object has no status: ENOMEM, or 0 and a handle of 0.
    pub create_status: bool,
    /// The event of a new CPU notification comes back as an internal number.
    pub event_id: bool,
    /// The host refuses new processes.
    pub open_refused: bool,
    /// Memory that cannot be copied is EINVAL instead of EFAULT.
    pub einval_for_efault: bool,
    /// The longest blocking wait.
    pub wait_limit: Option<Duration>,
    /// Asynchronous waits of the process that succeed; later ones fail.
    pub async_waits: Option<u32>,
    /// Each such message of a context finds the ring full.
    pub full_ring: Option<u32>,
}

/// The defects that the environment names.
pub fn defects() -> &'static Defects {
    static DEFECTS: OnceLock<Defects> = OnceLock::new();
    DEFECTS.get_or_init(|| {
        // SAFETY: getauxval reads what the kernel gave this process; it has no precondition.
        let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        let words = std::env::var(DEFECTS_ENV).ok().filter(|_| !is_privileged);
        let (defects, unknown) = parse(words.as_deref().unwrap_or_default());
        for word in unknown {
            print(format_args!("{DEFECTS_ENV}: no defect is called {word:?}; docs/DEV_DXG.md lists them"));
        }
        defects
    })
}

/// The defects, and the words that name none.
fn parse(words: &str) -> (Defects, Vec<&str>) {
    let mut defects = Defects::default();
    let mut unknown = Vec::new();
    for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, number) = match word.split_once('=') {
            Some((name, number)) => (name, number.parse::<u32>().ok().filter(|number| *number > 0)),
            None => (word, None),
        };
        match (name, number) {
            ("escape-status", None) if name == word => defects.escape_status = true,
            ("create-status", None) if name == word => defects.create_status = true,
            ("event-id", None) if name == word => defects.event_id = true,
            ("open-refused", None) if name == word => defects.open_refused = true,
            ("einval-for-efault", None) if name == word => defects.einval_for_efault = true,
            ("wait-seconds", Some(number)) => defects.wait_limit = Some(Duration::from_secs(number.into())),
            ("async-waits", Some(number)) => defects.async_waits = Some(number),
            ("full-ring", Some(number)) => defects.full_ring = Some(number),
            (_, _) => unknown.push(word),
        }
    }
    (defects, unknown)
}

/// Whether this asynchronous wait is one too many.
pub fn async_wait_fails() -> bool {
    static WAITS: AtomicU32 = AtomicU32::new(0);
    defects().async_waits.is_some_and(|waits| WAITS.fetch_add(1, Ordering::Relaxed) >= waits)
}

/// Whether this message of a context finds the ring full.
pub fn ring_is_full() -> bool {
    static MESSAGES: AtomicU32 = AtomicU32::new(0);
    let is_nth = |every: u32| (MESSAGES.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every);
    defects().full_ring.is_some_and(is_nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_switch_defects_on() {
        let (defects, unknown) = parse("escape-status, wait-seconds=10,full-ring=3,");
        let wait_limit = Some(Duration::from_secs(10));
        let expected = Defects { escape_status: true, wait_limit, full_ring: Some(3), ..Defects::default() };
        assert_eq!((defects, unknown), (expected, vec![]));
        assert_eq!(parse(""), (Defects::default(), vec![]));
    }

    #[test]
    fn other_words_are_reported() {
        for word in ["escape", "escape-status=1", "full-ring", "full-ring=0", "full-ring=x", "=3"] {
            assert_eq!(parse(word), (Defects::default(), vec![word]));
        }
    }
}
