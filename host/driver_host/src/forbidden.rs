//! The system calls that no driver in C may make.
//!
//! A driver is code of its own, and needs what such code needs: files to read, memory, threads. So the list says what is forbidden,
//! not what is allowed: calls that reach other processes, sockets and files of others, the machine or its kernel's less tried
//! parts. Without `connect` and `socket` a hostile driver does not reach the daemon's control socket.

use std::ffi::c_long;

use sandbox::thread_calls::{SIGNALING_COMMANDS, SOCKET_TYPE, has_bits, is, is_none_of};
use sandbox::{BackendError, Conditions, Filters, calls};

/// Processes and programs of its own: a child would outlive the driver. `clone` makes threads only: see [`conditions`].
const CHILDREN: &[c_long] = calls![SYS_fork SYS_vfork SYS_execve SYS_execveat];

/// Other processes: their memory, descriptors and namespaces.
const PROCESSES: &[c_long] = calls![
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_process_mrelease SYS_kcmp
    SYS_pidfd_getfd SYS_pidfd_send_signal SYS_tkill SYS_unshare SYS_setns SYS_move_pages SYS_migrate_pages
];

/// Sockets of others. A pair of its own it may have: see [`conditions`].
const SOCKETS: &[c_long] = calls![SYS_socket SYS_connect SYS_bind SYS_listen];

/// Shared memory, semaphores and queues of others of its user, which landlock does not see and which outlive a driver.
const IPC: &[c_long] = calls![
    SYS_shmget SYS_shmat SYS_shmctl SYS_semget SYS_semop SYS_semtimedop SYS_semctl SYS_msgget SYS_msgsnd SYS_msgrcv
    SYS_msgctl SYS_mq_open SYS_mq_unlink
];

/// The machine: its file systems, modules, clock and power.
const MACHINE: &[c_long] = calls![
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_move_mount SYS_open_tree SYS_fsopen SYS_fsconfig SYS_fsmount
    SYS_fspick SYS_mount_setattr SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd SYS_acct SYS_init_module
    SYS_finit_module SYS_delete_module SYS_kexec_load SYS_kexec_file_load SYS_reboot SYS_sethostname SYS_setdomainname
    SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime SYS_syslog SYS_iopl SYS_ioperm SYS_vhangup
];

/// Parts of the system's kernel in which bugs were found more often than elsewhere, and that filters see little of.
const KERNEL: &[c_long] = calls![
    SYS_bpf SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_perf_event_open SYS_userfaultfd SYS_keyctl
    SYS_add_key SYS_request_key SYS_fanotify_init SYS_name_to_handle_at SYS_open_by_handle_at SYS_modify_ldt
];

/// What landlock has no right for, or no right before version 3: modes, owners, attributes and times of the files of its user,
/// and their truncation. With `chmod` a driver would open the daemon's sockets to all users.
const FILES: &[c_long] = calls![
    SYS_chmod SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_chown SYS_fchown SYS_lchown SYS_fchownat SYS_setxattr SYS_lsetxattr
    SYS_fsetxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr SYS_utime SYS_utimes SYS_utimensat SYS_futimesat
    SYS_truncate SYS_creat
];
/// `setxattrat`, `removexattrat` and `file_setattr`, which the crate `libc` does not name yet.
const NEW_FILES: &[c_long] = &[463, 466, 469];

/// What sends descriptors. The daemon would close those beside an answer while it waits for the answer: of large memory, for
/// seconds. (With pipes instead of a socket, a driver that holds a pipe's lock would stop it.)
const DESCRIPTORS: &[c_long] = calls![SYS_sendmsg SYS_sendmmsg];

/// Locks of files, for which the right to read is enough: one of the journal would keep the next daemon from starting.
const LOCKS: &[c_long] = calls![SYS_flock];
const LOCKING_COMMANDS: [i32; 5] =
    [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW, libc::F_SETLEASE];

/// Calls of which only some are forbidden.
const SOME: &[c_long] = calls![
    SYS_kill SYS_tgkill SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_clone SYS_socketpair SYS_ioctl SYS_fcntl
    SYS_prlimit64 SYS_sched_setaffinity SYS_sched_setscheduler SYS_sched_setparam SYS_sched_setattr SYS_setpriority
    SYS_ioprio_set SYS_open SYS_openat
];

/// Values of the first argument of `setpriority` and `ioprio_set`: the second names a process, not a group or a user.
const PRIO_PROCESS: u64 = libc::PRIO_PROCESS as u64;
const IOPRIO_WHO_PROCESS: u64 = 1;

/// Input for the terminal that the daemon was started from, the processes that it signals and serves, and the process that a
/// socket signals.
const IOCTLS: [u64; 7] =
    [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSPGRP, libc::TIOCSCTTY, libc::FIOASYNC, FIOSETOWN, SIOCSPGRP];
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
/// Kinds of `ioctl` that file systems have: some change attributes, or make folders, and landlock sees none.
const FILE_SYSTEM_IOCTLS: [u64; 3] = [b'f' as u64, b'X' as u64, 0x94];
const IOCTL_KIND: u64 = 0xff00;

/// The flag of `open` with which a file that is opened for reading is truncated.
const TRUNCATES: u64 = libc::O_TRUNC as u64;

/// Flags of `clone` that make a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// When a call is forbidden, one alternative for each rule; empty: always.
fn conditions(call: c_long) -> Result<Conditions, BackendError> {
    let own = std::process::id().into();
    match call {
        // A signal for another process.
        libc::SYS_kill | libc::SYS_tgkill | libc::SYS_rt_sigqueueinfo | libc::SYS_rt_tgsigqueueinfo => {
            Ok(vec![is_none_of(0, &[own])?])
        }
        libc::SYS_fcntl => {
            let locks = LOCKING_COMMANDS.into_iter().map(|command| is(1, command as u64));
            SIGNALING_COMMANDS.into_iter().map(|command| is(1, command)).chain(locks).collect()
        }
        // Limits and priorities of another process: one of processor time would end it.
        libc::SYS_prlimit64
        | libc::SYS_sched_setaffinity
        | libc::SYS_sched_setscheduler
        | libc::SYS_sched_setparam
        | libc::SYS_sched_setattr => Ok(vec![is_none_of(0, &[0, own])?]),
        libc::SYS_setpriority => Ok(vec![is_none_of(0, &[PRIO_PROCESS])?, is_none_of(1, &[0, own])?]),
        libc::SYS_ioprio_set => Ok(vec![is_none_of(0, &[IOPRIO_WHO_PROCESS])?, is_none_of(1, &[0, own])?]),
        libc::SYS_clone => {
            let namespaces = NAMESPACES.into_iter().map(|flag| has_bits(0, flag as u64, flag as u64));
            // A process is what has no flag of a thread.
            namespaces.chain([has_bits(0, libc::CLONE_THREAD as u64, 0)]).collect()
        }
        // Datagrams could go to any datagram socket by its path.
        libc::SYS_socketpair => {
            let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW].into_iter();
            let kinds = kinds.map(|kind| has_bits(1, SOCKET_TYPE, kind as u64));
            kinds.chain([is_none_of(0, &[libc::AF_UNIX as u64])]).collect()
        }
        libc::SYS_ioctl => {
            let kinds = FILE_SYSTEM_IOCTLS.into_iter().map(|kind| has_bits(1, IOCTL_KIND, kind << 8));
            IOCTLS.into_iter().map(|request| is(1, request)).chain(kinds).collect()
        }
        libc::SYS_open => Ok(vec![has_bits(1, TRUNCATES, TRUNCATES)?]),
        libc::SYS_openat => Ok(vec![has_bits(2, TRUNCATES, TRUNCATES)?]),
        _ => Ok(Vec::new()),
    }
}

/// Forbids them.
pub fn filters() -> Result<Filters, BackendError> {
    let calls =
        [CHILDREN, PROCESSES, SOCKETS, IPC, MACHINE, KERNEL, FILES, NEW_FILES, DESCRIPTORS, LOCKS, SOME];
    let calls = calls.into_iter().flatten().copied();
    Filters::forbid(calls.map(|call| Ok((call, conditions(call)?))))
}

#[cfg(test)]
mod tests {
    use sandbox::Kind as _;
    use sandbox::testing::{Call, assert_ends, call, in_child};
    use sandbox::violation::Ending;

    use super::*;
    use crate::thread_kind::ThreadKind;

    const ENDING: Ending = ThreadKind::ENDING;

    #[test]
    fn each_of_them_ends_the_process_and_is_named() {
        let (all, dgram, new_user) = ([0; 4], libc::SOCK_DGRAM.into(), libc::CLONE_NEWUSER | libc::SIGCHLD);
        let unix = libc::AF_UNIX.into();
        let forbidden: [Call; 39] = [
            ("ptrace", libc::SYS_ptrace, all),
            ("process_vm_readv", libc::SYS_process_vm_readv, all),
            ("process_vm_writev", libc::SYS_process_vm_writev, all),
            ("pidfd_getfd", libc::SYS_pidfd_getfd, [-1, 0, 0, 0]),
            ("unshare", libc::SYS_unshare, all),
            ("setns", libc::SYS_setns, [-1, 0, 0, 0]),
            ("socket", libc::SYS_socket, [unix, libc::SOCK_STREAM.into(), 0, 0]),
            ("connect", libc::SYS_connect, [-1, 0, 0, 0]),
            ("bind", libc::SYS_bind, [-1, 0, 0, 0]),
            ("shmget", libc::SYS_shmget, all),
            ("shmctl", libc::SYS_shmctl, [-1, 0, 0, 0]),
            ("semctl", libc::SYS_semctl, [-1, 0, 0, 0]),
            ("mq_open", libc::SYS_mq_open, all),
            ("ioctl", libc::SYS_ioctl, [-1, libc::TIOCSPGRP as i64, 0, 0]),
            ("ioctl", libc::SYS_ioctl, [-1, libc::TIOCSCTTY as i64, 0, 0]),
            ("mount", libc::SYS_mount, all),
            ("finit_module", libc::SYS_finit_module, [-1, 0, 0, 0]),
            ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, -1]),
            ("reboot", libc::SYS_reboot, all),
            ("bpf", libc::SYS_bpf, [-1, 0, 0, 0]),
            ("io_uring_setup", libc::SYS_io_uring_setup, all),
            ("perf_event_open", libc::SYS_perf_event_open, all),
            ("userfaultfd", libc::SYS_userfaultfd, all),
            ("keyctl", libc::SYS_keyctl, [-1, 0, 0, 0]),
            ("open_by_handle_at", libc::SYS_open_by_handle_at, [-1, 0, 0, 0]),
            ("kill", libc::SYS_kill, [1, 0, 0, 0]),
            ("tgkill", libc::SYS_tgkill, [1, 1, 0, 0]),
            ("clone", libc::SYS_clone, [new_user.into(), 0, 0, 0]),
            ("socketpair", libc::SYS_socketpair, [unix, dgram, 0, 0]),
            ("socketpair", libc::SYS_socketpair, [libc::AF_NETLINK.into(), 0, 0, 0]),
            ("fcntl", libc::SYS_fcntl, [-1, libc::F_SETOWN.into(), 1, 0]),
            ("sendmsg", libc::SYS_sendmsg, [-1, 0, 0, 0]),
            ("sendmmsg", libc::SYS_sendmmsg, [-1, 0, 0, 0]),
            ("flock", libc::SYS_flock, [-1, libc::LOCK_SH.into(), 0, 0]),
            ("fcntl", libc::SYS_fcntl, [-1, libc::F_SETLK.into(), 0, 0]),
            ("fcntl", libc::SYS_fcntl, [-1, libc::F_SETLKW.into(), 0, 0]),
            ("fcntl", libc::SYS_fcntl, [-1, libc::F_OFD_SETLK.into(), 0, 0]),
            ("fcntl", libc::SYS_fcntl, [-1, libc::F_OFD_SETLKW.into(), 0, 0]),
            ("fcntl", libc::SYS_fcntl, [-1, libc::F_SETLEASE.into(), 0, 0]),
        ];
        assert_ends(&filters().unwrap(), ENDING, &forbidden);
    }

    /// A child would outlive the driver, and nobody would look at it.
    #[test]
    fn each_that_makes_a_process_or_runs_a_program_ends_the_driver_and_is_named() {
        let shares_memory = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let forbidden: [Call; 6] = [
            ("fork", libc::SYS_fork, [0; 4]),
            ("vfork", libc::SYS_vfork, [0; 4]),
            ("clone", libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0]),
            ("clone", libc::SYS_clone, [shares_memory.into(), 0, 0, 0]),
            ("execve", libc::SYS_execve, [0; 4]),
            ("execveat", libc::SYS_execveat, [-1, 0, 0, 0]),
        ];
        assert_ends(&filters().unwrap(), ENDING, &forbidden);
    }

    /// By signals, limits and priorities.
    #[test]
    fn each_that_reaches_another_process_ends_the_driver_and_is_named() {
        let process = libc::PRIO_PROCESS as c_long;
        let forbidden: [Call; 10] = [
            ("prlimit64", libc::SYS_prlimit64, [1, libc::RLIMIT_CPU as c_long, 0, 0]),
            ("sched_setaffinity", libc::SYS_sched_setaffinity, [1, 0, 0, 0]),
            ("setpriority", libc::SYS_setpriority, [process, 1, 0, 0]),
            ("ioctl", libc::SYS_ioctl, [0, libc::TIOCSTI as c_long, 0, 0]),
            ("ioctl", libc::SYS_ioctl, [-1, FIOSETOWN as c_long, 0, 0]),
            ("ioctl", libc::SYS_ioctl, [-1, SIOCSPGRP as c_long, 0, 0]),
            ("ioctl", libc::SYS_ioctl, [-1, libc::FIOASYNC as c_long, 0, 0]),
            ("ioprio_set", libc::SYS_ioprio_set, [IOPRIO_WHO_PROCESS as c_long, 1, 0, 0]),
            // A `which` that the system does not know, instead of a user's processes.
            ("setpriority", libc::SYS_setpriority, [3, 0, 19, 0]),
            ("ioprio_set", libc::SYS_ioprio_set, [4, 0, 0, 0]),
        ];
        assert_ends(&filters().unwrap(), ENDING, &forbidden);
    }

    #[test]
    fn each_that_changes_a_file_without_writing_it_ends_the_driver_and_is_named() {
        let (all, truncates) = ([0; 4], libc::O_TRUNC.into());
        let forbidden: [Call; 28] = [
            ("ioctl", libc::SYS_ioctl, [-1, libc::FS_IOC_SETFLAGS as c_long, 0, 0]),
            ("ioctl", libc::SYS_ioctl, [-1, 0x401c_5820, 0, 0]),
            ("ioctl", libc::SYS_ioctl, [-1, 0x5000_940e, 0, 0]),
            ("chmod", libc::SYS_chmod, all),
            ("fchmod", libc::SYS_fchmod, [-1, 0, 0, 0]),
            ("fchmodat", libc::SYS_fchmodat, [-1, 0, 0, 0]),
            ("fchmodat2", libc::SYS_fchmodat2, [-1, 0, 0, 0]),
            ("chown", libc::SYS_chown, all),
            ("fchown", libc::SYS_fchown, [-1, 0, 0, 0]),
            ("lchown", libc::SYS_lchown, all),
            ("fchownat", libc::SYS_fchownat, [-1, 0, 0, 0]),
            ("setxattr", libc::SYS_setxattr, all),
            ("lsetxattr", libc::SYS_lsetxattr, all),
            ("fsetxattr", libc::SYS_fsetxattr, [-1, 0, 0, 0]),
            ("removexattr", libc::SYS_removexattr, all),
            ("lremovexattr", libc::SYS_lremovexattr, all),
            ("fremovexattr", libc::SYS_fremovexattr, [-1, 0, 0, 0]),
            ("utime", libc::SYS_utime, all),
            ("utimes", libc::SYS_utimes, all),
            ("utimensat", libc::SYS_utimensat, [-1, 0, 0, 0]),
            ("futimesat", libc::SYS_futimesat, [-1, 0, 0, 0]),
            ("truncate", libc::SYS_truncate, all),
            ("creat", libc::SYS_creat, [-1, 0, 0, 0]),
            ("without a name", NEW_FILES[0], [-1, 0, 0, 0]),
            ("without a name", NEW_FILES[1], [-1, 0, 0, 0]),
            ("without a name", NEW_FILES[2], [-1, 0, 0, 0]),
            ("open", libc::SYS_open, [0, truncates, 0, 0]),
            ("openat", libc::SYS_openat, [-1, 0, truncates, 0]),
        ];
        assert_ends(&filters().unwrap(), ENDING, &forbidden);
    }

    /// Their arguments are in memory, where a filter sees nothing; the C library goes on without them.
    #[test]
    fn calls_that_no_filter_sees_into_are_refused_as_unknown() {
        for number in [libc::SYS_openat2, libc::SYS_clone3] {
            let ended = in_child(&filters().unwrap(), ENDING, || {
                call(number, [-1, 0, 0, 0]);
                i32::from(std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS))
            });
            assert_eq!(ended.code(), Some(0), "{number}: {}", ended.stderr);
        }
    }

    /// Numbers of the x32 interface name the same calls.
    #[test]
    fn no_call_has_another_number() {
        const X32: c_long = 0x4000_0000;
        let filters = filters().unwrap();
        for number in [libc::SYS_connect, 521, libc::SYS_getpid] {
            let ended = in_child(&filters, ENDING, || {
                call(X32 | number, [0; 4]);
                0
            });
            assert!(ended.is_ended_by_sigsys(), "{number}: {ended:?}");
        }
    }

    #[test]
    fn what_code_of_its_own_needs_is_allowed() {
        let (thread, unix, stream) =
            (libc::CLONE_THREAD.into(), libc::AF_UNIX.into(), libc::SOCK_STREAM.into());
        let calls = [
            (libc::SYS_openat, [-1, 0, 0, 0]),
            (libc::SYS_mmap, [0, 4096, (libc::PROT_READ | libc::PROT_EXEC).into(), libc::MAP_PRIVATE.into()]),
            // The system refuses a thread without memory in common.
            (libc::SYS_clone, [thread, 0, 0, 0]),
            (libc::SYS_socketpair, [unix, stream, 0, 0]),
            (libc::SYS_tgkill, [std::process::id().into(), 0, 0, 0]),
            (libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as c_long, 0, 0]),
            (libc::SYS_fcntl, [0, libc::F_GETFD.into(), 0, 0]),
            (libc::SYS_sched_setaffinity, [0; 4]),
        ];
        for (number, arguments) in calls {
            let ended = in_child(&filters().unwrap(), ENDING, || {
                call(number, arguments);
                0
            });
            assert_eq!(ended.code(), Some(0), "{number}: {}", ended.stderr);
        }
    }
}
