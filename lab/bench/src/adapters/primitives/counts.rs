//! A counter and a source of numbers: split among the CPUs, beside one word.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use quietline_platform::atomic::{AtomicI64, AtomicU64, Ordering};
use quietline_sync::{Counter, IdAllocator};

use super::worker::finishing;
use super::{Opened, stage};
use crate::adapters::probe::failed;
use crate::harness::{Fault, looped};

const COUNTED: &str = "additions cannot be wrong one by one; the sum is checked";

/// A counter, and what it must say: all operations of all samples.
struct Counted<C> {
    counter: C,
    expected: CachePadded<AtomicI64>,
}

impl<C> Counted<C> {
    fn new(counter: C) -> Self {
        Self { counter, expected: CachePadded::new(AtomicI64::new(0)) }
    }

    fn says(&self, sum: i64) -> Result<(), Fault> {
        // Relaxed, here and where it is added to: the threads' answers order the samples and the look between them.
        let expected = self.expected.load(Ordering::Relaxed);
        Fault::unless(sum == expected, || format!("the counter says {sum}, expected {expected}"))
    }
}

pub(super) fn counter() -> Opened {
    let hire = |world: Arc<Counted<Counter>>, _| {
        let shared = world.clone();
        let worker = looped(COUNTED, move || {
            shared.counter.inc();
            shared.counter.dec();
            Ok::<_, Infallible>(true)
        });
        Ok(finishing(worker, move |done| {
            world.counter.add(done as i64);
            world.expected.fetch_add(done as i64, Ordering::Relaxed);
            Ok(())
        }))
    };
    let counter = Counter::new().map_err(failed)?;
    Ok(stage(Counted::new(counter), hire, |world| world.says(world.counter.sum())))
}

pub(super) fn fetch_add_counter() -> Opened {
    type World = Counted<CachePadded<AtomicI64>>;
    let hire = |world: Arc<World>, _| {
        let shared = world.clone();
        // Relaxed: a statistic; this is the cheapest that a shared word can be.
        let worker = looped(COUNTED, move || {
            shared.counter.fetch_add(1, Ordering::Relaxed);
            shared.counter.fetch_sub(1, Ordering::Relaxed);
            Ok::<_, Infallible>(true)
        });
        Ok(finishing(worker, move |done| {
            world.counter.fetch_add(done as i64, Ordering::Relaxed);
            world.expected.fetch_add(done as i64, Ordering::Relaxed);
            Ok(())
        }))
    };
    let counter = CachePadded::new(AtomicI64::new(0));
    Ok(stage(Counted::new(counter), hire, |world: &World| {
        world.says(world.counter.load(Ordering::Relaxed))
    }))
}

const FRESH: &str = "a number is not 0, nor the one before";

/// Numbers of which none may occur twice, before any is timed.
const DISTINCT: usize = 5_000;

pub(super) fn ids() -> Opened {
    let hire = |ids: Arc<IdAllocator>, _| {
        let mut last = 0;
        Ok(looped(FRESH, move || {
            let before = std::mem::replace(&mut last, ids.next());
            Ok::<_, Infallible>((last != 0) & (last != before))
        }))
    };
    let ids = IdAllocator::new().map_err(failed)?;
    distinct(|| ids.next().into())?;
    Ok(stage(ids, hire, numbers_are_gone))
}

pub(super) fn fetch_add_ids() -> Opened {
    let hire = |next: Arc<CachePadded<AtomicU64>>, _| {
        let mut last = 0;
        Ok(looped(FRESH, move || {
            // Relaxed: a number is its own only message.
            let before = std::mem::replace(&mut last, next.fetch_add(1, Ordering::Relaxed));
            Ok::<_, Infallible>((last != 0) & (last != before))
        }))
    };
    let next = CachePadded::new(AtomicU64::new(1));
    distinct(|| next.fetch_add(1, Ordering::Relaxed))?;
    Ok(stage(next, hire, numbers_are_gone))
}

fn distinct(next: impl FnMut() -> u64) -> Result<(), Fault> {
    let numbers: HashSet<u64> = std::iter::repeat_with(next).take(DISTINCT).collect();
    Fault::unless(numbers.len() == DISTINCT && !numbers.contains(&0), || {
        format!("{DISTINCT} numbers were {} different ones, or 0 among them", numbers.len())
    })
}

/// Nobody keeps a number, so nothing can be left behind.
fn numbers_are_gone<W>(_: &W) -> Result<(), Fault> {
    Ok(())
}
