use std::ffi::{c_int, c_long};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;

use super::*;

/// How a child process ended, and what it wrote on standard error.
struct Ended {
    status: c_int,
    stderr: String,
}

impl Ended {
    fn is_ended_by_sigsys(&self) -> bool {
        libc::WIFSIGNALED(self.status) && libc::WTERMSIG(self.status) == libc::SIGSYS
    }

    fn code(&self) -> Option<c_int> {
        libc::WIFEXITED(self.status).then(|| libc::WEXITSTATUS(self.status))
    }
}

/// Runs a function in a child process whose only thread has the list of this kind. It allocates nothing: other threads
/// of the parent may hold locks.
fn in_child(kind: Kind, run: impl Fn() -> c_int) -> Ended {
    let filters = lists::filters(kind).unwrap();
    let (mut output, input) = std::io::pipe().unwrap();
    // SAFETY: the child makes system calls only, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: system calls with values of this frame.
        unsafe {
            libc::dup2(input.as_raw_fd(), 2);
            libc::prctl(libc::PR_SET_NAME, c"test".as_ptr());
            if violation::install().is_err() || install(&filters).is_err() {
                libc::_exit(99);
            }
            libc::_exit(run());
        }
    }
    drop(input);
    let mut stderr = String::new();
    output.read_to_string(&mut stderr).unwrap();
    let mut status = 0;
    // SAFETY: the child is this process's, and is waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    Ended { status, stderr }
}

fn call(number: c_long, arguments: [c_long; 4]) -> c_long {
    let [a, b, c, d] = arguments;
    // SAFETY: each use below passes numbers or null; a forbidden call ends the process.
    unsafe { libc::syscall(number, a, b, c, d) }
}

/// Calls that no thread may make, with arguments.
fn forbidden() -> Vec<(&'static str, c_long, [c_long; 4])> {
    let inet = libc::AF_INET as c_long;
    let stream = libc::SOCK_STREAM as c_long;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as c_long;
    let (dumpable, vfork) = (libc::PR_SET_DUMPABLE as c_long, (libc::CLONE_VFORK | libc::SIGCHLD) as c_long);
    let device = (libc::S_IFCHR | 0o600) as c_long;
    vec![
        ("execve", libc::SYS_execve, [0; 4]),
        ("execveat", libc::SYS_execveat, [0; 4]),
        ("ptrace", libc::SYS_ptrace, [0; 4]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [0; 4]),
        ("socket", libc::SYS_socket, [inet, stream, 0, 0]),
        ("connect", libc::SYS_connect, [-1, 0, 0, 0]),
        ("bind", libc::SYS_bind, [-1, 0, 0, 0]),
        ("listen", libc::SYS_listen, [-1, 0, 0, 0]),
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
        ("symlink", libc::SYS_symlink, [0; 4]),
        ("link", libc::SYS_link, [0; 4]),
        ("chown", libc::SYS_chown, [0; 4]),
    ]
}

#[test]
fn a_forbidden_call_ends_the_process_of_each_kind_of_thread_and_is_named() {
    for kind in Kind::ALL {
        for (name, number, arguments) in forbidden() {
            let ended = in_child(kind, || {
                call(number, arguments);
                0
            });
            assert!(ended.is_ended_by_sigsys(), "{kind:?} {name}: {:?} {}", ended.code(), ended.stderr);
            let named = format!("thread \"test\" made the system call {name} ({number})");
            assert!(ended.stderr.contains(&named), "{kind:?}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_kind_may_not_make_the_calls_of_another() {
    let fork = c_long::from(libc::SIGCHLD | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID);
    for kind in Kind::ALL {
        let others = [
            (libc::SYS_openat, [-1, 0, 0, 0], !kind.runs_drivers()),
            (libc::SYS_accept4, [-1, 0, 0, 0], !matches!(kind, Kind::Local | Kind::Device | Kind::Control)),
            (libc::SYS_pidfd_open, [-1, 0, 0, 0], !matches!(kind, Kind::Local | Kind::Control)),
            (libc::SYS_kill, [0, 0, 0, 0], kind != Kind::Control),
            (libc::SYS_sendto, [-1, 0, 0, 0], !kind.runs_drivers() || kind == Kind::JournalKeeper),
            (libc::SYS_clone, [fork, 0, 0, 0], kind != Kind::Control),
        ];
        for (number, arguments, is_forbidden) in others {
            let ended = in_child(kind, || {
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
    let ended = in_child(Kind::Log, || {
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
    for kind in [Kind::Control, Kind::Local, Kind::Device, Kind::Timer] {
        let filters = lists::filters(kind).unwrap();
        violation::install().unwrap();
        // A thread of this process: a violation would end the tests, which no list causes here.
        let outer = std::thread::spawn(move || {
            install(&filters).unwrap();
            std::thread::spawn(|| vec![0_u8; 1 << 20].len()).join().unwrap()
        });
        assert_eq!(outer.join().unwrap(), 1 << 20, "{kind:?}");
    }
}
