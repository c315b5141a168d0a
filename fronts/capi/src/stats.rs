//! What a cache holds, and how often its slow paths ran.

use crate::cache::ql_cache;
use crate::names::QL_NAME_MAX;
use crate::status::{ql_status, status};
use crate::tunables::ql_tunables;
use crate::versioned::{self, Versioned};
use core::ffi::c_char;
use core::mem::offset_of;
use quietline_slab::Stats;

/// A cache's numbers; exact when nobody uses the cache meanwhile.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_stats {
    /// sizeof(ql_stats): to be set before ql_cache_get_stats().
    pub struct_size: usize,
    /// The cache's name, which ends in a zero; of merged caches, that of the first.
    pub name: [c_char; QL_NAME_MAX],
    /// Bytes of an object as asked for.
    pub size: usize,
    /// Bytes of an object, with what alignment, a link and checks add.
    pub object_size: usize,
    /// Objects in a slab that is made now.
    pub objects_per_slab: usize,
    /// Bytes of a slab that is made now.
    pub slab_size: usize,
    /// Slabs that the cache has.
    pub slabs: usize,
    /// Slabs with free objects that are on the partial list.
    pub partial_slabs: usize,
    /// Places for objects in all slabs.
    pub places: usize,
    /// Objects with users.
    pub active: usize,
    /// Objects in sheaves, ready to be handed out.
    pub cached: usize,
    /// Objects that wait for a grace period.
    pub waiting: usize,
    /// Caches that were merged with the first.
    pub aliases: usize,
    /// Times that objects were taken out of slabs.
    pub refills: u64,
    /// Times that a sheaf's objects went back to slabs.
    pub flushes: u64,
    /// Full sheaves taken from the barn.
    pub barn_gets: u64,
    /// Full sheaves given to the barn.
    pub barn_puts: u64,
    /// Groups of objects taken from or given to a slab.
    pub slab_syncs: u64,
    /// Sheaves of objects sent to wait for a grace period.
    pub rcu_sheaves: u64,
    /// What is in force.
    pub tunables: ql_tunables,
}

// SAFETY: repr(C) words and a whole number of words of text, the size first.
unsafe impl Versioned for ql_stats {
    const SMALLEST: usize = offset_of!(ql_stats, tunables) + size_of::<ql_tunables>();
}

impl From<Stats> for ql_stats {
    fn from(stats: Stats) -> Self {
        let mut name = [0; QL_NAME_MAX];
        // Names from C fit; a longer one from elsewhere is cut, and still ends in a zero.
        for (to, from) in name[..QL_NAME_MAX - 1].iter_mut().zip(stats.name.bytes()) {
            *to = from as c_char;
        }
        Self {
            struct_size: size_of::<Self>(),
            name,
            size: stats.size,
            object_size: stats.object_size,
            objects_per_slab: stats.objects_per_slab,
            slab_size: stats.slab_size,
            slabs: stats.slabs,
            partial_slabs: stats.partial_slabs,
            places: stats.places,
            active: stats.active,
            cached: stats.cached,
            waiting: stats.waiting,
            aliases: stats.aliases,
            refills: stats.refills,
            flushes: stats.flushes,
            barn_gets: stats.barn_gets,
            barn_puts: stats.barn_puts,
            slab_syncs: stats.slab_syncs,
            rcu_sheaves: stats.rcu_sheaves,
            tunables: stats.tunables.into(),
        }
    }
}

/// Fills *stats with what the cache holds now. Some microseconds: a barrier on all CPUs.
///
/// QL_INVALID when an argument is NULL or struct_size is not set.
///
/// # Safety
/// `cache` is NULL or a cache; `stats` is NULL or points to as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_get_stats(
    cache: *const ql_cache,
    stats: *mut ql_stats,
) -> ql_status {
    status(|| {
        // SAFETY: by contract; so below.
        let cache = unsafe { cache.as_ref() }.ok_or(ql_status::QL_INVALID)?;
        // SAFETY: as above.
        unsafe { versioned::write(stats, &cache.raw().stats().into()) }
    })
}
