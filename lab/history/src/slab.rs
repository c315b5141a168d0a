//! SLUB as it was in 2.6.27 (`mm/slub.c`): a freelist per CPU, and behind it one list of partial slabs under
//! a lock. A kernel can be built with SLAB instead: [`queues`].
//!
//! An object freed on the CPU whose current slab it came from goes on that CPU's freelist and is the next to
//! be handed out: no lock, and warm. Any other takes its slab's lock, and where the slab was full or becomes
//! empty, the `list_lock` that all CPUs share. Objects freed in bulk and late, as `call_rcu()` does, are
//! mostly of the second kind.
//!
//! Differences from the kernel: `page` is found by a word in the object rather than from its address, and
//! pages given back are kept for the cache they came from.

mod queues;

use core::ptr;

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::build::{Allocator, Build, MAX_ORDER};
use crate::errno::Errno;
use crate::ledger::{Entry, Ledger};
use crate::percpu::{Cpu, Current, Line};
use crate::raw::{Arena, Link, Resident};
use crate::rcupdate::RcuHead;
use crate::ticket::{TicketGuard, TicketLock};
use queues::Queues;

const PAGE_SIZE: usize = 4096;
/// Free pages that a CPU keeps to itself (`pcp->high`).
const PCP_HIGH: u32 = 64;

/// A type that has a cache.
pub(crate) trait Object: Resident + Sized {
    /// The cache's name in `/proc/slabinfo`.
    const NAME: &'static str;

    /// An object as its slab is made with it.
    fn new() -> Self;

    /// The allocator's words in the object.
    fn slot(&self) -> &Slot<Self>;

    /// The CPU's part of the cache.
    fn cpu_slab(cpu: &Cpu) -> &KmemCacheCpu<Self>;

    /// Gives the words of the object their names, for whoever looks at lines.
    fn name_words(&self);

    /// What to do with a slab of a type-safe cache that has become empty: wait, then `KmemCache::free_pages`.
    fn rcu_free_slab<'a>(current: Current<'a>, page: &'a Page<Self>);
}

/// The allocator's words in an object: its slab, and the next free object while it is free.
#[repr(C)]
pub(crate) struct Slot<T: Resident + Object> {
    page: Link<Page<T>>,
    free: Link<T>,
}

impl<T: Object> Slot<T> {
    /// The words of an object that is in no slab yet.
    pub(crate) fn new() -> Self {
        Self { page: Link::null(), free: Link::null() }
    }
}

/// `struct page` of a slab.
#[repr(C, align(64))]
pub(crate) struct Page<T: Object> {
    /// `slab_lock()`, a bit of `page->flags` in the kernel.
    slab_lock: TicketLock,
    /// Not 0 while the slab belongs to a CPU, and so is on no list.
    frozen: AtomicU32,
    /// Objects that are in use or on a CPU's freelist.
    inuse: AtomicU32,
    freelist: Link<T>,
    /// Place in the partial list, under its `list_lock`; `next` also links free pages.
    next: Link<Page<T>>,
    prev: Link<Page<T>>,
    pub(crate) rcu_head: RcuHead,
    objects: Vec<T>,
    _entry: Entry,
}

/// `struct kmem_cache_cpu`: what one CPU allocates from. Written by that CPU alone.
#[repr(C)]
pub(crate) struct KmemCacheCpu<T: Object> {
    freelist: Link<T>,
    page: Link<Page<T>>,
    /// The CPU's hot free pages.
    pcp: Link<Page<T>>,
    pcp_count: AtomicU32,
}

impl<T: Object> KmemCacheCpu<T> {
    /// A CPU's part with nothing in it.
    pub(crate) fn new() -> Self {
        Self {
            freelist: Link::null(),
            page: Link::null(),
            pcp: Link::null(),
            pcp_count: AtomicU32::new(0),
        }
    }
}

/// `struct kmem_cache_node`: the slabs that are neither full nor a CPU's.
#[repr(C)]
pub(crate) struct KmemCacheNode<T: Object> {
    list_lock: TicketLock,
    nr_partial: AtomicU64,
    first: Link<Page<T>>,
    last: Link<Page<T>>,
}

/// Free pages that are no CPU's own.
#[repr(C)]
pub(crate) struct Zone<T: Object> {
    lock: TicketLock,
    free: Link<Page<T>>,
}

/// `struct kmem_cache`.
pub(crate) struct KmemCache<T: Object> {
    objects_per_slab: usize,
    /// A slab is one page: CPUs keep some of these. Larger blocks go to the zone and come from
    /// there.
    has_hot_pages: bool,
    /// SLAB's arrays and lists, in a kernel with SLAB.
    queues: Option<Queues<T>>,
    /// `SLAB_DESTROY_BY_RCU`: an empty slab is given back only after a grace period.
    destroy_by_rcu: bool,
    ledger: Ledger,
    slabs: Arena<Page<T>>,
    pub(crate) node: Line<KmemCacheNode<T>>,
    zone: Line<Zone<T>>,
}

/// What `/proc/slabinfo` says of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabInfo {
    /// The cache's name.
    pub name: &'static str,
    /// Objects in use, those that wait for a grace period among them.
    pub active_objs: usize,
    /// Objects that there is memory for.
    pub num_objs: usize,
    /// Slabs that there is memory for.
    pub num_slabs: usize,
}

impl<T: Object> KmemCache<T> {
    /// `kmem_cache_create()`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        build: &Build,
        cpus: usize,
        destroy_by_rcu: bool,
        ledger: &Ledger,
    ) -> Result<Self, Errno> {
        let (objects_per_slab, queues) = match build.allocator {
            Allocator::Slub => {
                ((PAGE_SIZE << slub_order(size_of::<T>(), cpus, build)) / size_of::<T>(), None)
            }
            Allocator::Slab => {
                // One page. It begins with the slab's descriptor and a number for each object.
                let objects =
                    (PAGE_SIZE - queues::DESCRIPTOR) / (size_of::<T>() + size_of::<u32>());
                (objects, Some(Queues::new(cpus + 1, size_of::<T>(), objects)?))
            }
        };
        let node = KmemCacheNode {
            list_lock: TicketLock::new(),
            nr_partial: AtomicU64::new(0),
            first: Link::null(),
            last: Link::null(),
        };
        Ok(Self {
            objects_per_slab,
            has_hot_pages: objects_per_slab * size_of::<T>() <= PAGE_SIZE,
            queues,
            destroy_by_rcu,
            ledger: ledger.clone(),
            slabs: Arena::new(),
            node: Line(node),
            zone: Line(Zone { lock: TicketLock::new(), free: Link::null() }),
        })
    }

    /// `kmem_cache_alloc()`. Writes the CPU's own line.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    pub(crate) fn alloc<'a>(&'a self, current: Current<'a>) -> Result<&'a T, Errno> {
        if let Some(queues) = &self.queues {
            return queues.alloc(self, current);
        }
        let c = T::cpu_slab(current.cpu);
        match c.freelist.load() {
            Some(object) => {
                c.freelist.store(object.slot().free.load());
                Ok(object)
            }
            None => self.alloc_slow(c),
        }
    }

    /// `kmem_cache_free()`. Writes the object and the CPU's own line if the object's slab is the CPU's
    /// current one.
    #[inline]
    pub(crate) fn free<'a>(&'a self, current: Current<'a>, object: &'a T) {
        if let Some(queues) = &self.queues {
            return queues.free(current, object);
        }
        let c = T::cpu_slab(current.cpu);
        let page = object.slot().page.load();
        if ptr::eq(link_address(page), link_address(c.page.load())) {
            object.slot().free.store(c.freelist.load());
            c.freelist.store(Some(object));
        } else {
            self.free_slow(current, page.expect("an object is in a slab"), object);
        }
    }

    /// `__slab_alloc()`: the CPU's slab is used up. Takes what others freed into it, or a partial slab, or a
    /// new one.
    #[cold]
    fn alloc_slow<'a>(&'a self, c: &'a KmemCacheCpu<T>) -> Result<&'a T, Errno> {
        loop {
            if let Some(page) = c.page.load() {
                let guard = page.slab_lock.lock();
                // Relaxed, here and below: a slab's counts are under its lock.
                if let Some(object) = page.freelist.load() {
                    c.freelist.store(object.slot().free.load());
                    page.inuse.store(page.objects.len() as u32, Ordering::Relaxed);
                    page.freelist.store(None);
                    return Ok(object);
                }
                // deactivate_slab(): every object is in use, so the slab goes on no list.
                c.page.store(None);
                page.frozen.store(0, Ordering::Relaxed);
                drop(guard);
            }
            let page = match self.get_partial() {
                Some(page) => page,
                None => self.new_slab(c)?,
            };
            c.page.store(Some(page));
        }
    }

    /// `__slab_free()`: the object's slab is not this CPU's.
    #[cold]
    fn free_slow<'a>(&'a self, current: Current<'a>, page: &'a Page<T>, object: &'a T) {
        let guard = page.slab_lock.lock();
        let prior = page.freelist.load();
        object.slot().free.store(prior);
        page.freelist.store(Some(object));
        let inuse = page.inuse.load(Ordering::Relaxed) - 1;
        page.inuse.store(inuse, Ordering::Relaxed);
        if page.frozen.load(Ordering::Relaxed) != 0 {
            return;
        }
        if inuse == 0 {
            if prior.is_some() {
                self.remove_partial(page);
            }
            drop(guard);
            self.discard_slab(current, page);
        } else if prior.is_none() {
            self.add_partial(page);
        }
    }

    /// `get_partial()`: the first partial slab that no one is freeing into, frozen.
    fn get_partial(&self) -> Option<&Page<T>> {
        let node = &self.node.0;
        // Relaxed: a hint; a slab that is missed stays for the next.
        if node.nr_partial.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let list_guard = node.list_lock.lock();
        let mut candidate = node.first.load();
        while let Some(page) = candidate {
            // The order elsewhere is slab, then list: so only try.
            if let Some(_guard) = page.slab_lock.try_lock() {
                self.unlink(&list_guard, page);
                page.frozen.store(1, Ordering::Relaxed);
                return Some(page);
            }
            candidate = page.next.load();
        }
        None
    }

    /// `add_partial()`, at the tail. The slab's lock is held. Writes the node's line, and the last slab's.
    fn add_partial(&self, page: &Page<T>) {
        let node = &self.node.0;
        let _guard = node.list_lock.lock();
        let last = node.last.load();
        page.prev.store(last);
        page.next.store(None);
        last.map_or(&node.first, |last| &last.next).store(Some(page));
        node.last.store(Some(page));
        node.nr_partial.store(node.nr_partial.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// `remove_partial()`. The slab's lock is held.
    fn remove_partial(&self, page: &Page<T>) {
        let guard = self.node.0.list_lock.lock();
        self.unlink(&guard, page);
    }

    fn unlink(&self, _list_lock: &TicketGuard<'_>, page: &Page<T>) {
        let node = &self.node.0;
        let (prev, next) = (page.prev.load(), page.next.load());
        prev.map_or(&node.first, |prev| &prev.next).store(next);
        next.map_or(&node.last, |next| &next.prev).store(prev);
        node.nr_partial.store(node.nr_partial.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// `new_slab()`: a page for the CPU, all its objects free.
    fn new_slab<'a>(&'a self, c: &'a KmemCacheCpu<T>) -> Result<&'a Page<T>, Errno> {
        let page = self.alloc_pages(c)?;
        let _guard = page.slab_lock.lock();
        let mut next = None;
        for object in page.objects.iter().rev() {
            object.slot().page.store(Some(page));
            object.slot().free.store(next);
            next = Some(object);
        }
        page.freelist.store(next);
        page.inuse.store(0, Ordering::Relaxed);
        page.frozen.store(1, Ordering::Relaxed);
        Ok(page)
    }

    /// `discard_slab()`: gives the page back, after a grace period where readers may still look at its
    /// objects.
    fn discard_slab<'a>(&'a self, current: Current<'a>, page: &'a Page<T>) {
        if self.destroy_by_rcu {
            T::rcu_free_slab(current, page);
        } else {
            self.free_pages(current, page);
        }
    }

    fn alloc_pages<'a>(&'a self, c: &'a KmemCacheCpu<T>) -> Result<&'a Page<T>, Errno> {
        if let Some(page) = c.pcp.load().filter(|_| self.has_hot_pages) {
            c.pcp.store(page.next.load());
            c.pcp_count.store(c.pcp_count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
            return Ok(page);
        }
        let zone = &self.zone.0;
        {
            let _guard = zone.lock.lock();
            if let Some(page) = zone.free.load() {
                zone.free.store(page.next.load());
                return Ok(page);
            }
        }
        self.grow()
    }

    /// `__free_pages()`: the page goes to the CPU's hot pages, or past its share of these to all.
    pub(crate) fn free_pages<'a>(&'a self, current: Current<'a>, page: &'a Page<T>) {
        let c = T::cpu_slab(current.cpu);
        let count = c.pcp_count.load(Ordering::Relaxed);
        if self.has_hot_pages && count < PCP_HIGH {
            page.next.store(c.pcp.load());
            c.pcp.store(Some(page));
            c.pcp_count.store(count + 1, Ordering::Relaxed);
        } else {
            let zone = &self.zone.0;
            let _guard = zone.lock.lock();
            page.next.store(zone.free.load());
            zone.free.store(Some(page));
        }
    }

    #[cold]
    fn grow(&self) -> Result<&Page<T>, Errno> {
        let mut objects = Vec::new();
        objects.try_reserve_exact(self.objects_per_slab).map_err(|_| Errno::ENOMEM)?;
        objects.extend((0..self.objects_per_slab).map(|_| T::new()));
        let page = self.slabs.put(Page {
            slab_lock: TicketLock::new(),
            frozen: AtomicU32::new(0),
            inuse: AtomicU32::new(0),
            freelist: Link::null(),
            next: Link::null(),
            prev: Link::null(),
            rcu_head: RcuHead::new(),
            objects,
            _entry: self.ledger.enter(),
        })?;
        quietline_platform::name_words!(self.zone.0, "zone");
        self.queues.iter().for_each(Queues::name_words);
        quietline_platform::name_words!(*page => "page" { slab_lock, frozen, inuse, freelist, next, prev, rcu_head });
        page.objects.iter().for_each(T::name_words);
        Ok(page)
    }

    /// Counts the cache's objects; exact while no other thread is in a system call.
    pub(crate) fn slabinfo(&self, cpus: &[Cpu]) -> SlabInfo {
        let mut info = SlabInfo { name: T::NAME, active_objs: 0, num_objs: 0, num_slabs: 0 };
        self.slabs.for_each(|page| {
            info.num_slabs += 1;
            info.num_objs += page.objects.len();
            info.active_objs += page.inuse.load(Ordering::Relaxed) as usize;
        });
        if let Some(queues) = &self.queues {
            info.active_objs -= queues.len();
            return info;
        }
        for cpu in cpus {
            let mut free = T::cpu_slab(cpu).freelist.load();
            while let Some(object) = free {
                info.active_objs -= 1;
                free = object.slot().free.load();
            }
        }
        info
    }
}

fn link_address<T>(link: Option<&T>) -> *const T {
    link.map_or(ptr::null(), ptr::from_ref)
}

/// `calculate_order()`: the page order of a slab, so that there are enough objects and at most a
/// 16th is wasted, if it can be.
pub(crate) fn slub_order(size: usize, cpus: usize, build: &Build) -> u32 {
    let fls = (usize::BITS - cpus.leading_zeros()) as usize;
    let mut min_objects = match build.slub_min_objects {
        0 => 4 * (fls + 1),
        objects => objects,
    };
    while min_objects > 1 {
        for fraction in [16, 8, 4] {
            for order in build.slub_min_order..=MAX_ORDER {
                let bytes = PAGE_SIZE << order;
                if bytes >= min_objects * size && bytes % size <= bytes / fraction {
                    return order;
                }
            }
        }
        min_objects /= 2;
    }
    MAX_ORDER
}
