//! The rings of this process's session: crate `frame_ring` over the two areas that the broker gave.
//!
//! The sending end is used under the lock of `outbound`. The receiving end has a lock of its own, the last of all:
//! the thread that reads holds it while it looks at the ring, and the thread that hands its role over says under it
//! that nobody looks any more.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use frame_ring::{BadIndex, LOOK_NS_MAX, MappedArea, Outlet, OwnMappedArea, Patience, Receiver, Sender};
use rustix::io::Errno;

pub(super) type RingOutlet = Outlet<OwnMappedArea, MappedArea>;

/// Looks between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 16;

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
        let receiver = Receiver::new(own.clone(), host.clone());
        let outlet = Outlet::new(Sender::new(own, host));
        (outlet, RingInlet { receiver, patience: Patience::default() })
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct RingInlet {
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

/// Looks until `is_there`, for at most [`LOOK_NS_MAX`]. False if the time is over.
pub(super) fn look_until(mut is_there: impl FnMut() -> bool) -> bool {
    if is_there() {
        return true;
    }
    let began = Instant::now();
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
        if began.elapsed().as_nanos() as u64 >= LOOK_NS_MAX {
            return false;
        }
    }
}
