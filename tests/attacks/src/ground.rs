//! Where an attack takes place: a daemon of its own process, a victim beside it, and what the attack may use of both.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::served::Served;

use crate::relay::Relay;
use crate::{attacker, limits};

/// How the daemon is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setup {
    Plain,
    /// With a journal: after the attack it is killed, and has to start again from it.
    Journal,
    /// With `--record`.
    Recording,
    /// By somebody whose umask keeps nobody out.
    OpenUmask,
}

/// Whose calls an attack's are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A program of the host, at the broker's socket.
    Local,
    /// Root of a guest, at the socket that is QEMU's.
    Vm,
}

/// What an attack is given.
pub struct Ground<'a> {
    pub full: bool,
    pub pid: u32,
    pub directory: &'a Path,
    pub trace: &'a Path,
    broker: PathBuf,
    /// Without it the attacker is a program of the host.
    relay: Option<Relay>,
    began: Instant,
    course: &'a Course,
}

/// How far an attack is.
#[derive(Debug, Default)]
pub struct Course {
    /// What it sets up is there: from here on the victim's rounds count.
    pub struck: AtomicBool,
    /// In a small run: the victim has done its rounds.
    pub enough: AtomicBool,
}

impl Ground<'_> {
    /// How much of something, in CI and at full scale.
    pub fn scale(&self, small: usize, full: usize) -> usize {
        if self.full { full } else { small }
    }

    /// The broker of the attacker's processes.
    pub fn broker(&self) -> &Path {
        self.relay.as_ref().map_or(&self.broker, Relay::broker)
    }

    /// The broker of the host's processes, whoever attacks.
    pub fn host_broker(&self) -> &Path {
        &self.broker
    }

    pub fn attacker(&self) -> attacker::Attacked<attacker::Attacker> {
        attacker::Attacker::new(self.broker())
    }

    /// The socket of the VM that nobody else uses.
    pub fn vm_socket(&self) -> PathBuf {
        self.directory.join("vm2.sock")
    }

    /// The attack has taken as long as it may: it stops where it is.
    pub fn is_over(&self) -> bool {
        self.began.elapsed() > limits::ATTACK_MAX
    }

    /// Goes on with something: for a time, or in a small run until the victim has made some rounds beside it.
    pub fn go_on(&self, mut act: impl FnMut() -> attacker::Attacked) -> attacker::Attacked {
        let began = Instant::now();
        loop {
            act()?;
            self.course.struck.store(true, Ordering::Relaxed);
            let over = match self.full {
                true => began.elapsed() >= limits::ATTACK || self.is_over(),
                false => self.course.enough.load(Ordering::Relaxed),
            };
            if over {
                return Ok(());
            }
        }
    }

    /// Stays as it is, as [`Ground::go_on`].
    pub fn hold(&self) -> attacker::Attacked {
        self.go_on(|| {
            rest();
            Ok(())
        })
    }
}

/// Between two looks at what others do.
#[expect(clippy::disallowed_methods, reason = "what is looked at decides, not the time")]
pub fn rest() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Looks until it is so; false if it is not within this time.
pub fn within(time: Duration, mut look: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + time;
    loop {
        if look() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        rest();
    }
}

/// A daemon as `gpupv serve`, whose code is in this program as well.
pub struct Daemon {
    pub served: Served,
    folder: tempfile::TempDir,
    arguments: Vec<String>,
}

impl Daemon {
    pub fn start(program: &Path, setup: Setup) -> Daemon {
        let folder = tempfile::Builder::new().prefix("gpupv-attacks-").tempdir().expect("a folder");
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

    /// The end of the log, for whoever has to find out why it died.
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

    /// Kills it and starts it again from its journal; why it does not come up.
    pub fn restart(&mut self) -> Result<(), String> {
        self.served.kill();
        let words: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let again = std::panic::AssertUnwindSafe(|| self.served.start_again(&words));
        std::panic::catch_unwind(again).map_err(|panic| {
            format!("it does not start again: {}: {}", crate::message_of(&*panic), self.last_words())
        })
    }

    /// The ground for one attack.
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
