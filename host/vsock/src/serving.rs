//! The device's thread: it waits for QEMUs and serves each one until it disconnects.
//!
//! ```text
//!   listener ──▶ VhostUserDaemon: ─ requests, in a thread of the crate
//!                                 └ worker: kicks and wake-ups, in a thread of the crate (see `worker`)
//!   QEMU gone, shutdown() or worker gone ──▶ requests stop ──▶ worker stops ──▶ endpoints and services are closed
//! ```

use std::io;
use std::os::fd::{AsFd as _, AsRawFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec};
use vhost::vhost_user::{Error as RequestError, Listener};
use vhost_user_backend::{Error as DaemonError, ShutdownHandle, VhostUserDaemon};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use crate::backend::{Backend, GRACE, LISTENER, UNNOTIFIED, WAKE};
use crate::device::{Attached, Shared};
use crate::limits::SERVE_RETRY_MS;
use crate::locks::{Rank, Ranked};
use crate::memory::{self, MemoryTable};
use crate::session::Session;

const NO_TIMEOUT: i32 = -1;

/// What an "invalid parameters" of the crate can mean.
const INVALID_PARAMETERS: &str = ": either a virtio feature that this device does not offer (-device \
    vhost-user-vsock-pci with packed=on, or with iommu_platform=on behind a vIOMMU; leave them out), or a ring of a number \
    or size that this device does not have";

/// How a session ended.
#[derive(Clone, Copy)]
enum SessionEnd {
    /// QEMU has disconnected, or was disconnected.
    Disconnected,
    /// The device refused a request. That ends the connection, not always the VM.
    Refused,
}

/// Disconnects QEMU: at once, or as soon as it has connected.
pub(crate) struct DisconnectHandle(Ranked<Line>);

#[derive(Default)]
enum Line {
    /// QEMU has not connected yet.
    #[default]
    Coming,
    Connected(ShutdownHandle),
    Cut,
}

impl Default for DisconnectHandle {
    fn default() -> Self {
        DisconnectHandle(Ranked::new(Rank::Line, Line::default()))
    }
}

impl DisconnectHandle {
    pub fn cut(&self) {
        if let Line::Connected(handle) = std::mem::replace(&mut *self.0.lock(), Line::Cut) {
            handle.shutdown();
        }
    }

    fn connected(&self, handle: ShutdownHandle) {
        let mut line = self.0.lock();
        match *line {
            Line::Cut => handle.shutdown(),
            Line::Coming | Line::Connected(_) => *line = Line::Connected(handle),
        }
    }
}

/// Waits for QEMUs.
pub(crate) struct Server {
    shared: Arc<Shared>,
    /// The same socket as `listener`, which the crate requires for itself.
    socket: Arc<UnixListener>,
    listener: Listener,
    epoll: Epoll,
}

impl Server {
    pub fn new(shared: Arc<Shared>, socket: UnixListener) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        // Edge-triggered: a connection that cannot be accepted (no descriptors left) must not keep the thread busy.
        let edge = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, LISTENER);
        epoll.ctl(ControlOperation::Add, socket.as_raw_fd(), edge)?;
        epoll.ctl(ControlOperation::Add, shared.wake.as_raw_fd(), EpollEvent::new(EventSet::IN, WAKE))?;
        let listener = Listener::from(socket.try_clone()?);
        Ok(Self { shared, socket: Arc::new(socket), listener, epoll })
    }

    pub fn run(mut self) {
        let cid = self.shared.config.guest_cid;
        let mut events = [EpollEvent::default(); 2];
        let mut timeout = NO_TIMEOUT;
        while !self.stopping() {
            match self.epoll.wait(std::mem::replace(&mut timeout, NO_TIMEOUT), &mut events) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return tracing::error!(cid, "the vsock device cannot wait: {error}");
                }
                _ => drop(self.shared.wake.read()),
            }
            while !self.stopping() && self.has_waiting() {
                if let Err(error) = self.serve() {
                    tracing::warn!(cid, "QEMU could not be served: {error}");
                    // If it still waits, no event comes for it.
                    timeout = SERVE_RETRY_MS;
                    break;
                }
            }
        }
    }

    fn stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Whether a QEMU waits to be accepted. Only this thread accepts while no session runs, so the crate finds the QEMU
    /// there. Without one the crate would spin on the listener.
    fn has_waiting(&self) -> bool {
        let mut listener = [PollFd::new(&*self.socket, PollFlags::IN)];
        rustix::event::poll(&mut listener, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
            .is_ok_and(|count| count > 0)
    }

    /// Serves the waiting QEMU until it disconnects.
    fn serve(&mut self) -> Result<(), DaemonError> {
        let shared = Arc::clone(&self.shared);
        let table = MemoryTable::new(GuestMemoryMmap::new());
        let disconnect_handle = Arc::new(DisconnectHandle::default());
        let socket = Arc::clone(&self.socket);
        let backend = Backend::new(Arc::clone(&shared), socket, disconnect_handle);
        let backend = Arc::new(backend.map_err(DaemonError::StartDaemon)?);
        let name = format!("vsock-{}-rq", shared.config.guest_cid);
        let mut daemon = VhostUserDaemon::new(name, Arc::clone(&backend), table.clone())?;
        if let Err(error) = self.bind_worker(&daemon, &backend) {
            // The worker cannot be woken: better one leaked idle thread than a hang.
            std::mem::forget(daemon);
            return Err(DaemonError::StartDaemon(error));
        }
        let session = Arc::clone(&backend.running().session);

        let outcome = self.serve_requests(&mut daemon, &backend, &session);
        session.is_over.store(true, Ordering::Release);
        session.wake_worker();
        // Waits for the worker.
        drop(daemon);
        *shared.attached.lock() = None;
        session.end();
        // The crate's threads are gone; its remaining vrings must not keep QEMU's memory.
        memory::replace(&table, GuestMemoryMmap::new());
        backend.running().worker.lock().end();
        if session.has_memory.load(Ordering::Acquire) {
            // A session without memory has told the guest nothing: the next one resets its connections. So it does behind
            // a proxy, whose QEMU goes on after a request that was refused.
            let is_refused = matches!(outcome, Ok(SessionEnd::Refused));
            if !self.stopping() && !is_refused {
                let cleared = shared.known.lock().clear();
                cleared.unwrap_or_else(|error| shared.complaints.known_connections(&error));
            }
            shared.services.disconnected();
        }
        outcome.map(|_| ())
    }

    /// Sends the worker its first event, which creates the session, and binds the vrings to it.
    fn bind_worker(&self, daemon: &VhostUserDaemon<Arc<Backend>>, backend: &Backend) -> io::Result<()> {
        for epoll in daemon.get_epoll_handlers() {
            epoll.register_listener(self.shared.notifier.as_raw_fd(), EventSet::IN, WAKE)?;
            let _ = self.shared.notifier.write(1);
            let session = &backend.running().session;
            for (index, ring) in session.rings.iter().enumerate() {
                ring.attach(index, session, Arc::downgrade(&epoll), backend.memory.clone());
            }
        }
        Ok(())
    }

    /// Answers requests until QEMU disconnects or is disconnected.
    fn serve_requests(
        &mut self,
        daemon: &mut VhostUserDaemon<Arc<Backend>>,
        backend: &Backend,
        session: &Arc<Session>,
    ) -> Result<SessionEnd, DaemonError> {
        let cid = self.shared.config.guest_cid;
        let disconnect_handle = Arc::clone(&backend.disconnect_handle);
        *self.shared.attached.lock() = Some(Attached { session: Arc::clone(session), disconnect_handle });
        if self.stopping() {
            // `stop` may have run before the scissors were there.
            backend.disconnect_handle.cut();
        }
        let epolls = daemon.get_epoll_handlers();
        // Before the first request can be answered.
        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        daemon.start(&mut self.listener).inspect_err(|_| {
            self.shared.sessions.fetch_sub(1, Ordering::Relaxed);
        })?;
        tracing::info!(cid, "QEMU connected");
        if let Some(handle) = daemon.shutdown_handle() {
            backend.disconnect_handle.connected(handle);
        }
        // From here on a waiting QEMU is a second one.
        for epoll in &epolls {
            let edge = EventSet::IN | EventSet::EDGE_TRIGGERED;
            let grace = epoll.register_listener(backend.grace.as_fd().as_raw_fd(), EventSet::IN, GRACE);
            let unnotified =
                epoll.register_listener(backend.unnotified.as_fd().as_raw_fd(), EventSet::IN, UNNOTIFIED);
            if let Err(error) = unnotified {
                tracing::warn!(cid, "the guest may be notified late that its packets were taken: {error}");
            }
            let listener = epoll.register_listener(self.socket.as_raw_fd(), edge, LISTENER);
            if let Err(error) = grace.and(listener) {
                tracing::warn!(cid, "a second QEMU waits until this one disconnects: {error}");
            }
        }
        drop(epolls);
        let end = daemon.wait();
        Ok(self.log_end(end))
    }

    fn log_end(&self, end: Result<(), DaemonError>) -> SessionEnd {
        let cid = self.shared.config.guest_cid;
        const REFUSED: &str = "QEMU sent a request that cannot be served";
        match end {
            Ok(())
            | Err(DaemonError::HandleRequest(RequestError::Disconnected | RequestError::PartialMessage)) => {
                tracing::info!(cid, "QEMU disconnected");
                return SessionEnd::Disconnected;
            }
            Err(error @ DaemonError::HandleRequest(RequestError::InvalidParam)) => {
                self.shared.complaints.machine(REFUSED, &format_args!("{error}{INVALID_PARAMETERS}"));
            }
            Err(error) => self.shared.complaints.machine(REFUSED, &error),
        }
        SessionEnd::Refused
    }
}
