//! A lock and a reference count in one word.
//!
//! Longer than most files here, because each operation has a fast and a slow half that are only right together.

mod guard;

pub use guard::LockrefGuard;

use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_platform::const_unless_loom;

use crate::backoff::Backoff;

/// A reference count that is changed without its lock while nobody holds the lock, and stands still while
/// somebody does.
///
/// ```text
///      bit 63                32 31               2    1      0
///         +--------------------+------------------+------+--------+
///         |   running count    |   frozen count   | DEAD | LOCKED |
///         +--------------------+------------------+------+--------+
/// ```
///
/// While LOCKED is clear the running count is the count and the frozen count is 0. To lock is to copy the running
/// count into the frozen one and to set LOCKED, in one exchange. From then on the frozen count is the count, for the
/// holder and for everyone who looks; the running count is waste paper. To unlock is one plain store of the whole
/// word, which throws the waste away.
///
/// This is why [`get`](Self::get), [`get_not_dead`](Self::get_not_dead) and [`put_return`](Self::put_return) need
/// no compare-and-exchange loop: each adds to the running count unconditionally, looks at what the word was, and
/// if it was locked the addition has gone to the waste and the slow path takes the lock instead. The flags lie below
/// the running count, so no addition ever changes them. An unconditional addition moves the line once, a load and
/// an exchange move it up to twice and may fail: that is what makes a count shared by many CPUs bearable.
///
/// [`put_or_lock`](Self::put_or_lock) must not count to 0, so it has to know the count before it
/// changes it. It tries an exchange up to 100 times and then takes the lock.
///
/// # Guarantees
///
/// * The count does not change while the lock is held, but through the guard.
/// * The count becomes dead only under the lock, and from then on reads [`DEAD`](Self::DEAD) forever; no `get`
///   succeeds any more.
/// * Every operation but [`lock`](Self::lock) itself takes the lock after a bounded number of attempts.
///
/// # Limits
///
/// * At most [`MAX`](Self::MAX) references.
/// * The lock is for short sections. It is not fair: a waiter takes it when it finds it free, and a waiter that
///   waits long sleeps a bounded time between looks.
/// * Not recursive; not for signal handlers.
///
/// # Source
///
/// `lib/lockref.c`, Linux 6.1 to 7.3. The kernel's changes the count by compare-and-exchange throughout, and keeps
/// a lock holder's count still because the exchange compares the lock's bits with it.
#[derive(Debug)]
#[repr(transparent)]
pub struct Lockref {
    word: AtomicU64,
}

const LOCKED: u64 = 1 << 0;
const DEAD: u64 = 1 << 1;
const FROZEN_SHIFT: u32 = 2;
const FROZEN_MASK: u64 = (1 << 32) - (1 << FROZEN_SHIFT);
const RUNNING_SHIFT: u32 = 32;
const ONE: u64 = 1 << RUNNING_SHIFT;

/// Exchanges that may fail before the lock is taken.
const TRIES: u32 = if cfg!(loom) { 2 } else { 100 };

/// The running count of an unlocked word.
#[inline(always)]
const fn running(word: u64) -> u32 {
    (word >> RUNNING_SHIFT) as u32
}

/// An unlocked word with this count.
#[inline(always)]
const fn unlocked(count: u32) -> u64 {
    (count as u64) << RUNNING_SHIFT
}

impl Lockref {
    /// What [`count`](Self::count) says of a dead object.
    pub const DEAD: i32 = -128;

    /// The most references that a count can hold.
    pub const MAX: u32 = 1 << 29;

    const_unless_loom! {
        /// An unlocked count of `count` references.
        ///
        /// # Panics
        ///
        /// If `count` is above [`MAX`](Self::MAX).
        #[inline]
        pub fn new(count: u32) -> Self {
            assert!(count <= Self::MAX, "too many references");
            Self { word: AtomicU64::new(unlocked(count)) }
        }
    }

    /// The count at some moment, or [`DEAD`](Self::DEAD). Under the lock it is exact; changes made through a guard
    /// show when the guard is dropped. Writes no line.
    #[inline]
    pub fn count(&self) -> i32 {
        // Relaxed: without the lock the answer is old as soon as it is given; with it, the lock has ordered it.
        let word = self.word.load(Ordering::Relaxed);
        match (word & DEAD, word & LOCKED) {
            (0, 0) => running(word) as i32,
            (0, _) => frozen(word) as i32,
            _ => Self::DEAD,
        }
    }

    /// True if there is one reference and nobody holds the lock. Asked by the holder of a reference of an object that
    /// nobody can look up, `true` is final: a new reference would come from an old one, and that is the caller's own.
    /// Then the object may be ended without another look at the count. Writes no line.
    #[inline]
    pub fn is_sole(&self) -> bool {
        // ORDERING: pairs with the release of the puts before: who finds itself alone has seen what the others did.
        // Who finds another number puts its reference as usual.
        self.word.load(Ordering::Acquire) == unlocked(1)
    }

    /// True once the object was marked dead. Writes no line.
    #[inline]
    pub fn is_dead(&self) -> bool {
        // Relaxed: as in count. Death is final, so `true` never grows old.
        self.word.load(Ordering::Relaxed) & DEAD != 0
    }

    /// True if someone holds the lock at this moment. Writes no line.
    #[inline]
    pub fn is_locked(&self) -> bool {
        // Relaxed: as in count.
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Takes a reference; the caller already holds one, or knows otherwise that the object is not dead.
    ///
    /// One locked instruction while nobody holds the lock. Writes the word's line.
    ///
    /// # Panics
    ///
    /// If the object is dead or has [`MAX`](Self::MAX) references.
    #[inline]
    pub fn get(&self) {
        // Relaxed: the caller can already see the object, and a new reference orders nothing (as in Arc::clone).
        let old = self.word.fetch_add(ONE, Ordering::Relaxed);
        if old & (LOCKED | DEAD) != 0 || running(old) >= Self::MAX {
            self.get_slow(old);
        }
    }

    /// Takes a reference unless the object is dead, counting from 0 if need be: for a lookup that found the object
    /// where the dead are not.
    ///
    /// One locked instruction while nobody holds the lock. Writes the word's line, also when it fails.
    ///
    /// # Panics
    ///
    /// If there are [`MAX`](Self::MAX) references.
    #[inline]
    #[must_use = "a reference that was taken must be put"]
    pub fn get_not_dead(&self) -> bool {
        // ORDERING: pairs with the Release store of unlock. A word left by a holder of the lock brings what the
        // holder wrote; if it was locked instead, the slow path asks the lock.
        let old = self.word.fetch_add(ONE, Ordering::Acquire);
        if old & (LOCKED | DEAD) == 0 && running(old) < Self::MAX {
            true
        } else {
            self.get_not_dead_slow(old)
        }
    }

    /// Puts a reference without the lock and returns how many are left, or `None` (and the reference stays) if
    /// someone holds the lock: the caller then takes it too.
    ///
    /// When it returns 0 the object lives on, counted 0; a caller who wants to end it takes the lock and looks
    /// at the count again. One locked instruction. Writes the word's line.
    ///
    /// # Panics
    ///
    /// If there was no reference to put: that is a use after free, and going on would spread it.
    #[inline]
    #[must_use = "None means that the reference was not put"]
    pub fn put_return(&self) -> Option<u32> {
        // ORDERING: pairs with the Acquire of lock. Whoever locks the object to end it, and finds this decrement or
        // a later one in the count, sees all that the holder of this reference did.
        let old = self.word.fetch_sub(ONE, Ordering::Release);
        if old & LOCKED != 0 {
            return None;
        }
        assert!(old & DEAD == 0 && running(old) > 0, "Lockref::put_return without a reference");
        Some(running(old) - 1)
    }

    /// Puts a reference if it is not the last; if it is, takes the lock and leaves the count as it was, for the
    /// caller to decide under the lock.
    ///
    /// A load and a locked instruction while nobody holds the lock. Writes the word's line.
    #[inline]
    #[must_use = "Some means that the reference was not put and that the lock is held"]
    #[cfg_attr(feature = "lock-times", track_caller)]
    pub fn put_or_lock(&self) -> Option<LockrefGuard<'_>> {
        // Relaxed, here and on failure: a guess, which the next exchange confirms.
        let mut word = self.word.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            if word & (LOCKED | DEAD) != 0 || running(word) <= 1 {
                break;
            }
            // ORDERING: Release pairs with the Acquire of lock, as in put_return.
            match self.word.compare_exchange_weak(
                word,
                word - ONE,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return None,
                Err(now) => word = now,
            }
        }
        self.put_or_lock_slow()
    }

    /// Takes the lock. One locked instruction when it is free. Writes the word's line.
    #[inline]
    #[cfg_attr(feature = "lock-times", track_caller)]
    pub fn lock(&self) -> LockrefGuard<'_> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_slow(),
        }
    }

    /// Takes the lock if it is free; may also fail because the count changed at the same moment.
    #[inline]
    #[cfg_attr(feature = "lock-times", track_caller)]
    pub fn try_lock(&self) -> Option<LockrefGuard<'_>> {
        // Relaxed: a guess, which the exchange confirms.
        let word = self.word.load(Ordering::Relaxed);
        if word & LOCKED != 0 {
            return None;
        }
        let count = if word & DEAD != 0 { 0 } else { running(word) };
        let held = unlocked(count) | u64::from(count) << FROZEN_SHIFT | word & DEAD | LOCKED;
        // ORDERING: pairs with the Release store of unlock (what the last holder wrote is seen) and with the Release
        // of the puts (what was done under the references put so far is seen). A failure decides nothing.
        self.word.compare_exchange(word, held, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(LockrefGuard::new(self, count, word & DEAD != 0))
    }

    /// Takes the lock if it is free and there is exactly one reference. One locked instruction, and
    /// no other read.
    #[inline]
    #[cfg_attr(feature = "lock-times", track_caller)]
    pub fn try_lock_sole(&self) -> Option<LockrefGuard<'_>> {
        const SOLE: u64 = unlocked(1);
        const HELD: u64 = SOLE | 1 << FROZEN_SHIFT | LOCKED;
        // ORDERING: as in try_lock.
        self.word.compare_exchange(SOLE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(LockrefGuard::new(self, 1, false))
    }

    /// Ends the lock's hold with this count; the additions that went astray meanwhile are gone.
    #[inline]
    fn unlock(&self, count: u32, dead: bool) {
        // ORDERING: pairs with the Acquire of try_lock and of the gets: the next holder, and whoever takes a
        // reference from this word, sees what was written under the lock. Being a store and not a read-modify-write
        // it ends the release sequences of earlier puts, which this holder has acquired and so passes on.
        let word = unlocked(count) | if dead { DEAD } else { 0 };
        #[cfg(not(loom))]
        self.word.store(word, Ordering::Release);
        // The model lets a plain store come between the read and the write of another thread's addition, which the
        // memory model forbids; the store as a swap has only the orders that are allowed.
        #[cfg(loom)]
        self.word.swap(word, Ordering::Release);
    }

    #[cold]
    fn get_slow(&self, old: u64) {
        assert!(old & DEAD == 0, "Lockref::get of a dead object");
        if old & LOCKED == 0 {
            too_many();
        }
        let mut guard = self.lock();
        assert!(!guard.is_dead(), "Lockref::get of a dead object");
        guard.get();
    }

    #[cold]
    fn get_not_dead_slow(&self, old: u64) -> bool {
        // A dead word may still be locked, but it stays dead: no need for the lock.
        if old & DEAD != 0 {
            return false;
        }
        if old & LOCKED == 0 {
            too_many();
        }
        let mut guard = self.lock();
        !guard.is_dead() && {
            guard.get();
            true
        }
    }

    #[cold]
    #[cfg_attr(feature = "lock-times", track_caller)]
    fn put_or_lock_slow(&self) -> Option<LockrefGuard<'_>> {
        let mut guard = self.lock();
        if !guard.is_dead() && guard.count() > 1 {
            guard.put();
            return None;
        }
        Some(guard)
    }

    #[cold]
    #[cfg_attr(feature = "lock-times", track_caller)]
    fn lock_slow(&self) -> LockrefGuard<'_> {
        let mut backoff = Backoff::crowd();
        loop {
            backoff.wait();
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
    }
}

/// The count of a locked word.
#[inline(always)]
const fn frozen(word: u64) -> u32 {
    ((word & FROZEN_MASK) >> FROZEN_SHIFT) as u32
}

/// The additions of other threads that got past `MAX` are left in place: the object is leaked, not freed under
/// their feet.
#[cold]
fn too_many() -> ! {
    panic!("more than {} references to one object", Lockref::MAX);
}
