//! The readiness of an embedder's open file.

use crate::file::Direction;
use crate::poll::{Events, PollTable};
use core::fmt;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_sync::{Interrupt, Wait, WaitQueue};
use rustix::io::Errno;

/// The readiness of an open file: the events that it has, and the threads that wait for them.
///
/// `poll`, `select` and `epoll` read it, so they call no method of the file. An embedder keeps it
/// in an `Arc`, returns it from [`FileOps::readiness`](super::FileOps::readiness), and changes it
/// when something happens, on any thread. It may hold its own locks meanwhile: no method is called.
#[derive(Default)]
pub struct Readiness {
    /// Bits of [`Events`].
    events: AtomicU32,
    /// Incremented by each wake-up.
    wakes: AtomicU32,
    queue: WaitQueue,
}

/// The events that a file can have. `NVAL` is of descriptors.
const KNOWN: Events = Events::all().difference(Events::NVAL);

impl Readiness {
    /// Returns the readiness of a file with these events.
    pub fn new(events: Events) -> Self {
        Self { events: AtomicU32::new((events & KNOWN).bits()), ..Self::default() }
    }

    /// The events that the file has.
    pub fn events(&self) -> Events {
        // ORDERING: pairs with the exchanges in `set` and `clear`.
        Events::from_bits_retain(self.events.load(Ordering::Acquire))
    }

    /// Adds events, and wakes each thread that waits for one of them. For edge-triggered epolls
    /// each call is an edge, also if the file had the events.
    ///
    /// The change that the events tell of comes first: a read that is woken finds it.
    pub fn set(&self, events: Events) {
        let events = (events & KNOWN).bits();
        // ORDERING: SeqCst: exchanges, as `wake_exchanged` wants them, of the words that pollers
        // and readers look at.
        self.events.fetch_or(events, Ordering::SeqCst);
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.queue.wake_exchanged(events, WaitQueue::ALL);
    }

    /// Removes events. Under the lock under which they are set: a removal that comes too late
    /// removes a later event.
    pub fn clear(&self, events: Events) {
        // ORDERING: SeqCst, as in `set`.
        self.events.fetch_and(!events.bits(), Ordering::SeqCst);
    }

    /// Returns the number of wake-ups so far, for [`wait`](Self::wait).
    pub(super) fn wakes(&self) -> u32 {
        // ORDERING: pairs with the exchange in `set`: a method that is called after this sees what
        // has been changed before the wake-ups that are counted.
        self.wakes.load(Ordering::Acquire)
    }

    /// Waits for a wake-up for one direction, after the first `seen` ones.
    ///
    /// # Errors
    /// `EINTR`, also if there has been a wake-up: a method may cause one each time it has nothing.
    pub(super) fn wait(&self, what: Direction, seen: u32) -> Result<(), Errno> {
        if Interrupt::current().is_some_and(|interrupt| interrupt.is_pending()) {
            return Err(Errno::INTR);
        }
        let wait = Wait { key: what.events().bits(), interruptible: true, ..Wait::default() };
        let woken = || (self.wakes() != seen).then_some(());
        // There is no timeout.
        self.queue.wait_until(&wait, woken).map_err(|_| Errno::INTR)
    }

    /// Shows the queue to a poller, and then returns the events.
    pub(super) fn poll(&self, table: &mut PollTable<'_>) -> Events {
        table.wait_on(&self.queue);
        self.events()
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("events", &self.events()).finish_non_exhaustive()
    }
}
