//! Many objects at once: bulk allocation, bulk free, and detached freelists.
//!
//! A detached freelist is built on the caller's side, in the objects that are being freed, which nobody else can
//! touch; then the whole list goes to its slab by one compare-and-exchange instead of one for each object (Brouer
//! 2015). Objects of one slab tend to lie near each other in the caller's array, so a scan that gives up after a few
//! misses finds most of them.

use crate::cache::RawCache;
use crate::freelist::{Detached, State};
use crate::slab::Slab;
use crate::stats;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::Ordering;

/// Objects of other slabs after which the scan for objects of the same slab ends.
pub const LOOK_AHEAD: usize = 3;

/// An object's place in an array of objects: null once it has been freed.
pub type Entry = Option<NonNull<u8>>;

impl RawCache {
    /// Fills `objects`, all or nothing (`kmem_cache_alloc_bulk`). While the CPU's sheaf has enough, one sequence: for
    /// one or two objects it is as quick to pop them singly.
    ///
    /// Writes no shared line while the CPU's sheaf has enough.
    ///
    /// # Errors
    /// [`AllocError`]: nothing is allocated, and all entries are `None`.
    #[inline(always)]
    pub fn alloc_bulk(&self, objects: &mut [Entry]) -> Result<(), AllocError> {
        let n = objects.len();
        let pop = || NonNull::new(self.sheaves.pop() as *mut u8);
        let got = match objects {
            [one] => {
                *one = pop();
                usize::from(one.is_some())
            }
            [one, two] => {
                *one = pop();
                *two = one.and_then(|_| pop());
                usize::from(one.is_some()) + usize::from(two.is_some())
            }
            // SAFETY: an Entry is a pointer, null for None, so its place is one for a usize.
            _ => unsafe { self.sheaves.pop_many(objects.as_mut_ptr().cast::<usize>(), n) },
        };
        if got == n { Ok(()) } else { self.alloc_bulk_slow(objects, got) }
    }

    #[cold]
    #[inline(never)]
    fn alloc_bulk_slow(&self, objects: &mut [Entry], mut got: usize) -> Result<(), AllocError> {
        objects[got..].fill(None);
        while got < objects.len() {
            // More than a sheaf holds comes straight out of slabs.
            let large = objects.len() - got > self.inner.capacity;
            match if large { Err(AllocError) } else { self.filled_sheaf() } {
                Ok(mut sheaf) => {
                    while got < objects.len() {
                        let Some(object) = sheaf.pop() else { break };
                        objects[got] = NonNull::new(object as *mut u8);
                        got += 1;
                    }
                    if sheaf.is_empty() { self.park(sheaf) } else { self.install(sheaf, false) }
                }
                Err(AllocError) => {
                    let want = objects.len() - got;
                    let filled = self.refill(want, |object| {
                        objects[got] = NonNull::new(object as *mut u8);
                        got += 1;
                    });
                    if filled.is_err() {
                        // SAFETY: they came from this cache just now.
                        unsafe { self.free_bulk(objects) };
                        return Err(AllocError);
                    }
                }
            }
        }
        Ok(())
    }

    /// Frees every object in `objects`, skipping `None`s, and leaves `None` everywhere (`kmem_cache_free_bulk`). An
    /// empty slice is allowed. What the CPU's sheaves have no room for goes to its slabs as detached freelists.
    ///
    /// Writes no shared line while the CPU's sheaf has room.
    ///
    /// # Safety
    /// Each object came from this cache, appears once, and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn free_bulk(&self, objects: &mut [Entry]) {
        if may_have_null(objects) {
            self.free_bulk_compacted(objects);
        } else {
            self.free_bulk_full(objects);
        }
    }

    /// For an array without nulls.
    #[inline(always)]
    fn free_bulk_full(&self, objects: &mut [Entry]) {
        #[cfg(debug_assertions)]
        objects.iter().flatten().for_each(|object| self.check_owner(*object));
        let push = |object: Entry| self.sheaves.push(object.map_or(0, |object| object.as_ptr() as usize));
        let pushed = match *objects {
            [one] => usize::from(push(one)),
            [one, two] => {
                let first = push(one);
                usize::from(first) + usize::from(first && push(two))
            }
            // SAFETY: an Entry is a pointer, so its place is that of a usize.
            _ => unsafe { self.sheaves.push_many(objects.as_ptr().cast::<usize>(), objects.len()) },
        };
        if pushed < objects.len() {
            self.free_bulk_slow(&mut objects[pushed..]);
        }
        objects.fill(None);
    }

    /// Moves the objects to the front of the array first.
    #[cold]
    #[inline(never)]
    fn free_bulk_compacted(&self, objects: &mut [Entry]) {
        let n = compact(objects);
        self.free_bulk_full(&mut objects[..n]);
    }

    #[cold]
    #[inline(never)]
    fn free_bulk_slow(&self, mut objects: &mut [Entry]) {
        while !objects.is_empty() {
            // More than a sheaf holds: no cache would keep it warm.
            let sheaf = if objects.len() > self.inner.capacity { None } else { self.emptied_sheaf() };
            let Some(mut sheaf) = sheaf else {
                let n = objects.len().min(self.inner.capacity);
                let (now, later) = objects.split_at_mut(n);
                // SAFETY: all entries are objects, whose places are those of a usize.
                let now = unsafe { core::slice::from_raw_parts_mut(now.as_mut_ptr().cast::<usize>(), n) };
                self.free_to_slabs(now);
                objects = later;
                continue;
            };
            let n = objects.len().min(sheaf.capacity());
            let (now, later) = objects.split_at_mut(n);
            for object in now.iter().flatten() {
                assert!(sheaf.push(object.as_ptr() as usize), "the sheaf has room for n");
            }
            self.install(sheaf, true);
            objects = later;
        }
    }

    /// Gives objects straight back to their slabs, zeroing the array: one compare-and-exchange for each group of
    /// one slab that the scan finds.
    pub(crate) fn free_to_slabs(&self, objects: &mut [usize]) {
        let mut freed = 0;
        let mut rest = objects;
        while let Some((slab, list, shorter)) = self.detach(rest) {
            freed += i64::from(list.count);
            self.push_to_slab(slab, list);
            rest = &mut rest[..shorter];
        }
        // Relaxed: a statistic.
        self.inner.taken.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Builds a detached freelist of the last object in the array and those of the same slab not far before it,
    /// zeroing their entries. The slab, the list, and how much of the array is left to look at.
    fn detach<'a>(&self, objects: &mut [usize]) -> Option<(&'a Slab, Detached, usize)> {
        let last = objects.iter().rposition(|object| *object != 0)?;
        let block = self.inner.layout.block;
        let first = core::mem::take(&mut objects[last]);
        // SAFETY: it is an object of this cache.
        let slab = unsafe { Slab::of(first, block) };
        let mut list = slab.detach(first);
        let (mut misses, mut end) = (0, last);
        for i in (0..last).rev() {
            let object = objects[i];
            // Nulls are objects of an earlier group.
            if object != 0 {
                if core::ptr::eq((object & !(block - 1)) as *const Slab, slab) {
                    slab.detach_more(&mut list, core::mem::take(&mut objects[i]));
                } else {
                    misses += 1;
                    if misses == LOOK_AHEAD {
                        break;
                    }
                    continue;
                }
            }
            if misses == 0 {
                end = i;
            }
        }
        Some((slab, list, end))
    }

    /// Gives a detached list to its slab; takes the cache's lock only when that makes a full slab partial, or leaves
    /// a slab empty.
    fn push_to_slab(&self, slab: &Slab, list: Detached) {
        self.count(stats::SLAB_SYNC);
        let quiet = slab.push(list, |old, new| old.state != State::Full && new.inuse != 0);
        if quiet.is_none() {
            self.push_to_slab_slow(slab, list);
        }
    }

    #[cold]
    fn push_to_slab_slow(&self, slab: &Slab, list: Detached) {
        let inner = &*self.inner;
        let mut partial = inner.partial.lock();
        let pushed = slab.push(list, |old, new| {
            if old.state == State::Full {
                new.state = State::Partial;
            }
            true
        });
        let (old, new) = pushed.expect("under the lock every change is allowed");
        let slab = NonNull::from(slab);
        let surplus = new.inuse == 0 && new.state == State::Partial;
        // SAFETY: a full slab is on no list and nobody's: whoever changes its state under the lock owns the change.
        // An empty partial slab is on the list, and nobody can take from it while the lock is held.
        unsafe {
            if old.state == State::Full {
                partial.add(slab);
            }
            if surplus && partial.len > inner.options.min_partial {
                partial.remove(slab);
                // Discarding runs hooks and callbacks, which may use the cache: not under the lock.
                drop(partial);
                inner.discard(slab);
            }
        }
    }
}

/// Whether there may be a null: true if there is one, false unless addresses reach the upper half of the address space,
/// where user programs have none. Without a branch for each entry, so that it compiles to vector instructions.
#[inline(always)]
fn may_have_null(objects: &[Entry]) -> bool {
    let address = |object: &Entry| object.map_or(0, |object| object.as_ptr() as usize);
    let below_null = objects.iter().fold(0, |bits, object| bits | address(object).wrapping_sub(1));
    below_null as isize <= -1
}

/// Moves the objects to the front; how many there are.
fn compact(objects: &mut [Entry]) -> usize {
    let mut n = 0;
    for i in 0..objects.len() {
        if let Some(object) = objects[i].take() {
            objects[n] = Some(object);
            n += 1;
        }
    }
    n
}
