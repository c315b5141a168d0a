//! What only a child process meets.

use super::SpinLock;

/// The child of a `fork` gets the lock held, with waiters that did not come along; it lets go and uses the lock,
/// uncontended and contended, as if they had never been.
#[test]
fn a_child_forgets_the_waiters() {
    let lock = SpinLock::new(1);
    // SAFETY: let go below.
    unsafe { lock.raw_lock() };
    lock.lock.pretend_that_threads_wait();
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
