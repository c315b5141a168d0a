//! Sleepers that are about to be woken.
//!
//! Who is woken soon wants the locks that the waker holds, and may get the waker's CPU to look for them in vain. So sleepers
//! are only taken off their queues as long as the waker is under a lock that it knows of: that of a queue, while its
//! callbacks wake others, or one around which it has put [`wake_later`].

use core::cell::Cell;
use core::ptr::{self, NonNull};

use quietline_platform::atomic::Ordering;
#[cfg(not(loom))]
use quietline_platform::futex;

use super::node::Node;
use super::waiter::{ASLEEP, LINKED, PHASE, Waiter};

/// The step from LINKED to CLAIMED, and from there to WOKEN.
pub(super) const STEP: u32 = 1;

quietline_platform::thread_local! {
    /// Where the calling thread's wake-ups go; null if they are made at once.
    static LATER: Cell<*const Claimed> = const { Cell::new(ptr::null()) };
}

/// Waiters that the thread's wake-ups have taken off their queues. They are woken when this is dropped, in the order in
/// which they were claimed.
pub(super) struct Claimed {
    first: Cell<*mut Node>,
    last: Cell<*mut Node>,
}

/// Calls `f` with what the thread's wake-ups go to. If it is the outermost such call, they are made when `f` is done.
pub(super) fn collect<R>(f: impl FnOnce(&Claimed) -> R) -> R {
    let outer = LATER.with(Cell::get);
    // SAFETY: set by a call of this function that is not over, in this thread.
    if let Some(outer) = unsafe { outer.as_ref() } {
        return f(outer);
    }
    // Dropped when `f` is done, also when it panics.
    let claimed = Claimed { first: Cell::new(ptr::null_mut()), last: Cell::new(ptr::null_mut()) };
    LATER.with(|later| later.set(&claimed));
    f(&claimed)
}

/// Calls `f`, and makes the wake-ups of sleepers that it asks for when it is done: for those who must wake under a lock, so
/// that who is woken finds the lock free. `f` does not wait for anything that those do who are to be woken.
pub fn wake_later<R>(f: impl FnOnce() -> R) -> R {
    collect(|_| f())
}

impl Claimed {
    /// # Safety
    /// The waiter was LINKED and has just been unlinked by the caller, who holds the queue's lock.
    pub(super) unsafe fn claim(&self, waiter: NonNull<Waiter>, key: u32) {
        let node = waiter.cast::<Node>();
        // SAFETY: linked until now, so it lives, and from here on it stays until it is told.
        let claimed = unsafe { waiter.as_ref() };
        // Relaxed: under the lock, which the waiter takes before it looks for this; what it waits for is WOKEN.
        let before = claimed.word.fetch_add(STEP, Ordering::Relaxed);
        debug_assert_eq!(before & PHASE, LINKED);
        // SAFETY: off the list and claimed: the links and the key are this waker's.
        unsafe {
            claimed.key.with_mut(|word| *word = key);
            claimed.origin.tell();
            claimed.node.chain(ptr::null_mut());
            match self.last.get().as_ref() {
                Some(last) => last.chain(node.as_ptr()),
                None => self.first.set(node.as_ptr()),
            }
        }
        self.last.set(node.as_ptr());
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        LATER.with(|later| later.set(ptr::null()));
        while let Some(node) = NonNull::new(self.first.get()) {
            // SAFETY: claimed above and not told yet, so it lives and its links are ours.
            let waiter = unsafe { node.cast::<Waiter>().as_ref() };
            // SAFETY: as above.
            self.first.set(unsafe { waiter.node.chained() });
            #[cfg(loom)]
            let thread = waiter.thread.clone();
            #[cfg(not(loom))]
            let address = waiter.word.as_ptr().cast_const();
            // ORDERING: Release pairs with the acquire in `Waiter::phase`: the use of the node is over. The node may be gone
            // after this.
            let before = waiter.word.fetch_add(STEP, Ordering::Release);
            if before & ASLEEP != 0 {
                #[cfg(loom)]
                thread.unpark();
                #[cfg(not(loom))]
                futex::wake_raw(address, 1);
            }
        }
    }
}
