//! Who watches a file.

use super::instance::Instance;
use super::mask::{
    IN_ALL_EVENTS, IN_DELETE_SELF, IN_EXCL_UNLINK, IN_IGNORED, IN_ISDIR, IN_ONESHOT, IN_UNMOUNT,
};
use core::ptr;
use quietline_platform::atomic::{AtomicBool, AtomicU32, Ordering};
use quietline_sync::{Shared, SpinLock};

/// The watches of one file. Its inode points to it from the first watch on.
#[derive(Debug)]
pub struct Watches {
    /// The events that any of them wants. Changed under the lock.
    wanted: AtomicU32,
    /// The number of the file, and its filesystem's.
    identity: [u64; 2],
    pub(super) list: SpinLock<Vec<Shared<Watch>>>,
}

/// An instance's interest in a file.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) wd: i32,
    pub(super) instance: Shared<Instance>,
    pub(super) at: Shared<Watches>,
    /// Events and options. Changed under the list's lock.
    pub(super) mask: AtomicU32,
    /// It was for one event, and has had it.
    spent: AtomicBool,
}

/// Something that has happened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Happening {
    /// One `IN_*` event, or several as one: who wants any of them is told all.
    pub mask: u32,
    /// For the two halves of a rename.
    pub cookie: u32,
    /// To a directory.
    pub is_dir: bool,
    /// By way of a name that is gone: those who want no such events (`IN_EXCL_UNLINK`) are not told, not even of a file
    /// that they watch itself.
    pub unlinked: bool,
}

/// Tells who watches a file, and who watches the directory that it is in, by its name there. Something that concerns
/// a name (made, removed, moved) is told to the directory only.
///
/// Nobody watches either: nothing is written, and nothing read but the arguments. Otherwise see [`Watches::wants`].
#[inline]
pub fn notify(file: Option<&Watches>, parent: Option<(&Watches, &[u8])>, happening: Happening) {
    if let Some((watches, name)) = parent
        && watches.wants(happening.mask)
    {
        watches.raise(&happening, name);
    }
    if let Some(watches) = file
        && watches.wants(happening.mask)
    {
        watches.raise(&happening, &[]);
    }
}

impl Watches {
    /// No watches of a file with this number, in a filesystem with this number.
    pub const fn new(ino: u64, dev: u64) -> Self {
        Self { wanted: AtomicU32::new(0), identity: [ino, dev], list: SpinLock::new(Vec::new()) }
    }

    /// The number of the file, and its filesystem's.
    pub(super) fn identity(&self) -> [u64; 2] {
        self.identity
    }

    /// Whether anybody wants to know of one of these events: one load.
    #[inline]
    pub fn wants(&self, mask: u32) -> bool {
        // Relaxed: who begins to watch beside an operation may miss it.
        self.wanted.load(Ordering::Relaxed) & mask != 0
    }

    /// How many watch.
    pub fn watchers(&self) -> usize {
        self.list.lock().len()
    }

    /// The file has no names any more, and nobody has it open: `IN_DELETE_SELF`, then `IN_IGNORED`.
    pub fn deleted(&self, is_dir: bool) {
        notify(
            Some(self),
            None,
            Happening { mask: IN_DELETE_SELF, is_dir, ..Happening::default() },
        );
        self.forget();
    }

    /// Its filesystem is going away: `IN_UNMOUNT`, whoever watches, then `IN_IGNORED`.
    pub fn unmounted(&self, is_dir: bool) {
        self.raise(&Happening { mask: IN_UNMOUNT, is_dir, ..Happening::default() }, &[]);
        self.forget();
    }

    /// Ends all watches: `IN_IGNORED`.
    pub fn forget(&self) {
        loop {
            let watch = {
                let mut list = self.list.lock();
                let watch = list.pop();
                self.sum_up(&list);
                watch
            };
            let Some(watch) = watch else { return };
            watch.instance.forget(&watch);
        }
    }

    /// Queues an event with everybody who wants it.
    #[cold]
    fn raise(&self, happening: &Happening, name: &[u8]) {
        let mask = happening.mask | if happening.is_dir { IN_ISDIR } else { 0 };
        let mut any_spent = false;
        for watch in self.list.lock().iter() {
            // Relaxed, all: under the lock.
            let wanted = watch.mask.load(Ordering::Relaxed);
            let skipped = happening.unlinked && wanted & IN_EXCL_UNLINK != 0;
            if (wanted | IN_UNMOUNT) & happening.mask == 0
                || skipped
                || watch.spent.load(Ordering::Relaxed)
            {
                continue;
            }
            watch.instance.push(watch.wd, mask, happening.cookie, name);
            if wanted & IN_ONESHOT != 0 {
                watch.spent.store(true, Ordering::Relaxed);
                any_spent = true;
            }
        }
        if any_spent {
            self.remove_spent();
        }
    }

    /// Ends the watches that have had their one event.
    #[cold]
    fn remove_spent(&self) {
        loop {
            let watch = {
                let mut list = self.list.lock();
                // Relaxed: under the lock.
                let at = list.iter().position(|watch| watch.spent.load(Ordering::Relaxed));
                let watch = at.map(|at| list.remove(at));
                self.sum_up(&list);
                watch
            };
            let Some(watch) = watch else { return };
            watch.instance.forget(&watch);
        }
    }

    /// Takes a watch off the list, if it is still there.
    pub(super) fn remove(&self, watch: &Watch) {
        let mut list = self.list.lock();
        if let Some(at) = list.iter().position(|listed| ptr::eq(&**listed, watch)) {
            list.remove(at);
            self.sum_up(&list);
        }
    }

    /// What anybody on the list wants now.
    pub(super) fn sum_up(&self, list: &[Shared<Watch>]) {
        // Relaxed: under the lock; see `wants`.
        let wanted =
            list.iter().fold(0, |wanted, watch| wanted | watch.mask.load(Ordering::Relaxed));
        self.wanted.store(wanted & IN_ALL_EVENTS, Ordering::Relaxed);
    }
}

impl Watch {
    pub(super) fn new(wd: i32, instance: Shared<Instance>, at: Shared<Watches>, mask: u32) -> Self {
        Self { wd, instance, at, mask: AtomicU32::new(mask), spent: AtomicBool::new(false) }
    }

    /// Whether it has had its one event. Under the list's lock.
    pub(super) fn is_spent(&self) -> bool {
        // Relaxed: under the lock.
        self.spent.load(Ordering::Relaxed)
    }

    /// The event that tells its end.
    pub(super) fn say_goodbye(&self) {
        self.instance.push(self.wd, IN_IGNORED, 0, &[]);
    }
}
