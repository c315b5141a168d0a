//! A directory's names: a table that readers probe without a lock.
//!
//! # The contended way
//!
//! One hash for all names of a kernel: buckets that unrelated directories share, a lock in each, a table that is too large
//! or too small, and a comparison of the parent for every name that is passed.
//!
//! # Our way
//!
//! Each directory that has children has a table of words, eight to a line. A word is the address of a child and 16 bits of
//! the hash of its name in the bits that an address does not use, so that a lookup which finds its name at once reads one
//! line of the table, and one that finds nothing reads no child at all.
//!
//! ```text
//!      63        48 47                                          0
//!     +------------+---------------------------------------------+
//!     | hash bits  |  address of the child                       |      0: never used; ends a search
//!     +------------+---------------------------------------------+      1: its child is gone
//! ```
//!
//! Linear probing. The writer, who holds the directory's lock, keeps a quarter of the slots never used; when that does not
//! go any more, it publishes another table, and readers of the old one see it as it was. What readers must look at beyond
//! the table so that they never miss a name that is there, [`find`](Table::find) says.

use core::marker::PhantomData;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicU64, AtomicUsize, Ordering};

const EMPTY: u64 = 0;
const GONE: u64 = 1;

const HASH_BITS: u32 = 16;
const HIGH_SHIFT: u32 = 64 - HASH_BITS;
const ADDRESS: u64 = ((1 << HIGH_SHIFT) - 1) & !GONE;

/// Slots of the smallest table: a line.
pub(crate) const LEAST: usize = 8;

/// The hash bits of a slot, where the slot has them. They are the uppermost of a 56-bit hash; the slot's place comes from the
/// lowest.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash >> (56 - HASH_BITS) << HIGH_SHIFT
}

/// Where the search for a hash begins.
#[inline(always)]
fn first_slot(hash: u64, mask: usize) -> usize {
    // Of the lowest bits alone, so that the uppermost need not be cleared.
    hash as u32 as usize & mask
}

/// A slot's word.
#[inline(always)]
fn word<T>(hash: u64, child: NonNull<T>) -> u64 {
    let address = child.as_ptr().addr() as u64;
    debug_assert!(address & !ADDRESS == 0, "a child lies on a line and below 2^48");
    address | tag(hash)
}

/// What a reader made of a child that may be the one it looks for.
pub(crate) enum Verdict<R> {
    /// It is.
    Found(R),
    /// It is not: it has another name, which happens when the hash bits agree.
    ///
    /// What its sequence count said is in it.
    Other(u32),
    /// It was at one moment, or may be now: it was renamed or taken away meanwhile.
    Changed,
}

/// The slots of a table, and what the writer counts.
pub(crate) struct Table<T> {
    slots: NonNull<AtomicU64>,
    log: u32,
    of: PhantomData<T>,
}

/// What the writer of a table counts: under the directory's lock, so all accesses are relaxed.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Slots with a child.
    live: AtomicUsize,
    /// Slots that are not [`EMPTY`].
    used: AtomicUsize,
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self { live: AtomicUsize::new(0), used: AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Whether one more child fits into so many slots.
    #[inline]
    pub(crate) fn fits(&self, slots: usize) -> bool {
        (self.used.load(Ordering::Relaxed) + 1) * 4 <= slots * 3
    }

    #[inline]
    fn add(counter: &AtomicUsize, n: isize) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add_signed(n), Ordering::Relaxed);
    }
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Table<T> {}

impl<T> Table<T> {
    /// A table of `2^log` slots.
    ///
    /// # Safety
    /// They are at `slots`, zeroed or as a table of the same kind left them, and stay while the table is used.
    #[inline(always)]
    pub(crate) unsafe fn new(slots: NonNull<AtomicU64>, log: u32) -> Self {
        Self { slots, log, of: PhantomData }
    }

    /// The first slot.
    #[inline(always)]
    pub(crate) fn slots(&self) -> NonNull<AtomicU64> {
        self.slots
    }

    /// How many slots there are.
    pub(crate) fn len(&self) -> usize {
        1 << self.log
    }

    #[inline(always)]
    fn slot(&self, i: usize) -> &AtomicU64 {
        debug_assert!(i < self.len());
        // SAFETY: callers mask the index, or count to the length; by `new`'s contract the slots are there.
        unsafe { self.slots.add(i).as_ref() }
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.len() - 1
    }

    /// Looks for a name; none if it is not there, and [`Changed`] if the search must begin anew, from the directory's pointer
    /// to its table. Writes nothing.
    ///
    /// `look` looks at a child whose hash bits agree. Its verdict is [`Other`](Verdict::Other) only if the child had
    /// another name at one moment of the call of `look`, after the child was found in the slot; then this looks at the slot
    /// again, and at the child by `same`, which says whether the child's name has not been written since.
    ///
    /// # Why a miss is final
    ///
    /// A name that is in the directory all the time is missed only if each slot that it was in held something else when
    /// this looked. Names move between slots in two ways. Into another table: this one keeps its word, and the child in it,
    /// if it is the wrong one by now, was renamed or unlinked, which `look` sees. And by renames that replace or exchange,
    /// which store the new child into the slot of the old one, so the slot never is without the name: this finds the new child,
    /// or the old one with a wrong name, in which case one of the two second looks shows that (the slot changed before
    /// the old child's name stood still; if the slot holds the old child again, the name was written again).
    #[inline(always)]
    pub(crate) fn find<R>(
        &self,
        hash: u64,
        mut look: impl FnMut(NonNull<T>) -> Verdict<R>,
        same: impl Fn(NonNull<T>, u32) -> bool,
    ) -> Result<Option<R>, Changed> {
        let wanted = tag(hash);
        let mask = self.mask();
        let mut i = first_slot(hash, mask);
        loop {
            // ORDERING: pairs with the releases in `insert` and `replace`: who finds a child finds it made.
            let found = self.slot(i).load(Ordering::Acquire);
            if found >> HIGH_SHIFT == wanted >> HIGH_SHIFT
                && let Some(child) = NonNull::new((found & ADDRESS) as *mut T)
            {
                match look(child) {
                    Verdict::Found(result) => return Ok(Some(result)),
                    // ORDERING: the slot is read after what `look` read, whose last act is a fence with acquire order; and
                    // `same` reads after the slot: acquire.
                    Verdict::Other(seq)
                        if self.slot(i).load(Ordering::Acquire) == found && same(child, seq) => {}
                    _ => return Err(Changed),
                }
            } else if found == EMPTY {
                return Ok(None);
            }
            i = (i + 1) & mask;
        }
    }

    /// The first child whose hash bits agree; none if the name is not there. A name that is found to be another one says
    /// nothing: that is for [`find`](Self::find). Writes nothing.
    #[inline(always)]
    pub(crate) fn first(&self, hash: u64) -> Option<NonNull<T>> {
        let wanted = tag(hash);
        let mask = self.mask();
        let mut i = first_slot(hash, mask);
        loop {
            // ORDERING: as in `find`.
            let found = self.slot(i).load(Ordering::Acquire);
            if (found ^ wanted) >> HIGH_SHIFT == 0 {
                // By itself: together the two tests take twice the instructions.
                match NonNull::new((found & ADDRESS) as *mut T) {
                    None if found == EMPTY => return None,
                    None => {}
                    child => return child,
                }
            } else if found == EMPTY {
                return None;
            }
            i = (i + 1) & mask;
        }
    }

    /// The child that `is` the one, for the writer: nothing moves meanwhile.
    #[inline]
    pub(crate) fn find_locked(
        &self,
        hash: u64,
        is: impl Fn(NonNull<T>) -> bool,
    ) -> Option<NonNull<T>> {
        let wanted = tag(hash);
        let mask = self.mask();
        let mut i = first_slot(hash, mask);
        loop {
            // Relaxed: only the caller writes.
            let found = self.slot(i).load(Ordering::Relaxed);
            if (found ^ wanted) >> HIGH_SHIFT == 0 {
                // As in `first`.
                match NonNull::new((found & ADDRESS) as *mut T) {
                    None if found == EMPTY => return None,
                    Some(child) if is(child) => return Some(child),
                    _ => {}
                }
            } else if found == EMPTY {
                return None;
            }
            i = (i + 1) & mask;
        }
    }

    /// The slot of a child, for the writer.
    #[inline]
    fn place(&self, hash: u64, child: NonNull<T>) -> Option<usize> {
        let wanted = word(hash, child);
        let mask = self.mask();
        let mut i = first_slot(hash, mask);
        loop {
            // Relaxed: only the caller writes.
            match self.slot(i).load(Ordering::Relaxed) {
                EMPTY => return None,
                found if found == wanted => return Some(i),
                _ => i = (i + 1) & mask,
            }
        }
    }

    /// Adds a child whose name is not in the table; there is room.
    #[inline]
    pub(crate) fn insert(&self, counts: &Counts, hash: u64, child: NonNull<T>) {
        let mask = self.mask();
        let mut i = first_slot(hash, mask);
        // Relaxed: only the caller writes.
        while self.slot(i).load(Ordering::Relaxed) & ADDRESS != 0 {
            i = (i + 1) & mask;
        }
        if self.slot(i).load(Ordering::Relaxed) == EMPTY {
            Counts::add(&counts.used, 1);
        }
        Counts::add(&counts.live, 1);
        // ORDERING: pairs with the acquire in `find`: who finds the child finds it made. Who finds the slot as it was
        // began before this ends.
        self.slot(i).store(word(hash, child), Ordering::Release);
    }

    /// Puts a child into the slot of another one with the same name.
    pub(crate) fn replace(&self, hash: u64, old: NonNull<T>, new: NonNull<T>) {
        let Some(i) = self.place(hash, old) else { missing() };
        // ORDERING: as in `insert`.
        self.slot(i).store(word(hash, new), Ordering::Release);
    }

    /// Puts two children into each other's slots, which may be in two tables.
    pub(crate) fn exchange(
        &self,
        hash: u64,
        mine: NonNull<T>,
        other: &Self,
        other_hash: u64,
        its: NonNull<T>,
    ) {
        let place = |table: &Self, hash, child| match table.place(hash, child) {
            Some(i) => i,
            None => missing(),
        };
        let (i, j) = (place(self, hash, mine), place(other, other_hash, its));
        // ORDERING: as in `insert`.
        self.slot(i).store(word(hash, its), Ordering::Release);
        other.slot(j).store(word(other_hash, mine), Ordering::Release);
    }

    /// Takes a child out.
    #[inline]
    pub(crate) fn remove(&self, counts: &Counts, hash: u64, child: NonNull<T>) {
        let Some(mut i) = self.place(hash, child) else { missing() };
        Counts::add(&counts.live, -1);
        // A slot before one that was never used ends searches as well as that one: none goes on beyond it.
        let end = self.slot((i + 1) & self.mask()).load(Ordering::Relaxed) == EMPTY;
        // ORDERING: release, for who finds this slot without the child and then looks elsewhere for it: a rename has put it
        // there before.
        self.slot(i).store(if end { EMPTY } else { GONE }, Ordering::Release);
        if end {
            Counts::add(&counts.used, -1);
            loop {
                i = i.wrapping_sub(1) & self.mask();
                // Relaxed: nothing is learned from it but that it is the end of searches.
                if self.slot(i).load(Ordering::Relaxed) != GONE {
                    break;
                }
                // ORDERING: as above: searches end here from now on that have gone on before.
                self.slot(i).store(EMPTY, Ordering::Release);
                Counts::add(&counts.used, -1);
            }
        }
    }

    /// All children, for the writer or for a reader who may miss some.
    pub(crate) fn each(&self, mut f: impl FnMut(NonNull<T>)) {
        for i in 0..self.len() {
            // ORDERING: as in `find`.
            let found = self.slot(i).load(Ordering::Acquire);
            if let Some(child) = NonNull::new((found & ADDRESS) as *mut T) {
                f(child);
            }
        }
    }
}

#[cold]
#[inline(never)]
fn missing() -> ! {
    panic!("a child that is taken out or replaced is in its directory's table")
}

/// The table was changed under the search.
#[derive(Debug)]
pub(crate) struct Changed;
