//! What a pipe is made of, who has it open, and what can be done with it.

use super::now::{FEW, Now, READABLE, Shown, WRITABLE};
use crate::FileMode;
use crate::file::{Direction, Io, Ioctl, Mode};
use crate::poll::{Events, PollTable};
use crate::raw::pipe_page::{Buffer, PagesRef};
use crate::raw::pipe_ring::{Place, Ring};
use ::core::mem::MaybeUninit;
use quietline_platform::pages::PAGE_SIZE;
use quietline_sync::{SpinLock, SpinLockGuard, WaitQueue};
use rustix::io::Errno;

/// What goes through a pipe, and who waits for it.
///
/// On the first line is all that somebody needs who only looks, or wakes, and all that a few bytes need on their way
/// from a writer to a reader. What pages need is on the next one.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PipeCore {
    pub(super) readers: WaitQueue,
    /// [How it is](Now): stored under the lock, and looked at without by those whom a later change wakes.
    now: Shown,
    /// The lock, and the few bytes of what it guards, end the first line.
    pub(super) state: SpinLock<State>,
    pub(super) pages: PagesRef,
    pub(super) writers: WaitQueue,
}

/// What the lock guards. In this order: from the second field to the ring's first place it is one line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct State {
    /// The few bytes; which of them are full is said beside the lock. Then nothing is in the ring.
    pub(super) few: [u8; FEW],
    /// Files open for reading, and for writing.
    pub(super) readers: u32,
    pub(super) writers: u32,
    /// Whether anybody has ever asked what can be done: then every write is told of, and not only the first into an empty
    /// pipe, for the sake of those who wait for edges.
    pub(super) polled: bool,
    /// Whether a writer found no room but places that are kept, and is to be told when they are not used.
    pub(super) refused: bool,
    /// Whether somebody takes buffers out that may come back.
    pub(super) splicing: bool,
    /// Whether one is out: whoever reads waits for what becomes of it, so that no byte comes before it, nor the end.
    pub(super) is_one_out: bool,
    /// Whether somebody waits for the end of that.
    pub(super) splice_waits: bool,
    /// A page for the next write.
    pub(super) spare: Option<Buffer>,
    pub(super) ring: Ring,
    /// How often it was opened for reading, and for writing.
    pub(super) opened_to_read: u32,
    pub(super) opened_to_write: u32,
    /// The user that the pipe is counted for, once its ring is not fresh.
    pub(super) uid: u32,
    /// Nothing. Of a lock and what it guards the compiler puts that first which is a multiple of more bytes; this is not to be one
    /// of 32, so that the lock comes first.
    _uneven: MaybeUninit<u32>,
}

impl PipeCore {
    /// An empty pipe of a user that is open so many times.
    #[inline(always)]
    pub(crate) fn new(pages: PagesRef, uid: u32, readers: u32, writers: u32) -> Self {
        Self {
            readers: WaitQueue::new(),
            now: Shown::new(Now::new()),
            state: SpinLock::new(State {
                few: [0; FEW],
                readers,
                writers,
                opened_to_read: readers,
                opened_to_write: writers,
                uid,
                _uneven: MaybeUninit::uninit(),
                polled: false,
                splicing: false,
                is_one_out: false,
                splice_waits: false,
                refused: false,
                spare: None,
                ring: Ring::new(),
            }),
            pages,
            writers: WaitQueue::new(),
        }
    }

    /// Where those wait who want to read or write.
    pub fn waiters(&self, what: Direction) -> &WaitQueue {
        match what {
            Direction::Read => &self.readers,
            Direction::Write => &self.writers,
        }
    }

    /// How the pipe is, for the holder of the lock.
    #[inline(always)]
    pub(super) fn now(&self) -> Now {
        self.now.held()
    }

    /// Says how it is, to those who do not take the lock. For its holder.
    #[inline(always)]
    pub(super) fn set_now(&self, now: Now) {
        self.now.show(now);
    }

    /// Lets the lock go, and those see how the pipe is who do not take it.
    #[inline(always)]
    pub(super) fn release(&self, state: SpinLockGuard<'_, State>) {
        let before = self.now();
        let now = state.now(before);
        if before != now {
            self.set_now(now);
        }
    }

    /// What can be done with a file of the pipe. In `since` a file of a fifo has noted how often that had been opened for
    /// writing, if nobody had it open so: until somebody has, it is not hung up.
    ///
    /// Who only looks takes no lock, but for the first time, or if that was noted.
    pub(crate) fn poll(&self, io: Io, since: Option<&Mode>, table: &mut PollTable<'_>) -> Events {
        let mut mine = Events::empty();
        if io.mode.contains(FileMode::READ) {
            table.wait_on(&self.readers);
            mine |= READABLE | Events::HUP;
        }
        if io.mode.contains(FileMode::WRITE) {
            table.wait_on(&self.writers);
            mine |= WRITABLE | Events::ERR;
        }
        let mut now = self.now.look();
        let since = since.filter(|since| since.has_since());
        if table.enters() || since.is_some() || !now.is_polled() {
            // Whoever changes the pipe after this finds who has entered its queues.
            let mut state = self.state.lock();
            state.polled = true;
            if since.is_some_and(|since| since.is_since(state.opened_to_write)) {
                mine.remove(Events::HUP);
            }
            now = state.now(self.now());
            self.release(state);
        }
        now.events() & mine
    }

    /// Answers a question.
    pub(crate) fn ioctl(&self, request: Ioctl) -> Result<i32, Errno> {
        match request {
            Ioctl::Readable => {
                let mut state = self.state.lock();
                let all = (0..state.ring.len())
                    .map(|n| state.ring.get(n).map_or(0, |buffer| buffer.len()))
                    .sum::<usize>();
                let all = all + self.now().few_len();
                Ok(i32::try_from(all).unwrap_or(i32::MAX))
            }
            _ => Err(Errno::NOTTY),
        }
    }

    /// How many bytes it has room for, if all of its pages are full (`F_GETPIPE_SZ`).
    pub fn capacity(&self) -> usize {
        let mut state = self.state.lock();
        if self.settle(&mut state).is_ok() && state.ring.size() == 1 {
            // Few bytes beside the lock would be more than a page. Without memory they stay there.
            let _ = self.unfold(&mut state);
        }
        let pages = state.ring.size();
        self.release(state);
        pages * PAGE_SIZE
    }

    /// Counts a fresh pipe for its user, and decides by that how many pages it has room for
    /// (`alloc_pipe_info`). Called before the pipe's ring is used for the first time.
    ///
    /// # Errors
    /// `ENOMEM` beyond the user's hard limit.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&self, state: &mut State) -> Result<(), Errno> {
        if state.ring.is_fresh() {
            state.ring.settle(self.pages.limits().charge_new(state.uid)?);
            // A fresh ring has refused places that were not kept.
            state.refused = false;
        }
        Ok(())
    }

    /// Changes how many pages it has room for, to a power of two (`F_SETPIPE_SZ`). A `privileged`
    /// caller may exceed the user's limits.
    ///
    /// # Errors
    /// `EPERM` beyond the limits; `EBUSY` if more are full; `ENOMEM`.
    pub(super) fn resize(&self, pages: usize, privileged: bool) -> Result<(), Errno> {
        let places = Ring::places(pages).map_err(|_| Errno::NOMEM)?;
        let mut state = self.state.lock();
        let fits = self.settle(&mut state).and_then(|()| self.unfold(&mut state)).and_then(|()| {
            if state.ring.used() > pages {
                return Err(Errno::BUSY);
            }
            self.pages.limits().recharge(state.uid, state.ring.size(), pages, privileged)
        });
        if let Err(errno) = fits {
            self.release(state);
            return Err(errno);
        }
        let before = state.ring.resize(pages, places);
        self.release(state);
        drop(before);
        // Also if there is less room, as on Linux.
        self.writers.wake_ordered(WaitQueue::ANY, 1);
        Ok(())
    }

    /// One more file of it is open.
    pub(crate) fn opened(&self, mode: FileMode) {
        let mut state = self.state.lock();
        state.open(mode);
        self.release(state);
    }

    /// One file of it less is open. With the last, what is in it goes, and a fifo is as it was at first.
    pub(crate) fn closed(&self, mode: FileMode) {
        let mut state = self.state.lock();
        state.readers -= u32::from(mode.contains(FileMode::READ));
        state.writers -= u32::from(mode.contains(FileMode::WRITE));
        match (state.readers, state.writers) {
            (0, 0) => return self.closed_last(state),
            (0, _) | (_, 0) => {}
            _ => return,
        }
        let before = self.now();
        let now = before.one_sided(state.readers == 0);
        debug_assert_eq!(now, state.now(before), "only the ends have changed");
        self.set_now(now);
        drop(state);
        self.readers.wake_ordered(WaitQueue::ANY, WaitQueue::ALL);
        self.writers.wake_ordered(WaitQueue::ANY, WaitQueue::ALL);
    }

    #[inline(never)]
    fn closed_last(&self, mut state: SpinLockGuard<'_, State>) {
        state.clear(self.pages);
        self.set_now(self.now().without_few());
        state.polled = false;
        let before = if state.ring.is_fresh() { None } else { self.unsettle(&mut state) };
        self.release(state);
        drop(before);
    }

    /// Makes an empty pipe fresh: the size that it was given goes, and it is counted no more.
    /// Returns the places that it had, to be dropped when no lock is held.
    #[cold]
    #[inline(never)]
    fn unsettle(&self, state: &mut State) -> Option<Box<[Place]>> {
        self.pages.limits().uncharge(state.uid, state.ring.size());
        state.ring.renew()
    }

    /// Returns `true` if dropping it would do nothing: a page needs a ring that is not fresh.
    #[inline(always)]
    pub(super) fn is_bare(&mut self) -> bool {
        self.state.get_mut().ring.is_fresh()
    }
}

impl Drop for PipeCore {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.clear(self.pages);
        if !state.ring.is_fresh() {
            self.pages.limits().uncharge(state.uid, state.ring.size());
        }
    }
}

impl State {
    /// How the pipe is, which has the few that it had before.
    #[inline(always)]
    pub(super) fn now(&self, before: Now) -> Now {
        let mut now = Events::empty();
        now.set(READABLE, !self.ring.is_empty() || before.few_len() != 0 || self.is_one_out);
        now.set(WRITABLE, self.ring.has_places());
        now.set(Events::HUP, self.writers == 0);
        now.set(Events::ERR, self.readers == 0);
        // Few come before all pages, so not while somebody has taken a page out, or is about to put one in. And a pipe of one
        // page would be full of them.
        let ring = &self.ring;
        let plain = ring.is_empty() && !ring.has_reserved() && ring.size() > 1 && !self.splicing;
        before.with(now, self.polled, plain && self.readers != 0)
    }

    /// Notes that it is open once more.
    pub(super) fn open(&mut self, mode: FileMode) {
        if mode.contains(FileMode::READ) {
            self.readers += 1;
            self.opened_to_read = self.opened_to_read.wrapping_add(1);
        }
        if mode.contains(FileMode::WRITE) {
            self.writers += 1;
            self.opened_to_write = self.opened_to_write.wrapping_add(1);
        }
    }

    /// Takes everything out.
    fn clear(&mut self, pages: PagesRef) {
        while let Some(buffer) = self.ring.pop() {
            pages.put(buffer);
        }
        if let Some(spare) = self.spare.take() {
            pages.put(spare);
        }
    }

    /// Takes the first buffer out, which has been read; whether there was no room before.
    #[inline(always)]
    pub(super) fn pop_read(&mut self, pages: PagesRef) -> bool {
        let was_full = self.ring.is_full();
        if let Some(buffer) = self.ring.pop() {
            if self.spare.is_some() {
                pages.put(buffer);
            } else {
                self.spare = pages.recycle(buffer);
            }
        }
        was_full
    }
}

#[cfg(all(test, not(loom), target_pointer_width = "64"))]
mod tests {
    use super::*;
    use ::core::mem::{align_of, offset_of, size_of};
    use ::core::ptr;

    /// The compiler orders what is in a lock. If it does so otherwise, more lines move with a byte.
    #[test]
    fn a_byte_needs_a_line() {
        let lock = SpinLock::new(State {
            few: [0; FEW],
            readers: 0,
            writers: 0,
            opened_to_read: 0,
            opened_to_write: 0,
            uid: 0,
            _uneven: MaybeUninit::uninit(),
            polled: false,
            refused: false,
            splicing: false,
            is_one_out: false,
            splice_waits: false,
            spare: None,
            ring: Ring::new(),
        });
        let at = |state: *const State| state.addr() - ptr::from_ref(&lock).addr();
        let state = offset_of!(PipeCore, state) + at(&raw const *lock.lock());
        assert_eq!(
            (align_of::<PipeCore>(), state),
            (64, 56),
            "lock and `now` are on the first line"
        );
        assert_eq!(offset_of!(State, readers) + state, 64, "and the few");
        assert_eq!(offset_of!(State, ring) + state + Ring::FIRST_PLACE_ENDS, 128);
        // (Without `_uneven` it would be a line less, with the lock on the second.)
        assert_eq!(size_of::<PipeCore>(), 512);
    }
}
