//! Reclaimers: a program's choice of where callbacks run.

use super::Domain;
use core::time::Duration;
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::{AllocError, heap, thread};

/// The longest time that callbacks wait for a reclaimer thread when no batch becomes full.
const INTERVAL: Duration = Duration::from_secs(1);

/// A receiver of the news that a batch of callbacks is full, set by [`Domain::set_reclaimer`]: an
/// event loop, or a thread such as that of [`Domain::spawn_reclaimer`].
pub trait Reclaimer: Sync {
    /// Makes another thread, or this thread later, call [`Domain::poll`] until it returns `false`.
    /// The calling thread may hold any lock and any section, so this only signals: it writes to an
    /// eventfd or wakes a thread. It queues no callback.
    fn notify(&self);
}

/// The reclaimer of a domain, if the program has chosen one.
#[derive(Debug)]
pub(super) struct Chosen(AtomicPtr<&'static dyn Reclaimer>);

impl Chosen {
    pub(super) fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Notifies the reclaimer. Returns `false` if there is none.
    pub(super) fn notify(&self) -> bool {
        // ORDERING: pairs with the release in `set_reclaimer`: the reference is seen as it was
        // made.
        let chosen = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a leaked box.
        unsafe { chosen.as_ref() }.map(|reclaimer| reclaimer.notify()).is_some()
    }

    /// Ends the choice in a child process: the thread or the loop that was chosen may be gone.
    pub(super) fn forget(&self) {
        // Relaxed: there is no other thread.
        self.0.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}

impl Domain {
    /// Sets the reclaimer of the domain: threads that fill a batch notify it, and have a
    /// [pending](Self::is_pending) share of callbacks only while more than
    /// [`backlog_limit`](Self::backlog_limit) is queued. `None` for shares, as at first. A child
    /// process begins with shares.
    ///
    /// # Errors
    /// [`AllocError`]. Each call with a reclaimer keeps two words for ever.
    pub fn set_reclaimer(
        &self,
        reclaimer: Option<&'static dyn Reclaimer>,
    ) -> Result<(), AllocError> {
        let chosen = match reclaimer {
            Some(reclaimer) => core::ptr::from_mut(Box::leak(heap::try_box(reclaimer)?)),
            None => core::ptr::null_mut(),
        };
        // ORDERING: pairs with the acquire in `notify`.
        self.reclaimer.0.store(chosen, Ordering::Release);
        Ok(())
    }

    /// Starts a thread that runs the domain's callbacks for the life of the process, and makes it
    /// the domain's [reclaimer](Self::set_reclaimer). It wakes when a batch is full, and once a
    /// second. Each call starts one more thread, and only the last one is woken for full batches.
    ///
    /// # Errors
    /// Those of the system when it starts no thread; out of memory.
    pub fn spawn_reclaimer(&'static self) -> std::io::Result<()> {
        struct Waker(thread::Thread);
        impl Reclaimer for Waker {
            fn notify(&self) {
                self.0.unpark();
            }
        }
        let (to_caller, made) = std::sync::mpsc::sync_channel(1);
        let run = move || {
            let waker = heap::try_box(Waker(thread::current()));
            let chosen = waker.and_then(|waker| self.set_reclaimer(Some(Box::leak(waker))));
            // The caller waits for it.
            let _ = to_caller.send(chosen);
            while chosen.is_ok() {
                thread::park_timeout(INTERVAL);
                // Without progress the thread sleeps: a reader may stay inside for long.
                let mut left = self.backlog();
                while self.poll() {
                    let now = self.backlog();
                    if now >= left {
                        thread::park_timeout(Duration::from_millis(1));
                    }
                    left = now;
                }
            }
        };
        thread::Builder::new().name("rcu-reclaimer".to_owned()).spawn(run)?;
        let chosen = made.recv().unwrap_or(Err(AllocError));
        chosen.map_err(|AllocError| std::io::ErrorKind::OutOfMemory.into())
    }
}
