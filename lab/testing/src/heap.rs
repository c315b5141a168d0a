//! A counting allocator on top of the system's, for tests that ask for the bytes left on the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// An allocator that counts the bytes allocated and not freed: by each thread, and once [`start`] was
/// called, in all.
#[derive(Debug)]
pub struct Counting;

/// Whether changes are counted in all. Off, the allocator executes no locked instruction of its own,
/// which tests that count those rely on.
static ON: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static OWN: Cell<isize> = const { Cell::new(0) };
}

/// Begins to count in all, for the rest of the process: a test that calls it is isolated.
pub fn start() {
    ON.store(true, Relaxed);
}

/// Returns the bytes allocated and not freed since [`start`].
pub fn bytes() -> isize {
    LIVE.load(Relaxed)
}

/// Returns the bytes that this thread has allocated, less those that it has freed.
pub fn bytes_of_thread() -> isize {
    OWN.get()
}

fn count(bytes: isize) {
    // Relaxed: sums, read when no other thread allocates.
    if ON.load(Relaxed) {
        LIVE.fetch_add(bytes, Relaxed);
    }
    // A thread that ends frees its own storage last.
    let _ = OWN.try_with(|own| own.set(own.get() + bytes));
}

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

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            count(layout.size() as isize);
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: passed on.
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            count(size as isize - layout.size() as isize);
        }
        moved
    }
}
