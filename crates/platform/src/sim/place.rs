//! Where mappings go: at the same addresses in every run, so that what is computed from an address is the same too.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Far from where programs, heaps and libraries are mapped, and below 2^47.
const FIRST: usize = 0x2000_0000_0000;
/// Alignment, so that padding asked for it is given back the same way.
const ALIGN: usize = 2 << 20;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// An address to ask the system for. If it is taken the system chooses another, and runs may differ.
pub(crate) fn hint_for(bytes: usize) -> *mut libc::c_void {
    // Relaxed: a number of its own.
    NEXT.fetch_add(bytes.next_multiple_of(ALIGN), Ordering::Relaxed) as *mut libc::c_void
}
