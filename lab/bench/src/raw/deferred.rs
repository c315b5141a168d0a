//! Objects that are freed after a grace period: by quietline's RCU, and by crossbeam's epochs.

use std::ptr::NonNull;

use crossbeam_epoch::{Guard, Owned};
use quietline_platform::{AllocError, heap};
use quietline_sync::Counter;
use quietline_sync::rcu::{Domain, Head};

/// An object that tells a ledger of its end, if it still holds what was written to it.
pub(crate) struct Tracked {
    /// How many live. Of the program's own life, because garbage may outlive whoever made it.
    ledger: &'static Counter,
    words: [u64; 2],
}

impl Tracked {
    /// An object that `ledger` counts.
    #[inline(always)]
    pub(crate) fn new(ledger: &'static Counter, mark: u64) -> Self {
        ledger.inc();
        Self { ledger, words: [mark, !mark] }
    }
}

impl Drop for Tracked {
    #[inline(always)]
    fn drop(&mut self) {
        // One that was overwritten counts as alive for ever, and the check at the sample's end finds it.
        if self.words[0] == !self.words[1] {
            self.ledger.dec();
        }
    }
}

/// What quietline queues: the object behind its head.
#[repr(C)]
struct Queued {
    head: Head,
    object: Tracked,
}

/// Boxes `object`, to be dropped after a grace period of `domain`.
///
/// # Errors
///
/// If there is no memory.
#[inline(always)]
pub(crate) fn free_by_rcu(domain: &Domain, object: Tracked) -> Result<(), AllocError> {
    let queued = heap::try_box(Queued { head: Head::new(), object })?;
    let head = NonNull::from(Box::leak(queued)).cast::<Head>();
    // SAFETY: the leaked box is ours to give away and begins with its head; `free` takes it back, may run on any thread
    // (the ledger is shared by reference, the rest are numbers) and does not unwind.
    unsafe { domain.call(head, free) };
    Ok(())
}

/// Frees what [`free_by_rcu`] queued.
///
/// # Safety
///
/// `head` was queued there, and its callback runs now.
unsafe fn free(head: NonNull<Head>) {
    // SAFETY: the head is the first field of a leaked box of this type, and nobody else has it.
    drop(unsafe { Box::from_raw(head.cast::<Queued>().as_ptr()) });
}

/// Boxes `object`, to be dropped when no thread is pinned any more in an epoch in which it could be seen.
///
/// # Errors
///
/// If there is no memory.
#[inline(always)]
pub(crate) fn free_by_epoch(guard: &Guard, object: Tracked) -> Result<(), AllocError> {
    let object = Owned::<Tracked>::from(heap::try_box(object)?).into_shared(guard);
    // SAFETY: the box was never published, so nobody can reach it; it may be dropped on any thread, as above.
    unsafe { guard.defer_destroy(object) };
    Ok(())
}
