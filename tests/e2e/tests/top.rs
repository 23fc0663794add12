//! `gpupv top` of a running daemon: on a terminal, to a pipe, once.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use d3dkmt::WaitOutcome;
use e2e::polling::until;
use e2e::programs::{gpupv, gpupv_binary, stderr, stdout};
use e2e::served::Served;
use e2e::wire::Client;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

const LEFT: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A process with a wait that never ends.
fn waiting(served: &Served) -> Client {
    let mut client = Client::new(&served.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    assert_eq!(client.wait(device, fence.object, 7, 5), Some(WaitOutcome::Registered));
    client
}

/// A program's terminal, and the output to it.
struct Terminal {
    master: File,
    /// Kept open, so that the last output can be read.
    slave: File,
    child: Child,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts `gpupv top` of this daemon on a terminal.
    fn with_top(served: &Served, columns: u16, rows: u16) -> Terminal {
        let master: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pty");
        grantpt(&master).expect("access to the pty");
        unlockpt(&master).expect("the pty can be unlocked");
        let name = ptsname(&master, Vec::new()).expect("the pty has a name").into_string().expect("UTF-8");
        let slave = File::options().read(true).write(true).open(&name).expect("the pty can be opened");
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(gpupv_binary()).args(["top", "--interval", "20ms", "--directory"]);
        command.arg(served.directory()).stdin(end()).stdout(end()).stderr(end());
        let master = File::from(master);
        resize(&master, columns, rows);
        let child = command.spawn().expect("setsid starts");
        let terminal = Terminal { master, slave, child, shown: Arc::default() };
        let (mut from, shown) = (terminal.master.try_clone().expect("a descriptor"), terminal.shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = from.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                shown.lock().expect("no other thread panicked").push_str(&text);
            }
        });
        terminal
    }

    fn shown(&self) -> String {
        self.shown.lock().expect("no other thread panicked").clone()
    }

    /// The last complete screen.
    fn screen(&self) -> Vec<String> {
        let shown = self.shown();
        let screens: Vec<&str> = shown.split("\x1b[H").collect();
        let whole = screens.len().checked_sub(2).map_or("", |at| screens[at]);
        // The terminal puts a carriage return before each line's end.
        whole.split('\n').map(|line| without_escapes(line.trim_end_matches('\r'))).collect()
    }

    fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).expect("the terminal is open");
    }

    /// Checks that the program ended successfully and restored the terminal.
    fn ended(&mut self) -> String {
        let status = self.child.wait().expect("the child process can be waited for");
        until("the terminal is given back", || self.shown().contains(LEFT));
        assert_eq!(status.code(), Some(0), "{}", self.shown());
        let modes = tcgetattr(&self.slave).expect("a terminal").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        self.shown()
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

fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(one) = rest.next() {
        if one == '\x1b' {
            rest.by_ref().find(|one| one.is_ascii_alphabetic());
        } else {
            plain.push(one);
        }
    }
    plain
}

#[test]
fn top_once_prints_a_plain_table_or_a_json_object() {
    let served = Served::start(&[]);
    let client = waiting(&served);
    let top = |more: &[&str]| {
        let mut command = gpupv(&["top", "--once", "--interval", "20ms", "--directory"]);
        let output = command.arg(served.directory()).args(more).output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    let table = top(&[]);
    assert!(table.starts_with(&format!("gpupv {}, up ", served.pid())), "{table}");
    assert!(!table.contains('\x1b') && table.contains(" calls/s") && table.contains("0.0  3D"), "{table}");
    assert!(table.contains("WAITS FOR p") && table.contains("waits on its CPU, event 5"), "{table}");
    let json: Value = serde_json::from_str(&top(&["--json"])).expect("one object");
    assert_eq!(json["processes"][0]["process"], client.process);
    assert!(json["processes"][0]["calls"].as_u64().is_some_and(|calls| calls >= 3), "{json}");
    assert!(json["calls_per_s"].is_number(), "the rates need two samples: {json}");
    assert_eq!((&json["causes"][0]["verdict"], &json["waiting"]), (&"waits-for".into(), &1.into()));
    for wrong in [&["--interval", "1"][..], &["--interval", "1ns"], &["--rows", "0"]] {
        let output = gpupv(&["top", "--once"]).args(wrong).output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    let output = gpupv(&["top", "--directory", "/no/such/folder"]).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("gpupv serve"), "{}", stderr(&output));
}

#[test]
fn top_fits_the_terminal_refreshes_and_restores_it() {
    let served = Served::start(&[]);
    let mut top = Terminal::with_top(&served, 120, 30);
    until("top shows engines", || top.screen().iter().any(|line| line.contains("0.0  3D")));
    assert!(top.shown().starts_with("\x1b[?1049h\x1b[?25l\x1b[?7l"), "{:?}", top.shown());
    let modes = tcgetattr(&top.slave).expect("a terminal").local_modes;
    assert!(!modes.intersects(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
    let _client = waiting(&served);
    until("top shows a wait", || top.screen().iter().any(|line| line.contains("waits on its CPU")));
    assert!(top.screen()[0].starts_with(&format!("gpupv {}, up ", served.pid())), "{:?}", top.screen());
    resize(&top.master, 40, 8);
    until("the output fits the terminal", || {
        let screen = top.screen();
        screen.len() <= 8 && screen.iter().all(|line| line.chars().count() <= 40)
    });
    assert!(top.screen()[0].ends_with('…'), "{:?}", top.screen());
    top.press(b"xq");
    let shown = top.ended();
    assert!(shown.ends_with(LEFT), "{shown:?}");
}

#[test]
fn top_restores_the_terminal_on_interrupt_and_daemon_death() {
    let mut served = Served::start(&[]);
    let mut interrupted = Terminal::with_top(&served, 80, 24);
    let mut left_alone = Terminal::with_top(&served, 80, 24);
    for top in [&interrupted, &left_alone] {
        until("top shows engines", || top.screen().iter().any(|line| line.contains("0.0  3D")));
    }
    // Ctrl-C.
    interrupted.press(b"\x03");
    assert!(interrupted.ended().ends_with(LEFT));
    served.child.kill().expect("the child process can be killed");
    let shown = left_alone.ended();
    until("top reports the daemon's end", || left_alone.shown().contains("the daemon has ended"));
    assert!(shown.contains(LEFT));
}

#[test]
fn top_prints_plain_tables_to_a_pipe() {
    let served = Served::start(&[]);
    let mut command = gpupv(&["top", "--interval", "20ms", "--directory"]);
    command.arg(served.directory()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut top = command.spawn().expect("gpupv starts");
    let lines = BufReader::new(top.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let mut heads = Vec::new();
    for line in lines {
        assert!(!line.contains('\x1b'), "{line:?}");
        if line.starts_with("gpupv ") {
            heads.push(line);
        }
        if heads.len() == 3 {
            break;
        }
    }
    top.kill().expect("the child process can be killed");
    top.wait().expect("the child process can be waited for");
    assert!(heads[0].contains("; - calls/s") && heads[1].contains("; 0 calls/s"), "{heads:?}");
}
