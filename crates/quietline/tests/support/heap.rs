//! An allocator that counts: the system's, for tests that ask what is left on the heap. The test installs it:
//!
//! ```ignore
//! #[path = "support/heap.rs"]
//! mod heap;
//!
//! #[global_allocator]
//! static HEAP: heap::Counting = heap::Counting;
//! ```
#![allow(dead_code, reason = "each test uses one of the counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// Counts the bytes that were allocated and not freed, in all and by each thread.
pub(crate) struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static OWN: Cell<isize> = const { Cell::new(0) };
}

/// Bytes on the heap.
pub(crate) fn bytes() -> isize {
    LIVE.load(Relaxed)
}

/// Bytes that this thread has allocated, less those that it has freed.
pub(crate) fn bytes_of_thread() -> isize {
    OWN.with(Cell::get)
}

fn count(bytes: isize) {
    LIVE.fetch_add(bytes, Relaxed);
    // A thread that ends frees its own storage last.
    let _ = OWN.try_with(|own| own.set(own.get() + bytes));
}

#[allow(unsafe_code, reason = "an allocator")]
// SAFETY: the system's allocator, and counts beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            count(layout.size() as isize);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
