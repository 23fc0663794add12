//! Counts the current thread's allocations and live bytes. The allocator is the system's; it needs `unsafe` because
//! the trait does.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static ALLOCATED_BYTES: Cell<usize> = const { Cell::new(0) };
}

fn count(allocations: u64, bytes: isize) {
    // An ending thread may free memory after its counters are destroyed.
    let _ = ALLOCATIONS.try_with(|cell| cell.set(cell.get() + allocations));
    let _ = LIVE_BYTES.try_with(|cell| cell.set(cell.get() + bytes));
    let _ = ALLOCATED_BYTES.try_with(|cell| cell.set(cell.get() + bytes.max(0) as usize));
}

// SAFETY: every call goes unchanged to the system's allocator; the counters are plain cells of the thread, whose
// access allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as isize - layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations that this thread has made; growing a block counts as one.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that this thread allocated and did not free, unused capacity included.
pub fn live_bytes() -> isize {
    LIVE_BYTES.get()
}

/// Bytes that this thread has ever allocated.
pub fn allocated_bytes() -> usize {
    ALLOCATED_BYTES.get()
}
