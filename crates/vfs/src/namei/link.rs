//! Hard links.

use super::{Caller, inode_of, may_change_names, not_removed, ownership, ramfs, time_for_both, touch_dir_at};
use crate::abi::{LINK_MAX, S_ISGID, S_ISUID, S_IXGRP};
use crate::cred::Cred;
use crate::inode::{Changes, Inode, InodeFlags};
use crate::notify::{self, Event};
use crate::permission::Mask;
use crate::raw::walk_path::Path;
use crate::walk::{How, LastKind};
use rustix::io::Errno;

/// Gives what is at `old` another name (`linkat`).
///
/// # Errors
/// As the system call.
pub fn link(caller: &Caller<'_, '_>, old: &Path<'_>, path: &[u8]) -> Result<(), Errno> {
    let (parent, last) = caller.parent(path, How::NOFOLLOW)?;
    if last.kind() != LastKind::Name {
        return Err(Errno::EXIST);
    }
    let leave = parent.mount().want_write();
    let dir = parent.dentry();
    let name = caller.vfs.name(last.bytes())?;
    let mut guard = inode_of(dir)?.lock();
    not_removed(&guard)?;
    if let Some(there) = dir.lookup(&name) {
        drop(guard);
        drop(there);
        return Err(Errno::EXIST);
    }
    if last.has_slash() {
        return Err(Errno::NOENT);
    }
    let _leave = leave?;
    if !old.mount().same(parent.mount()) {
        return Err(Errno::XDEV);
    }
    let inode = inode_of(old.dentry())?;
    may_link(inode, caller.cred)?;
    may_change_names(&guard, caller.cred)?;
    if inode.is_dir() {
        return Err(Errno::PERM);
    }
    let fs = ramfs(dir.super_block())?;
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
    let linked = dir.alloc(&name).and_then(|mut child| {
        child.instantiate(old.dentry().inode_ref().ok_or(Errno::NOENT)?);
        child.enlist(&mut guard)
    });
    if let Err(errno) = linked {
        if counts {
            fs.limits().uncharge_inode();
        }
        return Err(errno);
    }
    let time = time_for_both(caller.vfs, inode, guard.inode());
    locked.set_flags(InodeFlags::empty(), InodeFlags::LINKABLE);
    locked.change(&Changes { nlink: Some(nlink + 1), ctime: Some(time), ..Changes::default() });
    drop(locked);
    touch_dir_at(&mut guard, 1, 0, time);
    drop(guard);
    notify::inode(caller.vfs, inode, Event::ATTRIB);
    notify::name(caller.vfs, dir, last.bytes(), Event::CREATE, false);
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
