//! What the calls that take paths do: making, removing, renaming, opening and describing files.
//!
//! # The problem and the contended way
//!
//! A name is made or taken away under the lock of its directory, and that is as it must be. But the way there should cost
//! nothing that is shared: not the counts of the directories passed, nor a lock of all renames, nor a count of the mount.
//!
//! # Our way
//!
//! The walk takes no reference but to the directory in the end, and not even that where the directory is free: its lock keeps
//! it. What only describes a file takes none at all.
//!
//! ```text
//!   stat, access, readlink            look          one read section, no reference
//!   open, chdir                       path          a reference to what was found
//!   create, remove                    quick_parent  the directory's lock
//!   rename, link, of files            quick_parents both directories' locks
//!   the same, if anything is odd      parent        a reference to each directory, their locks
//! ```
//!
//! Odd is what nearly never is: a path that does not simply end with a name, a directory that somebody has locked, somebody who
//! watches.
//!
//! # Guarantees
//!
//! Results and errors are Linux's, in the order in which Linux finds them. A call that fails has changed nothing.
//!
//! # Lock order
//!
//! Leave to write in the mount, for which a call may wait while somebody counts who has it; the superblock's lock of renames
//! (of directories, and whatever is odd, from one directory to another); the directories, ancestors first, else by address (in any
//! order by who does not wait); then one file or directory in them. No lock is held while references are given back: the last one to a
//! mount takes its tree down, by its locks.

mod attributes;
mod create;
mod describe;
mod link;
mod open_file;
mod remove;
mod rename;
mod xattr;

pub(crate) use attributes::set_length;
pub use attributes::{chmod, chown, truncate, utimens};
pub use create::{New, make, make_bound, tmpfile};
pub(crate) use create::{create, make_foreign, memfd, proposed};
pub use describe::{access, readlink, stat_of, statfs, statx_of};
pub use link::{link, link_object, link_quickly};
pub(crate) use open_file::pseudo_state;
pub use open_file::{
    ANON_INO, PSEUDO_DEVICES, access_object, fchmod, fchown, fgetxattr, flistxattr, fremovexattr,
    fsetxattr, fstatfs, futimens, ownership_of_object, stat_of_object, statx_of_object,
};
pub use remove::{rmdir, unlink};
pub use rename::{check_rename_flags, rename, rename_quickly};
pub use xattr::{check_xattr, check_xattr_name, getxattr, listxattr, removexattr, setxattr};
pub(crate) use xattr::{drop_capability, drop_privileges};

use crate::abi::Timespec;
use crate::cred::Cred;
use crate::dcache::name::Name;
use crate::dcache::path::PathBuffer;
use crate::file::Files;
use crate::inode::{Changes, Inode, InodeFlags, InodeGuard, Node, Requester};
use crate::inotify::{IN_DONT_FOLLOW, IN_ONLYDIR, Inotify, check_mask};
use crate::notify;
use crate::permission::{Mask, Ownership, may, permission};
use crate::ramfs::RamFs;
use crate::raw::dcache::locked::LockedDir;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::mount::TreeMount;
use crate::raw::walk_path::Path;
use crate::super_block::SuperBlock;
use crate::vfs::Vfs;
use crate::walk::{Found, How, Last, LastKind, Lookup, Start};
use rustix::io::Errno;

/// Who calls, and where paths begin for him.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a, 'k> {
    /// The kernel's file systems.
    pub vfs: &'k Vfs,
    /// The kernel's open files.
    pub files: &'k Files,
    /// Where paths begin.
    pub start: Start<'a, 'k>,
    /// What he may do.
    pub cred: &'a Cred,
}

impl<'a, 'k> Caller<'a, 'k> {
    /// What a path stands for, with references.
    #[inline]
    pub(crate) fn path(&self, path: &[u8], how: How) -> Result<Path<'k>, Errno> {
        self.vfs.path(&self.start, path, how, self.cred)
    }

    /// The directory of a path's last component, and that.
    #[inline]
    pub(crate) fn parent<'p>(
        &self,
        path: &'p [u8],
        how: How,
    ) -> Result<(Path<'k>, Last<'p>), Errno> {
        let (place, last) = self.vfs.parent(&self.start, path, how, self.cred)?;
        if last.kind() == LastKind::Name && is_foreign_dir(place.dentry()) {
            // Changes of names look at the dentries alone.
            crate::walk::ask(&place, last.bytes(), &self.requester())?;
        }
        Ok((place, last))
    }

    /// The same, and the directory's lock, where nothing is out of the ordinary: what `locked` says, when the directory is unlocked
    /// again.
    #[inline(always)]
    pub(crate) fn quick_parent<'p, T>(
        &self,
        path: &'p [u8],
        locked: impl FnOnce(&TreeMount, &LockedDir<'k>, &Name<'p>, bool) -> T,
    ) -> Option<T> {
        self.vfs.quick_parent(&self.start, path, self.cred, locked)
    }

    /// The same of two paths, whose directories must perhaps be the `same`.
    #[inline(always)]
    pub(crate) fn quick_parents<'p, T>(
        &self,
        paths: [&'p [u8]; 2],
        same: bool,
        locked: impl FnOnce(
            &TreeMount,
            &LockedDir<'k>,
            Option<&LockedDir<'k>>,
            [&Name<'p>; 2],
        ) -> Option<T>,
    ) -> Option<T> {
        self.vfs.quick_parents(&self.start, paths, self.cred, same, locked)
    }

    /// What a path stands for, with references, for a call that keeps it.
    ///
    /// # Errors
    /// Those of a walk.
    #[inline]
    pub fn place(&self, path: &[u8], how: How) -> Result<Path<'k>, Errno> {
        self.path(path, how)
    }

    /// Calls `f` with what a path stands for, inside a read section, without references.
    ///
    /// # Errors
    /// Those of a walk.
    #[inline]
    pub fn look<R>(
        &self,
        path: &[u8],
        how: How,
        f: impl FnOnce(&Found<'_, 'k>) -> R,
    ) -> Result<R, Errno> {
        self.vfs.look(&self.start, path, how, self.cred, f)
    }

    /// Checks whether the caller may do all of `mask` to an inode ([`may`]).
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn may(&self, inode: &Inode, mask: Mask) -> Result<(), Errno> {
        may(inode, &self.requester(), mask)
    }

    /// The caller, for a [`Node`](crate::Node).
    #[inline(always)]
    pub(crate) fn requester(&self) -> Requester<'a, 'k> {
        Requester { fs: self.start.fs, cred: self.cred }
    }

    /// The path of the working directory.
    ///
    /// # Errors
    /// As `getcwd(2)`.
    pub fn getcwd(&self, path: &mut PathBuffer<'_>) -> Result<(), Errno> {
        self.vfs.getcwd(self.start.fs, path)
    }

    /// Makes a directory the working directory.
    pub fn set_cwd(&self, place: Path<'k>) {
        self.start.fs.set_pwd(place);
    }

    /// Makes a directory the root.
    pub fn set_root(&self, place: Path<'k>) {
        self.start.fs.set_root(place);
    }

    /// The directory of a path's last component, and that, for a rename.
    ///
    /// # Errors
    /// Those of a walk.
    pub fn last_in<'p>(&self, path: &'p [u8]) -> Result<(Path<'k>, Last<'p>), Errno> {
        self.parent(path, How::NOFOLLOW)
    }

    /// Permissions of what is made, without what the process withholds.
    #[inline]
    pub(crate) fn masked(&self, mode: u32) -> u32 {
        mode & !self.start.fs.umask()
    }
}

/// Where a call begins that takes a descriptor and a path.
impl<'a, 'k> Caller<'a, 'k> {
    /// The same caller, whose relative paths begin elsewhere.
    pub fn with_start(self, start: Start<'a, 'k>) -> Self {
        Self { start, ..self }
    }
}

/// Whether a node is of an embedder's inode.
pub(crate) fn is_foreign(node: &dyn Node) -> bool {
    node.foreign().is_some()
}

/// Whether a directory is an embedder's.
pub(crate) fn is_foreign_dir(dir: &DentryRef<'_>) -> bool {
    dir.inode().and_then(Inode::node).is_some_and(is_foreign)
}

/// What a name in an embedder's directory stands for. A dentry that a walk has found may have been
/// reclaimed since.
pub(crate) fn ask_child<'k>(
    caller: &Caller<'_, 'k>,
    dir: &Path<'k>,
    name: &[u8],
) -> Result<Option<DentryRef<'k>>, Errno> {
    let found = crate::walk::ask(dir, name, &caller.requester())?;
    Ok(found.map(|found| found.into_parts().1))
}

/// The inode of a dentry that stands for something.
#[inline(always)]
pub(crate) fn inode_of<'d>(dentry: &'d DentryRef<'_>) -> Result<&'d Inode, Errno> {
    dentry.inode().ok_or(Errno::NOENT)
}

/// The filesystem in memory that a superblock is of; nothing can be made in others.
#[inline]
pub(crate) fn ramfs(sb: &SuperBlock) -> Result<&RamFs, Errno> {
    sb.ramfs().ok_or(Errno::PERM)
}

/// Who owns it, and what others may do.
#[inline(always)]
pub(crate) fn ownership(inode: &Inode) -> Ownership {
    Ownership { mode: inode.mode(), uid: inode.uid(), gid: inode.gid() }
}

/// The time for a change of an inode: later than its last change, if somebody has been told of that.
#[inline]
pub(crate) fn time_for(vfs: &Vfs, inode: &Inode) -> Timespec {
    match inode.told_ctime() {
        None => vfs.clock.now(),
        Some(told) => vfs.clock.after(told),
    }
}

/// The time for a change of two inodes that is to be the same: later than the last change of each that somebody has been told
/// of.
#[inline]
pub(crate) fn time_for_both(vfs: &Vfs, one: &Inode, other: &Inode) -> Timespec {
    later_than_told(vfs, time_for(vfs, one), other)
}

/// A time, or a later one if somebody has been told of the last change of an inode, which is to be changed too.
#[inline]
pub(crate) fn later_than_told(vfs: &Vfs, time: Timespec, inode: &Inode) -> Timespec {
    match inode.told_ctime() {
        Some(told) if told >= time => vfs.clock.after(told),
        _ => time,
    }
}

/// Whether somebody may make or take away names in a locked directory, which must not have been removed.
#[inline]
pub(crate) fn may_change_names(dir: &Inode, cred: &Cred) -> Result<(), Errno> {
    permission(dir, cred, Mask::WRITE | Mask::EXEC)
}

/// `ENOENT` for a directory that has been removed.
#[inline]
pub(crate) fn not_removed(dir: &Inode) -> Result<(), Errno> {
    if dir.flags().contains(InodeFlags::DEAD) { Err(Errno::NOENT) } else { Ok(()) }
}

/// Whether somebody may take a name for `victim` out of a locked directory (`may_delete`, but for the types).
#[inline]
pub(crate) fn may_delete(dir: &Inode, victim: &Inode, cred: &Cred) -> Result<(), Errno> {
    may_change_names(dir, cred)?;
    if ownership(dir).sticky_lets(cred, victim.uid()) { Ok(()) } else { Err(Errno::PERM) }
}

/// A directory's attributes after names came or went.
#[inline]
pub(crate) fn touch_dir(vfs: &Vfs, dir: &mut InodeGuard<'_>, names: i64, subdirs: i32) {
    let time = time_for(vfs, dir.inode());
    touch_dir_at(dir, names, subdirs, time);
}

/// [`touch_dir`] at a time that was taken for something else.
#[inline]
pub(crate) fn touch_dir_at(dir: &mut InodeGuard<'_>, names: i64, subdirs: i32, time: Timespec) {
    dir.change(&touched(dir.inode(), names, subdirs, time));
}

/// What changes of a directory when names come or go.
#[inline(always)]
pub(crate) fn touched(inode: &Inode, names: i64, subdirs: i32, time: Timespec) -> Changes {
    let size = inode.size().saturating_add_signed(names * crate::ramfs::fs::DIRENT_SIZE as i64);
    let nlink = (subdirs != 0).then(|| inode.nlink().saturating_add_signed(subdirs));
    Changes { size: Some(size), nlink, mtime: Some(time), ctime: Some(time), ..Changes::default() }
}

/// Watches what is at a place (`inotify_add_watch`): the watch's number.
///
/// # Errors
/// As the system call.
pub fn add_watch(
    caller: &Caller<'_, '_>,
    path: &[u8],
    mask: u32,
    inotify: &Inotify,
) -> Result<i32, Errno> {
    check_mask(mask)?;
    let mut lookup = Lookup::empty();
    lookup.set(Lookup::FOLLOW, mask & IN_DONT_FOLLOW == 0);
    lookup.set(Lookup::DIRECTORY, mask & IN_ONLYDIR != 0);
    let place = caller.path(path, How::of(lookup))?;
    let inode = inode_of(place.dentry())?;
    caller.may(inode, Mask::READ)?;
    inotify.add_watch(notify::watches(caller.vfs, inode).map_err(|_| Errno::NOMEM)?, mask)
}
