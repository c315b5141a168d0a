//! Numbers that are taken before there is a file for them.
//!
//! What cannot be undone (a connection taken out of its listener's queue) is done when nothing can fail any more: the number
//! first, then the file.

use super::{FdFlags, FdTable};
use crate::raw::handle::FileHandle;
use core::mem::ManuallyDrop;
use rustix::io::Errno;

/// A number that is taken and has no file yet. Nobody finds anything there, and nobody else gets it, `dup2` included (`EBUSY`); if it
/// is dropped it is free again.
#[derive(Debug)]
#[must_use]
pub struct UnusedFd<'t> {
    table: &'t FdTable,
    fd: usize,
    flags: FdFlags,
}

impl FdTable {
    /// Takes a number (`get_unused_fd_flags`). Writes what [`install`](Self::install) writes, but for the slot.
    ///
    /// One with [`FdFlags::any`] is not to be kept for long: while it is neither in a CPU's store nor open, a lowest number above
    /// it is searched for with all leases ended, each time.
    ///
    /// # Errors
    /// `EMFILE` when all numbers below the limit are taken; `ENOMEM`.
    #[inline]
    pub fn get_unused_fd(&self, flags: FdFlags) -> Result<UnusedFd<'_>, Errno> {
        let fd = if flags.any {
            self.reserve_any()?
        } else {
            self.reserve(&mut self.table.lock(), 0)?.0
        };
        Ok(UnusedFd { table: self, fd, flags })
    }
}

impl UnusedFd<'_> {
    /// Gives the number its file: the descriptor. Takes no lock; writes the line of the slot (`fd_install`).
    #[inline]
    pub fn install(self, file: FileHandle<'_>) -> i32 {
        let this = ManuallyDrop::new(self);
        this.table.table.slots.install(this.fd, file, this.flags.tags());
        this.fd as i32
    }
}

impl Drop for UnusedFd<'_> {
    fn drop(&mut self) {
        if self.flags.any {
            self.table.return_any(self.fd);
        } else {
            self.table.table.lock().numbers.give_back(self.fd);
        }
    }
}
