//! The rings of a client process's session: crate `frame_ring` over the two areas that its broker gave it.
//!
//! The daemon writes its own area and reads the process's. It takes nothing from either that it does not check.

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Context as _;
use frame_ring::{
    AREA_BYTES, Area as _, BadIndex, MappedArea, Outlet, OwnMappedArea, Receiver, Sender, Word,
};
use rustix::fs::{MemfdFlags, SealFlags};

use super::limits::RING_BYTES_PER_TURN_MAX;
use super::memory::read_only;
use super::shares::Share;

pub type RingOutlet = Outlet<OwnMappedArea, MappedArea>;

/// The areas of a session that has not begun.
#[derive(Debug)]
pub struct Rings {
    own: OwnMappedArea,
    peer: MappedArea,
    share: Share,
}

/// The receiving end.
#[derive(Debug)]
pub struct RingInlet {
    receiver: Receiver<OwnMappedArea, MappedArea>,
    /// Its part of the client's share of mappings.
    _share: Share,
}

/// What a look at a ring needs, beside the ring's own channel.
#[derive(Debug)]
pub struct RingWatch {
    peer: MappedArea,
    /// `None` while the next bytes come by the stream: nothing in the ring may be taken.
    taken: Option<u64>,
}

impl RingWatch {
    /// Whether the ring has bytes that a turn may take.
    pub fn has_bytes(&self) -> bool {
        self.taken.is_some_and(|taken| self.peer.load(Word::Published) != taken)
    }
}

/// Mappings of the daemon for the rings of one process.
pub const MAPPINGS_PER_PROCESS: usize = 2;

impl Rings {
    /// Creates both areas. Returns them with the descriptors for the process: the daemon's area, which it can only read,
    /// and its own.
    pub fn create(share: Share) -> anyhow::Result<(Rings, [OwnedFd; 2])> {
        let (own, peer) = (area("gpupv-ring-host")?, area("gpupv-ring-process")?);
        let own_area = OwnMappedArea::map(own.as_fd()).context("cannot map a ring")?;
        let peer_area = MappedArea::map(peer.as_fd()).context("cannot map a ring")?;
        let size = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&own, size | SealFlags::FUTURE_WRITE).context("cannot seal a ring")?;
        rustix::fs::fcntl_add_seals(&peer, size).context("cannot seal a ring")?;
        Ok((Rings { own: own_area, peer: peer_area, share }, [read_only(&own)?, peer]))
    }

    /// Both ends, with nothing sent or received.
    pub fn ends(self) -> (RingOutlet, RingInlet) {
        let Rings { own, peer, share } = self;
        let receiver = Receiver::new(own.clone(), peer.clone());
        (Outlet::new(Sender::new(own, peer)), RingInlet { receiver, _share: share })
    }
}

/// A process that writes after its session has ended kicks, and so sees that.
impl Drop for RingInlet {
    fn drop(&mut self) {
        self.receiver.end();
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
        self.receiver.take(to, if all { usize::MAX } else { RING_BYTES_PER_TURN_MAX })
    }

    /// Whether nothing is published that was not taken.
    pub fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    /// For looks at it until the next bytes are taken.
    pub fn watch(&self, may_take: bool) -> RingWatch {
        RingWatch { peer: self.receiver.peer().clone(), taken: may_take.then(|| self.receiver.taken()) }
    }

    /// Says that no thread looks at the ring from here on: the process kicks. False if something is published.
    pub fn sleep(&mut self) -> bool {
        self.receiver.sleep()
    }

    /// Says that a thread looks at it.
    pub fn wake(&mut self) {
        self.receiver.wake();
    }
}
