//! Lines for the user of the program: few, and none with GPUPV_QUIET.

use std::io::Write;

use crate::environment::variable;

/// Environment variable that silences this library.
const QUIET_ENV: &str = "GPUPV_QUIET";

/// Prints one line on stderr. A closed stderr is ignored.
pub(crate) fn print(line: std::fmt::Arguments<'_>) {
    if variable(QUIET_ENV).is_none() {
        // One write, so that lines of several processes do not mix.
        let _ = std::io::stderr().write_all(format!("gpupv: {line}\n").as_bytes());
    }
}
