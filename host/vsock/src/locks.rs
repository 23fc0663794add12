//! The order of locks, of the device and of the daemon around it: [`Rank`], from the outermost to the innermost.
//!
//! A thread that holds a lock locks only higher ranks. Debug builds assert it at each lock; release builds have a plain
//! mutex.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// What a lock protects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// Queue for [`Rank::Worker`].
    WorkerTurnstile,
    /// The worker, which handles packets from a guest: held while its endpoints are called.
    Worker,
    /// The table of VMs.
    Vms,
    /// The local VMs.
    LocalVms,
    /// Connection state of a VM.
    VmStatus,
    /// Queue for [`Rank::Kernel`].
    Turnstile,
    /// The kernel, and all that changes with it.
    Kernel,
    /// Events that wait for their event channel.
    EventChannels,
    /// Unsent replies to guestd.
    Replies,
    /// Unsent frames and wakes of a process.
    Outbox,
    /// Connections that are not admitted yet.
    PendingConnections,
    /// The session of the connected QEMU.
    Attached,
    /// The handle that disconnects that QEMU.
    Line,
    /// Packets to a guest: its connections and its receive ring.
    Outbound,
    /// The connections that a guest has.
    Known,
    /// The life of the guest's driver.
    DriverLife,
    /// Where a vring stopped.
    StoppedAt,
    /// The eventfd that a vring signals.
    Call,
    /// The budget of complaints.
    Complaints,
    /// Queues of descriptors to close.
    Closing,
    /// Shares of limited resources.
    Shares,
    /// The queue of log lines.
    LogLines,
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use super::Rank;

    thread_local! {
        /// Ranks that this thread holds, from the outermost.
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Marks a lock as held.
    pub struct Mark(Rank);

    impl Mark {
        /// # Panics
        ///
        /// Panics if the thread holds a lock of this or a higher rank.
        pub fn new(rank: Rank) -> Self {
            // An exiting thread may lock after its thread-local storage is destroyed.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let outer = held.last().copied();
                assert!(outer.is_none_or(|outer| outer < rank), "{rank:?} is locked while {held:?} are held");
                held.push(rank);
            });
            Mark(rank)
        }
    }

    /// Whether this thread holds a lock of this rank.
    pub fn is_held(rank: Rank) -> bool {
        HELD.try_with(|held| held.borrow().contains(&rank)).unwrap_or(false)
    }

    impl Drop for Mark {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| held.borrow_mut().retain(|rank| *rank != self.0));
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    /// Release builds do not track held locks.
    pub struct Mark;

    impl Mark {
        #[inline(always)]
        pub fn new(_: super::Rank) -> Self {
            Mark
        }
    }

    #[inline(always)]
    pub fn is_held(_: super::Rank) -> bool {
        false
    }
}

use held::Mark;

/// Whether the calling thread holds a lock of this rank. Release builds do not know.
pub fn is_held(rank: Rank) -> bool {
    held::is_held(rank)
}

/// A mutex with its rank.
#[derive(Debug)]
pub struct Ranked<T> {
    rank: Rank,
    mutex: Mutex<T>,
}

/// A lock that is held.
pub struct RankedGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    mark: Mark,
}

impl<T> Ranked<T> {
    /// Creates a lock of this rank around a value.
    pub fn new(rank: Rank, value: T) -> Self {
        Ranked { rank, mutex: Mutex::new(value) }
    }

    /// Locks data that are consistent between any two statements; ignores poisoning, because a panic is reported where
    /// it happens.
    pub fn lock(&self) -> RankedGuard<'_, T> {
        let mark = Mark::new(self.rank);
        RankedGuard { guard: self.mutex.lock().unwrap_or_else(PoisonError::into_inner), mark }
    }

    /// Locks data that a panic may leave inconsistent: aborts the process if the lock is poisoned.
    pub fn lock_or_abort(&self) -> RankedGuard<'_, T> {
        let mark = Mark::new(self.rank);
        RankedGuard { guard: self.mutex.lock().unwrap_or_else(|_| std::process::abort()), mark }
    }

    /// The same, if no thread holds it.
    pub fn try_lock_or_abort(&self) -> Option<RankedGuard<'_, T>> {
        let mark = Mark::new(self.rank);
        match self.mutex.try_lock() {
            Ok(guard) => Some(RankedGuard { guard, mark }),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => std::process::abort(),
        }
    }
}

impl<'a, T> RankedGuard<'a, T> {
    /// Releases the lock until the condition is notified or the timeout passes, then locks it again.
    pub fn wait_timeout(self, condition: &Condvar, timeout: Duration) -> RankedGuard<'a, T> {
        let RankedGuard { guard, mark } = self;
        let waited = condition.wait_timeout(guard, timeout);
        RankedGuard { guard: waited.unwrap_or_else(PoisonError::into_inner).0, mark }
    }
}

impl<T> Deref for RankedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for RankedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_locked_in_the_order_of_their_ranks_and_released_in_any() {
        let (outer, inner) = (Ranked::new(Rank::Vms, 1), Ranked::new(Rank::Outbox, 2));
        let first = outer.lock();
        let second = inner.lock();
        drop(first);
        assert_eq!(*second, 2);
        drop(second);
        assert_eq!(*outer.lock() + *inner.lock(), 3);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Vms is locked while [Outbox] are held")]
    fn locking_a_lower_rank_than_a_held_one_panics() {
        let (outer, inner) = (Ranked::new(Rank::Vms, ()), Ranked::new(Rank::Outbox, ()));
        let _inner = inner.lock();
        let _outer = outer.lock();
    }

    #[test]
    fn a_panic_under_a_lock_does_not_keep_others_out() {
        let lock = Ranked::new(Rank::Known, 5);
        let panicked = std::thread::scope(|scope| {
            let under = || {
                let _held = lock.lock();
                panic!("under the lock, on purpose");
            };
            scope.spawn(under).join().is_err()
        });
        assert!(panicked && *lock.lock() == 5);
        assert!(lock.mutex.is_poisoned());
    }
}
