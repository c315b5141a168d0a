//! Embedders' file systems: traits in safe Rust, and how the kernel calls them.
//!
//! # The problem
//!
//! A sandbox has files that no copy in memory can be: those of an archive, of a database, of the
//! host. Their author knows how to find and read them, and should not have to know what a path
//! walk, a dentry or a grace period is. Their code may sleep, panic, be wrong, or call the same
//! kernel.
//!
//! # The contended way
//!
//! A FUSE server is asked by messages. A virtual file system of a library typically calls the file
//! system for each component of each path, under its own lock.
//!
//! # Our way
//!
//! ```text
//!   stat, open, ...   RCU walk: dentries only ── hit: as for tmpfs, no call
//!                        │ miss, or the validity time is over
//!                     ends with RESTART: sections are closed
//!                        │ the call begins anew, with a copy of the credentials
//!                     walk by reference ── lookup / revalidate / getattr ── dentry, inode
//!   read, getdents    the open file ── read_at / read_dir
//!   write, ioctl      the open file ── write_at / append / ioctl: EAGAIN ── wait, ask again
//!   poll, epoll       its readiness: no call
//! ```
//!
//! * [`FileSystem`] is the whole: its root and its `statfs`.
//! * [`InodeOps`] is one file, directory or symbolic link. The dentry cache keeps what `lookup`
//!   returns, until its validity time ([`Entry::valid`]) is over or memory is reclaimed.
//! * [`FileOps`] is an open file. An inode is one itself, unless `open` returns another object.
//! * [`Readiness`] says which events an open file has. Pollers read it, and the embedder wakes them.
//!
//! A method that is not implemented fails as Linux does for a file system without it.
//!
//! # Guarantees
//!
//! * No method runs in an RCU read-side critical section, under a lock of the kernel, or while the
//!   caller's credentials are borrowed. A method may sleep, and may call the kernel and the process
//!   that called it. A [`Caller`] is the proof: only code outside of all sections can make one.
//! * `Drop` of an embedder's object that the kernel kept runs as an RCU callback, after a grace
//!   period, where a call of a process ends or where the program runs callbacks. A panic in it is
//!   contained. It must not wait for callbacks (`Kernel::shrink`, `barrier` of an RCU domain):
//!   that ends the program, because no callback runs inside another.
//! * A panic in a method passes through the call. No lock is held then, and references are given
//!   back.
//! * What a method returns is checked. A size or an offset that no file can have, an unknown type,
//!   a type that changes, a name that no directory can have, more bytes than there was room for:
//!   `EIO`.
//! * A method that changes names decides. The dentry cache follows, and keeps no answer to an
//!   earlier question about the name.
//!
//! # Limits
//!
//! Two names of one file that are looked up have two inodes here: locks and watches belong to the
//! name. Reads through one open file at the same time may return the same bytes, because the file
//! offset is not locked while the method runs. The address of a local socket is found only along
//! names that are in the dentry cache (`EOPNOTSUPP`). Only the mode is asked for permission; a
//! method that knows better has the caller's credentials.
//!
//! # Source
//!
//! `include/linux/fs.h`, `fs/fuse/dir.c` (validity times, checks of what a server says),
//! `Documentation/filesystems/path-lookup.rst` (an RCU walk that begins anew).

mod attributes;
mod file;
mod names;
mod node;
mod readiness;

pub(crate) use attributes::{getxattr, listxattr, removexattr, setattr, setxattr};
pub use file::{fsync, ioctl, list, read, write};
pub(crate) use names::{Made, create, forget, link, name_changed, remove, rename, renamed};
pub use node::{ForeignNode, new_super};
pub use readiness::Readiness;

use crate::abi::{S_IFDIR, S_IFMT, StatFs};
use crate::cred::{Capabilities, Cred};
use crate::inode::{Attributes, Changes, NodeEntry, Requester};
use core::any::Any;
use core::time::Duration;
use quietline_sync::{Interrupt, might_sleep};
use rustix::io::Errno;
use std::sync::Arc;

/// The error with which a call ends that needs a method of an embedder and must not run one where
/// it is (Linux's `ERESTARTSYS`). The caller closes its sections and calls again with [credentials
/// of its own](Cred::for_sleeping_call). No process sees it.
pub const RESTART: Errno = Errno::from_raw_os_error(512);

/// The caller of a method: a process in a system call.
///
/// The interrupt of its thread ([`Interrupt::enter`]) is the thread's own: a
/// [`WaitQueue`](quietline_sync::WaitQueue) that a method waits in looks at it. A method that
/// sleeps by other means asks [`is_interrupted`](Self::is_interrupted), and fails with `EINTR`.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    cred: &'a Cred,
    pid: i32,
}

impl Caller<'_> {
    /// The number of the process; 0 for none.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The user id for access to files.
    pub fn uid(&self) -> u32 {
        self.cred.fsuid()
    }

    /// The group id for access to files.
    pub fn gid(&self) -> u32 {
        self.cred.fsgid()
    }

    /// Returns whether the process is in a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.cred.in_group(gid)
    }

    /// The capabilities in effect.
    pub fn capabilities(&self) -> Capabilities {
        self.cred.capabilities()
    }

    /// Returns whether the thread was told to stop waiting.
    pub fn is_interrupted(&self) -> bool {
        Interrupt::current().is_some_and(|interrupt| interrupt.is_pending())
    }
}

impl Requester<'_, '_> {
    /// Returns the caller, for a method of an embedder.
    ///
    /// # Errors
    /// [`RESTART`] if methods may not run here.
    pub(crate) fn caller(&self) -> Result<Caller<'_>, Errno> {
        if !self.cred.may_sleep() {
            return Err(RESTART);
        }
        might_sleep();
        Ok(Caller { cred: self.cred, pid: i32::try_from(self.fs.owner()).unwrap_or(0) })
    }
}

/// Returns what a method has returned, with an error that a process may see.
///
/// # Errors
/// The method's; `EIO` for [`RESTART`].
pub(crate) fn foreign<T>(returned: Result<T, Errno>) -> Result<T, Errno> {
    returned.map_err(|errno| if errno == RESTART { Errno::IO } else { errno })
}

/// The result of a lookup: an inode, its attributes, and for how long they hold.
#[derive(Clone)]
pub struct Entry {
    /// The inode. For a FIFO, a socket or a block device, which are the kernel's, it is not asked.
    pub inode: Arc<dyn InodeOps>,
    /// Its attributes. The kernel numbers the inode if `ino` is 0, and a root in any case. The type
    /// cannot change.
    pub attributes: Attributes,
    /// How long the name and the attributes hold, from when they were asked for; `None`: for ever,
    /// which costs nothing at a hit. FIFOs, sockets and block devices have no validity time: name
    /// and attributes hold until memory is reclaimed.
    pub valid: Option<Duration>,
}

impl Entry {
    /// An entry that holds for ever, with a type and permissions; one link (two for a directory),
    /// root's, and without bytes.
    pub fn new(inode: Arc<dyn InodeOps>, mode: u32) -> Self {
        let nlink = if mode & S_IFMT == S_IFDIR { 2 } else { 1 };
        Self { inode, attributes: Attributes { mode, nlink, ..Attributes::default() }, valid: None }
    }

    /// Returns the entry with a size in bytes.
    #[must_use]
    pub fn with_size(mut self, size: u64) -> Self {
        self.attributes.size = size;
        self
    }

    /// Returns the entry, to hold for a limited time.
    #[must_use]
    pub fn valid_for(mut self, valid: Duration) -> Self {
        self.valid = Some(valid);
        self
    }
}

impl core::fmt::Debug for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Entry")
            .field("attributes", &self.attributes)
            .field("valid", &self.valid)
            .finish_non_exhaustive()
    }
}

/// A file that is to be made, as the kernel proposes it.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// The attributes: the type; the permissions, without those that the umask withholds; the owner
    /// and the group, which a set-group-ID directory passes on; the device; the links; the time of
    /// the call; the length of a symbolic link. The number is 0.
    pub attributes: Attributes,
    /// The target of a symbolic link; empty for other files.
    pub target: &'a [u8],
}

impl NewFile<'_> {
    /// The type: `S_IFREG` and so on.
    pub fn kind(&self) -> u32 {
        self.attributes.mode & S_IFMT
    }

    /// Returns the entry of an inode with the proposed attributes, that holds for ever.
    pub fn entry(&self, inode: Arc<dyn InodeOps>) -> Entry {
        Entry { inode, attributes: self.attributes, valid: None }
    }
}

/// A file system of an embedder. `Process::mount_fs` mounts it.
pub trait FileSystem: Send + Sync + 'static {
    /// Returns the root directory. Called once for each mount.
    ///
    /// # Errors
    /// The mount's.
    fn root(self: Arc<Self>, caller: &Caller<'_>) -> Result<Entry, Errno>;

    /// Returns the name of its type, as `/proc/PID/mounts` shows it.
    fn name(&self) -> &'static str {
        "custom"
    }

    /// Returns sizes and limits (`statfs`). The kernel adds the flags of the mount and the number
    /// of the file system.
    ///
    /// # Errors
    /// Those of `statfs`.
    fn statfs(&self, _caller: &Caller<'_>) -> Result<StatFs, Errno> {
        let (f_bsize, f_namelen) = (4096, crate::NAME_MAX as i64);
        Ok(StatFs { f_bsize, f_frsize: f_bsize, f_namelen, ..StatFs::default() })
    }
}

/// An inode of an embedder's file system.
///
/// Each inode is an open file, too: [`open`](Self::open) need not be implemented where open files
/// have nothing of their own.
pub trait InodeOps: FileOps + Any {
    /// Looks up a name in the directory. Called for names that the dentry cache has not got;
    /// several threads may look up one name at the same time, and one of the results is kept.
    ///
    /// # Errors
    /// `ENOENT` if there is no such name, which is not kept; those of the walk.
    fn lookup(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<Entry, Errno> {
        Err(Errno::NOENT)
    }

    /// Whether a name of the directory still stands for `child`, whose validity time is over. If
    /// so, the time begins anew, and the attributes are [asked for](Self::getattr). If not, the
    /// dentry is taken out and the name is [looked up](Self::lookup); open files, and working
    /// directories below it, keep the inode that they have. What is mounted on the directory or
    /// below it is unmounted, as by Linux's `d_invalidate`.
    ///
    /// Asked where a name is looked up. A walk that only passes through the root of a mount, the
    /// working directory or `..` looks up no name there, and does not ask for their attributes.
    ///
    /// # Errors
    /// Those of the walk. The dentry stays.
    fn revalidate(
        &self,
        _caller: &Caller<'_>,
        _name: &[u8],
        _child: &dyn InodeOps,
    ) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Returns the attributes, when those in memory are too old; `None` if they are still right.
    ///
    /// # Errors
    /// Those of `stat` or of the walk.
    fn getattr(&self, _caller: &Caller<'_>) -> Result<Option<Attributes>, Errno> {
        Ok(None)
    }

    /// Returns the target of the symbolic link.
    ///
    /// # Errors
    /// Those of `readlink` and of the walk.
    fn readlink(&self, _caller: &Caller<'_>) -> Result<Box<[u8]>, Errno> {
        Err(Errno::INVAL)
    }

    /// Opens the file with the flags of `open(2)`; the mode has permitted it. `None`: the open file
    /// is the inode itself. The object is dropped after the last close.
    ///
    /// # Errors
    /// Those of `open`.
    fn open(&self, _caller: &Caller<'_>, _flags: i32) -> Result<Option<Arc<dyn FileOps>>, Errno> {
        Ok(None)
    }

    /// Makes a file, a directory, a symbolic link, a FIFO, a socket or a device in the directory.
    /// The caller may do so, and the dentry cache has no such name. Returns the entry, which is of
    /// the type that was asked for.
    ///
    /// # Errors
    /// Those of `open`, `mkdir`, `symlink` and `mknod`; `EEXIST` if there is such a name.
    fn create(
        &self,
        _caller: &Caller<'_>,
        _name: &[u8],
        _new: &NewFile<'_>,
    ) -> Result<Entry, Errno> {
        Err(Errno::PERM)
    }

    /// Gives an inode of the same file system, which is no directory, a name in the directory. The
    /// name stands for that inode in the dentry cache, too. FIFOs, sockets and block devices get no
    /// other name (`EPERM`).
    ///
    /// # Errors
    /// Those of `link`.
    fn link(
        &self,
        _caller: &Caller<'_>,
        _name: &[u8],
        _target: &dyn InodeOps,
    ) -> Result<(), Errno> {
        Err(Errno::PERM)
    }

    /// Removes a name of a file other than a directory. Open files keep the inode.
    ///
    /// # Errors
    /// Those of `unlink`.
    fn unlink(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::PERM)
    }

    /// Removes a directory, which must be empty.
    ///
    /// # Errors
    /// Those of `rmdir`: `ENOTEMPTY`.
    fn rmdir(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::PERM)
    }

    /// Renames an entry of the directory, and gives it `new_name` in the directory `to`, which may
    /// be this one. A file with that name is replaced: a directory only if it is empty. With
    /// `RENAME_EXCHANGE` in `flags` the two change places; with `RENAME_WHITEOUT` a character device
    /// 0:0 stays behind; with `RENAME_NOREPLACE` nothing is replaced. A method that does not know a
    /// flag fails with `EINVAL`.
    ///
    /// # Errors
    /// Those of `rename`: `ENOTEMPTY`.
    fn rename(
        &self,
        _caller: &Caller<'_>,
        _name: &[u8],
        _to: &dyn InodeOps,
        _new_name: &[u8],
        _flags: u32,
    ) -> Result<(), Errno> {
        Err(Errno::PERM)
    }

    /// Changes attributes: permissions, owners, times, the size. The caller may do so. The number
    /// of links and the blocks are never set. Afterwards the kernel changes them in memory.
    ///
    /// `truncate`, `ftruncate` and `O_TRUNC` set the size. A write by a process that may not keep
    /// set-id bits sets the mode without them first.
    ///
    /// # Errors
    /// Those of `chmod`, `chown`, `utimensat` and `truncate`.
    fn setattr(&self, _caller: &Caller<'_>, _changes: &Changes) -> Result<(), Errno> {
        Err(Errno::PERM)
    }

    /// Returns an extended attribute.
    ///
    /// # Errors
    /// Those of `getxattr`: `ENODATA`.
    fn getxattr(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<Box<[u8]>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Sets an extended attribute. Flags: `XATTR_CREATE`, `XATTR_REPLACE`.
    ///
    /// # Errors
    /// Those of `setxattr`.
    fn setxattr(
        &self,
        _caller: &Caller<'_>,
        _name: &[u8],
        _value: &[u8],
        _flags: i32,
    ) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of `removexattr`: `ENODATA`.
    fn removexattr(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Calls `each` with the names of all extended attributes. The kernel leaves out those that the
    /// caller may not see.
    ///
    /// # Errors
    /// Those of `listxattr`.
    fn listxattr(&self, _caller: &Caller<'_>, _each: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        Ok(())
    }
}

/// An open file of an embedder: a regular file, a directory or a character device.
///
/// A method that would have to wait may return `EAGAIN`, if the file has a
/// [readiness](Self::readiness). A call on a non-blocking file ends with it. Any other call waits
/// until the readiness wakes it, and calls the method again.
pub trait FileOps: Send + Sync + 'static {
    /// Reads at an offset. Returns the number of bytes; 0 at the end. A device is told the file
    /// offset, too, and need not look at it.
    ///
    /// # Errors
    /// Those of `read`.
    fn read_at(&self, _caller: &Caller<'_>, _to: &mut [u8], _at: u64) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// Writes at an offset. Returns the number of bytes. Afterwards the size in memory is at least
    /// the end of the written bytes, and the times are those of the call. A `write` of no bytes
    /// calls no method.
    ///
    /// # Errors
    /// Those of `write`.
    fn write_at(&self, _caller: &Caller<'_>, _bytes: &[u8], _at: u64) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// Writes at the end of a regular file that is open with `O_APPEND`. Returns the offset at
    /// which the bytes are, and their number.
    ///
    /// `size` is the size in memory. No lock is held meanwhile, so two calls may get the same one.
    /// A file that several threads append to implements this method, and finds the end itself.
    ///
    /// # Errors
    /// Those of `write`.
    fn append(&self, caller: &Caller<'_>, bytes: &[u8], size: u64) -> Result<(u64, usize), Errno> {
        self.write_at(caller, bytes, size).map(|n| (size, n))
    }

    /// Makes written bytes durable; with `datasync`, without attributes that no read needs.
    ///
    /// # Errors
    /// Those of `fsync`.
    fn fsync(&self, _caller: &Caller<'_>, _datasync: bool) -> Result<(), Errno> {
        Err(Errno::INVAL)
    }

    /// Controls the file. `arg` is what `request` reads and writes; `Process::ioctl` passes the
    /// four bytes of an `int`. The kernel answers `FIOCLEX`, `FIONCLEX` and `FIONBIO`, and
    /// `FIONREAD` of a regular file.
    ///
    /// # Errors
    /// Those of `ioctl`.
    fn ioctl(&self, _caller: &Caller<'_>, _request: u64, _arg: &mut [u8]) -> Result<i32, Errno> {
        Err(Errno::NOTTY)
    }

    /// Returns the readiness of the file, by which callers wait for it in `poll`, `select` and
    /// `epoll`. Called once for each `open`. `None`: the file is always ready, and cannot be
    /// watched by an epoll (`EPERM`).
    fn readiness(&self) -> Option<Arc<Readiness>> {
        None
    }

    /// Calls `each` with the names of the directory, without `.` and `..`, in the order of their
    /// places and beginning at the place `from`, until there are no more or it returns `false`. A
    /// place stays a name's while a listing goes on. An entry whose number is 0 gets that of the
    /// inode, if that is in memory.
    ///
    /// # Errors
    /// Those of `getdents64`.
    fn read_dir(
        &self,
        _caller: &Caller<'_>,
        _from: u64,
        _each: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        Err(Errno::NOTDIR)
    }
}
