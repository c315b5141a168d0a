//! Does this process have restartable sequences, and where?

use core::ffi::{CStr, c_char, c_void};

/// Size of the area's part that we use: the CPU numbers and the pointer to the sequence.
const NEEDED: u32 = 20;

/// The address of a symbol of the C library, if it has one. (`__rseq_offset` came with glibc 2.35; linking
/// against it would keep the program from starting elsewhere.)
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: dlsym reads the name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr() as *const c_char) }
}

/// The offset of the rseq area that the C library registered for every thread, if it did.
pub(super) fn registered_offset() -> Option<isize> {
    let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: glibc documents these as a ptrdiff_t and an unsigned int, constant after start.
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
    (offset != 0 && size >= NEEDED).then_some(offset)
}
