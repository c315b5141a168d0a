//! `call_rcu`: callbacks in per-CPU lists, collected and run in batches.
//!
//! ```text
//!   call ──> the CPU's list of the current half ──flip at a grace period's begin──> collected: waits for the next
//!                                                                                   grace period ──> ready ──> run
//! ```
//!
//! Queueing is two restartable sequences, and runs nothing. A thread that fills a batch notes it;
//! it runs its share of what is due where it says that it may
//! ([`run_pending`](super::run_pending)).
//!
//! The half that a CPU queues on is chosen by a selector inside the sequence;
//! a grace period flips it with its own barrier, and then the old half of *every* CPU is still and can be taken. A
//! callback on it was queued before that barrier, so the following grace period, which begins after it, covers it.

use super::Domain;
use super::chain::{Chain, Head, HeadOfMany};
use super::grace::Want;
use super::pending;
use super::run::{self, Stages};
use super::wait::{Bound, Wait};
use crate::SpinLock;
use core::ptr::NonNull;
use crossbeam_utils::CachePadded;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicI64, AtomicU64, Ordering};
use quietline_platform::percpu::Words;

/// Callbacks that a CPU queues before the thread notes a [pending](super::DomainSet::is_pending)
/// share of work.
pub const BATCH: i64 = if cfg!(loom) {
    2
} else if cfg!(miri) {
    16
} else {
    256
};
/// Objects whose callbacks a thread runs for each time that it has filled batches: twice one batch,
/// so that a backlog shrinks.
pub const SHARE: i64 = 2 * BATCH;
/// Batches of the whole system for which a thread's share begins a grace period, at least, and one
/// more for every four CPUs: its barrier interrupts each of them.
const GATHER: i64 = if cfg!(loom) { 1 } else { 4 };
/// Batches queued above which threads are slowed down where they run their share, at least; or
/// eight for every CPU: a sheaf of each kind that it may be collecting.
const LIMIT: i64 = if cfg!(loom) { 4 } else { 64 };
/// Nanoseconds that the barrier of a grace period may cost each object of [`Domain::call_many`].
#[cfg(not(loom))]
const NANOS_PER_OBJECT: i64 = 2;

/// CPUs whose lists are collected at a time.
const COLLECTED: usize = 16;

/// Word indices: the two halves' lists, and how many were queued since the last full batch.
const HALVES: [usize; 2] = [0, 1];
const QUEUED: usize = 2;

#[derive(Debug)]
pub(super) struct Callbacks {
    /// What queueing reads; written once for each grace period.
    queue: CachePadded<Queue>,
    /// Callbacks, coming singly, for which a grace period begins.
    least: i64,
    /// Objects, coming many at a time, for which one begins: see [`tune`](Self::tune).
    gather: AtomicI64,
    /// The backlog limit.
    limit: AtomicI64,
    /// The domain's bit in the notes of [pending](super::pending) work.
    pub(super) bit: u64,
    /// Full batches queued, in callbacks, less callbacks run. Below zero by what was run of unfinished batches.
    pub(super) backlog: CachePadded<AtomicI64>,
    /// Full batches, in callbacks, since lists were last collected: those that came singly, and those that did not.
    fresh: [AtomicI64; 2],
    pub(super) stages: SpinLock<Stages>,
}

#[derive(Debug)]
struct Queue {
    /// Which half is queued on.
    half: AtomicU64,
    lists: Words<3>,
}

impl Callbacks {
    pub(super) fn new() -> Result<Self, AllocError> {
        let lists = Words::new()?;
        let least = BATCH * GATHER.max(lists.cpus() as i64 / 4);
        let limit = BATCH * LIMIT.max(8 * lists.cpus() as i64);
        let stages = Stages::new(lists.cpus())?;
        Ok(Self {
            queue: CachePadded::new(Queue { half: AtomicU64::new(HALVES[0] as u64), lists }),
            least,
            gather: AtomicI64::new(least),
            limit: AtomicI64::new(limit),
            bit: pending::new_bit(),
            backlog: CachePadded::new(AtomicI64::new(0)),
            fresh: [AtomicI64::new(0), AtomicI64::new(0)],
            stages: SpinLock::new(stages),
        })
    }

    /// Counts what is about to be queued. Returns whether that fills a batch.
    #[inline(always)]
    fn count(&self, weight: i64) -> bool {
        !self.queue.lists.add_within(QUEUED, weight, BATCH)
    }

    /// Queues on the CPU's list.
    ///
    /// # Safety
    /// The head is valid, says what to run, and is the caller's to give.
    #[inline(always)]
    unsafe fn push(&self, head: NonNull<Head>) {
        // SAFETY: the head begins with its link; the selector is 0 or 1, the two lists.
        unsafe { self.queue.lists.list_push_selected(&self.queue.half, head.cast()) };
    }

    /// Books a full batch.
    fn book(&self, weight: i64, many: bool) {
        // What was counted on this CPU, and what was not because it filled the batch. (On another CPU's count, if this
        // thread has just been moved: the sum is right all the same.)
        let queued = self.queue.lists.swap(QUEUED, 0) as i64 + weight;
        // Relaxed: quantities, which order nothing; so wherever these two are used.
        self.fresh[usize::from(many)].fetch_add(queued, Ordering::Relaxed);
        self.backlog.fetch_add(queued, Ordering::Relaxed);
    }

    fn limit(&self) -> i64 {
        // Relaxed: a setting.
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns whether more than the limit is queued, and notes it.
    pub(super) fn over_limit(&self) -> bool {
        let over = self.backlog.load(Ordering::Relaxed) > self.limit();
        pending::note_over_limit(self.bit, over);
        over
    }

    /// Callbacks queued and not yet run. Exact when nobody queues or runs meanwhile. O(CPUs).
    pub(super) fn pending(&self) -> i64 {
        self.backlog.load(Ordering::Relaxed) + self.queue.lists.sum(QUEUED) as i64
    }

    /// Whether enough is queued to begin a grace period for it.
    pub(super) fn worthwhile(&self) -> bool {
        // Relaxed: quantities.
        let [single, many] = &self.fresh;
        single.load(Ordering::Relaxed) >= self.least
            || many.load(Ordering::Relaxed) >= self.gather.load(Ordering::Relaxed)
    }

    /// Learns what the barrier of a grace period costs: some hundred nanoseconds while nobody else runs, a hundred times
    /// that while every CPU must be interrupted. So many objects are gathered for the next ones that each pays [`NANOS_PER_OBJECT`]
    /// nanoseconds of it: few, and soon free, while it is cheap; but not above an eighth of the limit, as up to three such
    /// heaps wait at a time, and some with CPUs that their threads have left. Callbacks that come singly do not wait for that: each is a line of its own, and thousands of
    /// them are cold when they are run, which costs more than the barrier. Called by the grace period's holder.
    #[cfg(not(loom))]
    pub(super) fn tune(&self, cost: core::time::Duration) {
        let wanted = i64::try_from(cost.as_nanos()).unwrap_or(i64::MAX) / NANOS_PER_OBJECT;
        let wanted = wanted.clamp(self.least, self.least.max(self.limit() / 8));
        // Relaxed: a quantity, which one at a time writes. An eighth of the way: one late barrier means little.
        let gather = self.gather.load(Ordering::Relaxed);
        self.gather.store(gather + (wanted - gather) / 8, Ordering::Relaxed);
    }

    /// Whether a grace period would bring any callback nearer to its end. O(CPUs).
    pub(super) fn wanted(&self) -> bool {
        let stages = self.stages.lock();
        self.pending() > stages.past_waiting()
    }

    /// Makes the other half current. A fence follows before the old half is
    /// [collected](Self::collect).
    pub(super) fn flip(&self) {
        // Relaxed: the fence that follows orders it; only the grace period's holder writes it.
        let half = self.queue.half.load(Ordering::Relaxed);
        self.queue.half.store(1 - half, Ordering::Relaxed);
    }

    /// The model fences one set of words at a time; the machine's barrier is for all.
    #[cfg(loom)]
    pub(super) fn fence(&self) -> Result<(), quietline_platform::FenceError> {
        self.queue.lists.fence()
    }

    /// Takes the old half of every CPU; called when grace period `number` begins, after the fence.
    pub(super) fn collect(&self, number: u64) {
        self.fresh.iter().for_each(|fresh| fresh.store(0, Ordering::Relaxed));
        // Relaxed: see `flip`.
        let old = HALVES[1 - self.queue.half.load(Ordering::Relaxed) as usize];
        self.stages.lock().promote(number - 1);
        // The lists are walked outside the lock, some at a time.
        let cpus = self.queue.lists.cpus();
        for first in (0..cpus).step_by(COLLECTED) {
            let mut chains = [Chain::EMPTY; COLLECTED];
            let cpus = first..cpus.min(first + COLLECTED);
            for (chain, cpu) in chains.iter_mut().zip(cpus.clone()) {
                *chain = self.take_list(cpu, old);
            }
            if chains.iter().any(|chain| chain.len() != 0) {
                let mut stages = self.stages.lock();
                cpus.zip(chains).for_each(|(cpu, chain)| stages.collected(number, cpu, chain));
            }
        }
    }

    /// Empties one half's list of a CPU. Nobody may be pushing on it.
    fn take_list(&self, cpu: usize, half: usize) -> Chain {
        let list = self.queue.lists.word(cpu, half);
        // Relaxed: the fence made the half still and visible. An empty list's line is not written.
        let first = list.load(Ordering::Relaxed);
        if first == 0 {
            return Chain::EMPTY;
        }
        list.store(0, Ordering::Relaxed);
        // SAFETY: the heads were given away when they were queued, and the list is ours.
        unsafe { Chain::of_list(first) }
    }

    /// Takes everything, due or not, for the domain's end. Nobody may be pushing.
    pub(super) fn take_all(&self) -> Chain {
        let mut chain = self.stages.lock().take_all();
        for cpu in 0..self.queue.lists.cpus() {
            HALVES.into_iter().for_each(|half| chain.append(self.take_list(cpu, half)));
        }
        chain
    }

    #[cfg(not(loom))]
    pub(super) fn fork_before(&self) {
        // SAFETY: `fork_after` follows in the same thread, in parent and child.
        unsafe { self.stages.raw_lock() };
    }

    /// In the child, what other threads were running is lost to them, and what they had not yet booked is lost to the
    /// books: everything is counted again.
    #[cfg(not(loom))]
    pub(super) fn fork_after(&self, child: bool) {
        if !child {
            // SAFETY: taken by `fork_before` in this thread.
            return unsafe { self.stages.raw_unlock() };
        }
        // SAFETY: the only thread of the child; its counterpart holds the lock.
        unsafe { self.stages.raw_unlock_in_child() };
        let mut stages = self.stages.lock();
        let mut count = stages.forget_others(self);
        for cpu in 0..self.queue.lists.cpus() {
            for half in HALVES {
                let first = self.queue.lists.load(cpu, half);
                // SAFETY: heads on a list are valid; nobody else is there to take them.
                count += unsafe { Chain::of_list(first) }.len();
            }
        }
        self.queue.lists.swap_all(QUEUED, 0, |_| ());
        // Relaxed, so below: there is no other thread.
        self.backlog.store(count, Ordering::Relaxed);
        self.fresh[0].store(count, Ordering::Relaxed);
    }
}

impl Domain {
    /// Queues a callback that runs after every read section open now has ended (`call_rcu`). A few nanoseconds, on the
    /// CPU's own lines. Runs nothing and waits for nothing, so it may be called under any lock and
    /// in any section: see [the module](super) for where callbacks run.
    ///
    /// # Safety
    /// `head` is valid, unqueued and the caller's to give away until `run` is called with it, once, on any thread.
    /// What `run` does must be allowed there, and it must not unwind.
    #[inline]
    pub unsafe fn call(&self, head: NonNull<Head>, run: unsafe fn(NonNull<Head>)) {
        // SAFETY: by contract the head is the caller's.
        unsafe { Head::set(head, run) };
        if self.callbacks.count(1) {
            self.batch_is_full(1, false);
        }
        // SAFETY: as above.
        unsafe { self.callbacks.push(head) };
    }

    /// [`call`](Self::call) for many objects at once, which count as so many callbacks.
    ///
    /// # Safety
    /// As [`call`](Self::call), of what the head's [`Many`](super::Many) says.
    pub unsafe fn call_many(&self, head: NonNull<HeadOfMany>) {
        // SAFETY: by contract the head is valid.
        let weight = unsafe { HeadOfMany::weight(head) };
        if self.callbacks.count(weight) {
            self.batch_is_full(weight, weight > 1);
        }
        // SAFETY: by contract the head, which begins with its link, is the caller's.
        unsafe { self.callbacks.push(head.cast()) };
    }

    #[cold]
    #[inline(never)]
    fn batch_is_full(&self, weight: i64, many: bool) {
        self.callbacks.book(weight, many);
        #[cfg(not(any(loom, quietline_sim)))]
        let told = self.reclaimer.notify(self);
        #[cfg(any(loom, quietline_sim))]
        let told = false;
        if self.callbacks.over_limit() || !told {
            pending::note_filled(self.callbacks.bit);
        }
    }

    /// Runs a thread's share of callbacks: see [`run_pending`](super::run_pending). `filled` says
    /// that the thread has filled a batch; then it also waits while more than the limit is queued.
    pub(super) fn run_share(&self, filled: bool) {
        if filled {
            self.step(Want::Batch);
            self.run_ready(SHARE, false);
        }
        let mut wait = Wait::new();
        let mut bound = Bound::new();
        while self.callbacks.over_limit() {
            self.step(Want::Any);
            let ran = self.run_ready(SHARE, true);
            if !filled || bound.passed() {
                break;
            }
            if ran == 0 {
                wait.pause(self);
            }
        }
    }

    /// Runs `f` after a grace period. If it panics, that is reported as panics are and ends there: whoever happens
    /// to run it has nothing to do with it.
    ///
    /// # Errors
    /// [`AllocError`] when the closure cannot be stored; it is dropped without being run.
    pub fn defer(&self, f: impl FnOnce() + Send + 'static) -> Result<(), AllocError> {
        #[repr(C)]
        struct Deferred<F> {
            head: Head,
            f: F,
        }
        unsafe fn run<F: FnOnce()>(head: NonNull<Head>) {
            // SAFETY: the head is the first field of a leaked box of this type.
            let deferred = unsafe { Box::from_raw(head.as_ptr().cast::<Deferred<F>>()) };
            contain(deferred.f);
        }
        fn runner<F: FnOnce()>(_: &F) -> unsafe fn(NonNull<Head>) {
            run::<F>
        }
        let run = runner(&f);
        let deferred = quietline_platform::heap::try_box(Deferred { head: Head::new(), f })?;
        let head = NonNull::from(Box::leak(deferred)).cast::<Head>();
        // SAFETY: the leaked box is ours to give, and `run` takes it back and does not unwind.
        unsafe { self.call(head, run) };
        Ok(())
    }

    /// Waits until every callback queued before has run (`rcu_barrier`).
    ///
    /// # Panics
    /// Never; but called from a callback, of any domain, it ends the process with a message. Inside
    /// a read section of this domain it never returns.
    pub fn barrier(&self) {
        if run::is_inside_callback() {
            inside_callback();
        }
        // What is queued now is taken when the next grace period begins, and due when the one after it is over.
        self.wait_for(self.get_state_synchronize().next());
        self.callbacks.wait_for_runs();
    }

    /// Callbacks queued and not yet run. Exact when nobody queues or runs any meanwhile. O(CPUs).
    pub fn backlog(&self) -> u64 {
        self.callbacks.pending().max(0) as u64
    }

    /// Returns the bound on the [backlog](Self::backlog), apart from the CPUs' unfinished batches:
    /// see [Bounded garbage](super#bounded-garbage). At first 64 batches, or eight for each CPU if
    /// that is more.
    pub fn backlog_limit(&self) -> u64 {
        self.callbacks.limit() as u64
    }

    /// Sets the [backlog limit](Self::backlog_limit), in objects. Unfinished batches, of less than
    /// [`BATCH`] objects on each CPU, come on top of it.
    pub fn set_backlog_limit(&self, objects: u64) {
        let limit = i64::try_from(objects).unwrap_or(i64::MAX);
        // Relaxed: a setting.
        self.callbacks.limit.store(limit, Ordering::Relaxed);
        self.callbacks.over_limit();
    }

    /// Returns whether the domain holds more than its [backlog limit](Self::backlog_limit). Three
    /// loads, one of a line that full batches write.
    pub fn is_over_backlog_limit(&self) -> bool {
        self.callbacks.over_limit()
    }
}

/// Calls `f`. A panic is reported as panics are and ends here: the thread that runs the callback
/// has nothing to do with it.
pub(super) fn contain(f: impl FnOnce()) {
    // What `f` owned is gone afterwards: no other code can see it half done.
    let f = core::panic::AssertUnwindSafe(f);
    if let Err(payload) = std::panic::catch_unwind(|| { f }.0()) {
        // Dropping a payload may panic again.
        core::mem::forget(payload);
    }
}

/// Ends the process, as a panic in a function that cannot unwind does: the caller needs callbacks
/// to have run before it goes on, also with unwinding.
#[cold]
extern "C" fn inside_callback() -> ! {
    panic!("rcu::Domain::barrier is called inside a callback, and would wait for it")
}
