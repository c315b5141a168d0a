//! The processes of a kernel, by number: for `/proc`, and for nobody else.
//!
//! # Lock order
//!
//! The list's lock comes before those of a process's place and table. What is taken out of a process is let go of when the lock is
//! free.

use crate::Errno;
use crate::process::Task;
use quietline_platform::fork::{Rank, Registered};
use quietline_platform::{AllocError, fault};
use quietline_sync::{Shared, SpinLock};

/// The processes that there are.
#[derive(Debug)]
pub(crate) struct Processes {
    /// By number, which grows but for a wrap after 2^31 processes.
    list: Registered<SpinLock<Vec<Shared<Task>>>>,
}

impl Processes {
    pub(crate) fn new() -> Result<Self, AllocError> {
        Ok(Self { list: Registered::new(Rank::List, SpinLock::new(Vec::new()))? })
    }

    /// A process begins.
    pub(crate) fn enter(&self, task: &Shared<Task>) -> Result<(), Errno> {
        let mut list = self.list.lock();
        fault::check().map_err(|_| Errno::NOMEM)?;
        list.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        let at = list.partition_point(|other| other.pid < task.pid);
        list.insert(at, task.clone());
        Ok(())
    }

    /// A process ends: from now on nobody is inside [`with`](Self::with) on its account. O(processes), as memory is moved.
    pub(crate) fn leave(&self, pid: i32) {
        let mut list = self.list.lock();
        let left = list.binary_search_by_key(&pid, |task| task.pid).ok().map(|at| list.remove(at));
        drop(list);
        drop(left);
    }

    /// Calls `f` with a process, which does not end meanwhile; none if there is no such process. `f` is short, drops no file and
    /// no place, and asks for no process.
    pub(crate) fn with<R>(&self, pid: i32, f: impl FnOnce(&Task) -> R) -> Option<R> {
        let list = self.list.lock();
        let at = list.binary_search_by_key(&pid, |task| task.pid).ok()?;
        Some(f(&list[at]))
    }

    /// The lowest number of a process from `from` on.
    pub(crate) fn next(&self, from: i32) -> Option<i32> {
        let list = self.list.lock();
        list.get(list.partition_point(|task| task.pid < from)).map(|task| task.pid)
    }
}
