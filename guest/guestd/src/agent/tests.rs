//! The agent over a Unix socket in this process.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hyper_util::rt::TokioIo;
use proto::agent::agent_client::AgentClient;
use proto::agent::{exec_input, exec_output};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

use super::*;

type Client = AgentClient<Channel>;

/// Runs `test` with a client of an agent that can be asked to power off.
fn with_agent<F: Future<Output = ()>>(test: impl FnOnce(Client, Arc<Notify>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let listener = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
        let power_off = Arc::new(Notify::new());
        tokio::spawn(serve(listener, GuestAgent::new(Some(power_off.clone())), std::future::pending()));
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        let channel = Endpoint::from_static("http://guest").connect_with_connector(connector).await.unwrap();
        test(AgentClient::new(channel), power_off).await;
    });
}

fn start(arguments: &[&str]) -> exec_input::Body {
    exec_input::Body::Start(exec_input::Start {
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        ..exec_input::Start::default()
    })
}

/// A running program.
struct Program {
    input: mpsc::Sender<ExecInput>,
    output: Streaming<ExecOutput>,
    pid: u32,
}

/// What a program wrote and how it ended.
#[derive(Debug, Default, PartialEq)]
struct Ended {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit: (i32, i32),
}

impl Program {
    async fn start(client: &mut Client, first: exec_input::Body) -> Result<Self, Status> {
        let (input, queue) = mpsc::channel(4);
        input.send(ExecInput { body: Some(first) }).await.unwrap();
        let mut output = client.exec(ReceiverStream::new(queue)).await?.into_inner();
        match output.message().await?.unwrap().body {
            Some(exec_output::Body::Started(pid)) => Ok(Self { input, output, pid }),
            other => panic!("not started first: {other:?}"),
        }
    }

    async fn send(&self, body: exec_input::Body) {
        self.input.send(ExecInput { body: Some(body) }).await.unwrap();
    }

    /// The next piece of standard output.
    async fn line(&mut self) -> String {
        match self.output.message().await.unwrap().unwrap().body {
            Some(exec_output::Body::Stdout(bytes)) => String::from_utf8(bytes).unwrap(),
            other => panic!("no output: {other:?}"),
        }
    }

    /// All remaining messages; the exit is the last.
    async fn end(mut self) -> Ended {
        let mut ended = Ended::default();
        loop {
            match self.output.message().await.unwrap().expect("ends with an exit").body.unwrap() {
                exec_output::Body::Started(_) => panic!("started twice"),
                exec_output::Body::Stdout(bytes) => ended.stdout.extend(bytes),
                exec_output::Body::Stderr(bytes) => ended.stderr.extend(bytes),
                exec_output::Body::Exit(exit) => {
                    ended.exit = (exit.code, exit.signal);
                    assert_eq!(self.output.message().await.unwrap(), None);
                    return ended;
                }
            }
        }
    }
}

async fn shell(client: &mut Client, script: &str) -> Program {
    Program::start(client, start(&["/bin/sh", "-c", script])).await.unwrap()
}

#[test]
fn output_comes_before_the_exit_code() {
    with_agent(|mut client, _| async move {
        let ended = shell(&mut client, "echo out; echo err >&2; exit 7").await.end().await;
        assert_eq!(ended, Ended { stdout: b"out\n".to_vec(), stderr: b"err\n".to_vec(), exit: (7, 0) });
    });
}

#[test]
fn input_reaches_the_program_and_its_end_too() {
    with_agent(|mut client, _| async move {
        let program = Program::start(&mut client, start(&["cat"])).await.unwrap();
        for piece in [b"one ".to_vec(), b"two".to_vec()] {
            program.send(exec_input::Body::Stdin(piece)).await;
        }
        program.send(exec_input::Body::StdinEnd(true)).await;
        assert_eq!(
            program.end().await,
            Ended { stdout: b"one two".to_vec(), exit: (0, 0), ..Ended::default() }
        );
    });
}

#[test]
fn output_is_sent_on_while_the_program_runs() {
    with_agent(|mut client, _| async move {
        let mut program = shell(&mut client, "echo ready; read line; echo got $line").await;
        assert_eq!(program.line().await, "ready\n");
        program.send(exec_input::Body::Stdin(b"it\n".to_vec())).await;
        assert_eq!(program.line().await, "got it\n");
        assert_eq!(program.end().await.exit, (0, 0));
    });
}

#[test]
fn big_input_and_output_pass_whole() {
    with_agent(|mut client, _| async move {
        let mut program = Program::start(&mut client, start(&["cat"])).await.unwrap();
        let sent = (0..64_u32 << 14).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        let input = program.input.clone();
        program.input = mpsc::channel(1).0;
        let pieces = sent.clone();
        tokio::spawn(async move {
            for piece in pieces.chunks(60_000) {
                input.send(ExecInput { body: Some(exec_input::Body::Stdin(piece.to_vec())) }).await.unwrap();
            }
        });
        let ended = program.end().await;
        assert_eq!(ended.exit, (0, 0));
        assert!(ended.stdout == sent, "{} of {} bytes", ended.stdout.len(), sent.len());
    });
}

#[test]
fn the_last_output_is_not_lost_and_a_background_child_does_not_hold_the_exit() {
    with_agent(|mut client, _| async move {
        for _ in 0..20 {
            let script = "cat & head -c 60000 /dev/zero; exit 3";
            let ended = shell(&mut client, script).await.end().await;
            assert_eq!((ended.stdout.len(), ended.exit), (60_000, (3, 0)));
        }
    });
}

#[test]
fn a_signal_reaches_the_whole_group_and_is_the_exit() {
    with_agent(|mut client, _| async move {
        let mut program = shell(&mut client, "sleep 1000 & echo ready; wait").await;
        program.line().await;
        program.send(exec_input::Body::Signal(15)).await;
        assert_eq!(program.end().await.exit, (0, 15));
    });
}

#[test]
fn a_program_that_does_not_start_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs::write(path("script"), "#!/no/such/shell\n").unwrap();
    fs::set_permissions(path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path("data"), "data").unwrap();
    fs::write(path("garbage"), [0, 1, 2, 3]).unwrap();
    fs::set_permissions(path("garbage"), fs::Permissions::from_mode(0o755)).unwrap();
    let cases = [
        (start(&["/no/such"]), Code::NotFound, "there is no program /no/such"),
        (start(&["no-such"]), Code::NotFound, "no program no-such is on PATH in the guest"),
        (start(&[&path("script")]), Code::FailedPrecondition, "loader or interpreter"),
        (start(&[&path("data")]), Code::PermissionDenied, "may not be executed"),
        (start(&[&path("garbage")]), Code::FailedPrecondition, "not a program that this guest can run"),
        (start(&["/tmp"]), Code::FailedPrecondition, "is a folder"),
        (start(&[]), Code::InvalidArgument, "no program is named"),
        (exec_input::Body::Signal(1), Code::InvalidArgument, "must be `start`"),
        (
            exec_input::Body::Start(exec_input::Start {
                arguments: vec!["true".to_owned()],
                directory: "/no/such".to_owned(),
                ..exec_input::Start::default()
            }),
            Code::NotFound,
            "there is no folder /no/such",
        ),
    ];
    with_agent(|mut client, _| async move {
        for (first, code, words) in cases {
            let status = Program::start(&mut client, first).await.err().expect(words);
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{status}");
        }
    });
}

#[test]
fn environment_and_directory_are_as_given_and_nothing_else_comes_along() {
    with_agent(|mut client, _| async move {
        let start = exec_input::Start {
            arguments: ["sh", "-c", "pwd; env | sort"].map(str::to_owned).to_vec(),
            environment: HashMap::from([
                ("COLOUR".to_owned(), "blue".to_owned()),
                ("LANG".to_owned(), "C".to_owned()),
            ]),
            directory: "/usr".to_owned(),
        };
        let program = Program::start(&mut client, exec_input::Body::Start(start)).await.unwrap();
        let text = String::from_utf8(program.end().await.stdout).unwrap();
        assert!(
            text.starts_with("/usr\n") && text.contains("\nCOLOUR=blue\n") && text.contains("\nLANG=C\n"),
            "{text}"
        );
        assert!(text.contains("\nPATH=/usr/local/sbin:") && !text.contains("CARGO"), "{text}");
    });
}

#[test]
fn a_dropped_stream_kills_the_group() {
    with_agent(|mut client, _| async move {
        let mut program = shell(&mut client, "sleep 1000 & echo $!; wait").await;
        let child = program.line().await.trim().parse::<i32>().unwrap();
        let ends = [program.pid.cast_signed(), child]
            .map(|pid| pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::NONBLOCK).unwrap());
        drop(program);
        for end in ends {
            // A pidfd is readable when its process has ended.
            let end = tokio::task::spawn_blocking(move || {
                let mut wait = [rustix::event::PollFd::new(&end, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut wait, None).unwrap()
            });
            assert_eq!(end.await.unwrap(), 1);
        }
    });
}

async fn put(client: &mut Client, path: &Path, mode: u32, pieces: &[&[u8]]) -> Result<u64, Status> {
    let mut path = path.to_string_lossy().into_owned();
    let chunks =
        pieces.iter().map(|piece| PutChunk { path: std::mem::take(&mut path), mode, data: piece.to_vec() });
    let chunks = chunks.collect::<Vec<_>>();
    Ok(client.put(tokio_stream::iter(chunks)).await?.into_inner().bytes)
}

async fn get(client: &mut Client, path: &Path) -> Result<Vec<u8>, Status> {
    let path = path.to_string_lossy().into_owned();
    let mut stream = client.get(GetRequest { path }).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.message().await? {
        bytes.extend(chunk.data);
    }
    Ok(bytes)
}

#[test]
fn a_file_goes_in_whole_and_comes_out_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/file");
    with_agent(|mut client, _| async move {
        let big = vec![7; 300_000];
        assert_eq!(put(&mut client, &path, 0o755, &[&big, b"end"]).await.unwrap(), 300_003);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(get(&mut client, &path).await.unwrap(), [&big[..], b"end"].concat());
        assert_eq!(put(&mut client, &path, 0, &[b""]).await.unwrap(), 0);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o644);
        assert_eq!(get(&mut client, &path).await.unwrap(), b"");
        // No other file was left behind.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    });
    drop(folder);
}

#[test]
fn a_put_that_breaks_off_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "old").unwrap();
    with_agent(|mut client, _| async move {
        let (chunks, queue) = mpsc::channel(1);
        let sending = tokio::spawn({
            let mut client = client.clone();
            async move { client.put(ReceiverStream::new(queue)).await.map(|_| ()) }
        });
        let name = path.to_string_lossy().into_owned();
        chunks.send(PutChunk { path: name, mode: 0, data: b"new".to_vec() }).await.unwrap();
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        // The next call is served after the broken one is dropped.
        assert_eq!(get(&mut client, &path).await.unwrap(), b"old");
    });
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "old");
}

#[test]
fn a_path_that_is_no_file_is_refused_with_the_reason() {
    with_agent(|mut client, _| async move {
        let status = get(&mut client, Path::new("/no/such")).await.unwrap_err();
        assert_eq!((status.code(), status.message().contains("/no/such")), (Code::NotFound, true));
        let status = get(&mut client, Path::new("/tmp")).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::FailedPrecondition, "/tmp is not a regular file")
        );
        for (path, code) in [
            ("relative", Code::InvalidArgument),
            ("/", Code::InvalidArgument),
            ("/tmp", Code::FailedPrecondition),
            ("/dev/null/x", Code::FailedPrecondition),
        ] {
            assert_eq!(
                put(&mut client, Path::new(path), 0, &[b"x"]).await.unwrap_err().code(),
                code,
                "{path}"
            );
        }
        let status = client.put(tokio_stream::empty::<PutChunk>()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

#[test]
fn power_off_answers_and_notifies_its_waiter() {
    with_agent(|mut client, power_off| async move {
        client.power_off(PowerOffRequest {}).await.unwrap();
        power_off.notified().await;
        let status = GuestAgent::default().power_off(Request::new(PowerOffRequest {})).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
    });
}
