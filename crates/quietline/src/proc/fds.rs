//! `/proc/PID/fd` and `fdinfo`.

use super::{number, pid};
use crate::raw::KernelRef;
use crate::{Errno, FileHandle, FileMode, PidFd, Pipe, Socket};
use core::fmt::Write as _;
use quietline_vfs::abi::{O_CLOEXEC, S_IFLNK, S_IFREG};
use quietline_vfs::generated::{Link, Made, Names, Target, Text, TextBuffer, TextFile, stand_in};
use quietline_vfs::inotify::{Inotify, WatchInfo};
use quietline_vfs::namei::{ANON_INO, ownership_of_object};
use quietline_vfs::permission::{Mask, Ownership, permission};
use quietline_vfs::{Files, Inode, Node, NodeLink, Path, PathBuffer, Requester, Vfs, file};

/// What `stat` says of the size of such a link.
const LINK_SIZE: u64 = 64;

/// A descriptor of a process.
#[derive(Debug, Clone, Copy)]
struct Fd {
    kernel: KernelRef,
    pid: i32,
    fd: i32,
}

impl Fd {
    /// The file that is open there now.
    fn file<'k>(&self, vfs: &'k Vfs) -> Result<FileHandle<'k>, Errno> {
        let k = self.kernel.get(vfs);
        k.processes
            .with(self.pid, |task| task.table.get(self.fd, &k.files).ok())
            .flatten()
            .ok_or(Errno::NOENT)
    }

    fn is_open(&self, vfs: &Vfs) -> bool {
        let k = self.kernel.get(vfs);
        k.processes.with(self.pid, |task| task.table.cloexec(self.fd).is_ok()) == Some(true)
    }
}

/// The descriptors of a process from a place on, which is a descriptor.
fn list(
    kernel: KernelRef,
    pid: i32,
    vfs: &Vfs,
    from: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> bool,
) -> Result<(), Errno> {
    let mut from = usize::try_from(from).unwrap_or(usize::MAX);
    loop {
        let next = kernel
            .get(vfs)
            .processes
            .with(pid, |task| task.table.next_fd(from))
            .ok_or(Errno::NOENT)?;
        let Some(fd) = next else { return Ok(()) };
        if !each(fd as u64, number::text(fd, &mut [0; 10])) {
            return Ok(());
        }
        from = fd as usize + 1;
    }
}

/// `/proc/PID/fd`.
#[derive(Debug)]
pub(super) struct Fds {
    pub(super) kernel: KernelRef,
    pub(super) pid: i32,
}

/// The mode of a link, which says what the file is open for.
fn link_mode(mode: FileMode) -> u32 {
    let read = if mode.contains(FileMode::READ) { 0o500 } else { 0 };
    let write = if mode.contains(FileMode::WRITE) { 0o300 } else { 0 };
    S_IFLNK | read | write
}

impl Fds {
    fn fd(&self, name: &[u8]) -> Option<Fd> {
        Some(Fd { kernel: self.kernel, pid: self.pid, fd: number::canonical(name)? })
    }
}

impl Names for Fds {
    fn find(&self, vfs: &Vfs, name: &[u8]) -> Result<Option<Made>, Errno> {
        let Some(fd) = self.fd(name) else { return Ok(None) };
        let (Ok(file), Some(owner)) = (fd.file(vfs), pid::owner(self.kernel, vfs, self.pid, 0))
        else {
            return Ok(None);
        };
        let made = Made::new(link_mode(file.mode()), Link(fd))?;
        Ok(Some(Made { owner, size: LINK_SIZE, ..made }))
    }

    fn list(
        &self,
        vfs: &Vfs,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        list(self.kernel, self.pid, vfs, from, each)
    }

    fn changes(&self, _name: &[u8]) -> bool {
        true
    }

    fn still(&self, vfs: &Vfs, name: &[u8], inode: &Inode) -> bool {
        let same_mode = self
            .fd(name)
            .and_then(|fd| fd.file(vfs).ok())
            .is_some_and(|file| link_mode(file.mode()) == inode.mode());
        same_mode && owned_still(self.kernel, vfs, self.pid, inode)
    }

    /// Adds to the mode: a process may always list its own descriptors.
    fn permission(
        &self,
        _vfs: &Vfs,
        inode: &Inode,
        requester: &Requester<'_, '_>,
        mask: Mask,
    ) -> Result<(), Errno> {
        permission(inode, requester.cred, mask)
            .or_else(|errno| if pid::is_own(self.pid, requester) { Ok(()) } else { Err(errno) })
    }
}

/// Whether the inode of a file in a process's directory still has the right owner.
fn owned_still(kernel: KernelRef, vfs: &Vfs, pid: i32, inode: &Inode) -> bool {
    pid::owner(kernel, vfs, pid, inode.mode()) == Some([inode.uid(), inode.gid()])
}

impl Target for Fd {
    fn follow<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
    ) -> Result<NodeLink<'k>, Errno> {
        let vfs = link.dentry().vfs();
        pid::may_inspect(self.kernel, vfs, self.pid, requester)?;
        let file = self.file(vfs)?;
        if let Some(place) = file.place() {
            return Ok(NodeLink::Jump(place.to_path()));
        }
        let ino = file.pseudo_inode().map(|inode| u64::from(inode.i_ino));
        let Ownership { mode, uid, gid } = ownership_of_object(&file);
        let made = Made::new(mode, Object { fd: *self, ino })?;
        stand_in(link, b"object", Made { owner: [uid, gid], ino, ..made }).map(NodeLink::Jump)
    }

    fn name<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
        path: &mut PathBuffer<'_>,
    ) -> Result<(), Errno> {
        let vfs = link.dentry().vfs();
        pid::may_inspect(self.kernel, vfs, self.pid, requester)?;
        let file = self.file(vfs)?;
        if let Some(place) = file.place() {
            return vfs.d_path(&place.to_path(), &requester.fs.root_path(), path).map(drop);
        }
        let mut name = TextBuffer::default();
        let _ = write!(name, "{}", file.name());
        path.prepend(&name.finish()?)
    }
}

/// Stands for the object of a file that is in no tree.
#[derive(Debug)]
struct Object {
    fd: Fd,
    /// Its number, if it has one.
    ino: Option<u64>,
}

impl Node for Object {
    /// Opens a pipe once more. Nothing else can be opened by a path.
    fn open<'k>(
        &self,
        place: &Path<'k>,
        _files: &'k Files,
        flags: i32,
        mode: FileMode,
        _requester: &Requester<'_, 'k>,
    ) -> Result<Option<FileHandle<'k>>, Errno> {
        let file = self.fd.file(place.dentry().vfs()).map_err(|_| Errno::NXIO)?;
        let same =
            file.inode::<Pipe>().is_some_and(|inode| Some(u64::from(inode.i_ino)) == self.ino);
        if same { file.reopen(flags, mode) } else { Err(Errno::NXIO) }
    }
}

/// The mode of a file of `fdinfo`.
const INFO: u32 = S_IFREG | 0o444;

/// `/proc/PID/fdinfo`.
#[derive(Debug)]
pub(super) struct FdInfos {
    pub(super) kernel: KernelRef,
    pub(super) pid: i32,
}

impl Names for FdInfos {
    fn find(&self, vfs: &Vfs, name: &[u8]) -> Result<Option<Made>, Errno> {
        let Some(fd) = number::canonical(name) else { return Ok(None) };
        let fd = Fd { kernel: self.kernel, pid: self.pid, fd };
        let owner = pid::owner(self.kernel, vfs, self.pid, INFO);
        let Some(owner) = owner.filter(|_| fd.is_open(vfs)) else {
            return Ok(None);
        };
        let made = Made::new(INFO, TextFile::new(fd))?;
        Ok(Some(Made { owner, ..made }))
    }

    fn list(
        &self,
        vfs: &Vfs,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        list(self.kernel, self.pid, vfs, from, each)
    }

    fn changes(&self, _name: &[u8]) -> bool {
        true
    }

    fn still(&self, vfs: &Vfs, name: &[u8], inode: &Inode) -> bool {
        let is_open = number::canonical(name)
            .is_some_and(|fd| Fd { kernel: self.kernel, pid: self.pid, fd }.is_open(vfs));
        is_open && owned_still(self.kernel, vfs, self.pid, inode)
    }

    /// Restricts the mode: only a process that may inspect this one may use the directory.
    fn permission(
        &self,
        vfs: &Vfs,
        inode: &Inode,
        requester: &Requester<'_, '_>,
        mask: Mask,
    ) -> Result<(), Errno> {
        pid::may_inspect(self.kernel, vfs, self.pid, requester).map_err(|_| Errno::ACCESS)?;
        permission(inode, requester.cred, mask)
    }
}

impl Text for Fd {
    fn show(&self, vfs: &Vfs, out: &mut TextBuffer) -> Result<(), Errno> {
        let k = self.kernel.get(vfs);
        let found = k.processes.with(self.pid, |task| {
            // The file last: it is not to be dropped here.
            let cloexec = task.table.cloexec(self.fd)?;
            Ok((task.table.get(self.fd, &k.files)?, cloexec))
        });
        let found = found.and_then(|found: Result<_, Errno>| found.ok());
        let (file, cloexec) = found.ok_or(Errno::NOENT)?;
        let pos = file::offset(&file);
        let flags = file.flags() | if cloexec { O_CLOEXEC } else { 0 };
        let (mount, ino) = match file.place() {
            Some(place) => (place.mount().id(), place.dentry().inode().map_or(0, Inode::ino)),
            None => {
                let inode = file.inode::<Pipe>().or_else(|| file.inode::<Socket>());
                (file.mount().internal_id(), inode.map_or(ANON_INO, |inode| inode.i_ino.into()))
            }
        };
        let _ = write!(out, "pos:\t{pos}\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t{ino}\n");
        if let Some(process) = file.payload::<PidFd>() {
            let pid = if process.signals().is_reaped() { -1 } else { process.pid() };
            let _ = write!(out, "Pid:\t{pid}\nNSpid:\t{pid}\n");
        }
        if let Some(inotify) = file.payload::<Inotify>() {
            for WatchInfo { wd, ino, dev, mask } in inotify.list()? {
                // The space is Linux's: a handle follows it where the filesystem has handles.
                let _ = writeln!(
                    out,
                    "inotify wd:{wd:x} ino:{ino:x} sdev:{dev:x} mask:{mask:x} ignored_mask:0 "
                );
            }
        }
        Ok(())
    }
}
