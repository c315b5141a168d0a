//! What sockets ask of the process that uses them.

use quietline_vfs::{FdFlags, FileHandle};
use rustix::io::Errno;

/// Who a process is (`struct ucred`, and the effective ids).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ids {
    /// The process.
    pub pid: i32,
    /// Real user and group.
    pub real: [u32; 2],
    /// Effective user and group.
    pub effective: [u32; 2],
}

/// What a process may do beyond the usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// `CAP_NET_ADMIN`.
    NetAdmin,
    /// `CAP_NET_BIND_SERVICE`.
    NetBind,
    /// `CAP_NET_RAW`.
    NetRaw,
    /// `CAP_SYS_ADMIN` or `CAP_SYS_RESOURCE`: no limit on descriptors in flight.
    Resource,
    /// `CAP_SYS_ADMIN`: to pass for any process in `SCM_CREDENTIALS`.
    AnyPid,
}

/// The first port that needs no right.
pub const FIRST_UNPRIVILEGED: u16 = 1024;

/// A place in the tree: its filesystem and the number of its inode there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The filesystem.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
}

/// The process that makes a call, as far as sockets are concerned.
///
/// # Safety
/// [`file`](Self::file) gives files of the kernel whose sockets ask, and of no other.
pub unsafe trait Caller {
    /// Who it is; none if the call does not say.
    fn ids(&self) -> Option<Ids>;

    /// Whether it may.
    fn may(&self, right: Right) -> bool;

    /// Whether it may bind this port, which is not 0: those from 1,024 on, and with
    /// [`Right::NetBind`] all.
    fn may_bind(&self, port: u16) -> bool {
        port >= FIRST_UNPRIVILEGED || self.may(Right::NetBind)
    }

    /// Whether it may pass for this user, and for this group: its real, effective and saved ones, or any with `CAP_SETUID`,
    /// `CAP_SETGID`.
    fn has_ids(&self, user: u32, group: u32) -> [bool; 2];

    /// Whether there is a process with this number.
    fn has_process(&self, pid: i32) -> bool;

    /// The file of one of its descriptors.
    ///
    /// # Errors
    /// `EBADF`.
    fn file(&self, fd: i32) -> Result<FileHandle<'_>, Errno>;

    /// Gives a file a descriptor.
    ///
    /// # Errors
    /// The file, if there is none for it.
    fn install<'f>(&self, file: FileHandle<'f>, how: FdFlags) -> Result<i32, FileHandle<'f>>;

    /// Makes a socket's node at a path, and calls `bind` with it. Removes it if that fails.
    ///
    /// # Errors
    /// As `mknod(2)`, and those of `bind`.
    fn make_node(
        &self,
        path: &[u8],
        bind: &mut dyn FnMut(Node) -> Result<(), Errno>,
    ) -> Result<(), Errno>;

    /// The node at a path, which the process may write to.
    ///
    /// # Errors
    /// As `open(2)`; `ECONNREFUSED` if it is not a socket's.
    fn find_node(&self, path: &[u8]) -> Result<Node, Errno>;

    /// Descriptors of the process are below this.
    fn nofile(&self) -> usize;
}

/// A caller of `read` or `write`, which do not say who calls, and ask nothing of him.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nobody;

// SAFETY: has no files.
unsafe impl Caller for Nobody {
    fn ids(&self) -> Option<Ids> {
        None
    }

    fn may(&self, _right: Right) -> bool {
        false
    }

    fn has_ids(&self, _user: u32, _group: u32) -> [bool; 2] {
        [false; 2]
    }

    fn has_process(&self, _pid: i32) -> bool {
        false
    }

    fn file(&self, _fd: i32) -> Result<FileHandle<'_>, Errno> {
        Err(Errno::BADF)
    }

    fn install<'f>(&self, file: FileHandle<'f>, _how: FdFlags) -> Result<i32, FileHandle<'f>> {
        Err(file)
    }

    fn make_node(
        &self,
        _path: &[u8],
        _bind: &mut dyn FnMut(Node) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        Err(Errno::ACCESS)
    }

    fn find_node(&self, _path: &[u8]) -> Result<Node, Errno> {
        Err(Errno::ACCESS)
    }

    fn nofile(&self) -> usize {
        0
    }
}
