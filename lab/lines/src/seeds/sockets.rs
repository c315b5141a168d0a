//! The kernels of the thread of 2008, by table and row.

use crate::ladder::{CPUS, Model, row_of};
use quietline_history::{Allocator, Build, Patches, Rung};
use quietline_seeds::{Basis, Comparison, Table};
use quietline_sim::simulation::Failed;

/// Simulates every kernel of the thread's tables of seconds.
///
/// # Errors
/// [`Failed`].
pub(super) fn comparisons(model: &Model) -> Result<Vec<Comparison>, Failed> {
    let mut times = Vec::new();
    let ours = format!("model of {}, latencies x {:.1}", model.machine.title, model.latencies);
    let mut comparisons = Vec::new();
    for (name, rows) in kernels() {
        let table = quietline_seeds::table("sockets-2008", name);
        let mut comparison = Comparison::new(table, ours.as_str());
        for (row, build) in rows {
            for (column, cpus) in [("1 CPU", 1), ("8 CPUs", CPUS)] {
                let has_column = table.columns.iter().any(|c| c == column);
                if has_column && table.value(row, column).is_some() {
                    let seconds = seconds_once(model, &mut times, build, cpus)?;
                    comparison.add(table, row, column, seconds, basis(table, row));
                }
            }
        }
        for (_, row, cause) in CAUSES.iter().filter(|(table, ..)| *table == name) {
            comparison.explain(cause, |point| point.row == *row);
        }
        comparisons.push(comparison);
    }
    let profile = quietline_seeds::table("sockets-2008", "profile");
    let mut comparison = Comparison::new(profile, ours.as_str());
    comparison.miss_the_rest(profile, "the model counts by cache line, not by function");
    comparisons.push(comparison);
    Ok(comparisons)
}

/// Simulates a kernel, unless the same one was simulated before.
fn seconds_once(
    model: &Model,
    times: &mut Vec<((Build, usize), f64)>,
    build: Build,
    cpus: usize,
) -> Result<f64, Failed> {
    if let Some((_, seconds)) = times.iter().find(|(of, _)| *of == (build, cpus)) {
        return Ok(*seconds);
    }
    let (seconds, _) = model.seconds(build, cpus)?;
    times.push(((build, cpus), seconds));
    Ok(seconds)
}

/// Returns how a value of the model comes about.
fn basis(table: &Table, row: &str) -> Basis {
    match (table.name.as_str(), row) {
        ("versions", "2.6.28-rc") => Basis::Fitted,
        _ => Basis::Predicted,
    }
}

/// Why the model differs from the thread, by table and row.
const CAUSES: [(&str, &str, &str); 1] = [(
    "versions",
    "version 1, SLAB",
    "not explained: files that are freed together lie in few slabs in the model, so one CPU has \
         their lines",
)];

/// Returns the kernels of each table of seconds, by row.
fn kernels() -> [(&'static str, Vec<(&'static str, Build)>); 4] {
    let of = |patches| Build { patches, ..Build::default() };
    let base = Patches::default();
    // Version 1, patch by patch.
    let dentries = Patches { nr_dentry: true, single_dentry: true, ..base };
    let numbers = Patches { last_ino: true, ..dentries };
    let counters = Patches { nr_inodes: true, ..numbers };
    let inodes = Patches { single_inode: true, ..counters };
    let version_1 = of(Patches { norefcount: true, ..inodes });
    let version_2 = Build::from(Rung::SingleInode);
    let order_3 = |build| Build { slub_min_order: 3, ..build };
    let objects = |slub_min_objects| Build { slub_min_objects, ..version_1 };
    let versions = vec![
        ("2.6.28-rc", of(base)),
        ("dentries without a parent", of(Patches { no_parent: true, ..base })),
        ("version 1", version_1),
        ("version 1, slub_min_order=3", order_3(version_1)),
        ("version 1, slub_min_objects=22", objects(22)),
        ("version 1, slub_min_objects=45", objects(45)),
        ("version 1, slub_min_objects=80", objects(80)),
        ("version 1, SLAB", Build { allocator: Allocator::Slab, ..version_1 }),
        ("version 2", version_2),
        ("version 2, slub_min_order=3", order_3(version_2)),
        ("version 3", Rung::Norefcount.into()),
    ];
    let patches_1 = vec![
        ("special dentries", of(dentries)),
        ("last_ino", of(numbers)),
        ("nr_inodes", of(counters)),
        ("special inodes", of(inodes)),
        ("kern_mount_special", version_1),
    ];
    let row = |rung| row_of(rung).map(|row| (row, Build::from(rung)));
    let mut patches_2: Vec<_> = Rung::ALL.into_iter().filter_map(row).take(5).collect();
    // The message's last value agrees with its figure for this parameter.
    patches_2[4].1.slub_min_order = 3;
    let patches_3 = Rung::ALL.into_iter().filter_map(row).collect();
    [
        ("versions", versions),
        ("patches-1", patches_1),
        ("patches-2", patches_2),
        ("patches-3", patches_3),
    ]
}
