//! Lines for the user of the program: few, and none with GPUPV_QUIET.

use crate::environment::variable;

/// Environment variable that silences this library.
const QUIET_ENV: &str = "GPUPV_QUIET";

/// Prints one line on stderr.
pub(crate) fn print(line: std::fmt::Arguments<'_>) {
    if variable(QUIET_ENV).is_none() {
        abi::notice::print_line(line);
    }
}
