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
        let previous_hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_caught = CAUGHT.with_borrow_mut(|caught| match caught {
                Some(message) => {
                    let words = drivers::panic_words(info.payload());
                    let location =
                        info.location().map(|location| format!(" ({location})")).unwrap_or_default();
                    *message = format!("{words}{location}");
                    true
                }
                None => false,
            });
            if !is_caught {
                previous_hook(info);
            }
        }));
    });
    CAUGHT.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    let message = CAUGHT.take().unwrap_or_default();
    result.map_err(|_| message)
}

/// Installs a hook that prints only the first panic of each place. A seed that panics does so many times while it is
/// shrunk.
pub fn print_each_once() {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let previous_hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(location) {
            previous_hook(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::catch;

    #[test]
    fn a_panic_is_given_with_its_words_and_its_place() {
        let message = catch(|| panic!("slot {} is gone", 7)).unwrap_err();
        assert!(message.starts_with("slot 7 is gone (") && message.contains("panics.rs:"), "{message}");
        assert_eq!(catch(|| 3), Ok(3));
    }
}
