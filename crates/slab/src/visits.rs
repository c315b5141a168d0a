//! Threads that drain a cache's layers, and so have objects in hand that are neither with a user nor in any place.

use quietline_platform::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use quietline_platform::clock;
use quietline_platform::thread;

/// How long others wait for a visitor before they make do with what they find. A visit takes microseconds, and the turn of
/// whoever has its CPU.
#[cfg(not(loom))]
const PATIENCE: core::time::Duration = core::time::Duration::from_secs(2);

/// Visits begun and ended. Not a lock: a visitor never waits, and others only for a while.
#[derive(Debug)]
pub(crate) struct Visits {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

/// A visit, until dropped. It calls no foreign code but a handler of violations, and no thread waits for its own visit.
pub(crate) struct Visit<'a>(&'a Visits);

impl Visits {
    pub(crate) fn new() -> Self {
        Self { begun: AtomicUsize::new(0), ended: AtomicUsize::new(0) }
    }

    pub(crate) fn begin(&self) -> Visit<'_> {
        // ORDERING: pairs with the loads in `settled`: who sees something that the visit has moved, sees that it has begun.
        self.begun.fetch_add(1, Ordering::AcqRel);
        Visit(self)
    }

    /// What `f` gives while nobody visits; or, when somebody does for long, while somebody does.
    pub(crate) fn settled<R>(&self, f: impl Fn() -> R) -> R {
        let mut settled = None;
        wait_for(|| {
            // ORDERING: pairs with the release at a visit's end: its work is seen if it is seen to have ended.
            let ended = self.ended.load(Ordering::Acquire);
            if self.begun.load(Ordering::Acquire) == ended {
                let result = f();
                // ORDERING: what `f` has read was read before this, since every count it adds up is behind a lock or a barrier;
                // pairs with `begin`.
                if self.begun.load(Ordering::Acquire) == ended {
                    settled = Some(result);
                }
            }
            settled.is_some()
        });
        settled.unwrap_or_else(f)
    }

    /// In a child process, the threads that visited are gone.
    pub(crate) fn after_fork(&self) {
        // Relaxed: the child has one thread.
        self.ended.store(self.begun.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Lets others run until `done`, but not for ever.
pub(crate) fn wait_for(mut done: impl FnMut() -> bool) {
    if done() {
        return;
    }
    let impatient = impatience();
    while !done() && !impatient() {
        thread::yield_now();
    }
}

/// Says when somebody who begins to wait now has waited long enough.
#[cfg(not(loom))]
fn impatience() -> impl Fn() -> bool {
    let give_up = clock::monotonic() + PATIENCE;
    move || clock::monotonic() >= give_up
}

/// A model has no clock: a visit that does not end is a deadlock there.
#[cfg(loom)]
fn impatience() -> impl Fn() -> bool {
    || false
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        // ORDERING: pairs with `settled`.
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}
