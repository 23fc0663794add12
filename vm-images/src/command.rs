//! Runs other programs: finds them, streams their output to the progress, and keeps the end of it for the error.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::limits::COMMAND_LINES_SHOWN;
use crate::progress::Progress;

/// The first executable file called `program` in a folder of `PATH`.
pub fn find_on_path(program: &str) -> Option<PathBuf> {
    find_in(program, &std::env::var_os("PATH")?)
}

fn find_in(program: &str, search_path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search_path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The command line as a user would type it.
pub(crate) fn rendered(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs `command` until it exits, and returns its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    // The C locale, because the output is parsed.
    command.env("LC_ALL", "C").stdin(Stdio::null());
    let done =
        command.output().map_err(|source| Error::CommandStart { command: rendered(command), source })?;
    if !done.status.success() {
        let output = last_lines(&String::from_utf8_lossy(&done.stderr), COMMAND_LINES_SHOWN);
        return Err(Error::CommandFailed {
            command: rendered(command),
            status: done.status.to_string(),
            output,
        });
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Runs `command` until it exits; each line of its output goes to `progress`.
pub(crate) fn run(command: &mut Command, progress: &dyn Progress) -> Result<()> {
    command.env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = command.spawn();
    let failed = |source| Error::CommandStart { command: rendered(command), source };
    let mut child = started.map_err(failed)?;
    let last_lines = Mutex::new(VecDeque::new());
    std::thread::scope(|scope| {
        if let Some(output) = child.stdout.take() {
            scope.spawn(|| forward(output, &last_lines, progress));
        }
        if let Some(output) = child.stderr.take() {
            scope.spawn(|| forward(output, &last_lines, progress));
        }
    });
    let status = child.wait().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let last_lines = last_lines.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let output = last_lines.into_iter().collect::<Vec<_>>().join("\n");
    Err(Error::CommandFailed { command: rendered(command), status: status.to_string(), output })
}

fn forward(output: impl Read, last_lines: &Mutex<VecDeque<String>>, progress: &dyn Progress) {
    for line in BufReader::new(output).split(b'\n').map_while(std::result::Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // Text that a carriage return overwrote is not shown.
        let line = line.trim_end().rsplit('\r').next().unwrap_or_default().to_owned();
        progress.line(&line);
        let mut last_lines = last_lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last_lines.len() == COMMAND_LINES_SHOWN {
            last_lines.pop_front();
        }
        last_lines.push_back(line);
    }
}

/// The last `count` lines of `text`.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines = text.trim_end().lines().collect::<Vec<_>>();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
