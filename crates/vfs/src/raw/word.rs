//! The word of a descriptor table's slot, and who may change it.
//!
//! ```text
//!      63                               2        1        0
//!     +----------------------------------+---------+-------+
//!     |  address of the file, 0: empty   | CLOEXEC | ANYFD |
//!     +----------------------------------+---------+-------+
//! ```
//!
//! | word | changed by |
//! |---|---|
//! | empty, number reserved | whoever reserved the number, by a store |
//! | full, without ANYFD | the holder of the table's lock, by a store |
//! | full, with ANYFD | anybody, by a compare-and-exchange |
//!
//! So a word loses ANYFD by way of empty or by the lock's holder's exchange, and then stands still under the lock.
//!
//! Plain words without ownership, for the model checker as well as for [`slots`](super::slots), which says who owns
//! what.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicUsize, Ordering};

/// The number came from a CPU's store, and goes back to one.
pub(crate) const ANYFD: usize = 1;
/// Exec closes the descriptor.
pub(crate) const CLOEXEC: usize = 2;
const TAGS: usize = ANYFD | CLOEXEC;

/// A slot's word. `T` is what it points to, aligned to 4 at least.
#[repr(transparent)]
pub(crate) struct SlotWord<T>(AtomicUsize, PhantomData<fn(*const T)>);

/// A word that was seen full.
pub(crate) struct Occupied<T>(usize, PhantomData<fn(*const T)>);

impl<T> Clone for Occupied<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Occupied<T> {}

impl<T> Occupied<T> {
    #[inline(always)]
    fn new(word: usize) -> Option<Self> {
        (word != 0).then_some(Self(word, PhantomData))
    }

    #[inline(always)]
    pub(crate) fn is_anyfd(self) -> bool {
        self.0 & ANYFD != 0
    }

    pub(crate) fn is_cloexec(self) -> bool {
        self.0 & CLOEXEC != 0
    }

    /// The file's address; dangling, should a full word ever have none.
    #[inline(always)]
    pub(crate) fn file(self) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.0 & !TAGS)
    }
}

impl<T> SlotWord<T> {
    pub(crate) fn empty() -> Self {
        Self(AtomicUsize::new(0), PhantomData)
    }

    /// The word, if it is full.
    #[inline(always)]
    pub(crate) fn load(&self) -> Option<Occupied<T>> {
        // ORDERING: pairs with the release in `fill` and in `exchange`: who finds a file finds it initialised. Who finds
        // none is told that the descriptor is not open, which was true.
        Occupied::new(self.0.load(Ordering::Acquire))
    }

    /// Fills an empty word; for whoever has reserved the number.
    #[inline(always)]
    pub(crate) fn fill(&self, file: NonNull<T>, tags: usize) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), 0, "a reserved number's slot is empty");
        // ORDERING: pairs with the acquire in `load`: the file is initialised before it can be found.
        self.0.store(file.as_ptr().expose_provenance() | tags, Ordering::Release);
    }

    /// Empties a word that is still `seen`, whose number is of a CPU's store. For anybody.
    #[inline(always)]
    pub(crate) fn take_anyfd(&self, seen: Occupied<T>) -> bool {
        debug_assert!(seen.is_anyfd());
        // ORDERING: acquire pairs with `fill`, should another file have come to lie at the same address since `load`;
        // release keeps what was done with the descriptor before the number's next life. Failure reads nothing.
        self.0.compare_exchange(seen.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Empties a full word; how it was. For the holder of the table's lock.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<Occupied<T>> {
        self.exchange(|_| 0)
    }

    /// Puts a file in place of a full word's, keeping to whom the number belongs; how it was, or none and nothing
    /// changed. For the holder of the table's lock.
    pub(crate) fn replace(&self, file: NonNull<T>, tags: usize) -> Option<Occupied<T>> {
        self.exchange(|old| file.as_ptr().expose_provenance() | tags | (old.0 & ANYFD))
    }

    /// Sets or clears CLOEXEC; false if the word is empty. For the holder of the table's lock.
    pub(crate) fn set_cloexec(&self, on: bool) -> bool {
        self.exchange(|old| if on { old.0 | CLOEXEC } else { old.0 & !CLOEXEC }).is_some()
    }

    /// Takes ANYFD off; whether it was on. For the holder of the table's lock.
    pub(crate) fn clear_anyfd(&self) -> bool {
        self.exchange(|old| old.0 & !ANYFD).is_some_and(Occupied::is_anyfd)
    }

    /// Keeps everybody from emptying a full word while `f` runs. For the holder of the table's lock.
    pub(crate) fn hold<R>(&self, f: impl FnOnce(Occupied<T>) -> R) -> Option<R> {
        let was = self.exchange(|old| old.0 & !ANYFD)?;
        let result = f(was);
        if was.is_anyfd() {
            // ORDERING: as in `fill`. Nobody else has changed the word: it had no ANYFD, and we hold the lock.
            self.0.store(was.0, Ordering::Release);
        }
        Some(result)
    }

    /// Changes a full word. For the holder of the table's lock.
    #[inline(always)]
    fn exchange(&self, new: impl Fn(Occupied<T>) -> usize) -> Option<Occupied<T>> {
        loop {
            let old = self.load()?;
            if !old.is_anyfd() {
                // ORDERING: as in `fill`. Nobody else changes such a word while we hold the lock: a store will do.
                self.0.store(new(old), Ordering::Release);
                return Some(old);
            }
            // ORDERING: as in `take_anyfd`, and release as in `fill`.
            if self.0.compare_exchange(old.0, new(old), Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return Some(old);
            }
        }
    }
}

impl<T> fmt::Debug for SlotWord<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0.load(Ordering::Relaxed))
    }
}
