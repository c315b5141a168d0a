//! A close look at objects: that they are whole, aligned and apart, and that what is written to one stays there.

use std::hint::black_box;
use std::ptr::NonNull;

use super::{Entry, Heap, NoMemory};
use crate::harness::Fault;

#[cfg(test)]
mod tests;

/// Objects that are looked at: more than a slab of any column holds.
const LOOKED_AT: usize = 300;

/// Allocates objects, in bulk and one by one, looks at them, and frees them in both ways.
///
/// # Errors
///
/// As [`all`]; or if there is no memory.
pub(super) fn fresh<H: Heap>(heap: &H, size: usize) -> Result<(), Fault> {
    let mut objects = vec![None; LOOKED_AT];
    let half = LOOKED_AT / 2;
    if !heap.alloc_bulk(&mut objects[..half]) {
        return Err(NoMemory.into());
    }
    for i in half..LOOKED_AT {
        objects[i] = heap.alloc();
        if objects[i].is_none() {
            // SAFETY: those before it were allocated just now.
            unsafe { heap.free_bulk(&mut objects[..i]) };
            return Err(NoMemory.into());
        }
    }
    // SAFETY: allocated just now.
    let result = unsafe { all(heap, &objects, size) };
    // Each half in the other way than it was allocated.
    for object in objects[..half].iter().flatten() {
        // SAFETY: allocated above, and freed once.
        unsafe { heap.free(*object) };
    }
    // SAFETY: the same.
    unsafe { heap.free_bulk(&mut objects[half..]) };
    result
}

/// Looks at objects of `size` bytes.
///
/// # Errors
///
/// If one is missing, misaligned, overlaps another or lost what was written to it.
///
/// # Safety
///
/// The objects came from this heap and are the caller's; what is in them is lost.
pub(super) unsafe fn all<H: Heap>(heap: &H, objects: &[Entry], size: usize) -> Result<(), Fault> {
    let complete = objects.iter().all(Option::is_some);
    Fault::unless(complete, || "an object is missing".to_owned())?;
    let mut places: Vec<NonNull<u8>> =
        objects.iter().flatten().filter_map(|object| heap.memory(*object)).collect();
    places.sort_unstable();
    let aligned = places.iter().all(|place| place.addr().get().is_multiple_of(16));
    Fault::unless(aligned, || "an object is not aligned to 16".to_owned())?;
    let apart = places.windows(2).all(|pair| pair[1].addr().get() - pair[0].addr().get() >= size);
    Fault::unless(apart, || "two objects overlap".to_owned())?;
    let ends = |place: &NonNull<u8>| {
        [place.as_ptr(), place.as_ptr().wrapping_add(size - size_of::<u64>())]
    };
    for (mark, place) in places.iter().enumerate() {
        for end in ends(place) {
            // SAFETY: the caller's, in the object, which is at least a word long; they may not be aligned to a word.
            unsafe { end.cast::<u64>().write_unaligned(mark as u64) };
        }
    }
    black_box(&places);
    let kept = places.iter().enumerate().all(|(mark, place)| {
        // SAFETY: written above.
        ends(place).iter().all(|end| unsafe { end.cast::<u64>().read_unaligned() } == mark as u64)
    });
    Fault::unless(kept, || "an object lost what was written to it".to_owned())
}
