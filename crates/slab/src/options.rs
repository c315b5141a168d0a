//! What a cache is asked to be, and the sizes that follow from it.

use crate::barn::BARN_LIMIT;
use crate::bulk::LOOK_AHEAD;
use crate::debug::{self, Debug};
use crate::deferred;
use crate::hook::Hook;
use crate::slab::{HEADER, Layout};
use crate::tunables::Tunables;
use quietline_platform::cpu;
use quietline_platform::pages::PAGE_SIZE;
use quietline_sync::rcu;

/// The largest block of a slab.
const LARGEST_BLOCK: usize = 64 << 10;
const MAX_ORDER: usize = (LARGEST_BLOCK / PAGE_SIZE).ilog2() as usize;
/// Objects that the largest sheaf holds.
const MAX_SHEAF: usize = 65_536;

/// The largest object that a cache can hold: larger ones are better mapped alone.
pub const MAX_OBJECT: usize = 16 << 10;

/// How a cache shall be. All but size and alignment have defaults.
///
/// # Sizes
///
/// With an object's stride `s` in bytes and `c` CPUs, unless they are given:
///
/// | | formula | why |
/// |---|---|---|
/// | `min_objects` | max(32, 4 (floor(log2 c) + 2)) | a slab's lock and word are for many objects; more CPUs, more (SLUB's formula, with a floor) |
/// | block | the smallest of 4, 8, ... 64 KiB that holds `min_objects` and has `min_order` | |
/// | sheaf | 64 KiB / s, between 12 and 512 | a bulk of 250 small objects fits; a sheaf that wanders is worth the way |
/// | `cpu_partial` | 16 KiB / s, between 12 and 252, at most a sheaf | a CPU that needs three objects does not tie up hundreds |
/// | barn | max(10, 3 c) full sheaves and as many empty ones | what a slowed-down flood of frees gives back at once |
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Shown in statistics.
    pub name: &'static str,
    /// Bytes of an object; 0 is allowed.
    pub size: usize,
    /// Alignment of an object: a power of two.
    pub align: usize,
    /// Called once for each object's memory before it is handed out for the first time. The constructed state
    /// survives freeing: an object comes back as it was freed.
    pub ctor: Option<Hook>,
    /// Called once for each constructed object before its memory goes back to the system.
    pub dtor: Option<Hook>,
    /// Called for each object that was given to [`free_rcu`](crate::RawCache::free_rcu), after its grace period and before
    /// its memory can be used again.
    pub release: Option<Hook>,
    /// `SLAB_TYPESAFE_BY_RCU`: memory that a read section of this domain may look at stays an object of this cache
    /// until the section ends. It may be freed and *reused for another object of the cache* at any time.
    pub typesafe: Option<&'static rcu::Domain>,
    /// Whose read sections [`free_rcu`](crate::RawCache::free_rcu) waits for. None: those of [`rcu::global`].
    pub rcu: Option<&'static rcu::Domain>,
    /// Whether caches that are alike may be one.
    pub merge: Merge,
    /// Whether CPUs keep objects in sheaves. Without, every operation goes to the slabs: for comparison, and for caches
    /// whose memory matters more than their speed.
    pub sheaves: bool,
    /// What is checked: see [`RawCache::set_debug`](crate::RawCache::set_debug).
    pub debug: Debug,
    /// Objects that a slab should hold at least; blocks of 64 KiB are the largest. 0 for the default.
    pub min_objects: usize,
    /// log2 of the pages that a slab has at least; 4 is the most that counts.
    pub min_order: usize,
    /// Slabs with free objects that are kept when one of them becomes empty.
    pub min_partial: usize,
    /// Objects that a miss takes out of slabs at once; 0 for the default.
    pub cpu_partial: usize,
    /// Objects in a sheaf, at most 65,536; 0 for the default.
    pub sheaf_capacity: usize,
    /// Objects of other slabs after which a bulk free ends its scan for objects of the same slab; 0 for the default, 3.
    pub look_ahead: usize,
    /// Where in a free object the allocator keeps its link, four bytes, aligned to four. `None`: at the start of the
    /// object, or, with a constructor, a destructor or typesafe memory, in extra bytes behind it. Given with one of those,
    /// these four bytes of a constructed object hold anything after its first life.
    pub link_offset: Option<usize>,
}

/// Whether a cache may share its slabs and sheaves with another one of equal size, alignment and tunables (`slab_merge`,
/// `SLAB_NO_MERGE`). Caches with hooks, typesafe ones, those without sheaves and those that are checked never do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merge {
    /// As [`set_merging`](crate::set_merging) says for the process, where "never" is the default.
    #[default]
    Default,
    /// Never.
    Never,
    /// With any that may too.
    Always,
}

/// Why a cache cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The object is too large.
    #[error(
        "objects of {size} bytes aligned to {align} are too large for a slab cache (at most {MAX_OBJECT})"
    )]
    TooLarge {
        /// Bytes asked for.
        size: usize,
        /// Alignment asked for.
        align: usize,
    },
    /// The alignment is no power of two, or the link lies outside the object.
    #[error("alignment must be a power of two, and link_offset a multiple of 4 inside the object")]
    BadLayout,
    /// A constructor, destructor or release function was given to the safe way of making a cache.
    #[error(
        "constructors, destructors and release functions are called with raw memory: use RawCache::with_hooks, \
         TypesafeCache or RcuCache"
    )]
    Hooks,
    /// No memory.
    #[error(transparent)]
    Alloc(#[from] quietline_platform::AllocError),
}

impl Options {
    /// Defaults for objects of a size and an alignment.
    pub const fn new(name: &'static str, size: usize, align: usize) -> Self {
        Self {
            name,
            size,
            align,
            ctor: None,
            dtor: None,
            release: None,
            typesafe: None,
            rcu: None,
            merge: Merge::Default,
            sheaves: true,
            debug: Debug::OFF,
            min_objects: 0,
            min_order: 0,
            min_partial: 5,
            cpu_partial: 0,
            sheaf_capacity: 0,
            look_ahead: 0,
            link_offset: None,
        }
    }

    /// Whether there is any function to call.
    pub(crate) fn has_hooks(&self) -> bool {
        self.ctor.is_some() || self.dtor.is_some() || self.release.is_some()
    }

    /// Where objects lie while nothing is checked: the smallest block that holds `min_objects`, up to 64 KiB.
    ///
    /// # Errors
    /// [`CacheError::TooLarge`], [`CacheError::BadLayout`].
    pub fn layout(&self) -> Result<Layout, CacheError> {
        self.layout_with(Debug::OFF)
    }

    /// Where objects lie with checks: with zones around them, and their records, links included, before the first. For all
    /// objects that fit without checks there is a layout with them.
    pub(crate) fn layout_with(&self, checked: Debug) -> Result<Layout, CacheError> {
        if !self.align.is_power_of_two() {
            return Err(CacheError::BadLayout);
        }
        let too_large = CacheError::TooLarge { size: self.size, align: self.align };
        if self.size > MAX_OBJECT || self.align > MAX_OBJECT {
            return Err(too_large);
        }
        const LINK: usize = size_of::<u32>();
        let align = self.align.max(LINK);
        let (link, used) = match self.link_offset {
            Some(at) if at.is_multiple_of(LINK) && at < self.size && self.size - at >= LINK => {
                (at, self.size)
            }
            Some(_) => return Err(CacheError::BadLayout),
            None if self.keeps_state() => {
                let at = self.size.next_multiple_of(LINK);
                (at, at + LINK)
            }
            None => (0, self.size.max(LINK)),
        };
        let (record, zone) = (debug::record_size(checked), debug::zone(checked));
        let used = if checked.is_off() { used } else { self.size.max(LINK) + 2 * zone };
        let stride = used.next_multiple_of(align);
        // Saturating: nothing that large fits.
        let marks = |objects| if self.rcu.is_some() { deferred::bytes(objects) } else { 0 };
        let first = |objects: usize| {
            let before =
                objects.saturating_mul(record).saturating_add(HEADER + marks(objects) + zone);
            before.checked_next_multiple_of(align).unwrap_or(usize::MAX)
        };
        let fits = |objects: usize, block: usize| {
            objects.saturating_mul(stride).saturating_add(first(objects)) <= block
        };
        let mut block = PAGE_SIZE << self.min_order.min(MAX_ORDER);
        while block < LARGEST_BLOCK && !fits(self.min_objects(), block) {
            block *= 2;
        }
        let mut objects = ((block - HEADER) / (stride + record)).min(usize::from(u16::MAX) - 1);
        while objects > 0 && !fits(objects, block) {
            objects -= 1;
        }
        Ok(match (objects, record) {
            (0, _) => return Err(too_large),
            (_, 0) => Layout::new(stride, block, first(objects), objects, link),
            _ => Layout::checked(
                stride,
                block,
                first(objects),
                objects,
                HEADER + marks(objects),
                record,
            ),
        })
    }

    /// Whether objects keep, while they are free, what they were when they were freed.
    pub(crate) fn keeps_state(&self) -> bool {
        self.ctor.is_some() || self.dtor.is_some() || self.typesafe.is_some()
    }

    fn min_objects(&self) -> usize {
        match self.min_objects {
            0 => (4 * (cpu::nr_cpus().ilog2() as usize + 2)).max(32),
            n => n,
        }
    }

    /// The tunables, with defaults in place of zeros.
    pub(crate) fn tunables(&self, layout: &Layout) -> Tunables {
        let sheaf_capacity = match self.sheaf_capacity {
            0 => (64 * 1024 / layout.stride).clamp(12, 512),
            n => n.min(MAX_SHEAF),
        };
        let cpu_partial = match self.cpu_partial {
            0 => (16 * 1024 / layout.stride).clamp(12, 252),
            n => n,
        };
        Tunables {
            min_objects: self.min_objects(),
            min_order: self.min_order.min(MAX_ORDER),
            min_partial: self.min_partial,
            cpu_partial: cpu_partial.min(sheaf_capacity),
            sheaf_capacity,
            look_ahead: if self.look_ahead == 0 { LOOK_AHEAD } else { self.look_ahead },
        }
    }

    /// Sheaves of each kind that a barn keeps, [`BARN_LIMIT`] at least: with many CPUs as many as wait for a grace period when it is slowed down, which come
    /// back all at once and are wanted again. What does not fit goes to its slabs, under a lock that all wait for.
    pub fn barn_limit() -> usize {
        BARN_LIMIT.max(3 * cpu::nr_cpus())
    }
}
