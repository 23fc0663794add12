//! A daemon with a journal and the driver in C is killed: the driver ends with it, and the next daemon restores it.

use std::path::Path;

use e2e::embedded::{Embedded, Running};
use e2e::journal::replays;
use e2e::polling::eventually;
use e2e::programs::{gpupv, stdout};
use e2e::served::Served;
use sample_kmd_c::{build, provide_driver_host};

const KILLS: u32 = 3;

/// Processes that run this driver.
fn hosts(driver: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let commands =
        processes.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    let driver = driver.to_str().expect("the path is text");
    commands.filter(|command| command.contains("driver-host") && command.contains(driver)).collect()
}

/// Whether every thread of the daemon has a list of system calls, or the system has none.
fn is_restricted(served: &Served) -> bool {
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{}/task", served.pid())).expect("it runs").flatten();
    let mut statuses =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    !actions.contains("trap") || statuses.all(|status| status.contains("\nSeccomp:\t2\n"))
}

/// Drivers may signal each other, and the daemon them: `doctor` says so, and which list the driver's process has.
fn says_what_drivers_may(served: &Served) {
    let output = gpupv(&["doctor", "--security", "--directory"]).arg(served.directory()).output();
    let output = output.expect("gpupv starts");
    let text = stdout(&output);
    assert!(text.contains("signals: to ALL PROCESSES OF THE USER\n"), "{text}");
    let drivers: Vec<_> = text.lines().filter(|line| line.starts_with("process of a driver, ")).collect();
    assert!(drivers.len() == 1 && drivers[0].contains("system calls of \"drivers in C\""), "{text}");
}

#[test]
fn a_driver_in_c_resumes_with_its_daemon_and_leaves_no_process() {
    provide_driver_host().expect("driver-host is built");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let driver = build(folder.path(), "sample", "restarted", &[]).expect("the driver is built");
    let config = folder.path().join("gpupv.toml");
    std::fs::write(&config, format!("[[adapter]]\nkmd = \"{}\"\n", driver.display())).expect("it is written");
    let journal = folder.path().join("journal");
    let text = |path: &Path| path.to_str().expect("the path is text").to_owned();
    let (config, journal_text) = (text(&config), text(&journal));
    let arguments = ["--config", &*config, "--journal", &*journal_text];
    let mut served = Served::start(&arguments);
    let mut client = Running::start(Embedded::command_at(&served.broker(), "private_commands", &[]));
    for kill in 0..KILLS {
        client.write_input(b"20\n");
        client.says("on");
        assert_eq!(hosts(&driver).len(), 1, "one process for the adapter");
        assert!(is_restricted(&served), "the daemon may start programs");
        says_what_drivers_may(&served);
        served.kill();
        eventually("the driver ends with its daemon", || match &hosts(&driver)[..] {
            [] => Ok(()),
            left => Err(format!("{left:?}")),
        });
        replays(&journal, &format!("kill {kill}"));
        served.start_again(&arguments);
    }
    client.write_input(b"20\n");
    client.says("on");
    client.end_input();
    let said = client.end();
    assert!(said.ends_with("private commands: all as expected\n"), "{said}");
    served.terminate();
    assert_eq!(served.child.wait().expect("the daemon ends").code(), Some(0));
    assert_eq!(hosts(&driver), [""; 0], "the driver ends with its daemon");
}

/// It has the name of the process that starts drivers.
#[test]
fn doctor_lists_a_driver_whatever_it_calls_itself() {
    const RENAMES: &str = "#define _GNU_SOURCE\n#include <sys/prctl.h>\n\
        __attribute__((constructor)) static void rename_it(void) { prctl(PR_SET_NAME, \"gpupv-drivers\"); }\n";
    provide_driver_host().expect("driver-host is built");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = |path: &Path| path.to_str().expect("the path is text").to_owned();
    let renames = folder.path().join("renames.h");
    std::fs::write(&renames, RENAMES).expect("it is written");
    let driver =
        build(folder.path(), "sample", "renamed", &["-include", &text(&renames)]).expect("it is built");
    let config = folder.path().join("gpupv.toml");
    std::fs::write(&config, format!("[[adapter]]\nkmd = \"{}\"\n", driver.display())).expect("it is written");
    let served = Served::start(&["--config", &text(&config)]);
    let mut client = Running::start(Embedded::command_at(&served.broker(), "private_commands", &[]));
    client.write_input(b"20\n");
    client.says("on");
    says_what_drivers_may(&served);
    client.end_input();
    client.end();
}
