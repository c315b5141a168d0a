//! Reference counts of one object that all threads share.

use std::convert::Infallible;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use quietline_platform::atomic::{AtomicI64, AtomicU64, Ordering};
use quietline_sync::{FileRef, Lockref};

use super::{Opened, stage};
use crate::harness::{Fault, looped};

const NOT_LAST: &str = "a reference that is put is not the last";

pub(super) fn lockref() -> Opened {
    let hire = |count: Arc<CachePadded<Lockref>>, _| {
        Ok(looped(NOT_LAST, move || {
            count.get();
            Ok::<_, Infallible>(count.put_return().is_some_and(|left| left >= 1))
        }))
    };
    Ok(stage(CachePadded::new(Lockref::new(1)), hire, |count| one_left(count.count().into())))
}

pub(super) fn cas_loop() -> Opened {
    let hire = |count: Arc<CachePadded<CasLockref>>, _| {
        Ok(looped(NOT_LAST, move || {
            count.get();
            Ok::<_, Infallible>(count.put_return() >= 1)
        }))
    };
    let count = CachePadded::new(CasLockref(AtomicU64::new(CasLockref::ONE)));
    Ok(stage(count, hire, |count| one_left(count.count())))
}

/// What the kernel does (`lib/lockref.c`), but for its going to the lock after a hundred failures: nobody ever
/// holds the lock here.
struct CasLockref(AtomicU64);

impl CasLockref {
    /// One reference: the count is the upper half, the lock the lower.
    const ONE: u64 = 1 << 32;
    const LOCK: u64 = Self::ONE - 1;

    #[inline(always)]
    fn get(&self) {
        // Relaxed: who takes a reference has the object already.
        self.change(|old| old + Self::ONE, Ordering::Relaxed);
    }

    /// How many are left.
    #[inline(always)]
    fn put_return(&self) -> u64 {
        // ORDERING: Release, so that it does what Lockref::put_return does; nobody here ends the object, so there is no
        // partner.
        self.change(|old| old - Self::ONE, Ordering::Release) >> 32
    }

    #[inline(always)]
    fn change(&self, to: impl Fn(u64) -> u64, order: Ordering) -> u64 {
        // Relaxed, here and on failure: a guess that the exchange confirms.
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            if old & Self::LOCK != 0 {
                spin_loop();
                old = self.0.load(Ordering::Relaxed);
                continue;
            }
            match self.0.compare_exchange_weak(old, to(old), order, Ordering::Relaxed) {
                Ok(_) => return to(old),
                Err(now) => old = now,
            }
        }
    }

    fn count(&self) -> i64 {
        // Relaxed: looked at between samples, which the threads' answers order.
        (self.0.load(Ordering::Relaxed) >> 32) as i64
    }
}

pub(super) fn arc() -> Opened {
    // Workers share an owner of the Arc, so that it has one owner while none of them clones it.
    let hire = |object: Arc<Arc<CachePadded<u64>>>, _| {
        Ok(looped("a clone is of the same object", move || {
            let clone = black_box(Arc::clone(&object));
            let right = Arc::ptr_eq(&clone, &object);
            drop(clone);
            Ok::<_, Infallible>(right)
        }))
    };
    Ok(stage(Arc::new(CachePadded::new(0)), hire, |object| {
        one_left(Arc::strong_count(object) as i64)
    }))
}

pub(super) fn file_ref() -> Opened {
    let hire = |count: Arc<CachePadded<FileRef>>, _| {
        Ok(looped(NOT_LAST, move || {
            let alive = count.get();
            Ok::<_, Infallible>(alive & !count.put())
        }))
    };
    let count = CachePadded::new(FileRef::dead());
    count.init(1);
    Ok(stage(count, hire, |count| one_left(count.count() as i64)))
}

pub(super) fn fetch_add() -> Opened {
    let hire = |count: Arc<CachePadded<AtomicI64>>, _| {
        Ok(looped(NOT_LAST, move || {
            // ORDERING: Acquire and Release, so that they do what FileRef's do; nobody here begins or ends an object,
            // so there are no partners.
            let alive = count.fetch_add(1, Ordering::Acquire) >= 1;
            Ok::<_, Infallible>(alive & (count.fetch_sub(1, Ordering::Release) >= 2))
        }))
    };
    // Relaxed: looked at between samples, which the threads' answers order.
    let settled = |count: &CachePadded<AtomicI64>| one_left(count.load(Ordering::Relaxed));
    Ok(stage(CachePadded::new(AtomicI64::new(1)), hire, settled))
}

fn one_left(count: i64) -> Result<(), Fault> {
    Fault::unless(count == 1, || format!("the count is {count}, not back at 1"))
}
