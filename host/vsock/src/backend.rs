//! The device as `vhost-user-backend` sees it: what it offers to QEMU, and how it handles an event.
//!
//! The crate handles the protocol on one thread and waits for kicks on another, the *worker*. It leaves three things to
//! its user:
//!
//! * *How the worker stops.* [`Backend::handle_event`] fails once the session is over, which stops the crate's loop.
//!   Its own exit event is not used, because the crate never closes its descriptor.
//! * *That a worker stopped.* The crate does not report a worker that stops by itself, by a bug in an endpoint or an
//!   error of its epoll. So the worker's thread holds an [`Alarm`] that disconnects QEMU when the thread exits,
//!   whatever the reason: the session is then closed in order.
//! * *One call at a time.* Services are notified of memory on the thread that received the table. That thread waits for
//!   the worker's turn to finish, and so does GET_VRING_BASE: a ring is stopped between packets, not during one.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::VhostUserBackend;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use vm_memory::{GuestAddressSpace, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::epoll::EventSet;

use crate::device::Shared;
use crate::limits::{MEMORY_REGIONS_MAX, QUEUE_SIZE_MAX, SECOND_QEMU_WAIT_NS, TURNS_NS_MAX};
use crate::locks::{Rank, Ranked, RankedGuard};
use crate::memory::{self, MemoryTable, check_region};
use crate::serving::DisconnectHandle;
use crate::session::Session;
use crate::timer::OneShot;
use crate::vring::Ring;
use crate::worker::Worker;

/// Index of the queue with packets to the guest.
pub(crate) const RECEIVE: usize = 0;
/// Index of the queue with packets from the guest.
pub(crate) const TRANSMIT: usize = 1;
/// Index of the queue with transport events. QEMU serves it itself and does not hand it over.
pub(crate) const EVENT: usize = 2;
/// Queues of the device. The crate keeps the event of this number for itself.
pub(crate) const QUEUES: usize = 3;
/// Event: another thread has work for the worker, or the session is over.
pub(crate) const WAKE: u64 = 4;
/// Event: a second QEMU connects.
pub(crate) const LISTENER: u64 = 5;
/// Event: the second QEMU has waited long enough.
pub(crate) const GRACE: u64 = 6;
/// Event: the guest must be notified of taken packets.
pub(crate) const UNNOTIFIED: u64 = 7;

/// `VIRTIO_VSOCK_F_STREAM`.
const VSOCK_F_STREAM: u64 = 1 << 0;

const FEATURES: u64 = VSOCK_F_STREAM
    | 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | 1 << VIRTIO_RING_F_INDIRECT_DESC
    | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// The device of one QEMU.
pub(crate) struct Backend {
    shared: Arc<Shared>,
    listener: Arc<UnixListener>,
    /// Checked guest memory: used by rings and [`crate::GuestMemory`].
    pub memory: MemoryTable,
    pub disconnect_handle: Arc<DisconnectHandle>,
    /// A timer that runs only while a second QEMU waits.
    pub grace: OneShot,
    /// A timer that runs only while the guest is not yet notified of taken packets.
    pub unnotified: OneShot,
    /// Created by the worker at its first event, which the device causes before QEMU's first request.
    running: OnceLock<Running>,
}

/// What a worker serves.
pub(crate) struct Running {
    pub session: Arc<Session>,
    /// The thread that holds this may call services and endpoints. It is not a lock of the device: no method that they
    /// can call locks it.
    pub worker: Ranked<Worker>,
    /// Held by QEMU's requests while they wait for the worker. Otherwise the worker's thread, which unlocks and locks
    /// at once while endpoints have a backlog, would win for seconds.
    turnstile: Ranked<()>,
}

impl Running {
    /// Locks the worker on the thread of QEMU's requests, between two turns of the worker.
    fn worker_at_rest(&self) -> RankedGuard<'_, Worker> {
        let _next = self.turnstile.lock();
        self.worker.lock()
    }

    /// Runs turns: one, and more while rings are busy. True if the time is over and there may be more.
    fn turns(&self, mut check_transmit: bool) -> bool {
        let began = Instant::now();
        loop {
            let mut worker = self.own_turn();
            let more = worker.turn(check_transmit);
            if !worker.has_busy_rings() || !self.session.driver_runs() {
                return more;
            }
            if !more && !worker.look_before_sleep() {
                return false;
            }
            check_transmit = more || worker.has_packets();
            drop(worker);
            // The wake-up is an event of its own.
            if self.session.is_woken() {
                return more;
            }
            if began.elapsed().as_nanos() >= u128::from(TURNS_NS_MAX) {
                return true;
            }
        }
    }

    /// Locks the worker on its own thread, after waiting requests.
    fn own_turn(&self) -> RankedGuard<'_, Worker> {
        drop(self.turnstile.lock());
        self.worker.lock()
    }
}

/// Disconnects QEMU when the worker's thread exits.
struct Alarm(Arc<DisconnectHandle>);

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.cut();
    }
}

thread_local! {
    static ALARM: RefCell<Option<Alarm>> = const { RefCell::new(None) };
}

impl Backend {
    pub fn new(
        shared: Arc<Shared>,
        listener: Arc<UnixListener>,
        disconnect_handle: Arc<DisconnectHandle>,
    ) -> io::Result<Self> {
        let (grace, unnotified) = (OneShot::new()?, OneShot::new()?);
        let memory = MemoryTable::new(GuestMemoryMmap::new());
        Ok(Self { shared, listener, memory, disconnect_handle, grace, unnotified, running: OnceLock::new() })
    }

    /// Returns what the worker serves; waits for its first event.
    pub fn running(&self) -> &Running {
        self.running.wait()
    }

    /// Creates the session; runs on the worker's thread.
    fn begin(&self, rings: &[Ring]) -> Running {
        let guest_cid = self.shared.config.guest_cid;
        ALARM.set(Some(Alarm(Arc::clone(&self.disconnect_handle))));
        if let Ok(name) = std::ffi::CString::new(format!("vsock-{guest_cid}-io")) {
            // The kernel truncates longer names.
            let _ = rustix::thread::set_name(&name);
        }
        let rings = std::array::from_fn(|index| rings[index].clone());
        let session = Arc::new(Session::new(&self.shared, self.memory.clone(), rings));
        let services = Arc::clone(&self.shared.services);
        let worker = Worker::new(guest_cid, services, Arc::clone(&session), self.unnotified.clone());
        let (worker, turnstile) = (Ranked::new(Rank::Worker, worker), Ranked::new(Rank::WorkerTurnstile, ()));
        Running { session, worker, turnstile }
    }

    /// Starts the wait of a second QEMU. Two QEMUs on one socket would be two VMs with one identity, so a second one is
    /// refused, but not at once.
    ///
    /// The crate does not expose QEMU's socket, so the worker cannot see whether the first QEMU is still connected. If
    /// it died before the second connected, other threads are closing its session, and the second is served next.
    fn wait_for_an_end(&self) {
        if !self.grace.start(SECOND_QEMU_WAIT_NS) {
            let words = "it waits until the first one disconnects";
            self.shared.complaints.machine("a second QEMU connected to the device", &words);
        }
    }

    /// Refuses the second QEMU: the first is still there after the time that closing its session would take.
    fn refuse_second(&self) {
        self.grace.acknowledge();
        while self.listener.accept().is_ok() {
            let words = "the first one is still connected; end it, or connect to another VM's socket";
            self.shared.complaints.machine("a second QEMU connected to the device and was refused", &words);
        }
    }
}

impl VhostUserBackend for Backend {
    type Bitmap = ();
    type Vring = Ring;

    fn num_queues(&self) -> usize {
        QUEUES
    }

    fn max_queue_size(&self) -> usize {
        usize::from(QUEUE_SIZE_MAX)
    }

    fn features(&self) -> u64 {
        FEATURES
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
    }

    /// The crate has already set the vrings.
    fn set_event_idx(&self, _enabled: bool) {}

    fn reset_device(&self) {
        let running = self.running();
        let _turn = running.worker_at_rest();
        running.session.driver_restarted();
    }

    /// Configuration space is the guest's CID, a little-endian u64.
    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let space = self.shared.config.guest_cid.to_le_bytes();
        let range = offset as usize..(offset as usize).saturating_add(size as usize);
        // An empty answer refuses the request.
        space.get(range).map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn set_config(&self, _offset: u32, _bytes: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the configuration space is read-only"))
    }

    /// A region that is refused is left out: to rings and packets it is no memory. If the table were refused, a DIMM of
    /// other memory would end the device of a running guest for good.
    fn update_memory(&self, table: MemoryTable) -> io::Result<()> {
        let mut memory = GuestMemoryMmap::clone(&table.memory());
        if memory.num_regions() as u64 > MEMORY_REGIONS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many memory regions"));
        }
        for region in table.memory().iter() {
            let Err(error) = check_region(region) else { continue };
            let rest = memory.remove_region(region.start_addr(), region.len());
            memory = rest.map_err(io::Error::other)?.0;
            if memory.num_regions() == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
            }
            self.shared.complaints.machine("a part of the guest's memory cannot be used", &error);
        }
        let running = self.running();
        let session = &running.session;
        let turn = running.worker_at_rest();
        session.note_request_thread();
        memory::replace(&self.memory, memory);
        session.rings.iter().for_each(Ring::revalidate);
        session.has_memory.store(true, Ordering::Release);
        self.shared.services.memory_changed(session.guest_memory());
        drop(turn);
        session.request_transmit_check();
        Ok(())
    }

    /// The ring is already stopped; the last packet taken from it is handled when this returns. QEMU stops all rings, of a
    /// guest that it has stopped or whose driver it resets.
    fn stop_vring(&self, index: u32) -> io::Result<()> {
        let running = self.running();
        let turn = running.worker_at_rest();
        if index as usize == TRANSMIT {
            running.session.driver_stopped();
        }
        drop(turn);
        Ok(())
    }

    fn handle_event(&self, event: u16, _set: EventSet, rings: &[Ring], _thread: usize) -> io::Result<()> {
        let running = self.running.get_or_init(|| self.begin(rings));
        let session = &running.session;
        self.shared.wakeups.fetch_add(1, Ordering::Relaxed);
        match u64::from(event) {
            WAKE => session.take_wake(),
            LISTENER => self.wait_for_an_end(),
            _ => {}
        }
        if session.is_over.load(Ordering::Acquire) {
            return Err(io::Error::other("the session is over"));
        }
        match u64::from(event) {
            GRACE => self.refuse_second(),
            UNNOTIFIED => running.own_turn().unnotified_timer_expired(),
            _ => {}
        }
        // After the wake-up is acknowledged, so that a later request wakes again.
        let is_requested = session.check_transmit.swap(false, Ordering::AcqRel);
        if running.turns(is_requested || usize::from(event) == TRANSMIT) {
            session.request_transmit_check();
        }
        Ok(())
    }
}
