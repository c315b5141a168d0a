//! `slab_bulk_test03`: neighbours in the array that is freed lie in different slabs, the worst case for a detached
//! freelist.
//!
//! Objects wait in a hash by slab; the links are in the objects, so this pattern writes to them, and its time is in large
//! part the hash's.

use std::ptr::NonNull;

use quietline_platform::atomic::AtomicBool;

use super::bulk::aligned;
use super::run::cycle;
use super::{Entry, Heap, NoMemory, Pattern, bits, examine};
use crate::harness::Fault;
use crate::workloads::slab::{HASHED, SCATTERED};

const BUCKETS: usize = 16;
/// Objects of a bucket among which one of a given slab is searched for.
const SEARCHED: usize = 64;

/// The hash, and which neighbours are wanted.
pub(crate) struct Scattered {
    buckets: [Entry; BUCKETS],
    /// Where the last object was taken from.
    bucket: usize,
    /// Every nth object is from the first one's slab; 0 for none.
    every: usize,
    group: [Entry; SCATTERED],
}

/// What an object in the hash begins with.
#[repr(C)]
struct Linked {
    next: Entry,
    name: Entry,
    slab: usize,
}

impl Scattered {
    /// An empty hash. Every `every`th object will be from the first one's slab; none if that is 0.
    pub(crate) fn new(every: usize) -> Self {
        Self { buckets: [None; BUCKETS], bucket: 0, every, group: [None; SCATTERED] }
    }

    #[inline(always)]
    fn insert<H: Heap>(&mut self, heap: &H, object: Entry) {
        let Some(name) = object else { return };
        let slab = heap.slab_of(name);
        let Some(memory) = heap.memory(name).map(NonNull::cast::<Linked>) else { return };
        let bucket = &mut self.buckets[bucket_of(slab)];
        // SAFETY: the object is allocated, this hash's, at least as large as a Linked and aligned to 16.
        unsafe { memory.write(Linked { next: *bucket, name: object, slab }) };
        *bucket = Some(memory.cast());
    }

    /// An object from the next bucket that has one.
    #[inline(always)]
    fn take_next(&mut self) -> Entry {
        for _ in 0..BUCKETS {
            self.bucket = (self.bucket + 1) % BUCKETS;
            if let Some(first) = self.buckets[self.bucket] {
                // SAFETY: objects in the hash begin with a Linked.
                let Linked { next, name, .. } = unsafe { first.cast::<Linked>().read() };
                self.buckets[self.bucket] = next;
                return name;
            }
        }
        None
    }

    /// An object of this slab, if one is found soon.
    #[inline(always)]
    fn take_from(&mut self, slab: usize) -> Entry {
        let mut link: *mut Entry = &raw mut self.buckets[bucket_of(slab)];
        for _ in 0..SEARCHED {
            // SAFETY: `link` is the bucket or the link of an object in it, which begins with a Linked; nobody else
            // changes the hash.
            unsafe {
                let linked = (*link)?.cast::<Linked>().as_ptr();
                if (*linked).slab == slab {
                    *link = (*linked).next;
                    return (*linked).name;
                }
                link = &raw mut (*linked).next;
            }
        }
        None
    }

    #[inline(always)]
    fn round<H: Heap>(&mut self, heap: &H) -> Result<usize, NoMemory> {
        let mut group = self.group;
        if !heap.alloc_bulk(&mut group) {
            return Err(NoMemory);
        }
        for object in group {
            self.insert(heap, object);
        }
        let first = self.take_next();
        let slab = first.map_or(0, |object| heap.slab_of(object));
        group[0] = first;
        for (i, place) in group.iter_mut().enumerate().skip(1) {
            let same = self.every != 0 && i.is_multiple_of(self.every);
            let same = if same { self.take_from(slab) } else { None };
            *place = same.or_else(|| self.take_next());
        }
        let seen = bits(group[0]) | bits(group[SCATTERED - 1]);
        // SAFETY: the hash had more than 64 objects, so each entry is one, allocated by this thread and taken out of the
        // hash.
        unsafe { heap.free_bulk(&mut group) };
        Ok(seen)
    }
}

/// The kernel's `hash_ptr` of the page: a multiplication, of which the upper bits are taken.
#[inline(always)]
fn bucket_of(slab: usize) -> usize {
    ((slab as u64).wrapping_mul(0x61c8_8646_80b5_83eb) >> 60) as usize % BUCKETS
}

impl Pattern for Scattered {
    const HELD: usize = HASHED;

    fn enter<H: Heap>(&mut self, heap: &H) -> Result<(), NoMemory> {
        for _ in 0..HASHED {
            let object = heap.alloc();
            if object.is_none() {
                self.leave(heap);
                return Err(NoMemory);
            }
            self.insert(heap, object);
        }
        Ok(())
    }

    #[inline(always)]
    fn run<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        cycle(SCATTERED as u64, ops, stop, |cycles| {
            let mut seen = 0;
            for _ in 0..cycles {
                seen |= self.round(heap)?;
            }
            Ok(aligned::<H>(seen))
        })
    }

    fn check<H: Heap>(&mut self, heap: &H, size: usize) -> Result<(), Fault> {
        let mut objects = Vec::with_capacity(HASHED);
        while let Some(object) = self.take_next() {
            objects.push(Some(object));
        }
        let count = objects.len();
        // SAFETY: the thread's own, taken out of the hash.
        let result = unsafe { examine::all(heap, &objects, size) };
        objects.into_iter().for_each(|object| self.insert(heap, object));
        Fault::unless(count == HASHED, || {
            format!("{count} objects in the hash instead of {HASHED}")
        })?;
        result
    }

    fn leave<H: Heap>(&mut self, heap: &H) {
        while let Some(object) = self.take_next() {
            // SAFETY: allocated by this thread, and taken out of the hash.
            unsafe { heap.free(object) };
        }
    }
}
