//! Where per-CPU words lie: chunks of one 64 KiB unit for each CPU.

use super::{mode, slots};
use crate::{AllocError, fault, pages};
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// log2 of the distance between the copies of two neighbouring CPUs.
pub(crate) const SHIFT: usize = 16;
const UNIT: usize = 1 << SHIFT;
const GRANULE: usize = 16;
const GRANULES: usize = UNIT / GRANULE;
/// Allocations from this size on start on a line of their own.
const LINE: usize = 64;

struct Chunk {
    base: NonNull<u8>,
    /// One bit for each granule: taken.
    taken: [u64; GRANULES / 64],
    used: usize,
}

// SAFETY: a chunk's memory is reached through allocations, which are distinct; the bitmap is under the lock.
unsafe impl Send for Chunk {}

static CHUNKS: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<Chunk>> {
    CHUNKS.lock().unwrap_or_else(|e| e.into_inner())
}

fn granules(size: usize) -> (usize, usize) {
    assert!(size > 0 && size <= UNIT, "per-CPU words fit in one unit of 64 KiB");
    let align = if size >= LINE { LINE } else { size.next_power_of_two().max(GRANULE) };
    (size.div_ceil(GRANULE), align / GRANULE)
}

impl Chunk {
    fn map() -> Result<Self, AllocError> {
        let base = pages::map_aligned(UNIT * mode::slots(), UNIT)?;
        Ok(Self { base, taken: [0; GRANULES / 64], used: 0 })
    }

    fn is_taken(&self, granule: usize) -> bool {
        self.taken[granule / 64] & (1 << (granule % 64)) != 0
    }

    fn mark(&mut self, first: usize, n: usize, taken: bool) {
        for g in first..first + n {
            let bit = 1 << (g % 64);
            if taken {
                self.taken[g / 64] |= bit;
            } else {
                self.taken[g / 64] &= !bit;
            }
        }
        self.used = if taken { self.used + n } else { self.used - n };
    }

    fn find(&self, n: usize, align: usize) -> Option<usize> {
        if self.used + n > GRANULES {
            return None;
        }
        let mut first = 0;
        while first + n <= GRANULES {
            // Whole words of taken granules are stepped over at once.
            if self.taken[first / 64] == u64::MAX {
                first = (first / 64 + 1) * 64;
                continue;
            }
            match (first..first + n).rev().find(|&g| self.is_taken(g)) {
                None => return Some(first),
                Some(g) => first = (g + 1).next_multiple_of(align),
            }
        }
        None
    }
}

/// Zeroed memory of `size` bytes for every CPU; the address of CPU 0's copy.
pub(super) fn alloc(size: usize) -> Result<NonNull<u8>, AllocError> {
    mode::decide();
    fault::check()?;
    let (n, align) = granules(size);
    let mut chunks = lock();
    let (chunk, first) =
        match chunks.iter().enumerate().rev().find_map(|(i, c)| Some((i, c.find(n, align)?))) {
            Some(found) => found,
            None => {
                chunks.try_reserve(1).map_err(|_| AllocError)?;
                chunks.push(Chunk::map()?);
                (chunks.len() - 1, 0)
            }
        };
    let chunk = &mut chunks[chunk];
    chunk.mark(first, n, true);
    // SAFETY: the granules lie inside the unit of CPU 0.
    let words = unsafe { chunk.base.add(first * GRANULE) };
    drop(chunks);
    for cpu in 0..mode::slots() {
        // SAFETY: the same granules in the unit of each CPU, now ours alone.
        unsafe { words.add(cpu << SHIFT).write_bytes(0, n * GRANULE) };
    }
    Ok(words)
}

/// Gives words back.
///
/// # Safety
/// They came from [`alloc`] with the same size, and no operation on them is in flight.
pub(super) unsafe fn free(words: NonNull<u8>, size: usize) {
    let (n, _) = granules(size);
    let mut chunks = lock();
    let address = words.as_ptr() as usize;
    let at = chunks
        .iter()
        .position(|c| {
            (c.base.as_ptr() as usize..c.base.as_ptr() as usize + UNIT).contains(&address)
        })
        .expect("words lie in a chunk");
    let first = (address - chunks[at].base.as_ptr() as usize) / GRANULE;
    chunks[at].mark(first, n, false);
    if chunks[at].used == 0 && chunks.len() > 1 {
        let chunk = chunks.swap_remove(at);
        // SAFETY: the chunk has no allocation left.
        unsafe { pages::unmap(chunk.base, UNIT * mode::slots()) };
    }
}

/// The CPU whose copy of some words an address is in, if it is in any.
#[cfg(quietline_sim)]
pub(crate) fn owner_of(address: usize) -> Option<usize> {
    let size = UNIT * mode::slots();
    let base = lock()
        .iter()
        .map(|c| c.base.as_ptr() as usize)
        .find(|base| (*base..base + size).contains(&address))?;
    Some((address - base) >> SHIFT)
}

/// The lock's guard across a `fork`; touched by the forking thread alone.
struct Held(UnsafeCell<Option<MutexGuard<'static, Vec<Chunk>>>>);
// SAFETY: only the thread that holds the fork registry's lock touches it.
unsafe impl Sync for Held {}
static HELD: Held = Held(UnsafeCell::new(None));

pub(crate) fn fork_before() {
    // Not half made in the child: see `decide`.
    mode::decide();
    let guard = lock();
    // SAFETY: see `Held`.
    unsafe { *HELD.0.get() = Some(guard) };
}

pub(crate) fn fork_after(child: bool) {
    if child {
        slots::abandon();
    }
    // SAFETY: see `Held`.
    unsafe { *HELD.0.get() = None };
}
