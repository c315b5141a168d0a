//! The ring between two threads (`device/raw/spsc.rs`, the library's own source) in every interleaving: each value comes once, in
//! order, and no slot is used by both ends at a time, which the model's cells find out.
//!
//! # Faults that were planted
//!
//! Found by all models: either store of `publish` relaxed; either load relaxed (`room`, `available`); an index that is published before
//! the value is written, or before it is read. By `one_slot` and `two_slots_in_batches`: room for one more than there are slots.
#![cfg(loom)]
#![allow(unsafe_code)]

#[allow(dead_code)]
#[path = "../src/device/raw/spsc.rs"]
mod spsc;

use quietline_platform::{model, thread};
use spsc::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A number, which says when it is dropped.
struct Value(u32, Arc<AtomicUsize>);

impl Drop for Value {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

fn produce(
    mut to: Producer<Value>,
    numbers: std::ops::Range<u32>,
    batch: usize,
    dropped: Arc<AtomicUsize>,
) {
    let mut next = numbers.start;
    while next < numbers.end {
        let n = to.room(batch.min((numbers.end - next) as usize));
        for _ in 0..n {
            to.push(Value(next, dropped.clone()));
            next += 1;
        }
        if n == 0 {
            thread::yield_now();
        } else {
            to.publish();
        }
    }
}

fn consume(from: &mut Consumer<Value>, numbers: std::ops::Range<u32>, batch: usize) {
    let mut next = numbers.start;
    while next < numbers.end {
        let n = from.available(batch.min((numbers.end - next) as usize));
        for _ in 0..n {
            assert_eq!(from.pop().0, next);
            next += 1;
        }
        if n == 0 {
            thread::yield_now();
        } else {
            from.publish();
        }
    }
}

/// `values` through a ring of `size`, `batch` at a time, of which the last `left` stay inside. The producer is the thread that is
/// spawned, or the consumer is.
fn through(size: usize, values: u32, batch: usize, left: u32) {
    for spawn_producer in [true, false] {
        let orders = Arc::new(AtomicUsize::new(0));
        let counted = orders.clone();
        model(move || {
            counted.fetch_add(1, Relaxed);
            let dropped = Arc::new(AtomicUsize::new(0));
            let (to, mut from) = spsc::ring(size).unwrap();
            let end = dropped.clone();
            let producer = move || produce(to, 0..values, batch, end);
            if spawn_producer {
                let producer = thread::spawn(producer);
                consume(&mut from, 0..values - left, batch);
                producer.join().unwrap();
            } else {
                let consumer = thread::spawn(move || {
                    consume(&mut from, 0..values - left, batch);
                    from
                });
                producer();
                from = consumer.join().unwrap();
            }
            assert_eq!(dropped.load(Relaxed), (values - left) as usize);
            drop(from);
            assert_eq!(
                dropped.load(Relaxed),
                values as usize,
                "what is left ends with the ring, once"
            );
        });
        assert!(orders.load(Relaxed) > 4, "{} orders", orders.load(Relaxed));
    }
}

#[test]
fn one_slot() {
    through(1, 3, 1, 0);
}

#[test]
fn two_slots_one_at_a_time() {
    through(2, 3, 1, 0);
}

#[test]
fn two_slots_in_batches() {
    through(2, 4, 2, 0);
}

#[test]
fn what_nobody_takes() {
    through(2, 3, 2, 1);
}
