//! The slots of a descriptor table: where a number's file is.
//!
//! A slot is one word: the file's address, and in its low bits whether the number belongs to a CPU's store
//! ([`ANYFD`]) and whether exec closes it ([`CLOEXEC`]). A word with an address owns a reference to the file.
//!
//! Slots lie in buckets, each twice as large as the one before, which are made when first needed and stay where they
//! are: a table grows without copying, so a reader needs one load to find its slot and never finds an old copy.
//!
//! Who may change a slot:
//!
//! | slot | by |
//! |---|---|
//! | empty, number reserved | whoever reserved the number, by a store |
//! | full, without ANYFD | the holder of the table's lock, by a store |
//! | full, with ANYFD | anybody, by a compare-and-exchange |
//!
//! A slot with ANYFD becomes one without only by way of an empty slot, or by the lock's holder's exchange.

use super::handle::FileHandle;
use crate::file::{File, Files};
use crate::numbers::Numbers;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicUsize, Ordering};
use quietline_platform::fork::{Rank, Registered};
use quietline_platform::{AllocError, heap};
use quietline_sync::{SpinLock, SpinLockGuard};
use std::sync::OnceLock;

/// The number came from a CPU's store, and goes back to one.
pub(crate) const ANYFD: usize = 1;
/// Exec closes the descriptor.
pub(crate) const CLOEXEC: usize = 2;
const TAGS: usize = ANYFD | CLOEXEC;

const FIRST_BUCKET: usize = 64;
/// Enough for [`NR_OPEN`](crate::abi::NR_OPEN) numbers.
const BUCKETS: usize = 15;

/// The word of a slot that was seen full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Occupied(usize);

impl Occupied {
    fn new(word: usize) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    pub(crate) fn is_anyfd(self) -> bool {
        self.0 & ANYFD != 0
    }

    pub(crate) fn is_cloexec(self) -> bool {
        self.0 & CLOEXEC != 0
    }

    fn file(self) -> NonNull<File> {
        NonNull::new((self.0 & !TAGS) as *mut File).expect("a full slot has a file")
    }
}

/// All slots of a table.
#[derive(Debug)]
pub(crate) struct Slots {
    buckets: [OnceLock<Box<[AtomicUsize]>>; BUCKETS],
}

/// Which bucket, and where in it.
#[inline(always)]
fn locate(fd: usize) -> (usize, usize) {
    let place = fd + FIRST_BUCKET;
    let bucket = place.ilog2() as usize - FIRST_BUCKET.ilog2() as usize;
    (bucket, place - (FIRST_BUCKET << bucket))
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { buckets: [const { OnceLock::new() }; BUCKETS] }
    }

    #[inline(always)]
    fn get(&self, fd: usize) -> Option<&AtomicUsize> {
        let (bucket, place) = locate(fd);
        self.buckets.get(bucket)?.get()?.get(place)
    }

    /// Makes the bucket of `fd`, if it is not there yet.
    pub(crate) fn grow(&self, fd: usize) -> Result<(), AllocError> {
        let (bucket, _) = locate(fd);
        if self.buckets[bucket].get().is_none() {
            let slots = heap::try_boxed_slice(FIRST_BUCKET << bucket, |_| AtomicUsize::new(0))?;
            // Another thread may have been faster; then this one's is dropped.
            let _ = self.buckets[bucket].set(slots);
        }
        Ok(())
    }

    /// The slot's word, if it is full.
    #[inline(always)]
    pub(crate) fn load(&self, fd: usize) -> Option<Occupied> {
        // ORDERING: pairs with the release in `install`: who finds a file finds it initialised. Who finds none is told
        // that the descriptor is not open, which was true.
        Occupied::new(self.get(fd)?.load(Ordering::Acquire))
    }

    /// Fills an empty slot whose number the caller has reserved, and whose bucket exists.
    #[inline(always)]
    pub(crate) fn install(&self, fd: usize, file: FileHandle<'_>, tags: usize) {
        let slot = self.get(fd).expect("the bucket of a reserved number exists");
        debug_assert_eq!(slot.load(Ordering::Relaxed), 0, "a reserved number's slot is empty");
        // ORDERING: pairs with the acquire in `load`.
        slot.store(file.into_raw().as_ptr() as usize | tags, Ordering::Release);
    }

    /// Empties a slot without the table's lock, if it still holds `seen`, whose number is of a CPU's store.
    #[inline(always)]
    pub(crate) fn take_anyfd<'k>(
        &self,
        fd: usize,
        seen: Occupied,
        files: &'k Files,
    ) -> Option<FileHandle<'k>> {
        debug_assert!(seen.is_anyfd());
        // ORDERING: acquire pairs with `install`; the release part keeps the number's next installer behind this.
        let taken = self.get(fd)?.compare_exchange(seen.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        // SAFETY: whoever empties a slot owns the reference that it held. All files of the table are `files`'.
        taken.ok().map(|word| unsafe { FileHandle::from_raw(Occupied(word).file(), files) })
    }

    /// A reference to the file at `fd`. Writes the file's line.
    ///
    /// A read section, a count, and a second look at the slot: the file may have been closed and become another one
    /// between the first look and the count.
    #[inline(always)]
    pub(crate) fn get_file<'k>(&self, fd: usize, files: &'k Files) -> Option<FileHandle<'k>> {
        loop {
            let section = files.domain.read();
            let seen = self.load(fd)?;
            // SAFETY: the file was in the slot within the open section.
            if let Some(handle) = unsafe { FileHandle::get_unless_dead(seen.file(), files) } {
                drop(section);
                // The tags may have changed; the file is what counts.
                if self.load(fd).is_some_and(|now| now.file() == seen.file()) {
                    return Some(handle);
                }
            }
        }
    }

    /// Status flags of the file at `fd`, without taking a reference: writes no shared line.
    #[inline(always)]
    pub(crate) fn status(&self, fd: usize, files: &Files) -> Option<i32> {
        loop {
            let _section = files.domain.read();
            let seen = self.load(fd)?;
            // SAFETY: the file was in the slot within the open section, and lives in a typesafe cache.
            let file = unsafe { seen.file().as_ref() };
            let generation = file.generation();
            // The file was in the slot in this generation...
            if self.load(fd).is_none_or(|now| now.file() != seen.file()) {
                continue;
            }
            let flags = file.status();
            // ...and the flags are of it.
            if file.generation() == generation {
                return Some(flags);
            }
        }
    }

    /// Takes every file out of the slots.
    pub(crate) fn clear(&mut self, files: &Files) {
        for bucket in &mut self.buckets {
            for slot in bucket.get_mut().into_iter().flatten() {
                // Relaxed: nobody else has the table.
                if let Some(word) = Occupied::new(slot.swap(0, Ordering::Relaxed)) {
                    // SAFETY: as in `take_anyfd`.
                    drop(unsafe { FileHandle::from_raw(word.file(), files) });
                }
            }
        }
    }
}

/// Slots, and the lock that their numbers are under.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) slots: Slots,
    numbers: Registered<SpinLock<Numbers>>,
}

/// A table with its lock held.
pub(crate) struct LockedTable<'a> {
    pub(crate) slots: &'a Slots,
    pub(crate) numbers: SpinLockGuard<'a, Numbers>,
}

impl Table {
    pub(crate) fn new() -> Result<Self, AllocError> {
        let numbers = Registered::new(Rank::Object, SpinLock::new(Numbers::new()))?;
        Ok(Self { slots: Slots::new(), numbers })
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> LockedTable<'_> {
        LockedTable { slots: &self.slots, numbers: self.numbers.lock() }
    }
}

impl LockedTable<'_> {
    /// Empties a full slot: its file, and its tags as they were.
    #[inline(always)]
    pub(crate) fn take<'k>(&self, fd: usize, files: &'k Files) -> Option<(FileHandle<'k>, Occupied)> {
        self.exchange(fd, files, |_| 0)
    }

    /// Puts `file` in place of a full slot's file, keeping the number's owner. The file that was there; `Err` with
    /// `file` if the slot is empty.
    pub(crate) fn replace<'k>(
        &self,
        fd: usize,
        file: FileHandle<'k>,
        cloexec: bool,
        files: &'k Files,
    ) -> Result<FileHandle<'k>, FileHandle<'k>> {
        let new = file.into_raw();
        let tags = if cloexec { CLOEXEC } else { 0 };
        let old = self.exchange(fd, files, |old| new.as_ptr() as usize | tags | (old.0 & ANYFD));
        // SAFETY: the word was not stored, so the reference is still ours.
        old.map(|(old, _)| old).ok_or_else(|| unsafe { FileHandle::from_raw(new, files) })
    }

    /// Sets or clears `FD_CLOEXEC`; false if the slot is empty.
    pub(crate) fn set_cloexec(&self, fd: usize, on: bool) -> bool {
        let Some(slot) = self.slots.get(fd) else { return false };
        let change = |word| (word != 0).then_some(if on { word | CLOEXEC } else { word & !CLOEXEC });
        // ORDERING: release keeps the file's publication with the new word; a failed attempt reads nothing.
        slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change).is_ok()
    }

    /// Makes a number that belongs to a CPU's store an ordinary one; whether it was full and did belong to one.
    pub(crate) fn clear_anyfd(&self, fd: usize) -> bool {
        let Some(slot) = self.slots.get(fd) else { return false };
        let change = |word: usize| (word & ANYFD != 0).then_some(word & !ANYFD);
        // ORDERING: as in `set_cloexec`.
        slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change).is_ok()
    }

    #[inline(always)]
    fn exchange<'k>(
        &self,
        fd: usize,
        files: &'k Files,
        new: impl Fn(Occupied) -> usize,
    ) -> Option<(FileHandle<'k>, Occupied)> {
        let slot = self.slots.get(fd)?;
        loop {
            let old = self.slots.load(fd)?;
            // ORDERING: as in `install` and `take_anyfd`.
            if !old.is_anyfd() {
                // Nobody else changes this slot while we hold the lock: a plain store will do.
                slot.store(new(old), Ordering::Release);
            } else if slot.compare_exchange(old.0, new(old), Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // SAFETY: whoever changes a full slot owns the reference that it held.
            return Some((unsafe { FileHandle::from_raw(old.file(), files) }, old));
        }
    }
}
