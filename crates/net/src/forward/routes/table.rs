//! The table that readers walk.
//!
//! ```text
//!   root: 2^16 entries ──> chunk: 2^STRIDE entries ──> ... ──> leaf
//!                  └─────> tail: [ n bits to be compared | what comes then: a leaf, or a chunk behind those bits | else: a leaf ]
//! ```
//!
//! A prefix is written to all entries that it covers and no longer one does, so the walk ends at the answer. Where all prefixes below an
//! entry have some more bits in common, there is a tail, which has those to be compared and skips them: so the
//! walk is as long as there are places where prefixes part, and not as long as they are.

use super::entry::{Entry, Kind};
use crate::forward::address::Sealed;
use crate::forward::words::Words;
use core::marker::PhantomData;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{AllocError, heap};

/// Bits that the root looks at.
pub(super) const ROOT_BITS: u32 = if cfg!(loom) { 2 } else { 16 };
const ROOT: usize = 1 << ROOT_BITS;
/// Words of a tail.
pub(super) const TAIL_WORDS: usize = 8;
/// In a tail, behind the four words of its bits: what comes then, a leaf or a chunk.
const INNER: usize = 4;
/// In a tail: the leaf for addresses that begin with other bits.
const COVER: usize = 5;
/// In a tail: how many bits.
const LEN: usize = 6;

/// What a tail has besides the leaf around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail<A> {
    pub(super) bits: A,
    pub(super) len: u32,
    pub(super) inner: Entry,
}

/// Which entries one step of a walk looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Root,
    Chunk(u32),
}

pub(super) struct Table<A> {
    root: Box<[AtomicU32; ROOT]>,
    /// The leaf of the prefix of no bits: kept out of the table, as it would be everywhere.
    default: AtomicU32,
    pub(super) chunks: Words,
    pub(super) tails: Words,
    of: PhantomData<A>,
}

impl<A: Sealed> Table<A> {
    pub(super) const CHUNK_WORDS: usize = 1 << A::STRIDE;

    pub(super) fn new(chunks: Words, tails: Words) -> Result<Self, AllocError> {
        let root = heap::try_boxed_slice(ROOT, |_| AtomicU32::new(Entry::NONE.0))?;
        // (They are as many as the type says, so this moves nothing and does not fail.)
        let root = root.try_into().map_err(|_| AllocError)?;
        Ok(Self { root, default: AtomicU32::new(Entry::NONE.0), chunks, tails, of: PhantomData })
    }

    /// The leaf for an address: for the reader, in a read section.
    ///
    /// Writes nothing. A load for the root; for each chunk (of IPv4 two at most), and for each tail, a line, and before it, beyond the
    /// first 65,536 words of all chunks or tails, the pointer to where it is: see [`Words::get`].
    #[inline(always)]
    pub(super) fn lookup(&self, address: A) -> Entry {
        let mut entry = load(&self.root[address.bits_at(0, ROOT_BITS)]);
        let mut at = ROOT_BITS;
        loop {
            match entry.kind() {
                Kind::Leaf => break,
                Kind::Chunk(chunk) => {
                    // (A chunk's bits are an address's: what comes behind the last is a leaf.)
                    let slot = address.bits_at(at, A::STRIDE);
                    let word = self.chunks.get(chunk as usize * Self::CHUNK_WORDS + slot);
                    entry = word.map_or(Entry::NONE, load);
                    at += A::STRIDE;
                }
                Kind::Tail(tail) => {
                    let words = self.tails.array::<TAIL_WORDS>(tail as usize * TAIL_WORDS);
                    let Some(words) = words else { return Entry::NONE };
                    let Tail { bits, len, inner } = Self::tail_of(words);
                    let same = address.begins_with(bits, len);
                    entry = if same { inner } else { load(&words[COVER]) };
                    at = len;
                }
            }
        }
        if entry.hop() == 0 { load(&self.default) } else { entry }
    }

    #[inline(always)]
    fn tail_of(words: &[AtomicU32; TAIL_WORDS]) -> Tail<A> {
        // Relaxed: written before the tail was published, and not after.
        let bits = A::from_words(|word| words[word].load(Ordering::Relaxed));
        let len = words[LEN].load(Ordering::Relaxed);
        Tail { bits, len, inner: load(&words[INNER]) }
    }

    /// Begins to fetch what a [lookup](Self::lookup) looks at first. (The model has no caches.)
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn prefetch(&self, address: A) {
        let word = &self.root[address.bits_at(0, ROOT_BITS)];
        quietline_platform::hint::prefetch(core::ptr::from_ref(word).cast());
    }

    // What follows is for the writer, under the lock.

    /// The entries of a place.
    pub(super) fn slots(place: Place) -> usize {
        match place {
            Place::Root => ROOT,
            Place::Chunk(_) => Self::CHUNK_WORDS,
        }
    }

    /// An entry's word. The writer asks for those that it made.
    pub(super) fn word(&self, place: Place, slot: usize) -> &AtomicU32 {
        match place {
            Place::Root => &self.root[slot],
            Place::Chunk(chunk) => self
                .chunks
                .get(chunk as usize * Self::CHUNK_WORDS + slot)
                .expect("a chunk's words were made with it"),
        }
    }

    pub(super) fn entry(&self, place: Place, slot: usize) -> Entry {
        load(self.word(place, slot))
    }

    pub(super) fn set_entry(&self, place: Place, slot: usize, entry: Entry) {
        store(self.word(place, slot), entry);
    }

    pub(super) fn default(&self) -> &AtomicU32 {
        &self.default
    }

    fn tail_words(&self, tail: u32) -> &[AtomicU32; TAIL_WORDS] {
        self.tails.array(tail as usize * TAIL_WORDS).expect("a tail's words were made with it")
    }

    /// Writes a tail that nobody has seen.
    pub(super) fn set_tail(&self, tail: u32, new: Tail<A>, cover: Entry) {
        let words = self.tail_words(tail);
        for (word, value) in words.iter().zip(new.bits.to_words()) {
            // Relaxed, so below: the entry that will name the tail publishes it.
            word.store(value, Ordering::Relaxed);
        }
        words[LEN].store(new.len, Ordering::Relaxed);
        store(&words[INNER], new.inner);
        store(&words[COVER], cover);
    }

    pub(super) fn tail(&self, tail: u32) -> Tail<A> {
        Self::tail_of(self.tail_words(tail))
    }

    /// The word of what comes behind a tail's bits, and of the leaf around it.
    pub(super) fn tail_inner(&self, tail: u32) -> &AtomicU32 {
        &self.tail_words(tail)[INNER]
    }

    pub(super) fn tail_cover(&self, tail: u32) -> &AtomicU32 {
        &self.tail_words(tail)[COVER]
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.root) + self.chunks.bytes() + self.tails.bytes()
    }
}

#[inline(always)]
pub(super) fn load(word: &AtomicU32) -> Entry {
    // ORDERING: Acquire pairs with the release in `store`: what the entry names was written before.
    Entry(word.load(Ordering::Acquire))
}

pub(super) fn store(word: &AtomicU32, entry: Entry) {
    // ORDERING: Release pairs with the acquire in `load`: publishes the chunk, tail or next hop that the entry names.
    word.store(entry.0, Ordering::Release);
}
