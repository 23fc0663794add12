//! Lines for the user of the program.

/// Prints one line on stderr, unless `GPUPV_QUIET` is set.
pub fn print(line: std::fmt::Arguments<'_>) {
    if std::env::var_os("GPUPV_QUIET").is_none() {
        abi::notice::print_line(line);
    }
}
