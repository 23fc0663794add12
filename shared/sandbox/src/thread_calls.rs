//! The system calls of every thread, and what must hold for the arguments of calls that lists have in common.

use std::ffi::c_long;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BackendError, SeccompCondition, SeccompRule};

use crate::Conditions;

/// Numbers of system calls by their names.
#[macro_export]
macro_rules! calls {
    ($($constant:ident)*) => { &[$(::libc::$constant),*] };
}

/// Every thread: its locks, its memory, its end, and lines on standard error.
#[rustfmt::skip]
pub const EVERY: &[c_long] = calls![
    SYS_futex SYS_read SYS_write SYS_writev SYS_close SYS_fcntl SYS_sched_yield SYS_restart_syscall
    SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_madvise SYS_brk
    SYS_clock_gettime SYS_clock_nanosleep SYS_gettid SYS_getpid SYS_getrandom SYS_prctl SYS_rseq
    SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigaction SYS_sigaltstack SYS_set_robust_list SYS_sched_getaffinity
    SYS_poll SYS_tgkill SYS_exit SYS_exit_group
];

/// `PR_SET_VMA`, with which the C library names its memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Values of the first argument of `prctl` that every thread may pass.
const PRCTL_OPTIONS: [u64; 4] =
    [libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA, libc::PR_SET_NO_NEW_PRIVS as u64];

/// Commands of `fcntl` that make the system send signals to a process of the caller's choice.
pub const SIGNALING_COMMANDS: [u64; 3] = [libc::F_SETOWN as u64, F_SETSIG, F_SETOWN_EX];
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;

/// The bits of a socket's type, without its flags.
pub const SOCKET_TYPE: u64 = 0xf;

/// A condition: the lower 32 bits of an argument are this value.
///
/// # Errors
///
/// No system call has so many arguments.
pub fn is(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, Dword, Eq, value)?])
}

/// A condition: the lower 32 bits of an argument are none of these values.
///
/// # Errors
///
/// As [`is`].
pub fn is_none_of(argument: u8, values: &[u64]) -> Result<SeccompRule, BackendError> {
    let conditions = values.iter().map(|value| SeccompCondition::new(argument, Dword, Ne, *value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// A pair of sockets of this family and type.
fn pair(family: i32, kind: i32) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![
        SeccompCondition::new(0, Dword, Eq, family as u64)?,
        SeccompCondition::new(1, Dword, MaskedEq(SOCKET_TYPE), kind as u64)?,
    ])
}

/// A condition: the bits of an argument under the mask have this value.
///
/// # Errors
///
/// As [`is`].
pub fn has_bits(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, Qword, MaskedEq(mask), value)?])
}

/// What must hold for the arguments of a call in any list; empty: nothing. Of a list made for this process, because
/// `tgkill` is for its own threads only.
///
/// # Errors
///
/// As [`is`].
pub fn conditions(call: c_long) -> Result<Conditions, BackendError> {
    Ok(match call {
        // No new code.
        libc::SYS_mmap | libc::SYS_mprotect => vec![has_bits(2, libc::PROT_EXEC as u64, 0)?],
        libc::SYS_prctl => PRCTL_OPTIONS.into_iter().map(|option| is(0, option)).collect::<Result<_, _>>()?,
        // A thread, no process.
        libc::SYS_clone => vec![has_bits(0, libc::CLONE_THREAD as u64, libc::CLONE_THREAD as u64)?],
        // `abort` and `raise` of the C library.
        libc::SYS_tgkill => vec![is(0, std::process::id().into())?],
        libc::SYS_ioctl => vec![is(1, libc::FIONBIO)?],
        // A FIFO, the name of a sync file; no device.
        libc::SYS_mknodat => vec![has_bits(2, libc::S_IFMT.into(), libc::S_IFIFO.into())?],
        // The watch of a sync file needs its owner's right to read for a moment. Nobody else gets a right. The mode is a
        // number of 32 bits.
        libc::SYS_fchmodat => vec![has_bits(2, u64::from(!(libc::S_IRUSR | libc::S_IWUSR)), 0)?],
        libc::SYS_fcntl => vec![is_none_of(1, &SIGNALING_COMMANDS)?],
        // Code with a handler of its own would try calls in silence.
        libc::SYS_rt_sigaction => vec![is_none_of(0, &[libc::SIGSYS as u64])?],
        // Datagrams could go to any datagram socket by its path.
        libc::SYS_socketpair => {
            vec![pair(libc::AF_UNIX, libc::SOCK_STREAM)?, pair(libc::AF_UNIX, libc::SOCK_SEQPACKET)?]
        }
        _ => Vec::new(),
    })
}
