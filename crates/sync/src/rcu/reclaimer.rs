//! Reclaimers: a program's choice of where callbacks run.

use super::callbacks::contain;
use super::{Domain, RcuBox, Storage};
use core::ptr::{self, NonNull};
use core::time::Duration;
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::{AllocError, heap, thread};
use std::sync::Arc;

/// The longest time that callbacks wait for a reclaimer thread when no batch becomes full.
const INTERVAL: Duration = Duration::from_secs(1);

/// A receiver of the news that a batch of callbacks is full, set by [`Domain::set_reclaimer`]: an
/// event loop, or a thread such as that of [`Domain::spawn_reclaimer`].
pub trait Reclaimer: Send + Sync {
    /// Makes another thread, or this thread later, call [`Domain::poll`] until it returns `false`.
    /// The calling thread may hold any lock and any section, and is in one of this domain. So this
    /// only signals: it writes to an eventfd or wakes a thread. It queues no callback.
    fn notify(&self);
}

impl<R: Reclaimer + ?Sized> Reclaimer for &R {
    fn notify(&self) {
        (**self).notify();
    }
}

impl<R: Reclaimer + ?Sized> Reclaimer for Arc<R> {
    fn notify(&self) {
        (**self).notify();
    }
}

/// The reclaimer of a domain, if the program has chosen one: the value of an [`RcuBox`].
#[derive(Debug)]
pub(super) struct Chosen(AtomicPtr<Box<dyn Reclaimer>>);

impl Chosen {
    pub(super) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Notifies the reclaimer. Returns `false` if there is none.
    pub(super) fn notify(&self, domain: &Domain) -> bool {
        // A reclaimer that another thread replaces meanwhile is dropped after this section.
        let _section = domain.read();
        // ORDERING: pairs with the release in `replace`: the reclaimer is seen as it was made.
        let chosen = self.0.load(Ordering::Acquire);
        // SAFETY: null, or found inside the section.
        let chosen = unsafe { chosen.as_ref() };
        // A panic would leave a callback counted that is not queued.
        chosen.map(|reclaimer| contain(|| reclaimer.notify())).is_some()
    }

    /// Sets the reclaimer, and retires the one before.
    pub(super) fn replace(&self, domain: &Domain, new: Option<RcuBox<'_, Box<dyn Reclaimer>>>) {
        let new = new.map_or(ptr::null_mut(), |new| new.into_raw().as_ptr());
        // ORDERING: release pairs with the acquire in `notify`. Acquire pairs with the release of
        // the thread that set the one before.
        if let Some(old) = NonNull::new(self.0.swap(new, Ordering::AcqRel)) {
            // SAFETY: a box of this domain, which no later section finds.
            unsafe { Storage::retire(domain, old) };
        }
    }

    /// Ends the choice in a child process: the thread or the loop that was chosen may be gone. Its
    /// memory stays.
    pub(super) fn forget(&self) {
        // Relaxed: there is no other thread.
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

impl Domain {
    /// Sets the reclaimer of the domain: threads that fill a batch notify it, and have a
    /// [pending](Self::is_pending) share of callbacks only while more than
    /// [`backlog_limit`](Self::backlog_limit) is queued. `None` for shares, as at first. A child
    /// process begins with shares. The reclaimer before is dropped after a grace period, or with
    /// the domain.
    ///
    /// # Errors
    /// [`AllocError`]; the reclaimer is as it was.
    pub fn set_reclaimer(&self, reclaimer: Option<Box<dyn Reclaimer>>) -> Result<(), AllocError> {
        let new = reclaimer.map(|reclaimer| RcuBox::new(self, reclaimer)).transpose()?;
        self.reclaimer.replace(self, new);
        Ok(())
    }

    /// Starts a thread that runs the domain's callbacks for the life of the process, and makes it
    /// the domain's [reclaimer](Self::set_reclaimer). It wakes when a batch is full, and once a
    /// second. Each call starts one more thread, and only the last one is woken for full batches.
    /// The domain of a [handle](super::DomainHandle) would never end with such a thread: it is
    /// polled by a thread that the program ends itself.
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
            let chosen = waker.and_then(|waker| self.set_reclaimer(Some(waker)));
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
