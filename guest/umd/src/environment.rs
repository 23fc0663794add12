//! Environment variables of the program that loaded this library.

use std::ffi::OsString;

/// The value of a variable; `None` in a program that runs with more rights than the user who started it, because that
/// user's environment must not choose the broker.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    // SAFETY: getauxval reads what the kernel gave this process; it has no precondition.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if is_privileged { None } else { std::env::var_os(name) }
}
