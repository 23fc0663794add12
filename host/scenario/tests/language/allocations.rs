//! Counts the parser's allocations, which measure its work without a clock. It wraps the system's allocator and needs
//! `unsafe` because the trait does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use scenario::script::parse_bytes;

struct Counting;

thread_local! {
    static COUNT: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

// SAFETY: every call is forwarded unchanged to the system's allocator; the counter is a plain cell of the thread, whose
// access allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| {
            let (calls, bytes) = count.get();
            count.set((calls + 1, bytes + layout.size()));
        });
        // SAFETY: the caller's guarantees are forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are forwarded.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations, and of allocated bytes, while a text is parsed.
pub fn of(text: &str) -> (u64, usize) {
    COUNT.set((0, 0));
    drop(parse_bytes(text.as_bytes()));
    COUNT.get()
}
