//! What inodes of the filesystem in memory hold, and whom it belongs to.
//!
//! ```text
//!   SuperBlock ── owns, boxed ──> RamFs (limits)      Vfs ── owns ──> PageCaches
//!       ^                            ^                                    ^
//!       └── Inode ── is part ── FileData ── to its last reference ┘       │
//!                                  └── PageTree ── to the inode's drop ───┘
//! ```

use super::dcache::refs::DentryRef;
use crate::inode::{Content, InodeGuard, InodeRef, NewInode};
use crate::ramfs::RamFs;
use crate::ramfs::pages::{PageCaches, PageTree, PageWriter};
use core::fmt;
use core::ptr::NonNull;
use rustix::io::Errno;

/// The bytes of a regular file.
pub struct FileData {
    pages: PageTree<'static>,
    fs: NonNull<RamFs>,
}

// SAFETY: the pages are shared by design, as is the filesystem, which outlives it.
unsafe impl Send for FileData {}
// SAFETY: as above.
unsafe impl Sync for FileData {}

impl FileData {
    /// # Safety
    /// The caches stay where they are and live until this has been dropped; the filesystem, until [`end`](Self::end) and
    /// the last call before that.
    unsafe fn empty(caches: &PageCaches, fs: &RamFs) -> Self {
        // SAFETY: by contract.
        Self { pages: unsafe { PageTree::new_unbound(caches) }, fs: NonNull::from(fs) }
    }

    /// The pages, to be read.
    #[inline(always)]
    pub(crate) fn pages(&self) -> &PageTree<'static> {
        &self.pages
    }

    /// The filesystem that counts them.
    #[inline(always)]
    pub(crate) fn fs(&self) -> &RamFs {
        // SAFETY: it outlives the inode that this is part of.
        unsafe { self.fs.as_ref() }
    }

    /// The pages, to be changed by the holder of the inode's lock.
    ///
    /// # Panics
    /// If the lock is another inode's.
    #[inline(always)]
    pub(crate) fn writer<'a>(&'a self, guard: &'a mut InodeGuard<'_>) -> PageWriter<'a, 'static> {
        let ours =
            matches!(guard.inode().content(), Content::File(data) if core::ptr::eq(data, self));
        assert!(ours, "the lock is that of another file");
        // SAFETY: every writer of an inode's pages is made here or by `end`: by the holder of its lock, for as long as
        // the guard is borrowed, or when nobody else refers to the inode.
        unsafe { self.pages.write_unlocked() }
    }

    /// Gives all pages back: the inode has no reference left.
    #[inline]
    pub(crate) fn end(&self) {
        if self.pages.page_count() != 0 {
            self.end_slow();
        }
    }

    #[inline(never)]
    fn end_slow(&self) {
        // SAFETY: no reference to the inode is left, so its lock is free: there is no other writer.
        let mut writer = unsafe { self.pages.write_unlocked() };
        writer.truncate(self.fs().limits(), 0).expect("no size is smaller");
    }
}

impl fmt::Debug for FileData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileData").field("size", &self.pages.size()).finish_non_exhaustive()
    }
}

/// An inode of an empty regular file, in the filesystem of `near`, which is `fs`.
#[inline]
pub(crate) fn new_file<'k>(
    near: &DentryRef<'k>,
    fs: &RamFs,
    new: NewInode,
) -> Result<InodeRef<'k>, Errno> {
    debug_assert!(near.super_block().info_as::<RamFs>().is_some_and(|of| core::ptr::eq(of, fs)));
    // SAFETY: a superblock keeps what it knows in a box, for longer than its inodes have references; a kernel has waited for
    // the ends of its inodes when it lets go of its caches.
    let data = unsafe { FileData::empty(&near.vfs().pages, fs) };
    near.new_inode(new, Content::File(data))
}
