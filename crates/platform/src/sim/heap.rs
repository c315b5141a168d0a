//! A heap at the same addresses in every run: for the thread that sets a scene and simulates it, so that what code computes
//! from an address, and which objects share a line, is the same however the system lays a process out.
//!
//! Blocks lie as those of the C library's allocator do, sixteen bytes apart with eight between them: objects that would share a
//! line natively share one here. Only code on the thread between [`begin`] and [`end`] is served from it; all others, and
//! all if the addresses are taken, by the system's allocator.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr::{self, NonNull};
use std::alloc::System;
use std::sync::{Mutex, PoisonError};

/// Where it begins: far from where programs, heaps and libraries are mapped, and below the pages of a simulation.
const FIRST: usize = 0x1000_0000_0000;
/// Bytes of a region, and regions. One that holds something when a scene ends, a result or what a static has come to own,
/// is left to it; the next scene takes another.
const REGION: usize = 64 << 30;
const REGIONS: usize = 256;
/// What blocks are multiples of.
const UNIT: usize = 16;
/// Blocks up to this size are of as many classes as there are multiples; larger ones, and those of a greater alignment, are
/// of powers of two.
const SMALL: usize = 1024;

thread_local! {
    static SERVED: Cell<bool> = const { Cell::new(false) };
}

/// A free block: the next one of its class.
type Free = Option<NonNull<FreeBlock>>;

struct FreeBlock {
    next: Free,
}

/// The class of a block: its list of free blocks, its size and its alignment.
#[derive(Clone, Copy)]
struct Class {
    list: usize,
    bytes: usize,
    align: usize,
}

/// Small blocks have lists by their size, larger ones and aligned ones by the logarithm of it.
const LARGE: usize = SMALL / UNIT + 1;
const ALIGNED: usize = LARGE + usize::BITS as usize;
const LISTS: usize = ALIGNED + usize::BITS as usize;

impl Class {
    fn of(layout: Layout) -> Self {
        let power = |first: usize, bytes: usize| {
            let bits = bytes.next_power_of_two().ilog2();
            (first + bits as usize, 1 << bits)
        };
        if layout.align() > UNIT {
            let (list, bytes) = power(ALIGNED, layout.size().max(layout.align()));
            return Self { list, bytes, align: bytes };
        }
        let (list, bytes) = match (layout.size() + 8).next_multiple_of(UNIT).max(2 * UNIT) {
            bytes @ ..=SMALL => (bytes / UNIT, bytes),
            bytes => power(LARGE, bytes),
        };
        Self { list, bytes, align: UNIT }
    }
}

struct Region {
    mapped: bool,
    /// Where the next new block goes, and how many blocks are in use.
    next: usize,
    live: usize,
    free: [Free; LISTS],
}

impl Region {
    const EMPTY: Self = Self { mapped: false, next: 0, live: 0, free: [None; LISTS] };

    /// A block, or null when the region is full.
    fn take(&mut self, base: usize, class: Class) -> *mut u8 {
        if let Some(block) = self.free[class.list] {
            // SAFETY: blocks on a list are free, in a mapped region, and hold what `give` wrote.
            self.free[class.list] = unsafe { block.as_ref() }.next;
            self.live += 1;
            return block.as_ptr().cast();
        }
        let at = (base + self.next).next_multiple_of(class.align);
        if at + class.bytes > base + REGION {
            return ptr::null_mut();
        }
        self.next = at + class.bytes - base;
        self.live += 1;
        at as *mut u8
    }

    /// # Safety
    /// The block is of this region and class, and nobody uses it.
    unsafe fn give(&mut self, block: *mut u8, class: Class) {
        let block = block.cast::<FreeBlock>();
        // SAFETY: the block is ours now, of 16 bytes at least, and aligned to as many.
        unsafe { block.write(FreeBlock { next: self.free[class.list] }) };
        self.free[class.list] = NonNull::new(block);
        self.live -= 1;
    }
}

struct Regions {
    current: usize,
    regions: [Region; REGIONS],
}

// SAFETY: free blocks are touched under the lock only.
unsafe impl Send for Regions {}

/// Not of this back end: to watch these would be to watch the watcher.
static HEAP_REGIONS: Mutex<Regions> =
    Mutex::new(Regions { current: 0, regions: [Region::EMPTY; REGIONS] });

/// Calls `f` with the regions. It allocates nothing.
fn with<R>(f: impl FnOnce(&mut Regions) -> R) -> R {
    f(&mut HEAP_REGIONS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// From here to [`end`] the calling thread is served from an empty region.
pub fn begin() {
    let ready = with(|regions| {
        let Some(empty) = regions.regions.iter().position(|region| region.live == 0) else {
            return false;
        };
        regions.current = empty;
        let region = &mut regions.regions[empty];
        let mapped = region.mapped || map(FIRST + empty * REGION);
        *region = Region { mapped, ..Region::EMPTY };
        mapped
    });
    SERVED.with(|served| served.set(ready));
}

/// The calling thread is served by the system again.
pub fn end() {
    SERVED.with(|served| served.set(false));
}

fn map(base: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, of addresses that are taken by nothing else: or it fails.
    let at = unsafe { libc::mmap(base as *mut libc::c_void, REGION, protection, flags, -1, 0) };
    // A kernel that does not know the flag takes the address for a wish.
    at.addr() == base
}

/// The region that a block is in, if it is in any.
fn region_of(block: *mut u8) -> Option<usize> {
    let region = block.addr().checked_sub(FIRST)? / REGION;
    (region < REGIONS).then_some(region)
}

/// The allocator of a program that simulates.
#[derive(Debug, Clone, Copy)]
pub struct Heap;

// SAFETY: blocks of a region are in use by one at a time, as `Region` counts them, are as large and as aligned as their class
// says, which is as the layout asks, and stay mapped; all others are the system's.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if SERVED.try_with(Cell::get).unwrap_or(false) {
            let block = with(|regions| {
                let current = regions.current;
                regions.regions[current].take(FIRST + current * REGION, Class::of(layout))
            });
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match region_of(block) {
            // SAFETY: the caller got the block from `alloc` with this layout, so it is of the region that its address says and
            // of the layout's class.
            Some(region) => with(|regions| unsafe {
                regions.regions[region].give(block, Class::of(layout));
            }),
            // SAFETY: passed on; what is in no region came from the system.
            None => unsafe { System.dealloc(block, layout) },
        }
    }
}

#[cfg(test)]
mod tests;
