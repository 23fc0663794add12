//! Whether this thread is in a call of this library.
//!
//! A signal handler may interrupt a call anywhere, also where its thread holds locks. A second call of that thread would
//! wait for them for ever, and with it every other thread. So it is refused.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use abi::cancellation::Uncancelled;

use crate::fork::generation;

thread_local! {
    /// One more than the generation of the process in which the call began; 0 outside of calls. A child that was made
    /// without `fork` of the C library has no handler that resets it, but another generation.
    static IN_CALL: Cell<u32> = const { Cell::new(0) };
}

/// Runs a call of the program, in which its thread is not cancelled. Returns `nested` if it comes from a signal handler
/// that has interrupted a call, and `after_panic` after a panic, which is a bug of the library: no unwinding reaches C.
pub(crate) fn run<T>(nested: T, after_panic: T, call: impl FnOnce() -> T) -> T {
    let of_this_process = generation().wrapping_add(1);
    if IN_CALL.replace(of_this_process) == of_this_process {
        return nested;
    }
    let uncancelled = Uncancelled::begin();
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(after_panic);
    IN_CALL.set(0);
    drop(uncancelled);
    result
}

/// In a forked child: the call that the fork has interrupted is of the parent, whose locks the child does not use. Returns
/// whether there is one.
pub(crate) fn forget() -> bool {
    IN_CALL.replace(0) != 0
}
