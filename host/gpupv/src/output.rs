//! What a person sees: progress of anything that takes over a second, and the exit codes.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// All well.
pub const OK: u8 = 0;
/// A verdict failed.
pub const VERDICT_FAILED: u8 = 1;
/// Usage or set-up error.
pub const SET_UP_FAILED: u8 = 2;

/// Steps of a longer job on standard error: a spinner on a terminal, a line for each step elsewhere.
pub struct Steps {
    bar: Option<ProgressBar>,
    last: Mutex<String>,
}

impl Default for Steps {
    fn default() -> Self {
        Self::new()
    }
}

impl Steps {
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}");
            bar.set_style(style.expect("the template is a constant that parses"));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Steps { bar, last: Mutex::default() }
    }

    /// Says what is being done now.
    pub fn step(&self, text: impl Into<String>) {
        let text = text.into();
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => {
                let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if *last != text {
                    eprintln!("gpupv: {text}");
                    *last = text;
                }
            }
        }
    }

    /// Takes the spinner off the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The exit code of a program that was run, as a shell gives it: 128 + signal if a signal ended it.
pub fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.saturating_add(signal as u8),
        (None, None) => VERDICT_FAILED,
    }
}

/// Prints an error with its causes and what to do, and gives the exit code for it.
pub fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("gpupv: {error:#}");
    ExitCode::from(SET_UP_FAILED)
}
