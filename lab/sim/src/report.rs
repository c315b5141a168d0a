//! A run, as people and programs read it.

pub mod html;
pub mod text;

use crate::directory::LineId;
use crate::label;
use crate::ledger::{Counts, Ledger, Line, Word};
use crate::topology::Topology;
use serde::Serialize;
use std::collections::BTreeMap;

/// A run of one operation. Numbers are per operation unless they say otherwise.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was done.
    pub operation: String,
    /// The machine's name.
    pub machine: String,
    /// The machine, in words.
    pub title: String,
    /// Virtual CPUs that did it.
    pub cpus: usize,
    /// Seed of the noise.
    pub seed: u64,
    /// Operations that were measured.
    pub ops: u64,
    /// What one took a CPU.
    pub ns_per_op: f64,
    /// Lines that an operation touches and that CPUs contend for, whether they met or not.
    pub contended_lines: f64,
    /// Lines that an operation had to get from other CPUs.
    pub moved_lines: f64,
    /// By field.
    pub fields: Vec<Field>,
    /// Contended lines, the worst first.
    pub conflicts: Vec<Conflict>,
    /// What each latency is, and where it comes from.
    pub sources: Vec<(String, String)>,
    /// The first transfers of contended lines, for a picture.
    pub picture: Vec<Transfer>,
}

/// A line that went to a CPU.
#[derive(Debug, Clone, Serialize)]
pub struct Transfer {
    /// When, in nanoseconds since the first that is told of.
    pub at_ns: f64,
    /// To whom.
    pub cpu: usize,
    /// Which line: the number of its row in the picture.
    pub line: usize,
    /// What is on the line.
    pub name: String,
    /// Whether to be written.
    pub write: bool,
}

/// What was counted for one field of a structure, in all objects that have it.
#[derive(Debug, Clone, Serialize)]
pub struct Field {
    /// Its name, or who writes it.
    pub field: String,
    /// How many words have it.
    pub words: usize,
    /// Loads.
    pub reads: f64,
    /// Stores and locked instructions.
    pub writes: f64,
    /// Locked instructions.
    pub locked: f64,
    /// Accesses served by the CPU's own caches.
    pub hits: f64,
    /// Accesses served by other CPUs.
    pub transfers: f64,
    /// Copies that others lost.
    pub invalidations: f64,
    /// Accesses served by memory or the chip's common cache.
    pub memory: f64,
    /// Nanoseconds of waiting: for the line, the bus, or a value.
    pub wait_ns: f64,
    /// Nanoseconds of accesses and waiting, and their share of the time, from 0 to 1.
    pub cost_ns: f64,
    /// As `cost_ns`.
    pub share: f64,
}

/// A contended line, or all lines that look the same.
#[derive(Debug, Clone, Serialize)]
pub struct Conflict {
    /// The fields on it that were touched.
    pub line: String,
    /// How many such lines.
    pub lines: usize,
    /// CPUs that read it and that wrote it, at most.
    pub readers: usize,
    /// As `readers`.
    pub writers: usize,
    /// Operations that touch such a line.
    pub touched: f64,
    /// Operations that had to get it from others.
    pub moved: f64,
    /// Nanoseconds of waiting.
    pub wait_ns: f64,
    /// Who wrote a word of it last, by source line.
    pub written_by: Vec<String>,
}

/// A run's parts that a report is made of.
#[derive(Debug)]
pub struct Basis<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Virtual CPUs.
    pub cpus: usize,
    /// Seed of the noise.
    pub seed: u64,
    /// Operations measured.
    pub ops: u64,
    /// What one took a CPU.
    pub ns_per_op: f64,
    /// Who touched what.
    pub ledger: &'a Ledger,
}

#[cfg(quietline_sim)]
impl<'a> Basis<'a> {
    /// What a run gives.
    pub fn of(run: &'a crate::simulation::Run) -> Self {
        Self {
            topology: &run.topology,
            cpus: run.cpus,
            seed: run.seed,
            ops: run.ops,
            ns_per_op: run.ns_per_op(),
            ledger: &run.ledger,
        }
    }
}

impl Report {
    /// The report of what was measured. Names are asked for now: the scene must still be there.
    pub fn new(operation: &str, basis: &Basis<'_>) -> Self {
        let ops = basis.ops.max(1) as f64;
        let time = basis.ns_per_op.max(1e-9);
        let conflicts = conflicts(basis.ledger, ops);
        Self {
            operation: operation.to_owned(),
            machine: basis.topology.name.clone(),
            title: basis.topology.title.clone(),
            cpus: basis.cpus,
            seed: basis.seed,
            ops: basis.ops,
            ns_per_op: basis.ns_per_op,
            contended_lines: conflicts
                .iter()
                .map(|c| c.touched)
                .fold(0.0, |sum, touched| sum + touched),
            moved_lines: basis.ledger.lines.iter().map(|line| line.moved_ops).sum::<u64>() as f64
                / ops,
            fields: fields(basis.ledger, ops, time),
            conflicts,
            sources: basis.topology.sources.clone(),
            picture: picture(basis.ledger),
        }
    }

    /// The contended line that costs the most, if there is one.
    pub fn bottleneck(&self) -> Option<&Conflict> {
        self.conflicts.iter().max_by(|a, b| (a.wait_ns + a.moved).total_cmp(&(b.wait_ns + b.moved)))
    }
}

fn fields(ledger: &Ledger, ops: f64, time: f64) -> Vec<Field> {
    let mut by_label: BTreeMap<String, (usize, Counts)> = BTreeMap::new();
    for word in ledger.words.iter().filter(|word| word.counts.reads + word.counts.writes > 0) {
        let (words, counts) = by_label.entry(label::of_word(word)).or_default();
        *words += 1;
        counts.add(&word.counts);
    }
    let per_op = |n: u64| n as f64 / ops;
    let field = |(field, (words, c)): (String, (usize, Counts))| {
        let cost_ns = per_op(c.cost + c.waited) / 1000.0;
        Field {
            field,
            words,
            reads: per_op(c.reads),
            writes: per_op(c.writes),
            locked: per_op(c.locked),
            hits: per_op(c.hits),
            transfers: per_op(c.transfers),
            invalidations: per_op(c.invalidations),
            memory: per_op(c.memory),
            wait_ns: per_op(c.queued + c.waited) / 1000.0,
            cost_ns,
            share: cost_ns / time,
        }
    };
    let mut fields: Vec<Field> = by_label.into_iter().map(field).collect();
    fields.sort_by(|a, b| b.cost_ns.total_cmp(&a.cost_ns));
    fields
}

fn conflicts(ledger: &Ledger, ops: f64) -> Vec<Conflict> {
    let mut by_label: BTreeMap<String, Conflict> = BTreeMap::new();
    for (id, line) in ledger.lines.iter().enumerate().filter(|(_, line)| line.is_contended()) {
        let (name, written_by, waited) = describe(ledger, id as LineId);
        let conflict = by_label.entry(name.clone()).or_insert_with(|| Conflict {
            line: name,
            lines: 0,
            readers: 0,
            writers: 0,
            touched: 0.0,
            moved: 0.0,
            wait_ns: 0.0,
            written_by,
        });
        conflict.enter(line, waited, ops);
    }
    let mut conflicts: Vec<Conflict> = by_label.into_values().collect();
    let weight = |c: &Conflict| (c.wait_ns, c.moved);
    conflicts.sort_by(|a, b| weight(b).partial_cmp(&weight(a)).expect("times are numbers"));
    conflicts
}

impl Conflict {
    fn enter(&mut self, line: &Line, waited: u64, ops: f64) {
        self.lines += 1;
        self.readers = self.readers.max(line.readers.len());
        self.writers = self.writers.max(line.writers.len());
        self.touched += line.ops as f64 / ops;
        self.moved += line.moved_ops as f64 / ops;
        self.wait_ns += waited as f64 / ops / 1000.0;
    }
}

/// Lines that a picture has room for.
const ROWS: usize = 40;

fn picture(ledger: &Ledger) -> Vec<Transfer> {
    let mut rows: Vec<LineId> = Vec::new();
    let begin = ledger.moments.first().map_or(0, |moment| moment.at);
    let mut transfers = Vec::new();
    for moment in &ledger.moments {
        let row = match rows.iter().position(|line| *line == moment.line) {
            Some(row) => row,
            None if rows.len() < ROWS => {
                rows.push(moment.line);
                rows.len() - 1
            }
            None => continue,
        };
        transfers.push(Transfer {
            at_ns: moment.at.saturating_sub(begin) as f64 / 1000.0,
            cpu: moment.cpu,
            line: row,
            name: describe(ledger, moment.line).0,
            write: moment.write,
        });
    }
    transfers
}

/// Returns the names of the fields on a line. The scene must still exist.
pub fn line_name(ledger: &Ledger, line: LineId) -> String {
    describe(ledger, line).0
}

/// What is on a line, who writes it, and how long was waited for it.
fn describe(ledger: &Ledger, line: LineId) -> (String, Vec<String>, u64) {
    let mut names = Vec::new();
    let mut written_by = Vec::new();
    let mut waited = 0;
    let touched = |word: &&Word| word.counts.reads + word.counts.writes > 0;
    // What was only touched in passing is not what the line is known by.
    let moved = ledger.words_of(line).any(|word| word.counts.transfers > 0);
    for word in ledger.words_of(line).filter(touched) {
        let name = label::of_word(word);
        if !names.contains(&name) && (!moved || word.counts.transfers > 0) {
            names.push(name);
        }
        if let Some(by) = word.written_by.filter(|_| word.counts.writes > 0) {
            written_by.push(format!("{}:{}", by.file(), by.line()));
        }
        waited += word.counts.queued + word.counts.waited;
    }
    (names.join(", "), written_by, waited)
}
