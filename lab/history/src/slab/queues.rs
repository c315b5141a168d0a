//! SLAB as it was in 2.6.27 (`mm/slab.c`), on one memory node: an array of free objects for each
//! CPU, an array that all CPUs share, and behind them three lists of slabs, all under one lock.
//!
//! ```text
//!   CPU    array: 120 pointers    full: half goes to the shared array, or one by one to the slabs;
//!                                 empty: refilled from there
//!   all    list_lock: the shared array of 480 pointers; the lists of partial, full and free slabs
//! ```
//!
//! While few objects are free the arrays do all the work. RCU frees hundreds of files of each CPU
//! at once. The arrays overflow then, and each object goes to its slab under the lock: that writes
//! the slab's descriptor, both neighbours in the list that it leaves, and the end of the list that
//! it joins. Objects also move between CPUs through the shared array, and then their lines do.
//!
//! Differences from the kernel: the numbers of free objects are links in the objects; there is no
//! slab colouring; empty slabs beyond the limit stay on the list of free ones.

use core::array;

use super::{KmemCache, Object, Page};
use crate::atomic::{AtomicU32, Ordering};
use crate::errno::Errno;
use crate::fdtable::filled;
use crate::percpu::{Current, Line};
use crate::raw::Link;
use crate::ticket::TicketLock;

/// `struct slab` at the beginning of a slab, in bytes.
pub(super) const DESCRIPTOR: usize = 64;
/// Batches that the shared array holds (`cachep->shared`).
const SHARED: usize = 8;

/// `struct array_cache`: pointers to free objects. The last one is handed out next.
#[repr(C, align(64))]
struct ArrayCache<T: Object> {
    avail: AtomicU32,
    entries: Vec<Link<T>>,
}

// Relaxed throughout: an array is its CPU's own, or under the lock.
impl<T: Object> ArrayCache<T> {
    fn new(limit: usize) -> Result<Self, Errno> {
        Ok(Self { avail: AtomicU32::new(0), entries: filled(limit, Link::null)? })
    }

    /// Returns the number of objects.
    fn len(&self) -> usize {
        self.avail.load(Ordering::Relaxed) as usize
    }

    /// Returns the number of free entries.
    fn room(&self) -> usize {
        self.entries.len() - self.len()
    }

    fn pop(&self) -> Option<&T> {
        let last = self.len().checked_sub(1)?;
        self.avail.store(last as u32, Ordering::Relaxed);
        self.entries[last].load()
    }

    fn push(&self, object: &T) {
        let len = self.len();
        self.entries[len].store(Some(object));
        self.avail.store(len as u32 + 1, Ordering::Relaxed);
    }

    /// Removes the `count` objects that were freed first.
    fn remove_first(&self, count: usize) {
        let len = self.len();
        for i in count..len {
            self.entries[i - count].store(self.entries[i].load());
        }
        self.avail.store((len - count) as u32, Ordering::Relaxed);
    }
}

/// A list of slabs: its first and its last one.
#[repr(C)]
struct SlabList<T: Object> {
    first: Link<Page<T>>,
    last: Link<Page<T>>,
}

impl<T: Object> SlabList<T> {
    /// Appends a slab. Writes the list, the slab and the slab that was last.
    fn add_tail(&self, page: &Page<T>) {
        let last = self.last.load();
        page.prev.store(last);
        page.next.store(None);
        last.map_or(&self.first, |last| &last.next).store(Some(page));
        self.last.store(Some(page));
    }

    /// Removes a slab. Writes its neighbours.
    fn remove(&self, page: &Page<T>) {
        let (prev, next) = (page.prev.load(), page.next.load());
        prev.map_or(&self.first, |prev| &prev.next).store(next);
        next.map_or(&self.last, |next| &next.prev).store(prev);
    }
}

/// `struct kmem_list3`: the lists of slabs and their lock.
#[repr(C)]
struct List3<T: Object> {
    list_lock: TicketLock,
    /// [`FULL`], [`PARTIAL`] and [`FREE`] slabs.
    lists: [SlabList<T>; 3],
}

/// Slabs that have none of their objects: all are in use or in arrays.
const FULL: usize = 0;
/// Slabs that have some of their objects.
const PARTIAL: usize = 1;
/// Slabs that have all of their objects.
const FREE: usize = 2;

/// The arrays and lists of one cache.
pub(super) struct Queues<T: Object> {
    objects_per_slab: u32,
    batchcount: usize,
    cpus: Vec<ArrayCache<T>>,
    shared: ArrayCache<T>,
    list3: Line<List3<T>>,
}

impl<T: Object> Queues<T> {
    /// Returns empty queues, with arrays as long as `enable_cpucache()` makes them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(cpus: usize, size: usize, objects_per_slab: usize) -> Result<Self, Errno> {
        let limit: usize = match size {
            1025.. => 24,
            257.. => 54,
            _ => 120,
        };
        let batchcount = limit.div_ceil(2);
        let mut arrays = Vec::new();
        arrays.try_reserve_exact(cpus).map_err(|_| Errno::ENOMEM)?;
        for _cpu in 0..cpus {
            arrays.push(ArrayCache::new(limit)?);
        }
        let list = |_| SlabList { first: Link::null(), last: Link::null() };
        Ok(Self {
            objects_per_slab: objects_per_slab as u32,
            batchcount,
            cpus: arrays,
            shared: ArrayCache::new(SHARED * batchcount)?,
            list3: Line(List3 { list_lock: TicketLock::new(), lists: array::from_fn(list) }),
        })
    }

    /// Gives the shared words their names, for tools that look at lines.
    pub(super) fn name_words(&self) {
        quietline_platform::name_words!(self.list3.0, "kmem_list3");
        quietline_platform::name_words!(self.shared.avail, "shared array_cache");
        quietline_platform::name_words!(self.shared.entries[..], "shared array_cache");
    }

    /// Returns the number of objects in all arrays. Exact while no thread is in a system call.
    pub(super) fn len(&self) -> usize {
        self.cpus.iter().map(ArrayCache::len).sum::<usize>() + self.shared.len()
    }

    /// `kmem_cache_alloc()`. Writes the CPU's own array.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    pub(super) fn alloc<'a>(
        &'a self,
        cache: &'a KmemCache<T>,
        current: Current<'a>,
    ) -> Result<&'a T, Errno> {
        let own = &self.cpus[current.cpu.number];
        match own.pop() {
            Some(object) => Ok(object),
            None => self.refill(cache, current, own),
        }
    }

    /// `kmem_cache_free()`. Writes the CPU's own array.
    #[inline]
    pub(super) fn free(&self, current: Current<'_>, object: &T) {
        let own = &self.cpus[current.cpu.number];
        if own.room() == 0 {
            self.flush(own);
        }
        own.push(object);
    }

    /// `cache_alloc_refill()`: takes a batch from the shared array, from slabs, or from a new slab.
    #[cold]
    fn refill<'a>(
        &'a self,
        cache: &'a KmemCache<T>,
        current: Current<'a>,
        own: &'a ArrayCache<T>,
    ) -> Result<&'a T, Errno> {
        loop {
            {
                let _guard = self.list3.0.list_lock.lock();
                while own.len() < self.batchcount {
                    let Some(object) = self.shared.pop() else { break };
                    own.push(object);
                }
                // Slabs are asked only if the shared array had nothing.
                if own.len() == 0 {
                    self.refill_from_slabs(own);
                }
            }
            if let Some(object) = own.pop() {
                return Ok(object);
            }
            // cache_grow(): outside the lock.
            let page = cache.new_slab(T::cpu_slab(current.cpu))?;
            let _guard = self.list3.0.list_lock.lock();
            self.list3.0.lists[FREE].add_tail(page);
        }
    }

    /// Takes objects of partial and free slabs until the array has a batch. The lock is held.
    fn refill_from_slabs(&self, own: &ArrayCache<T>) {
        let lists = &self.list3.0.lists;
        while own.len() < self.batchcount {
            let first = |list: usize| lists[list].first.load().map(|page| (list, page));
            let Some((list, page)) = first(PARTIAL).or_else(|| first(FREE)) else { return };
            lists[list].remove(page);
            self.take_from(page, own);
            lists[self.list_of(page)].add_tail(page);
        }
    }

    /// Takes objects of a slab until the array has a batch or the slab has none. The lock is held.
    fn take_from(&self, page: &Page<T>, own: &ArrayCache<T>) {
        while own.len() < self.batchcount {
            let Some(object) = page.freelist.load() else { return };
            page.freelist.store(object.slot().free.load());
            page.inuse.store(page.inuse.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            own.push(object);
        }
    }

    /// `cache_flusharray()`: moves a batch of the objects that were freed first to the shared array
    /// as far as that has room, or to the slabs if it is full.
    #[cold]
    fn flush(&self, own: &ArrayCache<T>) {
        let _guard = self.list3.0.list_lock.lock();
        let room = self.shared.room();
        let count = if room == 0 { self.batchcount } else { room.min(self.batchcount) };
        for entry in &own.entries[..count] {
            let object = entry.load().expect("a full array has objects");
            if room == 0 {
                self.free_to_slab(object);
            } else {
                self.shared.push(object);
            }
        }
        own.remove_first(count);
    }

    /// `free_block()`, for one object. The lock is held.
    fn free_to_slab(&self, object: &T) {
        let page = object.slot().page.load().expect("an object is in a slab");
        let lists = &self.list3.0.lists;
        lists[self.list_of(page)].remove(page);
        object.slot().free.store(page.freelist.load());
        page.freelist.store(Some(object));
        page.inuse.store(page.inuse.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        lists[self.list_of(page)].add_tail(page);
    }

    /// Returns which list a slab belongs to. The lock is held.
    fn list_of(&self, page: &Page<T>) -> usize {
        match page.inuse.load(Ordering::Relaxed) {
            0 => FREE,
            n if n == self.objects_per_slab => FULL,
            _ => PARTIAL,
        }
    }
}
