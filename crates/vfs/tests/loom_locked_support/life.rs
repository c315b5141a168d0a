//! Dentries for `loom_locked`, which are never freed.

use super::entry::Dentry;
use super::refs::{DentryRef, NewDentry};
use crate::dcache::name::Name;
use crate::super_block::SuperBlock;
use crate::vfs::Vfs;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering::Relaxed;
use rustix::io::Errno;

/// A directory that is its own parent.
pub(crate) fn root(vfs: &'static Vfs, sb: &SuperBlock, name: &Name<'_>) -> DentryRef<'static> {
    // SAFETY: its own parent, and never freed.
    let mut new = unsafe { NewDentry::alloc(vfs, sb, name, core::ptr::null_mut(), true) }.unwrap();
    new.instantiate(crate::inode::Inode::new(true));
    new.dentry().set_state(crate::dentry::DentryFlags::PINNED);
    new.into_unhashed()
}

pub(super) unsafe fn begin(
    _: &Vfs,
    sb: &SuperBlock,
    name: &Name<'_>,
    parent: *mut Dentry,
    counted: bool,
) -> Result<NonNull<Dentry>, Errno> {
    let dentry =
        Box::leak(Box::new(Dentry::unborn(name, None, parent, counted, NonNull::from(sb))));
    if parent.is_null() {
        let this = NonNull::from(&*dentry).as_ptr();
        dentry.d_parent.store(this, Relaxed);
    }
    Ok(NonNull::from(dentry))
}

pub(super) unsafe fn end(dentry: NonNull<Dentry>) -> Option<NonNull<Dentry>> {
    // SAFETY: never freed.
    let d = unsafe { dentry.as_ref() };
    let names = d.d_children.whole().map_or(0, |names| names.counts().live());
    assert_eq!(names, 0, "names keep their directory");
    if let Some(inode) = d.inode() {
        inode.end();
    }
    let parent = d.parent_ptr();
    (parent != dentry && !d.is_uncounted()).then_some(parent)
}
