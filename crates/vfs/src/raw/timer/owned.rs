//! Timers as parts of pseudo objects.

use super::{Timer, Timers};
use crate::file::{FileMode, Files};
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::PseudoFs;
use crate::timerfd::TimerFd;
use core::ptr::NonNull;
use core::time::Duration;
use quietline_platform::AllocError;
use quietline_sync::WaitQueue;
use rustix::io::Errno;

/// A kernel's timers, as what is in it refers to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimersRef(NonNull<Timers>);

// SAFETY: they are shared by design.
unsafe impl Send for TimersRef {}
// SAFETY: as above.
unsafe impl Sync for TimersRef {}

/// A timer as part of a pseudo object, which does not move.
#[derive(Debug)]
pub(crate) struct OwnedTimer {
    timer: Timer,
    timers: TimersRef,
}

impl OwnedTimer {
    /// Not armed.
    ///
    /// # Safety
    /// From the first [`arm`](Self::arm) on it stays where it is, until it is dropped. The timers live as long as it is
    /// used, but for being dropped when it is not armed.
    unsafe fn new(timers: &Timers) -> Self {
        Self { timer: Timer::new(), timers: TimersRef(NonNull::from(timers)) }
    }

    fn timers(&self) -> &Timers {
        // SAFETY: by the contract of `new`.
        unsafe { self.timers.0.as_ref() }
    }

    /// Who waits for it.
    pub(crate) fn queue(&self) -> &WaitQueue {
        &self.timer.queue
    }

    /// Arms it, as [`Timers::arm`]. The caller sees to it that one arms and cancels at a time.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(crate) fn arm(&self, time: Duration) -> Result<(), AllocError> {
        self.cancel();
        // SAFETY: it is not armed, and by the contract of `new` it stays here until `drop`, which cancels it. Two who arm at
        // once are a fault of this crate's, but each puts the timer in under a lock, and takes it out before.
        unsafe { self.timers().arm(&self.timer, time) }
    }

    /// As [`Timers::cancel`].
    #[inline(always)]
    pub(crate) fn cancel(&self) {
        if self.timer.was_armed() {
            self.timers().cancel(&self.timer);
        }
    }
}

impl Drop for OwnedTimer {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// A file on a new timer.
///
/// # Errors
/// `ENFILE`, `ENOMEM`.
#[inline]
pub(crate) fn open_timer<'k>(
    fs: &'k PseudoFs<TimerFd>,
    timers: &'k Timers,
    files: &'k Files,
    clockid: i32,
    flags: i32,
) -> Result<FileHandle<'k>, Errno> {
    // SAFETY: nobody can arm it before it is part of the object, and objects do not move. The timers are the kernel's, which
    // flushes the objects before them.
    let timer = unsafe { OwnedTimer::new(timers) };
    fs.open(files, TimerFd::new(clockid, timer), flags, FileMode::READ.union(FileMode::WRITE))
}
