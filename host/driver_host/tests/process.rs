//! The driver's process: what ends it, and that it leaves nothing behind.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use covers::covers;
use driver_host::abi::{CALLBACKS, Callback, DDIS, DXGKARG_ESCAPE, Row, SIM_DEBUGPRINT, header};
use driver_host::limits::{DDI_MAX, DDI_WALL_MAX};
use driver_host::messages::{self, Hello, Request};
use driver_host::process::DriverProcess;
use rustix::process::{Pid, Signal, kill_process};

/// A driver that does in an escape what the data's first word says.
const DRIVER: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
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

static void sleep_ns(long ns)
{
    struct timespec time = { .tv_nsec = ns };
    nanosleep(&time, NULL);
}

/* Sends a message, a byte at a time. */
static void trickle(unsigned bytes, long ns)
{
    int socket = socket_of_host();
    (void)!write(socket, &bytes, sizeof bytes);
    for (;; ns ? sleep_ns(ns) : (void)0)
        (void)!write(socket, "", 1);
}

static long cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_nsec + time.tv_sec * 1000000000;
}

/* Works for so long on a CPU. */
static void work_ns(long ns)
{
    for (long end = cpu_ns() + ns; cpu_ns() < end;)
        ;
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
    case 11: trickle(1 << 20, 0); break;
    case 12: trickle(1 << 16, 200000); break;
    case 13:
        /* It offers the CPU to others meanwhile. */
        for (int round = 0; round < 5; round++) {
            work_ns(50000);
            sched_yield();
        }
        break;
    case 14: work_ns(1500000); break;
    }
    word[0] = (UINT)now + 1;
    return dxgk->SimDebugPrint(dxgk->DxgkHandle, &print);
}

/* Bytes that it prints when it is loaded. */
#ifndef PRINTED
#define PRINTED 0
#endif
#ifndef SIZE
#define SIZE sizeof(DRIVER_INITIALIZATION_DATA)
#endif
/* As a driver with another header has it: a shorter table, or a longer one. */
#ifndef NEWER
#define NEWER NULL
#endif
static const struct {
    DRIVER_INITIALIZATION_DATA table;
    void *newer[2];
} all = {
    .table = { .Size = SIZE, .Version = VERSION, .DxgkDdiEscape = escape },
    .newer = { NULL, NEWER },
};

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *interface, void **context)
{
    dxgk = interface;
    for (int byte = 0; byte < PRINTED; byte++)
        putchar('x');
    if (fflush(stdout) || ferror(stdout))
        exit(5);
    return &all.table;
}
"#;

fn build(output: &str, flags: &[&str]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(output);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("dxgk_miniport.h"), header()).unwrap();
    std::fs::write(folder.join("driver.c"), DRIVER).unwrap();
    let object = folder.join("driver.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-I"])
        .arg(&folder)
        .args(flags)
        .arg("-o")
        .arg(&object)
        .arg(folder.join("driver.c"));
    assert!(cc.status().expect("a C compiler is there").success());
    object
}

fn driver() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("process", &["-DVERSION=DXGK_MINIPORT_VERSION"]))
}

fn loaded() -> DriverProcess {
    loaded_from(driver())
}

fn loaded_from(driver: &Path) -> DriverProcess {
    let mut process = DriverProcess::start(driver).expect("it starts");
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
    let answer = process.ask(&escape(1), None).expect("it answers");
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
        assert_eq!(process.ask(&escape(word), None), Err(why.into()));
        // The machine may be busy; the bound in all is what no driver exceeds by much.
        assert!(began.elapsed() < 3 * DDI_WALL_MAX, "{why}: {:?}", began.elapsed());
        assert!(is_gone(process.pid()), "{why}");
        assert!(process.ask(&escape(1), None).is_err(), "it is gone");
    }
}

/// A size that lies is cut to the buffer's.
#[test]
fn a_driver_cannot_return_more_than_its_buffer() {
    let answer = loaded().ask(&escape(10), None).expect("it answers");
    assert_eq!(answer.buffer, Some(42u32.to_le_bytes().into()));
}

#[test]
fn a_process_that_is_killed_while_idle_is_reaped_at_once() {
    let mut process = loaded();
    kill(process.pid());
    assert!(is_gone(process.pid()), "a zombie is left");
    assert_eq!(process.ask(&escape(1), None), Err("its process was killed by signal 9".into()));
}

/// As when the daemon is killed: the socket closes while the driver is inside of a DDI.
#[test]
fn the_process_ends_with_its_socket_even_inside_of_a_ddi() {
    for word in [1, 6, 7] {
        let (mut socket, its_end) = UnixStream::pair().unwrap();
        // The command has the process's end of the socket, so it does not outlive this.
        let mut host = Command::new(env!("CARGO_BIN_EXE_driver-host"))
            .arg("--sandbox=auto")
            .arg(driver())
            .stdin(OwnedFd::from(its_end))
            .spawn()
            .unwrap();
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
    let old = load(&build("version", &["-DVERSION=7"]));
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

/// Tables of older and newer headers: functions are appended, and the size says how many there are.
#[test]
fn drivers_of_other_headers_run_if_their_functions_are_known() {
    covers!("GPV-059");
    let version = "-DVERSION=DXGK_MINIPORT_VERSION";
    // The first header ended with SimRestoreState.
    let older = "-DSIZE=offsetof(DRIVER_INITIALIZATION_DATA,DxgkDdiSetSchedulingLogBuffer)";
    let longer = "-DSIZE=sizeof(all)";
    for (output, flags) in [("older", [version, older]), ("newer", [version, longer])] {
        let answer = loaded_from(&build(output, &flags)).ask(&escape(1), None).expect("it answers");
        assert_eq!(answer.status, 0, "{output}");
    }
    let uses_newer = build("uses_newer", &[version, longer, "-DNEWER=(void*)escape"]);
    let why = DriverProcess::start(&uses_newer).expect("the program starts").load().unwrap_err();
    assert!(why.contains("it is for a newer dxgk_miniport.h"), "{why}");
}

#[test]
fn a_driver_prints_more_than_a_pipe_holds_without_an_error() {
    loaded_from(&build("prints", &["-DVERSION=DXGK_MINIPORT_VERSION", "-DPRINTED=8000000"]));
}

/// The bound is for the whole answer: each byte comes at once, or well before the bound.
#[test]
fn a_driver_that_trickles_its_answer_is_lost_as_one_that_hangs() {
    covers!("GPV-057");
    for word in [11, 12] {
        let mut process = loaded();
        let began = Instant::now();
        let hangs = "it hangs: DxgkDdiEscape took longer than 5 ms";
        assert_eq!(process.ask(&escape(word), None), Err(hangs.into()), "kind {word}");
        assert!(began.elapsed() < 3 * DDI_WALL_MAX, "kind {word}: {:?}", began.elapsed());
        assert!(is_gone(process.pid()), "kind {word}");
    }
}

/// Binds a process to the first CPU that this one may use.
fn bind_to_one_cpu(pid: Option<Pid>) {
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(first);
    rustix::thread::sched_setaffinity(pid, &one).unwrap();
}

/// Time in which the process wants a CPU and has none does not count: it is the machine's.
#[test]
fn a_driver_without_a_cpu_does_not_hang() {
    const OTHERS: usize = 6;
    let mut process = loaded();
    bind_to_one_cpu(Pid::from_raw(process.pid() as i32));
    let is_over = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        for _ in 0..OTHERS {
            scope.spawn(|| {
                bind_to_one_cpu(None);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let began = Instant::now();
        let answer = process.ask(&escape(13), None);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(answer.map(|answer| answer.status), Ok(0));
        began.elapsed()
    });
    assert!(took > 2 * DDI_MAX, "it had a CPU all the time: {took:?}");
}

/// Each DDI is in time, and the daemon would do nothing else.
#[test]
fn a_driver_whose_ddis_are_all_slow_is_lost() {
    covers!("GPV-057");
    let mut process = loaded();
    let slow = (0..1000).find_map(|_| process.ask(&escape(14), None).err()).expect("it is lost");
    assert!(slow.starts_with("it hangs: its DDIs took 2"), "{slow}");
    assert!(is_gone(process.pid()));
}

/// Before that, the VM whose calls are slow is refused, and the others are served.
#[test]
fn a_vm_whose_ddis_are_all_slow_is_refused_and_the_driver_lives() {
    covers!("GPV-057");
    let mut process = loaded();
    let mut slow = 0;
    while process.refusal(7).is_none() && slow < 1000 {
        process.ask(&escape(14), Some(7)).expect("the driver lives");
        slow += 1;
    }
    assert!((20..1000).contains(&slow), "{slow} DDIs of 1.5 ms: half of 200 ms");
    assert!(process.refusal(7).unwrap().starts_with("calls of VM 7 are refused: its slow DDIs took 1"));
    assert_eq!(process.refusal(8), None);
    process.ask(&escape(14), Some(8)).expect("the driver lives");
    assert_eq!(process.refusal(8), None, "one slow DDI is not too much");
}

#[test]
fn a_slow_ddi_now_and_then_is_no_harm() {
    let mut process = loaded();
    for _ in 0..20 {
        process.ask(&escape(14), None).expect("it answers");
    }
    for _ in 0..2000 {
        process.ask(&escape(1), None).expect("it answers");
    }
}

/// A line for each function: the size of its struct and the types of its fields. None of it ever changes.
fn layouts() -> Vec<String> {
    let line = |kind: &str, number: usize, row: &Row| {
        let fields: Vec<&str> = row.fields.iter().map(|field| field.c_type).collect();
        let buffer = if row.buffer.is_some() { "buffer " } else { "" };
        let (name, arguments, bytes) = (row.name, row.arguments, row.bytes.0);
        format!("{kind} {number} {name} {arguments} {bytes}: {buffer}{}", fields.join(" "))
    };
    let lines = |kind: &'static str, rows: &'static [Row]| {
        rows.iter().enumerate().map(move |(number, row)| line(kind, number, row))
    };
    lines("ddi", DDIS).chain(lines("callback", CALLBACKS)).collect()
}

/// `layouts.txt` has every layout that a header ever had: a driver that was built with it finds the same.
#[test]
fn no_layout_of_an_older_header_changes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layouts.txt");
    let (known, now) = (std::fs::read_to_string(&path).unwrap_or_default(), layouts());
    for line in known.lines() {
        assert!(now.iter().any(|other| other == line), "this layout changed: {line}");
    }
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(&path, now.join("\n") + "\n").unwrap();
    } else {
        assert_eq!(known.lines().count(), now.len(), "GPUPV_BLESS=1 appends what is new");
    }
}
