//! mimalloc, as the crate libmimalloc-sys builds it: `mi_malloc` and `mi_free`.

use std::ffi::c_void;

use libmimalloc_sys::{mi_free, mi_malloc};

use super::malloc::Functions;

pub(crate) struct Mimalloc;

impl Functions for Mimalloc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut c_void {
        // SAFETY: may be called with any size.
        unsafe { mi_malloc(size) }
    }

    #[inline(always)]
    unsafe fn release(memory: *mut c_void, _size: usize) {
        // SAFETY: passed on.
        unsafe { mi_free(memory) };
    }
}
