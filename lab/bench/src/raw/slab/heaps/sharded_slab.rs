//! The crate sharded-slab: objects that are named by numbers.
//!
//! An object's name here is its key, of which 0 is one and all bits are used, plus one. Inserting moves the value in; it is
//! uninitialised, so that the compiler need not copy anything.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use sharded_slab::Slab;

use crate::harness::{Fault, Seat, Unfit};
use crate::raw::slab::{Entry, Heap, Source};

#[repr(C, align(64))]
struct Object<const SIZE: usize>(UnsafeCell<MaybeUninit<[u8; SIZE]>>);

// SAFETY: memory without an owner among the threads: what is in it is changed by whoever has the object allocated.
unsafe impl<const SIZE: usize> Sync for Object<SIZE> {}

/// A slab of objects of `SIZE` bytes: the crate wants to know it when it is compiled.
pub(crate) struct ShardedSlab<const SIZE: usize>(Slab<Object<SIZE>>);

impl<const SIZE: usize> Source for ShardedSlab<SIZE> {
    type Heap<'a> = Sharded<'a, SIZE>;

    fn new(size: usize, _threads: usize) -> Result<Self, Unfit> {
        if size == SIZE {
            Ok(Self(Slab::new()))
        } else {
            Err(Unfit::Missing(format!("compiled for objects of {SIZE} bytes")))
        }
    }

    fn heap(&self, _seat: Seat) -> Result<Sharded<'_, SIZE>, Fault> {
        Ok(Sharded(&self.0))
    }

    fn active(&self) -> Option<usize> {
        None
    }
}

pub(crate) struct Sharded<'a, const SIZE: usize>(&'a Slab<Object<SIZE>>);

fn key(name: NonNull<u8>) -> usize {
    name.addr().get() - 1
}

impl<const SIZE: usize> Heap for Sharded<'_, SIZE> {
    const ALIGN: usize = 1;

    #[inline(always)]
    fn alloc(&self) -> Entry {
        let key = self.0.insert(Object(UnsafeCell::new(MaybeUninit::uninit())))?;
        NonZeroUsize::new(key.wrapping_add(1)).map(NonNull::without_provenance)
    }

    #[inline(always)]
    unsafe fn free(&self, object: NonNull<u8>) {
        self.0.remove(key(object));
    }

    #[inline(always)]
    fn memory(&self, object: NonNull<u8>) -> Entry {
        self.0.get(key(object)).and_then(|entry| NonNull::new(entry.0.get().cast()))
    }

    #[inline(always)]
    fn slab_of(&self, object: NonNull<u8>) -> usize {
        self.memory(object).map_or(0, |memory| memory.addr().get() >> 12)
    }
}
