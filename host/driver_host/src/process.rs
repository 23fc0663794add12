//! The driver's process, as the daemon sees it.
//!
//! ```text
//!   start ──▶ loading ──load──▶ idle ◀──ask──▶ in a DDI
//!                │                │               │  exit, signal, too long, bad message
//!                └────────────────┴───────────────┴──▶ lost: killed and reaped
//! ```
//! The process ends when its socket closes, even inside of a DDI: it watches the socket in a thread. So it ends with
//! the daemon, however that ends. A thread of the daemon reaps it whenever it exits.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::abi::Ddi;
use crate::limits::{DDI_MAX, DDI_WALL_MAX, LOAD_MAX};
use crate::messages::{self, Answer, Hello, PROTOCOL_VERSION, Request};
use crate::watch::{look, was_kept_waiting};

/// Name of the program.
pub const PROGRAM: &str = "driver-host";
/// Environment variable with the path of the program.
pub const PROGRAM_ENV: &str = "GPUPV_DRIVER_HOST";
/// Environment variable with the folder of gpupv's programs.
const LIBDIR_ENV: &str = "GPUPV_LIBDIR";
/// Environment variable, set to lift the bounds of time: for a debugger.
pub const UNBOUNDED_ENV: &str = "GPUPV_DRIVER_UNBOUNDED";

/// After each of these the daemon looks whether the process had a CPU.
const SLICE: Duration = Duration::from_millis(1);

/// How long the daemon waits for one thing.
#[derive(Clone, Copy)]
struct Bound {
    own: Duration,
    wall: Duration,
}

/// A process that runs one driver for one adapter.
pub struct DriverProcess {
    pid: u32,
    pidfd: OwnedFd,
    socket: UnixStream,
    /// Reaps the process.
    reaper: Option<JoinHandle<io::Result<ExitStatus>>>,
    is_bounded: bool,
}

impl DriverProcess {
    /// Starts the process; [`DriverProcess::load`] waits for it.
    pub fn start(driver: &Path) -> Result<DriverProcess, String> {
        let program = program()?;
        let fail = |error: io::Error| format!("{} does not start: {error}", program.display());
        let (socket, its_end) = UnixStream::pair().map_err(fail)?;
        let output = io::stderr().as_fd().try_clone_to_owned().map_err(fail)?;
        let mut command = Command::new(&program);
        // A group of its own: the terminal's signals are for the programs that use the driver.
        command.arg(driver).stdin(OwnedFd::from(its_end)).stdout(Stdio::from(output)).process_group(0);
        let child = command.spawn().map_err(fail)?;
        // The parent's copy of the other end closes with the command.
        drop(command);
        DriverProcess::over(child, socket).map_err(fail)
    }

    fn over(mut child: Child, socket: UnixStream) -> io::Result<DriverProcess> {
        let pid = child.id();
        let known = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = match pidfd_open(known, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(error.into());
            }
        };
        let reaper = std::thread::Builder::new()
            .name("driver-reaper".into())
            .stack_size(64 << 10)
            .spawn(move || child.wait())?;
        // A message of which the rest does not come is a bad one.
        socket.set_read_timeout(Some(DDI_WALL_MAX))?;
        socket.set_write_timeout(Some(DDI_WALL_MAX))?;
        let is_bounded = std::env::var_os(UNBOUNDED_ENV).is_none();
        Ok(DriverProcess { pid, pidfd, socket, reaper: Some(reaper), is_bounded })
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the driver is loaded. Returns which DDIs it has.
    pub fn load(&mut self) -> Result<Vec<bool>, String> {
        self.await_message("its entry", Bound { own: LOAD_MAX, wall: LOAD_MAX })?;
        let hello: Hello = messages::read(&mut self.socket).map_err(|error| self.lost(&error))?;
        if hello.protocol != PROTOCOL_VERSION {
            return Err(format!(
                "{PROGRAM} is of another build: its protocol is {}, not {PROTOCOL_VERSION}",
                hello.protocol
            ));
        }
        hello.loaded
    }

    /// Calls a DDI. An error says how the driver was lost.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        messages::write(&mut self.socket, request).map_err(|error| self.lost(&error))?;
        let own = match request.ddi {
            // A state may be large, and it is copied several times.
            Ddi::SimSaveState(_) | Ddi::SimRestoreState(_) => LOAD_MAX,
            _ => DDI_MAX,
        };
        self.await_message(request.ddi.name(), Bound { own, wall: own.max(DDI_WALL_MAX) })?;
        messages::read(&mut self.socket).map_err(|error| self.lost(&error))
    }

    /// Waits for the first bytes of a message. The rest follows at once, because one write has all of it.
    fn await_message(&mut self, what: &str, bound: Bound) -> Result<(), String> {
        let began = Instant::now();
        let mut counted = Duration::ZERO;
        let mut before = None;
        loop {
            let slice = Instant::now();
            if self.is_readable(SLICE)? {
                return Ok(());
            }
            if !self.is_bounded {
                continue;
            }
            let (after, took) = (look(self.pid), slice.elapsed());
            if before.is_none() || !was_kept_waiting(before, after, took.as_nanos() as u64) {
                counted += took;
            }
            before = after;
            if counted < bound.own && began.elapsed() < bound.wall {
                continue;
            }
            // An answer that came while this thread had no CPU counts.
            if self.is_readable(Duration::ZERO)? {
                return Ok(());
            }
            self.kill();
            return Err(format!("it hangs: {what} took longer than {} ms", bound.own.as_millis()));
        }
    }

    fn is_readable(&mut self, within: Duration) -> Result<bool, String> {
        let timeout = rustix::time::Timespec::try_from(within).map_err(|error| error.to_string())?;
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Kills and reaps the process. Returns what is known of its end.
    fn lost(&mut self, error: &io::Error) -> String {
        // A process that has exited by itself keeps its own status.
        let is_gone = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        );
        if !is_gone {
            self.kill();
            return format!("its process sent a bad message: {error}");
        }
        match self.kill() {
            Some(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("its process was killed by signal {signal}"),
                (None, Some(code)) => format!("its process exited with code {code}"),
                (None, None) => "its process ended".into(),
            },
            None => "its process ended".into(),
        }
    }

    fn kill(&mut self) -> Option<ExitStatus> {
        let reaper = self.reaper.take()?;
        // A process that closed its socket is about to exit: its own status says more than a kill's.
        let exits = |within: Duration| {
            let timeout = rustix::time::Timespec::try_from(within).ok();
            let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
            poll(&mut polled, timeout.as_ref()).is_ok_and(|ready| ready > 0)
        };
        let closed = {
            let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
            poll(&mut polled, Some(&rustix::time::Timespec::default())).is_ok_and(|ready| ready > 0)
        };
        if !(closed && exits(DDI_MAX)) {
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        }
        reaper.join().ok()?.ok()
    }
}

impl Drop for DriverProcess {
    fn drop(&mut self) {
        if self.reaper.is_some() {
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
            self.kill();
        }
    }
}

/// The path of the program: of the environment, or beside this program, or in `../lib/gpupv`.
fn program() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(PROGRAM_ENV) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = own.parent().map(Path::to_path_buf);
    let above = beside.as_ref().and_then(|beside| beside.parent());
    // target/debug for a test in target/debug/deps.
    let folders = [
        std::env::var_os(LIBDIR_ENV).map(PathBuf::from),
        beside.clone(),
        above.map(|above| above.join("lib/gpupv")),
        above.map(Path::to_path_buf),
    ];
    let found = folders.into_iter().flatten().map(|folder| folder.join(PROGRAM)).find(|path| path.is_file());
    found.ok_or_else(|| {
        format!(
            "there is no {PROGRAM} beside this program, and a driver in C needs it: set {PROGRAM_ENV} to its path; \
             `cargo build -p {PROGRAM}` in gpupv's source tree builds it"
        )
    })
}
