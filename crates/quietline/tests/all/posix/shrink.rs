//! Makes a program that tells the sides apart short and simple.

use crate::posix::call::{Call, Step};
use crate::posix::compare::{Difference, Kinds, Report, run};
use crate::posix::sys::{Setting, Sys};

/// Programs that are tried at most.
const TRIES: usize = 1500;

struct Shrinker<'a> {
    left: &'a mut dyn Sys,
    right: &'a mut dyn Sys,
    setting: Setting,
    difference: Difference,
    known: &'a Kinds,
    steps: Vec<Step>,
    tries: usize,
}

/// Leaves out what can be left out and makes simpler what can be made simpler, as long as the same kind of difference
/// stays.
pub(crate) fn shrink(
    left: &mut dyn Sys,
    right: &mut dyn Sys,
    setting: Setting,
    steps: &[Step],
    difference: Difference,
    known: &Kinds,
) -> (Vec<Step>, Difference) {
    let steps = steps[..=difference.at].to_vec();
    let mut shrinker = Shrinker { left, right, setting, difference, known, steps, tries: 0 };
    loop {
        let before = shrinker.steps.clone();
        shrinker.leave_out();
        shrinker.renumber();
        shrinker.simplify();
        shrinker.leave_out_pairs();
        if shrinker.steps == before || shrinker.tries >= TRIES {
            return (shrinker.steps, shrinker.difference);
        }
    }
}

impl Shrinker<'_> {
    /// Takes `steps` if they show the same kind of difference.
    fn accept(&mut self, steps: Vec<Step>) -> bool {
        if self.tries >= TRIES {
            return false;
        }
        if could_wait(&steps) {
            return false;
        }
        self.tries += 1;
        match run(self.left, self.right, self.setting, &steps, &mut Report::default(), self.known) {
            Some(difference) if difference.kind == self.difference.kind => {
                self.steps = steps;
                self.steps.truncate(difference.at + 1);
                self.difference = difference;
                true
            }
            _ => false,
        }
    }

    fn leave_out(&mut self) {
        let mut chunk = self.steps.len() / 2;
        while chunk > 0 {
            let mut from = 0;
            while from < self.steps.len() {
                let mut fewer = self.steps.clone();
                fewer.drain(from..(from + chunk).min(self.steps.len()));
                if fewer.is_empty() || !self.accept(fewer) {
                    from += chunk;
                }
            }
            chunk /= 2;
        }
    }

    /// Leaves out a call that makes a descriptor, after which later descriptors are one lower.
    fn renumber(&mut self) {
        let mut at = self.steps.len();
        while at > 0 {
            at -= 1;
            for fd in 0..8 {
                if at >= self.steps.len() {
                    break;
                }
                let mut fewer = self.steps.clone();
                let gone = fewer.remove(at);
                fewer[at..]
                    .iter_mut()
                    .filter(|step| step.who == gone.who)
                    .for_each(|step| step.call.lower(fd));
                if self.accept(fewer) {
                    break;
                }
            }
        }
    }

    /// What one call does another may undo: both are left out, once the program is short.
    fn leave_out_pairs(&mut self) {
        let mut first = 0;
        while first < self.steps.len() && self.steps.len() <= 24 {
            let mut second = first + 1;
            while second < self.steps.len() {
                let mut fewer = self.steps.clone();
                fewer.remove(second);
                fewer.remove(first);
                if fewer.is_empty() || !self.accept(fewer) {
                    second += 1;
                }
            }
            first += 1;
        }
    }

    fn simplify(&mut self) {
        let mut at = 0;
        while at < self.steps.len() {
            let step = self.steps[at].clone();
            let others = step.call.simpler().into_iter().map(|call| Step { call, ..step.clone() });
            let as_first = (step.who > 1).then(|| Step { who: 1, ..step.clone() });
            let better = as_first.into_iter().chain(others).any(|simpler| {
                let mut steps = self.steps.clone();
                steps[at] = simpler;
                self.accept(steps)
            });
            // The same step again while it can be made simpler.
            at += usize::from(!better);
        }
    }
}

/// Whether a call could wait for the other end of a fifo, for ever: the flag that keeps it from that must not be left out.
fn could_wait(steps: &[Step]) -> bool {
    let fifo = |step: &Step| matches!(&step.call, Call::Mknodat { mode, .. } if mode.0 & libc::S_IFMT == libc::S_IFIFO);
    let waits = |step: &Step| match &step.call {
        Call::Openat { flags, .. } | Call::Openat2 { flags, .. } | Call::Setfl { flags, .. } => {
            flags.0 & libc::O_NONBLOCK as u64 == 0
        }
        _ => false,
    };
    steps.iter().any(fifo) && steps.iter().any(waits)
}
