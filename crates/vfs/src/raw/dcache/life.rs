//! The memory of dentries: from the cache at first, to it in the end.

use super::entry::Dentry;
use crate::dcache::name::{INLINE, Name};
use crate::inode::InodeRef;
use crate::super_block::{DENTRIES_ENDED, DENTRIES_MADE, SuperBlock};
use crate::vfs::Vfs;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use quietline_slab::{LazyCache, Options};
use quietline_sync::rcu::Domain;
use rustix::io::Errno;

impl Dentry {
    pub(crate) fn cache(domain: &'static Domain) -> LazyCache {
        let options = |domain| Options { rcu: Some(domain), ..Options::of::<Self>("dentry") };
        // SAFETY: there is no hook.
        unsafe { LazyCache::new(options, domain) }
    }
}

/// A dentry that nobody has seen, with one reference.
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
    sb.counts.begin(DENTRIES_MADE).map_err(|_| Errno::NOMEM)?;
    let Ok(memory) = vfs.dentries.alloc() else {
        sb.counts.add(DENTRIES_ENDED, 1);
        return Err(Errno::NOMEM);
    };
    let long = match name.bytes().len() > INLINE {
        false => None,
        true => match vfs.long_names.alloc(name) {
            Ok(long) => Some(long),
            Err(_) => {
                // SAFETY: just allocated.
                unsafe { vfs.dentries.free(memory) };
                sb.counts.add(DENTRIES_ENDED, 1);
                return Err(Errno::NOMEM);
            }
        },
    };
    let dentry = memory.cast::<Dentry>();
    // SAFETY: fresh memory of a dentry's size and alignment.
    unsafe { dentry.write(Dentry::unborn(name, long, parent, counted, NonNull::from(sb))) };
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
        if parent == dentry {
            // A root has no reference to itself, and is in its superblock's memory.
            sb.as_ref().root.dentry_ended();
            return None;
        }
        vfs.dentries.free_rcu(dentry.cast());
        let left = (!d.is_uncounted()).then_some(parent);
        sb.as_ref().counts.add(DENTRIES_ENDED, 1);
        left
    }
}
