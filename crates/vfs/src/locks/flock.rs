//! Locks of whole files, by open file.

use super::{LockKind, grow};
use quietline_platform::AllocError;

/// `flock`: shared.
pub const LOCK_SH: i32 = 1;
/// `flock`: exclusive.
pub const LOCK_EX: i32 = 2;
/// `flock`: fail rather than wait.
pub const LOCK_NB: i32 = 4;
/// `flock`: give it up.
pub const LOCK_UN: i32 = 8;
/// `flock`: mandatory. Accepted, without effect.
pub const LOCK_MAND: i32 = 32;

/// Who holds a file's flock: one exclusively, or any number of open files shared.
#[derive(Debug)]
pub(super) struct Flocks {
    held: Vec<(u64, LockKind)>,
}

impl Flocks {
    pub(super) const fn new() -> Self {
        Self { held: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, LockKind)> {
        self.held.iter().copied()
    }

    /// What this open file holds.
    pub(super) fn of(&self, file: u64) -> Option<LockKind> {
        self.held.iter().find(|held| held.0 == file).map(|held| held.1)
    }

    /// Whether another's lock is in the way.
    pub(super) fn conflict(&self, file: u64, kind: LockKind) -> bool {
        self.held.iter().any(|held| held.0 != file && kind.excludes(held.1))
    }

    /// Makes room for one more, so that [`push`](Self::push) needs no memory.
    pub(super) fn reserve(&mut self) -> Result<(), AllocError> {
        grow(&mut self.held, 1)
    }

    /// Adds a lock that nothing is in the way of, after [`reserve`](Self::reserve).
    pub(super) fn push(&mut self, file: u64, kind: LockKind) {
        self.held.push((file, kind));
    }

    /// True if the file held one.
    pub(super) fn remove(&mut self, file: u64) -> bool {
        let at = self.held.iter().position(|held| held.0 == file);
        at.map(|at| self.held.remove(at)).is_some()
    }
}
