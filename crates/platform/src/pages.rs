//! Aligned blocks of pages, from `mmap`, given back by `munmap` and `madvise`.
//!
//! A block is a power of two from 4 KiB to 64 KiB, aligned to its own size, so that the block of an
//! object is found by masking the object's address. Blocks of one size are carved from 2 MiB regions;
//! the first block of a region holds the region's bookkeeping. From the second region of a size on,
//! the kernel is asked for huge pages. A region whose blocks are all free goes back to the system. One
//! region of each size stays: its addresses stay mapped, its memory goes back, and it takes no huge
//! page again. Larger sizes are mapped one by one.
//!
//! A [map](block_of) of the address space has the size of each region's blocks, in one byte for each
//! region. So the block of any address is found without knowledge of its owner.
//!
//! This is the slow path below the slow path: one lock per size.

mod map;
#[cfg_attr(miri, path = "pages/mapping_miri.rs")]
mod mapping;

// Not the back end's: they are written under a lock that the simulated machine knows nothing of.
use crate::{AllocError, fault};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use mapping::{advise_huge, map_aligned, map_file_over, unmap};
use std::sync::{Mutex, MutexGuard};

/// The size of the smallest block. The machine's pages may be larger.
pub const PAGE_SIZE: usize = 4096;

const REGION: usize = 2 << 20;
const LARGEST_CARVED: usize = 64 << 10;
pub(crate) const CLASSES: usize = (LARGEST_CARVED / PAGE_SIZE).ilog2() as usize + 1;

/// Bookkeeping of a region, in its first block.
#[repr(C)]
struct Region {
    next: *mut Region,
    prev: *mut Region,
    free: usize,
    /// Whether the region may lie in a huge page.
    huge: bool,
    /// One bit for each block: free.
    vacant: [u64; REGION / PAGE_SIZE / 64],
}

/// The regions of one block size.
pub(crate) struct Class {
    /// Regions with at least one free block; full regions are on no list.
    open: *mut Region,
    regions: usize,
}

// SAFETY: the pointers are only followed under the class's lock.
unsafe impl Send for Class {}

static CLASS: [Mutex<Class>; CLASSES] =
    [const { Mutex::new(Class { open: ptr::null_mut(), regions: 0 }) }; CLASSES];

fn lock(class: usize) -> MutexGuard<'static, Class> {
    CLASS[class].lock().unwrap_or_else(|e| e.into_inner())
}

/// Takes all locks, for a `fork`.
pub(crate) fn lock_all() -> [MutexGuard<'static, Class>; CLASSES] {
    core::array::from_fn(lock)
}

/// Memory that the page allocator holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of address space mapped for carved blocks.
    pub mapped: usize,
    /// Bytes in blocks that are in use.
    pub used: usize,
}

/// Bytes in blocks that are in use. Changed under a class's lock, so no dearer line than that.
static USED: AtomicUsize = AtomicUsize::new(0);

/// [`Usage::used`], by one load.
pub fn used() -> usize {
    // Relaxed: a statistic.
    USED.load(Ordering::Relaxed)
}

/// What all carved sizes together hold now.
pub fn usage() -> Usage {
    let regions: usize = (0..CLASSES).map(|class| lock(class).regions).sum();
    Usage { mapped: regions * REGION, used: used() }
}

fn class_of(size: usize) -> usize {
    assert!(
        size.is_power_of_two() && size >= PAGE_SIZE,
        "a block is a power of two of at least a page"
    );
    (size / PAGE_SIZE).ilog2() as usize
}

/// A block of `size` bytes, aligned to `size`. Its content is unspecified: zero or a former
/// block's. Its provenance is exposed: a pointer to all of it can be made from its address.
///
/// # Errors
/// [`AllocError`] when the system gives no memory.
///
/// # Panics
/// When `size` is not a power of two or below [`PAGE_SIZE`].
pub fn alloc(size: usize) -> Result<NonNull<u8>, AllocError> {
    let class = class_of(size);
    fault::check()?;
    if class >= CLASSES {
        let block = map_aligned(size, size)?;
        block.as_ptr().expose_provenance();
        return Ok(block);
    }
    crate::fork::watch();
    let mut c = lock(class);
    if c.open.is_null() {
        let region = map_aligned(REGION, REGION)?.cast::<Region>();
        if map::enter(region.as_ptr().expose_provenance(), class).is_err() {
            // SAFETY: just mapped, and nobody else knows it.
            unsafe { unmap(region.cast(), REGION) };
            return Err(AllocError);
        }
        let huge = c.regions > 0;
        // SAFETY: the mapping is ours.
        unsafe { advise_huge(region.cast(), REGION, huge) };
        let blocks = REGION / size;
        // SAFETY: a fresh, zeroed mapping, larger and more aligned than Region; block 0 stays taken.
        unsafe {
            let r = region.as_ptr();
            for block in 1..blocks {
                (*r).vacant[block / 64] |= 1 << (block % 64);
            }
            (*r).free = blocks - 1;
            (*r).huge = huge;
        }
        c.regions += 1;
        c.link(region.as_ptr());
    }
    let r = c.open;
    // SAFETY: regions on the open list are mapped and have a free block; the class is locked.
    let block = unsafe {
        let word =
            (*r).vacant.iter().position(|w| *w != 0).expect("an open region has a free block");
        let bit = (*r).vacant[word].trailing_zeros() as usize;
        (*r).vacant[word] &= !(1 << bit);
        (*r).free -= 1;
        if (*r).free == 0 {
            c.unlink(r);
        }
        r.cast::<u8>().add((word * 64 + bit) * size)
    };
    // Relaxed: see `used`.
    USED.fetch_add(size, Ordering::Relaxed);
    // SAFETY: an address inside a mapping is not null.
    Ok(unsafe { NonNull::new_unchecked(block) })
}

/// Gives `block` back.
///
/// # Safety
/// `block` came from [`alloc`] with the same `size`, and nothing uses it any more.
pub unsafe fn free(block: NonNull<u8>, size: usize) {
    let class = class_of(size);
    if class >= CLASSES {
        // SAFETY: it was mapped alone, with this size.
        unsafe { unmap(block, size) };
        return;
    }
    let r = (block.as_ptr() as usize & !(REGION - 1)) as *mut Region;
    let index = (block.as_ptr() as usize - r as usize) / size;
    let last = REGION / size - 1;
    let mut c = lock(class);
    // SAFETY: a carved block lies in a mapped region, whose bookkeeping is at its start; the class is locked.
    unsafe {
        debug_assert!((*r).vacant[index / 64] & (1 << (index % 64)) == 0, "block freed twice");
        (*r).vacant[index / 64] |= 1 << (index % 64);
        (*r).free += 1;
        if (*r).free == 1 {
            c.link(r);
        }
        if (*r).free == last {
            if c.regions > 1 {
                c.unlink(r);
                c.regions -= 1;
                map::leave(r as usize);
                unmap(NonNull::new_unchecked(r.cast()), REGION);
            } else {
                // All but the bookkeeping. Its block may be smaller than a page.
                let blocks = NonNull::new_unchecked(r.cast::<u8>().add(size));
                mapping::discard(blocks, r as usize + REGION);
                if (*r).huge {
                    // The system would put the region into a huge page again, for its bookkeeping.
                    (*r).huge = false;
                    advise_huge(NonNull::new_unchecked(r.cast()), REGION, false);
                }
            }
        }
    }
    // Relaxed: see `used`.
    USED.fetch_sub(size, Ordering::Relaxed);
}

/// The block that an address lies in. Reads one byte of the map, which is written once for each region.
///
/// # Safety
/// `address` lies in a block of at most 64 KiB that [`alloc`] gave out and that cannot be freed meanwhile.
#[inline]
pub unsafe fn block_of(address: usize) -> NonNull<u8> {
    let class = map::class(address).expect("the address lies in a block");
    // SAFETY: a block is not at address zero.
    unsafe { NonNull::new_unchecked((address & !((PAGE_SIZE << class) - 1)) as *mut u8) }
}

/// The block that any address lies in, and its size: none unless it is in a block of at most 64 KiB that is in use now.
/// For whoever must know whether an address is what it is said to be. Takes the lock of the size.
pub fn find_block(address: usize) -> Option<(NonNull<u8>, usize)> {
    let class = map::class(address)?;
    let _lock = lock(class);
    // While the class is locked, no region of it goes away. It may have gone before, and another one come.
    if map::class(address)? != class {
        return None;
    }
    let size = PAGE_SIZE << class;
    let r = (address & !(REGION - 1)) as *const Region;
    let index = (address - r as usize) / size;
    // SAFETY: the map says that a region of this class is there.
    let vacant = unsafe { (*r).vacant[index / 64] & (1 << (index % 64)) != 0 };
    // The first block is the region's own.
    if index == 0 || vacant {
        return None;
    }
    Some((NonNull::new((r as usize + index * size) as *mut u8)?, size))
}

impl Class {
    fn link(&mut self, r: *mut Region) {
        // SAFETY: callers hold the class's lock and pass a region that has just become open; `open` is null or a
        // mapped region.
        unsafe {
            (*r).prev = ptr::null_mut();
            (*r).next = self.open;
            if !self.open.is_null() {
                (*self.open).prev = r;
            }
        }
        self.open = r;
    }

    fn unlink(&mut self, r: *mut Region) {
        // SAFETY: callers hold the class's lock and pass a region on the open list; its neighbours are mapped.
        unsafe {
            if (*r).prev.is_null() {
                self.open = (*r).next;
            } else {
                (*(*r).prev).next = (*r).next;
            }
            if !(*r).next.is_null() {
                (*(*r).next).prev = (*r).prev;
            }
        }
    }
}
