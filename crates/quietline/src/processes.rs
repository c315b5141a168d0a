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

/// The number after the largest that a process gets, as Linux has it.
const PID_MAX: i32 = 1 << 22;
/// The first number after a wrap, as Linux has it.
const AFTER_WRAP: i32 = 300;

/// The processes that there are.
#[derive(Debug)]
pub(crate) struct Processes {
    list: Registered<SpinLock<List>>,
}

#[derive(Debug)]
struct List {
    /// By number.
    tasks: Vec<Shared<Task>>,
    /// The number that was given last.
    last: i32,
    /// The number after the largest: [`PID_MAX`], but for tests.
    end: i32,
}

impl List {
    /// Returns the next number that no process has, and its index in the list.
    fn free_number(&self) -> Option<(i32, usize)> {
        let next = self.last + 1;
        self.free_within(next, self.end).or_else(|| self.free_within(AFTER_WRAP, next))
    }

    fn free_within(&self, first: i32, end: i32) -> Option<(i32, usize)> {
        let at = self.tasks.partition_point(|task| task.pid < first);
        let taken = self.tasks[at..].iter().zip(first..).take_while(|(task, n)| task.pid == *n);
        let taken = taken.count();
        let number = first + taken as i32;
        (number < end).then_some((number, at + taken))
    }
}

impl Processes {
    pub(crate) fn new() -> Result<Self, AllocError> {
        let list = List { tasks: Vec::new(), last: 0, end: PID_MAX };
        let list = Registered::new(Rank::List, SpinLock::new(list))?;
        Ok(Self { list })
    }

    /// A process begins: it gets the next number that no other has.
    ///
    /// # Errors
    /// `ENOMEM`; `EAGAIN` when there is no number.
    pub(crate) fn enter(&self, task: &mut Shared<Task>) -> Result<(), Errno> {
        let mut list = self.list.lock();
        fault::check().map_err(|_| Errno::NOMEM)?;
        list.tasks.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        let (pid, at) = list.free_number().ok_or(Errno::AGAIN)?;
        let new = Shared::get_mut(task).expect("no other thread has seen it");
        new.pid = pid;
        new.fs.set_owner(pid as u32);
        list.tasks.insert(at, task.clone());
        list.last = pid;
        Ok(())
    }

    /// A process ends: from now on nobody is inside [`with`](Self::with) on its account. O(processes), as memory is moved.
    pub(crate) fn leave(&self, pid: i32) {
        let mut list = self.list.lock();
        let at = list.tasks.binary_search_by_key(&pid, |task| task.pid).ok();
        let left = at.map(|at| list.tasks.remove(at));
        drop(list);
        drop(left);
    }

    /// Calls `f` with a process, which does not end meanwhile; none if there is no such process. `f` is short, drops no file and
    /// no place, and asks for no process.
    pub(crate) fn with<R>(&self, pid: i32, f: impl FnOnce(&Task) -> R) -> Option<R> {
        let list = self.list.lock();
        let at = list.tasks.binary_search_by_key(&pid, |task| task.pid).ok()?;
        Some(f(&list.tasks[at]))
    }

    /// The lowest number of a process from `from` on.
    pub(crate) fn next(&self, from: i32) -> Option<i32> {
        let list = self.list.lock();
        let at = list.tasks.partition_point(|task| task.pid < from);
        list.tasks.get(at).map(|task| task.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::{AFTER_WRAP, PID_MAX};
    use crate::{Config, Errno, Kernel, Process};

    fn children(parent: &Process, n: usize) -> Vec<Process> {
        (0..n).map(|_| parent.fork().unwrap()).collect()
    }

    fn pids(processes: &[Process]) -> Vec<i32> {
        processes.iter().map(|process| process.getpid()).collect()
    }

    #[test]
    fn numbers_wrap_past_live_processes() {
        let kernel = Kernel::boot(Config::default()).unwrap();
        let first = kernel.process().unwrap();
        let set_last = |pid| kernel.inner().processes.list.lock().last = pid;
        assert_eq!(first.getpid(), 1);
        set_last(AFTER_WRAP);
        let early = children(&first, 2);
        assert_eq!(pids(&early), [AFTER_WRAP + 1, AFTER_WRAP + 2]);
        set_last(PID_MAX - 3);
        let late = children(&first, 5);
        let expected = [PID_MAX - 2, PID_MAX - 1, AFTER_WRAP, AFTER_WRAP + 3, AFTER_WRAP + 4];
        assert_eq!(pids(&late), expected);
        for process in early.iter().chain(&late) {
            assert_eq!(process.kill(process.getpid(), 0), Ok(()));
        }
        // A number is free again when its process has ended, but its turn comes after all others.
        drop(early);
        assert_eq!(first.fork().unwrap().getpid(), AFTER_WRAP + 5);
        set_last(AFTER_WRAP);
        assert_eq!(first.fork().unwrap().getpid(), AFTER_WRAP + 1);
        // The last number of all has a live process, so the search wraps at once.
        set_last(PID_MAX - 2);
        assert_eq!(first.fork().unwrap().getpid(), AFTER_WRAP + 1);
    }

    /// Numbers below [`AFTER_WRAP`] are not given after a wrap, so `EAGAIN` comes while they are
    /// free.
    #[test]
    fn fork_fails_when_all_numbers_after_a_wrap_have_processes() {
        let kernel = Kernel::boot(Config::default()).unwrap();
        let first = kernel.process().unwrap();
        {
            let mut list = kernel.inner().processes.list.lock();
            (list.last, list.end) = (AFTER_WRAP + 2, AFTER_WRAP + 4);
        }
        let all = children(&first, 4);
        assert_eq!(pids(&all), [3, 0, 1, 2].map(|n| AFTER_WRAP + n));
        assert_eq!(first.fork().map(drop), Err(Errno::AGAIN));
        drop(all);
        assert_eq!(first.fork().unwrap().getpid(), AFTER_WRAP + 3);
    }
}
