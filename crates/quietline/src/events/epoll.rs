//! epoll.

use super::{is_over, milliseconds, within};
use crate::abi::{O_ANYFD, O_CLOEXEC};
use crate::{Errno, FileHandle, Process};
use core::time::Duration;
use quietline_vfs::eventpoll::{self, EP_MAX_EVENTS, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EpollEvent};

impl Process {
    /// Makes an epoll. Flags: `EPOLL_CLOEXEC`, [`O_ANYFD`].
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag; `EMFILE`, `ENFILE`, `ENOMEM`.
    #[inline]
    pub fn epoll_create1(&self, flags: i32) -> Result<i32, Errno> {
        match self.epoll_file(flags & !O_ANYFD) {
            Ok(file) => self.install(file, flags & (O_CLOEXEC | O_ANYFD)),
            Err(errno) => {
                self.install_beyond_max(errno, flags & (O_CLOEXEC | O_ANYFD), move || {
                    self.epoll_file(flags & !O_ANYFD)
                })
            }
        }
    }

    /// As [`epoll_create1`](Self::epoll_create1) without flags. The size is of no matter, but for its sign.
    ///
    /// # Errors
    /// `EINVAL` for a size below 1; as [`epoll_create1`](Self::epoll_create1).
    pub fn epoll_create(&self, size: i32) -> Result<i32, Errno> {
        if size <= 0 { Err(Errno::INVAL) } else { self.epoll_create1(0) }
    }

    /// Makes an epoll without a descriptor.
    ///
    /// # Errors
    /// As [`epoll_create1`](Self::epoll_create1), but for `EMFILE`.
    #[inline]
    pub fn epoll_file(&self, flags: i32) -> Result<FileHandle<'_>, Errno> {
        let k = self.inner();
        eventpoll::epoll_create1(&k.epolls, &k.files, self.epoll_user(), flags)
    }

    /// Whose watches are counted.
    #[inline]
    fn epoll_user(&self) -> u32 {
        let section = self.cred.section();
        self.cred.load(&section).uids()[0]
    }

    /// Begins to watch a file, changes what is wanted of it, or ends watching it. The event is not looked at by
    /// `EPOLL_CTL_DEL`.
    ///
    /// Writes the epoll's line, the item's and that of the file's queue; to add also the file's.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`.
    #[inline]
    pub fn epoll_ctl(&self, epfd: i32, op: i32, fd: i32, event: &EpollEvent) -> Result<(), Errno> {
        let section = self.inner().vfs.read();
        let epoll = self.fdget(epfd, &section)?;
        let file = self.fdget(fd, &section)?;
        let nothing = EpollEvent::default();
        let event = if op == EPOLL_CTL_DEL { &nothing } else { event };
        let found = eventpoll::check_control(epoll, op, file, event)?;
        if op != EPOLL_CTL_ADD {
            return found.control(op, fd, file, event);
        }
        let held = self.fget(fd)?;
        if !held.opened().is_same(file) {
            // Another thread has put another file there meanwhile.
            eventpoll::check_control(epoll, op, held.opened(), event)?;
        }
        eventpoll::control_add(found, fd, &held, event)
    }

    /// Waits for events, `timeout` milliseconds at most; for ever if that is negative. How many there are.
    ///
    /// With nothing ready and no time: writes no line. Otherwise the epoll's.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for what is no epoll, or when there is no room for an event; `EINTR`.
    #[inline]
    pub fn epoll_wait(
        &self,
        epfd: i32,
        events: &mut [EpollEvent],
        timeout: i32,
    ) -> Result<usize, Errno> {
        self.epoll_pwait2(epfd, events, milliseconds(timeout))
    }

    /// As [`epoll_wait`](Self::epoll_wait), with a time to the nanosecond; none is for ever.
    ///
    /// # Errors
    /// As [`epoll_wait`](Self::epoll_wait).
    #[inline]
    pub fn epoll_pwait2(
        &self,
        epfd: i32,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        {
            let section = self.inner().vfs.read();
            let epoll = self.fdget(epfd, &section)?;
            if events.is_empty() {
                return Err(Errno::INVAL);
            }
            within(events.len(), EP_MAX_EVENTS)?;
            let n = eventpoll::check_wait(epoll)?.ready(events);
            if n != 0 || is_over(timeout) {
                return Ok(n);
            }
        }
        let held = self.fget(epfd)?;
        eventpoll::check_wait(held.opened())?.wait(events, timeout)
    }
}
