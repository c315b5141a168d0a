//! Memory from the system: `mmap`, `munmap`, `madvise`.

use super::PAGE_SIZE;
use crate::AllocError;
use core::ptr::NonNull;

/// Maps `size` bytes aligned to `align`, zeroed, not counted against overcommit until touched.
pub(crate) fn map_aligned(size: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    let padded = if align > PAGE_SIZE { size.checked_add(align).ok_or(AllocError)? } else { size };
    #[cfg(not(quietline_sim))]
    let hint = core::ptr::null_mut();
    #[cfg(quietline_sim)]
    let hint = crate::sim::hint_for(padded);
    // SAFETY: a fresh anonymous mapping; nothing is replaced.
    let raw = unsafe {
        libc::mmap(
            hint,
            padded,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if raw == libc::MAP_FAILED {
        return Err(AllocError);
    }
    let start = raw as usize;
    let aligned = start.next_multiple_of(align.max(PAGE_SIZE));
    // SAFETY: both pieces lie inside the mapping just made and outside the part that is kept.
    unsafe {
        if aligned > start {
            libc::munmap(raw, aligned - start);
        }
        let end = aligned + size;
        if start + padded > end {
            libc::munmap(end as *mut libc::c_void, start + padded - end);
        }
    }
    NonNull::new(aligned as *mut u8).ok_or(AllocError)
}

/// Unmaps what [`map_aligned`] mapped.
///
/// # Safety
/// The mapping is the caller's, of that size, and unused.
pub(crate) unsafe fn unmap(start: NonNull<u8>, size: usize) {
    // SAFETY: by contract.
    unsafe { libc::munmap(start.as_ptr().cast(), size) };
}

/// Asks for huge pages. A refusal changes nothing but speed.
///
/// # Safety
/// The bytes are a mapping of the caller's.
pub(super) unsafe fn ask_for_huge_pages(start: NonNull<u8>, size: usize) {
    // SAFETY: by contract.
    unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
}

/// Gives memory back. Its addresses stay mapped. Its content is then zero, or as before.
///
/// # Safety
/// The bytes are inside a mapping of the caller's, and unused.
pub(super) unsafe fn give_back(start: NonNull<u8>, size: usize) {
    // SAFETY: by contract.
    unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_DONTNEED) };
}
