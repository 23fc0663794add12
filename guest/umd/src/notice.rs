//! Lines for the user of the program: few, and none with GPUPV_QUIET.

use std::sync::OnceLock;

use crate::environment::variable;

/// Environment variable that silences this library.
const QUIET_ENV: &str = "GPUPV_QUIET";

/// Whether notices are silenced. The first call reads the environment. It is one of a thread of the program, because a
/// program may change its environment while no thread of its own reads it.
pub(crate) fn is_quiet() -> bool {
    static IS_QUIET: OnceLock<bool> = OnceLock::new();
    *IS_QUIET.get_or_init(|| variable(QUIET_ENV).is_some())
}

/// Prints one line on stderr.
pub(crate) fn print(line: std::fmt::Arguments<'_>) {
    if !is_quiet() {
        abi::notice::print_line(line);
    }
}
