//! Callbacks on their way from the lists to their end: collected, due, running.

use super::Domain;
use super::callbacks::{Callbacks, SHARE};
use super::chain::{Chain, Head};
use crate::SpinLockGuard;
use core::cell::Cell;
use core::{mem, ptr};
use quietline_platform::AllocError;
use quietline_platform::atomic::Ordering;
use quietline_platform::cpu;

/// Under one lock, which is held for a few instructions; where a grace period begins or ends, for some on each CPU's list.
///
/// Callbacks of a CPU run there if its threads run their share: the objects' lines are in its
/// cache, and are allocated there again.
#[derive(Debug)]
pub(super) struct Stages {
    /// When what is in each of a CPU's two [`taken`](List::taken) was taken: as grace period so and so began, so that it is due
    /// when the next one is over. At most two, because when one begins all before it are over.
    taken: [Option<u64>; 2],
    /// For each CPU.
    lists: Vec<List>,
    /// Due, and taken out of the lists by [`run_due`](Domain::run_due): oldest first.
    claimed: Chain,
    /// Objects that came to `claimed`, and those that have left it.
    claims: [i64; 2],
    /// Objects that are due, claimed ones included.
    ready: i64,
    /// Counts the times that somebody asked to wait for those who run.
    turn: u64,
    /// Threads that run callbacks taken in the current turn, and in the one before.
    running: [u64; 2],
    /// Callbacks that they took.
    in_hand: i64,
}

/// What a CPU queued.
#[derive(Debug)]
struct List {
    taken: [Chain; 2],
    /// Due, oldest first.
    ready: Chain,
}

impl List {
    fn new() -> Self {
        Self { taken: [Chain::EMPTY; 2], ready: Chain::EMPTY }
    }
}

/// A chain being run, on its runner's stack.
struct Run<'a> {
    /// The run that the thread is inside of: only at the end of a domain inside a callback.
    outer: *const Run<'static>,
    callbacks: &'a Callbacks,
    chain: Chain,
    len: i64,
    /// Where it began.
    cpu: usize,
    parity: usize,
}

#[cfg(not(loom))]
quietline_platform::thread_local! {
    /// The innermost run that the thread is inside of, of any domain.
    static RUN: Cell<*const Run<'static>> = const { Cell::new(ptr::null()) };
}
#[cfg(loom)]
quietline_platform::thread_local! {
    static RUN: Cell<*const Run<'static>> = Cell::new(ptr::null());
}

/// Returns whether the thread is inside a callback, of any domain.
pub(super) fn is_inside_callback() -> bool {
    RUN.try_with(Cell::get).is_ok_and(|run| !run.is_null())
}

impl Stages {
    /// # Errors
    /// [`AllocError`].
    pub(super) fn new(cpus: usize) -> Result<Self, AllocError> {
        let mut lists = Vec::new();
        lists.try_reserve_exact(cpus).map_err(|_| AllocError)?;
        lists.resize_with(cpus, List::new);
        Ok(Self {
            taken: [None; 2],
            lists,
            claimed: Chain::EMPTY,
            claims: [0; 2],
            ready: 0,
            turn: 0,
            running: [0; 2],
            in_hand: 0,
        })
    }

    /// A list for a CPU that was not there when the domain was made: simulated machines, one after the other, share one.
    #[cfg(quietline_sim)]
    fn fit(&mut self, cpu: usize) {
        if cpu >= self.lists.len() {
            self.lists.resize_with(cpu + 1, List::new);
        }
    }

    /// Moves what is due to `ready`. O(CPUs) if anything is.
    pub(super) fn promote(&mut self, completed: u64) {
        // The older one first.
        let oldest =
            usize::from(self.taken[0].unwrap_or(u64::MAX) > self.taken[1].unwrap_or(u64::MAX));
        for slot in [oldest, 1 - oldest] {
            if self.taken[slot].take_if(|number| completed > *number).is_none() {
                continue;
            }
            for list in &mut self.lists {
                let due = mem::replace(&mut list.taken[slot], Chain::EMPTY);
                self.ready += due.len();
                list.ready.append(due);
            }
        }
    }

    /// Keeps what was collected on a CPU when grace period `number` began.
    pub(super) fn collected(&mut self, number: u64, cpu: usize, chain: Chain) {
        if chain.len() == 0 {
            return;
        }
        #[cfg(quietline_sim)]
        self.fit(cpu);
        let slot = |is: Option<u64>| self.taken.iter().position(|taken| *taken == is);
        let slot = slot(Some(number)).or_else(|| slot(None));
        let slot = slot.expect("only what the previous grace period took is still waiting");
        self.taken[slot] = Some(number);
        self.lists[cpu].taken[slot].append(chain);
    }

    /// Takes the due callbacks of about `n` objects: those of the CPU, or if `all` are wanted,
    /// claimed ones first and those of other CPUs last.
    fn take(&mut self, n: i64, cpu: usize, all: bool) -> Chain {
        #[cfg(quietline_sim)]
        self.fit(cpu);
        let mut taken = if all { self.take_claimed(n) } else { Chain::EMPTY };
        taken.append(self.lists[cpu].ready.take(n - taken.len()));
        if all && taken.len() < self.ready.min(n) {
            for list in &mut self.lists {
                taken.append(list.ready.take(n - taken.len()));
            }
        }
        self.ready -= taken.len();
        taken
    }

    /// Takes the claimed callbacks of about `n` objects.
    fn take_claimed(&mut self, n: i64) -> Chain {
        let taken = self.claimed.take(n);
        self.claims[1] += taken.len();
        taken
    }

    /// Claims all that is due. Returns the objects claimed so far: when as many have left, these
    /// have.
    fn claim(&mut self) -> i64 {
        for list in &mut self.lists {
            let due = mem::replace(&mut list.ready, Chain::EMPTY);
            self.claims[0] += due.len();
            self.claimed.append(due);
        }
        self.claims[0]
    }

    /// Callbacks that need no further grace period.
    pub(super) fn past_waiting(&self) -> i64 {
        self.ready + self.in_hand
    }

    /// Everything that is not running.
    pub(super) fn take_all(&mut self) -> Chain {
        let mut all = self.take_claimed(i64::MAX);
        (self.taken, self.ready) = ([None; 2], 0);
        for list in &mut self.lists {
            for chain in [&mut list.ready].into_iter().chain(&mut list.taken) {
                all.append(mem::replace(chain, Chain::EMPTY));
            }
        }
        all
    }

    /// Whether all runs that began in turn `since` or before have ended. New runs belong to the next turn, so those
    /// who ask do not wait for them; but only two turns can be told apart, so a turn begins when the one before the
    /// last has ended.
    fn ended(&mut self, since: u64) -> bool {
        if self.turn == since && self.running[(since as usize + 1) % 2] == 0 {
            self.turn += 1;
        }
        self.turn > since + 1 || self.turn == since + 1 && self.running[since as usize % 2] == 0
    }

    /// In a child process: only the caller's own run is left. Callbacks in all stages and in that run.
    #[cfg(not(loom))]
    pub(super) fn forget_others(&mut self, callbacks: &Callbacks) -> i64 {
        self.running = [0; 2];
        self.in_hand = 0;
        let mut run = RUN.with(Cell::get);
        // SAFETY: a run is alive as long as the thread is inside it: it is a frame further up this stack.
        while let Some(own) = unsafe { run.as_ref() } {
            if ptr::eq(own.callbacks, callbacks) {
                self.running[own.parity] += 1;
                self.in_hand += own.len;
            }
            run = own.outer;
        }
        let taken = self.lists.iter().flat_map(|list| &list.taken);
        self.in_hand + self.ready + taken.map(Chain::len).sum::<i64>()
    }
}

impl Callbacks {
    /// Runs the callbacks of about `n` objects whose grace period is over. Runs none inside a
    /// callback of any domain: callbacks that wait or queue would otherwise pile up on the stack.
    /// Returns the number of objects.
    fn run_ready(&self, completed: u64, n: i64, all: bool) -> i64 {
        if is_inside_callback() {
            return 0;
        }
        let cpu = cpu::current();
        let mut stages = self.stages.lock();
        stages.promote(completed);
        let chain = stages.take(n, cpu, all);
        let ran = chain.len();
        if ran != 0 {
            self.run(stages, chain, cpu);
        }
        ran
    }

    /// Runs the callbacks that are due, a [`SHARE`] at a time: other threads see the backlog shrink,
    /// run some of them, and at a fork lose one share in each thread's hands. All are claimed at
    /// once, because callbacks that become due meanwhile may lie before them, on other CPUs' lists.
    fn run_due(&self, completed: u64) {
        if is_inside_callback() {
            return;
        }
        let cpu = cpu::current();
        let mut stages = self.stages.lock();
        stages.promote(completed);
        let last = stages.claim();
        while stages.claims[1] < last {
            let chain = stages.take_claimed(SHARE);
            stages.ready -= chain.len();
            self.run(stages, chain, cpu);
            stages = self.stages.lock();
        }
    }

    /// Runs a chain that was taken from the stages.
    fn run(&self, mut stages: SpinLockGuard<'_, Stages>, chain: Chain, cpu: usize) {
        let (len, parity) = (chain.len(), (stages.turn % 2) as usize);
        stages.running[parity] += 1;
        stages.in_hand += len;
        drop(stages);
        let outer = RUN.try_with(Cell::get).unwrap_or(ptr::null());
        let mut run = Run { outer, callbacks: self, chain, len, cpu, parity };
        // Callbacks look at the run by its address, so it is only used by that.
        let this = &raw mut run;
        let _ = RUN.try_with(|own| own.set(this.cast()));
        // SAFETY: alive on this stack; no callback holds a reference to it.
        while let Some(head) = unsafe { (*this).chain.pop() } {
            // SAFETY: no section that could find its objects is open, and this thread alone has
            // taken it.
            unsafe { Head::run(head) };
        }
    }

    /// Runs everything, due or not, for the domain's end: no section is open any more, and none can
    /// begin. Inside a callback of another domain as well.
    pub(super) fn run_all(&self) {
        // A callback may queue another.
        loop {
            let chain = self.take_all();
            if chain.len() == 0 {
                return;
            }
            self.run(self.stages.lock(), chain, 0);
        }
    }

    /// Waits until all who are running callbacks now have ended that; not for those who begin later.
    pub(super) fn wait_for_runs(&self) {
        let since = self.stages.lock().turn;
        let mut backoff = crate::backoff::Backoff::alone();
        while !self.stages.lock().ended(since) {
            backoff.wait();
        }
    }
}

impl Domain {
    /// Runs the callbacks of about `n` objects that are due: those of the CPU, and then of all
    /// others if `all` are wanted.
    /// Returns the number of objects.
    pub(super) fn run_ready(&self, n: i64, all: bool) -> i64 {
        self.callbacks.run_ready(self.grace.completed().into_raw(), n, all)
    }

    /// Runs the callbacks that are due now.
    pub(super) fn run_due(&self) {
        self.callbacks.run_due(self.grace.completed().into_raw());
    }
}

impl Drop for Run<'_> {
    /// Ends the run; also when a callback unwinds, against its contract: then the rest stays for others.
    fn drop(&mut self) {
        let _ = RUN.try_with(|own| own.set(self.outer));
        let mut stages = self.callbacks.stages.lock();
        // Relaxed: a quantity. Under the lock, so that `wanted` sees it change together with `in_hand`.
        self.callbacks.backlog.fetch_sub(self.len - self.chain.len(), Ordering::Relaxed);
        stages.running[self.parity] -= 1;
        stages.in_hand -= self.len;
        let rest = mem::replace(&mut self.chain, Chain::EMPTY);
        stages.ready += rest.len();
        stages.lists[self.cpu].ready.append(rest);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
