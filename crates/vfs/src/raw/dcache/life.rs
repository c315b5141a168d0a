//! The memory of dentries: from the cache at first, to it in the end.

use super::entry::Dentry;
use crate::dcache::name::{INLINE, Name};
use crate::inode::InodeRef;
use crate::super_block::{DENTRIES_ENDED, DENTRIES_MADE, SuperBlock};
use crate::vfs::Vfs;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use quietline_slab::{CacheError, Options, RawCache};
use quietline_sync::rcu::Domain;
use rustix::io::Errno;

impl Dentry {
    pub(crate) fn cache(domain: &'static Domain) -> Result<RawCache, CacheError> {
        let options = Options::new("dentry", size_of::<Self>(), align_of::<Self>());
        RawCache::new(Options { rcu: Some(domain), ..options })
    }
}

/// A dentry that nobody has seen, with one reference. It is its own parent if that is null.
///
/// # Safety
/// The caller gives a reference to the parent, if that is `counted`; else the parent stays until the dentry is dropped, or is
/// in it and then not uncounted when it is taken out. The superblock is of `vfs`, and valid while the dentry is.
#[inline]
pub(super) unsafe fn begin(
    vfs: &Vfs,
    sb: &SuperBlock,
    name: &Name<'_>,
    parent: *mut Dentry,
    counted: bool,
) -> Result<NonNull<Dentry>, Errno> {
    let memory = vfs.dentries.alloc().map_err(|_| Errno::NOMEM)?;
    let long = match name.bytes().len() > INLINE {
        false => None,
        true => match vfs.long_names.alloc(name) {
            Ok(long) => Some(long),
            Err(_) => {
                // SAFETY: just allocated.
                unsafe { vfs.dentries.free(memory) };
                return Err(Errno::NOMEM);
            }
        },
    };
    let dentry = memory.cast::<Dentry>();
    let parent = if parent.is_null() { dentry.as_ptr() } else { parent };
    // SAFETY: fresh memory of a dentry's size and alignment.
    unsafe { dentry.write(Dentry::unborn(name, long, parent, counted, NonNull::from(sb))) };
    sb.counts.add(DENTRIES_MADE, 1);
    Ok(dentry)
}

/// Ends a dead dentry; its parent, whose reference is the caller's now, if it had one.
///
/// # Safety
/// The caller made it dead, and it is on no list and in no table.
#[inline]
pub(super) unsafe fn end(dentry: NonNull<Dentry>) -> Option<NonNull<Dentry>> {
    // SAFETY: dead, so nobody but readers inside sections has it, and it is not freed yet; its superblock and its kernel
    // are valid until it is counted as ended.
    unsafe {
        let d = dentry.as_ref();
        let sb = d.d_sb;
        let vfs = sb.as_ref().vfs.as_ref();
        if let Some(names) = d.d_children.take() {
            debug_assert_eq!(names.counts().live(), 0, "children keep their parent");
            names.free_rcu(vfs.domain);
        }
        if let Some(name) = d.long_name() {
            vfs.long_names.free_rcu(name);
        }
        if let Some(inode) = NonNull::new(d.d_inode.load(Ordering::Relaxed)) {
            let inode = InodeRef::from_raw(inode);
            crate::notify::dentry_ended(&inode);
            drop(inode);
        }
        let parent = d.parent_ptr();
        vfs.dentries.free_rcu(dentry.cast());
        // A root has no reference to itself.
        let left = (parent != dentry && !d.is_uncounted()).then_some(parent);
        sb.as_ref().counts.add(DENTRIES_ENDED, 1);
        left
    }
}
