//! The one unsafe call of the bench: giving a thread a descriptor table of its own.

#![allow(unsafe_code)]

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread a private copy of the process's descriptor table, so that what it opens and
/// closes from here on meets no other thread: to the host kernel's table code the thread is then a process of
/// its own.
///
/// Must be called by a thread made for this purpose, before it opens anything, and which never uses a
/// descriptor that another thread opens later nor hands one of its own to another thread.
/// [`crate::adapters::host`] is the only caller and its workers keep to that.
///
/// # Errors
///
/// What `unshare` says; it needs no privilege for this flag, but a seccomp filter may refuse it.
pub(crate) fn own_descriptor_table() -> rustix::io::Result<()> {
    // SAFETY: `unshare_unsafe` is unsafe because descriptors made by one thread may be invalid, or another
    // file, in a thread that has a table of its own. The calling thread is a worker of the host adapter:
    // every descriptor it uses from here on is opened and closed by itself inside one operation, none is sent
    // to it or taken from it, and the standard streams have the same numbers in the copy.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }
}
