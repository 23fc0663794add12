//! `gpupv inspect --watch` of a running daemon: on a terminal, in a pipe, as JSON.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use d3dkmt::{Handle, NtStatus, WaitOutcome};
use e2e::polling::until;
use e2e::programs::{gpupv, gpupv_binary, stderr};
use e2e::served::{Served, block_on};
use e2e::wire::Client;
use gpupv::daemon::control;
use proto::control::StopRequest;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

/// Starts a process with a wait that is never satisfied.
fn waiting(served: &Served) -> Client {
    let mut client = Client::new(&served.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    assert_eq!(client.wait(device, fence.object, 7, 5), Some(WaitOutcome::Registered));
    client
}

/// A terminal with `gpupv top`, and its output so far.
struct Terminal {
    master: File,
    child: Child,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn start(served: &Served, columns: u16, rows: u16) -> Terminal {
        let master: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pty");
        grantpt(&master).expect("it is ours");
        unlockpt(&master).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name").into_string().expect("UTF-8");
        let slave = File::options().read(true).write(true).open(&name).expect("it exists");
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(gpupv_binary()).args(["top", "--interval", "20ms", "--directory"]);
        command.arg(served.directory()).stdin(end()).stdout(end()).stderr(end());
        let master = File::from(master);
        resize(&master, columns, rows);
        let child = command.spawn().expect("setsid is there");
        let terminal = Terminal { master, child, shown: Arc::default() };
        let (mut from, shown) = (terminal.master.try_clone().expect("a descriptor"), terminal.shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = from.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                shown.lock().expect("no thread panics with it").push_str(&text);
            }
        });
        terminal
    }

    fn shown(&self) -> String {
        self.shown.lock().expect("no thread panics with it").clone()
    }

    /// The lines of the last complete screen.
    fn screen(&self) -> Vec<String> {
        let shown = self.shown();
        let screens: Vec<&str> = shown.split("\x1b[H").collect();
        let complete = screens.len().checked_sub(2).map_or("", |at| screens[at]);
        let orders = ["\x1b[K", "\x1b[J", "\x1b[1m", "\x1b[m"];
        let plain = orders.iter().fold(complete.to_owned(), |text, order| text.replace(order, ""));
        plain.lines().map(str::to_owned).collect()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &File, ws_col: u16, ws_row: u16) {
    tcsetwinsize(terminal, Winsize { ws_col, ws_row, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal");
}

#[test]
fn on_a_terminal_it_fits_follows_and_ends_by_an_interrupt() {
    let served = Served::start(&[]);
    let mut top = Terminal::start(&served, 120, 30);
    until("it shows engines", || top.screen().iter().any(|line| line.contains("3D: idle")));
    let _client = waiting(&served);
    until("it shows a wait", || top.screen().iter().any(|line| line.contains("waits on its CPU")));
    assert!(top.screen()[0].starts_with(&format!("daemon {}: ", served.pid())), "{:?}", top.screen());
    resize(&top.master, 40, 8);
    until("it fits", || {
        let screen = top.screen();
        screen.len() == 7 && screen.iter().all(|line| line.chars().count() <= 40)
    });
    // Ctrl-C.
    top.master.write_all(b"\x03").expect("the terminal is open");
    // It would not end if the tests were started with SIGINT ignored.
    let mut ended = None;
    until("it ends", || {
        ended = top.child.try_wait().expect("it is ours");
        ended.is_some()
    });
    let status = ended.expect("it has ended");
    assert_eq!(status.signal(), Some(rustix::process::Signal::INT.as_raw()), "{}", top.shown());
}

#[test]
fn it_says_that_the_daemon_has_ended() {
    let mut served = Served::start(&[]);
    let mut top = Terminal::start(&served, 80, 24);
    until("it shows engines", || top.screen().iter().any(|line| line.contains("3D: idle")));
    served.kill();
    assert_eq!(top.child.wait().expect("it is ours").code(), Some(0), "{}", top.shown());
    until("it says so", || top.shown().contains("the daemon has ended"));
}

/// Starts `gpupv inspect --watch` with its output in a pipe.
fn piped(served: &Served, more: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = gpupv(&["inspect", "--watch", "--interval", "20ms", "--directory"]);
    command.arg(served.directory()).args(more).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("gpupv starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    (child, lines)
}

#[test]
fn in_a_pipe_it_prints_tables_without_escape_codes() {
    let served = Served::start(&[]);
    let _client = waiting(&served);
    let (mut child, lines) = piped(&served, &[]);
    let lines = lines.map(|line| line.expect("text"));
    let mut views = lines.scan(0, |empty, line| {
        *empty += usize::from(line.is_empty());
        (*empty < 3).then_some(line)
    });
    let text = views.by_ref().collect::<Vec<_>>().join("\n");
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    assert!(!text.contains('\x1b'), "{text}");
    for part in ["\n- calls/s", "\n0 calls/s", "3D: idle", "waits on its CPU, event 5, for", ": WAITS FOR p"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn json_is_the_state_with_rates_and_notes_in_a_line() {
    let served = Served::start(&[]);
    let mut client = waiting(&served);
    let (mut child, lines) = piped(&served, &["--json"]);
    let mut states = lines.map(|line| -> Value { serde_json::from_str(&line.expect("text")).expect("JSON") });
    let [first, second] = [(); 2].map(|()| states.next().expect("a line"));
    assert_ne!(client.signal(Handle(4), Handle(4), 1), NtStatus::SUCCESS, "there are no such objects");
    let noted = |state: &Value| state["notes"][0]["process"] == client.process;
    assert!(states.any(|state| noted(&state)), "the refusal has a note");
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    assert!(first["calls_per_s"].is_null() && second["calls_per_s"].is_number(), "{first} {second}");
    assert_eq!(second["processes"][0]["id"], client.process);
    assert!(second["processes"][0]["calls"].as_u64().is_some_and(|calls| calls >= 3), "{second}");
    assert_eq!((&second["causes"][0]["verdict"], &second["waiting"]), (&"waits-for".into(), &1.into()));
}

#[test]
fn a_wrong_option_or_directory_is_refused() {
    for (wrong, says) in [
        (&["--watch", "--interval", "1"][..], "--interval"),
        (&["--watch", "--interval", "1ns"], "at least 10ms"),
        (&["--watch", "--rows", "0"], "--rows"),
        (&["--rows", "5"], "--watch"),
        (&["--watch", "--directory", "/no/such/folder"], "gpupv serve"),
    ] {
        let output = gpupv(&["inspect"]).args(wrong).output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(stderr(&output).contains(says), "{wrong:?}: {}", stderr(&output));
    }
}

/// `gpupv inspect --watch | head -1`: the daemon is not asked for nobody.
#[test]
fn a_watch_ends_when_its_reader_has_ended() {
    let served = Served::start(&[]);
    let _client = waiting(&served);
    for arguments in [
        &["inspect", "--watch", "--interval", "10ms"][..],
        &["inspect", "--watch", "--interval", "10ms", "--json"],
        &["why", "--watch", "1ms"],
    ] {
        let mut command = gpupv(arguments);
        command.arg("--directory").arg(served.directory()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("gpupv starts");
        let mut reader = child.stdout.take().expect("a pipe");
        let read = reader.read(&mut [0; 64]).expect("the pipe can be read");
        assert!(read > 0, "{arguments:?}");
        drop(reader);
        let ended = child.wait().expect("the child process can be waited for");
        assert_eq!(ended.code(), Some(0), "{arguments:?}");
    }
}

/// `Stop` waited for the connections of others, for ever: a watch has one, and reads the notes on it.
#[test]
fn a_daemon_that_is_asked_to_stop_ends_beside_readers_and_idle_connections() {
    let mut served = Served::start(&[]);
    let (mut watch, mut lines) = piped(&served, &["--json"]);
    lines.next().expect("it prints").expect("text");
    let _idle = UnixStream::connect(served.directory().join("control.sock")).expect("the daemon accepts");
    block_on(async {
        let mut client = control::connect(served.directory()).await.expect("the daemon answers");
        client.stop(StopRequest::default()).await.expect("it stops");
    });
    let mut ended = None;
    until("the daemon has ended", || {
        ended = served.child.try_wait().expect("it can be waited for");
        ended.is_some()
    });
    assert_eq!(ended.and_then(|ended| ended.code()), Some(0));
    assert_eq!(watch.wait().expect("it ends").code(), Some(0));
}
