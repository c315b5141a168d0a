//! Memory from the interpreter's heap, which knows neither parts of mappings nor advice.

use super::PAGE_SIZE;
use crate::AllocError;
use core::alloc::Layout;
use core::ptr::NonNull;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{LazyLock, Mutex};

/// The layout of each mapping, by its address.
static MAPPINGS: LazyLock<Mutex<HashMap<usize, Layout>>> = LazyLock::new(Mutex::default);

/// Maps `size` bytes aligned to `align`, zeroed.
pub(crate) fn map_aligned(size: usize, align: usize) -> Result<NonNull<u8>, AllocError> {
    let layout = Layout::from_size_align(size, align.max(PAGE_SIZE)).map_err(|_| AllocError)?;
    // SAFETY: callers map more than nothing.
    let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(AllocError)?;
    // Objects are found by their addresses, which are kept as integers.
    MAPPINGS.lock().unwrap().insert(start.as_ptr().expose_provenance(), layout);
    Ok(start)
}

/// Unmaps what [`map_aligned`] mapped.
///
/// # Safety
/// The mapping is the caller's, of that size, and unused.
pub(crate) unsafe fn unmap(start: NonNull<u8>, size: usize) {
    let layout = MAPPINGS.lock().unwrap().remove(&start.addr().get()).expect("a mapping");
    assert_eq!(layout.size(), size, "mappings are unmapped whole");
    // SAFETY: allocated with this layout.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
}

/// Does nothing.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn advise_huge(_start: NonNull<u8>, _size: usize, _huge: bool) {}

/// Gives back nothing: the content is as before.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn discard(_start: NonNull<u8>, _end: usize) {}

/// Refuses: the interpreter maps no files.
///
/// # Errors
/// Always.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn map_file_over(
    _at: NonNull<u8>,
    _size: usize,
    _file: BorrowedFd<'_>,
) -> Result<(), AllocError> {
    Err(AllocError)
}
