//! The environment of an attack: a daemon process, a victim process, and the attack's access to both.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::served::Served;

use crate::relay::Relay;
use crate::{attacker, limits};

/// Options of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setup {
    Plain,
    /// With a journal: the suite kills it after the attack and restarts it from the journal.
    Journal,
    /// With `--record`.
    Recording,
    /// Started with umask 000.
    OpenUmask,
}

/// The origin of an attack's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A program of the host, at the broker's socket.
    Local,
    /// Root in a guest, at QEMU's socket.
    Vm,
}

/// The arguments of an attack.
pub struct Ground<'a> {
    pub full: bool,
    pub pid: u32,
    pub directory: &'a Path,
    pub trace: &'a Path,
    broker: PathBuf,
    /// The attacking guest; `None` if the attacker is a program of the host.
    relay: Option<Relay>,
    began: Instant,
    course: &'a Course,
}

/// Progress of an attack.
#[derive(Debug, Default)]
pub struct Course {
    /// Set-up is complete: from now on the victim's rounds count.
    pub is_set_up: AtomicBool,
    /// In a small run: the victim has completed its rounds.
    pub is_victim_done: AtomicBool,
}

impl Ground<'_> {
    /// A count: one for CI, one for full scale.
    pub fn scale(&self, small: usize, full: usize) -> usize {
        if self.full { full } else { small }
    }

    /// The broker of the attacker's processes.
    pub fn broker(&self) -> &Path {
        self.relay.as_ref().map_or(&self.broker, Relay::broker)
    }

    /// The broker of the host's processes.
    pub fn host_broker(&self) -> &Path {
        &self.broker
    }

    pub fn attacker(&self) -> attacker::Attacked<attacker::Attacker> {
        attacker::Attacker::new(self.broker())
    }

    /// The socket of the unused VM.
    pub fn vm_socket(&self) -> PathBuf {
        self.directory.join("vm2.sock")
    }

    /// Whether the attack's time is over, so that it has to stop.
    pub fn is_over(&self) -> bool {
        self.began.elapsed() > limits::ATTACK_MAX
    }

    /// Repeats something for a time, or in a small run until the victim has completed some rounds.
    pub fn repeat(&self, mut act: impl FnMut() -> attacker::Attacked) -> attacker::Attacked {
        let began = Instant::now();
        loop {
            act()?;
            self.course.is_set_up.store(true, Ordering::Relaxed);
            let is_over = match self.full {
                true => began.elapsed() >= limits::ATTACK || self.is_over(),
                false => self.course.is_victim_done.load(Ordering::Relaxed),
            };
            if is_over {
                return Ok(());
            }
        }
    }

    /// Keeps the attack's state for the time of [`Ground::repeat`].
    pub fn hold(&self) -> attacker::Attacked {
        self.repeat(|| {
            rest();
            Ok(())
        })
    }
}

/// Sleeps between two polls.
#[expect(clippy::disallowed_methods, reason = "the polled condition decides, not the time")]
pub fn rest() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Polls until the condition is true; returns false if that takes longer than this time.
pub fn within(time: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + time;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        rest();
    }
}

/// A daemon process, started as this program's `serve` or as another `gpupv`.
pub struct Daemon {
    pub served: Served,
    folder: tempfile::TempDir,
    arguments: Vec<String>,
}

impl Daemon {
    pub fn start(program: &Path, setup: Setup) -> Daemon {
        let folder = tempfile::Builder::new().prefix("gpupv-attacks-").tempdir().expect("a temporary folder");
        let mut arguments: Vec<String> = vec!["--vms".into(), "2".into()];
        let path = |name: &str| folder.path().join(name).display().to_string();
        match setup {
            Setup::Plain => {}
            Setup::Journal => arguments.extend(["--journal".into(), path("journal")]),
            Setup::Recording | Setup::OpenUmask => {
                arguments.extend(["--record".into(), path("trace.gvt")]);
                arguments.extend(["--record-max".into(), limits::RECORD_MAX.to_string()]);
            }
        }
        let (program, log): (OsString, _) = (program.into(), folder.path().join("log"));
        let command = move || {
            let umask = if setup == Setup::OpenUmask { "000" } else { "022" };
            let mut command = Command::new("sh");
            command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]).arg(&program);
            let log = File::options().append(true).create(true).open(&log).expect("a log");
            command.stdout(Stdio::null()).stderr(log);
            command
        };
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let served = Served::start_as(command, &words);
        Daemon { served, folder, arguments }
    }

    pub fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.folder.path().join("log")).map_or(0, |log| log.len())
    }

    /// The last lines of the log, to find out why the daemon ended.
    pub fn last_words(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    pub fn trace(&self) -> PathBuf {
        self.folder.path().join("trace.gvt")
    }

    /// Bytes of the trace, or of the journal.
    pub fn trace_bytes(&self) -> u64 {
        fn bytes(path: &Path) -> u64 {
            let of_files = |folder: std::fs::ReadDir| {
                folder.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
            };
            match std::fs::read_dir(path) {
                Ok(folder) => of_files(folder),
                Err(_) => std::fs::metadata(path).map_or(0, |file| file.len()),
            }
        }
        bytes(&self.trace()) + bytes(&self.folder.path().join("journal"))
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.served.child.try_wait(), Ok(None))
    }

    /// Kills the daemon and restarts it from its journal; the error says why it did not start.
    pub fn restart(&mut self) -> Result<(), String> {
        self.served.kill();
        let words: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let again = std::panic::AssertUnwindSafe(|| self.served.start_again(&words));
        std::panic::catch_unwind(again).map_err(|panic| {
            format!(
                "the daemon did not restart from its journal: {}: {}",
                crate::message_of(&*panic),
                self.last_words()
            )
        })
    }

    /// The environment of one attack.
    pub fn ground<'a>(
        &'a self,
        origin: Origin,
        full: bool,
        trace: &'a Path,
        course: &'a Course,
    ) -> Ground<'a> {
        let directory = self.served.directory();
        let relay = (origin == Origin::Vm).then(|| Relay::start(&directory.join("vm1.sock")));
        Ground {
            full,
            pid: self.served.pid(),
            directory,
            trace,
            broker: self.served.broker(),
            relay,
            began: Instant::now(),
            course,
        }
    }
}
