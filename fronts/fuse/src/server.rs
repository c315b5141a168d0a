//! Requests, answered.
//!
//! Above 400 lines because the trait is one block, with long signatures; what takes more than a call is in the modules below.

mod change;
mod data;
mod listing;
mod lookup;

use crate::answer::{LONG, Numbers, errno, set_time};
use crate::makers::Makers;
use crate::nodes::Nodes;
use crate::options::Options;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle as Fh, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use quietline::abi::{O_ANYFD, O_DIRECTORY, O_NOATIME, O_RDONLY, S_IFDIR, S_IFREG, Stat};
use quietline::{Config, Errno, FileHandle, Kernel, Process};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// An inode's number is of one inode for ever.
const GENERATION: Generation = Generation(0);

/// One kernel's files, served.
#[derive(Debug)]
pub(crate) struct Server {
    base: &'static Process,
    root: FileHandle<'static>,
    numbers: Numbers,
    nodes: Nodes,
    makers: Makers,
    noatime: bool,
}

/// A descriptor for as long as a request lasts.
#[derive(Debug)]
struct Fd<'p> {
    process: &'p Process,
    fd: i32,
}

impl<'p> Fd<'p> {
    fn new(process: &'p Process, file: FileHandle<'_>) -> Result<Self, Errno> {
        Ok(Self { process, fd: process.install_file(file, O_ANYFD)? })
    }

    fn stat(&self) -> Result<Stat, Errno> {
        self.process.fstat(self.fd)
    }
}

impl Drop for Fd<'_> {
    fn drop(&mut self) {
        // It is open, and ours alone.
        let _ = self.process.close(self.fd);
    }
}

impl Server {
    /// A kernel with an empty tree, as the options say.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(options: &Options) -> Result<Self, Errno> {
        let mut config = Config::default().privileged(true).root_mode(options.mode);
        if let Some(size) = options.size {
            config = config.fs_size(size);
        }
        if let Some(inodes) = options.nr_inodes {
            config = config.fs_inodes(inodes);
        }
        let kernel = Kernel::boot(config)?;
        // The files live as long as there is something to serve, which is as long as this program: nodes borrow it.
        let base: &'static Process = Box::leak(Box::new(kernel.process()?));
        base.umask(0);
        base.chown("/", options.uid, options.gid)?;
        let atime = if options.noatime { O_NOATIME } else { 0 };
        let root =
            base.openat_file(quietline::abi::AT_FDCWD, "/", O_RDONLY | O_DIRECTORY | atime, 0)?;
        let numbers = Numbers { root: base.stat("/")?.st_ino };
        let (nodes, makers) = (Nodes::new(), Makers::new(kernel));
        Ok(Self { base, root, numbers, nodes, makers, noatime: options.noatime })
    }

    /// A node, as a descriptor of a process.
    fn fd_of<'p>(&self, process: &'p Process, node: INodeNo) -> Result<Fd<'p>, Errno> {
        let file =
            if node == INodeNo::ROOT { self.root.clone() } else { self.nodes.get(node.0)? };
        Fd::new(process, file)
    }

    /// A node, as a descriptor.
    fn fd(&self, node: INodeNo) -> Result<Fd<'static>, Errno> {
        self.fd_of(self.base, node)
    }
}

/// Answers an entry, or that there is none.
fn entry(server: &Server, result: Result<Stat, Errno>, reply: ReplyEntry) {
    match result {
        Ok(stat) => reply.entry(&LONG, &server.numbers.attr(&stat), GENERATION),
        Err(error) => reply.error(errno(error)),
    }
}

fn empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn written(result: Result<usize, Errno>, reply: ReplyWrite) {
    match result {
        Ok(n) => reply.written(n as u32),
        Err(error) => reply.error(errno(error)),
    }
}

/// Answers how long an attribute is, or the attribute if the host has room for it.
fn attribute(size: u32, get: impl FnOnce(&mut [u8]) -> Result<usize, Errno>, reply: ReplyXattr) {
    let mut buffer = vec![0; size as usize];
    match get(&mut buffer) {
        Ok(n) if size == 0 => reply.size(n as u32),
        Ok(n) => reply.data(&buffer[..n]),
        Err(error) => reply.error(errno(error)),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ];
        for flag in wanted {
            if let Err(missing) = config.add_capabilities(flag) {
                log::info!("this kernel's FUSE has not {missing:?}");
            }
        }
        // One request for a write of a megabyte; what is refused stays as it was.
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        log::debug!("unmounted; the host had {} nodes", self.nodes.len());
        self.nodes.clear();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find_in(parent, name.as_bytes()) {
            // That a name is not there may be believed, too.
            Err(Errno::NOENT) => {
                let nothing = Stat { st_mode: S_IFREG, ..Stat::default() };
                reply.entry(&LONG, &self.numbers.attr(&nothing), GENERATION);
            }
            result => entry(self, result, reply),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, tellings: u64) {
        self.nodes.forget(node.0, tellings);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<Fh>, reply: ReplyAttr) {
        match self.fd(node).and_then(|fd| fd.stat()) {
            Ok(stat) => reply.attr(&LONG, &self.numbers.attr(&stat)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<Fh>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let owner = [uid, gid].map(|id| id.unwrap_or(u32::MAX));
        let times = [atime, mtime].map(set_time);
        match self.set(node, size, owner, mode, times, request.uid() == 0) {
            Ok(stat) => reply.attr(&LONG, &self.numbers.attr(&stat)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let mut body = [0; quietline::abi::PATH_MAX];
        match self.fd(node).and_then(|fd| self.base.readlinkat(fd.fd, "", &mut body)) {
            Ok(n) => reply.data(&body[..n]),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes();
        entry(
            self,
            self.make(request, parent, name, |maker, dir| {
                maker.mknodat(dir, name, mode, rdev.into())
            }),
            reply,
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let (name, mode) = (name.as_bytes(), mode & !S_IFDIR);
        entry(
            self,
            self.make(request, parent, name, |maker, dir| maker.mkdirat(dir, name, mode)),
            reply,
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target) = (name.as_bytes(), target.as_os_str().as_bytes());
        entry(
            self,
            self.make(request, parent, name, |maker, dir| maker.symlinkat(target, dir, name)),
            reply,
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(request, parent, name.as_bytes(), mode, flags) {
            Ok(stat) => {
                let attr = self.numbers.attr(&stat);
                reply.created(
                    &LONG,
                    &attr,
                    GENERATION,
                    Fh(0),
                    FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
                );
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            self.fd(parent).and_then(|dir| self.base.unlinkat(dir.fd, name.as_bytes(), 0)),
            reply,
        );
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.fd(parent).and_then(|dir| {
            self.base.unlinkat(dir.fd, name.as_bytes(), quietline::abi::AT_REMOVEDIR)
        });
        empty(removed, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.fd(parent).and_then(|from| {
            let to = self.fd(newparent)?;
            self.base.renameat2(from.fd, name.as_bytes(), to.fd, newname.as_bytes(), flags.bits())
        });
        empty(renamed, reply);
    }

    fn link(
        &self,
        _: &Request,
        node: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        entry(self, self.link_to(node, newparent, newname.as_bytes()), reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // A node is open: the host need not ask, now nor for any other file.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(Fh(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: Fh,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.read_at(node, offset, size as usize, |read| match read {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: Fh,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        written(
            self.write_at(node, offset, data, flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)),
            reply,
        );
    }

    fn flush(&self, _: &Request, _: INodeNo, _: Fh, _: LockOwner, reply: ReplyEmpty) {
        // Nothing waits to be written; the host need not ask again.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: Fh, _: bool, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: Fh, _: bool, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: Fh, offset: u64, mut reply: ReplyDirectory) {
        match self.list(node, offset, |_, entry| {
            let number = INodeNo(self.numbers.node(entry.ino));
            !reply.add(
                number,
                entry.next as u64,
                crate::answer::entry_kind(entry.kind),
                OsStr::from_bytes(entry.name),
            )
        }) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        _: Fh,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.list(node, offset, |dir, entry| self.add_told(dir, &entry, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.base.statfs("/") {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namelen as u32,
                s.f_frsize as u32,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        empty(
            self.with_attributes(node, |fd| self.base.fsetxattr(fd, name.as_bytes(), value, flags)),
            reply,
        );
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let get = |to: &mut [u8]| {
            self.with_attributes(node, |fd| self.base.fgetxattr(fd, name.as_bytes(), to))
        };
        attribute(size, get, reply);
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let list =
            |to: &mut [u8]| match self.with_attributes(node, |fd| self.base.flistxattr(fd, to)) {
                Err(Errno::OPNOTSUPP) => Ok(0),
                result => result,
            };
        attribute(size, list, reply);
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.with_attributes(node, |fd| self.base.fremovexattr(fd, name.as_bytes())), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: Fh,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(self.allocate(node, offset, length, mode, request.uid() == 0), reply);
    }

    fn lseek(
        &self,
        _: &Request,
        node: INodeNo,
        _: Fh,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.fd(node).and_then(|fd| self.base.lseek(fd.fd, offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: Fh,
        from_offset: u64,
        to: INodeNo,
        _: Fh,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        written(self.copy([from, to], [from_offset, to_offset], len, request.uid() == 0), reply);
    }
}
