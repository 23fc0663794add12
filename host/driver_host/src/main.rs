//! The process of one driver: restricts itself to what drivers need, loads the shared object, and serves its DDIs over the socket
//! at descriptor 0.
//!
//! `unsafe`: code of a shared object is loaded and called, and calls back.

mod callbacks;
#[cfg(target_arch = "x86_64")]
mod forbidden;
mod library;
mod serve;
mod thread_kind;

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use driver_host::messages::{self, Hello, Incoming, PROTOCOL_VERSION};
use driver_host::process::LEVEL_OPTION;
use rustix::event::{PollFd, PollFlags, poll};
use sandbox::Level;
use thread_kind::restrict;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let level = arguments.next().and_then(|level| level.to_str()?.strip_prefix(LEVEL_OPTION)?.parse().ok());
    let (Some(level), Some(path), None) = (level, arguments.next(), arguments.next()) else {
        eprintln!(
            "driver-host runs a kernel-mode driver for gpupv, which starts it: driver-host {LEVEL_OPTION}HOW DRIVER.so"
        );
        return ExitCode::from(2);
    };
    match run(level, path.into()) {
        Ok(()) => ExitCode::SUCCESS,
        // The daemon has closed the socket.
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("driver-host: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(level: Level, path: PathBuf) -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Where the system has no lists, a driver may have children. One that outlives the driver would keep the socket open.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    // Before there is another thread, which would not be restricted.
    let restricted = restrict(level);
    end_with_socket(&socket)?;
    let missing = restricted.clone().unwrap_or_default();
    let loaded = restricted.and_then(|_| library::Library::load(&path));
    let implemented = loaded.as_ref().map(library::Library::implemented).map_err(Clone::clone);
    messages::write(&mut socket, &Hello { protocol: PROTOCOL_VERSION, missing, loaded: implemented })?;
    let Ok(library) = loaded else { return Ok(()) };
    let mut incoming = Incoming::default();
    loop {
        if let Some(request) = incoming.read(&mut socket)? {
            messages::write(&mut socket, &serve::serve(&library, request))?;
        }
    }
}

/// Ends the process when the daemon's end of the socket closes, even if the driver never returns.
fn end_with_socket(socket: &UnixStream) -> io::Result<()> {
    let watched = socket.try_clone()?;
    let watch = move || {
        let mut polled = [PollFd::new(&watched, PollFlags::RDHUP)];
        while poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
        // SAFETY: `_exit` has no preconditions. `exit` would run handlers of the driver beside its other thread.
        unsafe { libc::_exit(0) }
    };
    std::thread::Builder::new().name("socket-watch".into()).stack_size(64 << 10).spawn(watch)?;
    Ok(())
}
