//! Virtual CPUs in the order of their clocks.
//!
//! ```text
//!   waiting to run: a heap of (clock, CPU)        waiting for a line: by line        asleep: by address
//!        |  the earliest runs until it touches a word that others touch too, at a time when another CPU is earlier
//! ```
//!
//! One runs at a time, and its access is executed for real at that moment: execution is sequentially consistent. A CPU
//! that has to get a line from another does so when its request has arrived there: what the other does until then comes
//! first. A CPU that spins is put aside until a line that it has read since its last turn is written.

mod number_hash;
mod plan;
mod progress;
mod state;
mod stuck;
mod touched;
mod virtual_cpu;
mod waiting;

pub use plan::Plan;
pub use stuck::Stuck;

use crate::directory::Kind;
use crate::ledger::Ledger;
use crate::raw::Here;
use crate::topology::{Ps, Topology};
use core::cell::{Cell, RefCell};
use core::cmp::Reverse;
use quietline_platform::sim::{Access, Machine, Place};
use state::State;
use std::time::Duration;
use virtual_cpu::Doing;

/// Accesses without an operation done, for each CPU, before that is called a livelock.
const ACCESSES: u64 = 4_000_000;

/// A simulation under way: the machine that product code talks to.
pub(crate) struct Scheduler {
    state: RefCell<State>,
    current: Cell<usize>,
    here: RefCell<Vec<Here>>,
}

/// What a simulation has measured.
pub(crate) struct Measured {
    pub(crate) ledger: Ledger,
    pub(crate) window: Ps,
    pub(crate) ops: u64,
    pub(crate) accesses: u64,
    pub(crate) longest: Ps,
}

impl Scheduler {
    pub(crate) fn new(topology: &Topology, plan: &Plan) -> Self {
        let state = RefCell::new(State::new(topology, plan));
        Self { state, current: Cell::new(0), here: RefCell::new(Vec::new()) }
    }

    /// Tells how each CPU's fibre stops itself.
    pub(crate) fn set_fibres(&self, here: Vec<Here>) {
        *self.here.borrow_mut() = here;
    }

    /// Who goes on; none when all have ended.
    pub(crate) fn next(&self) -> Result<Option<usize>, Stuck> {
        let mut state = self.state.borrow_mut();
        loop {
            while let Some(Reverse((time, cpu, turn))) = state.runnable.pop() {
                if state.cpus[cpu].turn != turn || state.cpus[cpu].doing == Doing::Ended {
                    continue;
                }
                state.oversleep(cpu);
                let c = &mut state.cpus[cpu];
                c.clock = c.clock.max(time);
                c.doing = Doing::Running;
                c.turn += 1;
                self.current.set(cpu);
                return Ok(Some(cpu));
            }
            if state.cpus.iter().all(|cpu| cpu.doing == Doing::Ended) {
                return Ok(None);
            }
            state.move_time_on()?;
        }
    }

    /// The fibre of the current CPU has ended.
    pub(crate) fn ended(&self) {
        let cpu = self.current.get();
        self.state.borrow_mut().cpus[cpu].doing = Doing::Ended;
    }

    /// Whether the measurement is over. Called by each CPU between its operations.
    pub(crate) fn is_over(&self) -> bool {
        self.state.borrow().progress.is_over()
    }

    /// The current CPU has made its worker.
    pub(crate) fn worker_made(&self) {
        let waits = {
            let mut state = self.state.borrow_mut();
            let waits = state.progress.is_set_up_together();
            if waits {
                state.gather(self.current.get());
            }
            waits
        };
        if waits {
            self.stop();
        }
    }

    /// The current CPU has done an operation.
    pub(crate) fn op_done(&self) {
        let cpu = self.current.get();
        self.state.borrow_mut().rest(cpu);
        self.order();
        let waits = {
            let mut borrowed = self.state.borrow_mut();
            let state = &mut *borrowed;
            if state.progress.counts(state.cpus[cpu].ops) {
                state.ledger.keep_footprint(cpu);
            }
            state.cpus[cpu].ops += 1;
            state.ledger.op_done(cpu);
            state.accesses_at_last_op = state.accesses;
            state.patience_used = 0;
            let waits = state.progress.op_done(state.cpus[cpu].ops, state.cpus[cpu].clock);
            if waits {
                state.gather(cpu);
            }
            waits
        };
        if waits {
            self.stop();
        }
    }

    /// What was measured, once all have ended.
    pub(crate) fn finish(self) -> Measured {
        let state = self.state.into_inner();
        let (window, ops) = state.progress.result();
        let State { ledger, accesses, longest, .. } = state;
        Measured { ledger, window, ops, accesses, longest }
    }

    /// Stops the current CPU until it is its turn again; nothing of the state may be borrowed.
    fn stop(&self) {
        let here = self.here.borrow()[self.current.get()].clone();
        here.stop();
    }

    /// Lets all go on that are earlier than the current CPU.
    fn order(&self) {
        let cpu = self.current.get();
        {
            let mut state = self.state.borrow_mut();
            let (clock, turn) = (state.cpus[cpu].clock, state.cpus[cpu].turn);
            match state.runnable.peek() {
                Some(Reverse((time, other, _))) if (*time, *other) < (clock, cpu) => {
                    state.runnable.push(Reverse((clock, cpu, turn)));
                }
                _ => return,
            }
        }
        self.stop();
    }

    /// Lets all go on that come before an access of the current CPU to a word that others touch: those that are
    /// earlier, and those that use the line while the request for it is on its way. When the CPU has asked.
    fn come_after(&self, cpu: usize, place: Place, kind: Kind) -> Ps {
        self.order();
        let mut state = self.state.borrow_mut();
        let asked = state.cpus[cpu].clock;
        let (line, _) = state.locate(place.address);
        if let Some(arrives) = state.directory.request(cpu, line, kind, asked) {
            state.cpus[cpu].clock = arrives;
            drop(state);
            self.order();
            // Whoever has just got the line keeps it for a moment: what it does then comes first too.
            state = self.state.borrow_mut();
            let until = state.directory.kept_until(line);
            if until > arrives {
                state.cpus[cpu].clock = until;
                drop(state);
                self.order();
            }
        }
        asked
    }
}

impl Machine for Scheduler {
    fn access(&self, place: Place, access: Access) {
        let kind = match access {
            Access::Load => Kind::Load,
            Access::Store => Kind::Store,
            Access::Locked => Kind::Locked,
            Access::Prefetch => Kind::Prefetch,
            Access::PrefetchWrite => Kind::PrefetchWrite,
        };
        let cpu = self.current.get();
        let mut state = self.state.borrow_mut();
        if kind == Kind::Locked {
            // Whoever waits for a store that this one must wait for too gets a fair chance to be first.
            state.drain(cpu);
        }
        let (line, _) = state.locate(place.address);
        let mut asked = state.cpus[cpu].clock;
        if !state.cpus[cpu].in_step && !state.touched.is_own(cpu, line) {
            drop(state);
            asked = self.come_after(cpu, place, kind);
            state = self.state.borrow_mut();
        }
        state.perform(cpu, place, kind, asked);
        let idle = state.accesses - state.accesses_at_last_op;
        if idle > ACCESSES * state.cpus.len() as u64 {
            let stuck = state.stuck("livelock: many accesses, and no operation comes to its end");
            drop(state);
            panic!("{stuck}");
        }
    }

    fn fence(&self) {
        let cpu = self.current.get();
        let mut state = self.state.borrow_mut();
        let now = state.cpus[cpu].clock;
        state.cpus[cpu].clock = state.directory.fence(cpu, now);
    }

    fn fence_all(&self) {
        self.order();
        let mut state = self.state.borrow_mut();
        let cpu = self.current.get();
        let (others, barrier) =
            (state.cpus.len() as Ps - 1, state.directory.topology().core.barrier);
        let now = state.cpus[cpu].clock;
        state.cpus[cpu].clock = state.directory.fence(cpu, now) + others * barrier;
    }

    fn pause(&self) {
        self.order();
        let waits = self.state.borrow_mut().spin(self.current.get());
        if waits {
            self.stop();
        }
    }

    fn compute(&self, cycles: u64) {
        let mut state = self.state.borrow_mut();
        let cycle = state.directory.topology().core.cycle;
        state.cpus[self.current.get()].clock += cycles * cycle;
    }

    fn wait(&self, address: usize, timeout: Option<Duration>) {
        self.state.borrow_mut().sleep(self.current.get(), address, timeout);
        self.stop();
    }

    fn wake(&self, address: usize, n: u32) {
        self.order();
        self.state.borrow_mut().wake_sleepers(self.current.get(), address, n);
    }

    fn step_begin(&self) {
        self.order();
        self.state.borrow_mut().cpus[self.current.get()].in_step = true;
    }

    fn step_end(&self) {
        self.state.borrow_mut().cpus[self.current.get()].in_step = false;
    }

    fn cpu(&self) -> usize {
        self.current.get()
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.state.borrow().cpus[self.current.get()].clock / 1000)
    }
}
