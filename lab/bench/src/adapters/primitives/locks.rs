//! Locks around a number that all threads count up.

use std::convert::Infallible;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_sync::SpinLock;

use super::worker::finishing;
use super::{Opened, stage};
use crate::harness::{Fault, looped};

pub(super) fn spinlock() -> Opened {
    opened(SpinLock::new(0))
}

pub(super) fn std_mutex() -> Opened {
    opened(Mutex::new(0))
}

pub(super) fn parking_lot() -> Opened {
    opened(parking_lot::Mutex::new(0))
}

/// A lock around a number.
trait Lock: Send + Sync + 'static {
    fn lock(&self) -> impl DerefMut<Target = u64>;
}

impl Lock for SpinLock<u64> {
    #[inline(always)]
    fn lock(&self) -> impl DerefMut<Target = u64> {
        self.lock()
    }
}

impl Lock for Mutex<u64> {
    #[inline(always)]
    fn lock(&self) -> impl DerefMut<Target = u64> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lock for parking_lot::Mutex<u64> {
    #[inline(always)]
    fn lock(&self) -> impl DerefMut<Target = u64> {
        self.lock()
    }
}

/// A lock, and what its number must be: all operations of all samples.
struct Locked<L> {
    number: CachePadded<L>,
    expected: CachePadded<AtomicU64>,
}

fn opened<L: Lock>(number: L) -> Opened {
    let hire = |world: Arc<Locked<L>>, _| {
        let shared = world.clone();
        let mut last = 0;
        let worker = looped("the number rises", move || {
            let mut number = shared.number.lock();
            *number += 1;
            let before = std::mem::replace(&mut last, *number);
            drop(number);
            Ok::<_, Infallible>(before < last)
        });
        Ok(finishing(worker, move |done| {
            // Relaxed, here and below: the threads' answers order the samples and the look between them.
            world.expected.fetch_add(done, Ordering::Relaxed);
            Ok(())
        }))
    };
    let world =
        Locked { number: CachePadded::new(number), expected: CachePadded::new(AtomicU64::new(0)) };
    Ok(stage(world, hire, |world: &Locked<L>| {
        let (number, expected) = (*world.number.lock(), world.expected.load(Ordering::Relaxed));
        Fault::unless(number == expected, || format!("the number is {number}, expected {expected}"))
    }))
}
