//! The system calls of each kind of thread.
//!
//! The lists were recorded with strace over the tests of `tests/e2e` and then read line by line: what stands here is
//! what the code of that thread asks for, and why. A call that is not listed ends the daemon (`sandbox::violation`).
//! Calls with conditions are in [`conditions`]; the system decides all others by one bit, without running the filter.

use std::ffi::c_long;

use sandbox::thread_calls::{EVERY, conditions as usual_conditions, is};
use sandbox::{BackendError, Conditions, Filters, calls};

use super::ThreadKind;

/// Files of the trace and the journal, within what landlock allows. A step of the kernel begins a segment of the journal
/// and dumps the flight recorder. A panic that a driver causes reads the program's own file for its backtrace.
#[rustfmt::skip]
const FILES: &[c_long] = calls![
    SYS_pwrite64 SYS_pread64 SYS_lseek SYS_openat SYS_open SYS_fstat SYS_newfstatat SYS_statx SYS_ftruncate SYS_fallocate
    SYS_fsync SYS_fdatasync SYS_flock SYS_unlink SYS_rename SYS_getdents64
    SYS_unlinkat SYS_readlink SYS_readlinkat SYS_getcwd
];

/// A step of the kernel, on whatever thread: its effects go to clients, its timer is set, and what a client may delay is
/// closed by a new thread. `io_destroy` is of the last thread that has what sets eventfds. Drivers in C are asked through pipes,
/// started by another process, and killed by their pidfds.
#[rustfmt::skip]
const STEP: &[c_long] = calls![
    SYS_sendto SYS_sendmsg SYS_timerfd_settime SYS_io_submit SYS_io_getevents SYS_io_destroy SYS_shutdown SYS_ppoll
    SYS_eventfd2 SYS_epoll_ctl SYS_recvfrom SYS_recvmsg SYS_getsockopt SYS_clone SYS_clone3 SYS_pidfd_send_signal
    SYS_ioctl
];

/// Local processes: connections, streams, memory and handles that they are given.
#[rustfmt::skip]
const LOCAL: &[c_long] = calls![
    SYS_epoll_pwait SYS_accept4 SYS_setsockopt SYS_socketpair SYS_memfd_create SYS_pidfd_open
    SYS_timerfd_create SYS_epoll_create1 SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_mknodat
    SYS_fchmodat SYS_mkdirat SYS_geteuid SYS_fstatfs
];

/// The device of a VM: QEMU's connection, its memory and its rings.
#[rustfmt::skip]
const DEVICE: &[c_long] = calls![
    SYS_epoll_wait SYS_epoll_pwait SYS_accept4 SYS_timerfd_create SYS_epoll_create1 SYS_memfd_create
    SYS_fstatfs
];

/// The control service: connections of administrators, and a child process that reads a big state.
#[rustfmt::skip]
const CONTROL: &[c_long] = calls![
    SYS_epoll_wait SYS_epoll_pwait SYS_accept4 SYS_getpeername SYS_setsockopt SYS_geteuid
    SYS_pipe2 SYS_wait4 SYS_kill SYS_pidfd_open
];

/// The thread that replays segments of the journal, behind all clients; drivers in C answer as they are recorded.
const KEEPER: &[c_long] = calls![SYS_setpriority];

/// The thread that writes to the disk.
const DISK: &[c_long] = calls![SYS_fdatasync SYS_pwrite64 SYS_lseek SYS_ftruncate SYS_fallocate];

/// The thread that reads what drivers in C print: it waits for their pipes.
const OUTPUT: &[c_long] = calls![SYS_ppoll];

impl ThreadKind {
    fn lists(self) -> &'static [&'static [c_long]] {
        match self {
            ThreadKind::Local => &[EVERY, STEP, LOCAL, FILES],
            ThreadKind::Device => &[EVERY, STEP, DEVICE, FILES],
            ThreadKind::Timer => &[EVERY, STEP, FILES],
            ThreadKind::Control => &[EVERY, STEP, CONTROL, FILES],
            ThreadKind::JournalKeeper => &[EVERY, KEEPER, FILES],
            ThreadKind::DiskWriter => &[EVERY, DISK],
            ThreadKind::DriverOutput => &[EVERY, OUTPUT],
            ThreadKind::Log | ThreadKind::FreeMemory => &[EVERY],
        }
    }

    /// The numbers of the system calls that it may make.
    fn calls(self) -> impl Iterator<Item = c_long> {
        self.lists().iter().copied().flatten().copied()
    }
}

/// What must hold for a call's arguments, one alternative for each rule; empty: nothing.
fn conditions(kind: ThreadKind, call: c_long) -> Result<Conditions, BackendError> {
    let mut rules = usual_conditions(call)?;
    match (kind, call) {
        // The child of `fork` that reads a big state; it ends with the daemon.
        (ThreadKind::Control, libc::SYS_clone) => {
            let forked = libc::SIGCHLD | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
            rules.push(is(0, forked as u64)?);
        }
        (ThreadKind::Control, libc::SYS_prctl) => rules.push(is(0, libc::PR_SET_PDEATHSIG as u64)?),
        _ => {}
    }
    Ok(rules)
}

/// The filters of a kind of thread.
pub(super) fn filters(kind: ThreadKind) -> Result<Filters, BackendError> {
    Filters::allow(kind.calls().map(|call| Ok((call, conditions(kind, call)?))))
}
