//! Threads that drain a cache's layers. Meanwhile they hold objects that are free and in no layer.

use quietline_platform::atomic::{AtomicUsize, Ordering};
use quietline_platform::thread;

/// How often others let a visitor run before they make do with what they find: some seconds where there is no other CPU, and
/// for ever in a model, in which a visit that does not end is a deadlock.
const PATIENCE: usize = if cfg!(loom) { usize::MAX } else { 1_000_000 };

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
    for _ in 0..PATIENCE {
        if done() {
            return;
        }
        thread::yield_now();
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        // ORDERING: pairs with `settled`.
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}
