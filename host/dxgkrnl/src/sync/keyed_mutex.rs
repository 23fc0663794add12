//! Keyed mutexes: they belong to processes, not to devices.
//!
//! ```text
//!            Acquire(key) by the key of the last Release           the owner's handle ends
//!   Free ------------------------------------------------> Owned --------------------------> Abandoned
//!    ^                                                       |
//!    `-------------------------------------------------------'
//!      Release(key, fence value, data) by the handle that owns
//! ```
//! At first the key is InitialValue and the fence value 0 (FEN-076, W-193). The owner is a local handle: an acquire is
//! not recursive (FEN-080), and no other handle can release the mutex (W-197). An acquire of another key, or of a mutex
//! that is owned, waits until its timeout. A release gives the mutex at once to the waiter of its key that has waited
//! longest; documents leave the order open (FEN-081).
//!
//! A mutex whose owner ended - its process died, or its handle was destroyed - is unusable: pending and later acquires
//! end with ABANDONED, and it has to be created again (FEN-080). An acquire whose own handle is destroyed ends with
//! ABANDONED too, because that handle would be the owner.
//!
//! Time (FEN-077, FEN-078): a relative timeout counts from the call, by the daemon's clock. An absolute one is a time
//! of the system's clock, which [`crate::Input::SystemTime`] sets: setting it forward ends waits, setting it back
//! prolongs them.
//!
//! The fence value and the private runtime data are the last release's, and only the owner gets them: an acquire
//! that ends otherwise has the fence value 0 (W-192, W-198). A mutex without data adopts those of its opener, one
//! with data keeps its own (FEN-082). Opening never fills the caller's buffer, but requires one that
//! is large enough, or of size 0 (W-174 to W-179).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use d3dkmt::{EventId, Handle};
use serde::{Deserialize, Serialize};

use crate::ids::earliest;
use crate::slab::Slab;
use crate::{Nanos, ProcessId, VmId};

/// Bytes that are charged for a pending acquire, with its entries in four tables.
pub(crate) const ACQUIRE_BYTES: u64 = 384;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum State {
    Free,
    /// Owned by this open.
    Owned(u32),
    Abandoned,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct KeyedMutex {
    pub state: State,
    /// Key of the last release.
    pub key: u64,
    pub fence_value: u64,
    pub data: Vec<u8>,
    pub vm: VmId,
    /// None if it is shared by NT handle.
    pub global: Option<Handle>,
    pub opens: usize,
    /// NT handles that it is shared by, with an allocation.
    pub shares: usize,
    /// Acquires by key, then in the order of arrival.
    pub waiters: BTreeSet<(u64, u64)>,
}

/// A process's handle to a keyed mutex.
#[derive(Serialize, Deserialize)]
pub(crate) struct MutexOpen {
    pub process: ProcessId,
    pub handle: Handle,
    pub mutex: u32,
}

/// When a pending acquire ends without the mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Until {
    Never,
    /// By the daemon's clock.
    Relative(Nanos),
    /// By the system's clock, in units of 100 ns since 1601.
    Absolute(i64),
}

/// When a time-out is due that was due at `due`, if its clock stood still from `paused` to `now`. A time-out that began
/// later than the pause has all of its time from `now` on.
pub(super) fn put_off(due: Nanos, began: Nanos, paused: Nanos, now: Nanos) -> Nanos {
    due.saturating_add(now.saturating_sub(paused.max(began)))
}

#[derive(Serialize, Deserialize)]
pub(crate) struct PendingAcquire {
    pub open: u32,
    pub process: ProcessId,
    pub event: EventId,
    pub key: u64,
    pub until: Until,
    pub since: Nanos,
}

/// All keyed mutexes, and the clock of absolute timeouts.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct KeyedMutexes {
    pub(super) mutexes: Slab<KeyedMutex>,
    pub(super) opens: Slab<MutexOpen>,
    pub(super) acquires: BTreeMap<u64, PendingAcquire>,
    pub(super) begun: u64,
    pub(super) relative: BTreeSet<(Nanos, u64)>,
    pub(super) absolute: BTreeSet<(i64, u64)>,
    /// Acquires of paused VMs with a timeout, which are in neither of the two.
    pub(super) stopped: BTreeSet<u64>,
    /// The time to which the system's clock was set, and when it was set.
    pub(super) clock: (i64, Nanos),
    /// Time of the present input, by which timeouts of callers run. The kernel's own may be late.
    #[serde(skip)]
    pub(super) input_time: Nanos,
}

pub(super) const UNIT_NS: u64 = 100;

impl KeyedMutexes {
    /// See [`Slab::shorten`].
    pub fn shorten(&mut self, most: usize) -> usize {
        self.mutexes.shorten(most) + self.opens.shorten(most)
    }

    pub fn mutexes(&self) -> &Slab<KeyedMutex> {
        &self.mutexes
    }

    pub fn opens(&self) -> &Slab<MutexOpen> {
        &self.opens
    }

    /// Pending acquires, in the order of arrival.
    pub fn acquires(&self) -> &BTreeMap<u64, PendingAcquire> {
        &self.acquires
    }

    /// Adds an NT handle of this mutex.
    pub fn add_share(&mut self, mutex: u32) {
        self.mutexes[mutex].shares += 1;
    }

    pub fn remove_share(&mut self, mutex: u32) {
        self.mutexes[mutex].shares -= 1;
    }

    /// Begins the step of an input.
    #[inline]
    pub fn begin_step(&mut self, now: Nanos) {
        self.input_time = now;
    }

    /// The system's time at `now`, which may be before the clock was set if the kernel is late.
    pub(super) fn system_time(&self, now: Nanos) -> i64 {
        let (utc, set_at) = self.clock;
        let before = set_at.saturating_sub(now) / UNIT_NS;
        let since = now.saturating_sub(set_at) / UNIT_NS;
        utc.saturating_add_unsigned(since).saturating_sub_unsigned(before)
    }

    /// When an acquire ends by its timeout, if its clock runs.
    pub fn ends(&self, id: u64) -> Option<Nanos> {
        let due = match self.acquires.get(&id)?.until {
            Until::Never => return None,
            Until::Relative(due) => due,
            Until::Absolute(due) => self.time_of(due),
        };
        (!self.stopped.contains(&id)).then_some(due)
    }

    /// The daemon's time at a time of the system's clock.
    fn time_of(&self, utc_100ns: i64) -> Nanos {
        let (utc, set_at) = self.clock;
        let units = u64::try_from(utc_100ns.saturating_sub(utc)).unwrap_or(0);
        set_at.saturating_add(units.saturating_mul(UNIT_NS))
    }

    /// Starts the clock of an acquire, if it has a timeout.
    pub(super) fn start_clock(&mut self, id: u64, until: Until) {
        match until {
            Until::Never => {}
            Until::Relative(due) => drop(self.relative.insert((due, id))),
            Until::Absolute(due) => drop(self.absolute.insert((due, id))),
        }
    }

    /// Removes the clock of an acquire, whether it runs or not.
    pub(super) fn remove_clock(&mut self, id: u64, until: Until) {
        self.stopped.remove(&id);
        match until {
            Until::Never => {}
            Until::Relative(due) => drop(self.relative.remove(&(due, id))),
            Until::Absolute(due) => drop(self.absolute.remove(&(due, id))),
        }
    }

    /// Whether no acquire has a timeout that runs.
    #[inline]
    pub fn is_untimed(&self) -> bool {
        self.relative.is_empty() && self.absolute.is_empty()
    }

    /// Time of the next timeout.
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let relative = self.relative.first().map(|(due, _)| *due);
        let absolute = self.absolute.first().map(|(due, _)| self.time_of(*due));
        earliest(relative, absolute)
    }

    /// The first acquire whose timeout has expired.
    pub(super) fn expired(&self, now: Nanos) -> Option<u64> {
        let relative = self.relative.first().filter(|(due, _)| *due <= now).map(|(_, id)| *id);
        let time = self.system_time(now);
        relative.or_else(|| self.absolute.first().filter(|(due, _)| *due <= time).map(|(_, id)| *id))
    }

    /// Number of mutexes with a global handle.
    pub fn globals(&self) -> usize {
        self.mutexes.iter().filter(|(_, mutex)| mutex.global.is_some()).count()
    }
}
