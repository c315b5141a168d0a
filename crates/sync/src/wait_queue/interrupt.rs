//! How to get a thread out of its wait.

use core::fmt;

use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_platform::const_unless_loom;

use super::WaitQueue;

/// Whether somebody wants a thread to stop waiting: what a pending signal is to a system call.
///
/// A thread that may be interrupted has one of these, and waits with it ([`Wait::interrupt`](super::Wait), or
/// [`enter`](Self::enter)). Once
/// raised, it ends that wait and every later one that would sleep, until it is cleared.
pub struct Interrupt {
    pending: AtomicBool,
    pub(super) sleepers: WaitQueue,
}

impl Interrupt {
    const_unless_loom! {
        /// Not raised.
        pub fn new() -> Self {
            Self { pending: AtomicBool::new(false), sleepers: WaitQueue::new() }
        }
    }

    /// Interrupts whoever waits with this, now or later. Any thread may call it.
    pub fn raise(&self) {
        // ORDERING: SeqCst: an exchange, as `wake_exchanged` wants it; pairs with the fence in `WaitQueue::add`. A sleeper looks at
        // the word after it has entered the queue. Its release brings what the caller did before to whoever sees it.
        self.pending.swap(true, Ordering::SeqCst);
        self.sleepers.wake_exchanged(WaitQueue::ANY, WaitQueue::ALL);
    }

    /// Takes it back; whether it was raised. For the thread itself, when it attends to the reason.
    pub fn clear(&self) -> bool {
        // ORDERING: Acquire pairs with the release in `raise`. Finding nothing orders nothing.
        self.pending.swap(false, Ordering::Acquire)
    }

    /// Whether it is raised. Writes no line.
    #[inline]
    pub fn is_pending(&self) -> bool {
        // ORDERING: Acquire pairs with the release in `raise`, so that an interrupted thread finds the reason.
        self.pending.load(Ordering::Acquire)
    }
}

impl Default for Interrupt {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt").field("pending", &self.is_pending()).finish()
    }
}
