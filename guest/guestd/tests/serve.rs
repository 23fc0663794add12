//! `guestd serve` as processes of this machine: the broker's process is restricted, and neither outlives the other. It finds no
//! daemon here.

use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// A running `guestd serve` with its broker, and what it logs.
struct Serving {
    serve: Child,
    log: BufReader<std::process::ChildStderr>,
    broker: Pid,
    _folder: tempfile::TempDir,
}

impl Serving {
    fn start(options: &[&str]) -> Serving {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_guestd"));
        command.arg("serve").arg("--socket").arg(folder.path().join("broker.sock")).args(options);
        let mut serve = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(serve.stderr.take().unwrap());
        // The broker is restricted before it looks for the host.
        read_until(&mut log, "no connection to the host");
        let children = format!("/proc/{0}/task/{0}/children", serve.id());
        let children = std::fs::read_to_string(children).unwrap();
        let broker = children.trim().parse().ok().and_then(Pid::from_raw);
        Serving { serve, log, broker: broker.expect("one child"), _folder: folder }
    }

    /// What the system says of a thread: whether it may gain privileges, and whether it has a filter.
    fn restrictions(thread: &Path) -> [String; 2] {
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        ["NoNewPrivs:", "Seccomp:"].map(|field| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
            line.trim().to_owned()
        })
    }

    /// Those of each thread of a process.
    fn threads(process: u32) -> Vec<[String; 2]> {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        threads.map(|thread| Serving::restrictions(&thread.unwrap().path())).collect()
    }

    fn broker_threads(&self) -> Vec<[String; 2]> {
        Serving::threads(self.broker.as_raw_nonzero().get().cast_unsigned())
    }

    fn end(mut self) {
        self.serve.kill().unwrap();
        self.serve.wait().unwrap();
    }
}

fn read_until(log: &mut impl std::io::BufRead, words: &str) -> String {
    let found = log.lines().map(Result::unwrap).find(|line| line.contains(words));
    found.unwrap_or_else(|| panic!("the log ends without `{words}`"))
}

fn has_ended(process: &OwnedFd) {
    poll(&mut [PollFd::new(process, PollFlags::IN)], None).unwrap();
}

#[test]
fn the_broker_is_restricted_and_the_agent_is_not() {
    let own = Serving::restrictions(Path::new("/proc/self"));
    let serving = Serving::start(&[]);
    let has_filters = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").is_ok();
    if has_filters && cfg!(target_arch = "x86_64") {
        assert!(serving.broker_threads().iter().all(|thread| *thread == ["1", "2"]));
    }
    assert!(Serving::threads(serving.serve.id()).iter().all(|thread| *thread == own));
    serving.end();
}

#[test]
fn a_broker_without_a_sandbox_has_what_serve_has() {
    let own = Serving::restrictions(Path::new("/proc/self"));
    let serving = Serving::start(&["--sandbox=off"]);
    assert!(serving.broker_threads().iter().all(|thread| *thread == own));
    serving.end();
}

#[test]
fn serve_ends_with_its_broker() {
    let mut serving = Serving::start(&[]);
    kill_process(serving.broker, Signal::KILL).unwrap();
    let line = read_until(&mut serving.log, "the broker's process has ended");
    assert!(line.starts_with("gpupv-guestd: ") && line.contains("SIGKILL"), "{line}");
    assert_eq!(serving.serve.wait().map(|status: ExitStatus| status.code()).unwrap(), Some(1));
}

#[test]
fn the_broker_ends_with_serve() {
    let mut serving = Serving::start(&[]);
    let broker = pidfd_open(serving.broker, PidfdFlags::empty()).unwrap();
    serving.serve.kill().unwrap();
    has_ended(&broker);
    serving.serve.wait().unwrap();
}
