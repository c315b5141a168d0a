//! Which contended lines an open and a close of a socket meet on each rung: the seed's list, by name.

use crate::forecast::plan;
use crate::rungs::{self, Object};
use core::fmt;
use quietline_history::Rung;
use quietline_sim::report::Report;
use quietline_sim::simulation::Failed;
use quietline_sim::topology::Topology;
use serde::Serialize;
use std::collections::BTreeMap;

/// A line of the seed's list.
#[derive(Debug, Clone, Copy)]
pub struct SeedLine {
    /// What is on it, as fields are called here: any of these is the line.
    pub fields: &'static [&'static str],
    /// What the seed says of it.
    pub says: &'static str,
    /// The rung whose patch takes it away.
    pub gone: Rung,
    /// How many an operation has to get from other CPUs at least, until then.
    pub least: f64,
}

const fn line(
    fields: &'static [&'static str],
    says: &'static str,
    gone: Rung,
    least: f64,
) -> SeedLine {
    SeedLine { fields, says, gone, least }
}

/// Ticks for each operation, at least: with an operation of 1.561 us, a tick comes after 640. A
/// tick takes RCU's lock once, and frees files into slabs that no CPU owns.
const TICK: f64 = 1.0 / 640.0;

/// All of them, in the order in which the seed's patches take them away.
pub const LINES: [SeedLine; 15] = [
    line(&["nr_dentry"], "d_alloc() dirties nr_dentry", Rung::NrDentry, 0.5),
    line(&["nr_inodes"], "new_inode() dirties nr_inodes counter", Rung::NrInodes, 0.5),
    line(&["last_ino"], "dirties last_ino counter", Rung::LastIno, 0.5),
    line(
        &["dcache_lock"],
        "taken in d_alloc(), again in d_instantiate(), and at close",
        Rung::SingleDentry,
        0.5,
    ),
    line(
        &["sock_mnt->mnt_sb->s_root->d_count"],
        "no need to touch root->d_count",
        Rung::SingleDentry,
        0.5,
    ),
    line(
        &["sock_mnt->mnt_sb->s_root->d_subdirs"],
        "inserts dentry on its parent's list",
        Rung::SingleDentry,
        0.5,
    ),
    // Its own, which neighbours have written, the one that was first, and two neighbours at the end.
    line(
        &["dentry.d_child"],
        "previous and next item when it is taken off its list",
        Rung::SingleDentry,
        2.0,
    ),
    line(&["inode_lock"], "new_inode() locks inode_lock; iput() again", Rung::SingleInode, 0.5),
    line(&["inode_in_use"], "dirties inode_in_use list", Rung::SingleInode, 0.5),
    line(&["sock_mnt->mnt_sb->s_inodes"], "dirties superblock s_inodes", Rung::SingleInode, 0.5),
    line(
        &["inode.i_list", "inode.i_sb_list"],
        "previous and next item when it is taken off its lists (one line)",
        Rung::SingleInode,
        2.0,
    ),
    line(
        &["rcu_ctrlblk", "rcu_ctrlblk.snapshots"],
        "call_rcu() cache killer",
        Rung::TypesafeFiles,
        TICK / 2.0,
    ),
    line(&["filp node"], "SLUB being hit hard: add_partial()", Rung::TypesafeFiles, TICK / 2.0),
    line(
        &["page.slab_lock", "page.frozen", "page.inuse", "page.freelist", "page.next", "page.prev"],
        "__slab_free() into slabs that are no CPU's",
        Rung::TypesafeFiles,
        TICK / 2.0,
    ),
    line(
        &["sock_mnt->mnt_count"],
        "init_file(): atomic_inc on sock_mnt->refcount",
        Rung::Norefcount,
        0.5,
    ),
];

/// A line, and how many of it an operation had to get from other CPUs.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What is on it.
    pub line: String,
    /// What the seed says of it; nothing of lines that it does not name.
    pub says: &'static str,
    /// The rung whose patch takes it away, if the seed has one.
    pub gone: Option<&'static str>,
    /// By rung, lowest first.
    pub moved: Vec<f64>,
    /// Writes of the fields by an operation, by rung: a lock is written twice each time it is taken.
    pub written: Vec<f64>,
}

/// The ladder's conflicts.
#[derive(Debug, Clone, Serialize)]
pub struct Conflicts {
    /// The machine's name.
    pub machine: String,
    /// Virtual CPUs.
    pub cpus: usize,
    /// The rungs' names, lowest first.
    pub rungs: Vec<&'static str>,
    /// The lines of the seed's list, as in [`LINES`].
    pub lines: Vec<Row>,
    /// All other contended lines, by what kind of thing is on them.
    pub others: Vec<Row>,
    /// Contended lines that an operation had to get from other CPUs in all, by rung.
    pub total: Vec<f64>,
}

impl Conflicts {
    /// Simulates every rung.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn count(machine: &Topology, cpus: usize, seed: u64) -> Result<Self, Failed> {
        let row = |line: &SeedLine| Row {
            line: match line.fields {
                [first, _, _, ..] => format!("{}.*", kind(first)),
                few => few.join(", "),
            },
            says: line.says,
            gone: Some(line.gone.name()),
            moved: Vec::new(),
            written: Vec::new(),
        };
        let mut lines: Vec<Row> = LINES.iter().map(row).collect();
        let mut others: BTreeMap<String, Row> = BTreeMap::new();
        let mut total = Vec::new();
        for (i, rung) in Rung::ALL.into_iter().enumerate() {
            let operation = rungs::operation(Object::Socket, rung);
            let (_, report) = operation.simulate(machine, &plan(&operation, cpus, seed))?;
            for (line, row) in LINES.iter().zip(&mut lines) {
                row.moved.push(moved(&report, line.fields));
                row.written.push(written(&report, line.fields));
            }
            for conflict in
                report.conflicts.iter().filter(|c| !LINES.iter().any(|l| is_on(&c.line, l.fields)))
            {
                let kind = kind(&conflict.line);
                let row = others.entry(kind.clone()).or_insert_with(|| Row {
                    line: kind,
                    says: "",
                    gone: None,
                    moved: vec![0.0; Rung::ALL.len()],
                    written: vec![0.0; Rung::ALL.len()],
                });
                row.moved[i] += conflict.moved;
            }
            total.push(report.moved_lines);
        }
        Ok(Self {
            machine: machine.name.clone(),
            cpus,
            rungs: Rung::ALL.map(Rung::name).to_vec(),
            lines,
            others: others.into_values().collect(),
            total,
        })
    }
}

/// Whether one of the fields is among those that a contended line is called by.
fn is_on(line: &str, fields: &[&str]) -> bool {
    line.split(", ").any(|on_it| fields.contains(&on_it))
}

/// Returns the lines with these fields that an operation gets from other CPUs.
pub(crate) fn moved(report: &Report, fields: &[&str]) -> f64 {
    report.conflicts.iter().filter(|c| is_on(&c.line, fields)).fold(0.0, |sum, c| sum + c.moved)
}

/// Returns the nanoseconds that an operation waits for the lines of these fields.
pub(crate) fn wait_ns(report: &Report, fields: &[&str]) -> f64 {
    report.conflicts.iter().filter(|c| is_on(&c.line, fields)).fold(0.0, |sum, c| sum + c.wait_ns)
}

/// Returns the writes of these fields by an operation.
pub(crate) fn written(report: &Report, fields: &[&str]) -> f64 {
    report
        .fields
        .iter()
        .filter(|f| fields.contains(&f.field.as_str()))
        .fold(0.0, |sum, f| sum + f.writes)
}

/// What kind of thing is on a line: `file` of `file.f_count, file.f_op`.
fn kind(line: &str) -> String {
    let first = line.split(", ").next().unwrap_or(line);
    match first.split_once('.') {
        Some((kind, _)) if !kind.contains(' ') => kind.to_owned(),
        _ => first.to_owned(),
    }
}

fn cell(n: f64) -> String {
    match n {
        n if n < 0.00005 => "-".to_owned(),
        n if n < 0.01 => format!("{n:.4}"),
        n => format!("{n:.2}"),
    }
}

/// A row's name has so much room.
const NAME: usize = 52;

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Contended lines that an open and close of a socket gets from other CPUs, {} CPUs of {}",
            self.cpus, self.machine
        )?;
        write!(f, "{:NAME$}", "line")?;
        self.rungs.iter().try_for_each(|rung| write!(f, " {rung:>14}"))?;
        writeln!(f, "  taken away by")?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, moved: &[f64], gone: &str| {
            let name: String = name.chars().take(NAME).collect();
            write!(f, "{name:NAME$}")?;
            moved.iter().try_for_each(|n| write!(f, " {:>14}", cell(*n)))?;
            writeln!(f, "  {gone}")
        };
        for line in &self.lines {
            row(f, &line.line, &line.moved, line.gone.unwrap_or_default())?;
        }
        for other in self.others.iter().filter(|other| other.moved.iter().any(|n| *n >= 0.00005)) {
            row(f, &format!("other: {}", other.line), &other.moved, "")?;
        }
        row(f, "all", &self.total, "")
    }
}
