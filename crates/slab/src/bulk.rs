//! Many objects at once: bulk allocation, bulk free, and detached freelists.
//!
//! A detached freelist is built on the caller's side, in the objects that are being freed, which nobody else can
//! touch; then the whole list goes to its slab by one compare-and-exchange instead of one for each object (Brouer
//! 2015). Objects of one slab tend to lie near each other in the caller's array, so a scan that gives up after a few
//! misses finds most of them.

use crate::cache::RawCache;
use crate::debug;
use crate::freelist::{Detached, State};
use crate::inner::Inner;
use crate::slab::Slab;
use crate::stats;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::Ordering;

/// Objects of other slabs after which the scan for objects of the same slab ends, by default.
pub const LOOK_AHEAD: usize = 3;

/// A look-ahead without end: objects of one slab are gathered from the whole array, through a table. For arrays whose order
/// says nothing about slabs; sheaves always go back to their slabs in this way.
pub const GATHER: usize = usize::MAX;

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
        if got == n { Ok(()) } else { self.inner.alloc_bulk_slow(objects, got) }
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
        #[cfg(debug_assertions)]
        objects.iter().flatten().for_each(|object| self.inner.check_owner(*object));
        let push =
            |object: Entry| object.is_none_or(|object| self.sheaves.push(object.as_ptr() as usize));
        let pushed = match *objects {
            [one] => usize::from(push(one)),
            [one, two] => {
                let first = push(one);
                usize::from(first) + usize::from(first && push(two))
            }
            _ => {
                // SAFETY: an Entry is a pointer, null for None, so its place is that of a usize.
                match unsafe {
                    self.sheaves.push_many(objects.as_ptr().cast::<usize>(), objects.len())
                } {
                    Some(pushed) => pushed,
                    None => return self.free_bulk_compacted(objects),
                }
            }
        };
        if pushed < objects.len() {
            self.inner.free_bulk_slow(&mut objects[pushed..]);
        }
        objects.fill(None);
    }

    /// For an array with nulls: moves the objects to the front first.
    #[cold]
    #[inline(never)]
    fn free_bulk_compacted(&self, objects: &mut [Entry]) {
        let n = compact(objects);
        let objects = &mut objects[..n];
        // SAFETY: as in `free_bulk`.
        let pushed =
            unsafe { self.sheaves.push_many(objects.as_ptr().cast::<usize>(), n) }.unwrap_or(0);
        if pushed < n {
            self.inner.free_bulk_slow(&mut objects[pushed..]);
        }
        objects.fill(None);
    }
}

impl Inner {
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_bulk_slow(
        &self,
        objects: &mut [Entry],
        mut got: usize,
    ) -> Result<(), AllocError> {
        objects[got..].fill(None);
        if self.checks.on() {
            return debug::alloc_bulk(self, objects, got);
        }
        while got < objects.len() {
            // More than a sheaf holds comes out of sheaves that are at hand, and then straight out of slabs.
            let many = objects.len() - got > self.knobs.sheaf_capacity();
            match if self.has_sheaves() { self.filled_sheaf(many) } else { Err(AllocError) } {
                Ok(mut sheaf) => {
                    got += sheaf.pop_into(as_addresses(&mut objects[got..]));
                    if sheaf.is_empty() { self.park(sheaf) } else { self.install(sheaf, false) }
                }
                Err(AllocError) => {
                    let want = objects.len() - got;
                    let filled = self.refill(want, |object| {
                        objects[got] = NonNull::new(object as *mut u8);
                        got += 1;
                    });
                    if filled.is_err() {
                        self.free_bulk_slow(&mut objects[..got]);
                        objects.fill(None);
                        return Err(AllocError);
                    }
                }
            }
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn free_bulk_slow(&self, objects: &mut [Entry]) {
        if self.checks.on() {
            return objects
                .iter()
                .flatten()
                .for_each(|object| debug::free(self, object.as_ptr() as usize));
        }
        let n = compact(objects);
        let mut objects = &mut objects[..n];
        while !objects.is_empty() {
            let many = objects.len() > self.knobs.sheaf_capacity();
            let Some((mut sheaf, spare)) = self.roomy_sheaf(many) else {
                return self.free_to_slabs(as_addresses(objects));
            };
            let n = sheaf.extend(as_addresses(objects));
            // A full main sheaf with some more objects in the spare one serves the next bulk of this size; the other way
            // round it would not.
            if spare {
                self.park(sheaf)
            } else {
                self.install(sheaf, true)
            }
            objects = &mut objects[n..];
        }
    }

    /// Gives objects straight back to their slabs, zeroing the array: one compare-and-exchange for each group of
    /// one slab that the scan finds.
    pub(crate) fn free_to_slabs(&self, objects: &mut [usize]) {
        if self.knobs.look_ahead() == GATHER {
            self.gather_to_slabs(objects);
            return objects.fill(0);
        }
        let mut freed = 0;
        let mut rest = objects;
        while let Some((slab, list, shorter)) = self.detach(rest) {
            freed += i64::from(list.count);
            self.push_to_slab(slab, list);
            rest = &mut rest[..shorter];
        }
        // Relaxed: a statistic.
        self.taken.fetch_sub(freed, Ordering::Relaxed);
    }

    /// The same for what may have been freed in any order, a sheaf's content: gathers the objects of one slab from all of
    /// the array, up to `GROUPS` slabs at a time, one compare-and-exchange for each. Leaves the array as it is.
    pub(crate) fn gather_to_slabs(&self, objects: &[usize]) {
        const GROUPS: usize = 64;
        let mut groups: [Option<(&Slab, Detached)>; GROUPS] = [const { None }; GROUPS];
        let mut freed = 0;
        // Nulls are for callers' arrays.
        for &object in objects.iter().filter(|object| **object != 0) {
            freed += 1;
            // SAFETY: it is an object of this cache.
            let slab = unsafe { Slab::of(object) };
            let address = slab as *const Slab as usize;
            // Blocks lie side by side in their regions, so these bits are different ones for neighbours of any size.
            let group = &mut groups[(address >> 12 ^ address >> 18) % GROUPS];
            match group {
                Some((other, list)) if core::ptr::eq(*other, slab) => {
                    slab.detach_more(list, object)
                }
                _ => {
                    if let Some((other, list)) = group.replace((slab, slab.detach(object))) {
                        self.push_to_slab(other, list);
                    }
                }
            }
        }
        for (slab, list) in groups.into_iter().flatten() {
            self.push_to_slab(slab, list);
        }
        // Relaxed: a statistic.
        self.taken.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Builds a detached freelist of the last object in the array and those of the same slab not far before it,
    /// zeroing their entries. The slab, the list, and how much of the array is left to look at.
    fn detach<'a>(&self, objects: &mut [usize]) -> Option<(&'a Slab, Detached, usize)> {
        let last = objects.iter().rposition(|object| *object != 0)?;
        let first = core::mem::take(&mut objects[last]);
        // SAFETY: it is an object of this cache.
        let slab = unsafe { Slab::of(first) };
        let block = slab.layout().block;
        let look_ahead = self.knobs.look_ahead();
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
                    if misses >= look_ahead {
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
        let pushed = slab.push(list, |old, new| old.state != State::Full && new.inuse != 0);
        if pushed.is_none() {
            self.push_to_slab_slow(slab, list);
        }
    }

    #[cold]
    fn push_to_slab_slow(&self, slab: &Slab, list: Detached) {
        let mut partial = self.partial.lock();
        let pushed = slab.push(list, |old, new| {
            if old.state == State::Full {
                new.state = State::Partial;
            }
            true
        });
        let (old, new) = pushed.expect("under the lock every change is allowed");
        let slab = slab.as_raw();
        let surplus =
            new.inuse == 0 && new.state == State::Partial && !self.options.has_destructor();
        // SAFETY: a full slab is on no list and nobody's: whoever changes its state under the lock owns the change.
        // An empty partial slab is on the list, and nobody can take from it while the lock is held.
        unsafe {
            if old.state == State::Full {
                partial.add(slab);
            }
            if surplus && partial.len > self.knobs.min_partial() {
                partial.remove(slab);
                drop(partial);
                self.discard(slab);
            }
        }
    }
}

/// Entries as numbers: addresses, 0 for none.
fn as_addresses(objects: &mut [Entry]) -> &mut [usize] {
    // SAFETY: an Entry is a pointer that is null for None, so the layout is the same, and it may become any non-zero address or
    // none; what is stored here are addresses of objects, and zeros.
    unsafe { core::slice::from_raw_parts_mut(objects.as_mut_ptr().cast::<usize>(), objects.len()) }
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
