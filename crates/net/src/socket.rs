//! The socket object.

use crate::abi::{SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_TYPE_MASK};
use crate::family::{self, May};
use core::fmt;
use quietline_sync::IdAllocator;
use quietline_vfs::abi::{O_NONBLOCK, O_RDWR, S_IFSOCK};
use quietline_vfs::{FileHandle, FileMode, Files, Payload, PseudoFs, PseudoInode};
use rustix::io::Errno;

/// What a socket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Local.
    Unix,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// UDP with partial checksums.
    UdpLite,
    /// Whatever the caller puts into packets with this number.
    Raw(u16),
}

/// A socket (`struct socket` and `struct sock`), not connected.
#[derive(Debug)]
pub struct Socket {
    inode: PseudoInode,
    family: u16,
    ty: u16,
    protocol: Protocol,
}

impl Socket {
    /// The address family.
    pub fn family(&self) -> i32 {
        self.family.into()
    }

    /// The type (`SO_TYPE`).
    pub fn ty(&self) -> i32 {
        self.ty.into()
    }

    /// The protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
}

impl Payload for Socket {
    const CACHE: &'static str = "sock_inode_cache";

    fn inode(&self) -> Option<&PseudoInode> {
        Some(&self.inode)
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket:[{}]", self.inode.i_ino)
    }
}

/// Makes a socket (`socket`). `ty` may have `SOCK_CLOEXEC` and `SOCK_NONBLOCK` in it; `may_raw` is `CAP_NET_RAW`.
///
/// Writes no shared line.
///
/// # Errors
/// `EINVAL` for an unknown flag, type or protocol number; `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`;
/// `EPERM` for a raw socket without the right to it; `EACCES` for an echo socket; `ENFILE`, `ENOMEM`.
#[inline(always)]
pub fn socket<'k>(
    fs: &'k PseudoFs<Socket>,
    files: &'k Files,
    last_ino: &IdAllocator,
    family: i32,
    ty: i32,
    protocol: i32,
    may_raw: bool,
) -> Result<FileHandle<'k>, Errno> {
    let flags = ty & !SOCK_TYPE_MASK;
    if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(Errno::INVAL);
    }
    let (ty, protocol) = family::resolve(family, ty & SOCK_TYPE_MASK, protocol, May { raw: may_raw })?;
    let inode = PseudoInode { i_ino: last_ino.next(), i_mode: S_IFSOCK | 0o777 };
    let socket = Socket { inode, family: family as u16, ty: ty as u16, protocol };
    fs.open(files, socket, O_RDWR | (flags & O_NONBLOCK), FileMode::READ.union(FileMode::WRITE))
}
