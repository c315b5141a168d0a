//! [`Seqcount`] in every interleaving.
//!
//! The main thread writes and the other reads: the model remembers only the last access to a word, and the writer's
//! own load before its store would hide the reader's from it.
#![cfg(loom)]

use std::sync::Arc;

use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{model, thread};
use quietline_sync::Seqcount;

#[derive(Default)]
struct Pair {
    seq: Seqcount,
    low: AtomicU32,
    high: AtomicU32,
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self { seq: Seqcount::new(), low: AtomicU32::new(0), high: AtomicU32::new(0) })
    }

    fn write(&self, value: u32) {
        let _section = self.seq.write();
        self.low.store(value, Ordering::Relaxed);
        self.high.store(value, Ordering::Relaxed);
    }
}

/// The Release fence of write with the Acquire fence of read_retry, and the Release store that ends a section with
/// the Acquire load that begins a read: no reader accepts a torn pair, whichever half it reads first.
#[test]
fn no_torn_pair() {
    model(|| {
        let pair = Pair::new();
        let reader = {
            let pair = pair.clone();
            thread::spawn(move || {
                if let Some(began) = pair.seq.read_try() {
                    let high = pair.high.load(Ordering::Relaxed);
                    let low = pair.low.load(Ordering::Relaxed);
                    if !pair.seq.read_retry(began) {
                        assert_eq!(low, high);
                    }
                }
            })
        };
        pair.write(1);
        pair.write(2);
        reader.join().unwrap();
    });
}

/// The same with the halves read in the order in which they are written, after waiting for the writer.
#[test]
fn waiting_reader_gets_a_whole_pair() {
    model(|| {
        let pair = Pair::new();
        let reader = {
            let pair = pair.clone();
            thread::spawn(move || {
                let began = pair.seq.read_begin();
                let low = pair.low.load(Ordering::Relaxed);
                let high = pair.high.load(Ordering::Relaxed);
                if !pair.seq.read_retry(began) {
                    assert_eq!(low, high);
                }
            })
        };
        pair.write(1);
        reader.join().unwrap();
        let began = pair.seq.read_begin();
        assert_eq!(pair.low.load(Ordering::Relaxed), 1);
        assert!(!pair.seq.read_retry(began));
    });
}
