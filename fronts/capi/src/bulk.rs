//! Many objects at once.

use crate::cache::ql_cache;
use crate::status::{ql_status, status};
use core::ffi::c_void;
use core::slice;
use quietline_slab::Entry;

/// Fills an array with `n` objects, all or nothing (kmem_cache_alloc_bulk). On failure all entries are NULL; n may be 0.
///
/// One sequence, no locked instruction and no shared line while the CPU's sheaf has enough.
///
/// QL_INVALID when `cache` is NULL, or `objects` while n is not 0; QL_NO_MEMORY.
///
/// # Safety
/// `cache` is NULL or a cache; `objects` points to `n` pointers, which need no value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_alloc_bulk(
    cache: *mut ql_cache,
    objects: *mut *mut c_void,
    n: usize,
) -> ql_status {
    if !objects.is_null() {
        // SAFETY: by contract. What the caller left without a value gets one: NULL.
        unsafe { objects.write_bytes(0, n) };
    }
    // SAFETY: by contract; all entries have a value.
    let (cache, objects) = unsafe { (cache.as_ref(), entries(objects, n)) };
    let (Some(cache), Some(objects)) = (cache, objects) else { return ql_status::QL_INVALID };
    status(|| Ok(cache.raw().alloc_bulk(objects)?))
}

/// Frees `n` objects, skipping NULLs, and sets every entry to NULL (kmem_cache_free_bulk). n may be 0. Never fails; NULL for a
/// cache or an array does nothing.
///
/// One sequence while the CPU's sheaf has room; what it has no room for goes back to the slabs in groups, one
/// compare-and-exchange for each.
///
/// # Safety
/// `objects` points to `n` pointers, each NULL or from this cache; none appears twice, and nobody uses them any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_free_bulk(
    cache: *mut ql_cache,
    objects: *mut *mut c_void,
    n: usize,
) {
    // SAFETY: by contract; so below.
    if let (Some(cache), Some(objects)) = unsafe { (cache.as_ref(), entries(objects, n)) } {
        // SAFETY: as above.
        unsafe { cache.raw().free_bulk(objects) };
    }
}

/// A C array as a slice; none for null, but an empty slice for an empty array.
///
/// # Safety
/// `objects` is null or points to `n` pointers with values, the caller's alone.
unsafe fn entries<'a>(objects: *mut *mut c_void, n: usize) -> Option<&'a mut [Entry]> {
    if objects.is_null() {
        return (n == 0).then_some(&mut []);
    }
    // SAFETY: by contract; an Entry is a pointer that may be null.
    Some(unsafe { slice::from_raw_parts_mut(objects.cast::<Entry>(), n) })
}
