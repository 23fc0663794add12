//! Output for people: progress of anything that takes over a second, messages, and exit codes.

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use d3dkmt::text::{printable, printable_lines};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Success.
pub const OK: u8 = 0;
/// A verdict failed.
pub const VERDICT_FAILED: u8 = 1;
/// Usage or set-up error.
pub const SET_UP_FAILED: u8 = 2;

/// Progress of a longer job on standard error. A terminal shows a spinner; otherwise each step that takes over a second
/// prints a line.
pub struct Steps {
    bar: Option<ProgressBar>,
    state: Arc<(Mutex<StepState>, Condvar)>,
}

#[derive(Default)]
struct StepState {
    text: String,
    /// Counts the steps, so that a late line is never printed for an earlier one.
    number: u64,
    is_over: bool,
}

const SHOWN_AFTER: Duration = Duration::from_secs(1);

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
        let state = Arc::<(Mutex<StepState>, Condvar)>::default();
        if bar.is_none() {
            let state = state.clone();
            std::thread::spawn(move || print_slow_steps(&state));
        }
        Steps { bar, state }
    }

    fn change(&self, change: impl FnOnce(&mut StepState)) {
        let (state, changed) = &*self.state;
        change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    /// Shows the current step.
    pub fn step(&self, text: impl Into<String>) {
        let text = text.into();
        if let Some(bar) = &self.bar {
            bar.set_message(printable(&text));
        }
        self.change(|state| {
            state.number += 1;
            state.text = text;
        });
    }

    /// Shows the progress of the step, or the output of its command. For terminals only.
    pub fn detail(&self, detail: &str) {
        if let Some(bar) = &self.bar {
            let step = self.state.0.lock().unwrap_or_else(PoisonError::into_inner).text.clone();
            bar.set_message(printable(&format!("{step}: {detail}")));
        }
    }

    /// Removes the spinner from the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.change(|state| {
            state.number += 1;
            state.text.clear();
        });
    }
}

/// Progress of counted work on standard error. A terminal shows a bar with rate and remaining time; otherwise a line is
/// printed if it takes over a second.
pub struct Progress {
    what: &'static str,
    bar: Option<ProgressBar>,
    _steps: Option<Steps>,
}

impl Progress {
    /// Starts `length` units of `what`.
    pub fn new(what: &'static str, length: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            let steps = Steps::new();
            steps.step(format!("{what}: {length}"));
            return Progress { what, bar: None, _steps: Some(steps) };
        }
        let style = ProgressStyle::with_template("{msg} {bar:30} {human_pos}/{human_len} {rate} {eta} left")
            .expect("the template is a constant that parses")
            .with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                // Output that cannot be written is dropped.
                let _ = write!(out, "{:.0}/s", state.per_sec());
            });
        let bar = ProgressBar::new(length).with_style(style).with_message(what);
        Progress { what, bar: Some(bar), _steps: None }
    }

    /// Counts one more unit.
    pub fn add(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Sets the done and total units, and the number of failures.
    pub fn set(&self, done: u64, total: u64, failures: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            if failures > 0 {
                bar.set_message(format!("{}, {failures} failed", self.what));
            }
        }
    }

    /// Removes the bar from the screen.
    pub fn finish(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints each step that has lasted a second.
fn print_slow_steps((state, changed): &(Mutex<StepState>, Condvar)) {
    let mut printed = 0;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.is_over {
        let number = state.number;
        let waited =
            changed.wait_timeout_while(state, SHOWN_AFTER, |now| !now.is_over && now.number == number);
        let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        state = now;
        if timeout.timed_out() && printed != number && !state.text.is_empty() {
            complain(format_args!("{}", state.text));
            printed = number;
        }
        if timeout.timed_out() {
            let idle = changed.wait_while(state, |now| !now.is_over && now.number == number);
            state = idle.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.finish();
        self.change(|state| state.is_over = true);
    }
}

/// Returns a program's exit code as a shell does: 128 + signal if a signal killed it.
pub fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.saturating_add(signal as u8),
        (None, None) => VERDICT_FAILED,
    }
}

/// Whether output on standard output was lost.
static IS_CUT: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output. What guests and files named cannot command the terminal: unprintable characters are
/// written as JSON does. A reader that closes the pipe early, such as `head`, is no failure. A full disk is
/// one, and [`end`] returns the exit code for it.
pub fn say(line: fmt::Arguments<'_>) {
    note_loss(&writeln!(std::io::stdout(), "{}", printable_lines(&line.to_string())));
}

/// Whether standard output still has a reader: not once the program behind the pipe, such as `head`, or at the other end of
/// the socket has ended. A command that prints again and again ends then, because a write does not tell it while nothing
/// is printed.
pub fn has_reader() -> bool {
    is_read(std::io::stdout())
}

/// The same of any output.
fn is_read(output: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    // Without an answer of the system there may be one.
    let answered = poll(&mut polled, Some(&Timespec::default())).is_ok();
    // A pipe without a reader gives an error, a socket hangs up.
    !(answered && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP))
}

/// Forwards a program's output to standard output, with the error handling of [`say`].
pub fn pass_on(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let result = out.write_all(bytes).and_then(|()| out.flush());
    drop(out);
    note_loss(&result);
}

fn note_loss(result: &std::io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
        && !IS_CUT.swap(true, Ordering::Relaxed)
    {
        complain(format_args!("cannot print: {error}"));
    }
}

/// Prints a line on standard error. `eprintln` would panic where that is full or closed.
pub fn say_error(line: fmt::Arguments<'_>) {
    // A failure to print an error cannot be reported.
    let _ = writeln!(std::io::stderr(), "{}", printable_lines(&line.to_string()));
}

/// As [`say_error`], with gpupv's name in front.
pub fn complain(line: fmt::Arguments<'_>) {
    say_error(format_args!("gpupv: {line}"));
}

/// Returns the exit code of a command that ends with `code`: another one if output of [`say`] was lost.
pub fn end(code: u8) -> ExitCode {
    ExitCode::from(if IS_CUT.load(Ordering::Relaxed) { SET_UP_FAILED } else { code })
}

/// Prints an error with its causes, and returns the exit code for it.
pub fn fail(error: &anyhow::Error) -> ExitCode {
    complain(format_args!("{}", in_words(error)));
    ExitCode::from(SET_UP_FAILED)
}

/// Formats an error with its causes, each once: many errors already contain the text of their cause.
pub fn in_words(error: &anyhow::Error) -> String {
    let mut words = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_has_a_reader_until_the_other_end_is_closed() {
        let (reader, output) = std::io::pipe().unwrap();
        assert!(is_read(&output));
        drop(reader);
        assert!(!is_read(&output));
        // As `ssh` without a terminal gives it.
        let (reader, output) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(is_read(&output));
        drop(reader);
        assert!(!is_read(&output));
        assert!(is_read(tempfile::tempfile().unwrap()));
    }
}
