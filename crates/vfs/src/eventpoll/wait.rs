//! `epoll_wait`.

use super::{EpollEvent, EventPoll};
use crate::raw::opened::Opened;
use core::time::Duration;
use quietline_sync::{Wait, WaitError};
use rustix::io::Errno;

/// Events that a call may ask for at most: as many as fit into 2 GiB.
pub const EP_MAX_EVENTS: usize = i32::MAX as usize / 12;

/// The epoll that a file is.
///
/// # Errors
/// `EINVAL` if it is none.
#[inline(always)]
pub fn check_wait(file: Opened<'_>) -> Result<&EventPoll, Errno> {
    file.payload::<EventPoll>().ok_or(Errno::INVAL)
}

impl EventPoll {
    /// What there is now: how many events. Writes no line if there is nothing.
    #[inline(always)]
    pub fn ready(&self, events: &mut [EpollEvent]) -> usize {
        if self.inside.poller().may_have() { self.inside.collect(events) } else { 0 }
    }

    /// Waits until there is an event, or the time is up: how many.
    ///
    /// # Errors
    /// `EINTR`.
    #[cold]
    pub fn wait(
        &self,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        let wait = Wait { timeout, interruptible: true, ..Wait::default() };
        let some = || Some(self.inside.collect(events)).filter(|n| *n != 0);
        match self.inside.poller().wait_for(&wait, some) {
            Ok(n) => Ok(n),
            Err(WaitError::TimedOut) => Ok(0),
            Err(WaitError::Interrupted) => Err(Errno::INTR),
        }
    }
}
