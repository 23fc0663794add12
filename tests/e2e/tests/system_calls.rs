//! A message without an answer to a daemon that is awake makes no system call, neither in the process nor in the daemon.
//!
//! `unsafe`: traces both processes with `ptrace`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};

use e2e::programs::{artifacts, c_program};
use e2e::served::Served;
use gpupv::artifacts::guest_command;

/// Signals between the two marks of `tests/c/burst.c`: a ring has room for their frames.
const SIGNALS: u64 = 500;
/// System calls that the process may make meanwhile: kicks of a daemon that lost its processor, and the wait for an answer.
const OF_PROCESS_MAX: u64 = 10;
/// System calls of the daemon: before each 16 signals it may ask for other events.
const OF_DAEMON_MAX: u64 = SIGNALS / 10;

/// Traces processes by their threads.
#[derive(Default)]
struct Tracer {
    /// The process of each thread.
    threads: BTreeMap<i32, u32>,
}

fn ptrace(request: libc::c_uint, thread: i32, data: usize) -> std::io::Result<()> {
    // SAFETY: these requests read no memory of this process.
    match unsafe { libc::ptrace(request, thread, 0_usize, data) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Tracer {
    /// Traces every thread of a process, from a stop on.
    fn seize(&mut self, pid: u32) {
        let options = (libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE) as usize;
        for entry in std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten() {
            let thread: i32 = entry.file_name().to_string_lossy().parse().expect("a thread");
            ptrace(libc::PTRACE_SEIZE, thread, options).expect("a child process can be traced");
            ptrace(libc::PTRACE_INTERRUPT, thread, 0).expect("it is traced");
            self.threads.insert(thread, pid);
        }
    }

    /// Lets the threads run. Returns the system calls between two calls of `getppid` by `marker`, by process and number.
    fn calls_between_marks(&mut self, marker: u32) -> BTreeMap<(u32, u64), u64> {
        let (mut counts, mut marks) = (BTreeMap::new(), 0);
        while marks < 2 {
            let mut status = 0;
            // SAFETY: `status` can be written.
            let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
            assert!(thread > 0, "{}", std::io::Error::last_os_error());
            if !libc::WIFSTOPPED(status) {
                assert!(thread as u32 != marker, "the program ended: {status:#x}");
                continue;
            }
            let pid = self.threads.get(&thread).copied();
            let signal = match libc::WSTOPSIG(status) {
                stop if stop == libc::SIGTRAP | 0x80 => {
                    if let Some((pid, number)) = pid.zip(entered(thread)) {
                        let is_mark = pid == marker && number == libc::SYS_getppid as u64;
                        marks += u64::from(is_mark);
                        if marks == 1 && !is_mark {
                            *counts.entry((pid, number)).or_default() += 1;
                        }
                    }
                    0
                }
                // A stop of the tracer's own.
                _ if status >> 16 != 0 => 0,
                signal => signal,
            };
            // A thread that was killed meanwhile is gone.
            let _ = ptrace(libc::PTRACE_SYSCALL, thread, signal as usize);
        }
        counts
    }
}

/// The number of the system call that a stopped thread is about to make; `None` if it has made one.
fn entered(thread: i32) -> Option<u64> {
    // SAFETY: a plain value, of zeros.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let size = size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes of `info`.
    let written = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, &raw mut info) };
    assert!(written > 0, "{}", std::io::Error::last_os_error());
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: this member is written for the entry of a system call.
    Some(unsafe { info.u.entry.nr })
}

fn start(served: &Served) -> Child {
    let command = [c_program("burst").into(), SIGNALS.to_string().into()];
    let mut command = guest_command(&command, &served.broker(), artifacts());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts")
}

#[test]
fn a_signal_to_a_daemon_that_is_awake_makes_no_system_call() {
    if std::thread::available_parallelism().map_or(1, usize::from) == 1 {
        return println!("not tested: on one processor nobody looks at a ring before it sleeps");
    }
    let served = Served::start(&["--async-submission"]);
    let mut program = start(&served);
    let mut output = BufReader::new(program.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the program's output can be read");
    assert_eq!(line, "ready\n");
    let mut input = program.stdin.take().expect("a pipe");
    let (daemon, client) = (served.pid(), program.id());
    // With the end of this thread, the system ends its traces.
    let tracing = std::thread::spawn(move || {
        let mut tracer = Tracer::default();
        tracer.seize(daemon);
        tracer.seize(client);
        input.write_all(b"g").expect("the program reads");
        tracer.calls_between_marks(client)
    });
    let counts = tracing.join().expect("both processes are traced");
    program.kill().expect("the program can be killed");
    program.wait().expect("it is a child process");
    let of = |pid| counts.iter().filter(|((of, _), _)| *of == pid).map(|(_, count)| count).sum::<u64>();
    println!(
        "system calls for {SIGNALS} signals: {} of the process, {} of the daemon",
        of(client),
        of(daemon)
    );
    assert!(of(client) <= OF_PROCESS_MAX && of(daemon) <= OF_DAEMON_MAX, "by process and number: {counts:?}");
}
