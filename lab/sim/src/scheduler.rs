//! Virtual CPUs in the order of their clocks.
//!
//! ```text
//!   waiting to run: a heap of (clock, CPU)        waiting for a line: by line        asleep: by address
//!        |  the earliest runs until it touches a word that others touch too, at a time when another CPU is earlier
//! ```
//!
//! One runs at a time, and its access is executed for real at that moment: execution is sequentially consistent. A CPU
//! that spins is put aside until a line that it has read since its last turn is written; it is then woken at the time at
//! which the write can be seen.

use crate::directory::{Directory, Kind, LineId};
use crate::jitter::Jitter;
use crate::ledger::{LINE, Ledger};
use crate::raw::Here;
use crate::topology::{Ps, Topology};
use core::cell::{Cell, RefCell};
use core::cmp::Reverse;
use quietline_platform::sim::{Access, Machine, Place};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

/// Lines that a spin loop may look at in one turn and still be put aside.
const LOOKED_AT: usize = 96;
/// Within this time of a change, those who wait for it notice, in no particular order.
const NOTICE: Ps = 2000;
/// How long all CPUs may wait for each other before time is moved on.
const PATIENCE: Ps = 1_000_000_000;
/// How often time is moved on, without anybody getting anything done, before that is called a deadlock.
const PATIENCES: u32 = 200;
/// Accesses without an operation done, for each CPU, before that is called a livelock.
const ACCESSES: u64 = 4_000_000;

/// Nobody can go on.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}\n{}", .cpus.join("\n"))]
pub struct Stuck {
    /// Deadlock or livelock.
    pub what: String,
    /// What each CPU was doing.
    pub cpus: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Running,
    /// Until a line is written.
    Spinning {
        since: Ps,
    },
    /// Until woken.
    Sleeping {
        address: usize,
    },
    /// Until all have warmed up.
    Gathered,
    Ended,
}

struct Cpu {
    clock: Ps,
    doing: Doing,
    /// Raised at each wake-up: what waits under an older number is out of date.
    turn: u64,
    /// What it has read since its last turn of a spin loop, and in which version.
    looked_at: Vec<(LineId, u32)>,
    looked_too_far: bool,
    in_step: bool,
    ops: u64,
    last_word: Option<usize>,
}

/// How far a measurement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Each CPU does its share, and waits for those who are behind: what is done once (a first sheaf, a first slab) is done.
    WarmUp,
    /// So many operations more, all at once, until queues have the length that they will have.
    Settles {
        ops: u64,
    },
    Measured {
        since: Ps,
        ops: u64,
    },
    Over {
        window: Ps,
        ops: u64,
    },
}

struct Inner {
    directory: Directory,
    ledger: Ledger,
    /// Numbers of lines by real address divided by the size of a line.
    line_ids: HashMap<usize, LineId, NumberHash>,
    /// For each line: how often it was written, and the only CPU that has touched it, if only one has.
    versions: Vec<u32>,
    toucher: Vec<u16>,
    cpus: Vec<Cpu>,
    runnable: BinaryHeap<Reverse<(Ps, usize, u64)>>,
    spinners: HashMap<LineId, Vec<(usize, u64)>, NumberHash>,
    sleepers: HashMap<usize, VecDeque<(usize, u64)>, NumberHash>,
    jitter: Jitter,
    phase: Phase,
    warm_up: u64,
    target: u64,
    work: Ps,
    accesses: u64,
    accesses_at_last_op: u64,
    patience_used: u32,
}

const SHARED: u16 = u16::MAX;
const NOBODY: u16 = u16::MAX - 1;

/// Numbers as their own hashes, spread: the maps are on the path of every access.
#[derive(Default, Clone, Copy)]
struct NumberHash;

struct NumberHasher(u64);

impl core::hash::BuildHasher for NumberHash {
    type Hasher = NumberHasher;
    fn build_hasher(&self) -> NumberHasher {
        NumberHasher(0)
    }
}

impl core::hash::Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

/// What a simulation is to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Virtual CPUs.
    pub cpus: usize,
    /// Seed of the noise: the same seed, the same result.
    pub seed: u64,
    /// Noise of latencies, in percent.
    pub jitter: f64,
    /// Operations of each CPU before anything is counted; a quarter more follows when all have done these.
    pub warm_up: u64,
    /// Operations for each CPU, on average, that are counted.
    pub ops: u64,
    /// Nanoseconds of each operation that concern no line: work that the scene leaves out.
    pub work_ns: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { cpus: 2, seed: 1, jitter: 5.0, warm_up: 200, ops: 400, work_ns: 0.0 }
    }
}

/// A simulation under way: the machine that product code talks to.
pub(crate) struct Scheduler {
    inner: RefCell<Inner>,
    current: Cell<usize>,
    here: RefCell<Vec<Here>>,
}

/// What a simulation has measured.
pub(crate) struct Measured {
    pub(crate) ledger: Ledger,
    pub(crate) window: Ps,
    pub(crate) ops: u64,
    pub(crate) accesses: u64,
}

impl Scheduler {
    pub(crate) fn new(topology: &Topology, plan: &Plan) -> Self {
        let mut jitter = Jitter::new(plan.seed, plan.jitter);
        let cpu = |_| Cpu {
            // Nobody starts in step.
            clock: jitter.below(1_000_000),
            doing: Doing::Running,
            turn: 0,
            looked_at: Vec::new(),
            looked_too_far: false,
            in_step: false,
            ops: 0,
            last_word: None,
        };
        let cpus: Vec<Cpu> = (0..plan.cpus).map(cpu).collect();
        let runnable = cpus.iter().enumerate().map(|(i, cpu)| Reverse((cpu.clock, i, 0))).collect();
        let inner = Inner {
            directory: Directory::new(topology, plan.cpus, jitter.clone()),
            ledger: Ledger::new(plan.cpus),
            line_ids: HashMap::default(),
            versions: Vec::new(),
            toucher: Vec::new(),
            cpus,
            runnable,
            spinners: HashMap::default(),
            sleepers: HashMap::default(),
            jitter,
            phase: Phase::WarmUp,
            warm_up: plan.warm_up,
            target: plan.ops.max(1) * plan.cpus as u64,
            work: (plan.work_ns * 1000.0) as Ps,
            accesses: 0,
            accesses_at_last_op: 0,
            patience_used: 0,
        };
        Self { inner: RefCell::new(inner), current: Cell::new(0), here: RefCell::new(Vec::new()) }
    }

    /// Tells how each CPU's fibre stops itself.
    pub(crate) fn set_fibres(&self, here: Vec<Here>) {
        *self.here.borrow_mut() = here;
    }

    /// Who goes on; none when all have ended.
    pub(crate) fn next(&self) -> Result<Option<usize>, Stuck> {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        loop {
            while let Some(Reverse((time, cpu, turn))) = inner.runnable.pop() {
                let c = &mut inner.cpus[cpu];
                if c.turn != turn || c.doing == Doing::Ended {
                    continue;
                }
                if let Doing::Sleeping { address } = c.doing
                    && let Some(queue) = inner.sleepers.get_mut(&address)
                {
                    // Its time is up.
                    queue.retain(|(sleeper, _)| *sleeper != cpu);
                }
                c.clock = c.clock.max(time);
                c.doing = Doing::Running;
                c.turn += 1;
                self.current.set(cpu);
                return Ok(Some(cpu));
            }
            if inner.cpus.iter().all(|cpu| cpu.doing == Doing::Ended) {
                return Ok(None);
            }
            inner.move_time_on()?;
        }
    }

    /// The fibre of the current CPU has ended.
    pub(crate) fn ended(&self) {
        let cpu = self.current.get();
        self.inner.borrow_mut().cpus[cpu].doing = Doing::Ended;
    }

    /// Whether the measurement is over. Called by each CPU between its operations.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.inner.borrow().phase, Phase::Over { .. })
    }

    /// The current CPU has done an operation.
    pub(crate) fn op_done(&self) {
        let cpu = self.current.get();
        {
            let mut inner = self.inner.borrow_mut();
            // The loop around the operation, too: one that does nothing else must not stand still.
            let (work, turn) = (inner.work, inner.directory.topology().core.issue.max(100));
            inner.cpus[cpu].clock += inner.jitter.around(work) + turn;
        }
        self.order();
        let mut borrowed = self.inner.borrow_mut();
        let inner = &mut *borrowed;
        inner.cpus[cpu].ops += 1;
        inner.ledger.op_done(cpu);
        inner.accesses_at_last_op = inner.accesses;
        inner.patience_used = 0;
        let now = inner.cpus[cpu].clock;
        match &mut inner.phase {
            Phase::WarmUp if inner.cpus[cpu].ops >= inner.warm_up => {
                inner.cpus[cpu].doing = Doing::Gathered;
                let behind = |c: &Cpu| !matches!(c.doing, Doing::Gathered | Doing::Ended);
                if !inner.cpus.iter().any(behind) {
                    inner.begin();
                }
                self.put_aside(borrowed);
            }
            Phase::Settles { ops } => {
                *ops += 1;
                if *ops >= inner.warm_up / 4 * inner.cpus.len() as u64 {
                    inner.phase = Phase::Measured { since: now, ops: 0 };
                }
            }
            Phase::Measured { since, ops } => {
                *ops += 1;
                if *ops >= inner.target {
                    inner.phase = Phase::Over { window: now - *since, ops: *ops };
                }
            }
            Phase::WarmUp | Phase::Over { .. } => {}
        }
    }

    /// What was measured, once all have ended.
    pub(crate) fn finish(self) -> Measured {
        let inner = self.inner.into_inner();
        let (window, ops) = match inner.phase {
            Phase::Over { window, ops } => (window, ops),
            _ => (0, 0),
        };
        Measured { ledger: inner.ledger, window, ops, accesses: inner.accesses }
    }

    fn stop(&self) {
        let here = self.here.borrow()[self.current.get()].clone();
        here.stop();
    }

    /// Lets all go on that are earlier than the current CPU.
    fn order(&self) {
        let cpu = self.current.get();
        {
            let mut inner = self.inner.borrow_mut();
            let (clock, turn) = (inner.cpus[cpu].clock, inner.cpus[cpu].turn);
            match inner.runnable.peek() {
                Some(Reverse((time, other, _))) if (*time, *other) < (clock, cpu) => {
                    inner.runnable.push(Reverse((clock, cpu, turn)));
                }
                _ => return,
            }
        }
        self.stop();
    }

    /// Makes the current CPU wait for whatever has been noted, with an end in time if there is one.
    fn put_aside(&self, inner: core::cell::RefMut<'_, Inner>) {
        drop(inner);
        self.stop();
    }
}

impl Inner {
    /// The line and word of a place.
    fn locate(&mut self, address: usize) -> (LineId, usize) {
        let line = match self.line_ids.get(&(address / LINE)) {
            Some(line) => *line,
            None => {
                let line = self.directory.new_line();
                self.ledger.new_line();
                self.versions.push(0);
                self.toucher.push(NOBODY);
                self.line_ids.insert(address / LINE, line);
                line
            }
        };
        (line, self.ledger.word(line, address))
    }

    /// All go on from here, at about the same time.
    fn begin(&mut self) {
        let latest =
            self.cpus.iter().filter(|cpu| cpu.doing != Doing::Ended).map(|cpu| cpu.clock).max().unwrap_or(0);
        self.phase = Phase::Settles { ops: 0 };
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            if cpu.doing == Doing::Gathered {
                cpu.turn += 1;
                cpu.doing = Doing::Running;
                self.runnable.push(Reverse((latest + self.jitter.below(1_000_000), number, cpu.turn)));
            }
        }
    }

    /// Whether nobody else has ever touched the line.
    fn is_own(&self, cpu: usize, line: LineId) -> bool {
        let toucher = self.toucher[line as usize];
        toucher == cpu as u16 || toucher == NOBODY
    }

    fn perform(&mut self, cpu: usize, place: Place, kind: Kind) {
        let (line, word) = self.locate(place.address);
        self.accesses += 1;
        self.toucher[line as usize] = if self.is_own(cpu, line) { cpu as u16 } else { SHARED };
        let now = self.cpus[cpu].clock;
        let outcome = self.directory.access(cpu, line, kind, now);
        self.ledger.by(word, kind, place.by);
        if let Phase::Measured { .. } = self.phase {
            self.ledger.count(cpu, word, kind, now, &outcome);
        }
        let c = &mut self.cpus[cpu];
        c.clock = outcome.done;
        c.last_word = Some(word);
        if matches!(kind, Kind::Store | Kind::Locked) {
            let before = self.versions[line as usize];
            self.versions[line as usize] = before.wrapping_add(1);
            for seen in c.looked_at.iter_mut().filter(|seen| **seen == (line, before)) {
                seen.1 = before.wrapping_add(1);
            }
            self.wake_spinners(line, word, outcome.visible);
        }
        if matches!(kind, Kind::Load | Kind::Locked) {
            let c = &mut self.cpus[cpu];
            let seen = (line, self.versions[line as usize]);
            if c.looked_at.last() != Some(&seen) {
                if c.looked_at.len() < LOOKED_AT {
                    c.looked_at.push(seen);
                } else {
                    c.looked_too_far = true;
                }
            }
        }
    }

    /// Waits until all stores of a CPU are done.
    fn drain(&mut self, cpu: usize) {
        let now = self.cpus[cpu].clock;
        let drained = self.directory.drain(cpu, now);
        if drained > now {
            self.cpus[cpu].clock = drained + self.jitter.below(NOTICE);
        }
    }

    /// Those who watch a line go on when its new value can be seen.
    fn wake_spinners(&mut self, line: LineId, word: usize, at: Ps) {
        let Some(mut watchers) = self.spinners.get_mut(&line).map(std::mem::take) else { return };
        for (cpu, turn) in watchers.drain(..) {
            let c = &mut self.cpus[cpu];
            let Doing::Spinning { since } = c.doing else { continue };
            if c.turn != turn {
                continue;
            }
            // They notice in no particular order.
            let at = at.max(c.clock) + self.jitter.below(NOTICE);
            if let Phase::Measured { .. } = self.phase {
                self.ledger.waited(word, at - since);
            }
            c.turn += 1;
            c.clock = at;
            c.doing = Doing::Running;
            self.runnable.push(Reverse((at, cpu, c.turn)));
        }
        // Its memory is used again.
        self.spinners.insert(line, watchers);
    }

    /// All wait for each other. Some may wait for time to pass: so it passes.
    fn move_time_on(&mut self) -> Result<(), Stuck> {
        if self.cpus.iter().any(|cpu| cpu.doing == Doing::Gathered) {
            // Some wait for those who have warmed up already.
            self.begin();
            return Ok(());
        }
        self.patience_used += 1;
        if self.patience_used > PATIENCES {
            return Err(self.stuck("deadlock: every CPU waits for another"));
        }
        for (cpu, c) in self.cpus.iter_mut().enumerate() {
            if let Doing::Spinning { .. } = c.doing {
                c.turn += 1;
                c.doing = Doing::Running;
                self.runnable.push(Reverse((c.clock + PATIENCE, cpu, c.turn)));
            }
        }
        if self.runnable.is_empty() {
            return Err(self.stuck("deadlock: every CPU sleeps, and nobody is left to wake one"));
        }
        Ok(())
    }

    fn stuck(&self, what: &str) -> Stuck {
        let describe = |(number, cpu): (usize, &Cpu)| {
            let word = cpu.last_word.map(|word| crate::label::of_word(&self.ledger.words[word]));
            let doing = match cpu.doing {
                Doing::Ended => "has ended".to_owned(),
                Doing::Running => "runs".to_owned(),
                Doing::Spinning { .. } => "spins".to_owned(),
                Doing::Sleeping { .. } => "sleeps".to_owned(),
                Doing::Gathered => "waits for the others to warm up".to_owned(),
            };
            format!("CPU {number} {doing}; it touched last: {}", word.unwrap_or_else(|| "nothing".to_owned()))
        };
        Stuck { what: what.to_owned(), cpus: self.cpus.iter().enumerate().map(describe).collect() }
    }
}

impl Machine for Scheduler {
    fn access(&self, place: Place, access: Access) {
        let kind = match access {
            Access::Load => Kind::Load,
            Access::Store => Kind::Store,
            Access::Locked => Kind::Locked,
            Access::Prefetch => Kind::Prefetch,
        };
        let cpu = self.current.get();
        let mut inner = self.inner.borrow_mut();
        if kind == Kind::Locked {
            // Whoever waits for a store that this one must wait for too gets a fair chance to be first.
            inner.drain(cpu);
        }
        let (line, _) = inner.locate(place.address);
        if !inner.cpus[cpu].in_step && !inner.is_own(cpu, line) {
            drop(inner);
            self.order();
            inner = self.inner.borrow_mut();
        }
        inner.perform(cpu, place, kind);
        let idle = inner.accesses - inner.accesses_at_last_op;
        if idle > ACCESSES * inner.cpus.len() as u64 {
            let stuck = inner.stuck("livelock: many accesses, and no operation comes to its end");
            drop(inner);
            panic!("{stuck}");
        }
    }

    fn fence(&self) {
        let cpu = self.current.get();
        let mut inner = self.inner.borrow_mut();
        let now = inner.cpus[cpu].clock;
        inner.cpus[cpu].clock = inner.directory.fence(cpu, now);
    }

    fn fence_all(&self) {
        self.order();
        let mut inner = self.inner.borrow_mut();
        let cpu = self.current.get();
        let (others, barrier) = (inner.cpus.len() as Ps - 1, inner.directory.topology().core.barrier);
        let now = inner.cpus[cpu].clock;
        inner.cpus[cpu].clock = inner.directory.fence(cpu, now) + others * barrier;
    }

    fn pause(&self) {
        self.order();
        let cpu = self.current.get();
        let mut inner = self.inner.borrow_mut();
        let pause = inner.directory.topology().core.pause;
        // Taken and put back below, empty: its memory is used again.
        let mut looked_at = std::mem::take(&mut inner.cpus[cpu].looked_at);
        let changed = looked_at.iter().any(|(line, seen)| inner.versions[*line as usize] != *seen);
        let nothing = looked_at.is_empty();
        let c = &mut inner.cpus[cpu];
        c.clock += pause;
        let waits = !(changed || nothing || c.looked_too_far || c.in_step);
        let turn = c.turn;
        if waits {
            c.doing = Doing::Spinning { since: c.clock };
            for (line, _) in &looked_at {
                inner.spinners.entry(*line).or_default().push((cpu, turn));
            }
        }
        looked_at.clear();
        let c = &mut inner.cpus[cpu];
        (c.looked_at, c.looked_too_far) = (looked_at, false);
        if !waits {
            return;
        }
        self.put_aside(inner);
    }

    fn wait(&self, address: usize, timeout: Option<Duration>) {
        let cpu = self.current.get();
        let mut inner = self.inner.borrow_mut();
        let futex = inner.directory.topology().core.futex;
        let c = &mut inner.cpus[cpu];
        c.looked_at.clear();
        c.clock += futex;
        c.doing = Doing::Sleeping { address };
        let (until, turn) = (timeout.map(|t| c.clock + t.as_nanos() as Ps * 1000), c.turn);
        inner.sleepers.entry(address).or_default().push_back((cpu, turn));
        if let Some(until) = until {
            inner.runnable.push(Reverse((until, cpu, turn)));
        }
        self.put_aside(inner);
    }

    fn wake(&self, address: usize, n: u32) {
        self.order();
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        let cpu = self.current.get();
        let futex = inner.directory.topology().core.futex;
        inner.cpus[cpu].clock += futex;
        let now = inner.cpus[cpu].clock;
        for _ in 0..n {
            let Some((sleeper, turn)) = inner.sleepers.get_mut(&address).and_then(VecDeque::pop_front) else {
                return;
            };
            let c = &mut inner.cpus[sleeper];
            if c.turn == turn {
                c.turn += 1;
                c.doing = Doing::Running;
                c.clock = c.clock.max(now) + futex;
                inner.runnable.push(Reverse((c.clock, sleeper, c.turn)));
            }
        }
    }

    fn step_begin(&self) {
        self.order();
        self.inner.borrow_mut().cpus[self.current.get()].in_step = true;
    }

    fn step_end(&self) {
        self.inner.borrow_mut().cpus[self.current.get()].in_step = false;
    }

    fn cpu(&self) -> usize {
        self.current.get()
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.inner.borrow().cpus[self.current.get()].clock / 1000)
    }
}
