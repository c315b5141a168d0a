//! Heap memory whose exhaustion is an error.

use crate::{AllocError, fault};
use core::alloc::Layout;

/// A boxed `value`, or an error where [`Box::new`] would abort.
///
/// # Errors
/// [`AllocError`] when the heap is exhausted; `value` is dropped.
pub fn try_box<T>(value: T) -> Result<Box<T>, AllocError> {
    fault::check()?;
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: the layout has a size above zero.
    let memory = unsafe { std::alloc::alloc(layout) }.cast::<T>();
    if memory.is_null() {
        return Err(AllocError);
    }
    // SAFETY: the memory is fresh, of T's layout, and Box::from_raw takes memory of the global allocator.
    unsafe {
        memory.write(value);
        Ok(Box::from_raw(memory))
    }
}

/// Makes room in a vector for so many more values, and perhaps others.
///
/// # Errors
/// [`AllocError`] when the heap is exhausted; the vector is as it was.
pub fn try_reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<(), AllocError> {
    if vec.capacity() - vec.len() < more {
        fault::check()?;
        vec.try_reserve(more).map_err(|_| AllocError)?;
    }
    Ok(())
}

/// A boxed slice of `n` values made by `make`.
///
/// # Errors
/// [`AllocError`] when the heap is exhausted.
pub fn try_boxed_slice<T>(n: usize, make: impl FnMut(usize) -> T) -> Result<Box<[T]>, AllocError> {
    fault::check()?;
    let mut v = Vec::new();
    v.try_reserve_exact(n).map_err(|_| AllocError)?;
    v.extend((0..n).map(make));
    Ok(v.into_boxed_slice())
}
