//! Inodes freed after a grace period, of 2010, on a model of a machine of its class.
//!
//! One CPU makes and removes files in a ramfs. Freed after a grace period, an inode's memory has
//! left the core's own caches when it is used again. The model has the sizes and latencies of these
//! caches.
//!
//! One parameter is fitted: the work of a file that the miniature leaves out. The thread has one
//! rate of a busy loop and names neither its file system nor its way of freeing. It is taken for
//! that of a ramfs with inodes freed at once.

use crate::operation::{Allowance, Operation, Period, Scene, Worker};
use quietline_history::inode_rcu::{FreeWay, Ramfs};
use quietline_seeds::{Basis, Comparison};
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;

/// Files of a batch, the columns of the table, and why the model is below the thread there.
const BATCHES: [(u64, &str, &str); 2] = [
    (
        1,
        "creat and unlink",
        "How much of that the thread's machine hid is not known. The slab's slow path is missing",
    ),
    (
        1000,
        "1,000 creats, then 1,000 unlinks",
        "Not explained: a callback is a few accesses in the model, without the slab's slow path",
    ),
];
/// Files that are made before the window, and in it.
const WARM_UP: u64 = 6000;
/// As [`WARM_UP`].
const FILES: u64 = 6000;

/// Makes a batch of files, then removes it.
fn operation(way: FreeWay, batch: u64) -> Operation {
    Operation {
        period: Period::Ticks,
        ..Operation::new("ramfs", "", Allowance::Any, move |_| scene(way, batch))
    }
}

fn scene(way: FreeWay, batch: u64) -> Scene {
    // Room for the files that wait for a grace period, too.
    let ramfs = Ramfs::new(way, 1, batch as u32 + 4000).expect("memory for it");
    // A CPU of it borrows it, and the worker has no end of its own.
    let ramfs: &'static Ramfs = Box::leak(Box::new(ramfs));
    ramfs.name_words();
    Box::new(move |_| {
        let mut cpu = ramfs.cpu();
        Box::new(move || {
            (0..batch).for_each(|name| cpu.create(0, name).expect("the name is free"));
            (0..batch).for_each(|name| cpu.unlink(0, name).expect("it was made"));
        }) as Worker
    })
}

/// The fitted model.
struct Fit {
    machine: Topology,
    seed: u64,
    /// Nanoseconds of work for each file.
    work_ns: f64,
}

impl Fit {
    /// Fits the work to the thread's rate.
    fn new(machine: Topology, seed: u64) -> Result<Self, Failed> {
        let rate = quietline_seeds::table("inodes-2010", "rate").expect(ROW, "busy loop");
        let mut fit = Self { machine, seed, work_ns: 0.0 };
        fit.work_ns = (1e9 / rate - fit.file_ns(FreeWay::Immediate, 1)?).max(0.0);
        Ok(fit)
    }

    /// Simulates one CPU. Returns nanoseconds for each file.
    fn file_ns(&self, way: FreeWay, batch: u64) -> Result<f64, Failed> {
        let plan = Plan {
            cpus: 1,
            seed: self.seed,
            warm_up: WARM_UP / batch,
            ops: FILES / batch,
            work_ns: self.work_ns * batch as f64,
            ..Plan::default()
        };
        let (run, _) = operation(way, batch).simulate(&self.machine, &plan)?;
        Ok(run.ns_per_op() / batch as f64)
    }

    /// Simulates both ways of freeing. Returns nanoseconds for each file if inodes are freed at
    /// once, and how many more after a grace period.
    fn slowdown(&self, batch: u64) -> Result<(f64, f64), Failed> {
        let at_once = self.file_ns(FreeWay::Immediate, batch)?;
        Ok((at_once, self.file_ns(FreeWay::CallRcu, batch)? - at_once))
    }
}

/// The row of the rate.
const ROW: &str = "creat and unlink";

/// Simulates both loops on a ramfs.
///
/// # Errors
/// [`Failed`].
pub(super) fn comparisons(machine: &Topology, seed: u64) -> Result<Vec<Comparison>, Failed> {
    let table = |name| quietline_seeds::table("inodes-2010", name);
    let fit = Fit::new(machine.clone(), seed)?;
    let mut unbuffered = machine.clone();
    unbuffered.core.store_buffer = 1;
    let unbuffered = Fit::new(unbuffered, seed)?;
    let ours = format!(
        "model of {}; the rate is taken for that of a ramfs, inodes freed at once; fitted: {:.0} \
         ns of work",
        machine.title, fit.work_ns
    );
    let mut slowdown = Comparison::new(table("slowdown"), ours.as_str());
    for (batch, column, rest) in BATCHES {
        let (at_once, more) = fit.slowdown(batch)?;
        let (_, unhidden) = unbuffered.slowdown(batch)?;
        let percent = more / at_once * 100.0;
        slowdown.add(table("slowdown"), "ramfs", column, percent, Basis::Predicted);
        let reported = table("slowdown").expect("ramfs", column);
        let cause = format!(
            "{reported} % of {at_once:.0} ns is {:.0} ns a file. The model has {more:.0} ns, and \
             {unhidden:.0} ns with a store buffer of one store, which hides no misses of stores. \
             {rest}",
            reported / 100.0 * at_once
        );
        slowdown.explain(&cause, |point| point.column == column);
    }
    slowdown.miss_the_rest(table("slowdown"), "the miniature has a ramfs only");
    let mut files = Comparison::new(table("rate"), ours.as_str());
    let made = 1e9 / fit.file_ns(FreeWay::Immediate, 1)?;
    files.add(table("rate"), ROW, "busy loop", made, Basis::Fitted);
    let mut estimates = Comparison::new(table("estimates"), ours.as_str());
    estimates
        .miss_the_rest(table("estimates"), "the model has neither a tmpfs nor a real workload");
    let mut walk = Comparison::new(table("walk"), ours.as_str());
    walk.miss_the_rest(table("walk"), WALK);
    Ok(vec![slowdown, estimates, walk, files])
}

/// Why the walk has no value of ours.
const WALK: &str = "there is no git workload here; `ql bench dcache --case 'stat-*' --columns \
    history-2.6.37,quietline-by-reference,quietline` times the walk alone";
