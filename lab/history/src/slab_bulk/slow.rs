//! The slow paths: a CPU without free objects, an object that goes home, and the lists of slabs behind both.

use quietline_platform::atomic::Ordering;

use super::current::{Current, Detached};
use super::{Counters, KmemCache, NONE, Page};
use crate::errno::Errno;
use crate::queued::QueuedGuard;

// Relaxed, in all of this file: a CPU's words are its thread's own, a list's are under its lock, and a slab's pair is
// confirmed by an exchange.
impl Current<'_> {
    /// `__slab_alloc()`: the CPU's freelist is empty. Takes what was freed into its slab, or one of its partial slabs, or
    /// one of the node's, or a new one. An object; the rest of that list is the CPU's freelist now.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self) -> Result<u64, Errno> {
        let (cache, c) = (self.cache, self.c);
        let list = loop {
            let page = self.cpu_page();
            if page != NONE {
                let list = self.get_freelist(cache.page(page));
                if list != 0 {
                    break list;
                }
                c.page.store(NONE, Ordering::Relaxed);
            }
            let partial = c.partial.load(Ordering::Relaxed);
            if partial == NONE {
                break match self.get_partial() {
                    0 => self.new_slab()?,
                    list => list,
                };
            }
            c.partial.store(cache.page(partial).next.load(Ordering::Relaxed), Ordering::Relaxed);
            c.page.store(partial, Ordering::Relaxed);
        };
        let tid = c.freelist_tid.load().1;
        c.freelist_tid.store((cache.memory.next(list), tid + 1));
        Ok(list)
    }

    /// `get_partial_node()`: the node's first slab becomes the CPU's; some more become its partial slabs. The first one's
    /// freelist, or 0.
    fn get_partial(&self) -> u64 {
        let (cache, c) = (self.cache, self.c);
        let node = &cache.node.0;
        // A hint.
        if node.nr_partial.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let _guard = self.lock_list();
        let (mut list, mut available) = (0, 0);
        loop {
            let number = node.first.load(Ordering::Relaxed);
            if number == NONE || (list != 0 && available > u64::from(cache.cpu_partial) / 2) {
                return list;
            }
            let page = cache.page(number);
            let (free, old) = page.freelist_counters.load();
            let counters = Counters(old);
            let (objects, first) = (counters.objects(), list == 0);
            let inuse = if first { objects } else { counters.inuse() };
            let new = (if first { 0 } else { free }, Counters::new(inuse, objects, true).0);
            // Others may be freeing into the slab: then we take what we have.
            if !self.exchange(page, (free, old), new) {
                if first {
                    continue;
                }
                return list;
            }
            cache.remove_partial(number);
            available += objects - counters.inuse();
            if first {
                list = free;
                c.page.store(number, Ordering::Relaxed);
            } else {
                // The node's lock is held, so nothing may go to the node from here.
                self.put_cpu_partial(number, false);
            }
        }
    }

    /// `new_slab()`: a slab of fresh objects becomes the CPU's. All of them, in the order of their addresses.
    fn new_slab(&self) -> Result<u64, Errno> {
        let cache = self.cache;
        let number = cache.alloc_pages(self.cpu)?;
        self.c.new_slabs.store(self.new_slabs() + 1, Ordering::Relaxed);
        let first = cache.memory.block(number as usize);
        for i in 0..cache.objects {
            let object = first + i * cache.size;
            let last = i + 1 == cache.objects;
            cache.memory.set_next(object, if last { 0 } else { object + cache.size });
        }
        let counters = Counters::new(cache.objects, cache.objects, true);
        cache.page(number).freelist_counters.store((0, counters.0));
        self.c.page.store(number, Ordering::Relaxed);
        Ok(first)
    }

    /// `__slab_free()`: puts a list on the freelist of its slab, which is not this CPU's slab, by one locked exchange.
    #[inline(never)]
    pub(super) fn free_slow(&self, group: Detached) {
        let cache = self.cache;
        let page = cache.page(group.page);
        self.c.free_slowpath.store(self.free_slowpath() + 1, Ordering::Relaxed);
        let mut guard = None;
        loop {
            let (prior, old) = page.freelist_counters.load();
            let counters = Counters(old);
            cache.memory.set_next(group.tail, prior);
            let inuse = counters.inuse().wrapping_sub(group.count) & 0xffff;
            let (was_frozen, was_full) = (counters.frozen(), prior == 0);
            // A full slab becomes one of the CPU's partial slabs; one that becomes empty is the node's business.
            let freeze = was_full && !was_frozen;
            guard = if inuse == 0 && !was_full && !was_frozen {
                guard.or_else(|| Some(self.lock_list()))
            } else {
                None
            };
            let new = Counters::new(inuse, counters.objects(), was_frozen || freeze);
            if !page.freelist_counters.exchange((prior, old), (group.head, new.0)) {
                continue;
            }
            if freeze {
                return self.put_cpu_partial(group.page, true);
            }
            let surplus = cache.node.0.nr_partial.load(Ordering::Relaxed) >= cache.min_partial;
            if guard.is_some() && surplus {
                cache.remove_partial(group.page);
                drop(guard);
                cache.free_pages(self.cpu, group.page);
            }
            return;
        }
    }

    /// `get_freelist()`: takes all that was freed into a CPU's slab, which stops being one if
    /// that is nothing.
    fn get_freelist(&self, page: &Page) -> u64 {
        loop {
            let (free, old) = page.freelist_counters.load();
            let objects = Counters(old).objects();
            let new = Counters::new(objects, objects, free != 0);
            if self.exchange(page, (free, old), (0, new.0)) {
                return free;
            }
        }
    }

    /// `__cmpxchg_double_slab()`: an exchange that the kernel makes with interrupts disabled.
    fn exchange(&self, page: &Page, old: (u64, u64), new: (u64, u64)) -> bool {
        self.c.list_exchanges.store(self.list_exchanges() + 1, Ordering::Relaxed);
        page.freelist_counters.exchange(old, new)
    }

    fn lock_list(&self) -> QueuedGuard<'_> {
        self.c.list_locks.store(self.list_locks() + 1, Ordering::Relaxed);
        self.cache.node.0.list_lock.lock(&self.cache.queue, self.cpu)
    }

    /// `put_cpu_partial()`: a frozen slab becomes one of the CPU's partial slabs. If there are too many, those that were
    /// there go to the node first, unless its lock is held.
    fn put_cpu_partial(&self, number: u32, drain: bool) {
        let (cache, c) = (self.cache, self.c);
        let mut first = c.partial.load(Ordering::Relaxed);
        let mut pobjects =
            if first == NONE { 0 } else { cache.page(first).pobjects.load(Ordering::Relaxed) };
        if drain && pobjects > cache.cpu_partial {
            self.unfreeze_partials();
            (first, pobjects) = (NONE, 0);
        }
        let page = cache.page(number);
        let counters = page.counters();
        let free = (counters.objects() - counters.inuse()) as u32;
        page.pobjects.store(pobjects + free, Ordering::Relaxed);
        page.next.store(first, Ordering::Relaxed);
        c.partial.store(number, Ordering::Relaxed);
    }

    /// `unfreeze_partials()`: gives the CPU's partial slabs to the node, and empty ones, if there are enough, back.
    #[cold]
    fn unfreeze_partials(&self) {
        let (cache, c) = (self.cache, self.c);
        let mut number = c.partial.load(Ordering::Relaxed);
        c.partial.store(NONE, Ordering::Relaxed);
        let mut discard = NONE;
        let guard = self.lock_list();
        while number != NONE {
            let page = cache.page(number);
            let next = page.next.load(Ordering::Relaxed);
            let counters = loop {
                let (free, old) = page.freelist_counters.load();
                let counters = Counters(old);
                let new = Counters::new(counters.inuse(), counters.objects(), false);
                if self.exchange(page, (free, old), (free, new.0)) {
                    break counters;
                }
            };
            if counters.inuse() == 0
                && cache.node.0.nr_partial.load(Ordering::Relaxed) >= cache.min_partial
            {
                page.next.store(discard, Ordering::Relaxed);
                discard = number;
            } else {
                cache.add_partial(number);
            }
            number = next;
        }
        drop(guard);
        while discard != NONE {
            let next = cache.page(discard).next.load(Ordering::Relaxed);
            cache.free_pages(self.cpu, discard);
            discard = next;
        }
    }
}

impl KmemCache {
    /// Puts a slab last on the node's list. The caller holds `list_lock`.
    fn add_partial(&self, number: u32) {
        let node = &self.node.0;
        let last = node.last.load(Ordering::Relaxed);
        self.page(number).next.store(NONE, Ordering::Relaxed);
        self.page(number).prev.store(last, Ordering::Relaxed);
        let link = if last == NONE { &node.first } else { &self.page(last).next };
        link.store(number, Ordering::Relaxed);
        node.last.store(number, Ordering::Relaxed);
        node.nr_partial.store(node.nr_partial.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Takes a slab off the node's list. The caller holds `list_lock`.
    fn remove_partial(&self, number: u32) {
        let (node, page) = (&self.node.0, self.page(number));
        let (next, prev) = (page.next.load(Ordering::Relaxed), page.prev.load(Ordering::Relaxed));
        let forward = if prev == NONE { &node.first } else { &self.page(prev).next };
        forward.store(next, Ordering::Relaxed);
        let backward = if next == NONE { &node.last } else { &self.page(next).prev };
        backward.store(prev, Ordering::Relaxed);
        node.nr_partial.store(node.nr_partial.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// A block that is no slab: the one freed last, or the next of those never used.
    fn alloc_pages(&self, cpu: usize) -> Result<u32, Errno> {
        let zone = &self.zone.0;
        let _guard = zone.lock.lock(&self.queue, cpu);
        let free = zone.free.load(Ordering::Relaxed);
        if free != NONE {
            zone.free.store(self.page(free).next.load(Ordering::Relaxed), Ordering::Relaxed);
            return Ok(free);
        }
        let fresh = zone.fresh.load(Ordering::Relaxed);
        if fresh as usize == self.pages.len() {
            return Err(Errno::ENOMEM);
        }
        zone.fresh.store(fresh + 1, Ordering::Relaxed);
        Ok(fresh)
    }

    /// Gives the block of an empty slab back.
    fn free_pages(&self, cpu: usize, number: u32) {
        let page = self.page(number);
        page.freelist_counters.store((0, 0));
        let _guard = self.zone.0.lock.lock(&self.queue, cpu);
        page.next.store(self.zone.0.free.load(Ordering::Relaxed), Ordering::Relaxed);
        self.zone.0.free.store(number, Ordering::Relaxed);
    }
}
