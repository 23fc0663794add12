//! A holder: what stands between QEMU and the daemon, so that the daemon can be killed and started again.
//!
//! QEMU's `vhost-user-vsock` device is dead for good once its socket closes. So QEMU connects to a holder, in a process
//! that lives as long as QEMU, and the holder to the daemon's device. It passes QEMU's requests and the device's answers
//! on, one at a time, and remembers what QEMU has said ([`setup`]). Packets do not pass through it: rings are in guest
//! memory, and kicks and interrupts are eventfds that the daemon gets.
//!
//! ```text
//!              ┌────────────── QEMU's request ◀── read ──┐
//!              ▼                                         │
//!   connect ─▶ told everything again ─▶ HOLDS ───────────┤
//!      ▲          (answers swallowed)     │              │
//!      └── wait until somebody listens ◀──┘ daemon gone  └─▶ QEMU gone: the end
//! ```
//!
//! A request whose answer the killed daemon owed is made again of the next one, and QEMU gets one answer. The guest's
//! connections are none of the holder's: the next device resets them (`known`).

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

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;

use crate::device::{DeviceError, listen};
use crate::limits::PROXY_RETRY_NS;
use setup::{Setup, is_polled};
use wire::{Message, Request};

/// Protocol features of which a holder knows what they add to the protocol (`VHOST_USER_PROTOCOL_F_*`): MQ, REPLY_ACK,
/// CONFIG. QEMU is not offered others.
const PROTOCOL_FEATURES: u64 = 1 << 0 | REPLY_ACK | 1 << 9;
const REPLY_ACK: u64 = 1 << 3;

/// A holder and its thread, for one QEMU after the other. Dropping it cuts QEMU off.
#[derive(Debug)]
pub struct VhostUserProxy {
    shared: Arc<Shared>,
    socket: PathBuf,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    daemon: PathBuf,
    /// Readable once `stop` is set.
    wake: OwnedFd,
    stop: AtomicBool,
    replaced: AtomicU64,
}

/// Why a QEMU is held no longer.
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

/// What happened first.
enum News {
    Qemu,
    Daemon,
}

impl VhostUserProxy {
    /// Makes the socket that QEMU's `-chardev socket,path=` names. `daemon` is the device's: it need not be there yet.
    pub fn serve(socket: &Path, daemon: &Path) -> Result<VhostUserProxy, DeviceError> {
        let listener = listen(socket)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(io::Error::from)?;
        let (stop, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Arc::new(Shared { daemon: daemon.to_owned(), wake, stop, replaced });
        let its = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("vsock-proxy".into()).spawn(move || run(&its, &listener))?;
        Ok(VhostUserProxy { shared, socket: socket.to_owned(), thread: Some(thread) })
    }

    /// How often a QEMU got another daemon.
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
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn run(shared: &Shared, listener: &UnixListener) {
    while !shared.stop.load(Ordering::Acquire) {
        let mut sources = [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.wake, PollFlags::IN)];
        let _ = poll(&mut sources, None);
        let Ok((qemu, _)) = listener.accept() else { continue };
        // Accepted sockets do not inherit it on Linux; where they did, reads would fail.
        let held = qemu.set_nonblocking(false).map_err(End::Failed).and_then(|()| {
            let mut held = Held { shared, qemu, daemon: None, setup: Setup::default() };
            held.hold()
        });
        match held {
            Ok(()) | Err(End::QemuGone | End::Stopped) => tracing::info!("QEMU disconnected"),
            Err(End::Failed(error)) => tracing::error!("QEMU can be held no longer: {error}"),
        }
    }
}

/// One QEMU.
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
            match self.news()? {
                News::Qemu => {
                    let message = Message::read(&self.qemu)?.ok_or(End::QemuGone)?;
                    self.pass_on(message)?;
                }
                News::Daemon => self.replace()?,
            }
        }
    }

    /// Waits until QEMU asks for something, or somebody is gone.
    fn news(&self) -> Result<News, End> {
        let daemon = self.daemon.as_ref().map(|daemon| PollFd::new(daemon, PollFlags::IN));
        let mut sources: Vec<_> =
            [PollFd::new(&self.shared.wake, PollFlags::IN), PollFd::new(&self.qemu, PollFlags::IN)]
                .into_iter()
                .chain(daemon)
                .collect();
        rustix::io::retry_on_intr(|| poll(&mut sources, None)).map_err(io::Error::from)?;
        match &sources[..] {
            [wake, ..] if !wake.revents().is_empty() => Err(End::Stopped),
            [_, qemu, ..] if !qemu.revents().is_empty() => Ok(News::Qemu),
            // A device says nothing that it was not asked: its socket has closed.
            _ => Ok(News::Daemon),
        }
    }

    /// Has the daemon do what QEMU asks for - this one, or one that comes after it - and QEMU told once.
    fn pass_on(&mut self, message: Message) -> Result<(), End> {
        if is_polled(&message) {
            return Err(End::Failed(io::Error::other("QEMU asks for a ring without kicks")));
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
        self.setup.told(message);
        Ok(())
    }

    /// Makes a request of a daemon; its answer, if it has one. An error: this daemon is gone.
    fn exchange(&self, daemon: &UnixStream, message: &Message) -> io::Result<Option<Message>> {
        message.write(daemon)?;
        if !message.is_answered(self.setup.protocol_features() & REPLY_ACK != 0) {
            return Ok(None);
        }
        let reply = Message::read(daemon)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match reply.is_reply_to(message.request) {
            true => Ok(Some(reply)),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to nothing that was asked")),
        }
    }

    /// The daemon is gone: the next one that listens takes its place.
    fn replace(&mut self) -> Result<(), End> {
        self.daemon = None;
        tracing::info!("the daemon is gone; QEMU and its guest wait for the next one");
        self.connect()?;
        self.shared.replaced.fetch_add(1, Ordering::Relaxed);
        tracing::info!("QEMU has another daemon");
        Ok(())
    }

    /// Connects to the daemon, however long it takes until there is one, and tells it what the one before it knew.
    fn connect(&mut self) -> Result<(), End> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok();
        if let (Some(watch), Some(folder)) = (&watch, self.shared.daemon.parent()) {
            // From before the attempt: a socket that comes right after it is news.
            let _ = inotify::add_watch(watch, folder, inotify::WatchFlags::CREATE);
        }
        loop {
            match UnixStream::connect(&self.shared.daemon) {
                Ok(daemon) => match self.tell_again(&daemon) {
                    Ok(()) => {
                        self.daemon = Some(daemon);
                        return Ok(());
                    }
                    Err(error) if is_gone(&error) => {}
                    Err(error) => return Err(End::Failed(error)),
                },
                Err(error) => tracing::debug!("no daemon at {}: {error}", self.shared.daemon.display()),
            }
            self.wait(watch.as_ref())?;
        }
    }

    /// Until there is news of a daemon, or it is time to look again.
    fn wait(&self, watch: Option<&OwnedFd>) -> Result<(), End> {
        let again = Timespec { tv_sec: 0, tv_nsec: PROXY_RETRY_NS };
        let watched = watch.map(|watch| PollFd::new(watch, PollFlags::IN));
        // Of QEMU only its end, which is told unasked: its requests wait.
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
            let mut news = [const { MaybeUninit::<u8>::uninit() }; 4096];
            while rustix::io::read(watch, &mut news).is_ok_and(|(news, _)| !news.is_empty()) {}
        }
        Ok(())
    }

    /// Brings a new device to where the last one was.
    fn tell_again(&self, daemon: &UnixStream) -> io::Result<()> {
        if self.setup.features() == 0 && self.setup.protocol_features() == 0 {
            // QEMU has agreed on nothing yet, and may ask everything itself. What it said is passed on.
            return self.say_again(daemon);
        }
        let has = [
            (Request::GET_FEATURES, self.setup.features()),
            (Request::GET_PROTOCOL_FEATURES, self.setup.protocol_features()),
        ];
        for (request, taken) in has {
            let offered = self.exchange(daemon, &Message::new(request, Vec::new()))?;
            let missing = taken & !offered.map_or(0, |offered| offered.u64_at(0));
            if missing != 0 {
                let words =
                    format!("the new daemon's device lacks features {missing:#x} that QEMU has taken");
                return Err(io::Error::new(io::ErrorKind::Unsupported, words));
            }
        }
        self.say_again(daemon)?;
        for event in self.setup.events() {
            // A full counter is an event already.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    fn say_again(&self, daemon: &UnixStream) -> io::Result<()> {
        for again in self.setup.again()? {
            let message = again.message();
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

/// The daemon has gone while it was told: the next one is waited for.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
