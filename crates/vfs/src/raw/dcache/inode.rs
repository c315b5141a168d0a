//! References to inodes, and their memory.

use crate::inode::{Content, Inode, NewInode};
use crate::super_block::{INODES_ENDED, INODES_MADE, SuperBlock, SuperRef};
use crate::vfs::Vfs;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use quietline_platform::atomic::{Ordering, fence};
use quietline_slab::{Hook, LazyCache, Options};
use quietline_sync::rcu::Domain;
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::refs::DentryRef;

/// A reference to an inode. The last one ends it: what it holds goes at once, its memory after a grace period.
pub struct InodeRef<'k> {
    inode: NonNull<Inode>,
    of: PhantomData<&'k Vfs>,
}

// SAFETY: all that changes in an inode is atomic or under its lock, and the pointers in it are to shared things.
unsafe impl Send for Inode {}
// SAFETY: as above.
unsafe impl Sync for Inode {}
// SAFETY: a reference is a count; inodes are shared by design.
unsafe impl Send for InodeRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for InodeRef<'_> {}

impl Inode {
    pub(crate) fn cache(domain: &'static Domain) -> LazyCache {
        unsafe fn release(object: NonNull<u8>) {
            // SAFETY: the cache passes an object that was an inode, which nobody sees any more.
            unsafe { Inode::drop_ended(object.cast()) };
        }
        let options = |domain| Options {
            rcu: Some(domain),
            release: Some(Hook::new(release)),
            ..Options::of::<Self>("inode_cache")
        };
        // SAFETY: the hook is for objects of an inode's size that hold one, as all do that are given to `free_rcu`.
        unsafe { LazyCache::new(options, domain) }
    }

    /// Drops an inode that has ended, unless nothing is left in it.
    ///
    /// # Safety
    /// The inode ended a grace period ago, or no other thread has seen it. It is dropped once.
    pub(super) unsafe fn drop_ended(inode: NonNull<Inode>) {
        // SAFETY: by contract. Relaxed: said before it was freed.
        if unsafe { inode.as_ref() }.i_bare.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: as above.
        let end = || unsafe { inode.drop_in_place() };
        // It has been reported, and has nothing to do with the thread that happens to run this.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(end)) {
            // Dropping a payload may panic again.
            core::mem::forget(payload);
        }
    }

    /// The filesystem that it is of.
    #[inline(always)]
    pub fn super_block(&self) -> &SuperBlock {
        // SAFETY: a superblock outlives its inodes.
        unsafe { self.i_sb.as_ref() }
    }
}

/// # Safety
/// The superblock is of `vfs`, and has a reference, or a dentry.
unsafe fn new_inode<'k>(
    vfs: &'k Vfs,
    sb: &SuperBlock,
    new: NewInode,
    content: Content,
) -> Result<InodeRef<'k>, Errno> {
    sb.counts.begin(INODES_MADE).map_err(|_| Errno::NOMEM)?;
    let Ok(inode) = vfs.inodes.alloc().map(NonNull::cast::<Inode>) else {
        sb.counts.add(INODES_ENDED, 1);
        return Err(Errno::NOMEM);
    };
    // SAFETY: fresh memory of an inode's size and alignment.
    unsafe { inode.write(Inode::unborn(new, vfs.last_ino.next(), NonNull::from(sb), content)) };
    Ok(InodeRef { inode, of: PhantomData })
}

impl<'k> DentryRef<'k> {
    /// An inode of the same filesystem, that no dentry has yet.
    ///
    /// # Errors
    /// `ENOMEM`; the content is dropped.
    #[inline]
    pub fn new_inode(&self, new: NewInode, content: Content) -> Result<InodeRef<'k>, Errno> {
        // SAFETY: this is a dentry of the superblock.
        unsafe { new_inode(self.vfs(), self.super_block(), new, content) }
    }

    /// A reference to what it stands for.
    #[inline]
    pub fn inode_ref(&self) -> Option<InodeRef<'k>> {
        let inode = NonNull::from(self.inode()?);
        // SAFETY: the dentry has a reference to it, and we have one to the dentry.
        Some(unsafe { InodeRef::again(inode) })
    }
}

impl<'k> DentryRef<'k> {
    /// [`new_inode`](Self::new_inode) with a number that is not its filesystem's: that of what it stands for.
    ///
    /// # Errors
    /// As [`new_inode`](Self::new_inode).
    pub fn new_inode_as(
        &self,
        ino: u64,
        new: NewInode,
        content: Content,
    ) -> Result<InodeRef<'k>, Errno> {
        let inode = self.new_inode(new, content)?;
        // SAFETY: nobody else has seen it.
        unsafe { (&raw mut (*inode.inode.as_ptr()).i_ino).write(ino) };
        Ok(inode)
    }
}

impl<'k> SuperRef<'k> {
    /// An inode of the filesystem, that no dentry has yet.
    ///
    /// # Errors
    /// `ENOMEM`; the content is dropped.
    pub fn new_inode(&self, new: NewInode, content: Content) -> Result<InodeRef<'k>, Errno> {
        // SAFETY: we have a reference to the superblock.
        unsafe { new_inode(self.vfs(), self, new, content) }
    }
}

impl<'k> InodeRef<'k> {
    /// # Safety
    /// The reference is the caller's to give; the inode's kernel lives for `'k`.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(inode: NonNull<Inode>) -> Self {
        Self { inode, of: PhantomData }
    }

    /// # Safety
    /// Somebody has a reference, and keeps it during the call; the inode's kernel lives for `'k`.
    pub(crate) unsafe fn again(inode: NonNull<Inode>) -> Self {
        let held = ManuallyDrop::new(Self { inode, of: PhantomData });
        (*held).clone()
    }

    #[inline(always)]
    pub(crate) fn into_raw(self) -> NonNull<Inode> {
        ManuallyDrop::new(self).inode
    }
}

impl Deref for InodeRef<'_> {
    type Target = Inode;

    #[inline(always)]
    fn deref(&self) -> &Inode {
        // SAFETY: our reference keeps it alive.
        unsafe { self.inode.as_ref() }
    }
}

impl Clone for InodeRef<'_> {
    /// One more reference (`ihold`): one locked instruction on the inode's first line.
    fn clone(&self) -> Self {
        // Relaxed: the new reference gets what the old one has.
        let old = self.i_count.fetch_add(1, Ordering::Relaxed);
        assert!(old < u32::MAX / 2, "too many references to an inode");
        Self { inode: self.inode, of: PhantomData }
    }
}

impl Drop for InodeRef<'_> {
    /// Gives the reference back (`iput`): no locked instruction if it is the only one.
    #[inline]
    fn drop(&mut self) {
        // A new reference comes only from an old one, so a sole holder has nobody to agree with.
        //
        // ORDERING: acquire pairs with the release of the puts before, of which this finds the last; so does the fence.
        let last = self.i_count.load(Ordering::Acquire) == 1 || {
            let last = self.i_count.fetch_sub(1, Ordering::Release) == 1;
            if last {
                fence(Ordering::Acquire);
            }
            last
        };
        if last {
            // SAFETY: that was the last.
            unsafe { evict(self.inode) };
        }
    }
}

/// Ends an inode.
///
/// # Safety
/// No reference is left.
#[inline]
unsafe fn evict(inode: NonNull<Inode>) {
    // SAFETY: not freed yet; the superblock and the kernel are valid until it is counted as ended. Sections that begin later
    // do not find it: its dentries are gone.
    unsafe {
        let sb = inode.as_ref().i_sb;
        crate::notify::ended(inode.as_ref());
        sb.as_ref().evict(inode.as_ref());
        // Relaxed: for who frees it, by way of the cache.
        inode.as_ref().i_bare.store(inode.as_ref().is_bare(), Ordering::Relaxed);
        if sb.as_ref().root.is_inode(inode) {
            return sb.as_ref().root.inode_ended();
        }
        sb.as_ref().vfs.as_ref().inodes.free_rcu(inode.cast());
        sb.as_ref().counts.add(INODES_ENDED, 1);
    }
}

impl fmt::Debug for InodeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
