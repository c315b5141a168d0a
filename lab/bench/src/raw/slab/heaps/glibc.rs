//! The C library's heap: `malloc` and `free`.

use std::ffi::c_void;
use std::hint::black_box;

use super::malloc::Functions;

pub(crate) struct Glibc;

impl Functions for Glibc {
    #[inline(always)]
    fn allocate(size: usize) -> *mut c_void {
        // The compiler knows what malloc is, and would leave out what it sees freed.
        // SAFETY: may be called with any size.
        black_box(unsafe { libc::malloc(size) })
    }

    #[inline(always)]
    unsafe fn release(memory: *mut c_void, _size: usize) {
        // SAFETY: passed on.
        unsafe { libc::free(memory) };
    }
}
