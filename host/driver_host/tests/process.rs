//! The driver's process: what ends it, and that it leaves nothing behind.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use driver_host::abi::{Callback, DXGKARG_ESCAPE, SIM_DEBUGPRINT, header};
use driver_host::limits::DDI_WALL_MAX;
use driver_host::messages::{self, Hello, Request};
use driver_host::process::DriverProcess;
use rustix::process::{Pid, Signal, kill_process};

/// A driver that does in an escape what the data's first word says.
const DRIVER: &str = r#"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dxgk_miniport.h"

/* A driver that looks for the socket of its process finds it. */
static int socket_of_host(void)
{
    struct stat status;
    for (int at = 0; at < 64; at++)
        if (!fstat(at, &status) && S_ISSOCK(status.st_mode))
            return at;
    return -1;
}

static const DXGKRNL_INTERFACE *dxgk;

static NTSTATUS escape(void *context, UINT64 now, DXGKARG_ESCAPE *args)
{
    UINT *word = args->pPrivateDriverData;
    SIM_DEBUGPRINT print = { .pText = "hello", .TextSize = 5 };
    switch (word[0]) {
    case 5: abort();
    case 6: for (;;) pause();
    case 7: for (volatile int forever = 1; forever;) ;
    case 8: (void)!write(socket_of_host(), "\377\377\377\377garbage", 11); break;
    case 9: exit(3);
    case 10: args->PrivateDriverDataSize = 1u << 30; break;
    }
    word[0] = (UINT)now + 1;
    return dxgk->SimDebugPrint(dxgk->DxgkHandle, &print);
}

static const DRIVER_INITIALIZATION_DATA table = {
    .Size = sizeof table, .Version = VERSION, .DxgkDdiEscape = escape,
};

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *interface, void **context)
{
    dxgk = interface;
    return &table;
}
"#;

fn build(output: &str, version: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(output);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("dxgk_miniport.h"), header()).unwrap();
    std::fs::write(folder.join("driver.c"), DRIVER).unwrap();
    let object = folder.join("driver.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", version, "-I"])
        .arg(&folder)
        .arg("-o")
        .arg(&object)
        .arg(folder.join("driver.c"));
    assert!(cc.status().expect("a C compiler is there").success());
    object
}

fn driver() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("process", "-DVERSION=DXGK_MINIPORT_VERSION"))
}

fn loaded() -> DriverProcess {
    let mut process = DriverProcess::start(driver()).expect("it starts");
    let implemented = process.load().expect("it loads");
    assert_eq!(implemented.iter().filter(|has| **has).count(), 1);
    process
}

fn escape(word: u32) -> Request {
    let ddi = DXGKARG_ESCAPE::default().into();
    Request { now: 41, ddi, buffer: word.to_le_bytes().into(), allocations: Vec::new() }
}

/// Between two looks at another process.
#[expect(clippy::disallowed_methods, reason = "nothing tells when a process is reaped")]
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Waits until there is no such process, not even a zombie.
fn is_gone(pid: u32) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while Path::new(&format!("/proc/{pid}")).exists() {
        if Instant::now() > until {
            return false;
        }
        pause();
    }
    true
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn an_answer_has_outputs_and_callbacks() {
    let mut process = loaded();
    let answer = process.ask(&escape(1)).expect("it answers");
    assert_eq!((answer.status, answer.buffer), (0, Some(42u32.to_le_bytes().into())));
    let [called] = &answer.callbacks[..] else { panic!("{:?}", answer.callbacks) };
    let print = SIM_DEBUGPRINT { TextSize: 5, ..SIM_DEBUGPRINT::default() };
    assert_eq!((called.callback, &called.text[..]), (Callback::SimDebugPrint(print), &b"hello"[..]));
    let pid = process.pid();
    drop(process);
    assert!(is_gone(pid));
}

#[test]
fn each_end_of_a_driver_has_its_reason_and_leaves_no_process() {
    let ends = [
        (5, "its process was killed by signal 6"),
        (6, "it hangs: DxgkDdiEscape took longer than 5 ms"),
        (7, "it hangs: DxgkDdiEscape took longer than 5 ms"),
        (8, "its process sent a bad message: a message has 4294967295 bytes, at most 16777216 are possible"),
        (9, "its process exited with code 3"),
    ];
    for (word, why) in ends {
        let mut process = loaded();
        let began = Instant::now();
        assert_eq!(process.ask(&escape(word)), Err(why.into()));
        // The machine may be busy; the bound in all is what no driver exceeds by much.
        assert!(began.elapsed() < 3 * DDI_WALL_MAX, "{why}: {:?}", began.elapsed());
        assert!(is_gone(process.pid()), "{why}");
        assert!(process.ask(&escape(1)).is_err(), "it is gone");
    }
}

/// A size that lies is cut to the buffer's.
#[test]
fn a_driver_cannot_return_more_than_its_buffer() {
    let answer = loaded().ask(&escape(10)).expect("it answers");
    assert_eq!(answer.buffer, Some(42u32.to_le_bytes().into()));
}

#[test]
fn a_process_that_is_killed_while_idle_is_reaped_at_once() {
    let mut process = loaded();
    kill(process.pid());
    assert!(is_gone(process.pid()), "a zombie is left");
    assert_eq!(process.ask(&escape(1)), Err("its process was killed by signal 9".into()));
}

/// As when the daemon is killed: the socket closes while the driver is inside of a DDI.
#[test]
fn the_process_ends_with_its_socket_even_inside_of_a_ddi() {
    for word in [1, 6, 7] {
        let (mut socket, its_end) = UnixStream::pair().unwrap();
        let mut host = Command::new(env!("CARGO_BIN_EXE_driver-host"));
        let mut host = host.arg(driver()).stdin(OwnedFd::from(its_end)).spawn().unwrap();
        let hello: Hello = messages::read(&mut socket).unwrap();
        assert!(hello.loaded.is_ok());
        messages::write(&mut socket, &escape(word)).unwrap();
        drop(socket);
        let until = Instant::now() + Duration::from_secs(10);
        let exited = loop {
            match host.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > until => break None,
                None => pause(),
            }
        };
        if exited.is_none() {
            let _ = host.kill();
        }
        assert!(exited.is_some_and(|status| status.success()), "in a DDI of kind {word}: {exited:?}");
    }
}

#[test]
fn what_is_no_driver_is_refused_with_the_reason() {
    let load = |path: &Path| DriverProcess::start(path).expect("the program starts").load().unwrap_err();
    assert!(load(Path::new("/nowhere.so")).contains("No such file"), "{}", load(Path::new("/nowhere.so")));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let text = folder.join("text.so");
    std::fs::write(&text, "no object").unwrap();
    assert!(load(&text).contains("text.so"), "{}", load(&text));
    let old = load(&build("version", "-DVERSION=7"));
    assert!(old.ends_with("it is for version 7 of dxgk_miniport.h; this is version 1"), "{old}");
}

#[test]
fn a_message_that_is_cut_off_is_an_error() {
    let (mut one, mut other) = UnixStream::pair().unwrap();
    messages::write(&mut one, &escape(1)).unwrap();
    assert_eq!(messages::read::<Request>(&mut other).unwrap(), escape(1));
    io::Write::write_all(&mut one, &[9, 0, 0, 0, 1]).unwrap();
    drop(one);
    assert!(messages::read::<Request>(&mut other).is_err());
}
