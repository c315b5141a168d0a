//! The book of a kernel's mounts: which there are, what each is on, and the references that this takes.
//!
//! Under one lock. Readers see what it says through the mounts' own tables and pointers, without the lock.

use super::mount::{MountRef, TreeMount};
use crate::dentry::{Dentry, DentryFlags};
use crate::namespace::MountFlags;
use crate::raw::dcache::refs::DentryRef;
use crate::super_block::SuperFlags;
use core::cell::Cell;
use core::mem::transmute;
use core::{fmt, ptr};
use quietline_platform::atomic::Ordering;
use quietline_platform::heap;
use quietline_sync::{Seqcount, SpinLock, SpinLockGuard};
use rustix::io::Errno;

/// The number of the first mount of a tree. Those below are for the internal mounts.
const FIRST_MOUNT: u64 = 4;
/// The mounts that a kernel may have at first (`sysctl_mount_max`).
const MOUNT_MAX: u32 = 100_000;

/// All mounts of a kernel.
pub(crate) struct Mounts {
    /// Odd while a mount changes its place.
    seq: Seqcount,
    book: SpinLock<Book>,
}

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct Book {
    entries: Vec<Entry>,
    /// The number of entries that there may be.
    max: u32,
    next_mount: u64,
    next_namespace: u64,
}

/// A mounted mount, and the references that its being mounted is. They are given back when the lock is not held.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Where it is, before the mount itself: in the order in which they are given back.
    on: Option<On<'static>>,
    mount: MountRef<'static>,
    /// While trees are detached: whether the mount is in one of them.
    leaving: Cell<bool>,
    /// While trees are detached: the index of the next entry in the list of their mounts.
    next: Cell<usize>,
}

/// The end of a list of entries.
const NONE: usize = usize::MAX;

/// A mountpoint.
#[derive(Debug, Clone)]
pub(crate) struct On<'k> {
    pub(crate) dentry: DentryRef<'k>,
    pub(crate) mount: MountRef<'k>,
}

impl On<'_> {
    /// # Safety
    /// It is dropped before its kernel.
    unsafe fn forever(self) -> On<'static> {
        // SAFETY: by contract; a lifetime has no size.
        unsafe { transmute::<On<'_>, On<'static>>(self) }
    }
}

impl Mounts {
    /// None.
    pub(crate) fn new() -> Self {
        let book = Book {
            entries: Vec::new(),
            max: MOUNT_MAX,
            next_mount: FIRST_MOUNT,
            next_namespace: 1,
        };
        Self { seq: Seqcount::new(), book: SpinLock::new(book) }
    }

    /// Moves with every mount, unmount and move of a mount.
    #[inline(always)]
    pub(crate) fn seq(&self) -> &Seqcount {
        &self.seq
    }

    /// Keeps all others from mounting and unmounting.
    pub(crate) fn lock(&self) -> SpinLockGuard<'_, Book> {
        self.book.lock()
    }

    /// Waits for who is mounting or unmounting now.
    pub(crate) fn wait(&self) {
        drop(self.lock());
    }
}

impl Entry {
    /// The mount.
    pub(crate) fn mount(&self) -> &MountRef<'static> {
        &self.mount
    }

    /// What it is on.
    pub(crate) fn on(&self) -> Option<&On<'static>> {
        self.on.as_ref()
    }
}

impl Book {
    /// A number for a mount.
    pub(crate) fn mount_id(&mut self) -> u64 {
        self.next_mount += 1;
        self.next_mount - 1
    }

    /// A number for a namespace.
    pub(crate) fn namespace_id(&mut self) -> u64 {
        self.next_namespace += 1;
        self.next_namespace - 1
    }

    /// Returns the number of mounts that there may be.
    pub(crate) fn max(&self) -> u32 {
        self.max
    }

    /// Changes the number of mounts that there may be. All that are mounted stay.
    pub(crate) fn set_max(&mut self, max: u32) {
        self.max = max;
    }

    /// Returns whether `more` mounts can be entered (`count_mounts`).
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.entries.len().saturating_add(more) <= self.max as usize
    }

    /// What is mounted, oldest first.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The index of a mount's entry. O(1).
    fn index(&self, mount: &TreeMount) -> Option<usize> {
        // Relaxed: under the lock.
        let index = mount.index.load(Ordering::Relaxed);
        self.entries.get(index).is_some_and(|entry| entry.mount.same(mount)).then_some(index)
    }

    /// Tells the mounts from index `from` on where their entries are.
    fn number(&self, from: usize) {
        for (index, entry) in self.entries.iter().enumerate().skip(from) {
            // Relaxed: under the lock.
            entry.mount.index.store(index, Ordering::Relaxed);
        }
    }

    /// The entry of a mount that is mounted. O(1).
    pub(crate) fn find(&self, mount: &TreeMount) -> Option<&Entry> {
        self.index(mount).map(|i| &self.entries[i])
    }

    /// Enters a mount that is mounted nowhere, and shows it to readers.
    ///
    /// # Errors
    /// `ENOSPC` if there are as many mounts as there may be, `ENOMEM`; with the mount that was to
    /// be entered,
    /// to be dropped without the lock.
    pub(crate) fn enter<'k>(
        &mut self,
        seq: &Seqcount,
        mount: MountRef<'k>,
        on: Option<On<'k>>,
        namespace: u64,
    ) -> Result<(), (Errno, MountRef<'k>, Option<On<'k>>)> {
        if !self.has_room(1) {
            return Err((Errno::NOSPC, mount, on));
        }
        if heap::try_reserve(&mut self.entries, 1).is_err() {
            return Err((Errno::NOMEM, mount, on));
        }
        // The filesystem may have been made read-only, or writable, since the mount was made.
        let rdonly = mount.super_block().flags().contains(SuperFlags::RDONLY);
        let own = mount.own_flags().contains(MountFlags::RDONLY);
        if mount.flags().contains(MountFlags::RDONLY) != (rdonly || own)
            && let Err(errno) = mount.set_rdonly(own, rdonly)
        {
            return Err((errno, mount, on));
        }
        // Before anybody can see it: mounted, and where.
        mount.counts().end_umount(false);
        // Relaxed: the mounts' lock orders it, or nobody minds.
        mount.namespace.store(namespace, Ordering::Relaxed);
        if let Some(On { dentry, mount: parent }) = &on {
            {
                let _section = seq.write();
                // SAFETY: the entry keeps both, below.
                unsafe { mount.move_to(Some((parent, dentry))) };
            }
            dentry.set_flags(DentryFlags::MOUNTED, DentryFlags::empty());
            // SAFETY: under the lock; the entry keeps all three, until `leave` or `relocate` has taken it off.
            if unsafe { parent.put_on(dentry, &mount) }.is_err() {
                self.hide(seq, &mount);
                self.unmark(dentry);
                return Err((Errno::NOMEM, mount, on));
            }
        }
        // SAFETY: a namespace borrows the kernel, and takes its mounts out when it ends; what is left, the book drops, which
        // is the first thing that a kernel drops.
        let (on, mount) = unsafe { (on.map(|on| on.forever()), mount.forever()) };
        self.entries.push(Entry { on, mount, leaving: Cell::new(false), next: Cell::new(NONE) });
        self.number(self.entries.len() - 1);
        Ok(())
    }

    /// Makes it one that is mounted nowhere.
    fn hide(&self, seq: &Seqcount, mount: &TreeMount) {
        mount.counts().end_umount(true);
        mount.namespace.store(0, Ordering::Relaxed);
        let _section = seq.write();
        // SAFETY: nothing need be kept.
        unsafe { mount.move_to(None) };
    }

    /// Clears the mark of a dentry on which nothing is mounted any more.
    fn unmark(&self, dentry: &Dentry) {
        let used = |entry: &Entry| entry.on.as_ref().is_some_and(|on| on.dentry.same(dentry));
        if !self.entries.iter().any(used) {
            dentry.set_flags(DentryFlags::empty(), DentryFlags::MOUNTED);
        }
    }

    /// Takes a mount out, so that readers who begin now do not find it, and its last put ends it. What it was must be dropped
    /// without the lock.
    pub(crate) fn leave(&mut self, seq: &Seqcount, mount: &TreeMount) -> Option<Entry> {
        self.index(mount).map(|index| self.leave_at(seq, index))
    }

    fn leave_at(&mut self, seq: &Seqcount, index: usize) -> Entry {
        let entry = self.entries.remove(index);
        self.number(index);
        self.take_off(seq, &entry);
        if let Some(on) = &entry.on {
            self.unmark(&on.dentry);
        }
        entry
    }

    /// Takes a mount off its mountpoint, where readers do not find it from here on.
    fn take_off(&self, seq: &Seqcount, entry: &Entry) {
        self.hide(seq, &entry.mount);
        if let Some(on) = &entry.on {
            on.mount.take_off(&on.dentry);
        }
    }

    /// [`leave`](Self::leave) for the mounts that `tops` picks and all mounts on them. Returns
    /// their entries, to be dropped without the lock. O(mounts of the kernel * log of the mounts
    /// taken out).
    ///
    /// # Errors
    /// The entry of one of them, on which nothing is mounted: there is no memory for a list of all.
    pub(crate) fn leave_trees(
        &mut self,
        seq: &Seqcount,
        tops: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<Entry>, Entry> {
        let (last, count) = self.list_trees(tops);
        let mut gone = Vec::new();
        if count > 0 && heap::try_reserve(&mut gone, count).is_err() {
            self.entries.iter().for_each(|entry| entry.leaving.set(false));
            return Err(self.leave_at(seq, last));
        }
        let mut at = last;
        while let Some(entry) = self.entries.get(at) {
            self.take_off(seq, entry);
            at = entry.next.get();
        }
        gone.extend(self.entries.extract_if(.., |entry| entry.leaving.get()));
        self.number(0);
        self.unmark_all(&mut gone);
        Ok(gone)
    }

    /// Calls `each` with a mount and all mounts on it. O(mounts of the kernel).
    pub(crate) fn each_of_tree(&self, top: &TreeMount, each: impl Fn(&TreeMount)) {
        let (mut at, _) = self.list_trees(|entry| entry.mount.same(top));
        while let Some(entry) = self.entries.get(at) {
            entry.leaving.set(false);
            each(&entry.mount);
            at = entry.next.get();
        }
    }

    /// Lists the mounts that `tops` picks and all mounts on them, each before the one that it is
    /// mounted on. Returns the index of the first entry, and the length of the list.
    fn list_trees(&self, tops: impl Fn(&Entry) -> bool) -> (usize, usize) {
        let (mut first, mut last, mut count) = (NONE, NONE, 0);
        let mut add = |index: usize| {
            let entry = &self.entries[index];
            if !entry.leaving.replace(true) {
                entry.next.set(NONE);
                match self.entries.get(last) {
                    Some(before) => before.next.set(index),
                    None => first = index,
                }
                (last, count) = (index, count + 1);
            }
            first
        };
        let mut at = NONE;
        for (index, _) in self.entries.iter().enumerate().filter(|(_, entry)| tops(entry)) {
            at = add(index);
        }
        // Appends the mounts on each mount of the list, and reverses the list.
        let mut reversed = NONE;
        while let Some(entry) = self.entries.get(at) {
            for index in entry.mount.all_on().filter_map(|over| self.index(over)) {
                add(index);
            }
            let next = entry.next.replace(reversed);
            (reversed, at) = (at, next);
        }
        (reversed, count)
    }

    /// Clears the marks of the dentries on which no mount is left after these are gone. Sorts the
    /// entries.
    fn unmark_all(&self, gone: &mut [Entry]) {
        let key = |entry: &Entry| entry.on.as_ref().map(|on| ptr::from_ref(&*on.dentry).addr());
        gone.sort_unstable_by_key(key);
        for stays in self.entries.iter().filter_map(key) {
            let first = gone.partition_point(|entry| key(entry) < Some(stays));
            if let Some(entry) = gone.get(first).filter(|entry| key(entry) == Some(stays)) {
                // Another mount stays on the dentry. The first of its entries says so.
                entry.leaving.set(false);
            }
        }
        for alike in gone.chunk_by(|a, b| key(a) == key(b)) {
            if let (true, Some(on)) = (alike[0].leaving.get(), &alike[0].on) {
                on.dentry.set_flags(DentryFlags::empty(), DentryFlags::MOUNTED);
            }
        }
    }

    /// Moves a mount; where it was, to be dropped without the lock.
    ///
    /// # Errors
    /// `ENOMEM`, with where it was to go.
    pub(crate) fn relocate<'k>(
        &mut self,
        seq: &Seqcount,
        mount: &TreeMount,
        to: On<'k>,
    ) -> Result<Option<On<'static>>, (Errno, On<'k>)> {
        let Some(index) = self.index(mount) else { return Err((Errno::INVAL, to)) };
        to.dentry.set_flags(DentryFlags::MOUNTED, DentryFlags::empty());
        // SAFETY: under the lock; the entry keeps both.
        if unsafe { to.mount.put_on(&to.dentry, mount) }.is_err() {
            self.unmark(&to.dentry);
            return Err((Errno::NOMEM, to));
        }
        {
            let _section = seq.write();
            // SAFETY: the entry keeps both, below.
            unsafe { mount.move_to(Some((&to.mount, &to.dentry))) };
        }
        // SAFETY: as in `enter`.
        let old = self.entries[index].on.replace(unsafe { to.forever() });
        if let Some(on) = &old {
            on.mount.take_off(&on.dentry);
            self.unmark(&on.dentry);
        }
        Ok(old)
    }

    /// Puts `new` where `root` is, and `root` on `put_old`; where `new` was, to be dropped without the lock.
    ///
    /// # Errors
    /// `ENOMEM`, and nothing has changed; `EINVAL` if one of them is on nothing.
    pub(crate) fn pivot<'k>(
        &mut self,
        seq: &Seqcount,
        root: &TreeMount,
        new: &TreeMount,
        put_old: On<'k>,
    ) -> Result<On<'static>, (Errno, On<'k>)> {
        let placed = |mount| self.index(mount).filter(|&i| self.entries[i].on.is_some());
        let (Some(root_at), Some(new_at)) = (placed(root), placed(new)) else {
            return Err((Errno::INVAL, put_old));
        };
        put_old.dentry.set_flags(DentryFlags::MOUNTED, DentryFlags::empty());
        // SAFETY: under the lock; the entries keep all.
        if unsafe { put_old.mount.put_on(&put_old.dentry, root) }.is_err() {
            self.unmark(&put_old.dentry);
            return Err((Errno::NOMEM, put_old));
        }
        // SAFETY: as in `enter`.
        let top =
            self.entries[root_at].on.replace(unsafe { put_old.forever() }).expect("asked above");
        // SAFETY: the entry keeps both, below. It cannot fail: `root` is there now.
        let put = unsafe { top.mount.put_on(&top.dentry, new) };
        debug_assert!(put.is_ok());
        let was = self.entries[new_at].on.replace(top).expect("asked above");
        was.mount.take_off(&was.dentry);
        {
            let _section = seq.write();
            for at in [root_at, new_at] {
                let entry = &self.entries[at];
                let place = entry.on.as_ref().map(|on| (&*on.mount, &*on.dentry));
                // SAFETY: the entry keeps both.
                unsafe { entry.mount.move_to(place) };
            }
        }
        self.unmark(&was.dentry);
        Ok(was)
    }
}

impl fmt::Debug for Mounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounts")
            .field("mounted", &self.lock().entries.len())
            .finish_non_exhaustive()
    }
}
