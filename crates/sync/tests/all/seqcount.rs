//! [`Seqcount`]: one thread, then many.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use quietline_sync::Seqcount;

#[test]
fn one_thread() {
    let seq = Seqcount::new();
    // Across the wrap-around, which debug builds start next to.
    for _ in 0..5 {
        let began = seq.read_begin();
        assert!(!seq.read_retry(began));
        {
            let _section = seq.write();
            assert_eq!(seq.read_try(), None);
            assert!(seq.read_retry(began));
        }
        assert!(seq.read_retry(began));
    }
}

#[test]
#[cfg(debug_assertions)]
fn two_writers_panic() {
    let seq = Seqcount::new();
    let _section = seq.write();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(seq.write()))).is_err());
}

/// No reader accepts a torn set of words, and readers do get through.
#[test]
fn stress_no_torn_reads() {
    const WRITES: u64 = 200_000;
    let seq = Seqcount::new();
    let words: [AtomicU64; 4] = Default::default();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut accepted, mut last) = (0u64, 0);
                while !done.load(Ordering::Relaxed) || accepted == 0 {
                    let began = seq.read_begin();
                    let read: [u64; 4] = std::array::from_fn(|i| words[i].load(Ordering::Relaxed));
                    if !seq.read_retry(began) {
                        assert!(read.iter().all(|&word| word == read[0]), "{read:?}");
                        assert!(read[0] >= last, "time went backwards");
                        last = read[0];
                        accepted += 1;
                    }
                }
            });
        }
        for value in 1..=WRITES {
            let _section = seq.write();
            for word in &words {
                word.store(value, Ordering::Relaxed);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
