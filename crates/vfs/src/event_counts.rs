//! Per-CPU counts of what begins and ends.
//!
//! An object is freed when as many of its users have ended as have begun. Each CPU counts both for
//! itself, and a thread that wants to free the object sums the ends first, then the beginnings.
//!
//! The words are allocated by the first beginning, which fails without memory, before anything is
//! counted. Each later event of the same user finds them.
//!
//! # Guarantee
//!
//! Once an event is counted, the thread that has counted it touches nothing of the counts: another
//! thread may have summed it, and freed them.

use quietline_platform::percpu::LazyWords;
use quietline_platform::{AllocError, FenceError};

/// `N` counts for each CPU.
#[derive(Debug)]
pub(crate) struct EventCounts<const N: usize> {
    words: LazyWords<N>,
}

impl<const N: usize> EventCounts<N> {
    /// Zeros, and no words yet.
    pub(crate) fn new() -> Self {
        Self { words: LazyWords::new() }
    }

    /// Counts the beginning of a user. Writes no shared line.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is counted.
    #[inline(always)]
    pub(crate) fn begin(&self, count: usize) -> Result<(), AllocError> {
        match self.words.ready() {
            Some(words) => {
                words.add(count, 1);
                Ok(())
            }
            None => self.begin_slow(count),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_slow(&self, count: usize) -> Result<(), AllocError> {
        // Nothing of this object is touched after the addition: not by the words' borrow either,
        // which is a pointer.
        self.words.get_or_make()?.add(count, 1);
        Ok(())
    }

    /// Counts an event of a user that was counted when it began. Writes no shared line.
    #[inline(always)]
    pub(crate) fn add(&self, count: usize, amount: u64) {
        match self.words.ready() {
            Some(words) => words.add(count, amount),
            None => self.add_slow(count, amount),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_slow(&self, count: usize, amount: u64) {
        // As in `begin_slow`.
        self.words.get().expect("made when the user began").add(count, amount);
    }

    /// Returns a count, over all CPUs.
    pub(crate) fn sum(&self, count: usize) -> u64 {
        self.words.sum(count)
    }

    /// See [`LazyWords::fence`].
    ///
    /// # Errors
    /// [`FenceError`] when the kernel refuses the barrier.
    pub(crate) fn fence(&self) -> Result<(), FenceError> {
        self.words.fence()
    }
}
