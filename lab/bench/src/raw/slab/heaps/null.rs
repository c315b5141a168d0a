//! No allocator: what the patterns cost that have work of their own, such as a hash or a ring.

use std::cell::{Cell, UnsafeCell};
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use parking_lot::{Mutex, MutexGuard};
use quietline_platform::pages;

use crate::harness::{Fault, Seat, Unfit};
use crate::raw::slab::{Entry, Heap, Source};
use crate::workloads::slab::HASHED;

/// A stack of pointers for each thread, with real memory behind them.
pub(crate) struct Stacks(Vec<Mutex<Stack>>);

/// Objects of one thread: more than any pattern holds.
const OBJECTS: usize = 2 * HASHED;

struct Stack {
    block: NonNull<u8>,
    bytes: usize,
    free: UnsafeCell<Vec<NonNull<u8>>>,
}

// SAFETY: the block is the stack's own.
unsafe impl Send for Stack {}

impl Stack {
    fn new(size: usize) -> Result<Self, Unfit> {
        let stride = size.next_multiple_of(64);
        let bytes = (OBJECTS * stride).next_power_of_two();
        let block =
            pages::alloc(bytes).map_err(|_| Fault::new("no memory for a stack of objects"))?;
        // SAFETY: the objects lie in the block one after the other.
        let free = (0..OBJECTS).rev().map(|i| unsafe { block.add(i * stride) }).collect();
        Ok(Self { block, bytes, free: UnsafeCell::new(free) })
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: allocated with this size.
        unsafe { pages::free(self.block, self.bytes) };
    }
}

impl Source for Stacks {
    type Heap<'a> = Held<'a>;

    fn new(size: usize, threads: usize) -> Result<Self, Unfit> {
        Ok(Self((0..threads).map(|_| Stack::new(size).map(Mutex::new)).collect::<Result<_, _>>()?))
    }

    fn heap(&self, seat: Seat) -> Result<Held<'_>, Fault> {
        Ok(Held(self.0[seat.thread].lock()))
    }

    fn active(&self) -> Option<usize> {
        // SAFETY: locked, and nobody has a reference into it across calls.
        Some(self.0.iter().map(|stack| OBJECTS - unsafe { &*stack.lock().free.get() }.len()).sum())
    }
}

/// A thread's stack for the length of a sample.
pub(crate) struct Held<'a>(MutexGuard<'a, Stack>);

impl Held<'_> {
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    fn free_objects(&self) -> &mut Vec<NonNull<u8>> {
        // SAFETY: the guard is not Sync and no caller keeps the reference beyond one push or pop.
        unsafe { &mut *self.0.free.get() }
    }
}

impl Heap for Held<'_> {
    #[inline(always)]
    fn alloc(&self) -> Entry {
        self.free_objects().pop()
    }

    #[inline(always)]
    unsafe fn free(&self, object: NonNull<u8>) {
        let free = self.free_objects();
        if free.len() < OBJECTS {
            free.push(object);
        }
    }
}

/// Names that are counted up, with nothing behind them; freeing forgets.
pub(crate) struct Count(usize);

impl Source for Count {
    type Heap<'a> = Counting;

    fn new(size: usize, _threads: usize) -> Result<Self, Unfit> {
        Ok(Self(size.next_multiple_of(64)))
    }

    fn heap(&self, seat: Seat) -> Result<Counting, Fault> {
        Ok(Counting { stride: self.0, last: Cell::new((seat.thread + 1) << 40) })
    }

    fn active(&self) -> Option<usize> {
        None
    }
}

pub(crate) struct Counting {
    stride: usize,
    last: Cell<usize>,
}

impl Heap for Counting {
    #[inline(always)]
    fn alloc(&self) -> Entry {
        self.last.set(self.last.get() + self.stride);
        NonZeroUsize::new(self.last.get()).map(NonNull::without_provenance)
    }

    #[inline(always)]
    unsafe fn free(&self, _: NonNull<u8>) {}

    #[inline(always)]
    fn memory(&self, _: NonNull<u8>) -> Entry {
        None
    }
}
