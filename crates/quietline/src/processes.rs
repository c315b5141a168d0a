//! The processes of a kernel, by number, and how they are related: parents, process groups and
//! sessions.
//!
//! ```text
//!   live ──> closing ──> zombie ──> reaped
//!     its end    files are   the parent has     the number is free, once no group
//!     begins     closed      waited, or will    and no session has it any more
//!                            not
//! ```
//!
//! # Lock order
//!
//! The list's lock comes before those of a process's place and table, and before that of its
//! signals. Objects that are taken out of a process are dropped when the lock is free. Wake-ups of
//! sleepers are made when it is free, too.
//!
//! All relations are in this one file, because each change of one changes others under the lock.
//!
//! # Source
//!
//! `kernel/exit.c`, `kernel/signal.c`, `kernel/sys.c`, `kernel/pid.c`; `wait(2)`, `kill(2)`,
//! `setpgid(2)`, `setsid(2)`.

use crate::Errno;
use crate::abi::{CLD_EXITED, CLD_KILLED};
use crate::process::Task;
use core::mem;
use quietline_platform::fork::{Rank, Registered};
use quietline_platform::{AllocError, fault};
use quietline_sync::{Shared, SpinLock, wake_later};
use quietline_vfs::signalfd::{SIGCHLD, SIGCONT, SIGRTMAX, SigInfo, Signals};

/// The number after the largest that a process gets, as Linux has it.
const PID_MAX: i32 = 1 << 22;
/// The first number after a wrap, as Linux has it.
const AFTER_WRAP: i32 = 300;
/// The number of the process that becomes the parent of orphans.
const INIT: i32 = 1;

/// The list of processes of a kernel.
#[derive(Debug)]
pub(crate) struct Processes {
    list: Registered<SpinLock<List>>,
}

#[derive(Debug)]
struct List {
    /// By number.
    entries: Vec<Entry>,
    /// The number that was given last.
    last: i32,
    /// The number after the largest: [`PID_MAX`], but for tests.
    end: i32,
    /// The most entries ([`Config::pids_max`](crate::Config::pids_max)).
    most: usize,
}

/// A number that is in use (`struct pid`).
#[derive(Debug)]
struct Entry {
    pid: i32,
    /// The parent's number; 0 if there is none.
    parent: i32,
    group: i32,
    session: i32,
    /// The processes with this number as their group, and those with it as their session.
    members: u32,
    /// Processes with this parent, zombies among them.
    children: u32,
    state: EntryState,
    /// Whether it has called `exec` since it was forked.
    has_execed: bool,
}

/// A process, or the rest of one that has ended.
#[derive(Debug)]
enum EntryState {
    Live(Shared<Task>),
    Ended(Ended),
}

/// How far a process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its files are being closed.
    Closing,
    /// Its parent has not waited for it.
    Zombie,
    /// There is no process any more, only its number.
    Reaped,
}

/// The rest of a process that has ended.
#[derive(Debug)]
struct Ended {
    phase: Phase,
    signals: Shared<Signals>,
    /// The exit status, as `wait4` returns it.
    status: i32,
    /// The real and the saved user.
    uids: [u32; 2],
}

/// The sender of a signal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) pid: i32,
    /// The real and the effective user.
    pub(crate) uids: [u32; 2],
    /// Whether it may send to processes of all users.
    pub(crate) may_send: bool,
}

/// The children that a call waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Awaited<'a> {
    All,
    Pid(i32),
    /// The children in a process group.
    Group(i32),
    /// The process with these signals.
    With(&'a Signals),
}

impl Entry {
    /// Whether there is a process with the number, alive or a zombie.
    fn is_process(&self) -> bool {
        !matches!(self.state, EntryState::Ended(Ended { phase: Phase::Reaped, .. }))
    }

    /// Whether the number is that of a process, of a group or of a session.
    fn is_in_use(&self) -> bool {
        self.members > 0 || self.is_process()
    }

    fn task(&self) -> Option<&Shared<Task>> {
        match &self.state {
            EntryState::Live(task) => Some(task),
            EntryState::Ended(_) => None,
        }
    }

    fn zombie(&self) -> Option<&Ended> {
        match &self.state {
            EntryState::Ended(ended) if ended.phase == Phase::Zombie => Some(ended),
            _ => None,
        }
    }

    fn set_phase(&mut self, new: Phase) {
        if let EntryState::Ended(Ended { phase, signals, .. }) = &mut self.state {
            *phase = new;
            signals.set_ended(new == Phase::Reaped);
        }
    }

    fn signals(&self) -> &Shared<Signals> {
        match &self.state {
            EntryState::Live(task) => task.signals.as_shared(),
            EntryState::Ended(ended) => &ended.signals,
        }
    }

    fn is_with(&self, signals: &Signals) -> bool {
        core::ptr::eq(&**self.signals(), signals)
    }

    /// The real and the saved user.
    fn uids(&self) -> [u32; 2] {
        match &self.state {
            EntryState::Live(task) => uids(task),
            EntryState::Ended(ended) => ended.uids,
        }
    }

    /// Sends a signal to the process (`group_send_sig_info`). Number 0 only asks whether that is
    /// allowed.
    fn send(&self, sender: &Sender, session: i32, signo: i32) -> Result<(), Errno> {
        if !(0..=SIGRTMAX).contains(&signo) {
            return Err(Errno::INVAL);
        }
        let allowed = sender.may_send
            || sender.pid == self.pid
            || self.uids().iter().any(|uid| sender.uids.contains(uid))
            || signo == SIGCONT && session == self.session;
        if !allowed {
            return Err(Errno::PERM);
        }
        match self.task() {
            Some(task) if signo != 0 => {
                let info =
                    SigInfo { signo, pid: sender.pid, uid: sender.uids[0], ..SigInfo::default() };
                task.signals.send(info)
            }
            _ => Ok(()),
        }
    }
}

/// The real and the saved user of a process that has not ended.
fn uids(task: &Task) -> [u32; 2] {
    let section = task.cred.section();
    let [real, _, saved] = task.cred.load(&section).uids();
    [real, saved]
}

impl Ended {
    /// Returns what SIGCHLD and `waitid` tell the parent.
    fn info(&self, pid: i32) -> SigInfo {
        let (code, status) = match self.status & 0x7f {
            0 => (CLD_EXITED, self.status >> 8),
            signo => (CLD_KILLED, signo),
        };
        SigInfo { signo: SIGCHLD, code, pid, uid: self.uids[0], status }
    }
}

impl List {
    /// Returns the next number that is free, and its index in the list.
    fn free_number(&self) -> Option<(i32, usize)> {
        let next = self.last + 1;
        self.free_within(next, self.end).or_else(|| self.free_within(AFTER_WRAP, next))
    }

    fn free_within(&self, first: i32, end: i32) -> Option<(i32, usize)> {
        let at = self.entries.partition_point(|entry| entry.pid < first);
        let taken = self.entries[at..].iter().zip(first..).take_while(|(entry, n)| entry.pid == *n);
        let taken = taken.count();
        let number = first + taken as i32;
        (number < end).then_some((number, at + taken))
    }

    /// Makes room for one more entry, for exactly one in a list of none: most kernels have few.
    fn reserve(&mut self) -> Result<(), Errno> {
        fault::check().map_err(|_| Errno::NOMEM)?;
        let len = self.entries.len();
        let more = if len == self.entries.capacity() { len.max(1) } else { 1 };
        self.entries.try_reserve_exact(more).map_err(|_| Errno::NOMEM)
    }

    fn find(&self, pid: i32) -> Option<usize> {
        self.entries.binary_search_by_key(&pid, |entry| entry.pid).ok()
    }

    fn get(&self, pid: i32) -> Option<&Entry> {
        self.find(pid).map(|at| &self.entries[at])
    }

    fn get_mut(&mut self, pid: i32) -> Option<&mut Entry> {
        self.find(pid).map(|at| &mut self.entries[at])
    }

    /// The process with a number, also one that has ended and was not waited for.
    fn process(&self, pid: i32) -> Result<&Entry, Errno> {
        self.get(pid).filter(|entry| entry.is_process()).ok_or(Errno::SRCH)
    }

    fn processes(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_process())
    }

    /// The processes of a group. O(processes), if a group or a session has the number.
    fn members(&self, group: i32) -> impl Iterator<Item = &Entry> {
        let most = self.get(group).map_or(0, |entry| entry.members);
        self.processes().filter(move |entry| entry.group == group).take(most as usize)
    }

    /// Makes a number a group's, or a session's.
    fn join(&mut self, id: i32) {
        self.get_mut(id).expect("a group's number is in use").members += 1;
    }

    /// Takes a process out of a group, or out of a session. The number may be free after that.
    fn leave(&mut self, id: i32) {
        self.get_mut(id).expect("a group's number is in use").members -= 1;
    }

    /// Frees a number that nothing uses. O(processes).
    fn prune(&mut self, pid: i32) {
        if let Some(at) = self.find(pid)
            && !self.entries[at].is_in_use()
        {
            self.entries.remove(at);
        }
    }

    fn set_group(&mut self, pid: i32, group: i32) {
        let Some(entry) = self.get_mut(pid) else { return };
        let old = mem::replace(&mut entry.group, group);
        self.join(group);
        self.leave(old);
        self.prune(old);
    }

    fn set_session(&mut self, pid: i32, session: i32) {
        let Some(entry) = self.get_mut(pid) else { return };
        let old = mem::replace(&mut entry.session, session);
        self.join(session);
        self.leave(old);
        self.prune(old);
    }

    /// Gives the children of a process that ends to the first process, or to none
    /// (`forget_original_parent`). O(processes), if it has children.
    fn orphan_children(&mut self, pid: i32) {
        let Some(entry) = self.get_mut(pid) else { return };
        if mem::take(&mut entry.children) == 0 {
            return;
        }
        let lasts = |init: &Entry| init.is_process() && init.zombie().is_none() && pid != INIT;
        let init = if self.get(INIT).is_some_and(lasts) { INIT } else { 0 };
        for at in 0..self.entries.len() {
            let child = &mut self.entries[at];
            if child.parent != pid {
                continue;
            }
            // The first process may be such a child itself.
            child.parent = if child.pid == init { 0 } else { init };
            let (child, parent, ended) = (child.pid, child.parent, child.zombie().is_some());
            if let Some(parent) = self.get_mut(parent) {
                parent.children += 1;
            }
            if ended && self.tell_parent(child) {
                self.release(child);
            }
        }
        // All numbers at once: each removal moves the entries behind it.
        self.entries.retain(Entry::is_in_use);
    }

    /// Tells the parent of a zombie, and wakes it. Returns whether it never waits for the zombie,
    /// because it ignores its children or because there is none (`do_notify_parent`).
    fn tell_parent(&self, pid: i32) -> bool {
        let Some(entry) = self.get(pid) else { return false };
        let Some(ended) = entry.zombie() else { return false };
        let Some(parent) = self.get(entry.parent) else { return true };
        let parent = parent.signals();
        let ignores = parent.ignores_children();
        if !ignores {
            // Such a signal is never refused.
            let _ = parent.send(ended.info(pid));
        }
        parent.wake_parent();
        ignores
    }

    /// Ends a zombie, but for its number (`release_task`).
    fn release(&mut self, pid: i32) {
        let Some(entry) = self.get_mut(pid) else { return };
        let parent = mem::replace(&mut entry.parent, 0);
        let (group, session) = (entry.group, entry.session);
        entry.set_phase(Phase::Reaped);
        if let Some(parent) = self.get_mut(parent) {
            parent.children -= 1;
        }
        self.leave(group);
        self.leave(session);
    }

    /// Ends a zombie, and frees the numbers that only it has used. O(processes): memory is moved.
    fn reap(&mut self, pid: i32) {
        let Some(entry) = self.get(pid) else { return };
        let numbers = [entry.group, entry.session, pid];
        self.release(pid);
        numbers.into_iter().for_each(|number| self.prune(number));
    }
}

impl Processes {
    /// No processes, and `most` at once.
    pub(crate) fn new(most: usize) -> Result<Self, AllocError> {
        let list = List { entries: Vec::new(), last: 0, end: PID_MAX, most };
        let list = Registered::new(Rank::List, SpinLock::new(list))?;
        Ok(Self { list })
    }

    /// A process begins. It gets the number `wanted`, or the next one that is free. A child is in
    /// its parent's group and session, a process without a parent in its own.
    ///
    /// # Errors
    /// `ENOMEM`; `EAGAIN` when there is no number, or at the limit on entries; `EINVAL` if `wanted`
    /// is no number of a process, `EEXIST` if it is in use.
    pub(crate) fn enter(
        &self,
        task: &mut Shared<Task>,
        parent: i32,
        wanted: Option<i32>,
    ) -> Result<(), Errno> {
        let mut list = self.list.lock();
        let (pid, at) = match wanted {
            None => list.free_number().ok_or(Errno::AGAIN)?,
            Some(pid) if !(1..list.end).contains(&pid) => return Err(Errno::INVAL),
            Some(pid) if list.find(pid).is_some() => return Err(Errno::EXIST),
            Some(pid) => (pid, list.entries.partition_point(|entry| entry.pid < pid)),
        };
        if list.entries.len() >= list.most {
            return Err(Errno::AGAIN);
        }
        list.reserve()?;
        let new = Shared::get_mut(task).expect("no other thread has seen it");
        new.pid = pid;
        new.fs.set_owner(pid as u32);
        let (group, session) = list.get(parent).map_or((pid, pid), |p| (p.group, p.session));
        let (members, children, has_execed) = (0, 0, false);
        let state = EntryState::Live(task.clone());
        let entry = Entry { pid, parent, group, session, members, children, state, has_execed };
        list.entries.insert(at, entry);
        list.join(group);
        list.join(session);
        if let Some(parent) = list.get_mut(parent) {
            parent.children += 1;
        }
        if wanted.is_none() {
            list.last = pid;
        }
        Ok(())
    }

    /// A process begins to end: from now on no thread is inside [`with`](Self::with) on its
    /// account.
    pub(crate) fn begin_exit(&self, pid: i32, status: i32) {
        let mut list = self.list.lock();
        let Some(entry) = list.get_mut(pid) else { return };
        let EntryState::Live(task) = &entry.state else { return };
        let (signals, uids) = (task.signals.as_shared().clone(), uids(task));
        let ended = Ended { phase: Phase::Closing, signals, status, uids };
        let left = mem::replace(&mut entry.state, EntryState::Ended(ended));
        drop(list);
        drop(left);
    }

    /// A process has given back all that it had: its parent is told. O(processes) if it has
    /// children, or if its number is freed, as memory is moved.
    pub(crate) fn finish_exit(&self, pid: i32) {
        wake_later(|| {
            let mut list = self.list.lock();
            list.orphan_children(pid);
            if let Some(entry) = list.get_mut(pid) {
                entry.set_phase(Phase::Zombie);
            }
            if list.tell_parent(pid) {
                list.reap(pid);
            }
        });
    }

    /// Notes that a process has called `exec`.
    pub(crate) fn exec(&self, pid: i32) {
        if let Some(entry) = self.list.lock().get_mut(pid) {
            entry.has_execed = true;
        }
    }

    /// Calls `f` with a process, which does not end meanwhile; none if there is no such process. `f` is short, drops no file and
    /// no place, and asks for no process.
    pub(crate) fn with<R>(&self, pid: i32, f: impl FnOnce(&Task) -> R) -> Option<R> {
        let list = self.list.lock();
        list.get(pid).and_then(Entry::task).map(|task| f(task))
    }

    /// Calls `f` with each process that has not ended, as [`with`](Self::with).
    pub(crate) fn each(&self, f: impl Fn(&Task)) {
        self.list.lock().entries.iter().filter_map(Entry::task).for_each(|task| f(task));
    }

    /// The lowest number of a process from `from` on that has not ended.
    pub(crate) fn next(&self, from: i32) -> Option<i32> {
        let list = self.list.lock();
        let at = list.entries.partition_point(|entry| entry.pid < from);
        list.entries[at..].iter().find(|entry| entry.task().is_some()).map(|entry| entry.pid)
    }

    /// The number of a process's parent; 0 if it has none.
    pub(crate) fn parent(&self, pid: i32) -> i32 {
        self.list.lock().get(pid).map_or(0, |entry| entry.parent)
    }

    /// The process group of a process.
    ///
    /// # Errors
    /// `ESRCH`.
    pub(crate) fn group(&self, pid: i32) -> Result<i32, Errno> {
        self.list.lock().process(pid).map(|entry| entry.group)
    }

    /// The session of a process.
    ///
    /// # Errors
    /// `ESRCH`.
    pub(crate) fn session(&self, pid: i32) -> Result<i32, Errno> {
        self.list.lock().process(pid).map(|entry| entry.session)
    }

    /// Makes a process the leader of a session and of a process group (`setsid`).
    ///
    /// # Errors
    /// `EPERM` if there is a process group with its number.
    pub(crate) fn new_session(&self, pid: i32) -> Result<(), Errno> {
        let mut list = self.list.lock();
        if list.members(pid).next().is_some() {
            return Err(Errno::PERM);
        }
        list.set_session(pid, pid);
        list.set_group(pid, pid);
        Ok(())
    }

    /// Moves a process to a process group (`setpgid`).
    ///
    /// # Errors
    /// `ESRCH`, `EPERM`, `EACCES`.
    pub(crate) fn set_group(&self, caller: i32, pid: i32, group: i32) -> Result<(), Errno> {
        let mut list = self.list.lock();
        let session = list.process(caller)?.session;
        let entry = list.process(pid)?;
        if entry.parent == caller {
            if entry.session != session {
                return Err(Errno::PERM);
            }
            if entry.has_execed {
                return Err(Errno::ACCESS);
            }
        } else if pid != caller {
            return Err(Errno::SRCH);
        }
        let is_leader = entry.session == pid;
        let is_there = || list.members(group).next().is_some_and(|one| one.session == session);
        if is_leader || group != pid && !is_there() {
            return Err(Errno::PERM);
        }
        list.set_group(pid, group);
        Ok(())
    }

    /// Sends a signal to a process, to a process group or to all (`kill`).
    ///
    /// # Errors
    /// `ESRCH`, `EINVAL`, `EPERM`.
    pub(crate) fn kill(&self, sender: &Sender, pid: i32, signo: i32) -> Result<(), Errno> {
        wake_later(|| {
            let list = self.list.lock();
            let own = list.process(sender.pid)?;
            match pid {
                1.. => list.process(pid)?.send(sender, own.session, signo),
                0 => list.send_to_group(own.group, sender, own.session, signo),
                -1 => list.send_to_all(sender, own.session, signo),
                _ => {
                    let group = pid.checked_neg().ok_or(Errno::SRCH)?;
                    list.send_to_group(group, sender, own.session, signo)
                }
            }
        })
    }

    /// Sends a signal to the process with these signals, or to the group that has its number.
    ///
    /// # Errors
    /// `ESRCH` if it was waited for; as [`kill`](Self::kill).
    pub(crate) fn kill_with(
        &self,
        sender: &Sender,
        (pid, signals): (i32, &Signals),
        to_group: bool,
        signo: i32,
    ) -> Result<(), Errno> {
        wake_later(|| {
            let list = self.list.lock();
            let session = list.process(sender.pid)?.session;
            let to = list.get(pid).filter(|to| to.is_with(signals)).ok_or(Errno::SRCH)?;
            match to_group {
                true => list.send_to_group(pid, sender, session, signo),
                false if to.is_process() => to.send(sender, session, signo),
                false => Err(Errno::SRCH),
            }
        })
    }

    /// The signals of a process, also of one that has ended and was not waited for.
    ///
    /// # Errors
    /// `ESRCH`.
    pub(crate) fn signals(&self, pid: i32) -> Result<Shared<Signals>, Errno> {
        self.list.lock().process(pid).map(|entry| entry.signals().clone())
    }

    /// Looks for a child of `parent` that has ended. Ends it if it is to be `reaped`. Returns
    /// `None` if there are only such that may still end. `ends` is `false` for a call that does not
    /// ask for ends. O(processes), if it has children.
    ///
    /// # Errors
    /// `ECHILD` if there is none to wait for.
    pub(crate) fn look_for_child(
        &self,
        parent: i32,
        awaited: Awaited<'_>,
        ends: bool,
        reaped: bool,
    ) -> Result<Option<SigInfo>, Errno> {
        wake_later(|| {
            let mut list = self.list.lock();
            let left = list.process(parent)?.children;
            let is_awaited = |entry: &&Entry| match awaited {
                Awaited::All => true,
                Awaited::Pid(pid) => entry.pid == pid,
                Awaited::Group(group) => entry.group == group,
                Awaited::With(signals) => entry.is_with(signals),
            };
            let children = list.processes().filter(|entry| entry.parent == parent);
            let mut may_end = false;
            let mut found = None;
            for child in children.take(left as usize).filter(is_awaited) {
                match child.zombie() {
                    Some(ended) if ends => {
                        found = Some(ended.info(child.pid));
                        break;
                    }
                    Some(_) => {}
                    None => may_end = true,
                }
            }
            match found {
                Some(info) if reaped => list.reap(info.pid),
                None if !may_end => return Err(Errno::CHILD),
                _ => {}
            }
            Ok(found)
        })
    }
}

impl List {
    /// Returns no error if one process gets the signal, else the last one.
    fn send_to_group(
        &self,
        group: i32,
        sender: &Sender,
        session: i32,
        signo: i32,
    ) -> Result<(), Errno> {
        let mut sent = Err(Errno::SRCH);
        for to in self.members(group) {
            let one = to.send(sender, session, signo);
            sent = sent.or(one);
        }
        sent
    }

    /// Sends to all but the first process and the sender. That it is not allowed is no error.
    fn send_to_all(&self, sender: &Sender, session: i32, signo: i32) -> Result<(), Errno> {
        let all = self.processes().filter(|to| to.pid != INIT && to.pid != sender.pid);
        let sent = all.map(|to| match to.send(sender, session, signo) {
            Err(Errno::PERM) => Ok(()),
            sent => sent,
        });
        sent.last().unwrap_or(Err(Errno::SRCH))
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
