//! Idle memory, given back: by decay, which needs no thread of its own, and under pressure.
//!
//! ```text
//!   a sheaf is wanted ── 100 ms since the last time? ── the next cache, round and round:
//!                                                         half of the sheaves that lay unused in its barn
//!                                                         the CPUs' sheaves, if nobody used it for 1 s
//!                                                         the barn's and all empty slabs, if still unused then
//!   no pages, or more than the limit ── every cache is shrunk, and the allocation tried again
//! ```
//!
//! One thread at a time does each of the two; the others go on meanwhile. No lock is held, so a destructor may use every
//! cache: it comes back here, finds that a thread is at it, and leaves.

use crate::control::Control;
use crate::cpus::Cpus;
use crate::registry;
use crate::stats::{BARN_GET, BARN_PUT, RCU_SHEAF, REFILL, SLAB_SYNC};
use core::cell::Cell;
use core::time::Duration;
use quietline_platform::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use quietline_platform::{FenceError, clock, pages, thread};

/// Visits of barns by a thread for each look at the clock, which costs as much as such a visit.
const VISITS_PER_LOOK: u8 = 16;
/// Intervals in which a cache's sheaves must not have changed.
const IDLE_INTERVALS: u64 = 10;
/// Times that a thread lets others run while one of them reclaims.
const PATIENCE: usize = 200;
/// The least by which use must grow past the limit before all caches are shrunk again.
const LIMIT_STEP: usize = 1 << 20;
const NEVER: u64 = u64::MAX;
const NO_LIMIT: usize = usize::MAX;

/// What decay remembers of a cache. Written by the thread whose [`Turn`] it is, so all relaxed.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// When decay came last: nanoseconds of the monotonic clock.
    visited: AtomicU64,
    /// When use was compared last.
    compared: AtomicU64,
    /// What it was: see [`use_of`].
    used: AtomicU64,
    /// Whether the CPUs' sheaves were taken for idleness, and use has been the same since.
    drained: AtomicBool,
}

/// Nanoseconds between two caches. All of these are settings and dates, which order nothing: relaxed.
static INTERVAL: AtomicU64 = AtomicU64::new(100_000_000);
/// When the next cache is due.
static DUE: AtomicU64 = AtomicU64::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(NO_LIMIT);
/// Use at which all caches are shrunk: the limit, or somewhat more than could not be got below when this was tried last.
static MARK: AtomicUsize = AtomicUsize::new(NO_LIMIT);

static DECAYS: Turn = Turn::new();
static RECLAIMS: Turn = Turn::new();
/// Whether the last thread that reclaimed got anything.
static FOUND: AtomicBool = AtomicBool::new(false);

/// How long after one cache the next one's idle memory is looked for, round and round; 100 ms at first. Each time, half of the
/// sheaves that lay unused in the cache's barn go; when nobody has used it for ten intervals, the CPUs' sheaves, and after ten
/// more all empty slabs. This happens when threads that allocate or free visit a barn, so it costs nothing while nothing is
/// used, and then nothing is given back either: see [`decay`]. Zero turns it off.
///
/// Caches with destructors, but for typesafe ones, are left alone; see [`decay`].
pub fn set_decay_interval(interval: Duration) {
    let nanos = u64::try_from(interval.as_nanos()).unwrap_or(NEVER - 1);
    INTERVAL.store(nanos, Ordering::Relaxed);
    DUE.store(if nanos == 0 { NEVER } else { 0 }, Ordering::Relaxed);
}

/// Gives back what is due of all caches; how many bytes of slabs the process uses less afterwards. For programs that go to
/// sleep, or that would rather do this in their event loop than in an allocation: with an [interval](set_decay_interval) of
/// zero every call counts as one. Nothing if another thread is at it, or a hook that is called by it.
///
/// O(caches x CPUs), and some barriers for each cache that is due. Needs no memory. Destructors of idle objects run here.
pub fn decay() -> usize {
    let Some(_turn) = DECAYS.take() else { return 0 };
    let before = pages::used();
    let (now, interval) = (now(), INTERVAL.load(Ordering::Relaxed));
    registry::each(|cache| visit(cache, now, interval));
    before.saturating_sub(pages::used())
}

/// [Shrinks](crate::Control::shrink) every cache; how many bytes of slabs the process uses less afterwards. Slabs that wait
/// for a grace period go after it. Needs no memory. Destructors run here.
pub fn shrink_all() -> usize {
    let before = pages::used();
    registry::each(Control::shrink);
    before.saturating_sub(pages::used())
}

/// The bytes of slabs that all caches of the process may use before they give up what they keep; none for no limit, as at
/// first. It is soft: when there is nothing to give back, use goes on growing, and all caches are shrunk again each time that
/// it has grown by another 32nd, or by 1 MiB if that is more. [`memory_used`] is what is compared with it.
pub fn set_memory_limit(bytes: Option<usize>) {
    let limit = bytes.unwrap_or(NO_LIMIT);
    LIMIT.store(limit, Ordering::Relaxed);
    MARK.store(limit, Ordering::Relaxed);
}

/// Bytes of slabs in use in this process.
pub fn memory_used() -> usize {
    pages::used()
}

/// What a thread does for all when it has to wait anyway: before it visits a barn. While nothing is due: a load of a line
/// that nobody writes, a counter of the thread, and once in 16 times the clock.
#[inline]
pub(crate) fn tick() {
    let due = DUE.load(Ordering::Relaxed);
    if due != NEVER && looks_now() {
        let now = now();
        if now >= due {
            decay_next(now, due);
        }
    }
}

/// There are no pages, or more are used than shall be. Shrinks all caches without destructors, unless another thread is at
/// it: then waits for that one, for a while. Whether anything was given back.
#[cold]
pub(crate) fn under_pressure() -> bool {
    let Some(_turn) = RECLAIMS.take() else {
        return RECLAIMS.wait() && FOUND.load(Ordering::Relaxed);
    };
    let mut found = false;
    // What a destructor calls may wait for something that the caller of an allocation holds.
    registry::each_where(
        |cache| !cache.options().has_destructor(),
        |cache| {
            let before = holdings(cache);
            cache.shrink();
            let after = holdings(cache);
            found |= after.0 < before.0 || after.1 < before.1;
        },
    );
    FOUND.store(found, Ordering::Relaxed);
    found
}

/// Relaxed: exact unless others use the cache meanwhile; then a guess.
fn holdings(cache: &Control) -> (i64, usize) {
    let slabs = cache.slabs();
    (slabs.taken.load(Ordering::Relaxed), slabs.slabs.load(Ordering::Relaxed))
}

/// Before a slab is made: gives back what can be, if more is used than shall be. Whether that was tried.
pub(crate) fn mind_the_limit() -> bool {
    let (limit, mark) = (LIMIT.load(Ordering::Relaxed), MARK.load(Ordering::Relaxed));
    if limit == NO_LIMIT {
        return false;
    }
    let step = (limit / 32).max(LIMIT_STEP);
    let used = pages::used();
    if used > mark {
        if !RECLAIMS.is_taken() {
            under_pressure();
            MARK.store(limit.max(pages::used().saturating_add(step)), Ordering::Relaxed);
        }
        return true;
    }
    if mark > limit && mark - used.min(mark) > 2 * step {
        // Use has fallen: the mark follows.
        MARK.store(limit.max(used + step), Ordering::Relaxed);
    }
    false
}

/// The first of the threads that find decay due visits a cache.
#[cold]
fn decay_next(now: u64, due: u64) {
    let interval = INTERVAL.load(Ordering::Relaxed);
    let next = now.saturating_add(interval);
    if DUE.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    let Some(_turn) = DECAYS.take() else { return };
    // See `under_pressure`.
    if let Some(cache) = registry::next_where(|cache| !cache.options().has_destructor()) {
        visit(&cache, now, interval);
    }
}

/// Takes back what a cache has not used. The caller has the turn.
fn visit(cache: &Control, now: u64, interval: u64) {
    let idle = &cache.idle;
    let since = |date: &AtomicU64| now.saturating_sub(date.load(Ordering::Relaxed));
    if since(&idle.visited) >= interval {
        idle.visited.store(now, Ordering::Relaxed);
        let _visit = cache.visits.begin();
        cache.cpus.barn.decay();
    }
    if since(&idle.compared) >= interval.saturating_mul(IDLE_INTERVALS) {
        idle.compared.store(now, Ordering::Relaxed);
        drain_if_idle(cache);
    }
}

fn drain_if_idle(cache: &Control) {
    let idle = &cache.idle;
    // If a fence is refused, a later visit compares.
    let Ok(used) = use_of(cache) else { return };
    if idle.used.swap(used, Ordering::Relaxed) != used {
        idle.drained.store(false, Ordering::Relaxed);
    } else if idle.drained.load(Ordering::Relaxed) {
        // The cache is still unused. The sheaves in the barn go, and the slabs that are kept for
        // its next use.
        let visit = cache.visits.begin();
        cache.cpus.barn.drain();
        drop(visit);
        // Destructors run here, which may look at the cache: not in a visit.
        cache.slabs().drain();
    } else {
        let _visit = cache.visits.begin();
        if cache.drain_cpus(Cpus::drain).is_ok()
            // The number with the sheaves gone: it stays the same until the cache is used.
            && let Ok(used) = use_of(cache)
        {
            idle.used.store(used, Ordering::Relaxed);
            idle.drained.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns a number that nearly always changes when the cache is used, and that decay of the barn
/// does not change.
fn use_of(cache: &Control) -> Result<u64, FenceError> {
    let slabs = cache.slabs();
    // Without sheaves there are no flushes, and every free goes to a slab.
    let last = if cache.cpus.allowed() { BARN_PUT } else { SLAB_SYNC };
    let (ready, collecting) = cache.cpus.content()?;
    let sheaves = (ready as u64).rotate_left(32) ^ collecting as u64;
    let counted = [REFILL, BARN_GET, RCU_SHEAF, last].map(|counter| slabs.counted(counter));
    Ok(counted.into_iter().fold(sheaves, |all, n| all.rotate_left(16) ^ n))
}

/// Whether this visit is one that looks at the clock; a thread's first one is.
fn looks_now() -> bool {
    VISITS
        .try_with(|visits| {
            let visit = visits.get();
            visits.set(visit.wrapping_add(1));
            visit.is_multiple_of(VISITS_PER_LOOK)
        })
        // A thread whose thread-local storage is gone leaves it to others.
        .unwrap_or(false)
}

fn now() -> u64 {
    clock::monotonic().as_nanos() as u64
}

quietline_platform::thread_local! {
    static VISITS: Cell<u8> = const { Cell::new(0) };
}

/// In the child, the thread that was at it is gone, or goes on beside another one.
pub(crate) fn after_fork() {
    DECAYS.leave();
    RECLAIMS.leave();
}

/// What one thread at a time does, without anybody waiting for it.
#[derive(Debug)]
struct Turn(AtomicBool);

struct Taken<'a>(&'a Turn);

impl Turn {
    const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    fn take(&self) -> Option<Taken<'_>> {
        // ORDERING: pairs with the release in `leave`: what the last one wrote into `Idle` is seen.
        (!self.0.swap(true, Ordering::Acquire)).then(|| Taken(self))
    }

    fn is_taken(&self) -> bool {
        // ORDERING: pairs with the release in `leave`: what was given back can be had.
        self.0.load(Ordering::Acquire)
    }

    /// Lets others run until it is nobody's, but not for ever. Whether it was nobody's.
    fn wait(&self) -> bool {
        (0..PATIENCE).any(|_| {
            thread::yield_now();
            !self.is_taken()
        })
    }

    fn leave(&self) {
        // ORDERING: pairs with `take` and `is_taken`.
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
