//! Read sections, and freeing after them: quietline's RCU beside crossbeam's epochs and a lock.

use std::convert::Infallible;
use std::fmt::Display;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, RwLock};

use crossbeam_epoch::{Collector, LocalHandle};
use quietline_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use quietline_platform::{AllocError, heap};
use quietline_sync::Counter;
use quietline_sync::rcu::{self, Domain};

use super::{Opened, marks, stage};
use crate::adapters::probe::failed;
use crate::harness::{Fault, Worker, looped, repeat};
use crate::raw::deferred::{Tracked, free_by_epoch, free_by_rcu};

/// What readers read.
const VALUE: u64 = 0x0123_4567_89ab_cdef;
const READ: &str = "a reader finds the value";
const FREED: &str = "frees cannot be wrong one by one; what lives is counted";

pub(super) fn read() -> Opened {
    let hire = |world: Arc<(Pin<Box<Domain>>, AtomicU64)>, _| {
        Ok(looped(READ, move || {
            let section = black_box(world.0.read());
            // Relaxed, here and below: the value never changes.
            let right = world.1.load(Ordering::Relaxed) == VALUE;
            drop(section);
            Ok::<_, Infallible>(right)
        }))
    };
    let domain = Domain::new().map_err(failed)?;
    Ok(stage((domain, AtomicU64::new(VALUE)), hire, |world| no_section(&world.0)))
}

/// Fails if a section is still open, which would keep a grace period from ending.
fn no_section(domain: &Domain) -> Result<(), Fault> {
    let seq = domain.start_poll_synchronize();
    // Without readers each poll is a step, and a grace period has few.
    let over = (0..1_000).any(|_| {
        domain.poll();
        domain.poll_state_synchronize(seq)
    });
    Fault::unless(over, || "a grace period does not end: a read section is still open".to_owned())
}

pub(super) fn epoch_read() -> Opened {
    let hire = |world: Arc<(Collector, AtomicU64)>, _| {
        let handle = world.0.register();
        let cycle = move |handle: &LocalHandle| {
            let pin = black_box(handle.pin());
            let right = world.1.load(Ordering::Relaxed) == VALUE;
            drop(pin);
            Ok::<_, Infallible>(right)
        };
        Ok(Box::new(Participant { handle, rule: READ, cycle }) as Box<dyn Worker>)
    };
    Ok(stage((Collector::new(), AtomicU64::new(VALUE)), hire, |_| Ok(())))
}

pub(super) fn rwlock_read() -> Opened {
    let hire = |world: Arc<RwLock<u64>>, _| {
        Ok(looped(READ, move || {
            let section = world.read().map_err(|_| "the lock is poisoned")?;
            let right = *section == VALUE;
            drop(section);
            Ok::<_, &str>(right)
        }))
    };
    Ok(stage(RwLock::new(VALUE), hire, |lock| {
        Fault::unless(lock.try_write().is_ok(), || "the lock is still held".to_owned())
    }))
}

/// Who frees, and how many objects live.
struct Freeing<R> {
    reclaimer: R,
    ledger: &'static Counter,
}

impl<R> Freeing<R> {
    /// The ledger stays for the life of the program, some bytes for each world: see [`Tracked`].
    fn new(reclaimer: R) -> Result<Self, Fault> {
        let ledger = Counter::with_batch(u32::MAX).map_err(failed)?;
        Ok(Self { reclaimer, ledger: Box::leak(heap::try_box(ledger).map_err(failed)?) })
    }

    fn none_lives(&self) -> Result<(), Fault> {
        let live = self.ledger.sum();
        Fault::unless(live == 0, || format!("{live} objects were not freed"))
    }
}

pub(super) fn call() -> Opened {
    let hire = |world: Arc<Freeing<Pin<Box<Domain>>>>, seat| {
        let mut mark = marks(seat);
        Ok(looped(FREED, move || {
            free_by_rcu(&world.reclaimer, Tracked::new(world.ledger, mark()))?;
            if world.reclaimer.is_pending() {
                rcu::run_pending(&[&world.reclaimer]);
            }
            Ok::<_, AllocError>(true)
        }))
    };
    let world = Freeing::new(Domain::new().map_err(failed)?)?;
    Ok(stage(world, hire, |world| {
        world.reclaimer.barrier();
        world.none_lives()
    }))
}

pub(super) fn epoch_call() -> Opened {
    let hire = |world: Arc<Freeing<Collector>>, seat| {
        let handle = world.reclaimer.register();
        let mut mark = marks(seat);
        let cycle = move |handle: &LocalHandle| {
            free_by_epoch(&handle.pin(), Tracked::new(world.ledger, mark()))?;
            Ok::<_, AllocError>(true)
        };
        Ok(Box::new(Participant { handle, rule: FREED, cycle }) as Box<dyn Worker>)
    };
    Ok(stage(Freeing::new(Collector::new())?, hire, |world| {
        drain(&world.reclaimer.register(), world.ledger);
        world.none_lives()
    }))
}

/// Lets epochs pass until all is freed, or nothing more is.
fn drain(handle: &LocalHandle, ledger: &Counter) {
    let (mut live, mut idle) = (ledger.sum(), 0);
    while live != 0 && idle < 100 {
        handle.pin().flush();
        let now = ledger.sum();
        idle = if now == live { idle + 1 } else { 0 };
        live = now;
    }
}

/// A thread that takes part in epochs, by a handle of its own.
struct Participant<C> {
    handle: LocalHandle,
    rule: &'static str,
    cycle: C,
}

impl<C, E> Worker for Participant<C>
where
    C: FnMut(&LocalHandle) -> Result<bool, E>,
    E: Display,
{
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let done = repeat(self.rule, ops, stop, || (self.cycle)(&self.handle))?;
        Fault::unless(!self.handle.is_pinned(), || "the thread is still pinned".to_owned())?;
        // What the thread has collected for itself goes where others can free it.
        self.handle.pin().flush();
        Ok(done)
    }
}
