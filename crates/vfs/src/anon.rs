//! Anonymous descriptors: eventfd, timerfd, signalfd.
//!
//! All of them share one inode, as in Linux, where its count is one of the lines that every such open and close
//! writes. Here the inode is immortal, and nobody counts.

use crate::abi::{
    CLOCK_BOOTTIME, CLOCK_BOOTTIME_ALARM, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_REALTIME_ALARM,
    EFD_SEMAPHORE, O_CLOEXEC, O_NONBLOCK, O_RDWR,
};
use crate::inode::PseudoInode;
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use crate::{FileMode, Files};
use core::fmt;
use quietline_platform::atomic::{AtomicU64, Ordering};
use rustix::io::Errno;

/// Both directions, as anonymous descriptors are opened.
const BOTH: FileMode = FileMode::READ.union(FileMode::WRITE);

/// An event counter.
#[derive(Debug)]
pub struct EventFd {
    count: AtomicU64,
    semaphore: bool,
}

impl EventFd {
    /// The count.
    pub fn count(&self) -> u64 {
        // Relaxed: a number to look at.
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a read takes one (`EFD_SEMAPHORE`) instead of all.
    pub fn is_semaphore(&self) -> bool {
        self.semaphore
    }
}

/// A timer, not armed.
#[derive(Debug)]
pub struct TimerFd {
    /// The clock that it runs by.
    pub clockid: i32,
}

/// A set of signals to be read.
#[derive(Debug)]
pub struct SignalFd {
    mask: AtomicU64,
}

impl SignalFd {
    /// The signals, bit n for signal n + 1.
    pub fn mask(&self) -> u64 {
        // Relaxed: a set of its own.
        self.mask.load(Ordering::Relaxed)
    }
}

macro_rules! anonymous {
    ($type:ty, $cache:literal, $name:literal) => {
        impl Payload for $type {
            const CACHE: &'static str = $cache;

            fn inode(&self) -> Option<&PseudoInode> {
                None
            }

            fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!("anon_inode:[", $name, "]"))
            }
        }
    };
}

anonymous!(EventFd, "eventfd_ctx", "eventfd");
anonymous!(TimerFd, "timerfd_ctx", "timerfd");
anonymous!(SignalFd, "signalfd_ctx", "signalfd");

/// `eventfd2`.
///
/// # Errors
/// `EINVAL` for a flag that is unknown; `ENFILE`, `ENOMEM`.
#[inline]
pub fn eventfd<'k>(
    fs: &'k PseudoFs<EventFd>,
    files: &'k Files,
    count: u32,
    flags: i32,
) -> Result<FileHandle<'k>, Errno> {
    if flags & !(EFD_SEMAPHORE | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::INVAL);
    }
    let state = EventFd { count: AtomicU64::new(count.into()), semaphore: flags & EFD_SEMAPHORE != 0 };
    fs.open(files, state, O_RDWR | (flags & O_NONBLOCK), BOTH)
}

/// `timerfd_create`.
///
/// # Errors
/// `EINVAL` for a flag or a clock that is unknown; `EPERM` for a clock that wakes the system unless `may_wake`
/// (`CAP_WAKE_ALARM`); `ENFILE`, `ENOMEM`.
#[inline]
pub fn timerfd<'k>(
    fs: &'k PseudoFs<TimerFd>,
    files: &'k Files,
    clockid: i32,
    flags: i32,
    may_wake: bool,
) -> Result<FileHandle<'k>, Errno> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::INVAL);
    }
    match clockid {
        CLOCK_REALTIME | CLOCK_MONOTONIC | CLOCK_BOOTTIME => {}
        CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM if may_wake => {}
        CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM => return Err(Errno::PERM),
        _ => return Err(Errno::INVAL),
    }
    fs.open(files, TimerFd { clockid }, O_RDWR | (flags & O_NONBLOCK), BOTH)
}

/// Signals that cannot be waited for: SIGKILL and SIGSTOP.
const UNBLOCKABLE: u64 = 1 << (9 - 1) | 1 << (19 - 1);

/// `signalfd4` that makes a new descriptor.
///
/// # Errors
/// `EINVAL` for a flag that is unknown; `ENFILE`, `ENOMEM`.
#[inline]
pub fn signalfd<'k>(
    fs: &'k PseudoFs<SignalFd>,
    files: &'k Files,
    mask: u64,
    flags: i32,
) -> Result<FileHandle<'k>, Errno> {
    check_signalfd_flags(flags)?;
    let state = SignalFd { mask: AtomicU64::new(mask & !UNBLOCKABLE) };
    fs.open(files, state, O_RDWR | (flags & O_NONBLOCK), BOTH)
}

/// `signalfd4` on a descriptor that exists.
///
/// # Errors
/// `EINVAL` when the file is no signalfd.
pub fn set_signals(file: &FileHandle<'_>, mask: u64) -> Result<(), Errno> {
    let state = file.payload::<SignalFd>().ok_or(Errno::INVAL)?;
    // Relaxed: a set of its own.
    state.mask.store(mask & !UNBLOCKABLE, Ordering::Relaxed);
    Ok(())
}

/// What `signalfd4` says to its flags before anything else.
///
/// # Errors
/// `EINVAL` for a flag that is unknown.
pub fn check_signalfd_flags(flags: i32) -> Result<(), Errno> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 { Err(Errno::INVAL) } else { Ok(()) }
}
