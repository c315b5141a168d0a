//! Numbers that no two objects share, handed out by each CPU for itself.

use core::array;
use core::fmt;

use crossbeam_utils::CachePadded;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_platform::heap;
use quietline_platform::percpu::{self, LazyWords, Words};

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
/// that another CPU writes. The CPUs' words are allocated by the first call. While there is no memory for them, each call
/// takes its id from the shared word.
///
/// Differs from the kernel's: a thread may lose its CPU between taking a batch and giving it to the CPU. If the CPU then
/// has a batch already, that one is left over, and goes to the next CPU that wants one. There is no lock: with 128 CPUs that open and close sockets,
/// one around the shared word would be waited for three quarters of the time (`docs/lines.md`).
///
/// # Guarantees
///
/// * Each of the numbers 1 to 2^32 - 1 is handed out once before the shared word comes round to the first again.
/// * No id is 0.
/// * At any time at most 1,023 per CPU, and a few batches left over, wait to be handed out; they are the only ones that a
///   bearer of the same number from the round before could meet.
///
/// # Limits
///
/// If seven threads at once have lost their CPU with a batch in hand, what the eighth has is skipped.
///
/// After 2^32 ids they come again, whether or not the objects that bore them are gone, as the kernel's do.
///
/// # Source
///
/// `fs/inode.c` (`get_next_ino`), Linux 2.6.37 to 7.3.
pub struct IdAllocator {
    /// Words[0] is the id that this CPU hands out next; a multiple of the batch when it has none.
    words: LazyWords<1>,
    /// On a line of its own: every call reads the field above.
    pool: Box<CachePadded<Pool>>,
}

/// Batches that may be left over: what fits into the pool's line.
const LEFTOVERS: usize = if cfg!(loom) { 1 } else { 7 };

/// What the CPUs have not taken. All accesses are relaxed: the numbers are all that is handed over, and each by one
/// indivisible instruction.
struct Pool {
    /// The rests of batches that were replaced on their CPU: the next id in each, or 0.
    leftovers: [AtomicU64; LEFTOVERS],
    /// The first id of the next batch, without end.
    next: AtomicU64,
    /// The bits of it that ids have.
    bits: u64,
}

/// Hands out 64-bit ids, never 0, each once. For inodes of filesystems whose numbers nobody may confuse (tmpfs with
/// `inode64`). All else is as in [`IdAllocator`].
#[derive(Debug)]
pub struct WideIdAllocator(IdAllocator);

impl WideIdAllocator {
    /// An allocator that begins with 1; in debug builds a little below 2^32, so that every test goes beyond.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for the shared word.
    pub fn new() -> Result<Self, AllocError> {
        IdAllocator::with(START, u64::MAX).map(Self)
    }

    /// The next id. Writes what [`IdAllocator::next`] does.
    #[inline]
    pub fn next(&self) -> u64 {
        self.0.next_wide()
    }

    /// The next id from the shared word, which needs no words of the CPUs: for the first objects
    /// of an owner that may never have more.
    pub fn next_shared(&self) -> u64 {
        self.0.pool.take_one()
    }
}

impl IdAllocator {
    /// An allocator that begins with 1; in debug builds near the wrap-around, so that every test crosses it.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for the shared word.
    pub fn new() -> Result<Self, AllocError> {
        Self::starting_at(START)
    }

    /// An allocator whose first id is `first`, or 1 if that is 0. For tests.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for the shared word.
    pub fn starting_at(first: u32) -> Result<Self, AllocError> {
        Self::with(first, u32::MAX.into())
    }

    fn with(first: u32, bits: u64) -> Result<Self, AllocError> {
        let (first, of_batch) = (u64::from(first), u64::from(first % BATCH));
        let batch = first - of_batch;
        let (next, rest) =
            if of_batch == 0 { (batch, 0) } else { (batch + u64::from(BATCH), first) };
        let pool = heap::try_box(CachePadded::new(Pool {
            leftovers: array::from_fn(|i| AtomicU64::new(if i == 0 { rest } else { 0 })),
            next: AtomicU64::new(next),
            bits,
        }))?;
        let ids = Self { words: LazyWords::new(), pool };
        quietline_platform::name_words!(**ids.pool => "IdAllocator.pool" { leftovers, next });
        Ok(ids)
    }

    /// The next id. Writes only the CPU's own line, without a locked instruction; once in 1,024 calls also the
    /// shared word's line.
    #[inline]
    pub fn next(&self) -> u32 {
        // The upper half is set by a batch that ends at 2^32, and by nothing that is handed out.
        self.next_wide() as u32
    }

    #[inline]
    fn next_wide(&self) -> u64 {
        let words = self.words.ready();
        match words.and_then(|words| words.increment_unless_restartable(0, MASK)) {
            Some(id) => id,
            None => self.next_slow(),
        }
    }

    /// Takes an id from the pool, and the rest of its batch for this CPU.
    #[cold]
    #[inline(never)]
    fn next_slow(&self) -> u64 {
        let words = self.words.get_or_make().ok();
        if percpu::is_fallback()
            && let Some(id) = words.as_ref().and_then(|words| words.increment_unless(0, MASK))
        {
            return id;
        }
        let Some(words) = words else { return self.pool.take_one() };
        let id = self.pool.take();
        let rest = id + 1;
        if rest & MASK != 0 {
            self.install(&words, rest);
        }
        id
    }

    /// Gives a batch to the current CPU. If the CPU has one already, because the thread has moved
    /// or another thread was quicker, that one is left over.
    fn install(&self, words: &Words<1>, rest: u64) {
        let replaced = words.swap(0, rest);
        if replaced & MASK != 0 {
            self.pool.leave(replaced);
        }
    }
}

impl Pool {
    /// The first id of what is left over, else of the next batch. One locked instruction, if nothing is left over.
    fn take(&self) -> u64 {
        for leftover in &self.leftovers {
            if leftover.load(Ordering::Relaxed) != 0 {
                let id = leftover.swap(0, Ordering::Relaxed);
                if id != 0 {
                    return id;
                }
            }
        }
        // 0 is not an id.
        (self.next.fetch_add(BATCH.into(), Ordering::Relaxed) & self.bits).max(1)
    }

    /// Takes one id, and leaves the rest of its batch over.
    fn take_one(&self) -> u64 {
        let id = self.take();
        let rest = id + 1;
        if rest & MASK != 0 {
            self.leave(rest);
        }
        id
    }

    /// Keeps the rest of a batch for whoever comes next, if there is room.
    fn leave(&self, rest: u64) {
        let _kept = self.leftovers.iter().any(|leftover| {
            leftover.compare_exchange(0, rest, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
    }
}

impl fmt::Debug for IdAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdAllocator")
            .field("next_batch", &(self.pool.next.load(Ordering::Relaxed) & self.pool.bits))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
