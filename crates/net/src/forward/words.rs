//! Words that readers find by number: an array that grows in place, and never moves.
//!
//! Memory comes in segments of 256 KiB, made under the owner's lock when they are first needed, and given back with the whole
//! array. Small tables have one, which is found by fewer steps than others. So a reader that has an old number reads an old word, or one that is used for something else by now, but
//! never memory that is not there: what RCU has to promise is only that the word still means what it meant.

use quietline_platform::atomic::AtomicU32;
use quietline_platform::{AllocError, heap};
use std::sync::OnceLock;

/// Words of a segment.
const SEGMENT: usize = if cfg!(loom) { 8 } else { 1 << 16 };

/// An array of words.
pub(super) struct Words {
    first: Segment,
    others: Box<[Segment]>,
}

type Segment = OnceLock<Box<[AtomicU32; SEGMENT]>>;

impl Words {
    /// An array for up to `most` words, of which there are none yet.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(super) fn new(most: usize) -> Result<Self, AllocError> {
        let others = most.div_ceil(SEGMENT).saturating_sub(1);
        Ok(Self {
            first: OnceLock::new(),
            others: heap::try_boxed_slice(others, |_| OnceLock::new())?,
        })
    }

    /// The segment of a word.
    #[inline(always)]
    fn segment(&self, word: usize) -> Option<&Segment> {
        if word < SEGMENT { Some(&self.first) } else { self.others.get(word / SEGMENT - 1) }
    }

    /// A word, if it was made: in the first segment one load, else two that depend on each other (a segment's state is on the line
    /// of its pointer).
    #[inline(always)]
    pub(super) fn get(&self, word: usize) -> Option<&AtomicU32> {
        Some(&self.segment(word)?.get()?[word % SEGMENT])
    }

    /// `N` words from a number on that is a multiple of `N`, which is a power of two.
    #[inline(always)]
    pub(super) fn array<const N: usize>(&self, first: usize) -> Option<&[AtomicU32; N]> {
        const { assert!(N.is_power_of_two() && N <= SEGMENT) };
        self.segment(first)?.get()?[first % SEGMENT..].first_chunk()
    }

    /// Makes the segment of a word, unless it is there. One caller at a time.
    ///
    /// # Errors
    /// [`AllocError`], also beyond what the array was made for.
    pub(super) fn make(&self, word: usize) -> Result<(), AllocError> {
        let segment = self.segment(word).ok_or(AllocError)?;
        if segment.get().is_none() {
            let fresh = heap::try_boxed_slice(SEGMENT, |_| AtomicU32::new(0))?;
            // (They are as many as the type says, so this moves nothing and does not fail.)
            let fresh = fresh.try_into().map_err(|_| AllocError)?;
            // Its owner's lock keeps others out.
            let _ = segment.set(fresh);
        }
        Ok(())
    }

    /// Bytes of the segments that were made.
    pub(super) fn bytes(&self) -> usize {
        let all = self.others.iter().chain([&self.first]);
        let made = all.filter(|segment| segment.get().is_some()).count();
        made * SEGMENT * size_of::<AtomicU32>()
    }
}
