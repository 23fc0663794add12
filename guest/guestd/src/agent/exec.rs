//! Runs a program for the host: its output as it comes, its input and signals as they are sent, its exit last.
//!
//! The program leads a process group of its own. Signals go to the group; when the stream is dropped before the program
//! has ended, the group is killed. Input that the program does not read holds back what is sent after it, signals too,
//! once [`CHUNKS_QUEUED_MAX`] chunks wait.

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

/// What a program finds in its environment unless it is told otherwise.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("TERM", "dumb"),
    ("LANG", "C.UTF-8"),
];

/// Starts what the first message names; the answers end with its exit.
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

/// Why a program did not start. The kernel says "not found" for its loader, too.
fn not_started(program: &str, error: &Error) -> Status {
    let words = match error.kind() {
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

/// A program that was started and not waited for yet, so its number is its own.
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
        // All output goes before the exit. A receiver that has gone ends both.
        let _ = (stdout.await, stderr.await);
        let _ =
            self.sender.send(status.map(exit).map_err(|error| super::refusal::status("wait", &error))).await;
    }

    /// Until the program ends; `None` if the stream is dropped before.
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
                // The host sends nothing more, and wants the output still.
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
            // What a program that has ended leaves unread is nobody's.
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
            // It may have ended just now.
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
        // The program has closed its input: what comes is thrown away by closing the queue.
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
