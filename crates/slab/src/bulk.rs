//! Many objects at once: bulk allocation and bulk free.

use crate::cache::RawCache;
use core::ptr::NonNull;
use quietline_platform::AllocError;

/// Objects of other slabs after which the scan for objects of the same slab ends, by default.
pub const LOOK_AHEAD: usize = 3;

/// A look-ahead without end: objects of one slab are gathered from the whole array, through a table. For arrays whose order
/// says nothing about slabs; sheaves always go back to their slabs in this way.
pub const GATHER: usize = usize::MAX;

/// An object's place in an array of objects: null once it has been freed.
pub type Entry = Option<NonNull<u8>>;

impl RawCache {
    /// Fills `objects`, all or nothing (`kmem_cache_alloc_bulk`). While the CPU's sheaf has enough, one sequence: for
    /// one or two objects it is as quick to pop them singly.
    ///
    /// Writes no shared line while the CPU's sheaf has enough.
    ///
    /// # Errors
    /// [`AllocError`]: nothing is allocated, and all entries are `None`.
    #[inline(always)]
    pub fn alloc_bulk(&self, objects: &mut [Entry]) -> Result<(), AllocError> {
        let n = objects.len();
        let pop = || NonNull::new(self.sheaves.pop() as *mut u8);
        let got = match objects {
            [one] => {
                *one = pop();
                usize::from(one.is_some())
            }
            [one, two] => {
                *one = pop();
                *two = one.and_then(|_| pop());
                usize::from(one.is_some()) + usize::from(two.is_some())
            }
            // SAFETY: an Entry is a pointer, null for None, so its place is one for a usize.
            _ => unsafe { self.sheaves.pop_many(objects.as_mut_ptr().cast::<usize>(), n) },
        };
        if got == n { Ok(()) } else { self.alloc_bulk_slow(objects, got) }
    }

    /// Frees every object in `objects`, skipping `None`s, and leaves `None` everywhere (`kmem_cache_free_bulk`). An
    /// empty slice is allowed. What the CPU's sheaves have no room for goes to its slabs as detached freelists.
    ///
    /// Writes no shared line while the CPU's sheaf has room.
    ///
    /// # Safety
    /// Each object came from this cache, appears once, and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn free_bulk(&self, objects: &mut [Entry]) {
        #[cfg(debug_assertions)]
        objects.iter().flatten().for_each(|object| self.cache.slabs().check_owner(*object));
        let push =
            |object: Entry| object.is_none_or(|object| self.sheaves.push(object.as_ptr() as usize));
        let pushed = match *objects {
            [one] => usize::from(push(one)),
            [one, two] => {
                let first = push(one);
                usize::from(first) + usize::from(first && push(two))
            }
            _ => {
                // SAFETY: an Entry is a pointer, null for None, so its place is that of a usize.
                match unsafe {
                    self.sheaves.push_many(objects.as_ptr().cast::<usize>(), objects.len())
                } {
                    Some(pushed) => pushed,
                    None => return self.free_bulk_compacted(objects),
                }
            }
        };
        if pushed < objects.len() {
            self.free_bulk_slow(&mut objects[pushed..]);
        }
        objects.fill(None);
    }

    /// For an array with nulls: moves the objects to the front first.
    #[cold]
    #[inline(never)]
    fn free_bulk_compacted(&self, objects: &mut [Entry]) {
        let n = compact(objects);
        // SAFETY: as in `free_bulk`.
        unsafe { self.free_bulk(&mut objects[..n]) };
    }

    #[cold]
    #[inline(never)]
    fn alloc_bulk_slow(&self, objects: &mut [Entry], got: usize) -> Result<(), AllocError> {
        objects[got..].fill(None);
        self.cache.cpus.take(objects, got)
    }

    #[cold]
    #[inline(never)]
    fn free_bulk_slow(&self, objects: &mut [Entry]) {
        let n = compact(objects);
        self.cache.cpus.give(as_addresses(&mut objects[..n]), true);
    }
}

/// Entries as numbers: addresses, 0 for none.
pub(crate) fn as_addresses(objects: &mut [Entry]) -> &mut [usize] {
    // SAFETY: an Entry is a pointer that is null for None, so the layout is the same, and it may become any non-zero address or
    // none; what is stored here are addresses of objects, and zeros.
    unsafe { core::slice::from_raw_parts_mut(objects.as_mut_ptr().cast::<usize>(), objects.len()) }
}

/// Moves the objects to the front; how many there are.
fn compact(objects: &mut [Entry]) -> usize {
    let mut n = 0;
    for i in 0..objects.len() {
        if let Some(object) = objects[i].take() {
            objects[n] = Some(object);
            n += 1;
        }
    }
    n
}
