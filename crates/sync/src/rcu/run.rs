//! Callbacks on their way from the lists to their end: collected, due, running.

use super::Domain;
use super::callbacks::Callbacks;
use super::chain::{Chain, Head};
use core::cell::Cell;
use core::ptr;
use quietline_platform::atomic::Ordering;

/// Under one lock, which is held for a few instructions.
#[derive(Debug)]
pub(super) struct Stages {
    /// Taken from the CPUs when grace period `.0` began: due when the next one is over. At most two, because when
    /// one begins all before it are over.
    taken: [Option<(u64, Chain)>; 2],
    /// Due, oldest first.
    ready: Chain,
    /// Counts the times that somebody asked to wait for those who run.
    turn: u64,
    /// Threads that run callbacks taken in the current turn, and in the one before.
    running: [u64; 2],
    /// Callbacks that they took.
    in_hand: i64,
}

/// A chain being run, on its runner's stack.
struct Run<'a> {
    callbacks: &'a Callbacks,
    chain: Chain,
    len: i64,
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
    pub(super) fn new() -> Self {
        Self { taken: [None, None], ready: Chain::EMPTY, turn: 0, running: [0; 2], in_hand: 0 }
    }

    /// Moves what is due to `ready`.
    pub(super) fn promote(&mut self, completed: u64) {
        // The older one first.
        self.taken.sort_unstable_by_key(|slot| slot.as_ref().map_or(u64::MAX, |(number, _)| *number));
        for slot in &mut self.taken {
            if let Some((_, due)) = slot.take_if(|(number, _)| completed > *number) {
                self.ready.append(due);
            }
        }
    }

    /// Keeps what was collected when grace period `number` began.
    pub(super) fn collected(&mut self, number: u64, chain: Chain) {
        if chain.len() != 0 {
            let free = self.taken.iter_mut().find(|slot| slot.is_none());
            *free.expect("only what the previous grace period took is still waiting") = Some((number, chain));
        }
    }

    /// Callbacks that need no further grace period.
    pub(super) fn past_waiting(&self) -> i64 {
        self.ready.len() + self.in_hand
    }

    /// Everything that is not running.
    pub(super) fn take_all(&mut self) -> Chain {
        let mut all = self.ready.take(i64::MAX);
        for (_, chain) in self.taken.iter_mut().filter_map(Option::take) {
            all.append(chain);
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
        self.in_hand
            + self.ready.len()
            + self.taken.iter().flatten().map(|(_, chain)| chain.len()).sum::<i64>()
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
    fn run_ready(&self, completed: u64, n: i64) -> i64 {
        if self.is_running_here() {
            return 0;
        }
        let mut run = {
            let mut stages = self.stages.lock();
            stages.promote(completed);
            let chain = stages.ready.take(n);
            let len = chain.len();
            if len == 0 {
                return 0;
            }
            let parity = (stages.turn % 2) as usize;
            stages.running[parity] += 1;
            stages.in_hand += len;
            Run { callbacks: self, chain, len, parity, outer: RUN.with(Cell::get) }
        };
        RUN.with(|innermost| innermost.set((&raw const run).cast()));
        while let Some(head) = run.chain.pop() {
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
    pub(super) fn run_ready(&self, n: i64) -> i64 {
        self.callbacks.run_ready(self.grace.completed(), n)
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
        stages.ready.append(core::mem::replace(&mut self.chain, Chain::EMPTY));
    }
}
