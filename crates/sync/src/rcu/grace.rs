//! The grace-period machine: a state that any thread moves on, one at a time.

use super::callbacks::Callbacks;
use super::{PER_EDITION, PER_GENERATION, WORDS};
use crate::SpinLock;
use quietline_platform::atomic::{AtomicU64, Ordering, fence};
use quietline_platform::percpu::Words;

/// Grace periods are numbered from 1.
#[derive(Debug)]
pub(super) struct Grace {
    /// The highest number that has begun. Written before the edition is flipped.
    begun: AtomicU64,
    /// The highest number that is over.
    completed: AtomicU64,
    state: SpinLock<State>,
}

#[derive(Debug)]
struct State {
    /// While a grace period is on: the old edition's *entered* index, and how often it was entered.
    waiting: Option<(usize, u64)>,
    /// First word of the generation in use.
    generation: usize,
}

impl Grace {
    pub(super) fn new() -> Self {
        // Debug builds start near the wrap-around of 32 bits, where a truncation would show.
        let start = if cfg!(debug_assertions) { u64::from(u32::MAX) - 2 } else { 0 };
        Self {
            begun: AtomicU64::new(start),
            completed: AtomicU64::new(start),
            state: SpinLock::new(State { waiting: None, generation: 0 }),
        }
    }

    /// The number of the grace period that covers everything the caller did before.
    pub(super) fn cookie(&self) -> u64 {
        // ORDERING: pairs with the fence in `begin`. Either this reads the number that `begin` stored, and asks for
        // the next one; or that grace period's flip comes after what the caller wrote, and it covers the caller.
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::Relaxed) + 1
    }

    pub(super) fn completed(&self) -> u64 {
        // ORDERING: pairs with the release in `advance`: what readers did in sections now over happened before.
        self.completed.load(Ordering::Acquire)
    }

    /// One step, unless another thread is making one: ends the grace period that is on if its readers have left;
    /// begins another while `wanted` is not reached.
    pub(super) fn advance(
        &self,
        readers: &Words<WORDS>,
        edition: &AtomicU64,
        callbacks: &Callbacks,
        wanted: u64,
    ) {
        let Some(mut state) = self.state.try_lock() else { return };
        if let Some((old, entered)) = state.waiting {
            if left(readers, old) != entered {
                return;
            }
            state.waiting = None;
            // Relaxed load: only the lock's holder writes it.
            let number = self.completed.load(Ordering::Relaxed) + 1;
            // ORDERING: pairs with the acquire in `completed`; this thread saw the readers leave.
            self.completed.store(number, Ordering::Release);
        }
        // Relaxed: as above.
        let completed = self.completed.load(Ordering::Relaxed);
        if completed < wanted && (wanted != u64::MAX || callbacks.wanted(completed)) {
            self.begin(&mut state, readers, edition, callbacks);
        }
    }

    fn begin(&self, state: &mut State, readers: &Words<WORDS>, edition: &AtomicU64, callbacks: &Callbacks) {
        // Relaxed: only the lock's holder writes it; the fence below orders it.
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Relaxed);
        // ORDERING: pairs with the fence in `cookie`, as is said there.
        fence(Ordering::SeqCst);
        // Relaxed: only the lock's holder writes it.
        let old = edition.load(Ordering::Relaxed) as usize;
        let new = state.generation + (old - state.generation + PER_EDITION) % PER_GENERATION;
        // ORDERING: pairs with the acquire load of the edition inside a reader's sequence: a reader of the new
        // edition sees everything that the callers of `cookie` wrote before this grace period began.
        edition.store(new as u64, Ordering::Release);
        callbacks.flip();
        // Nobody enters the old edition any more, nobody queues on the old lists, and all of that is visible.
        readers.fence();
        callbacks.collect(number);
        state.waiting = Some((old, readers.sum(old)));
    }

    #[cfg(not(loom))]
    pub(super) fn fork_before(&self) {
        // SAFETY: `fork_after` follows in the same thread, in parent and child.
        unsafe { self.state.raw_lock() };
    }

    /// In the child no reader but the caller's own is left, and its guards count in a generation that is over.
    #[cfg(not(loom))]
    pub(super) fn fork_after(&self, child: bool, readers: &Words<WORDS>, edition: &AtomicU64) {
        if !child {
            // SAFETY: taken by `fork_before` in this thread.
            unsafe { self.state.raw_unlock() };
            return;
        }
        // SAFETY: the only thread of the child; its counterpart holds the lock.
        unsafe { self.state.raw_unlock_in_child() };
        let mut state = self.state.lock();
        state.generation = (state.generation + PER_GENERATION) % WORDS;
        for index in state.generation..state.generation + PER_GENERATION {
            // Relaxed, so below: there is no other thread.
            (0..readers.cpus()).for_each(|cpu| readers.word(cpu, index).store(0, Ordering::Relaxed));
        }
        edition.store(state.generation as u64, Ordering::Relaxed);
        if state.waiting.take().is_some() {
            self.completed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sections of an edition that have ended.
fn left(readers: &Words<WORDS>, entered: usize) -> u64 {
    // ORDERING: pairs with the release of a reader's last addition: a section that is counted here has done all its
    // reading. A section that is not counted is waited for.
    (0..readers.cpus())
        .fold(0u64, |sum, cpu| sum.wrapping_add(readers.word(cpu, entered + 1).load(Ordering::Acquire)))
}

/// How a waiter spends its time: turning, then giving way, then sleeping.
pub(super) struct Wait {
    turns: u32,
    #[cfg(not(loom))]
    stall: super::stall::Watch,
}

impl Wait {
    pub(super) fn new() -> Self {
        Self {
            turns: 0,
            #[cfg(not(loom))]
            stall: super::stall::Watch::new(),
        }
    }

    #[cfg(loom)]
    pub(super) fn pause(&mut self, _domain: &super::Domain) {
        self.turns += 1;
        quietline_platform::thread::yield_now();
    }

    #[cfg(not(loom))]
    pub(super) fn pause(&mut self, domain: &super::Domain) {
        const SPINS: u32 = 50;
        const YIELDS: u32 = 200;
        self.turns = self.turns.saturating_add(1);
        if self.turns < SPINS {
            quietline_platform::hint::spin_loop();
        } else if self.turns < YIELDS {
            quietline_platform::thread::yield_now();
        } else {
            let nobody = AtomicU32::new(0);
            futex::wait(&nobody, 0, Some(Duration::from_micros(100)));
            self.stall.look(domain);
        }
    }
}

/// A bound on how long a queuer is slowed down.
pub(super) struct Bound {
    #[cfg(not(loom))]
    until: Duration,
}

impl Bound {
    #[cfg(not(loom))]
    pub(super) fn new() -> Self {
        Self { until: quietline_platform::clock::monotonic() + Duration::from_millis(10) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {}
    }

    #[cfg(not(loom))]
    pub(super) fn passed(&self, _: &Wait) -> bool {
        quietline_platform::clock::monotonic() >= self.until
    }

    #[cfg(loom)]
    pub(super) fn passed(&self, wait: &Wait) -> bool {
        wait.turns > 2
    }
}

#[cfg(not(loom))]
use {quietline_platform::atomic::AtomicU32, quietline_platform::futex, std::time::Duration};
