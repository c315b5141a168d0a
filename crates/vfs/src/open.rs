//! Opening files of the tree.
//!
//! Opening what is there takes three references: to the dentry, to the mount (a word of the CPU's own), and the file. What is
//! made is made under the directory's lock and opened by the reference that making gave.

mod flags;

use flags::TMPFILE;
pub use flags::{OpenHow, Opening};

use crate::abi::{
    O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDWR,
    O_TRUNC, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
};
use crate::cred::CredCell;
use crate::dcache::name::Name;
use crate::dentry::Dentry;
use crate::file::{FileMode, Files};
use crate::inode::{Content, Inode, InodeFlags};
use crate::namei::{
    Caller, New, create, inode_of, is_foreign, is_foreign_dir, make_foreign, memfd, not_removed,
    ownership, ramfs, set_length, tmpfile,
};
use crate::namespace::MountFlags;
use crate::notify::{self, Event};
use crate::operations::RESTART;
use crate::permission::{Mask, permission};
use crate::raw::dcache::locked::LockedDir;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::dcache::seen::{Seen, Step};
use crate::raw::handle::{FileHandle, UnopenedFile};
use crate::raw::mount::{Leave, MountRef, Writing};
use crate::raw::walk_path::{Debris, Path};
use crate::vfs::Vfs;
use crate::walk::{How, Last, LastKind, Lookup, Resolve, Start};
use core::cell::Cell;
use rustix::io::Errno;

/// The result of [`open`].
#[derive(Debug)]
#[must_use = "a named pipe is not open yet"]
pub enum OpenResult<'k> {
    /// An open file.
    File(FileHandle<'k>),
    /// A named pipe that the caller may open.
    Fifo(FifoOpening<'k>),
}

/// A named pipe that a caller may open, and has not opened yet: [`finish`](Self::finish) may wait
/// for the other end.
///
/// It borrows neither credentials nor a read section, so its owner leaves them before it waits.
#[derive(Debug)]
#[must_use = "the named pipe is not open yet"]
pub struct FifoOpening<'k> {
    place: Path<'k>,
    opening: Opening,
    /// The number of the credentials that permitted it.
    opener: u32,
}

/// Opens the file at a path, and perhaps makes it (`openat2`). Does not wait for another process.
///
/// # Errors
/// As the system call. Sockets, and devices that are not an embedder's: `ENXIO`.
#[inline]
pub fn open<'k>(
    caller: &Caller<'_, 'k>,
    path: &[u8],
    opening: Opening,
) -> Result<OpenResult<'k>, Errno> {
    if opening.has(O_CREAT) {
        return open_or_create_slow(caller, path, opening);
    }
    let mut how = how(opening);
    how.lookup.set(Lookup::DIRECTORY, opening.has(O_DIRECTORY));
    let place = caller.path(path, how)?;
    if opening.is_tmpfile() {
        return open_tmpfile(caller, place, opening).map(OpenResult::File);
    }
    open_found(caller, place, opening)
}

/// [`open`] for an existing regular file or directory, with credentials that are read in the walk's
/// own section.
///
/// Returns `None`, with no effect, if the walk must wait or the file or the flags need [`open`]'s
/// other steps.
///
/// # Errors
/// As [`open`].
#[inline]
pub fn open_fast<'k>(
    vfs: &'k Vfs,
    files: &'k Files,
    start: Start<'_, 'k>,
    cred: &impl CredCell,
    path: &[u8],
    opening: Opening,
) -> Option<Result<FileHandle<'k>, Errno>> {
    if opening.flags & SPECIAL != 0 || opening.resolve != 0 {
        return None;
    }
    let mut lookup = Lookup::empty();
    lookup.set(Lookup::FOLLOW, !opening.has(O_NOFOLLOW));
    lookup.set(Lookup::DIRECTORY, opening.has(O_DIRECTORY));
    let mode = opening.file_mode();
    let mut debris = Debris::default();
    let (place, opener) = {
        let section = vfs.read();
        let cred = cred.load_in_walk(&section);
        let spot = match vfs.walk_fast(start, path, How::of(lookup), cred, &section) {
            Ok(spot) => spot,
            Err(Some(errno)) => return Some(Err(errno)),
            Err(None) => return None,
        };
        let inode = spot.seen.inode()?;
        let openable = match inode.mode() & S_IFMT {
            S_IFREG => true,
            S_IFDIR => mode == FileMode::READ,
            _ => false,
        };
        let generated = inode.flags().contains(InodeFlags::NODE);
        if !openable || generated || permission(inode, cred, opening.access()).is_err() {
            return None;
        }
        // The dentry is checked again once it is counted.
        (spot.acquire(vfs, &section, &mut debris)?, cred.id())
    };
    if mode.contains(FileMode::WRITE) {
        match place.mount().want_write() {
            Ok(leave) => leave.keep(),
            Err(errno) => return Some(Err(errno)),
        }
    }
    Some(open_told(vfs, files, place, opening, mode, opener))
}

/// Flags that [`open_fast`] leaves to [`open`].
const SPECIAL: i32 = O_CREAT | O_EXCL | O_TRUNC | O_PATH | O_DIRECT | O_NOATIME | TMPFILE;

#[inline(always)]
fn how(opening: Opening) -> How {
    let mut lookup = Lookup::empty();
    lookup.set(Lookup::FOLLOW, opening.follows());
    How { lookup, resolve: Resolve::from_bits_truncate(opening.resolve) }
}

#[inline(never)]
fn open_or_create_slow<'k>(
    caller: &Caller<'_, 'k>,
    path: &[u8],
    opening: Opening,
) -> Result<OpenResult<'k>, Errno> {
    open_or_create_in_line(caller, path, opening)
}

/// [`open`] with `O_CREAT`, in line: for one caller.
///
/// Returns `None`, with no effect, for a named pipe, which [`open`] opens, and where a method of an
/// embedder is needed.
///
/// # Errors
/// As [`open`].
#[inline(always)]
pub fn open_or_create<'k>(
    caller: &Caller<'_, 'k>,
    path: &[u8],
    opening: Opening,
) -> Option<Result<FileHandle<'k>, Errno>> {
    match open_or_create_in_line(caller, path, opening) {
        Ok(OpenResult::File(file)) => Some(Ok(file)),
        Ok(OpenResult::Fifo(_)) | Err(RESTART) => None,
        Err(errno) => Some(Err(errno)),
    }
}

#[inline(always)]
fn open_or_create_in_line<'k>(
    caller: &Caller<'_, 'k>,
    path: &[u8],
    opening: Opening,
) -> Result<OpenResult<'k>, Errno> {
    // Before anything is made: a call that fails leaves no name.
    if !caller.files.may_open() {
        return Err(Errno::NFILE);
    }
    let how = how(opening);
    // Made as seldom as not: looked for under the lock only if it is to be made.
    let mut there = false;
    let wanted = |dir: Seen<'_, 'k>, name: &Name<'_>, slash: bool| {
        // What must be new is not looked for twice. A link may lead to a path that ends with a slash, or to a name that is not
        // there.
        let is_link = if opening.has(O_EXCL) { None } else { child_is_link(dir, name) };
        // A path with restrictions may begin elsewhere.
        there = !slash && is_link == Some(false) && how.resolve.is_empty();
        !slash && is_link.is_none() && how.resolve.is_empty()
    };
    // Errors go another way than files do, which travel in registers then.
    let failed = Cell::new(Errno::AGAIN);
    let locked = |dir: &LockedDir<'k>, leave: Leave<'_>, name: &Name<'_>| {
        create_name(caller, leave, dir, name, opening).map_err(|errno| failed.set(errno)).ok()
    };
    let unlocked =
        |mount, created: Option<Created<'k>>| Some(open_created(caller, mount, created?, opening));
    let quick =
        caller.vfs.quick_keeping(&caller.start, path, caller.cred, wanted, locked, unlocked);
    let found = match quick {
        Some(Some(file)) => return Ok(OpenResult::File(file)),
        None if there => existing(caller, path, how),
        _ => Err(failed.get()),
    };
    match found {
        // Errors of the open itself are the call's: a method of an embedder runs once.
        Ok(place) => open_found(caller, place, opening),
        // It has come, or gone meanwhile, or all is out of the ordinary.
        Err(Errno::EXIST) if opening.has(O_EXCL) => Err(Errno::EXIST),
        Err(Errno::EXIST | Errno::NOENT | Errno::AGAIN) => {
            open_or_create_odd(caller, path, how, opening)
        }
        Err(errno) => Err(errno),
    }
}

/// How often a file of an embedder is looked for that is said to be there and not to be there.
const FOREIGN_TRIES: u32 = 40;

/// `open` with `O_CREAT` where something is out of the ordinary.
#[cold]
#[inline(never)]
fn open_or_create_odd<'k>(
    caller: &Caller<'_, 'k>,
    path: &[u8],
    how: How,
    opening: Opening,
) -> Result<OpenResult<'k>, Errno> {
    // Answers of an embedder may contradict each other for ever.
    let mut tries = 0..FOREIGN_TRIES;
    loop {
        let (place, last) = caller.parent(path, how)?;
        if last.kind() != LastKind::Name || last.has_slash() {
            drop(place);
            return open_nameless(caller, path, how, opening);
        }
        let is_foreign = is_foreign_dir(place.dentry());
        let again = !is_foreign || tries.next().is_some();
        // A node may say of a name that stays that it has gone.
        let goes = is_foreign || ramfs(place.dentry().super_block()).is_ok();
        let found = |name: Name<'_>| {
            child_is_link(place.dentry().seen(&caller.vfs.read()), &name).is_some()
        };
        let there = !opening.has(O_EXCL) && caller.vfs.name(last.bytes()).is_ok_and(found);
        if there {
            match existing(caller, path, how) {
                Ok(place) => return open_found(caller, place, opening),
                // Gone meanwhile: once more.
                Err(Errno::NOENT) if again && goes => {}
                Err(errno) => return Err(errno),
            }
        } else {
            match create_in(caller, place, &last, opening) {
                // Come meanwhile: once more.
                Err(Errno::EXIST) if again && !opening.has(O_EXCL) => {}
                // Errors of the open itself are the call's.
                created => return created?.map(OpenResult::File),
            }
        }
    }
}

/// Whether a name in a directory stands for a symbolic link, as it was at one moment; none if it stands for nothing.
#[inline]
fn child_is_link(dir: Seen<'_, '_>, name: &Name<'_>) -> Option<bool> {
    let Step::Found(child) = dir.child(name) else { return None };
    child.inode().map(Inode::is_symlink)
}

/// A regular file with a new name, and the open file for it.
struct Created<'k> {
    dentry: DentryRef<'k>,
    file: UnopenedFile<'k>,
}

/// Creates a regular file in a locked directory, with leave to write in the mount. The caller has
/// the leave from there on. The limit on open files has permitted one more.
///
/// The open file is allocated before the name is made, so that no call makes a name and fails.
#[inline(always)]
fn create_name<'k>(
    caller: &Caller<'_, 'k>,
    leave: Leave<'_>,
    dir: &LockedDir<'k>,
    name: &Name<'_>,
    opening: Opening,
) -> Result<Created<'k>, Errno> {
    not_removed(dir.inode())?;
    let file = UnopenedFile::alloc_permitted(caller.files)?;
    match create(caller, dir, name, opening.mode, leave.as_ref().err().copied()) {
        Ok(dentry) => {
            if let Ok(leave) = leave {
                leave.keep();
            }
            Ok(Created { dentry, file })
        }
        Err(errno) => Err(errno),
    }
}

/// Makes and opens a regular file in a directory that another call may have locked, or that is
/// watched. Returns the result of the open.
fn create_in<'k>(
    caller: &Caller<'_, 'k>,
    place: Path<'k>,
    last: &Last<'_>,
    opening: Opening,
) -> Result<Result<FileHandle<'k>, Errno>, Errno> {
    if is_foreign_dir(place.dentry()) {
        let new = New::Node(S_IFREG | opening.mode, 0);
        let leave = place.mount().want_write();
        let (made, name) = make_foreign(caller, &place, last, new, &leave)?;
        let entered = made.enter(place.dentry(), &name);
        notify::name(caller.vfs, place.dentry(), last.bytes(), Event::CREATE, false);
        let (dentry, made) = entered?;
        // Another thread has looked the name up, and permissions are asked for the file that it has found.
        let place = Path::new(place.mount().clone(), dentry);
        return match made || opening.has(O_EXCL) {
            true => Ok(open_place(caller, place, opening, made)),
            false => Err(Errno::EXIST),
        };
    }
    let (mount, dir) = place.into_parts();
    let leave = mount.want_write();
    let dir = LockedDir::lock(dir)?;
    let name = not_removed(dir.inode()).and_then(|()| caller.vfs.name(last.bytes()))?;
    let created = create_name(caller, leave, &dir, &name, opening)?;
    let parent = dir.dir().clone();
    drop(dir);
    notify::name(caller.vfs, &parent, last.bytes(), Event::CREATE, false);
    Ok(Ok(open_created(caller, mount, created, opening)))
}

/// Opens a new regular file, with leave to write in the mount. The file has the leave from there
/// on, or it is given back.
#[inline(always)]
fn open_created<'k>(
    caller: &Caller<'_, 'k>,
    mount: MountRef<'k>,
    Created { dentry, file }: Created<'k>,
    opening: Opening,
) -> FileHandle<'k> {
    let mode = opening.file_mode();
    if !mode.contains(FileMode::WRITE) {
        mount.drop_write();
    }
    let place = Path::new(mount, dentry);
    let file = file.open(place, opening.status(), mode, caller.cred.id());
    if notify::is_on(caller.vfs) {
        tell_opened(caller.vfs, &file);
    }
    file
}

/// Opens a file, with leave to write if `mode` needs it, and reports it to the watches of the file
/// before any other event of it.
#[inline(always)]
fn open_told<'k>(
    vfs: &'k Vfs,
    files: &'k Files,
    place: Path<'k>,
    opening: Opening,
    mode: FileMode,
    opener: u32,
) -> Result<FileHandle<'k>, Errno> {
    match FileHandle::open_tree(files, place, opening.status(), mode, opener) {
        Ok(file) => {
            if notify::is_on(vfs) {
                tell_opened(vfs, &file);
            }
            Ok(file)
        }
        Err(errno) => Err(errno),
    }
}

/// Reports an open to the watches of the file.
#[cold]
#[inline(never)]
fn tell_opened(vfs: &Vfs, file: &FileHandle<'_>) {
    if let Some((_, dentry)) = file.opened().tree() {
        notify::file(vfs, dentry, Event::OPEN);
    }
}

/// `open` with `O_CREAT` of a path that does not end with a name.
#[cold]
fn open_nameless<'k>(
    caller: &Caller<'_, 'k>,
    path: &[u8],
    how: How,
    opening: Opening,
) -> Result<OpenResult<'k>, Errno> {
    let (_parent, last) = caller.parent(path, how)?;
    match last.kind() {
        LastKind::Jumped => open_found(caller, existing(caller, path, how)?, opening),
        LastKind::Name => Err(Errno::ISDIR),
        _ => {
            caller.path(path, how)?;
            Err(if opening.has(O_EXCL) { Errno::EXIST } else { Errno::ISDIR })
        }
    }
}

/// Walks to what is there, for `open` with `O_CREAT`.
fn existing<'k>(caller: &Caller<'_, 'k>, path: &[u8], how: How) -> Result<Path<'k>, Errno> {
    let place = caller.path(path, how)?;
    let inode = inode_of(place.dentry())?;
    if inode.is_dir() {
        return Err(Errno::ISDIR);
    }
    if !matches!(inode.mode() & S_IFMT, S_IFREG | S_IFIFO) {
        let dir = place.dentry().parent();
        if !ownership(inode_of(&dir)?).lets_create_over(caller.cred, inode.uid()) {
            return Err(Errno::ACCESS);
        }
    }
    Ok(place)
}

/// Creates a file in memory in the filesystem of `root`, the root of a mount that no path leads to,
/// and opens it (`memfd_create`). `/proc` shows `name`.
///
/// # Errors
/// `ENOSPC`, `ENFILE`, `ENOMEM`.
pub fn open_memfd<'k>(
    caller: &Caller<'_, 'k>,
    root: &Path<'k>,
    name: &[u8],
) -> Result<FileHandle<'k>, Errno> {
    let dentry = memfd(caller, root.dentry(), name)?;
    let place = Path::new(root.mount().clone(), dentry);
    open_place(caller, place, Opening::new(O_RDWR, 0)?, true)
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

/// Keeps leave to write, if there is any, for a file.
#[inline(always)]
fn keep(leave: Option<Writing<'_>>) {
    if let Some(leave) = leave {
        leave.keep();
    }
}

/// Opens what a walk has found.
#[inline]
fn open_found<'k>(
    caller: &Caller<'_, 'k>,
    place: Path<'k>,
    opening: Opening,
) -> Result<OpenResult<'k>, Errno> {
    if !opening.has(O_PATH) {
        let inode = inode_of(place.dentry())?;
        if let Content::Fifo(_) = inode.content() {
            may_open(caller, &place, inode, opening)?;
            let opener = caller.cred.id();
            return Ok(OpenResult::Fifo(FifoOpening { place, opening, opener }));
        }
    }
    open_place(caller, place, opening, false).map(OpenResult::File)
}

/// Opens a file that is no named pipe. A file that the caller has just made needs no permission.
#[inline]
fn open_place<'k>(
    caller: &Caller<'_, 'k>,
    place: Path<'k>,
    opening: Opening,
    made: bool,
) -> Result<FileHandle<'k>, Errno> {
    if opening.has(O_PATH) {
        return FileHandle::open_tree(
            caller.files,
            place,
            opening.status(),
            FileMode::PATH,
            caller.cred.id(),
        );
    }
    let inode = inode_of(place.dentry())?;
    if !made {
        may_open(caller, &place, inode, opening)?;
    }
    let mode = opening.file_mode();
    if let Some(node) = inode.node() {
        let requester = caller.requester();
        if let Some(file) = node.open(&place, caller.files, opening.status(), mode, &requester)? {
            return Ok(file);
        }
        if is_foreign(node) {
            return open_foreign(caller, place, opening, made);
        }
    }
    // Before the leave to write, which special files do not need.
    if matches!(inode.mode() & S_IFMT, S_IFSOCK | S_IFCHR | S_IFBLK) {
        return Err(Errno::NXIO);
    }
    let leave =
        if mode.contains(FileMode::WRITE) { Some(place.mount().want_write()?) } else { None };
    if opening.has(O_DIRECT) && inode.mode() & S_IFMT != S_IFREG {
        return Err(not_direct(caller.vfs, place.dentry(), mode));
    }
    if inode.node().is_some() {
        keep(leave);
        return open_generated(caller, place, opening);
    }
    if opening.has(O_TRUNC) && !made && inode.mode() & S_IFMT == S_IFREG {
        keep(leave);
        return open_emptied(caller, place, opening);
    }
    // The file has the leave from here on, and gives it back when it is closed.
    keep(leave);
    open_told(caller.vfs, caller.files, place, opening, mode, caller.cred.id())
}

/// Opens a file with content made when it is read. It has no length to be set. If it is for
/// writing, the caller gives leave to write in the mount.
#[cold]
#[inline(never)]
fn open_generated<'k>(
    caller: &Caller<'_, 'k>,
    place: Path<'k>,
    opening: Opening,
) -> Result<FileHandle<'k>, Errno> {
    let (vfs, opener) = (caller.vfs, caller.cred.id());
    let file = open_told(vfs, caller.files, place, opening, opening.file_mode(), opener)?;
    let opened = file.opened();
    if let Some((_, dentry)) = opened.tree()
        && let Some(node) = dentry.inode().and_then(Inode::node)
    {
        node.opened(vfs, opened.id(), opening.flags, &caller.requester())?;
    }
    Ok(file)
}

/// Opens a file of an embedder.
#[cold]
#[inline(never)]
fn open_foreign<'k>(
    caller: &Caller<'_, 'k>,
    place: Path<'k>,
    opening: Opening,
    made: bool,
) -> Result<FileHandle<'k>, Errno> {
    let (inode, mode) = (inode_of(place.dentry())?, opening.file_mode());
    let truncates = opening.has(O_TRUNC) && !made && inode.is_file();
    // `O_TRUNC` alone needs leave to write, too. A device needs none.
    let mount = place.mount().clone();
    let writes = mode.contains(FileMode::WRITE) && inode.mode() & S_IFMT != S_IFCHR;
    let mut leave = if writes || truncates { Some(mount.want_write()?) } else { None };
    if opening.has(O_DIRECT) && !inode.is_file() {
        return Err(not_direct(caller.vfs, place.dentry(), mode));
    }
    if writes {
        keep(leave.take());
    }
    let file = open_generated(caller, place, opening)?;
    if truncates
        && let Some((_, dentry)) = file.opened().tree()
        && let Some(inode) = dentry.inode()
    {
        let event = set_length(caller, inode, 0, true)?;
        notify::dentry(caller.vfs, dentry, event);
    }
    drop(leave);
    Ok(file)
}

/// What is no regular file is not for `O_DIRECT`, which Linux finds out so late that it tells of the end of what never began.
#[cold]
fn not_direct(vfs: &Vfs, dentry: &Dentry, mode: FileMode) -> Errno {
    let event =
        if mode.contains(FileMode::WRITE) { Event::CLOSE_WRITE } else { Event::CLOSE_NOWRITE };
    notify::file(vfs, dentry, event);
    Errno::INVAL
}

/// Opens a regular file and makes it empty: one that cannot be opened keeps what it has. If it is for writing, the caller gives
/// leave to write in the mount.
fn open_emptied<'k>(
    caller: &Caller<'_, 'k>,
    place: Path<'k>,
    opening: Opening,
) -> Result<FileHandle<'k>, Errno> {
    let mode = opening.file_mode();
    // Once: who makes the mount read-only waits for who has begun.
    let mount = (!mode.contains(FileMode::WRITE)).then(|| place.mount().clone());
    let _leave = mount.as_ref().map(|mount| mount.want_write()).transpose()?;
    let file = open_told(caller.vfs, caller.files, place, opening, mode, caller.cred.id())?;
    if let Some((_, dentry)) = file.opened().tree()
        && let Some(inode) = dentry.inode()
    {
        let event = set_length(caller, inode, 0, true)?;
        notify::dentry(caller.vfs, dentry, event);
    }
    Ok(file)
}

impl<'k> FifoOpening<'k> {
    /// Opens the named pipe for the user `uid`. Waits for the other end, unless the flags say
    /// otherwise.
    ///
    /// The file takes no leave to write. As on Linux, a read-only mount does not forbid it, and it
    /// does not keep a mount writable.
    ///
    /// # Errors
    /// `ENXIO` for a non-blocking writer without a reader; `EINTR`; `EINVAL` for the fourth access
    /// mode and for `O_DIRECT`; `ENFILE`, `ENOMEM`.
    pub fn finish(self, vfs: &Vfs, files: &'k Files, uid: u32) -> Result<FileHandle<'k>, Errno> {
        let Self { place, opening, opener } = self;
        let (mode, dentry) = (opening.file_mode(), place.dentry().clone());
        let Content::Fifo(fifo) = inode_of(&dentry)?.content() else { return Err(Errno::NXIO) };
        if mode.is_empty() {
            return Err(Errno::INVAL);
        }
        // Before the wait: the limit on open files refuses a call that has had no effect.
        let file = UnopenedFile::alloc(files)?;
        let since = fifo.open(vfs, mode, opening.has(O_NONBLOCK), uid)?;
        if opening.has(O_DIRECT) {
            let errno = not_direct(vfs, &dentry, mode);
            fifo.pipe().expect("it has just been opened").closed(mode);
            return Err(errno);
        }
        let file = file.open(place, opening.status(), mode, opener);
        file.set_since(since);
        notify::file(vfs, &dentry, Event::OPEN);
        Ok(file)
    }
}

/// Whether somebody may open a file so (`may_open`).
#[inline]
fn may_open(
    caller: &Caller<'_, '_>,
    place: &Path<'_>,
    inode: &Inode,
    opening: Opening,
) -> Result<(), Errno> {
    let access = opening.access();
    match inode.mode() & S_IFMT {
        S_IFREG => {}
        S_IFLNK => return Err(Errno::LOOP),
        S_IFDIR if access.contains(Mask::WRITE) => return Err(Errno::ISDIR),
        S_IFCHR | S_IFBLK if place.mount().flags().contains(MountFlags::NODEV) => {
            return Err(Errno::ACCESS);
        }
        _ => {}
    }
    caller.may(inode, access)?;
    if opening.has(O_NOATIME) && !ownership(inode).owned_by(caller.cred) {
        return Err(Errno::PERM);
    }
    Ok(())
}
