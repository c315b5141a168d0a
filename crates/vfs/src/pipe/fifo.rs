//! Named pipes: what an inode has of one, and who may open it when.

use super::core::PipeCore;
use crate::FileMode;
use crate::vfs::Vfs;
use core::mem;
use quietline_sync::{LazyBox, Wait, WaitQueue};
use rustix::io::Errno;

/// A named pipe. The pipe behind it is made for the first who opens it, and stays with the inode; what is in it goes when
/// nobody has it open any more.
#[derive(Debug)]
pub struct Fifo {
    pipe: LazyBox<PipeCore>,
}

impl Fifo {
    /// One that nobody has opened.
    pub(crate) fn new() -> Self {
        Self { pipe: LazyBox::new() }
    }

    /// The pipe, if anybody has ever opened it.
    pub fn pipe(&self) -> Option<&PipeCore> {
        self.pipe.get()
    }

    /// Opens it (`fifo_open`). Waits for the other end, unless `nonblock`, or for both. Undone by [`PipeCore::closed`].
    ///
    /// An opening of a pipe that is not open yet makes it count for the user `uid`.
    ///
    /// Says since which opening for writing it counts as hung up, where that is not from the beginning: for a reader that
    /// has not waited.
    ///
    /// # Errors
    /// `ENXIO` for a writer that does not wait and that nobody would read; `EINTR`; `ENOMEM`.
    pub(crate) fn open(
        &self,
        vfs: &Vfs,
        mode: FileMode,
        nonblock: bool,
        uid: u32,
    ) -> Result<Option<u32>, Errno> {
        let new = || Ok(PipeCore::new(vfs.pipe_pages.of_a_pipe(), uid, 0, 0));
        let pipe = self.pipe.get_or_make(new).map_err(|_| Errno::NOMEM)?;
        let mut state = pipe.state.lock();
        if mode == FileMode::WRITE && nonblock && state.readers == 0 {
            return Err(Errno::NXIO);
        }
        if state.readers == 0 && state.writers == 0 && state.ring.is_fresh() {
            state.uid = uid;
        }
        state.open(mode);
        let first = mode.contains(FileMode::READ) && state.readers == 1
            || mode.contains(FileMode::WRITE) && state.writers == 1;
        let (to_read, to_write) = (state.opened_to_read, state.opened_to_write);
        let alone = match mode {
            FileMode::READ => state.writers == 0,
            FileMode::WRITE => state.readers == 0,
            _ => false,
        };
        pipe.release(state);
        if first {
            // Who waits for a partner waits there.
            pipe.readers.wake_ordered(WaitQueue::ANY, WaitQueue::ALL);
        }
        if !alone {
            return Ok(None);
        }
        if mode == FileMode::READ && nonblock {
            return Ok(Some(to_write));
        }
        // An opening that came and went meanwhile is enough.
        let met = || {
            let state = pipe.state.lock();
            let met = match mode {
                FileMode::READ => state.opened_to_write != to_write,
                _ => state.opened_to_read != to_read,
            };
            met.then_some(())
        };
        let undo = Undo { pipe, mode };
        let wait = Wait { interruptible: true, ..Wait::default() };
        pipe.readers.wait_until(&wait, met).map_err(|_| Errno::INTR)?;
        mem::forget(undo);
        Ok(None)
    }
}

/// An opening that came to nothing.
struct Undo<'a> {
    pipe: &'a PipeCore,
    mode: FileMode,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.pipe.closed(self.mode);
    }
}
