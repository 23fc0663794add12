//! `gpupv trace show`, `stats`, `export`, `open` and `diff`, on a trace of real programs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use e2e::embedded::Embedded;
use e2e::polling::until;
use e2e::programs::{gpupv, tree};
use gpupv::daemon::Options;
use serde_json::Value;

fn trace_command(arguments: &[&str], traces: &[&Path]) -> Output {
    let mut command = gpupv(&["trace", arguments[0]]);
    command.args(traces).args(&arguments[1..]).output().expect("gpupv starts")
}

fn text_of(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Records `fence_tour` twice; the second time with another program after it.
fn record(folder: &Path) -> [std::path::PathBuf; 2] {
    [("one.gvt", 1), ("two.gvt", 2)].map(|(name, programs)| {
        let trace = folder.join(name);
        let daemon = Embedded::start_with(Options { record: Some(trace.clone()), ..Options::default() });
        for program in ["fence_tour", "threads"].iter().take(programs) {
            assert!(daemon.run(program, &[]).status.success(), "{program}");
            daemon.wait_until_forgotten();
        }
        daemon.stop();
        trace
    })
}

#[test]
fn recorded_programs_are_shown_counted_drawn_and_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, two] = record(folder.path());

    let lanes = text_of(&trace_command(&["show", "--last", "1000"], &[&one]));
    assert!(lanes.contains("p1 fence_tour") && lanes.contains("CreateDevice"), "{lanes}");
    let around = text_of(&trace_command(&["show", "--around", "3", "--steps", "1"], &[&one]));
    assert!(around.contains("#2 ") && around.contains("#4 ") && !around.contains("#5 "), "{around}");
    let full = text_of(&trace_command(&["show", "--fence", "F0", "--full"], &[&one]));
    assert!(full.contains("CreateSynchronizationObject") || full.contains("store p1 slot"), "{full}");
    assert!(text_of(&trace_command(&["show", "--process", "p1"], &[&one])).contains("p1 fence_tour"));
    let messages = text_of(&trace_command(&["show", "--last", "1000", "--vmbus"], &[&one]));
    for shown in
        ["VM_TO_HOST    CREATEPROCESS (1000)", "SIGNALSYNCOBJECT (26)", "HOST_TO_VM    SIGNALGUESTEVENT (0)"]
    {
        assert!(messages.contains(shown), "{shown}: {messages}");
    }
    let around = text_of(&trace_command(&["show", "--around", "3", "--steps", "1", "--vmbus"], &[&one]));
    assert!(around.contains("#2 ") && around.contains("#4 ") && !around.contains("#5 "), "{around}");
    let both =
        text_of(&trace_command(&["show", "--fence", "F0", "--full", "--vmbus", "--width", "110"], &[&one]));
    assert!(both.contains(" ns p1 #") && both.contains("CREATESYNCOBJECT (8)"), "{both}");

    let stats: Value =
        serde_json::from_str(&text_of(&trace_command(&["stats", "--json"], &[&one]))).expect("JSON");
    assert_eq!(stats["ended"], true);
    assert_eq!(stats["inputs"]["process attached"], 1);
    assert!(stats["calls"]["SignalFromCpu"]["count"].as_u64().is_some_and(|count| count > 0), "{stats}");
    assert!(text_of(&trace_command(&["stats"], &[&one])).contains("busiest fences"));

    text_of(&trace_command(&["export"], &[&one]));
    let page = std::fs::read_to_string(one.with_extension("html")).expect("it was written");
    assert!(page.starts_with("<!doctype html>"), "{page:.80}");
    let again = complaint(&trace_command(&["export"], &[&one]));
    assert!(again.contains("exists") && again.contains("--output"), "{again}");
    let output = trace_command(&["export", "--format", "pftrace", "--output", "-"], &[&one]);
    assert!(output.status.success() && output.stdout.len() > 1000);

    let same = trace_command(&["diff"], &[&one, &one]);
    assert!(text_of(&same).starts_with("the same, whatever their times"));
    let other = trace_command(&["diff", "--json"], &[&one, &two]);
    assert_eq!(other.status.code(), Some(1));
    let other: Value = serde_json::from_slice(&other.stdout).expect("JSON");
    assert_eq!(other["same"], false);
    assert!(other["only_b"][0].as_str().is_some_and(|name| name.starts_with("host/threads")), "{other}");
}

#[test]
fn an_object_missing_from_a_trace_is_reported_with_those_present() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, _] = record(folder.path());
    for (arguments, says) in [
        (&["show", "--fence", "F9999"][..], "it has F0 to F"),
        (&["show", "--fence", "what"], "write it like F3"),
        (&["show", "--fence", "p1:0x7"], "no synchronization object"),
        (&["show", "--wait", "p1"], "such as p2:17"),
        (&["show", "--wait", "p77:1"], "no process \"p77\" is in the trace: there are p1 \""),
        (&["show", "--wait", "p1:987654"], "no step matches"),
        (&["show", "--process", "nobody"], "no process \"nobody\" is in the trace: there are p1 \""),
        (&["show", "--around", "1", "--last", "2"], "cannot be used with"),
        (&["show", "--vmbus", "--around", "1", "--last", "2"], "cannot be used with"),
        (&["show", "--vmbus=yes"], "unexpected value"),
        (&["show", "--vm-bus"], "--vmbus"),
        (&["show", "--vmbus", "--wait", "p77:1"], "no process \"p77\" is in the trace: there are p1 \""),
        (&["export", "--from", "9", "--to", "3"], "no step is between them"),
        (&["export", "--format", "svg"], "possible values: html, pftrace"),
    ] {
        let error = complaint(&trace_command(arguments, &[&one]));
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    let text = folder.path().join("text.gvt");
    std::fs::write(&text, "no trace at all").expect("it can be written");
    for command in ["show", "stats", "export"] {
        let error = complaint(&trace_command(&[command], &[&text]));
        assert!(error.contains("is not a trace"), "{command}: {error}");
    }
    let output = folder.path().join("no such folder").join("a.html");
    let mut export = gpupv(&["trace", "export", "--output"]);
    let error = complaint(&export.arg(&output).arg(&one).output().expect("gpupv starts"));
    assert!(error.contains("cannot write"), "{error}");
}

#[test]
fn a_damaged_trace_is_drawn_up_to_the_reported_damage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, _] = record(folder.path());
    let mut bytes = std::fs::read(&one).expect("it was recorded");
    let place = bytes.len() * 2 / 3;
    bytes[place] ^= 0x10;
    let damaged = folder.path().join("damaged.gvt");
    std::fs::write(&damaged, bytes).expect("it can be written");
    let output = trace_command(&["stats"], &[&damaged]);
    let words =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("only up to step #"), "{words}");
}

/// `gpupv trace open` of a golden trace, and the address that it prints.
struct Opened {
    process: Child,
    address: SocketAddr,
    path: String,
}

impl Opened {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Opened {
        let mut command = gpupv(&["trace", "open"]);
        command.arg(tree().join("tests/traces/hang.gvt")).args(arguments).envs(environment.iter().copied());
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("gpupv starts");
        let mut line = String::new();
        let lines = process.stdout.as_mut().expect("it is piped");
        BufReader::new(lines).read_line(&mut line).expect("it prints its address");
        let link = line.trim_end().strip_prefix("http://").unwrap_or_else(|| panic!("{line:?}"));
        let (address, path) = link.split_once('/').expect("an address has a path");
        Opened { process, address: address.parse().expect("an address"), path: format!("/{path}") }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        // The other side may answer and close before all is written.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("UTF-8")
    }

    /// Ends it as Ctrl-C does; returns its exit code and what it complained about.
    fn interrupt(mut self) -> (Option<i32>, String) {
        let id = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
        let code = self.process.wait().expect("it ends").code();
        let mut complaints = String::new();
        self.process.stderr.take().expect("it is piped").read_to_string(&mut complaints).expect("UTF-8");
        (code, complaints)
    }
}

#[test]
fn open_serves_one_page_on_loopback_until_ctrl_c() {
    let opened = Opened::start(&["--no-browser"], &[]);
    assert!(opened.address.ip().is_loopback(), "{}", opened.address);
    assert!(opened.path.len() > 32, "a token that cannot be guessed: {}", opened.path);
    // A client that says nothing keeps nobody waiting.
    let _silent: Vec<TcpStream> =
        (0..4).map(|_| TcpStream::connect(opened.address).expect("it listens")).collect();
    let host = opened.address;
    let answer = opened.ask(&format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", opened.path));
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head and a page");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Type: text/html"), "{head}");
    assert!(head.contains("Cache-Control: no-store") && head.contains("frame-ancestors 'none'"), "{head}");
    let exported = gpupv(&["trace", "export", "--output", "-"])
        .arg(tree().join("tests/traces/hang.gvt"))
        .output()
        .expect("gpupv starts");
    assert!(page.as_bytes() == exported.stdout, "the page of `trace export`");
    let path = &opened.path;
    for (request, status) in [
        (format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"), "200"),
        (format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), "404"),
        (format!("GET {path}../ HTTP/1.1\r\nHost: {host}\r\n\r\n"), "404"),
        (format!("GET {path} HTTP/1.1\r\nHost: attacker.example\r\n\r\n"), "400"),
        (format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"), "405"),
    ] {
        let answer = opened.ask(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer:.60}");
        assert!(!answer.contains("<!doctype"), "{request}");
    }
    assert_eq!(opened.ask(&"x".repeat(1 << 20)), "", "a head without an end");
    if rustix::process::geteuid().is_root() {
        // Another user of the machine, who has read the address somewhere.
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' >&3; cat <&3",
            host.port()
        );
        let output = Command::new("bash").args(["-c", &script]).uid(65534).gid(65534).output().expect("bash");
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains("<!doctype"), "{answer:.60}");
    }
    let other = Opened::start(&["--no-browser"], &[]);
    assert_ne!((opened.address, &opened.path), (other.address, &other.path));
    assert_eq!(opened.interrupt(), (Some(0), String::new()));
    drop(other.interrupt());
}

#[test]
fn open_starts_a_browser_where_there_is_a_desktop() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (browser, asked) = (folder.path().join("xdg-open"), folder.path().join("asked"));
    let write = |script: &str| {
        std::fs::write(&browser, script).expect("it can be written");
        let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&browser, runs).expect("it is ours");
    };
    let path =
        std::env::join_paths([folder.path(), Path::new("/usr/bin"), Path::new("/bin")]).expect("no colon");
    let path = path.to_str().expect("UTF-8");
    let start =
        |desktop| Opened::start(&[], &[("PATH", path), ("DISPLAY", desktop), ("WAYLAND_DISPLAY", "")]);
    write(&format!("#!/bin/sh\necho \"$1\" > {0}.part && mv {0}.part {0}\n", asked.display()));
    let opened = start(":0");
    until("the browser is asked", || asked.exists());
    let link = std::fs::read_to_string(&asked).expect("it is there");
    assert_eq!(link.trim_end(), format!("http://{}{}", opened.address, opened.path));
    assert_eq!(opened.interrupt().0, Some(0));
    // In a terminal without a desktop no browser takes the terminal.
    std::fs::remove_file(&asked).expect("it is there");
    let opened = start("");
    opened.ask("GET / HTTP/1.1\r\n\r\n");
    assert_eq!((opened.interrupt(), asked.exists()), ((Some(0), String::new()), false));
    // A browser that fails is said, and the page is served on.
    write(&format!("#!/bin/sh\ntouch {}\nexit 3\n", asked.display()));
    let opened = start(":0");
    until("the browser is asked", || asked.exists());
    let host = opened.address;
    let page = opened.ask(&format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", opened.path));
    assert!(page.starts_with("HTTP/1.1 200"), "{page:.40}");
    let process = opened.process.id();
    until("xdg-open was waited for", || !has_child(process));
    let (code, complaints) = opened.interrupt();
    assert!(code == Some(0) && complaints.contains("open the address above"), "{code:?} {complaints}");
}

fn has_child(process: u32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    children.is_ok_and(|children| !children.trim().is_empty())
}
