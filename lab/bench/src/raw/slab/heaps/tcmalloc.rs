//! Google's tcmalloc, as the crate libtcmalloc-sys builds it: sized `new` and `delete` under names of their own.

use std::ffi::c_void;

use libtcmalloc_sys::{
    BridgeTCMallocInternalNewAlignedNothrow, TCMallocInternalDeleteSizedAligned,
};

use super::malloc::Functions;

pub(crate) struct Tcmalloc;

impl Functions for Tcmalloc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut c_void {
        // SAFETY: the alignment is a power of two.
        unsafe { BridgeTCMallocInternalNewAlignedNothrow(size, 16) }
    }

    #[inline(always)]
    unsafe fn release(memory: *mut c_void, size: usize) {
        // SAFETY: passed on, with the alignment it was allocated with.
        unsafe { TCMallocInternalDeleteSizedAligned(memory, size, 16) };
    }
}
