//! Who is writing in a mount, so that it can be made read-only when nobody is; and so that it stays while somebody is who has no
//! reference to it.
//!
//! As with references, each CPU counts beginnings and ends in words of its own, and only who makes the mount read-only, or ends it,
//! sums them: ends first, then beginnings, so that a writer is never missed. What is begun ends, or is kept by a file that is open
//! for writing: one word more, and not two.

use crate::event_counts::EventCounts;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::thread;
use quietline_sync::might_sleep;
use rustix::io::Errno;

/// Changes that are being made.
const BEGUN: usize = 0;
const ENDED: usize = 1;
/// Those of them that have become files that are open for writing.
const KEPT: usize = 2;
const CLOSED_FILES: usize = 3;

const OPEN: u32 = 0;
/// Somebody is counting: wait.
const HELD: u32 = 1;
const CLOSED: u32 = 2;

/// How often who wants to close looks for a moment in which nobody makes a change.
const TRIES: usize = if cfg!(loom) { 1 } else { 2000 };
/// How often who ends a mount looks: ten seconds, or so.
const PATIENCE: usize = if cfg!(loom) { 4 } else { 100_000 };
/// After so many of these he sleeps in between: who makes a change may sleep himself, waiting for a directory that others have
/// locked, or have lost his CPU.
#[cfg(not(loom))]
const AWAKE: usize = 1000;
/// For so long: a fifth of a second in all, or so.
#[cfg(not(loom))]
const NAP: core::time::Duration = core::time::Duration::from_micros(100);

/// Writers of one mount (`mnt_writers`).
#[derive(Debug)]
pub(crate) struct Writers {
    counts: EventCounts<4>,
    state: AtomicU32,
}

impl Writers {
    /// None; whether there may be any.
    pub(crate) fn new(writable: bool) -> Self {
        let state = AtomicU32::new(if writable { OPEN } else { CLOSED });
        Self { counts: EventCounts::new(), state }
    }

    /// Begins to write (`mnt_want_write`). Writes no shared line.
    ///
    /// # Errors
    /// `EROFS`; `ENOMEM` for the first one.
    #[inline]
    pub(crate) fn begin(&self) -> Result<(), Errno> {
        loop {
            if let Some(done) = self.try_begin() {
                return done;
            }
            // Not counted meanwhile: whoever counts would take those who wait for writers. Microseconds, unless somebody
            // writes: see `TRIES`.
            // Relaxed: it is loaded again above.
            while self.state.load(Ordering::Relaxed) == HELD {
                thread::yield_now();
            }
        }
    }

    /// [`begin`](Self::begin) for who does not wait: none while somebody counts.
    #[inline(always)]
    pub(crate) fn try_begin(&self) -> Option<Result<(), Errno>> {
        if self.counts.begin(BEGUN).is_err() {
            return Some(Err(Errno::NOMEM));
        }
        // ORDERING: the sequence in `add` is a barrier for the compiler, which pairs with the fence in `close`: either this
        // load finds that somebody counts, or the count has us. Acquire: of what was done before it was opened again.
        match self.state.load(Ordering::Acquire) {
            OPEN => Some(Ok(())),
            state => {
                self.counts.add(ENDED, 1);
                (state == CLOSED).then_some(Err(Errno::ROFS))
            }
        }
    }

    /// Ends what [`begin`](Self::begin) began, on whichever CPU.
    #[inline]
    pub(crate) fn end(&self) {
        self.counts.add(ENDED, 1);
    }

    /// What was begun becomes a file that is open, until [`close_file`](Self::close_file).
    #[inline]
    pub(crate) fn open_file(&self) {
        self.counts.add(KEPT, 1);
    }

    /// The file is closed.
    #[inline]
    pub(crate) fn close_file(&self) {
        self.counts.add(CLOSED_FILES, 1);
    }

    /// Lets nobody write from now on. The caller excludes other changes by a lock. Waits for changes that are being made, which
    /// is bounded: a thread that makes one may wait for the caller. No RCU read-side critical
    /// section may be open.
    ///
    /// # Errors
    /// `EBUSY` when a file is open for writing, or a change does not come to its end.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        // Relaxed: only the lock's holders write it; the fence orders it before the sums.
        if self.state.load(Ordering::Relaxed) == CLOSED {
            return Ok(());
        }
        might_sleep();
        self.state.store(HELD, Ordering::Relaxed);
        // A refused fence, here and below, leaves the mount busy.
        let mut busy = true;
        let tries = if self.counts.fence().is_ok() { TRIES } else { 0 };
        for n in 0..tries {
            let (closed, ended, kept) =
                (self.counts.sum(CLOSED_FILES), self.counts.sum(ENDED), self.counts.sum(KEPT));
            // Whose end was counted, or who was counted as a file or as its end, began before, perhaps on another CPU: now that is
            // visible, too. So if all who have begun have ended or are files, no file is missing among those.
            if self.counts.fence().is_err() {
                break;
            }
            let begun = self.counts.sum(BEGUN);
            busy = kept != closed || begun != ended.wrapping_add(kept);
            if !busy || kept != closed {
                break;
            }
            // Who came too late to write is counted until he sees so; and who makes a name is soon done.
            self.pause(n);
        }
        // ORDERING: pairs with the load in `begin`.
        self.state.store(if busy { OPEN } else { CLOSED }, Ordering::Release);
        if busy { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// Waits for those who have begun, when nobody has a reference to the mount any more, and whoever sees it finds that it is not
    /// mounted, and ends at once; false if somebody does not come to his end, as one whom a `fork` of the host has left behind.
    ///
    /// What was begun before the mount was found without references is visible.
    #[must_use = "who has not ended uses the mount"]
    pub(crate) fn drain(&self) -> bool {
        for n in 0..PATIENCE {
            let ended = self.counts.sum(ENDED).wrapping_add(self.counts.sum(KEPT));
            // As in `close`.
            let fenced = self.counts.fence().is_ok();
            if fenced && self.counts.sum(BEGUN) == ended {
                return true;
            }
            self.pause(n);
        }
        false
    }

    /// Lets everybody write. The caller excludes other changes by a lock.
    pub(crate) fn open(&self) {
        // ORDERING: pairs with the load in `begin`.
        self.state.store(OPEN, Ordering::Release);
    }

    /// Lets those go on who make changes.
    #[cfg(not(loom))]
    fn pause(&self, tries: usize) {
        if tries < AWAKE {
            return thread::yield_now();
        }
        // A sleep: nobody wakes whoever waits for this.
        // Relaxed: whatever it is, nobody changes it meanwhile.
        let state = self.state.load(Ordering::Relaxed);
        quietline_platform::futex::wait(&self.state, state, Some(NAP));
    }

    #[cfg(loom)]
    fn pause(&self, _tries: usize) {
        thread::yield_now();
    }
}
