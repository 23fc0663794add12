//! Lines for the user of the program.

/// Prints one line on stderr, unless `GPUPV_QUIET` is set.
pub fn print(line: std::fmt::Arguments<'_>) {
    if std::env::var_os("GPUPV_QUIET").is_none() {
        let line = format!("gpupv: {line}\n");
        // SAFETY: writes the bytes of `line`. A closed stderr is ignored.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
}
