//! Names that do not fit into a dentry: blocks of words, freed by RCU.

use crate::dcache::name::{NAME_MAX, Name};
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_slab::{LazyCache, Options, RawCache};
use quietline_sync::rcu::Domain;

/// Bytes of the smaller blocks.
const SMALL: usize = 64;
const LARGE: usize = (NAME_MAX + 1).next_multiple_of(64);

/// Where the blocks come from.
#[derive(Debug)]
pub(crate) struct LongNames {
    small: LazyCache,
    large: LazyCache,
}

/// A block with a name of a known length. Nobody writes to it after it is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct LongName {
    words: NonNull<AtomicU64>,
    len: usize,
}

impl LongNames {
    pub(crate) fn new(domain: &'static Domain) -> Self {
        fn options(domain: &'static Domain, name: &str, size: usize) -> Options {
            Options { rcu: Some(domain), ..Options::new(name, size, 64) }
        }
        // SAFETY: there is no hook.
        unsafe {
            Self {
                small: LazyCache::new(|domain| options(domain, "dname_small", SMALL), domain),
                large: LazyCache::new(|domain| options(domain, "dname_large", LARGE), domain),
            }
        }
    }

    fn cache(&self, len: usize) -> &LazyCache {
        if len <= SMALL { &self.small } else { &self.large }
    }

    /// A block with the name in it.
    pub(super) fn alloc(&self, name: &Name<'_>) -> Result<LongName, AllocError> {
        let words = self.cache(name.bytes().len()).alloc()?.cast::<AtomicU64>();
        for i in 0..name.nr_words() {
            // SAFETY: fresh memory with room for the words of a name of this length.
            unsafe { words.add(i).write(AtomicU64::new(name.word(i))) };
        }
        Ok(LongName { words, len: name.bytes().len() })
    }

    /// Frees a block that was never in a dentry that anybody saw.
    ///
    /// # Safety
    /// It is the caller's, and of these caches.
    pub(super) unsafe fn free(&self, name: LongName) {
        // SAFETY: by contract.
        unsafe { self.cache(name.len).free(name.words.cast()) };
    }

    /// Frees a block after a grace period.
    ///
    /// # Safety
    /// It is of these caches, and in no dentry that a section which begins later finds.
    pub(super) unsafe fn free_rcu(&self, name: LongName) {
        // SAFETY: by contract.
        unsafe { self.cache(name.len).free_rcu(name.words.cast()) };
    }

    pub(crate) fn caches(&self) -> [&LazyCache; 2] {
        [&self.small, &self.large]
    }

    pub(crate) fn caches_mut(&mut self) -> [Option<&mut RawCache>; 2] {
        [self.small.made_mut(), self.large.made_mut()]
    }
}

impl LongName {
    pub(super) fn into_word(self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }

    /// # Safety
    /// `word` came from [`into_word`](Self::into_word) of a name of this length, whose memory is valid while this is used.
    pub(super) unsafe fn from_word(word: u64, len: usize) -> Self {
        let words = core::ptr::with_exposed_provenance_mut(word as usize);
        // SAFETY: by contract it is the address of a block.
        Self { words: unsafe { NonNull::new_unchecked(words) }, len }
    }

    fn word(&self, i: usize) -> u64 {
        debug_assert!(i < self.len.div_ceil(8));
        // SAFETY: the block has the words of a name of its length. Relaxed: it was published with the dentry.
        unsafe { self.words.add(i).as_ref() }.load(Ordering::Relaxed)
    }

    pub(super) fn equals(&self, name: &Name<'_>) -> bool {
        debug_assert_eq!(self.len, name.bytes().len());
        (0..name.nr_words()).all(|i| self.word(i) == name.word(i))
    }

    pub(super) fn copy_to(&self, buffer: &mut [u8; NAME_MAX]) {
        for (i, to) in buffer[..self.len].chunks_mut(8).enumerate() {
            to.copy_from_slice(&self.word(i).to_le_bytes()[..to.len()]);
        }
    }
}
