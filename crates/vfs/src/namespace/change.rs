//! Mounting, moving, unmounting.

use super::{MountFlags, Namespace, UmountFlags, on};
use crate::inode::InodeFlags;
use crate::raw::mount::MountRef;
use crate::raw::mount_book::{Book, On};
use crate::raw::walk_fs::FsStruct;
use crate::raw::walk_path::Path;
use crate::super_block::SuperFlags;
use quietline_platform::atomic::Ordering;
use quietline_sync::{SpinLockGuard, might_sleep};
use rustix::io::Errno;

impl<'k> Namespace<'k> {
    /// Mounts `mount`, which is mounted nowhere, on a place (`do_add_mount`).
    ///
    /// # Errors
    /// `EINVAL` if the place is not in this namespace, or the mount is of a symbolic link;
    /// `ENOTDIR` if only one of both is a directory; `ENOENT` if the place was removed; `EBUSY` if
    /// the same filesystem is on it already; `ENOSPC` if there are as many mounts as there may be;
    /// `ENOMEM`.
    pub fn attach(&self, mount: MountRef<'k>, at: Path<'k>) -> Result<(), Errno> {
        self.put(mount, at, true, 1)
    }

    /// [`attach`](Self::attach), which if not `fresh` may put a filesystem on itself. `count` is
    /// the number of mounts that the caller is about to enter, this one included.
    pub(super) fn put(
        &self,
        mount: MountRef<'k>,
        at: Path<'k>,
        fresh: bool,
        count: usize,
    ) -> Result<(), Errno> {
        self.on_mountpoint(at, |book, at| {
            let one_place = core::ptr::eq(at.mount.super_block(), at.dentry.super_block());
            if !self.has(&at.mount) || !one_place || !self.vfs.has_mount(&mount) {
                return Err((Errno::INVAL, at, None));
            }
            let again = at.mount.super_block().s_dev() == mount.super_block().s_dev()
                && core::ptr::eq(at.mount.super_block(), mount.super_block())
                && at.mount.root().same(&at.dentry);
            if fresh && again {
                return Err((Errno::BUSY, at, None));
            }
            let root = mount.root().inode();
            if root.is_none_or(|root| root.is_symlink()) {
                return Err((Errno::INVAL, at, None));
            }
            if root.is_some_and(|root| root.is_dir())
                != at.dentry.inode().is_some_and(|at| at.is_dir())
            {
                return Err((Errno::NOTDIR, at, None));
            }
            if !book.has_room(count) {
                return Err((Errno::NOSPC, at, None));
            }
            match book.enter(self.vfs.mounts.seq(), mount.clone(), Some(at), self.id) {
                Ok(()) => Ok(None),
                Err((errno, mount, at)) => {
                    drop(mount);
                    Err((errno, at.expect("given back"), None))
                }
            }
        })
    }

    /// Calls `f` with the book and a mountpoint that nobody removes meanwhile: `at`, or the root of what is mounted there. What
    /// `f` returns is dropped when all is unlocked.
    fn on_mountpoint(
        &self,
        at: Path<'k>,
        f: impl FnOnce(
            &mut Book,
            On<'k>,
        ) -> Result<Option<On<'static>>, (Errno, On<'k>, Option<On<'static>>)>,
    ) -> Result<(), Errno> {
        let mut at = on(at);
        loop {
            let place = at.clone();
            let Some(inode) = place.dentry.inode() else { return Err(Errno::NOENT) };
            let locked = inode.lock();
            let mut book = self.vfs.mounts.lock();
            if let Some(over) = at.mount.on_locked(&at.dentry) {
                let over = book.find(over).map(|entry| entry.mount().clone());
                drop(book);
                drop(locked);
                at = on(Path::root_of(over.expect("what is in a table is in the book")));
                continue;
            }
            let removed = inode.flags().contains(InodeFlags::DEAD)
                || !at.dentry.is_hashed() && !at.dentry.is_root();
            let done = if removed { Err((Errno::NOENT, at, None)) } else { f(&mut book, at) };
            drop(book);
            drop(locked);
            return match done {
                Ok(old) => {
                    drop(old);
                    self.vfs.mount_events.changed();
                    Ok(())
                }
                Err((errno, _at, _old)) => Err(errno),
            };
        }
    }

    /// Moves a mount to another place (`MS_MOVE`).
    ///
    /// # Errors
    /// `EINVAL` if `from` is not the root of a mount of this namespace that is on something, or `to` is not in it, or only
    /// one of them is a directory; `ELOOP` if `to` is below `from`; `ENOENT`, `ENOMEM`.
    pub fn move_mount(&self, from: &Path<'k>, to: Path<'k>) -> Result<(), Errno> {
        let mount = from.mount();
        self.on_mountpoint(to, |book, to| {
            let placed = book.find(mount).is_some_and(|entry| entry.on().is_some());
            let both_directories = |a: &Path<'k>, b: &On<'k>| {
                a.dentry().inode().is_some_and(|a| a.is_dir())
                    == b.dentry.inode().is_some_and(|b| b.is_dir())
            };
            if !self.has(mount)
                || !self.has(&to.mount)
                || !from.is_mount_root()
                || !placed
                || !both_directories(from, &to)
            {
                return Err((Errno::INVAL, to, None));
            }
            if is_on(book, &to.mount, mount) {
                return Err((Errno::LOOP, to, None));
            }
            match book.relocate(self.vfs.mounts.seq(), mount, to) {
                Ok(old) => Ok(old),
                Err((errno, to)) => Err((errno, to, None)),
            }
        })
    }

    /// Returns the mount that a path is the root of.
    ///
    /// # Errors
    /// `EINVAL` if it is not the root of a mount of this namespace.
    fn mount_at<'p>(&self, at: &'p Path<'k>) -> Result<&'p MountRef<'k>, Errno> {
        let mount = at.mount();
        if at.is_mount_root() && self.has(mount) { Ok(mount) } else { Err(Errno::INVAL) }
    }

    /// Changes the flags of a mount (`MS_REMOUNT | MS_BIND`). A mount of a filesystem that
    /// is read-only stays so.
    ///
    /// # Errors
    /// `EINVAL` if the place is not the root of a mount of this namespace; `EBUSY` to forbid writing while somebody writes.
    pub fn remount(&self, at: &Path<'k>, flags: MountFlags) -> Result<(), Errno> {
        let mount = self.mount_at(at)?;
        let book = self.vfs.mounts.lock();
        let rdonly = mount.super_block().flags().contains(SuperFlags::RDONLY);
        mount.set_rdonly(flags.contains(MountFlags::RDONLY), rdonly)?;
        mount.set_flags(flags);
        drop(book);
        self.vfs.mount_events.changed();
        Ok(())
    }

    /// Changes a filesystem and one of its mounts (`MS_REMOUNT`): the flags of both, and what
    /// `change` changes in the filesystem. `change` runs under the lock of the mounts.
    ///
    /// # Errors
    /// `EINVAL` if the place is not the root of a mount of this namespace; `EBUSY` to forbid
    /// writing while a file is open for writing by any mount of the filesystem; those of `change`. Nothing has
    /// changed then.
    pub fn reconfigure(
        &self,
        at: &Path<'k>,
        super_flags: SuperFlags,
        flags: MountFlags,
        change: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mount = self.mount_at(at)?;
        let sb = mount.super_block();
        let book = self.vfs.mounts.lock();
        let rdonly = super_flags.contains(SuperFlags::RDONLY);
        let was_rdonly = sb.flags().contains(SuperFlags::RDONLY);
        let (own, was_own) =
            (flags.contains(MountFlags::RDONLY), mount.own_flags().contains(MountFlags::RDONLY));
        // To forbid may fail, to permit does not: that comes last.
        mount.set_rdonly(own || was_own, was_rdonly)?;
        let forbidden = if rdonly && !was_rdonly { sb.mounts.set_rdonly(true) } else { Ok(()) };
        let forbids = forbidden.is_ok();
        if let Err(errno) = forbidden.and_then(|()| change()) {
            if forbids && rdonly && !was_rdonly {
                sb.mounts.set_rdonly(false)?;
            }
            mount.set_rdonly(was_own, was_rdonly)?;
            return Err(errno);
        }
        if was_rdonly && !rdonly {
            sb.mounts.set_rdonly(false)?;
        }
        sb.set_flags(super_flags);
        mount.set_rdonly(own, rdonly)?;
        mount.set_flags(flags);
        drop(book);
        self.vfs.mount_events.changed();
        Ok(())
    }

    /// Says whether a mount, and if `recursive` all mounts below it, may be bound elsewhere
    /// (`MS_UNBINDABLE`, `MS_PRIVATE`). `None` leaves that as it is (`MS_SLAVE`: nothing is
    /// propagated in any case).
    ///
    /// # Errors
    /// `EINVAL` if the place is not the root of a mount of this namespace.
    pub fn set_unbindable(
        &self,
        at: &Path<'k>,
        is: Option<bool>,
        recursive: bool,
    ) -> Result<(), Errno> {
        let mount = self.mount_at(at)?;
        let Some(is) = is else { return Ok(()) };
        let book = self.vfs.mounts.lock();
        mount.set_unbindable(is);
        if recursive {
            book.each_of_tree(mount, |mount| mount.set_unbindable(is));
        }
        drop(book);
        self.vfs.mount_events.changed();
        Ok(())
    }

    /// Unmounts the mount with the root `at` (`umount2`). `fs` is the caller's. No RCU read-side
    /// critical section may be open, since the end of a mount waits for calls that change names in
    /// it.
    ///
    /// # Errors
    /// `EINVAL` if the place is not the root of a mount of this namespace, or the flags contradict each other; `EBUSY` if
    /// somebody uses the mount, or something is mounted on it; `EAGAIN` from the first attempt with
    /// [`EXPIRE`](UmountFlags::EXPIRE).
    pub fn umount(&self, at: Path<'k>, flags: UmountFlags, fs: &FsStruct<'k>) -> Result<(), Errno> {
        might_sleep();
        let at = self.uppermost(at);
        let expire = flags.contains(UmountFlags::EXPIRE);
        if expire && flags.intersects(UmountFlags::FORCE | UmountFlags::DETACH) {
            return Err(Errno::INVAL);
        }
        if !at.is_mount_root() || !self.has(at.mount()) {
            return Err(Errno::INVAL);
        }
        // The one reference that the caller has.
        let (mount, dentry) = at.into_parts();
        drop(dentry);
        let result = self.umount_held(&mount, flags, expire, fs);
        mount.put_no_expire();
        result
    }

    /// The root of the mount that is uppermost at a place, or the place: a walk to `.` does not go
    /// there (`LOOKUP_MOUNTPOINT`).
    fn uppermost(&self, mut at: Path<'k>) -> Path<'k> {
        loop {
            let book = self.vfs.mounts.lock();
            let over = at.mount().on_locked(at.dentry());
            let over = over.and_then(|over| book.find(over)).map(|entry| entry.mount().clone());
            drop(book);
            let Some(over) = over else { return at };
            at = Path::root_of(over);
        }
    }

    fn umount_held(
        &self,
        mount: &MountRef<'k>,
        flags: UmountFlags,
        expire: bool,
        fs: &FsStruct<'k>,
    ) -> Result<(), Errno> {
        let is_root = fs.root_path().mount().same(mount);
        if is_root && expire {
            return Err(Errno::INVAL);
        }
        if flags.contains(UmountFlags::DETACH) {
            self.detach(mount);
            self.vfs.mount_events.changed();
            return Ok(());
        }
        let mut book = self.vfs.mounts.lock();
        if is_root {
            // A process cannot unmount its own root. The call makes the filesystem read-only, so
            // that a disk is safe (`do_umount_root`).
            let sb = mount.super_block();
            sb.mounts.set_rdonly(true)?;
            sb.set_flags(sb.flags() | SuperFlags::RDONLY);
            return Ok(());
        }
        if mount.is_mounted_on() {
            return Err(Errno::BUSY);
        }
        let Some(held) = mount.counts().begin_umount() else { return Err(Errno::INVAL) };
        // That of the tree, and the caller's.
        let busy = held > 2;
        // Relaxed: under the lock, or cleared by somebody who uses the mount, whose reference then decides.
        let waits = !busy && expire && !mount.expiring.swap(true, Ordering::Relaxed);
        if busy || waits {
            mount.counts().end_umount(false);
            return Err(if busy { Errno::BUSY } else { Errno::AGAIN });
        }
        let entry = book.leave(self.vfs.mounts.seq(), mount);
        unlock_and_drop(book, entry);
        self.vfs.mount_events.changed();
        Ok(())
    }

    /// Makes the mount that `new` is the root of the root of the tree, and puts the one that was on `put_old`; the place that
    /// was the root, whose holders the caller may now move to `new` ([`FsStruct::replace`]).
    ///
    /// # Errors
    /// As `pivot_root(2)`: `EBUSY`, `EINVAL`, `ENOENT`; `ENOMEM`.
    pub fn pivot_root(
        &self,
        new: &Path<'k>,
        put_old: Path<'k>,
        fs: &FsStruct<'k>,
    ) -> Result<Path<'k>, Errno> {
        let root = fs.root_path();
        self.on_mountpoint(put_old, |book, old| match self.may_pivot(book, new, &old, &root) {
            Err(errno) => Err((errno, old, None)),
            Ok(()) => match book.pivot(self.vfs.mounts.seq(), root.mount(), new.mount(), old) {
                Ok(was) => Ok(Some(was)),
                Err((errno, old)) => Err((errno, old, None)),
            },
        })?;
        Ok(root)
    }

    fn may_pivot(
        &self,
        book: &Book,
        new: &Path<'k>,
        old: &On<'k>,
        root: &Path<'k>,
    ) -> Result<(), Errno> {
        if !self.has(root.mount()) || !self.has(new.mount()) {
            return Err(Errno::INVAL);
        }
        if !new.dentry().is_hashed() && !new.dentry().is_root() {
            return Err(Errno::NOENT);
        }
        if new.mount().same(root.mount()) || old.mount.same(root.mount()) {
            return Err(Errno::BUSY);
        }
        let placed = |path: &Path<'k>| {
            path.is_mount_root()
                && book.find(path.mount()).is_some_and(|entry| entry.on().is_some())
        };
        let new_place = On { mount: new.mount().clone(), dentry: new.dentry().clone() };
        if !placed(root)
            || !placed(new)
            || !is_reachable(book, old, new)
            || !is_reachable(book, &new_place, root)
        {
            return Err(Errno::INVAL);
        }
        Ok(())
    }
}

fn unlock_and_drop<T>(book: SpinLockGuard<'_, Book>, what: T) {
    drop(book);
    drop(what);
}

/// Whether `mount` is `below`, or on it, or on something that is on it.
fn is_on(book: &Book, mount: &MountRef<'_>, below: &MountRef<'_>) -> bool {
    let mut at = mount.clone();
    loop {
        if at.same(below) {
            return true;
        }
        match book.find(&at).and_then(|entry| entry.on()) {
            // What it drops is in the book yet, so it ends nothing.
            Some(on) => at = on.mount.clone(),
            None => return false,
        }
    }
}

/// Whether a place is below another one (`is_path_reachable`).
fn is_reachable(book: &Book, place: &On<'_>, root: &Path<'_>) -> bool {
    let mut at: On<'_> = place.clone();
    while !at.mount.same(root.mount()) {
        match book.find(&at.mount).and_then(|entry| entry.on()) {
            Some(on) => at = on.clone(),
            None => return false,
        }
    }
    at.dentry.is_below(root.dentry())
}
