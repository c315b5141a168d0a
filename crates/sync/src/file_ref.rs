//! A reference count for objects in type-stable memory, taken without a loop.

use quietline_platform::atomic::{AtomicI64, Ordering};
use quietline_platform::const_unless_loom;

/// A reference count whose `get` and `put` are one unconditional addition each.
///
/// The word holds the number of references minus one, so its sign says whether the object lives:
///
/// ```text
///      i64::MIN ........ DEAD ......... -1   |   0 ............ i64::MAX
///                 dead zone          no ref  |  one reference, two, ...
///                 failed gets add here       |
/// ```
///
/// `get` adds one and succeeds if the sum is not negative. On a dead object it fails, and its addition stays: the
/// dead zone is 2^61 wide, and [`init`](Self::init) overwrites it. A failed `get` writes nothing else. It must not
/// even repair the word: between its addition and the repair the object may have been recycled, and the repair
/// would then destroy the count of the new object.
///
/// `put` subtracts one; whoever reaches -1 tries to move the word from -1 to `DEAD`, and the one who does so owns
/// the object's end. A `get` that comes between the two finds -1, makes it 0 and has a good reference.
///
/// Differs from the kernel's: there is no saturation zone, because 2^63 references, one held by each of them,
/// cannot be reached; and a `put` without a reference panics instead of warning.
///
/// # Protocol
///
/// The count lives in memory that is reused only for the same type while anyone may still call `get` or be inside
/// `put`. A reader that found the object through a pointer calls `get` and, when it succeeds, reads the pointer
/// again: if it changed, the reference is to another life of the object and must be put. A `put` that gave up
/// a reference still reads the word once; the caller keeps the memory from being unmapped meanwhile (a read-side
/// section, or memory that is never given back).
///
/// # Source
///
/// `fs/file.c`, `include/linux/file_ref.h` (`file_ref_t`), Linux 6.13.
#[derive(Debug)]
#[repr(transparent)]
pub struct FileRef {
    /// References minus one; negative when there is none.
    refcnt: AtomicI64,
}

/// The word with one reference.
const ONE_REF: i64 = 0;
/// The word when the last reference was put and nobody has ended the object yet.
const NO_REF: i64 = -1;
/// The word of an ended object; up to 2^61 failed gets stay below [`NO_REF`].
const DEAD: i64 = -(1 << 61);

impl FileRef {
    const_unless_loom! {
        /// A count without an object: every [`get`](Self::get) fails until [`init`](Self::init). This is what a slab
        /// constructor puts into fresh memory.
        pub fn dead() -> Self {
            Self { refcnt: AtomicI64::new(DEAD) }
        }
    }

    /// Begins a life with `refs` references, at least one.
    ///
    /// Must be the last write to a recycled object before it is used: from here on a stale reader's `get` succeeds.
    /// Only the owner of a dead object calls this. Writes the count's line with a plain store.
    ///
    /// # Panics
    ///
    /// If `refs` is 0 or above 2^62.
    #[inline]
    pub fn init(&self, refs: u64) {
        assert!((1..=1 << 62).contains(&refs), "a life begins with at least one reference");
        // ORDERING: pairs with the Acquire addition in get. A get that finds this value, or one that grew from it,
        // succeeds and sees every field written before; a get ordered earlier adds to the dead zone and fails.
        #[cfg(not(loom))]
        self.refcnt.store(refs as i64 - 1, Ordering::Release);
        // The model lets a plain store come between the read and the write of another thread's addition, which the
        // memory model forbids; the store as a swap has only the orders that are allowed.
        #[cfg(loom)]
        self.refcnt.swap(refs as i64 - 1, Ordering::Release);
    }

    /// Takes a reference, unless the object is dead. No loop, one locked instruction.
    ///
    /// True means that the object is alive, but not that it is the one the caller looked for: see the protocol.
    /// Writes the count's line, also when it fails.
    #[inline]
    #[must_use = "a reference that was taken must be put"]
    pub fn get(&self) -> bool {
        // ORDERING: pairs with the Release store of init. Either the life that init began is seen with all of its
        // fields, or the sum is negative and nothing of the object is used.
        self.refcnt.fetch_add(1, Ordering::Acquire).wrapping_add(1) >= 0
    }

    /// Gives a reference back; true if it was the last, and the caller must now end the object.
    ///
    /// One locked instruction, two when the last. Writes the count's line.
    ///
    /// # Panics
    ///
    /// If there was no reference to give back: that is a use after free, and going on would spread it.
    #[inline]
    #[must_use = "the caller who put the last reference must end the object"]
    pub fn put(&self) -> bool {
        // ORDERING: pairs with the compare-and-exchange in kill, which acquires. Whoever ends the
        // object sees all that this holder did; a holder that comes later gives its own Release.
        let now = self.refcnt.fetch_sub(1, Ordering::Release).wrapping_sub(1);
        now < 0 && self.put_slow(now)
    }

    /// Puts the reference if it is the only one, and thereby ends the object; false, and it stays, if there are others.
    /// After `true` the caller touches the word no more, so this needs no read section. Others may: stale gets still add
    /// in the dead zone, and a put that had found -1 before a get came in may still try its exchange; both see to it
    /// themselves that the memory stays.
    ///
    /// One locked instruction, none when there are others. Writes the count's line unless it fails early.
    #[inline]
    #[must_use = "the caller who put the last reference must end the object"]
    pub fn put_sole(&self) -> bool {
        // Relaxed load: only a guess, which the exchange confirms.
        self.refcnt.load(Ordering::Relaxed) == ONE_REF && self.kill(ONE_REF)
    }

    /// Like [`put`](Self::put), for a holder who expects to be the only one: from a sole reference to dead in one
    /// locked instruction. With other holders about it costs one more load than `put`.
    #[inline]
    #[must_use = "the caller who put the last reference must end the object"]
    pub fn put_close(&self) -> bool {
        self.put_sole() || self.put()
    }

    /// Whether the object lives, at a place in the order of all `SeqCst` accesses that is before the one at which its last
    /// reference [ends](Self::put) it. For a reader that has told something to who ends it, by such an access, before it
    /// asks this; who ends it looks for that afterwards, by another one. Writes no line.
    #[inline(always)]
    pub fn is_alive(&self) -> bool {
        // ORDERING: SeqCst pairs with the exchange in `kill`.
        self.refcnt.load(Ordering::SeqCst) > NO_REF
    }

    /// The number of references at some moment; 0 when the object is dead. For reports and checks.
    #[inline]
    pub fn count(&self) -> u64 {
        // Relaxed: the answer is old as soon as it is given, so nothing can be ordered by it.
        u64::try_from(self.refcnt.load(Ordering::Relaxed).saturating_add(1)).unwrap_or(0)
    }

    /// Reached when nobody held a reference any more.
    #[cold]
    fn put_slow(&self, now: i64) -> bool {
        assert!(now == NO_REF, "FileRef::put without a reference (count {now:#x})");
        // Where this fails a get came in between (then its put will end the object), or another put that also found
        // -1 was faster. Both have taken over the duty. The winner may even end a later life than its own: the
        // memory holds the same type, that life has no reference left either, and it ends exactly once.
        self.kill(NO_REF)
    }

    /// Moves the word from `alive` to dead; true for the one caller who does.
    #[inline]
    fn kill(&self, alive: i64) -> bool {
        // ORDERING: pairs with the Release subtraction of every earlier put: they are read-modify-writes of one
        // word, so the value found here continues the release sequence of each. SeqCst, which brings that along: pairs with
        // `is_alive`. Failure orders nothing: the caller does not touch the object again.
        self.refcnt.compare_exchange(alive, DEAD, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}
