//! Where threads and callbacks wait for a condition that somebody else will make true.

mod claimed;
mod current;
mod entry;
mod interrupt;
mod node;
#[cfg_attr(any(loom, quietline_sim), path = "wait_queue/patience/none.rs")]
mod patience;
mod waiter;

pub use claimed::wake_later;
pub use current::Entered;
pub use entry::{Callback, Entry, Reply};
pub use interrupt::Interrupt;
pub use waiter::{Wait, WaitError};

use core::fmt;
use core::ptr::{self, NonNull};

use quietline_platform::atomic::{AtomicPtr, Ordering, fence};
use quietline_platform::const_unless_loom;

use crate::SpinLock;
use claimed::Claimed;
use node::{Kind, List, Node};
use waiter::Waiter;

/// The waiters of one condition (`wait_queue_head_t`): sleeping threads, and callbacks.
///
/// # The problem
///
/// Every pipe, socket, lock and event queue must be able to wake those who wait for it, and almost always nobody
/// does. So the wake-up must cost next to nothing then; it must not be lost when a thread begins to wait at the same
/// moment; and of a hundred threads that wait for one connection not all hundred should be woken.
///
/// # The contended way
///
/// A mutex and a condition variable: whoever changes the condition takes the mutex, waiters or not. Or the lock of the
/// kernel's queue, when `wake_up` is called without `waitqueue_active`.
///
/// # Our way
///
/// ```text
///   who waits                             who wakes
///   ─────────────────────────────         ──────────────────────────────────
///   links its entry     (head := entry)   makes the condition true
///   fence                                 fence                    (or an exchange, or the condition's lock)
///   looks at the condition                looks at head: nobody?   done: one load
///   sleeps                                walks the list under the lock
/// ```
///
/// Of the two looks at least one sees what the other side did: either the waiter finds the condition true, or the
/// waker finds the entry. Entries lie on the waiters' stacks, or in what their owner keeps; nothing is allocated.
///
/// ```text
///   head ─> callback ─> sleeper ─> ... ─> exclusive ─> exclusive ─> ... <─ tail
///           newest first                  oldest first, but for those who wait newest first
/// ```
///
/// A wake-up goes to every entry whose key shares a bit with it, and ends once it has reached as many exclusive ones as
/// it was told to. Sleepers are taken off the list under the lock, and woken when the lock is free again, so no
/// system call is made under it: one who is woken finds it free. A callback that wakes another queue only takes that one's
/// sleepers off, too.
///
/// A sleeper does not sleep at once if its last wake-ups came at once. It is in its queue by then, but has not said that it
/// sleeps, so neither side makes a system call for a wake-up that comes now:
///
/// ```text
///   in the queue ──> was the last waker on another CPU?  looks at its own word for some 4 us ──┬─> woken
///                    on this one?                        offers the CPU once                   └─> says so, and sleeps
///                    nobody yet, or in vain lately?      ────────────────────────────────────────> says so, and sleeps
/// ```
///
/// "In vain lately" is 2, 6, 14, ... 126 waits after the second, third, fourth look in a row that found nothing; a CPU that came
/// back late is not offered again for a hundred times as long. Which CPU the waker was on lies in the waiter, on a line that
/// the waker writes anyhow; what the thread learns from it, in its own storage.
///
/// # Guarantees
///
/// * No wake-up is lost, if the condition is changed before [`wake`](Self::wake), or as
///   [`wake_ordered`](Self::wake_ordered) or [`wake_exchanged`](Self::wake_exchanged) wants it.
/// * A wake-up for one exclusive sleeper wakes one. If that one leaves without having used it, because its
///   condition came true of itself or its closure panicked, it passes the wake-up on. One that times out or is
///   interrupted has not been woken: if a waker was faster, it looks at its condition first.
/// * A callback is never called after [`Entry::remove`] has returned or the entry is gone.
///
/// # Limits
///
/// * A look before a sleep uses the CPU: some 4 us before each wait as long as most are answered, and before one wait in 127 when
///   none is.
/// * Callbacks run under the queue's lock: they must be short, and must not touch the same queue. They may wake other
///   queues, in an order without cycles.
/// * Not for signal handlers. Across `fork` it is as the lock inside; entries of other threads stay in the child's
///   copy and must not be woken there.
///
/// # Source
///
/// `kernel/sched/wait.c`, Linux 6.1. Differs in that the sleepers' wake-ups are made outside the lock, and that an
/// exclusive wake-up that was not used is passed on here instead of by each user.
pub struct WaitQueue {
    /// The first entry. Changed under the lock, read by wakers without it.
    head: AtomicPtr<Node>,
    list: SpinLock<List>,
}

impl WaitQueue {
    /// The key that meets every entry, and the entry's key that meets every wake-up.
    pub const ANY: u32 = u32::MAX;
    /// As many exclusive entries as there are.
    pub const ALL: u32 = u32::MAX;

    const_unless_loom! {
        /// A queue in which nobody waits.
        pub fn new() -> Self {
            Self { head: AtomicPtr::new(ptr::null_mut()), list: SpinLock::new(List::new()) }
        }
    }

    /// Whether anybody waits, after a full fence: for one who has just made the condition true
    /// (`wq_has_sleeper`). Writes no line.
    #[inline]
    pub fn is_waited_on(&self) -> bool {
        // ORDERING: pairs with the fence in `add`. Either this finds the entry, or the entry's owner finds what the caller
        // did before.
        fence(Ordering::SeqCst);
        // Relaxed: the fence has ordered it, and nothing is read through it here.
        !self.head.load(Ordering::Relaxed).is_null()
    }

    /// Wakes everybody who waits for one of the events in `key`, of exclusive entries at most `exclusive`; says how
    /// many. The condition is to be changed before.
    ///
    /// With nobody waiting: a fence and a load; writes no line. Otherwise the queue's lock, each entry, and for each
    /// sleeper a wake-up call.
    #[inline]
    pub fn wake(&self, key: u32, exclusive: u32) -> u32 {
        if self.is_waited_on() { self.wake_slow(key, exclusive) } else { 0 }
    }

    /// [`wake`](Self::wake) for a caller whose change of the condition is ordered already, so that one load is
    /// all it costs when nobody waits. That is one of these:
    ///
    /// * the condition is changed and looked at under one lock, which the caller has released or still holds. All that waiters
    ///   look at, that is: a word that they look at without the lock is not ordered by it, since an unlock is a plain store;
    /// * the caller has made a `SeqCst` fence since.
    ///
    /// A caller for whom none is true may leave a waiter asleep. After an exchange: [`wake_exchanged`](Self::wake_exchanged).
    #[inline]
    pub fn wake_ordered(&self, key: u32, exclusive: u32) -> u32 {
        // ORDERING: SeqCst: with a lock: the waiter that looked first has linked itself before it released that lock, and is found.
        // After the caller's fence it pairs with the fence in `add` as `is_waited_on` does.
        if self.head.load(Ordering::SeqCst).is_null() { 0 } else { self.wake_slow(key, exclusive) }
    }

    /// [`wake_ordered`](Self::wake_ordered) for a caller whose last change of the condition was a `SeqCst` read-modify-write
    /// (not a store) of a word that the waiters look at. The same code; the models check both by their own rule.
    #[inline]
    pub fn wake_exchanged(&self, key: u32, exclusive: u32) -> u32 {
        // The model takes SeqCst accesses for weaker ones; a fence stands for what the machine does. Not so in `wake_ordered`:
        // there it would hide from the models that a caller relies on a lock that his waiters do not take.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        // ORDERING: SeqCst: after the caller's exchange in the one order of all such accesses and fences, so pairs with the
        // fence in `add` as `is_waited_on` does.
        self.wake_ordered(key, exclusive)
    }

    /// Wakes all who wait for anything.
    #[inline]
    pub fn wake_all(&self) -> u32 {
        self.wake(Self::ANY, Self::ALL)
    }

    /// Sleepers are woken after the lock is free, also when a callback panics; those that a callback wakes in other queues, too.
    #[cold]
    fn wake_slow(&self, key: u32, exclusive: u32) -> u32 {
        claimed::collect(|claimed| self.claim(key, exclusive, claimed))
    }

    fn claim(&self, key: u32, exclusive: u32, claimed: &Claimed) -> u32 {
        let mut list = self.list.lock();
        let (mut left, mut woken) = (exclusive, 0);
        // Relaxed: changed under the lock only, which is held.
        let mut at = self.head.load(Ordering::Relaxed);
        while let Some(node) = NonNull::new(at) {
            // SAFETY: linked entries live: their owners take them off under the lock before they end.
            let entry = unsafe { node.as_ref() };
            if entry.exclusive && left == 0 {
                break;
            }
            at = list.next(entry);
            let met = match entry.kind {
                Kind::Sleeper(events) if events & key == 0 => false,
                Kind::Sleeper(_) => {
                    list.unlink(&self.head, entry);
                    // SAFETY: such a node is the first field of a waiter, which stays until it is told; it was on the list, so
                    // nobody else has claimed it.
                    unsafe { claimed.claim(node.cast::<Waiter>(), key) };
                    true
                }
                // SAFETY: the function belongs to the entry's type, and the entry lives.
                Kind::Callback(call) => match unsafe { call(node, key) } {
                    Reply::Ignored => false,
                    Reply::Woken => true,
                    Reply::Done => {
                        list.unlink(&self.head, entry);
                        true
                    }
                },
            };
            if met {
                woken += 1;
                left -= u32::from(entry.exclusive);
            }
        }
        woken
    }

    /// Links an entry, unless it is linked. After this the caller looks at its condition.
    ///
    /// # Safety
    /// The node stays where it is until it is off the list. The node is only ever used with this queue.
    unsafe fn add(&self, node: NonNull<Node>) {
        {
            let mut list = self.list.lock();
            // SAFETY: the caller's node.
            let entry = unsafe { node.as_ref() };
            if !list.is_linked(entry) {
                list.link(&self.head, node, entry);
            }
        }
        // ORDERING: pairs with the fence or the exchange of whoever wakes: it finds the entry, or the caller's next look finds
        // what it changed.
        fence(Ordering::SeqCst);
    }

    /// Takes an entry off the list; false if it was not there.
    fn remove(&self, entry: &Node) -> bool {
        let mut list = self.list.lock();
        let linked = list.is_linked(entry);
        if linked {
            list.unlink(&self.head, entry);
        }
        linked
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a look.
        let waited_on = !self.head.load(Ordering::Relaxed).is_null();
        f.debug_struct("WaitQueue").field("waited_on", &waited_on).finish()
    }
}
