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
//! before it would hand out a number above a leased one, the leases are revoked.

use crate::abi::NR_OPEN;
use crate::file::Files;
use crate::raw::handle::FileHandle;
use crate::raw::slots::{ANYFD, CLOEXEC, LockedTable, Occupied, Table};
use crate::raw::store::Store;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicUsize, Ordering};
use rustix::io::Errno;

/// Numbers that are leased to a CPU at a time.
const LEASE: usize = 64;

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
/// Every method takes the kernel's [`Files`], which must always be the same.
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
    pub fn new(limit: usize) -> Result<Self, AllocError> {
        let limit = AtomicUsize::new(limit.min(NR_OPEN));
        Ok(Self { table: Table::new()?, store: Store::new()?, limit })
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
    pub fn install_from(&self, from: usize, file: FileHandle<'_>, flags: FdFlags) -> Result<i32, Errno> {
        let fd = {
            let mut table = self.table.lock();
            match self.reserve(&mut table, from) {
                Ok(fd) => {
                    table.slots.install(fd, file, if flags.cloexec { CLOEXEC } else { 0 });
                    return Ok(fd as i32);
                }
                Err(errno) => errno,
            }
        };
        // The lock is free; only now the file is closed.
        drop(file);
        Err(fd)
    }

    #[inline(always)]
    fn install_any(&self, file: FileHandle<'_>, flags: FdFlags) -> Result<i32, Errno> {
        let fd = match self.store.pop() {
            Some(fd) if fd < self.limit() => fd,
            unusable => self.lease_slow(unusable)?,
        };
        self.table.slots.install(fd, file, flags.tags());
        Ok(fd as i32)
    }

    /// Whether a descriptor could be had now. Ends leases to find out, if it must.
    pub fn has_free(&self) -> bool {
        let mut table = self.table.lock();
        let limit = self.limit();
        table.numbers.lowest_free(0) < limit || {
            self.revoke(&mut table);
            table.numbers.lowest_free(0) < limit
        }
    }

    /// Takes the lowest free number from `from` on.
    #[inline(always)]
    fn reserve(&self, table: &mut LockedTable<'_>, from: usize) -> Result<usize, Errno> {
        let mut fd = table.numbers.lowest_free(from);
        if table.numbers.leases_up_to(fd) {
            self.revoke(table);
            fd = table.numbers.lowest_free(from);
        }
        if fd >= self.limit() {
            return Err(Errno::MFILE);
        }
        table.numbers.grow(fd).map_err(|_| Errno::NOMEM)?;
        table.slots.grow(fd).map_err(|_| Errno::NOMEM)?;
        table.numbers.take(fd);
        Ok(fd)
    }

    /// Ends all leases: takes the numbers out of the CPUs' stores, and makes those that are open ordinary ones. (A
    /// number that another thread has just taken from its store, and not yet used, stays leased.)
    #[cold]
    fn revoke(&self, table: &mut LockedTable<'_>) {
        self.store.drain(|fd| table.numbers.give_back_leased(fd));
        for fd in 0..table.numbers.end() {
            if table.clear_anyfd(fd) {
                table.numbers.settle(fd);
            }
        }
    }

    /// A number for the caller, and more for the CPU's store. `above` is one that was in the store but is not below
    /// the limit any more.
    #[cold]
    #[inline(never)]
    fn lease_slow(&self, above: Option<usize>) -> Result<usize, Errno> {
        self.store.provide();
        let mut table = self.table.lock();
        if let Some(fd) = above {
            table.numbers.give_back_leased(fd);
        }
        let mut mine = None;
        for attempt in 0..2 {
            let slots = table.slots;
            let mut spill = Vec::new();
            let leased = table.numbers.lease(LEASE, self.limit(), |fd| {
                slots.grow(fd)?;
                if mine.is_none() {
                    mine = Some(fd);
                } else if !self.store.push(fd) {
                    spill.try_reserve(1).map_err(|_| AllocError)?;
                    spill.push(fd);
                }
                Ok(())
            });
            for fd in spill {
                table.numbers.give_back_leased(fd);
            }
            match (mine, leased) {
                (Some(fd), _) => return Ok(fd),
                (None, Err(AllocError)) => return Err(Errno::NOMEM),
                // Perhaps other CPUs' stores have some.
                (None, Ok(_)) if attempt == 0 => self.revoke(&mut table),
                (None, Ok(_)) => break,
            }
        }
        Err(Errno::MFILE)
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
        loop {
            let seen = self.table.slots.load(fd).ok_or(Errno::BADF)?;
            if !seen.is_anyfd() {
                let file = self.take_locked(fd, files).ok_or(Errno::BADF)?;
                drop(file);
                return Ok(());
            }
            if let Some(file) = self.table.slots.take_anyfd(fd, seen, files) {
                if !self.store.push(fd) {
                    self.return_slow(fd);
                }
                drop(file);
                return Ok(());
            }
        }
    }

    /// Empties a slot under the lock, and frees its number.
    #[inline(always)]
    fn take_locked<'k>(&self, fd: usize, files: &'k Files) -> Option<FileHandle<'k>> {
        let mut table = self.table.lock();
        let (file, was) = table.take(fd, files)?;
        // Since the caller looked, another thread may have closed the descriptor and made it anew.
        if was.is_anyfd() {
            table.numbers.give_back_leased(fd)
        } else {
            table.numbers.give_back(fd)
        }
        Some(file)
    }

    /// Frees a number for which the CPU's store has no room, and half of what is in the store.
    #[cold]
    #[inline(never)]
    fn return_slow(&self, fd: usize) {
        let mut table = self.table.lock();
        table.numbers.give_back_leased(fd);
        for _ in 0..LEASE {
            let Some(fd) = self.store.pop() else { return };
            table.numbers.give_back_leased(fd);
        }
    }

    /// A reference to the file at `fd`. Writes the file's line, no line of the table.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline(always)]
    pub fn get<'k>(&self, fd: i32, files: &'k Files) -> Result<FileHandle<'k>, Errno> {
        self.table.slots.get_file(number(fd)?, files).ok_or(Errno::BADF)
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

    /// Duplicates `old` to the lowest free number from `from` on (`dup`, `F_DUPFD`).
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`, `ENOMEM`.
    #[inline(always)]
    pub fn dup(&self, old: i32, from: usize, flags: FdFlags, files: &Files) -> Result<i32, Errno> {
        let file = self.get(old, files)?;
        self.install_from(from, file, flags)
    }

    /// Puts the file of `old` at `new`, closing what was there (`dup3`).
    ///
    /// # Errors
    /// `EBADF` when `old` is not open or `new` is not below the limit; `EBUSY` when another thread is just opening a
    /// file at `new`; `ENOMEM`.
    pub fn dup_to(&self, old: i32, new: i32, cloexec: bool, files: &Files) -> Result<i32, Errno> {
        let target = number(new)?;
        if target >= self.limit() {
            return Err(Errno::BADF);
        }
        let file = self.get(old, files)?;
        // Whatever has to be closed is closed when the lock is free again.
        let closed = {
            let mut table = self.table.lock();
            match table.replace(target, file, cloexec, files) {
                Ok(replaced) => Ok(replaced),
                Err(file) => match self.reserve_exactly(&mut table, target) {
                    Ok(()) => {
                        table.slots.install(target, file, if cloexec { CLOEXEC } else { 0 });
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
            self.revoke(table);
        }
        if table.numbers.is_taken(fd) {
            return Err(Errno::BUSY);
        }
        table.numbers.grow(fd).map_err(|_| Errno::NOMEM)?;
        table.slots.grow(fd).map_err(|_| Errno::NOMEM)?;
        table.numbers.take(fd);
        Ok(())
    }

    /// Closes every descriptor from `first` to `last`, or sets `FD_CLOEXEC` on it (`close_range`).
    pub fn for_range(&self, first: u32, last: u32, cloexec: bool, files: &Files) {
        let mut fd = first as usize;
        let end = (last as usize).saturating_add(1);
        while let Some(open) = self.next_open(fd, end) {
            // Another thread may have closed it in the meantime, which is as good.
            let _ = match cloexec {
                true => self.set_cloexec(open as i32, true),
                false => self.close(open as i32, files),
            };
            fd = open + 1;
        }
    }

    /// The lowest open descriptor from `from` on and below `end`.
    fn next_open(&self, from: usize, end: usize) -> Option<usize> {
        let table = self.table.lock();
        (from..end.min(table.numbers.end())).find(|&fd| table.slots.load(fd).is_some())
    }

    /// Descriptors that are open, lowest first; a snapshot.
    pub fn open_fds(&self) -> Vec<i32> {
        let end = self.table.lock().numbers.end();
        (0..end).filter(|&fd| self.table.slots.load(fd).is_some()).map(|fd| fd as i32).collect()
    }

    /// A table with the same files at the same numbers (`fork`).
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn duplicate(&self, files: &Files) -> Result<Self, AllocError> {
        let mut copy = Self::new(self.limit())?;
        let parent = self.table.lock();
        {
            let mut child = copy.table.lock();
            for fd in 0..parent.numbers.end() {
                let Some(seen) = parent.slots.load(fd) else { continue };
                // A thread may close a descriptor of a store without the lock, in which case it is closed in the copy.
                let Some(file) = parent.slots.get_file(fd, files) else { continue };
                let tags = FdFlags { cloexec: seen.is_cloexec(), any: false }.tags();
                let room = child.numbers.grow(fd).and_then(|()| child.slots.grow(fd));
                if let Err(error) = room {
                    drop(child);
                    drop(parent);
                    drop(file);
                    copy.clear(files);
                    return Err(error);
                }
                child.numbers.take(fd);
                child.slots.install(fd, file, tags);
            }
        }
        Ok(copy)
    }

    /// Closes everything. For the process's end: no other thread uses the table, and nobody uses it again. (A table
    /// that is dropped without this leaks its files.)
    pub fn clear(&mut self, files: &Files) {
        self.table.slots.clear(files);
    }
}
