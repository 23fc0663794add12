//! Which lock is taken after which, of the device and of the daemon around it: [`Rank`], from the outermost to the innermost.
//!
//! A thread that holds a lock takes only locks of higher ranks. Debug builds assert it at each lock; release builds have
//! a mutex and nothing beside it.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// What a lock protects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// Who has the way from a guest next.
    WorkerTurnstile,
    /// The way from a guest: held while its endpoints are called.
    Worker,
    /// The table of VMs.
    Vms,
    /// The VMs without a machine.
    LocalVms,
    /// How far a VM has come.
    VmStatus,
    /// Who has the kernel next.
    Turnstile,
    /// The kernel, and all that changes with it.
    Kernel,
    /// Events that wait for their event channel.
    EventChannels,
    /// What guestd is still to be sent.
    Replies,
    /// What a process is still to be sent.
    Outbox,
    /// Connections that are not admitted yet.
    Newcomers,
    /// The session of the QEMU that is there.
    Attached,
    /// Whether that QEMU is to be cut off.
    Line,
    /// The way to a guest: its connections and its receive ring.
    Outbound,
    /// The connections that a guest has.
    Known,
    /// Where a vring stopped.
    StoppedAt,
    /// Whom a vring calls.
    Call,
    /// How much may still be complained of.
    Complaints,
    /// What is still to be closed.
    Closing,
    /// Who has how much of what there is little of.
    Shares,
    /// What is still to be logged.
    LogLines,
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use super::Rank;

    thread_local! {
        /// What this thread holds, from the outermost on.
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// That a lock is held.
    pub struct Mark(Rank);

    impl Mark {
        /// # Panics
        ///
        /// Panics if the thread holds a lock that is taken after this one.
        pub fn new(rank: Rank) -> Self {
            // A thread that is ending locks too, when what it kept for itself is gone already.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let outer = held.last().copied();
                assert!(outer.is_none_or(|outer| outer < rank), "{rank:?} is locked while {held:?} are held");
                held.push(rank);
            });
            Mark(rank)
        }
    }

    impl Drop for Mark {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| held.borrow_mut().retain(|rank| *rank != self.0));
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    /// Nothing is kept of what is held.
    pub struct Mark;

    impl Mark {
        #[inline(always)]
        pub fn new(_: super::Rank) -> Self {
            Mark
        }
    }
}

use held::Mark;

/// A mutex with its place among the others.
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
    /// A lock of this rank around a value.
    pub fn new(rank: Rank, value: T) -> Self {
        Ranked { rank, mutex: Mutex::new(value) }
    }

    /// Of data that are whole between any two statements: a panic elsewhere is reported where it happened.
    pub fn lock(&self) -> RankedGuard<'_, T> {
        let mark = Mark::new(self.rank);
        RankedGuard { guard: self.mutex.lock().unwrap_or_else(PoisonError::into_inner), mark }
    }

    /// Of data that a panic may have left half changed: the process ends rather than go on with them.
    pub fn lock_or_abort(&self) -> RankedGuard<'_, T> {
        let mark = Mark::new(self.rank);
        RankedGuard { guard: self.mutex.lock().unwrap_or_else(|_| std::process::abort()), mark }
    }

    /// The same if nobody holds it.
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
    /// Gives the lock up until the condition is told of, or so much time is over, and takes it again.
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
    fn locks_are_taken_in_the_order_of_their_ranks_and_given_up_in_any() {
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
    fn a_lock_that_comes_before_one_that_is_held_is_a_bug() {
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
