//! What is unsafe in the bench, behind functions that are not: a descriptor table or a working directory for one
//! thread, a system call that has no wrapper, and the objects whose memory is managed by hand or by other people's libraries.

#![allow(unsafe_code)]

pub(crate) mod deferred;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod slab;

use rustix::fd::{FromRawFd, OwnedFd};
use rustix::pipe::{IoSliceRaw, SpliceFlags, vmsplice};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread a private copy of the process's descriptor table, so that what it opens and
/// closes from here on meets no other thread: to the host kernel's table code the thread is then a process of
/// its own.
///
/// Must be called by a thread made for this purpose, before it opens anything, and which never uses a
/// descriptor that another thread opens later nor hands one of its own to another thread.
/// The workers of the host kernel's columns are the only callers and keep to that.
///
/// # Errors
///
/// What `unshare` says; it needs no privilege for this flag, but a seccomp filter may refuse it.
pub(crate) fn own_descriptor_table() -> rustix::io::Result<()> {
    // SAFETY: `unshare_unsafe` is unsafe because descriptors made by one thread may be invalid, or another
    // file, in a thread that has a table of its own. The calling thread is a worker of a host
    // column: every descriptor it uses from here on is opened and closed by itself, none is sent to it or taken
    // from it, and the standard streams have the same numbers in the copy.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }
}

/// Gives the calling thread a root, a working directory and a umask of its own, so that what it does to them meets no other
/// thread.
///
/// # Errors
///
/// What `unshare` says; it needs no privilege for this flag, but a seccomp filter may refuse it.
pub(crate) fn own_working_directory() -> rustix::io::Result<()> {
    // SAFETY: what `unshare_unsafe` warns of are descriptors, which this flag leaves shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}

/// Gives a pipe a page of the caller's by the host's `vmsplice` with `SPLICE_F_GIFT`, without waiting: how many bytes. What is written
/// there before the pipe is read is what is read.
///
/// # Errors
///
/// What the system call says.
pub(crate) fn vmsplice_gift(pipe: &OwnedFd, page: &[u8; 4096]) -> rustix::io::Result<usize> {
    let flags = SpliceFlags::GIFT | SpliceFlags::NONBLOCK;
    // SAFETY: the kernel only reads the memory, and keeps the page itself if it is freed here: what could go wrong are the bytes that are
    // read from the pipe, which are numbers that the bench compares.
    unsafe { vmsplice(pipe, &[IoSliceRaw::from_slice(page)], flags) }
}

/// The host's `signalfd4` for SIGUSR1, without flags. (rustix has no wrapper.)
///
/// # Errors
///
/// What the system call says.
pub(crate) fn signalfd() -> rustix::io::Result<OwnedFd> {
    const NEW: libc::c_int = -1;
    let mask = 1u64 << (libc::SIGUSR1 - 1);
    // SAFETY: the call reads eight bytes at the mask's address.
    let fd =
        unsafe { libc::syscall(libc::SYS_signalfd4, NEW, &raw const mask, size_of_val(&mask), 0) };
    if fd < 0 {
        return Err(rustix::io::Errno::from_io_error(&std::io::Error::last_os_error())
            .unwrap_or(rustix::io::Errno::IO));
    }
    // SAFETY: the call has just made this descriptor, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
