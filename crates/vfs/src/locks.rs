//! Locks on files: `flock`, POSIX record locks and those of open file descriptions.
//!
//! # The problem and the contended way
//!
//! Locks are advisory and rare, and every close of every file has to ask whether any are to be dropped. In Linux all
//! waits of the system meet in one hash under one lock, and a file's locks hang on its inode.
//!
//! # Our way
//!
//! ```text
//!   inode ─(made on first use)─ FileLocks ─┬─ records: owner ─ bytes, owner ─ bytes, ...
//!                                          ├─ flocks:  open file, open file, ...
//!                                          └─ waiting: ticket, ticket, ... (oldest first, each with its own wait queue)
//!   Vfs ─ LockWaits: process ─> owner of the lock in the way          only for those who sleep
//! ```
//!
//! A file without locks costs a close one load ([`FileLocks::is_unlocked`]). When a lock is given up or weakened, those
//! waiting tickets are told that nothing held and no older ticket told at the same time is in the way of; each wakes one
//! thread, which tries again, and queues up anew if somebody was faster.
//!
//! # Guarantees
//!
//! * Results, errors, the answers of `F_GETLK` and what is left of locks that are cut, merged or converted are Linux's.
//!   A `flock` conversion is not atomic: the old lock is gone first, and stays gone if the new one is not to be had.
//! * Every wait ends with `EINTR` when the [`Interrupt`](quietline_sync::Interrupt) of the waiting
//!   thread is raised. A POSIX wait that could never end is refused with `EDEADLK`; chains of any
//!   length and processes with several waiting threads are seen through, where Linux gives up
//!   after ten steps.
//! * No memory, or more locks on a file than the kernel allows: `ENOLCK`, and nothing has changed.
//!   Closing needs none.
//!
//! # Limits
//!
//! Leases are refused with `EINVAL` ([`set_lease`]). Locks are not mandatory. `LOCK_MAND` does nothing, as in Linux
//! since 5.16.
//!
//! # Lock order
//!
//! A file's `FileLocks`, inside it the kernel's `LockWaits`. Threads are woken under neither.

mod deadlock;
mod fcntl;
mod flock;
mod range;
mod records;
mod wait;

pub use deadlock::LockWaits;
pub use fcntl::{
    F_GETLEASE, F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_SETLEASE, F_SETLK,
    F_SETLKW, F_UNLCK, F_WRLCK, Flock, LockUser, get_lease, set_lease,
};
pub use flock::{LOCK_EX, LOCK_MAND, LOCK_NB, LOCK_SH, LOCK_UN};
pub use range::LockRange;
pub use records::RecordLock;

use flock::Flocks;
use quietline_platform::atomic::{AtomicUsize, Ordering};
use quietline_platform::{AllocError, fault};
use quietline_sync::SpinLock;
use records::Records;
use rustix::io::Errno;
use wait::{Request, Waiting};

/// Whom a lock belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOwner {
    /// A process, by its number: `F_SETLK`.
    Process(i32),
    /// An open file, by a number that no other open file has: `flock`, `F_OFD_SETLK`.
    File(u64),
}

/// What a lock is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// Shared with others of its kind.
    Read,
    /// Excludes all others.
    Write,
}

impl LockKind {
    fn excludes(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// The locks of one file.
#[derive(Debug)]
pub struct FileLocks {
    /// Owners of record locks, and flocks; changed under the lock.
    held: AtomicUsize,
    state: SpinLock<State>,
}

#[derive(Debug)]
struct State {
    records: Records,
    flocks: Flocks,
    waiting: Waiting,
}

impl FileLocks {
    /// No locks.
    pub const fn new() -> Self {
        let state =
            State { records: Records::new(), flocks: Flocks::new(), waiting: Waiting::new() };
        Self { held: AtomicUsize::new(0), state: SpinLock::new(state) }
    }

    /// Whether nobody holds a lock: then a close has nothing to drop. Locks that the caller or somebody before it took
    /// are seen. Writes no line.
    #[inline]
    pub fn is_unlocked(&self) -> bool {
        // Relaxed: what the caller must see came before it by some other order, as the end of a call of its own process.
        self.held.load(Ordering::Relaxed) == 0
    }

    /// Takes a record lock, or gives it up if `kind` is none. With `may_wait`, waits for
    /// conflicting locks, until the thread's [`Interrupt`](quietline_sync::Interrupt) is raised.
    ///
    /// # Errors
    /// `EAGAIN` for a conflicting lock; with `may_wait`, `EDEADLK` if its owner waits for this one,
    /// and `EINTR`. `ENOLCK` when there is no memory, or the file would have more locks than it
    /// [may have](LockWaits::file_locks_max).
    pub fn set(
        &self,
        waits: &LockWaits,
        owner: LockOwner,
        kind: Option<LockKind>,
        range: LockRange,
        may_wait: bool,
    ) -> Result<(), Errno> {
        let Some(kind) = kind else {
            return self
                .change(waits, |state| state.set_record(waits, owner, None, range))
                .map_err(no_lock);
        };
        self.acquire(waits, Request::Record(RecordLock { owner, kind, range }), may_wait)
    }

    /// The first lock in the way of this one; with no kind, the owner's own first lock on these bytes.
    pub fn get(
        &self,
        owner: LockOwner,
        kind: Option<LockKind>,
        range: LockRange,
    ) -> Option<RecordLock> {
        let state = self.state.lock();
        match kind {
            Some(kind) => state.records.conflict(&RecordLock { owner, kind, range }),
            None => state.records.own(owner, &range),
        }
    }

    /// `flock` by an open file.
    ///
    /// # Errors
    /// `EINVAL` for an operation that is unknown; `EWOULDBLOCK` with `LOCK_NB`; `EINTR`; `ENOLCK`.
    pub fn flock(&self, waits: &LockWaits, file: u64, operation: i32) -> Result<(), Errno> {
        if operation & LOCK_MAND != 0 {
            return Ok(());
        }
        let kind = match operation & !LOCK_NB {
            LOCK_SH => LockKind::Read,
            LOCK_EX => LockKind::Write,
            LOCK_UN => {
                return self.change(waits, |state| Ok(state.flocks.remove(file))).map_err(no_lock);
            }
            _ => return Err(Errno::INVAL),
        };
        self.acquire(waits, Request::Flock { file, kind }, operation & LOCK_NB == 0)
    }

    /// A process closes a descriptor of the file: all its record locks go, whichever descriptor they were taken by.
    pub fn process_closes(&self, waits: &LockWaits, process: i32) {
        let drop = |state: &mut State| Ok(state.records.remove(LockOwner::Process(process)));
        self.change(waits, drop).expect("to give up whole locks needs no memory");
    }

    /// An open file ends: its `flock` and its record locks go.
    pub fn file_ends(&self, waits: &LockWaits, file: u64) {
        let drop = |state: &mut State| {
            let records = state.records.remove(LockOwner::File(file));
            Ok(state.flocks.remove(file) || records)
        };
        self.change(waits, drop).expect("to give up whole locks needs no memory");
    }

    /// Calls `show` with every record lock and every flock, in their order (`/proc/locks`). Under the lock: `show` is
    /// short.
    pub fn for_each(&self, mut show: impl FnMut(HeldLock)) {
        let state = self.state.lock();
        state.flocks.iter().for_each(|(file, kind)| show(HeldLock::Flock { file, kind }));
        state.records.iter().for_each(|lock| show(HeldLock::Record(lock)));
    }

    /// Threads that wait for a lock.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Makes a change that may weaken locks, and tells those who wait.
    fn change(
        &self,
        waits: &LockWaits,
        change: impl FnOnce(&mut State) -> Result<bool, AllocError>,
    ) -> Result<(), AllocError> {
        let told = {
            let mut state = self.state.lock();
            let weaker = change(&mut state)?;
            self.count(&state);
            if weaker {
                state.tell(waits);
            }
            state.waiting.has_told()
        };
        if told {
            self.wake_told();
        }
        Ok(())
    }

    fn count(&self, state: &State) {
        // Relaxed: see `is_unlocked`.
        self.held.store(state.records.owners() + state.flocks.len(), Ordering::Relaxed);
    }
}

impl State {
    /// [`Records::set`], with the kernel's limit.
    fn set_record(
        &mut self,
        waits: &LockWaits,
        owner: LockOwner,
        kind: Option<LockKind>,
        range: LockRange,
    ) -> Result<bool, AllocError> {
        let max = waits.file_locks_max().saturating_sub(self.flocks.len());
        self.records.set(owner, kind, range, max)
    }

    /// Returns whether the file has as many locks as it may have.
    fn is_full(&self, waits: &LockWaits) -> bool {
        self.records.len() + self.flocks.len() >= waits.file_locks_max()
    }
}

impl Default for FileLocks {
    fn default() -> Self {
        Self::new()
    }
}

/// A lock in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldLock {
    /// Of some bytes.
    Record(RecordLock),
    /// Of the whole file, by an open file.
    Flock {
        /// The open file.
        file: u64,
        /// Shared or exclusive.
        kind: LockKind,
    },
}

fn no_lock(_: AllocError) -> Errno {
    Errno::NOLCK
}

/// Makes room for more elements.
fn grow<T>(vec: &mut Vec<T>, more: usize) -> Result<(), AllocError> {
    if vec.capacity() - vec.len() < more {
        fault::check()?;
        vec.try_reserve(more).map_err(|_| AllocError)?;
    }
    Ok(())
}
