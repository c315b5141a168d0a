//! Planted faults that only a sanitizer can see.

#![allow(unsafe_code, reason = "the faults of unsafe code")]

use std::cell::UnsafeCell;
use std::hint::black_box;

struct Racy(UnsafeCell<u64>);

// SAFETY: not sound. The planted fault is a data race on this word.
unsafe impl Sync for Racy {}

static RACY: Racy = Racy(UnsafeCell::new(0));

/// Adds to a word that other threads add to, without order.
pub(crate) fn race() {
    // SAFETY: not sound. The planted fault is a data race.
    unsafe { *black_box(RACY.0.get()) += 1 };
}

/// Reads a block of the heap that is free.
pub(crate) fn read_freed() -> u64 {
    let freed: *const u64 = {
        let block = Box::new(7);
        black_box(&raw const *block)
    };
    // SAFETY: not sound. The planted fault is a read of freed memory.
    unsafe { black_box(freed).read() }
}
