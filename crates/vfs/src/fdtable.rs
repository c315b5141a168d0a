//! Descriptor tables.
//!
//! # The contended way
//!
//! One table for all threads of a process, one lock around it: every open and close of every thread takes it, because
//! POSIX wants the lowest free number.
//!
//! # Our way
//!
//! Who wants the lowest number takes the lock, as ever; whoever wants the file at a number takes none. And who is
//! content with *any* free number (`O_ANYFD`) takes one from a store that belongs to the CPU: numbers are leased to a
//! CPU by the dozen, under the lock, and come back to the store of whatever CPU closes them. Then open and close take
//! no lock and write no line of the table but the slot's.
//!
//! The lowest-number rule still holds to the letter: leased numbers lie well above those that the rule hands out, and
//! before it would hand out a number above a leased one, the leases are revoked (`lease`).

mod lease;
mod unused;

pub use unused::UnusedFd;

use crate::abi::NR_OPEN;
use crate::file::Files;
use crate::numbers::Numbers;
use crate::raw::dcache::seen::Section;
use crate::raw::handle::FileHandle;
use crate::raw::opened::Opened;
use crate::raw::slots::{LockedTable, Slot, Slots, Table, Taken};
use crate::raw::store::Store;
use crate::raw::word::{ANYFD, CLOEXEC, Occupied};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicUsize, Ordering};
use rustix::io::Errno;

/// How a descriptor is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FdFlags {
    /// `FD_CLOEXEC`.
    pub cloexec: bool,
    /// Any free number will do.
    pub any: bool,
}

impl FdFlags {
    /// From the bits of `O_CLOEXEC` and `O_ANYFD`, which all calls that make descriptors share.
    #[inline]
    pub const fn of(flags: i32) -> Self {
        Self { cloexec: flags & crate::abi::O_CLOEXEC != 0, any: flags & crate::abi::O_ANYFD != 0 }
    }

    #[inline]
    fn tags(self) -> usize {
        (if self.cloexec { CLOEXEC } else { 0 }) | (if self.any { ANYFD } else { 0 })
    }
}

/// The descriptors of a process (`struct files_struct`).
///
/// Every method takes the kernel's [`Files`]: those that were promised when it was [made](Self::new).
#[derive(Debug)]
pub struct FdTable {
    table: Table,
    store: Store,
    /// RLIMIT_NOFILE.
    limit: AtomicUsize,
}

/// A descriptor as callers pass it: negative ones are never open.
#[inline]
fn number(fd: i32) -> Result<usize, Errno> {
    usize::try_from(fd).map_err(|_| Errno::BADF)
}

impl FdTable {
    /// An empty table for numbers below `limit` (at most [`NR_OPEN`]).
    ///
    /// # Errors
    /// [`AllocError`].
    ///
    /// # Safety
    /// A table forgets for how long the files that it is given may live. Until it has been [cleared](Self::clear),
    /// the [`Files`] and the filesystems of every file that is installed must stay alive and where they are, and
    /// every method must be given those same `Files`. The same holds for the table's [duplicates](Self::duplicate).
    #[allow(unsafe_code)] // a contract for callers; nothing unsafe is done here
    pub unsafe fn new(limit: usize) -> Result<Self, AllocError> {
        let limit = AtomicUsize::new(limit.min(NR_OPEN));
        Ok(Self { table: Table::new()?, store: Store::new(), limit })
    }

    /// The limit: descriptors are below it (RLIMIT_NOFILE).
    #[inline]
    pub fn limit(&self) -> usize {
        // Relaxed: a tunable.
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit, to at most [`NR_OPEN`]. Descriptors that are open stay open.
    pub fn set_limit(&self, limit: usize) {
        // Relaxed: a tunable.
        self.limit.store(limit.min(NR_OPEN), Ordering::Relaxed);
    }

    /// Gives `file` a descriptor.
    ///
    /// Lowest-number rule: writes the table's lock line. With [`FdFlags::any`], while the CPU's store has a number:
    /// no shared line but the slot's, which is that of a descriptor nobody else has.
    ///
    /// # Errors
    /// `EMFILE` when all numbers below the limit are taken; `ENOMEM`. The file is closed.
    #[inline(always)]
    pub fn install(&self, file: FileHandle<'_>, flags: FdFlags) -> Result<i32, Errno> {
        if flags.any { self.install_any(file, flags) } else { self.install_from(0, file, flags) }
    }

    /// [`install`](Self::install) at the lowest free number from `from` on (`F_DUPFD`).
    ///
    /// # Errors
    /// As [`install`](Self::install).
    #[inline(always)]
    pub fn install_from(
        &self,
        from: usize,
        file: FileHandle<'_>,
        flags: FdFlags,
    ) -> Result<i32, Errno> {
        let errno = {
            let mut table = self.table.lock();
            match self.reserve(&mut table, from) {
                Ok((fd, slot)) => {
                    Slots::fill(slot, file, flags.tags() & !ANYFD);
                    return Ok(fd as i32);
                }
                Err(errno) => errno,
            }
        };
        // The lock is free; only now the file is closed.
        drop(file);
        Err(errno)
    }

    /// Gives two files a descriptor each, or none: nobody finds the first before both have a number. Otherwise as
    /// [`install`](Self::install); the lock is taken once.
    ///
    /// # Errors
    /// As [`install`](Self::install). Both files are closed.
    #[inline(always)]
    pub fn install_pair(
        &self,
        files: [FileHandle<'_>; 2],
        flags: FdFlags,
    ) -> Result<[i32; 2], Errno> {
        let tags = flags.tags();
        if flags.any {
            let one = self.reserve_any()?;
            let two = match self.reserve_any() {
                Ok(two) => two,
                Err(errno) => {
                    self.return_any(one);
                    return Err(errno);
                }
            };
            let [first, second] = files;
            self.table.slots.install(one, first, tags);
            self.table.slots.install(two, second, tags);
            return Ok([one as i32, two as i32]);
        }
        let [(one, one_slot), (two, two_slot)] = self.reserve_pair()?;
        let [first, second] = files;
        Slots::fill(one_slot, first, tags);
        Slots::fill(two_slot, second, tags);
        Ok([one as i32, two as i32])
    }

    #[inline(always)]
    fn reserve_pair(&self) -> Result<[(usize, &Slot); 2], Errno> {
        let mut table = self.table.lock();
        let first = self.reserve(&mut table, 0)?;
        match self.reserve(&mut table, 0) {
            Ok(second) => Ok([first, second]),
            Err(errno) => {
                table.numbers.give_back(first.0);
                Err(errno)
            }
        }
    }

    /// Whether a descriptor could be had now. Ends leases to find out, if it must.
    pub fn has_free(&self) -> bool {
        let mut table = self.table.lock();
        let limit = self.limit();
        table.numbers.lowest_free(0) < limit || {
            self.revoke(&mut table, limit);
            table.numbers.lowest_free(0) < limit
        }
    }

    /// Takes the lowest free number from `from` on, and returns it with its slot.
    #[inline(always)]
    fn reserve<'t>(
        &self,
        table: &mut LockedTable<'t>,
        from: usize,
    ) -> Result<(usize, &'t Slot), Errno> {
        let slots = table.slots;
        if from == 0
            && let Some(taken) = table.numbers.take_next(self.limit(), |fd| slots.get(fd))
        {
            return Ok(taken);
        }
        self.reserve_slow(table, from)
    }

    #[inline(never)]
    fn reserve_slow<'t>(
        &self,
        table: &mut LockedTable<'t>,
        from: usize,
    ) -> Result<(usize, &'t Slot), Errno> {
        let mut fd = table.numbers.lowest_free(from);
        if table.numbers.leases_up_to(fd) {
            self.revoke(table, fd);
            fd = table.numbers.lowest_free(from);
        }
        if fd >= self.limit() {
            return Err(Errno::MFILE);
        }
        Ok((fd, self.take_number(table, fd)?))
    }

    #[inline(always)]
    fn take_number<'t>(&self, table: &mut LockedTable<'t>, fd: usize) -> Result<&'t Slot, Errno> {
        table.numbers.grow(fd).map_err(|_| Errno::NOMEM)?;
        let slot = table.slots.grow(fd).map_err(|_| Errno::NOMEM)?;
        table.numbers.take(fd);
        Ok(slot)
    }

    /// Closes a descriptor.
    ///
    /// Writes the table's lock line, unless the descriptor was made with [`FdFlags::any`]; and what closing the file
    /// writes.
    ///
    /// # Errors
    /// `EBADF` when it is not open.
    #[inline(always)]
    pub fn close(&self, fd: i32, files: &Files) -> Result<(), Errno> {
        let fd = number(fd)?;
        let slot = self.table.slots.get(fd).ok_or(Errno::BADF)?;
        match Slots::take_anyfd(slot, files) {
            Taken::Empty => Err(Errno::BADF),
            Taken::File(file) => {
                // The two locked instructions next to each other: the second finds few stores to wait for.
                file.close();
                self.return_any(fd);
                Ok(())
            }
            Taken::Ordinary => {
                self.take_locked(fd, slot, files).ok_or(Errno::BADF)?.close();
                Ok(())
            }
        }
    }

    /// Empties a slot under the lock, and frees its number.
    #[inline(always)]
    fn take_locked<'k>(&self, fd: usize, slot: &Slot, files: &'k Files) -> Option<FileHandle<'k>> {
        let mut table = self.table.lock();
        let (file, leased) = table.take(slot, files)?;
        // Since the caller looked, another thread may have closed the descriptor and made it anew.
        if leased {
            table.numbers.give_back_leased(fd)
        } else {
            table.numbers.give_back(fd)
        }
        Some(file)
    }

    /// A reference to the file at `fd`. Writes the file's line, no line of the table.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline(always)]
    pub fn get<'k>(&self, fd: i32, files: &'k Files) -> Result<FileHandle<'k>, Errno> {
        self.table.slots.get_file(number(fd)?, files).ok_or(Errno::BADF)
    }

    /// What the file at `fd` is on, without a reference to the file: for as long as the section is open. Writes no shared
    /// line.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline(always)]
    pub fn look<'g>(&self, fd: i32, section: &'g Section) -> Result<Opened<'g>, Errno> {
        self.table.slots.look(number(fd)?, section).ok_or(Errno::BADF)
    }

    /// The file's status flags (`F_GETFL`). Writes no shared line.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline(always)]
    pub fn status(&self, fd: i32, files: &Files) -> Result<i32, Errno> {
        self.table.slots.status(number(fd)?, files).ok_or(Errno::BADF)
    }

    /// Whether exec closes the descriptor (`F_GETFD`). Writes no line.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn cloexec(&self, fd: i32) -> Result<bool, Errno> {
        self.table.slots.load(number(fd)?).map(Occupied::is_cloexec).ok_or(Errno::BADF)
    }

    /// Sets whether exec closes the descriptor (`F_SETFD`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_cloexec(&self, fd: i32, on: bool) -> Result<(), Errno> {
        if self.table.lock().set_cloexec(number(fd)?, on) { Ok(()) } else { Err(Errno::BADF) }
    }

    /// Duplicates `old` to the lowest free number from `from` on (`dup`, `F_DUPFD`). Writes the table's lock line and
    /// the file's.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`, `ENOMEM`.
    #[inline(always)]
    pub fn dup(&self, old: i32, from: usize, flags: FdFlags, files: &Files) -> Result<i32, Errno> {
        let old = number(old)?;
        let (errno, file) = {
            let mut table = self.table.lock();
            let (file, _) = table.get_file(old, files).ok_or(Errno::BADF)?;
            match self.reserve(&mut table, from) {
                Ok((fd, slot)) => {
                    Slots::fill(slot, file, flags.tags() & !ANYFD);
                    return Ok(fd as i32);
                }
                Err(errno) => (errno, file),
            }
        };
        // Another thread may have closed the original by now, and then the file is closed here.
        drop(file);
        Err(errno)
    }

    /// Puts the file of `old` at `new`, closing what was there (`dup3`).
    ///
    /// # Errors
    /// `EBADF` when `old` is not open or `new` is not below the limit; `EBUSY` when another thread has a number for
    /// a file that it is just opening, or has just emptied the slot of a CPU's number, and that is `new`; `ENOMEM`.
    pub fn dup_to(&self, old: i32, new: i32, cloexec: bool, files: &Files) -> Result<i32, Errno> {
        let target = number(new)?;
        if target >= self.limit() {
            return Err(Errno::BADF);
        }
        let old = number(old)?;
        let tags = FdFlags { cloexec, any: false }.tags();
        // Whatever has to be closed is closed when the lock is free again.
        let closed = {
            let mut table = self.table.lock();
            let (file, _) = table.get_file(old, files).ok_or(Errno::BADF)?;
            match table.replace(target, file, tags, files) {
                Ok(replaced) => Ok(replaced),
                Err(file) => match self.reserve_exactly(&mut table, target) {
                    Ok(()) => {
                        table.slots.install(target, file, tags);
                        return Ok(new);
                    }
                    Err(errno) => Err((errno, file)),
                },
            }
        };
        closed.map(|_replaced| new).map_err(|(errno, _file)| errno)
    }

    fn reserve_exactly(&self, table: &mut LockedTable<'_>, fd: usize) -> Result<(), Errno> {
        if table.numbers.is_taken(fd) && table.numbers.leases_up_to(fd) {
            self.revoke(table, fd);
        }
        if table.numbers.is_taken(fd) {
            return Err(Errno::BUSY);
        }
        self.take_number(table, fd).map(drop)
    }

    /// Closes every descriptor from `first` to `last`, or sets `FD_CLOEXEC` on it (`close_range`): the last first, as who watches
    /// the files can tell.
    pub fn for_range(&self, first: u32, last: u32, cloexec: bool, files: &Files) {
        let mut end = (last as usize).saturating_add(1);
        while let Some((open, _)) = self.table.slots.last_full(first as usize, end) {
            // Another thread may have closed it in the meantime, which is as good.
            let _ = match cloexec {
                true => self.set_cloexec(open as i32, true),
                false => self.close(open as i32, files),
            };
            end = open;
        }
    }

    /// Descriptors that are open, lowest first; a snapshot.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn open_fds(&self) -> Result<Vec<i32>, AllocError> {
        let mut open = Vec::new();
        let mut from = 0;
        while let Some(fd) = self.next_fd(from) {
            quietline_platform::heap::try_reserve(&mut open, 1)?;
            open.push(fd);
            from = fd as usize + 1;
        }
        Ok(open)
    }

    /// The lowest descriptor from `from` on that is open; of one moment. Needs no memory.
    pub fn next_fd(&self, from: usize) -> Option<i32> {
        self.table.slots.next_full(from, usize::MAX).map(|(fd, _)| fd as i32)
    }

    /// The lowest descriptor from `from` on that exec closes; of one moment. Needs no memory.
    pub fn next_cloexec(&self, mut from: usize) -> Option<i32> {
        loop {
            let (fd, seen) = self.table.slots.next_full(from, usize::MAX)?;
            if seen.is_cloexec() {
                return Some(fd as i32);
            }
            from = fd + 1;
        }
    }

    /// The highest descriptor below `end` that is open; of one moment. Needs no memory.
    pub fn last_fd(&self, end: usize) -> Option<i32> {
        self.table.slots.last_full(0, end).map(|(fd, _)| fd as i32)
    }

    /// A table with the same files at the same numbers (`fork`), all of them ordinary ones. O(numbers), under the lock.
    ///
    /// Descriptors that other threads make or close by way of their CPUs' stores meanwhile are in the copy or not.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn duplicate(&self, files: &Files) -> Result<Self, AllocError> {
        let (mut slots, mut numbers) = (Slots::new(), Numbers::new());
        // The copy's lock is made last: while this thread holds the parent's, it wants no other that a `fork` of the
        // host may hold.
        if let Err(error) = self.copy_to(&slots, &mut numbers, files) {
            slots.clear(files);
            return Err(error);
        }
        let limit = AtomicUsize::new(self.limit());
        Ok(Self { table: Table::with(slots, numbers, files)?, store: Store::new(), limit })
    }

    fn copy_to(
        &self,
        slots: &Slots,
        numbers: &mut Numbers,
        files: &Files,
    ) -> Result<(), AllocError> {
        let parent = self.table.lock();
        let mut from = 0;
        while let Some((fd, _)) = parent.slots.next_full(from, usize::MAX) {
            from = fd + 1;
            numbers.grow(fd)?;
            slots.grow(fd)?;
            let Some((file, cloexec)) = parent.get_file(fd, files) else { continue };
            numbers.take(fd);
            slots.install(fd, file, FdFlags { cloexec, any: false }.tags());
        }
        Ok(())
    }

    /// Closes everything. For the process's end: no other thread uses the table, and nobody uses it again. (A table
    /// that is dropped without this leaks its files.)
    pub fn clear(&mut self, files: &Files) {
        self.table.slots.clear(files);
    }
}
