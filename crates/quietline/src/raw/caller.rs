//! A process, as sockets see it.

use crate::abi::{AT_FDCWD, S_IFMT, S_IFSOCK};
use crate::{Errno, FileHandle, Process};
use quietline_net::{Caller, Ids, Node, Right};
use quietline_vfs::cred::Capabilities;
use quietline_vfs::namei::{self, New};
use quietline_vfs::operations::RESTART;
use quietline_vfs::permission::{Mask, permission};
use quietline_vfs::{FdFlags, How, Lookup};

/// What a path leads to, links followed.
const FOLLOW: How = How::of(Lookup::FOLLOW);

impl Process {
    /// Walks for a socket, which is locked: no callbacks and no methods of embedders run.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the walk needs such a method; those of `f`.
    fn walk_locked<R>(
        &self,
        path: &[u8],
        f: impl FnOnce(&namei::Caller<'_, '_>, &[u8]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.walk_once(AT_FDCWD, path, 0, f).map_err(|errno| match errno {
            RESTART => Errno::OPNOTSUPP,
            other => other,
        })
    }
}

// SAFETY: a process's descriptors are of files of its own kernel, whose sockets are what it calls on.
unsafe impl Caller for Process {
    fn ids(&self) -> Option<Ids> {
        let section = self.cred.section();
        let cred = self.cred.load(&section);
        let ([uid, euid, _], [gid, egid, _]) = (cred.uids(), cred.gids());
        Some(Ids { pid: self.getpid(), real: [uid, gid], effective: [euid, egid] })
    }

    fn may(&self, right: Right) -> bool {
        let any = match right {
            Right::NetAdmin => Capabilities::NET_ADMIN,
            Right::NetBind => Capabilities::NET_BIND_SERVICE,
            Right::NetRaw => Capabilities::NET_RAW,
            Right::Resource => Capabilities::SYS_RESOURCE | Capabilities::SYS_ADMIN,
            Right::AnyPid => Capabilities::SYS_ADMIN,
        };
        self.capabilities().intersects(any)
    }

    fn may_bind(&self, port: u16) -> bool {
        port >= self.inner().config.unprivileged_port_start || self.may(Right::NetBind)
    }

    fn has_ids(&self, user: u32, group: u32) -> [bool; 2] {
        let section = self.cred.section();
        let cred = self.cred.load(&section);
        [
            cred.uids().contains(&user) || cred.has(Capabilities::SETUID),
            cred.gids().contains(&group) || cred.has(Capabilities::SETGID),
        ]
    }

    fn has_process(&self, pid: i32) -> bool {
        self.inner().processes.group(pid).is_ok()
    }

    fn file(&self, fd: i32) -> Result<FileHandle<'_>, Errno> {
        Process::file(self, fd)
    }

    fn install<'f>(&self, file: FileHandle<'f>, how: FdFlags) -> Result<i32, FileHandle<'f>> {
        match self.table.get_unused_fd(how) {
            Ok(unused) => Ok(unused.install(file)),
            Err(_) => Err(file),
        }
    }

    fn make_node(
        &self,
        path: &[u8],
        bind: &mut dyn FnMut(Node) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        // All permissions that the process's mask leaves.
        let new = New::Node(S_IFSOCK | 0o777, 0);
        self.walk_locked(path, |c, path| {
            namei::make_bound(c, path, new, |dev, ino| bind(Node { dev, ino }))
        })
    }

    fn find_node(&self, path: &[u8]) -> Result<Node, Errno> {
        self.walk_locked(path, |c, path| {
            let place = c.place(path, FOLLOW)?;
            let inode = place.dentry().inode().ok_or(Errno::NOENT)?;
            permission(inode, c.cred, Mask::WRITE)?;
            if inode.mode() & S_IFMT != S_IFSOCK {
                return Err(Errno::CONNREFUSED);
            }
            Ok(Node { dev: inode.super_block().s_dev(), ino: inode.ino() })
        })
    }

    fn nofile(&self) -> usize {
        Process::nofile(self)
    }
}
