//! What the scheduler knows, and what an access does to it.

use super::number_hash::NumberHash;
use super::plan::Plan;
use super::progress::Progress;
use super::touched::Touched;
use super::virtual_cpu::{Cpu, Doing};
use crate::directory::{Directory, Kind, LineId};
use crate::jitter::Jitter;
use crate::ledger::Ledger;
use crate::topology::{Ps, Topology};
use core::cmp::Reverse;
use quietline_platform::sim::Place;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// Lines that a spin loop may look at in one turn and still be put aside.
const LOOKED_AT: usize = 96;
/// Within this time of a change, those who wait for it notice, in no particular order.
pub(super) const NOTICE: Ps = 2000;

/// All that is known of a simulation under way.
pub(super) struct State {
    pub(super) directory: Directory,
    pub(super) ledger: Ledger,
    pub(super) touched: Touched,
    pub(super) cpus: Vec<Cpu>,
    pub(super) runnable: BinaryHeap<Reverse<(Ps, usize, u64)>>,
    pub(super) spinners: HashMap<LineId, Vec<(usize, u64)>, NumberHash>,
    pub(super) sleepers: HashMap<usize, VecDeque<(usize, u64)>, NumberHash>,
    pub(super) jitter: Jitter,
    pub(super) progress: Progress,
    pub(super) work: Ps,
    /// Time between the beginnings of two operations of a CPU, if CPUs take turns.
    pub(super) turn: Option<Ps>,
    /// The longest operation that counted.
    pub(super) longest: Ps,
    pub(super) accesses: u64,
    pub(super) accesses_at_last_op: u64,
    pub(super) patience_used: u32,
}

impl State {
    pub(super) fn new(topology: &Topology, plan: &Plan) -> Self {
        let mut jitter = Jitter::new(plan.seed, plan.jitter);
        // Nobody starts in step.
        let cpus: Vec<Cpu> = (0..plan.cpus).map(|_| Cpu::new(jitter.below(1_000_000))).collect();
        let runnable = cpus.iter().enumerate().map(|(i, cpu)| Reverse((cpu.clock, i, 0))).collect();
        Self {
            directory: Directory::new(topology, plan.cpus, jitter.clone()),
            ledger: if plan.turn_ns.is_some() {
                Ledger::with_footprints(plan.cpus)
            } else {
                Ledger::new(plan.cpus)
            },
            touched: Touched::default(),
            cpus,
            runnable,
            spinners: HashMap::default(),
            sleepers: HashMap::default(),
            jitter,
            progress: Progress::new(plan),
            work: (plan.work_ns * 1000.0) as Ps,
            longest: 0,
            turn: plan.turn_ns.map(|ns| ns.max(1) * 1000),
            accesses: 0,
            accesses_at_last_op: 0,
            patience_used: 0,
        }
    }

    /// The line and word of a place.
    pub(super) fn locate(&mut self, address: usize) -> (LineId, usize) {
        let line = self.touched.find(address).unwrap_or_else(|| {
            let line = self.directory.new_line();
            self.ledger.new_line();
            self.touched.enter(address, line);
            line
        });
        (line, self.ledger.word(line, address))
    }

    /// Lets a CPU wait until all others wait too; then all go on.
    pub(super) fn gather(&mut self, cpu: usize) {
        self.cpus[cpu].doing = Doing::Gathered;
        let behind = |c: &Cpu| !matches!(c.doing, Doing::Gathered | Doing::Ended);
        if !self.cpus.iter().any(behind) {
            self.begin();
        }
    }

    /// All go on from here, at about the same time.
    pub(super) fn begin(&mut self) {
        let latest = self
            .cpus
            .iter()
            .filter(|cpu| cpu.doing != Doing::Ended)
            .map(|cpu| cpu.clock)
            .max()
            .unwrap_or(0);
        self.progress.settle(latest);
        let cpus = self.cpus.len();
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            if cpu.doing == Doing::Gathered {
                cpu.turn += 1;
                cpu.doing = Doing::Running;
                let at = match self.turn {
                    // CPU 0 is the first.
                    Some(turn) => next_turn(turn, number, cpus, latest.next_multiple_of(turn)),
                    None => latest + self.jitter.below(1_000_000),
                };
                cpu.began = at;
                self.runnable.push(Reverse((at, number, cpu.turn)));
            }
        }
    }

    /// Lets time pass between two operations of a CPU.
    pub(super) fn rest(&mut self, cpu: usize) {
        let (cpus, clock) = (self.cpus.len(), self.cpus[cpu].clock);
        if self.progress.counts(self.cpus[cpu].ops) {
            self.longest = self.longest.max(clock - self.cpus[cpu].began);
        }
        // The loop around the operation, too: one that does nothing else must not stand still.
        let least = clock + self.directory.topology().core.issue.max(100);
        self.cpus[cpu].clock = match self.turn {
            Some(turn) => next_turn(turn, cpu, cpus, least),
            None => least + self.jitter.around(self.work),
        };
        self.cpus[cpu].began = self.cpus[cpu].clock;
    }

    /// Does an access that the CPU began at `asked`; what is to be had from others is at its clock.
    pub(super) fn perform(&mut self, cpu: usize, place: Place, kind: Kind, asked: Ps) {
        let (line, word) = self.locate(place.address);
        self.accesses += 1;
        self.touched.by(cpu, line);
        let now = self.cpus[cpu].clock;
        let outcome = self.directory.arrive(cpu, line, kind, asked, now);
        self.ledger.by(word, kind, place.by);
        if self.progress.counts(self.cpus[cpu].ops) {
            self.ledger.count(cpu, word, kind, asked, &outcome);
        }
        let c = &mut self.cpus[cpu];
        c.clock = outcome.done;
        c.last_word = Some(word);
        if matches!(kind, Kind::Store | Kind::Locked) {
            let before = self.touched.write(line);
            for seen in c.looked_at.iter_mut().filter(|seen| **seen == (line, before)) {
                seen.1 = before.wrapping_add(1);
            }
            self.wake_spinners(line, word, now, &outcome);
        } else if !outcome.lost.is_empty() {
            // Nothing has changed, but whoever watched it has to get it anew to know that.
            self.wake_spinners(line, word, now, &outcome);
        }
        if matches!(kind, Kind::Load | Kind::Locked) {
            let c = &mut self.cpus[cpu];
            let seen = (line, self.touched.version(line));
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
    pub(super) fn drain(&mut self, cpu: usize) {
        let now = self.cpus[cpu].clock;
        let drained = self.directory.drain(cpu, now);
        if drained > now {
            self.cpus[cpu].clock = drained + self.jitter.below(NOTICE);
        }
    }
}

/// Returns the time at which a CPU's next turn begins, not before `least`.
fn next_turn(turn: Ps, cpu: usize, cpus: usize, least: Ps) -> Ps {
    let first = turn * cpu as Ps / cpus as Ps;
    first + least.saturating_sub(first).next_multiple_of(turn)
}
