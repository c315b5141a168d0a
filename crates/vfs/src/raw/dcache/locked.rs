//! A directory that is kept by its lock alone, and what is done to its names.
//!
//! # The problem
//!
//! Who makes a name needs the directory for the time in which he holds its lock. A reference to it, up and down, is two locked
//! instructions on a line that all its users write; and that of the new name to its directory is two more.
//!
//! # Our way
//!
//! ```text
//!   section:  seen ── try_lock ── still what was seen? ──┐
//!                        └── no: reference, lock ────────┴──> LockedDir ── find, enter, remove ──> unlocked
//! ```
//!
//! A directory that its own directory pins is taken out only by who has *its* lock, too: whoever has that, and has found it
//! hashed, keeps it. For the same reason its names need no reference to it while they are in it
//! ([`UNCOUNTED`](DentryFlags::UNCOUNTED)): it is not taken out before they are, or gives them references then. And a name whose only
//! reference is its directory's ends in one step, without ever being anybody else's.
//!
//! # Guarantees
//!
//! * Where nobody else is in the directory: one locked instruction to lock it, none for a name that comes, one for a file that
//!   goes and that nobody has open.
//! * Nobody waits for the lock inside a read section.
//!
//! # Lock order
//!
//! This is a directory's lock. What ends by what was done under it ends when it is unlocked.

use super::change::{Dirs, whole};
use super::entry::Dentry;
use super::life;
use super::refs::{DentryRef, NewDentry, NewName, dput};
use super::seen::Seen;
use crate::dcache::name::Name;
use crate::dentry::DentryFlags;
use crate::inode::{Changes, Inode, InodeFlags, InodeGuard, InodeRef};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::mem::{ManuallyDrop, transmute};
use core::ptr::NonNull;
use rustix::io::Errno;

/// A directory, locked. It stays while this lives; if it has not been removed by now, it is not until then.
pub(crate) struct LockedDir<'k> {
    // In the order in which they are dropped.
    guard: RefCell<InodeGuard<'k>>,
    inode: &'k Inode,
    ended: Ended,
    /// The reference, where the lock is not enough.
    _held: Option<DentryRef<'k>>,
    dir: ManuallyDrop<DentryRef<'k>>,
}

/// A dentry that was made dead under the lock, to be ended when that is free.
struct Ended(Cell<Option<NonNull<Dentry>>>);

impl Drop for Ended {
    #[inline]
    fn drop(&mut self) {
        if let Some(dentry) = self.0.get() {
            // SAFETY: made dead by `remove_sole`.
            unsafe { end(dentry) };
        }
    }
}

/// Not where locks end under which nothing does.
///
/// # Safety
/// The caller made the dentry dead, and it is in no table.
#[inline(never)]
unsafe fn end(dentry: NonNull<Dentry>) {
    // SAFETY: by contract; a parent that it leaves is the caller's to put.
    unsafe {
        if let Some(parent) = life::end(dentry) {
            put_parent(parent);
        }
    }
}

/// # Safety
/// The reference is the caller's.
#[cold]
#[inline(never)]
unsafe fn put_parent(parent: NonNull<Dentry>) {
    // SAFETY: by contract.
    unsafe { dput(parent) };
}

impl<'k> LockedDir<'k> {
    /// Locks a directory that was seen, in the section that is open, if nobody has it locked and it is what was seen; none: the
    /// caller takes a reference, and [waits](Self::lock).
    #[inline(always)]
    pub(crate) fn try_lock(seen: Seen<'_, 'k>) -> Option<Self> {
        let guard = seen.inode()?.try_lock()?;
        // ORDERING: whoever takes it out has its lock when or after he marks it: found unmarked, he has yet to take that.
        let stays = seen.flags().contains(DentryFlags::PINNED) && seen.is_hashed();
        // What a node's directory has not got, the node may have: the long way asks it.
        const ODD: InodeFlags = InodeFlags::DEAD.union(InodeFlags::NODE);
        if !stays || guard.inode().flags().intersects(ODD) || !seen.valid() {
            return None;
        }
        // SAFETY: the lock keeps the directory, and so its inode, as the module says. The reference is not counted, and never
        // put.
        unsafe {
            let guard = transmute::<InodeGuard<'_>, InodeGuard<'k>>(guard);
            let dir = ManuallyDrop::new(DentryRef::from_raw(NonNull::from(seen.dentry())));
            Some(Self::new(guard, None, dir))
        }
    }

    /// Locks a directory, waiting for it if need be. It may have been removed.
    ///
    /// # Errors
    /// `ENOENT` if it stands for nothing.
    pub(crate) fn lock(held: DentryRef<'k>) -> Result<Self, Errno> {
        let guard = held.inode().ok_or(Errno::NOENT)?.lock();
        // SAFETY: the reference that is kept beside it keeps the inode; the other one is not counted, and never put.
        let (guard, dir) = unsafe {
            let guard = transmute::<InodeGuard<'_>, InodeGuard<'k>>(guard);
            (guard, ManuallyDrop::new(DentryRef::from_raw(held.as_ptr())))
        };
        Ok(Self::new(guard, Some(held), dir))
    }

    #[inline(always)]
    fn new(
        guard: InodeGuard<'k>,
        held: Option<DentryRef<'k>>,
        dir: ManuallyDrop<DentryRef<'k>>,
    ) -> Self {
        let inode = guard.inode();
        Self { guard: RefCell::new(guard), inode, ended: Ended(Cell::new(None)), _held: held, dir }
    }

    /// The directory. (A clone of this is a reference that stays.)
    #[inline(always)]
    pub(crate) fn dir(&self) -> &DentryRef<'k> {
        &self.dir
    }

    /// Its inode.
    #[inline(always)]
    pub(crate) fn inode(&self) -> &Inode {
        self.inode
    }

    /// Changes the directory's attributes.
    #[inline(always)]
    pub(crate) fn change(&self, changes: &Changes) {
        self.guard.borrow_mut().change(changes);
    }

    /// What has a name, as long as the lock is held. Counts nothing, and writes nothing.
    #[inline]
    pub(crate) fn find(&self, name: &Name<'_>) -> Option<&Dentry> {
        let table = self.dir.d_children.table()?;
        // SAFETY: what the table has is alive while the lock is held.
        let found =
            table.find_locked(name.hash(), |child| unsafe { child.as_ref() }.is_called(name))?;
        // SAFETY: as above; what is taken out under the lock, and ends by that, does so when it is free, and this is not used any
        // more.
        Some(unsafe { found.as_ref() })
    }

    /// A dentry for a name in the directory, which has no such name.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline]
    pub(crate) fn alloc(&self, name: &Name<'_>) -> Result<Fresh<'_, 'k>, Errno> {
        let dir = self.dir();
        if !dir.flags().contains(DentryFlags::PINNED) {
            return dir.alloc(name).map(|new| Fresh { new, _of: self });
        }
        // SAFETY: the parent stays until the lock is free, by when the dentry is dropped or in it; and it is pinned, so that it
        // is taken out only as `UNCOUNTED` says.
        let new = unsafe {
            NewDentry::alloc(dir.vfs(), dir.super_block(), name, dir.as_ptr().as_ptr(), false)
        }?;
        Ok(Fresh { new, _of: self })
    }

    /// Puts a dentry into the directory and at the end of its list.
    ///
    /// # Errors
    /// As [`NewDentry::enlist`].
    #[inline]
    pub(crate) fn enter(&self, new: Fresh<'_, 'k>) -> Result<(), Errno> {
        new.new.enlist(&mut self.guard.borrow_mut())
    }

    /// [`enter`](Self::enter); a reference for the caller.
    ///
    /// # Errors
    /// As [`NewDentry::enlist`].
    #[inline]
    pub(crate) fn enter_held(&self, new: Fresh<'_, 'k>) -> Result<DentryRef<'k>, Errno> {
        new.new.enlist_held(&mut self.guard.borrow_mut())
    }

    /// Takes a dentry out that nobody but the directory refers to, and ends it when the lock is free; false and nothing is
    /// changed if somebody does, or the directory has not got it for good. Of a directory, the caller has the lock, too, and it
    /// has no name.
    ///
    /// One locked instruction.
    #[inline(always)]
    pub(crate) fn remove_sole(&self, victim: &Dentry) -> bool {
        // Relaxed: under the lock; the count, a guess.
        let state = victim.state();
        let ours = core::ptr::eq(victim.parent_ptr().as_ptr(), self.dir.as_ptr().as_ptr());
        let sole = victim.d_lockref.is_sole() && self.ended.0.get().is_none();
        if !ours
            || !sole
            || !state.contains(DentryFlags::PINNED)
            || state.contains(DentryFlags::UNHASHED)
        {
            return false;
        }
        // Odd before it is dead, so that readers wait here instead of finding a dead dentry again and again.
        let writing = victim.d_seq.write();
        let Some(mut count) = victim.d_lockref.try_lock_sole() else { return false };
        self.dir.vfs().lru.remove(victim);
        count.mark_dead();
        drop(count);
        let names = whole(&self.dir);
        names.table.remove(names.counts(), victim.hash(), NonNull::from(victim));
        // Without a parent to put, if it has counted none.
        victim.set_state(DentryFlags::UNHASHED | victim.uncounted());
        drop(writing);
        self.dir.d_children.sparse(names, self.dir.vfs().domain);
        self.guard.borrow_mut().listing.forget(victim.offset());
        self.ended.0.set(Some(NonNull::from(victim)));
        true
    }

    /// Takes a dentry out of the directory; the directory's reference, or none if it is not in it. Of a directory, the caller
    /// has the lock, too.
    #[inline]
    pub(crate) fn remove(&self, victim: &DentryRef<'k>) -> Option<DentryRef<'k>> {
        victim.delist(&mut self.guard.borrow_mut())
    }

    /// Renames what was found in the directory, in another one if that is given; in place of `replaced`, if it has that. Nothing is
    /// counted. The reference that the directory had to what was replaced.
    ///
    /// # Errors
    /// As [`relist`](DentryRef::relist). Then nothing is changed.
    #[inline]
    pub(crate) fn rename(
        &self,
        found: &Dentry,
        to: Option<&Self>,
        name: NewName<'k>,
        replaced: Option<&Dentry>,
    ) -> Result<Option<DentryRef<'k>>, Errno> {
        // SAFETY: what a directory has stays while that is locked, as both are: what is replaced has its reference still when this
        // comes back. These are not counted, and never put.
        let borrow =
            |dentry| unsafe { ManuallyDrop::new(DentryRef::from_raw(NonNull::from(dentry))) };
        let (found, replaced) = (borrow(found), replaced.map(borrow));
        let replaced = replaced.as_deref();
        let mut dir = self.guard.borrow_mut();
        match to {
            None => found.relist(&mut Dirs::Same(&mut dir), self.dir(), name, replaced),
            Some(to) => {
                let mut new = to.guard.borrow_mut();
                found.relist(&mut Dirs::Two(&mut dir, &mut new), to.dir(), name, replaced)
            }
        }
    }

    /// A reference to what somebody's dentry stands for, who has a reference to it, or has found it here.
    #[inline]
    pub(crate) fn inode_ref(&self, dentry: &Dentry) -> Option<InodeRef<'k>> {
        let inode = NonNull::from(dentry.inode()?);
        // SAFETY: the dentry has a reference to it, and stays: by the caller's reference, or by the lock.
        Some(unsafe { InodeRef::again(inode) })
    }

    /// A reference to what was found.
    #[inline]
    pub(crate) fn hold(&self, found: &Dentry) -> DentryRef<'k> {
        found.d_lockref.get();
        // SAFETY: just taken; the dentry is of the directory's kernel.
        unsafe { DentryRef::from_raw(NonNull::from(found)) }
    }
}

/// A dentry that is to go into a directory while it is locked.
#[derive(Debug)]
pub(crate) struct Fresh<'d, 'k> {
    new: NewDentry<'k>,
    _of: &'d LockedDir<'k>,
}

impl<'k> Fresh<'_, 'k> {
    /// Gives it an inode.
    #[inline]
    pub(crate) fn instantiate(&mut self, inode: InodeRef<'k>) {
        self.new.instantiate(inode);
    }
}

impl fmt::Debug for LockedDir<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedDir").field("dir", &*self.dir).finish_non_exhaustive()
    }
}
