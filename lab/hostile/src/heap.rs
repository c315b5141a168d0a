//! The program's allocator: the system's, with a count of the bytes in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// The system's allocator, which counts.
#[derive(Debug)]
pub struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

/// Returns the bytes that are allocated.
pub fn bytes() -> isize {
    LIVE.load(Relaxed)
}

fn count(bytes: isize) {
    // Relaxed: a sum, read when no other thread allocates.
    LIVE.fetch_add(bytes, Relaxed);
}

#[allow(unsafe_code, reason = "an allocator")]
// SAFETY: the system's allocator, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            count(layout.size() as isize);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            count(layout.size() as isize);
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            count(size as isize - layout.size() as isize);
        }
        moved
    }
}
