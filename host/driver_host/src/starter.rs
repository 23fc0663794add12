//! A process that starts drivers' processes for a daemon that may start no program itself.
//!
//! ```text
//!   daemon, restricted ──number of a driver──▶ starter, one thread ──▶ driver-host PATH
//!                      ◀─ pid; its socket, pidfd, exit status and output (pipes) ─
//! ```
//! The daemon forks it before it has a client. The starter starts only the drivers whose paths it had then, reaps them,
//! and ends when its socket closes, so with the daemon. A driver's process ends with its own socket, as always.
//!
//! `unsafe`: a process forks.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Bytes of an answer: a process number, or an error's text.
const ANSWER_BYTES: usize = 4096;
/// First byte of an answer.
const STARTED: u8 = 0;
const FAILED: u8 = 1;
/// Descriptors of a started process: socket, pidfd, exit status, output.
const DESCRIPTORS: usize = 4;

/// A driver's process that the starter has started.
pub(crate) struct Started {
    pub pid: u32,
    pub socket: UnixStream,
    pub pidfd: OwnedFd,
    /// Has the status of `wait` once the process is reaped.
    pub exit: File,
    /// What it prints.
    pub output: OwnedFd,
}

/// The daemon's end of the starter.
struct Starter {
    /// Locked for a question and its answer.
    socket: Mutex<OwnedFd>,
    drivers: Vec<PathBuf>,
}

static STARTER: OnceLock<Starter> = OnceLock::new();

/// Forks the starter of these drivers; from now on this process starts them by it. Call it once, before this process is
/// restricted. `restrict` runs in the starter first; an error ends it.
///
/// # Errors
///
/// A system call failed.
pub fn fork(drivers: Vec<PathBuf>, restrict: impl FnOnce() -> Result<(), String>) -> io::Result<()> {
    let kind = SocketType::SEQPACKET;
    let (ours, its) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    // SAFETY: the child runs what follows here and leaves by `_exit`. It takes no lock of another thread but the
    // allocator's, which the C library makes safe over a fork.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            let run = || run(&its, &drivers, restrict);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(i32::from(ended.is_err())) }
        }
        _ => {
            drop(its);
            let starter = Starter { socket: Mutex::new(ours), drivers };
            STARTER.set(starter).map_err(|_| io::Error::other("this process has a starter already"))
        }
    }
}

/// Starts a driver by the starter; `None` if this process has none and starts drivers itself.
pub(crate) fn start(driver: &Path) -> Option<Result<Started, String>> {
    let starter = STARTER.get()?;
    let number = starter.drivers.iter().position(|known| known == driver);
    let number = number.ok_or_else(|| format!("{} is not in the daemon's configuration", driver.display()));
    Some(number.and_then(|number| starter.ask(number as u32).map_err(|error| error.to_string())?))
}

impl Starter {
    fn ask(&self, number: u32) -> io::Result<Result<Started, String>> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        send(&*socket, &number.to_ne_bytes(), SendFlags::NOSIGNAL)?;
        let mut bytes = [0; ANSWER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = loop {
            match recvmsg(&*socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        let descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let mut descriptors = descriptors.flatten();
        let answer = &bytes[..received.bytes];
        let mut next = || descriptors.next();
        match (answer.split_first(), next(), next(), next(), next()) {
            (Some((&STARTED, pid)), Some(socket), Some(pidfd), Some(exit), Some(output)) => {
                let pid = pid.try_into().map(u32::from_ne_bytes).map_err(io::Error::other)?;
                Ok(Ok(Started { pid, socket: socket.into(), pidfd, exit: exit.into(), output }))
            }
            (Some((&FAILED, text)), ..) => Ok(Err(String::from_utf8_lossy(text).into_owned())),
            _ => Err(io::Error::other("the process that starts drivers has ended")),
        }
    }
}

/// A process to be reaped.
struct Running {
    child: Child,
    pidfd: OwnedFd,
    exit: File,
}

fn run(socket: &OwnedFd, drivers: &[PathBuf], restrict: impl FnOnce() -> Result<(), String>) {
    // The terminal's signals are for the daemon, which ends this process by its socket.
    let _ = rustix::process::setpgid(None, None);
    let _ = rustix::thread::set_name(c"gpupv-drivers");
    if let Err(why) = restrict() {
        eprintln!("gpupv: drivers in C cannot be started: {why}");
        return;
    }
    let mut running: Vec<Running> = Vec::new();
    loop {
        let pidfds = running.iter().map(|one| PollFd::new(&one.pidfd, PollFlags::IN));
        let mut polled: Vec<_> = std::iter::once(PollFd::new(socket, PollFlags::IN)).chain(pidfds).collect();
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let is_asked = !polled[0].revents().is_empty();
        let exited: Vec<_> = (0..running.len()).filter(|one| !polled[one + 1].revents().is_empty()).collect();
        drop(polled);
        for one in exited.into_iter().rev() {
            reap(running.swap_remove(one));
        }
        if is_asked && !answer(socket, drivers, &mut running) {
            return;
        }
    }
}

fn reap(Running { mut child, mut exit, .. }: Running) {
    if let Ok(status) = child.wait() {
        // The daemon may have forgotten the process.
        let _ = exit.write_all(&status.into_raw().to_ne_bytes());
    }
}

/// Answers a question of the daemon; false if there will be no other.
fn answer(socket: &OwnedFd, drivers: &[PathBuf], running: &mut Vec<Running>) -> bool {
    let mut number = [0; size_of::<u32>()];
    match recv(socket, &mut number, RecvFlags::empty()) {
        Ok((length, _)) if length == number.len() => {}
        Err(Errno::INTR) => return true,
        _ => return false,
    }
    let driver =
        drivers.get(u32::from_ne_bytes(number) as usize).ok_or_else(|| "there is no such driver".into());
    let (pid, descriptors, one) = match driver.and_then(|driver| spawn(driver)) {
        Ok(spawned) => spawned,
        Err(why) => {
            let mut text = vec![FAILED];
            text.extend(why.bytes().take(ANSWER_BYTES - 1));
            return send(socket, &text, SendFlags::NOSIGNAL).is_ok();
        }
    };
    running.push(one);
    let mut bytes = vec![STARTED];
    bytes.extend(pid.to_ne_bytes());
    let pidfd = running.last().map(|one| one.pidfd.as_fd()).expect("pushed above");
    let (socket_of_driver, status, output) = &descriptors;
    let descriptors = [socket_of_driver.as_fd(), pidfd, status.as_fd(), output.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors))
        && sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}

/// The process's number; its socket and the pipes with its exit status and its output; what is reaped.
type Spawned = (u32, (UnixStream, OwnedFd, OwnedFd), Running);

fn spawn(driver: &Path) -> Result<Spawned, String> {
    let (status, exit) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.to_string())?;
    let (mut child, socket, output) = crate::process::spawn(driver)?;
    let pid = child.id();
    match Pid::from_raw(pid as i32).ok_or(Errno::INVAL).and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Ok(pidfd) => Ok((pid, (socket, status, output), Running { child, pidfd, exit: exit.into() })),
        Err(error) => {
            let _ = child.kill().and_then(|()| child.wait());
            Err(error.to_string())
        }
    }
}

/// Waits until the starter has reaped the process; `None` if the starter is gone.
pub(crate) fn exit_status(mut exit: &File) -> Option<ExitStatus> {
    let mut status = [0; size_of::<i32>()];
    io::Read::read_exact(&mut exit, &mut status).ok()?;
    Some(ExitStatus::from_raw(i32::from_ne_bytes(status)))
}
