//! Opening files of the tree.
//!
//! Opening what is there takes three references: to the dentry, to the mount (a word of the CPU's own), and the file. What is
//! made is made under the directory's lock and opened by the reference that making gave.

mod flags;

pub use flags::{OpenHow, Opening};

use crate::abi::{
    O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NONBLOCK, O_PATH, O_TRUNC, S_IFBLK, S_IFCHR,
    S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
};
use crate::file::FileMode;
use crate::inode::Inode;
use crate::namei::{Caller, create, inode_of, ownership, ramfs, set_length, tmpfile, unnamed};
use crate::namespace::MountFlags;
use crate::notify::{self, Event};
use crate::permission::{Mask, permission};
use crate::raw::handle::FileHandle;
use crate::raw::walk_path::Path;
use crate::walk::{How, LastKind, Lookup, Resolve};
use rustix::io::Errno;

/// Opens, and perhaps makes, what is at a path (`openat2`).
///
/// # Errors
/// As the system call. Devices, sockets, and fifos that nobody reads: `ENXIO`.
#[inline]
pub fn open<'k>(caller: &Caller<'_, 'k>, path: &[u8], opening: Opening) -> Result<FileHandle<'k>, Errno> {
    let mut lookup = Lookup::empty();
    lookup.set(Lookup::FOLLOW, opening.follows());
    let how = How { lookup, resolve: Resolve::from_bits_truncate(opening.resolve) };
    if opening.has(O_CREAT) {
        return open_or_create(caller, path, how, opening);
    }
    let mut how = how;
    how.lookup.set(Lookup::DIRECTORY, opening.has(O_DIRECTORY));
    let place = caller.path(path, how)?;
    if opening.is_tmpfile() {
        return open_tmpfile(caller, place, opening);
    }
    open_place(caller, place, opening, false)
}

/// `open` with `O_CREAT`.
fn open_or_create<'k>(
    caller: &Caller<'_, 'k>,
    path: &[u8],
    how: How,
    opening: Opening,
) -> Result<FileHandle<'k>, Errno> {
    loop {
        let (parent, last) = caller.parent(path, how)?;
        match last.kind() {
            LastKind::Name if last.has_slash() => return Err(Errno::ISDIR),
            LastKind::Name => {}
            LastKind::Jumped => return open_existing(caller, path, how, opening),
            _ => {
                caller.path(path, how)?;
                return Err(if opening.has(O_EXCL) { Errno::EXIST } else { Errno::ISDIR });
            }
        }
        let name = caller.vfs.name(last.bytes())?;
        if parent.dentry().has_child(&name, caller.vfs) {
            if opening.has(O_EXCL) {
                return Err(Errno::EXIST);
            }
            match open_existing(caller, path, how, opening) {
                // Gone meanwhile: it is made. (A node may say so of a name that stays.)
                Err(Errno::NOENT) if ramfs(parent.dentry().super_block()).is_ok() => continue,
                done => return done,
            }
        }
        match create(caller, &parent, &last, opening.mode) {
            Ok(dentry) => {
                let (mount, _) = parent.into_parts();
                return open_place(caller, Path::new(mount, dentry), opening, true);
            }
            Err(Errno::EXIST) if !opening.has(O_EXCL) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn open_existing<'k>(
    caller: &Caller<'_, 'k>,
    path: &[u8],
    how: How,
    opening: Opening,
) -> Result<FileHandle<'k>, Errno> {
    let place = caller.path(path, how)?;
    if inode_of(place.dentry())?.is_dir() {
        return Err(Errno::ISDIR);
    }
    open_place(caller, place, opening, false)
}

/// Makes a file without a name in the filesystem of `place`, whoever may write there, and opens it (`memfd_create`).
///
/// # Errors
/// `ENOSPC`, `ENFILE`, `ENOMEM`.
pub fn open_unnamed<'k>(
    caller: &Caller<'_, 'k>,
    place: &Path<'k>,
    opening: Opening,
) -> Result<FileHandle<'k>, Errno> {
    let dentry = unnamed(caller, place.dentry(), 0o777 | S_IFREG, false)?;
    open_place(caller, Path::new(place.mount().clone(), dentry), opening, true)
}

fn open_tmpfile<'k>(
    caller: &Caller<'_, 'k>,
    place: Path<'k>,
    opening: Opening,
) -> Result<FileHandle<'k>, Errno> {
    let dentry = tmpfile(caller, &place, opening)?;
    let (mount, _) = place.into_parts();
    open_place(caller, Path::new(mount, dentry), opening, true)
}

/// Opens what is at a place. What the caller has just made needs no permission.
#[inline]
fn open_place<'k>(
    caller: &Caller<'_, 'k>,
    place: Path<'k>,
    opening: Opening,
    made: bool,
) -> Result<FileHandle<'k>, Errno> {
    if opening.has(O_PATH) {
        return FileHandle::open_tree(caller.files, place, opening.status(), FileMode::PATH, caller.cred);
    }
    let inode = inode_of(place.dentry())?;
    if !made {
        may_open(caller, &place, inode, opening)?;
    }
    let mode = opening.file_mode();
    if let Some(node) = inode.node()
        && let Some(file) = node.open(&place, caller.files, opening.status(), mode)?
    {
        return Ok(file);
    }
    let leave = if mode.contains(FileMode::WRITE) { Some(place.mount().want_write()?) } else { None };
    if inode.mode() & S_IFMT == S_IFIFO && mode == FileMode::WRITE && opening.has(O_NONBLOCK) {
        // Nobody reads it: data does not go through named pipes yet.
        return Err(Errno::NXIO);
    }
    if matches!(inode.mode() & S_IFMT, S_IFSOCK | S_IFCHR | S_IFBLK) {
        return Err(Errno::NXIO);
    }
    if opening.has(O_DIRECT) && inode.mode() & S_IFMT != S_IFREG {
        return Err(Errno::INVAL);
    }
    // What is made when it is read has no length to be set.
    let made = made || inode.node().is_some();
    if opening.has(O_TRUNC) && !made && inode.mode() & S_IFMT == S_IFREG {
        let _leave = place.mount().want_write()?;
        set_length(caller.vfs, inode, caller.cred, 0, true)?;
        notify::dentry(caller.vfs, place.dentry(), Event::MODIFY);
    }
    notify::dentry(caller.vfs, place.dentry(), Event::OPEN);
    // The file has the leave from here on, and gives it back when it is closed.
    core::mem::forget(leave);
    FileHandle::open_tree(caller.files, place, opening.status(), mode, caller.cred)
}

/// Whether somebody may open a file so (`may_open`).
#[inline]
fn may_open(caller: &Caller<'_, '_>, place: &Path<'_>, inode: &Inode, opening: Opening) -> Result<(), Errno> {
    let access = opening.access();
    match inode.mode() & S_IFMT {
        S_IFREG => {}
        S_IFLNK => return Err(Errno::LOOP),
        S_IFDIR if access.contains(Mask::WRITE) => return Err(Errno::ISDIR),
        S_IFCHR | S_IFBLK if place.mount().flags().contains(MountFlags::NODEV) => return Err(Errno::ACCESS),
        _ => {}
    }
    permission(inode, caller.cred, access)?;
    if opening.has(O_NOATIME) && !ownership(inode).owned_by(caller.cred) {
        return Err(Errno::PERM);
    }
    Ok(())
}
