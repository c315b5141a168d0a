//! Inodes freed after a grace period, of 2010, on a model of a machine of its class.
//!
//! One CPU makes and removes files in a ramfs. Freed after a grace period, an inode's memory has
//! left the core's own caches when it is used again. The model has the sizes and latencies of these
//! caches.
//!
//! One parameter is fitted: the work of a file that the miniature leaves out, to the rate that the
//! author estimates.

use crate::operation::{Allowance, Operation, Period, Scene, Worker};
use quietline_history::inode_rcu::{FreeWay, Ramfs};
use quietline_seeds::{Basis, Comparison};
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;

/// Files of a batch, and the columns of the table.
const BATCHES: [(u64, &str); 2] =
    [(1, "creat and unlink"), (1000, "1,000 creats, then 1,000 unlinks")];
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

struct Fit<'a> {
    machine: &'a Topology,
    seed: u64,
    /// Nanoseconds of work for each file.
    work_ns: f64,
}

impl Fit<'_> {
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
        let (run, _) = operation(way, batch).simulate(self.machine, &plan)?;
        Ok(run.ns_per_op() / batch as f64)
    }
}

/// Simulates both loops on a ramfs.
///
/// # Errors
/// [`Failed`].
pub(super) fn comparisons(machine: &Topology, seed: u64) -> Result<Vec<Comparison>, Failed> {
    let table = |name| quietline_seeds::table("inodes-2010", name);
    let rate = table("rate").expect("creat and unlink", "ramfs");
    let mut fit = Fit { machine, seed, work_ns: 0.0 };
    fit.work_ns = (1e9 / rate - fit.file_ns(FreeWay::Immediate, 1)?).max(0.0);
    let ours = format!("model of {}; fitted: {:.0} ns of work", machine.title, fit.work_ns);
    let mut slowdown = Comparison::new(table("slowdown"), ours.as_str());
    for (batch, column) in BATCHES {
        let at_once = fit.file_ns(FreeWay::Immediate, batch)?;
        let after_grace = fit.file_ns(FreeWay::CallRcu, batch)?;
        let percent = (after_grace / at_once - 1.0) * 100.0;
        slowdown.add(table("slowdown"), "ramfs", column, percent, Basis::Predicted);
    }
    slowdown.miss_the_rest(table("slowdown"), "the miniature has a ramfs only");
    let mut files = Comparison::new(table("rate"), ours.as_str());
    let made = 1e9 / fit.file_ns(FreeWay::Immediate, 1)?;
    files.add(table("rate"), "creat and unlink", "ramfs", made, Basis::Fitted);
    let mut walk = Comparison::new(table("walk"), ours.as_str());
    walk.miss_the_rest(table("walk"), "`ql bench stat` measures it");
    Ok(vec![slowdown, files, walk])
}
