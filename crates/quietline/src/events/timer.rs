//! Timers.

use crate::{Errno, Process};
use quietline_vfs::TimerFd;
use quietline_vfs::timerfd::ItimerSpec;

impl Process {
    /// Sets a timer: what it was set to before. Flags: `TFD_TIMER_ABSTIME`, `TFD_TIMER_CANCEL_ON_SET`.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for another descriptor, or an unknown flag; `EPERM` for a clock that wakes
    /// the system, without `CAP_WAKE_ALARM`; `ENOMEM`.
    pub fn timerfd_settime(
        &self,
        fd: i32,
        flags: i32,
        new: ItimerSpec,
    ) -> Result<ItimerSpec, Errno> {
        TimerFd::check_flags(flags)?;
        let file = self.fget(fd)?;
        let timer = file.payload::<TimerFd>().ok_or(Errno::INVAL)?;
        if timer.wakes() && !self.may_wake_system() {
            return Err(Errno::PERM);
        }
        timer.set(flags, new)
    }

    /// What a timer is set to, and when it expires next.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for what is no timer.
    pub fn timerfd_gettime(&self, fd: i32) -> Result<ItimerSpec, Errno> {
        Ok(self.fget(fd)?.payload::<TimerFd>().ok_or(Errno::INVAL)?.get())
    }
}
