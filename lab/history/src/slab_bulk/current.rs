//! A thread on a CPU: the fast paths, and the three ways of freeing in bulk.

use core::cell::Cell;
use core::marker::PhantomData;

use quietline_platform::atomic::Ordering;

use super::{KmemCache, KmemCacheCpu, Object};
use crate::errno::Errno;

/// Objects of other slabs after which the search for those of one slab ends.
const LOOK_AHEAD: u32 = 3;

/// A thread on a CPU of one cache.
pub struct Current<'a> {
    pub(super) cache: &'a KmemCache,
    pub(super) c: &'a KmemCacheCpu,
    /// The CPU's number.
    pub(super) cpu: usize,
    /// What a CPU owns is used by one thread.
    pub(super) one_thread: PhantomData<Cell<()>>,
}

/// A freelist that is not yet anyone's but the freer's: `struct detached_freelist`.
pub(super) struct Detached {
    pub(super) page: u32,
    pub(super) head: u64,
    pub(super) tail: u64,
    pub(super) count: u64,
}

impl<'a> Current<'a> {
    /// `kmem_cache_alloc()`. On the CPU's own slab: one unlocked exchange.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the cache's memory is used up.
    #[inline(always)]
    pub fn alloc(&self) -> Result<Object<'a>, Errno> {
        let memory = &self.cache.memory;
        loop {
            let (object, tid) = self.c.freelist_tid.load();
            if object == 0 {
                return self.alloc_slow().map(|object| memory.hand_out(object));
            }
            let next = memory.next(object);
            if self.c.freelist_tid.exchange_local((object, tid), (next, tid + 1)) {
                memory.prefetch(next);
                return Ok(memory.hand_out(object));
            }
        }
    }

    /// `kmem_cache_free()`. On the CPU's own slab one unlocked exchange, otherwise a locked one.
    #[inline(always)]
    pub fn free(&self, object: Object<'a>) {
        let object = object.address();
        let page = self.cache.page_of(object);
        if page != self.cpu_page() {
            return self.free_slow(Detached { page, head: object, tail: object, count: 1 });
        }
        loop {
            let (head, tid) = self.c.freelist_tid.load();
            self.cache.memory.set_next(object, head);
            if self.c.freelist_tid.exchange_local((head, tid), (object, tid + 1)) {
                return;
            }
        }
    }

    /// `kmem_cache_alloc_bulk()`: takes the CPU's freelist apart without an exchange.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the cache's memory is used up; then all entries are `None`.
    #[inline]
    pub fn alloc_bulk(&self, objects: &mut [Option<Object<'a>>]) -> Result<(), Errno> {
        let memory = &self.cache.memory;
        let (mut free, tid) = self.c.freelist_tid.load();
        for i in 0..objects.len() {
            let object = if free != 0 {
                let object = free;
                free = memory.next(object);
                object
            } else {
                self.c.freelist_tid.store((0, tid));
                match self.alloc_slow() {
                    Ok(object) => {
                        free = self.c.freelist_tid.load().0;
                        object
                    }
                    Err(error) => {
                        self.free_bulk(&mut objects[..i]);
                        return Err(error);
                    }
                }
            };
            objects[i] = Some(memory.hand_out(object));
        }
        self.c.freelist_tid.store((free, tid + 1));
        Ok(())
    }

    /// `kmem_cache_free_bulk()` of 4.2: one by one, without an exchange for those of the CPU's slab.
    #[inline]
    pub fn free_bulk(&self, objects: &mut [Option<Object<'a>>]) {
        self.free_each(objects.iter_mut().filter_map(Option::take).map(|object| object.address()));
    }

    /// [`free_bulk`](Self::free_bulk) of objects by their addresses.
    #[inline(always)]
    pub(super) fn free_each(&self, objects: impl Iterator<Item = u64>) {
        for object in objects {
            let page = self.cache.page_of(object);
            if page == self.cpu_page() {
                self.push_local(object);
            } else {
                self.c.freelist_tid.count_second();
                self.free_slow(Detached { page, head: object, tail: object, count: 1 });
            }
        }
        self.c.freelist_tid.count_second();
    }

    /// The thread's second patch. A group ends where an object of a third slab comes. Objects of
    /// the CPU's slab do not end it.
    #[inline]
    pub fn free_bulk_simple(&self, objects: &mut [Option<Object<'a>>]) {
        self.free_neighbours(
            objects.iter_mut().filter_map(Option::take).map(|object| object.address()),
        );
    }

    /// [`free_bulk_simple`](Self::free_bulk_simple) of objects by their addresses.
    #[inline(always)]
    pub(super) fn free_neighbours(&self, objects: impl Iterator<Item = u64>) {
        let mut group: Option<Detached> = None;
        for object in objects {
            let page = self.cache.page_of(object);
            match &mut group {
                Some(group) if group.page == page => self.add(group, object),
                _ if page == self.cpu_page() => self.push_local(object),
                _ => {
                    if let Some(last) = group.replace(self.detached(page, object)) {
                        self.c.freelist_tid.count_second();
                        self.free_slow(last);
                    }
                }
            }
        }
        self.c.freelist_tid.count_second();
        group.into_iter().for_each(|last| self.free_slow(last));
    }

    /// Puts an object on the CPU's freelist, as a bulk free does with interrupts disabled for the
    /// whole call: `tid` changes once, at its end.
    #[inline(always)]
    fn push_local(&self, object: u64) {
        let (head, _) = self.c.freelist_tid.load();
        self.cache.memory.set_next(object, head);
        self.c.freelist_tid.store_first(object);
    }

    /// The thread's third patch. The CPU's slab makes groups as well. A search passes two objects
    /// of other slabs, and ends at the third. The next search looks at those two again.
    #[inline]
    pub fn free_bulk_look_ahead(&self, objects: &mut [Option<Object<'a>>]) {
        let mut start = 0;
        while start < objects.len() {
            let (group, next) = self.detach(objects, start);
            start = next;
            let Some(group) = group else { continue };
            if group.page == self.cpu_page() {
                self.free_local(group.head, group.tail);
            } else {
                self.free_slow(group);
            }
        }
    }

    /// `build_detached_freelist()`: the group of the first object from `start` on, and where the next search starts.
    #[inline(always)]
    fn detach(
        &self,
        objects: &mut [Option<Object<'a>>],
        mut start: usize,
    ) -> (Option<Detached>, usize) {
        let mut first = None;
        while first.is_none() && start < objects.len() {
            first = objects[start].take();
            start += 1;
        }
        let Some(first) = first else { return (None, start) };
        let mut group = self.detached(self.cache.page_of(first.address()), first.address());
        let (mut strangers, mut passed) = (0, 0);
        for entry in &mut objects[start..] {
            let Some(object) = entry.as_ref().map(Object::address) else { continue };
            if self.cache.page_of(object) == group.page {
                self.add(&mut group, object);
                *entry = None;
                passed += usize::from(strangers == 0);
            } else {
                strangers += 1;
                if strangers >= LOOK_AHEAD {
                    break;
                }
            }
        }
        (Some(group), start + passed)
    }

    /// A group of one object.
    #[inline(always)]
    fn detached(&self, page: u32, object: u64) -> Detached {
        self.cache.memory.set_next(object, 0);
        Detached { page, head: object, tail: object, count: 1 }
    }

    #[inline(always)]
    fn add(&self, group: &mut Detached, object: u64) {
        self.cache.memory.set_next(object, group.head);
        group.head = object;
        group.count += 1;
    }

    /// Puts a list on the CPU's freelist, as it is done with interrupts disabled.
    #[inline(always)]
    fn free_local(&self, head: u64, tail: u64) {
        let (free, tid) = self.c.freelist_tid.load();
        self.cache.memory.set_next(tail, free);
        self.c.freelist_tid.store((head, tid + 1));
    }

    /// Locked exchanges that frees on this CPU have made (`FREE_SLOWPATH`).
    pub fn free_slowpath(&self) -> u64 {
        // Relaxed: the CPU's own.
        self.c.free_slowpath.load(Ordering::Relaxed)
    }

    /// Returns the number of locked exchanges that this CPU has made to refill its freelist and to
    /// move slabs between lists. The kernel makes them with interrupts disabled, in
    /// `__cmpxchg_double_slab()`.
    pub fn list_exchanges(&self) -> u64 {
        // Relaxed: the CPU's own.
        self.c.list_exchanges.load(Ordering::Relaxed)
    }

    /// Returns the number of slabs that this CPU has had from the page allocator.
    pub fn new_slabs(&self) -> u64 {
        // Relaxed: the CPU's own.
        self.c.new_slabs.load(Ordering::Relaxed)
    }

    /// Times that this CPU has taken the lock of the node's list of partial slabs.
    pub fn list_locks(&self) -> u64 {
        // Relaxed: the CPU's own.
        self.c.list_locks.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn cpu_page(&self) -> u32 {
        // Relaxed: the CPU's own; so for all of its words.
        self.c.page.load(Ordering::Relaxed)
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire in `enter`.
        self.c.entered.store(false, Ordering::Release);
    }
}
