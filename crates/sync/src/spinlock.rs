//! A lock that is cheap while no thread waits, and keeps few threads awake while many do.

mod parking;
mod queue;
mod waiter;

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use quietline_platform::cell::UnsafeCell;
use quietline_platform::const_unless_loom;
use quietline_platform::fork::AtFork;

use queue::QueuedLock;

/// A value that one thread at a time may use.
///
/// ```text
///   newcomers ──┬─ free? ──────────────────────────────────────> holder
///               ├─ slot vacant? ──> spinner: watches the word ─────^
///               └─ queue: tail ... second, head: watches the slot ──> slot
/// ```
///
/// Locking a free lock is one locked instruction, unlocking is one plain store. One waiter, in
/// the slot, spins on the lock's word. The head of the queue watches the slot. All other waiters
/// watch entries on their own stacks, so that a release moves a fixed number of lines however
/// many wait. Each of them sleeps after a budget of spins, and a waiter behind a sleeper sleeps
/// at once.
///
/// A running thread takes a free lock past all waiters. So the lock is never idle while a sleeper
/// is being woken, and as many threads stay awake as keep it busy. What this takes from the
/// waiters is bounded: see below.
///
/// Differs from the kernel's: waiters sleep, because in user space a holder can lose its CPU; and
/// the queue's entries live on the stack, so locks may be nested without bound.
///
/// # Guarantees
///
/// * No waiter starves. The spinner is passed over for some 10 microseconds of its own running
///   time, then the next unlock grants it the lock. The head of the queue is passed over for 250
///   microseconds, then it gets the slot next. The queue is first in, first out. Waiters are not
///   served in the order of their arrival.
/// * The lock is released when the guard is dropped, also by a panic. There is no poisoning: who
///   catches panics looks after the value.
///
/// # Limits
///
/// Not recursive; not for signal handlers.
///
/// # Source
///
/// J. Mellor-Crummey, M. Scott, "Algorithms for scalable synchronization on shared-memory
/// multiprocessors", TOCS 1991 (the queue); `kernel/locking/qspinlock.c`, Linux 6.1 (a spinner
/// beside a queue); `kernel/locking/mutex.c`, Linux 6.1 (hand-off to a waiter that was passed
/// over); D. Dice, "Malthusian Locks", EuroSys 2017 (few active waiters). Figures and
/// alternatives: ADR 25.
pub struct SpinLock<T> {
    lock: QueuedLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns the value; to send the one is to send the other.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: a shared lock gives the value to one thread at a time, which is to send it from thread to thread.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self { lock: QueuedLock::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Takes the lock, waiting for it if need be. Writes the lock's line; in the queue also the
    /// line of the waiter ahead.
    #[inline]
    #[cfg_attr(feature = "lock-times", track_caller)]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        self.lock.lock();
        SpinLockGuard::new(self)
    }

    /// Takes the lock if it is free and not granted to a waiter. Writes the lock's line.
    #[inline]
    #[cfg_attr(feature = "lock-times", track_caller)]
    pub fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        // Not by `then`, whose closure would be the recorded caller.
        if self.lock.try_lock() { Some(SpinLockGuard::new(self)) } else { None }
    }

    /// Calls `f` with the value, under the lock.
    #[inline]
    #[cfg_attr(feature = "lock-times", track_caller)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }

    /// The value, without locking: a unique borrow proves that nobody holds the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `self` is borrowed uniquely, so there is no guard and no other access.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// The value, out of the lock.
    #[inline]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Takes the lock without a guard, for a holder that no scope can describe: across a `fork`.
    ///
    /// # Safety
    ///
    /// The same thread must let go by [`raw_unlock`](Self::raw_unlock), or in a child process by
    /// [`raw_unlock_in_child`](Self::raw_unlock_in_child), and must not lock again before.
    pub unsafe fn raw_lock(&self) {
        self.lock.lock();
    }

    /// Lets go of a lock taken by [`raw_lock`](Self::raw_lock).
    ///
    /// # Safety
    ///
    /// The calling thread holds the lock by `raw_lock`, and uses the value no more.
    pub unsafe fn raw_unlock(&self) {
        self.lock.unlock();
    }

    /// Lets go, in the child process of a `fork`, of a lock taken by [`raw_lock`](Self::raw_lock)
    /// before it, and forgets the threads that were waiting for it: they did not come along.
    ///
    /// # Safety
    ///
    /// The caller is the only thread of the child, and its counterpart in the parent holds the
    /// lock by `raw_lock`.
    pub unsafe fn raw_unlock_in_child(&self) {
        // SAFETY: there is no other thread, says the contract.
        unsafe { self.lock.reset() };
    }
}

// SAFETY: `before` holds the lock, so no other thread is inside a section that it protects until `after`.
unsafe impl<T: Send> AtFork for SpinLock<T> {
    fn before(&self) {
        // SAFETY: the same thread calls `after` in the parent and in the child, as the trait says.
        unsafe { self.raw_lock() };
    }

    fn after(&self, child: bool) {
        // SAFETY: `before` took the lock in this thread; in the child there is no other.
        unsafe { if child { self.raw_unlock_in_child() } else { self.raw_unlock() } };
    }
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("SpinLock");
        match self.try_lock() {
            Some(value) => out.field("value", &*value),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish()
    }
}

/// The value of a [`SpinLock`], locked; dropping it unlocks, with one plain store.
#[must_use = "the lock is released when this is dropped"]
pub struct SpinLockGuard<'a, T> {
    lock: &'a SpinLock<T>,
    #[cfg(all(feature = "lock-times", not(any(loom, quietline_sim))))]
    _hold: crate::lock_times::Hold,
    /// A guard stays in its thread, as one expects of a lock.
    not_send: PhantomData<*const ()>,
}

impl<'a, T> SpinLockGuard<'a, T> {
    #[inline]
    #[cfg_attr(feature = "lock-times", track_caller)]
    fn new(lock: &'a SpinLock<T>) -> Self {
        Self {
            lock,
            #[cfg(all(feature = "lock-times", not(any(loom, quietline_sim))))]
            _hold: crate::lock_times::Hold::new(),
            not_send: PhantomData,
        }
    }
}

// SAFETY: a shared guard gives out no more than `&T`.
unsafe impl<T: Sync> Sync for SpinLockGuard<'_, T> {}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so nobody else has access, and the guard is borrowed while this is.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is borrowed uniquely while this is.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: fmt::Debug> fmt::Debug for SpinLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.lock.unlock();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
