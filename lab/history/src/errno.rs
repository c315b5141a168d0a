//! The errors of the miniature's system calls.

use core::fmt;

/// Why a system call of the miniature failed; named as in `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Errno {
    /// The descriptor is not open.
    EBADF,
    /// The CPU number is not one of the world's.
    EINVAL,
    /// The process has all the descriptors it may have.
    EMFILE,
    /// The world has all the files it may have.
    ENFILE,
    /// The allocator has no memory.
    ENOMEM,
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Errno::EBADF => "the descriptor is not open (EBADF)",
            Errno::EINVAL => "the world has no CPU of that number (EINVAL)",
            Errno::EMFILE => "the process has too many open files (EMFILE)",
            Errno::ENFILE => "too many open files in all (ENFILE)",
            Errno::ENOMEM => "no memory (ENOMEM)",
        })
    }
}

impl core::error::Error for Errno {}
