//! Namespaces: the trees of mounts that processes live in.
//!
//! # The contended way
//!
//! One lock and one hash table for the mounts of all namespaces, whose sequence count every mount and unmount of a machine
//! moves, so that walks everywhere start again.
//!
//! # Our way
//!
//! One lock still, for those who change something: it is rare, and they must see each other. But a walk looks at nothing that
//! all mounts share. What is mounted on a mount is in that mount's own table, which is found by a pointer in a read section;
//! whether a mount may be held is asked of that mount. Only `..` at the root of a mount, which reads a pair, looks at a
//! sequence count for all.
//!
//! ```text
//!   Namespace ── id, root ──> TreeMount <── parent, mountpoint ── TreeMount ...
//!                                 └── MountTable: dentry -> TreeMount       (raw/mount_table.rs)
//!   Mounts: lock { Book: what is mounted, what it is on, with references }  (raw/mount_book.rs)
//! ```
//!
//! # Guarantees
//!
//! * A mount that somebody refers to is not unmounted, but by `MNT_DETACH`; then it lives on, in no tree, until the last
//!   reference is put. Exactly one thread ends it, holding no lock, and waits for changes in flight, which have no reference
//!   (`TreeMount::pass`). A change that does not come to its end, as one that a `fork` of the host has left behind, keeps the mount
//!   for ever after some ten seconds.
//! * Who walks while somebody mounts or unmounts finds what was there at one moment of the walk.
//!
//! # Limits
//!
//! Nothing is propagated from one mount to another: all are private, or unbindable. O(mounts of the
//! kernel) to mount or unmount. The number of mounts is bounded for the kernel, that is for all
//! namespaces together. (On Linux for each namespace.)
//!
//! # Lock order
//!
//! The inode of a mountpoint; inside it the book of mounts. Nothing else is taken inside that one but allocators' locks; what
//! was taken out is dropped when it is free.
//!
//! # Source
//!
//! `fs/namespace.c`; `mount(2)`, `umount(2)`, `pivot_root(2)`, `mount_namespaces(7)`.

mod change;
mod copy;
mod events;
mod list;
pub(crate) mod writers;

pub(crate) use events::MountEvents;
pub use list::MountInfo;

use crate::dentry::DentryFlags;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::mount::MountRef;
use crate::raw::mount_book::{Entry, On};
use crate::raw::walk_path::Path;
use crate::super_block::SuperRef;
use crate::vfs::Vfs;
use quietline_platform::atomic::Ordering;
use rustix::io::Errno;

bitflags::bitflags! {
    /// What is forbidden in a mount, numbered as `mount` does (`MS_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct MountFlags: u32 {
        /// Nothing is changed.
        const RDONLY = 1;
        /// Set-id bits mean nothing.
        const NOSUID = 2;
        /// Device nodes are no devices.
        const NODEV = 4;
        /// Nothing is executed.
        const NOEXEC = 8;
        /// No symbolic link is followed.
        const NOSYMFOLLOW = 256;
        /// Reading changes no time.
        const NOATIME = 1024;
        /// Reading directories changes no time.
        const NODIRATIME = 2048;
        /// Reading changes a time that is older than the last change, or than a day.
        const RELATIME = 1 << 21;
    }
}

bitflags::bitflags! {
    /// How to unmount (`MNT_*`, `UMOUNT_NOFOLLOW`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct UmountFlags: u32 {
        /// Even if that loses data: as nothing is lost here, the same as without.
        const FORCE = 1;
        /// Out of the tree now, with all that is mounted below; gone when nobody uses it any more.
        const DETACH = 2;
        /// Only if it was not used since the last attempt.
        const EXPIRE = 4;
        /// For who walks to it: a link in the last place is not followed.
        const NOFOLLOW = 8;
    }
}

/// A tree of mounts (`struct mnt_namespace`). Dropping it unmounts all of it.
#[derive(Debug)]
pub struct Namespace<'k> {
    vfs: &'k Vfs,
    id: u64,
    root: MountRef<'k>,
}

/// A mount in no tree, for files without a path (`kern_mount`). It stays mounted until this is
/// dropped, so references to it are taken and given back on the CPU's own words.
#[derive(Debug)]
pub struct KernMount<'k>(MountRef<'k>);

impl<'k> KernMount<'k> {
    /// Returns the root directory.
    pub fn root(&self) -> Path<'k> {
        Path::root_of(self.0.clone())
    }
}

impl Drop for KernMount<'_> {
    /// Unmounts it (`kern_unmount`): the last reference ends it.
    fn drop(&mut self) {
        self.0.counts().end_umount(true);
    }
}

impl Vfs {
    /// A mount of a whole filesystem, mounted nowhere yet (`vfs_kern_mount`).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new_mount<'k>(
        &'k self,
        sb: SuperRef<'k>,
        flags: MountFlags,
    ) -> Result<MountRef<'k>, Errno> {
        let id = self.mounts.lock().mount_id();
        let root = sb.root();
        MountRef::new(self, sb, root, flags, id).map_err(|_| Errno::NOMEM)
    }

    /// Mounts a filesystem outside of every namespace, for the kernel's own use. No path leads to
    /// its files unless it is mounted elsewhere, too.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn kern_mount<'k>(&'k self, sb: SuperRef<'k>) -> Result<KernMount<'k>, Errno> {
        let mount = self.new_mount(sb, MountFlags::empty())?;
        mount.counts().end_umount(false);
        Ok(KernMount(mount))
    }

    /// A namespace with a root.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOSPC` if there are as many mounts as there [may be](Self::mount_max); `EINVAL`
    /// if the mount is another kernel's.
    pub fn new_namespace<'k>(&'k self, root: MountRef<'k>) -> Result<Namespace<'k>, Errno> {
        if !self.has_mount(&root) {
            return Err(Errno::INVAL);
        }
        let mut book = self.mounts.lock();
        let id = book.namespace_id();
        let entered = book.enter(self.mounts.seq(), root.clone(), None, id);
        drop(book);
        match entered {
            Ok(()) => Ok(Namespace { vfs: self, id, root }),
            Err((errno, ..)) => Err(errno),
        }
    }
}

impl Vfs {
    /// Returns the number of mounts that all namespaces together may have
    /// (`/proc/sys/fs/mount-max`).
    pub fn mount_max(&self) -> u32 {
        self.mounts.lock().max()
    }

    /// Changes the number of mounts that there may be. All that are mounted stay.
    pub fn set_mount_max(&self, max: u32) {
        self.mounts.lock().set_max(max);
    }
}

impl<'k> Namespace<'k> {
    /// The kernel's file systems.
    pub fn vfs(&self) -> &'k Vfs {
        self.vfs
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The root of all its mounts.
    pub fn root(&self) -> Path<'k> {
        Path::root_of(self.root.clone())
    }

    /// Whether a mount is one of this namespace, at this moment (`check_mnt`).
    pub fn has(&self, mount: &MountRef<'_>) -> bool {
        // Relaxed: the lock orders it, or the answer is of one moment.
        mount.namespace.load(Ordering::Relaxed) == self.id && self.vfs.has_mount(mount)
    }

    /// What is mounted where, the oldest first. `f` takes no locks.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn mounts(&self) -> Result<Vec<MountInfo<'k>>, Errno> {
        list::mounts(self)
    }

    /// Takes `mount` and all that is mounted below it out of the tree.
    fn detach(&self, mount: &MountRef<'k>) {
        self.vfs.detach(mount);
    }
}

impl Vfs {
    /// Whether a mount is of these file systems: what another kernel has does not live as long as they do.
    fn has_mount(&self, mount: &MountRef<'_>) -> bool {
        core::ptr::eq(mount.super_block().vfs.as_ptr(), self)
    }

    /// Detaches, in all namespaces, the mounts on a dentry that has been taken out of its directory
    /// (`detach_mounts`): a mount of another namespace does not keep a name from being removed.
    /// Reports that to the callers that poll the mounts. The caller holds no lock.
    pub fn detach_mounts(&self, dentry: &DentryRef<'_>) {
        if dentry.flags().contains(DentryFlags::MOUNTED) {
            let is_on = |entry: &Entry| entry.on().is_some_and(|on| on.dentry.same(dentry));
            if self.detach_trees(is_on) {
                self.mount_events.changed();
            }
        }
    }

    fn detach(&self, mount: &MountRef<'_>) {
        self.detach_trees(|entry| entry.mount().same(mount));
    }

    /// Takes the mounts that `tops` picks, and all mounts on them, out of their trees. All at
    /// once, as long as there is memory for a list of them. Returns `false` if there are none.
    fn detach_trees(&self, tops: impl Fn(&Entry) -> bool) -> bool {
        let mut found = false;
        loop {
            let mut book = self.mounts.lock();
            let left = book.leave_trees(self.mounts.seq(), &tops);
            drop(book);
            match left {
                Ok(all) => return found || !all.is_empty(),
                Err(_one) => found = true,
            }
        }
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let root = self.root.clone();
        self.detach(&root);
    }
}

/// The mountpoint that a path is: where it leads, onto what is mounted there already.
fn on(path: Path<'_>) -> On<'_> {
    let (mount, dentry) = path.into_parts();
    On { dentry, mount }
}
