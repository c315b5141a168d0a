//! How far a measurement is.

use super::plan::Plan;
use crate::topology::Ps;
use core::ops::Range;

/// The parts of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// If CPUs take turns, each makes its worker, and waits for the others: they enter the warm-up
    /// in the order of their numbers.
    SetUp,
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

/// How far a measurement is, and how far it goes.
#[derive(Debug)]
pub(super) struct Progress {
    phase: Phase,
    warm_up: u64,
    settle: u64,
    target: u64,
    /// The operations of each CPU that count, by number, if CPUs take turns.
    window: Option<Range<u64>>,
}

impl Progress {
    /// The beginning of a plan.
    pub(super) fn new(plan: &Plan) -> Self {
        let cpus = plan.cpus as u64;
        Self {
            phase: if plan.turn_ns.is_some() { Phase::SetUp } else { Phase::WarmUp },
            warm_up: plan.warm_up,
            settle: plan.warm_up / 4 * cpus,
            target: plan.ops.max(1) * cpus,
            window: plan
                .turn_ns
                .map(|_| plan.warm_up.max(1)..plan.warm_up.max(1) + plan.ops.max(1)),
        }
    }

    /// Returns whether the operation of a CPU with this number, counted from 0, is in its window.
    fn is_in_window(&self, number: u64) -> bool {
        self.window.as_ref().is_none_or(|window| window.contains(&number))
    }

    /// An operation was done, its CPU's `own`th, at this time. Whether the CPU has warmed up now, and waits for the others.
    pub(super) fn op_done(&mut self, own: u64, now: Ps) -> bool {
        let in_window = self.is_in_window(own - 1);
        match &mut self.phase {
            Phase::WarmUp => return own >= self.warm_up,
            Phase::Settles { ops } => {
                *ops += 1;
                if *ops >= self.settle {
                    self.phase = Phase::Measured { since: now, ops: 0 };
                }
            }
            Phase::Measured { since, ops } => {
                *ops += u64::from(in_window);
                if *ops >= self.target {
                    self.phase = Phase::Over { window: now - *since, ops: *ops };
                }
            }
            Phase::SetUp | Phase::Over { .. } => {}
        }
        false
    }

    /// Returns whether a CPU that has made its worker waits for the others.
    pub(super) fn is_set_up_together(&self) -> bool {
        self.phase == Phase::SetUp
    }

    /// Ends the phase in which all CPUs wait for each other. If they take turns, the measurement
    /// follows the warm-up at once.
    pub(super) fn settle(&mut self, now: Ps) {
        self.phase = match (self.phase, &self.window) {
            (Phase::SetUp, _) => Phase::WarmUp,
            (_, Some(_)) => Phase::Measured { since: now, ops: 0 },
            (_, None) => Phase::Settles { ops: 0 },
        };
    }

    /// Returns whether accesses count now, of a CPU that has done `own` operations.
    pub(super) fn counts(&self, own: u64) -> bool {
        matches!(self.phase, Phase::Measured { .. }) && self.is_in_window(own)
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over { .. })
    }

    /// How long it took, and how many operations that were; 0 if it never came to its end.
    pub(super) fn result(&self) -> (Ps, u64) {
        match self.phase {
            Phase::Over { window, ops } => (window, ops),
            _ => (0, 0),
        }
    }
}
