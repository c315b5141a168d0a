//! Callbacks on their way from the lists to their end: collected, due, running.

use super::Domain;
use super::callbacks::Callbacks;
use super::chain::{Chain, Head};
use core::cell::Cell;
use core::{mem, ptr};
use quietline_platform::AllocError;
use quietline_platform::atomic::Ordering;
use quietline_platform::cpu;

/// Under one lock, which is held for a few instructions; where a grace period begins or ends, for some on each CPU's list.
///
/// What a CPU queued is run there, if the CPU still queues: the objects' lines are in its cache, and whoever frees them
/// there allocates them there again.
#[derive(Debug)]
pub(super) struct Stages {
    /// When what is in each of a CPU's two [`taken`](List::taken) was taken: as grace period so and so began, so that it is due
    /// when the next one is over. At most two, because when one begins all before it are over.
    taken: [Option<u64>; 2],
    /// For each CPU.
    lists: Vec<List>,
    /// Objects that are due.
    ready: i64,
    /// The next CPU that is looked at for what it has left.
    next: usize,
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
    /// The grace period after which the CPU last ran all that was due, or after which there was something again.
    seen: u64,
}

impl List {
    fn new() -> Self {
        Self { taken: [Chain::EMPTY; 2], ready: Chain::EMPTY, seen: 0 }
    }
}

/// Whose callbacks are run.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Whose {
    /// Those of the caller's CPU, and of CPUs that leave theirs.
    Own,
    /// Everybody's.
    All,
}

/// Grace periods for which a CPU may leave something that is due. With many CPUs, one that does as much as each of the others fills
/// a batch in every fourth.
const PATIENCE: u64 = if cfg!(loom) { 1 } else { 8 };
/// CPUs that are looked at, each time, for what they have left.
const LOOKS: usize = 2;

/// A chain being run, on its runner's stack.
struct Run<'a> {
    callbacks: &'a Callbacks,
    chain: Chain,
    len: i64,
    /// Where it began.
    cpu: usize,
    parity: usize,
    /// The run of another domain inside one of whose callbacks this one is.
    outer: *const Run<'static>,
}

#[cfg(not(loom))]
quietline_platform::thread_local! {
    /// The innermost run of this thread.
    static RUN: Cell<*const Run<'static>> = const { Cell::new(ptr::null()) };
}
#[cfg(loom)]
quietline_platform::thread_local! {
    static RUN: Cell<*const Run<'static>> = Cell::new(ptr::null());
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
            ready: 0,
            next: 0,
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
                if due.len() != 0 {
                    if list.ready.len() == 0 {
                        list.seen = completed;
                    }
                    self.ready += due.len();
                    list.ready.append(due);
                }
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

    /// About `n` objects' callbacks that are due after `completed`, for the CPU that asks.
    fn take(&mut self, n: i64, cpu: usize, completed: u64, whose: Whose) -> Chain {
        #[cfg(quietline_sim)]
        self.fit(cpu);
        let own = &mut self.lists[cpu];
        let mut taken = own.ready.take(n);
        if own.ready.len() == 0 {
            own.seen = completed;
        }
        let looks = if whose == Whose::All { self.lists.len() } else { LOOKS };
        for _ in 0..looks {
            if taken.len() >= n.min(self.ready) {
                break;
            }
            self.next = (self.next + 1) % self.lists.len();
            let list = &mut self.lists[self.next];
            if whose == Whose::All || list.seen + PATIENCE <= completed {
                taken.append(list.ready.take(n - taken.len()));
            }
        }
        self.ready -= taken.len();
        taken
    }

    /// Callbacks that need no further grace period.
    pub(super) fn past_waiting(&self) -> i64 {
        self.ready + self.in_hand
    }

    /// Everything that is not running.
    pub(super) fn take_all(&mut self) -> Chain {
        let mut all = Chain::EMPTY;
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
        if let Some(own) = callbacks.own_run() {
            // SAFETY: runs in the list are alive: they are frames further up this stack.
            let own = unsafe { &*own };
            self.running[own.parity] = 1;
            self.in_hand = own.len;
        }
        let taken = self.lists.iter().flat_map(|list| &list.taken);
        self.in_hand + self.ready + taken.map(Chain::len).sum::<i64>()
    }
}

impl Callbacks {
    /// This thread's run of this domain's callbacks, if it is inside one.
    fn own_run(&self) -> Option<*const Run<'static>> {
        let mut run = RUN.with(Cell::get);
        while !run.is_null() {
            // SAFETY: runs in the list are alive: they are frames further up this stack.
            let this = unsafe { &*run };
            if ptr::eq(this.callbacks, self) {
                return Some(run);
            }
            run = this.outer;
        }
        None
    }

    pub(super) fn is_running_here(&self) -> bool {
        self.own_run().is_some()
    }

    /// Runs up to `n` callbacks whose grace period is over; how many. None inside a callback of the same domain:
    /// callbacks that queue callbacks would otherwise pile up on the stack.
    fn run_ready(&self, completed: u64, n: i64, whose: Whose) -> i64 {
        if self.is_running_here() {
            return 0;
        }
        let cpu = cpu::current();
        let mut run = {
            let mut stages = self.stages.lock();
            stages.promote(completed);
            let chain = stages.take(n, cpu, completed, whose);
            let len = chain.len();
            if len == 0 {
                return 0;
            }
            let parity = (stages.turn % 2) as usize;
            stages.running[parity] += 1;
            stages.in_hand += len;
            Run { callbacks: self, chain, len, cpu, parity, outer: RUN.with(Cell::get) }
        };
        // Callbacks look at the run by its address, so it is only used by that.
        let this = &raw mut run;
        RUN.with(|innermost| innermost.set(this.cast()));
        // SAFETY: alive on this stack; no callback holds a reference to it.
        while let Some(head) = unsafe { (*this).chain.pop() } {
            // SAFETY: its grace period is over, and this thread alone has taken it.
            unsafe { Head::run(head) };
        }
        run.len
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
    /// Runs up to `n` callbacks that are due; how many.
    pub(super) fn run_ready(&self, n: i64, whose: Whose) -> i64 {
        self.callbacks.run_ready(self.grace.completed().into_raw(), n, whose)
    }
}

impl Drop for Run<'_> {
    /// Ends the run; also when a callback unwinds, against its contract: then the rest stays for others.
    fn drop(&mut self) {
        RUN.with(|innermost| innermost.set(self.outer));
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
