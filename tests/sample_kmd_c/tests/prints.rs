//! A driver in C that prints in its DDIs, under a daemon whose standard error is read, and under one whose is not.

use std::path::Path;
use std::process::Stdio;

use e2e::embedded::{Embedded, Running};
use e2e::polling::eventually;
use e2e::programs::gpupv;
use e2e::served::Served;
use rustix::pipe::{PipeFlags, pipe_with};
use sample_kmd_c::{build, provide_driver_host};

/// Prints 100 KiB when it is loaded, and before each interrupt. An error is its end.
const PRINTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include "dxgk_miniport.h"
__attribute__((constructor)) static void chat(void)
{
    for (int line = 0; line < 1000; line++)
        fprintf(stderr, "%0100d\n", line);
    printf("on standard output\n");
    fflush(stdout);
    if (ferror(stderr) || ferror(stdout))
        abort();
}
#define DxgkCbNotifyInterrupt(handle, data) DxgkCbNotifyInterrupt((chat(), handle), data)
"#;

/// Before the first interrupt it prints as much, and then why it ends.
const DIES: &str = r#"
#define DxgkCbNotifyInterrupt(handle, data) \
    DxgkCbNotifyInterrupt((chat(), fprintf(stderr, "no interrupt is possible\n"), abort(), handle), data)
"#;

/// Standard error that is this file.
fn appends(log: &Path) -> impl Fn() -> Stdio + Send + Sync + 'static {
    let log = log.to_owned();
    move || std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("a file").into()
}

/// A daemon with a driver that includes this text and with this standard error, and a client whose work the driver does.
fn served(
    folder: &Path,
    text_of_driver: &str,
    stderr: impl Fn() -> Stdio + Send + Sync + 'static,
) -> (Served, Running) {
    provide_driver_host().expect("driver-host is built");
    let text = |path: &Path| path.to_str().expect("the path is text").to_owned();
    let prints = folder.join("prints.h");
    std::fs::write(&prints, text_of_driver).expect("it is written");
    let driver = build(folder, "sample", "prints", &["-include", &text(&prints)]).expect("it is built");
    let config = folder.join("gpupv.toml");
    std::fs::write(&config, format!("[[adapter]]\nkmd = \"{}\"\n", driver.display())).expect("it is written");
    let program = move || {
        let mut command = gpupv(&[]);
        command.stdout(Stdio::null()).stderr(stderr());
        command
    };
    let served = Served::start_as(program, &["--config", &text(&config)]);
    let mut client = Running::start(Embedded::command_at(&served.broker(), "private_commands", &[]));
    client.write_input(b"20\n");
    client.says("on");
    client.end_input();
    (served, client)
}

/// The same with the driver that prints; the client finds all as expected.
fn works(folder: &Path, stderr: impl Fn() -> Stdio + Send + Sync + 'static) -> Served {
    let (served, client) = served(folder, PRINTS, stderr);
    let said = client.end();
    assert!(said.ends_with("private commands: all as expected\n"), "{said}");
    served
}

#[test]
fn a_driver_that_prints_works_under_a_daemon_whose_log_nobody_reads() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_unread, input) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let mut served = works(folder.path(), move || input.try_clone().expect("a descriptor").into());
    assert_eq!(served.inspect().stopped_adapters.len(), 0);
    served.kill();
}

#[test]
fn lines_of_a_driver_are_in_the_log_up_to_a_limit_and_others_are_counted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let served = works(folder.path(), appends(&log));
    eventually("the log counts what it leaves out", || {
        let text = std::fs::read_to_string(&log).expect("the log");
        let has = |what: &str| text.contains(what);
        let is_said = has("driver prints.so (process ")
            && has("): 0000")
            && has("more lines were left out in one second");
        is_said.then_some(()).ok_or(text)
    });
    let text = std::fs::read_to_string(&log).expect("the log");
    // The first load is before the daemon: its lines are not counted.
    assert!(text.lines().count() < 5000, "{}", text.lines().count());
    drop(served);
}

#[test]
fn the_last_line_of_a_driver_that_ends_is_in_the_log_after_any_number_of_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let text = PRINTS.replace("#define DxgkCb", "#define UnusedCb") + DIES;
    let (served, client) = served(folder.path(), &text, appends(&log));
    eventually("the log has the last line", || {
        let text = std::fs::read_to_string(&log).expect("the log");
        text.contains("): no interrupt is possible\n").then_some(()).ok_or(text)
    });
    drop((client, served));
}
