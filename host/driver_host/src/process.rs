//! The driver's process, as the daemon sees it.
//!
//! ```text
//!   start ──▶ loading ──load──▶ idle ◀──ask──▶ in a DDI
//!                │                │               │  exit, signal, too long, bad message
//!                └────────────────┴───────────────┴──▶ lost: killed and reaped
//! ```
//! The process ends when its socket closes, even inside of a DDI: it watches the socket in a thread. So it ends with
//! the daemon, however that ends. A thread of the daemon reaps it whenever it exits, or the starter does (`starter.rs`).

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Once;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;

use crate::abi::Ddi;
use crate::limits::{DDI_MAX, DDI_WALL_MAX, LAST_LINES_MAX, LOAD_MAX};
use crate::messages::{self, Answer, Hello, Incoming, PROTOCOL_VERSION, Request};
use crate::output::{self, Output};
use crate::slow::SlowDdis;
use crate::starter::{self, Started};
use crate::watch::{Look, look, own_ns};

/// Name of the program.
pub const PROGRAM: &str = "driver-host";
/// The program's first argument, up to the level of its sandbox.
pub const LEVEL_OPTION: &str = "--sandbox=";
/// Environment variable with the path of the program.
pub const PROGRAM_ENV: &str = "GPUPV_DRIVER_HOST";
/// Environment variable with the folder of gpupv's programs.
const LIBDIR_ENV: &str = "GPUPV_LIBDIR";
/// Environment variable, set to lift the bounds of time: for a debugger.
pub const UNBOUNDED_ENV: &str = "GPUPV_DRIVER_UNBOUNDED";

/// After each of these the daemon looks whether the process had a CPU.
const SLICE: Duration = Duration::from_millis(1);

/// Reads of one answer that may be later than its bound, if their bytes are there.
const LATE_READS_MAX: u32 = 4;

/// How long the daemon waits for one thing.
#[derive(Clone, Copy)]
struct Bound {
    own: Duration,
    wall: Duration,
}

/// How long the daemon has waited for one thing in all.
struct Patience {
    what: &'static str,
    bound: Bound,
    began: Instant,
    /// Time in which the process had a CPU, or wanted none.
    counted: Duration,
    before: Option<Look>,
    /// Reads that may still be late.
    late_reads: u32,
}

impl Patience {
    fn new(what: &'static str, bound: Bound) -> Patience {
        let (began, counted, before) = (Instant::now(), Duration::ZERO, None);
        Patience { what, bound, began, counted, before, late_reads: LATE_READS_MAX }
    }

    /// Counts a slice. The rest of a longer one is time in which this thread had no CPU.
    fn count(&mut self, slice: Duration) {
        self.counted += slice.min(2 * SLICE);
    }

    fn is_over(&self) -> bool {
        self.counted >= self.bound.own || self.began.elapsed() >= self.bound.wall
    }
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// How the exit status of a process is learned.
enum Reaper {
    /// A thread of this process reaps it. Another may write what it prints: see [`Output::print`].
    Thread(JoinHandle<io::Result<ExitStatus>>, Option<Receiver<Infallible>>),
    /// The starter reaps it, and writes the status into this pipe.
    Starter(File),
}

impl Reaper {
    /// Waits until the process is reaped.
    fn wait(self) -> Option<ExitStatus> {
        match self {
            Reaper::Thread(thread, printed) => {
                let status = thread.join().ok()?.ok();
                // This program may end next, and the thread with it.
                let _ = printed.map(|printed| printed.recv_timeout(LAST_LINES_MAX));
                status
            }
            Reaper::Starter(exit) => starter::exit_status(&exit),
        }
    }
}

/// A process that runs one driver for one adapter.
pub struct DriverProcess {
    pid: u32,
    pidfd: OwnedFd,
    socket: UnixStream,
    incoming: Incoming,
    slow: SlowDdis,
    began: Instant,
    /// `None` once it was waited for.
    reaper: Option<Reaper>,
    is_bounded: bool,
}

impl DriverProcess {
    /// Starts the process, by the [`starter`] if this process has one; [`DriverProcess::load`] waits for it.
    pub fn start(driver: &Path) -> Result<DriverProcess, String> {
        if let Some(started) = starter::start(driver) {
            let Started { pid, socket, pidfd, exit, output } = started?;
            return output::hand_over(Output::new(pid, driver, output))
                .and_then(|_| DriverProcess::over(pid, pidfd, socket, Reaper::Starter(exit)))
                .map_err(|error| error.to_string());
        }
        let (child, socket, output) = spawn(driver)?;
        output::hand_over(Output::new(child.id(), driver, output))
            .and_then(|printed| DriverProcess::of_child(child, socket, printed))
            .map_err(|error| format!("{PROGRAM} does not start: {error}"))
    }

    fn of_child(
        mut child: Child,
        socket: UnixStream,
        printed: Option<Receiver<Infallible>>,
    ) -> io::Result<DriverProcess> {
        let pid = child.id();
        let known = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = match pidfd_open(known, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(error.into());
            }
        };
        let reap = move || child.wait();
        let reaper =
            std::thread::Builder::new().name("driver-reaper".into()).stack_size(64 << 10).spawn(reap)?;
        DriverProcess::over(pid, pidfd, socket, Reaper::Thread(reaper, printed))
    }

    fn over(pid: u32, pidfd: OwnedFd, socket: UnixStream, reaper: Reaper) -> io::Result<DriverProcess> {
        socket.set_nonblocking(true)?;
        let (incoming, is_bounded) = (Incoming::default(), std::env::var_os(UNBOUNDED_ENV).is_none());
        let (slow, began) = (SlowDdis::default(), Instant::now());
        Ok(DriverProcess { pid, pidfd, socket, incoming, slow, began, reaper: Some(reaper), is_bounded })
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the driver is loaded. Returns which DDIs it has.
    pub fn load(&mut self) -> Result<Vec<bool>, String> {
        let mut patience = Patience::new("its entry", Bound { own: LOAD_MAX, wall: LOAD_MAX });
        let hello: Hello = self.receive(&mut patience)?;
        if hello.protocol != PROTOCOL_VERSION {
            return Err(format!(
                "{PROGRAM} is of another build: its protocol is {}, not {PROTOCOL_VERSION}",
                hello.protocol
            ));
        }
        say_missing(&hello.missing);
        hello.loaded
    }

    /// Why calls of this VM are refused, if they are: those before took the driver too long.
    pub fn refusal(&self, vm: u32) -> Option<String> {
        let took = self.slow.refused(vm, self.began.elapsed()).filter(|_| self.is_bounded)?;
        Some(format!(
            "calls of VM {vm} are refused: its slow DDIs took {} ms, a tenth of the time at most is possible",
            took.as_millis()
        ))
    }

    /// Calls a DDI, for the VM whose call led to it. An error says how the driver was lost.
    pub fn ask(&mut self, request: &Request, vm: Option<u32>) -> Result<Answer, String> {
        let own = match request.ddi {
            // A state may be large, and it is copied several times.
            Ddi::SimSaveState(_) | Ddi::SimRestoreState(_) => LOAD_MAX,
            _ => DDI_MAX,
        };
        let bound = Bound { own, wall: own.max(DDI_WALL_MAX) };
        let mut patience = Patience::new(request.ddi.name(), bound);
        self.send(request, &mut patience)?;
        let answer = self.receive(&mut patience)?;
        let now = self.began.elapsed();
        if own == DDI_MAX && self.slow.add(vm, patience.counted, now) && self.is_bounded {
            self.kill();
            return Err(format!(
                "it hangs: its DDIs took {} ms, a tenth of the time at most is possible",
                self.slow.total().as_millis()
            ));
        }
        Ok(answer)
    }

    fn send(&mut self, request: &Request, patience: &mut Patience) -> Result<(), String> {
        let bytes = messages::encode(request).map_err(|error| self.lost(&error))?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match (&self.socket).write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if is_not_ready(&error) => self.await_ready(PollFlags::OUT, patience)?,
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(())
    }

    /// Receives a message: all of it within the bound, however its bytes come.
    fn receive<T: DeserializeOwned>(&mut self, patience: &mut Patience) -> Result<T, String> {
        loop {
            self.await_ready(PollFlags::IN, patience)?;
            match self.incoming.read(&mut &self.socket) {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) if is_not_ready(&error) => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    /// Waits until the socket is ready. The process is lost if it lets the daemon wait for too long.
    fn await_ready(&mut self, flags: PollFlags, patience: &mut Patience) -> Result<(), String> {
        while !(self.is_bounded && patience.is_over()) {
            let slice = Instant::now();
            if self.is_ready(flags, SLICE)? {
                // A thread of the daemon without a CPU sees it late.
                patience.counted += slice.elapsed().min(SLICE);
                return Ok(());
            }
            let (after, took) = (look(self.pid), slice.elapsed());
            let before = std::mem::replace(&mut patience.before, after);
            let own = own_ns(before, after, took.as_nanos() as u64).map(Duration::from_nanos);
            patience.count(own.unwrap_or(took));
        }
        // What came while this thread had no CPU counts, also if it takes another read; a driver that trickles gets few.
        if patience.late_reads > 0 && self.is_ready(flags, Duration::ZERO)? {
            patience.late_reads -= 1;
            return Ok(());
        }
        // A process that is killed takes time to end.
        if patience.before.is_some_and(|look| look.exits) {
            return Err(self.lost(&io::ErrorKind::UnexpectedEof.into()));
        }
        self.kill();
        Err(format!("it hangs: {} took longer than {} ms", patience.what, patience.bound.own.as_millis()))
    }

    fn is_ready(&self, flags: PollFlags, within: Duration) -> Result<bool, String> {
        let timeout = rustix::time::Timespec::try_from(within).map_err(|error| error.to_string())?;
        let mut polled = [PollFd::new(&self.socket, flags)];
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
        reaper.wait()
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

/// Says once what the sandbox of drivers lacks. A process that restricts itself, as a daemon does, has said it of itself.
fn say_missing(missing: &[String]) {
    static SAID: Once = Once::new();
    if sandbox::level().is_none() && !missing.is_empty() {
        SAID.call_once(|| eprintln!("gpupv: the sandbox of drivers in C lacks {}", missing.join("; ")));
    }
}

/// Starts the program with a driver. Returns the process, which nothing reaps yet, its socket and what it prints.
pub(crate) fn spawn(driver: &Path) -> Result<(Child, UnixStream, OwnedFd), String> {
    let program = program()?;
    let fail = |error: io::Error| format!("{} does not start: {error}", program.display());
    let (socket, its_end) = UnixStream::pair().map_err(fail)?;
    let (output, its_output) = output::pipe().map_err(fail)?;
    let its_errors = its_output.try_clone().map_err(fail)?;
    // In a process without a sandbox as well, so that a driver that works there works in a daemon that has one.
    let level = format!("{LEVEL_OPTION}{}", sandbox::level().unwrap_or_default());
    let mut command = Command::new(&program);
    // A group of its own: the terminal's signals are for the programs that use the driver.
    command.arg(level).arg(driver).stdin(OwnedFd::from(its_end)).stdout(its_output).stderr(its_errors);
    let child = command.process_group(0).spawn().map_err(fail)?;
    Ok((child, socket, output))
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
            "there is no {PROGRAM} beside {}, and a driver in C needs it: set {PROGRAM_ENV} to its path; \
             `cargo build -p {PROGRAM}` in gpupv's source tree builds it",
            own.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
    use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
    use rustix::time::Timespec;

    use super::*;

    /// A driver's process over a socket, whose other end is the test's.
    fn process() -> (DriverProcess, UnixStream) {
        let (socket, its_end) = UnixStream::pair().unwrap();
        let child = Command::new("sleep").arg("60").spawn().expect("sleep is there");
        (DriverProcess::of_child(child, socket, None).unwrap(), its_end)
    }

    /// That of a DDI whose time is over: this thread had no CPU for long.
    fn over() -> Patience {
        let mut patience = Patience::new("a DDI", Bound { own: DDI_MAX, wall: DDI_WALL_MAX });
        while !patience.is_over() {
            patience.count(SLICE);
        }
        patience
    }

    #[test]
    fn a_slice_without_a_cpu_counts_as_two_at_most() {
        let mut patience = Patience::new("a DDI", Bound { own: DDI_MAX, wall: DDI_WALL_MAX });
        patience.count(200 * SLICE);
        assert_eq!(patience.counted, 2 * SLICE);
        assert!(!patience.is_over());
    }

    #[test]
    fn an_answer_that_is_there_is_read_after_its_time_also_in_two_reads() {
        for bytes in [1, 6000] {
            let (mut process, its_end) = process();
            let (missing, loaded) = (Vec::new(), Err("x".repeat(bytes)));
            let hello = Hello { protocol: PROTOCOL_VERSION, missing, loaded };
            messages::write(&mut &its_end, &hello).unwrap();
            assert_eq!(process.receive(&mut over()), Ok(hello), "{bytes} bytes");
        }
    }

    #[test]
    fn a_driver_that_trickles_gets_few_late_reads() {
        let (mut process, mut its_end) = process();
        let (mut patience, mut reads) = (over(), 0);
        its_end.write_all(&[200, 0, 0, 0]).unwrap();
        let lost = loop {
            match process.await_ready(PollFlags::IN, &mut patience) {
                Ok(()) => assert_eq!(process.incoming.read::<Hello>(&mut &process.socket).unwrap(), None),
                Err(lost) => break lost,
            }
            reads += 1;
            its_end.write_all(&[0]).unwrap();
        };
        assert_eq!(reads, LATE_READS_MAX);
        assert!(lost.starts_with("it hangs"), "{lost}");
    }

    /// Both ends of a terminal that has room, but not for a line.
    fn nearly_full_terminal() -> (OwnedFd, OwnedFd) {
        let end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        unlockpt(&end).unwrap();
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let terminal = open(ptsname(&end, Vec::new()).unwrap(), flags, Mode::empty()).unwrap();
        while rustix::io::write(&terminal, &[b'x'; 4096]).is_ok() {}
        let room = || poll(&mut [PollFd::new(&terminal, PollFlags::OUT)], Some(&Timespec::default()));
        while room() == Ok(0) {
            rustix::io::read(&end, &mut [0; 64]).unwrap();
        }
        fcntl_setfl(&terminal, OFlags::empty()).unwrap();
        (end, terminal)
    }

    #[test]
    fn a_terminal_that_nobody_reads_does_not_block_the_end_of_a_process() {
        let (_unread, terminal) = nearly_full_terminal();
        let (pipe, its_output) = output::pipe().unwrap();
        let (socket, _its_end) = UnixStream::pair().unwrap();
        rustix::io::write(&its_output, &[&[b'x'; 1000][..], b"\n"].concat().repeat(20)).unwrap();
        drop(its_output);
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let printed = Output::new(child.id(), Path::new("sleep"), pipe).print(terminal).unwrap();
        let mut process = DriverProcess::of_child(child, socket, Some(printed)).unwrap();
        let began = Instant::now();
        assert_eq!(process.kill().and_then(|status| status.signal()), Some(9));
        assert!(began.elapsed() >= LAST_LINES_MAX, "no line was blocked");
    }
}
