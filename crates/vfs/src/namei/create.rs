//! Making files.

use super::remove::unlink_in;
use super::{
    Caller, ask_child, inode_of, is_foreign_dir, may_change_names, not_removed, ownership, ramfs,
    time_for, touched,
};
use crate::abi::{
    O_EXCL, PATH_MAX, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
    Timespec,
};
use crate::cred::Capabilities;
use crate::dcache::name::Name;
use crate::inode::{Changes, Content, Inode, InodeFlags, InodeRef, NewInode};
use crate::notify::{self, Event};
use crate::open::Opening;
use crate::operations::{self, Made};
use crate::permission::{Mask, permission};
use crate::pipe::Fifo;
use crate::ramfs::RamFs;
use crate::ramfs::fs::{BLOCKS_PER_PAGE, EMPTY_DIR_SIZE};
use crate::raw::dcache::locked::LockedDir;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::mount::Leave;
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
            // No program could give Linux one.
            Self::Symlink(to) if to.contains(&0) => Err(Errno::INVAL),
            Self::Symlink(_) => Ok(()),
            Self::Node(mode, _) => match mode & S_IFMT {
                0 | S_IFREG | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK => Ok(()),
                S_IFDIR => Err(Errno::PERM),
                _ => Err(Errno::INVAL),
            },
        }
    }

    #[inline]
    fn is_dir(&self) -> bool {
        matches!(self, Self::Directory(_))
    }

    /// What must be right when the directory has been found to be writable.
    fn permitted(&self, caller: &Caller<'_, '_>) -> Result<(), Errno> {
        match *self {
            // A character device 0:0 is a whiteout, which anybody may make.
            Self::Node(mode, dev)
                if matches!(mode & S_IFMT, S_IFCHR | S_IFBLK)
                    && !(mode & S_IFMT == S_IFCHR && dev == 0) =>
            {
                if caller.cred.has(Capabilities::MKNOD) { Ok(()) } else { Err(Errno::PERM) }
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
    let quick = caller.quick_parent(path, |_mount, dir, name, slash| {
        not_removed(dir.inode())?;
        make_name(caller, dir, name, slash, new, None, |_| ())
    });
    quick.unwrap_or_else(|| make_odd(caller, path, new))
}

/// [`make`], and then `bind` with the numbers of the file system and of the new inode, outside of
/// the directory's lock. Removes the name if that fails: the directory is not looked for again.
///
/// # Errors
/// As [`make`], and those of `bind`.
pub fn make_bound(
    caller: &Caller<'_, '_>,
    path: &[u8],
    new: New<'_>,
    bind: impl FnOnce(u64, u64) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (place, last) = caller.parent(path, How::NOFOLLOW)?;
    let (mount, dir) = place.into_parts();
    let leave = mount.want_write();
    let dev = dir.super_block().s_dev();
    let mut ino = 0;
    let dir = make_in(caller, dir, &last, new, &leave, |inode| ino = inode.ino())?;
    bind(dev, ino).inspect_err(|_| {
        // If another call has removed it meanwhile, nothing is left to do.
        let _ = unlink_in(caller, &mount, dir, &last, Some(ino));
    })
}

/// [`make`] where something is out of the ordinary.
#[cold]
#[inline(never)]
fn make_odd(caller: &Caller<'_, '_>, path: &[u8], new: New<'_>) -> Result<(), Errno> {
    let (place, last) = caller.parent(path, How::NOFOLLOW)?;
    if is_foreign_dir(place.dentry()) {
        let (mount, dir) = (place.mount(), place.dentry());
        let (made, name) = make_foreign(caller, &place, &last, new, &mount.want_write())?;
        // Without memory for a dentry, the name is looked up.
        let _ = made.enter(dir, &name);
        notify::name(caller.vfs, dir, last.bytes(), Event::CREATE, new.is_dir());
        return Ok(());
    }
    let (mount, dir) = place.into_parts();
    make_in(caller, dir, &last, new, &mount.want_write(), |_| ()).map(drop)
}

/// Makes a name in an embedder's directory, if there is leave to write in the mount.
///
/// # Errors
/// As [`make`].
pub(crate) fn make_foreign<'l, 'k>(
    caller: &Caller<'_, 'k>,
    place: &Path<'k>,
    last: &'l Last<'_>,
    new: New<'_>,
    leave: &Leave<'_>,
) -> Result<(Made, Name<'l>), Errno> {
    if last.kind() != LastKind::Name {
        return Err(Errno::EXIST);
    }
    let dir = place.dentry();
    let inode = inode_of(dir)?;
    not_removed(inode)?;
    let name = caller.vfs.name(last.bytes())?;
    if ask_child(caller, place, last.bytes())?.is_some() {
        return Err(Errno::EXIST);
    }
    may_make(caller, inode, last.has_slash(), new, leave.as_ref().err().copied())?;
    Ok((operations::create(caller, dir, &name, new)?, name))
}

/// Whether a caller may make a name that is not there.
#[inline(always)]
fn may_make(
    caller: &Caller<'_, '_>,
    dir: &Inode,
    slash: bool,
    new: New<'_>,
    forbidden: Option<Errno>,
) -> Result<(), Errno> {
    if slash && !new.is_dir() {
        return Err(Errno::NOENT);
    }
    forbidden.map_or(Ok(()), Err)?;
    may_change_names(dir, caller.cred)?;
    new.permitted(caller)
}

/// Makes a name in a directory, if there is leave to write in the mount. Returns the directory.
fn make_in<'k>(
    caller: &Caller<'_, 'k>,
    dir: DentryRef<'k>,
    last: &Last<'_>,
    new: New<'_>,
    leave: &Leave<'_>,
    made: impl FnOnce(&Inode),
) -> Result<DentryRef<'k>, Errno> {
    if last.kind() != LastKind::Name {
        return Err(Errno::EXIST);
    }
    let dir = LockedDir::lock(dir)?;
    not_removed(dir.inode())?;
    let name = caller.vfs.name(last.bytes())?;
    let forbidden = leave.as_ref().err().copied();
    make_name(caller, &dir, &name, last.has_slash(), new, forbidden, made)?;
    let parent = dir.dir().clone();
    drop(dir);
    notify::name(caller.vfs, &parent, last.bytes(), Event::CREATE, new.is_dir());
    Ok(parent)
}

/// Makes a name in a locked directory, which may be forbidden in the mount. Calls `made` with the
/// new inode before it has the name.
fn make_name<'k>(
    caller: &Caller<'_, 'k>,
    dir: &LockedDir<'k>,
    name: &Name<'_>,
    slash: bool,
    new: New<'_>,
    forbidden: Option<Errno>,
    made: impl FnOnce(&Inode),
) -> Result<(), Errno> {
    if dir.find(name).is_some() {
        return Err(Errno::EXIST);
    }
    may_make(caller, dir.inode(), slash, new, forbidden)?;
    let time = time_for(caller.vfs, dir.inode());
    let inode = new_inode(caller, dir.dir(), new, time)?;
    made(&inode);
    let mut child = dir.alloc(name)?;
    child.instantiate(inode);
    dir.enter(child)?;
    dir.change(&touched(dir.inode(), 1, i32::from(new.is_dir()), time));
    Ok(())
}

/// An inode for a name in a locked directory.
pub(super) fn new_inode<'k>(
    caller: &Caller<'_, 'k>,
    dir: &DentryRef<'k>,
    new: New<'_>,
    time: Timespec,
) -> Result<InodeRef<'k>, Errno> {
    let inode = proposed(caller, inode_of(dir)?, new, time);
    charged_inode(dir, inode, new)
}

/// What a file is made with in a directory.
pub(crate) fn proposed(
    caller: &Caller<'_, '_>,
    dir: &Inode,
    new: New<'_>,
    time: Timespec,
) -> NewInode {
    let (mode, rdev) = match new {
        New::Directory(mode) => (S_IFDIR | mode & 0o1777, 0),
        New::Symlink(_) => (S_IFLNK | 0o777, 0),
        New::Node(mode, rdev) => {
            let kind = if mode & S_IFMT == 0 { S_IFREG } else { mode & S_IFMT };
            let rdev = if matches!(kind, S_IFCHR | S_IFBLK) { rdev } else { 0 };
            (kind | mode & 0o7777, rdev)
        }
    };
    let of = ownership(dir).of_child(caller.cred, mode);
    // Whether the group's right to execute was asked for decides above, so what the process withholds comes after it.
    let mode = if matches!(new, New::Symlink(_)) { of.mode } else { caller.masked(of.mode) };
    let nlink = if mode & S_IFMT == S_IFDIR { 2 } else { 1 };
    NewInode { mode, uid: of.uid, gid: of.gid, rdev, nlink, time }
}

/// An inode with these attributes, charged to the filesystem.
fn charged_inode<'k>(
    dir: &DentryRef<'k>,
    inode: NewInode,
    new: New<'_>,
) -> Result<InodeRef<'k>, Errno> {
    let fs = ramfs(dir.super_block())?;
    if !fs.limits().charge_inode() {
        return Err(Errno::NOSPC);
    }
    match fill_inode(dir, fs, inode, new) {
        Ok(inode) => Ok(inode),
        Err(errno) => {
            fs.limits().uncharge_inode();
            Err(errno)
        }
    }
}

/// [`new_inode`] for a regular file, which nearly all are.
#[inline]
fn new_regular<'k>(
    caller: &Caller<'_, 'k>,
    dir: &LockedDir<'k>,
    mode: u32,
    time: Timespec,
) -> Result<InodeRef<'k>, Errno> {
    let of = ownership(dir.inode()).of_child(caller.cred, S_IFREG | mode & 0o7777);
    let (mode, uid, gid) = (caller.masked(of.mode), of.uid, of.gid);
    let fs = ramfs(dir.dir().super_block())?;
    if !fs.limits().charge_inode() {
        return Err(Errno::NOSPC);
    }
    // Each way by itself: a result that is passed on as it is would be copied.
    match new_file(dir.dir(), fs, NewInode { mode, uid, gid, rdev: 0, nlink: 1, time }) {
        Ok(inode) => Ok(inode),
        Err(errno) => {
            fs.limits().uncharge_inode();
            Err(errno)
        }
    }
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
            S_IFIFO => dir.new_inode(inode, Content::Fifo(Fifo::new())),
            S_IFSOCK => dir.new_inode(inode, Content::Socket),
            _ => dir.new_inode(inode, Content::Device),
        },
    }
}

/// Makes a regular file in a locked directory, unless there is something of that name, and unless making it is `forbidden` in
/// the mount.
///
/// # Errors
/// `EEXIST` if there is something of that name by now; `ENOENT`, `EACCES`, `EROFS`, `ENOSPC`, `ENOMEM`.
#[inline(always)]
pub(crate) fn create<'k>(
    caller: &Caller<'_, 'k>,
    dir: &LockedDir<'k>,
    name: &Name<'_>,
    mode: u32,
    forbidden: Option<Errno>,
) -> Result<DentryRef<'k>, Errno> {
    if dir.find(name).is_some() {
        return Err(Errno::EXIST);
    }
    forbidden.map_or(Ok(()), Err)?;
    may_change_names(dir.inode(), caller.cred)?;
    let time = time_for(caller.vfs, dir.inode());
    let inode = new_regular(caller, dir, mode, time)?;
    let mut child = dir.alloc(name)?;
    child.instantiate(inode);
    let child = dir.enter_held(child)?;
    dir.change(&touched(dir.inode(), 1, 0, time));
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
    let new = New::Node(S_IFREG | opening.mode, 0);
    let inode = new_inode(caller, dir, new, caller.vfs.clock.now())?;
    let mut locked = inode.lock();
    locked.change(&Changes { nlink: Some(0), ..Changes::default() });
    if !opening.has(O_EXCL) {
        locked.set_flags(InodeFlags::LINKABLE, InodeFlags::empty());
    }
    drop(locked);
    let mut digits = [0; 24];
    let mut child = dir.alloc(&caller.vfs.name(number_name(inode.ino(), &mut digits))?)?;
    child.instantiate(inode);
    Ok(child.into_unhashed())
}

/// A regular file that never gets a name. Neither the umask nor the directory has a part in its
/// mode and owner.
pub(crate) fn memfd<'k>(
    caller: &Caller<'_, 'k>,
    dir: &DentryRef<'k>,
    name: &[u8],
) -> Result<DentryRef<'k>, Errno> {
    let inode = NewInode {
        mode: S_IFREG | 0o777,
        uid: caller.cred.fsuid(),
        gid: caller.cred.fsgid(),
        rdev: 0,
        nlink: 0,
        time: caller.vfs.clock.now(),
    };
    let inode = charged_inode(dir, inode, New::Node(S_IFREG, 0))?;
    let mut child = dir.alloc(&caller.vfs.name(name)?)?;
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
