//! VMs: the services of the daemon on each one's vsock device.
//!
//! ```text
//!   port          from                          first must be      then
//!   GUESTD_PORT   guestd, source port < 1024    GuestdHello        AttachProcess, AddFenceMemory, detach
//!   CHANNEL_PORT  a client process, only while  Hello with its     calls
//!                 guestd is connected           one-time token
//!   EVENT_CHANNEL_PORT  guestd, for an event    the token that     nothing; the host sends a byte for each wake
//!                 that it has registered        guestd was given
//!   any other     -                             -                  as [`PortServices`] has it, if at all
//! ```
//! When guestd's connection closes, the VM's processes are detached. When QEMU's closes, the VM is detached as well.
//!
//! Processes have turns (`round_robin.rs`). What a process sends beyond its turn, or while the kernel has unfinished
//! work for it, waits in its stream, and has credit only once processed. guestd's messages about a process are applied
//! after its earlier calls.

mod stream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use dxgkrnl::{Input, ProcessId, VmId};
use proto::limits::{CHANNEL_PORT, EVENT_CHANNEL_PORT, GUESTD_PORT, PRIVILEGED_PORT_END};
use vsock_device::locks::{Rank, Ranked, RankedGuard};
use vsock_device::{ConnectRequest, Connection, Device, DeviceConfig, Endpoint, GuestMemory, Services};

use super::backing::GuestPagesQuota;
use super::channel::Channel;
use super::client_process::SinkStream;
use super::event_channels::{EventChannelEndpoint, EventChannels};
use super::guestd::GuestdEndpoint;
use super::journal::connections_file;
use super::kernel_host::KernelHost;
use super::limits::VMS_MAX;
use super::local_vm::LocalVm;
use super::log_lines::NoteLine;
use super::peer::Peer;
use super::thread_kind::ThreadKind;
use stream::ChannelEndpoint;

/// Connection state of a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmState {
    /// The socket waits for QEMU.
    Waiting,
    /// QEMU is connected, guestd is not.
    Booting,
    /// guestd is connected.
    Ready,
    /// QEMU has disconnected.
    Gone,
}

impl VmState {
    pub fn name(self) -> &'static str {
        match self {
            VmState::Waiting => "waiting for QEMU",
            VmState::Booting => "booting",
            VmState::Ready => "ready",
            VmState::Gone => "gone",
        }
    }
}

/// State that the threads of one VM share.
pub struct VmShared {
    pub id: VmId,
    pub name: String,
    pub kernel_host: Arc<KernelHost>,
    status: Ranked<VmStatus>,
    changed: Condvar,
    pub(super) event_channels: EventChannels,
    /// Backing pages and fence memory of its processes.
    pub(super) pages: Arc<GuestPagesQuota>,
    more_ports: Option<Arc<dyn PortServices>>,
}

/// Additional services for VMs.
pub trait PortServices: std::fmt::Debug + Send + Sync {
    /// Returns the endpoint of a new connection to this port; `None`: the port is not served.
    fn accept(&self, host: &Arc<KernelHost>, port: u32, connection: &Connection)
    -> Option<Box<dyn Endpoint>>;
}

struct VmStatus {
    state: VmState,
    memory: Option<GuestMemory>,
    /// Number of guestd's sessions so far; the latest is the current one.
    guestd: u64,
    /// For each process with calls that are not made yet: actions to run after them.
    behind_calls: BTreeMap<ProcessId, Vec<Action>>,
}

/// Run once, without a lock.
pub(super) type Action = Box<dyn FnOnce() + Send>;

impl VmShared {
    /// A VM that waits for its QEMU.
    pub(super) fn new(
        id: VmId,
        name: &str,
        kernel_host: &Arc<KernelHost>,
        more_ports: Option<Arc<dyn PortServices>>,
    ) -> Arc<VmShared> {
        let status =
            VmStatus { state: VmState::Waiting, memory: None, guestd: 0, behind_calls: BTreeMap::new() };
        Arc::new(VmShared {
            id,
            name: name.into(),
            kernel_host: kernel_host.clone(),
            status: Ranked::new(Rank::VmStatus, status),
            changed: Condvar::new(),
            event_channels: EventChannels::default(),
            pages: Arc::default(),
            more_ports,
        })
    }

    /// What its device calls.
    pub(super) fn services(self: &Arc<Self>) -> Arc<dyn Services> {
        Arc::new(VmServices(self.clone()))
    }

    fn status(&self) -> RankedGuard<'_, VmStatus> {
        self.status.lock_or_abort()
    }

    /// Logs what has become of this VM, and sends it as a note, however many lines the guest has caused.
    fn note(&self, what: &str) {
        let text = format!("vm {} ({}) {what}", self.id.0, self.name);
        let KernelHost { log, timer, .. } = &*self.kernel_host;
        log.debug(Peer::Vm(self.id), || text.clone());
        log.note(NoteLine { now: timer.now(), process: None, text });
    }

    /// Logs a warning about this VM.
    pub(super) fn warn(&self, line: impl FnOnce() -> String) {
        self.kernel_host.log.warn(Peer::Vm(self.id), || format!("vm {}: {}", self.id.0, line()));
    }

    pub fn state(&self) -> VmState {
        self.status().state
    }

    pub fn memory(&self) -> Option<GuestMemory> {
        self.status().memory.clone()
    }

    /// Waits until the VM is in `state`; false if `timeout` passes or `give_up` returns true.
    pub fn wait_for(&self, state: VmState, timeout: Duration, mut give_up: impl FnMut() -> bool) -> bool {
        const LOOK_AGAIN: Duration = Duration::from_millis(100);
        let end = Instant::now() + timeout;
        let mut status = self.status();
        while status.state != state {
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() || give_up() {
                return false;
            }
            status = status.wait_timeout(&self.changed, remaining.min(LOOK_AGAIN));
        }
        true
    }

    /// Runs an action at once, or after the calls that the process has sent.
    pub(super) fn after_calls(&self, process: ProcessId, action: Action) {
        let mut status = self.status();
        if let Some(actions) = status.behind_calls.get_mut(&process) {
            return actions.push(action);
        }
        drop(status);
        action();
    }

    /// Records that a process has sent calls that are not made yet.
    pub(super) fn add_pending_calls(&self, process: ProcessId) {
        self.status().behind_calls.entry(process).or_default();
    }

    /// Runs the actions of a process whose calls are made, or never will be.
    fn calls_are_made(&self, process: ProcessId) {
        let actions = self.status().behind_calls.remove(&process);
        actions.into_iter().flatten().for_each(|action| action());
    }

    /// Detaches every process of this VM.
    pub fn detach_processes(&self) {
        for client in self.kernel_host.sessions().clients_of(self.id) {
            self.kernel_host.sessions().detach(client.id);
            self.kernel_host.yield_to_waiters();
        }
    }

    /// Begins a session of guestd and returns its number; `None` while another one is connected.
    pub fn guestd_there(&self) -> Option<u64> {
        let mut status = self.status();
        if status.state == VmState::Ready {
            return None;
        }
        status.guestd += 1;
        status.state = VmState::Ready;
        self.changed.notify_all();
        Some(status.guestd)
    }

    /// Whether that session of guestd is current.
    pub fn is_session(&self, session: u64) -> bool {
        let status = self.status();
        status.guestd == session && status.state == VmState::Ready
    }

    /// Ends that session of guestd: the VM's processes are detached.
    pub fn guestd_gone(&self, session: u64) {
        let mut status = self.status();
        if status.guestd != session || status.state != VmState::Ready {
            return;
        }
        status.state = VmState::Booting;
        drop(status);
        self.changed.notify_all();
        self.detach_processes();
        self.kernel_host.sessions().forget_outliving(self.id);
        self.event_channels.forget_all();
        self.kernel_host.nt_handles().end_of(self.id);
    }
}

/// The services of one VM.
struct VmServices(Arc<VmShared>);

impl Services for VmServices {
    fn begins(&self) {
        sandbox::enter(ThreadKind::Device);
    }

    fn accept(&self, request: ConnectRequest, connection: Connection) -> Option<Box<dyn Endpoint>> {
        let shared = &self.0;
        let refuse = |why: &str| {
            let ConnectRequest { peer_port, local_port } = request;
            shared.warn(|| format!("connection from port {peer_port} to {local_port} refused: {why}"));
            None
        };
        match request.local_port {
            GUESTD_PORT if request.peer_port >= PRIVILEGED_PORT_END => {
                refuse("guestd must come from a port below 1024")
            }
            GUESTD_PORT => {
                let status = shared.status();
                if status.state == VmState::Ready {
                    return refuse("guestd is connected already");
                }
                let Some(memory) = status.memory.clone() else { return refuse("the VM has no memory table") };
                Some(Box::new(GuestdEndpoint::new(shared.clone(), memory, connection)))
            }
            CHANNEL_PORT if shared.state() == VmState::Ready => {
                let channel = Channel::new(
                    shared.kernel_host.clone(),
                    shared.id,
                    None,
                    SinkStream::Vsock(connection.clone()).into(),
                );
                Some(Box::new(ChannelEndpoint::new(shared.clone(), channel, connection)))
            }
            EVENT_CHANNEL_PORT if shared.state() == VmState::Ready => {
                Some(Box::new(EventChannelEndpoint::new(shared.clone(), connection)))
            }
            CHANNEL_PORT | EVENT_CHANNEL_PORT => refuse("guestd is not connected"),
            port => {
                let ports = shared.more_ports.as_ref();
                let more = ports.and_then(|ports| ports.accept(&shared.kernel_host, port, &connection));
                more.or_else(|| refuse("nothing is served on that port"))
            }
        }
    }

    fn goes_on(&self, go_on: &dyn Fn()) -> bool {
        self.0.kernel_host.vm_goes_on(self.0.id, go_on)
    }

    fn memory_changed(&self, memory: GuestMemory) {
        let shared = &self.0;
        let mut status = shared.status();
        let first = status.memory.replace(memory).is_none();
        if matches!(status.state, VmState::Waiting | VmState::Gone) {
            status.state = VmState::Booting;
        }
        drop(status);
        shared.changed.notify_all();
        if first && shared.kernel_host.resumption().machine_is_back(shared.id) {
            // The resumed kernel has the VM already, and no time passes before its processes return.
            return;
        }
        if first {
            shared.kernel_host.clear_vm(shared.id);
        }
        shared.kernel_host.input(if first {
            Input::VmAttached { vm: shared.id, name: shared.name.clone() }
        } else {
            Input::MemoryChanged { vm: shared.id }
        });
        if first {
            shared.note("is attached");
        }
        // Frames that could not be published while the guest was stopped.
        for client in shared.kernel_host.sessions().clients_of(shared.id) {
            client.outbox.flush();
        }
    }

    fn disconnected(&self) {
        let shared = &self.0;
        let mut status = shared.status();
        let attached = status.memory.take().is_some();
        status.state = VmState::Gone;
        drop(status);
        shared.detach_processes();
        shared.kernel_host.drop_held_moves();
        shared.event_channels.forget_all();
        if attached {
            shared.kernel_host.input(Input::VmDetached { vm: shared.id });
        }
        shared.note("is gone");
        shared.changed.notify_all();
    }
}

/// A VM with a machine, its device and its socket.
pub struct VmEntry {
    pub shared: Arc<VmShared>,
    pub device: Device,
    pub socket: PathBuf,
}

impl VmEntry {
    /// The VM's state as people see it. A QEMU sends its memory only once the guest's driver starts: before that it boots
    /// as well.
    pub fn state(&self) -> VmState {
        match self.shared.state() {
            VmState::Waiting | VmState::Gone if self.device.stats().attached => VmState::Booting,
            state => state,
        }
    }
}

/// All VMs of the daemon.
pub struct VmRegistry {
    kernel_host: Arc<KernelHost>,
    more_ports: Option<Arc<dyn PortServices>>,
    /// The journal's folder. It has a copy of each guest's list of connections.
    journal: Option<PathBuf>,
    vms: Ranked<BTreeMap<VmId, Arc<VmEntry>>>,
    /// Local VMs, which the local loop serves.
    local: Ranked<Vec<LocalVm>>,
}

impl VmRegistry {
    pub fn new(
        kernel_host: Arc<KernelHost>,
        more_ports: Option<Arc<dyn PortServices>>,
        journal: Option<PathBuf>,
    ) -> Self {
        let vms = Ranked::new(Rank::Vms, BTreeMap::new());
        VmRegistry { kernel_host, more_ports, journal, vms, local: Ranked::new(Rank::LocalVms, Vec::new()) }
    }

    fn lock(&self) -> RankedGuard<'_, BTreeMap<VmId, Arc<VmEntry>>> {
        self.vms.lock_or_abort()
    }

    /// Serves another VM on a socket that QEMU's `vhost-user-vsock` device connects to. An error if the configuration
    /// excludes the VM (GPV-012).
    pub fn add(&self, name: &str, socket: &Path) -> anyhow::Result<Arc<VmEntry>> {
        if let Some(why) = self.kernel_host.sessions().vm_refusal(name) {
            anyhow::bail!("{why}");
        }
        let mut vms = self.lock();
        let id = VmId(vms.keys().last().map_or(0, |id| id.0) + 1);
        anyhow::ensure!(id.0 <= VMS_MAX, "{VMS_MAX} VMs are served, the limit");
        let shared = VmShared::new(id, name, &self.kernel_host, self.more_ports.clone());
        let connections_copy = self.journal.as_ref().map(|folder| connections_file(folder, id));
        let config = DeviceConfig { guest_cid: guest_cid(id), socket: socket.into(), connections_copy };
        let device = Device::serve(config, shared.services())?;
        let entry = Arc::new(VmEntry { shared, device, socket: socket.into() });
        vms.insert(id, entry.clone());
        Ok(entry)
    }

    pub fn list(&self) -> Vec<Arc<VmEntry>> {
        self.lock().values().cloned().collect()
    }

    fn local(&self) -> RankedGuard<'_, Vec<LocalVm>> {
        self.local.lock_or_abort()
    }

    pub(super) fn add_local(&self, vms: Vec<LocalVm>) {
        self.local().extend(vms);
    }

    pub(super) fn local_crashed(&self, id: VmId) {
        self.local().iter_mut().filter(|vm| vm.id == id).for_each(|vm| vm.crashed = true);
    }

    /// All local VMs, including crashed ones.
    pub fn list_local(&self) -> Vec<LocalVm> {
        self.local().clone()
    }

    /// Stops serving a VM.
    pub fn remove(&self, id: VmId) {
        self.lock().remove(&id);
    }

    pub fn shut_down(&self) {
        let vms = std::mem::take(&mut *self.lock());
        drop(vms);
    }
}

/// Context identifiers 0 to 2 belong to the hypervisor, the loopback and the host.
pub fn guest_cid(vm: VmId) -> u64 {
    u64::from(vm.0) + 2
}

#[cfg(test)]
mod tests {
    use vm_memory::{GuestAddress, GuestMemoryMmap};
    use vsock_device::CloseReason;
    use vsock_device::direct::DirectDevice;

    use super::*;
    use crate::Options;

    /// The endpoint of a connection on which nobody sends.
    struct Ignored;

    impl Endpoint for Ignored {
        fn received(&mut self, _: &[u8]) {}

        fn closed(&mut self, _: CloseReason) {}
    }

    #[test]
    fn a_program_of_the_guest_is_no_guestd_and_without_one_it_has_no_stream() {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let vm = VmShared::new(VmId(1), "vm1", &kernel_host, None);
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 16)]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let device = DirectDevice::new(3, vm.services(), memory, folder.path().join("vm.sock")).unwrap();
        let accepts = |peer_port, local_port| {
            let connection = device.connect(1000, Box::new(Ignored)).unwrap();
            vm.services().accept(ConnectRequest { peer_port, local_port }, connection).is_some()
        };
        assert!(!accepts(PRIVILEGED_PORT_END, GUESTD_PORT) && accepts(PRIVILEGED_PORT_END - 1, GUESTD_PORT));
        assert!(!accepts(5000, CHANNEL_PORT) && !accepts(5000, EVENT_CHANNEL_PORT));
        let session = vm.guestd_there().unwrap();
        assert!(accepts(5000, CHANNEL_PORT) && accepts(5000, EVENT_CHANNEL_PORT));
        assert!(!accepts(PRIVILEGED_PORT_END - 1, GUESTD_PORT), "there is one");
        vm.guestd_gone(session);
        assert!(!accepts(5000, CHANNEL_PORT) && accepts(PRIVILEGED_PORT_END - 1, GUESTD_PORT));
    }

    #[test]
    fn a_vm_boots_from_the_connection_of_its_qemu_on() {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let vms = VmRegistry::new(kernel_host, None, None);
        let entry = vms.add("vm1", &folder.path().join("vm1.sock")).unwrap();
        assert_eq!(entry.state(), VmState::Waiting);
        let qemu = std::os::unix::net::UnixStream::connect(&entry.socket).unwrap();
        let until = |state| {
            let end = Instant::now() + Duration::from_secs(20);
            while entry.state() != state && Instant::now() < end {
                std::thread::yield_now();
            }
            assert_eq!(entry.state(), state);
        };
        until(VmState::Booting);
        drop(qemu);
        until(VmState::Waiting);
        vms.shut_down();
    }
}
