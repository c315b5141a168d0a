//! Waiting: by spinning until a line is written, by sleeping until woken, and all for each other.

use super::state::{NOTICE, State};
use super::stuck::Stuck;
use super::virtual_cpu::Doing;
use crate::directory::{LineId, Outcome};
use crate::topology::Ps;
use core::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

/// How long all CPUs may wait for each other before time is moved on.
const PATIENCE: Ps = 1_000_000_000;
/// How often time is moved on, without anybody getting anything done, before that is called a deadlock.
const PATIENCES: u32 = 200;

impl State {
    /// A turn of a spin loop: true when the CPU is put aside until something that it has looked at changes.
    pub(super) fn spin(&mut self, cpu: usize) -> bool {
        let pause = self.directory.topology().core.pause;
        // Taken and put back below, empty: its memory is used again.
        let mut looked_at = std::mem::take(&mut self.cpus[cpu].looked_at);
        let changed = looked_at.iter().any(|(line, seen)| self.touched.version(*line) != *seen);
        let nothing = looked_at.is_empty();
        let c = &mut self.cpus[cpu];
        c.clock += pause;
        let waits = !(changed || nothing || c.looked_too_far || c.in_step);
        let turn = c.turn;
        if waits {
            c.doing = Doing::Spinning { since: c.clock };
            for (line, _) in &looked_at {
                self.spinners.entry(*line).or_default().push((cpu, turn));
            }
        }
        looked_at.clear();
        let c = &mut self.cpus[cpu];
        (c.looked_at, c.looked_too_far) = (looked_at, false);
        waits
    }

    /// Those who watch a line go on when they can know that it has a new value: they miss their copies when the writer
    /// takes the line, and look at it again at the end of the turn that they are in.
    pub(super) fn wake_spinners(&mut self, line: LineId, word: usize, now: Ps, write: &Outcome) {
        let Some(mut watchers) = self.spinners.get_mut(&line).map(std::mem::take) else { return };
        let notice = self.directory.topology().core.pause.max(NOTICE);
        for (cpu, turn) in watchers.drain(..) {
            let c = &mut self.cpus[cpu];
            let Doing::Spinning { since } = c.doing else { continue };
            if c.turn != turn {
                continue;
            }
            // Its request is on its way while the line is on its way to the writer.
            let ahead = self.directory.ahead(cpu, line);
            let missed = write.visible.saturating_sub(ahead).max(now);
            // They notice in no particular order.
            let at = missed.max(c.clock) + self.jitter.below(notice);
            if self.progress.counts(c.ops) {
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

    /// A CPU sleeps.
    pub(super) fn sleep(&mut self, cpu: usize, address: usize, timeout: Option<Duration>) {
        let futex = self.directory.topology().core.futex;
        let c = &mut self.cpus[cpu];
        c.looked_at.clear();
        c.clock += futex;
        c.doing = Doing::Sleeping { address };
        let (until, turn) = (timeout.map(|t| c.clock + t.as_nanos() as Ps * 1000), c.turn);
        self.sleepers.entry(address).or_default().push_back((cpu, turn));
        if let Some(until) = until {
            self.runnable.push(Reverse((until, cpu, turn)));
        }
    }

    /// A sleeper's time is up.
    pub(super) fn oversleep(&mut self, cpu: usize) {
        if let Doing::Sleeping { address } = self.cpus[cpu].doing
            && let Some(queue) = self.sleepers.get_mut(&address)
        {
            queue.retain(|(sleeper, _)| *sleeper != cpu);
        }
    }

    /// A CPU wakes up to `n` sleepers.
    pub(super) fn wake_sleepers(&mut self, cpu: usize, address: usize, n: u32) {
        let futex = self.directory.topology().core.futex;
        self.cpus[cpu].clock += futex;
        let now = self.cpus[cpu].clock;
        for _ in 0..n {
            let Some((sleeper, turn)) =
                self.sleepers.get_mut(&address).and_then(VecDeque::pop_front)
            else {
                return;
            };
            let c = &mut self.cpus[sleeper];
            if c.turn == turn {
                c.turn += 1;
                c.doing = Doing::Running;
                c.clock = c.clock.max(now) + futex;
                self.runnable.push(Reverse((c.clock, sleeper, c.turn)));
            }
        }
    }

    /// All wait for each other. Some may wait for time to pass: so it passes.
    pub(super) fn move_time_on(&mut self) -> Result<(), Stuck> {
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
}
