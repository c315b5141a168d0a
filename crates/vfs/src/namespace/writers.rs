//! Who is writing in a mount, so that it can be made read-only when nobody is.
//!
//! As with references, each CPU counts beginnings and ends in words of its own, and only who makes the mount read-only sums
//! them: ends first, then beginnings, so that a writer is never missed.

use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::percpu::Words;
use quietline_platform::{AllocError, thread};
use rustix::io::Errno;

const BEGUN: usize = 0;
const ENDED: usize = 1;

const OPEN: u32 = 0;
/// Somebody is counting: wait.
const HELD: u32 = 1;
const CLOSED: u32 = 2;

/// Writers of one mount (`mnt_writers`).
#[derive(Debug)]
pub(crate) struct Writers {
    words: Words<2>,
    state: AtomicU32,
}

impl Writers {
    /// None; whether there may be any.
    pub(crate) fn new(writable: bool) -> Result<Self, AllocError> {
        let state = AtomicU32::new(if writable { OPEN } else { CLOSED });
        Ok(Self { words: Words::new()?, state })
    }

    /// Begins to write (`mnt_want_write`). Writes no shared line.
    ///
    /// # Errors
    /// `EROFS`.
    #[inline]
    pub(crate) fn begin(&self) -> Result<(), Errno> {
        loop {
            self.words.add(BEGUN, 1);
            // ORDERING: the sequence in `add` is a barrier for the compiler, which pairs with the fence in `close`: either this
            // load finds that somebody counts, or the count has us. Acquire: of what was done before it was opened again.
            match self.state.load(Ordering::Acquire) {
                OPEN => return Ok(()),
                state => {
                    self.words.add(ENDED, 1);
                    if state == CLOSED {
                        return Err(Errno::ROFS);
                    }
                    // Microseconds: two barriers and two sums.
                    thread::yield_now();
                }
            }
        }
    }

    /// Ends what [`begin`](Self::begin) began, on whichever CPU.
    #[inline]
    pub(crate) fn end(&self) {
        self.words.add(ENDED, 1);
    }

    /// Lets nobody write from now on. The caller excludes other changes by a lock.
    ///
    /// # Errors
    /// `EBUSY` when somebody is writing.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        // Relaxed: only the lock's holders write it; the fence orders it before the sums.
        if self.state.load(Ordering::Relaxed) == CLOSED {
            return Ok(());
        }
        self.state.store(HELD, Ordering::Relaxed);
        self.words.fence();
        let ended = self.words.sum(ENDED);
        // Whose end was counted began before, perhaps on another CPU: now that is visible, too.
        self.words.fence();
        let busy = self.words.sum(BEGUN) != ended;
        // ORDERING: pairs with the load in `begin`.
        self.state.store(if busy { OPEN } else { CLOSED }, Ordering::Release);
        if busy { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// Lets everybody write. The caller excludes other changes by a lock.
    pub(crate) fn open(&self) {
        // ORDERING: pairs with the load in `begin`.
        self.state.store(OPEN, Ordering::Release);
    }
}
