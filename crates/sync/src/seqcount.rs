//! Readers that never write: a sequence number tells them whether what they read was whole.

use quietline_platform::atomic::{AtomicU32, Ordering, fence};
use quietline_platform::const_unless_loom;

use crate::backoff::Backoff;

/// A sequence count: odd while a writer is at work, changed by two by each write section.
///
/// A reader notes the count, reads the data and looks at the count again; if it moved, the data may be torn and is
/// thrown away. Readers write no line at all, so any number of them costs nothing; writers never wait for them.
///
/// The data itself must be in atomics (read and written [`Relaxed`](Ordering::Relaxed) is enough): a reader may read
/// while a writer writes, and throws the value away afterwards. Writers must already exclude each other by a lock
/// that the caller knows; debug builds panic when they do not.
///
/// ```
/// use quietline_platform::atomic::{AtomicU64, Ordering::Relaxed};
/// use quietline_sync::Seqcount;
///
/// let (seq, low, high) = (Seqcount::new(), AtomicU64::new(1), AtomicU64::new(2));
/// {
///     let _section = seq.write(); // under the writers' lock
///     low.store(3, Relaxed);
///     high.store(4, Relaxed);
/// }
/// let pair = loop {
///     let began = seq.read_begin();
///     let pair = (low.load(Relaxed), high.load(Relaxed));
///     if !seq.read_retry(began) {
///         break pair;
///     }
/// };
/// assert_eq!(pair, (3, 4));
/// ```
///
/// # Limits
///
/// A reader that sleeps through 2^31 write sections takes the new count for its own. A reader must not follow
/// pointers that it read before [`read_retry`](Self::read_retry) said that they belong together, unless what
/// they point to is kept from being freed by other means (RCU).
///
/// # Source
///
/// `include/linux/seqlock.h` (`seqcount_t`); for the orderings, H.-J. Boehm, "Can seqlocks get along with
/// programming language memory models?", MSPC 2012.
#[derive(Debug)]
pub struct Seqcount {
    sequence: AtomicU32,
}

/// Where a new count begins: in debug builds two write sections before the wrap-around.
const START: u32 = if cfg!(debug_assertions) { u32::MAX - 3 } else { 0 };

impl Seqcount {
    const_unless_loom! {
        /// A count with no writer at work.
        pub fn new() -> Self {
            Self { sequence: AtomicU32::new(START) }
        }
    }

    /// Begins a read section. Waits while a writer is at work: spins, then yields the CPU, then
    /// sleeps for at most a millisecond at a time. Writes no line.
    #[inline]
    pub fn read_begin(&self) -> u32 {
        match self.read_try() {
            Some(began) => began,
            None => self.read_begin_slow(),
        }
    }

    /// Begins a read section, or `None` while a writer is at work: for a reader that has another way to go. Writes
    /// no line.
    #[inline]
    pub fn read_try(&self) -> Option<u32> {
        // ORDERING: pairs with the Release store that ends a write section. An even count seen here brings all the
        // writes of the section that left it; an odd one brings nothing and none is promised.
        let began = self.sequence.load(Ordering::Acquire);
        (began & 1 == 0).then_some(began)
    }

    /// True if a writer was at work since `began` was noted: what was read must be thrown away. Writes no line.
    #[inline]
    #[must_use = "data read in the section is whole only if this is false"]
    pub fn read_retry(&self, began: u32) -> bool {
        // ORDERING: pairs with the Release fence of write. If any data read in the section came from a later write
        // section, then this fence makes that section's odd count (or a later one) visible below and the answer is
        // true; if none did, the count is as it was.
        fence(Ordering::Acquire);
        // Relaxed: ordered after the data by the fence; nothing that follows depends on it.
        self.sequence.load(Ordering::Relaxed) != began
    }

    /// Begins a write section, which ends when the value returned is dropped.
    ///
    /// The caller holds the lock that excludes other writers. Writes the count's line twice, with plain stores.
    ///
    /// # Panics
    ///
    /// In debug builds, if another write section is open.
    #[inline]
    pub fn write(&self) -> SeqcountWrite<'_> {
        // Relaxed: only writers change the count, and their lock orders them.
        let before = self.sequence.load(Ordering::Relaxed);
        debug_assert!(before & 1 == 0, "two write sections of one Seqcount at the same time");
        self.sequence.store(before.wrapping_add(1), Ordering::Relaxed);
        // ORDERING: pairs with the Acquire fence of read_retry. A reader that saw any data written after this fence
        // also sees the odd count; one that saw none may finish as if this section had not begun.
        fence(Ordering::Release);
        SeqcountWrite { seqcount: self, before }
    }

    #[cold]
    fn read_begin_slow(&self) -> u32 {
        let mut backoff = Backoff::crowd();
        loop {
            backoff.wait();
            if let Some(began) = self.read_try() {
                return began;
            }
        }
    }
}

impl Default for Seqcount {
    fn default() -> Self {
        Self::new()
    }
}

/// An open write section of a [`Seqcount`]; readers start over until it is dropped.
#[derive(Debug)]
#[must_use = "the write section ends when this is dropped"]
pub struct SeqcountWrite<'a> {
    seqcount: &'a Seqcount,
    before: u32,
}

impl Drop for SeqcountWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: pairs with the Acquire load of read_try. A reader that sees this count sees all that the section
        // wrote; one that sees the odd count waits or goes another way.
        self.seqcount.sequence.store(self.before.wrapping_add(2), Ordering::Release);
    }
}
