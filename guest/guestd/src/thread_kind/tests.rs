use std::ffi::c_long;

use sandbox::testing::{Call, assert_forbidden, call, in_child};

use super::*;

/// Calls that no thread of the broker may make, with arguments.
fn forbidden() -> Vec<Call> {
    let stream = libc::SOCK_STREAM as c_long;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as c_long;
    let dumpable = libc::PR_SET_DUMPABLE as c_long;
    let forks = [libc::SIGCHLD, libc::CLONE_VFORK | libc::SIGCHLD].map(c_long::from);
    let device = c_long::from(libc::S_IFCHR | 0o600);
    vec![
        ("execve", libc::SYS_execve, [0; 4]),
        ("execveat", libc::SYS_execveat, [0; 4]),
        ("fork", libc::SYS_fork, [0; 4]),
        ("vfork", libc::SYS_vfork, [0; 4]),
        ("clone", libc::SYS_clone, [forks[0], 0, 0, 0]),
        ("clone", libc::SYS_clone, [forks[1], 0, 0, 0]),
        ("socket", libc::SYS_socket, [libc::AF_INET.into(), stream, 0, 0]),
        ("socket", libc::SYS_socket, [libc::AF_UNIX.into(), stream, 0, 0]),
        ("socket", libc::SYS_socket, [libc::AF_NETLINK.into(), stream, 0, 0]),
        ("ptrace", libc::SYS_ptrace, [0; 4]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [0; 4]),
        ("kill", libc::SYS_kill, [0; 4]),
        ("tgkill", libc::SYS_tgkill, [1, 1, 0, 0]),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal, [-1, 0, 0, 0]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, [-1, 0, 0, 0]),
        ("init_module", libc::SYS_init_module, [0; 4]),
        ("finit_module", libc::SYS_finit_module, [-1, 0, 0, 0]),
        ("reboot", libc::SYS_reboot, [0; 4]),
        ("mount", libc::SYS_mount, [0; 4]),
        ("unshare", libc::SYS_unshare, [0; 4]),
        ("setns", libc::SYS_setns, [-1, 0, 0, 0]),
        ("bpf", libc::SYS_bpf, [0; 4]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [0; 4]),
        ("mmap", libc::SYS_mmap, [0, 4096, executable, libc::MAP_PRIVATE.into()]),
        ("mprotect", libc::SYS_mprotect, [0, 4096, executable, 0]),
        ("prctl", libc::SYS_prctl, [dumpable, 1, 0, 0]),
        ("mknodat", libc::SYS_mknodat, [-1, 0, device, 0]),
        ("fchmodat", libc::SYS_fchmodat, [-1, 0, 0o4700, 0]),
        ("ioctl", libc::SYS_ioctl, [0, libc::TIOCSTI as c_long, 0, 0]),
        ("rt_sigaction", libc::SYS_rt_sigaction, [libc::SIGSYS.into(), 0, 0, 8]),
        ("socketpair", libc::SYS_socketpair, [libc::AF_UNIX.into(), libc::SOCK_DGRAM.into(), 0, 0]),
        ("fcntl", libc::SYS_fcntl, [-1, libc::F_SETOWN.into(), 1, 0]),
        ("setrlimit", libc::SYS_setrlimit, [0; 4]),
        ("setuid", libc::SYS_setuid, [0; 4]),
        ("chown", libc::SYS_chown, [0; 4]),
    ]
}

#[test]
fn a_forbidden_call_ends_the_broker_from_each_kind_of_thread_and_is_named() {
    for kind in ThreadKind::ALL {
        assert_forbidden(*kind, &forbidden());
    }
}

/// As the broker's thread starts it: with the first foreign descriptor of a user.
#[test]
fn a_closing_thread_adds_its_list_to_that_of_the_broker() {
    let closer = ThreadKind::Closer.filters().unwrap();
    let ended = in_child(&ThreadKind::Broker.filters().unwrap(), ThreadKind::ENDING, || {
        i32::from(closer.install().is_err())
    });
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
}

/// It has the list of the broker as well, whose thread starts it.
#[test]
fn a_closing_thread_opens_nothing_and_connects_to_nothing() {
    let calls = [
        ("openat", libc::SYS_openat, [-1, 0, 0, 0]),
        ("socket", libc::SYS_socket, [libc::AF_VSOCK.into(), 0, 0, 0]),
        ("connect", libc::SYS_connect, [-1, 0, 0, 0]),
        ("sendmsg", libc::SYS_sendmsg, [-1, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0; 4]),
        ("memfd_create", libc::SYS_memfd_create, [0; 4]),
    ];
    assert_forbidden(ThreadKind::Closer, &calls);
    let filters = ThreadKind::Broker.filters().unwrap();
    for (name, number, arguments) in calls {
        let ended = in_child(&filters, ThreadKind::ENDING, || {
            call(number, arguments);
            0
        });
        assert_eq!(ended.code(), Some(0), "{name}: {}", ended.stderr);
    }
}
