//! The socket object.

use crate::abi::{AF_INET6, AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOCK_TYPE_MASK};
use crate::address::SockAddr;
use crate::caller::Caller;
use crate::family;
use crate::inet::InetEnd;
use crate::net::Net;
use crate::proto::{On, Proto};
use crate::raw::NetRef;
use crate::unix::UnixEnd;
use core::fmt;
use core::time::Duration;
use quietline_sync::{IdAllocator, WaitQueue};
use quietline_vfs::abi::{O_NONBLOCK, O_RDWR, S_IFSOCK};
use quietline_vfs::{
    Direction, Events, FileHandle, FileMode, Files, Io, Ioctl, Owner, Payload, PollTable, PseudoFs,
    PseudoInode, Sink, Source,
};
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

/// A [`Protocol`] in two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProtocolWord(u16);

impl ProtocolWord {
    pub(crate) const UNIX: Self = Self(u16::MAX);
    pub(crate) const TCP: Self = Self(u16::MAX - 1);
    const UDP: Self = Self(u16::MAX - 2);
    const UDPLITE: Self = Self(u16::MAX - 3);

    pub(crate) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Unix => Self::UNIX,
            Protocol::Tcp => Self::TCP,
            Protocol::Udp => Self::UDP,
            Protocol::UdpLite => Self::UDPLITE,
            // Below `IPPROTO_MAX`.
            Protocol::Raw(number) => Self(number),
        }
    }

    #[inline(always)]
    fn get(self) -> Protocol {
        match self {
            Self::UNIX => Protocol::Unix,
            Self::TCP => Protocol::Tcp,
            Self::UDP => Protocol::Udp,
            Self::UDPLITE => Protocol::UdpLite,
            Self(number) => Protocol::Raw(number),
        }
    }
}

/// A socket (`struct socket`). Its state (`struct sock`) is made by the first call that needs one: most of what programs
/// do with a socket that they never use is to make and to close it.
#[derive(Debug)]
pub struct Socket {
    inode: PseudoInode,
    family: u8,
    ty: u8,
    protocol: ProtocolWord,
    net: NetRef,
    pub(crate) unix: UnixEnd,
    pub(crate) inet: InetEnd,
}

impl Socket {
    /// A socket without state.
    #[inline(always)]
    fn new(
        net: &Net,
        (i_ino, i_owner): (u32, Owner),
        family: i32,
        ty: i32,
        protocol: ProtocolWord,
    ) -> Self {
        Self {
            inode: PseudoInode { i_ino, i_owner },
            family: family as u8,
            ty: ty as u8,
            protocol,
            net: NetRef::of(net),
            unix: UnixEnd::empty(),
            inet: InetEnd::empty(),
        }
    }

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
        self.protocol.get()
    }

    /// The name of the protocol, as `/proc/net/protocols` has it.
    pub fn protocol_name(&self) -> &'static str {
        let [four, six] = match self.protocol() {
            Protocol::Unix if i32::from(self.ty) == SOCK_STREAM => return "UNIX-STREAM",
            Protocol::Unix => return "UNIX",
            Protocol::Tcp => ["TCP", "TCPv6"],
            Protocol::Udp => ["UDP", "UDPv6"],
            Protocol::UdpLite => ["UDP-Lite", "UDPLITEv6"],
            Protocol::Raw(_) => ["RAW", "RAWv6"],
        };
        if i32::from(self.family) == AF_INET6 { six } else { four }
    }

    /// What the kernel's sockets have in common.
    #[inline(always)]
    pub(crate) fn net(&self) -> &Net {
        self.net.get()
    }

    #[inline(always)]
    pub(crate) fn proto(&self) -> &dyn Proto {
        if i32::from(self.family) == AF_UNIX { &self.unix } else { &self.inet }
    }
}

impl Payload for Socket {
    const MODE: u32 = S_IFSOCK | 0o777;
    const CACHE: &'static str = "sock_inode_cache";
    const CLOSES: bool = true;

    /// Most have no state: then there is nothing to end.
    #[inline(always)]
    fn is_idle(&mut self) -> bool {
        self.unix.bits() | self.inet.bits() == 0
    }

    fn inode(&self) -> Option<&PseudoInode> {
        Some(&self.inode)
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket:[{}]", self.inode.i_ino)
    }

    #[inline]
    fn try_read(&self, io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        self.proto().try_read(self, io, to)
    }

    #[inline]
    fn try_write(&self, io: Io, from: &mut Source<'_, '_>) -> Result<usize, Errno> {
        self.proto().try_write(self, io, from)
    }

    /// Nobody gets a signal for it, and the next call is told.
    fn untold(&self, errno: Errno, from: &mut Source<'_, '_>) {
        from.clear_broken();
        self.proto().untold(self, errno);
    }

    fn poll(&self, _io: Io, table: &mut PollTable<'_>) -> Events {
        self.proto().poll(self, table)
    }

    fn waiters(&self, what: Direction) -> Option<&WaitQueue> {
        self.proto().waiters(self, what)
    }

    /// Writers are told when a quarter of what is theirs is taken, and go on while there is any room: when one of them has
    /// written, the next may find room of which nobody tells any more (`sock_wait_for_wmem` waits in this way, too).
    fn in_turn(&self, what: Direction) -> bool {
        what == Direction::Read && self.proto().reads_in_turn(self)
    }

    fn timeout(&self, what: Direction) -> Option<Duration> {
        self.proto().timeout(self, what)
    }

    fn ioctl(&self, _io: Io, request: Ioctl) -> Result<i32, Errno> {
        self.proto().ioctl(self, request)
    }

    #[inline]
    fn closed(&self, _mode: FileMode) {
        // Most have no state: then there is nothing to end.
        if self.unix.is_used() || self.inet.is_used() {
            self.proto().closed(self);
        }
    }
}

/// What sockets are made of, in a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Maker<'k> {
    /// Where they are kept.
    pub fs: &'k PseudoFs<Socket>,
    /// Where their files are.
    pub files: &'k Files,
    /// Where their numbers come from.
    pub last_ino: &'k IdAllocator,
    /// What they have in common.
    pub net: &'k Net,
    /// The user and the group that they belong to.
    pub owner: Owner,
}

const BOTH: FileMode = FileMode::READ.union(FileMode::WRITE);

/// What the call's type says beyond the type.
#[inline(always)]
fn flags_of(ty: i32) -> Result<i32, Errno> {
    let flags = ty & !SOCK_TYPE_MASK;
    if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 { Err(Errno::INVAL) } else { Ok(flags) }
}

impl<'k> Maker<'k> {
    /// Makes a socket (`socket`). `ty` may have `SOCK_CLOEXEC` and `SOCK_NONBLOCK` in it.
    ///
    /// Writes no shared line.
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag, type or protocol number; `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`,
    /// `EPROTONOSUPPORT`; `EPERM` for a raw socket without `CAP_NET_RAW`; `EACCES` for an echo
    /// socket; `ENFILE`, `ENOMEM`.
    #[inline(always)]
    pub fn socket(
        &self,
        family: i32,
        ty: i32,
        protocol: i32,
        who: &dyn Caller,
    ) -> Result<FileHandle<'k>, Errno> {
        let flags = flags_of(ty)?;
        let (ty, protocol) = family::resolve(family, ty & SOCK_TYPE_MASK, protocol, who)?;
        let inode = self.identity();
        let socket = || Socket::new(self.net, inode, family, ty, protocol);
        self.fs.open_with(self.files, socket, O_RDWR | (flags & O_NONBLOCK), BOTH)
    }

    /// Makes two sockets that are connected to each other (`socketpair`).
    ///
    /// # Errors
    /// As [`socket`](Self::socket); `EOPNOTSUPP` for a family that has no pairs.
    pub fn pair(
        &self,
        family: i32,
        ty: i32,
        protocol: i32,
        who: &dyn Caller,
    ) -> Result<[FileHandle<'k>; 2], Errno> {
        let flags = flags_of(ty)?;
        let (ty, protocol) = family::resolve(family, ty & SOCK_TYPE_MASK, protocol, who)?;
        if family != AF_UNIX {
            return Err(Errno::OPNOTSUPP);
        }
        let mut one = Socket::new(self.net, self.identity(), family, ty, protocol);
        let mut two = Socket::new(self.net, self.identity(), family, ty, protocol);
        UnixEnd::pair(&mut one, &mut two, who)?;
        let one = self.open(one, flags).inspect_err(|_| two.unix.unpair())?;
        Ok([one, self.open(two, flags)?])
    }

    /// Takes the next connection of a socket that listens, as an open file: its other end's address, too. `flags`:
    /// `SOCK_NONBLOCK`.
    ///
    /// # Errors
    /// As `accept4(2)`, but for descriptors.
    pub fn accept(&self, on: &On<'_>, flags: i32) -> Result<(FileHandle<'k>, SockAddr), Errno> {
        let old = on.socket;
        let new = Socket::new(self.net, self.identity(), old.family(), old.ty(), old.protocol);
        // Before the connection is taken: who has no room leaves it there.
        let file = self.open(new, flags)?;
        let address = {
            let new = file.payload::<Socket>().expect("just made");
            on.socket.proto().accept(on, new)?
        };
        Ok((file, address))
    }

    /// Returns the number and the owner of a new inode.
    #[inline(always)]
    fn identity(&self) -> (u32, Owner) {
        (self.last_ino.next(), self.owner)
    }

    fn open(&self, socket: Socket, flags: i32) -> Result<FileHandle<'k>, Errno> {
        self.fs.open(self.files, socket, O_RDWR | (flags & O_NONBLOCK), BOTH)
    }
}
