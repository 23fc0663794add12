//! Runs a program for the host: streams its output, forwards its input and signals, and sends its exit last.
//!
//! The program leads a process group of its own. Signals go to the group. If the stream is dropped before the program
//! has exited, the group is killed. Once [`CHUNKS_QUEUED_MAX`] chunks of unread input wait, later input and signals are
//! held back.

use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use proto::agent::{ExecInput, ExecOutput, exec_input, exec_output};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::output::{Output, Sender};
use super::refusal::status;
use crate::limits::CHUNKS_QUEUED_MAX;

/// A program's environment variables, unless the request sets others.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("TERM", "dumb"),
    ("LANG", "C.UTF-8"),
];

/// Starts the program that the first message names; the last answer is its exit.
pub(super) async fn exec(
    mut input: Streaming<ExecInput>,
) -> Result<ReceiverStream<Result<ExecOutput, Status>>, Status> {
    let start = match input.message().await? {
        Some(ExecInput { body: Some(exec_input::Body::Start(start)) }) => start,
        Some(_) | None => return Err(Status::invalid_argument("the first message must be `start`")),
    };
    let (stdout, stdout_end) = pipe(exec_output::Body::Stdout)?;
    let (stderr, stderr_end) = pipe(exec_output::Body::Stderr)?;
    let child = spawn(&start, stdout_end, stderr_end)?;
    let (sender, receiver) = mpsc::channel(CHUNKS_QUEUED_MAX);
    tokio::spawn(Running::new(child, sender).run(input, stdout, stderr));
    Ok(ReceiverStream::new(receiver))
}

fn pipe(wrap: fn(Vec<u8>) -> exec_output::Body) -> Result<(Output, OwnedFd), Status> {
    Output::new(wrap).map_err(|error| status("make a pipe", &error))
}

fn spawn(start: &exec_input::Start, stdout: OwnedFd, stderr: OwnedFd) -> Result<Child, Status> {
    let Some((program, arguments)) = start.arguments.split_first() else {
        return Err(Status::invalid_argument("no program is named"));
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(ENVIRONMENT).envs(&start.environment);
    command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr).process_group(0).kill_on_drop(true);
    if !start.directory.is_empty() {
        if !Path::new(&start.directory).is_dir() {
            return Err(Status::not_found(format!("there is no folder {} in the guest", start.directory)));
        }
        command.current_dir(&start.directory);
    }
    command.spawn().map_err(|error| not_started(program, &error))
}

/// Why a program did not start. The kernel answers ENOENT for a missing loader, too.
fn not_started(program: &str, error: &Error) -> Status {
    let words = match error.kind() {
        ErrorKind::NotFound if !program.contains('/') => {
            let path = Path::new("/").join(program);
            let instead = match path.exists() {
                true => format!(": write {}", path.display()),
                false => String::new(),
            };
            return Status::not_found(format!("no program {program} is on PATH in the guest{instead}"));
        }
        ErrorKind::NotFound if Path::new(program).exists() => {
            format!("{program} is there, but the loader or interpreter that it names is not in the guest")
        }
        ErrorKind::NotFound => {
            return Status::not_found(format!("there is no program {program} in the guest"));
        }
        ErrorKind::PermissionDenied if Path::new(program).is_dir() => format!("{program} is a folder"),
        ErrorKind::PermissionDenied => {
            return Status::permission_denied(format!("{program} may not be executed (is its mode right?)"));
        }
        _ if Errno::from_io_error(error) == Some(Errno::NOEXEC) => {
            format!("{program} is not a program that this guest can run")
        }
        _ => return status(&format!("start {program}"), error),
    };
    Status::new(Code::FailedPrecondition, words)
}

/// A program that was started and not reaped yet, so its pid is not reused.
struct Running {
    child: Child,
    group: Option<Pid>,
    sender: Sender,
}

impl Running {
    fn new(child: Child, sender: Sender) -> Self {
        let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        Self { child, group, sender }
    }

    async fn run(mut self, input: Streaming<ExecInput>, stdout: Output, stderr: Output) {
        let started = exec_output::Body::Started(self.child.id().unwrap_or_default());
        if self.sender.send(Ok(ExecOutput { body: Some(started) })).await.is_err() {
            return self.kill().await;
        }
        let (ended, ended_seen) = watch::channel(false);
        let stdout = tokio::spawn(stdout.send_on(self.sender.clone(), ended_seen.clone()));
        let stderr = tokio::spawn(stderr.send_on(self.sender.clone(), ended_seen));
        let Some(status) = self.wait(input).await else {
            return self.kill().await;
        };
        self.group = None;
        let _ = ended.send(true);
        // All output is sent before the exit. Both tasks end early if the receiver is dropped.
        let _ = (stdout.await, stderr.await);
        let _ =
            self.sender.send(status.map(exit).map_err(|error| super::refusal::status("wait", &error))).await;
    }

    /// Waits until the program exits; `None` if the stream is dropped before.
    async fn wait(&mut self, mut input: Streaming<ExecInput>) -> Option<std::io::Result<ExitStatus>> {
        let (stdin, chunks) = mpsc::channel(CHUNKS_QUEUED_MAX);
        if let Some(pipe) = self.child.stdin.take() {
            tokio::spawn(write_input(pipe, chunks));
        }
        let mut stdin = Some(stdin);
        let mut input_open = true;
        loop {
            let message = tokio::select! {
                biased;
                () = self.sender.closed() => return None,
                status = self.child.wait() => return Some(status),
                message = input.message(), if input_open => message,
            };
            match message {
                Ok(Some(ExecInput { body: Some(body) })) => match body {
                    exec_input::Body::Stdin(bytes) => {
                        if !self.pass_on(&mut stdin, bytes).await {
                            return None;
                        }
                    }
                    exec_input::Body::StdinEnd(_) => stdin = None,
                    exec_input::Body::Signal(signal) => self.signal(signal),
                    exec_input::Body::Start(_) => {
                        let words = "`start` was sent twice; the program is killed";
                        let _ = self.sender.send(Err(Status::invalid_argument(words))).await;
                        return None;
                    }
                },
                Ok(Some(ExecInput { body: None })) => {}
                // The host sends nothing more, but still wants the output.
                Ok(None) => {
                    input_open = false;
                    stdin = None;
                }
                Err(_) => return None,
            }
        }
    }

    /// Queues input. False if the stream was dropped while the queue was full.
    async fn pass_on(&mut self, stdin: &mut Option<mpsc::Sender<Vec<u8>>>, bytes: Vec<u8>) -> bool {
        let Some(queue) = stdin else { return true };
        let taken = tokio::select! {
            biased;
            () = self.sender.closed() => return false,
            // Input that an exited program leaves unread is dropped.
            _ = self.child.wait() => true,
            taken = queue.send(bytes) => taken.is_ok(),
        };
        if !taken {
            *stdin = None;
        }
        true
    }

    fn signal(&self, signal: i32) {
        if let (Some(group), Some(signal)) = (self.group, Signal::from_named_raw(signal)) {
            // The group may have exited just now.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Kills the group and waits for its leader.
    async fn kill(mut self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait().await;
    }
}

async fn write_input(mut pipe: ChildStdin, mut chunks: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = chunks.recv().await {
        // The program has closed its input: closing the queue drops later input.
        if pipe.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn exit(status: ExitStatus) -> ExecOutput {
    let exit = exec_output::Exit {
        code: status.code().unwrap_or_default(),
        signal: status.signal().unwrap_or_default(),
    };
    ExecOutput { body: Some(exec_output::Body::Exit(exit)) }
}
