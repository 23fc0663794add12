use std::ffi::c_long;
use std::fs::File;
use std::os::fd::AsRawFd as _;

use sandbox::testing::{Call, assert_forbidden, call, in_child};

use super::*;

/// Calls that no thread may make, with arguments.
fn forbidden() -> Vec<Call> {
    let inet = libc::AF_INET as c_long;
    let stream = libc::SOCK_STREAM as c_long;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as c_long;
    let (dumpable, vfork) = (libc::PR_SET_DUMPABLE as c_long, (libc::CLONE_VFORK | libc::SIGCHLD) as c_long);
    let device = (libc::S_IFCHR | 0o600) as c_long;
    vec![
        ("execve", libc::SYS_execve, [0; 4]),
        ("execveat", libc::SYS_execveat, [0; 4]),
        ("fork", libc::SYS_fork, [0; 4]),
        ("vfork", libc::SYS_vfork, [0; 4]),
        ("ptrace", libc::SYS_ptrace, [0; 4]),
        ("tgkill", libc::SYS_tgkill, [1, 1, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [0; 4]),
        ("socket", libc::SYS_socket, [inet, stream, 0, 0]),
        ("connect", libc::SYS_connect, [-1, 0, 0, 0]),
        ("bind", libc::SYS_bind, [-1, 0, 0, 0]),
        ("listen", libc::SYS_listen, [-1, 0, 0, 0]),
        ("accept", libc::SYS_accept, [-1, 0, 0, 0]),
        ("getsockname", libc::SYS_getsockname, [-1, 0, 0, 0]),
        ("msync", libc::SYS_msync, [0; 4]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [0; 4]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0; 4]),
        ("bpf", libc::SYS_bpf, [0; 4]),
        ("setuid", libc::SYS_setuid, [0; 4]),
        ("mount", libc::SYS_mount, [0; 4]),
        ("unshare", libc::SYS_unshare, [0; 4]),
        ("mmap", libc::SYS_mmap, [0, 4096, executable, libc::MAP_PRIVATE as c_long]),
        ("mprotect", libc::SYS_mprotect, [0, 4096, executable, 0]),
        ("prctl", libc::SYS_prctl, [dumpable, 1, 0, 0]),
        ("clone", libc::SYS_clone, [vfork, 0, 0, 0]),
        ("mknodat", libc::SYS_mknodat, [-1, 0, device, 0]),
        ("chmod", libc::SYS_chmod, [0; 4]),
        ("fchmodat", libc::SYS_fchmodat, [-1, 0, 0o644, 0]),
        ("ioctl", libc::SYS_ioctl, [0, libc::TIOCSTI as c_long, 0, 0]),
        ("rt_sigaction", libc::SYS_rt_sigaction, [libc::SIGSYS.into(), 0, 0, 8]),
        ("symlink", libc::SYS_symlink, [0; 4]),
        ("link", libc::SYS_link, [0; 4]),
        ("chown", libc::SYS_chown, [0; 4]),
    ]
}

#[test]
fn a_forbidden_call_ends_the_process_of_each_kind_of_thread_and_is_named() {
    for kind in ThreadKind::ALL {
        assert_forbidden(*kind, &forbidden());
    }
}

#[test]
fn a_kind_may_not_make_the_calls_of_another() {
    let fork = c_long::from(libc::SIGCHLD | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID);
    for kind in ThreadKind::ALL.iter().copied() {
        let filters = kind.filters().unwrap();
        let others = [
            (libc::SYS_openat, [-1, 0, 0, 0], !kind.runs_drivers()),
            (
                libc::SYS_accept4,
                [-1, 0, 0, 0],
                !matches!(kind, ThreadKind::Local | ThreadKind::Device | ThreadKind::Control),
            ),
            (libc::SYS_epoll_wait, [-1, 0, 0, 0], !matches!(kind, ThreadKind::Device | ThreadKind::Control)),
            (libc::SYS_fsync, [-1, 0, 0, 0], !kind.runs_drivers()),
            (libc::SYS_pidfd_open, [-1, 0, 0, 0], !matches!(kind, ThreadKind::Local | ThreadKind::Control)),
            (libc::SYS_kill, [0, 0, 0, 0], kind != ThreadKind::Control),
            (libc::SYS_sendto, [-1, 0, 0, 0], !kind.runs_drivers() || kind == ThreadKind::JournalKeeper),
            (libc::SYS_io_destroy, [0; 4], !kind.runs_drivers() || kind == ThreadKind::JournalKeeper),
            (libc::SYS_clone, [fork, 0, 0, 0], kind != ThreadKind::Control),
        ];
        for (number, arguments, is_forbidden) in others {
            let ended = in_child(&filters, ThreadKind::ENDING, || {
                // A child of `clone` goes on here as well, and ends alike.
                call(number, arguments);
                0
            });
            assert_eq!(ended.is_ended_by_sigsys(), is_forbidden, "{kind:?} {number}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_full_standard_error_does_not_keep_the_process_alive() {
    let (output, input) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    while rustix::io::write(&input, &[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&input, rustix::fs::OFlags::empty()).unwrap();
    let filters = ThreadKind::Log.filters().unwrap();
    let ended = in_child(&filters, ThreadKind::ENDING, || {
        // SAFETY: numbers of open descriptors. `dup2` is not in the list, so the descriptor is moved by `fcntl`.
        unsafe {
            libc::close(2);
            libc::fcntl(input.as_raw_fd(), libc::F_DUPFD, 2);
        }
        call(libc::SYS_execve, [0; 4]);
        0
    });
    drop(File::from(output));
    assert!(ended.is_ended_by_sigsys());
}

#[test]
fn threads_start_under_a_list_that_has_them() {
    for kind in [ThreadKind::Control, ThreadKind::Local, ThreadKind::Device, ThreadKind::Timer] {
        let filters = kind.filters().unwrap();
        sandbox::violation::install(ThreadKind::ENDING).unwrap();
        // A thread of this process: a violation would end the tests, which no list causes here.
        let outer = std::thread::spawn(move || {
            filters.install().unwrap();
            std::thread::spawn(|| vec![0_u8; 1 << 20].len()).join().unwrap()
        });
        assert_eq!(outer.join().unwrap(), 1 << 20, "{kind:?}");
    }
}

#[test]
fn a_thread_may_signal_threads_of_its_own_process() {
    let filters = ThreadKind::Log.filters().unwrap();
    let thread = std::thread::spawn(move || {
        sandbox::violation::install(ThreadKind::ENDING).unwrap();
        filters.install().unwrap();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        call(libc::SYS_tgkill, [std::process::id().into(), thread.into(), 0, 0])
    });
    assert_eq!(thread.join().unwrap(), 0);
}

/// The signals that the calling thread blocks, a bit for each.
fn blocked_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

#[test]
fn only_threads_of_the_control_service_handle_signals_of_the_process() {
    let bits = |signals: &[i32]| signals.iter().fold(0, |bits, signal| bits | 1 << (signal - 1));
    let handled = bits(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD, libc::SIGUSR1]);
    let own = bits(&[libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT]);
    for kind in ThreadKind::ALL.iter().copied() {
        let entered = move || {
            sandbox::enter(kind);
            [blocked_signals(), std::thread::spawn(blocked_signals).join().unwrap()]
        };
        // This process did not restrict itself, so threads that read clients do not wait.
        for blocked in std::thread::spawn(entered).join().unwrap() {
            let expected = if kind == ThreadKind::Control { 0 } else { handled };
            assert_eq!((blocked & handled, blocked & own), (expected, 0), "{kind:?}: {blocked:#x}");
        }
    }
}
