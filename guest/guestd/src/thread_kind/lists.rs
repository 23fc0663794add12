//! The system calls of each kind of thread of the broker's process.
//!
//! What stands here is what the code of that thread asks for once the process is set up, and why. A call that is not listed
//! ends the broker (`sandbox::violation`).
//!
//! io_uring performs file and socket operations that no filter sees. The broker needs it: a registered buffer pins fence
//! memory, and a ring of its own sets each event. Landlock and the lack of capabilities hold for those operations as well.

use std::ffi::c_long;

use sandbox::thread_calls::{EVERY, conditions as usual_conditions, is};
use sandbox::{BackendError, Conditions, Filters, calls};

use super::ThreadKind;

/// Processes of the guest: their connections, exits and descriptors, which threads close. `seccomp` is of those threads: they
/// begin with this list and add their own.
#[rustfmt::skip]
const CLIENTS: &[c_long] = calls![
    SYS_epoll_wait SYS_epoll_pwait SYS_epoll_create1 SYS_epoll_ctl SYS_accept4 SYS_getsockopt SYS_setsockopt SYS_pidfd_open
    SYS_recvmsg SYS_sendmsg SYS_shutdown SYS_eventfd2 SYS_readlink SYS_readlinkat SYS_clone SYS_clone3 SYS_seccomp
];

/// The host: the link, streams of processes and event channels. A socket is of vsock, so no other address is reached.
#[rustfmt::skip]
const HOST: &[c_long] = calls![
    SYS_socket SYS_bind SYS_connect SYS_recvfrom SYS_sendto SYS_ioctl
];

/// Memory that the host writes, and rings that pin it and set events. `socketpair` is of the test of such a ring. `sysinfo`
/// says how much memory the guest has.
#[rustfmt::skip]
const MEMORY: &[c_long] = calls![
    SYS_sysinfo SYS_memfd_create SYS_ftruncate SYS_pwrite64 SYS_pread64 SYS_openat SYS_mlock SYS_munlock
    SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_socketpair
];

/// NT handles, and sync files in the folder of the broker's socket. `lseek` is of reading a file of `/proc/self` that says what
/// is still watched.
#[rustfmt::skip]
const NT_HANDLES: &[c_long] = calls![
    SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_open SYS_fstat SYS_newfstatat SYS_statx SYS_geteuid
    SYS_mkdirat SYS_mknodat SYS_fchmodat SYS_unlink SYS_unlinkat SYS_ppoll SYS_lseek
];

/// A descriptor of a client that is closed.
const CLOSE: &[c_long] = calls![SYS_setsockopt];

/// What must hold for a call's arguments, one alternative for each rule; empty: nothing.
fn conditions(call: c_long) -> Result<Conditions, BackendError> {
    match call {
        libc::SYS_socket => Ok(vec![is(0, libc::AF_VSOCK as u64)?]),
        _ => usual_conditions(call),
    }
}

/// The filters of a kind of thread.
pub(super) fn filters(kind: ThreadKind) -> Result<Filters, BackendError> {
    let lists: &[&[c_long]] = match kind {
        ThreadKind::Broker => &[EVERY, CLIENTS, HOST, MEMORY, NT_HANDLES],
        ThreadKind::Closer => &[EVERY, CLOSE],
    };
    let calls = lists.iter().copied().flatten().copied();
    Filters::allow(calls.map(|call| Ok((call, conditions(call)?))))
}
