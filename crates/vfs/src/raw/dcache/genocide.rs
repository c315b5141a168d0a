//! Taking a whole tree down, in a loop: 4,000 levels need no more stack than one.

use super::change::taken_out_held;
use super::entry::Dentry;
use super::refs::DentryRef;
use crate::vfs::Vfs;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::Ordering;

impl<'k> DentryRef<'k> {
    /// Takes everything below out of the tree (`d_genocide`): directories, files, what is kept unused. What somebody refers to
    /// lives on, unhashed. Takes the locks of all directories below, one at a time: not for holders of any. Needs no
    /// memory. O(what is below).
    pub fn clear(&self) {
        // SAFETY: our reference keeps it alive; its kernel lives.
        unsafe { genocide(self, self.vfs(), true) };
    }

    /// Takes the dentry and everything below out of the tree (`d_invalidate`), for a filesystem where it is not right any
    /// more; what is mounted on them goes, too. Not for holders of the lock of any directory.
    pub fn invalidate(&self) {
        // A root is in no directory, and its own parent.
        while !self.is_root() {
            let parent = self.parent();
            let Some(inode) = parent.inode() else { break };
            let mut dir = inode.lock();
            if self.unhash(&mut dir).is_some() || !self.is_hashed() {
                break;
            }
            // It was renamed meanwhile.
        }
        self.clear();
        self.vfs().detach_mounts(self);
    }
}

/// # Safety
/// The caller keeps the dentry alive, and its kernel. `mounts`: whether something may be mounted below, which goes too.
pub(super) unsafe fn genocide(root: &Dentry, vfs: &Vfs, mounts: bool) {
    // Dentries that are taken out, with a reference of ours to each, and whose children are not looked at yet: linked by
    // `lru_next`, for they are on no list any more, and never will be again, being unhashed.
    let mut work: *mut Dentry = ptr::null_mut();
    orphan(root, vfs, &mut work);
    // SAFETY: what is on the list of work is alive by our reference.
    while let Some(d) = unsafe { work.as_ref() } {
        // Relaxed: the list is ours.
        work = d.lru_next.load(Ordering::Relaxed);
        orphan(d, vfs, &mut work);
        // SAFETY: our reference.
        let d = unsafe { DentryRef::from_raw(NonNull::from(d)) };
        if mounts && let Some(inode) = d.inode() {
            // Who mounts has the inode's lock while he sees whether the dentry is in a directory.
            drop(inode.lock());
            vfs.detach_mounts(&d);
        }
    }
}

/// Takes all children of a dentry out, and puts them on the list of work.
fn orphan(d: &Dentry, vfs: &Vfs, work: &mut *mut Dentry) {
    let Some(inode) = d.inode() else { return };
    if !inode.is_dir() && d.d_children.table().is_none() {
        return;
    }
    // Also without names: whoever has this lock may have nothing else to keep the directory.
    let mut dir = inode.lock();
    dir.forget_list();
    let Some(names) = d.d_children.take() else { return };
    names.table.each(|child| {
        // SAFETY: what a table has is alive while the directory's lock is held, and then by the reference.
        let c = unsafe { child.as_ref() };
        taken_out_held(c);
        let _locked = c.d_lockref.lock();
        vfs.lru.remove(c);
        // Relaxed: as above.
        c.lru_next.store(*work, Ordering::Relaxed);
        *work = child.as_ptr();
    });
    // SAFETY: no section that begins later finds it.
    unsafe { names.free_rcu(vfs.domain) };
}
