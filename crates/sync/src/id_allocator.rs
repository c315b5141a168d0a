//! Numbers that no two objects share, handed out by each CPU for itself.

use core::fmt;

use quietline_platform::AllocError;
use quietline_platform::cpu;
use quietline_platform::percpu::Words;

use crate::SpinLock;
use crate::slow_half::{SlowHalf, slow_half};

/// Ids that a CPU takes from the shared word at a time. A power of two: a CPU's word that is a multiple of it has
/// none left.
const BATCH: u32 = if cfg!(loom) { 2 } else { 1024 };
const MASK: u64 = BATCH as u64 - 1;

/// Where the numbering begins: in debug builds a few batches before the wrap-around.
const START: u32 = if cfg!(debug_assertions) { 0u32.wrapping_sub(4 * BATCH) } else { 0 };

/// Hands out 32-bit ids, never 0, each once in 2^32.
///
/// ```text
///      shared: next batch 4096
///          |          |          |
///      CPU 0: 1033   CPU 1: 3072   CPU 2: 2050      the id that this CPU hands out next;
///      of 1024..2048  empty        of 2048..3072    a multiple of 1024: none left
/// ```
///
/// A CPU takes 1,024 ids at a time and hands them out by one restartable operation: no locked instruction, no line
/// that another CPU writes.
///
/// Differs from the kernel's: a thread may lose its CPU between taking a batch and giving it to the CPU; the batch
/// then goes to the next CPU that wants one, so at most 1,023 ids per CPU are ever waiting for use.
///
/// # Guarantees
///
/// * Each of the numbers 1 to 2^32 - 1 is handed out once before the shared word comes round to the first again.
/// * No id is 0.
/// * No id is lost. At any time at most 1,023 per CPU (and in one batch left over) wait to be handed out; they are
///   the only ones that a bearer of the same number from the round before could meet.
///
/// # Limits
///
/// After 2^32 ids they come again, whether or not the objects that bore them are gone, as the kernel's do.
///
/// # Source
///
/// `fs/inode.c` (`get_next_ino`), Linux 2.6.37 to 7.3.
pub struct IdAllocator {
    /// Words[0] is the id that this CPU hands out next; a multiple of the batch when it has none.
    words: Words<1>,
    /// On lines of its own: every call reads the field above.
    pool: SlowHalf<SpinLock<Pool>>,
}

/// What the CPUs have not taken.
struct Pool {
    /// The first id of the next batch.
    next: u32,
    /// The rest of a batch that could not be given to a CPU: the next id in it.
    leftover: Option<u64>,
}

impl IdAllocator {
    /// An allocator that begins with 1; in debug builds near the wrap-around, so that every test crosses it.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for the CPUs' words.
    pub fn new() -> Result<Self, AllocError> {
        Self::starting_at(START)
    }

    /// An allocator whose first id is `first`, or 1 if that is 0. For tests.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for the CPUs' words.
    pub fn starting_at(first: u32) -> Result<Self, AllocError> {
        let batch = first - first % BATCH;
        let pool = if first == batch {
            Pool { next: batch, leftover: None }
        } else {
            Pool { next: batch.wrapping_add(BATCH), leftover: Some(first.into()) }
        };
        let ids = Self { words: Words::new()?, pool: slow_half(SpinLock::new(pool))? };
        quietline_platform::name_words!(*ids.pool, "IdAllocator.pool");
        Ok(ids)
    }

    /// The next id. Writes only the CPU's own line, without a locked instruction; once in 1,024 calls also the
    /// shared word's line, under a lock.
    #[inline]
    pub fn next(&self) -> u32 {
        match self.words.increment_unless(0, MASK) {
            // The upper half is set by a batch that ends at 2^32, and by nothing that is handed out.
            Some(id) => id as u32,
            None => self.next_slow(),
        }
    }

    /// Takes an id from the pool, and the rest of its batch for this CPU.
    #[cold]
    fn next_slow(&self) -> u32 {
        let mut pool = self.pool.lock();
        // While this thread waited, another may have filled the CPU's word.
        if let Some(id) = self.words.increment_unless(0, MASK) {
            return id as u32;
        }
        let id = pool.take();
        let rest = id + 1;
        if rest & MASK != 0 && !self.install(rest) {
            pool.leftover = Some(rest);
        }
        id as u32
    }

    /// Gives a batch to the current CPU; false if it still has one.
    fn install(&self, rest: u64) -> bool {
        // If the thread moves to another CPU after this load, the comparison is with that CPU's word: it succeeds
        // only if that word holds the same number, and then that CPU has no ids left either.
        let empty = self.words.load(cpu::current(), 0);
        empty & MASK == 0 && self.words.compare_store(0, empty, rest)
    }
}

impl Pool {
    /// The first id of what is left over, else of the next batch.
    fn take(&mut self) -> u64 {
        if let Some(id) = self.leftover.take() {
            return id;
        }
        let first = self.next;
        self.next = first.wrapping_add(BATCH);
        // 0 is not an id.
        u64::from(first.max(1))
    }
}

impl fmt::Debug for IdAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdAllocator").field("next_batch", &self.pool.lock().next).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
