//! How often a packet took the slab's slow path, beside what it cost: the profile of the seed, as counts.
//!
//! Ours are the slab's own statistics, of heads and data together; those of history are what its ways count. They are of all packets of
//! an arena, those of the samples' ends, which are freed outside the time, among them. When the last arena of a case is gone, the table is
//! written to the standard error, where it does not mix with results.

use std::fmt::Write;
use std::ops::Sub;
use std::sync::{Mutex, PoisonError};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use quietline_net::packet::Packets;

/// Times that something slow was done; none where it is not there or not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slow {
    /// Changes of a slab's word, by a locked instruction each: one for each group of objects; in history, to free.
    pub(super) words: Option<u64>,
    /// Times that the lock of a node's list of slabs was taken: in history.
    pub(super) locks: Option<u64>,
    /// Times that objects were taken out of slabs.
    pub(super) refills: Option<u64>,
    /// Times that a sheaf's objects went back to slabs.
    pub(super) flushes: Option<u64>,
    /// Full sheaves from or to the barn: its lock once each.
    pub(super) barn: Option<u64>,
    /// Batches from or to a queue that all threads share.
    pub(super) queue: Option<u64>,
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
            locks: f(self.locks, other.locks),
            refills: f(self.refills, other.refills),
            flushes: f(self.flushes, other.flushes),
            barn: f(self.barn, other.barn),
            queue: f(self.queue, other.queue),
        }
    }

    fn all(self) -> [Option<u64>; 6] {
        [self.words, self.locks, self.refills, self.flushes, self.barn, self.queue]
    }
}

impl Sub for Slow {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        self.with(before, |after, before| after.map(|after| after - before.unwrap_or(0)))
    }
}

/// What an arena's packets took.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: &'static str,
    pub(super) threads: usize,
    pub(super) column: &'static str,
    pub(super) packets: u64,
    pub(super) slow: Slow,
}

impl Row {
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
    rows: Vec<Row>,
}

static BOARD: Mutex<Board> = Mutex::new(Board { arenas: 0, rows: Vec::new() });

/// An arena is there.
pub(super) fn enter() {
    BOARD.lock().unwrap_or_else(PoisonError::into_inner).arenas += 1;
}

/// It is gone, and what it has counted; nothing if it had no packets.
pub(super) fn leave(row: Row) {
    let mut board = BOARD.lock().unwrap_or_else(PoisonError::into_inner);
    board.arenas -= 1;
    if row.packets > 0 {
        board.rows.push(row);
    }
    if board.arenas == 0 && !board.rows.is_empty() {
        let rows = std::mem::take(&mut board.rows);
        drop(board);
        eprint!("{}", table(&rows));
    }
}

const HEADER: [&str; 10] = [
    "case",
    "threads",
    "column",
    "packets",
    "slab words",
    "list locks",
    "refills",
    "flushes",
    "barn",
    "shared queue",
];

fn table(rows: &[Row]) -> String {
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
         slab words: changes of a slab's word, a locked instruction each (history: to free). list locks: of history's node. refills, flushes: times that objects came\n\
         out of slabs or a sheaf went back to them. barn: full sheaves from and to it. shared queue: batches; counted with one thread.\n\
         -: not there, or not counted.\n"
    );
    text
}
