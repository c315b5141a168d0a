//! How a pipe is, in one word: what can be done with it, and which of its few bytes are full.

use crate::poll::Events;
use quietline_platform::atomic::{AtomicU64, Ordering};

/// A reader is told of this.
pub(super) const READABLE: Events = Events::IN.union(Events::RDNORM);
/// A writer is told of this.
pub(super) const WRITABLE: Events = Events::OUT.union(Events::WRNORM);

/// Bytes that fit beside a pipe's lock.
pub(super) const FEW: usize = 8;

/// In the word: it has been polled.
const POLLED: u64 = 1 << 31;
/// In the word: bytes may be put among the few.
const TAKES_FEW: u64 = 1 << 48;

/// The word, where all can see it.
#[derive(Debug)]
pub(super) struct Shown(AtomicU64);

impl Shown {
    #[inline(always)]
    pub(super) fn new(now: Now) -> Self {
        Self(AtomicU64::new(now.0))
    }

    /// How the pipe is, for the holder of its lock.
    #[inline(always)]
    pub(super) fn held(&self) -> Now {
        // Relaxed: changed under the lock only.
        Now(self.0.load(Ordering::Relaxed))
    }

    /// How the pipe is, or was a moment ago.
    #[inline(always)]
    pub(super) fn look(&self) -> Now {
        // ORDERING: pairs with the release in `show`.
        Now(self.0.load(Ordering::Acquire))
    }

    /// Says how the pipe is. For the holder of its lock.
    #[inline(always)]
    pub(super) fn show(&self, now: Now) {
        // ORDERING: pairs with the acquire in `look`: who is told of bytes finds what came before them.
        self.0.store(now.0, Ordering::Release);
    }
}

/// What the word says.
///
/// ```text
///   bit   48           40    32    31
///         takes few │ end │ start │ polled │ events
/// ```
///
/// The few are one buffer, the only one of the pipe. What they were given they keep where it is, as a page does: when they are
/// moved to one, it has as much room left as if it had been there from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Now(u64);

impl Now {
    /// Nothing in it; it is open at both ends, and takes few.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self(WRITABLE.bits() as u64 | TAKES_FEW)
    }

    /// These events, with the same few.
    #[inline(always)]
    pub(super) fn with(self, events: Events, polled: bool, takes_few: bool) -> Self {
        let few = self.0 & 0xffff << 32;
        let flags = if polled { POLLED } else { 0 } | if takes_few { TAKES_FEW } else { 0 };
        Self(u64::from(events.bits()) | flags | few)
    }

    /// Returns the state of a pipe that has no readers, and takes no short writes therefore, or, if
    /// `no_readers` is false, of one that has no writers.
    #[inline(always)]
    pub(super) fn one_sided(self, no_readers: bool) -> Self {
        let hung_up = self.0 | u64::from(Events::HUP.bits());
        let broken = (self.0 | u64::from(Events::ERR.bits())) & !TAKES_FEW;
        Self(if no_readers { broken } else { hung_up })
    }

    /// Without the few.
    #[inline(always)]
    pub(super) fn without_few(self) -> Self {
        Self(self.0 & !(0xffff << 32))
    }

    /// What can be done.
    #[inline(always)]
    pub(super) fn events(self) -> Events {
        Events::from_bits_retain(self.0 as u32 & !(POLLED as u32))
    }

    /// Whether anybody has ever asked.
    #[inline(always)]
    pub(super) fn is_polled(self) -> bool {
        self.0 & POLLED != 0
    }

    /// Whether there is something to read.
    #[inline(always)]
    pub(super) fn is_readable(self) -> bool {
        self.0 as u32 & Events::IN.bits() != 0
    }

    /// Which of the few are full: from, to.
    #[inline(always)]
    pub(super) fn few(self) -> (usize, usize) {
        ((self.0 >> 32) as u8 as usize, (self.0 >> 40) as u8 as usize)
    }

    /// How many of the few are full.
    #[inline(always)]
    pub(super) fn few_len(self) -> usize {
        let (start, end) = self.few();
        end - start
    }

    /// With `n` bytes more among the few, if they fit there.
    #[inline(always)]
    pub(super) fn more(self, n: usize) -> Option<Self> {
        let (_, end) = self.few();
        let fits = self.0 & TAKES_FEW != 0 && n <= FEW - end;
        fits.then(|| Self((self.0 | u64::from(READABLE.bits())) + ((n as u64) << 40)))
    }

    /// With `n` of the few read, of those that are full.
    #[inline(always)]
    pub(super) fn less(self, n: usize) -> Self {
        if n == self.few_len() {
            return Self(self.without_few().0 & !u64::from(READABLE.bits()));
        }
        Self(self.0 + ((n as u64) << 32))
    }
}
