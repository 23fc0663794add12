//! The rings of this process's session: crate `frame_ring` over the two areas that the broker gave.
//!
//! The sending end is used under the lock of `outbound`. The receiving end has a lock of its own, the last of all:
//! the thread that reads holds it while it looks at the ring, and the thread that hands its role over says under it
//! that nobody looks any more.

use std::os::fd::BorrowedFd;

use frame_ring::{BadIndex, MappedArea, Outlet, OwnMappedArea, Patience, Receiver, Sender, look_until};
use rustix::io::Errno;

use crate::fork::ListedArea;

pub(super) type RingOutlet = Outlet<OwnMappedArea, MappedArea>;

/// The areas of a session, mapped.
#[derive(Debug)]
pub struct Rings {
    own: OwnMappedArea,
    host: MappedArea,
}

impl Rings {
    pub(super) fn map(host: BorrowedFd<'_>, own: BorrowedFd<'_>) -> Result<Rings, Errno> {
        Ok(Rings { own: OwnMappedArea::map(own)?, host: MappedArea::map(host)? })
    }

    /// Both ends, with nothing sent or received. Made before the host looks, hence before Hello.
    pub(super) fn ends(self) -> (RingOutlet, RingInlet) {
        let Rings { own, host } = self;
        let areas = [ListedArea::new(own.address()), ListedArea::new(host.address())];
        let receiver = Receiver::new(own.clone(), host.clone());
        let outlet = Outlet::new(Sender::new(own, host));
        (outlet, RingInlet { _areas: areas, receiver, patience: Patience::default() })
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct RingInlet {
    /// Dropped before the areas are.
    _areas: [Option<ListedArea>; 2],
    receiver: Receiver<OwnMappedArea, MappedArea>,
    patience: Patience,
}

impl RingInlet {
    /// Appends what is published. Returns the number of bytes.
    pub fn take(&mut self, to: &mut Vec<u8>) -> Result<usize, BadIndex> {
        self.receiver.take(to, usize::MAX)
    }

    /// Looks for a while whether something is published; true if so.
    pub fn look(&mut self) -> bool {
        if !self.patience.looks() {
            return false;
        }
        let found = look_until(|| !self.receiver.is_empty());
        self.patience.looked(found);
        found
    }

    /// Says that this side sleeps on the stream. False if something is published.
    pub fn sleep(&mut self) -> bool {
        self.receiver.sleep()
    }

    pub fn wake(&mut self) {
        self.receiver.wake();
    }
}
