//! SLUB as of Linux 4.2 (`mm/slub.c`) with the bulk calls of Andrew Morton's tree on top, which
//! the thread of 2015 starts from, and the two ways of freeing in bulk that Jesper Brouer
//! proposed there.
//!
//! A CPU has a slab of its own, the *CPU slab*, and a freelist of its objects: allocating from it and freeing into it is
//! one unlocked compare-and-exchange of two words. An object of any other slab goes home by a locked one on the slab's
//! `freelist` and `counters`, one for each object; that is what freeing costs as soon as more objects are out than a slab
//! holds. A *detached freelist* makes it one for each group of objects of the same slab: the group is linked up in
//! the objects themselves, which the freer owns, and then put on the slab's freelist as a whole.
//!
//! ```text
//!   CPU      freelist, tid (unlocked exchange)   slab --> partial slabs of the CPU
//!                                                              |  when they hold more than cpu_partial objects
//!   node     list_lock                           partial slabs of all CPUs
//!   slab     freelist, counters (locked exchange)
//! ```
//!
//! | way of freeing in bulk | what it does |
//! |---|---|
//! | [`free_bulk`](Current::free_bulk) | 4.2: object by object; those of other slabs one locked exchange each |
//! | [`free_bulk_simple`](Current::free_bulk_simple) | objects that follow each other and are of one slab make a group |
//! | [`free_bulk_look_ahead`](Current::free_bulk_look_ahead) | so do objects past up to two of other slabs |
//!
//! # Differences from the kernel
//!
//! * A CPU is a number, held by one thread at a time: [`KmemCache::enter`]. Interrupts are not
//!   disabled, for there are none. In the thread that costs 7 cycles. The old bulk free and the
//!   second patch pay it once a call and once more for each slow path, the third patch only where
//!   it changes the CPU's freelist.
//! * `tid` only counts; nothing migrates. There are no debug flags, no NUMA nodes, no `memcg`, no `gfp` flags.
//! * Slabs are as large as on the seed's machine (8 CPUs): at least 20 objects, at most an eighth
//!   (a sixteenth, if that can be) of the memory left over.
//! * The page allocator is a stack of blocks under a lock, of one mapping, for each cache. It
//!   costs a fraction of the kernel's. [`Current::new_slabs`] counts the slabs that come from it.
//! * `struct page` is found from an object's address by arithmetic, as with `vmemmap`, plus a bounds check.
//! * The safe calls leave `None` in the array in all three ways. The kernel's third way does so
//!   too. The first two leave the array as it is, and so do [`Current::free_bulk_as_is`] and
//!   [`Current::free_bulk_simple_as_is`], which are timed.

mod current;
mod raw;
mod slow;

use core::marker::PhantomData;

use quietline_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quietline_platform::{AllocError, heap};

use crate::errno::Errno;
use crate::percpu::Line;
use crate::queued::{QueueNodes, QueuedLock};
pub use current::Current;
pub use raw::Object;
use raw::{Double, Memory};

const PAGE_SHIFT: u32 = 12;
/// `slub_max_order`.
const MAX_ORDER: u32 = 3;
/// Objects that a slab should hold at least on a machine with 8 CPUs.
const MIN_OBJECTS: usize = 20;
/// `MIN_PARTIAL`: partial slabs of the node that are kept when one of them becomes empty, unless a cache is tuned.
const MIN_PARTIAL: u32 = 5;
/// No slab.
const NONE: u32 = u32::MAX;

/// `struct kmem_cache`.
pub struct KmemCache {
    size: u64,
    objects: u64,
    /// Free objects on a CPU's partial slabs beyond which they go to the node.
    cpu_partial: u32,
    /// Partial slabs of the node beyond which one that becomes empty is given back.
    min_partial: u32,
    memory: Memory,
    pages: Box<[Page]>,
    cpus: Box<[Line<KmemCacheCpu>]>,
    node: Line<KmemCacheNode>,
    zone: Line<Zone>,
    /// Where waiters for the locks queue.
    queue: QueueNodes,
}

/// `struct page` of a slab.
#[repr(C, align(64))]
struct Page {
    /// The slab's free objects, and [`Counters`]. Whoever exchanges them owns the objects that he takes.
    freelist_counters: Double,
    /// The next slab of the list this one is on: a CPU's, the node's, the zone's.
    next: AtomicU32,
    prev: AtomicU32,
    /// Free objects on a CPU's partial slabs from here on, at the time they were put there.
    pobjects: AtomicU32,
}

/// `struct kmem_cache_cpu`, written by the thread on that CPU alone.
struct KmemCacheCpu {
    freelist_tid: Double,
    page: AtomicU32,
    partial: AtomicU32,
    /// `FREE_SLOWPATH`: locked exchanges made to free.
    free_slowpath: AtomicU64,
    /// Times that this CPU took the node's lock.
    list_locks: AtomicU64,
    /// Locked exchanges made to refill the freelist and to move slabs between lists.
    list_exchanges: AtomicU64,
    /// `ALLOC_SLAB`: slabs from the page allocator.
    new_slabs: AtomicU64,
    entered: AtomicBool,
}

/// `struct kmem_cache_node`: slabs with free objects that are no CPU's.
struct KmemCacheNode {
    list_lock: QueuedLock,
    nr_partial: AtomicU32,
    first: AtomicU32,
    last: AtomicU32,
}

/// Blocks of memory that are no slab.
struct Zone {
    lock: QueuedLock,
    free: AtomicU32,
    /// Blocks from this number on were never used.
    fresh: AtomicU32,
}

/// The second word of a slab's pair: objects in use or owned by a CPU, objects in all, whether the slab is a CPU's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counters(u64);

impl Counters {
    fn new(inuse: u64, objects: u64, frozen: bool) -> Self {
        Self(inuse | objects << 16 | u64::from(frozen) << 31)
    }

    fn inuse(self) -> u64 {
        self.0 & 0xffff
    }

    fn objects(self) -> u64 {
        self.0 >> 16 & 0x7fff
    }

    fn frozen(self) -> bool {
        self.0 >> 31 & 1 != 0
    }
}

impl KmemCache {
    /// A cache for objects of `size` bytes, aligned to 64, on `cpus` CPUs, with `memory` bytes for its slabs: 0 or more
    /// than a slab, in all a power of two.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` if no slab of 32 KiB holds such objects, or `memory` is too small or no power of two.
    pub fn new(size: usize, cpus: usize, memory: usize) -> Result<Self, Errno> {
        let size = size.max(1).checked_next_multiple_of(64).ok_or(Errno::EINVAL)?;
        let order = order_of(size).ok_or(Errno::EINVAL)?;
        let block = 1 << (PAGE_SHIFT + order);
        if !memory.is_power_of_two() || memory <= block {
            return Err(Errno::EINVAL);
        }
        let page = |_| Page {
            freelist_counters: Double::new(0, 0),
            next: AtomicU32::new(NONE),
            prev: AtomicU32::new(NONE),
            pobjects: AtomicU32::new(0),
        };
        let cpu = |_| {
            Line(KmemCacheCpu {
                freelist_tid: Double::new(0, 0),
                page: AtomicU32::new(NONE),
                partial: AtomicU32::new(NONE),
                free_slowpath: AtomicU64::new(0),
                list_locks: AtomicU64::new(0),
                list_exchanges: AtomicU64::new(0),
                new_slabs: AtomicU64::new(0),
                entered: AtomicBool::new(false),
            })
        };
        let no_memory = |AllocError| Errno::ENOMEM;
        Ok(Self {
            size: size as u64,
            objects: (block / size) as u64,
            cpu_partial: cpu_partial(size),
            min_partial: MIN_PARTIAL,
            memory: Memory::new(memory, PAGE_SHIFT + order).map_err(no_memory)?,
            pages: heap::try_boxed_slice(memory / block, page).map_err(no_memory)?,
            cpus: heap::try_boxed_slice(cpus, cpu).map_err(no_memory)?,
            node: Line(KmemCacheNode {
                list_lock: QueuedLock::new(),
                nr_partial: AtomicU32::new(0),
                first: AtomicU32::new(NONE),
                last: AtomicU32::new(NONE),
            }),
            zone: Line(Zone {
                lock: QueuedLock::new(),
                free: AtomicU32::new(NONE),
                fresh: AtomicU32::new(0),
            }),
            queue: QueueNodes::new(cpus, false).map_err(no_memory)?,
        })
    }

    /// The cache with other tunables than follow from its size: what `/sys/kernel/slab/NAME/cpu_partial` and `min_partial` change.
    pub fn tuned(self, cpu_partial: u32, min_partial: u32) -> Self {
        Self { cpu_partial, min_partial, ..self }
    }

    /// Makes the calling thread the one on CPU number `cpu`, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such CPU or a thread is on it.
    pub fn enter(&self, cpu: usize) -> Result<Current<'_>, Errno> {
        let c = &self.cpus.get(cpu).ok_or(Errno::EINVAL)?.0;
        // ORDERING: Acquire pairs with the release in `Current::drop`: what the last thread on this CPU did is seen.
        if c.entered.swap(true, Ordering::Acquire) {
            return Err(Errno::EINVAL);
        }
        Ok(Current { cache: self, c, cpu, one_thread: PhantomData })
    }

    /// Objects that a slab holds.
    pub fn objects_per_slab(&self) -> usize {
        self.objects as usize
    }

    /// Bytes of a slab; it is aligned to them.
    pub fn slab_size(&self) -> usize {
        1 << (PAGE_SHIFT + order_of(self.size as usize).unwrap_or(0))
    }

    /// Objects that are not free. Exact while no thread allocates or frees.
    pub fn active(&self) -> usize {
        // Relaxed: whoever asks for an exact count has waited for the threads.
        let made = self.zone.0.fresh.load(Ordering::Relaxed) as usize;
        let inuse =
            self.pages[..made].iter().map(|page| page.counters().inuse() as usize).sum::<usize>();
        let on_cpus =
            self.cpus.iter().map(|cpu| self.length(cpu.0.freelist_tid.load().0)).sum::<usize>();
        inuse - on_cpus
    }

    fn length(&self, mut object: u64) -> usize {
        let mut length = 0;
        while object != 0 {
            object = self.memory.next(object);
            length += 1;
        }
        length
    }

    /// `virt_to_head_page()`.
    ///
    /// # Panics
    ///
    /// If the object is from another cache.
    #[inline(always)]
    fn page_of(&self, object: u64) -> u32 {
        let number = self.memory.block_of(object);
        assert!(number < self.pages.len(), "an object of another cache");
        number as u32
    }

    #[inline(always)]
    fn page(&self, number: u32) -> &Page {
        &self.pages[number as usize]
    }
}

/// The smallest order whose slabs hold enough and waste little (`calculate_order()`).
fn order_of(size: usize) -> Option<u32> {
    let fits = |objects: usize, fraction: usize| {
        (0..=MAX_ORDER).find(|order| {
            let block = 1usize << (PAGE_SHIFT + order);
            block >= objects * size && (block % size) * fraction <= block
        })
    };
    let with = |objects| [16, 8, 4].into_iter().find_map(|fraction| fits(objects, fraction));
    (1..=MIN_OBJECTS).rev().find_map(with)
}

fn cpu_partial(size: usize) -> u32 {
    match size {
        4096.. => 2,
        1024.. => 6,
        256.. => 13,
        _ => 30,
    }
}

impl Page {
    fn counters(&self) -> Counters {
        Counters(self.freelist_counters.load().1)
    }
}
