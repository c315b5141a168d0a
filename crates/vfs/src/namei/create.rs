//! Making files.

use super::{Caller, inode_of, may_change_names, not_removed, ownership, ramfs, touch_dir};
use crate::abi::{O_EXCL, PATH_MAX, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use crate::cred::Capabilities;
use crate::inode::{Changes, Content, InodeFlags, InodeGuard, InodeRef, NewInode};
use crate::notify::{self, Event};
use crate::open::Opening;
use crate::permission::{Mask, permission};
use crate::ramfs::RamFs;
use crate::ramfs::fs::{BLOCKS_PER_PAGE, EMPTY_DIR_SIZE};
use crate::raw::dcache::refs::DentryRef;
use crate::raw::ramfs::new_file;
use crate::raw::walk_path::Path;
use crate::walk::{How, Last, LastKind};
use quietline_platform::heap;
use rustix::io::Errno;

/// What is to be made.
#[derive(Debug, Clone, Copy)]
pub enum New<'a> {
    /// A directory, with these permissions.
    Directory(u32),
    /// A symbolic link, leading there.
    Symlink(&'a [u8]),
    /// A file of the type in the mode, which is the number of a device if it is one.
    Node(u32, u64),
}

impl New<'_> {
    /// What must be right before anybody looks for a path.
    ///
    /// # Errors
    /// `ENOENT`, `ENAMETOOLONG`, `EPERM`, `EINVAL`.
    pub fn check(&self) -> Result<(), Errno> {
        match self {
            Self::Directory(_) => Ok(()),
            Self::Symlink(b"") => Err(Errno::NOENT),
            Self::Symlink(to) if to.len() >= PATH_MAX => Err(Errno::NAMETOOLONG),
            Self::Symlink(_) => Ok(()),
            Self::Node(mode, _) => match mode & S_IFMT {
                0 | S_IFREG | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK => Ok(()),
                S_IFDIR => Err(Errno::PERM),
                _ => Err(Errno::INVAL),
            },
        }
    }

    /// What must be right when the directory has been found to be writable.
    fn permitted(&self, caller: &Caller<'_, '_>) -> Result<(), Errno> {
        match *self {
            // A character device 0:0 is a whiteout, which anybody may make.
            Self::Node(mode, dev)
                if matches!(mode & S_IFMT, S_IFCHR | S_IFBLK) && !(mode & S_IFMT == S_IFCHR && dev == 0) =>
            {
                if caller.cred.has(Capabilities::MKNOD) {
                    Ok(())
                } else {
                    Err(Errno::PERM)
                }
            }
            _ => Ok(()),
        }
    }
}

/// Makes a directory, a symbolic link or a node at a path (`mkdirat`, `symlinkat`, `mknodat`).
///
/// Writes the lines of the directory and of the new file.
///
/// # Errors
/// As the system calls.
pub fn make(caller: &Caller<'_, '_>, path: &[u8], new: New<'_>) -> Result<(), Errno> {
    let (parent, last) = caller.parent(path, How::NOFOLLOW)?;
    if last.kind() != LastKind::Name {
        return Err(Errno::EXIST);
    }
    let leave = parent.mount().want_write();
    let dir = parent.dentry();
    let name = caller.vfs.name(last.bytes())?;
    let mut guard = inode_of(dir)?.lock();
    not_removed(&guard)?;
    let there = dir.lookup(&name);
    let is_dir = matches!(new, New::Directory(_));
    if let Some(there) = there {
        drop(guard);
        drop(there);
        return Err(Errno::EXIST);
    }
    if last.has_slash() && !is_dir {
        return Err(Errno::NOENT);
    }
    let _leave = leave?;
    may_change_names(&guard, caller.cred)?;
    new.permitted(caller)?;
    let inode = new_inode(caller, dir, &guard, new)?;
    let mut child = dir.alloc(&name)?;
    child.instantiate(inode);
    child.enlist(&mut guard)?;
    touch_dir(caller.vfs, &mut guard, 1, i32::from(is_dir));
    drop(guard);
    notify::name(caller.vfs, dir, last.bytes(), Event::CREATE, is_dir);
    Ok(())
}

/// An inode for a name in a locked directory.
fn new_inode<'k>(
    caller: &Caller<'_, 'k>,
    dir: &DentryRef<'k>,
    guard: &InodeGuard<'_>,
    new: New<'_>,
) -> Result<InodeRef<'k>, Errno> {
    let (mode, rdev) = match new {
        New::Directory(mode) => (S_IFDIR | mode & 0o1777, 0),
        New::Symlink(_) => (S_IFLNK | 0o777, 0),
        New::Node(mode, rdev) => {
            let kind = if mode & S_IFMT == 0 { S_IFREG } else { mode & S_IFMT };
            let rdev = if matches!(kind, S_IFCHR | S_IFBLK) { rdev } else { 0 };
            (kind | mode & 0o7777, rdev)
        }
    };
    let of = ownership(guard.inode()).of_child(caller.cred, mode);
    // Whether the group's right to execute was asked for decides above, so what the process withholds comes after it.
    let mode = if matches!(new, New::Symlink(_)) { of.mode } else { caller.masked(of.mode) };
    let time = caller.vfs.clock.now();
    let nlink = if mode & S_IFMT == S_IFDIR { 2 } else { 1 };
    let inode = NewInode { mode, uid: of.uid, gid: of.gid, rdev, nlink, time };
    let fs = ramfs(dir.super_block())?;
    if !fs.limits().charge_inode() {
        return Err(Errno::NOSPC);
    }
    fill_inode(dir, fs, inode, new).inspect_err(|_| fs.limits().uncharge_inode())
}

/// An inode whose room has been taken, with its content.
fn fill_inode<'k>(
    dir: &DentryRef<'k>,
    fs: &RamFs,
    inode: NewInode,
    new: New<'_>,
) -> Result<InodeRef<'k>, Errno> {
    let sized = |content, size| {
        let made = dir.new_inode(inode, content)?;
        made.init(&Changes { size: Some(size), ..Changes::default() });
        Ok(made)
    };
    match new {
        New::Directory(_) => sized(Content::Directory, EMPTY_DIR_SIZE),
        New::Symlink(to) => {
            let pages = RamFs::link_pages(to.len());
            let body = heap::try_boxed_slice(to.len(), |n| to[n]).map_err(|_| Errno::NOMEM)?;
            if !fs.limits().charge_pages(pages) {
                return Err(Errno::NOSPC);
            }
            let made = sized(Content::Symlink(body), to.len() as u64);
            let made = made.inspect_err(|_| fs.limits().uncharge_pages(pages))?;
            made.init(&Changes { blocks: Some(pages * BLOCKS_PER_PAGE), ..Changes::default() });
            Ok(made)
        }
        New::Node(..) => match inode.mode & S_IFMT {
            S_IFREG => new_file(dir, fs, inode),
            S_IFIFO => dir.new_inode(inode, Content::Fifo),
            S_IFSOCK => dir.new_inode(inode, Content::Socket),
            _ => dir.new_inode(inode, Content::Device),
        },
    }
}

/// Makes a regular file in a directory, unless there is one of that name; what came of it.
///
/// # Errors
/// `EEXIST` if there is something of that name by now; `ENOENT`, `EACCES`, `EROFS`, `ENOSPC`, `ENOMEM`.
pub(crate) fn create<'k>(
    caller: &Caller<'_, 'k>,
    parent: &Path<'k>,
    last: &Last<'_>,
    mode: u32,
) -> Result<DentryRef<'k>, Errno> {
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
    let _leave = leave?;
    may_change_names(&guard, caller.cred)?;
    let inode = new_inode(caller, dir, &guard, New::Node(S_IFREG | mode, 0))?;
    let mut child = dir.alloc(&name)?;
    child.instantiate(inode);
    let child = child.enlist_held(&mut guard)?;
    touch_dir(caller.vfs, &mut guard, 1, 0);
    drop(guard);
    notify::name(caller.vfs, dir, last.bytes(), Event::CREATE, false);
    Ok(child)
}

/// Makes a file without a name in the filesystem of a directory (`O_TMPFILE`).
///
/// # Errors
/// `EACCES`, `EROFS`, `ENOENT`, `ENOSPC`, `ENOMEM`; `EOPNOTSUPP` for a filesystem that cannot.
pub fn tmpfile<'k>(
    caller: &Caller<'_, 'k>,
    parent: &Path<'k>,
    opening: Opening,
) -> Result<DentryRef<'k>, Errno> {
    let _leave = parent.mount().want_write()?;
    let dir = parent.dentry();
    permission(inode_of(dir)?, caller.cred, Mask::WRITE | Mask::EXEC)?;
    ramfs(dir.super_block()).map_err(|_| Errno::OPNOTSUPP)?;
    unnamed(caller, dir, S_IFREG | opening.mode, !opening.has(O_EXCL))
}

/// A regular file without a name, which may get one if it is `linkable`.
pub(crate) fn unnamed<'k>(
    caller: &Caller<'_, 'k>,
    dir: &DentryRef<'k>,
    mode: u32,
    linkable: bool,
) -> Result<DentryRef<'k>, Errno> {
    let guard = inode_of(dir)?.lock();
    let inode = new_inode(caller, dir, &guard, New::Node(mode, 0))?;
    drop(guard);
    let mut locked = inode.lock();
    locked.change(&Changes { nlink: Some(0), ..Changes::default() });
    if linkable {
        locked.set_flags(InodeFlags::LINKABLE, InodeFlags::empty());
    }
    drop(locked);
    let mut digits = [0; 24];
    let mut child = dir.alloc(&caller.vfs.name(number_name(inode.ino(), &mut digits))?)?;
    child.instantiate(inode);
    Ok(child.into_unhashed())
}

/// `#` and a number, as `/proc` shows what never had a name.
fn number_name(number: u64, digits: &mut [u8; 24]) -> &[u8] {
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    at -= 1;
    digits[at] = b'#';
    &digits[at..]
}
