//! Tries lists of system calls in child processes, for tests of the programs that have them.
//!
//! `unsafe`: processes fork, and make any system call.

use std::ffi::{c_int, c_long};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;

use crate::violation::{self, Ending};
use crate::{Filters, Kind};

/// The code of a child process that could not be restricted.
const NOT_RESTRICTED: c_int = 99;

/// How a child process ended, and what it wrote on standard error.
#[derive(Debug)]
pub struct Ended {
    status: c_int,
    pub stderr: String,
}

impl Ended {
    /// Whether a forbidden system call ended it.
    pub fn is_ended_by_sigsys(&self) -> bool {
        libc::WIFSIGNALED(self.status) && libc::WTERMSIG(self.status) == libc::SIGSYS
    }

    /// Its exit code; `None` if a signal ended it.
    pub fn code(&self) -> Option<c_int> {
        libc::WIFEXITED(self.status).then(|| libc::WEXITSTATUS(self.status))
    }
}

/// Runs a function in a child process whose only thread has these filters; its result is the exit code. It allocates
/// nothing: other threads of the parent may hold locks.
///
/// # Panics
///
/// The system has no more processes or pipes.
pub fn in_child(filters: &Filters, ending: Ending, run: impl Fn() -> c_int) -> Ended {
    let (mut output, input) = std::io::pipe().expect("a pipe");
    // SAFETY: the child makes system calls only, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process forks");
    if child == 0 {
        // SAFETY: system calls with values of this frame.
        unsafe {
            libc::dup2(input.as_raw_fd(), 2);
            libc::prctl(libc::PR_SET_NAME, c"test".as_ptr());
            if violation::install(ending).is_err() || filters.install().is_err() {
                libc::_exit(NOT_RESTRICTED);
            }
            libc::_exit(run());
        }
    }
    drop(input);
    let mut stderr = String::new();
    output.read_to_string(&mut stderr).expect("a message is text");
    let mut status = 0;
    // SAFETY: the child is this process's, and is waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    Ended { status, stderr }
}

/// A system call by name and number, with arguments.
pub type Call = (&'static str, c_long, [c_long; 4]);

/// Makes a system call: of which a list forbids the number or the arguments, or which does no harm with these.
pub fn call(number: c_long, arguments: [c_long; 4]) -> c_long {
    let [a, b, c, d] = arguments;
    // SAFETY: the callers pass numbers, null, or pointers that the call refuses; a forbidden call ends the process.
    unsafe { libc::syscall(number, a, b, c, d) }
}

/// Asserts that each of these calls ends a process whose thread has these filters, with a message that names it.
///
/// # Panics
///
/// It does not.
pub fn assert_ends(filters: &Filters, ending: Ending, calls: &[Call]) {
    for (name, number, arguments) in calls {
        let ended = in_child(filters, ending, || {
            call(*number, *arguments);
            0
        });
        assert!(ended.is_ended_by_sigsys(), "{name}: {:?} {}", ended.code(), ended.stderr);
        let Ending { program, what, why } = ending;
        let said = format!(
            "{program}: {what} ends: its thread \"test\" made the system call {name} ({number}), {why}\n"
        );
        assert_eq!(ended.stderr, said);
    }
}

/// [`assert_ends`], for the list of a kind of thread.
///
/// # Panics
///
/// As there.
pub fn assert_forbidden<K: Kind>(kind: K, calls: &[Call]) {
    println!("list: {}", kind.word());
    assert_ends(&kind.filters().expect("a list"), K::ENDING, calls);
}
