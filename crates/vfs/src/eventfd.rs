//! Event counters.
//!
//! # The contended way
//!
//! A lock around the counter, which is also the lock of its wait queue, taken by every read and write.
//!
//! # Our way
//!
//! The counter is one word, changed by one exchange; the queue is looked at by one load after it. Descriptors share an
//! inode that is immortal and not counted, where Linux counts it at every open and close.

use crate::abi::{EFD_SEMAPHORE, O_CLOEXEC, O_NONBLOCK, O_RDWR};
use crate::file::{Direction, Io, Sink, Source};
use crate::inode::PseudoInode;
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use crate::{FileMode, Files};
use core::fmt;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_sync::WaitQueue;
use rustix::io::Errno;

/// Bytes of a number, as it is read and written.
const NUMBER: usize = size_of::<u64>();

/// The most that a count can be brought to by writing.
const MOST: u64 = u64::MAX - 1;

/// An event counter.
#[derive(Debug)]
pub struct EventFd {
    count: AtomicU64,
    semaphore: bool,
    /// Woken with `IN` by those who add, and with `OUT` by those who take.
    queue: WaitQueue,
}

impl EventFd {
    /// The count.
    pub fn count(&self) -> u64 {
        // Relaxed: a number to look at.
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a read takes one (`EFD_SEMAPHORE`) instead of all.
    pub fn is_semaphore(&self) -> bool {
        self.semaphore
    }

    /// Takes one or all; none if there is nothing.
    #[inline(always)]
    fn take(&self) -> Option<u64> {
        if self.semaphore {
            return self.change(|count| count.checked_sub(1)).map(|_| 1);
        }
        // Relaxed: a guess, which the exchange confirms; who finds nothing is told so, which was true.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // ORDERING: SeqCst: as `wake_exchanged` wants it. Acquire in it pairs with the release of who added, so that what came
        // before that is seen.
        Some(self.count.swap(0, Ordering::SeqCst)).filter(|taken| *taken != 0)
    }

    /// Adds; none if the count would be too much.
    #[inline(always)]
    fn add(&self, n: u64) -> Option<()> {
        self.change(|count| count.checked_add(n).filter(|sum| *sum <= MOST)).map(drop)
    }

    #[inline(always)]
    fn change(&self, f: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        // ORDERING: SeqCst: as in `take`. Relaxed: the load is confirmed by the exchange.
        self.count.fetch_update(Ordering::SeqCst, Ordering::Relaxed, f).ok()
    }
}

impl Payload for EventFd {
    const CACHE: &'static str = "eventfd_ctx";
    const SEEKS: bool = true;
    fn inode(&self) -> Option<&PseudoInode> {
        None
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anon_inode:[eventfd]")
    }

    /// Writes the object's line.
    #[inline]
    fn try_read(&self, _io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        if to.left() < NUMBER {
            return Err(Errno::INVAL);
        }
        let taken = self.take().ok_or(Errno::AGAIN)?;
        self.queue.wake_exchanged(Events::OUT.bits(), 1);
        Ok(to.put(&taken.to_ne_bytes()))
    }

    /// Each buffer is a number of its own. Writes the object's line.
    #[inline]
    fn try_write(&self, _io: Io, from: &mut Source<'_, '_>) -> Result<usize, Errno> {
        let Ok(number) = <[u8; NUMBER]>::try_from(from.buffer()) else { return Err(Errno::INVAL) };
        let n = u64::from_ne_bytes(number);
        if n == u64::MAX {
            return Err(Errno::INVAL);
        }
        self.add(n).ok_or(Errno::AGAIN)?;
        self.queue.wake_exchanged(Events::IN.bits(), 1);
        from.next_buffer();
        Ok(NUMBER)
    }

    fn poll(&self, _io: Io, table: &mut PollTable<'_>) -> Events {
        table.wait_on(&self.queue);
        // ORDERING: Acquire pairs with the exchanges: who is told that there is something sees what came before it.
        let count = self.count.load(Ordering::Acquire);
        let mut events = Events::empty();
        events.set(Events::IN, count > 0);
        events.set(Events::ERR, count == u64::MAX);
        events.set(Events::OUT, count < MOST);
        events
    }

    /// What a reader has taken may be room for a small number, and not for a large one.
    fn in_turn(&self, _what: Direction) -> bool {
        false
    }

    fn waiters(&self, _what: Direction) -> Option<&WaitQueue> {
        Some(&self.queue)
    }
}

/// `eventfd2`.
///
/// # Errors
/// `EINVAL` for a flag that is unknown; `ENFILE`, `ENOMEM`.
#[inline]
pub fn eventfd<'k>(
    fs: &'k PseudoFs<EventFd>,
    files: &'k Files,
    count: u32,
    flags: i32,
) -> Result<FileHandle<'k>, Errno> {
    if flags & !(EFD_SEMAPHORE | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::INVAL);
    }
    let state = || EventFd {
        count: AtomicU64::new(count.into()),
        semaphore: flags & EFD_SEMAPHORE != 0,
        queue: WaitQueue::new(),
    };
    fs.open_with(files, state, O_RDWR | (flags & O_NONBLOCK), FileMode::READ.union(FileMode::WRITE))
}
