//! The sandbox of `gpupv serve`: what is in force, what is said where it cannot be, and a daemon of another user.

use std::collections::BTreeMap;
use std::fs::{File, Permissions, read_to_string, set_permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use e2e::programs::{gpupv, stdout, tree};
use e2e::served::Served;
use e2e::wire::Client;
use gpupv::artifacts;
use gpupv::output::Steps;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use serde_json::Value;

/// Numbers of system calls, the same on every processor since Linux 5.1 or, `seccomp`, those of x86-64.
const LANDLOCK_CREATE_RULESET: i64 = 444;
const SECCOMP: i64 = 317;
const EPERM: u32 = 1;
/// A user that every machine has.
const OTHER_USER: &str = "nobody";

/// `gpupv` on a system that refuses this call, as a container or an older kernel does.
fn gpupv_without(call: i64) -> Command {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
    let rules = BTreeMap::from([(call, Vec::new())]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EPERM), arch);
    let filter: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
    let mut command = gpupv(&[]);
    // SAFETY: two system calls, without an allocation.
    unsafe { command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(|_| EPERM_ERROR.into())) };
    command
}

const EPERM_ERROR: std::io::ErrorKind = std::io::ErrorKind::PermissionDenied;

fn doctor(served: &Served, more: &[&str]) -> Output {
    let mut command = gpupv(&["doctor", "--security", "--directory"]);
    command.arg(served.directory()).args(more).stdin(Stdio::null()).output().expect("gpupv starts")
}

fn security(served: &Served) -> Value {
    serde_json::from_slice(&doctor(served, &["--json"]).stdout).expect("JSON")
}

/// What the system says of each thread: its name, and whether it has a filter, no_new_privs and no capabilities.
fn threads(pid: u32) -> Vec<(String, [bool; 3])> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
    let statuses = entries.filter_map(|entry| read_to_string(entry.path().join("status")).ok());
    let fields = |status: String| {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            line.trim().to_owned()
        };
        let is_empty = |set: String| set.bytes().all(|byte| byte == b'0');
        let restricted = [
            field("Seccomp:") == "2",
            field("NoNewPrivs:") == "1",
            is_empty(field("CapEff:")) && is_empty(field("CapPrm:")),
        ];
        (field("Name:"), restricted)
    };
    statuses.map(fields).collect()
}

/// A client process that makes a device and a fence, and signals it.
fn work(broker: &Path) {
    let mut client = Client::new(broker);
    let device = client.open_device();
    client.create_fence(device, 0);
}

fn has_filters() -> bool {
    read_to_string("/proc/sys/kernel/seccomp/actions_avail").is_ok_and(|actions| actions.contains("trap"))
}

#[test]
fn every_thread_of_a_serving_daemon_is_restricted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let served = Served::start(&["--vms", "2", "--journal", journal.to_str().expect("UTF-8")]);
    work(&served.broker());
    let threads = threads(served.pid());
    for name in [
        "gpupv-local",
        "timer",
        "log",
        "journal-keeper",
        "free-memory",
        "driver-output",
        "vsock-3",
        "vsock-4",
    ] {
        assert!(threads.iter().any(|(thread, _)| thread == name), "no thread {name}: {threads:?}");
    }
    for (name, [has_filter, no_new_privs, no_capabilities]) in &threads {
        assert!(*no_new_privs && *no_capabilities, "{name}: {threads:?}");
        assert!(*has_filter || !has_filters(), "{name}: {threads:?}");
    }
    let said = security(&served);
    let is_complete = said["missing"].as_array().is_some_and(Vec::is_empty);
    assert_eq!(doctor(&served, &[]).status.code(), Some(if is_complete { 0 } else { 1 }), "{said}");
    let mut lists: Vec<_> = said["threads"].as_array().expect("threads").iter().collect();
    lists.retain(|thread| thread["name"] == "timer");
    assert!(!has_filters() || lists[0]["list"] == "timer", "{said}");
    let folders = said["folders"].to_string();
    assert!(folders.contains(served.directory().to_str().expect("UTF-8")), "{folders}");
}

#[test]
fn what_the_system_lacks_is_said_in_a_line_and_require_does_not_start() {
    if !has_filters() {
        return eprintln!("skipped: this system has no seccomp filters, with which the test refuses calls");
    }
    for (call, lacks) in [(LANDLOCK_CREATE_RULESET, "landlock"), (SECCOMP, "lists of system calls")] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = gpupv_without(call);
        command.args(["serve", "--sandbox=require", "--directory"]).arg(folder.path());
        let refused = command.output().expect("gpupv starts");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(text.contains("--sandbox=require") && text.contains(lacks), "{text}");

        let log = folder.path().join("log");
        let path = log.clone();
        let program = move || {
            let mut command = gpupv_without(call);
            command.stdout(Stdio::null()).stderr(File::create(&path).expect("a file"));
            command
        };
        let served = Served::start_as(program, &[]);
        work(&served.broker());
        let text = read_to_string(&log).expect("a log");
        assert!(
            text.lines().count() == 1 && text.contains("the sandbox lacks") && text.contains(lacks),
            "{text}"
        );
        assert_eq!(doctor(&served, &[]).status.code(), Some(1));
        assert!(security(&served)["missing"][0].as_str().is_some_and(|line| line.starts_with(lacks)));
    }
}

/// A driver in C that does nothing.
const DRIVER: &str = r#"
#include "dxgk_miniport.h"
static const DRIVER_INITIALIZATION_DATA table = { .Size = sizeof table, .Version = DXGK_MINIPORT_VERSION };
const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *interface, void **context)
{
    return &table;
}
"#;

/// A scenario of somebody else may name a driver: the command says that it runs with less of a sandbox.
#[test]
fn a_command_that_loads_a_driver_says_what_the_system_lacks() {
    if !has_filters() {
        return eprintln!("skipped: this system has no seccomp filters, with which the test refuses calls");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [source, object, scenario] = ["d.c", "d.so", "s.scn"].map(|name| folder.path().join(name));
    std::fs::write(&source, DRIVER).expect("it is written");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-I"]).arg(tree().join("host/driver_host/include")).arg("-o");
    assert!(cc.arg(&object).arg(&source).status().expect("there is a C compiler").success());
    let text = format!("scenario \"s\"\nconfig adapter 0 kmd=\"{}\"\nprocess p\n", object.display());
    std::fs::write(&scenario, text + "p  D = device -> ok\n").expect("it is written");
    artifacts::programs(["driver-host"], &Steps::new()).expect("driver-host is built");
    for (call, lacks) in [(LANDLOCK_CREATE_RULESET, "landlock: "), (SECCOMP, "lists of system calls: ")] {
        let output = gpupv_without(call).args(["scenario", "check"]).arg(&scenario).output();
        let output = output.expect("gpupv starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(&format!("gpupv: the sandbox of drivers in C lacks {lacks}")), "{said}");
    }
}

#[test]
fn a_daemon_without_a_sandbox_says_so() {
    let served = Served::start(&["--sandbox=off"]);
    work(&served.broker());
    let output = doctor(&served, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for line in
        ["missing: everything", "ALL SYSTEM CALLS", "files: ALL OF THE USER'S", "without --sandbox=off"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_user_that_does_not_exist_is_named() {
    let output = gpupv(&["serve", "--user", "no-such-user", "--directory", "/nonexistent/gpupv"]).output();
    let output = output.expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("no user \"no-such-user\""), "{text}");
}

#[test]
fn a_daemon_of_another_user_serves_root_and_resumes_its_journal() {
    let folder = tempfile::Builder::new().prefix("gpupv-e2e-").tempdir().expect("a temporary folder");
    if folder.path().metadata().expect("a folder").uid() != 0 {
        return eprintln!("skipped: only root can start a daemon of another user");
    }
    let passwd = read_to_string("/etc/passwd").expect("users");
    let entry = passwd.lines().find_map(|line| line.strip_prefix(&format!("{OTHER_USER}:")));
    let numbers: Vec<u32> = entry
        .expect("the user")
        .split(':')
        .skip(1)
        .take(2)
        .map(|number| number.parse().expect("a number"))
        .collect();
    chown(folder.path(), Some(numbers[0]), Some(numbers[1])).expect("root may");
    let journal = folder.path().join("journal");
    let arguments = ["--user", OTHER_USER, "--journal", journal.to_str().expect("UTF-8")];
    let mut served = Served::start_in(folder, &arguments);
    work(&served.broker());
    for path in [&journal, &journal.join("lock"), &served.broker()] {
        assert_eq!(path.metadata().expect("a file").uid(), numbers[0], "{}", path.display());
    }
    let said = security(&served);
    let threads = said["threads"].as_array().expect("threads");
    assert!(threads.iter().all(|thread| thread["uid"] == numbers[0]), "{said}");
    served.kill();
    served.start_again(&arguments);
    work(&served.broker());

    // Root's journal stays root's.
    let roots = tempfile::tempdir().expect("a temporary folder");
    let sockets = tempfile::tempdir().expect("a temporary folder");
    chown(sockets.path(), Some(numbers[0]), Some(numbers[1])).expect("root may");
    let mut command = gpupv(&["serve", "--user", OTHER_USER, "--directory"]);
    command.arg(sockets.path()).arg("--journal").arg(roots.path());
    let refused = command.output().expect("gpupv starts");
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains(roots.path().to_str().expect("UTF-8")), "{text}");
    assert_eq!(std::fs::read_dir(roots.path()).expect("a folder").count(), 0);
}

/// As a process of the daemon's user can change it.
#[test]
fn the_control_service_serves_no_other_user_whatever_the_mode_of_its_socket() {
    const NOBODY: u32 = 65534;
    let served = Served::start(&[]);
    let socket = served.directory().join("control.sock");
    if socket.metadata().expect("a socket").uid() != 0 {
        return eprintln!("skipped: only root can start programs of another user");
    }
    for (path, mode) in [(served.directory(), 0o755), (&*socket, 0o666)] {
        set_permissions(path, Permissions::from_mode(mode)).expect("root may");
    }
    for (user, is_served) in [(0, true), (NOBODY, false)] {
        let mut command = gpupv(&["doctor", "--security", "--directory"]);
        match command.arg(served.directory()).uid(user).gid(user).output() {
            Ok(output) => {
                assert_eq!(stdout(&output).contains("daemon "), is_served, "{user}: {output:?}");
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!(said.contains("another user has"), !is_served, "{said}");
            }
            Err(error) => eprintln!("skipped: {user} cannot start gpupv: {error}"),
        }
    }
}

/// A folder that the daemon makes is as it should be whatever the umask, and is not left if the daemon cannot start.
#[test]
fn the_folder_of_sockets_has_its_mode_or_is_not_left() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sockets");
    let run = |before: &str, arguments: &str| {
        let gpupv = gpupv(&[]);
        let program = gpupv.get_program().to_str().expect("UTF-8");
        let line = format!("{before} {program} serve --vms 0 --directory {} {arguments}", path.display());
        Command::new("sh").arg("-c").arg(line).stdin(Stdio::null()).output().expect("a shell")
    };
    for umask in ["000", "077"] {
        run(&format!("umask {umask}; timeout 2"), "");
        assert_eq!(path.metadata().expect("a folder").mode() & 0o777, 0o755, "umask {umask}");
        std::fs::remove_dir_all(&path).expect("the daemon has ended");
    }
    let refused = run("unshare --user --map-root-user", &format!("--user {OTHER_USER}"));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    match text.contains("unshare") {
        true => eprintln!("skipped: no user namespaces here: {text}"),
        false => {
            assert!(text.contains("this user namespace does not have the user"), "{text}");
            assert!(!path.exists(), "{text}");
        }
    }
}

#[test]
fn the_unit_of_systemd_has_an_exposure_of_two_at_most() {
    let unit = tree().join("host/dist/systemd/gpupv.service");
    // In tenths: the exit code says whether the unit is above it.
    let arguments = ["security", "--offline=true", "--no-pager", "--threshold=20"];
    match Command::new("systemd-analyze").args(arguments).arg(unit).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => eprintln!("skipped: systemd-analyze cannot be started: {error}"),
    }
}
