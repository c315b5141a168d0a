//! A cache, made and ended, and its objects one at a time.

use crate::options::ql_cache_options;
use crate::status::{ql_status, status};
use crate::versioned;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use quietline_platform::heap;
use quietline_platform::percpu::{self, Body};
use quietline_slab::RawCache;

/// A cache of objects of one size. Any thread may use any function with it, but for ql_cache_destroy(), which must be the last.
pub struct ql_cache {
    handle: Handle,
}

/// What `quietline_inline.h` knows of a cache is the first word. On lines of its own, which nobody writes.
#[repr(C, align(64))]
struct Handle {
    /// Address of CPU 0's words, the first of which points to the CPU's main sheaf. 0 where the operations of
    /// `quietline_inline.h` must not be used: no restartable sequences, or sheaves of another form than that header knows.
    words: usize,
    raw: RawCache,
}

const _: () = assert!(offset_of!(ql_cache, handle) == 0 && offset_of!(Handle, words) == 0);

impl ql_cache {
    pub(crate) fn raw(&self) -> &RawCache {
        &self.handle.raw
    }
}

/// Makes a cache, which allocates no slab yet, and stores it in *cache; on failure, *cache is NULL.
///
/// QL_INVALID when `options` or `cache` is NULL, when struct_size or a flag is unknown;
/// QL_BAD_NAME; QL_TOO_LARGE; QL_BAD_LAYOUT; QL_NO_MEMORY.
///
/// # Safety
/// `options` points to as many bytes as its struct_size says; its name is a string. The hooks may be called with any memory of
/// the size and alignment asked for, on any thread that uses the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_create(
    options: *const ql_cache_options,
    cache: *mut *mut ql_cache,
) -> ql_status {
    status(|| {
        if cache.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: by contract; so below.
        unsafe { cache.write(ptr::null_mut()) };
        // SAFETY: as above.
        let raw = unsafe {
            let options = versioned::read(options)?.resolve()?;
            RawCache::with_hooks(options)?
        };
        let words = match percpu::active() {
            Body::Rseq => raw.percpu_base().as_ptr() as usize,
            Body::OwnRseq | Body::Fallback => 0,
        };
        let fresh = heap::try_box(ql_cache { handle: Handle { words, raw } })?;
        // SAFETY: as above.
        unsafe { cache.write(Box::into_raw(fresh)) };
        Ok(())
    })
}

/// Ends a cache and gives its memory back; what waits for a grace period goes after it. Objects that are still out stay where
/// they are and are never given back: ql_cache_get_stats() says before how many there are. NULL does nothing.
///
/// # Safety
/// The cache is used by nobody else, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_destroy(cache: *mut ql_cache) {
    if !cache.is_null() {
        // SAFETY: boxed by ql_cache_create, and by contract the caller's.
        drop(unsafe { Box::from_raw(cache) });
    }
}

/// An object: as its last user left it, but for four bytes that the allocator keeps its link in (see link_offset); unspecified if
/// it never had one and there is no constructor. NULL if the system gives no memory, or `cache` is NULL.
///
/// No locked instruction and no shared line while the CPU's sheaf has objects; else, once in a sheaf's worth, a lock.
///
/// # Safety
/// `cache` is NULL or a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_alloc(cache: *mut ql_cache) -> *mut c_void {
    // SAFETY: by contract; so below.
    match unsafe { cache.as_ref() } {
        Some(cache) => cache.raw().alloc().map_or(ptr::null_mut(), |object| object.as_ptr().cast()),
        None => ptr::null_mut(),
    }
}

/// Gives an object back; never fails. NULL, as either argument, does nothing. Costs what ql_cache_alloc() does.
///
/// # Safety
/// `object` came from this cache, and nobody uses it any more. (In a typesafe cache, readers may still look.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_free(cache: *mut ql_cache, object: *mut c_void) {
    // SAFETY: by contract.
    let cache = unsafe { cache.as_ref() };
    if let (Some(cache), Some(object)) = (cache, NonNull::new(object.cast::<u8>())) {
        // SAFETY: by contract.
        unsafe { cache.raw().free(object) };
    }
}

/// Gives every CPU's sheaves, the barn's, and all empty slabs back to the system (kmem_cache_shrink). Other threads may go on
/// meanwhile. Needs no memory; costs some ten microseconds. NULL does nothing.
///
/// # Safety
/// `cache` is NULL or a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_shrink(cache: *mut ql_cache) {
    // SAFETY: by contract.
    if let Some(cache) = unsafe { cache.as_ref() } {
        cache.raw().shrink();
    }
}
