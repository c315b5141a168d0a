//! One epoll that all threads have in common, on any system: each thread has event counters of its own, and one epoll watches all.
//!
//! Where threads wake an epoll at once, Linux has them meet at `ep->lock`; where they ask it at once, at `ep->mtx` too.

use std::sync::Arc;

use quietline_platform::atomic::{AtomicBool, AtomicU64, Ordering};

use super::system::{Control, MAX_EVENTS, System};
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Worker, repeat};
use crate::workloads::Channel;

/// Counters of each thread, as `perf bench epoll wait` has them.
const COUNTERS: usize = 64;

/// The arena: all counters, the epoll, and what was added and taken.
pub(super) struct Shared<S: System>(Arc<Inside<S>>);

struct Inside<S: System> {
    system: S,
    /// `thread * COUNTERS + n`.
    counters: Vec<Arc<S::Fd>>,
    epoll: S::Fd,
    /// Whether who writes also asks the epoll, and takes what it tells of.
    asks: bool,
    added: AtomicU64,
    taken: AtomicU64,
}

impl<S: System> Shared<S> {
    pub(super) fn new(system: S, threads: usize, asks: bool) -> Result<Self, S::Error> {
        let epoll = system.epoll()?;
        let mut counters = Vec::new();
        for n in 0..threads * COUNTERS {
            let [counter, _] = system.channel(Channel::Eventfd)?;
            system.control(&epoll, &counter, Control::Add(n as u64))?;
            counters.push(counter);
        }
        let (added, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self(Arc::new(Inside { system, counters, epoll, asks, added, taken })))
    }
}

impl<S: System> Inside<S> {
    /// What a counter has, if anything.
    #[inline(always)]
    fn empty(&self, counter: usize) -> Result<u64, S::Error> {
        let mut room = [0; 8];
        match self.system.read(&self.counters[counter], &mut room) {
            Ok(8) => Ok(u64::from_ne_bytes(room)),
            // Another thread was told of the same, and was faster.
            Err(error) if S::would_wait(&error) => Ok(0),
            Err(error) => Err(error),
            Ok(n) => unreachable!("an eventfd gave {n} bytes"),
        }
    }

    /// Takes what the epoll tells of: how much.
    #[inline(always)]
    fn take(&self) -> Result<u64, S::Error> {
        let mut told = [0; MAX_EVENTS];
        let n = self.system.wait(&self.epoll, &mut told)?;
        told[..n].iter().try_fold(0, |taken, &counter| Ok(taken + self.empty(counter as usize)?))
    }
}

impl<S: System> Arena for Shared<S> {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let first = seat.thread * COUNTERS;
        Ok(Box::new(Writer { inside: self.0.clone(), first, next: 0, added: 0, taken: 0 }))
    }

    /// What was added was taken, or is found now by way of the epoll.
    fn settle(&self) -> Result<(), Fault> {
        let inside = &*self.0;
        // Relaxed, all: no worker runs.
        loop {
            match inside.take().map_err(failed)? {
                0 => break,
                n => inside.taken.fetch_add(n, Ordering::Relaxed),
            };
        }
        let [added, taken] = [&inside.added, &inside.taken].map(|n| n.load(Ordering::Relaxed));
        Fault::unless(added == taken, || {
            format!("{added} was added to the counters, and {taken} taken")
        })
    }
}

struct Writer<S: System> {
    inside: Arc<Inside<S>>,
    first: usize,
    next: usize,
    added: u64,
    taken: u64,
}

impl<S: System> Worker for Writer<S> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let Self { inside, first, next, added, taken } = self;
        repeat("eight bytes go into a counter", ops, stop, || {
            let counter = *first + *next;
            *next = (*next + 1) % COUNTERS;
            let n = inside.system.write(&inside.counters[counter], &1_u64.to_ne_bytes())?;
            *added += 1;
            *taken += if inside.asks { inside.take()? } else { inside.empty(counter)? };
            Ok::<_, S::Error>(n == 8)
        })
    }

    fn check(&mut self) -> Result<(), Fault> {
        // Relaxed: counts, which are compared when no worker runs.
        self.inside.added.fetch_add(core::mem::take(&mut self.added), Ordering::Relaxed);
        self.inside.taken.fetch_add(core::mem::take(&mut self.taken), Ordering::Relaxed);
        Ok(())
    }
}
