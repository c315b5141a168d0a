//! [`Once`] in every interleaving.
#![cfg(loom)]

use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{AllocError, model, thread};
use quietline_sync::{Once, Shared};
use std::sync::Arc;

/// A value that is written, without ordering, before it is passed to [`Once::set`].
fn made(number: u32) -> Result<Shared<AtomicU32>, AllocError> {
    let value = Shared::new(AtomicU32::new(0))?;
    value.store(number, Ordering::Relaxed);
    Ok(value)
}

/// The Release of `set` with the Acquire of `get`: a thread that finds the value finds it made.
#[test]
fn a_value_that_is_found_is_made() {
    model(|| {
        let once = Arc::new(Once::<Shared<AtomicU32>>::empty());
        let other = once.clone();
        let setter = thread::spawn(move || {
            assert!(other.set(made(1).unwrap()).is_ok());
        });
        if let Some(value) = once.get() {
            assert_eq!(value.load(Ordering::Relaxed), 1);
        }
        setter.join().unwrap();
    });
}

/// Of two threads that set one succeeds, and both get its value. The other value is dropped: the
/// model sees what leaks.
#[test]
fn two_threads_get_one_value() {
    model(|| {
        let once = Arc::new(Once::<Shared<AtomicU32>>::empty());
        let other = once.clone();
        let late = thread::spawn(move || {
            other.get_or_try_set(|| made(2)).unwrap().load(Ordering::Relaxed)
        });
        let mine = once.get_or_try_set(|| made(1)).unwrap().load(Ordering::Relaxed);
        let theirs = late.join().unwrap();
        assert!(mine == theirs && matches!(mine, 1 | 2), "{mine} {theirs}");
    });
}
