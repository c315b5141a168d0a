//! Dentries that nobody refers to, kept in case that somebody will, and given back by age with a second chance.
//!
//! ```text
//!   last put of a dentry that its directory has ──> on the list of the CPU; already there: second chance
//!   prune: oldest first ── referred to: off the list ── second chance: to the end ── else: taken out of its directory, and freed
//! ```
//!
//! # Lock order
//!
//! `d_lockref`, then a list. [`prune`](Vfs::prune), which comes from the list, only tries the former, and takes the lock of
//! a directory when it holds neither.

use super::entry::Dentry;
use super::refs::DentryRef;
use crate::vfs::Vfs;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::Ordering;
use quietline_platform::cpu;
use quietline_sync::{LazyBox, PerCpu, SpinLock};

/// Bits of a dentry's `lru_state`, which changes under its `d_lockref`'s lock. The CPU whose list it is on is above them.
const ON: u32 = 1;
const SECOND_CHANCE: u32 = 2;
const CPU_SHIFT: u32 = 2;

/// A list for each CPU.
#[derive(Debug)]
pub(crate) struct Lru {
    /// The list of CPU 0, and of every CPU while there is no memory for the others.
    first: SpinLock<List>,
    /// The lists of all CPUs but 0, whose entry is not used. Made when the first of them is.
    others: LazyBox<PerCpu<SpinLock<List>>>,
}

/// Oldest first, linked through the dentries.
#[derive(Debug)]
struct List {
    first: *mut Dentry,
    last: *mut Dentry,
    len: usize,
}

// SAFETY: dentries on it are followed under its lock, and taken off before they are freed.
unsafe impl Send for List {}

impl List {
    const EMPTY: Self = Self { first: ptr::null_mut(), last: ptr::null_mut(), len: 0 };

    fn push(&mut self, d: &Dentry) {
        let dentry = NonNull::from(d).as_ptr();
        // Relaxed, in this file: links and state are under locks.
        d.lru_prev.store(self.last, Ordering::Relaxed);
        d.lru_next.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: what is on the list is alive, as it is taken off before it ends.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.lru_next.store(dentry, Ordering::Relaxed),
            None => self.first = dentry,
        }
        self.last = dentry;
        self.len += 1;
    }

    fn remove(&mut self, d: &Dentry) {
        let (prev, next) = (d.lru_prev.load(Ordering::Relaxed), d.lru_next.load(Ordering::Relaxed));
        // SAFETY: as in `push`; so are neighbours.
        unsafe {
            match prev.as_ref() {
                Some(prev) => prev.lru_next.store(next, Ordering::Relaxed),
                None => self.first = next,
            }
            match next.as_ref() {
                Some(next) => next.lru_prev.store(prev, Ordering::Relaxed),
                None => self.last = prev,
            }
        }
        self.len -= 1;
    }
}

impl Lru {
    pub(crate) fn new() -> Self {
        Self { first: SpinLock::new(List::EMPTY), others: LazyBox::new() }
    }

    fn lists(&self) -> impl Iterator<Item = &SpinLock<List>> {
        core::iter::once(&self.first).chain(self.others.get().into_iter().flat_map(PerCpu::iter))
    }

    /// The list of a CPU, and the CPU that it is said to be of.
    fn list(&self, cpu: usize) -> (&SpinLock<List>, usize) {
        let make = || PerCpu::new(|_| SpinLock::new(List::EMPTY));
        match if cpu == 0 { None } else { self.others.get_or_make(make).ok() } {
            Some(others) => (&others[cpu], cpu),
            None => (&self.first, 0),
        }
    }

    /// Dentries on all lists.
    pub(crate) fn len(&self) -> i64 {
        self.lists().map(|list| list.lock().len as i64).sum()
    }

    /// Keeps a dentry that nobody refers to. Its `d_lockref` is locked.
    pub(super) fn add(&self, d: &Dentry) {
        let state = d.lru_state.load(Ordering::Relaxed);
        if state & ON != 0 {
            return d.lru_state.store(state | SECOND_CHANCE, Ordering::Relaxed);
        }
        let (list, cpu) = self.list(cpu::current());
        d.lru_state.store(ON | (cpu as u32) << CPU_SHIFT, Ordering::Relaxed);
        list.lock().push(d);
    }

    /// Takes a dentry off its list, if it is on one. Its `d_lockref` is locked.
    #[inline]
    pub(super) fn remove(&self, d: &Dentry) {
        let state = d.lru_state.load(Ordering::Relaxed);
        if state & ON != 0 {
            self.remove_slow(d, state);
        }
    }

    #[inline(never)]
    fn remove_slow(&self, d: &Dentry, state: u32) {
        // The list exists, so this finds it.
        self.list((state >> CPU_SHIFT) as usize).0.lock().remove(d);
        d.lru_state.store(0, Ordering::Relaxed);
    }
}

impl Vfs {
    /// Gives up to `n` dentries back that nobody refers to and that nobody has referred to since this was called last; how
    /// many it were. Takes locks of directories: not for holders of any.
    pub fn prune(&self, n: usize) -> usize {
        let mut freed = 0;
        for list in self.lru.lists() {
            // Each is looked at twice at most: after a second chance it may go.
            let mut looks = 2 * list.lock().len;
            while looks > 0 && freed < n {
                looks -= 1;
                match self.oldest(list) {
                    Old::None => break,
                    Old::Kept => {}
                    Old::Candidate(dentry) => freed += usize::from(self.prune_one(dentry)),
                }
            }
        }
        freed
    }

    /// Looks at the oldest dentry of a list.
    fn oldest(&self, list: &SpinLock<List>) -> Old<'_> {
        let mut locked = list.lock();
        // SAFETY: what is on the list is alive while its lock is held: it is taken off before it ends.
        let Some(d) = (unsafe { locked.first.as_ref() }) else { return Old::None };
        locked.remove(d);
        let Some(mut guard) = d.d_lockref.try_lock() else {
            // Somebody is at it just now.
            locked.push(d);
            return Old::Kept;
        };
        let state = d.lru_state.load(Ordering::Relaxed);
        if guard.count() == 0 && state & SECOND_CHANCE != 0 {
            d.lru_state.store(state & !SECOND_CHANCE, Ordering::Relaxed);
            locked.push(d);
            return Old::Kept;
        }
        d.lru_state.store(0, Ordering::Relaxed);
        if guard.count() != 0 {
            return Old::Kept;
        }
        guard.get();
        // SAFETY: just taken.
        Old::Candidate(unsafe { DentryRef::from_raw(NonNull::from(d)) })
    }

    /// Ends a dentry that only the caller refers to, if that is still so.
    fn prune_one(&self, dentry: DentryRef<'_>) -> bool {
        let parent = dentry.parent();
        let Some(inode) = parent.inode() else { return false };
        let mut dir = inode.lock();
        // A child would refer to it.
        let pruned = dentry.count() == 1 && dentry.unhash(&mut dir).is_some();
        drop(dir);
        pruned
    }
}

/// What became of the oldest dentry of a list.
enum Old<'k> {
    None,
    Kept,
    Candidate(DentryRef<'k>),
}
