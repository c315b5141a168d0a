//! The system calls that a server makes: what the example needs of an operating system, and nothing else.

use quietline::{EpollEvent, Errno};

/// A system with TCP and epoll. All sockets are of `AF_INET`, never wait, and reach 127.0.0.1.
pub(crate) trait Os: Copy + Send + Sync {
    /// An open descriptor. Dropping it is `close`.
    type Fd: Send + Sync;

    /// `socket`, with `SOCK_NONBLOCK`.
    fn socket(self) -> Result<Self::Fd, Errno>;
    /// `setsockopt` of `SO_REUSEPORT`.
    fn reuse_port(self, fd: &Self::Fd) -> Result<(), Errno>;
    /// `setsockopt` of `TCP_NODELAY`.
    fn no_delay(self, fd: &Self::Fd) -> Result<(), Errno>;
    /// `bind`; 0 is any port.
    fn bind(self, fd: &Self::Fd, port: u16) -> Result<(), Errno>;
    /// The port that `getsockname` tells.
    fn port(self, fd: &Self::Fd) -> Result<u16, Errno>;
    /// `listen`.
    fn listen(self, fd: &Self::Fd, backlog: i32) -> Result<(), Errno>;
    /// `accept4`, with `SOCK_NONBLOCK`.
    fn accept(self, fd: &Self::Fd) -> Result<Self::Fd, Errno>;
    /// `connect`.
    fn connect(self, fd: &Self::Fd, port: u16) -> Result<(), Errno>;
    /// `shutdown` of the direction in which one writes.
    fn shutdown(self, fd: &Self::Fd) -> Result<(), Errno>;
    /// `read`.
    fn read(self, fd: &Self::Fd, to: &mut [u8]) -> Result<usize, Errno>;
    /// `write`.
    fn write(self, fd: &Self::Fd, from: &[u8]) -> Result<usize, Errno>;
    /// `eventfd2`, with `EFD_NONBLOCK`.
    fn eventfd(self) -> Result<Self::Fd, Errno>;
    /// `epoll_create1`.
    fn epoll_create(self) -> Result<Self::Fd, Errno>;
    /// `epoll_ctl` with `EPOLL_CTL_ADD`.
    fn epoll_add(self, epoll: &Self::Fd, fd: &Self::Fd, event: EpollEvent) -> Result<(), Errno>;
    /// `epoll_ctl` with `EPOLL_CTL_MOD`.
    fn epoll_modify(self, epoll: &Self::Fd, fd: &Self::Fd, event: EpollEvent) -> Result<(), Errno>;
    /// `epoll_wait`; -1 is for ever.
    fn epoll_wait(
        self,
        epoll: &Self::Fd,
        events: &mut [EpollEvent; MAX_EVENTS],
        milliseconds: i32,
    ) -> Result<usize, Errno>;
}

/// Events that are taken at a time.
pub(crate) const MAX_EVENTS: usize = 64;
