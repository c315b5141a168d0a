//! A ring through which one thread passes groups of objects to one other.

use std::cell::UnsafeCell;

use crossbeam_utils::CachePadded;
use quietline_platform::atomic::{AtomicBool, AtomicUsize, Ordering};
use quietline_platform::{hint, thread};

use super::Entry;
use crate::workloads::slab::PASSED;

/// Groups that the ring holds: 1,024 objects.
const GROUPS: usize = 32;
/// Turns of a waiting loop before the thread gives up its time slice.
const SPINS: u32 = 2_000;

type Group = [Entry; PASSED];

/// The ring. It has one sender and one receiver at a time: [`send`](Self::send) and [`receive`](Self::receive) are unsafe
/// for that reason alone.
pub(crate) struct Ring {
    /// Groups sent, and groups received, since the ring was made; each on its writer's line.
    sent: CachePadded<AtomicUsize>,
    received: CachePadded<AtomicUsize>,
    /// Nothing more will be sent until the receiver has seen this.
    closed: CachePadded<AtomicBool>,
    groups: [CachePadded<UnsafeCell<Group>>; GROUPS],
}

// SAFETY: a group is the sender's until `sent` passes it, and the receiver's until `received` does; objects are memory
// without an owner among the threads.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

/// The other side's count as one side saw it last: it is looked at again only when that is not enough.
pub(super) struct Seen(usize);

impl Ring {
    pub(crate) fn new() -> Self {
        let group = |_| CachePadded::new(UnsafeCell::new([None; PASSED]));
        Self {
            sent: CachePadded::default(),
            received: CachePadded::default(),
            closed: CachePadded::default(),
            groups: std::array::from_fn(group),
        }
    }

    /// What either side may start with while nothing is in the ring.
    pub(super) fn seen(&self) -> Seen {
        // ORDERING: pairs with the release in `receive`.
        Seen(self.received.load(Ordering::Acquire))
    }

    /// Sends a group, waiting for room; false if `stop` is set while there is none.
    ///
    /// # Safety
    ///
    /// One thread at a time sends; `seen` is from [`seen`](Self::seen) of this ring when it was empty, and used for nothing else.
    #[inline(always)]
    pub(super) unsafe fn send(&self, group: &Group, seen: &mut Seen, stop: &AtomicBool) -> bool {
        // Relaxed: the sender's own count.
        let sent = self.sent.load(Ordering::Relaxed);
        if sent - seen.0 == GROUPS {
            let room = || {
                // ORDERING: pairs with the release in `receive`: the place is read out when its count is seen.
                seen.0 = self.received.load(Ordering::Acquire);
                sent - seen.0 < GROUPS
            };
            if !wait(room, stop) {
                return false;
            }
        }
        // SAFETY: the receiver is done with this place, and the caller is the only sender.
        unsafe { *self.groups[sent % GROUPS].get() = *group };
        // ORDERING: pairs with the acquire in `receive`.
        self.sent.store(sent + 1, Ordering::Release);
        true
    }

    /// Receives a group, waiting for one; false when the ring is empty and [closed](Self::close), which is then over.
    ///
    /// # Safety
    ///
    /// One thread at a time receives; `seen` as in [`send`](Self::send).
    #[inline(always)]
    pub(super) unsafe fn receive(&self, group: &mut Group, seen: &mut Seen) -> bool {
        // Relaxed: the receiver's own count.
        let received = self.received.load(Ordering::Relaxed);
        if received == seen.0 {
            let never = AtomicBool::new(false);
            let mut over = false;
            let ready = || {
                // ORDERING: pairs with the release in `close`: what was sent before is seen below.
                over = self.closed.load(Ordering::Acquire);
                // ORDERING: pairs with the release in `send`: a group that is counted is there.
                seen.0 = self.sent.load(Ordering::Acquire);
                over || seen.0 != received
            };
            wait(ready, &never);
            if over && seen.0 == received {
                // Relaxed: the sender's next round is ordered after this by whoever starts it.
                self.closed.store(false, Ordering::Relaxed);
                return false;
            }
        }
        // SAFETY: the sender has counted this place, and the caller is the only receiver.
        unsafe { *group = *self.groups[received % GROUPS].get() };
        // ORDERING: pairs with the acquire in `send`.
        self.received.store(received + 1, Ordering::Release);
        true
    }

    /// Tells the receiver that nothing more comes.
    pub(super) fn close(&self) {
        // ORDERING: pairs with the acquire in `receive`: who sees it sees all that was sent.
        self.closed.store(true, Ordering::Release);
    }
}

/// Waits until `ready`, or until `stop` is set; which it is.
#[inline(always)]
fn wait(mut ready: impl FnMut() -> bool, stop: &AtomicBool) -> bool {
    let mut spins = 0;
    loop {
        if ready() {
            return true;
        }
        if spins < SPINS {
            spins += 1;
            hint::spin_loop();
        } else {
            // Relaxed: nothing is ordered by the flag.
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            thread::yield_now();
        }
    }
}
