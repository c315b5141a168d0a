//! The grace-period machine: a state that any thread moves on, one at a time.

use super::{Domain, PER_GENERATION, PER_INDEX, WORDS};
use crate::SpinLock;
use quietline_platform::FenceError;
use quietline_platform::atomic::{AtomicU64, Ordering, fence};
use quietline_platform::percpu::Words;

/// The sequence number of a grace period of a domain (`rcu_seq`), from
/// [`Domain::start_poll_synchronize`] or [`Domain::get_state_synchronize`]. The default is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpSeq(u64);

impl GpSeq {
    /// Returns the number as an integer, not 0 for a number that a domain gave.
    pub fn into_raw(self) -> u64 {
        self.0
    }

    /// Returns the sequence number behind an integer of [`into_raw`](Self::into_raw).
    pub fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number of the grace period that follows.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The state of a domain's grace periods, which are numbered from 1.
#[derive(Debug)]
pub(super) struct Grace {
    /// The highest number that has begun. Written before the index is flipped.
    begun: AtomicU64,
    /// The highest number that is over.
    completed: AtomicU64,
    /// The highest number that was requested.
    requested: AtomicU64,
    state: SpinLock<State>,
    #[cfg(not(loom))]
    pub(super) watch: super::stall::Watch,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// First word of the generation in use.
    generation: usize,
}

/// How far the last grace period that has begun has come.
///
/// ```text
///   Over ──flip──> Flipped ──fence──> Waiting ──readers left──> Over
///                   \__/ a refused fence is repeated, by whichever thread comes next
/// ```
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// It is over, or there was none.
    Over,
    /// The index and the callbacks' half are flipped. Sections that are being entered may still
    /// count in the old pair of counters, whose *entered* word this is, and callbacks may still be
    /// pushed on the old half.
    Flipped(usize),
    /// The old pair's *entered* word, and the number of sections entered there.
    Waiting(usize, u64),
}

/// What a grace period would be begun for.
#[derive(Clone, Copy)]
pub(super) enum Want {
    /// A waiter for this grace period.
    Seq(GpSeq),
    /// A full batch: when enough has come together, or for a request.
    Batch,
    /// Any callback at all, or a request.
    Any,
}

impl Grace {
    pub(super) fn new() -> Self {
        // Debug builds start near the wrap-around of 32 bits, where a truncation would show.
        let start = if cfg!(debug_assertions) { u64::from(u32::MAX) - 2 } else { 0 };
        Self {
            begun: AtomicU64::new(start),
            completed: AtomicU64::new(start),
            requested: AtomicU64::new(start),
            state: SpinLock::new(State { phase: Phase::Over, generation: 0 }),
            #[cfg(not(loom))]
            watch: super::stall::Watch::new(),
        }
    }

    /// Returns the sequence number of the grace period that covers what the caller did before.
    pub(super) fn snapshot(&self) -> GpSeq {
        // ORDERING: pairs with the fence in `begin`. Either this reads the number that `begin` stored, and asks for
        // the next one; or that grace period's flip comes after what the caller wrote, and it covers the caller.
        fence(Ordering::SeqCst);
        GpSeq(self.begun.load(Ordering::Relaxed) + 1)
    }

    /// [`snapshot`](Self::snapshot), and requests that grace period.
    pub(super) fn request(&self) -> GpSeq {
        let seq = self.snapshot();
        // Relaxed, here and where it is read: a wish, which orders nothing. The line is written once per number.
        if self.requested.load(Ordering::Relaxed) < seq.0 {
            self.requested.fetch_max(seq.0, Ordering::Relaxed);
        }
        seq
    }

    pub(super) fn completed(&self) -> GpSeq {
        // ORDERING: pairs with the release in `complete`: what readers did in sections now over
        // happened before.
        GpSeq(self.completed.load(Ordering::Acquire))
    }

    /// Since when a grace period has been on that is not over: its number.
    #[cfg(not(loom))]
    pub(super) fn unfinished(&self) -> Option<u64> {
        // ORDERING: pairs with the release in `begin`: what the watch holds is of this grace period or a later one.
        let begun = self.begun.load(Ordering::Acquire);
        (self.completed().0 < begun).then_some(begun)
    }

    /// One step, unless another thread is making one: ends the grace period that is on if its readers have left;
    /// begins another if it is wanted, and ends it at once if nobody is inside.
    pub(super) fn advance(&self, domain: &Domain, want: Want) {
        let Some(mut state) = self.state.try_lock() else { return };
        if self.finish(&mut state, domain) && self.is_wanted(domain, want) {
            self.begin(&mut state, domain);
            self.finish(&mut state, domain);
        }
    }

    /// Moves the grace period that is on forward as far as it can go without waiting. Returns
    /// whether none is on.
    fn finish(&self, state: &mut State, domain: &Domain) -> bool {
        if let Phase::Flipped(old) = state.phase {
            if self.fence(domain).is_err() {
                return false;
            }
            self.fenced(state, domain, old);
        }
        if let Phase::Waiting(old, entered) = state.phase {
            if left(&domain.readers.counts, old) != entered {
                return false;
            }
            self.complete(state);
        }
        true
    }

    #[cfg(not(loom))]
    fn fence(&self, domain: &Domain) -> Result<(), FenceError> {
        let (fenced, cost) = self.watch.time(|| domain.readers.counts.fence());
        self.watch.set_refused(fenced.is_err());
        fenced.map(|()| domain.callbacks.tune(cost))
    }

    /// The model fences one set of words at a time; the machine's barrier is for all.
    #[cfg(loom)]
    fn fence(&self, domain: &Domain) -> Result<(), FenceError> {
        domain.readers.counts.fence()?;
        domain.callbacks.fence()
    }

    /// The fence after the flip has succeeded: no section is entered at the old index any more,
    /// no callback is pushed on the old half, and all of that is visible.
    fn fenced(&self, state: &mut State, domain: &Domain, old: usize) {
        state.phase = Phase::Waiting(old, domain.readers.counts.sum(old));
        // Relaxed: only the lock's holder writes it.
        domain.callbacks.collect(self.begun.load(Ordering::Relaxed));
    }

    fn complete(&self, state: &mut State) {
        state.phase = Phase::Over;
        // Relaxed load: only the lock's holder writes it.
        let number = self.completed.load(Ordering::Relaxed) + 1;
        // ORDERING: pairs with the acquire in `completed`; this thread saw the readers leave.
        self.completed.store(number, Ordering::Release);
    }

    fn is_wanted(&self, domain: &Domain, want: Want) -> bool {
        // Relaxed: only the lock's holder writes it.
        let completed = self.completed.load(Ordering::Relaxed);
        let requested = || completed < self.requested.load(Ordering::Relaxed);
        match want {
            Want::Seq(seq) => completed < seq.0,
            Want::Batch => domain.callbacks.worthwhile() || requested(),
            Want::Any => requested() || domain.callbacks.wanted(),
        }
    }

    fn begin(&self, state: &mut State, domain: &Domain) {
        let current = &domain.readers.index;
        #[cfg(not(loom))]
        self.watch.restart();
        // Relaxed load: only the lock's holder writes it.
        let number = self.begun.load(Ordering::Relaxed) + 1;
        // ORDERING: pairs with the acquire in `unfinished`, as is said there. Nothing else needs it: see the fence.
        self.begun.store(number, Ordering::Release);
        // ORDERING: pairs with the fence in `snapshot`, as is said there.
        fence(Ordering::SeqCst);
        // Relaxed: only the lock's holder writes it.
        let old = current.load(Ordering::Relaxed) as usize;
        let new = state.generation + (old - state.generation + PER_INDEX) % PER_GENERATION;
        // ORDERING: pairs with the acquire load of the index inside a reader's sequence: a reader
        // of the new index sees everything that the callers of `snapshot` wrote before this grace
        // period began. A reader of the old one is counted below, and waited for.
        current.store(new as u64, Ordering::Release);
        domain.callbacks.flip();
        state.phase = Phase::Flipped(old);
    }

    #[cfg(not(loom))]
    pub(super) fn fork_before(&self) {
        // SAFETY: `fork_after` follows in the same thread, in parent and child.
        unsafe { self.state.raw_lock() };
    }

    /// In the child no reader but the caller's own is left, and its guards count in a generation that is over.
    #[cfg(not(loom))]
    pub(super) fn fork_after(&self, child: bool, domain: &Domain) {
        if !child {
            // SAFETY: taken by `fork_before` in this thread.
            unsafe { self.state.raw_unlock() };
            return;
        }
        // SAFETY: the only thread of the child; its counterpart holds the lock.
        unsafe { self.state.raw_unlock_in_child() };
        let counts = &domain.readers.counts;
        let mut state = self.state.lock();
        // There is no other thread: nothing needs a fence, and no section is waited for.
        if let Phase::Flipped(old) = state.phase {
            self.fenced(&mut state, domain, old);
        }
        if let Phase::Waiting(..) = state.phase {
            self.complete(&mut state);
        }
        state.generation = (state.generation + PER_GENERATION) % WORDS;
        for index in state.generation..state.generation + PER_GENERATION {
            counts.swap_all(index, 0, |_| ());
        }
        // Relaxed: there is no other thread.
        domain.readers.index.store(state.generation as u64, Ordering::Relaxed);
    }
}

/// Returns the number of sections of a counter pair that have ended.
fn left(counts: &Words<WORDS>, entered: usize) -> u64 {
    // ORDERING: pairs with the release of a reader's last addition: a section that is counted here has done all its
    // reading. A section that is not counted is waited for.
    (0..counts.cpus()).fold(0u64, |sum, cpu| {
        sum.wrapping_add(counts.word(cpu, entered + 1).load(Ordering::Acquire))
    })
}
