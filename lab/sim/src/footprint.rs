//! Footprints: the cache lines that single operations touch, and those that they take from others.

use crate::directory::LineId;

/// The footprint of one operation.
#[derive(Debug, Clone, Copy)]
pub struct Footprint<'a> {
    /// Number of distinct lines that the operation read or wrote.
    pub touched: usize,
    /// The distinct lines that the operation wrote and had to get from other CPUs: since the CPU
    /// touched such a line before, another CPU has read or written it.
    pub shared: &'a [LineId],
}

/// A log of footprints, in the order in which the operations ended.
#[derive(Debug, Default)]
pub struct Footprints {
    under_way: Vec<UnderWay>,
    /// For each operation: the number of lines touched, and the end of its part of `shared`.
    ops: Vec<(usize, usize)>,
    shared: Vec<LineId>,
}

/// The footprint of a CPU's operation under way.
#[derive(Debug, Clone, Default)]
struct UnderWay {
    touched: usize,
    written: Vec<LineId>,
    /// For each line: the number of the last operation that wrote it.
    stamps: Vec<u32>,
}

impl Footprints {
    /// Returns an empty log for so many CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        Self { under_way: vec![UnderWay::default(); cpus], ..Self::default() }
    }

    /// Counts a line that the operation under way touches for the first time.
    pub(crate) fn touch(&mut self, cpu: usize) {
        self.under_way[cpu].touched += 1;
    }

    /// Enters a line that the CPU's operation number `op` writes.
    pub(crate) fn write(&mut self, cpu: usize, line: LineId, op: u32) {
        let under_way = &mut self.under_way[cpu];
        if under_way.stamps.len() <= line as usize {
            under_way.stamps.resize(line as usize + 1, 0);
        }
        let stamp = &mut under_way.stamps[line as usize];
        if *stamp != op {
            *stamp = op;
            under_way.written.push(line);
        }
    }

    /// Ends the CPU's operation, which got the lines `moved` from other CPUs, and keeps its
    /// footprint.
    pub(crate) fn keep(&mut self, cpu: usize, moved: &[LineId]) {
        let under_way = &mut self.under_way[cpu];
        self.shared.extend(under_way.written.drain(..).filter(|line| moved.contains(line)));
        self.ops.push((core::mem::take(&mut under_way.touched), self.shared.len()));
    }

    /// Returns the footprints of all operations.
    pub fn iter(&self) -> impl Iterator<Item = Footprint<'_>> {
        let begins = core::iter::once(0).chain(self.ops.iter().map(|(_, end)| *end));
        self.ops
            .iter()
            .zip(begins)
            .map(|(&(touched, end), begin)| Footprint { touched, shared: &self.shared[begin..end] })
    }
}
