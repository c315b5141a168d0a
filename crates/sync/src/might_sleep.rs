//! Readers and sleep.

/// Asserts, in debug builds, that the calling thread has no RCU read-side critical section open in
/// any domain (`might_sleep`). Release builds do nothing.
///
/// # Readers that sleep
///
/// A thread that sleeps inside a section holds up every grace period of the domain for as long as
/// it sleeps. Nothing that any thread retires there is freed, and
/// [`Domain::synchronize`](crate::rcu::Domain::synchronize) does not return.
///
/// A [`WaitQueue`](crate::WaitQueue) asserts this itself, so calls of a `Process` that block
/// (`epoll_wait`, `read`, `accept`) report the mistake. The host's `epoll_wait`, `read` and `futex`
/// know nothing of sections: call `might_sleep` before them. Without it, the mistake appears as a
/// [stall report](crate::rcu::set_stall_handler) after ten seconds.
///
/// An event loop leaves the section, sleeps, and enters it again:
///
/// 1. Copy what must survive the sleep, with its generation: a number that the updater increments
///    with each version. References to protected objects cannot survive: they borrow the guard.
/// 2. Drop the guard, call `might_sleep`, sleep.
/// 3. Enter a new section and load the pointer again. If the generation is another one, derive
///    again what the copy was derived from. Comparing addresses is not enough: a new version may
///    be at the address of a freed one.
///
/// ```
/// use quietline_sync::{might_sleep, rcu};
/// use std::sync::atomic::{AtomicPtr, Ordering::{AcqRel, Acquire}};
///
/// struct Config { generation: u64, limit: u32 }
///
/// let domain = rcu::global()?;
/// let config = |generation, limit| Box::into_raw(Box::new(Config { generation, limit }));
/// let current = AtomicPtr::new(config(1, 10));
/// let look = || {
///     let _section = domain.read();
///     // SAFETY: found inside the section, so it is not freed before the section ends.
///     let config = unsafe { &*current.load(Acquire) };
///     (config.generation, config.limit)
/// };
/// let (generation, limit) = look();
/// might_sleep();
/// // epoll_wait(..) here: an updater is not held up.
/// let old = current.swap(config(2, 20), AcqRel);
/// domain.synchronize();
/// // SAFETY: unlinked, and a grace period has elapsed.
/// drop(unsafe { Box::from_raw(old) });
/// // Awake again.
/// assert_ne!(look(), (generation, limit));
/// # drop(unsafe { Box::from_raw(current.into_inner()) });
/// # Ok::<(), quietline_platform::AllocError>(())
/// ```
///
/// # Panics
/// In debug builds, if the thread has a section open. After any guard of the process was dropped by
/// another thread than opened its section, the counts are inexact and nothing is asserted.
#[inline]
#[track_caller]
pub fn might_sleep() {
    #[cfg(all(debug_assertions, not(any(loom, quietline_sim))))]
    crate::rcu::open_sections::assert_none();
}
