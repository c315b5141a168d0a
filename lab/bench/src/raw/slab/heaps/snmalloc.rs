//! snmalloc, as the crate snmalloc-sys builds it: `sn_rust_alloc` and `sn_rust_dealloc`.

use std::ffi::c_void;

use snmalloc_sys::{sn_rust_alloc, sn_rust_dealloc};

use super::malloc::Functions;

pub(crate) struct Snmalloc;

impl Functions for Snmalloc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut c_void {
        // SAFETY: the alignment is a power of two.
        unsafe { sn_rust_alloc(16, size) }
    }

    #[inline(always)]
    unsafe fn release(memory: *mut c_void, size: usize) {
        // SAFETY: passed on, with the alignment it was allocated with.
        unsafe { sn_rust_dealloc(memory, 16, size) };
    }
}
