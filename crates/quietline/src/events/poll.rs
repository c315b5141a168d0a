//! `poll`.

use super::{is_over, milliseconds, within};
use crate::{Errno, Process};
use core::time::Duration;
use quietline_platform::fault;
use quietline_vfs::select::{ALWAYS_TOLD, Polled, wait_for_any};
use quietline_vfs::{Events, PollTable};

/// A descriptor that is waited for (`struct pollfd`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PollFd {
    /// The descriptor; a negative one is passed over.
    pub fd: i32,
    /// What it is waited for.
    pub events: i16,
    /// What it has.
    pub revents: i16,
}

impl PollFd {
    /// To wait for `events` of `fd`.
    pub const fn new(fd: i32, events: i16) -> Self {
        Self { fd, events, revents: 0 }
    }

    fn wanted(&self) -> Events {
        Events::from_bits_retain(u32::from(self.events as u16)).union(ALWAYS_TOLD)
    }

    /// Notes what the file has; whether that is anything.
    #[inline(always)]
    fn tell(&mut self, found: Events) -> bool {
        self.revents = found.bits() as u16 as i16;
        self.revents != 0
    }
}

impl Process {
    /// Waits until any of the descriptors has what it is waited for, `timeout` milliseconds at most; for ever if that is negative. How
    /// many have.
    ///
    /// With something ready, or no time: writes no line but the caller's.
    ///
    /// # Errors
    /// `EINVAL` for more than [`nofile`](Self::nofile) of them; `EINTR`; `ENOMEM`.
    #[inline]
    pub fn poll(&self, fds: &mut [PollFd], timeout: i32) -> Result<usize, Errno> {
        self.ppoll(fds, milliseconds(timeout))
    }

    /// As [`poll`](Self::poll), with a time to the nanosecond; none is for ever.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    #[inline]
    pub fn ppoll(&self, fds: &mut [PollFd], timeout: Option<Duration>) -> Result<usize, Errno> {
        within(fds.len(), self.nofile())?;
        let n = fds.iter_mut().map(|fd| usize::from(self.look_at(fd))).sum();
        if n != 0 || is_over(timeout) { Ok(n) } else { self.poll_slow(fds, timeout) }
    }

    #[inline]
    fn look_at(&self, fd: &mut PollFd) -> bool {
        if fd.fd < 0 {
            return fd.tell(Events::empty());
        }
        // A section for each: many descriptors are not to keep others from their grace period.
        let section = self.inner().vfs.read();
        let found = match self.fdget(fd.fd, &section) {
            Ok(file) => file.poll(&mut PollTable::look()) & fd.wanted(),
            Err(_) => Events::NVAL,
        };
        fd.tell(found)
    }

    #[cold]
    fn poll_slow(&self, fds: &mut [PollFd], timeout: Option<Duration>) -> Result<usize, Errno> {
        let mut files = Vec::new();
        fault::check().map_err(|_| Errno::NOMEM)?;
        files.try_reserve_exact(fds.len()).map_err(|_| Errno::NOMEM)?;
        let mut closed = 0;
        for fd in fds.iter_mut() {
            let file = if fd.fd < 0 { None } else { self.fget(fd.fd).ok() };
            // Another thread may have closed it since it was looked at.
            let gone = fd.fd >= 0 && file.is_none();
            closed += usize::from(fd.tell(if gone { Events::NVAL } else { Events::empty() }));
            files.push(Polled::new(file, fd.wanted()));
        }
        let timeout = if closed == 0 { timeout } else { Some(Duration::ZERO) };
        let n = wait_for_any(&mut files, timeout)?;
        for (fd, file) in fds.iter_mut().zip(&files).filter(|(_, file)| file.file.is_some()) {
            fd.tell(file.found);
        }
        Ok(n + closed)
    }
}
