//! Retirement under the model checker: values in pointers, indices in a queue, the last handle of a
//! domain. The content of a value is a loom cell, so a drop that is not ordered after a reader's
//! access is an error.
//!
//! Planted faults that the models find: `Pointer::load` relaxed, and `Pointer::replace` without
//! release (a reader finds a value without its content); `Storage::retire` that drops at once;
//! `RetireQueue::pop` that does not ask for the grace period, and `push` that requests none; a last
//! handle that does not see what the other one did.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use quietline_platform::cpu;
use quietline_sync::rcu::{Domain, DomainHandle, Pointer, RcuBox, RetireQueue};
use std::sync::Arc;
use std::sync::atomic;

const DEAD: u64 = u64::MAX;

/// A value that writes its content when it is dropped.
struct Value {
    content: UnsafeCell<u64>,
    /// Outside the model: read when all threads have ended.
    drops: Arc<atomic::AtomicUsize>,
}

// SAFETY: the model watches every access to the cell.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn new(content: u64, drops: &Arc<atomic::AtomicUsize>) -> Self {
        Self { content: UnsafeCell::new(content), drops: drops.clone() }
    }

    fn read(&self) -> u64 {
        // SAFETY: loom finds a write that is not ordered.
        self.content.with(|content| unsafe { *content })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: loom finds an access that is not ordered.
        self.content.with_mut(|content| unsafe { *content = DEAD });
        self.drops.fetch_add(1, atomic::Ordering::Relaxed);
    }
}

fn check(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 20_000;
    model.check(f);
}

/// A reader beside an updater: the value is whole when it is found, and alive until the section
/// ends.
#[test]
fn a_pointer_beside_a_reader() {
    check(3, || {
        let drops = Arc::new(atomic::AtomicUsize::new(0));
        let domain = Domain::leaked().unwrap();
        let new = |content| RcuBox::new(domain, Value::new(content, &drops)).unwrap();
        let pointer = Arc::new(Pointer::new(new(1)));
        let reader = {
            let pointer = pointer.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                let section = domain.read();
                let value = pointer.load(&section).expect("never empty");
                assert!((1..=2).contains(&value.read()));
            })
        };
        drop(pointer.replace(new(2)));
        domain.barrier();
        assert_eq!(drops.load(atomic::Ordering::Relaxed), 1);
        reader.join().unwrap();
        drop(pointer);
        domain.barrier();
        assert_eq!(drops.load(atomic::Ordering::Relaxed), 2);
    });
}

/// Two slots, the index of one of which readers use. The other one is written only after its index
/// has come back from the queue.
#[test]
fn a_queue_of_indices_beside_a_reader() {
    struct Table {
        slots: [UnsafeCell<u64>; 2],
        current: AtomicUsize,
    }
    // SAFETY: the model watches every access to the cells.
    unsafe impl Send for Table {}
    // SAFETY: as above.
    unsafe impl Sync for Table {}
    check(3, || {
        let domain = Domain::leaked().unwrap();
        let table = Arc::new(Table {
            slots: [UnsafeCell::new(1), UnsafeCell::new(2)],
            current: AtomicUsize::new(0),
        });
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                let section = domain.read();
                // Relaxed: both slots are written before the threads begin.
                let slot = &table.slots[table.current.load(Relaxed)];
                // SAFETY: loom finds a write that is not ordered.
                let content = slot.with(|content| unsafe { *content });
                assert_ne!(content, DEAD);
                drop(section);
            })
        };
        let mut queue = RetireQueue::new(domain, 1).unwrap();
        table.current.store(1, Relaxed);
        queue.push(0).unwrap();
        let slot = queue.pop().or_else(|| queue.pop()).or_else(|| queue.pop_wait());
        let slot = &table.slots[slot.expect("it was pushed")];
        // SAFETY: loom finds an access that is not ordered.
        slot.with_mut(|content| unsafe { *content = DEAD });
        reader.join().unwrap();
    });
}

/// Two threads with handles of a domain, one of which has retired a value. The last handle, of
/// either thread, ends the domain with the value, once.
#[test]
fn the_last_handle_ends_the_domain() {
    check(3, || {
        let drops = Arc::new(atomic::AtomicUsize::new(0));
        let handle = DomainHandle::new().unwrap();
        let other = handle.clone();
        let value = Value::new(1, &drops);
        let thread = thread::spawn(move || {
            cpu::migrate(1);
            let section = other.read();
            other.retire(value).unwrap();
            drop(section);
        });
        handle.poll();
        drop(handle);
        thread.join().unwrap();
        assert_eq!(drops.load(atomic::Ordering::Relaxed), 1);
    });
}
