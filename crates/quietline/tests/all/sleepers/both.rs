//! Threads of both systems, at the same calls.

use crate::sleepers::call::{Outcome, THREADS};
use crate::sleepers::systems::{Host, Ours, System};
use crate::sleepers::worker::{Worker, rest};
use core::fmt::Debug;
use quietline::{Config, Kernel};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one system may take to do what the other has done: for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A system, and what its threads have come to in this round.
pub(crate) struct Side {
    workers: [Worker; THREADS],
    pub(crate) system: Arc<dyn System>,
    pub(crate) ended: [Option<Outcome>; THREADS],
    begun: [bool; THREADS],
}

impl Side {
    fn new(system: impl System) -> Self {
        Self {
            workers: std::array::from_fn(|_| Worker::new()),
            system: Arc::new(system),
            ended: Default::default(),
            begun: Default::default(),
        }
    }

    /// Who sleeps.
    pub(crate) fn asleep(&self) -> impl Iterator<Item = usize> {
        (0..THREADS).filter(|&thread| self.begun[thread] && self.ended[thread].is_none())
    }

    /// What became of those who have ended, whoever they are.
    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        let mut outcomes: Vec<_> = self.ended.iter().flatten().cloned().collect();
        outcomes.sort();
        outcomes
    }

    /// What calls have returned, or why they failed, whichever they are.
    pub(crate) fn results(&self) -> Vec<Result<usize, i32>> {
        self.outcomes().into_iter().map(|outcome| outcome.result).collect()
    }
}

/// Both systems.
pub(crate) struct Both {
    /// The host, and ours.
    pub(crate) sides: [Side; 2],
    kernel: Kernel,
    pub(crate) seed: u64,
    /// Rests after which one system had to be waited for.
    pub(crate) late: u64,
    pub(crate) rests: u64,
}

impl Both {
    pub(crate) fn new() -> Self {
        let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
        let ours = Ours(kernel.process().unwrap());
        Self { sides: [Side::new(Host), Side::new(ours)], kernel, seed: 0, late: 0, rests: 0 }
    }

    /// What `make` makes, on both: by side.
    pub(crate) fn each<T>(&self, make: impl Fn(&dyn System) -> T) -> [T; 2] {
        [make(&*self.sides[0].system), make(&*self.sides[1].system)]
    }

    /// The same call on both; `fds` by side. It comes to the same.
    #[track_caller]
    pub(crate) fn same<T: PartialEq + Debug>(
        &self,
        fds: [i32; 2],
        call: impl Fn(&dyn System, i32) -> T,
    ) -> T {
        let [host, ours] = [0, 1].map(|side| call(&*self.sides[side].system, fds[side]));
        assert_eq!(host, ours, "seed {}: host, and here", self.seed);
        ours
    }

    /// A thread begins a call on each system.
    pub(crate) fn begin(
        &mut self,
        thread: usize,
        fds: [i32; 2],
        call: impl Fn(&dyn System, i32) -> Outcome + Copy + Send + 'static,
    ) {
        for (side, fd) in self.sides.iter_mut().zip(fds) {
            let system = side.system.clone();
            side.workers[thread].start(Box::new(move || call(&*system, fd)));
            side.begun[thread] = true;
        }
    }

    /// Interrupts all who sleep.
    pub(crate) fn interrupt(&self) {
        let [host, ours] = &self.sides;
        host.asleep().for_each(|thread| host.workers[thread].signal());
        ours.asleep().for_each(|thread| ours.workers[thread].interrupt());
    }

    /// Waits until all sleep or have ended, and both systems say the same: that.
    #[track_caller]
    pub(crate) fn rest<T: PartialEq + Debug>(&mut self, say: impl Fn(&Side) -> T) -> T {
        let since = Instant::now();
        for look in 0.. {
            let workers: Vec<&Worker> = self.sides.iter().flat_map(|side| &side.workers).collect();
            assert!(rest(&workers), "seed {}: calls take too long", self.seed);
            for side in &mut self.sides {
                for thread in side.asleep().collect::<Vec<_>>() {
                    if side.workers[thread].has_ended() {
                        side.ended[thread] = Some(side.workers[thread].outcome());
                    }
                }
            }
            let [host, ours] = [&self.sides[0], &self.sides[1]].map(&say);
            if host == ours {
                self.late += u64::from(look > 0);
                self.rests += 1;
                return ours;
            }
            assert!(
                since.elapsed() < PATIENCE,
                "seed {}:\n host {host:?}\n here {ours:?}\n ended on the host {:?}\n ended here        {:?}",
                self.seed,
                short(&self.sides[0]),
                short(&self.sides[1]),
            );
            std::thread::sleep(Duration::from_micros(200));
        }
        unreachable!()
    }

    /// [`rest`](Self::rest), after which nobody sleeps any more; the next round begins.
    #[track_caller]
    pub(crate) fn over<T: PartialEq + Debug>(&mut self, say: impl Fn(&Side) -> T) -> T {
        let (said, asleep) = self.rest(|side| (say(side), side.asleep().count()));
        assert_eq!(asleep, 0, "seed {}: left asleep on both", self.seed);
        for side in &mut self.sides {
            side.begun = Default::default();
            side.ended = Default::default();
        }
        said
    }

    #[track_caller]
    pub(crate) fn assert_nothing_open(&self) {
        assert_eq!(self.kernel.nr_files(), 0, "seed {}: left open", self.seed);
    }

    /// Few rests come only when one system is waited for: otherwise it would be chance that they come to the same.
    #[track_caller]
    pub(crate) fn assert_seldom_late(&self) {
        println!("{} rests, {} late", self.rests, self.late);
        assert!(self.rests < 100 || self.late * 5 <= self.rests, "{} of {}", self.late, self.rests);
    }
}

fn short(side: &Side) -> Vec<Option<Result<usize, i32>>> {
    side.ended.iter().map(|ended| ended.as_ref().map(|outcome| outcome.result)).collect()
}
