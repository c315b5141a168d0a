//! Mounting and unmounting.

mod options;
mod types;

pub use types::MountRequest;
pub(crate) use types::Types;

use crate::kernel::Inner;
use crate::paths::checked;
use crate::{Errno, Process, proc};
use options::{Options, TmpfsOptions};
use quietline_platform::atomic::Ordering;
use quietline_vfs::abi::PATH_MAX;
use quietline_vfs::cred::Capabilities;
use quietline_vfs::namei::{self, Caller, New};
use quietline_vfs::operations::{self, FileSystem};
use quietline_vfs::{
    FsStruct, How, Lookup, MountFlags, Namespace, Path, Start, SuperFlags, SuperRef, UmountFlags,
};
use std::sync::Arc;
use types::{NewMount, Type};

/// `mount`: read-only.
pub const MS_RDONLY: u64 = 1;
/// `mount`: set-id bits mean nothing.
pub const MS_NOSUID: u64 = 2;
/// `mount`: device nodes are no devices.
pub const MS_NODEV: u64 = 4;
/// `mount`: nothing is executed.
pub const MS_NOEXEC: u64 = 8;
/// `mount`: change the flags of what is mounted.
pub const MS_REMOUNT: u64 = 32;
/// `mount`: no symbolic link is followed.
pub const MS_NOSYMFOLLOW: u64 = 256;
/// `mount`: reading changes no time.
pub const MS_NOATIME: u64 = 1024;
/// `mount`: reading directories changes no time.
pub const MS_NODIRATIME: u64 = 2048;
/// `mount`: mount a directory in another place, too.
pub const MS_BIND: u64 = 4096;
/// `mount`: move a mount.
pub const MS_MOVE: u64 = 8192;
/// `mount`: with all that is mounted below.
pub const MS_REC: u64 = 16_384;
/// `mount`: nothing is logged. Nothing is in any case.
pub const MS_SILENT: u64 = 32_768;
/// `mount`: private, and not bound elsewhere.
pub const MS_UNBINDABLE: u64 = 1 << 17;
/// `mount`: nothing is propagated.
pub const MS_PRIVATE: u64 = 1 << 18;
/// `mount`: changes come from other mounts. There are none that send any.
pub const MS_SLAVE: u64 = 1 << 19;
/// `mount`: changes are sent to other mounts: not supported.
pub const MS_SHARED: u64 = 1 << 20;
/// `mount`: reading changes a time that is older than the last change.
pub const MS_RELATIME: u64 = 1 << 21;
/// `mount`: set times of access as POSIX has it.
pub const MS_STRICTATIME: u64 = 1 << 24;

/// Bits that old programs set in the upper half of the flags (`MS_MGC_VAL`).
const MAGIC: u64 = 0xc0ed_0000;
/// The upper half of the flags (`MS_MGC_MSK`).
const MAGIC_MASK: u64 = 0xffff_0000;
/// A flag that is the kernel's own.
const MS_NOUSER: u64 = 1 << 31;
/// Flags that say how mounts propagate.
const PROPAGATION: u64 = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE;
/// Flags about times of access.
const ATIME: u64 = MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME;
/// What a remount leaves as it is (the complement of `MS_RMT_MASK`).
const STAYS: SuperFlags = SuperFlags::DIRSYNC;

impl Process {
    /// [`mount_with`](Self::mount_with) without options.
    ///
    /// # Errors
    /// Those of `mount_with`.
    pub fn mount(
        &self,
        source: impl AsRef<[u8]>,
        target: impl AsRef<[u8]>,
        fstype: &str,
        flags: u64,
    ) -> Result<(), Errno> {
        self.mount_with(source, target, fstype, flags, "")
    }

    /// Mounts a file system on a directory (`mount`): `proc`, `sysfs`, `tmpfs`, or a type that the
    /// program has [registered](crate::Kernel::register_file_system). With other flags:
    ///
    /// * [`MS_REMOUNT`] and [`MS_BIND`]: changes the flags of the mount at `target`,
    /// * [`MS_REMOUNT`]: also those and the options of its file system,
    /// * [`MS_BIND`]: mounts the directory or file `source`; with [`MS_REC`], with all below it,
    /// * [`MS_PRIVATE`], [`MS_UNBINDABLE`]: says whether the mount at `target`, and with [`MS_REC`]
    ///   all below it, may be bound elsewhere; [`MS_SLAVE`] changes nothing,
    /// * [`MS_MOVE`]: moves the mount at the path `source`.
    ///
    /// All processes see the mount. Of a file system, `source` is the text that
    /// `/proc/PID/mounts` shows.
    ///
    /// Options are `ro`, `rw` and others that Linux knows for all file systems (`sync`, `lazytime`,
    /// ...), which have no effect but to be shown; of `tmpfs` `size`, `nr_blocks`, `nr_inodes`,
    /// `mode`, `uid`, `gid`, `inode64` and `noswap`; of `proc` `hidepid=0`. A type of the program
    /// takes its own. A size in percent is one of [`Config::memory`](crate::Config::memory), or of
    /// the machine's memory. A `remount` takes no options of a type of the program.
    ///
    /// # Errors
    /// As `mount(2)`: `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` for an unknown type, `EBUSY`,
    /// `EINVAL`, `ENOTDIR`, `ENOSPC`, `ENOMEM`, and those of walks. `EINVAL` for [`MS_SHARED`].
    pub fn mount_with(
        &self,
        source: impl AsRef<[u8]>,
        target: impl AsRef<[u8]>,
        fstype: &str,
        flags: u64,
        options: impl AsRef<[u8]>,
    ) -> Result<(), Errno> {
        let k = self.inner();
        let flags = if flags & MAGIC_MASK == MAGIC { flags & !MAGIC_MASK } else { flags };
        let source = source.as_ref();
        if source.len() >= PATH_MAX || fstype.len() >= PATH_MAX {
            return Err(Errno::INVAL);
        }
        let at_source = match flags {
            _ if flags & MS_REMOUNT != 0 => false,
            _ if flags & MS_BIND != 0 => true,
            _ => flags & PROPAGATION == 0 && flags & MS_MOVE != 0,
        };
        // The walk has a read-side critical section open, in which a remount may not wait.
        let places = self.walk_at(crate::abi::AT_FDCWD, target.as_ref(), 0, |c, target| {
            let at = c.place(target, How::of(Lookup::FOLLOW))?;
            if flags & MS_NOUSER != 0 {
                return Err(Errno::INVAL);
            }
            may_mount(c)?;
            if !at_source {
                return Ok((at, None));
            }
            if source.is_empty() {
                return Err(Errno::INVAL);
            }
            Ok((at, Some(c.place(checked(source)?, How::of(Lookup::FOLLOW))?)))
        });
        let options = options::text(options.as_ref());
        self.returning(places.and_then(|(at, from)| match from {
            Some(from) if flags & MS_BIND != 0 => {
                self.namespace(k).bind(&from, at, flags & MS_REC != 0)
            }
            Some(from) => self.namespace(k).move_mount(&from, at),
            None if flags & MS_REMOUNT != 0 => {
                remount(k, &self.namespace(k), &at, flags, &Options(options))
            }
            None if flags & PROPAGATION != 0 => propagate(&self.namespace(k), &at, flags),
            None => self.mount_new(source, at, fstype, flags, options),
        }))
    }

    /// Mounts a new instance of a type.
    fn mount_new<'k>(
        &'k self,
        source: &[u8],
        at: Path<'k>,
        fstype: &str,
        flags: u64,
        options: &[u8],
    ) -> Result<(), Errno> {
        let k = self.inner();
        let mut super_flags = super_flags(flags);
        let sb = match k.types.find(fstype)? {
            Type::Own(own) => {
                let options = &Options(options);
                super_flags = options.flags(super_flags);
                let owner = self.owner.load();
                let owner = [owner.uid(), owner.gid()];
                let sb = (own.new)(k, &NewMount { dev: new_dev(k), options, owner })?;
                let shown: &[u8] = match sb.ramfs() {
                    Some(_) => TmpfsOptions::parse(options, 0)?.shown(),
                    None => b"",
                };
                sb.set_text(shown_source(source), shown)?;
                sb
            }
            Type::Program(name, make) => {
                let read_only = super_flags.contains(SuperFlags::RDONLY);
                let request = MountRequest { source, options, read_only };
                let sb = self.call_sleeping(|c| {
                    operations::new_super(c, new_dev(k), Some(name), |caller| {
                        make(caller, &request)
                    })
                })?;
                sb.set_text(shown_source(source), options)?;
                sb
            }
        };
        attach(k, &self.namespace(k), sb, at, super_flags, mount_flags(flags))
    }

    /// Mounts an embedder's file system on a directory. Flags: [`MS_RDONLY`], [`MS_NOSUID`] and the
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
            let sb =
                self.call_sleeping(|c| operations::new_super(c, new_dev(k), None, |_| Ok(fs)))?;
            attach(k, &self.namespace(k), sb, at, super_flags(flags), mount_flags(flags))
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
    let mut told = MountFlags::from_bits_truncate(flags as u32);
    told.set(MountFlags::RELATIME, flags & MS_NOATIME == 0);
    if flags & MS_STRICTATIME != 0 {
        told.remove(MountFlags::RELATIME | MountFlags::NOATIME);
    }
    told
}

/// The flags of a remount: without a word about times of access, those stay that the mount has.
fn remount_flags(at: &Path<'_>, flags: u64) -> MountFlags {
    const TIMES: MountFlags =
        MountFlags::NOATIME.union(MountFlags::NODIRATIME).union(MountFlags::RELATIME);
    let told = mount_flags(flags);
    if flags & ATIME != 0 { told } else { (told - TIMES) | (at.mount().flags() & TIMES) }
}

/// The flags that belong to the file system.
fn super_flags(flags: u64) -> SuperFlags {
    SuperFlags::from_bits_truncate(flags as u32)
}

/// What `/proc/PID/mounts` shows as source.
fn shown_source(source: &[u8]) -> &[u8] {
    if source.is_empty() { b"none" } else { source }
}

/// Changes the flags of a mount, and without [`MS_BIND`] also its file system.
fn remount<'k>(
    k: &'k Inner,
    namespace: &Namespace<'k>,
    at: &Path<'k>,
    flags: u64,
    options: &Options<'_>,
) -> Result<(), Errno> {
    let told = remount_flags(at, flags);
    if flags & MS_BIND != 0 {
        return namespace.remount(at, told);
    }
    let sb = at.mount().super_ref();
    let own = match k.types.find(sb.s_type()) {
        Ok(Type::Own(own)) if sb.info().foreign().is_none() => Some(own),
        // A type of the program takes no other options than at first.
        _ => None,
    };
    let mut new = (super_flags(flags) - STAYS) | (sb.flags() & STAYS);
    let mut limits = TmpfsOptions::default();
    if let Some(own) = own {
        if options.mention(STAYS) {
            return Err(Errno::INVAL);
        }
        new = options.flags(new);
        limits = (own.parse)(k, options)?;
    }
    namespace.reconfigure(at, new, told, || types::reconfigure(&sb, &limits))
}

/// Says how changes of mounts propagate: not at all.
fn propagate<'k>(namespace: &Namespace<'k>, at: &Path<'k>, flags: u64) -> Result<(), Errno> {
    let unbindable = match flags & !(MS_REC | MS_SILENT) {
        MS_PRIVATE => Some(false),
        MS_UNBINDABLE => Some(true),
        MS_SLAVE => None,
        _ => return Err(Errno::INVAL),
    };
    namespace.set_unbindable(at, unbindable, flags & MS_REC != 0)
}

/// Returns the number of a new filesystem.
fn new_dev(k: &Inner) -> u64 {
    // Relaxed: only different numbers are wanted.
    k.last_dev.fetch_add(1, Ordering::Relaxed) + 1
}

/// Mounts a new instance of a file system.
fn attach<'k>(
    k: &'k Inner,
    namespace: &Namespace<'k>,
    sb: SuperRef<'k>,
    at: Path<'k>,
    super_flags: SuperFlags,
    flags: MountFlags,
) -> Result<(), Errno> {
    sb.set_first_flags(super_flags);
    namespace.attach(k.vfs.new_mount(sb, flags)?, at)
}

/// Makes `/proc` and `/sys`, and mounts what they are for, as a kernel begins.
pub(crate) fn boot(k: &Inner) -> Result<(), Errno> {
    let root = k.namespace.root();
    let fs = FsStruct::new(&k.vfs, root.clone(), root).map_err(|_| Errno::NOMEM)?;
    let cred = quietline_vfs::cred::Cred::new(0, 0);
    let caller = Caller { vfs: &k.vfs, files: &k.files, start: Start::cwd(&fs), cred: &cred };
    let (proc, sys) = (proc::new_proc(k, new_dev(k))?, proc::new_sysfs(k, new_dev(k))?);
    for (path, sb) in [(&b"/proc"[..], proc), (b"/sys", sys)] {
        namei::make(&caller, path, New::Directory(0o555))?;
        let at = caller.place(path, How::of(Lookup::FOLLOW))?;
        let flags =
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
        attach(k, &k.namespace, sb, at, SuperFlags::empty(), flags)?;
    }
    Ok(())
}
