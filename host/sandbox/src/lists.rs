//! The system calls of each kind of thread.
//!
//! The lists were recorded with strace over the tests of `tests/e2e` and then read line by line: what stands here is
//! what the code of that thread asks for, and why. A call that is not listed ends the daemon (`violation.rs`).
//! Calls with conditions are in [`conditions`]; the system decides all others by one bit, without running the filter.

use std::collections::BTreeMap;
use std::ffi::c_long;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::Kind;

macro_rules! calls {
    ($($constant:ident)*) => { &[$(libc::$constant),*] };
}

/// Every thread: its locks, its memory, its end, and lines on standard error.
#[rustfmt::skip]
const EVERY: &[c_long] = calls![
    SYS_futex SYS_read SYS_write SYS_writev SYS_close SYS_fcntl SYS_sched_yield SYS_restart_syscall
    SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_madvise SYS_brk
    SYS_clock_gettime SYS_clock_nanosleep SYS_gettid SYS_getpid SYS_getrandom SYS_prctl SYS_rseq
    SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigaction SYS_sigaltstack SYS_set_robust_list SYS_sched_getaffinity
    SYS_poll SYS_tgkill SYS_exit SYS_exit_group
];

/// Files of the trace and the journal, within what landlock allows. A step of the kernel begins a segment of the journal
/// and dumps the flight recorder. A panic that a driver causes reads the program's own file for its backtrace.
#[rustfmt::skip]
const FILES: &[c_long] = calls![
    SYS_pwrite64 SYS_pread64 SYS_lseek SYS_openat SYS_open SYS_fstat SYS_newfstatat SYS_statx SYS_ftruncate SYS_fallocate
    SYS_fsync SYS_fdatasync SYS_msync SYS_flock SYS_unlink SYS_rename SYS_getdents64
    SYS_unlinkat SYS_readlink SYS_readlinkat SYS_getcwd
];

/// A step of the kernel, on whatever thread: its effects go to clients, its timer is set, and what a client may delay is
/// closed by a new thread. Drivers in C are asked through their sockets, started by another process, and killed by their
/// pidfds.
#[rustfmt::skip]
const STEP: &[c_long] = calls![
    SYS_sendto SYS_sendmsg SYS_timerfd_settime SYS_io_submit SYS_io_getevents SYS_shutdown SYS_ppoll
    SYS_eventfd2 SYS_epoll_ctl SYS_recvfrom SYS_recvmsg SYS_getsockopt SYS_clone SYS_clone3 SYS_pidfd_send_signal
    SYS_ioctl
];

/// Local processes: connections, streams, memory and handles that they are given.
#[rustfmt::skip]
const LOCAL: &[c_long] = calls![
    SYS_epoll_pwait SYS_epoll_wait SYS_accept4 SYS_setsockopt SYS_socketpair SYS_memfd_create SYS_pidfd_open
    SYS_timerfd_create SYS_epoll_create1 SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_mknodat
    SYS_fchmodat SYS_mkdirat SYS_geteuid
    SYS_io_destroy
];

/// The device of a VM: QEMU's connection, its memory and its rings.
#[rustfmt::skip]
const DEVICE: &[c_long] = calls![
    SYS_epoll_wait SYS_epoll_pwait SYS_accept4 SYS_accept SYS_timerfd_create SYS_epoll_create1 SYS_memfd_create
];

/// The control service: connections of administrators, and a child process that reads a big state.
#[rustfmt::skip]
const CONTROL: &[c_long] = calls![
    SYS_epoll_wait SYS_epoll_pwait SYS_accept4 SYS_getpeername SYS_getsockname SYS_setsockopt
    SYS_pipe2 SYS_wait4 SYS_kill SYS_pidfd_open SYS_io_destroy
];

/// The thread that replays segments of the journal, behind all clients; drivers in C answer as they are recorded.
const KEEPER: &[c_long] = calls![SYS_setpriority];

/// The thread that writes to the disk.
const DISK: &[c_long] =
    calls![SYS_fsync SYS_fdatasync SYS_pwrite64 SYS_lseek SYS_ftruncate SYS_fallocate SYS_msync];

/// `PR_SET_VMA`, with which the C library names its memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

impl Kind {
    fn lists(self) -> &'static [&'static [c_long]] {
        match self {
            Kind::Local => &[EVERY, STEP, LOCAL, FILES],
            Kind::Device => &[EVERY, STEP, DEVICE, FILES],
            Kind::Timer => &[EVERY, STEP, FILES],
            Kind::Control => &[EVERY, STEP, CONTROL, FILES],
            Kind::JournalKeeper => &[EVERY, KEEPER, FILES],
            Kind::DiskWriter => &[EVERY, DISK],
            Kind::Log | Kind::FreeMemory => &[EVERY],
        }
    }

    /// The numbers of the system calls that it may make.
    pub(crate) fn calls(self) -> impl Iterator<Item = c_long> {
        self.lists().iter().copied().flatten().copied()
    }
}

/// What must hold for a call's arguments, one alternative for each rule; empty: nothing.
fn conditions(kind: Kind, call: c_long) -> Result<Vec<SeccompRule>, BackendError> {
    let one = |argument, width, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, width, operator, value)?])
    };
    let no_code = || one(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0);
    Ok(match call {
        // No new code.
        libc::SYS_mmap | libc::SYS_mprotect => vec![no_code()?],
        libc::SYS_prctl => {
            let names = [libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA];
            // The child that reads a big state ends with the daemon.
            let ends = (kind == Kind::Control).then_some(libc::PR_SET_PDEATHSIG as u64);
            names.into_iter().chain(ends).map(|option| one(0, Dword, Eq, option)).collect::<Result<_, _>>()?
        }
        // A thread, and for the control service the child process of `fork`.
        libc::SYS_clone => {
            let thread = libc::CLONE_THREAD as u64;
            let mut rules = vec![one(0, Qword, MaskedEq(thread), thread)?];
            if kind == Kind::Control {
                let forked = libc::SIGCHLD | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
                rules.push(one(0, Qword, Eq, forked as u64)?);
            }
            rules
        }
        libc::SYS_ioctl => vec![one(1, Dword, Eq, libc::FIONBIO)?],
        // A FIFO, the name of a sync file; no device.
        libc::SYS_mknodat => vec![one(2, Dword, MaskedEq(libc::S_IFMT as u64), libc::S_IFIFO as u64)?],
        // The watch of a sync file needs its owner's right to read for a moment. Nobody else gets a right.
        libc::SYS_fchmodat => vec![one(2, Dword, MaskedEq(!u64::from(libc::S_IRUSR | libc::S_IWUSR)), 0)?],
        libc::SYS_socketpair => vec![one(0, Dword, Eq, libc::AF_UNIX as u64)?],
        _ => Vec::new(),
    })
}

/// The filters of a kind of thread, in the order in which they are installed.
pub(crate) fn filters(kind: Kind) -> Result<[BpfProgram; 2], BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // Its arguments are in memory, where a filter sees nothing. Without it the C library uses `clone`.
    let refused = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let no_clone3 = SeccompFilter::new(refused, SeccompAction::Allow, unknown, arch)?;
    let rules = kind.calls().map(|call| Ok((call, conditions(kind, call)?)));
    let rules = rules.collect::<Result<BTreeMap<_, _>, BackendError>>()?;
    let list = SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch)?;
    Ok([no_clone3.try_into()?, list.try_into()?])
}
