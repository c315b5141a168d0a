//! The unsafe part of this crate: one promise.

#![allow(unsafe_code)]

use crate::Errno;
use quietline_vfs::FdTable;

/// A table for a [`Process`](crate::Process), and for nobody else.
pub(crate) fn table(limit: usize) -> Result<FdTable, Errno> {
    // SAFETY: a process owns its kernel, in which all of the kernel's files and filesystems lie at one address, and
    // clears its table before it lets go of the kernel. It installs only files that its own methods have opened on
    // that kernel, or that `install_file` has found to be of the kernel's `Files`; and only a kernel opens files on its
    // `Files`, on its own filesystems.
    unsafe { FdTable::new(limit) }.map_err(|_| Errno::NOMEM)
}
