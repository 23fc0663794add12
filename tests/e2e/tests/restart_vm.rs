//! A daemon with a journal is killed under load, and processes in a real guest resume as local ones do.
//!
//! The daemon is a separate process, which this program starts from its own binary, because the daemon also drives the
//! guest's agent. QEMU and the vhost-user proxy are not its children.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use e2e::embedded::{Running, remaining_state};
use e2e::guests::guests_can_run;
use e2e::journal::{PROCESSES, kills, replays, ring};
use e2e::polling::{eventually, until};
use e2e::programs::{artifacts, c_program, gpupv};
use e2e::wire::{Attached, Broker};
use gpupv::daemon::journal::JournalOptions;
use gpupv::daemon::vm::{VmEntry, VmState};
use gpupv::daemon::{Daemon, Options, machine_name};
use gpupv::fleet::guest_environment;
use gpupv::output::Steps;
use gpupv::virtual_machine::agent::{Agent, Program};
use gpupv::virtual_machine::boot;
use gpupv::virtual_machine::driver::Driver;
use gpupv::virtual_machine::image::Image;
use proto::attach::{BrokerRequest, broker_request};
use proto::convert::FromHost;
use proto::{Message as _, PROTOCOL_VERSION};
use rustix::process::Signal;
use vm_images::Vm;

const KILLS: u64 = 3;
/// Environment variables of a daemon that this program starts: its folder, and its journal.
const FOLDER_ENV: &str = "GPUPV_TEST_FOLDER";
const JOURNAL_ENV: &str = "GPUPV_TEST_JOURNAL";
/// Seconds that it waits for its clients to resume; without it there is no limit.
const RESUME_WITHIN_ENV: &str = "GPUPV_TEST_RESUME_WITHIN";
/// Its local VMs.
const LOCAL_VMS: [&str; 2] = ["X1", "X2"];
/// Prefix of each answer, to separate answers from output of the test harness.
const ANSWER: &str = "answer: ";
const BOOT_TIME_MAX: Duration = Duration::from_secs(120);

/// The daemon, when another test starts it; otherwise no test. Each line of its input is a request with a line as answer.
#[test]
fn daemon_of_a_process_of_its_own() {
    let Some(directory) = std::env::var_os(FOLDER_ENV).map(PathBuf::from) else { return };
    let folder = std::env::var_os(JOURNAL_ENV).expect("the journal's variable is set").into();
    let seconds = std::env::var(RESUME_WITHIN_ENV).ok().map(|text| text.parse().expect("a number"));
    let resume_within = seconds.map(Duration::from_secs);
    let options = Options {
        directory: directory.clone(),
        journal: Some(JournalOptions { folder, resume_within }),
        machines: 1,
        local_vms: LOCAL_VMS.map(str::to_owned).into(),
        ..Options::default()
    };
    let daemon = Daemon::start(options).expect("the daemon starts");
    let name = machine_name(1);
    let entry = daemon.vms.add(&name, &directory.join(format!("{name}.sock"))).expect("a socket");
    let driver = Driver::start().expect("a driver");
    println!("{ANSWER}serving");
    for line in std::io::stdin().lines() {
        let line = line.expect("requests are text");
        let answer = driver.handle().block_on(obey(&line, &daemon, &entry));
        // Print it as one line.
        println!("{ANSWER}{}", answer.unwrap_or_else(|error| format!("{error:#}")).escape_default());
    }
    drop(driver);
    daemon.stop().expect("the daemon stops cleanly");
}

async fn obey(line: &str, daemon: &Daemon, entry: &Arc<VmEntry>) -> anyhow::Result<String> {
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["processes"] => Ok(daemon.kernel_host.views().snapshot().processes.len().to_string()),
        ["waiting"] => Ok(daemon.kernel_host.resumption().deferred_work_count().to_string()),
        ["left"] => Ok(remaining_state(&daemon.kernel_host).join("\n")),
        ["ready"] => {
            let ready = entry.shared.wait_for(VmState::Ready, BOOT_TIME_MAX, || false);
            Ok(if ready { "yes".into() } else { "no".into() })
        }
        ["put", from, to] => {
            let put = Agent::connect(entry.clone()).await?.put(Path::new(from), to, 0o755).await;
            put.map(|()| "done".into())
        }
        ["get", path] => {
            let bytes = Agent::connect(entry.clone()).await?.get(path).await?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        ["exec", ..] => {
            let program = Program { arguments: words[1..].to_vec(), environment: guest_environment() };
            let (_, inputs) = tokio::sync::mpsc::channel(1);
            let code = Agent::connect(entry.clone()).await?.exec(&program, inputs, |_| ()).await?;
            Ok(code.to_string())
        }
        other => anyhow::bail!("unknown request {other:?}"),
    }
}

/// The daemon process. Dropping it kills the daemon.
struct Killable {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Killable {
    fn start(folder: &Path, journal: &Path) -> Killable {
        Killable::start_within(folder, journal, None)
    }

    /// The same, with this many seconds for its clients to resume.
    fn start_within(folder: &Path, journal: &Path, seconds: Option<u32>) -> Killable {
        let program = std::env::current_exe().expect("our own path");
        let mut child = Command::new(program)
            .args(["--exact", "daemon_of_a_process_of_its_own", "--nocapture"])
            .env(FOLDER_ENV, folder)
            .env(JOURNAL_ENV, journal)
            .envs(seconds.map(|seconds| (RESUME_WITHIN_ENV, seconds.to_string())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts once more");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut daemon = Killable { child, answers };
        assert_eq!(daemon.answer(), "serving");
        daemon
    }

    #[track_caller]
    fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.answers.read_line(&mut line).expect("answers are text") > 0 {
            if let Some((_, answer)) = line.trim_end_matches('\n').split_once(ANSWER) {
                return answer.to_owned();
            }
            line.clear();
        }
        panic!("the daemon has ended: {:?}", self.child.wait());
    }

    #[track_caller]
    fn ask(&mut self, request: &str) -> String {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{request}").expect("the daemon reads");
        self.answer()
    }

    fn kill(mut self) {
        self.child.kill().expect("the child process can be killed");
        self.child.wait().expect("the child process can be waited for");
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A guest with its vhost-user proxy, without its daemon.
struct Machine {
    vm: Vm,
    proxy: Child,
}

impl Machine {
    fn boot(folder: &Path, socket: &Path) -> Machine {
        let steps = Steps::new();
        let image = Image::provide(&steps, artifacts()).expect("an image");
        let proxy = gpupv(&["vm", "proxy"]).arg(socket).stdout(Stdio::null()).spawn().expect("gpupv starts");
        let held = PathBuf::from(format!("{}.held", socket.display()));
        until("the proxy's socket exists", || held.exists());
        let vm = Vm::launch(&boot::machine(&image, "vm1", &held, folder)).expect("QEMU starts");
        Machine { vm, proxy }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.vm.kill();
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

fn path_in_guest(ring: &str, process: usize) -> String {
    format!("/{ring}-{process}")
}

fn start_ring_in_guest(ring: &str, daemon: &mut Killable) {
    for process in 0..PROCESSES {
        assert_eq!(daemon.ask(&format!("exec /ring {process} {}", path_in_guest(ring, process))), "0");
    }
}

/// Starts the guest's processes; returns once each is attached.
fn ring_in_guest_is_on(ring: &str, daemon: &mut Killable, machine: &Machine) {
    for process in 0..PROCESSES {
        guest_says(daemon, &path_in_guest(ring, process), "shared", machine);
    }
}

/// Waits for the verdict of each process in the guest.
fn end_in_guest(ring: &str, daemon: &mut Killable, machine: &Machine) {
    for process in 0..PROCESSES {
        // Any existing file.
        let stop = format!("{}.stop", path_in_guest(ring, process));
        assert_eq!(daemon.ask(&format!("put {}/Cargo.toml {stop}", env!("CARGO_MANIFEST_DIR"))), "done");
    }
    for process in 0..PROCESSES {
        guest_says(daemon, &path_in_guest(ring, process), "ring: all as expected", machine);
    }
}

/// Waits for this text in the output of a process in the guest.
#[track_caller]
fn guest_says(daemon: &mut Killable, path: &str, words: &str, machine: &Machine) {
    eventually("a process in the guest prints the expected text", || {
        let answer = daemon.ask(&format!("get {path}.out"));
        assert!(!answer.contains("FAILED"), "{path} in the guest: {answer}");
        if answer.contains(words) {
            return Ok(());
        }
        let console = machine.vm.console_tail(10).join("\n");
        Err(format!("{answer}\n{}\n{console}", daemon.ask("left").replace("\\n", "\n")))
    });
}

#[test]
fn processes_in_a_guest_resume_after_each_kill_beside_local_ones() {
    if !guests_can_run() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("gpupv-e2e-").tempdir().expect("a temporary folder");
    let (journal, socket) = (folder.path().join("journal"), folder.path().join("vm1.sock"));
    let mut daemon = Killable::start(folder.path(), &journal);
    let machine = Machine::boot(folder.path(), &socket);
    assert_eq!(daemon.ask("ready"), "yes", "{}", machine.vm.diagnose());
    for program in ["ring", "fence_tour"] {
        assert_eq!(daemon.ask(&format!("put {} /{program}", c_program(program).display())), "done");
    }
    start_ring_in_guest("ring", &mut daemon);
    ring_in_guest_is_on("ring", &mut daemon, &machine);
    let mut local = ring(&folder.path().join("broker.sock"));
    for kill in 0..kills(KILLS) {
        // No process continues before all have resumed, those in the guest included.
        local.iter_mut().for_each(|process| process.write_input(b"30\n"));
        local.iter_mut().for_each(|process| process.says("on"));
        daemon.kill();
        replays(&journal, &format!("kill {kill}"));
        daemon = Killable::start(folder.path(), &journal);
    }
    local.iter_mut().for_each(|process| process.write_input(b"20\n"));
    local.iter_mut().for_each(|process| process.says("on"));
    assert_eq!(daemon.ask("ready"), "yes");
    end_in_guest("ring", &mut daemon, &machine);
    local.iter_mut().for_each(Running::end_input);
    for process in local {
        let text = process.end();
        assert!(text.ends_with("ring: all as expected\n"), "{text}");
    }
    eventually("nothing is left of the client processes", || match daemon.ask("left") {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });

    // A daemon without these sessions: the machine works with it as with any daemon.
    daemon.kill();
    replays(&journal, "in the end");
    let journal = folder.path().join("another");
    let mut daemon = Killable::start(folder.path(), &journal);
    assert_eq!(daemon.ask("ready"), "yes");
    assert_eq!(daemon.ask("exec /fence_tour"), "0");

    // A new process in the guest waits for the old ones, and is then served.
    let mut local = ring(&folder.path().join("broker.sock"));
    local[0].signal(Signal::STOP);
    daemon.kill();
    let mut daemon = Killable::start(folder.path(), &journal);
    assert_eq!(daemon.ask("ready"), "yes");
    start_ring_in_guest("new", &mut daemon);
    until("all processes wait", || daemon.ask("waiting") == PROCESSES.to_string());
    local[0].signal(Signal::CONT);
    ring_in_guest_is_on("new", &mut daemon, &machine);

    // A machine that does not reconnect ends with its processes, without an effect on others.
    assert_eq!(daemon.ask("processes"), (2 * PROCESSES).to_string());
    daemon.kill();
    drop(machine);
    let mut daemon = Killable::start_within(folder.path(), &journal, Some(10));
    local.iter_mut().for_each(|process| process.write_input(b"20\n"));
    local.iter_mut().for_each(|process| process.says("on"));
    assert_eq!(daemon.ask("processes"), PROCESSES.to_string());
    local.iter_mut().for_each(Running::end_input);
    for process in local {
        let text = process.end();
        assert!(text.ends_with("ring: all as expected\n"), "{text}");
    }
}

#[test]
fn only_the_token_in_its_own_vm_resumes_a_session_and_new_processes_wait() {
    let folder = tempfile::Builder::new().prefix("gpupv-e2e-").tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let [own, other] = LOCAL_VMS.map(|vm| folder.path().join(format!("broker-{vm}.sock")));
    let host = folder.path().join("broker.sock");
    let daemon = Killable::start(folder.path(), &journal);
    let attached = Attached::new(&own);
    let (process, token) = (attached.process, attached.resume_token.clone());
    let mut client = attached.hello();
    let device = client.open_device();
    let fence = client.create_fence(device, 5);
    assert!(client.signal(device, fence.object, 6).is_success());
    daemon.kill();

    let _daemon = Killable::start(folder.path(), &journal);
    let new = Broker::connect(&other);
    let attach = broker_request::Attach {
        version: PROTOCOL_VERSION,
        name: "new".into(),
        ..broker_request::Attach::default()
    };
    let attach = BrokerRequest { body: Some(broker_request::Body::Attach(attach)) };
    new.send(&attach.encode_to_vec());
    let mut wrong = token.clone();
    wrong[0] ^= 1;
    let refused = "it is not the session of this process";
    for (broker, process, token, expected) in [
        (&other, process, &token[..], refused),
        (&host, process, &token, refused),
        (&own, process, &wrong, refused),
        (&own, process, &token[1..], refused),
        (&own, process, &[], refused),
        (&own, process + 1, &token, "this session does not go on here"),
    ] {
        let answer = Attached::resume(broker, process, token).err().unwrap_or_default();
        assert!(answer.contains(expected), "process {process}: {answer}");
    }
    assert!(new.is_silent(), "the new process has no answer yet");
    let back = Attached::resume(&own, process, &token).expect("the token resumes the session");
    let mut client = back.hello();
    // The daemon sends unacknowledged answers again: two for the device, and one each for fence and signal.
    let answers: Vec<_> = (0..4).map(|_| client.stream.read().expect("an answer")).collect();
    for (request, answer) in (1..).zip(&answers) {
        assert!(matches!(answer, FromHost::Answer { request: of, .. } if *of == request), "{answers:?}");
    }
    assert_eq!(client.value(&fence), 6);
    assert!(client.signal(device, fence.object, 7).is_success());
    assert_eq!(client.value(&fence), 7);
    let (reply, _) = new.reply().expect("the broker answers");
    assert_eq!(reply.refused, "");
}
