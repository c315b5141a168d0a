//! `poll` and `select`: a thread that waits for any of several files.
//!
//! # The contended way
//!
//! Each call enters the queue of every file before it looks at it, and leaves them all again, though nearly always something is
//! ready: two locks for each file.
//!
//! # Our way
//!
//! First all files are looked at, by whoever calls this, which writes nothing. Only one who is to sleep enters queues,
//! and looks once more.
//!
//! # Guarantees
//!
//! * What becomes ready after the call began is told, or it stops being so before the call looks.
//! * Files stay open while the call sleeps.

use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::select::wait_in_queues;
use core::time::Duration;
use quietline_sync::{Wait, WaitError};
use rustix::io::Errno;

/// A file that is waited for.
#[derive(Debug)]
pub struct Polled<'k> {
    /// The file; none for one that is only waited with.
    pub file: Option<FileHandle<'k>>,
    /// What it is waited for: all of it, also what some calls [always tell](ALWAYS_TOLD), and `select` does not.
    pub wanted: Events,
    /// What it had when it was looked at last.
    pub found: Events,
}

/// What `poll` always tells.
pub const ALWAYS_TOLD: Events = Events::ERR.union(Events::HUP);

impl<'k> Polled<'k> {
    /// A file that is waited for.
    pub fn new(file: Option<FileHandle<'k>>, wanted: Events) -> Self {
        Self { file, wanted, found: Events::empty() }
    }

    /// Looks; whether anything is to be told.
    pub(crate) fn look(&mut self, table: &mut PollTable<'_>) -> bool {
        let Some(file) = &self.file else { return false };
        self.found = file.opened().poll(table) & self.wanted;
        !self.found.is_empty()
    }
}

fn look_at_all(files: &mut [Polled<'_>]) -> usize {
    files.iter_mut().map(|file| usize::from(file.look(&mut PollTable::look()))).sum()
}

/// Waits until any of the files has what it is waited for, or the time is up: how many have.
///
/// # Errors
/// `EINTR`; `ENOMEM`.
pub fn wait_for_any(files: &mut [Polled<'_>], timeout: Option<Duration>) -> Result<usize, Errno> {
    let wait = Wait { timeout, interruptible: true, ..Wait::default() };
    wait_in_queues(files, &wait, |files| Some(look_at_all(files)).filter(|n| *n != 0))
        .map_err(|_| Errno::NOMEM)?
        .or_else(|error| match error {
            WaitError::TimedOut => Ok(0),
            WaitError::Interrupted => Err(Errno::INTR),
        })
}
