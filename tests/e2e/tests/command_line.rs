//! The real `gpupv` binary: output, exit codes, sockets.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use d3dkmt::{EventId, NtStatus, WaitOutcome};
use e2e::polling::until;
use e2e::programs::{build_bench, c_program, closed, full, gpupv, gpupv_binary, stderr, stdout};
use e2e::served::{Served, block_on};
use e2e::wire::{Broker, Client};
use gpupv::artifacts::LIBDIR_ENV;
use gpupv::daemon::control;
use proto::convert::FromHost;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

fn run(arguments: &[&str]) -> Output {
    gpupv(arguments).stdin(Stdio::null()).output().expect("gpupv starts")
}

#[test]
fn a_wrong_flag_is_a_usage_error_with_a_suggestion() {
    for (arguments, expected) in [
        (&["inspect", "--jsn"][..], "--json"),
        (&["run", "--recrd", "x.gvt", "--", "true"], "--record"),
        (&["vm", "run", "--vm", "2", "--", "/x"], "--vms"),
        (&["serv"], "serve"),
        (&["replay"], "<TRACE>"),
        (&["run"], "<PROG>"),
        (&["serve", "--vms", "many"], "many"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_missing_program_is_a_set_up_error_with_its_name() {
    let output = run(&["run", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot start /no/such/program"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("PATH"), "it was named by its path: {}", stderr(&output));
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("fence_tour"), "").expect("a file");
    for (program, says) in [
        ("fence_tour", "cannot start fence_tour: it is not on PATH; did you mean ./fence_tour?"),
        ("fence_tours", "cannot start fence_tours: name a program by its path or put it on PATH"),
    ] {
        let mut command = gpupv(&["run", program]);
        let output = command.current_dir(folder.path()).output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
    let output = run(&["run", "--", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/etc/passwd"), "{}", stderr(&output));
}

/// Ctrl-C reaches the terminal's whole foreground process group; gpupv passes on signals sent to it alone.
#[test]
fn a_run_that_is_interrupted_ends_with_its_program_and_leaves_no_folder() {
    for (signal, to_all, code) in
        [(Signal::INT, true, 130), (Signal::TERM, false, 143), (Signal::HUP, false, 129)]
    {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = gpupv(&["run", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
        command.env("TMPDIR", folder.path()).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = command.spawn().expect("gpupv starts");
        let mut ready = [0; 6];
        running.stdout.take().expect("a pipe").read_exact(&mut ready).expect("the program says it");
        assert_eq!(&ready, b"ready\n");
        let left = || std::fs::read_dir(folder.path()).expect("readable").count();
        assert_eq!(left(), 1, "a folder with sockets, while it runs");
        let pid = Pid::from_child(&running);
        let sent = if to_all { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
        sent.expect("the signal was sent");
        assert_eq!(
            running.wait().expect("the child process can be waited for").code(),
            Some(code),
            "{signal:?}"
        );
        assert_eq!(left(), 0, "{signal:?}");
    }
}

#[test]
fn a_file_that_cannot_be_copied_into_a_guest_is_named_before_boot() {
    for (with, expected) in [
        ("/no/such/file", "/no/such/file does not exist on this machine: name a file"),
        ("/etc/passwd:relative", "must be absolute"),
    ] {
        let output = run(&["vm", "run", "--with", with, "--", "/x"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn a_proxy_of_what_is_no_socket_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = run(&["vm", "proxy", folder.path().to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("is no socket: name a VM's socket"), "{}", stderr(&output));
}

#[test]
fn a_programs_exit_code_and_signal_pass_through() {
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)]
    {
        assert_eq!(run(&["run", "--", "sh", "-c", script]).status.code(), Some(code), "{script}");
    }
    // The program's flags are not gpupv's.
    let output = run(&["run", "echo", "--json", "-n", "x"]);
    assert_eq!(stdout(&output), "--json -n x\n");
    assert_eq!(stderr(&output), "", "gpupv run has no such options");
    let output = run(&["run", "echo", "--record", "t.gvt"]);
    assert_eq!(stdout(&output), "--record t.gvt\n");
    assert!(stderr(&output).contains("--record stands behind echo, so echo gets it"), "{}", stderr(&output));
}

#[test]
fn a_recording_never_replaces_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("t.gvt");
    let record =
        || gpupv(&["run", "--record"]).arg(&trace).args(["--", "true"]).output().expect("gpupv starts");
    assert_eq!(record().status.code(), Some(0));
    let first = std::fs::read(&trace).expect("the recording");
    let tour = || gpupv(&["demo", "--local", "--record"]).arg(&trace).output().expect("gpupv starts");
    for output in [record(), tour()] {
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        let says = "t.gvt exists: name another file with --record";
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(std::fs::read(&trace).expect("still there"), first);
    }
}

#[test]
fn a_tour_records_into_the_named_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("tour.gvt");
    let output = gpupv(&["demo", "--local", "--record"])
        .arg(&trace)
        .stdin(Stdio::null())
        .output()
        .expect("gpupv starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(trace.is_file(), "no trace was written: {}", stdout(&output));
    let output = gpupv(&["trace", "verify", "--json"]).arg(&trace).output().expect("gpupv starts");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((found["whole"].as_bool(), found["ended"].as_bool()), (Some(true), Some(true)), "{found}");
    assert!(found["steps"].as_u64() > Some(20), "{found}");
}

#[test]
fn a_program_finds_the_broker_and_the_library_by_its_environment() {
    let output = run(&["run", "--", c_program("fence_tour").to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), include_str!("golden/fence_tour.txt"));
    // Without a daemon the program fails with a message instead of hanging.
    let mut alone = std::process::Command::new(c_program("fence_tour"));
    alone.env("LD_LIBRARY_PATH", &e2e::programs::artifacts().directory);
    let output = alone.env("GPUPV_BROKER", "/no/such/socket").output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/no/such/socket"), "{}", stderr(&output));
}

#[test]
fn a_second_daemon_in_one_folder_names_the_first() {
    let served = Served::start(&[]);
    let output = gpupv(&["serve", "--directory"]).arg(served.directory()).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(&format!("process {}", served.pid())), "{}", stderr(&output));
    assert!(stderr(&output).contains("broker.sock is in use"), "{}", stderr(&output));
    // The first one is not disturbed.
    assert_eq!(served.inspect().pid, served.pid());
}

#[test]
fn sockets_that_a_killed_daemon_left_are_replaced() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sockets = ["broker.sock", "control.sock", "vm1.sock"];
    for name in sockets {
        // Bound and closed: the file stays, without a listener.
        drop(std::os::unix::net::UnixListener::bind(folder.path().join(name)).expect("it binds"));
    }
    let served = Served::start_in(folder, &[]);
    assert_eq!(served.inspect().vms.len(), 1);
}

/// The dump of a reset would be the only record of it.
#[test]
fn the_folder_of_dumps_is_made_at_the_start_or_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("dumps");
    let _served = Served::start(&["--flight-recorder", "1", "--dumps", missing.to_str().expect("UTF-8")]);
    assert!(missing.is_dir());
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("writable");
    let directory = folder.path().to_str().expect("UTF-8");
    for (arguments, program) in
        [(&["serve", "--directory", directory][..], &[][..]), (&["run"], &["--", "true"])]
    {
        let mut command = gpupv(arguments);
        command.args(["--flight-recorder", "1", "--dumps"]).arg(&file).args(program).stdin(Stdio::null());
        let output = command.output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stdout(&output));
        let says = format!("cannot write dumps of the flight recorder into {}", file.display());
        assert!(stderr(&output).contains(&says), "{}", stderr(&output));
    }
}

/// Programs get "no adapter", which does not say why.
#[test]
fn an_adapter_that_does_not_start_is_in_the_log() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("c.toml");
    std::fs::write(&config, "[[adapter]]\npaging_node = 5\n[[adapter.node]]\nengine = \"3D\"\n")
        .expect("writable");
    let output =
        gpupv(&["run", "--config"]).arg(&config).args(["--", "true"]).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(0));
    let says = "ERROR adapter 0 did not start: PagingNode 5: the adapter has 1 nodes";
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
}

#[test]
fn settings_of_a_vm_that_a_daemon_does_not_have_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("c.toml");
    std::fs::write(&config, "[[vm]]\nname = \"vm-1\"\nsecure = true\n").expect("writable");
    for arguments in [&["serve", "--config"][..], &["vm", "run", "--config"]] {
        let mut command = gpupv(arguments);
        command.arg(&config).stdin(Stdio::null());
        if arguments[0] == "vm" {
            command.args(["--", "/x"]);
        }
        let output = command.output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        let says = "c.toml: line 2, column 8: no VM of this daemon is named \"vm-1\": it has vm1 (--vms)";
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

/// Services, cron and containers with a numeric user have no HOME.
#[test]
fn a_doctor_without_a_home_shows_all_that_it_finds() {
    let mut command = gpupv(&["doctor", "--json"]);
    for name in ["HOME", "XDG_CACHE_HOME", "GPUPV_CACHE"] {
        command.env_remove(name);
    }
    let output = command.stdin(Stdio::null()).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = found["requirements"].as_array().expect("a list");
    let cache = rows.iter().find(|row| row["name"] == "cache folder").expect("a row");
    assert_eq!(cache["state"], "missing", "{found:#}");
    assert!(cache["detail"].as_str().is_some_and(|detail| detail.contains("set GPUPV_CACHE")), "{cache:#}");
    assert!(rows.len() > 5, "{found:#}");
}

#[test]
fn a_terminated_daemon_removes_its_sockets() {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::TERM, Signal::INT] {
        let mut served = Served::start(&["--vms", "2"]);
        kill_process(Pid::from_child(&served.child), signal).expect("the process can be signaled");
        assert_eq!(
            served.child.wait().expect("the child process can be waited for").code(),
            Some(0),
            "{signal:?}"
        );
        let left: Vec<_> = std::fs::read_dir(served.directory()).expect("the folder").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn repeated_protocol_errors_of_a_user_are_rate_limited_in_the_log_and_counted() {
    const CONNECTIONS: u64 = 1000;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let to = log.clone();
    let command = move || {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 2> \"$0\""]).arg(&to).arg(gpupv_binary());
        command.stdout(Stdio::null());
        command
    };
    let mut served = Served::start_as(command, &[]);
    for _ in 0..CONNECTIONS {
        let broker = Broker::connect(&served.broker());
        broker.send(b"nonsense");
        assert!(
            broker.reply().is_some_and(|(reply, _)| !reply.refused.is_empty()) && broker.reply().is_none()
        );
    }
    served.terminate();
    assert_eq!(served.child.wait().expect("the child process can be waited for").code(), Some(0));
    let text = std::fs::read_to_string(&log).expect("the log can be read");
    let printed = text.lines().filter(|line| line.contains("a local process is refused")).count() as u64;
    let left_out = text.lines().filter_map(|line| {
        let (before, _) = line.split_once(" more lines were left out")?;
        before.rsplit(' ').next()?.parse::<u64>().ok()
    });
    let left_out: u64 = left_out.sum();
    assert!(
        printed > 0 && left_out > 0 && printed + left_out == CONNECTIONS,
        "{printed} and {left_out}: {text}"
    );
}

#[test]
fn inspect_without_a_daemon_suggests_serve_or_directory() {
    let output = run(&["inspect", "--directory", "/no/such/folder"]);
    assert_eq!(output.status.code(), Some(2));
    for expected in ["/no/such/folder/control.sock", "gpupv serve", "--directory"] {
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn inspect_prints_text_for_people_and_json_for_programs() {
    let served = Served::start(&["--vms", "3"]);
    let inspect = |more: &[&str]| {
        let mut command = gpupv(&["inspect", "--directory"]);
        let output = command.arg(served.directory()).args(more).output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    let state: Value = serde_json::from_str(&inspect(&["--json"])).expect("JSON");
    assert_eq!(state["pid"], served.pid());
    assert_eq!(state["vms"].as_array().map(Vec::len), Some(3));
    assert_eq!(state["vms"][0]["state"], "waiting for QEMU");
    for list in ["processes", "devices", "contexts", "objects", "waits"] {
        assert_eq!(state[list], Value::Array(Vec::new()), "{list}");
    }
    assert!(inspect(&[]).starts_with(&format!("daemon {}: ", served.pid())));
}

#[test]
fn a_closed_stdout_keeps_the_exit_code_and_a_full_disk_fails() {
    let served = Served::start(&[]);
    let directory = served.directory().to_str().expect("UTF-8");
    let trace = format!("{directory}/recorded.gvt");
    assert_eq!(run(&["run", "--record", &trace, "--", "true"]).status.code(), Some(0));
    for arguments in [
        &["inspect", "--directory", directory][..],
        &["inspect", "--directory", directory, "--json"],
        &["replay", &trace],
        &["replay", &trace, "--json"],
        &["doctor"],
        &["demo", "--local"],
    ] {
        let code = run(arguments).status.code();
        let unread = gpupv(arguments).stdout(closed()).output().expect("gpupv starts");
        assert_eq!(unread.status.code(), code, "{arguments:?}: {}", stderr(&unread));
        assert!(!stderr(&unread).contains("cannot print"), "{arguments:?}: {}", stderr(&unread));
        let lost = gpupv(arguments).stdout(full()).output().expect("gpupv starts");
        assert_eq!(lost.status.code(), Some(2), "{arguments:?}: {}", stderr(&lost));
        assert!(stderr(&lost).contains("gpupv: cannot print: "), "{arguments:?}: {}", stderr(&lost));
    }
}

#[test]
fn a_daemon_serves_with_its_stdout_closed_or_full() {
    for stdout in [closed(), full()] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let served = Served::start_saying(folder, &["--vms", "2"], stdout);
        assert_eq!(served.inspect().vms.len(), 2);
    }
}

#[test]
fn the_control_socket_answers_health_and_reflection() {
    let served = Served::start(&[]);
    block_on(async {
        let channel = control::channel(served.directory()).await.expect("it connects");
        let service = "gpupv.control.v1.Control";
        let health = HealthCheckRequest { service: service.into() };
        let health = HealthClient::new(channel.clone()).check(health).await.expect("health answers");
        assert_eq!(health.into_inner().status, 1, "serving");
        let served = |reflection: &str| [reflection, service, "grpc.health.v1.Health"].map(str::to_owned);
        assert_eq!(services(channel.clone()).await, served("grpc.reflection.v1.ServerReflection"));
        // grpcurl of Debian knows this version only.
        let request = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(v1alpha::server_reflection_request::MessageRequest::ListServices(
                String::new(),
            )),
        };
        let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
        let replies = client.server_reflection_info(tokio_stream::once(request)).await;
        let reply = replies.expect("reflection answers").into_inner().message().await.expect("a reply");
        let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) =
            reply.and_then(|reply| reply.message_response)
        else {
            panic!("another reply")
        };
        let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
        assert_eq!(names, served("grpc.reflection.v1alpha.ServerReflection"));
    });
}

/// Service names from gRPC reflection.
async fn services(channel: tonic::transport::Channel) -> Vec<String> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel);
    let replies = client.server_reflection_info(tokio_stream::once(request)).await;
    let reply = replies.expect("reflection answers").into_inner().message().await;
    let Ok(Some(ServerReflectionResponse { message_response: Some(response), .. })) = reply else {
        panic!("no reply: {reply:?}")
    };
    let MessageResponse::ListServicesResponse(list) = response else { panic!("another reply: {response:?}") };
    list.service.into_iter().map(|service| service.name).collect()
}

#[test]
fn without_qemu_the_command_that_installs_it_is_named() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let output = gpupv(&["vm", "run", "--", "/x"]).env("PATH", empty.path()).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    for expected in ["qemu-system-x86_64", "install", "qemu-system-x86", "gpupv doctor --fix"] {
        assert!(stderr(&output).contains(expected), "{expected:?} is missing: {}", stderr(&output));
    }
}

#[test]
fn doctor_json_names_missing_requirements_and_their_fixes() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let output = gpupv(&["doctor", "--json"]).env("PATH", empty.path()).output().expect("gpupv starts");
    assert_ne!(output.status.code(), Some(0), "QEMU is missing");
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let requirements = findings["requirements"].as_array().expect("a list");
    let qemu = requirements.iter().find(|requirement| requirement["name"] == "QEMU").expect("it is needed");
    assert_eq!(qemu["state"], "missing");
    assert!(qemu["mend"].as_str().is_some_and(|mend| mend.contains("qemu-system-x86")), "{qemu}");
}

#[test]
fn doctor_without_fix_makes_no_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cache = folder.path().join("below/cache");
    let output = gpupv(&["doctor", "--json"]).env("GPUPV_CACHE", &cache).output().expect("gpupv starts");
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let requirements = findings["requirements"].as_array().expect("a list");
    let found = requirements.iter().find(|one| one["name"] == "cache folder").expect("it is listed");
    assert_eq!(found["state"], "ok");
    assert_eq!(found["detail"], format!("{} (made when first needed)", cache.display()));
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
}

#[test]
fn console_logs_of_an_earlier_run_are_replaced_only_by_force() {
    let (folder, empty) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let log = folder.path().join("vm2.console.log");
    std::fs::write(&log, "earlier").expect("writable");
    let start = |more: &[&str]| {
        let mut command = gpupv(&["vm", "run", "--console"]);
        command.arg(folder.path()).args(more).args(["--", "/x"]).env("PATH", empty.path());
        command.output().expect("gpupv starts")
    };
    let output = start(&["--vms", "2"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let says = "vm2.console.log exists: name another folder with --console, or replace its logs with --force";
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
    // The log of another guest is no obstacle; without QEMU, no guest boots.
    for more in [&["--vms", "2", "--force"][..], &["--vms", "1"]] {
        let output = start(more);
        assert!(stderr(&output).contains("qemu-system-x86_64"), "{more:?}: {}", stderr(&output));
    }
    assert_eq!(std::fs::read(&log).expect("still there"), b"earlier");
}

#[test]
fn doctor_and_serve_say_that_the_program_for_drivers_in_c_is_missing() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let without = |arguments: &[&str]| {
        let mut command = gpupv(arguments);
        command.env(LIBDIR_ENV, empty.path()).current_dir(empty.path()).output().expect("gpupv starts")
    };
    let output = without(&["doctor", "--json"]);
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let requirements = findings["requirements"].as_array().expect("a list");
    let host =
        requirements.iter().find(|requirement| requirement["name"] == "driver-host").expect("it is listed");
    assert_eq!(host["state"], "missing (optional)");
    assert!(
        host["mend"].as_str().is_some_and(|mend| mend.contains("cargo build --release -p driver-host")),
        "{host}"
    );
    std::fs::write(empty.path().join("c.toml"), "[[adapter]]\nkmd = \"./driver.so\"\n")
        .expect("it is written");
    let output = without(&["serve", "--config", "c.toml", "--directory", "d"]);
    assert_eq!(output.status.code(), Some(2));
    let why = stderr(&output);
    assert!(why.contains("which has no driver-host") && why.contains("cargo build --release"), "{why}");
}

#[test]
fn bench_is_a_program_of_its_own_whose_output_and_exit_code_are_those_of_gpupv() {
    build_bench();
    let output = run(&["bench", "--only", "satisfied_wait", "--quick", "--json"]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
    let measured: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = measured["figures"].as_array().expect("a list");
    assert!(figures.iter().all(|figure| figure["figure"] == "satisfied_wait") && !figures.is_empty());
    let output = run(&["bench", "--only", "no-such-figure"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no figure has"), "{}", stderr(&output));
    let empty = tempfile::tempdir().expect("a folder");
    let output = gpupv(&["bench"]).env(LIBDIR_ENV, empty.path()).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    for expected in ["has no gpupv-bench", "cargo build --release -p gpupv-bench -p guest-bench"] {
        assert!(stderr(&output).contains(expected), "{expected:?} is missing: {}", stderr(&output));
    }
}

/// Replaces a program by a script.
fn script(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}")).expect("writable");
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, runs).expect("it is ours");
}

#[test]
fn bench_builds_once_and_before_it_measures() {
    build_bench();
    let folder = tempfile::tempdir().expect("a folder");
    let (cargo, called) = (folder.path().join("cargo"), folder.path().join("called"));
    // All is built already.
    script(&cargo, &format!("echo \"$*\" >>{}\n", called.display()));
    let mut command = Command::new(gpupv_binary());
    command.args(["bench", "--only", "satisfied_wait", "--quick", "--json"]).env("CARGO", &cargo);
    let output = command.env_remove(LIBDIR_ENV).stdin(Stdio::null()).output().expect("gpupv starts");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
    let called = std::fs::read_to_string(&called).expect("cargo was called");
    assert_eq!(called.lines().count(), 1, "{called}");

    // What only the guest needs is missing: nothing is measured before that is known.
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).expect("writable");
    let bench = gpupv_binary().with_file_name("gpupv-bench");
    std::os::unix::fs::symlink(bench, programs.join("gpupv-bench")).expect("writable");
    let measured = folder.path().join("measured");
    script(&programs.join("guest-bench"), &format!("touch {}\nexit 1\n", measured.display()));
    let mut command = gpupv(&["bench", "--vm", "--only", "satisfied_wait", "--quick"]);
    let output = command.env(LIBDIR_ENV, &programs).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("has no libdxcore.so"), "{}", stderr(&output));
    assert!(!measured.exists(), "guest-bench was started");
}

#[test]
fn a_bad_configuration_is_named_and_no_daemon_starts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("gpupv.toml");
    std::fs::write(&config, "[policy]\nlower_gpu_signal = \"perhaps\"\n").expect("writable");
    let sockets = folder.path().join("sockets");
    let output = gpupv(&["serve", "--config"]).arg(&config).arg("--directory").arg(&sockets).output();
    let output = output.expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("gpupv.toml") && stderr(&output).contains("ignored, applied"));
    assert!(!sockets.exists());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let output = run(&["serve", "--directory", "/proc/no/folder"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/proc/no/folder"), "{}", stderr(&output));
    assert!(Path::new(gpupv_binary()).is_file());
}

/// `gpupv inject` on a daemon.
fn inject(served: &Served, words: &[&str]) -> Output {
    let mut command = gpupv(&["inject", "--directory"]);
    command.arg(served.directory()).args(words).stdin(Stdio::null()).output().expect("gpupv starts")
}

#[test]
fn injected_faults_are_printed_recorded_and_replayed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("injected.gvt");
    let trace = trace.to_str().expect("UTF-8");
    let mut served = Served::start(&["--record", trace]);
    for (words, expected) in [
        (&["hang", "3D"][..], "engine 0.0 hangs"),
        (&["lose-interrupt COPY"], "engine 0.2 loses an interrupt"),
        (&["reset_fails", "3D"], "the next reset of engine 0.0 fails"),
        (&["page_fault", "3D", "at=0x1000", "WRITE"], "engine 0.0 faults at 0x1000 (flags 0x1)"),
        (&["f1", "COMPUTE"], "engine 0.1 goes to F1"),
        (&["power", "0", "off"], "adapter 0 goes to D3"),
        (&["power 0 on"], "adapter 0 goes to D0"),
        (&["object-bad", "0", "usage=7"], "an object of usage 7 of adapter 0 goes bad"),
        (&["stop_adapter", "0"], "adapter 0 stops"),
        (&["start-adapter", "0"], "adapter 0 starts again"),
        (&["stop_adapter", "0"], "adapter 0 stops"),
        (&["start-adapter", "0"], "adapter 0 starts again"),
        (&["update-driver", "0", "2.0.0.1"], "the driver of adapter 0 is updated to 2.0.0.1"),
        (&["stop_adapter", "0"], "adapter 0 stops"),
    ] {
        let output = inject(&served, words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
        assert!(stdout(&output).contains(expected), "{words:?}: {}", stdout(&output));
    }
    assert_eq!(served.inspect().stopped_adapters.len(), 1);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&served.child),
        rustix::process::Signal::TERM,
    )
    .expect("it runs");
    assert_eq!(served.child.wait().expect("the child process can be waited for").code(), Some(0));
    let replayed = run(&["replay", "--json", trace]);
    assert_eq!(replayed.status.code(), Some(0), "{}", stdout(&replayed));
    let verdict: Value = serde_json::from_str(stdout(&replayed)).expect("JSON");
    assert!(verdict["steps"].as_u64().is_some_and(|steps| steps >= 9), "{verdict}");
}

#[test]
fn an_invalid_fault_is_refused_with_the_valid_choices() {
    let served = Served::start(&[]);
    for (words, wanted) in [
        (&["hnag", "3D"][..], "lose_interrupt"),
        (&["hang", "4D"], "VIDEO_DECODE"),
        (&["hang", "3D.7"], "there is no adapter 7: the daemon has 1, numbered from 0"),
        (&["hang"], "an engine"),
        (&["hang", "3D", "twice"], "twice"),
        (&["stop_adapter", "9"], "there is no adapter 9: the daemon has 1, numbered from 0"),
        (&["power", "0", "dimmed"], "`on` or `off`"),
        (&["kill", "p"], "there is no fault `kill` of a running daemon"),
        (&["freeze", "nobody"], "no process \"nobody\" is attached"),
        (&["pause", "nobody"], "no VM \"nobody\" is attached"),
        (&["resume"], "the name or the number of a VM"),
        (&["pause", "a", "b"], "b"),
        (&["start_adapter", "0"], "the adapter is not stopped"),
        (&["start_adapter", "9"], "9"),
        (&["update_driver", "0", "2.0"], "four numbers up to 65535"),
        (&["update_driver", "0", "2.0.0.65536"], "four numbers up to 65535"),
        (&["update_driver", "0", "2.0.0.1", "kmd=mine"], "start the daemon anew with that `kmd`"),
        (&["remove_adapter", "9", "a"], "there is no adapter 9"),
        (&["remove_adapter", "0", "nobody"], "no VM \"nobody\" is attached"),
        (&["add_adapter", "0"], "the name or the number of a VM"),
        (&["page_fault", "3D", "at=0", "flags=0x80000000"], "reserved bits"),
        (&[" "], "expected a fault"),
    ] {
        let output = inject(&served, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(wanted), "{words:?}: {}", stderr(&output));
        for of_scenarios in ["scenario", "`config "] {
            assert!(!stderr(&output).contains(of_scenarios), "{words:?}: {}", stderr(&output));
        }
    }
    assert_eq!(served.inspect().stopped_adapters.len(), 0, "the refused faults had no effect");
    let json = inject(&served, &["--json", "hang", "3D"]);
    let printed: Value = serde_json::from_str(stdout(&json)).expect("JSON");
    assert!(printed["injected"].as_str().is_some_and(|what| what.contains("engine 0.0 hangs")), "{printed}");
    assert_eq!(inject(&served, &["stop_adapter", "0"]).status.code(), Some(0));
    let again = inject(&served, &["stop_adapter", "0"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("stopped already"), "{}", stderr(&again));
}

#[test]
fn a_fault_that_no_work_has_met_yet_is_shown_with_its_engine() {
    let served = Served::start(&[]);
    for words in ["hang 3D", "lose_interrupt COPY", "lose_interrupt COPY", "reset_fails COPY"] {
        assert_eq!(inject(&served, &[words]).status.code(), Some(0), "{words}");
    }
    let output = gpupv(&["inspect", "--directory"]).arg(served.directory()).output().expect("gpupv starts");
    for line in [
        "engine 0.0 (3D): idle; injected: the next packet hangs",
        "engine 0.2 (COPY): idle; injected: each of the next 2 interrupts is lost; injected: the next reset fails",
    ] {
        assert!(stdout(&output).lines().any(|shown| shown == line), "{line}: {}", stdout(&output));
    }
    assert_eq!(stdout(&output).matches("engine 0.").count(), 2, "{}", stdout(&output));
    assert_eq!(served.inspect().engines[0].pending_faults, ["the next packet hangs"]);
}

#[test]
fn a_stopped_daemon_is_reported_once_and_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dumps = folder.path().to_str().expect("UTF-8");
    let served = Served::start(&["--flight-recorder", "1", "--dumps", dumps]);
    let signal = |signal| kill_process(Pid::from_child(&served.child), signal).expect("it runs");
    let trace = format!("{dumps}/dump.gvt");
    let commands = [
        &["inspect"][..],
        &["inspect", "--watch"],
        &["why"],
        &["why", "--watch", "1s"],
        &["inject", "hang", "3D"],
        &["doctor", "--security"],
        &["trace", "dump", &trace],
    ];
    signal(Signal::STOP);
    let start = |(at, words): (usize, &&[&str])| {
        let said = folder.path().join(format!("{at}.txt"));
        let mut command = gpupv(words);
        command.arg("--directory").arg(served.directory()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&said).expect("a file"));
        (command.spawn().expect("gpupv starts"), said)
    };
    let asking: Vec<(Child, PathBuf)> = commands.iter().enumerate().map(start).collect();
    let says = format!("the daemon in {} has not answered for 5 s: ", served.directory().display());
    let count = |said: &Path| std::fs::read_to_string(said).expect("text").matches(&says).count();
    until("each says that the daemon does not answer", || asking.iter().all(|(_, said)| count(said) == 1));
    signal(Signal::CONT);
    for ((mut child, said), words) in asking.into_iter().zip(commands) {
        if words.contains(&"--watch") {
            child.kill().expect("it is ours");
        }
        let code = child.wait().expect("it is ours").code();
        assert!(code.is_none_or(|code| code < 2), "{words:?}: {code:?}");
        assert_eq!(count(&said), 1, "{words:?}");
    }
}

#[test]
fn a_process_is_frozen_by_its_name_or_its_number_and_thawed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("frozen.gvt");
    let served = Served::start(&["--record", trace.to_str().expect("UTF-8")]);
    let mut client = Client::new(&served.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    assert_eq!(client.wait(device, fence.object, 1, 7), Some(WaitOutcome::Registered));
    let process = || served.inspect().processes.first().cloned().expect("it is attached");
    assert_eq!(process().held_wakes, None);
    let name = process().name;
    assert_eq!(inject(&served, &["freeze", &name]).status.code(), Some(0));
    assert_eq!(
        client.signal(device, fence.object, 1),
        NtStatus::SUCCESS,
        "calls of a frozen process are executed"
    );
    assert_eq!(process().held_wakes, Some(1));
    let text = gpupv(&["inspect", "--directory"]).arg(served.directory()).output().expect("gpupv starts");
    assert!(stdout(&text).contains("frozen, 1 wake-ups held"), "{}", stdout(&text));
    assert_eq!(inject(&served, &["thaw", &process().id.to_string()]).status.code(), Some(0));
    assert_eq!(process().held_wakes, None);
    let wake = client.stream.read();
    assert!(matches!(&wake, Ok(FromHost::Wake { event: EventId(7), .. })), "{wake:?}");
    assert!(std::fs::metadata(&trace).expect("the trace").len() > 0);
}

/// The owner of a folder of console logs, as `gpupv vm run` is one.
fn owner_of_consoles(folder: &Path) -> Child {
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(folder.join("vm1.log"), "text").expect("a log");
    let script = "exec 9>owner && flock 9 && echo held && exec sleep 1000";
    let mut owner = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh starts");
    let mut held = [0; 4];
    owner.stdout.take().expect("it is piped").read_exact(&mut held).expect("it holds its folder");
    owner
}

#[test]
fn a_start_removes_console_logs_of_killed_processes_only() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let folder = |name: &str| cache.path().join("consoles").join(name);
    let (mut living, mut killed) = (owner_of_consoles(&folder("1")), owner_of_consoles(&folder("2")));
    std::fs::create_dir(folder("kept")).expect("a folder");
    let start = || {
        let output = gpupv(&["run", "--", "true"]).env("GPUPV_CACHE", cache.path()).output();
        let output = output.expect("gpupv starts");
        assert!(output.status.success(), "{}", stderr(&output));
        ["1", "2", "kept"].map(|name| folder(name).is_dir())
    };
    assert_eq!(start(), [true; 3]);
    // SIGKILL.
    killed.kill().and_then(|()| killed.wait()).expect("it is killed");
    assert_eq!(start(), [true, false, true]);
    assert!(folder("1").join("vm1.log").is_file());
    living.kill().and_then(|()| living.wait()).expect("it is killed");
    assert_eq!(start(), [false, false, true]);
}
