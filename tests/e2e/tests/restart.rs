//! A daemon with a journal is killed under load and restarted: its client processes resume, with only a delay.

use d3dkmt::random::Random;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use covers::covers;
use d3dkmt::limits::PROCESSES_PER_VM_MAX;
use d3dkmt::{Call, NtStatus, calls};
use e2e::embedded::{Embedded, Running};
use e2e::journal::{PROCESSES, kills, replays, ring, segments};
use e2e::polling::eventually;
use e2e::programs::{gpupv, stderr};
use e2e::served::Served;
use e2e::wire::{Attached, Client, hello_frame};
use proto::attach::{BrokerRequest, broker_request};
use proto::channel::to_host;
use proto::{Message as _, PROTOCOL_VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const KILLS: u64 = 5;
const SEED_ENV: &str = "GPUPV_SEED";

/// Runs three processes in a ring while their daemon is killed and restarted this many times.
fn ring_goes_on(kills: u64, more: &[&str]) {
    let default = u64::from(std::process::id());
    let seed = std::env::var(SEED_ENV).map_or(default, |seed| seed.parse().expect("a number"));
    println!("{SEED_ENV}={seed}");
    let mut random = Random::new(seed);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let arguments = [&["--journal", journal.to_str().expect("UTF-8")], more].concat();
    let mut served = Served::start(&arguments);
    let mut processes = ring(&served.broker());
    for kill in 0..kills {
        for process in &mut processes {
            process.write_input(format!("{}\n", 1 + random.below(60)).as_bytes());
        }
        processes.iter_mut().for_each(|process| process.says("on"));
        served.kill();
        replays(&journal, &format!("seed {seed}, kill {kill}"));
        served.start_again(&arguments);
    }
    for process in &mut processes {
        process.write_input(b"20\n");
    }
    processes.iter_mut().for_each(|process| process.says("on"));
    assert_eq!(served.inspect().processes.len(), PROCESSES);
    // End all inputs first, because each process waits for its neighbour to the end.
    processes.iter_mut().for_each(Running::end_input);
    for process in processes {
        let text = process.end();
        assert!(text.ends_with("ring: all as expected\n"), "seed {seed}: {text}");
    }
    nothing_is_left(&served);
    served.terminate();
    assert_eq!(served.child.wait().expect("the child process can be waited for").code(), Some(0));
    replays(&journal, "in the end");
}

#[track_caller]
fn nothing_is_left(served: &Served) {
    eventually("nothing is left of the client processes", || {
        let left = served.inspect();
        let objects = left.objects.len() + left.waits.len() + left.devices.len() + left.contexts.len();
        if left.processes.is_empty() && objects == 0 { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

#[test]
fn processes_resume_after_each_kill_and_lose_nothing() {
    ring_goes_on(kills(KILLS), &[]);
}

#[test]
fn one_way_calls_are_executed_once_each() {
    ring_goes_on(KILLS, &["--async-submission"]);
}

/// Runs a program that makes an engine copy for each line of input, and restarts its daemon between lines.
fn copies_across_restarts(program: &str, mode: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let arguments = ["--journal", journal.to_str().expect("UTF-8")];
    let mut served = Served::start(&arguments);
    let mut copies = Running::start(Embedded::command_at(&served.broker(), program, &[mode]));
    copies.says("ready");
    for _ in 0..3 {
        copies.write_input(b"\n");
        copies.says("right");
        served.kill();
        served.start_again(&arguments);
    }
    copies.write_input(b"\n");
    assert_eq!(copies.end(), "right\n");
    nothing_is_left(&served);
}

#[test]
fn engines_reach_backing_pages_attached_before_the_restart() {
    copies_across_restarts("lists_tour", "on-demand");
}

#[test]
fn locked_memory_of_the_device_is_attached_again_after_the_restart() {
    copies_across_restarts("device_memory", "on-demand");
}

/// Only the daemon had its pages.
#[test]
fn memory_of_the_device_that_was_destroyed_behind_queued_work_is_zeros_after_the_restart() {
    for (is_killed, expected) in [(false, "copied\n"), (true, "zeros\n")] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let journal = folder.path().join("journal");
        let arguments = ["--journal", journal.to_str().expect("UTF-8")];
        let mut served = Served::start(&arguments);
        let command = Embedded::command_at(&served.broker(), "device_memory", &["destroyed-behind-work"]);
        let mut program = Running::start(command);
        program.says("ready");
        if is_killed {
            served.kill();
            served.start_again(&arguments);
        }
        program.write_input(b"\n");
        assert_eq!(program.end(), expected);
        nothing_is_left(&served);
    }
}

#[test]
fn shared_memory_of_the_device_is_attached_again_by_its_creator_or_by_who_has_locked_it() {
    covers!("MEM-036");
    copies_across_restarts("shared_device_memory", "creator-lives");
    copies_across_restarts("shared_device_memory", "creator-is-killed");
}

/// The folder of the broker's sync files.
fn sync_file_folder(served: &Served) -> std::path::PathBuf {
    served.directory().join("broker.sock.sync-files")
}

/// The sync files that the daemon has left by name.
fn named_sync_files(served: &Served) -> usize {
    std::fs::read_dir(sync_file_folder(served)).map_or(0, Iterator::count)
}

/// Also if only a process has it that makes no call, and so presents nothing.
#[test]
fn a_sync_file_made_before_the_kill_is_signaled_after_the_restart() {
    covers!("FEN-146");
    for (mode, kills) in [("kept", 3), ("passed", 1)] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let journal = folder.path().join("journal");
        let arguments = ["--journal", journal.to_str().expect("UTF-8")];
        let mut served = Served::start(&arguments);
        let mut program = Running::start(Embedded::command_at(&served.broker(), "sync_files", &[mode]));
        program.says("ready");
        for _ in 0..kills {
            assert_eq!(named_sync_files(&served), 1);
            served.kill();
            served.start_again(&arguments);
        }
        program.write_input(b"\n");
        program.says("resumed");
        program.write_input(b"\n");
        assert_eq!(program.end(), "signaled\n", "{mode}");
        nothing_is_left(&served);
        assert_eq!(named_sync_files(&served), 0);
    }
}

#[test]
fn sync_files_of_a_killed_daemon_that_is_not_resumed_become_readable() {
    covers!("FEN-145");
    let mut served = Served::start(&[]);
    let mut program = Running::start(Embedded::command_at(&served.broker(), "sync_files", &["lost"]));
    program.says("ready");
    assert_eq!(named_sync_files(&served), 0);
    served.kill();
    assert_eq!(program.end(), "readable\n");
    served.start_again(&[]);
    assert!(!sync_file_folder(&served).exists());
}

#[test]
fn the_journal_keeps_big_answers_that_a_client_may_not_have_read() {
    // More than the journal keeps for one process: clients acknowledge what they have read in time.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let served = Served::start(&["--journal", journal.to_str().expect("UTF-8")]);
    let escapes = Running::start(Embedded::command_at(&served.broker(), "big_escapes", &["big"]));
    let text = escapes.end();
    assert!(text.ends_with("big_escapes: all as expected\n"), "{text}");
    nothing_is_left(&served);
}

#[test]
fn big_escapes_are_executed_once_each_with_their_data() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let arguments = ["--journal", journal.to_str().expect("UTF-8")];
    let mut served = Served::start(&arguments);
    let mut escapes = Running::start(Embedded::command_at(&served.broker(), "big_escapes", &["on"]));
    for _ in 0..=kills(KILLS) {
        eventually("the program calls", || {
            // Each round of a thread counts two, and there are three threads. Each daemon counts from 0.
            const WANTED: u64 = 30;
            let calls = served.inspect().processes.first().map_or(0, |process| process.calls);
            if calls >= WANTED { Ok(()) } else { Err(format!("{calls} calls, not {WANTED}")) }
        });
        served.kill();
        replays(&journal, "killed while it escapes");
        served.start_again(&arguments);
    }
    escapes.end_input();
    assert!(escapes.end().ends_with("big_escapes: all as expected\n"));
    nothing_is_left(&served);
}

#[test]
fn a_process_that_does_not_resume_leaks_nothing_and_blocks_no_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let journal = journal.to_str().expect("UTF-8");
    let mut served = Served::start(&["--journal", journal, "--resume-within", "forever"]);
    let mut steady = Running::start(Embedded::command_at(&served.broker(), "lists_tour", &["on-demand"]));
    steady.says("ready");
    let start = |served: &Served| {
        let mut running =
            Running::start(Embedded::command_at(&served.broker(), "lists_tour", &["on-demand"]));
        running.says("ready");
        running
    };
    let killed = start(&served);
    served.kill();
    killed.kill();
    // The daemon waits for it without a limit, and detects its end at once.
    served.start_again(&["--journal", journal, "--resume-within", "forever"]);
    steady.write_input(b"\n");
    steady.says("right");
    assert_eq!(served.inspect().processes.len(), 1);

    let stopped = start(&served);
    stopped.signal(rustix::process::Signal::STOP);
    served.kill();
    served.start_again(&["--journal", journal, "--resume-within", "0.2"]);
    steady.write_input(b"\n");
    steady.says("right");
    assert_eq!(served.inspect().processes.len(), 1, "the stopped process did not resume");
    // Its later calls fail at once, without a daemon that does not have its session.
    stopped.signal(rustix::process::Signal::CONT);
    let (status, text) = stopped.outcome(b"\n");
    assert!(!status.success() && text.contains("0xc00002b6"), "{status}: {text}");
    assert_eq!(steady.end(), "");
    nothing_is_left(&served);
}

#[test]
fn a_journal_in_use_or_unusable_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let path = journal.to_str().expect("UTF-8");
    let refused = |arguments: &[&str], expected: &str| {
        let sockets = tempfile::tempdir().expect("a temporary folder");
        let mut command = gpupv(&["serve", "--directory"]);
        let output = command.arg(sockets.path()).args(arguments).output().expect("gpupv starts");
        let stderr_text = stderr(&output);
        assert!(
            output.status.code() == Some(2) && stderr_text.contains(expected),
            "{arguments:?}: {stderr_text}"
        );
    };
    let mut served = Served::start(&["--journal", path]);
    refused(&["--journal", path], &format!("in use by process {}", served.pid()));
    served.kill();
    refused(&["--journal", path, "--record", "x.gvt"], "cannot be used with");
    refused(&["--journal", path, "--flight-recorder", "1"], "cannot be used with");
    refused(&["--resume-within", "5"], "--journal");
    refused(&["--journal", path, "--resume-within", "soon"], "SECONDS, or `forever`");
    let segment = segments(&journal).pop().expect("a segment");
    let mut bytes = std::fs::read(&segment).expect("the segment can be read");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&segment, bytes).expect("the segment can be written");
    refused(&["--journal", path], "gpupv trace verify");
}

/// A daemon that may open as many files as `files` says when it starts. Its clients may have half of them, and one user
/// two thirds of those.
fn with_files(files: &Arc<AtomicUsize>, arguments: &[&str]) -> Served {
    let files = Arc::clone(files);
    let command = move || {
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {}; exec \"$0\" \"$@\"", files.load(Ordering::Relaxed));
        command.args(["-c", &limited]).arg(gpupv(&[]).get_program());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    Served::start_as(command, arguments)
}

/// A process that has made a call, and what it needs to resume.
struct Resumable {
    client: Client,
    resume_token: Vec<u8>,
    /// Answers that it has read.
    received: u64,
}

impl Resumable {
    fn new(served: &Served) -> Resumable {
        let attached = Attached::new(&served.broker());
        let resume_token = attached.resume_token.clone();
        let mut client = attached.hello();
        assert_eq!(client.call(&Call::EnumAdapters { capacity: 1 }).0, NtStatus::SUCCESS);
        Resumable { client, resume_token, received: 1 }
    }

    /// Its connections to the next daemon; it has to send its Hello, and present its NT handles before.
    fn resume(self, served: &Served) -> Resuming {
        let process = self.client.process;
        drop(self.client);
        let attached = Attached::resume(&served.broker(), process, &self.resume_token).expect("it resumes");
        Resuming { attached, received: self.received }
    }
}

struct Resuming {
    attached: Attached,
    received: u64,
}

impl Resuming {
    /// Presents an NT handle or a sync file; the error is the broker's refusal.
    fn present(&self, handle: impl AsFd) -> Result<(), String> {
        let body = Some(broker_request::Body::HaveNtHandle(true));
        self.attached.broker.send_with(&BrokerRequest { body }.encode_to_vec(), handle.as_fd());
        let (reply, _) = self.attached.broker.reply().expect("the broker answers");
        if reply.refused.is_empty() { Ok(()) } else { Err(reply.refused) }
    }
}

/// Sends the Hello of each, and waits for the Welcomes, which come once all are back.
fn welcomed(resuming: Vec<Resuming>) -> Vec<Client> {
    std::thread::scope(|scope| {
        let greet = |Resuming { attached, received }: Resuming| {
            let mut hello = hello_frame(PROTOCOL_VERSION, &attached.token);
            let Some(to_host::Body::Hello(body)) = &mut hello.body else { unreachable!("it is a Hello") };
            body.received = received;
            attached.greet(&hello).0
        };
        let greeted: Vec<_> = resuming.into_iter().map(|one| scope.spawn(move || greet(one))).collect();
        greeted.into_iter().map(|thread| thread.join().expect("it is welcome")).collect()
    })
}

fn make_sync_file(client: &Client) -> Result<OwnedFd, String> {
    let (reply, mut files) = client.broker.request(broker_request::Body::MakeSyncFile(true));
    files.pop().ok_or(reply.refused)
}

fn readable(files: &[OwnedFd]) -> usize {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled: Vec<_> = files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
    poll(&mut polled, Some(&now)).expect("they can be polled")
}

/// A wait that ends early would be worse than any refusal.
#[test]
fn a_full_budget_makes_no_sync_file_readable_and_does_not_shut_out_the_daemons_user() {
    const FILES: usize = 120;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let arguments = ["--journal", journal.to_str().expect("UTF-8")];
    let limit = Arc::new(AtomicUsize::new(600));
    let mut served = with_files(&limit, &arguments);
    let process = Resumable::new(&served);
    let files: Vec<_> =
        (0..FILES).map(|_| make_sync_file(&process.client).expect("within the share")).collect();
    served.kill();
    // The share of one user is 100 now.
    limit.store(300, Ordering::Relaxed);
    served.start_again(&arguments);
    assert_eq!(readable(&files), 0, "after the restart");
    let resuming = process.resume(&served);
    for file in &files[..10] {
        assert_eq!(resuming.present(file), Ok(()));
    }
    let clients = welcomed(vec![resuming]);
    assert_eq!(readable(&files), 0, "after the process has resumed");
    let mut other = Client::new(&served.broker());
    other.open_device();
    drop(files);
    drop((other, clients));
    nothing_is_left(&served);
    // A thread of the daemon closes those that were presented.
    eventually("no sync file is left", || match named_sync_files(&served) {
        0 => Ok(()),
        left => Err(left.to_string()),
    });
}

/// As a client does that has no descriptor left for the stream.
#[test]
fn a_process_whose_resumption_fails_half_way_tries_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let arguments = ["--journal", journal.to_str().expect("UTF-8")];
    let mut served = Served::start(&arguments);
    let process = Resumable::new(&served);
    served.kill();
    served.start_again(&arguments);
    for _ in 0..3 {
        let again = Attached::resume(&served.broker(), process.client.process, &process.resume_token);
        drop(again.expect("the session is still there"));
    }
    let mut clients = welcomed(vec![process.resume(&served)]);
    assert_eq!(clients[0].call(&Call::EnumAdapters { capacity: 1 }).0, NtStatus::SUCCESS);
    drop(clients);
    nothing_is_left(&served);
}

/// Each has read its answers, and none has so many that it would report that.
#[test]
fn what_idle_processes_have_read_cuts_off_none() {
    const PROCESSES: usize = 100;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let served = Served::start(&["--journal", journal.to_str().expect("UTF-8")]);
    let mut processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let command = Embedded::command_at(&served.broker(), "big_escapes", &["then-idle"]);
            let mut process = Running::start(command);
            process.says("idle");
            process
        })
        .collect();
    for process in &mut processes {
        process.write_input(b"\n");
    }
    for process in processes {
        let text = process.end();
        assert!(text.ends_with("big_escapes: all as expected\n"), "{text}");
    }
    nothing_is_left(&served);
}

#[test]
fn descriptors_of_processes_that_resume_count_for_their_user_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let arguments = ["--journal", journal.to_str().expect("UTF-8")];
    let mut served = with_files(&Arc::new(AtomicUsize::new(300)), &arguments);
    let processes: Vec<_> = (0..20).map(|_| Resumable::new(&served)).collect();
    // They are all open until the last one is refused.
    let sync_files =
        |client: &Client| std::iter::from_fn(|| make_sync_file(client).ok()).collect::<Vec<_>>().len();
    let before = sync_files(&processes[0].client);
    served.kill();
    served.start_again(&arguments);
    let clients = welcomed(processes.into_iter().map(|process| process.resume(&served)).collect());
    assert_eq!(sync_files(&clients[0]), before);
    drop(clients);
    nothing_is_left(&served);
}

#[test]
fn places_of_processes_that_resume_count_for_their_user_again() {
    const RESUMED: usize = 50;
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("up to the hard limit");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let arguments = ["--journal", journal.to_str().expect("UTF-8")];
    let mut served = Served::start(&arguments);
    let processes: Vec<_> = (0..RESUMED).map(|_| Resumable::new(&served)).collect();
    served.kill();
    served.start_again(&arguments);
    let mut clients = welcomed(processes.into_iter().map(|process| process.resume(&served)).collect());
    let most = PROCESSES_PER_VM_MAX * 2 / 3;
    let refused = loop {
        assert!(clients.len() <= most, "one user has {} processes", clients.len());
        match Attached::try_new(&served.broker()) {
            Ok(attached) => clients.push(attached.hello()),
            Err(refused) => break refused,
        }
    };
    assert!(refused.contains(&format!("has {most} processes")), "{refused}");
    drop(clients);
    nothing_is_left(&served);
}

/// A sealed file with the bytes of an NT handle, as any process that was given one can make it.
fn forged(handle: &OwnedFd) -> OwnedFd {
    let mut bytes = [0; 24];
    assert_eq!(rustix::io::pread(handle, &mut bytes, 0), Ok(bytes.len()));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("forged", flags).expect("a memfd");
    assert_eq!(rustix::io::write(&file, &bytes), Ok(bytes.len()));
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals).expect("it can be sealed");
    file
}

#[test]
fn a_forged_nt_handle_that_is_closed_ends_no_object() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let arguments = ["--journal", journal.to_str().expect("UTF-8")];
    let mut served = Served::start(&arguments);
    let (mut owner, other) = (Resumable::new(&served), Resumable::new(&served));
    let device = owner.client.open_device();
    let fence = owner.client.create_shared_fence(device);
    let (token, handle) = owner.client.make_nt_handle().expect("an NT handle");
    assert_eq!(owner.client.call(&calls::share(fence, token, None)).0, NtStatus::SUCCESS);
    owner.received += 4;
    served.kill();
    served.start_again(&arguments);
    let (owner, other) = (owner.resume(&served), other.resume(&served));
    assert_eq!(owner.present(&handle), Ok(()));
    let forged = forged(&handle);
    assert_eq!(other.present(&forged), Ok(()));
    drop(forged);
    let mut clients = welcomed(vec![owner, other]);
    // The broker looks for closes before it makes the next handle.
    drop(clients[1].make_nt_handle().expect("another NT handle"));
    assert_eq!(clients[0].call(&calls::open(device, token)).0, NtStatus::SUCCESS);
    drop(handle);
    // What it presented is closed by another thread.
    eventually("the NT handle is closed", || {
        drop(clients[1].make_nt_handle().expect("another NT handle"));
        match clients[0].call(&calls::open(device, token)).0 {
            NtStatus::INVALID_HANDLE => Ok(()),
            status => Err(format!("{status}")),
        }
    });
    drop(clients);
    nothing_is_left(&served);
}
