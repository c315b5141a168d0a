//! What general allocators have in common: objects by size, one at a time, called directly and not as the program's
//! global allocator.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::harness::{Fault, Seat, Unfit};
use crate::raw::slab::{Entry, Heap, Source};

/// The two functions of an allocator.
pub(crate) trait Functions: Send + Sync + 'static {
    /// Memory of `size` bytes, aligned to 16, or null.
    fn allocate(size: usize) -> *mut c_void;

    /// Frees it, by the fastest function that this allocator has for that.
    ///
    /// # Safety
    ///
    /// `memory` is from `allocate` with this `size`, and used no more.
    unsafe fn release(memory: *mut c_void, size: usize);
}

/// An allocator as a source of objects of one size.
pub(crate) struct Malloc<F> {
    size: usize,
    functions: PhantomData<F>,
}

impl<F: Functions> Source for Malloc<F> {
    type Heap<'a> = Allocator<F>;

    fn new(size: usize, _threads: usize) -> Result<Self, Unfit> {
        Ok(Self { size, functions: PhantomData })
    }

    fn heap(&self, _seat: Seat) -> Result<Allocator<F>, Fault> {
        Ok(Allocator { size: self.size, functions: PhantomData })
    }

    fn active(&self) -> Option<usize> {
        None
    }
}

pub(crate) struct Allocator<F> {
    size: usize,
    functions: PhantomData<F>,
}

impl<F> Allocator<F> {
    /// Bytes of an object.
    #[cfg(feature = "peer-jemalloc")]
    pub(super) fn new(size: usize) -> Self {
        Self { size, functions: PhantomData }
    }
}

impl<F: Functions> Heap for Allocator<F> {
    #[inline(always)]
    fn alloc(&self) -> Entry {
        NonNull::new(F::allocate(self.size).cast())
    }

    #[inline(always)]
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: passed on; a heap's objects are all of its size.
        unsafe { F::release(object.as_ptr().cast(), self.size) };
    }
}
