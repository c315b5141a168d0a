//! A test for users: an operation that should not meet other CPUs does not.
//!
//! ```text
//!   // tests/lines.rs, run by: RUSTFLAGS="--cfg quietline_sim" cargo test --target-dir target/sim --test lines
//!   #![cfg(quietline_sim)]
//!
//!   #[test]
//!   fn each_cpu_has_its_own_queue() {
//!       let queues = Queues::new();
//!       quietline::lines::check(|cpu| queues.push_and_pop(cpu));
//!   }
//! ```
//!
//! What is seen are the atomics, cells, locks and counters of quietline's crates; your own words are seen if they are
//! atomics of `quietline_platform::atomic`. In a build without `--cfg quietline_sim` there is no such module.

use crate::report::{Basis, Report};
use crate::simulation::{CPUS, Plan, Stage};
use crate::topology::Topology;

/// What to check, and on which machine.
#[derive(Debug, Clone)]
#[must_use = "it checks nothing until it is run"]
pub struct Check {
    name: String,
    machine: String,
    plan: Plan,
    allowed: f64,
}

/// Checks that `operation`, called with a CPU's number, can be done by two CPUs at once without one having to fetch a
/// line from the other. It is called some hundred times on each; what it does the first time may be dear.
///
/// # Panics
/// When lines are contended: the message names them, their fields, and who writes them.
#[track_caller]
pub fn check(operation: impl Fn(usize)) {
    Check::new("operation").run(|| (), |(), cpu| operation(cpu));
}

impl Check {
    /// A check that is called `name` in messages: on two CPUs, no contended line allowed.
    pub fn new(name: &str) -> Self {
        let plan = Plan { cpus: CPUS, ..Plan::default() };
        Self { name: name.to_owned(), machine: "one-socket-16".to_owned(), plan, allowed: 0.0 }
    }

    /// On so many CPUs. What the operation works on must then be made by [`run`](Self::run)'s `scene`, which is called
    /// when there are as many.
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.plan.cpus = cpus;
        self
    }

    /// On a machine by name, or by the path of its file.
    pub fn machine(mut self, machine: &str) -> Self {
        self.machine = machine.to_owned();
        self
    }

    /// Operations for each CPU before anything is counted, and then counted.
    pub fn ops(mut self, warm_up: u64, counted: u64) -> Self {
        (self.plan.warm_up, self.plan.ops) = (warm_up, counted);
        self
    }

    /// Contended lines that an operation may have to fetch, on average: for what is done once in a batch. One in 1,024
    /// operations is `1.0 / 1024.0`.
    pub fn allow(mut self, lines: f64) -> Self {
        self.allowed = lines;
        self
    }

    /// Runs it: `scene` makes what all CPUs work on, `operation` does one operation on one CPU.
    ///
    /// # Panics
    /// When more lines are contended than are allowed; when the machine is unknown or too small; at a deadlock.
    #[track_caller]
    pub fn run<S>(&self, scene: impl FnOnce() -> S, operation: impl Fn(&S, usize)) {
        if let Err(found) = self.find(scene, operation) {
            panic!("{found}");
        }
    }

    /// As [`run`](Self::run), but the message is returned.
    ///
    /// # Errors
    /// The message.
    pub fn find<S>(
        &self,
        scene: impl FnOnce() -> S,
        operation: impl Fn(&S, usize),
    ) -> Result<Report, String> {
        let topology = Topology::load(&self.machine).map_err(|error| error.to_string())?;
        let stage = Stage::new(self.plan.cpus);
        let scene = scene();
        let (scene_of, do_one) = (&scene, &operation);
        let run = stage
            .run(&topology, &self.plan, |cpu| Box::new(move || do_one(scene_of, cpu)))
            .map_err(|error| format!("{}: {error}", self.name))?;
        let report = Report::new(&self.name, &Basis::of(&run));
        verdict(&report, self.allowed).map(|()| report)
    }
}

/// Whether a report shows no more contended lines than allowed; if not, what is wrong, in words.
///
/// # Errors
/// The words.
pub fn verdict(report: &Report, allowed: f64) -> Result<(), String> {
    if report.moved_lines <= allowed {
        return Ok(());
    }
    let mut words = format!(
        "{}: an operation fetches {:.4} lines from other CPUs, allowed are {allowed:.4} ({} CPUs of {}):",
        report.operation, report.moved_lines, report.cpus, report.machine
    );
    for conflict in &report.conflicts {
        let by = conflict.written_by.join(", ");
        words += &format!(
            "\n  {} ({} line(s)): {:.4} times an operation; {} CPUs write it, {} read it; written at {by}",
            conflict.line, conflict.lines, conflict.moved, conflict.writers, conflict.readers
        );
    }
    Err(words)
}
