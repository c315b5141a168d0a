//! Who waits for whom.

use super::{LockOwner, grow};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicUsize, Ordering};
use quietline_sync::SpinLock;

/// The locks that a file may have at first.
const FILE_LOCKS_MAX: usize = 1 << 16;

/// The waits for record locks of a whole kernel: an edge for each sleeping thread, from its process
/// to the owner of the lock that is in the way. Touched only by threads that are about to sleep,
/// and by threads that wake them. Beside them is the kernel's limit on the locks of a file.
///
/// Its lock is taken under that of a [`FileLocks`](super::FileLocks), and is a leaf.
#[derive(Debug)]
pub struct LockWaits {
    edges: SpinLock<Vec<Edge>>,
    file_locks_max: AtomicUsize,
}

#[derive(Debug)]
struct Edge {
    waiter: i32,
    blocker: LockOwner,
    /// Which of the waits it is.
    ticket: usize,
    /// During a search: reached already.
    reached: bool,
    /// During a search: the next one whose blocker is to be looked at.
    next: usize,
}

/// No edge.
const NONE: usize = usize::MAX;

/// Why a wait is not entered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Deadlock,
    Memory,
}

impl From<AllocError> for Refused {
    fn from(_: AllocError) -> Self {
        Self::Memory
    }
}

impl LockWaits {
    /// Nobody waits.
    pub const fn new() -> Self {
        let file_locks_max = AtomicUsize::new(FILE_LOCKS_MAX);
        Self { edges: SpinLock::new(Vec::new()), file_locks_max }
    }

    /// Returns the number of locks that a file may have: record locks, after locks of one owner
    /// that touch were merged, and flocks.
    pub fn file_locks_max(&self) -> usize {
        // Relaxed: a tunable.
        self.file_locks_max.load(Ordering::Relaxed)
    }

    /// Changes the number of locks that a file may have. All that are held stay.
    pub fn set_file_locks_max(&self, max: usize) {
        // Relaxed: a tunable.
        self.file_locks_max.store(max, Ordering::Relaxed);
    }

    /// Enters a wait, unless the blocker waits for the waiter, directly or by way of others.
    pub(super) fn enter(
        &self,
        waiter: i32,
        blocker: LockOwner,
        ticket: usize,
    ) -> Result<(), Refused> {
        let mut edges = self.edges.lock();
        if leads_to(&mut edges, blocker, waiter) {
            return Err(Refused::Deadlock);
        }
        grow(&mut edges, 1)?;
        let at = first(&edges, waiter);
        edges.insert(at, Edge { waiter, blocker, ticket, reached: false, next: NONE });
        Ok(())
    }

    /// Another lock may be in the way of a wait now. False if its owner waits for the waiter; then nothing is changed.
    #[must_use]
    pub(super) fn turn(&self, waiter: i32, ticket: usize, blocker: LockOwner) -> bool {
        let mut edges = self.edges.lock();
        if leads_to(&mut edges, blocker, waiter) {
            return false;
        }
        let at = first(&edges, waiter);
        let own = edges[at..].iter_mut().take_while(|edge| edge.waiter == waiter);
        for edge in own.filter(|edge| edge.ticket == ticket) {
            edge.blocker = blocker;
        }
        true
    }

    /// Ends a wait.
    pub(super) fn leave(&self, waiter: i32, ticket: usize) {
        let mut edges = self.edges.lock();
        let at = first(&edges, waiter);
        let own = edges[at..].iter().take_while(|edge| edge.waiter == waiter);
        if let Some(offset) =
            own.enumerate().find(|(_, edge)| edge.ticket == ticket).map(|(offset, _)| offset)
        {
            edges.remove(at + offset);
        }
    }
}

impl Default for LockWaits {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the edges of a process begin. They are sorted by process.
fn first(edges: &[Edge], waiter: i32) -> usize {
    edges.partition_point(|edge| edge.waiter < waiter)
}

/// Whether a chain of waits leads from an owner to a process. Each edge is looked at once; the list of those still to
/// be followed lies in the edges.
fn leads_to(edges: &mut [Edge], from: LockOwner, to: i32) -> bool {
    edges.iter_mut().for_each(|edge| edge.reached = false);
    let (mut todo, mut owner) = (NONE, from);
    loop {
        // An open file waits for nobody that could be told: another thread may have it.
        if let LockOwner::Process(pid) = owner {
            if pid == to {
                return true;
            }
            let mut at = first(edges, pid);
            while let Some(edge) =
                edges.get_mut(at).filter(|edge| edge.waiter == pid && !edge.reached)
            {
                (edge.reached, edge.next) = (true, todo);
                todo = at;
                at += 1;
            }
        }
        let Some(edge) = edges.get(todo) else { return false };
        (owner, todo) = (edge.blocker, edge.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_and_forks() {
        let waits = LockWaits::new();
        let by = LockOwner::Process;
        for pid in 1..2_000 {
            assert_eq!(waits.enter(pid, by(pid + 1), 0), Ok(()));
        }
        assert_eq!(waits.enter(2_000, by(1), 0), Err(Refused::Deadlock), "however long the chain");
        assert_eq!(waits.enter(2_000, by(3_000), 1), Ok(()));
        assert_eq!(waits.enter(3_000, LockOwner::File(7), 0), Ok(()), "an open file ends a chain");
        assert_eq!(
            waits.enter(3_000, by(500), 2),
            Err(Refused::Deadlock),
            "by the second thread too"
        );
        waits.leave(1_000, 0);
        assert_eq!(waits.enter(3_000, by(500), 2), Ok(()), "the chain is broken");
        assert!(waits.turn(999, 0, by(4_000)));
        assert!(!waits.turn(999, 0, by(900)));
        assert_eq!(waits.enter(4_000, by(600), 0), Err(Refused::Deadlock), "and leads elsewhere");
        assert_eq!(waits.enter(1_000, by(600), 0), Ok(()));
        waits.leave(5_000, 0);
        waits.leave(2_000, 9);
        assert_eq!(waits.edges.lock().len(), 1999 + 2 + 1);
    }
}
