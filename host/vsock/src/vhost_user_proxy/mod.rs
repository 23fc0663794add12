//! A vhost-user proxy between QEMU and the daemon, so that the daemon can be killed and restarted.
//!
//! QEMU's `vhost-user-vsock` device fails permanently once its socket closes. So QEMU connects to the proxy, in a
//! process that lives as long as QEMU, and the proxy connects to the daemon's device. It forwards QEMU's requests and
//! the device's answers, one at a time, and stores what QEMU has set up ([`setup`]). Packets do not pass through it:
//! rings are in guest memory, and the daemon gets the eventfds of kicks and interrupts.
//!
//! ```text
//!   CONNECTED      a request of QEMU's is forwarded, and stored once the device has executed it
//!     │    ▲
//!     │    └── a daemon listens; all messages are replayed, and the answers dropped
//!     ▼
//!   NO DEVICE      a request of QEMU's is answered from what is stored, or waits for a device
//! ```
//!
//! A request that the killed daemon did not answer is sent to the next one, or answered here while there is none
//! ([`setup`]): QEMU gets one answer. QEMU's main loop stands until it has that, and then its monitor and its guest
//! stand too. So only a QEMU that no device has served yet waits, and a query that none has answered.
//!
//! A request that the device refuses is not stored: the device gets the last good setup again, as if it had never been
//! sent. If QEMU cannot be told, because it did not ask for an acknowledgement, its connection is closed, as the device
//! itself would have done.
//!
//! The proxy does not handle the guest's connections: the next device resets them (`known_connections`).

mod daemon_device;
mod setup;
mod wire;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use listening::Listener;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;

use crate::complaints::Complaints;
use crate::device::{DeviceError, listen};
use crate::limits::{PROXY_REFUSALS_MAX, PROXY_RETRY_NS, SECOND_QEMU_WAIT_NS};
use daemon_device::{ConnectError, DaemonDevice, is_gone};
use setup::{REPLY_ACK, Setup, is_polled};
use wire::{Message, Request};

/// Protocol features whose messages the proxy knows (`VHOST_USER_PROTOCOL_F_*`): MQ, REPLY_ACK, CONFIG. QEMU is not
/// offered others.
const PROTOCOL_FEATURES: u64 = 1 << 0 | REPLY_ACK | 1 << 9;

/// A vhost-user proxy and its thread, for one QEMU after another. Dropping it disconnects QEMU.
#[derive(Debug)]
pub struct VhostUserProxy {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The socket for QEMU; its file is removed with it.
    _listener: Listener,
}

#[derive(Debug)]
struct Shared {
    daemon: PathBuf,
    /// Readable once `stop` is set.
    wake: OwnedFd,
    stop: AtomicBool,
    replaced: AtomicU64,
    complaints: Complaints,
}

/// Why the proxy no longer serves a QEMU.
enum End {
    QemuGone,
    Stopped,
    Failed(io::Error),
}

/// Of QEMU's socket. Errors of the daemon's are handled where they occur.
impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        if is_gone(&error) { End::QemuGone } else { End::Failed(error) }
    }
}

/// What the proxy has to see to.
enum ProxyEvent {
    /// QEMU sends a request.
    Request,
    /// The device has ended the connection.
    DeviceLost,
    /// A daemon may listen by now.
    Retry,
}

impl VhostUserProxy {
    /// Creates the socket that QEMU's `-chardev socket,path=` names. `daemon` is the path of the device's socket, which
    /// need not exist yet.
    pub fn serve(socket: &Path, daemon: &Path) -> Result<VhostUserProxy, DeviceError> {
        let listener = listen(socket)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(io::Error::from)?;
        let (stop, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
        let complaints = Complaints::of_proxy();
        let shared = Arc::new(Shared { daemon: daemon.to_owned(), wake, stop, replaced, complaints });
        let (its, socket) = (Arc::clone(&shared), listener.descriptor.try_clone()?.into());
        let thread =
            std::thread::Builder::new().name("vsock-proxy".into()).spawn(move || run(&its, &socket))?;
        Ok(VhostUserProxy { shared, thread: Some(thread), _listener: listener })
    }

    /// How often the device of a QEMU was connected to a daemon again.
    pub fn replaced(&self) -> u64 {
        self.shared.replaced.load(Ordering::Relaxed)
    }
}

impl Drop for VhostUserProxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the proxy's thread panicked");
        }
    }
}

fn run(shared: &Shared, listener: &UnixListener) {
    while !shared.stop.load(Ordering::Acquire) {
        let mut sources = [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.wake, PollFlags::IN)];
        let _ = poll(&mut sources, None);
        let Ok((qemu, _)) = listener.accept() else { continue };
        // Accepted sockets do not inherit non-blocking mode on Linux; where they do, reads would fail.
        let served = qemu.set_nonblocking(false).map_err(End::Failed).and_then(|()| {
            tracing::info!("QEMU connected");
            ProxiedQemu::new(shared, listener, qemu).serve()
        });
        match served {
            Ok(()) | Err(End::QemuGone | End::Stopped) => tracing::info!("QEMU disconnected"),
            Err(End::Failed(error)) => {
                shared.complaints.machine("QEMU can no longer be served and is disconnected", &error);
            }
        }
    }
}

/// One QEMU, and the daemon's device that serves it, if there is one.
struct ProxiedQemu<'a> {
    shared: &'a Shared,
    /// Where a second QEMU would connect.
    listener: &'a UnixListener,
    qemu: UnixStream,
    device: Option<DaemonDevice>,
    setup: Setup,
    /// Reports files that are created beside the daemon's socket, while there is no device.
    watch: Option<OwnedFd>,
    /// A device has served this QEMU: before that, nothing is answered here.
    has_been_served: bool,
    /// The last reason that was logged why a daemon's device is left.
    reported: Option<String>,
    /// When a second QEMU is refused, if one waits.
    second_refused_at: Option<Instant>,
}

impl<'a> ProxiedQemu<'a> {
    fn new(shared: &'a Shared, listener: &'a UnixListener, qemu: UnixStream) -> Self {
        Self {
            shared,
            listener,
            qemu,
            device: None,
            setup: Setup::default(),
            watch: None,
            has_been_served: false,
            reported: None,
            second_refused_at: None,
        }
    }

    fn serve(&mut self) -> Result<(), End> {
        self.try_connect();
        loop {
            match self.wait_for_event(PollFlags::IN)? {
                ProxyEvent::Request => {
                    let message = Message::read(&self.qemu)?.ok_or(End::QemuGone)?;
                    self.handle(message)?;
                }
                ProxyEvent::DeviceLost => {
                    self.device_lost();
                    self.try_connect();
                }
                ProxyEvent::Retry => self.try_connect(),
            }
        }
    }

    /// Waits for an event. `of_qemu`: what is waited for at QEMU's socket, besides its hang-up, which poll always
    /// reports.
    fn wait_for_event(&mut self, of_qemu: PollFlags) -> Result<ProxyEvent, End> {
        loop {
            let of_listener =
                if self.second_refused_at.is_some() { PollFlags::empty() } else { PollFlags::IN };
            let mut sources = vec![
                PollFd::new(&self.shared.wake, PollFlags::IN),
                PollFd::new(&self.qemu, of_qemu),
                PollFd::new(self.listener, of_listener),
            ];
            match (&self.device, &self.watch) {
                (Some(device), _) => sources.push(PollFd::new(device, PollFlags::IN)),
                (None, Some(watch)) => sources.push(PollFd::new(watch, PollFlags::IN)),
                (None, None) => {}
            }
            let timeout = self.timeout();
            rustix::io::retry_on_intr(|| poll(&mut sources, timeout.as_ref())).map_err(io::Error::from)?;
            let has_event: Vec<_> = sources.iter().map(|source| !source.revents().is_empty()).collect();
            match has_event[..] {
                [true, ..] => return Err(End::Stopped),
                [_, true, ..] if of_qemu.is_empty() => return Err(End::QemuGone),
                [_, true, ..] => return Ok(ProxyEvent::Request),
                // A device sends nothing unasked: its socket has closed.
                [_, _, _, true] if self.device.is_some() => return Ok(ProxyEvent::DeviceLost),
                [_, _, true, ..] => {
                    let wait = Duration::from_nanos(SECOND_QEMU_WAIT_NS.unsigned_abs());
                    self.second_refused_at = Some(Instant::now() + wait);
                }
                _ => {
                    self.refuse_second();
                    if self.device.is_none() {
                        return Ok(ProxyEvent::Retry);
                    }
                }
            }
        }
    }

    /// How long to wait for an event.
    fn timeout(&self) -> Option<Timespec> {
        let retry = self.device.is_none().then_some(PROXY_RETRY_NS);
        let second = self.second_refused_at.map(|at| {
            i64::try_from(at.saturating_duration_since(Instant::now()).as_nanos()).unwrap_or(i64::MAX)
        });
        let shortest = retry.into_iter().chain(second).min()?;
        Some(Timespec { tv_sec: 0, tv_nsec: shortest })
    }

    /// Refuses a second QEMU, if one has waited as long as the end of the first one would take.
    fn refuse_second(&mut self) {
        if self.second_refused_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        self.second_refused_at = None;
        while self.listener.accept().is_ok() {
            let words = "the first one is still connected; end it, or start a proxy for another VM's socket";
            self.shared.complaints.machine("a second QEMU connected to the proxy and was refused", &words);
        }
    }

    /// Answers a request of QEMU's: by the device, or by what is stored while there is none.
    fn handle(&mut self, message: Message) -> Result<(), End> {
        if is_polled(&message) {
            return Err(End::Failed(io::Error::other(
                "QEMU requests a ring without kicks, which is not supported",
            )));
        }
        // QEMU claims the device again once it was unplugged and added again. A device accepts that once.
        if message.request == Request::SET_OWNER && self.setup.is_owned() {
            return self.reply(&message, 0u64.to_le_bytes().to_vec());
        }
        let mut answer = self.answer(&message)?;
        if message.request == Request::GET_PROTOCOL_FEATURES {
            let offered = answer.first_chunk().copied().map_or(0, u64::from_le_bytes) & PROTOCOL_FEATURES;
            answer = offered.to_le_bytes().to_vec();
        }
        self.reply(&message, answer.clone())?;
        let is_refused = !message.has_own_reply() && answer.iter().any(|byte| *byte != 0);
        if is_refused {
            let words =
                format!("request {}; the device keeps what QEMU has set up before", message.request.0);
            self.shared.complaints.machine("the daemon's device refuses what QEMU requests", &words);
            // The device ends a connection on which it has refused a request.
            self.device = None;
            self.try_connect();
        } else {
            self.setup.store(message, &answer);
        }
        Ok(())
    }

    /// Returns the payload of the answer to a request; nothing if a device has none for it.
    fn answer(&mut self, message: &Message) -> Result<Vec<u8>, End> {
        let mut ended = 0;
        loop {
            let failed = self.connect().err();
            if let Some(device) = &self.device {
                match device.exchange(message, self.setup.acknowledges(message)) {
                    Ok(reply) => return Ok(reply.map_or_else(Vec::new, |reply| reply.payload)),
                    Err(error) if !is_gone(&error) => return Err(End::Failed(error)),
                    Err(_) => {}
                }
                self.device_lost();
                ended += 1;
            } else if ended > 0 && matches!(failed, Some(ConnectError::Ended)) {
                // This request may be the reason, so it is not answered here as long as a daemon listens.
                ended += 1;
            } else if let Some(answer) = self.setup.answer(message).filter(|_| self.has_been_served) {
                return Ok(answer);
            } else {
                self.wait_for_event(PollFlags::empty())?;
            }
            // A daemon that is killed just then looks the same, but not several in a row.
            if ended >= PROXY_REFUSALS_MAX {
                let words = format!("the daemon's device refuses request {}", message.request.0);
                return Err(End::Failed(io::Error::other(words)));
            }
        }
    }

    /// Sends QEMU the answer to a request, if it waits for one.
    fn reply(&self, message: &Message, payload: Vec<u8>) -> Result<(), End> {
        if message.is_answered(self.setup.acknowledges(message)) {
            Message::reply_to(message.request, payload).write(&self.qemu)?;
        }
        Ok(())
    }

    /// Connects if it can. [`Self::wait_for_event`] says when to try again.
    fn try_connect(&mut self) {
        let _ = self.connect();
    }

    fn device_lost(&mut self) {
        self.device = None;
        tracing::info!("the connection to the daemon is lost; QEMU's device waits for the next one");
    }

    /// Connects to a daemon that listens, if there is no device. A daemon whose device does not accept QEMU's setup is
    /// left, because QEMU would not connect again.
    fn connect(&mut self) -> Result<(), ConnectError> {
        if self.device.is_some() {
            return Ok(());
        }
        self.watch_folder();
        match DaemonDevice::connect(&self.shared.daemon, &self.setup) {
            Ok(device) => {
                (self.device, self.watch, self.reported) = (Some(device), None, None);
                if std::mem::replace(&mut self.has_been_served, true) {
                    self.shared.replaced.fetch_add(1, Ordering::Relaxed);
                    tracing::info!("QEMU's device is connected to a daemon again");
                } else {
                    tracing::info!("QEMU's device is connected to the daemon");
                }
                Ok(())
            }
            Err(error) => {
                self.report(&error);
                Err(error)
            }
        }
    }

    /// Logs why there is no device, each reason once. A daemon that has served this QEMU is expected back.
    fn report(&mut self, error: &ConnectError) {
        let why = format!("{}: {error}", self.shared.daemon.display());
        let is_restart =
            matches!(error, ConnectError::NoDaemon(_) | ConnectError::Ended) && self.has_been_served;
        if is_restart {
            tracing::debug!("no device at {why}");
        } else if self.reported.as_ref() != Some(&why) {
            self.shared.complaints.machine("QEMU's device waits for a daemon", &why);
            self.reported = Some(why);
        }
    }

    /// Watches the daemon's folder, before an attempt to connect, so that a socket that is created right after it is
    /// reported.
    fn watch_folder(&mut self) {
        if let Some(watch) = &self.watch {
            let mut events = [const { MaybeUninit::<u8>::uninit() }; 4096];
            while rustix::io::read(watch, &mut events).is_ok_and(|(events, _)| !events.is_empty()) {}
            return;
        }
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok();
        if let (Some(watch), Some(folder)) = (&watch, self.shared.daemon.parent()) {
            let _ = inotify::add_watch(watch, folder, inotify::WatchFlags::CREATE);
        }
        self.watch = watch;
    }
}
