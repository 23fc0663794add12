//! What a message without an answer to a daemon that is awake costs: no system call, neither in the process nor in the
//! daemon, and in the process so many instructions.
//!
//! `unsafe`: traces both processes with `ptrace`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};

use e2e::programs::{artifacts, c_program};
use e2e::served::Served;
use gpupv::artifacts::guest_command;

/// Signals between the two marks of `tests/c/burst.c`: a ring has room for their frames.
const SIGNALS: u64 = 500;
/// System calls that the process may make meanwhile: kicks of a daemon that lost its processor, the wait for an answer, and
/// the second mark.
const OF_PROCESS_MAX: u64 = 10;
/// System calls of the daemon: before each 16 signals it may ask for other events.
const OF_DAEMON_MAX: u64 = SIGNALS / 10;

/// The tests take turns: each wants both processors.
static ALONE: Mutex<()> = Mutex::new(());

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

    /// Lets the threads run, between two marks of the thread `marker` by `between`: to their next system call or
    /// instruction. Calls `stopped` for each such stop.
    fn between_marks(
        &mut self,
        marker: u32,
        between: libc::c_uint,
        mut stopped: impl FnMut(i32, Option<u32>),
    ) {
        let mut marks = 0;
        while marks < 2 {
            let mut status = 0;
            // SAFETY: `status` can be written.
            let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            assert!(thread > 0, "{}", std::io::Error::last_os_error());
            if !libc::WIFSTOPPED(status) {
                assert!(thread as u32 != marker, "the program ended: {status:#x}");
                continue;
            }
            let signal = match libc::WSTOPSIG(status) {
                libc::SIGURG if thread as u32 == marker => {
                    marks += 1;
                    0
                }
                // A stop of the tracer's own, such as for a new thread.
                _ if status >> 16 != 0 => 0,
                stop if stop & !0x80 == libc::SIGTRAP => {
                    if marks == 1 {
                        stopped(thread, self.threads.get(&thread).copied());
                    }
                    0
                }
                signal => signal,
            };
            // The other threads stop from the start: a sleep that began before the first mark shows as well how it ends.
            let stops = marks == 1 || thread as u32 != marker;
            let request = if stops { between } else { libc::PTRACE_CONT };
            // A thread that was killed meanwhile is gone.
            let _ = ptrace(request, thread, signal as usize);
        }
    }

    /// The system calls between two marks, by process and number.
    fn calls_between_marks(&mut self, marker: u32) -> BTreeMap<(u32, u64), u64> {
        let mut counts = BTreeMap::new();
        self.between_marks(marker, libc::PTRACE_SYSCALL, |thread, pid| {
            if let Some(call) = pid.zip(entered(thread)) {
                *counts.entry(call).or_default() += 1;
            }
        });
        counts
    }

    /// The instructions of the thread that sets the marks, between two of them.
    fn instructions_between_marks(&mut self, marker: u32) -> u64 {
        let mut count = 0;
        self.between_marks(marker, libc::PTRACE_SINGLESTEP, |thread, _| {
            count += u64::from(thread as u32 == marker);
        });
        count
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

/// A program that makes as many signals at a time, and is ready to make more once it is told by its input.
struct Burst {
    program: Child,
}

impl Burst {
    fn start(served: &Served, signals: u64) -> Burst {
        let command = [c_program("burst").into(), signals.to_string().into()];
        let mut command = guest_command(&command, &served.broker(), artifacts());
        let program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut program = program.expect("the program starts");
        let mut output = BufReader::new(program.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the program's output can be read");
        assert_eq!(line, "ready\n");
        Burst { program }
    }

    /// Traces processes and the program, which goes on. With the end of its thread, the system ends its traces.
    fn trace<R: Send + 'static>(
        &mut self,
        others: &[u32],
        count: impl FnOnce(&mut Tracer, u32) -> R + Send + 'static,
    ) -> R {
        let (client, others) = (self.program.id(), others.to_vec());
        let mut input = self.program.stdin.take().expect("a pipe");
        let tracing = std::thread::spawn(move || {
            let mut tracer = Tracer::default();
            others.into_iter().chain([client]).for_each(|pid| tracer.seize(pid));
            input.write_all(b"g").expect("the program reads");
            count(&mut tracer, client)
        });
        tracing.join().expect("the processes are traced")
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.program.kill().expect("the program can be killed");
        self.program.wait().expect("it is a child process");
    }
}

fn has_one_processor() -> bool {
    std::thread::available_parallelism().map_or(1, usize::from) == 1
}

#[test]
fn a_signal_to_a_daemon_that_is_awake_makes_no_system_call() {
    if has_one_processor() {
        return println!("not tested: on one processor nobody looks at a ring before it sleeps");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let served = Served::start(&["--async-submission"]);
    let mut burst = Burst::start(&served, SIGNALS);
    let (daemon, client) = (served.pid(), burst.program.id());
    let counts = burst.trace(&[daemon], Tracer::calls_between_marks);
    let of = |pid| counts.iter().filter(|((of, _), _)| *of == pid).map(|(_, count)| count).sum::<u64>();
    println!(
        "system calls for {SIGNALS} signals: {} of the process, {} of the daemon",
        of(client),
        of(daemon)
    );
    assert!(of(client) <= OF_PROCESS_MAX && of(daemon) <= OF_DAEMON_MAX, "by process and number: {counts:?}");
}

#[test]
fn a_signal_executes_no_more_instructions_of_the_process_than_before() {
    /// In the tests' profile, with a quarter more for other compilers.
    const LIMIT: u64 = 4700;
    if has_one_processor() {
        return println!("not tested: on one processor each signal kicks the daemon");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let served = Served::start(&["--async-submission"]);
    // Of few and of many signals: the call behind them is in both.
    let [few, many] =
        [10, 30].map(|signals| Burst::start(&served, signals).trace(&[], Tracer::instructions_between_marks));
    let of_one = many.saturating_sub(few) / 20;
    println!("a signal: {of_one} instructions of the process");
    assert!(of_one <= LIMIT, "{of_one}, the limit is {LIMIT}");
    assert!(of_one > LIMIT / 2, "{of_one}: lower the limit of {LIMIT}");
}
