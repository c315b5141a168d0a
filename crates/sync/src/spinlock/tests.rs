//! States that only a child process meets, or only a moment long.

use super::SpinLock;
use super::queue::pretence;

/// The child of a `fork` gets the lock held, with waiters that did not come along; it lets go and uses the lock,
/// uncontended and contended, as if they had never been.
#[test]
fn a_child_forgets_the_waiters() {
    let lock = SpinLock::new(1);
    // SAFETY: let go below.
    unsafe { lock.raw_lock() };
    lock.lock.pretend_that_threads_wait(pretence::EVERYTHING);
    assert!(lock.try_lock().is_none());
    // SAFETY: locked above, and no other thread knows the lock.
    unsafe { lock.raw_unlock_in_child() };
    *lock.try_lock().expect("free, with nobody waiting") += 1;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..1000).for_each(|_| *lock.lock() += 1));
        }
    });
    assert_eq!(lock.into_inner(), 3002);
}

/// A thread that runs does not wait for one that sleeps: between an unlock and the sleeper's first
/// look lies a wake-up, and the lock is free meanwhile. The sleeper is woken once, not again by
/// each further unlock.
#[test]
fn a_running_thread_passes_sleepers() {
    for waiters in [pretence::SPINNER_SLEEPS, pretence::HEAD_SLEEPS] {
        let lock = SpinLock::new(());
        let held = lock.lock();
        lock.lock.pretend_that_threads_wait(waiters);
        assert!(lock.lock.would_wake());
        drop(held);
        assert!(!lock.lock.would_wake());
        drop(lock.try_lock().expect("a sleeper does not keep the lock"));
    }
}

/// A spinner that has been passed over for long enough gets the lock, and no other thread does.
#[test]
fn a_demanded_lock_is_granted() {
    let lock = SpinLock::new(());
    let held = lock.lock();
    lock.lock.pretend_that_threads_wait(pretence::SPINNER_DEMANDS);
    drop(held);
    assert!(lock.lock.is_granted());
    assert!(lock.try_lock().is_none());
}
