//! What is told of files: `stat`, `access`, `readlink`, `statfs`.

use super::{Caller, inode_of};
use crate::abi::{
    PATH_MAX, ST_NOATIME, ST_NODEV, ST_NODIRATIME, ST_NOEXEC, ST_NOSUID, ST_NOSYMFOLLOW, ST_RDONLY,
    ST_RELATIME, ST_VALID, STATX_ATTR_MOUNT_ROOT, STATX_BASIC_STATS, STATX_BTIME, STATX_MNT_ID,
    Stat, StatFs, Statx,
};
use crate::dcache::path::PathBuffer;
use crate::dentry::Dentry;
use crate::file::touch_access;
use crate::inode::{Content, Inode, InodeFlags};
use crate::namespace::MountFlags;
use crate::operations::foreign;
use crate::permission::{Mask, permission};
use crate::ramfs::{PAGE, RamFs};
use crate::raw::mount::TreeMount;
use crate::walk::How;
use rustix::io::Errno;

/// What `stat` tells of an inode. Writes nothing, but a mark once after each change (see
/// [`FileClock`](crate::attributes::FileClock)).
#[inline]
pub fn stat_of(inode: &Inode) -> Stat {
    let told = inode.tell();
    Stat {
        st_dev: inode.super_block().s_dev(),
        st_ino: told.ino,
        st_mode: told.mode,
        st_nlink: told.nlink.into(),
        st_uid: told.uid,
        st_gid: told.gid,
        st_rdev: told.rdev,
        st_size: told.size as i64,
        st_blksize: PAGE as u32,
        st_blocks: told.blocks,
        st_atim: told.atime,
        st_mtim: told.mtime,
        st_ctim: told.ctime,
    }
}

/// What `statx` tells of a place.
///
/// # Errors
/// `ENOENT` for a place that stands for nothing.
pub fn statx_of(mount: &TreeMount, dentry: &Dentry) -> Result<Statx, Errno> {
    let inode = dentry.inode().ok_or(Errno::NOENT)?;
    let root = mount.root().same(dentry);
    Ok(Statx {
        stx_mask: STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID,
        stx_attributes: if root { STATX_ATTR_MOUNT_ROOT } else { 0 },
        stx_attributes_mask: STATX_ATTR_MOUNT_ROOT,
        stat: stat_of(inode),
        stx_btime: inode.attributes().btime,
        stx_mnt_id: mount.id(),
    })
}

/// What `statfs` tells of the filesystem that a path is in.
///
/// # Errors
/// Those of the walk, and of an embedder's file system.
pub fn statfs(caller: &Caller<'_, '_>, path: &[u8]) -> Result<StatFs, Errno> {
    let own = caller.look(path, How::FOLLOW, |found| {
        let foreign = found.mount().super_block().info().foreign().is_some();
        (!foreign).then(|| statfs_of(found.mount(), None))
    })?;
    match own {
        Some(told) => Ok(told),
        None => statfs_in(caller, caller.path(path, How::FOLLOW)?.mount()),
    }
}

/// [`statfs`] of a mount that the caller keeps, outside a read section.
pub(super) fn statfs_in(caller: &Caller<'_, '_>, mount: &TreeMount) -> Result<StatFs, Errno> {
    let told = match mount.super_block().info().foreign() {
        Some(fs) => Some(foreign(fs.statfs(&caller.requester().caller()?))?),
        None => None,
    };
    Ok(statfs_of(mount, told))
}

/// What `statfs` tells of a mount: what its filesystem has `told`, and the mount's flags.
fn statfs_of(mount: &TreeMount, told: Option<StatFs>) -> StatFs {
    let own = || {
        let sb = mount.super_block();
        sb.info_as::<RamFs>().map_or_else(|| sb.info().statfs(), |fs| fs.limits().statfs())
    };
    let mut told = told.unwrap_or_else(own);
    let flags = mount.flags();
    for (flag, told_as) in [
        (MountFlags::RDONLY, ST_RDONLY),
        (MountFlags::NOSUID, ST_NOSUID),
        (MountFlags::NODEV, ST_NODEV),
        (MountFlags::NOEXEC, ST_NOEXEC),
        (MountFlags::NOATIME, ST_NOATIME),
        (MountFlags::NODIRATIME, ST_NODIRATIME),
        (MountFlags::RELATIME, ST_RELATIME),
        (MountFlags::NOSYMFOLLOW, ST_NOSYMFOLLOW),
    ] {
        if flags.contains(flag) {
            told.f_flags |= told_as;
        }
    }
    told.f_flags |= ST_VALID;
    let dev = mount.super_block().s_dev();
    told.f_fsid = [dev as i32, (dev >> 32) as i32];
    told
}

/// Whether somebody may do all of `mask` with what is at a path (`faccessat2`): by his real ids, unless by those in effect.
///
/// # Errors
/// `EACCES`, `EROFS`, and those of the walk.
pub fn access(
    caller: &Caller<'_, '_>,
    path: &[u8],
    how: How,
    mask: Mask,
    effective: bool,
) -> Result<(), Errno> {
    let real;
    let mut caller = *caller;
    if !effective {
        real = caller.cred.by_real_ids().map_err(|_| Errno::NOMEM)?;
        if let Some(real) = &real {
            caller.cred = real;
        }
    }
    let checked = caller.look(path, how, |found| {
        let inode = found.inode();
        if inode.flags().contains(InodeFlags::NODE) {
            return None;
        }
        Some(may_access(found.mount(), inode, mask, || permission(inode, caller.cred, mask)))
    })?;
    match checked {
        Some(checked) => checked,
        None => access_node(&caller, path, how, mask),
    }
}

/// [`access`] to a file of a file system with rules of its own, outside a read section.
#[cold]
#[inline(never)]
fn access_node(caller: &Caller<'_, '_>, path: &[u8], how: How, mask: Mask) -> Result<(), Errno> {
    let place = caller.path(path, how)?;
    let inode = inode_of(place.dentry())?;
    may_access(place.mount(), inode, mask, || caller.may(inode, mask))
}

/// The checks of [`access`], in Linux's order.
#[inline(always)]
fn may_access(
    mount: &TreeMount,
    inode: &Inode,
    mask: Mask,
    permitted: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let flags = mount.flags();
    if mask.contains(Mask::EXEC) && inode.is_file() && flags.contains(MountFlags::NOEXEC) {
        return Err(Errno::ACCESS);
    }
    permitted()?;
    let special = || !(inode.is_file() || inode.is_dir() || inode.is_symlink());
    if mask.contains(Mask::WRITE) && flags.contains(MountFlags::RDONLY) && !special() {
        return Err(Errno::ROFS);
    }
    Ok(())
}

/// Where a symbolic link leads (`readlinkat`): how many bytes of it are in the buffer.
///
/// # Errors
/// `EINVAL` for what is none (`ENOENT` by the empty path), and those of the walk.
pub fn readlink(
    caller: &Caller<'_, '_>,
    path: &[u8],
    how: How,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let read = caller.look(path, how, |found| {
        let Content::Symlink(body) = found.inode().content() else {
            let node =
                found.inode().is_symlink() && matches!(found.inode().content(), Content::Node(_));
            return if node {
                Ok(None)
            } else {
                Err(if path.is_empty() { Errno::NOENT } else { Errno::INVAL })
            };
        };
        let n = body.len().min(buffer.len());
        buffer[..n].copy_from_slice(&body[..n]);
        touch_access(found.mount(), caller.vfs, found.inode());
        Ok(Some(n))
    })??;
    read.map_or_else(|| ask_link(caller, path, how, buffer), Ok)
}

/// [`readlink`] of a link that its filesystem makes, and may take its time for.
#[cold]
fn ask_link(
    caller: &Caller<'_, '_>,
    path: &[u8],
    how: How,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let place = caller.path(path, how)?;
    let Some(Content::Node(node)) = place.dentry().inode().map(|inode| inode.content()) else {
        return Err(Errno::INVAL);
    };
    let mut made = [0; PATH_MAX];
    let mut made = PathBuffer::new(&mut made);
    node.target(&place, &caller.requester(), &mut made)?;
    let n = made.len().min(buffer.len());
    buffer[..n].copy_from_slice(&made.bytes()[..n]);
    Ok(n)
}
