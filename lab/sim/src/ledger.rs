//! What was seen while a simulation was measured: for each word and each line, who touched it and what that cost.

use crate::cpu_set::CpuSet;
use crate::directory::{From, Kind, LineId, Outcome};
use crate::footprint::Footprints;
use crate::topology::Ps;
use core::panic::Location;

/// Bytes of a line.
pub const LINE: usize = 64;
/// Bytes of a word as the ledger counts: narrower fields that share one count as one.
pub const WORD: usize = 8;

/// Counts of one word, or of several added up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Loads.
    pub reads: u64,
    /// Stores and locked instructions.
    pub writes: u64,
    /// Of the writes, locked instructions.
    pub locked: u64,
    /// Accesses that found the line in the CPU's own caches.
    pub hits: u64,
    /// Accesses that had to fetch the line from another CPU, or take it away from others.
    pub transfers: u64,
    /// Copies that other CPUs lost.
    pub invalidations: u64,
    /// Accesses that went to memory, or to the chip's common cache.
    pub memory: u64,
    /// What the accesses cost the cores.
    pub cost: Ps,
    /// How long transfers had to wait for the line or the bus; part of `cost`, unless a store buffer hid it.
    pub queued: Ps,
    /// How long CPUs spun or slept until somebody wrote the word.
    pub waited: Ps,
}

impl Counts {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.locked += other.locked;
        self.hits += other.hits;
        self.transfers += other.transfers;
        self.invalidations += other.invalidations;
        self.memory += other.memory;
        self.cost += other.cost;
        self.queued += other.queued;
        self.waited += other.waited;
    }
}

/// A word that was touched.
#[derive(Debug, Clone)]
pub struct Word {
    /// Its address, in the arena.
    pub address: usize,
    /// Its line.
    pub line: LineId,
    /// Where in the source it was read last, and written last.
    pub read_by: Option<&'static Location<'static>>,
    /// As `read_by`.
    pub written_by: Option<&'static Location<'static>>,
    /// What was counted.
    pub counts: Counts,
}

/// A line that was touched.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Who read it while it was measured.
    pub readers: CpuSet,
    /// Who wrote it.
    pub writers: CpuSet,
    /// Operations that touched it.
    pub ops: u64,
    /// Operations that had to have it from other CPUs.
    pub moved_ops: u64,
    /// Its words that were ever touched: number plus one, 0 for none.
    words: [u32; LINE / WORD],
}

impl Line {
    /// Whether one CPU's writes concern another: several touched it, and one of them wrote.
    pub fn is_contended(&self) -> bool {
        !self.writers.is_empty() && self.readers.union(&self.writers).len() > 1
    }
}

/// A transfer, for the picture.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// When it was done.
    pub at: Ps,
    /// To whom.
    pub cpu: usize,
    /// Of which line.
    pub line: LineId,
    /// Whether to write.
    pub write: bool,
}

/// Moments that are kept at most.
const MOMENTS: usize = 1000;

/// The ledger of one simulation.
#[derive(Debug, Default)]
pub struct Ledger {
    /// All words, in the order of first touch.
    pub words: Vec<Word>,
    /// All lines, by their number.
    pub lines: Vec<Line>,
    /// The first transfers.
    pub moments: Vec<Moment>,
    /// For each CPU: in which operation it touched a line last, by line.
    stamps: Vec<Vec<u32>>,
    /// For each CPU: the lines that the operation under way had to fetch.
    moved: Vec<Vec<LineId>>,
    op: Vec<u32>,
    footprints: Option<Footprints>,
}

impl Ledger {
    /// An empty ledger for so many CPUs.
    pub fn new(cpus: usize) -> Self {
        Self {
            stamps: vec![Vec::new(); cpus],
            moved: vec![Vec::new(); cpus],
            op: vec![1; cpus],
            ..Self::default()
        }
    }

    /// Returns an empty ledger that keeps the footprint of each operation.
    pub fn with_footprints(cpus: usize) -> Self {
        Self { footprints: Some(Footprints::new(cpus)), ..Self::new(cpus) }
    }

    /// Returns the footprints, if the ledger keeps them.
    pub fn footprints(&self) -> Option<&Footprints> {
        self.footprints.as_ref()
    }

    /// Enters a new line, which has the next number.
    pub fn new_line(&mut self) {
        self.lines.push(Line::default());
    }

    /// The number of the word at an address in a line.
    pub fn word(&mut self, line: LineId, address: usize) -> usize {
        let slot = &mut self.lines[line as usize].words[address % LINE / WORD];
        if *slot == 0 {
            self.words.push(Word {
                address: address - address % WORD,
                line,
                read_by: None,
                written_by: None,
                counts: Counts::default(),
            });
            *slot = self.words.len() as u32;
        }
        *slot as usize - 1
    }

    /// The words of a line that were ever touched.
    pub fn words_of(&self, line: LineId) -> impl Iterator<Item = &Word> {
        self.lines[line as usize]
            .words
            .iter()
            .filter(|slot| **slot != 0)
            .map(|slot| &self.words[*slot as usize - 1])
    }

    /// Remembers who does it.
    pub fn by(&mut self, word: usize, kind: Kind, by: &'static Location<'static>) {
        let word = &mut self.words[word];
        match kind {
            Kind::Load | Kind::Prefetch | Kind::PrefetchWrite => word.read_by = Some(by),
            Kind::Store | Kind::Locked => word.written_by = Some(by),
        }
    }

    /// Counts an access that began at `now`.
    pub fn count(&mut self, cpu: usize, word: usize, kind: Kind, now: Ps, outcome: &Outcome) {
        let Word { line, counts, .. } = &mut self.words[word];
        let id = *line;
        let line = &mut self.lines[id as usize];
        let write = matches!(kind, Kind::Store | Kind::Locked);
        if write {
            counts.writes += 1;
            line.writers.insert(cpu);
        } else {
            counts.reads += 1;
            line.readers.insert(cpu);
        }
        counts.locked += u64::from(kind == Kind::Locked);
        counts.cost += outcome.done - now;
        counts.queued += outcome.queued;
        counts.invalidations += outcome.lost.len() as u64;
        match outcome.from {
            From::Here => counts.hits += 1,
            From::Memory => counts.memory += 1,
            From::Others => {
                counts.transfers += 1;
                if !self.moved[cpu].contains(&id) {
                    self.moved[cpu].push(id);
                    line.moved_ops += 1;
                }
                if self.moments.len() < MOMENTS {
                    self.moments.push(Moment { at: outcome.visible, cpu, line: id, write });
                }
            }
        }
        let stamps = &mut self.stamps[cpu];
        if stamps.len() <= id as usize {
            stamps.resize(id as usize + 1, 0);
        }
        if stamps[id as usize] != self.op[cpu] {
            stamps[id as usize] = self.op[cpu];
            line.ops += 1;
            if let Some(footprints) = &mut self.footprints {
                footprints.touch(cpu);
            }
        }
        if write && let Some(footprints) = &mut self.footprints {
            footprints.write(cpu, id, self.op[cpu]);
        }
    }

    /// Somebody waited until this word was written.
    pub fn waited(&mut self, word: usize, time: Ps) {
        self.words[word].counts.waited += time;
    }

    /// Keeps the footprint of the operation that the CPU is about to end.
    pub fn keep_footprint(&mut self, cpu: usize) {
        if let Some(footprints) = &mut self.footprints {
            footprints.keep(cpu, &self.moved[cpu]);
        }
    }

    /// The CPU has done an operation.
    pub fn op_done(&mut self, cpu: usize) {
        self.moved[cpu].clear();
        self.op[cpu] += 1;
    }
}
