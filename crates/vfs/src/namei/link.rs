//! Hard links.

use super::{Caller, inode_of, may_change_names, not_removed, ownership, ramfs, time_for_both, touched};
use crate::abi::{LINK_MAX, S_ISGID, S_ISUID, S_IXGRP};
use crate::cred::Cred;
use crate::dcache::name::Name;
use crate::inode::{Changes, Inode, InodeFlags};
use crate::notify::{self, Event};
use crate::permission::Mask;
use crate::raw::dcache::locked::LockedDir;
use crate::raw::mount::MountRef;
use crate::raw::walk_path::Path;
use crate::walk::{How, LastKind};
use rustix::io::Errno;

/// Gives what is at `old` another name (`linkat`).
///
/// # Errors
/// As the system call.
pub fn link<'k>(caller: &Caller<'_, 'k>, old: &Path<'k>, path: &[u8]) -> Result<(), Errno> {
    let quick = caller.quick_parent(path, |mount, dir, leave, name, slash| {
        not_removed(dir.inode())?;
        link_name(caller, old, mount, dir, name, slash, leave.as_ref().err().copied())
    });
    quick.unwrap_or_else(|| link_odd(caller, old, path))
}

/// [`link`] where something is out of the ordinary.
#[cold]
#[inline(never)]
fn link_odd<'k>(caller: &Caller<'_, 'k>, old: &Path<'k>, path: &[u8]) -> Result<(), Errno> {
    let (place, last) = caller.parent(path, How::NOFOLLOW)?;
    if last.kind() != LastKind::Name {
        return Err(Errno::EXIST);
    }
    let (mount, dir) = place.into_parts();
    let leave = mount.want_write();
    let dir = LockedDir::lock(dir)?;
    not_removed(dir.inode())?;
    let name = caller.vfs.name(last.bytes())?;
    let forbidden = leave.as_ref().err().copied();
    link_name(caller, old, &mount, &dir, &name, last.has_slash(), forbidden)?;
    let parent = dir.dir().clone();
    drop(dir);
    notify::inode(caller.vfs, inode_of(old.dentry())?, Event::ATTRIB);
    notify::name(caller.vfs, &parent, last.bytes(), Event::CREATE, false);
    Ok(())
}

/// Gives a file a name in a locked directory, which may be forbidden in the mount.
fn link_name<'k>(
    caller: &Caller<'_, 'k>,
    old: &Path<'k>,
    mount: &MountRef<'k>,
    dir: &LockedDir<'k>,
    name: &Name<'_>,
    slash: bool,
    forbidden: Option<Errno>,
) -> Result<(), Errno> {
    if dir.find(name).is_some() {
        return Err(Errno::EXIST);
    }
    if slash {
        return Err(Errno::NOENT);
    }
    forbidden.map_or(Ok(()), Err)?;
    if !old.mount().same(mount) {
        return Err(Errno::XDEV);
    }
    let inode = inode_of(old.dentry())?;
    may_link(inode, caller.cred)?;
    may_change_names(dir.inode(), caller.cred)?;
    if inode.is_dir() {
        return Err(Errno::PERM);
    }
    let fs = ramfs(dir.dir().super_block())?;
    let mut locked = inode.lock();
    let nlink = inode.nlink();
    if nlink == 0 && !inode.flags().contains(InodeFlags::LINKABLE) {
        return Err(Errno::NOENT);
    }
    if nlink == LINK_MAX {
        return Err(Errno::MLINK);
    }
    // The first link of a file that had none was counted when it was made.
    let counts = nlink != 0;
    if counts && !fs.limits().charge_inode() {
        return Err(Errno::NOSPC);
    }
    let linked = dir.alloc(name).and_then(|mut child| {
        child.instantiate(old.dentry().inode_ref().ok_or(Errno::NOENT)?);
        dir.enter(child)
    });
    if let Err(errno) = linked {
        if counts {
            fs.limits().uncharge_inode();
        }
        return Err(errno);
    }
    let time = time_for_both(caller.vfs, inode, dir.inode());
    locked.set_flags(InodeFlags::empty(), InodeFlags::LINKABLE);
    locked.change(&Changes { nlink: Some(nlink + 1), ctime: Some(time), ..Changes::default() });
    drop(locked);
    dir.change(&touched(dir.inode(), 1, 0, time));
    Ok(())
}

/// Whether somebody may give a file another name: its owner may; others only what is harmless and theirs to read and write
/// (`fs.protected_hardlinks`).
fn may_link(inode: &Inode, cred: &Cred) -> Result<(), Errno> {
    let of = ownership(inode);
    if of.owned_by(cred) {
        return Ok(());
    }
    let set_id = of.mode & S_ISUID != 0 || of.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
    let harmless = inode.is_file() && !set_id && of.permits(cred, Mask::READ | Mask::WRITE).is_ok();
    if harmless { Ok(()) } else { Err(Errno::PERM) }
}
