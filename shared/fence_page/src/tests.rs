//! The hand-over between a waiter and a signaller, checked by loom over every interleaving.
//!
//! The waiter polls the slot, then registers under the kernel lock (the host's one lock), then parks. The
//! signaller takes the lock, stores the value, takes out the registered waiter, and wakes it after unlocking.

extern crate std;
use covers::covers;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::boxed::Box;

use crate::{SLOTS_PER_PAGE, Slot, ValueCell, pages_for, slot_offset};

impl ValueCell for AtomicU64 {
    fn load_acquire(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store_release(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

/// Parks and wakes the waiting thread.
#[derive(Default)]
struct Parking {
    woken: Mutex<bool>,
    condvar: Condvar,
}

impl Parking {
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.condvar.notify_one();
    }

    fn park(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.condvar.wait(woken).unwrap();
        }
    }
}

/// The part of the host's state that matters here: the fence value and the registered waiter.
struct HostFence {
    value: u64,
    waiter: Option<(u64, Arc<Parking>)>,
}

/// The host's side of a signal. The store comes before the wake-up.
fn signal<C: ValueCell>(kernel_lock: &Mutex<HostFence>, cell: &C, value: u64) {
    let woken = {
        let mut kernel_lock = kernel_lock.lock().unwrap();
        kernel_lock.value = value;
        cell.store_release(value);
        match &kernel_lock.waiter {
            Some((target, _)) if *target <= value => kernel_lock.waiter.take(),
            _ => None,
        }
    };
    if let Some((_, parking)) = woken {
        parking.wake();
    }
}

/// The guest's side of a wait; returns the value seen after it.
fn wait<C: ValueCell>(kernel_lock: &Mutex<HostFence>, cell: &C, target: u64) -> u64 {
    let polled = cell.load_acquire();
    if polled >= target {
        return polled;
    }
    let parking = Arc::new(Parking::default());
    let registered = {
        let mut kernel_lock = kernel_lock.lock().unwrap();
        let pending = kernel_lock.value < target;
        if pending {
            kernel_lock.waiter = Some((target, parking.clone()));
        }
        pending
    };
    if registered {
        parking.park();
    }
    cell.load_acquire()
}

#[test]
#[cfg_attr(miri, ignore = "loom switches stacks in assembly")]
fn a_registered_waiter_is_always_woken_and_then_sees_the_value() {
    covers!("FEN-009", "FEN-025", "FEN-027", "FEN-103");
    loom::model(|| {
        let kernel_lock = Arc::new(Mutex::new(HostFence { value: 0, waiter: None }));
        let cell = Arc::new(AtomicU64::new(0));
        // Data that the signaller writes before it signals: the waiter must see it.
        let data = Arc::new(AtomicU64::new(0));
        let signaller = {
            let (kernel_lock, cell, data) = (kernel_lock.clone(), cell.clone(), data.clone());
            thread::spawn(move || {
                data.store(7, Ordering::Relaxed);
                signal(&kernel_lock, &*cell, 1);
            })
        };
        assert!(wait(&kernel_lock, &*cell, 1) >= 1);
        assert_eq!(data.load(Ordering::Relaxed), 7);
        signaller.join().unwrap();
    });
}

#[test]
#[cfg_attr(miri, ignore = "loom switches stacks in assembly")]
fn a_signal_too_low_wakes_nobody_and_the_next_one_does() {
    loom::model(|| {
        let kernel_lock = Arc::new(Mutex::new(HostFence { value: 0, waiter: None }));
        let cell = Arc::new(AtomicU64::new(0));
        let signaller = {
            let (kernel_lock, cell) = (kernel_lock.clone(), cell.clone());
            thread::spawn(move || {
                signal(&kernel_lock, &*cell, 1);
                signal(&kernel_lock, &*cell, 2);
            })
        };
        assert_eq!(wait(&kernel_lock, &*cell, 2), 2);
        signaller.join().unwrap();
    });
}

#[test]
fn a_slot_is_one_aligned_line_and_its_value_comes_first() {
    covers!("FEN-003");
    let slots: Box<[Slot; 2]> = Box::default();
    slots[1].publish(u64::MAX);
    assert_eq!((slots[0].value(), slots[1].value()), (0, u64::MAX));
    let first = &raw const slots[0] as usize;
    assert_eq!(first % 64, 0);
    assert_eq!(&raw const slots[1] as usize - first, slot_offset(1));
    assert_eq!(
        (pages_for(0), pages_for(1), pages_for(SLOTS_PER_PAGE), pages_for(SLOTS_PER_PAGE + 1)),
        (0, 1, 1, 2)
    );
}
