//! Areas of rings in a child that a signal handler has forked in a call.
//!
//! No child has the areas, so that it cannot speak for its parent. But when the handler returns in the child, the call that
//! it has interrupted may access them. So such a child gets empty memory in their place: a ring of zeros is invalid or has
//! nothing in it, and then the call finds that it is of the parent.
//!
//! `unsafe` here: memory is mapped at addresses where none is.

use std::sync::atomic::{AtomicUsize, Ordering};

use frame_ring::AREA_BYTES;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::limits::RING_AREAS_MAX;

const NO_AREA: usize = 0;

/// Addresses of areas.
static AREAS: [AtomicUsize; RING_AREAS_MAX] = [const { AtomicUsize::new(NO_AREA) }; RING_AREAS_MAX];

/// An area that is mapped as long as this lives.
#[derive(Debug)]
pub struct ListedArea {
    slot: usize,
    address: usize,
}

impl ListedArea {
    /// `None` if the list is full: then such a child may end by SIGSEGV.
    pub fn new(address: usize) -> Option<ListedArea> {
        let free = |area: &AtomicUsize| {
            area.compare_exchange(NO_AREA, address, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        AREAS.iter().position(free).map(|slot| ListedArea { slot, address })
    }
}

impl Drop for ListedArea {
    fn drop(&mut self) {
        // In a child, the slot of an area of the parent may be another's by now.
        let listed = &AREAS[self.slot];
        let _ = listed.compare_exchange(self.address, NO_AREA, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// In a forked child: forgets the areas of the parent, so that a chain of children does not fill the list.
pub(super) fn forget() {
    AREAS.iter().for_each(|area| area.store(NO_AREA, Ordering::Release));
}

/// In a forked child: maps empty memory in the place of all areas. Memory that is there already stays.
pub(super) fn map_empty() {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    for area in &AREAS {
        let address = area.load(Ordering::Acquire);
        if address != NO_AREA {
            let address = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: a new mapping, which replaces none. If it fails, the call ends by SIGSEGV as it would without.
            let _ = unsafe { mmap_anonymous(address, AREA_BYTES, access, flags) };
        }
    }
}
