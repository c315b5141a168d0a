//! What may be changed while a cache lives.

use crate::cache::ql_cache;
use crate::status::{ql_status, status};
use crate::versioned::{self, Versioned};
use core::mem::offset_of;
use quietline_slab::Tunables;

/// The tunables of a cache. What ql_cache_get_tunables() gives is what is in force; 0 in what ql_cache_set_tunables() is given
/// means the default of that field, but for min_partial, where 0 is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_tunables {
    /// sizeof(ql_tunables): to be set before both functions.
    pub struct_size: usize,
    /// Objects that a slab should hold at least.
    pub min_objects: usize,
    /// log2 of the pages that a slab has at least.
    pub min_order: usize,
    /// Slabs with free objects that are kept when one of them becomes empty.
    pub min_partial: usize,
    /// Objects that a miss takes out of slabs at once.
    pub cpu_partial: usize,
    /// Objects that a sheaf holds.
    pub sheaf_capacity: usize,
    /// Objects of other slabs after which a bulk free ends its scan for objects of the same slab.
    pub look_ahead: usize,
}

// SAFETY: repr(C) words, the size first.
unsafe impl Versioned for ql_tunables {
    const SMALLEST: usize = offset_of!(ql_tunables, look_ahead) + size_of::<usize>();
}

impl From<Tunables> for ql_tunables {
    fn from(tunables: Tunables) -> Self {
        let Tunables {
            min_objects,
            min_order,
            min_partial,
            cpu_partial,
            sheaf_capacity,
            look_ahead,
        } = tunables;
        Self {
            struct_size: size_of::<Self>(),
            min_objects,
            min_order,
            min_partial,
            cpu_partial,
            sheaf_capacity,
            look_ahead,
        }
    }
}

/// Fills *tunables with what is in force.
///
/// QL_INVALID when an argument is NULL or struct_size is not set.
///
/// # Safety
/// `cache` is NULL or a cache; `tunables` is NULL or points to as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_get_tunables(
    cache: *const ql_cache,
    tunables: *mut ql_tunables,
) -> ql_status {
    status(|| {
        // SAFETY: by contract; so below.
        let cache = unsafe { cache.as_ref() }.ok_or(ql_status::QL_INVALID)?;
        // SAFETY: as above.
        unsafe { versioned::write(tunables, &cache.raw().tunables().into()) }
    })
}

/// Changes the tunables of a cache, and of all that are merged with it. CPUs' sheaves are taken away if their capacity changes;
/// slabs that are there stay as they are, new ones follow the new rules. Other threads may go on meanwhile.
///
/// QL_INVALID when an argument is NULL or struct_size is unknown; QL_TOO_LARGE when no object would fit; nothing is changed then.
///
/// # Safety
/// As ql_cache_get_tunables().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_cache_set_tunables(
    cache: *mut ql_cache,
    tunables: *const ql_tunables,
) -> ql_status {
    status(|| {
        // SAFETY: by contract; so below.
        let cache = unsafe { cache.as_ref() }.ok_or(ql_status::QL_INVALID)?;
        // SAFETY: as above.
        let asked = unsafe { versioned::read(tunables)? };
        Ok(cache.raw().set_tunables(Tunables {
            min_objects: asked.min_objects,
            min_order: asked.min_order,
            min_partial: asked.min_partial,
            cpu_partial: asked.cpu_partial,
            sheaf_capacity: asked.sheaf_capacity,
            look_ahead: asked.look_ahead,
        })?)
    })
}
