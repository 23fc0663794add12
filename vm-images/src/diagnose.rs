//! Why a guest did not come up, or ended: derived from its console, QEMU's messages and QEMU's exit status.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::accelerator::Accelerator;
use crate::limits::{CONSOLE_LINES_SHOWN, CONSOLE_READ_BYTES_MAX};

const SIGNAL_KILL: i32 = 9;

/// The cause of a failed boot, or of a guest's end. `line` is the message that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// QEMU refused its options or could not set up a device.
    QemuRefused { line: String },
    /// QEMU could not connect to the vhost-user socket of the daemon.
    DaemonUnreachable { line: String },
    /// QEMU could not get the guest's memory from this machine.
    HostMemory { line: String },
    /// QEMU was killed from outside.
    QemuKilled { signal: i32 },
    /// QEMU crashed: a defect of QEMU, or of this machine's KVM.
    QemuCrashed { signal: i32, line: String },
    /// The guest has too little memory for its kernel, its image or its programs.
    GuestMemory { line: String },
    /// There is no `/init` in the image, or it or its loader cannot be run.
    InitMissing { line: String },
    /// `/init` ran and exited.
    InitDied { line: String },
    /// The kernel panicked for another reason.
    KernelPanic { line: String },
    /// QEMU runs and the guest has printed nothing.
    NoOutput,
    /// QEMU runs and the guest prints, but the awaited line did not appear.
    NotReady,
    /// The guest powered off or rebooted.
    PoweredOff,
    /// The guest reset before its kernel printed a line: its memory cannot hold the unpacked kernel and the image.
    ResetAtOnce,
}

/// A guest that did not come up, or ended. [`fmt::Display`] gives the cause of a failed boot, the logs and the next step, over
/// several lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct GuestFailure {
    pub name: String,
    pub cause: Cause,
    pub accelerator: Accelerator,
    pub console_log: PathBuf,
    pub qemu_log: PathBuf,
    /// The last console lines, without control characters.
    pub last_lines: Vec<String>,
}

/// All that is known about a guest that failed.
pub(crate) struct Evidence {
    pub(crate) console: Vec<String>,
    pub(crate) messages: Vec<String>,
    /// `None` while QEMU runs.
    pub(crate) exit: Option<ExitStatus>,
}

impl GuestFailure {
    pub(crate) fn new(
        name: &str,
        accelerator: Accelerator,
        console_log: &Path,
        qemu_log: &Path,
        evidence: &Evidence,
    ) -> Self {
        let skipped = evidence.console.len().saturating_sub(CONSOLE_LINES_SHOWN);
        Self {
            name: name.to_owned(),
            cause: cause_of(evidence),
            accelerator,
            console_log: console_log.to_owned(),
            qemu_log: qemu_log.to_owned(),
            last_lines: evidence.console[skipped..].to_vec(),
        }
    }

    /// The cause, the logs and the next step, over several lines.
    pub fn details(&self) -> String {
        let (console, messages) = (self.console_log.display(), self.qemu_log.display());
        let heading = if self.last_lines.is_empty() { "" } else { "\n  last console lines:" };
        let lines: String = self.last_lines.iter().map(|line| format!("\n    {line}")).collect();
        format!(
            "{}\n  console: {console}\n  QEMU's messages: {messages}\n  next: {}{heading}{lines}",
            self.cause,
            self.next()
        )
    }

    fn next(&self) -> &'static str {
        match &self.cause {
            Cause::QemuRefused { .. } => "read QEMU's messages; `gpupv doctor` checks its version",
            Cause::DaemonUnreachable { .. } => {
                "check that the daemon that owns the socket still runs, or start it"
            }
            Cause::HostMemory { .. } => {
                "give the guest less memory, start fewer guests, or free memory on this machine"
            }
            Cause::QemuKilled { signal: SIGNAL_KILL } => {
                "a user killed it, or this machine ran out of memory (see `dmesg`)"
            }
            Cause::QemuKilled { .. } => "another process killed it; start it again",
            Cause::QemuCrashed { .. } | Cause::NoOutput if self.accelerator == Accelerator::Kvm => {
                "KVM opens but does not run this guest; set GPUPV_ACCEL=tcg"
            }
            Cause::QemuCrashed { .. } => "read QEMU's messages; another QEMU version may work",
            Cause::GuestMemory { .. } | Cause::ResetAtOnce => "give the guest more memory",
            Cause::InitMissing { .. } => {
                "check that /init and the loader it names are in the image and for x86-64"
            }
            Cause::InitDied { .. } => "read the console above that line: /init prints there why it exited",
            Cause::KernelPanic { .. } => "read the console: the kernel's call trace is near that line",
            Cause::NoOutput => "wait longer on a busy machine, or read QEMU's messages",
            Cause::NotReady => "wait longer on a busy machine, or read how far the console got",
            Cause::PoweredOff => "read the console: the guest powered off by itself",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QemuRefused { line } => write!(formatter, "QEMU refused to start: {line}"),
            Self::DaemonUnreachable { line } => {
                write!(formatter, "QEMU cannot reach the daemon's socket: {line}")
            }
            Self::HostMemory { line } => write!(formatter, "this machine has no memory for it: {line}"),
            Self::QemuKilled { signal } => write!(formatter, "QEMU was killed by signal {signal}"),
            Self::QemuCrashed { signal, line } => {
                write!(formatter, "QEMU crashed with signal {signal}: {line}")
            }
            Self::GuestMemory { line } => write!(formatter, "the guest ran out of memory: {line}"),
            Self::InitMissing { line } => write!(formatter, "the kernel found no /init to run: {line}"),
            Self::InitDied { line } => write!(formatter, "/init exited: {line}"),
            Self::KernelPanic { line } => write!(formatter, "the guest kernel panicked: {line}"),
            Self::NoOutput => formatter.write_str("it printed nothing in the time given"),
            Self::NotReady => formatter.write_str("it was not ready in the time given"),
            Self::PoweredOff => formatter.write_str("it powered off or rebooted"),
            Self::ResetAtOnce => {
                formatter.write_str("it reset before its kernel printed a line, probably for lack of memory")
            }
        }
    }
}

impl fmt::Display for GuestFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "guest {} did not come up: {}", self.name, self.details())
    }
}

fn cause_of(evidence: &Evidence) -> Cause {
    let message = || evidence.messages.last().cloned().unwrap_or_else(|| "(no message)".to_owned());
    if let Some(signal) = evidence.exit.and_then(|status| status.signal()) {
        // QEMU exits in order on SIGTERM, SIGINT and SIGHUP, so a signal here means a crash or a kill.
        return match signal {
            4 | 6 | 7 | 8 | 11 => Cause::QemuCrashed { signal, line: message() },
            signal => Cause::QemuKilled { signal },
        };
    }
    if evidence.exit.is_some_and(|status| !status.success()) {
        let line = message();
        return match line.as_str() {
            words if words.contains("allocate memory") => Cause::HostMemory { line },
            words if words.contains("ailed to connect to") => Cause::DaemonUnreachable { line },
            _ => Cause::QemuRefused { line },
        };
    }
    // QEMU logs the signal that asked it to exit.
    let terminating = evidence.messages.iter().find_map(|line| terminating_signal(line));
    if let (Some(_), Some(signal)) = (evidence.exit, terminating) {
        return Cause::QemuKilled { signal };
    }
    cause_on_console(&evidence.console).unwrap_or(match (evidence.exit, evidence.console.is_empty()) {
        (Some(_), true) => Cause::ResetAtOnce,
        (Some(_), false) => Cause::PoweredOff,
        (None, true) => Cause::NoOutput,
        (None, false) => Cause::NotReady,
    })
}

/// "qemu-system-x86_64: terminating on signal 15 from pid 1 (init)"
fn terminating_signal(line: &str) -> Option<i32> {
    line.split("terminating on signal ").nth(1)?.split_whitespace().next()?.parse().ok()
}

/// The first cause whose words are on the console, the most specific first: a lack of memory also ends in a panic about
/// init. Any other panic is a cause of its own, whatever the guest printed before.
fn cause_on_console(console: &[String]) -> Option<Cause> {
    let line_with = |words: &[&str]| {
        let line = console.iter().find(|line| words.iter().any(|word| line.contains(word)))?;
        Some(without_timestamp(line).to_owned())
    };
    let memory =
        ["Out of memory", "deadlocked on memory", "unpacking failed: write error", "Cannot allocate memory"];
    let memory_panics = ["Failed to allocate", "out of memory", "Can not allocate"];
    let init =
        ["Failed to execute /init", "No working init found", "Requested init", "Unable to mount root fs"];
    let init_killed = ["Attempted to kill init"];
    let panic = line_with(&["Kernel panic"]);
    let mut specific = memory.iter().chain(&memory_panics).chain(&init).chain(&init_killed);
    if let Some(line) = panic.filter(|line| !specific.any(|words| line.contains(words))) {
        return Some(Cause::KernelPanic { line });
    }
    if let Some(line) = line_with(&memory).or_else(|| line_with(&memory_panics)) {
        return Some(Cause::GuestMemory { line });
    }
    if let Some(line) = line_with(&init) {
        return Some(Cause::InitMissing { line });
    }
    line_with(&init_killed).map(|line| Cause::InitDied { line })
}

/// "[    1.234567] words" without the time.
fn without_timestamp(line: &str) -> &str {
    match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((time, words)) if time.chars().all(|sign| sign.is_ascii_digit() || " .".contains(sign)) => words,
        _ => line,
    }
}

/// The last lines of a log that a guest writes, without control characters, which could steer the reader's terminal.
pub(crate) fn read_end(log: &Path) -> Vec<String> {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(CONSOLE_READ_BYTES_MAX)))?;
        file.take(CONSOLE_READ_BYTES_MAX).read_to_end(&mut bytes)
    });
    if let Err(error) = read {
        return vec![format!("({}: {error})", log.display())];
    }
    String::from_utf8_lossy(&bytes)
        .lines()
        .map(|line| line.chars().filter(|sign| !sign.is_control()).collect::<String>().trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;
