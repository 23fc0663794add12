//! Memory through which big data of escapes go, instead of the stream: they are copied once by each side, and no more
//! than a small message wakes the host.
//!
//! ```text
//!   the first big escape ─▶ pages are lent, as an allocation's are ─▶ OPEN ─▶ an escape has them until it is answered
//!                             └─ refused: every escape goes through the stream, as small ones do
//! ```
//! One escape at a time has the window; what other threads make meanwhile goes through the stream.
//!
//! `unsafe` here: memory that the host writes is mapped.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, TryLockError};

use d3dkmt::limits::PRIVATE_DATA_BYTES_MAX;
use fence_page::PAGE_BYTES;
use proto::convert::LentData;
use rustix::mm::{MapFlags, ProtFlags};

use super::lent::{LendError, Lender, map};
use crate::limits::LENT_DATA_BYTES_MIN;

const PAGES: usize = PRIVATE_DATA_BYTES_MAX.div_ceil(PAGE_BYTES);

/// See the module.
#[derive(Default, Debug)]
pub struct Window(Mutex<State>);

#[derive(Default, Debug)]
enum State {
    #[default]
    NotYet,
    Open(Pages),
    Refused,
}

#[derive(Debug)]
struct Pages(NonNull<u8>);

// SAFETY: the mapping belongs to this value alone and to no thread; its bytes are only copied, never referred to.
unsafe impl Send for Pages {}

impl Pages {
    fn lend(lender: &impl Lender) -> Result<Pages, LendError> {
        let (bytes, nothing) = (PAGES * PAGE_BYTES, ProtFlags::empty());
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody can touch.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, nothing, MapFlags::PRIVATE)
                .map_err(LendError::Map)?
        };
        let pages = Pages(NonNull::new(base.cast()).expect("mmap never answers NULL"));
        let memory = lender.lend(pages.address(), PAGES as u32)?;
        // SAFETY: our own mapping is replaced by one of the same length.
        let mapped = unsafe { map(memory.as_fd(), pages.address(), bytes) };
        // What is lent and cannot be mapped is taken back; without a host it is so already.
        mapped.inspect_err(|_| _ = lender.take_back(pages.address()))?;
        Ok(pages)
    }

    fn address(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nobody refers into it.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), PAGES * PAGE_BYTES) };
    }
}

impl Window {
    /// Room for the data of one escape, if it is worth it and the window is free.
    pub fn room_for(&self, lender: &impl Lender, bytes: usize) -> Option<Room<'_>> {
        if !(LENT_DATA_BYTES_MIN..=PRIVATE_DATA_BYTES_MAX).contains(&bytes) {
            return None;
        }
        let mut state = match self.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if let State::NotYet = *state {
            *state = Pages::lend(lender).map_or(State::Refused, State::Open);
        }
        match *state {
            State::Open(_) => Some(Room { state, bytes: bytes as u32 }),
            State::NotYet | State::Refused => None,
        }
    }
}

/// Of one escape, until it is answered.
#[derive(Debug)]
pub struct Room<'a> {
    state: MutexGuard<'a, State>,
    bytes: u32,
}

impl Room<'_> {
    fn pages(&self) -> &Pages {
        match &*self.state {
            State::Open(pages) => pages,
            State::NotYet | State::Refused => unreachable!("there is room in an open window alone"),
        }
    }

    /// Where the data are to be, [`Room::bytes`] of them. The host reads and writes there, at times of its own.
    pub fn place(&self) -> *mut u8 {
        self.pages().0.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// As the host is told of them.
    pub fn lent(&self) -> LentData {
        LentData { at: self.pages().address(), bytes: self.bytes }
    }
}
