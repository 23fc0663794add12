//! `guestd serve`: the broker in a process of its own, and the agent's thread.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::exit;

use d3dkmt::limits::REGISTERED_EVENTS_PER_PROCESS_MAX;
use listening::ListenError;
use nt_handle::SyncFileFolder;
use proto::limits::{EVENT_CHANNEL_PORT, GUESTD_PORT};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::process::{Resource, Rlimit, setrlimit};
use sandbox::Refused;

use crate::arguments::ServeOptions;
use crate::broker::{Broker, Config};
use crate::broker_process::{self, BrokerProcess};
use crate::console::{READY, on_panic, say};
use crate::driver::Driver;
use crate::limits::DESCRIPTORS_MAX;
use crate::machine::GuestMachine;
use crate::pagemap::Pagemap;
use crate::pin::{Pinner, keep_locked_memory_in_place};
use crate::ring::EventRing;
use crate::{agent, vsock};

/// Exit status of `serve` when it was asked to power the guest off (`EX_TEMPFAIL`: not used otherwise).
pub const POWER_OFF_STATUS: u8 = 75;
/// Rust's exit status of a panicked program.
const PANIC_STATUS: i32 = 101;

/// The memory of all clients counts as the broker's, so that the kernel would choose it first. Its end frees nothing, since
/// the clients still map the pages.
const NEVER_KILLED: &str = "-1000";

/// Why `serve` cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot make the folder of {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("cannot start the process of the broker: {0}")]
    Process(std::io::Error),
    #[error(transparent)]
    Sandbox(#[from] Refused),
    #[error("the broker's process has ended ({0})")]
    BrokerEnded(String),
    #[error("the broker cannot wait for events: {0}")]
    Events(Errno),
}

/// Serves until the process is killed.
pub fn run(options: &ServeOptions) -> Result<Infallible, ServeError> {
    on_panic("serve", || exit(PANIC_STATUS));
    let most = Rlimit { current: Some(DESCRIPTORS_MAX), maximum: Some(DESCRIPTORS_MAX) };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        say(&format!("at most a few processes can attach, the number of open files is not raised: {error}"));
    }
    let listener = listen_at(&options.socket)?;
    let broker = BrokerProcess::fork(|| broker(listener, options)).map_err(ServeError::Process)?;
    let agent = agent::start(options.supervised).map_err(ServeError::Thread)?;
    if agent.is_listening() {
        say(READY);
    }
    Err(ServeError::BrokerEnded(broker.wait()))
}

/// Serves processes of the guest in this process, which is restricted before it reads anything of them.
fn broker(listener: OwnedFd, options: &ServeOptions) -> Result<Infallible, ServeError> {
    on_panic("the broker", || exit(PANIC_STATUS));
    // The name of the thread in messages.
    let _ = rustix::thread::set_name(c"broker");
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", NEVER_KILLED) {
        say(&format!(
            "a guest that runs out of memory may kill the broker, and with it every session: {error}"
        ));
    }
    // After the fork, whose child has a table of its own, and before there are threads.
    listening::reserve_descriptors(DESCRIPTORS_MAX);
    let sync_files = SyncFileFolder::fresh(&options.socket);
    let pinner = Pinner::new();
    if let Some(weakness) = &pinner.weakness {
        say(weakness);
        if let Err(words) = keep_locked_memory_in_place() {
            say(&words);
        }
    }
    let unpin_time = pinner.unpin_time();
    let machine = GuestMachine::new(pinner, Pagemap::open());
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    broker_process::restrict(options.sandbox, &options.socket)?;
    let events_max = if EventRing::is_exact() { REGISTERED_EVENTS_PER_PROCESS_MAX as u32 } else { 0 };
    let config = Config { kernel, unpin_time, events_max };
    let connect = Box::new(|| vsock::connect_host_privileged(GUESTD_PORT).map_err(vsock::connect_words));
    let connect_event_channel =
        Box::new(|| vsock::connect_host(EVENT_CHANNEL_PORT).map_err(vsock::connect_words));
    let broker = Broker::new(config, machine);
    let driver = Driver::new(broker, listener, sync_files, connect, connect_event_channel);
    Err(ServeError::Events(driver.map_or_else(|error| error, |mut driver| driver.run())))
}

/// The broker's socket, open to every process of the guest.
pub fn listen_at(path: &Path) -> Result<OwnedFd, ServeError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|source| ServeError::Folder { path: path.to_owned(), source })?;
    }
    Ok(listening::listen(path, SocketType::SEQPACKET, listening::EVERY_USER)?.into_descriptor())
}
