//! The daemon: the kernel behind its one lock, and everything that brings it bytes.
//!
//! ```text
//!   local process -- Unix stream --> local.rs (one thread, epoll) --.
//!                                                                   |--> channel.rs --> seat.rs --> Kernel
//!   VM -- vsock --> vsock_device's thread --> vm.rs ----------------'        |
//!                                                                            v
//!   fence pages <- memory.rs <---- stores, answers, wakes (in that order) <- Effects
//! ```

pub mod backing;
pub mod broker;
pub mod channel;
pub mod client_process;
mod closing;
pub mod control;
pub mod counters;
pub mod durable;
mod event_channels;
mod eventfd;
mod free_memory;
pub mod guestd;
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
mod round_robin;
mod shares;
pub mod socket;
pub mod system_clock;
mod tap;
mod timer;
mod timer_thread;
pub mod vm;
pub mod why_reply;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use dxgkrnl::{Nanos, ProcessId, VmId};

use durable::DiskWriter;
use free_memory::FreeMemory;
use journal::JournalOptions;
use kernel_host::{KernelHost, Resumed};
use local::LocalLoop;
use log_lines::LogThread;
use timer_thread::TimerThread;
use vm::VmRegistry;

pub use durable::Durable;
pub use kernel_host::{Busy, Injection, ReadInjection};
pub use observer::Observer;
pub use record_max::RecordMax;
pub use timer::Clock;
pub use vm::{MorePorts, PortServices};

/// How to start a daemon.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Directory of its sockets: `broker.sock` and `control.sock`.
    pub directory: PathBuf,
    /// Record a trace into this file.
    pub record: Option<PathBuf>,
    /// How long that may become.
    pub record_max: RecordMax,
    /// Go on from this after being killed. Not with `record`, and not with a flight recorder.
    pub journal: Option<JournalOptions>,
    /// Ask guests for times, and record them: with one of these.
    pub times: bool,
    /// What of it a power failure may cost.
    pub durable: Durable,
    /// Keep the last of a trace, so many bytes, in memory, and leave it in `dumps` when something goes wrong. Not with `record`.
    pub flight_recorder_bytes: Option<usize>,
    /// Where a flight recorder leaves what nobody asked for.
    pub dumps: PathBuf,
    /// GPU signals, GPU waits and submissions are one-way messages (GPV-015).
    pub async_submission: bool,
    /// What VMs find on ports that the daemon itself does not serve: `gpupv bench` has peers there.
    pub more_ports: Option<MorePorts>,
    pub kernel: dxgkrnl::Config,
    /// The drivers that `kernel` may name: the simulated one unless there are more.
    pub drivers: drivers::Registry,
    pub clock: Clock,
    /// VMs that will be added at once, vm1 and so on: a daemon that goes on waits for them.
    pub machines: u32,
    /// VMs without a machine: each NAME has a broker's socket `broker-NAME.sock` for its processes.
    pub local_vms: Vec<String>,
    /// Sees every step of the kernel.
    pub observer: Option<Arc<dyn Observer>>,
}

/// A running daemon. Dropping it ends it.
pub struct Daemon {
    pub kernel_host: Arc<KernelHost>,
    pub vms: Arc<VmRegistry>,
    local: Option<LocalLoop>,
    timer_thread: Option<TimerThread>,
    free_memory: Option<FreeMemory>,
    disk_writer: Option<DiskWriter>,
    /// Ends last: what all others say is said by it.
    log_thread: Option<LogThread>,
    directory: PathBuf,
    /// What the journal had.
    pub resumed: Option<Resumed>,
}

impl Daemon {
    /// Binds the broker's socket and starts serving local processes.
    pub fn start(options: Options) -> anyhow::Result<Daemon> {
        raise_file_limit();
        free_memory::keep_some();
        std::fs::create_dir_all(&options.directory)
            .with_context(|| format!("cannot create the socket folder {}", options.directory.display()))?;
        let kernel_host = KernelHost::new(&options)?;
        let log_thread = Some(LogThread::start(kernel_host.log.clone())?);
        let vms = Arc::new(VmRegistry::new(kernel_host.clone(), options.more_ports.clone()));
        let local_vms = local_vm::named(&options.local_vms, &options.directory)?;
        if let Some(why) = local_vms.iter().find_map(|vm| kernel_host.sessions().vm_refusal(&vm.name)) {
            anyhow::bail!("{why}");
        }
        let machines = (1..=options.machines).map(|number| (VmId(number), machine_name(number)));
        let kept: Vec<_> = local_vms.iter().map(|vm| (vm.id, vm.name.clone())).chain(machines).collect();
        let resumed = kernel_host.resumption().end_what_is_lost(&kept);
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
        let free_memory = Some(FreeMemory::start(kernel_host.ended.clone())?);
        let (local, directory) = (Some(local), options.directory);
        Ok(Daemon {
            kernel_host,
            vms,
            local,
            timer_thread,
            free_memory,
            disk_writer,
            log_thread,
            directory,
            resumed,
        })
    }

    /// The broker's socket: what `GPUPV_BROKER` must say.
    pub fn broker_path(&self) -> PathBuf {
        self.directory.join("broker.sock")
    }

    /// Directory of the daemon's sockets.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Moves the daemon's time on, if its clock is [`Clock::Virtual`]; see [`Seat::advance`].
    pub fn advance(&self, nanos: Nanos) {
        self.kernel_host.advance(nanos);
    }

    /// A VM without a machine and its broker's socket, unless it crashed.
    pub fn local_vm(&self, name: &str) -> Option<(VmId, PathBuf)> {
        let vm = self.vms.list_local().into_iter().find(|vm| vm.name == name && !vm.crashed)?;
        Some((vm.id, vm.socket))
    }

    /// Ends a VM without a machine as if it died: its processes are cut off, its socket is gone. All of it
    /// has happened when this returns.
    pub fn crash_local_vm(&self, name: &str) -> anyhow::Result<()> {
        let (vm, _) = self.local_vm(name).with_context(|| format!("there is no local VM {name:?}"))?;
        self.vms.local_crashed(vm);
        if let Some(local) = &self.local {
            local.crash(vm);
        }
        Ok(())
    }

    /// Cuts a process off as a lost transport would, without a Goodbye; it has ended when this returns. No
    /// error if it is gone already.
    pub fn cut(&self, process: ProcessId) {
        let Some(client) = self.kernel_host.sessions().client(process) else { return };
        client.outbox.cut_off();
        match &self.local {
            Some(local) if !self.vms.list().iter().any(|vm| vm.shared.id == client.vm) => local.cut(process),
            _ => {
                self.kernel_host.sessions().detach(process);
            }
        }
    }

    /// Ends the daemon in order: local processes and VMs cut off, trace finished.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> anyhow::Result<()> {
        if self.local.is_some() {
            self.kernel_host.sessions().say_goodbye("the daemon was stopped");
        }
        if let Some(local) = self.local.take() {
            local.stop();
        }
        self.vms.shut_down();
        self.timer_thread = None;
        self.free_memory = None;
        self.disk_writer = None;
        let finished = self.kernel_host.traces().finish();
        self.log_thread = None;
        finished
    }
}

/// The name of a VM with a machine, unless whoever adds it names it.
pub fn machine_name(number: u32) -> String {
    format!("vm{number}")
}

/// Each local process takes three descriptors: as many as the system allows are asked for.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Without it there is room for fewer processes, and the log says so when it comes to that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            tracing::error!("the daemon did not end in order: {error:#}");
        }
    }
}
