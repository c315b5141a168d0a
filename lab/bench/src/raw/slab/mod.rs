//! Objects allocated and freed by whoever hands them out, in the patterns of the `slab` workload.
//!
//! ```text
//!   patterns   bulk  random  scattered  remote  churn      generic over a Heap: one loop, compiled for each
//!   Heap       what one thread may call                    heaps/: one file for each kind
//!   Source     what all threads share: the cache
//! ```
//!
//! Nothing in the timed loops looks at more than the first and the last object of a group; [`examine`] looks at all, after
//! each sample.

mod bulk;
mod churn;
mod examine;
pub(crate) mod heaps;
mod random;
mod remote;
mod ring;
mod run;
mod scattered;

use std::ptr::NonNull;

use crate::harness::{Fault, Seat, Unfit};

pub(crate) use bulk::{Bulk, Global, Single};
pub(crate) use churn::Churn;
pub(crate) use random::Random;
pub(crate) use remote::{Lanes, Remote};
pub(crate) use run::{Held, Pattern, Run};
pub(crate) use scattered::Scattered;

/// An object, or none. Some heaps name objects by keys instead of addresses: [`Heap::memory`].
pub(crate) type Entry = Option<NonNull<u8>>;

/// What all threads of an arena share.
pub(crate) trait Source: Send + Sync + Sized + 'static {
    /// What one thread sees of it.
    type Heap<'a>: Heap;

    /// A source of objects of `size` bytes for `threads` threads.
    ///
    /// # Errors
    ///
    /// [`Unfit::Missing`] where this cannot be on this machine, [`Unfit::Broken`] if there is no memory.
    fn new(size: usize, threads: usize) -> Result<Self, Unfit>;

    /// The calling thread's. Called for each sample.
    ///
    /// # Errors
    ///
    /// If the thread cannot be made ready.
    fn heap(&self, seat: Seat) -> Result<Self::Heap<'_>, Fault>;

    /// Objects that are not free, if this knows; exact while no thread is busy.
    fn active(&self) -> Option<usize>;
}

/// Where one thread gets its objects.
pub(crate) trait Heap {
    /// What every object's name is a multiple of.
    const ALIGN: usize = 16;

    /// An object, or none if there is no memory.
    fn alloc(&self) -> Entry;

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// It came from a heap of the same source, and nobody uses it any more.
    unsafe fn free(&self, object: NonNull<u8>);

    /// Fills the array, whatever is in it, or returns false and leaves no object allocated. One by one for those who know no
    /// better.
    #[inline(always)]
    fn alloc_bulk(&self, objects: &mut [Entry]) -> bool {
        for i in 0..objects.len() {
            objects[i] = self.alloc();
            if objects[i].is_none() {
                // SAFETY: those before it were allocated just now.
                unsafe { self.free_bulk(&mut objects[..i]) };
                return false;
            }
        }
        true
    }

    /// Frees the objects in the array, and leaves there whatever it likes.
    ///
    /// # Safety
    ///
    /// None of the entries is `None`, and each is as in [`free`](Self::free).
    #[inline(always)]
    unsafe fn free_bulk(&self, objects: &mut [Entry]) {
        for object in objects {
            // SAFETY: passed on.
            unsafe { self.free(object.unwrap_unchecked()) };
        }
    }

    /// Whether `cycles` times `N` objects could be allocated by one call and freed by one, with names that are right. Here
    /// so that a library of inline C functions can do it in C.
    #[inline(always)]
    fn bulk_cycles<const N: usize>(&self, cycles: u64) -> Result<bool, NoMemory> {
        bulk::bulk_cycles::<Self, N>(self, cycles)
    }

    /// The same by a call for each object.
    #[inline(always)]
    fn single_cycles<const N: usize>(&self, cycles: u64) -> Result<bool, NoMemory> {
        bulk::single_cycles::<Self, N>(self, cycles)
    }

    /// The memory of an object that is allocated; none if there is nothing behind its name.
    #[inline(always)]
    fn memory(&self, object: NonNull<u8>) -> Entry {
        Some(object)
    }

    /// The number of the slab that an object lies in, or of its page where there are no slabs.
    #[inline(always)]
    fn slab_of(&self, object: NonNull<u8>) -> usize {
        object.addr().get() >> 12
    }
}

/// An allocation failed.
#[derive(Debug)]
pub(crate) struct NoMemory;

impl From<NoMemory> for Fault {
    fn from(_: NoMemory) -> Self {
        Self::new("no memory for an object")
    }
}

/// What is true of every object, in words.
pub(crate) const RULE: &str = "an object has a name of the right alignment";

/// The bits of an object's name.
#[inline(always)]
fn bits(object: Entry) -> usize {
    object.map_or(0, |object| object.addr().get())
}
