//! The process of the broker: the agent starts programs for the host, so the broker, which reads what every program of the
//! guest sends, shares no memory with it.
//!
//! ```text
//!   serve, until now one thread ──fork──▶ broker: set-up ─▶ restricted for ever ─▶ reads clients
//!     └ agent, unrestricted               ends with `serve`
//! ```
//! Of the set-up, two things need rights that are given up then: the ring that pins memory, and the open pagemap, which
//! tells frame numbers to whoever opened it with CAP_SYS_ADMIN.
//!
//! `unsafe`: a process forks.

use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, exit};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, waitpid};
use sandbox::{CapabilitySet, Files, Level, Refused, Request};

use crate::console::say;
use crate::thread_kind::ThreadKind;

/// Capabilities that the broker keeps: source ports below 1024 of new links; pinned memory, and descriptors and pages in
/// flight to its clients, beyond the limits of one user.
const CAPABILITIES: CapabilitySet =
    CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::IPC_LOCK).union(CapabilitySet::SYS_RESOURCE);

/// A child process.
pub struct BrokerProcess(Pid);

impl BrokerProcess {
    /// Runs the broker in a child process, which the system kills when the calling thread ends. The calling process has no
    /// other thread.
    pub fn fork<E: std::fmt::Display>(
        broker: impl FnOnce() -> Result<Infallible, E>,
    ) -> std::io::Result<Self> {
        let parent = getpid();
        // SAFETY: this process has one thread, so no lock of another is held in the child.
        let child = unsafe { libc::fork() };
        match Pid::from_raw(child) {
            Some(child) => Ok(Self(child)),
            None if child == 0 => {
                let ended = end_with(parent).map_err(|error| error.to_string());
                let Err(why) = ended.and_then(|()| broker().map_err(|error| error.to_string()));
                say(&why);
                exit(1)
            }
            None => Err(std::io::Error::last_os_error()),
        }
    }

    /// Waits until it ends; in words.
    pub fn wait(self) -> String {
        loop {
            match waitpid(Some(self.0), WaitOptions::empty()) {
                Ok(Some((_, status))) => return ExitStatus::from_raw(status.as_raw()).to_string(),
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return error.to_string(),
            }
        }
    }
}

/// Has the system kill this process when its parent's thread ends, which may have happened already.
fn end_with(parent: Pid) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) { Ok(()) } else { exit(1) }
}

/// Restricts this process, for ever, to what the broker needs once it is set up: files in the folder of its socket, which
/// has its sync files, and what `/proc` says of itself.
pub fn restrict(level: Level, socket: &Path) -> Result<(), Refused> {
    let folder = std::path::absolute(socket).ok().and_then(|path| path.parent().map(Path::to_owned));
    let (folders, read) = (folder.into_iter().collect(), vec!["/proc/self".into()]);
    let files = Files { folders, read, ..Files::default() };
    let request = Request { level, user: None, files, capabilities: CAPABILITIES, starts_programs: false };
    sandbox::begin::<ThreadKind>(&request)?;
    let missing = sandbox::status().unwrap_or_default().missing;
    if level == Level::Auto && !missing.is_empty() {
        say(&format!("the sandbox of the broker lacks {}", missing.join("; ")));
    }
    sandbox::enter(ThreadKind::Broker);
    Ok(())
}
