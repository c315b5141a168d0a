//! The lines that were touched: their numbers, how often each was written, and whose they are.
//!
//! A line's number is its place in the order of first touch, and everything that the model computes from a line (its set
//! in a cache, its row in a ledger) it computes from that number. So where the system maps memory does not matter.

use super::number_hash::NumberHash;
use crate::directory::LineId;
use crate::ledger::LINE;
use std::collections::HashMap;

const SHARED: u16 = u16::MAX;
const NOBODY: u16 = u16::MAX - 1;

/// All lines that were touched.
#[derive(Default)]
pub(super) struct Touched {
    /// Numbers of lines by real address divided by the size of a line.
    ids: HashMap<usize, LineId, NumberHash>,
    /// For each line: how often it was written, and the only CPU that has touched it, if only one has.
    versions: Vec<u32>,
    toucher: Vec<u16>,
}

impl Touched {
    /// The number of an address's line, if it was touched before.
    pub(super) fn find(&self, address: usize) -> Option<LineId> {
        self.ids.get(&(address / LINE)).copied()
    }

    /// Enters the line of an address, with the next number, which is the caller's to know.
    pub(super) fn enter(&mut self, address: usize, line: LineId) {
        self.versions.push(0);
        self.toucher.push(NOBODY);
        self.ids.insert(address / LINE, line);
    }

    /// Whether nobody else has ever touched the line.
    pub(super) fn is_own(&self, cpu: usize, line: LineId) -> bool {
        let toucher = self.toucher[line as usize];
        toucher == cpu as u16 || toucher == NOBODY
    }

    /// A CPU touches it.
    pub(super) fn by(&mut self, cpu: usize, line: LineId) {
        self.toucher[line as usize] = if self.is_own(cpu, line) { cpu as u16 } else { SHARED };
    }

    /// How often it was written, up to wrapping.
    pub(super) fn version(&self, line: LineId) -> u32 {
        self.versions[line as usize]
    }

    /// It is written: its version before.
    pub(super) fn write(&mut self, line: LineId) -> u32 {
        let version = &mut self.versions[line as usize];
        let before = *version;
        *version = before.wrapping_add(1);
        before
    }
}
