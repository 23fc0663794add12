//! Lines for the person who runs the program. A library says little, and nothing with GPUPV_QUIET.

use std::io::Write;

use crate::environment::variable;

/// Environment variable that silences this library.
const QUIET_ENV: &str = "GPUPV_QUIET";

/// One line on stderr. A closed stderr is no reason to fail.
pub(crate) fn print(line: std::fmt::Arguments<'_>) {
    if variable(QUIET_ENV).is_none() {
        // One write, so that lines of several processes do not mix.
        let _ = std::io::stderr().write_all(format!("gpupv: {line}\n").as_bytes());
    }
}
