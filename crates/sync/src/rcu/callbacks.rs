//! `call_rcu`: callbacks in per-CPU lists, collected and run in batches.
//!
//! ```text
//!   call ──> the CPU's list of the current half ──flip at a grace period's begin──> collected: waits for the next
//!                                                                                   grace period ──> ready ──> run
//! ```
//!
//! Queueing is two restartable sequences. The half that a CPU queues on is chosen by a selector inside the sequence;
//! a grace period flips it with its own barrier, and then the old half of *every* CPU is still and can be taken. A
//! callback on it was queued before that barrier, so the following grace period, which begins after it, covers it.

use super::{Domain, grace::Wait};
use crate::SpinLock;
use core::ptr::{self, NonNull};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicI64, AtomicU64, Ordering};
use quietline_platform::percpu::Words;

/// Callbacks that a CPU queues before it asks for a grace period.
pub const BATCH: i64 = if cfg!(loom) { 2 } else { 256 };
/// Callbacks in the system above which whoever queues one is slowed down.
const LIMIT: i64 = if cfg!(loom) { 8 } else { 64 * BATCH };
/// Callbacks that whoever fills a batch runs, at most: twice what it queued, so that a backlog shrinks.
const RUN: usize = 2 * BATCH as usize;

/// Word indices: the two halves' lists, and how many were queued since the last full batch.
const HALVES: [usize; 2] = [0, 1];
const QUEUED: usize = 2;

/// What a callback needs: embed it in the object that is to be freed (`struct rcu_head`). Two words.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    next: AtomicU64,
    run: Option<unsafe fn(NonNull<Head>)>,
}

impl Head {
    /// A head that is queued nowhere.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), run: None }
    }

    /// A head that is queued nowhere.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { next: AtomicU64::new(0), run: None }
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
pub(super) struct Callbacks {
    lists: Words<3>,
    /// Which half is queued on.
    half: AtomicU64,
    /// Full batches queued, in callbacks, less callbacks run: what the limit is about.
    backlog: AtomicI64,
    stages: SpinLock<Stages>,
    /// Threads that are running callbacks now.
    running: AtomicU64,
}

/// A chain of heads.
#[derive(Debug)]
struct Chain {
    first: *mut Head,
}

#[derive(Debug)]
struct Stages {
    /// Taken from the CPUs when grace period `.0` began: due when the next one is over. At most two, because when
    /// one begins all before it are over.
    taken: [Option<(u64, Chain)>; 2],
    /// Due.
    ready: Chain,
}

impl Stages {
    /// Moves what is due to `ready`.
    fn promote(&mut self, completed: u64) {
        for slot in &mut self.taken {
            if matches!(slot, Some((number, _)) if completed > *number) {
                let (_, due) = slot.take().expect("just seen");
                self.ready.prepend(due);
            }
        }
    }
}

// SAFETY: chains hold heads that their owners have given away; whoever holds the lock owns them.
unsafe impl Send for Stages {}

impl Chain {
    const EMPTY: Self = Self { first: ptr::null_mut() };

    /// Puts `other` in front, walking it: O(its length).
    fn prepend(&mut self, other: Chain) {
        if other.first.is_null() {
            return;
        }
        let mut last = other.first;
        loop {
            // SAFETY: heads on a chain are valid and owned by the chain.
            let next = unsafe { (*last).next.load(Ordering::Relaxed) } as *mut Head;
            if next.is_null() {
                break;
            }
            last = next;
        }
        // SAFETY: as above. Relaxed here and in the walks: the chain is under a lock, or owned.
        unsafe { (*last).next.store(self.first as u64, Ordering::Relaxed) };
        self.first = other.first;
    }

    /// Takes up to `n` heads off the front.
    fn take(&mut self, n: usize) -> Chain {
        if n == usize::MAX || self.first.is_null() {
            return core::mem::replace(self, Self::EMPTY);
        }
        let first = self.first;
        let mut last = first;
        for _ in 1..n {
            // SAFETY: heads on a chain are valid and owned by the chain.
            let next = unsafe { (*last).next.load(Ordering::Relaxed) } as *mut Head;
            if next.is_null() {
                break;
            }
            last = next;
        }
        // SAFETY: as above.
        let rest = unsafe { (*last).next.swap(0, Ordering::Relaxed) };
        self.first = rest as *mut Head;
        Chain { first }
    }

    /// Runs the callbacks; how many.
    fn run(self) -> i64 {
        let mut head = self.first;
        let mut n = 0;
        while let Some(this) = NonNull::new(head) {
            // SAFETY: the head is valid until its callback runs, which may free it; so the link is read first.
            unsafe {
                head = (*this.as_ptr()).next.load(Ordering::Relaxed) as *mut Head;
                let run = (*this.as_ptr()).run.expect("a queued head has a callback");
                run(this);
            }
            n += 1;
        }
        n
    }
}

impl Callbacks {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            lists: Words::new()?,
            half: AtomicU64::new(HALVES[0] as u64),
            backlog: AtomicI64::new(0),
            stages: SpinLock::new(Stages { taken: [None, None], ready: Chain::EMPTY }),
            running: AtomicU64::new(0),
        })
    }

    /// Queues; whether that filled a batch.
    #[inline]
    fn queue(&self, head: NonNull<Head>) -> bool {
        // SAFETY: the head begins with its link, and is the caller's to give.
        unsafe { self.lists.list_push_selected(&self.half, head.cast()) };
        !self.lists.add_within(QUEUED, 1, BATCH)
    }

    pub(super) fn backlog(&self) -> i64 {
        // Relaxed: a quantity, which orders nothing.
        self.backlog.load(Ordering::Relaxed)
    }

    /// Whether a grace period would bring a callback nearer to its end.
    pub(super) fn wanted(&self, completed: u64) -> bool {
        let waiting = |slot: &Option<(u64, Chain)>| matches!(slot, Some((number, _)) if *number >= completed);
        self.backlog() > 0 || self.stages.lock().taken.iter().any(waiting)
    }

    /// Makes the other half current. The caller's fence follows.
    pub(super) fn flip(&self) {
        // Relaxed: the fence that follows orders it; only the grace period's holder writes it.
        let half = self.half.load(Ordering::Relaxed);
        self.half.store(1 - half, Ordering::Relaxed);
    }

    /// Takes the old half of every CPU; called when grace period `number` begins, after the fence.
    pub(super) fn collect(&self, number: u64) {
        // Relaxed: see `flip`.
        let old = HALVES[1 - self.half.load(Ordering::Relaxed) as usize];
        let mut chain = Chain::EMPTY;
        for cpu in 0..self.lists.cpus() {
            // Relaxed: the fence made the old half still and visible.
            let first = self.lists.word(cpu, old).swap(0, Ordering::Relaxed);
            chain.prepend(Chain { first: first as *mut Head });
        }
        let mut stages = self.stages.lock();
        stages.promote(number - 1);
        if !chain.first.is_null() {
            let free = stages.taken.iter_mut().find(|slot| slot.is_none());
            *free.expect("only what the previous grace period took is still waiting") = Some((number, chain));
        }
    }

    /// Runs up to `n` callbacks whose grace period is over.
    pub(super) fn run_ready(&self, completed: u64, n: usize) {
        let chain = {
            let mut stages = self.stages.lock();
            stages.promote(completed);
            let chain = stages.ready.take(n);
            if chain.first.is_null() {
                return;
            }
            // Relaxed: under the lock, which `idle` takes too.
            self.running.fetch_add(1, Ordering::Relaxed);
            chain
        };
        let ran = chain.run();
        self.backlog.fetch_sub(ran, Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `idle`: who sees that nobody runs sees what the callbacks did.
        self.running.fetch_sub(1, Ordering::Release);
    }
    /// Waits until nobody is running callbacks.
    fn wait_idle(&self) {
        // ORDERING: pairs with the release in `run_ready`.
        while self.running.load(Ordering::Acquire) != 0 {
            quietline_platform::thread::yield_now();
        }
    }

    /// Runs everything, due or not. For the domain's end.
    pub(super) fn run_all(&mut self) {
        // A callback may queue another.
        loop {
            let mut chain = take_all(self.stages.get_mut());
            for cpu in 0..self.lists.cpus() {
                for half in HALVES {
                    // Relaxed: nobody else is left.
                    let first = self.lists.word(cpu, half).swap(0, Ordering::Relaxed) as *mut Head;
                    chain.prepend(Chain { first });
                }
            }
            if chain.run() == 0 {
                return;
            }
        }
    }

    #[cfg(not(loom))]
    pub(super) fn fork_before(&self) {
        // SAFETY: `fork_after` follows in the same thread, in parent and child.
        unsafe { self.stages.raw_lock() };
    }

    #[cfg(not(loom))]
    pub(super) fn fork_after(&self, child: bool) {
        if child {
            // Relaxed: there is no other thread; those that ran callbacks did not come along.
            self.running.store(0, Ordering::Relaxed);
            // SAFETY: the only thread of the child; its counterpart holds the lock.
            unsafe { self.stages.raw_unlock_in_child() };
        } else {
            // SAFETY: taken by `fork_before` in this thread.
            unsafe { self.stages.raw_unlock() };
        }
    }
}

/// All chains of all stages, as one.
fn take_all(stages: &mut Stages) -> Chain {
    let mut all = core::mem::replace(&mut stages.ready, Chain::EMPTY);
    for (_, chain) in stages.taken.iter_mut().filter_map(Option::take) {
        all.prepend(chain);
    }
    all
}

impl Domain {
    /// Queues a callback that runs after every read section open now has ended (`call_rcu`). About two nanoseconds,
    /// on the CPU's own lines; every [`BATCH`]th call on a CPU moves the grace period on and runs callbacks that are
    /// due, up to twice as many as it queued.
    ///
    /// With more than 64 batches queued, a call that fills a batch waits for a grace period, up to ten milliseconds:
    /// a flood is slowed to what the readers allow.
    ///
    /// # Safety
    /// `head` is valid, unqueued and the caller's to give away until `run` is called with it, once, on any thread.
    /// What `run` does must be allowed there.
    #[inline]
    pub unsafe fn call(&self, head: NonNull<Head>, run: unsafe fn(NonNull<Head>)) {
        // SAFETY: by contract the head is the caller's.
        unsafe { (*head.as_ptr()).run = Some(run) };
        if self.callbacks.queue(head) {
            self.call_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn call_slow(&self) {
        // Those counted on this CPU, and the one that was not counted because it filled the batch.
        let queued = self.callbacks.lists.swap(QUEUED, 0) as i64 + 1;
        // Relaxed: a quantity.
        let backlog = self.callbacks.backlog.fetch_add(queued, Ordering::Relaxed) + queued;
        self.advance(u64::MAX);
        self.callbacks.run_ready(self.grace.completed(), RUN);
        if backlog > LIMIT {
            self.throttle();
        }
    }

    /// Helps and waits until the backlog is below the limit, but not for ever: the caller may be inside a section.
    fn throttle(&self) {
        let mut wait = Wait::new();
        let bound = super::grace::Bound::new();
        while self.callbacks.backlog() > LIMIT && !bound.passed(&wait) {
            self.advance(u64::MAX);
            self.callbacks.run_ready(self.grace.completed(), RUN);
            wait.pause(self);
        }
    }

    /// Runs `f` after a grace period.
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
            (deferred.f)();
        }
        fn runner<F: FnOnce()>(_: &F) -> unsafe fn(NonNull<Head>) {
            run::<F>
        }
        let run = runner(&f);
        let deferred = quietline_platform::heap::try_box(Deferred { head: Head::new(), f })?;
        let head = NonNull::from(Box::leak(deferred)).cast::<Head>();
        // SAFETY: the leaked box is ours to give, and `run` takes it back.
        unsafe { self.call(head, run) };
        Ok(())
    }

    /// Waits until every callback queued before has run (`rcu_barrier`).
    ///
    /// # Panics
    /// Never; but called from a callback or inside a read section of this domain it never returns.
    pub fn barrier(&self) {
        // What is queued now is taken when the next grace period begins, and due when the one after it is over.
        self.wait_for(self.ticket() + 1);
        self.callbacks.wait_idle();
    }
}
