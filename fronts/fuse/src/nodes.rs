//! What the host knows by number.

use parking_lot::Mutex;
use quietline::{Errno, FileHandle};
use std::collections::HashMap;

/// Tables: more than threads that answer.
const TABLES: usize = 64;

/// Nodes: each an open file, and how often the host was told of it.
///
/// The locks are this crate's, and not the kernel's: nothing but a table is touched under one.
#[derive(Debug)]
pub(crate) struct Nodes {
    tables: [Mutex<HashMap<u64, Node>>; TABLES],
}

#[derive(Debug)]
struct Node {
    file: FileHandle<'static>,
    lookups: u64,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self { tables: std::array::from_fn(|_| Mutex::default()) }
    }

    fn table(&self, number: u64) -> &Mutex<HashMap<u64, Node>> {
        &self.tables[number as usize % TABLES]
    }

    /// The file of a node.
    ///
    /// # Errors
    /// `ESTALE` for a number that the host was not told, or has forgotten.
    pub(crate) fn get(&self, number: u64) -> Result<FileHandle<'static>, Errno> {
        self.table(number).lock().get(&number).map(|node| node.file.clone()).ok_or(Errno::STALE)
    }

    /// The host is told of a node once more; false if it is not there.
    pub(crate) fn tell_again(&self, number: u64) -> bool {
        self.table(number).lock().get_mut(&number).map(|node| node.lookups += 1).is_some()
    }

    /// The host is told of a node, which is made if it is not there.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn tell(&self, number: u64, file: FileHandle<'static>) -> Result<(), Errno> {
        let mut table = self.table(number).lock();
        table.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        // If somebody else was quicker, his file stays.
        table.entry(number).or_insert(Node { file, lookups: 0 }).lookups += 1;
        Ok(())
    }

    /// The host forgets as many tellings of a node.
    pub(crate) fn forget(&self, number: u64, tellings: u64) {
        let mut table = self.table(number).lock();
        let Some(node) = table.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(tellings);
        if node.lookups == 0 {
            let node = table.remove(&number);
            drop(table);
            // Closing it may free a large file: not under the lock.
            drop(node);
        }
    }

    /// Nodes that there are.
    pub(crate) fn len(&self) -> usize {
        self.tables.iter().map(|table| table.lock().len()).sum()
    }

    /// The host is gone.
    pub(crate) fn clear(&self) {
        for table in &self.tables {
            let nodes = std::mem::take(&mut *table.lock());
            drop(nodes);
        }
    }
}
