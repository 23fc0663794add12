//! A vhost-user proxy between QEMU and the daemon, so that the daemon can be killed and restarted.
//!
//! QEMU's `vhost-user-vsock` device fails permanently once its socket closes. So QEMU connects to the proxy, in a
//! process that lives as long as QEMU, and the proxy connects to the daemon's device. It forwards QEMU's requests and
//! the device's answers, one at a time, and stores what QEMU has set up ([`setup`]). Packets do not pass through it:
//! rings are in guest memory, and the daemon gets the eventfds of kicks and interrupts.
//!
//! ```text
//!              ┌────────────── QEMU's request ◀── read ──┐
//!              ▼                                         │
//!   connect ─▶ replay all messages ────▶ FORWARDS ───────┤
//!      ▲          (answers dropped)       │              │
//!      └── wait for a listening daemon ◀──┘ daemon gone  └─▶ QEMU gone: stop
//! ```
//!
//! A request that the killed daemon did not answer is sent to the next one, and QEMU gets one answer. The proxy does
//! not handle the guest's connections: the next device resets them (`known_connections`).

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

use listening::Listener;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;

use crate::device::{DeviceError, listen};
use crate::limits::PROXY_RETRY_NS;
use setup::{Setup, is_polled};
use wire::{Message, Request};

/// Protocol features whose messages the proxy knows (`VHOST_USER_PROTOCOL_F_*`): MQ, REPLY_ACK, CONFIG. QEMU is not
/// offered others.
const PROTOCOL_FEATURES: u64 = 1 << 0 | REPLY_ACK | 1 << 9;
const REPLY_ACK: u64 = 1 << 3;

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
}

/// Why the proxy no longer serves a QEMU.
enum End {
    QemuGone,
    Stopped,
    Failed(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        End::Failed(error)
    }
}

/// The source of an event.
enum ProxyEvent {
    Qemu,
    Daemon,
}

impl VhostUserProxy {
    /// Creates the socket that QEMU's `-chardev socket,path=` names. `daemon` is the path of the device's socket, which
    /// need not exist yet.
    pub fn serve(socket: &Path, daemon: &Path) -> Result<VhostUserProxy, DeviceError> {
        let listener = listen(socket)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(io::Error::from)?;
        let (stop, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Arc::new(Shared { daemon: daemon.to_owned(), wake, stop, replaced });
        let (its, socket) = (Arc::clone(&shared), listener.descriptor.try_clone()?.into());
        let thread =
            std::thread::Builder::new().name("vsock-proxy".into()).spawn(move || run(&its, &socket))?;
        Ok(VhostUserProxy { shared, thread: Some(thread), _listener: listener })
    }

    /// How often the daemon of a QEMU was replaced.
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
        let held = qemu.set_nonblocking(false).map_err(End::Failed).and_then(|()| {
            let mut held = Held { shared, qemu, daemon: None, setup: Setup::default() };
            held.hold()
        });
        match held {
            Ok(()) | Err(End::QemuGone | End::Stopped) => tracing::info!("QEMU disconnected"),
            Err(End::Failed(error)) => tracing::error!("QEMU can no longer be served: {error}"),
        }
    }
}

/// One QEMU and its daemon.
struct Held<'a> {
    shared: &'a Shared,
    qemu: UnixStream,
    daemon: Option<UnixStream>,
    setup: Setup,
}

impl Held<'_> {
    fn hold(&mut self) -> Result<(), End> {
        self.connect()?;
        loop {
            match self.wait_for_event()? {
                ProxyEvent::Qemu => {
                    let message = Message::read(&self.qemu)?.ok_or(End::QemuGone)?;
                    self.pass_on(message)?;
                }
                ProxyEvent::Daemon => self.replace()?,
            }
        }
    }

    /// Waits until QEMU sends a request, or one side is gone.
    fn wait_for_event(&self) -> Result<ProxyEvent, End> {
        let daemon = self.daemon.as_ref().map(|daemon| PollFd::new(daemon, PollFlags::IN));
        let mut sources: Vec<_> =
            [PollFd::new(&self.shared.wake, PollFlags::IN), PollFd::new(&self.qemu, PollFlags::IN)]
                .into_iter()
                .chain(daemon)
                .collect();
        rustix::io::retry_on_intr(|| poll(&mut sources, None)).map_err(io::Error::from)?;
        match &sources[..] {
            [wake, ..] if !wake.revents().is_empty() => Err(End::Stopped),
            [_, qemu, ..] if !qemu.revents().is_empty() => Ok(ProxyEvent::Qemu),
            // A device sends nothing unasked: its socket has closed.
            _ => Ok(ProxyEvent::Daemon),
        }
    }

    /// Forwards a request to this daemon, or to the next one if it fails, and the answer to QEMU once.
    fn pass_on(&mut self, message: Message) -> Result<(), End> {
        if is_polled(&message) {
            return Err(End::Failed(io::Error::other(
                "QEMU requests a ring without kicks, which is not supported",
            )));
        }
        let reply = loop {
            match self.daemon.as_ref().map(|daemon| self.exchange(daemon, &message)) {
                Some(Ok(reply)) => break reply,
                Some(Err(error)) if !is_gone(&error) => return Err(End::Failed(error)),
                Some(Err(_)) | None => {}
            }
            self.replace()?;
        };
        if let Some(mut reply) = reply {
            if message.request == Request::GET_PROTOCOL_FEATURES {
                let offered = reply.u64_at(0) & PROTOCOL_FEATURES;
                reply.payload = offered.to_le_bytes().to_vec();
            }
            reply.write(&self.qemu)?;
        }
        self.setup.store(message);
        Ok(())
    }

    /// Sends a request to a daemon; returns its answer, if it has one. An error: this daemon is gone.
    fn exchange(&self, daemon: &UnixStream, message: &Message) -> io::Result<Option<Message>> {
        message.write(daemon)?;
        if !message.is_answered(self.setup.protocol_features() & REPLY_ACK != 0) {
            return Ok(None);
        }
        let reply = Message::read(daemon)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match reply.is_reply_to(message.request) {
            true => Ok(Some(reply)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the daemon's device answered another request",
            )),
        }
    }

    /// Replaces a daemon that is gone by the next one that listens.
    fn replace(&mut self) -> Result<(), End> {
        self.daemon = None;
        tracing::info!("the daemon is gone; QEMU and its guest wait for the next one");
        self.connect()?;
        self.shared.replaced.fetch_add(1, Ordering::Relaxed);
        tracing::info!("QEMU is connected to another daemon");
        Ok(())
    }

    /// Connects to a daemon, waiting without limit until there is one that accepts the setup. A daemon that cannot is
    /// left: QEMU would not connect again.
    fn connect(&mut self) -> Result<(), End> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok();
        if let (Some(watch), Some(folder)) = (&watch, self.shared.daemon.parent()) {
            // Before the attempt, so that a socket created right after it is reported.
            let _ = inotify::add_watch(watch, folder, inotify::WatchFlags::CREATE);
        }
        let mut reported = None;
        loop {
            match UnixStream::connect(&self.shared.daemon) {
                Ok(daemon) => match self.replay_setup(&daemon) {
                    Ok(()) => {
                        self.daemon = Some(daemon);
                        return Ok(());
                    }
                    Err(error) if is_gone(&error) => {}
                    Err(error) => {
                        let why = error.to_string();
                        if reported.as_ref() != Some(&why) {
                            tracing::error!(
                                "{why}; the proxy tries again until a daemon accepts QEMU's device"
                            );
                            reported = Some(why);
                        }
                    }
                },
                Err(error) => tracing::debug!("no daemon at {}: {error}", self.shared.daemon.display()),
            }
            self.wait(watch.as_ref())?;
        }
    }

    /// Waits until a file is created in the daemon's folder, or the retry interval passes.
    fn wait(&self, watch: Option<&OwnedFd>) -> Result<(), End> {
        let again = Timespec { tv_sec: 0, tv_nsec: PROXY_RETRY_NS };
        let watched = watch.map(|watch| PollFd::new(watch, PollFlags::IN));
        // Of QEMU only its hang-up, which poll always reports: its requests wait.
        let mut sources: Vec<_> =
            [PollFd::new(&self.shared.wake, PollFlags::IN), PollFd::new(&self.qemu, PollFlags::empty())]
                .into_iter()
                .chain(watched)
                .collect();
        rustix::io::retry_on_intr(|| poll(&mut sources, Some(&again))).map_err(io::Error::from)?;
        match &sources[..] {
            [wake, ..] if !wake.revents().is_empty() => return Err(End::Stopped),
            [_, qemu, ..] if !qemu.revents().is_empty() => return Err(End::QemuGone),
            _ => {}
        }
        if let Some(watch) = watch {
            let mut events = [const { MaybeUninit::<u8>::uninit() }; 4096];
            while rustix::io::read(watch, &mut events).is_ok_and(|(events, _)| !events.is_empty()) {}
        }
        Ok(())
    }

    /// Brings a new device to the state of the last one.
    fn replay_setup(&self, daemon: &UnixStream) -> io::Result<()> {
        if self.setup.features() == 0 && self.setup.protocol_features() == 0 {
            // QEMU has negotiated no features yet, and may still query all. Its messages are replayed.
            return self.replay_messages(daemon);
        }
        let accepted = [
            (Request::GET_FEATURES, self.setup.features()),
            (Request::GET_PROTOCOL_FEATURES, self.setup.protocol_features()),
        ];
        for (request, features) in accepted {
            let offered = self.exchange(daemon, &Message::new(request, Vec::new()))?;
            let missing = features & !offered.map_or(0, |offered| offered.u64_at(0));
            if missing != 0 {
                let words =
                    format!("the new daemon's device lacks features {missing:#x} that QEMU has accepted");
                return Err(io::Error::new(io::ErrorKind::Unsupported, words));
            }
        }
        self.replay_messages(daemon)?;
        for event in self.setup.events() {
            // A full counter is readable already.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    fn replay_messages(&self, daemon: &UnixStream) -> io::Result<()> {
        for replayed in self.setup.replay_messages()? {
            let message = replayed.message();
            let reply = self.exchange(daemon, message)?;
            if let Some(status @ 1..) = reply.map(|reply| reply.u64_at(0)) {
                let words =
                    format!("the new daemon's device refuses request {} ({status})", message.request.0);
                return Err(io::Error::other(words));
            }
        }
        Ok(())
    }
}

/// Whether the daemon is gone, so that the proxy waits for the next one.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
