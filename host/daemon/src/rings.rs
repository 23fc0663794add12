//! The rings of a client process's session: crate `frame_ring` over the two areas that its broker gave it.
//!
//! The daemon writes its own area and reads the process's. It takes nothing from either that it does not check. The areas
//! of a local process are mapped here; those of a process in a VM are pages of guest memory, which guestd lends until
//! the process is detached. They are accessed only while they are lent and the guest's driver runs: [`SessionArea::access`].

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use fence_page::PAGE_BYTES;
use frame_ring::{
    AREA_BYTES, Area, BadIndex, HEAD_BYTES, MappedArea, Outlet, OwnArea, OwnMappedArea, Receiver, Sender,
    Way, Word,
};
use rustix::fs::{MemfdFlags, SealFlags};
use vsock_device::GuestMemory;

use super::limits::RING_BYTES_PER_TURN_MAX;
use super::memory::read_only;
use super::shares::Share;

/// Pages of an area in guest memory.
pub const AREA_PAGES: usize = AREA_BYTES / PAGE_BYTES;

/// The area that the daemon writes.
pub type HostArea = SessionArea<OwnMappedArea>;
/// The area that the process writes.
pub type ProcessArea = SessionArea<MappedArea>;

/// An area of a session.
#[derive(Clone, Debug)]
pub enum SessionArea<M> {
    Mapped(M),
    Guest(GuestArea),
}

impl<M> SessionArea<M> {
    /// Runs `access`, which may access both areas of the session. `None`: they cannot be accessed now. Do not nest.
    fn access<R>(&self, access: impl FnOnce() -> R) -> Option<R> {
        match self {
            SessionArea::Mapped(_) => Some(access()),
            SessionArea::Guest(area) => {
                let is_lent = area.is_lent.read().unwrap_or_else(PoisonError::into_inner);
                if *is_lent { area.memory.while_driver_runs(access) } else { None }
            }
        }
    }

    /// Whether it will never be accessed again.
    fn is_over(&self) -> bool {
        match self {
            SessionArea::Mapped(_) => false,
            SessionArea::Guest(area) => {
                area.memory.is_over() || !*area.is_lent.read().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
}

/// An area in pages of guest memory. Every access looks them up in the VM's memory as it is then.
#[derive(Clone, Debug)]
pub struct GuestArea {
    memory: GuestMemory,
    /// Guest-physical address of each page.
    pages: Arc<[u64; AREA_PAGES]>,
    /// Whether guestd still lends them. Held for reading by who accesses them.
    is_lent: Arc<RwLock<bool>>,
}

/// The lease of the pages of a process's rings, which guestd lends.
#[derive(Debug)]
pub struct RingLease(GuestArea);

impl RingLease {
    /// No thread accesses the pages once this returns. What the process still publishes it kicks for, and so sees the end;
    /// in a guest that is stopped it sees the end of its stream only.
    pub fn end(&self) {
        let RingLease(area) = self;
        let mut is_lent = area.is_lent.write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut *is_lent) {
            area.memory.while_driver_runs(|| area.store(Word::Rest, u64::MAX));
        }
    }
}

/// The areas of a session that has not begun.
#[derive(Debug)]
pub struct Rings {
    own: HostArea,
    peer: ProcessArea,
    share: Option<Share>,
}

/// The sending end.
#[derive(Debug)]
pub struct RingOutlet {
    outlet: Outlet<HostArea, ProcessArea>,
    own: HostArea,
}

impl RingOutlet {
    /// Sends whole frames, or says which way they go: see [`Outlet::send`]. `None`: the ring cannot be accessed now.
    pub fn send(&mut self, frames: &[u8]) -> Option<Result<Way, BadIndex>> {
        self.own.access(|| self.outlet.send(frames))
    }

    /// Whether the ring will never be accessed again.
    pub fn is_over(&self) -> bool {
        self.own.is_over()
    }
}

/// The receiving end. While the ring cannot be accessed it is empty, and stays as it is.
#[derive(Debug)]
pub struct RingInlet {
    receiver: Receiver<HostArea, ProcessArea>,
    own: HostArea,
    /// Its part of the client's share of mappings.
    _share: Option<Share>,
}

/// What a look at a ring needs, beside the ring's own channel.
#[derive(Debug)]
pub struct RingWatch {
    peer: ProcessArea,
    /// `None` while the next bytes come by the stream: nothing in the ring may be taken.
    taken: Option<u64>,
}

impl RingWatch {
    /// Whether the ring has bytes that a turn may take.
    pub fn has_bytes(&self) -> bool {
        let Some(taken) = self.taken else { return false };
        self.peer.access(|| self.peer.load(Word::Published) != taken).unwrap_or(false)
    }
}

/// Mappings of the daemon for the rings of one local process.
pub const MAPPINGS_PER_PROCESS: usize = 2;

impl Rings {
    /// Creates both areas. Returns them with the descriptors for the process: the daemon's area, which it can only read,
    /// and its own.
    pub fn create(share: Share) -> anyhow::Result<(Rings, [OwnedFd; 2])> {
        let (own, peer) = (area("gpupv-ring-host")?, area("gpupv-ring-process")?);
        let own_area = HostArea::Mapped(OwnMappedArea::map(own.as_fd()).context("cannot map a ring")?);
        let peer_area = ProcessArea::Mapped(MappedArea::map(peer.as_fd()).context("cannot map a ring")?);
        let size = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&own, size | SealFlags::FUTURE_WRITE).context("cannot seal a ring")?;
        rustix::fs::fcntl_add_seals(&peer, size).context("cannot seal a ring")?;
        let rings = Rings { own: own_area, peer: peer_area, share: Some(share) };
        Ok((rings, [read_only(&own)?, peer]))
    }

    /// Both areas in guest memory, whose pages are checked.
    pub fn in_guest(memory: &GuestMemory, host: &[u64], process: &[u64]) -> anyhow::Result<Rings> {
        let is_lent = Arc::new(RwLock::new(true));
        let area = |pages: &[u64]| -> anyhow::Result<GuestArea> {
            let count = pages.len();
            let pages: [u64; AREA_PAGES] = pages
                .try_into()
                .ok()
                .with_context(|| format!("the area of a ring has {count} pages instead of {AREA_PAGES}"))?;
            Ok(GuestArea { memory: memory.clone(), pages: Arc::new(pages), is_lent: is_lent.clone() })
        };
        Ok(Rings { own: HostArea::Guest(area(host)?), peer: ProcessArea::Guest(area(process)?), share: None })
    }

    /// The lease of its pages, if they are guest memory.
    pub fn lease(&self) -> Option<RingLease> {
        match &self.own {
            SessionArea::Mapped(_) => None,
            SessionArea::Guest(area) => Some(RingLease(area.clone())),
        }
    }

    /// Both ends, with nothing sent or received. `None`: they cannot be accessed now.
    pub fn ends(self) -> Option<(RingOutlet, RingInlet)> {
        let Rings { own, peer, share } = self;
        own.access(|| {
            let receiver = Receiver::new(own.clone(), peer.clone());
            let outlet = Outlet::new(Sender::new(own.clone(), peer));
            (RingOutlet { outlet, own: own.clone() }, RingInlet { receiver, own: own.clone(), _share: share })
        })
    }
}

/// A process that writes after its session has ended kicks, and so sees that.
impl Drop for RingInlet {
    fn drop(&mut self) {
        self.own.access(|| self.receiver.end());
    }
}

fn area(name: &str) -> anyhow::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .context("cannot create a ring")?;
    rustix::fs::ftruncate(&memory, AREA_BYTES as u64).context("cannot size a ring")?;
    Ok(memory)
}

impl RingInlet {
    /// Appends published bytes: as many as one turn may take, or all.
    pub fn take(&mut self, to: &mut Vec<u8>, all: bool) -> Result<usize, BadIndex> {
        let most = if all { usize::MAX } else { RING_BYTES_PER_TURN_MAX };
        self.own.access(|| self.receiver.take(to, most)).unwrap_or(Ok(0))
    }

    /// Whether nothing is published that was not taken.
    pub fn is_empty(&self) -> bool {
        self.own.access(|| self.receiver.is_empty()).unwrap_or(true)
    }

    /// For looks at it until the next bytes are taken.
    pub fn watch(&self, may_take: bool) -> RingWatch {
        RingWatch { peer: self.receiver.peer().clone(), taken: may_take.then(|| self.receiver.taken()) }
    }

    /// Says that no thread looks at the ring from here on: the process kicks. False if something is published.
    pub fn sleep(&mut self) -> bool {
        self.own.access(|| self.receiver.sleep()).unwrap_or(true)
    }

    /// Says that a thread looks at it.
    pub fn wake(&mut self) {
        self.own.access(|| self.receiver.wake());
    }
}

impl GuestArea {
    /// The pieces of a range of the ring, page by page: the address of each and its bytes in the range.
    fn pieces(&self, at: usize, count: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let offset = HEAD_BYTES + at + done;
            let length = (PAGE_BYTES - offset % PAGE_BYTES).min(count - done);
            let range = done..done + length;
            done += length;
            (length > 0).then(|| (self.pages[offset / PAGE_BYTES] + (offset % PAGE_BYTES) as u64, range))
        })
    }

    fn address(&self, word: Word) -> u64 {
        self.pages[0] + word.offset() as u64
    }
}

const _: () = assert!(Word::Rest.offset() + 8 <= PAGE_BYTES);

/// Inside [`SessionArea::access`] only.
impl Area for GuestArea {
    fn load(&self, word: Word) -> u64 {
        self.memory.load_u64(self.address(word)).unwrap_or(0)
    }

    fn read(&self, at: usize, to: &mut Vec<u8>, count: usize) {
        let before = to.len();
        to.resize(before + count, 0);
        for (address, range) in self.pieces(at, count) {
            // Pages that are no longer memory read as zero.
            let _ = self.memory.read(address, &mut to[before..][range]);
        }
    }
}

impl OwnArea for GuestArea {
    fn store(&self, word: Word, value: u64) {
        let _ = self.memory.store_u64(self.address(word), value);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (address, range) in self.pieces(at, bytes.len()) {
            let _ = self.memory.write(address, &bytes[range]);
        }
    }
}

impl<M: Area> Area for SessionArea<M> {
    fn load(&self, word: Word) -> u64 {
        match self {
            SessionArea::Mapped(area) => area.load(word),
            SessionArea::Guest(area) => area.load(word),
        }
    }

    fn read(&self, at: usize, to: &mut Vec<u8>, count: usize) {
        match self {
            SessionArea::Mapped(area) => area.read(at, to, count),
            SessionArea::Guest(area) => area.read(at, to, count),
        }
    }
}

impl<M: OwnArea> OwnArea for SessionArea<M> {
    fn store(&self, word: Word, value: u64) {
        match self {
            SessionArea::Mapped(area) => area.store(word, value),
            SessionArea::Guest(area) => area.store(word, value),
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        match self {
            SessionArea::Mapped(area) => area.write(at, bytes),
            SessionArea::Guest(area) => area.write(at, bytes),
        }
    }
}
