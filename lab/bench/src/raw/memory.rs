//! One measurement of memory: see [`crate::memory`].

use std::ptr::NonNull;

use crate::harness::{Fault, Seat, Unfit};
use crate::memory::{Case, Readings, Resident};
use crate::raw::slab::{Entry, Heap, Source};

/// Allocates, writes, frees, purges, and reads before and after each. Every object is found to hold what was written into it
/// before it is freed, in the order in which they were allocated.
///
/// # Errors
///
/// If the source is not to be had, memory runs out, or an object holds something else.
pub(crate) fn measure<S: Source>(case: Case, purge: fn()) -> Result<Readings, Unfit> {
    // Written, so resident, before the first reading.
    let mut objects: Vec<Entry> = vec![Some(NonNull::dangling()); case.objects];
    // Twice: what the reading itself needs is there the second time.
    Resident::now()?;
    let cold = Resident::now()?;
    once::<S>(case.size)?;
    purge();
    let start = Resident::now()?;

    let source = S::new(case.size, 1)?;
    let heap = source.heap(Seat { thread: 0, threads: 1 })?;
    for (number, entry) in objects.iter_mut().enumerate() {
        let object = heap.alloc().ok_or_else(|| Fault::new("no memory for an object"))?;
        let memory = heap.memory(object).ok_or_else(|| Fault::new("an object has no memory"))?;
        // SAFETY: allocated with this size, of at least a number's.
        unsafe {
            memory.write_bytes(0xA5, case.size);
            memory.cast::<usize>().write_unaligned(number);
        }
        *entry = Some(object);
    }
    let full = Resident::now()?;

    for (number, entry) in objects.iter_mut().enumerate() {
        let object = entry.take().ok_or_else(|| Fault::new("an object was lost"))?;
        let memory = heap.memory(object).ok_or_else(|| Fault::new("an object has no memory"))?;
        // SAFETY: written above.
        let found = unsafe { memory.cast::<usize>().read_unaligned() };
        Fault::unless(found == number, || {
            format!("object {number} holds what was written into {found}")
        })?;
        // SAFETY: allocated above, and used no more.
        unsafe { heap.free(object) };
    }
    let freed = Resident::now()?;
    purge();
    let end = Resident::now()?;
    let active = source.active().unwrap_or(0);
    Fault::unless(active == 0, || format!("{active} objects are still allocated"))?;
    Ok(Readings { cold, start, full, freed, end })
}

/// Allocates and frees one object.
fn once<S: Source>(size: usize) -> Result<(), Unfit> {
    let source = S::new(size, 1)?;
    let heap = source.heap(Seat { thread: 0, threads: 1 })?;
    let object = heap.alloc().ok_or_else(|| Fault::new("no memory for an object"))?;
    // SAFETY: allocated above, and not used.
    unsafe { heap.free(object) };
    Ok(())
}

/// The C library's heap gives back what it can.
pub(crate) fn trim_glibc() {
    // SAFETY: may be called at any time.
    unsafe { libc::malloc_trim(0) };
}

/// jemalloc gives back what this thread and all arenas keep.
#[cfg(feature = "peer-jemalloc")]
pub(crate) fn purge_jemalloc() {
    use std::ptr::null_mut;
    // The number that stands for all arenas: MALLCTL_ARENAS_ALL.
    for name in [c"thread.tcache.flush", c"arena.4096.purge"] {
        // SAFETY: names of actions, which take and give nothing.
        let error = unsafe {
            tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0)
        };
        assert_eq!(error, 0, "jemalloc knows {name:?}");
    }
}

/// mimalloc gives back what it can.
#[cfg(feature = "peer-mimalloc")]
pub(crate) fn collect_mimalloc() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc's function, which may be called at any time.
    unsafe { mi_collect(true) };
}
