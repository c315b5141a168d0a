//! Structures that grow: the first field is the size that the caller's compiler saw.
//!
//! What a caller of an older header does not give is zero, which every field takes for its default. What a caller of a newer
//! header gives beyond what this library knows must be zero, or it would be asked for in vain.

use crate::status::ql_status;
use core::mem::{MaybeUninit, size_of};
use core::ptr;

/// # Safety
/// `repr(C)`, valid when all bytes are zero, begins with a usize that says how many bytes the caller has, and has no padding
/// among the first [`SMALLEST`](Self::SMALLEST) bytes.
pub(crate) unsafe trait Versioned: Copy {
    /// Bytes that the first version had.
    const SMALLEST: usize;
}

/// Copies a structure that the caller filled.
///
/// # Errors
/// [`ql_status::QL_INVALID`].
///
/// # Safety
/// `from` is null, or points to as many bytes as it says.
pub(crate) unsafe fn read<T: Versioned>(from: *const T) -> Result<T, ql_status> {
    if from.is_null() {
        return Err(ql_status::QL_INVALID);
    }
    // SAFETY: by contract; each T begins with its size.
    let given = unsafe { from.cast::<usize>().read() };
    if given < T::SMALLEST {
        return Err(ql_status::QL_INVALID);
    }
    let known = given.min(size_of::<T>());
    let from = from.cast::<u8>();
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the caller has `given` bytes; a T may be zero where the caller has nothing.
    unsafe {
        if (known..given).any(|i| from.add(i).read() != 0) {
            return Err(ql_status::QL_INVALID);
        }
        ptr::copy_nonoverlapping(from, value.as_mut_ptr().cast::<u8>(), known);
        Ok(value.assume_init())
    }
}

/// Fills a structure of the caller's, whose size the caller has set; what this library does not know is zeroed.
///
/// # Errors
/// [`ql_status::QL_INVALID`].
///
/// # Safety
/// `to` is null, or points to as many bytes as it says, writable.
pub(crate) unsafe fn write<T: Versioned>(to: *mut T, value: &T) -> Result<(), ql_status> {
    if to.is_null() {
        return Err(ql_status::QL_INVALID);
    }
    // SAFETY: as in `read`.
    let given = unsafe { to.cast::<usize>().read() };
    if given < T::SMALLEST {
        return Err(ql_status::QL_INVALID);
    }
    let known = given.min(size_of::<T>());
    // SAFETY: the caller has `given` bytes; the first word stays what it is.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), known);
        to.cast::<u8>().add(known).write_bytes(0, given - known);
        to.cast::<usize>().write(given);
    }
    Ok(())
}
