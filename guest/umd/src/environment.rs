//! Environment variables of the program that loaded this library.

use std::ffi::OsString;

/// Whether the program runs with more rights than the user who started it: that user's environment must not choose the broker.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: getauxval reads what the kernel gave this process; it has no precondition.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The value of a variable; `None` in a program with more rights than its user.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    if is_privileged() { None } else { std::env::var_os(name) }
}
