//! The device: a socket for QEMU, and the thread that serves it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use listening::{ListenError, Listener};
use rustix::net::SocketType;
use vmm_sys_util::eventfd::EventFd;

use crate::complaints::Complaints;
use crate::connection::Connection;
use crate::known_connections::{Known, path_beside};
use crate::locks::{Rank, Ranked};
use crate::memory::GuestMemory;
use crate::muxer::TooManyConnections;
use crate::services::{CloseReason, Endpoint, Services};
use crate::serving::{DisconnectHandle, Server};
use crate::session::Session;
use crate::vring::Ring;

/// A device's socket and its guest's CID.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Context id of the guest, 3 to 2^32 - 2; 0 to 2 and 2^32 - 1 have meanings of their own.
    pub guest_cid: u64,
    /// Unix socket that QEMU's `-chardev socket,path=` names. Created by [`Device::serve`].
    pub socket: PathBuf,
    /// A copy of the file with the guest's connections, for a daemon whose socket's folder may end with it.
    pub connections_copy: Option<PathBuf>,
}

/// Why a device could not be created.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The CID is one of the reserved ones.
    #[error("{0} cannot be a guest's CID: use one from 3 to 4294967294")]
    GuestCid(u64),
    /// The socket could not be created.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The kernel refused an eventfd, an epoll or a thread.
    #[error("cannot start the vsock device: {0}")]
    System(#[from] std::io::Error),
}

/// Why [`Device::connect`] did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// No QEMU is connected.
    #[error("no VM is attached to the device")]
    NotAttached,
    /// The VM's connection table is full.
    #[error(transparent)]
    TooManyConnections(#[from] TooManyConnections),
}

/// Counters and figures of a device. Totals are of the connected QEMU; all zero without one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DeviceStats {
    /// Whether a QEMU is connected.
    pub attached: bool,
    /// QEMUs that have connected since the device was created.
    pub sessions: u64,
    /// Connections now.
    pub connections: usize,
    /// Bytes that wait for the guest now.
    pub queued_bytes: usize,
    /// Packets from the guest.
    pub packets_received: u64,
    /// Packets to the guest.
    pub packets_sent: u64,
    /// Payload bytes from the guest.
    pub bytes_received: u64,
    /// Payload bytes to the guest.
    pub bytes_sent: u64,
    /// Packets that broke a rule.
    pub violations: u64,
    /// Kicks of the guest.
    pub kicks: u64,
    /// Interrupts sent to the guest for received packets.
    pub signals: u64,
    /// Wake-ups of the device's worker since the device was created. An idle device has none.
    pub wakeups: u64,
}

/// One vhost-user-vsock device, for one VM at a time. Dropping it is [`Device::shutdown`].
pub struct Device {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// `None` once it is shut down. Its socket's file is removed with it.
    listener: Option<Listener>,
}

/// State shared by the device's threads and its owner.
pub(crate) struct Shared {
    pub config: DeviceConfig,
    pub services: Arc<dyn Services>,
    pub attached: Ranked<Option<Attached>>,
    /// Connections that the guest has. Locked with a session's lock held.
    pub known: Arc<Ranked<Known>>,
    /// Of the VM, over all connects of its QEMU.
    pub complaints: Arc<Complaints>,
    /// Wakes the device's thread to check `stop`.
    pub wake: EventFd,
    /// Wakes the worker of the connected QEMU.
    pub notifier: Arc<EventFd>,
    pub stop: AtomicBool,
    pub sessions: AtomicU64,
    pub wakeups: AtomicU64,
}

/// The QEMU that is connected.
pub(crate) struct Attached {
    pub session: Arc<Session>,
    /// Disconnects QEMU when the device shuts down.
    pub disconnect_handle: Arc<DisconnectHandle>,
}

impl Shared {
    /// The state of a device that has no QEMU yet. Beside its socket is a file with the guest's connections.
    pub fn new(config: DeviceConfig, services: Arc<dyn Services>) -> io::Result<Shared> {
        let connections = [path_beside(&config.socket)].into_iter().chain(config.connections_copy.clone());
        Ok(Shared {
            complaints: Arc::new(Complaints::new(config.guest_cid)),
            known: Arc::new(Ranked::new(Rank::Known, Known::open(connections)?)),
            services,
            attached: Ranked::new(Rank::Attached, None),
            wake: EventFd::new(eventfd_flags())?,
            notifier: Arc::new(EventFd::new(eventfd_flags())?),
            stop: AtomicBool::new(false),
            sessions: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
            config,
        })
    }
}

impl Device {
    /// Binds the socket and starts the device's thread, which serves one QEMU after another.
    ///
    /// A leftover socket file without a listener is replaced. Beside it is a file with the guest's connections: those
    /// that an earlier device left in it are reset once the guest is attached.
    pub fn serve(config: DeviceConfig, services: Arc<dyn Services>) -> Result<Device, DeviceError> {
        if config.guest_cid < 3 || config.guest_cid >= u64::from(u32::MAX) {
            return Err(DeviceError::GuestCid(config.guest_cid));
        }
        let listener = listen(&config.socket)?;
        let shared = Arc::new(Shared::new(config, services)?);
        let server = Server::new(Arc::clone(&shared), listener.descriptor.try_clone()?.into())?;
        let name = format!("vsock-{}", shared.config.guest_cid);
        let begins = Arc::clone(&shared.services);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            begins.begins();
            server.run();
        })?;
        Ok(Device { shared, thread: Some(thread), listener: Some(listener) })
    }

    /// Requests a connection to a port of the guest. The endpoint is called with `connected` or `closed`.
    ///
    /// Bytes sent before `connected` wait for it.
    pub fn connect(&self, guest_port: u32, endpoint: Box<dyn Endpoint>) -> Result<Connection, ConnectError> {
        let session = self.session().ok_or(ConnectError::NotAttached)?;
        let credit = endpoint.credit();
        let (id, ports) = session.enter(|outbound| {
            if !outbound.alive {
                return Err(ConnectError::NotAttached);
            }
            let (id, ports) = outbound.muxer.connect(guest_port, credit)?;
            outbound.arrivals.push((id, endpoint));
            Ok((id, ports))
        })?;
        Ok(Connection::new(session, id, ports))
    }

    /// The VM's memory, once QEMU has sent its table.
    pub fn memory(&self) -> Option<GuestMemory> {
        let session = self.session().filter(|session| session.has_memory.load(Ordering::Acquire))?;
        Some(session.guest_memory())
    }

    /// Current counters and figures.
    pub fn stats(&self) -> DeviceStats {
        let sessions = self.shared.sessions.load(Ordering::Relaxed);
        let wakeups = self.shared.wakeups.load(Ordering::Relaxed);
        let Some(session) = self.session() else {
            return DeviceStats { sessions, wakeups, ..DeviceStats::default() };
        };
        stats_of(&session, DeviceStats { attached: true, sessions, wakeups, ..DeviceStats::default() })
    }

    /// Closes the guest's connections, disconnects QEMU, notifies endpoints and services, stops the thread and removes
    /// the socket.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn session(&self) -> Option<Arc<Session>> {
        self.shared.attached.lock().as_ref().map(|attached| Arc::clone(&attached.session))
    }

    fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.stop.store(true, Ordering::Release);
        let mut in_callback = thread.thread().id() == std::thread::current().id();
        if let Some(session) = self.session() {
            // Behind a proxy QEMU stays alive, and its guest would otherwise wait for ever.
            session.enter(|outbound| outbound.muxer.part(CloseReason::Disconnected));
        }
        if let Some(attached) = self.shared.attached.lock().as_ref() {
            in_callback |= attached.session.is_own_thread();
            attached.disconnect_handle.cut();
        }
        let _ = self.shared.wake.write(1);
        // A service or endpoint that calls this would wait for its own thread.
        if !in_callback && thread.join().is_err() {
            tracing::error!(cid = self.shared.config.guest_cid, "the vsock device's thread panicked");
        }
        self.listener = None;
        self.shared.known.lock().leave();
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Device").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

/// Adds the figures of a session.
pub(crate) fn stats_of(session: &Session, stats: DeviceStats) -> DeviceStats {
    session.peek(|outbound| {
        let totals = outbound.muxer.totals();
        DeviceStats {
            connections: outbound.muxer.connections(),
            queued_bytes: outbound.muxer.queued_bytes(),
            packets_received: totals.packets_received,
            packets_sent: totals.packets_sent,
            bytes_received: totals.bytes_received,
            bytes_sent: totals.bytes_sent,
            violations: totals.violations,
            kicks: session.rings.iter().map(Ring::kicks).sum(),
            signals: outbound.signals,
            ..stats
        }
    })
}

/// Binds the socket for QEMU, accessible only to the user that started the daemon.
pub(crate) fn listen(path: &Path) -> Result<Listener, DeviceError> {
    Ok(listening::listen(path, SocketType::STREAM, listening::OWNER_ONLY)?)
}

fn eventfd_flags() -> i32 {
    (rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC).bits() as i32
}
