//! The allocator of per-CPU words, which gives them out of chunks of one 64 KiB unit for each CPU.
//!
//! Words that come from new memory have their initial content without a write: zeros, or the
//! content of the chunk's [template]. So a copy takes memory when its CPU first writes it, on the
//! memory node of that CPU. A copy of a CPU that does not exist, or that the process does not use,
//! takes none. The allocating thread writes copies of other content: of words that were used
//! before, and all copies in a chunk without a template.

use super::body;
use super::template::{self, is_zero};
use crate::{AllocError, fault, pages};
use core::ptr::NonNull;
// Not the back end's: the words are not shared yet.
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// log2 of the distance between the copies of two neighbouring CPUs.
pub(crate) const SHIFT: usize = 16;
pub(super) const UNIT: usize = 1 << SHIFT;
const GRANULE: usize = 16;
const GRANULES: usize = UNIT / GRANULE;
/// Allocations from this size on start on a line of their own.
const LINE: usize = 64;

pub(crate) struct Chunk {
    base: NonNull<u8>,
    /// One bit for each granule: taken.
    taken: [u64; GRANULES / 64],
    used: usize,
    /// Granules from this one on have never been given out: each copy has its initial content.
    fresh: usize,
    /// The initial content of the words; empty for zeros.
    initial: Vec<u64>,
    /// Whether the units map a template of that content.
    has_template: bool,
}

// SAFETY: a chunk's memory is reached through allocations, which are distinct; the bitmap is under
// the lock.
unsafe impl Send for Chunk {}

static CHUNKS: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());

pub(crate) fn lock() -> MutexGuard<'static, Vec<Chunk>> {
    CHUNKS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the granules that words take, and what their first one is a multiple of.
fn granules(words: usize) -> (usize, usize) {
    let size = words * 8;
    assert!(size > 0 && size <= UNIT, "per-CPU words fit in one unit of 64 KiB");
    let align = if size >= LINE { LINE } else { size.next_power_of_two().max(GRANULE) };
    (size.div_ceil(GRANULE), align / GRANULE)
}

/// Returns the distance between neighbours of as many words, in a chunk of their own.
pub(super) fn stride(words: usize) -> usize {
    let (n, align) = granules(words);
    n.next_multiple_of(align) * GRANULE
}

impl Chunk {
    /// Maps a chunk. `template` says whether its units may map one.
    fn map(initial: &[u64], template: bool) -> Result<Self, AllocError> {
        let mut words = Vec::new();
        if !is_zero(initial) {
            words.try_reserve_exact(initial.len()).map_err(|_| AllocError)?;
            words.extend_from_slice(initial);
        }
        let size = UNIT * body::copies();
        let template = template && !words.is_empty();
        let template = if template { template::map(&words).ok() } else { None };
        let base = match template {
            Some(base) => base,
            None => pages::map_aligned(size, UNIT)?,
        };
        // One huge page would be the memory of many CPUs, on the node of the first to touch it.
        // SAFETY: the mapping is ours.
        unsafe { pages::advise_huge(base, size, false) };
        let has_template = template.is_some();
        Ok(Self {
            base,
            taken: [0; GRANULES / 64],
            used: 0,
            fresh: 0,
            initial: words,
            has_template,
        })
    }

    /// Returns whether the chunk is one for words with this initial content.
    fn is_for(&self, initial: &[u64]) -> bool {
        if self.initial.is_empty() { is_zero(initial) } else { self.initial == initial }
    }

    /// Gives out granules. Returns the words of CPU 0, and whether each copy has its initial
    /// content.
    fn take(&mut self, first: usize, n: usize) -> (NonNull<u8>, bool) {
        self.mark(first, n, true);
        let fresh = first >= self.fresh && (self.has_template || self.initial.is_empty());
        self.fresh = self.fresh.max(first + n);
        // SAFETY: the granules lie inside the unit of CPU 0.
        (unsafe { self.base.add(first * GRANULE) }, fresh)
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
                first = ((first / 64 + 1) * 64).next_multiple_of(align);
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

/// Allocates words for every CPU. Returns the address of CPU 0's copy.
pub(super) fn alloc(initial: &[u64]) -> Result<NonNull<u8>, AllocError> {
    body::decide();
    fault::check()?;
    let (n, align) = granules(initial.len());
    let align = if is_zero(initial) { align } else { stride(initial.len()) / GRANULE };
    let mut chunks = lock();
    let found = chunks
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, chunk)| chunk.is_for(initial))
        .find_map(|(i, chunk)| Some((i, chunk.find(n, align)?)));
    let (chunk, first) = match found {
        Some(found) => found,
        None => {
            chunks.try_reserve(1).map_err(|_| AllocError)?;
            let templates = 1 + chunks.iter().filter(|chunk| chunk.has_template).count();
            let template = templates * body::copies() <= template::MAPPINGS;
            chunks.push(Chunk::map(initial, template)?);
            (chunks.len() - 1, 0)
        }
    };
    let (words, fresh) = chunks[chunk].take(first, n);
    drop(chunks);
    if !fresh {
        restore(words.cast(), initial);
    }
    Ok(words)
}

/// Gives every copy its initial content, without writing those that have it.
fn restore(words: NonNull<AtomicU64>, initial: &[u64]) {
    for cpu in 0..body::copies() {
        for (index, value) in initial.iter().enumerate() {
            // SAFETY: the words in the unit of each CPU are the caller's alone.
            let word = unsafe { words.byte_add(cpu << SHIFT).add(index).as_ref() };
            // Relaxed: no other thread knows the words yet; sharing them publishes this.
            if word.load(Ordering::Relaxed) != *value {
                word.store(*value, Ordering::Relaxed);
            }
        }
    }
}

/// Gives words back.
///
/// # Safety
/// They came from [`alloc`] and are as many, and no operation on them is in flight.
pub(super) unsafe fn free(words: NonNull<u8>, count: usize) {
    let (n, _) = granules(count);
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
    let alike = |chunk: &Chunk| chunk.initial == chunks[at].initial;
    if chunks[at].used == 0 && chunks.iter().filter(|chunk| alike(chunk)).count() > 1 {
        let chunk = chunks.swap_remove(at);
        // SAFETY: the chunk has no allocation left.
        unsafe { pages::unmap(chunk.base, UNIT * body::copies()) };
    }
}

/// Returns the bytes of all words that are allocated now, in all copies: more than the memory that
/// they take, as copies take none before they are written.
pub fn allocated() -> usize {
    lock().iter().map(|chunk| chunk.used).sum::<usize>() * GRANULE * body::copies()
}

/// The CPU whose copy of some words an address is in, if it is in any.
#[cfg(quietline_sim)]
pub fn owner_of(address: usize) -> Option<usize> {
    let size = UNIT * body::copies();
    let base = lock()
        .iter()
        .map(|c| c.base.as_ptr() as usize)
        .find(|base| (*base..base + size).contains(&address))?;
    Some((address - base) >> SHIFT)
}
