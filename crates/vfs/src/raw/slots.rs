//! The slots of a descriptor table: where a number's file is.
//!
//! A full slot owns a reference to its file; [`word`](super::word) says who may change which slot, and whoever takes
//! a file out of one owns that reference.
//!
//! Slots lie in buckets, each twice as large as the one before, which are made when first needed and stay where they
//! are: a table grows without copying, so a reader needs one load to find its slot and never finds an old copy.
//!
//! Numbers that follow each other have slots on different lines, eight slots apart. A number wanders to another CPU's
//! store when a thread opens it here and closes it there; side by side with its neighbours, which stayed, its slot would
//! then be a line that two CPUs write on every open and close, for good. (Two threads of one process with `O_ANYFD`:
//! 1.2 to 1.8 times one thread's rate in such a state, in throw-away runs; see `spread`.)

use super::dcache::seen::Section;
use super::handle::FileHandle;
use super::opened::Opened;
use super::word::{Occupied, SlotWord};
use crate::file::{File, Files};
use crate::numbers::Numbers;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::fork::{Rank, Registered};
use quietline_platform::{AllocError, heap};
use quietline_sync::{SpinLock, SpinLockGuard};

const FIRST_BUCKET: usize = 64;
/// Enough for [`NR_OPEN`](crate::abi::NR_OPEN) numbers.
const BUCKETS: usize = 15;

pub(crate) type Slot = SlotWord<File>;

const PER_LINE: usize = 8;

/// Slots that share a line; reached by the address of a bucket's first.
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "reached by address")] [Slot; PER_LINE]);

const _: () = assert!(size_of::<Line>() == PER_LINE * size_of::<Slot>());

/// Where in its bucket the slot of the `n`th number is: of 64 numbers, each is on another line than its neighbours.
#[inline(always)]
fn spread(n: usize) -> usize {
    (n & !63) | (n & 7) << 3 | (n >> 3) & 7
}

/// All slots of a table.
#[derive(Debug)]
pub(crate) struct Slots {
    /// For each bucket, where its slots would begin if those of all buckets before lay in front of
    /// them, and as many more as the first bucket has: [`locate`] indexes from there. Or null.
    /// Written once.
    buckets: [AtomicPtr<Slot>; BUCKETS],
}

/// What came of emptying a slot without the lock.
pub(crate) enum Taken<'k> {
    /// This was in it.
    File(FileHandle<'k>),
    /// It is full, but only the lock's holder may empty it.
    Ordinary,
    /// It was empty.
    Empty,
}

/// Which bucket, and which slot counted from what [`Slots`] knows of the bucket.
#[inline(always)]
fn locate(fd: usize) -> (usize, usize) {
    let place = fd + FIRST_BUCKET;
    let bucket = place.ilog2() as usize - FIRST_BUCKET.ilog2() as usize;
    (bucket, place)
}

/// The number of slots in a bucket, and of those in front of its first one, as [`locate`] counts.
#[inline(always)]
fn slots_in(bucket: usize) -> usize {
    FIRST_BUCKET << bucket
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { buckets: [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS] }
    }

    /// The slot of a number, if its bucket exists.
    #[inline(always)]
    pub(crate) fn get(&self, fd: usize) -> Option<&Slot> {
        let (bucket, place) = locate(fd);
        // ORDERING: pairs with the exchange in `grow_slow`: who finds the bucket finds its slots empty, or as they are
        // since. Who finds none is told that the descriptor is not open, which was true.
        let base = NonNull::new(self.buckets.get(bucket)?.load(Ordering::Acquire))?;
        // SAFETY: a bucket has `slots_in(bucket)` slots from the place of that number on, `place`
        // is one of those, and it stays for our life. (The base itself lies in front of the
        // allocation, therefore `wrapping_add`.)
        unsafe {
            let slot = base.as_ptr().wrapping_add(spread(place));
            core::hint::assert_unchecked(!slot.is_null());
            Some(&*slot)
        }
    }

    /// The slot of a number; its bucket is made if it is not there yet.
    #[inline(always)]
    pub(crate) fn grow(&self, fd: usize) -> Result<&Slot, AllocError> {
        match self.get(fd) {
            Some(slot) => Ok(slot),
            None => self.grow_slow(fd),
        }
    }

    #[cold]
    #[inline(never)]
    fn grow_slow(&self, fd: usize) -> Result<&Slot, AllocError> {
        let (bucket, _) = locate(fd);
        let lines = slots_in(bucket) / PER_LINE;
        let slots =
            heap::try_boxed_slice(lines, |_| Line(core::array::from_fn(|_| Slot::empty())))?;
        quietline_platform::name_words!(slots[..], "files_struct.fd");
        let base = Box::into_raw(slots).cast::<Slot>().wrapping_sub(slots_in(bucket));
        assert!(!base.is_null(), "the heap lies above the first pages");
        // ORDERING: release pairs with the acquire in `get`. Should another thread have been faster, we only need to
        // know that it was: `get` acquires what it made.
        let set = self.buckets[bucket].compare_exchange(
            ptr::null_mut(),
            base,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if set.is_err() {
            // SAFETY: made above, and nobody has seen it.
            unsafe { free_bucket(bucket, base) };
        }
        self.get(fd).ok_or(AllocError)
    }

    /// What is at `fd`, if it is full.
    #[inline(always)]
    pub(crate) fn load(&self, fd: usize) -> Option<Occupied<File>> {
        self.get(fd)?.load()
    }

    /// The lowest full slot from `from` on and below `end`. Writes no line. O(slots passed over in buckets that exist).
    pub(crate) fn next_full(&self, mut from: usize, end: usize) -> Option<(usize, Occupied<File>)> {
        let end = end.min((FIRST_BUCKET << BUCKETS) - FIRST_BUCKET);
        while from < end {
            let (bucket, place) = locate(from);
            if self.get(from).is_none() {
                from += 2 * slots_in(bucket) - place;
            } else if let Some(seen) = self.load(from) {
                return Some((from, seen));
            } else {
                from += 1;
            }
        }
        None
    }

    /// The highest full slot below `end` and from `from` on. Writes no line. O(slots passed over in buckets that exist).
    pub(crate) fn last_full(&self, from: usize, end: usize) -> Option<(usize, Occupied<File>)> {
        let mut end = end.min((FIRST_BUCKET << BUCKETS) - FIRST_BUCKET);
        while end > from {
            let (bucket, place) = locate(end - 1);
            if self.get(end - 1).is_none() {
                end -= place - slots_in(bucket) + 1;
            } else if let Some(seen) = self.load(end - 1) {
                return Some((end - 1, seen));
            } else {
                end -= 1;
            }
        }
        None
    }

    /// Fills an empty slot whose number the caller has reserved, and whose bucket exists.
    #[inline(always)]
    pub(crate) fn install(&self, fd: usize, file: FileHandle<'_>, tags: usize) {
        // Converted first, so that a panic for a missing bucket drops no file.
        let file = file.into_raw();
        self.reserved(fd).fill(file, tags);
    }

    /// The slot of a number that the caller has reserved.
    #[inline(always)]
    pub(crate) fn reserved(&self, fd: usize) -> &Slot {
        self.get(fd).expect("the bucket of a reserved number exists")
    }

    /// Fills an empty slot whose number the caller has reserved.
    #[inline(always)]
    pub(crate) fn fill(slot: &Slot, file: FileHandle<'_>, tags: usize) {
        slot.fill(file.into_raw(), tags);
    }

    /// Empties a slot without the table's lock, if its number is of a CPU's store.
    #[inline(always)]
    pub(crate) fn take_anyfd<'k>(slot: &Slot, files: &'k Files) -> Taken<'k> {
        loop {
            match slot.load() {
                None => return Taken::Empty,
                Some(seen) if !seen.is_anyfd() => return Taken::Ordinary,
                Some(seen) if slot.take_anyfd(seen) => {
                    // SAFETY: whoever empties a slot owns the reference that it held.
                    return Taken::File(unsafe { owned(seen, files) });
                }
                Some(_) => {}
            }
        }
    }

    /// A reference to the file at `fd`. Writes the file's line.
    ///
    /// A read section, a count, and a second look at the slot: the file may have been closed and become another one
    /// between the first look and the count. If the second look finds the same address, the slot's reference and ours
    /// are to the same life, because ours keeps the address from beginning another one.
    #[inline(always)]
    pub(crate) fn get_file<'k>(&self, fd: usize, files: &'k Files) -> Option<FileHandle<'k>> {
        let slot = self.get(fd)?;
        loop {
            let section = files.domain.read();
            let seen = slot.load()?;
            // SAFETY: the file was in the slot within the open section.
            if let Some(handle) = unsafe { FileHandle::get_unless_dead(pointer(seen), files) } {
                drop(section);
                // The tags may have changed; the file is what counts.
                if slot.load().is_some_and(|now| now.file() == seen.file()) {
                    return Some(handle);
                }
            }
        }
    }

    /// Status flags of the file at `fd`, without taking a reference: writes no shared line.
    #[inline(always)]
    pub(crate) fn status(&self, fd: usize, files: &Files) -> Option<i32> {
        let slot = self.get(fd)?;
        let _section = files.domain.read();
        loop {
            let seen = slot.load()?;
            // SAFETY: the file was in the slot within the open section, and lives in a typesafe cache.
            let status = unsafe { &pointer(seen).as_ref().f_status };
            if let Some(flags) =
                status.read_while(|| slot.load().is_some_and(|now| now.file() == seen.file()))
            {
                return Some(flags as i32);
            }
        }
    }

    /// What the file at `fd` is on, without taking a reference: writes no shared line, but the file's the first time that one
    /// on a pseudo object is looked at. It stays readable until the section ends, also if the file is closed meanwhile.
    #[inline(always)]
    pub(crate) fn look<'g>(&self, fd: usize, _section: &'g Section) -> Option<Opened<'g>> {
        let slot = self.get(fd)?;
        loop {
            let seen = slot.load()?;
            // SAFETY: the file was in the slot within the open section, and lives in a typesafe cache.
            let file: &'g File = unsafe { &*pointer(seen).as_ptr().cast_const() };
            let here = || slot.load().is_some_and(|now| now.file() == seen.file());
            let read = |flags| {
                // SAFETY: what is read belongs to the life that was in the slot, whose references were not given back before
                // the section began; nothing of an object is used unless the file is met.
                let opened = unsafe { Opened::read(file, flags) };
                let stays = !opened.is_object() || file.f_mode.is_met(|| file.f_ref.is_alive());
                (opened, stays)
            };
            match file.f_status.read_all_while(here, read) {
                Some((opened, true)) => return Some(opened),
                Some((_, false)) => file.f_mode.meet(),
                None => {}
            }
        }
    }

    /// Takes every file out of the slots: the last first, as Linux does when a process ends.
    pub(crate) fn clear(&mut self, files: &Files) {
        let mut end = usize::MAX;
        while let Some((fd, _)) = self.last_full(0, end) {
            if let Some(was) = self.get(fd).and_then(SlotWord::take) {
                // SAFETY: nobody else has the table; whoever empties a slot owns the reference that it held.
                drop(unsafe { owned(was, files) });
            }
            end = fd;
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for (bucket, base) in self.buckets.iter().enumerate() {
            // Relaxed: nobody else has the table.
            let base = base.load(Ordering::Relaxed);
            if !base.is_null() {
                // SAFETY: made by `grow_slow` for this bucket, and not used any more.
                unsafe { free_bucket(bucket, base) };
            }
        }
    }
}

/// # Safety
/// `base` came from `grow_slow` for this bucket, and no other thread uses it.
unsafe fn free_bucket(bucket: usize, base: *mut Slot) {
    let lines = slots_in(bucket) / PER_LINE;
    let first = base.wrapping_add(slots_in(bucket)).cast::<Line>();
    // SAFETY: by contract this was a box of so many lines.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, lines)) });
}

#[inline(always)]
fn pointer(seen: Occupied<File>) -> NonNull<File> {
    // SAFETY: a full slot was filled with a file's address.
    unsafe { NonNull::new_unchecked(seen.file()) }
}

/// # Safety
/// The caller has emptied the slot that held `was`; all files of the table are `files`'.
#[inline(always)]
unsafe fn owned<'k>(was: Occupied<File>, files: &'k Files) -> FileHandle<'k> {
    // SAFETY: the slot's reference came from `install`, by `into_raw`.
    unsafe { FileHandle::from_raw(pointer(was), files) }
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
        quietline_platform::name_words!(*numbers, "files_struct.file_lock");
        Ok(Self { slots: Slots::new(), numbers })
    }

    /// A table with these slots and numbers. If there is no memory, what is in the slots is closed.
    pub(crate) fn with(
        mut slots: Slots,
        numbers: Numbers,
        files: &Files,
    ) -> Result<Self, AllocError> {
        match Registered::new(Rank::Object, SpinLock::new(numbers)) {
            Ok(numbers) => {
                quietline_platform::name_words!(*numbers, "files_struct.file_lock");
                Ok(Self { slots, numbers })
            }
            Err(error) => {
                slots.clear(files);
                Err(error)
            }
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> LockedTable<'_> {
        LockedTable { slots: &self.slots, numbers: self.numbers.lock() }
    }
}

impl LockedTable<'_> {
    /// Empties a full slot: its file, and whether its number belongs to a CPU's store.
    #[inline(always)]
    pub(crate) fn take<'k>(&self, slot: &Slot, files: &'k Files) -> Option<(FileHandle<'k>, bool)> {
        let was = slot.take()?;
        // SAFETY: whoever empties a slot owns the reference that it held.
        Some((unsafe { owned(was, files) }, was.is_anyfd()))
    }

    /// Puts `file` in place of a full slot's file, keeping the number's owner. The file that was there; `Err` with
    /// `file` if the slot is empty.
    pub(crate) fn replace<'k>(
        &self,
        fd: usize,
        file: FileHandle<'k>,
        tags: usize,
        files: &'k Files,
    ) -> Result<FileHandle<'k>, FileHandle<'k>> {
        let new = file.into_raw();
        let was = self.slots.get(fd).and_then(|slot| slot.replace(new, tags));
        // SAFETY: the slot's reference is ours if we took it out; ours is still ours if the slot was empty.
        unsafe { was.map(|was| owned(was, files)).ok_or_else(|| FileHandle::from_raw(new, files)) }
    }

    /// A reference to the file at `fd`, and whether exec closes it. Needs no read section: under the lock nobody takes
    /// the file out of the slot, so the slot's reference keeps it open.
    #[inline(always)]
    pub(crate) fn get_file<'k>(
        &self,
        fd: usize,
        files: &'k Files,
    ) -> Option<(FileHandle<'k>, bool)> {
        // SAFETY: the slot's reference keeps the file open while the word stands still.
        let get = |seen| unsafe { FileHandle::get_open(pointer(seen), files) };
        let slot = self.slots.get(fd)?;
        let seen = slot.load()?;
        match seen.is_anyfd() {
            false => Some((get(seen), seen.is_cloexec())),
            true => slot.hold(|seen| (get(seen), seen.is_cloexec())),
        }
    }

    /// Sets or clears `FD_CLOEXEC`; false if the slot is empty.
    pub(crate) fn set_cloexec(&self, fd: usize, on: bool) -> bool {
        self.slots.get(fd).is_some_and(|slot| slot.set_cloexec(on))
    }

    /// Makes a number that belongs to a CPU's store an ordinary one; whether it was full and did belong to one.
    pub(crate) fn clear_anyfd(&self, fd: usize) -> bool {
        self.slots.get(fd).is_some_and(SlotWord::clear_anyfd)
    }
}

#[cfg(test)]
mod tests;
