//! `slab_bulk_test01` and `02`: so many allocated, so many freed, by one call or by a call each.

use std::hint::black_box;

use quietline_platform::atomic::AtomicBool;

use super::run::cycle;
use super::{Entry, Heap, NoMemory, Pattern, bits, examine};
use crate::harness::Fault;

/// `N` objects by one call, in an array on the stack; `N` is known when the loop is compiled.
pub(crate) struct Bulk<const N: usize>;

/// `N` objects by a call each.
pub(crate) struct Single<const N: usize>;

/// Objects by one call, in an array on the heap whose length the loop does not know.
pub(crate) struct Global(Vec<Entry>);

impl Global {
    /// So many objects.
    pub(crate) fn new(count: usize) -> Self {
        Self(vec![None; count])
    }
}

impl<const N: usize> Pattern for Bulk<N> {
    #[inline(always)]
    fn run<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        cycle(N as u64, ops, stop, |cycles| heap.bulk_cycles::<N>(cycles))
    }

    fn check<H: Heap>(&mut self, heap: &H, size: usize) -> Result<(), Fault> {
        examine::fresh(heap, size)
    }
}

impl<const N: usize> Pattern for Single<N> {
    #[inline(always)]
    fn run<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        cycle(N as u64, ops, stop, |cycles| heap.single_cycles::<N>(cycles))
    }

    fn check<H: Heap>(&mut self, heap: &H, size: usize) -> Result<(), Fault> {
        examine::fresh(heap, size)
    }
}

impl Pattern for Global {
    #[inline(always)]
    fn run<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let objects = &mut self.0[..];
        cycle(objects.len() as u64, ops, stop, |cycles| {
            let mut seen = 0;
            for _ in 0..cycles {
                if !heap.alloc_bulk(objects) {
                    return Err(NoMemory);
                }
                black_box(&mut *objects);
                seen |= ends(objects);
                // SAFETY: all were allocated just now, and are used no more.
                unsafe { heap.free_bulk(objects) };
            }
            Ok(aligned::<H>(seen))
        })
    }

    fn check<H: Heap>(&mut self, heap: &H, size: usize) -> Result<(), Fault> {
        examine::fresh(heap, size)
    }
}

/// The default of [`Heap::bulk_cycles`].
#[inline(always)]
pub(super) fn bulk_cycles<H: Heap + ?Sized, const N: usize>(
    heap: &H,
    cycles: u64,
) -> Result<bool, NoMemory> {
    let (mut objects, mut seen) = ([None; N], 0);
    for _ in 0..cycles {
        if !heap.alloc_bulk(&mut objects) {
            return Err(NoMemory);
        }
        black_box(&mut objects);
        seen |= ends(&objects);
        // SAFETY: all were allocated just now, and are used no more.
        unsafe { heap.free_bulk(&mut objects) };
    }
    Ok(aligned::<H>(seen))
}

/// The default of [`Heap::single_cycles`].
#[inline(always)]
pub(super) fn single_cycles<H: Heap + ?Sized, const N: usize>(
    heap: &H,
    cycles: u64,
) -> Result<bool, NoMemory> {
    let (mut objects, mut seen) = ([None; N], 0);
    for _ in 0..cycles {
        for i in 0..N {
            objects[i] = heap.alloc();
            if objects[i].is_none() {
                // SAFETY: those before it were allocated just now.
                unsafe { heap.free_bulk(&mut objects[..i]) };
                return Err(NoMemory);
            }
        }
        black_box(&mut objects);
        seen |= ends(&objects);
        for object in &objects {
            // SAFETY: all were allocated just now, and are used no more.
            unsafe { heap.free(object.unwrap_unchecked()) };
        }
    }
    Ok(aligned::<H>(seen))
}

/// The bits of the first and the last name.
#[inline(always)]
fn ends(objects: &[Entry]) -> usize {
    objects.first().map_or(0, |object| bits(*object))
        | objects.last().map_or(0, |object| bits(*object))
}

/// Whether names of which these are all the bits are aligned, and not all null.
#[inline(always)]
pub(super) fn aligned<H: Heap + ?Sized>(seen: usize) -> bool {
    seen != 0 && seen.is_multiple_of(H::ALIGN)
}
