//! Mounting and unmounting.

use crate::kernel::Inner;
use crate::paths::checked;
use crate::{Errno, Process, proc};
use quietline_platform::atomic::Ordering;
use quietline_vfs::cred::Capabilities;
use quietline_vfs::namei::{self, Caller, New};
use quietline_vfs::operations::{self, FileSystem};
use quietline_vfs::ramfs::new_ramfs;
use quietline_vfs::{
    FsStruct, How, Limits, Lookup, MountFlags, Namespace, Path, Start, UmountFlags,
};
use std::sync::Arc;

/// `mount`: change the flags of what is mounted.
pub const MS_REMOUNT: u64 = 32;
/// `mount`: mount a directory in another place, too.
pub const MS_BIND: u64 = 4096;
/// `mount`: move a mount.
pub const MS_MOVE: u64 = 8192;
/// `mount`: with all that is mounted below.
pub const MS_REC: u64 = 16_384;
/// `mount`: set times of access as POSIX has it.
pub const MS_STRICTATIME: u64 = 1 << 24;

/// Filesystems that can be mounted, as `/proc/filesystems` names them.
pub(crate) const TYPES: [&str; 3] = ["sysfs", "tmpfs", "proc"];

impl Process {
    /// Mounts a filesystem on a directory: `proc`, `sysfs` or an empty `tmpfs`; with [`MS_BIND`] what is at the path `source`, with
    /// [`MS_MOVE`] the mount that is there; with [`MS_REMOUNT`] and [`MS_BIND`], changes the flags of the mount at `target`. What
    /// is mounted is seen by all processes of the mount namespace. Of a filesystem, `source` is not
    /// looked at.
    ///
    /// # Errors
    /// As `mount(2)`: `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` for another filesystem, `EBUSY`, `EINVAL`, `ENOTDIR`, `ENOMEM`, and
    /// those of walks. `EINVAL` for [`MS_REMOUNT`] without [`MS_BIND`].
    pub fn mount(
        &self,
        source: impl AsRef<[u8]>,
        target: impl AsRef<[u8]>,
        fstype: &str,
        flags: u64,
    ) -> Result<(), Errno> {
        const REMOUNT: u64 = MS_REMOUNT | MS_BIND;
        let k = self.inner();
        let action = flags & (MS_REMOUNT | MS_BIND | MS_MOVE);
        // The walk has a read-side critical section open, in which a remount may not wait.
        let places = self.walk_at(crate::abi::AT_FDCWD, target.as_ref(), 0, |c, target| {
            let at = c.place(target, How::of(Lookup::FOLLOW))?;
            may_mount(c)?;
            let source = match action {
                MS_BIND | MS_MOVE => {
                    Some(c.place(checked(source.as_ref())?, How::of(Lookup::FOLLOW))?)
                }
                _ => None,
            };
            Ok((at, source))
        });
        self.returning(places.and_then(|(at, source)| match (action, &source) {
            (0, _) => mount(k, &self.namespace(k), fstype, at, mount_flags(flags)),
            (MS_BIND, Some(source)) => self.namespace(k).bind(source, at, flags & MS_REC != 0),
            (MS_MOVE, Some(source)) => self.namespace(k).move_mount(source, at),
            (REMOUNT, _) => self.namespace(k).remount(&at, mount_flags(flags)),
            _ => Err(Errno::INVAL),
        }))
    }

    /// Mounts an embedder's file system on a directory. Flags: `MS_RDONLY`, `MS_NOSUID` and the
    /// others that belong to a mount.
    ///
    /// # Errors
    /// As [`mount`](Self::mount), and those of [`FileSystem::root`]; `ENOTDIR` if the root is no
    /// directory.
    pub fn mount_fs(
        &self,
        target: impl AsRef<[u8]>,
        fs: Arc<dyn FileSystem>,
        flags: u64,
    ) -> Result<(), Errno> {
        let k = self.inner();
        let at = self.walk_at(crate::abi::AT_FDCWD, target.as_ref(), 0, |c, target| {
            let at = c.place(target, How::of(Lookup::FOLLOW))?;
            may_mount(c).map(|()| at)
        });
        self.returning(at.and_then(|at| {
            let sb = self.call_sleeping(|c| operations::new_super(c, new_dev(k), fs))?;
            self.namespace(k).attach(k.vfs.new_mount(sb, mount_flags(flags))?, at)
        }))
    }

    /// Unmounts what is mounted at a path. Flags: those of [`UmountFlags`].
    ///
    /// # Errors
    /// As `umount2(2)`: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL`, `EBUSY`, `EAGAIN`, and those of the walk.
    pub fn umount2(&self, target: impl AsRef<[u8]>, flags: u32) -> Result<(), Errno> {
        let flags = UmountFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let mut lookup = Lookup::empty();
        lookup.set(Lookup::FOLLOW, !flags.contains(UmountFlags::NOFOLLOW));
        // As in `mount`: the end of a mount waits for calls that change names in it.
        let at = self.walk_at(crate::abi::AT_FDCWD, target.as_ref(), 0, |c, target| {
            let at = c.place(target, How::of(lookup))?;
            may_mount(c).map(|()| at)
        });
        let namespace = self.namespace(self.inner());
        self.returning(at.and_then(|at| namespace.umount(at, flags, self.here())))
    }
}

fn may_mount(caller: &Caller<'_, '_>) -> Result<(), Errno> {
    if caller.cred.has(Capabilities::SYS_ADMIN) { Ok(()) } else { Err(Errno::PERM) }
}

/// As `mount` has it: without a word about times of access, those that are older than changes are set.
fn mount_flags(flags: u64) -> MountFlags {
    let told = MountFlags::from_bits_truncate(flags as u32);
    let times = told.contains(MountFlags::NOATIME) || flags & MS_STRICTATIME != 0;
    if times { told.difference(MountFlags::RELATIME) } else { told | MountFlags::RELATIME }
}

/// Returns the number of a new filesystem.
fn new_dev(k: &Inner) -> u64 {
    // Relaxed: only different numbers are wanted.
    k.last_dev.fetch_add(1, Ordering::Relaxed) + 1
}

/// Mounts a new instance of a filesystem.
fn mount<'k>(
    k: &'k Inner,
    namespace: &Namespace<'k>,
    fstype: &str,
    at: Path<'k>,
    flags: MountFlags,
) -> Result<(), Errno> {
    let dev = || new_dev(k);
    let vfs = &*k.vfs;
    let sb = match fstype {
        "proc" => proc::new_proc(k, dev())?,
        "sysfs" => proc::new_sysfs(k, dev())?,
        "tmpfs" => new_ramfs(
            vfs,
            dev(),
            Limits::new(None, None).map_err(|_| Errno::NOMEM)?,
            0o1777,
            [0, 0],
        )?,
        _ => return Err(Errno::NODEV),
    };
    namespace.attach(vfs.new_mount(sb, flags)?, at)
}

/// Makes `/proc` and `/sys`, and mounts what they are for, as a kernel begins.
pub(crate) fn boot(k: &Inner) -> Result<(), Errno> {
    let root = k.namespace.root();
    let fs = FsStruct::new(&k.vfs, root.clone(), root).map_err(|_| Errno::NOMEM)?;
    let cred = quietline_vfs::cred::Cred::new(0, 0);
    let caller = Caller { vfs: &k.vfs, files: &k.files, start: Start::cwd(&fs), cred: &cred };
    for (path, fstype) in [(&b"/proc"[..], "proc"), (b"/sys", "sysfs")] {
        namei::make(&caller, path, New::Directory(0o555))?;
        let at = caller.place(path, How::of(Lookup::FOLLOW))?;
        let flags =
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
        mount(k, &k.namespace, fstype, at, flags)?;
    }
    Ok(())
}
