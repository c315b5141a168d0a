//! How many blocks of memory a world still holds: a count that outlives the world, so that a test can see it
//! reach zero.

use std::sync::Arc;

use quietline_platform::atomic::{AtomicUsize, Ordering};

/// Counts the blocks of memory (slabs, descriptor tables, the globals) that a world and its processes hold.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    blocks: Arc<AtomicUsize>,
}

impl Ledger {
    /// Blocks that are held now; zero when the world and all its processes are dropped.
    pub fn blocks(&self) -> usize {
        // Relaxed: a count that orders nothing.
        self.blocks.load(Ordering::Relaxed)
    }

    /// Enters one block, until the entry is dropped.
    pub(crate) fn enter(&self) -> Entry {
        // Relaxed: as above.
        self.blocks.fetch_add(1, Ordering::Relaxed);
        Entry { ledger: self.clone() }
    }
}

/// A block in the ledger.
pub(crate) struct Entry {
    ledger: Ledger,
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Relaxed: as in `blocks`.
        self.ledger.blocks.fetch_sub(1, Ordering::Relaxed);
    }
}
