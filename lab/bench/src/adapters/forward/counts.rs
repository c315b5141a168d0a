//! How often a packet took the slab's slow path, beside what it cost: the profile of the seed, as counts.
//!
//! Ours are the slab's own statistics, of heads and data together; those of history are what its ways count. They are of all packets of
//! an arena, those of the samples' ends, which are freed outside the time, among them. When the last arena of a case is gone, the table is
//! written to the standard error, where it does not mix with results; a report takes the numbers, for machines.

use std::fmt::Write;
use std::ops::Sub;
use std::sync::{Mutex, PoisonError};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use quietline_net::packet::Packets;
use serde::Serialize;

/// Times that something slow was done; none where it is not there or not counted. The names in JSON are a contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Slow {
    /// Changes of a slab's word, by a locked instruction each: one for each group of objects; in history, to free.
    #[serde(rename = "slab_words")]
    pub words: Option<u64>,
    /// Changes of a slab's word to refill a CPU's freelist or to move the slab between lists, by a
    /// locked instruction each: in history.
    pub list_words: Option<u64>,
    /// Times that the lock of a node's list of slabs was taken: in history.
    #[serde(rename = "list_locks")]
    pub locks: Option<u64>,
    /// Times that objects were taken out of slabs.
    pub refills: Option<u64>,
    /// Times that a sheaf's objects went back to slabs.
    pub flushes: Option<u64>,
    /// Full sheaves from or to the barn: its lock once each.
    pub barn: Option<u64>,
    /// Batches from or to a queue that all threads share.
    #[serde(rename = "shared_queue")]
    pub queue: Option<u64>,
}

impl Slow {
    /// What the slab of these packets has counted until now.
    pub(super) fn of(packets: &Packets) -> Self {
        let mut sum = [0; 4];
        for of in packets.data_stats().iter().chain([&packets.head_stats()]) {
            let one = [of.slab_syncs, of.refills, of.flushes, of.barn_gets + of.barn_puts];
            sum.iter_mut().zip(one).for_each(|(sum, n)| *sum += n);
        }
        let [words, refills, flushes, barn] = sum.map(Some);
        Self { words, refills, flushes, barn, ..Self::default() }
    }

    /// What is counted here, and there.
    pub(super) fn and(self, other: Self) -> Self {
        self.with(other, |one, other| one.map_or(other, |one| Some(one + other.unwrap_or(0))))
    }

    fn with(self, other: Self, f: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
        Self {
            words: f(self.words, other.words),
            list_words: f(self.list_words, other.list_words),
            locks: f(self.locks, other.locks),
            refills: f(self.refills, other.refills),
            flushes: f(self.flushes, other.flushes),
            barn: f(self.barn, other.barn),
            queue: f(self.queue, other.queue),
        }
    }

    fn all(self) -> [Option<u64>; 7] {
        [self.words, self.list_words, self.locks, self.refills, self.flushes, self.barn, self.queue]
    }
}

impl Sub for Slow {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        self.with(before, |after, before| after.map(|after| after - before.unwrap_or(0)))
    }
}

/// What the packets of one column, in one case with one number of threads, took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlowPaths {
    /// The case's name.
    pub case: &'static str,
    /// How many threads.
    pub threads: usize,
    /// The column's name.
    pub column: &'static str,
    /// Packets made, in the samples and before them.
    pub packets: u64,
    /// What all of them took together.
    #[serde(flatten)]
    pub slow: Slow,
}

impl SlowPaths {
    /// Of a packet, on average.
    fn figure(&self, times: Option<u64>) -> String {
        match times {
            None => "-".to_owned(),
            Some(0) => "0".to_owned(),
            Some(n) => format!("{:.4}", n as f64 / self.packets as f64),
        }
    }
}

/// The arenas that are there, and what those that are gone have left.
struct Board {
    arenas: usize,
    rows: Vec<SlowPaths>,
    /// Those that were shown, for a report.
    shown: Vec<SlowPaths>,
}

static BOARD: Mutex<Board> = Mutex::new(Board { arenas: 0, rows: Vec::new(), shown: Vec::new() });

/// An arena is there.
pub(super) fn enter() {
    BOARD.lock().unwrap_or_else(PoisonError::into_inner).arenas += 1;
}

/// It is gone, and what it has counted; nothing if it had no packets.
pub(super) fn leave(row: SlowPaths) {
    let mut board = BOARD.lock().unwrap_or_else(PoisonError::into_inner);
    board.arenas -= 1;
    if row.packets > 0 {
        board.rows.push(row);
    }
    if board.arenas == 0 && !board.rows.is_empty() {
        let rows = std::mem::take(&mut board.rows);
        board.shown.extend_from_slice(&rows);
        drop(board);
        eprint!("{}", table(&rows));
    }
}

/// What arenas have counted that are gone, each once: those of cases that are over.
pub fn slow_paths() -> Vec<SlowPaths> {
    std::mem::take(&mut BOARD.lock().unwrap_or_else(PoisonError::into_inner).shown)
}

const HEADER: [&str; 11] = [
    "case",
    "threads",
    "column",
    "packets",
    "slab words",
    "list words",
    "list locks",
    "refills",
    "flushes",
    "barn",
    "shared queue",
];

fn table(rows: &[SlowPaths]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(HEADER);
    for row in rows {
        let mut cells = vec![
            row.case.to_owned(),
            row.threads.to_string(),
            row.column.to_owned(),
            row.packets.to_string(),
        ];
        cells.extend(row.slow.all().map(|times| row.figure(times)));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = "forward: slow paths taken, per packet\n".to_owned();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{table}\n\
         slab words: changes of a slab's word, a locked instruction each (history: to free).\n\
         list words: history's to refill a CPU and to move slabs between lists. list locks: of history's node. refills, flushes: times that objects came\n\
         out of slabs or a sheaf went back to them. barn: full sheaves from and to it. shared queue: batches; counted with one thread.\n\
         -: not there, or not counted.\n"
    );
    text
}
