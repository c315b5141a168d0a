//! References to superblocks, and their end.

use super::genocide::genocide;
use super::refs::{DentryRef, dput};
use crate::dentry::DentryFlags;
use crate::inode::{Content, NewInode};
use crate::super_block::{SuperBlock, SuperOperations};
use crate::vfs::Vfs;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::Ordering;
use quietline_platform::heap;
use quietline_slab::RawCache;
use quietline_sync::SpinLock;
use quietline_sync::rcu::Head;
use rustix::io::Errno;

/// A reference to a filesystem. The last one takes its tree down.
pub struct SuperRef<'k> {
    sb: NonNull<SuperBlock>,
    of: PhantomData<&'k Vfs>,
}

// SAFETY: all that changes is atomic or under locks, and the pointers are to shared things.
unsafe impl Send for SuperBlock {}
// SAFETY: as above.
unsafe impl Sync for SuperBlock {}
// SAFETY: a reference is a count.
unsafe impl Send for SuperRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for SuperRef<'_> {}

/// All superblocks of a kernel, also those that are over and still have dentries.
pub(crate) struct Supers {
    list: SpinLock<Vec<Member>>,
}

struct Member(NonNull<SuperBlock>);

// SAFETY: followed under the list's lock, or by who has taken it off.
unsafe impl Send for Member {}

impl Supers {
    pub(crate) fn new() -> Self {
        Self { list: SpinLock::new(Vec::new()) }
    }

    /// Calls `f` with each. It takes no lock.
    pub(crate) fn each(&self, mut f: impl FnMut(&SuperBlock)) {
        for member in self.list.lock().iter() {
            // SAFETY: on the list, so valid.
            f(unsafe { member.0.as_ref() });
        }
    }
}

impl Vfs {
    /// A filesystem with a root directory and nothing below it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new_super(
        &self,
        s_type: &'static str,
        s_dev: u64,
        info: Box<dyn SuperOperations>,
        root: NewInode,
        content: Content,
    ) -> Result<SuperRef<'_>, Errno> {
        self.reap();
        let sb = SuperBlock::unborn(NonNull::from(self), s_type, s_dev, info)
            .map_err(|_| Errno::NOMEM)?;
        let sb = NonNull::from(Box::leak(heap::try_box(sb).map_err(|_| Errno::NOMEM)?));
        let name = self.name(b"/").expect("it is short");
        let ino = self.last_ino.next_shared();
        // SAFETY: boxed above, and nobody has seen it.
        let dentry = unsafe { (*sb.as_ptr()).root.make(sb, &name, ino, root, content) };
        // ORDERING: pairs with the acquire in `root`.
        // SAFETY: as above.
        unsafe { sb.as_ref() }.s_root.store(dentry.as_ptr(), Ordering::Release);
        let entered = {
            let mut list = self.supers.list.lock();
            heap::try_reserve(&mut *list, 1).map(|()| list.push(Member(sb)))
        };
        if entered.is_err() {
            // SAFETY: boxed above, and nobody has seen it.
            drop(unsafe { Box::from_raw(sb.as_ptr()) });
            return Err(Errno::NOMEM);
        }
        Ok(SuperRef { sb, of: PhantomData })
    }

    /// Frees superblocks that were over but for some dentries, which are gone now.
    pub(crate) fn reap(&self) {
        let mut list = self.supers.list.lock();
        list.retain(|member| {
            // SAFETY: on the list, so valid.
            let sb = unsafe { member.0.as_ref() };
            // ORDERING: pairs with the release that ends `drop`: the tree has been taken down.
            let over = sb.s_active.load(Ordering::Acquire) == 0 && sb.is_empty();
            if over {
                // SAFETY: nothing refers to it, and it is taken off the list.
                unsafe { free_rcu(member.0, self) };
            }
            !over
        });
    }
}

impl SuperBlock {
    /// Whether none of its dentries and inodes is left. Nobody makes new ones but from those.
    fn is_empty(&self) -> bool {
        use crate::super_block::{DENTRIES_ENDED, DENTRIES_MADE, INODES_ENDED, INODES_MADE};
        let ended = (self.counts.sum(DENTRIES_ENDED), self.counts.sum(INODES_ENDED));
        // What was ended until here was made before: so what was made is not summed too low.
        // After a refused fence it is not known, and a later call finds out.
        let fenced = self.counts.fence().is_ok();
        let made = || (self.counts.sum(DENTRIES_MADE), self.counts.sum(INODES_MADE));
        fenced && self.root.is_over() && ended == made()
    }
}

/// # Safety
/// Nothing refers to it any more, but readers inside sections.
unsafe fn free_rcu(sb: NonNull<SuperBlock>, vfs: &Vfs) {
    unsafe fn free(head: NonNull<Head>) {
        // SAFETY: the head is the first field of a boxed superblock.
        drop(unsafe { Box::from_raw(head.cast::<SuperBlock>().as_ptr()) });
    }
    const { assert!(core::mem::offset_of!(SuperBlock, head) == 0) };
    // SAFETY: the head is the superblock's, which is ours.
    unsafe { vfs.domain.call(sb.cast(), free) };
}

impl<'k> SuperRef<'k> {
    /// The kernel's file systems.
    pub fn vfs(&self) -> &'k Vfs {
        // SAFETY: its kernel lives for 'k.
        unsafe { self.vfs.as_ref() }
    }

    /// The root of the tree.
    pub fn root(&self) -> DentryRef<'k> {
        // ORDERING: pairs with the release in `new_super`.
        let root =
            NonNull::new(self.s_root.load(Ordering::Acquire)).expect("a filesystem has a root");
        // SAFETY: the superblock has a reference to it while it has one itself, as we have.
        unsafe {
            root.as_ref().d_lockref.get();
            DentryRef::from_raw(root)
        }
    }
}

impl Deref for SuperRef<'_> {
    type Target = SuperBlock;

    #[inline(always)]
    fn deref(&self) -> &SuperBlock {
        // SAFETY: our reference keeps it alive.
        unsafe { self.sb.as_ref() }
    }
}

impl Clone for SuperRef<'_> {
    fn clone(&self) -> Self {
        // Relaxed: the new reference gets what the old one has.
        self.s_active.fetch_add(1, Ordering::Relaxed);
        Self { sb: self.sb, of: PhantomData }
    }
}

impl Drop for SuperRef<'_> {
    /// The last one takes the tree down: O(its size). It takes locks of directories: not for holders of any.
    fn drop(&mut self) {
        let vfs = self.vfs();
        // The last one stays counted until the tree is down: whoever finds the count 0 may free the superblock.
        let one_less = |count: u64| (count != 1).then(|| count - 1);
        // ORDERING: release pairs with the acquire of the last one: who ends it has seen what others did.
        if self.s_active.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok() {
            return;
        }
        // SAFETY: valid: it is over only when its count says 0, which is stored last.
        let sb = unsafe { self.sb.as_ref() };
        // SAFETY: the root's reference is the superblock's.
        unsafe { bury(sb, vfs) };
        // ORDERING: pairs with the acquire in `reap`.
        sb.s_active.store(0, Ordering::Release);
        vfs.reap();
    }
}

/// Takes the tree of a superblock down.
///
/// # Safety
/// It has no reference, and this was not done before.
unsafe fn bury(sb: &SuperBlock, vfs: &Vfs) {
    // ORDERING: pairs with the release in `new_super`: the root is seen made. Nobody looks for it any more.
    if let Some(root) = NonNull::new(sb.s_root.swap(ptr::null_mut(), Ordering::Acquire)) {
        // SAFETY: the superblock's reference keeps it alive until it is put.
        unsafe {
            let root_inode = root.as_ref().inode().expect("a root is a directory");
            {
                // From now on it takes no names.
                let _dir = root_inode.lock();
                root.as_ref().set_state(DentryFlags::UNHASHED);
            }
            genocide(root.as_ref(), vfs, false);
            dput(root);
        }
    }
}

impl Drop for Vfs {
    /// Waits for a grace period, if a cache was made: not inside a section. No handle is left, as
    /// they borrow this. If none was made, superblocks that ended before are freed by the callbacks
    /// of a later call.
    fn drop(&mut self) {
        let list = core::mem::take(&mut *self.supers.list.lock());
        for member in &list {
            // SAFETY: on the list, so valid. A reference that was forgotten keeps nothing.
            unsafe { bury(member.0.as_ref(), self) };
        }
        // One wait for all: also for tables, and for superblocks that were freed before, which are of the same domain.
        let [small, large] = self.long_names.caches_mut();
        let (page, node) = (self.pages.page.made_mut(), self.pages.node.made_mut());
        let (dentries, inodes) = (self.dentries.made_mut(), self.inodes.made_mut());
        RawCache::flush_rcu_alone(&mut [dentries, inodes, small, large, page, node]);
        for member in list {
            // SAFETY: on the list, so valid. What was forgotten is never looked at again, but it may be the superblock of
            // dentries that were: then both are leaked.
            unsafe {
                if member.0.as_ref().is_empty() {
                    drop(Box::from_raw(member.0.as_ptr()));
                }
            }
        }
    }
}

impl fmt::Debug for SuperRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
