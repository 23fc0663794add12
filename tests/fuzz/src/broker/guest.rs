//! The broker of a guest, with a host that answers by the protocol unless the input says otherwise, and with memory of
//! memfds that nothing pins.

use std::cell::{Cell, RefCell};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use arbitrary::{Result, Unstructured};
use guestd::broker::{Broker, Config, Machine, MadeRegion, MadeStream, Purpose};
use guestd::driver::Driver;
use nt_handle::SyncFileFolder;
use proto::attach::{
    Attached, GuestdToHost, GuestdWelcome, HostToGuestd, KeptBacking, Resumed, Rung, SharedBacking,
    guestd_to_host, host_to_guestd, rung,
};
use proto::frame::{FrameBuffer, append, decode};
use rustix::fs::SealFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Brokers, PAGE_BYTES, memory, unused_path};

/// Regions that exist.
type Live = Rc<Cell<usize>>;

/// Memory that nothing pins.
struct Memfds(Live);

/// A region, counted while it exists.
struct Region(Live, OwnedFd);

impl Drop for Region {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Machine for Memfds {
    type Region = Region;
    type Stream = OwnedFd;
    type Descriptor = OwnedFd;

    fn pages_total_max(&self) -> u32 {
        1000
    }

    fn make_region(&mut self, purpose: Purpose, pages: u32) -> std::result::Result<MadeRegion<Self>, String> {
        let seals = match purpose {
            Purpose::Fences | Purpose::HostRing => SealFlags::FUTURE_WRITE | SealFlags::SHRINK,
            Purpose::Pages | Purpose::DevicePages | Purpose::ProcessRing => SealFlags::SHRINK,
        };
        let descriptor = memory(proto::limits::BACKING_MEMFD, u64::from(pages) * PAGE_BYTES, seals);
        let copy = descriptor.try_clone().map_err(|error| error.to_string())?;
        self.0.set(self.0.get() + 1);
        let addresses = (1..=u64::from(pages)).map(|page| page * PAGE_BYTES).collect();
        Ok(MadeRegion { region: Region(self.0.clone(), copy), addresses, descriptor })
    }

    fn share_region(&mut self, region: &Region) -> std::result::Result<OwnedFd, String> {
        region.1.try_clone().map_err(|error| error.to_string())
    }

    fn open_stream(&mut self) -> std::result::Result<MadeStream<Self>, String> {
        let (near, far) = UnixStream::pair().map_err(|error| error.to_string())?;
        Ok(MadeStream { stream: near.into(), descriptor: far.into() })
    }
}

/// The ends of the host: of the link, and of event channels.
type Ends = Arc<Mutex<Vec<UnixStream>>>;

/// The host, which answers requests in order.
#[derive(Default)]
struct Host {
    link: Option<UnixStream>,
    received: FrameBuffer,
    processes: u32,
    tokens: u8,
    /// It refuses the next request.
    refuses: bool,
    /// It answers nothing for now.
    waits: bool,
}

/// The broker and its host.
pub struct Guest {
    listener: SocketAddrUnix,
    driver: Driver<Memfds>,
    live: Live,
    links: Ends,
    channels: Ends,
    host: RefCell<Host>,
}

fn pair(ends: &Ends) -> std::result::Result<OwnedFd, String> {
    let (near, far) = UnixStream::pair().map_err(|error| error.to_string())?;
    far.set_nonblocking(true).map_err(|error| error.to_string())?;
    near.set_nonblocking(true).map_err(|error| error.to_string())?;
    ends.lock().unwrap_or_else(PoisonError::into_inner).push(far);
    Ok(near.into())
}

impl Guest {
    pub fn new() -> Guest {
        guestd::console::silence();
        let path = unused_path();
        let name = path.as_os_str().as_encoded_bytes();
        let address = SocketAddrUnix::new_abstract_name(name).expect("a name");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .expect("a socket");
        rustix::net::bind(&listener, &address).expect("the name is free");
        rustix::net::listen(&listener, 16).expect("it listens");
        let (live, links, channels) = (Live::default(), Ends::default(), Ends::default());
        let config = Config { kernel: "fuzz".to_owned(), unpin_time: None, events_max: 4 };
        let broker = Broker::new(config, Memfds(live.clone()));
        let ends = [&links, &channels].map(Arc::clone);
        let [connect, connect_event_channel] =
            ends.map(|ends| Box::new(move || pair(&ends)) as guestd::driver::Connect);
        let sync_files = SyncFileFolder::fresh(&path);
        let driver = Driver::new(broker, listener, sync_files, connect, connect_event_channel);
        let driver = driver.expect("the driver is made");
        Guest { listener: address, driver, live, links, channels, host: RefCell::default() }
    }

    /// Answers what the broker has sent on its link, the newest one. Whether there was anything.
    fn answer(&self) -> bool {
        let mut host = self.host.borrow_mut();
        if let Some(link) = self.links.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            *host = Host { link: Some(link), processes: host.processes, ..Host::default() };
        }
        let Host { link: Some(link), received, .. } = &mut *host else { return false };
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = (&*link).read(&mut bytes) {
            received.extend(&bytes[..count]);
        }
        let mut answers = Vec::new();
        while !host.waits
            && let Some(frame) = host.received.next_frame().expect("the broker sends frames")
        {
            let message: GuestdToHost = decode(frame).expect("the broker sends messages");
            let request = message.request;
            let refused = std::mem::take(&mut host.refuses);
            let answer = match message.body.map(|body| host.answer_to(body)) {
                Some(body) if !refused => {
                    HostToGuestd { request, body: Some(body), ..HostToGuestd::default() }
                }
                _ => HostToGuestd { request, refused: "no".to_owned(), ..HostToGuestd::default() },
            };
            append(&answer, &mut answers);
        }
        host.send(&answers);
        !answers.is_empty()
    }
}

impl Host {
    fn send(&self, bytes: &[u8]) {
        // The broker may have dropped the link.
        let _ = self.link.as_ref().map(|mut link| link.write_all(bytes));
    }

    fn answer_to(&mut self, body: guestd_to_host::Body) -> host_to_guestd::Body {
        use guestd_to_host::Body;
        match body {
            Body::Hello(hello) => host_to_guestd::Body::Welcome(GuestdWelcome {
                version: hello.version,
                vm: 1,
                events_max: 4,
                rings: true,
                ..GuestdWelcome::default()
            }),
            Body::Attach(_) => {
                self.processes += 1;
                let (process, token) = (self.processes, vec![1; 16]);
                host_to_guestd::Body::Attached(Attached { process, token, ..Attached::default() })
            }
            Body::AddMemory(_) => host_to_guestd::Body::FirstSlot(0),
            Body::Detach(_) => host_to_guestd::Body::Detached(true),
            Body::MakeNtHandle(_) => {
                self.tokens = self.tokens.wrapping_add(1);
                host_to_guestd::Body::NtHandle(vec![self.tokens; 16])
            }
            Body::NtHandleClosed(_) => host_to_guestd::Body::NtHandleClosed(true),
            Body::AttachBacking(_) | Body::KeptBacking(_) => host_to_guestd::Body::BackingAttached(true),
            Body::DetachBacking(_) | Body::ReleaseBacking(_) => host_to_guestd::Body::TakenBack(true),
            Body::RegisterEvent(_) => host_to_guestd::Body::EventChannel(vec![2; 16]),
            Body::UnregisterEvent(_) => host_to_guestd::Body::Forgotten(true),
            Body::Settle(_) => host_to_guestd::Body::Rung(Rung::default()),
            Body::Returning(_) => host_to_guestd::Body::Returned(true),
            Body::NtHandleHeld(_) => host_to_guestd::Body::NtHandleHeld(true),
            Body::Resume(_) => host_to_guestd::Body::Resumed(Resumed { slots: 64, token: vec![3; 16] }),
            Body::ShareBacking(share) => host_to_guestd::Body::SharedBacking(SharedBacking {
                process: share.process,
                address: share.offset,
                bytes: PAGE_BYTES,
            }),
        }
    }

    /// Something that the broker has not asked for.
    fn unasked(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let process = input.int_in_range(0..=self.processes + 1)?;
        let body = match input.int_in_range(0..=5)? {
            0 => host_to_guestd::Body::Ended(process),
            1 => host_to_guestd::Body::SyncFileReady(vec![input.arbitrary()?; 16]),
            2 => host_to_guestd::Body::Kept(KeptBacking { addresses: vec![input.arbitrary()?] }),
            3 => {
                let event_channels = vec![rung::EventChannel { event: 1, wakes: input.arbitrary()? }];
                host_to_guestd::Body::Rung(Rung { event_channels })
            }
            4 => host_to_guestd::Body::NtHandle(input.arbitrary::<&[u8]>()?.to_vec()),
            _ => host_to_guestd::Body::FirstSlot(input.arbitrary()?),
        };
        let request = if input.arbitrary()? { 0 } else { u64::from(input.arbitrary::<u8>()?) };
        let mut bytes = Vec::new();
        append(&HostToGuestd { request, body: Some(body), ..HostToGuestd::default() }, &mut bytes);
        self.send(&bytes);
        Ok(())
    }
}

impl Brokers for Guest {
    fn connect(&mut self) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a socket");
        rustix::net::connect(&socket, &self.listener).expect("the broker listens");
        self.run_ready();
        socket
    }

    fn run_ready(&mut self) {
        self.driver.run_ready().expect("epoll waits");
        while self.answer() {
            self.driver.run_ready().expect("epoll waits");
        }
    }

    fn other(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let host = self.host.get_mut();
        match input.int_in_range(0..=7)? {
            0 | 1 => host.refuses = true,
            2 => host.waits = !host.waits,
            3 => host.unasked(input)?,
            4 => host.send(input.arbitrary()?),
            // The link is lost; the broker connects again.
            5 => host.link = None,
            _ => {
                let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
                if input.ratio(1, 4)? {
                    channels.pop();
                } else if let Some(channel) = channels.last_mut() {
                    let _ = channel.write_all(input.arbitrary()?);
                }
            }
        }
        Ok(())
    }

    fn assert_empty(&mut self) {
        self.host.get_mut().waits = false;
        self.run_ready();
        // Without a link the processes of the last host are gone.
        self.host.get_mut().link = None;
        self.driver.run_ready().expect("epoll waits");
        assert_eq!(self.driver.process_count(), 0, "processes are left");
        assert_eq!(self.live.get(), 0, "regions of processes are left");
    }
}
