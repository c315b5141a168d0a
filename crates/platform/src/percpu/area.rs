//! An allocation of per-CPU words in memory.

use super::body;
use super::chunk::{self, SHIFT};
use crate::atomic::AtomicU64;
use crate::{AllocError, FenceError};
use core::ptr::NonNull;

/// `N` words for each CPU.
#[derive(Debug)]
pub(crate) struct Area<const N: usize> {
    words: NonNull<AtomicU64>,
    /// The offset of the thread's rseq area, constant once there are words. It lies here beside what
    /// every operation reads, and needs no look into the table of addresses of other crates'
    /// variables.
    #[cfg(not(quietline_sim))]
    pub(crate) offset: isize,
}

// SAFETY: words are atomics, reached by per-CPU operations that are indivisible on their CPU.
unsafe impl<const N: usize> Send for Area<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Area<N> {}

impl<const N: usize> Area<N> {
    pub(crate) fn new(initial: [u64; N]) -> Result<Self, AllocError> {
        Ok(Self {
            words: chunk::alloc(&initial)?.cast(),
            // After the first allocation, which decides.
            #[cfg(not(quietline_sim))]
            offset: body::offset(),
        })
    }

    /// A handle on words by the address of CPU 0's copy.
    ///
    /// # Safety
    /// `words` is the [base](Self::base) of `N` words, and `offset` that of their handle. The new
    /// handle is used while the words live, and dropped only by their owner.
    #[inline(always)]
    pub(crate) unsafe fn from_base(
        words: NonNull<AtomicU64>,
        #[cfg(not(quietline_sim))] offset: isize,
    ) -> Self {
        Self {
            words,
            #[cfg(not(quietline_sim))]
            offset,
        }
    }

    /// The address of CPU 0's copy.
    pub(crate) fn base(&self) -> NonNull<AtomicU64> {
        self.words
    }

    pub(crate) fn word(&self, cpu: usize, index: usize) -> &AtomicU64 {
        &self.copy(cpu)[index]
    }

    /// The address of CPU 0's copy of a word.
    #[cfg(not(quietline_sim))]
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> *mut u64 {
        assert!(index < N, "no such per-CPU word");
        // SAFETY: in range.
        unsafe { self.words.as_ptr().add(index).cast() }
    }

    /// One CPU's copy.
    pub(crate) fn copy(&self, cpu: usize) -> &[AtomicU64] {
        assert!(cpu < body::copies(), "no such CPU");
        // SAFETY: every CPU's copy lies inside the chunk, and lives as long as the area.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().byte_add(cpu << SHIFT), N) }
    }

    pub(crate) fn fence(&self) -> Result<(), FenceError> {
        body::fence()
    }
}

impl<const N: usize> Drop for Area<N> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size in `new`; nobody can call an operation any more.
        unsafe { chunk::free(self.words.cast(), N) };
    }
}
