//! Changing which names a directory has: add, take out, rename, exchange.
//!
//! Every function here is for the holder of the directory's lock, which is what the guard is there to show. Readers go on
//! meanwhile; [`table`](super::table) says why they never miss a name that is there.

use super::children::Whole;
use super::entry::Dentry;
use super::refs::{DentryRef, NewDentry, NewName, dput};
use super::seen::Seen;
use crate::dentry::DentryFlags;
use crate::inode::{InodeGuard, InodeRef};
use crate::super_block::NEGATIVES;
use crate::vfs::Vfs;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use rustix::io::Errno;

/// The locks of the directories that a rename changes.
#[derive(Debug)]
pub enum Dirs<'x, 'a> {
    /// Both are one.
    Same(&'x mut InodeGuard<'a>),
    /// The one that a name leaves, and the one that it comes to.
    Two(&'x mut InodeGuard<'a>, &'x mut InodeGuard<'a>),
}

impl Dirs<'_, '_> {
    fn source(&self) -> &InodeGuard<'_> {
        match self {
            Self::Same(dir) | Self::Two(dir, _) => dir,
        }
    }

    fn target(&self) -> &InodeGuard<'_> {
        match self {
            Self::Same(dir) | Self::Two(_, dir) => dir,
        }
    }
}

impl<'a> Dirs<'_, 'a> {
    /// The one that a name leaves.
    pub(crate) fn old_mut(&mut self) -> &mut InodeGuard<'a> {
        match self {
            Self::Same(dir) | Self::Two(dir, _) => dir,
        }
    }

    /// The one that a name comes to.
    pub(crate) fn new_mut(&mut self) -> &mut InodeGuard<'a> {
        match self {
            Self::Same(dir) | Self::Two(_, dir) => dir,
        }
    }
}

/// Whether a dentry is what the locked inode is the inode of.
#[inline]
fn locks(dir: &InodeGuard<'_>, dentry: &Dentry) -> bool {
    dentry.inode().is_some_and(|inode| inode.same(dir.inode()))
}

/// The directory that a dentry is in, if that is the locked one: then it stays so.
#[inline]
fn directory<'d>(dir: &InodeGuard<'_>, dentry: &'d Dentry) -> Option<&'d Dentry> {
    // SAFETY: a dentry's parent is alive while the dentry is, which the caller has by reference or inside a section.
    let parent = unsafe { dentry.parent_ptr().as_ref() };
    (locks(dir, parent) && dentry.is_hashed() && !dentry.is_root()).then_some(parent)
}

/// # Safety
/// The dentry is of a kernel that lives.
unsafe fn vfs(dentry: &Dentry) -> &Vfs {
    // SAFETY: by contract.
    unsafe { dentry.super_block().vfs.as_ref() }
}

impl<'k> NewDentry<'k> {
    /// Puts the dentry into its directory, which keeps no reference to it: it goes when nobody has used it for a while
    /// (`d_add`).
    ///
    /// # Errors
    /// `ENOMEM`; `ENOENT` if the directory has been removed. Then the dentry is freed.
    ///
    /// # Panics
    /// If the lock is another directory's.
    // The kernel's word, and no sum.
    #[allow(clippy::should_implement_trait)]
    pub fn add(self, dir: &mut InodeGuard<'_>) -> Result<DentryRef<'k>, Errno> {
        self.link(dir, DentryFlags::empty())
    }

    /// Puts the dentry into its directory, which keeps it until it is taken out (`d_make_persistent`). No dentry of the same
    /// name is in it.
    ///
    /// # Errors, panics
    /// As [`add`](Self::add).
    #[inline]
    pub fn add_pinned(mut self, dir: &mut InodeGuard<'_>) -> Result<DentryRef<'k>, Errno> {
        self.set_count(2);
        self.link(dir, DentryFlags::PINNED)
    }

    /// [`add_pinned`](Self::add_pinned) for a caller who needs the dentry no more.
    ///
    /// # Errors, panics
    /// As [`add`](Self::add).
    #[inline]
    pub fn add_pinned_only(self, dir: &mut InodeGuard<'_>) -> Result<(), Errno> {
        // The one reference is the directory's from here on.
        let dentry = self.link(dir, DentryFlags::PINNED)?;
        dentry.into_raw();
        Ok(())
    }

    #[inline(always)]
    fn link(self, dir: &mut InodeGuard<'_>, flags: DentryFlags) -> Result<DentryRef<'k>, Errno> {
        let dentry = self.dentry();
        // SAFETY: the new dentry has a reference to its parent.
        let parent = unsafe { dentry.parent_ptr().as_ref() };
        assert!(locks(dir, parent), "the lock is the directory's that the dentry goes to");
        let room = match parent.is_hashed() {
            true => parent.d_children.reserve(self.vfs().domain).map_err(|_| Errno::NOMEM),
            false => Err(Errno::NOENT),
        };
        if let Err(errno) = room {
            let mut this = self;
            this.set_count(1);
            return Err(errno);
        }
        let table = whole(parent);
        if dentry.is_negative() {
            dentry.super_block().counts.add(NEGATIVES, 1);
        }
        dentry.set_state(flags | dentry.uncounted());
        table.table.insert(table.counts(), dentry.hash(), self.as_ptr());
        Ok(self.into_unhashed())
    }
}

impl<'k> DentryRef<'k> {
    /// Gives an inode to a dentry of the directory that had none (`d_instantiate`). `pin`: the directory keeps it from now
    /// on.
    ///
    /// # Errors
    /// The inode, if the dentry has one by now or is not in the directory.
    pub fn instantiate(
        &self,
        dir: &mut InodeGuard<'_>,
        inode: InodeRef<'k>,
        pin: bool,
    ) -> Result<(), InodeRef<'k>> {
        if directory(dir, self).is_none() || !self.is_negative() {
            return Err(inode);
        }
        self.super_block().counts.add(NEGATIVES, u64::MAX);
        let _writing = self.d_seq.write();
        // ORDERING: pairs with the acquire in `Dentry::inode`.
        self.d_inode.store(inode.into_raw().as_ptr(), Ordering::Release);
        if pin {
            self.d_lockref.get();
            self.set_state(DentryFlags::PINNED | self.uncounted());
        }
        Ok(())
    }

    /// Takes the dentry out of its directory (`d_drop`): no lookup finds it from now on, and nobody who has only
    /// [`Seen`] it gets a reference. The directory does not list it any more. A reference to it, which for a pinned one is the
    /// directory's; none if it is not in the directory.
    ///
    /// Takes the lock of a directory that is taken out: not for its holder.
    pub fn unhash(&self, dir: &mut InodeGuard<'_>) -> Option<DentryRef<'k>> {
        let _below = lock_below(dir, self)?;
        // SAFETY: alive by our reference, and of a kernel that lives for 'k; locked, if it is a directory.
        let reference = unsafe { unhash(self, dir) }?;
        dir.forget_listed(self);
        Some(reference)
    }

    /// [`unhash`](Self::unhash) for who has the lock of a directory that is taken out.
    #[inline]
    pub(in crate::raw) fn unhash_locked(&self, dir: &mut InodeGuard<'_>) -> Option<DentryRef<'k>> {
        // SAFETY: as above.
        unsafe { unhash(self, dir) }
    }

    /// Renames the dentry (`d_move`): from the directory of the first lock to `to`, which is that of the second. In place of
    /// `replaced`, if there is one; else no dentry there has the name. Readers find it by the old name or by the new one, and
    /// by the new one what was there or what comes there, at any moment.
    ///
    /// What is replaced is taken out; its pin, if it had one, is the result.
    ///
    /// The caller has made sure that no directory becomes its own ancestor, and holds
    /// [`lock_renames`](crate::SuperBlock::lock_renames) if a directory goes to another one.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOENT` if a dentry is not where the locks say. Then nothing is changed.
    ///
    /// # Panics
    /// If the dentry and its new directory are of different filesystems, or a directory lists one of the dentries.
    pub fn rename(
        &self,
        dirs: &mut Dirs<'_, '_>,
        to: &DentryRef<'k>,
        name: NewName<'k>,
        replaced: Option<&DentryRef<'k>>,
    ) -> Result<Option<DentryRef<'k>>, Errno> {
        let listed = self.is_listed() || replaced.is_some_and(|replaced| replaced.is_listed());
        assert!(!listed, "a list would keep the old place");
        let mut _below = None;
        if let Some(replaced) = replaced {
            // Its lock is had, if it is the source's directory.
            if !locks(dirs.source(), replaced) {
                _below = lock_below(dirs.target(), replaced).ok_or(Errno::NOENT)?;
            }
            count_below(replaced);
        }
        self.move_to(dirs, to, name, replaced)
    }

    /// [`rename`](Self::rename) for who looks after the lists.
    pub(in crate::raw) fn move_to(
        &self,
        dirs: &mut Dirs<'_, '_>,
        to: &DentryRef<'k>,
        name: NewName<'k>,
        replaced: Option<&DentryRef<'k>>,
    ) -> Result<Option<DentryRef<'k>>, Errno> {
        assert!(self.d_sb == to.d_sb, "a rename stays in its filesystem");
        let from = directory(dirs.source(), self).ok_or(Errno::NOENT)?;
        if !to.is_hashed() || !locks(dirs.target(), to) || replaced.is_some_and(|r| r.same(self)) {
            return Err(Errno::NOENT);
        }
        if let Some(replaced) = replaced
            && !directory(dirs.target(), replaced)
                .is_some_and(|d| d.same(to) && replaced.hash() == name.hash_len >> 8)
        {
            return Err(Errno::NOENT);
        }
        let vfs = self.vfs();
        // What can fail comes first. The table of the old directory may be replaced by this, if it is the same.
        if replaced.is_none() {
            to.d_children.reserve(vfs.domain).map_err(|_| Errno::NOMEM)?;
        }
        let table = whole(to);
        // A reference to the old parent becomes one to the new one; who had none needs none, if the new one stays by itself.
        let new_parent = !from.same(to);
        let counted = !self.is_uncounted();
        if new_parent && (counted || !to.flags().contains(DentryFlags::PINNED)) {
            to.d_lockref.get();
            self.set_state(self.state() - DentryFlags::UNCOUNTED);
        }
        let moving = moving(self);
        let hash = name.hash_len >> 8;
        let old_name = self.long_name();
        let old_hash = self.hash();
        let mut pin = None;
        {
            let _writing = self.d_seq.write();
            match replaced {
                Some(replaced) => {
                    let _writing = replaced.d_seq.write();
                    table.table.replace(hash, replaced.as_ptr(), self.as_ptr());
                    pin = taken_out(replaced);
                }
                None => table.table.insert(table.counts(), hash, self.as_ptr()),
            }
            // Relaxed: `d_seq` tells readers what belongs together.
            self.hash_len.store(name.hash_len, Ordering::Relaxed);
            for (mine, new) in self.name.iter().zip(name.words) {
                mine.store(new, Ordering::Relaxed);
            }
            name.taken();
            // ORDERING: see `parent_ptr`.
            self.d_parent.store(to.as_ptr().as_ptr(), Ordering::Release);
            let old = whole(from);
            old.table.remove(old.counts(), old_hash, self.as_ptr());
        }
        drop(moving);
        let left = whole(from);
        from.d_children.sparse(left, vfs.domain);
        // SAFETY: no section that begins later finds the old block; the reference to the old parent was the dentry's.
        unsafe {
            if let Some(old) = old_name {
                vfs.long_names.free_rcu(old);
            }
            if new_parent && counted {
                dput(NonNull::from(from));
            }
            Ok(pin.map(|pin| DentryRef::from_raw(pin)))
        }
    }

    /// Exchanges the names and places of two dentries (`RENAME_EXCHANGE`). Readers find one or the other by either name, at
    /// any moment.
    ///
    /// # Errors
    /// `ENOENT` if a dentry is not where the locks say. Then nothing is changed.
    ///
    /// # Panics
    /// If the dentries are of different filesystems, or a directory lists one of them.
    pub fn exchange(&self, dirs: &mut Dirs<'_, '_>, other: &DentryRef<'k>) -> Result<(), Errno> {
        assert!(!self.is_listed() && !other.is_listed(), "a list would keep the old place");
        self.exchange_with(dirs, other)
    }

    /// [`exchange`](Self::exchange) for who looks after the lists.
    pub(in crate::raw) fn exchange_with(
        &self,
        dirs: &mut Dirs<'_, '_>,
        other: &DentryRef<'k>,
    ) -> Result<(), Errno> {
        assert!(self.d_sb == other.d_sb, "a rename stays in its filesystem");
        let mine = directory(dirs.source(), self).ok_or(Errno::NOENT)?;
        let its = directory(dirs.target(), other).ok_or(Errno::NOENT)?;
        if self.same(other) {
            return Ok(());
        }
        // One of them is enough for both.
        let moves = moving(self);
        let _moves = if moves.is_some() { (moves, None) } else { (None, moving(other)) };
        let (_writing, _other_writing) = (self.d_seq.write(), other.d_seq.write());
        let (my_hash, its_hash) = (self.hash(), other.hash());
        // If the hashes are equal in one table, the two slots are told apart by the dentries in them: so by way of neither.
        let (a, b) = (whole(mine), whole(its));
        a.table.exchange(my_hash, self.as_ptr(), &b.table, its_hash, other.as_ptr());
        // Relaxed, below: `d_seq` tells readers what belongs together.
        swap(&self.hash_len, &other.hash_len);
        for (a, b) in self.name.iter().zip(&other.name) {
            swap(a, b);
        }
        // A reference to a parent changes owners with it; so does the lack of one.
        let (my_state, its_state) = (self.state(), other.state());
        self.set_state((my_state - DentryFlags::UNCOUNTED) | other.uncounted());
        other.set_state((its_state - DentryFlags::UNCOUNTED) | (my_state & DentryFlags::UNCOUNTED));
        // ORDERING: see `parent_ptr`.
        self.d_parent.store(NonNull::from(its).as_ptr(), Ordering::Release);
        other.d_parent.store(NonNull::from(mine).as_ptr(), Ordering::Release);
        Ok(())
    }
}

impl<'k> Seen<'_, 'k> {
    /// [`DentryRef::unhash`] of a dentry that the caller has found under the directory's lock.
    pub fn unhash(self, dir: &mut InodeGuard<'_>) -> Option<DentryRef<'k>> {
        let _below = lock_below(dir, &self)?;
        // SAFETY: found in its directory by a section that is open, and of a kernel that lives for 'k.
        let reference = unsafe { unhash(self.dentry(), dir) }?;
        dir.forget_listed(&self);
        Some(reference)
    }
}

fn swap(a: &quietline_platform::atomic::AtomicU64, b: &quietline_platform::atomic::AtomicU64) {
    let old = a.load(Ordering::Relaxed);
    a.store(b.load(Ordering::Relaxed), Ordering::Relaxed);
    b.store(old, Ordering::Relaxed);
}

#[inline(always)]
pub(super) fn whole(dir: &Dentry) -> Whole {
    #[cold]
    #[inline(never)]
    fn missing() -> ! {
        panic!("a directory that has a dentry has a table")
    }
    match dir.d_children.whole() {
        Some(whole) => whole,
        None => missing(),
    }
}

/// The lock of a directory that is to be taken out, from under which nobody's name is then: see [`LockedDir`]. None if the
/// locked directory has not got it: it may be that one itself.
///
/// [`LockedDir`]: super::locked
fn lock_below<'d>(dir: &InodeGuard<'_>, dentry: &'d Dentry) -> Option<Option<InodeGuard<'d>>> {
    directory(dir, dentry)?;
    Some(dentry.inode().filter(|inode| inode.is_dir()).map(|inode| inode.lock()))
}

/// # Safety
/// The dentry is readable, and of a kernel that lives for `'k`. If it is a directory the caller has its lock, too.
#[inline]
unsafe fn unhash<'k>(dentry: &Dentry, dir: &mut InodeGuard<'_>) -> Option<DentryRef<'k>> {
    // A dentry that a directory has is alive as long as the directory's lock is held.
    let parent = directory(dir, dentry)?;
    count_below(dentry);
    let table = whole(parent);
    table.table.remove(table.counts(), dentry.hash(), NonNull::from(dentry));
    let reference = taken_out_held(dentry);
    // SAFETY: by contract the kernel lives.
    parent.d_children.sparse(table, unsafe { vfs(dentry) }.domain);
    // SAFETY: the reference was the directory's, or was just taken.
    Some(unsafe { DentryRef::from_raw(reference) })
}

/// Gives those in a directory that is to be taken out their references to it. It is locked.
fn count_below(dentry: &Dentry) {
    let Some(names) = dentry.d_children.whole().filter(|names| names.counts().live() > 0) else {
        return;
    };
    names.table.each(|child| {
        // SAFETY: what a table has is alive while the directory's lock is held.
        let child = unsafe { child.as_ref() };
        if child.is_uncounted() {
            dentry.d_lockref.get();
            child.set_state(child.state() - DentryFlags::UNCOUNTED);
        }
    });
}

/// [`taken_out`] with a reference in any case, for who has none: the directory's, or a new one.
pub(super) fn taken_out_held(dentry: &Dentry) -> NonNull<Dentry> {
    if !dentry.flags().contains(DentryFlags::PINNED) {
        // First: what a directory has, the last put leaves alive. From then on it ends it.
        dentry.d_lockref.get();
    }
    let _writing = dentry.d_seq.write();
    taken_out(dentry);
    NonNull::from(dentry)
}

/// Marks a dentry that its directory has no more; the directory's reference, if it had one.
pub(super) fn taken_out(dentry: &Dentry) -> Option<NonNull<Dentry>> {
    if dentry.is_negative() {
        dentry.super_block().counts.add(NEGATIVES, u64::MAX);
    }
    let state = dentry.state();
    if state.contains(DentryFlags::UNCOUNTED) {
        // SAFETY: it was in its parent, whose lock the caller has.
        unsafe { dentry.parent_ptr().as_ref() }.d_lockref.get();
    }
    dentry.set_state(DentryFlags::UNHASHED);
    state.contains(DentryFlags::PINNED).then(|| NonNull::from(dentry))
}

/// Tells those who look at several dentries' parents or names that a directory is being moved, until the result is dropped.
/// Nothing for what is no directory: nobody is below it.
fn moving(dentry: &Dentry) -> Option<impl Sized> {
    dentry.inode().is_some_and(|inode| inode.is_dir()).then(|| {
        let sb = dentry.super_block();
        let lock = sb.moves.lock();
        // The first is dropped first.
        (sb.move_seq.write(), lock)
    })
}
