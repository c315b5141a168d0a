//! Numbers that are leased to the CPUs' stores.
//!
//! ```text
//!   bitmap ── 64 at a time, under the lock ──> a CPU's store ── pop ──> open with ANYFD
//!     ^  ^── 65 at a time, when it is full ───────┘   ^──── push ─────────────┘ close
//!     └───── all, when the lowest-number rule wants one of them: revoke
//! ```

use super::{FdFlags, FdTable};
use crate::raw::handle::FileHandle;
use crate::raw::slots::LockedTable;
use quietline_platform::{AllocError, percpu};
use rustix::io::Errno;

/// Numbers that are leased to a CPU at a time.
const LEASE: usize = 64;

impl FdTable {
    #[inline(always)]
    pub(super) fn install_any(&self, file: FileHandle<'_>, flags: FdFlags) -> Result<i32, Errno> {
        let fd = self.reserve_any()?;
        self.table.slots.install(fd, file, flags.tags());
        Ok(fd as i32)
    }

    /// Takes a number from the CPU's store.
    #[inline(always)]
    pub(super) fn reserve_any(&self) -> Result<usize, Errno> {
        match self.store.pop_restartable() {
            Some(fd) if fd < self.limit() => Ok(fd),
            unusable => self.lease_slow(unusable),
        }
    }

    /// Gives a number that was leased back to the CPU's store.
    #[inline(always)]
    pub(super) fn return_any(&self, fd: usize) {
        if !self.store.push_restartable(fd) {
            self.return_slow(fd);
        }
    }

    /// Gets leases out of the way of the lowest-number rule, which is about to pass over `fd`: takes the numbers out
    /// of all CPUs' stores, and makes those up to `fd` that are open ordinary ones.
    ///
    /// What stays leased is open above `fd`, or in between: another thread has just taken it from its store and not
    /// yet used it, or emptied its slot and not yet given it back. Such a thread's call is not over, and its number
    /// is as good as taken.
    #[cold]
    #[inline(never)]
    pub(super) fn revoke(&self, table: &mut LockedTable<'_>, fd: usize) {
        if !table.numbers.leases_up_to(usize::MAX - 1) {
            return;
        }
        let mut from = table.numbers.lowest_lease();
        if self.store.drain(|fd| table.numbers.give_back_leased(fd)).is_err() {
            // The leases stay; the caller passes over them.
            return;
        }
        let (mut known, mut lowest) = (0, usize::MAX);
        while let Some((open, seen)) = table.slots.next_full(from, usize::MAX) {
            from = open + 1;
            if !seen.is_anyfd() {
                continue;
            }
            if open > fd {
                known += 1;
                lowest = lowest.min(open);
            } else if table.clear_anyfd(open) {
                table.numbers.settle(open);
            }
        }
        table.numbers.leases_known(known, lowest);
    }

    /// A number for the caller, and more for the CPU's store. `above` is one that was in the store but is not below
    /// the limit any more.
    #[cold]
    #[inline(never)]
    fn lease_slow(&self, mut above: Option<usize>) -> Result<usize, Errno> {
        if above.is_none() && percpu::is_fallback() {
            above = self.store.pop();
            if let Some(fd) = above.filter(|&fd| fd < self.limit()) {
                return Ok(fd);
            }
        }
        self.store.provide();
        let mut table = self.table.lock();
        if let Some(fd) = above {
            table.numbers.give_back_leased(fd);
        }
        for attempt in 0..2 {
            let (slots, limit) = (table.slots, self.limit());
            let mut mine = None;
            let leased = table.numbers.lease(LEASE, limit, |fd| {
                slots.grow(fd)?;
                Ok(mine.is_none() && mine.replace(fd).is_none() || self.store.push(fd))
            });
            match (mine, leased) {
                (Some(fd), _) => return Ok(fd),
                (None, Err(AllocError)) => return Err(Errno::NOMEM),
                // Perhaps other CPUs' stores have some.
                (None, Ok(())) if attempt == 0 => self.revoke(&mut table, limit),
                (None, Ok(())) => {}
            }
        }
        Err(Errno::MFILE)
    }

    /// Frees a number for which the CPU's store has no room: into a store, if the CPU had none, else into the bitmap,
    /// together with a part of what is in the store.
    #[cold]
    #[inline(never)]
    fn return_slow(&self, fd: usize) {
        if percpu::is_fallback() && self.store.push(fd) {
            return;
        }
        if self.store.provide() && self.store.push(fd) {
            return;
        }
        let mut table = self.table.lock();
        table.numbers.give_back_leased(fd);
        for _ in 0..LEASE {
            let Some(fd) = self.store.pop() else { return };
            table.numbers.give_back_leased(fd);
        }
    }
}
