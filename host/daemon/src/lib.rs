//! The daemon: the kernel behind its one lock, and all sources of its inputs.
//!
//! ```text
//!   local process -- Unix stream --> local/ (one thread, epoll) --.
//!                                                                 |--> channel/ --> kernel_host/ --> Kernel
//!   VM -- vsock --> vsock_device's thread --> vm/ ----------------'                                    |
//!                                                                                                      v
//!   fence pages <- memory.rs <---- stores, answers, wakes (in that order) <------------------------- Effects
//! ```
//! Frames of a process take rings of shared memory beside its stream (`rings.rs`). Further inputs are deadlines
//! (`timer_thread.rs`) and faults that the control service injects ([`control`]).

pub mod backing;
pub mod broker;
pub mod channel;
pub mod client_process;
mod closing;
pub mod control;
pub mod counters;
#[cfg(test)]
#[path = "../../dxgkrnl/tests/common/counting.rs"]
mod counting;
pub mod durable;
mod event_channels;
mod eventfd;
mod free_memory;
pub mod guestd;
mod held_bytes;
#[doc(hidden)]
pub mod in_process;
pub mod inspection;
pub mod journal;
pub mod kernel_host;
pub mod limits;
pub mod local;
pub mod local_vm;
mod log_lines;
pub mod memory;
pub mod naming;
pub mod observer;
mod peer;
mod pending_connections;
mod receive;
pub mod record_max;
mod registered_events;
mod rings;
mod round_robin;
mod shares;
pub mod system_clock;
mod tap;
#[cfg(test)]
mod test_guest;
pub mod thread_kind;
mod timer;
mod timer_thread;
pub mod vm;
pub mod why_reply;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use dxgkrnl::{Nanos, ProcessId, VmId};
use listening::check_folder;
/// Creates a folder whose mode no umask changes.
pub use listening::make_folder;
use rustix::fs::{Access, access};

use drivers::OutputThread;
use durable::DiskWriter;
use free_memory::FreeMemory;
use journal::JournalOptions;
use kernel_host::{KernelHost, Resumed};
use local::LocalLoop;
use log_lines::{LogLines, LogThread};
use thread_kind::ThreadKind;
use timer_thread::TimerThread;
use vm::VmRegistry;

pub use durable::Durable;
pub use kernel_host::{NotReplaced, ReadInjection};
pub use observer::Observer;
pub use record_max::RecordMax;
pub use timer::Clock;
pub use vm::PortServices;

/// How to start a daemon.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Directory of its sockets: `broker.sock` and `control.sock`.
    pub directory: PathBuf,
    /// Record a trace into this file.
    pub record: Option<PathBuf>,
    /// The size limit of that trace.
    pub record_max: RecordMax,
    /// Resume from this after being killed. Not with `record`, and not with a flight recorder.
    pub journal: Option<JournalOptions>,
    /// Ask clients for timestamps and record them. Needs `record`, `journal` or a flight recorder.
    pub times: bool,
    /// How much of the trace or journal a power failure may lose.
    pub durable: Durable,
    /// Keep the last part of a trace, of so many bytes, in memory; dump it into `dumps` on a reset or panic. Not with
    /// `record`.
    pub flight_recorder_bytes: Option<usize>,
    /// Directory for the flight recorder's dumps on resets and panics.
    pub dumps: PathBuf,
    /// GPU signals, GPU waits and submissions are one-way messages (GPV-015).
    pub async_submission: bool,
    /// Frames go through the stream alone, not through rings of shared memory.
    pub without_rings: bool,
    /// How many bytes of backing memory local clients may have; `None`: half of the machine's memory.
    pub backing_bytes: Option<u64>,
    /// Services on ports that the daemon itself does not serve: `gpupv bench` has peers there.
    pub more_ports: Option<Arc<dyn PortServices>>,
    pub kernel: dxgkrnl::Config,
    /// Drivers that `kernel` may name; by default the simulated one.
    pub drivers: drivers::Registry,
    pub clock: Clock,
    /// VMs that will be added at once, named vm1 and so on: a resumed daemon waits for them.
    pub machines: u32,
    /// Local VMs, which have no machine: each NAME has a broker socket `broker-NAME.sock` for its processes.
    pub local_vms: Vec<String>,
    /// Called after every step of the kernel.
    pub observer: Option<Arc<dyn Observer>>,
}

#[cfg(test)]
impl Options {
    /// The usual ones, with a journal in `journal` of this folder.
    fn with_journal(folder: &Path) -> Options {
        let journal = JournalOptions { folder: folder.join("journal"), resume_within: None };
        Options { journal: Some(journal), ..Options::default() }
    }
}

/// A running daemon. Dropping it stops it.
pub struct Daemon {
    pub kernel_host: Arc<KernelHost>,
    pub vms: Arc<VmRegistry>,
    local: Option<LocalLoop>,
    timer_thread: Option<TimerThread>,
    free_memory: Option<FreeMemory>,
    driver_output: Option<OutputThread>,
    disk_writer: Option<DiskWriter>,
    /// Stops last, because it writes the log lines of all others.
    log_thread: Option<LogThread>,
    directory: PathBuf,
    /// Summary of what the daemon resumed from the journal.
    pub resumed: Option<Resumed>,
}

impl Daemon {
    /// Binds the broker's socket and starts serving local processes.
    pub fn start(options: Options) -> anyhow::Result<Daemon> {
        raise_file_limit();
        free_memory::keep_some();
        provide_sockets(&options.directory)?;
        if options.flight_recorder_bytes.is_some() {
            provide_dumps(&options.dumps)?;
        }
        let log = Arc::new(LogLines::default());
        let log_thread = Some(LogThread::start(log.clone())?);
        // Drivers print as soon as they are started.
        let driver_output = Some(start_driver_output(log.clone())?);
        let kernel_host = KernelHost::with_log(&options, log)?;
        let journal = options.journal.as_ref().map(|journal| journal.folder.clone());
        let vms = Arc::new(VmRegistry::new(kernel_host.clone(), options.more_ports.clone(), journal));
        let local_vms = local_vm::named(&options.local_vms, &options.directory)?;
        if let Some(why) = local_vms.iter().find_map(|vm| kernel_host.sessions().vm_refusal(&vm.name)) {
            anyhow::bail!("{why}");
        }
        let machines = (1..=options.machines).map(|number| (VmId(number), machine_name(number)));
        let kept: Vec<_> = local_vms.iter().map(|vm| (vm.id, vm.name.clone())).chain(machines).collect();
        let resumed = kernel_host.resumption().close_unresumable(&kept);
        let local =
            LocalLoop::start(kernel_host.clone(), &options.directory.join("broker.sock"), &local_vms)?;
        vms.add_local(local_vms);
        let disk_writer = match options.durable {
            Durable::Interval(interval) if options.record.is_some() || options.journal.is_some() => {
                Some(DiskWriter::start(kernel_host.clone(), interval)?)
            }
            Durable::Interval(_) | Durable::None | Durable::Block => None,
        };
        let timer_thread = Some(TimerThread::start(kernel_host.clone())?);
        let free_memory = Some(FreeMemory::start(kernel_host.trim_request.clone())?);
        let (local, directory) = (Some(local), options.directory);
        Ok(Daemon {
            kernel_host,
            vms,
            local,
            timer_thread,
            free_memory,
            driver_output,
            disk_writer,
            log_thread,
            directory,
            resumed,
        })
    }

    /// Path of the broker's socket, the value of `GPUPV_BROKER`.
    pub fn broker_path(&self) -> PathBuf {
        self.directory.join("broker.sock")
    }

    /// Directory of the daemon's sockets.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Advances the daemon's time, if its clock is [`Clock::Virtual`]; see [`KernelHost::advance`].
    pub fn advance(&self, nanos: Nanos) {
        self.kernel_host.advance(nanos);
    }

    /// A local VM and its broker socket, unless it crashed.
    pub fn local_vm(&self, name: &str) -> Option<(VmId, PathBuf)> {
        let vm = self.vms.list_local().into_iter().find(|vm| vm.name == name && !vm.crashed)?;
        Some((vm.id, vm.socket))
    }

    /// Crashes a local VM: its processes are cut off and its socket is removed when this returns.
    pub fn crash_local_vm(&self, name: &str) -> anyhow::Result<()> {
        let (vm, _) = self.local_vm(name).with_context(|| format!("there is no local VM {name:?}"))?;
        self.vms.local_crashed(vm);
        if let Some(local) = &self.local {
            local.crash(vm);
        }
        Ok(())
    }

    /// Cuts a process off as a lost transport would, without a Goodbye; it is detached when this returns. No error if
    /// it is already gone.
    pub fn cut_off(&self, process: ProcessId) {
        let Some(client) = self.kernel_host.sessions().client(process) else { return };
        client.outbox.cut_off();
        match &self.local {
            Some(local) if !self.vms.list().iter().any(|vm| vm.shared.id == client.vm) => {
                local.cut_off(process)
            }
            _ => {
                self.kernel_host.sessions().detach(process);
            }
        }
    }

    /// Stops the daemon: cuts off local processes and VMs, and finishes the trace. While it still waits for the clients of
    /// an earlier daemon, it leaves all of them to the next one.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> anyhow::Result<()> {
        if self.local.is_some() && !self.kernel_host.resumption().is_resuming() {
            self.kernel_host
                .sessions()
                .send_goodbye("the daemon was stopped: start the program again once one runs");
        }
        if let Some(local) = self.local.take() {
            local.stop();
        }
        self.vms.shut_down();
        self.timer_thread = None;
        self.free_memory = None;
        self.disk_writer = None;
        let finished = self.kernel_host.traces().finish();
        self.driver_output = None;
        self.log_thread = None;
        finished
    }
}

/// Starts the thread that logs what drivers in C print.
fn start_driver_output(log: Arc<LogLines>) -> std::io::Result<OutputThread> {
    let enter = || sandbox::enter(ThreadKind::DriverOutput);
    let say = move |pid: u32, driver: &str, line: &str| {
        log.push_daemon_line(tracing::Level::WARN, format!("driver {driver} (process {pid}): {line}"));
    };
    OutputThread::start(enter, Box::new(say))
}

/// The default name of a VM with a machine.
pub fn machine_name(number: u32) -> String {
    format!("vm{number}")
}

/// Makes the folder of sockets, or checks that no other user can replace the sockets in it.
fn provide_sockets(folder: &Path) -> anyhow::Result<()> {
    let made = make_folder(folder).and_then(|_| folder.metadata());
    let metadata = made.with_context(|| format!("cannot create the socket folder {}", folder.display()))?;
    check_folder(folder, &metadata).map_err(anyhow::Error::from)
}

/// Makes the folder of the flight recorder's dumps. One that cannot be written is refused at once: a dump is written after
/// a reset, when it is too late to name another.
fn provide_dumps(folder: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write dumps of the flight recorder into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    access(folder.join("."), Access::WRITE_OK | Access::EXEC_OK).with_context(cannot)
}

/// Raises the limit of open files to the most that the system allows, and makes room for as many: each local process takes
/// three.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // On failure fewer processes have room, and the log reports refused ones.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    listening::reserve_descriptors(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            tracing::error!("the daemon did not stop cleanly: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_in_which_another_user_could_replace_the_sockets_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let start = |mode| {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            Daemon::start(Options { directory: folder.path().into(), ..Options::default() })
        };
        let error = start(0o777).err().expect("others may write it").to_string();
        assert!(error.contains("another user could replace the sockets"), "{error}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        start(0o1777).expect("as /tmp").stop().unwrap();
    }
}
