//! Which descriptor numbers are taken.

use core::ops::{Index, IndexMut};
use quietline_platform::AllocError;

const BITS: usize = u64::BITS as usize;

const WORDS: usize = 8;

/// Words of bits, on lines of their own: the bitmap of a small table would otherwise share one with that of another
/// process, which the heap put beside it (two processes, each with a thread that opens and closes: 80 ns instead of 28).
#[derive(Debug, Default)]
struct Bitmap(Vec<Line>);

#[derive(Debug, Clone, Default)]
#[repr(align(64))]
struct Line([u64; WORDS]);

impl Bitmap {
    /// Words that there are.
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len() * WORDS
    }

    #[inline(always)]
    fn get(&self, word: usize) -> Option<&u64> {
        self.0.get(word / WORDS).map(|line| &line.0[word % WORDS])
    }

    /// Makes room for so many words, zeroed; changes nothing if there is no memory.
    fn grow(&mut self, words: usize) -> Result<(), AllocError> {
        let lines = words.div_ceil(WORDS);
        if lines > self.0.len() {
            self.0.try_reserve_exact(lines - self.0.len()).map_err(|_| AllocError)?;
            self.0.resize(lines, Line::default());
        }
        Ok(())
    }
}

impl Index<usize> for Bitmap {
    type Output = u64;

    #[inline(always)]
    fn index(&self, word: usize) -> &u64 {
        &self.0[word / WORDS].0[word % WORDS]
    }
}

impl IndexMut<usize> for Bitmap {
    #[inline(always)]
    fn index_mut(&mut self, word: usize) -> &mut u64 {
        &mut self.0[word / WORDS].0[word % WORDS]
    }
}

/// A bitmap of taken numbers, and above it one bit for each of its words that is full, so that a million numbers
/// are searched in a few steps.
///
/// A number is taken from its reservation until it is given back: also while it is in a CPU's store.
#[derive(Debug)]
pub(crate) struct Numbers {
    taken: Bitmap,
    full: Bitmap,
    /// No number below this is free.
    next: usize,
    /// Numbers that are leased: in a CPU's store, or open and going back to one when closed.
    leases: usize,
    /// No leased number is below this.
    lowest_lease: usize,
    /// The lowest-number rule has handed out no number from here on that is still taken.
    top: usize,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        Self {
            taken: Bitmap::default(),
            full: Bitmap::default(),
            next: 0,
            leases: 0,
            lowest_lease: usize::MAX,
            top: 0,
        }
    }

    pub(crate) fn is_taken(&self, fd: usize) -> bool {
        self.taken.get(fd / BITS).is_some_and(|word| word & (1 << (fd % BITS)) != 0)
    }

    /// Numbers below this may be taken; none from it on is.
    pub(crate) fn end(&self) -> usize {
        self.taken.len() * BITS
    }

    /// Whether a leased number may lie at `fd` or below.
    #[inline]
    pub(crate) fn leases_up_to(&self, fd: usize) -> bool {
        self.lowest_lease <= fd
    }

    /// No leased number is below this.
    pub(crate) fn lowest_lease(&self) -> usize {
        self.lowest_lease
    }

    /// Tells of `known` leased numbers, all different and none below `lowest`: if there are no others, none is lower.
    pub(crate) fn leases_known(&mut self, known: usize, lowest: usize) {
        debug_assert!(known <= self.leases, "{known} leases are known, {} exist", self.leases);
        if known == self.leases {
            self.lowest_lease = lowest;
        }
    }

    /// Ends the lease of a number that stays taken: from now on it is the lowest-number rule's.
    pub(crate) fn settle(&mut self, fd: usize) {
        self.top = self.top.max(fd + 1);
        self.end_lease();
    }

    /// Ends the lease of a number, and gives it back.
    pub(crate) fn give_back_leased(&mut self, fd: usize) {
        self.give_back(fd);
        self.end_lease();
    }

    fn end_lease(&mut self) {
        debug_assert!(self.leases > 0, "a lease ends once");
        self.leases -= 1;
        if self.leases == 0 {
            self.lowest_lease = usize::MAX;
        }
    }

    /// The lowest free number from `from` on. O(1) where numbers are handed out in order; else a word of the bitmap
    /// for every 64, a word of the summary for every 4,096 numbers passed over.
    #[inline]
    pub(crate) fn lowest_free(&self, from: usize) -> usize {
        let from = from.max(self.next);
        let Some(first) = self.taken.get(from / BITS) else { return from };
        let free = !first & (u64::MAX << (from % BITS));
        if free != 0 {
            return from / BITS * BITS + free.trailing_zeros() as usize;
        }
        self.lowest_free_slow(from / BITS + 1)
    }

    fn lowest_free_slow(&self, mut word: usize) -> usize {
        while word < self.taken.len() {
            let open = !self.full[word / BITS] & (u64::MAX << (word % BITS));
            if open == 0 {
                word = (word / BITS + 1) * BITS;
                continue;
            }
            word = word / BITS * BITS + open.trailing_zeros() as usize;
            return match self.taken.get(word) {
                Some(taken) => word * BITS + (!taken).trailing_zeros() as usize,
                None => self.end(),
            };
        }
        self.end()
    }

    /// Takes the lowest free number, if it lies below `limit` and all leases, and in the word of
    /// the bitmap that the search begins with. `slot` returns the number's slot; without one
    /// nothing is taken. None: the caller searches by [`lowest_free`](Self::lowest_free).
    #[inline(always)]
    pub(crate) fn take_next<R>(
        &mut self,
        limit: usize,
        slot: impl FnOnce(usize) -> Option<R>,
    ) -> Option<(usize, R)> {
        let at = self.next / BITS;
        let word = &mut self.taken.0.get_mut(at / WORDS)?.0[at % WORDS];
        // Numbers below `next` are all taken, so that no bit need be masked.
        let fd = at * BITS + word.trailing_ones() as usize;
        let taken = *word | word.wrapping_add(1);
        // A word that is full, or becomes full, is for the general way.
        if taken == u64::MAX || fd >= limit || fd >= self.lowest_lease {
            return None;
        }
        let slot = slot(fd)?;
        *word = taken;
        self.next = fd + 1;
        self.top = self.top.max(fd + 1);
        Some((fd, slot))
    }

    /// Makes room in the bitmap for `fd`.
    #[inline]
    pub(crate) fn grow(&mut self, fd: usize) -> Result<(), AllocError> {
        if fd / BITS < self.taken.len() { Ok(()) } else { self.grow_slow(fd) }
    }

    #[cold]
    fn grow_slow(&mut self, fd: usize) -> Result<(), AllocError> {
        quietline_platform::fault::check()?;
        let words = (fd / BITS + 1).next_power_of_two();
        let summary = words.div_ceil(BITS);
        self.full.grow(summary)?;
        self.taken.grow(words)
    }

    /// Takes a free number for which there is room.
    #[inline]
    pub(crate) fn take(&mut self, fd: usize) {
        let word = &mut self.taken[fd / BITS];
        debug_assert!(*word & (1 << (fd % BITS)) == 0, "number {fd} is taken twice");
        *word |= 1 << (fd % BITS);
        if *word == u64::MAX {
            self.full[fd / BITS / BITS] |= 1 << (fd / BITS % BITS);
        }
        if fd == self.next {
            self.next = fd + 1;
        }
        self.top = self.top.max(fd + 1);
    }

    /// Gives a number back.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, fd: usize) {
        debug_assert!(self.is_taken(fd), "number {fd} is given back twice");
        let word = &mut self.taken[fd / BITS];
        if *word == u64::MAX {
            self.full[fd / BITS / BITS] &= !(1 << (fd / BITS % BITS));
        }
        *word &= !(1 << (fd % BITS));
        self.next = self.next.min(fd);
    }

    /// Takes up to `n` free numbers below `limit` for a CPU's store, preferably well above those of the lowest-number
    /// rule, and gives each to `give` until it says that this one is too many.
    ///
    /// # Errors
    /// [`AllocError`], `give`'s or that of having no room for the number; those given before stay leased.
    pub(crate) fn lease(
        &mut self,
        n: usize,
        limit: usize,
        mut give: impl FnMut(usize) -> Result<bool, AllocError>,
    ) -> Result<(), AllocError> {
        self.lower_top();
        let top = self.top;
        let apart = limit.div_ceil(2).min(1024).max(top.next_power_of_two());
        let mut leased = 0;
        for mut from in [apart, 0] {
            while leased < n {
                from = self.lowest_free(from);
                if from >= limit {
                    break;
                }
                self.grow(from)?;
                if !give(from)? {
                    return Ok(());
                }
                self.take(from);
                // It is a lease, and not the lowest-number rule's.
                self.top = top;
                self.leases += 1;
                self.lowest_lease = self.lowest_lease.min(from);
                leased += 1;
            }
        }
        Ok(())
    }

    /// Forgets numbers at the top that were given back. (A leased one stops it, which lies above in any case.)
    fn lower_top(&mut self) {
        while self.top > 0 {
            let word = (self.top - 1) / BITS;
            let below = self.taken[word] & (u64::MAX >> (BITS - 1 - (self.top - 1) % BITS));
            self.top = match below {
                0 => word * BITS,
                _ => {
                    self.top = (word + 1) * BITS - below.leading_zeros() as usize;
                    return;
                }
            };
        }
    }
}

#[cfg(test)]
mod tests;
