//! What a file was opened for, and whether a reader may have met it: two in one word.
//!
//! # The problem
//!
//! A call by descriptor that takes a reference to the file pays for it with two locked instructions, more than a read of
//! one byte costs. Without a reference, nothing keeps the file's object, which is freed with the last one. If objects
//! waited for a grace period, calls inside a read section could use what they find; but then every socket that is made
//! and closed again would wait for one.
//!
//! # Our way
//!
//! An object waits for a grace period only if a reader may have met it, and that is a bit of the file. The first reader
//! sets it; who ends the file looks at it:
//!
//! ```text
//!   reader, in a read section                  who ends the file
//!   finds the file in its slot                 takes it out of its slot
//!   MET := 1, unless it is set                 count := dead        (the exchange that it makes anyway)
//!   count: still alive?  if not, looks anew    MET?  set: the object is freed after a grace period
//!   uses the object until its section ends           else: at once
//! ```
//!
//! All of these are in one order that everybody agrees about (`SeqCst`), so of the two looks at least one finds what the
//! other side did: the classical pair of Dekker's. A reader that finds the bit set by another one is in the same place: the
//! bit comes before its look at the count in that order, whoever set it.
//!
//! The bit may have been set in a later life of the file by a reader that came late: then that life's object waits for a
//! grace period that it had not needed.

#[cfg(loom)]
use quietline_platform::atomic::fence;
use quietline_platform::atomic::{AtomicU32, Ordering};

/// The word.
#[derive(Debug)]
pub(crate) struct Mode(AtomicU32);

/// The word of a file that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended(u32);

/// A reader may have met the file.
const MET: u32 = 1 << 31;
/// Pollers are told when the file ends.
const WATCHED: u32 = 1 << 30;
/// The file has taken locks on a pseudo object, which end with the file.
const LOCKED: u32 = 1 << 7;
/// The object is closed before the file is freed.
const OBJECT_FIRST: u32 = 1 << 6;
const OWN: u32 = MET | WATCHED | LOCKED | OBJECT_FIRST;
/// A number goes with it: how often a fifo had been opened for writing.
const SINCE: u32 = 1 << 29;
/// Where the number is.
const NUMBER: core::ops::Range<u32> = 8..29;
const NUMBER_MASK: u32 = (1 << (NUMBER.end - NUMBER.start)) - 1;

impl Mode {
    /// Of a file that has not lived yet.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Begins a life, opened for `mode`. With `object_first`, the object is closed before the file
    /// is freed. Only its owner calls this, after the life's generation has begun.
    #[inline(always)]
    pub(crate) fn begin(&self, mode: u32, object_first: bool) {
        debug_assert_eq!(mode & OWN, 0);
        let first = if object_first { OBJECT_FIRST } else { 0 };
        // ORDERING: pairs with the acquires of who reads: who finds this finds the generation of this life, too.
        self.0.store(mode | first, Ordering::Release);
    }

    /// What the file was opened for.
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        // ORDERING: pairs with the release in `begin`, also by way of `meet`.
        self.0.load(Ordering::Acquire) & !OWN
    }

    /// Notes in a new file on a fifo how often that had been opened for writing before, but for multiples of 2^21.
    pub(crate) fn set_since(&self, opened: u32) {
        // Relaxed: nobody else has the file yet.
        self.0.fetch_or(SINCE | (opened & NUMBER_MASK) << NUMBER.start, Ordering::Relaxed);
    }

    /// Whether that was noted, and is as often as it has been opened now.
    pub(crate) fn is_since(&self, opened: u32) -> bool {
        self.has_since() && self.get() >> NUMBER.start & NUMBER_MASK == opened & NUMBER_MASK
    }

    /// Whether that was noted.
    pub(crate) fn has_since(&self) -> bool {
        self.get() & SINCE != 0
    }

    /// Whether the object of a file that was found in a slot stays until the reader's section ends. `alive` looks at the
    /// file's count with `SeqCst`. If not, the reader [meets](Self::meet) the file and looks anew.
    #[inline(always)]
    pub(crate) fn is_met(&self, alive: impl FnOnce() -> bool) -> bool {
        // ORDERING: SeqCst: finds the bit at a place in the one order that is after its setter's and before the look at the
        // count; pairs with `end`.
        let met = self.0.load(Ordering::SeqCst) & MET != 0;
        // The model takes SeqCst accesses for weaker ones; a fence stands for what they do.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        met && alive()
    }

    /// Notes that a reader has met the file. It may be another life than the one that was found.
    #[cold]
    pub(crate) fn meet(&self) {
        // ORDERING: SeqCst, as in `is_met`.
        self.0.fetch_or(MET, Ordering::SeqCst);
        #[cfg(loom)]
        fence(Ordering::SeqCst);
    }

    /// Notes that pollers are told when the file ends. For a holder of a reference.
    pub(crate) fn watch(&self) {
        self.note(WATCHED);
    }

    /// Notes that the locks of the file end with it. For a holder of a reference.
    pub(crate) fn lock(&self) {
        self.note(LOCKED);
    }

    fn note(&self, bit: u32) {
        // Relaxed: set for good in this life, and before the put of the reference.
        if self.0.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        // ORDERING: Release: pairs with `end`, by way of the put of the holder's reference: the
        // thread that ends the file sees all earlier notes of the file.
        self.0.fetch_or(bit, Ordering::Release);
    }

    /// The word, for who has made the file's count dead by an exchange with `SeqCst`.
    #[inline(always)]
    pub(crate) fn end(&self) -> Ended {
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        // ORDERING: SeqCst: after the exchange in the one order; pairs with `is_met`.
        Ended(self.0.load(Ordering::SeqCst))
    }
}

impl Ended {
    /// Returns the word of a file that could not be opened for `mode`.
    #[cold]
    pub(crate) fn unopened(mode: u32) -> Self {
        Self(mode)
    }

    /// What the file was opened for.
    #[inline(always)]
    pub(crate) fn mode(self) -> u32 {
        self.0 & !OWN
    }

    /// Whether a reader may be looking at the object.
    #[inline(always)]
    pub(crate) fn is_met(self) -> bool {
        self.0 & MET != 0
    }

    /// Whether pollers are told.
    #[inline(always)]
    pub(crate) fn is_watched(self) -> bool {
        self.0 & WATCHED != 0
    }

    /// Whether locks end with the file.
    #[inline(always)]
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// Returns whether others are told of the file's end, or its object is closed first.
    #[inline(always)]
    pub(crate) fn is_noted(self) -> bool {
        self.0 & (WATCHED | LOCKED | OBJECT_FIRST) != 0
    }
}
