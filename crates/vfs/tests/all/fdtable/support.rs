//! What several tests of this crate need.
#![allow(unsafe_code)]

use quietline_vfs::FdTable;

/// A table for files that outlive it: every test here makes its files and filesystems first, and
/// clears its tables before those go.
pub(crate) fn table_for(limit: usize) -> FdTable {
    // SAFETY: as just said.
    unsafe { FdTable::new(limit) }.unwrap()
}
