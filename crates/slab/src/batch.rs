//! A batch that is a freelist: the free objects of a slab or two, taken by one compare-and-exchange each.
//!
//! The idea is of Brouer and Duyck, in 2015; Lameter added where the count comes from. A bulk
//! allocation that fills an array has to walk the freelist before the caller can touch the first
//! object: a miss for each one that has grown cold. Handing over the list itself costs one locked
//! instruction for a whole slab, the number of objects is known from the slab's word, and the walk
//! happens while the caller works, with the next object on its way into the cache.
//!
//! What it cannot do is give an exact number: a batch has what its slabs have. And it goes past the CPU's sheaf, whose
//! objects are warm: docs/adr/0012-batches.md says, with figures, when an array is the better choice (most often).

use crate::bulk::Entry;
use crate::cache::RawCache;
use crate::freelist::{Links, NONE, State};
use crate::slab::Slab;
use crate::slabs::Slabs;
use crate::stats;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use quietline_platform::{AllocError, hint};

/// Slabs whose objects a batch can hold.
const SLABS: usize = 2;

/// Objects that were taken as they lay on their slabs' lists; see [`RawCache::alloc_batch`]. An iterator over them. Dropping
/// it frees those that are left.
#[derive(Debug)]
pub struct Batch<'a> {
    cache: &'a RawCache,
    lists: [List<'a>; SLABS],
    left: usize,
}

/// What was taken of one slab: a linked part, then a contiguous one.
#[derive(Debug)]
struct List<'a> {
    slab: *const Slab,
    head: u16,
    fresh: Range<u16>,
    of: PhantomData<&'a Slab>,
}

// SAFETY: a batch owns its objects, whose slabs live as long as they are out.
unsafe impl Send for Batch<'_> {}

impl RawCache {
    /// The free objects of one slab, and of a second one if the first has fewer than `want` and memory is there: at least
    /// one object, perhaps fewer than `want`, perhaps more. No sheaf is asked.
    ///
    /// Writes the lock of the cache's partial list and the word of each slab: two locked instructions and a lock for each, for
    /// some dozens to hundreds of objects. O(1); with a constructor, O(objects that were never handed out).
    ///
    /// # Errors
    /// [`AllocError`] when there is no free object and no memory for a slab.
    pub fn alloc_batch(&self, want: usize) -> Result<Batch<'_>, AllocError> {
        let none = || List { slab: core::ptr::null(), head: NONE, fresh: 0..0, of: PhantomData };
        let mut batch = Batch { cache: self, lists: [none(), none()], left: 0 };
        let slabs = self.slabs();
        if slabs.checks.on() {
            // Checked objects come one by one.
            let mut object = 0;
            slabs.take(1, |one| object = one)?;
            // SAFETY: an object that is out.
            let slab = unsafe { Slab::of(object) };
            let index = slab.index_of(object);
            batch.lists[0] = List { slab, head: NONE, fresh: index..index + 1, of: PhantomData };
            batch.left = 1;
            return Ok(batch);
        }
        for list in &mut batch.lists {
            match slabs.take_whole() {
                Ok((taken, count)) => {
                    *list = taken;
                    batch.left += count;
                }
                Err(error) if batch.left == 0 => return Err(error),
                Err(AllocError) => break,
            }
            if batch.left >= want {
                break;
            }
        }
        Ok(batch)
    }
}

impl Slabs {
    fn take_whole<'a>(&self) -> Result<(List<'a>, usize), AllocError> {
        self.count(stats::REFILL);
        let slab = self.frozen_slab()?;
        // SAFETY: a frozen slab lives, and is ours.
        let (popped, fresh) =
            unsafe { slab.as_ref() }.pop(usize::MAX, self.options.ctor, State::Full);
        self.count(stats::SLAB_SYNC);
        let count = usize::from(popped.listed) + fresh.len();
        debug_assert!(count > 0, "a partial slab has free objects");
        // Relaxed: a statistic.
        self.taken.fetch_add(count as i64, Ordering::Relaxed);
        let list = List { slab: slab.as_ptr(), head: popped.head, fresh, of: PhantomData };
        if let Some(first) = list.peek() {
            hint::prefetch(first.as_ptr());
        }
        Ok((list, count))
    }
}

impl List<'_> {
    /// The object that is next.
    #[inline(always)]
    fn peek(&self) -> Option<NonNull<u8>> {
        let index = match self.head {
            NONE if self.fresh.is_empty() => return None,
            NONE => self.fresh.start,
            head => head,
        };
        // SAFETY: a slab lives while objects of it are out, and this one is.
        Some(unsafe { &*self.slab }.object(index))
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let object = self.peek()?;
        if self.head == NONE {
            self.fresh.start += 1;
        } else {
            // SAFETY: as in `peek`; the link is in an object of ours.
            self.head = unsafe { &*self.slab }.next(self.head);
        }
        if let Some(next) = self.peek() {
            hint::prefetch(next.as_ptr());
        }
        Some(object)
    }
}

impl Iterator for Batch<'_> {
    type Item = NonNull<u8>;

    /// The next object, the caller's from now on; the one after it is prefetched.
    #[inline(always)]
    fn next(&mut self) -> Option<NonNull<u8>> {
        let object = match self.lists[0].pop() {
            Some(object) => object,
            None => self.lists[1].pop()?,
        };
        self.left -= 1;
        Some(object)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The number that is left is known from the slabs' words: nothing was counted.
impl ExactSizeIterator for Batch<'_> {}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        const CHUNK: usize = 64;
        while self.left > 0 {
            let mut rest: [Entry; CHUNK] = [None; CHUNK];
            rest.iter_mut().zip(&mut *self).for_each(|(entry, object)| *entry = Some(object));
            // SAFETY: they came from this cache, and nobody has seen them.
            unsafe { self.cache.free_bulk(&mut rest) };
        }
    }
}
