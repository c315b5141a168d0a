//! What a cache is asked to be, and the sizes that follow from it.

use crate::slab::{HEADER, Hook, Layout};
use quietline_platform::pages::PAGE_SIZE;
use quietline_sync::rcu;

/// The largest block of a slab.
const LARGEST_BLOCK: usize = 64 << 10;

/// The largest object that a cache can hold: larger ones are better mapped alone.
pub const MAX_OBJECT: usize = 16 << 10;

/// How a cache shall be. All but size and alignment have defaults.
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
    /// `SLAB_TYPESAFE_BY_RCU`: memory that a read section of this domain may look at stays an object of this cache
    /// until the section ends. It may be freed and *reused for another object of the cache* at any time.
    pub typesafe: Option<&'static rcu::Domain>,
    /// Objects that a slab should hold at least; blocks of 64 KiB are the largest.
    pub min_objects: usize,
    /// log2 of the pages that a slab has at least; 4 is the most that counts.
    pub min_order: u32,
    /// Slabs with free objects that are kept when one of them becomes empty.
    pub min_partial: usize,
    /// Objects in a sheaf; 0 for the default, which follows from the size.
    pub sheaf_capacity: usize,
    /// Where in a free object the allocator keeps its link, four bytes, aligned to four. `None`: at the start of the
    /// object, or, with a hook or RCU, in extra bytes behind it. Given with a hook or RCU, these four bytes of a
    /// constructed object hold anything after its first life.
    pub link_offset: Option<usize>,
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
    /// A constructor or destructor was given to the safe way of making a cache.
    #[error(
        "constructors and destructors are called with raw memory: use RawCache::with_hooks, or TypesafeCache"
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
            typesafe: None,
            min_objects: 32,
            min_order: 0,
            min_partial: 5,
            sheaf_capacity: 0,
            link_offset: None,
        }
    }

    /// Where objects lie: the smallest block that holds `min_objects`, up to 64 KiB.
    ///
    /// # Errors
    /// [`CacheError::TooLarge`], [`CacheError::BadLayout`].
    pub fn layout(&self) -> Result<Layout, CacheError> {
        if !self.align.is_power_of_two() {
            return Err(CacheError::BadLayout);
        }
        let too_large = CacheError::TooLarge { size: self.size, align: self.align };
        if self.size > MAX_OBJECT || self.align > MAX_OBJECT {
            return Err(too_large);
        }
        const LINK: usize = size_of::<u32>();
        let keeps_state = self.ctor.is_some() || self.dtor.is_some() || self.typesafe.is_some();
        let align = self.align.max(LINK);
        let (link, used) = match self.link_offset {
            Some(at) if at.is_multiple_of(LINK) && at < self.size && self.size - at >= LINK => {
                (at, self.size)
            }
            Some(_) => return Err(CacheError::BadLayout),
            None if keeps_state => {
                let at = self.size.next_multiple_of(LINK);
                (at, at + LINK)
            }
            None => (0, self.size.max(LINK)),
        };
        let stride = used.next_multiple_of(align);
        let first = HEADER.next_multiple_of(align);
        let wanted = self.min_objects.max(1).saturating_mul(stride).saturating_add(first);
        let mut block = PAGE_SIZE << self.min_order.min((LARGEST_BLOCK / PAGE_SIZE).ilog2());
        while block < LARGEST_BLOCK && wanted > block {
            block *= 2;
        }
        if first + stride > block {
            return Err(too_large);
        }
        let objects = ((block - first) / stride).min(usize::from(u16::MAX) - 1);
        Ok(Layout { stride, block, first, objects, link })
    }

    /// Objects that a sheaf holds at most: some 64 KiB worth of them, between 12 and 512, so that a bulk of 250 small
    /// ones fits, and a sheaf that wanders to another CPU is worth the way.
    pub(crate) fn capacity(&self, layout: &Layout) -> usize {
        match self.sheaf_capacity {
            0 => (64 * 1024 / layout.stride).clamp(12, 512),
            n => n.min(65_536),
        }
    }

    /// Objects that a miss takes out of slabs at once: some 16 KiB worth, between 12 and 252, so that a CPU that needs
    /// a few does not tie up many.
    pub(crate) fn batch(&self, layout: &Layout) -> usize {
        (16 * 1024 / layout.stride).clamp(12, 252).min(self.capacity(layout))
    }
}
