//! Environment variables of the program that has this library.

use std::ffi::OsString;

/// The value of a variable; `None` in a program that runs with more rights than the user who started it: what that user
/// writes into the environment is not to choose whom the program talks to.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    // SAFETY: getauxval reads what the kernel gave this process; it has no precondition.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if is_privileged { None } else { std::env::var_os(name) }
}
