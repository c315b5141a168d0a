//! What a cache is asked to be.

use crate::hooks::{hook, ql_hook};
use crate::names;
use crate::rcu::{self, ql_rcu};
use crate::status::ql_status;
use crate::versioned::Versioned;
use core::ffi::{c_char, c_void};
use core::mem::offset_of;
use quietline_slab::{Merge, Options};

/// Memory that a read section may look at stays an object of the cache until the section ends, though it may be freed and used
/// for another object of the cache at any time (SLAB_TYPESAFE_BY_RCU).
pub const QL_CACHE_TYPESAFE_BY_RCU: u32 = 1;

/// The cache may share its slabs with others of equal layout and tunables, whatever ql_set_merging() says.
pub const QL_CACHE_MERGE: u32 = 2;

/// The cache shares its slabs with no other (SLAB_NO_MERGE).
pub const QL_CACHE_NO_MERGE: u32 = 4;

/// CPUs keep no objects: every operation goes to the slabs. For comparison, and for caches whose memory matters more than their
/// speed.
pub const QL_CACHE_NO_SHEAVES: u32 = 8;

/// The options' link_offset is meant, even if it is 0.
pub const QL_CACHE_LINK_OFFSET: u32 = 16;

/// `QL_KEEP_NONE` of the header, which `cbindgen.toml` defines: cbindgen cannot say SIZE_MAX.
const QL_KEEP_NONE: usize = usize::MAX;

const FLAGS: u32 = QL_CACHE_TYPESAFE_BY_RCU
    | QL_CACHE_MERGE
    | QL_CACHE_NO_MERGE
    | QL_CACHE_NO_SHEAVES
    | QL_CACHE_LINK_OFFSET;

/// How a cache shall be. Set struct_size, name and size, and leave the rest zero for the defaults:
///
///     ql_cache_options options = { .struct_size = sizeof options, .name = "packet", .size = 256 };
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_cache_options {
    /// sizeof(ql_cache_options).
    pub struct_size: usize,
    /// Shown in statistics and reports: UTF-8, shorter than QL_NAME_MAX bytes. The cache has a copy.
    /// NULL for none.
    pub name: *const c_char,
    /// Bytes of an object, at most 16 KiB; 0 is allowed.
    pub size: usize,
    /// Alignment of an object: a power of two, at most 16 KiB. 0 for 16, which is enough for every fundamental type.
    pub align: usize,
    /// Called once for each object's memory before it is handed out for the first time. The constructed state survives freeing:
    /// an object comes back as it was freed. NULL for none; so below.
    pub ctor: ql_hook,
    /// Called once for each constructed object before its memory goes back to the system. On any thread, and perhaps after
    /// ql_cache_destroy() has returned, whatever the cache: when objects wait for a grace period, or when another thread is
    /// just reclaiming.
    pub dtor: ql_hook,
    /// Called for each object that was given to ql_cache_free_rcu(), after its grace period and before its memory can be used
    /// again; perhaps after ql_cache_destroy().
    pub release: ql_hook,
    /// What the three are called with; must stay valid as long as they can be: with a dtor or a release, beyond
    /// ql_cache_destroy().
    pub context: *mut c_void,
    /// Whose read sections QL_CACHE_TYPESAFE_BY_RCU and ql_cache_free_rcu() wait for. NULL for those of ql_rcu_global().
    pub rcu: *mut ql_rcu,
    /// QL_CACHE_ flags.
    pub flags: u32,
    /// QL_DEBUG_ flags: what is checked from the start.
    pub debug: u32,
    /// Objects that a slab should hold at least.
    pub min_objects: usize,
    /// log2 of the pages that a slab has at least.
    pub min_order: usize,
    /// Slabs with free objects that are kept when one of them becomes empty; QL_KEEP_NONE for none.
    pub min_partial: usize,
    /// Objects that a miss takes out of slabs at once.
    pub cpu_partial: usize,
    /// Objects in a sheaf, at most 65,536.
    pub sheaf_capacity: usize,
    /// Objects of other slabs after which a bulk free ends its scan for objects of the same slab.
    pub look_ahead: usize,
    /// With QL_CACHE_LINK_OFFSET: where in a free object the allocator keeps four bytes, aligned to four. They hold anything
    /// when a constructed object is handed out again. Without, the link lies where it changes nothing that is constructed.
    pub link_offset: usize,
}

// SAFETY: repr(C) with the size first, all zero is a null name and defaults, and all fields are words or pairs of halves.
unsafe impl Versioned for ql_cache_options {
    const SMALLEST: usize = offset_of!(ql_cache_options, link_offset) + size_of::<usize>();
}

impl ql_cache_options {
    /// What the library's own options are.
    ///
    /// # Errors
    /// [`ql_status`].
    ///
    /// # Safety
    /// The name is null or a string; the domain is null or one.
    pub(crate) unsafe fn resolve(&self) -> Result<Options, ql_status> {
        let merge = match self.flags & (QL_CACHE_MERGE | QL_CACHE_NO_MERGE) {
            0 => Merge::Default,
            QL_CACHE_MERGE => Merge::Always,
            QL_CACHE_NO_MERGE => Merge::Never,
            _ => return Err(ql_status::QL_INVALID),
        };
        if self.flags & !FLAGS != 0 {
            return Err(ql_status::QL_INVALID);
        }
        let debug = crate::debug::flags(self.debug)?;
        let align = if self.align == 0 { 16 } else { self.align };
        let has = |flag| self.flags & flag != 0;
        // SAFETY: by contract.
        let (name, domain) = unsafe { (names::copy(self.name)?, rcu::domain(self.rcu)) };
        let typesafe = match (has(QL_CACHE_TYPESAFE_BY_RCU), domain) {
            (false, _) => None,
            (true, Some(domain)) => Some(domain),
            (true, None) => Some(quietline_sync::rcu::global()?),
        };
        let defaults = Options::new(&name, self.size, align);
        Ok(Options {
            typesafe,
            rcu: domain,
            merge,
            sheaves: !has(QL_CACHE_NO_SHEAVES),
            debug,
            min_objects: self.min_objects,
            min_order: self.min_order,
            min_partial: match self.min_partial {
                0 => defaults.min_partial,
                QL_KEEP_NONE => 0,
                n => n,
            },
            cpu_partial: self.cpu_partial,
            sheaf_capacity: self.sheaf_capacity,
            look_ahead: self.look_ahead,
            link_offset: has(QL_CACHE_LINK_OFFSET).then_some(self.link_offset),
            ctor: hook(self.ctor, self.context),
            dtor: hook(self.dtor, self.context),
            release: hook(self.release, self.context),
            ..defaults
        })
    }
}
