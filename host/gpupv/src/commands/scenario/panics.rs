//! Catches panics of a backend. A panic is a finding about one case; the other cases still run.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once, PoisonError};

thread_local! {
    /// Message of a panic of this thread; `None` while no [`catch`] is active.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`. If it panics, returns the panic's message and place, and prints nothing.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let mine = CAUGHT.with_borrow_mut(|caught| match caught {
                Some(said) => {
                    let words = drivers::panic_words(info.payload());
                    let place = info.location().map(|place| format!(" ({place})")).unwrap_or_default();
                    *said = format!("{words}{place}");
                    true
                }
                None => false,
            });
            if !mine {
                others(info);
            }
        }));
    });
    CAUGHT.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    let said = CAUGHT.take().unwrap_or_default();
    result.map_err(|_| said)
}

/// Installs a hook that prints only the first panic of each place. A seed that panics does so many times while it is
/// shrunk.
pub fn tell_each_once() {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(place) {
            others(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::catch;

    #[test]
    fn a_panic_is_given_with_its_words_and_its_place() {
        let said = catch(|| panic!("slot {} is gone", 7)).unwrap_err();
        assert!(said.starts_with("slot 7 is gone (") && said.contains("panics.rs:"), "{said}");
        assert_eq!(catch(|| 3), Ok(3));
    }
}
