//! Options of a cache, and the sizes that follow from them.

use crate::barn::BARN_LIMIT;
use crate::bulk::LOOK_AHEAD;
use crate::debug::{self, Debug};
use crate::deferred;
use crate::hook::Hook;
use crate::name::Name;
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

/// Bytes of the largest object that a cache can hold. Larger objects are better mapped alone.
pub const MAX_OBJECT: usize = 16 << 10;

/// Options of a new cache. All but size and alignment have defaults.
///
/// # Sizes
///
/// With an object's stride `s` in bytes and `c` CPUs, unless they are given:
///
/// | | formula | why |
/// |---|---|---|
/// | `min_objects` | max(32, 4 (floor(log2 c) + 2)) | a slab's lock and word are for many objects; more CPUs, more (SLUB's formula, with a floor) |
/// | block | the smallest of 4, 8, ... 64 KiB that holds `min_objects` and has `min_order` | |
/// | sheaf | 64 KiB / s, between 12 and 512 | a bulk of 250 small objects fits; moving a sheaf costs less than moving its objects |
/// | `cpu_partial` | 16 KiB / s, between 12 and 252, at most a sheaf | a CPU that needs three objects does not tie up hundreds |
/// | barn | max(10, 3 c) full sheaves and as many empty ones | a flood of frees that was slowed down returns as many at once |
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The name in statistics and violation reports.
    pub name: Name,
    /// Bytes of an object; 0 is allowed.
    pub size: usize,
    /// Alignment of an object: a power of two.
    pub align: usize,
    /// The constructor, called once for each object's memory, before its first allocation. The
    /// constructed state survives freeing: an object is allocated as it was freed.
    pub ctor: Option<Hook>,
    /// The destructor, called once for each constructed object before its memory is returned to the
    /// system.
    pub dtor: Option<Hook>,
    /// The release function, called for each object that was passed to
    /// [`free_rcu`](crate::RawCache::free_rcu), after its grace period and before its memory is
    /// used again.
    pub release: Option<Hook>,
    /// The domain of a typesafe cache (`SLAB_TYPESAFE_BY_RCU`): memory that a read-side critical
    /// section of this domain may look at stays an object of this cache until the section ends. It
    /// may be freed and *reused for another object of the cache* at any time.
    pub typesafe: Option<&'static rcu::Domain>,
    /// The domain whose readers [`free_rcu`](crate::RawCache::free_rcu) waits for. `None`:
    /// [`rcu::global`]. Options name domains that live as long as the process. A typed cache takes
    /// a [`DomainHandle`](rcu::DomainHandle) instead, of a domain that may end.
    pub rcu: Option<&'static rcu::Domain>,
    /// Whether the cache may be merged with others.
    pub merge: Merge,
    /// Whether CPUs keep objects in sheaves. Without sheaves every operation goes to the slabs: for
    /// comparison, and for caches whose memory matters more than their speed.
    pub sheaves: bool,
    /// The checks: see [`Control::set_debug`](crate::Control::set_debug).
    pub debug: Debug,
    /// The number of objects that a slab should hold at least, in a block of at most 64 KiB. 0 for
    /// the default.
    pub min_objects: usize,
    /// log2 of the least number of pages of a slab. More than 4 counts as 4.
    pub min_order: usize,
    /// The number of slabs with free objects above which an empty slab is freed.
    pub min_partial: usize,
    /// The number of objects that a miss takes from slabs at once. 0 for the default.
    pub cpu_partial: usize,
    /// The capacity of a sheaf, at most 65,536 objects. 0 for the default.
    pub sheaf_capacity: usize,
    /// The number of objects of other slabs after which a bulk free ends its scan for objects of
    /// the same slab. 0 for the default, 3.
    pub look_ahead: usize,
    /// The offset of the allocator's link in a free object: four bytes, aligned to four. `None`: at
    /// the start of the object, or, with a constructor, a destructor or typesafe memory, in extra
    /// bytes behind it. If an offset is given in such a cache, these four bytes of a constructed
    /// object have any value after its first life.
    pub link_offset: Option<usize>,
}

/// Whether a cache may share its slabs and sheaves with another cache of equal size, alignment and
/// tunables (`slab_merge`, `SLAB_NO_MERGE`). Caches that have hooks, are typesafe, have no sheaves
/// or are checked are never merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merge {
    /// The process's setting, [`set_merging`](crate::set_merging), which is "never" at first.
    #[default]
    Default,
    /// Never.
    Never,
    /// With any cache that may be merged.
    Always,
}

/// An error of cache creation or of a change of tunables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The object is too large.
    #[error(
        "objects of {size} bytes aligned to {align} are too large for a slab cache (at most {MAX_OBJECT})"
    )]
    TooLarge {
        /// Bytes of an object.
        size: usize,
        /// Alignment of an object.
        align: usize,
    },
    /// The alignment is no power of two, or the link lies outside the object.
    #[error("alignment must be a power of two, and link_offset a multiple of 4 inside the object")]
    BadLayout,
    /// The objects of the options cannot hold the type of the cache.
    #[error("objects of {size} bytes aligned to {align} cannot hold the cache's type")]
    WrongType {
        /// Bytes of an object.
        size: usize,
        /// Alignment of an object.
        align: usize,
    },
    /// The options of a typed cache name an RCU domain, which is an argument there.
    #[error("a typed cache takes its RCU domain as an argument, not in its options")]
    Domain,
    /// The options of a safe constructor have a hook.
    #[error(
        "constructors, destructors and release functions are called with raw memory: use RawCache::with_hooks, \
         TypesafeCache or RcuCache"
    )]
    Hooks,
    /// The cache is one of several that were merged, or has an account.
    #[error("a merged cache, or one that has an account, cannot be charged to an account")]
    Account,
    /// No memory.
    #[error(transparent)]
    Alloc(#[from] quietline_platform::AllocError),
}

impl Options {
    /// Returns the defaults for objects of a size and an alignment. A longer name than
    /// [`Name::MAX`] bytes is cut.
    pub const fn new(name: &str, size: usize, align: usize) -> Self {
        Self {
            name: Name::new(name),
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

    /// Returns the defaults for objects that are `T`s.
    pub const fn of<T>(name: &str) -> Self {
        Self::new(name, size_of::<T>(), align_of::<T>())
    }

    /// Checks the options of a typed cache, which brings its own hooks and takes its RCU domain as
    /// an argument.
    ///
    /// # Errors
    /// [`CacheError::Hooks`], [`CacheError::Domain`], [`CacheError::WrongType`].
    pub(crate) fn check_typed<T>(&self) -> Result<(), CacheError> {
        let Self { size, align, .. } = *self;
        if self.has_hooks() {
            Err(CacheError::Hooks)
        } else if self.typesafe.is_some() || self.rcu.is_some() {
            Err(CacheError::Domain)
        } else if size < size_of::<T>() || align < align_of::<T>() {
            Err(CacheError::WrongType { size, align })
        } else {
            Ok(())
        }
    }

    /// Returns whether there is a hook.
    pub(crate) fn has_hooks(&self) -> bool {
        self.ctor.is_some() || self.dtor.is_some() || self.release.is_some()
    }

    /// Returns whether giving a slab back calls a destructor at once. That of typesafe memory is
    /// called after a grace period.
    pub(crate) fn has_destructor(&self) -> bool {
        self.dtor.is_some() && self.typesafe.is_none()
    }

    /// Returns the layout of slabs without checks: the smallest block that holds `min_objects`, up
    /// to 64 KiB.
    ///
    /// # Errors
    /// [`CacheError::TooLarge`], [`CacheError::BadLayout`].
    pub fn layout(&self) -> Result<Layout, CacheError> {
        self.layout_with(Debug::OFF)
    }

    /// Returns the layout of slabs with checks: zones around the objects, and their records, links
    /// included, before the first object. Objects that fit without checks fit with them.
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
        if objects == 0 {
            return Err(too_large);
        }
        // Links lie in the objects, or at the start of the records, which begin behind the marks.
        let (link, links) = match record {
            0 => (link, (first(objects) + link, stride)),
            _ => (0, (HEADER + marks(objects), record)),
        };
        Ok(Layout::new((stride, block), (first(objects), objects), link, links))
    }

    /// Returns whether free objects keep their content.
    pub(crate) fn keeps_state(&self) -> bool {
        self.ctor.is_some() || self.dtor.is_some() || self.typesafe.is_some()
    }

    fn min_objects(&self) -> usize {
        match self.min_objects {
            0 => (4 * (cpu::nr_cpus().ilog2() as usize + 2)).max(32),
            n => n,
        }
    }

    /// Returns these options with other tunables.
    pub(crate) fn with_tunables(&self, tunables: Tunables) -> Self {
        let Tunables { min_objects, min_order, min_partial, .. } = tunables;
        let Tunables { cpu_partial, sheaf_capacity, look_ahead, .. } = tunables;
        let with = Self { min_objects, min_order, min_partial, ..*self };
        Self { cpu_partial, sheaf_capacity, look_ahead, ..with }
    }

    /// Returns the tunables, with defaults in place of zeros, and the layout without checks.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub(crate) fn resolve(&self) -> Result<(Tunables, Layout), CacheError> {
        let layout = self.layout()?;
        Ok((self.tunables(&layout), layout))
    }

    fn tunables(&self, layout: &Layout) -> Tunables {
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

    /// Returns the number of full sheaves, and of empty ones, that a barn keeps: [`BARN_LIMIT`] or
    /// three for each CPU. A grace period that is slowed down returns as many sheaves at once. The
    /// objects of further sheaves go to their slabs, under a contended lock.
    pub fn barn_limit() -> usize {
        BARN_LIMIT.max(3 * cpu::nr_cpus())
    }
}
