//! Making, naming, connecting and shutting down sockets.

use crate::abi::{O_ANYFD, O_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK};
use crate::process::opened;
use crate::{Errno, FileHandle, Process};
use quietline_net::abi::SOCKADDR_MAX;
use quietline_net::{Maker, SockAddr};
use quietline_vfs::{FdFlags, UnusedFd};

impl Process {
    fn maker(&self) -> Maker<'_> {
        let k = self.inner();
        let (last_ino, owner) = (&k.last_ino, self.owner.load());
        Maker { fs: &k.sockets, files: &k.files, last_ino, net: &k.net, owner }
    }

    /// Makes a socket without a descriptor. Writes no shared line.
    ///
    /// # Errors
    /// As [`socket`](Self::socket), but for `EMFILE`.
    #[inline(always)]
    pub fn socket_file(
        &self,
        domain: i32,
        ty: i32,
        protocol: i32,
    ) -> Result<FileHandle<'_>, Errno> {
        self.maker().socket(domain, ty, protocol, self)
    }

    /// Makes two sockets that are connected to each other. `ty` may have `SOCK_CLOEXEC`, `SOCK_NONBLOCK` and [`O_ANYFD`] in
    /// it.
    ///
    /// # Errors
    /// As `socketpair(2)`.
    #[inline]
    pub fn socketpair(&self, domain: i32, ty: i32, protocol: i32) -> Result<[i32; 2], Errno> {
        let ends = opened!(self, self.socketpair_files(domain, ty & !O_ANYFD, protocol))?;
        self.table.install_pair(ends, FdFlags::of(ty & (SOCK_CLOEXEC | O_ANYFD)))
    }

    /// Makes two sockets that are connected to each other, without descriptors.
    ///
    /// # Errors
    /// As [`socketpair`](Self::socketpair), but for `EMFILE`.
    #[inline]
    pub fn socketpair_files(
        &self,
        domain: i32,
        ty: i32,
        protocol: i32,
    ) -> Result<[FileHandle<'_>; 2], Errno> {
        self.maker().pair(domain, ty, protocol, self)
    }

    /// Gives a socket a name.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn bind(&self, fd: i32, address: &[u8]) -> Result<(), Errno> {
        // A path's walk may free objects of `/proc`.
        self.returning(self.on_socket(fd, |on, _| on.bind(address)))
    }

    /// Makes a socket one that takes connections.
    ///
    /// # Errors
    /// As `listen(2)`.
    pub fn listen(&self, fd: i32, backlog: i32) -> Result<(), Errno> {
        self.on_socket(fd, |on, _| on.listen(backlog))
    }

    /// Connects a socket.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn connect(&self, fd: i32, address: &[u8]) -> Result<(), Errno> {
        if address.len() > SOCKADDR_MAX {
            // Linux reads the address before it asks for a socket.
            return self.fget(fd).and(Err(Errno::INVAL));
        }
        self.returning(self.on_socket(fd, |on, _| on.connect(address)))
    }

    /// Takes the next connection: its descriptor, and the address of its other end.
    ///
    /// # Errors
    /// As `accept(2)`.
    pub fn accept(&self, fd: i32) -> Result<(i32, SockAddr), Errno> {
        self.accept4(fd, 0)
    }

    /// [`accept`](Self::accept) with `SOCK_CLOEXEC`, `SOCK_NONBLOCK` and [`O_ANYFD`] as flags.
    ///
    /// As on Linux the descriptor is taken first, and kept while the call waits: when a connection is taken out of the listener's
    /// queue nothing can fail any more.
    ///
    /// # Errors
    /// As `accept4(2)`. `EMFILE`, `ENFILE` and `ENOMEM` leave the connection where it is.
    pub fn accept4(&self, fd: i32, flags: i32) -> Result<(i32, SockAddr), Errno> {
        self.fdget(fd, &self.inner().vfs.read())?;
        if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK | O_ANYFD) != 0 {
            return Err(Errno::INVAL);
        }
        let nonblock = flags & SOCK_NONBLOCK;
        let how = FdFlags::of(flags & (SOCK_CLOEXEC | O_ANYFD));
        let unused = self.table.get_unused_fd(how)?;
        // Most often there is one already: then no reference to the listener is taken.
        let at_once = self.at_socket(fd, |on| match self.maker().accept(on, nonblock) {
            Ok(accepted) => Ok(Some(accepted)),
            Err(Errno::AGAIN) if on.flags & O_NONBLOCK != 0 => Err(Errno::AGAIN),
            // By one who may sleep, and whose listener is not closed meanwhile.
            Err(_) => Ok(None),
        })?;
        let (unused, (file, address)) = match at_once {
            Some(accepted) => (unused, accepted),
            None => self.accept_slow(fd, nonblock, how, unused)?,
        };
        Ok((unused.install(file), address))
    }

    /// Waits for a connection, if need be.
    #[cold]
    fn accept_slow<'p>(
        &'p self,
        fd: i32,
        nonblock: i32,
        how: FdFlags,
        unused: UnusedFd<'p>,
    ) -> Result<(UnusedFd<'p>, (FileHandle<'p>, SockAddr)), Errno> {
        let accept = || self.on_socket(fd, |on, _| self.maker().accept(on, nonblock));
        let wait = || opened!(self, accept());
        if !how.any {
            return Ok((unused, wait()?));
        }
        // A CPU's number is not kept asleep: in its stead one of the table's, in case that there is no other then.
        let spare = match self.table.get_unused_fd(FdFlags { any: false, ..how }) {
            Ok(spare) => spare,
            // It is the last.
            Err(Errno::MFILE) => return Ok((unused, wait()?)),
            Err(errno) => return Err(errno),
        };
        drop(unused);
        let accepted = wait()?;
        Ok((self.table.get_unused_fd(how).unwrap_or(spare), accepted))
    }

    /// The name of a socket.
    ///
    /// # Errors
    /// As `getsockname(2)`.
    pub fn getsockname(&self, fd: i32) -> Result<SockAddr, Errno> {
        self.at_socket(fd, |on| on.name(false))
    }

    /// The name of the other end.
    ///
    /// # Errors
    /// As `getpeername(2)`.
    pub fn getpeername(&self, fd: i32) -> Result<SockAddr, Errno> {
        self.at_socket(fd, |on| on.name(true))
    }

    /// Ends one direction of a connection, or both.
    ///
    /// # Errors
    /// As `shutdown(2)`.
    pub fn shutdown(&self, fd: i32, how: i32) -> Result<(), Errno> {
        self.on_socket(fd, |on, _| on.shutdown(how))
    }
}
