//! Objects that are freed after a grace period.

use crate::cache::ql_cache;
use core::ffi::c_void;
use core::ptr::NonNull;

/// Frees an object after every read section that is open now has ended (kfree_rcu); then the release hook is called for it, if
/// there is one, and it can be used again. Never fails. NULL, as either argument, does nothing.
///
/// No locked instruction and no shared line while the CPU's collecting sheaf has room. Objects wait in it until it is full, or
/// until ql_cache_flush_rcu() or ql_cache_shrink(). Runs no callback. Release
/// hooks run in ql_rcu_poll(), ql_rcu_synchronize(), ql_rcu_barrier() and ql_cache_flush_rcu().
/// Only at the limit of ql_cache_set_rcu_limit(), and when memory for a sheaf cannot be had and
/// every sheaf of the cache waits for a grace period already, it waits for one and runs the
/// object's hook: where memory may run out, do not call it inside a read section of the domain.
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

/// Bounds the objects that wait for a grace period, apart from some that each CPU collects. At the
/// limit ql_cache_free_rcu() waits for a grace period and frees its object, release hook included;
/// inside a read section of the domain it may wait for ever. No limit at first. NULL does nothing.
///
/// # Safety
/// `cache` is NULL or a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_set_rcu_limit(cache: *mut ql_cache, objects: usize) {
    // SAFETY: by contract.
    if let Some(cache) = unsafe { cache.as_ref() } {
        cache.raw().set_rcu_limit(objects);
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
