//! A counter that every CPU counts for itself.

use core::fmt;

use quietline_platform::atomic::{AtomicI64, AtomicU32, Ordering};
use quietline_platform::fork::{AtFork, Rank, Registered};
use quietline_platform::percpu::{self, LazyWords};
use quietline_platform::{AllocError, cpu};

use crate::SpinLock;

/// A signed count kept in one word per CPU and one shared word.
///
/// ```text
///      CPU 0   CPU 1   CPU 2              each strictly between -batch and batch
///       +3      -7      +31
///         \      |      /  folded when the next addition would reach the batch
///          \     |     /
///        shared word, under a lock
/// ```
///
/// An addition is one restartable operation on the current CPU's word: no locked instruction, no line that another
/// CPU writes. Only when the word would reach the batch is it emptied into the shared word.
///
/// Differs from the kernel's: reading never needs the interrupt-safe lock of folding CPUs that go offline, because
/// here a CPU's word stays where it is when no thread runs there.
///
/// The CPUs' words are allocated after the first few additions. Those, and all while there is no
/// memory for words, go to the shared word.
///
/// # Guarantees
///
/// With B the batch and N the number of CPUs:
///
/// * [`sum`](Self::sum) is exact when nobody adds meanwhile; otherwise it counts each concurrent addition or not.
/// * [`read`](Self::read) is off by less than B·N.
/// * [`limited_add`](Self::limited_add) takes the count past its limit by less than what other calls of it, each
///   below B, had in flight; see there.
///
/// # Limits
///
/// The count wraps silently at 2^63, and B·N is taken to be infinite where it does not fit.
///
/// # Source
///
/// `lib/percpu_counter.c`, Linux 6.1 to 7.3.
pub struct Counter {
    /// Words[0] is the part of the count that this CPU has not folded.
    words: LazyWords<1>,
    /// Strict bound of a CPU's word.
    batch: i64,
    /// batch · cpus: how far the shared word may be from the count.
    unknown: i64,
    /// On lines of its own: every addition reads the fields above, and a fold would take their line away.
    shared: Registered<Shared>,
}

/// Additions that go to the shared word before the CPUs get words: a counter of which no more is
/// asked takes no memory for each CPU.
const FEW: u32 = if cfg!(loom) { 0 } else { 4 };

/// What the CPUs share, and write once in a batch.
struct Shared {
    /// The folded part of the count. Written under the lock, read by anyone.
    count: AtomicI64,
    /// Additions that were made without words, up to [`FEW`].
    early: AtomicU32,
    /// Held while the count is written, and while the words are summed: no fold is seen by halves.
    fold: SpinLock<()>,
}

impl Counter {
    /// A count of 0. The batch is the larger of 32 and twice the number of CPUs.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for the shared word.
    pub fn new() -> Result<Self, AllocError> {
        Self::with_batch(u32::try_from(2 * cpu::nr_cpus()).unwrap_or(u32::MAX).max(32))
    }

    /// A count of 0 with this batch, at least 1, which shares every addition.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for the shared word.
    pub fn with_batch(batch: u32) -> Result<Self, AllocError> {
        let cpus = i64::try_from(cpu::nr_cpus()).unwrap_or(i64::MAX);
        let batch = i64::from(batch.max(1));
        let counter = Self {
            words: LazyWords::new(),
            batch,
            unknown: batch.saturating_mul(cpus),
            shared: Registered::new(
                Rank::Domain,
                Shared {
                    count: AtomicI64::new(0),
                    early: AtomicU32::new(0),
                    fold: SpinLock::new(()),
                },
            )?,
        };
        quietline_platform::name_words!(*counter.shared => "Counter" { count, fold });
        Ok(counter)
    }

    /// Adds `amount`, which may be negative. Within the batch it writes no shared line and executes no locked
    /// instruction; once in a batch it writes the shared word's line under a lock.
    #[inline]
    pub fn add(&self, amount: i64) {
        if !self.try_add(amount) {
            self.add_slow(amount);
        }
    }

    /// Adds `amount` if that is within the batch, and returns `true`. Else nothing is added, and
    /// the caller calls [`add`](Self::add): for fast paths that leave the rest to a function of its
    /// own.
    #[inline(always)]
    pub fn try_add(&self, amount: i64) -> bool {
        let words = self.words.ready();
        words.is_some_and(|words| words.add_within_restartable(0, amount, self.batch))
    }

    /// Subtracts `amount`; as [`add`](Self::add).
    #[inline]
    pub fn sub(&self, amount: i64) {
        self.add(amount.wrapping_neg());
    }

    /// Adds one; as [`add`](Self::add).
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts one; as [`add`](Self::add).
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// The folded part of the count: off by less than batch · CPUs. One load. Writes no line.
    #[inline]
    pub fn read(&self) -> i64 {
        // Relaxed: an approximate number, by which nothing is ordered.
        self.shared.count.load(Ordering::Relaxed)
    }

    /// The count, exact when nobody adds meanwhile. Reads every CPU's line and takes the fold's lock.
    pub fn sum(&self) -> i64 {
        let _no_fold = self.shared.fold.lock();
        self.sum_locked()
    }

    /// Adds `amount` unless that would take the count past `limit` (above it for a positive amount, below it for
    /// a negative one); true if it was added.
    ///
    /// Far from the limit it costs two loads more than [`add`](Self::add). Nearer than batch · CPUs to it, each call
    /// takes the lock and sums.
    ///
    /// Among calls under the lock the limit holds exactly. A call that is far from the limit decides by one load
    /// and then adds; if meanwhile others bring the count to the limit, its amount, less than a batch, goes past
    /// it. Plain [`add`](Self::add)s know no limit, and those in flight at the time count as not yet made.
    pub fn limited_add(&self, limit: i64, amount: i64) -> bool {
        if amount == 0 {
            return true;
        }
        // Relaxed: the guarantee above speaks of a count read at any moment of the call.
        let far = within(
            limit,
            self.shared.count.load(Ordering::Relaxed).checked_add(amount),
            amount,
            self.unknown,
        );
        (far && self.try_add(amount)) || self.limited_add_slow(limit, far, amount)
    }

    /// A CPU's own part is at most this much, in either direction, less one.
    pub fn batch(&self) -> i64 {
        self.batch
    }

    #[cold]
    #[inline(never)]
    fn add_slow(&self, amount: i64) {
        if !self.add_to_words(amount) {
            let _fold = self.shared.fold.lock();
            self.fold_locked(amount);
        }
    }

    /// Adds `amount` to the CPU's word, if that is within the batch. Makes the words, unless this
    /// is one of the first few additions, or there is no memory for them.
    fn add_to_words(&self, amount: i64) -> bool {
        // Words that `try_add` has used are full; that is all that it fails for then.
        if self.words.ready().is_some() && !percpu::is_fallback() {
            return false;
        }
        // Relaxed: a quantity. Additions that meet here may be counted as one.
        let early = self.shared.early.load(Ordering::Relaxed);
        if early < FEW {
            self.shared.early.store(early + 1, Ordering::Relaxed);
            return false;
        }
        let words = self.words.get_or_make();
        words.is_ok_and(|words| words.add_within(0, amount, self.batch))
    }

    #[cold]
    fn limited_add_slow(&self, limit: i64, far: bool, amount: i64) -> bool {
        if far && self.add_to_words(amount) {
            return true;
        }
        let _fold = self.shared.fold.lock();
        let fits = within(limit, self.sum_locked().checked_add(amount), amount, 0);
        if fits {
            self.fold_locked(amount);
        }
        fits
    }

    /// Adds `amount` and this CPU's part to the shared word.
    fn fold_locked(&self, amount: i64) {
        // Indivisible: an addition on this CPU comes before the swap and is folded, or after it and starts from 0.
        let part = self.words.get().map_or(0, |words| words.swap(0, 0) as i64);
        // Relaxed: writers are ordered by the lock, readers want a number only.
        let shared = self.shared.count.load(Ordering::Relaxed);
        self.shared.count.store(shared.wrapping_add(part).wrapping_add(amount), Ordering::Relaxed);
    }

    fn sum_locked(&self) -> i64 {
        // Relaxed: the lock orders the shared word; the CPUs' words are counted as of some moment each.
        let shared = self.shared.count.load(Ordering::Relaxed);
        shared.wrapping_add(self.words.get().map_or(0, |words| words.sum(0) as i64))
    }
}

/// True if a count of `value`, give or take `margin`, is not past `limit` in the direction of `amount`. `None` is
/// a value past the range of numbers, and so past every limit.
#[inline]
fn within(limit: i64, value: Option<i64>, amount: i64, margin: i64) -> bool {
    match value {
        Some(value) if amount > 0 => {
            value.checked_add(margin).is_some_and(|highest| highest <= limit)
        }
        Some(value) => value.checked_sub(margin).is_some_and(|lowest| lowest >= limit),
        None => false,
    }
}

// SAFETY: `before` holds the fold's lock, which keeps every other thread out of the slow paths; the fast paths hold
// nothing.
unsafe impl AtFork for Shared {
    fn before(&self) {
        self.fold.before();
    }

    fn after(&self, child: bool) {
        self.fold.after(child);
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("sum", &self.sum()).field("batch", &self.batch).finish()
    }
}
