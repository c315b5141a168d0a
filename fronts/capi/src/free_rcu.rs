//! Objects that are freed after a grace period.

use crate::cache::ql_cache;
use core::ffi::c_void;
use core::ptr::NonNull;

/// Frees an object after every read section that is open now has ended (kfree_rcu); then the release hook is called for it, if
/// there is one, and it can be used again. Never fails. NULL, as either argument, does nothing.
///
/// No locked instruction and no shared line while the CPU's collecting sheaf has room. Objects wait in it until it is full, or
/// until ql_cache_flush_rcu() or ql_cache_shrink(). Once in a sheaf's worth, other callbacks that are due may run here. It waits
/// for a grace period only when memory for a sheaf cannot be had and every sheaf of the cache waits for one already: where memory
/// may run out, do not call it inside a read section of the domain.
///
/// # Safety
/// `object` came from this cache, its owner uses it no more, and a read section that begins later cannot find it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_free_rcu(cache: *mut ql_cache, object: *mut c_void) {
    // SAFETY: by contract; so below.
    let cache = unsafe { cache.as_ref() };
    if let (Some(cache), Some(object)) = (cache, NonNull::new(object.cast::<u8>())) {
        // SAFETY: as above.
        unsafe { cache.raw().free_rcu(object) };
    }
}

/// Waits until every object that was given to ql_cache_free_rcu() before is free (kvfree_rcu_barrier). Not from a callback or a
/// hook, nor inside a read section of the domain. NULL does nothing.
///
/// # Safety
/// `cache` is NULL or a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_flush_rcu(cache: *mut ql_cache) {
    // SAFETY: by contract.
    if let Some(cache) = unsafe { cache.as_ref() } {
        cache.raw().flush_rcu();
    }
}
