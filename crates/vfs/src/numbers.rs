//! Which descriptor numbers are taken.

use quietline_platform::AllocError;

const BITS: usize = u64::BITS as usize;

/// A bitmap of taken numbers, and above it one bit for each of its words that is full, so that a million numbers
/// are searched in a few steps.
///
/// A number is taken from its reservation until it is given back: also while it is in a CPU's store.
#[derive(Debug)]
pub(crate) struct Numbers {
    taken: Vec<u64>,
    full: Vec<u64>,
    /// No number below this is free.
    next: usize,
    /// Numbers that are leased: in a CPU's store, or open and going back to one when closed.
    leases: usize,
    /// No leased number is below this.
    lowest_lease: usize,
    /// One more than the highest number that the lowest-number rule has handed out.
    top: usize,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        Self { taken: Vec::new(), full: Vec::new(), next: 0, leases: 0, lowest_lease: usize::MAX, top: 0 }
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

    /// Ends the lease of a number that stays taken.
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
        self.taken.try_reserve_exact(words - self.taken.len()).map_err(|_| AllocError)?;
        self.full.try_reserve_exact(summary - self.full.len()).map_err(|_| AllocError)?;
        self.taken.resize(words, 0);
        self.full.resize(summary, 0);
        Ok(())
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
    #[inline]
    pub(crate) fn give_back(&mut self, fd: usize) {
        debug_assert!(self.is_taken(fd), "number {fd} is given back twice");
        self.taken[fd / BITS] &= !(1 << (fd % BITS));
        self.full[fd / BITS / BITS] &= !(1 << (fd / BITS % BITS));
        self.next = self.next.min(fd);
    }

    /// Takes up to `n` free numbers below `limit` for a CPU's store, preferably well above those of the lowest-number
    /// rule, and gives each to `give`. How many.
    pub(crate) fn lease(
        &mut self,
        n: usize,
        limit: usize,
        mut give: impl FnMut(usize) -> Result<(), AllocError>,
    ) -> Result<usize, AllocError> {
        let apart = limit.div_ceil(2).min(1024).max(self.top.next_power_of_two());
        let top = self.top;
        let mut leased = 0;
        'search: for from in [apart, 0] {
            let mut from = from;
            while leased < n {
                let fd = self.lowest_free(from);
                if fd >= limit {
                    continue 'search;
                }
                self.grow(fd)?;
                give(fd)?;
                self.take(fd);
                self.leases += 1;
                self.lowest_lease = self.lowest_lease.min(fd);
                leased += 1;
                from = fd + 1;
            }
            break;
        }
        // Leases are not the lowest-number rule's.
        self.top = top;
        Ok(leased)
    }
}
