//! A daemon in the test's own process, and checks that nothing of its clients is left.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dxgkrnl::ddi::EngineState;
use gpupv::artifacts::{guest_command, preload};
use gpupv::daemon::counters::Counters;
use gpupv::daemon::kernel_host::KernelHost;
use gpupv::daemon::{Daemon, Options, control};
use proto::control::Inspection;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use crate::machine;
use crate::polling::eventually;
use crate::programs::{artifacts, c_program, needs_dev_dxg};

/// Tests that count what their process holds run one at a time.
pub fn lock_exclusive() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test poisons the lock, but has ended.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel's remaining state of client processes, a line for each item; empty if nothing is left.
pub fn remaining_state(kernel_host: &KernelHost) -> Vec<String> {
    let state = kernel_host.views().snapshot();
    let mut remaining_state: Vec<String> =
        state.processes.iter().map(|process| format!("{process:?}")).collect();
    remaining_state.extend(state.devices.iter().map(|device| format!("{device:?}")));
    remaining_state.extend(state.contexts.iter().map(|context| format!("{context:?}")));
    remaining_state.extend(state.objects.iter().map(|object| format!("{object:?}")));
    remaining_state.extend(state.waits.iter().map(|wait| format!("{wait:?}")));
    let busy = state.engines.iter().filter(|engine| engine.state != EngineState::Idle);
    remaining_state.extend(busy.map(|engine| format!("{engine:?}")));
    if state.objects_alive + state.shares > 0 {
        remaining_state.push(format!("{} objects, {} shares", state.objects_alive, state.shares));
    }
    remaining_state.extend(kernel_host.sessions().clients().iter().map(|guest| format!("{guest:?}")));
    remaining_state
}

/// An embedded daemon for local processes.
pub struct Embedded {
    daemon: Daemon,
    folder: tempfile::TempDir,
    /// Descriptors of this process before the daemon and right after its start.
    files: [Vec<String>; 2],
    threads: Vec<String>,
    _alone: MutexGuard<'static, ()>,
}

impl Embedded {
    pub fn start() -> Embedded {
        Embedded::start_with(Options::default())
    }

    /// Starts with these options, with the sockets in a temporary folder.
    pub fn start_with(options: Options) -> Embedded {
        let alone = lock_exclusive();
        artifacts();
        let folder = tempfile::Builder::new().prefix("gpupv-e2e-").tempdir().expect("a temporary folder");
        let before = machine::open_files(std::process::id());
        let threads = machine::daemon_threads();
        let daemon = Daemon::start(Options { directory: folder.path().into(), ..options });
        let daemon = daemon.expect("the daemon starts");
        let files = [before, machine::open_files(std::process::id())];
        Embedded { daemon, folder, files, threads, _alone: alone }
    }

    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    pub fn kernel_host(&self) -> &Arc<KernelHost> {
        &self.daemon.kernel_host
    }

    pub fn counters(&self) -> &Counters {
        &self.daemon.kernel_host.counters
    }

    pub fn broker(&self) -> PathBuf {
        self.daemon.broker_path()
    }

    /// A file in the daemon's folder, which is removed with it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn inspection(&self) -> Inspection {
        control::inspection(&self.daemon.kernel_host, &self.daemon.vms)
    }

    /// The command that runs a program of `tests/c` as a guest process.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        Self::command_at(&self.broker(), program, arguments)
    }

    /// The same at another broker: that of a local VM.
    pub fn command_at(broker: &Path, program: &str, arguments: &[&str]) -> Command {
        let mut command: Vec<OsString> = vec![c_program(program).into()];
        command.extend(arguments.iter().map(OsString::from));
        let mut command = guest_command(&command, broker, artifacts());
        if needs_dev_dxg(program) {
            preload(&mut command, &artifacts().dev_dxg().expect("it is built"));
        }
        command
    }

    /// Runs a program of `tests/c` to its end, and records what it covers.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(program, arguments);
        let claims = claims_of(&mut command);
        let output = command.stdin(Stdio::null()).output().expect("a compiled program starts");
        record(&claims, output.status.success());
        output
    }

    /// Starts it with pipes to its standard input and output.
    pub fn spawn(&self, program: &str, arguments: &[&str]) -> Running {
        Running::start(self.command(program, arguments))
    }

    /// Ends the daemon without a check of descriptors, for tests that run beside others.
    pub fn stop(self) {
        self.daemon.stop().expect("the daemon ends in order");
    }

    /// Waits until the kernel has no state of any client process.
    #[track_caller]
    pub fn wait_until_forgotten(&self) {
        eventually("the kernel has nothing of the guests", || {
            let remaining_state = remaining_state(&self.daemon.kernel_host);
            if remaining_state.is_empty() { Ok(()) } else { Err(remaining_state.join("\n")) }
        });
    }

    /// Waits until nothing is left of any client process: no object, wait, descriptor or thread.
    #[track_caller]
    pub fn wait_until_empty(&self) {
        self.wait_until_forgotten();
        eventually("every descriptor of the guests is closed", || {
            let files = machine::open_files(std::process::id());
            if files == self.files[1] { Ok(()) } else { Err(format!("{files:?}, not {:?}", self.files[1])) }
        });
    }

    /// Waits until nothing is left, ends the daemon, and checks that nothing is left of it either.
    #[track_caller]
    pub fn end(self) {
        self.wait_until_empty();
        let Embedded { daemon, folder, files: [before, _], threads, _alone } = self;
        daemon.stop().expect("the daemon ends in order");
        assert_eq!(machine::open_files(std::process::id()), before, "open files after the daemon");
        // A joined thread stays in /proc for a while, without a notification of its removal.
        eventually("threads after the daemon", || {
            let left = machine::daemon_threads();
            if left == threads { Ok(()) } else { Err(format!("{left:?}, not {threads:?}")) }
        });
        drop(folder);
    }
}

/// The file in which a program lists what it covers.
fn claims_of(command: &mut Command) -> NamedTempFile {
    let claims = NamedTempFile::new().expect("a temporary file is made");
    command.env(covers::PROGRAM_FILE, claims.path());
    claims
}

/// Records what a program covers for the test of this thread.
fn record(claims: &NamedTempFile, passed: bool) {
    covers::record_program(claims.path(), std::thread::current().name().unwrap_or("a program"), passed);
}

/// A program with pipes to its standard input and output, and the file of what it covers. Dropping it kills the program.
pub struct Running(Child, NamedTempFile);

impl Running {
    pub fn start(mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let claims = claims_of(&mut command);
        Running(command.spawn().expect("a compiled program starts"), claims)
    }

    /// Waits for a line of its output. Later output stays in the pipe.
    #[track_caller]
    pub fn says(&mut self, expected: &str) {
        let output = self.0.stdout.as_mut().expect("the output is a pipe");
        let mut line = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte).expect("the output is readable") == 1 {
            if byte[0] != b'\n' {
                line.push(byte[0]);
            } else if line == expected.as_bytes() {
                return;
            } else {
                line.clear();
            }
        }
        panic!(
            "the program ended without printing {expected:?}; its last output: {}",
            String::from_utf8_lossy(&line)
        );
    }

    pub fn write_input(&mut self, bytes: &[u8]) {
        let input = self.0.stdin.as_mut().expect("the input is a pipe");
        input.write_all(bytes).expect("the program reads");
    }

    /// Kills it with SIGKILL. Its input stays open for its children.
    #[track_caller]
    pub fn kill(mut self) -> Option<ChildStdin> {
        let input = self.0.stdin.take();
        self.0.kill().expect("the child process can be killed");
        let status = self.0.wait().expect("the child process can be waited for");
        assert_eq!(status.signal(), Some(9), "the program ended before it was killed");
        input
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        drop(self.0.stdin.take());
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the process can be signaled");
    }

    /// Sends it this, ends its input and waits for its end with any status; returns the rest of its output.
    pub fn outcome(mut self, bytes: &[u8]) -> (ExitStatus, String) {
        if !bytes.is_empty() {
            self.write_input(bytes);
        }
        self.end_input();
        let mut text = String::new();
        let output = self.0.stdout.as_mut().expect("the output is a pipe");
        output.read_to_string(&mut text).expect("the programs print text");
        let status = self.0.wait().expect("the child process can be waited for");
        record(&self.1, status.success());
        (status, text)
    }

    /// Ends its input and waits for its successful end; returns the rest of its output.
    #[track_caller]
    pub fn end(self) -> String {
        let (status, text) = self.outcome(b"");
        assert!(status.success(), "{status}:\n{text}");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
