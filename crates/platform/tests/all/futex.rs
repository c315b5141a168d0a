//! Parking: nobody sleeps who should not, and nobody sleeps for ever.
#![cfg(not(any(loom, quietline_sim)))]

use quietline_platform::{clock, futex};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

#[test]
fn another_value_does_not_sleep() {
    futex::wait(&AtomicU32::new(1), 2, None);
}

#[test]
fn a_timeout_ends_the_wait() {
    let word = AtomicU32::new(5);
    let wished = Duration::from_millis(15);
    let start = clock::monotonic();
    // A wait may end early without cause; one that does not has lasted at least as long as was wished.
    let longest = (0..3)
        .map(|_| {
            let start = clock::monotonic();
            futex::wait(&word, 5, Some(wished));
            clock::monotonic() - start
        })
        .max()
        .unwrap();
    assert!(longest >= wished, "{longest:?}");
    assert!(clock::monotonic() - start < Duration::from_secs(20));
    futex::wait(&word, 5, Some(Duration::ZERO));
}

/// Two threads hand a number back and forth; each sleeps whenever it is not its turn.
#[test]
fn no_wake_up_is_lost() {
    const ROUNDS: u32 = 10_000;
    let word = AtomicU32::new(0);
    let play = |parity: u32| {
        loop {
            let seen = word.load(SeqCst);
            if seen >= ROUNDS {
                return;
            }
            if seen % 2 == parity {
                word.store(seen + 1, SeqCst);
                futex::wake(&word, 1);
            } else {
                futex::wait(&word, seen, None);
            }
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| play(0));
        s.spawn(|| play(1));
    });
    assert_eq!(word.into_inner(), ROUNDS);
}

#[test]
fn all_are_woken() {
    const THREADS: u32 = 8;
    let (gate, through) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                while gate.load(SeqCst) == 0 {
                    futex::wait(&gate, 0, None);
                }
                through.fetch_add(1, SeqCst);
            });
        }
        gate.store(1, SeqCst);
        futex::wake(&gate, u32::MAX);
    });
    assert_eq!(through.into_inner(), THREADS);
}

/// A waiter that is woken may be gone, with its word, before the wake-up call is made.
#[test]
fn a_word_that_is_gone_may_be_woken() {
    let gone = Box::into_raw(Box::new(AtomicU32::new(0)));
    // SAFETY: boxed just above.
    drop(unsafe { Box::from_raw(gone) });
    futex::wake_raw(gone.cast(), 1);
    futex::wake_raw(std::ptr::without_provenance(64), 1);
}
