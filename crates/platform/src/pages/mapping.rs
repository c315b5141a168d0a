//! The system's calls on mappings.
//!
//! The system refuses addresses that are no multiple of the machine's page, and rounds lengths up
//! to pages. Pages have 4, 16 or 64 KiB. Every address and length passes through this file, which
//! checks them.

use crate::{AllocError, fault};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The size of the machine's pages; 0 until it is asked for. Tests inject another one.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Returns the size of the machine's pages.
pub(crate) fn page_size() -> usize {
    // Relaxed: the number is constant, and nothing else is read because of it.
    match PAGE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf reads a number.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            assert!(size.is_power_of_two(), "the system knows its page size");
            PAGE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

fn assert_whole_pages(start: usize, size: usize) {
    let page = page_size();
    assert!(
        start.is_multiple_of(page) && size.is_multiple_of(page),
        "{size:#x} bytes at {start:#x} are not whole pages of {page} bytes"
    );
}

/// Maps zeroed memory, not counted against overcommit until it is touched. Its size and alignment
/// are `size` and `align`, rounded up to whole pages.
///
/// # Errors
/// [`AllocError`] when the system gives no memory.
pub(crate) fn map_aligned(size: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    let size = size.checked_next_multiple_of(page_size()).ok_or(AllocError)?;
    let padding = if align > page_size() { align } else { 0 };
    let raw = map(size.checked_add(padding).ok_or(AllocError)?)?.as_ptr() as usize;
    let start = raw.next_multiple_of(align.max(page_size()));
    let (before, after) = (start - raw, raw + padding - start);
    // SAFETY: both pieces lie inside the mapping just made and outside the part that is kept.
    unsafe {
        unmap_bytes(raw, before);
        unmap_bytes(start + size, after);
    }
    NonNull::new(start as *mut u8).ok_or(AllocError)
}

fn map(size: usize) -> Result<NonNull<u8>, AllocError> {
    assert_whole_pages(0, size);
    #[cfg(not(any(test, quietline_sim)))]
    let hint = core::ptr::null_mut();
    #[cfg(all(test, not(quietline_sim)))]
    let hint = tests::hint_for(size);
    #[cfg(quietline_sim)]
    let hint = crate::sim::hint_for(size);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping; nothing is replaced.
    unsafe { system_map(hint, size, flags, -1) }
}

/// Maps the beginning of a file privately, in place of what is mapped at an address. If the system
/// refuses, nothing may be mapped there any more, and another thread may get the addresses.
///
/// # Errors
/// [`AllocError`] when the system refuses.
///
/// # Safety
/// The range is the caller's, and nothing uses it.
pub(crate) unsafe fn map_file_over(
    at: NonNull<u8>,
    size: usize,
    file: BorrowedFd<'_>,
) -> Result<(), AllocError> {
    assert_whole_pages(at.as_ptr() as usize, size);
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: by contract.
    let mapped = unsafe { system_map(at.as_ptr().cast(), size, flags, file.as_raw_fd()) };
    #[cfg(all(test, not(quietline_sim)))]
    if mapped.is_err() {
        tests::on_refusal(at, size);
    }
    mapped.map(drop)
}

/// # Safety
/// With `MAP_FIXED`, the range is the caller's, and nothing uses it.
unsafe fn system_map(
    at: *mut libc::c_void,
    size: usize,
    flags: libc::c_int,
    file: RawFd,
) -> Result<NonNull<u8>, AllocError> {
    fault::check()?;
    // SAFETY: by contract.
    let raw = unsafe { libc::mmap(at, size, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
    if raw == libc::MAP_FAILED {
        Err(AllocError)
    } else {
        NonNull::new(raw.cast()).ok_or(AllocError)
    }
}

/// Unmaps what [`map_aligned`] mapped with the same size.
///
/// # Safety
/// The mapping is the caller's, and nothing uses it any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, size: usize) {
    // SAFETY: by contract.
    unsafe { unmap_bytes(start.as_ptr() as usize, size.next_multiple_of(page_size())) };
}

/// # Safety
/// As [`unmap`], of whole pages.
unsafe fn unmap_bytes(start: usize, size: usize) {
    assert_whole_pages(start, size);
    let at = start as *mut libc::c_void;
    // SAFETY: by contract.
    if size > 0 && unsafe { libc::munmap(at, size) } != 0 {
        // The process has as many mappings as it may, and this call would split one. The memory
        // goes back; the addresses are lost.
        // SAFETY: by contract.
        unsafe { libc::madvise(at, size, libc::MADV_DONTNEED) };
    }
}

/// Gives the memory of the whole pages between two addresses back. Their content is then zeros, or
/// as before if the system refuses (locked memory).
///
/// # Safety
/// The range lies in a mapping of the caller, and nothing uses it any more.
pub(crate) unsafe fn discard(start: NonNull<u8>, end: usize) {
    let first = (start.as_ptr() as usize).next_multiple_of(page_size());
    let size = end.saturating_sub(first) / page_size() * page_size();
    assert_whole_pages(first, size);
    let at = first as *mut libc::c_void;
    // SAFETY: by contract.
    unsafe { libc::madvise(at, size, libc::MADV_DONTNEED) };
}

/// Asks for huge pages, or for none. A refusal changes nothing but speed and amounts.
///
/// # Safety
/// The range is whole pages of a mapping of the caller.
pub(crate) unsafe fn advise_huge(start: NonNull<u8>, size: usize, huge: bool) {
    assert_whole_pages(start.as_ptr() as usize, size);
    let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: by contract.
    unsafe { libc::madvise(start.as_ptr().cast(), size, advice) };
}

#[cfg(all(test, not(quietline_sim)))]
mod tests;
