//! The calls on sockets: what is the same for all families, and then the family's.

use crate::abi::*;
use crate::address::SockAddr;
use crate::message::{Incoming, Outgoing};
use crate::options::give_int;
use crate::proto::On;
use crate::socket::Protocol;
use rustix::io::Errno;

impl On<'_> {
    /// `bind`.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn bind(&self, address: &[u8]) -> Result<(), Errno> {
        self.socket.proto().bind(self, &SockAddr::new(address)?)
    }

    /// `listen`.
    ///
    /// # Errors
    /// As `listen(2)`.
    pub fn listen(&self, backlog: i32) -> Result<(), Errno> {
        // Less than nothing is a great deal, as on Linux.
        let backlog = (backlog as u32).min(SOMAXCONN as u32);
        self.socket.proto().listen(self, backlog)
    }

    /// `connect`.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn connect(&self, address: &[u8]) -> Result<(), Errno> {
        self.socket.proto().connect(self, &SockAddr::new(address)?)
    }

    /// `getsockname`; with `peer`, `getpeername`.
    ///
    /// # Errors
    /// As `getsockname(2)` and `getpeername(2)`.
    pub fn name(&self, peer: bool) -> Result<SockAddr, Errno> {
        self.socket.proto().name(self, peer)
    }

    /// `shutdown`.
    ///
    /// # Errors
    /// As `shutdown(2)`.
    pub fn shutdown(&self, how: i32) -> Result<(), Errno> {
        self.socket.proto().shutdown(self, how)
    }

    /// `sendmsg`: how many bytes.
    ///
    /// # Errors
    /// As `sendmsg(2)`. Whether the process is to get `SIGPIPE`, the message's data says then.
    #[inline]
    pub fn send(&self, message: &mut Outgoing<'_, '_, '_>) -> Result<usize, Errno> {
        self.socket.proto().send(self, message)
    }

    /// `recvmsg`: what the call returns; the rest is in the message.
    ///
    /// # Errors
    /// As `recvmsg(2)`.
    #[inline]
    pub fn receive(&self, message: &mut Incoming<'_, '_, '_>) -> Result<usize, Errno> {
        message.found = message.flags & MSG_CMSG_CLOEXEC;
        self.socket.proto().receive(self, message)
    }

    /// `setsockopt`.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        self.socket.proto().set_option(self, level, name, value)
    }

    /// `getsockopt`: how many bytes.
    ///
    /// # Errors
    /// As `getsockopt(2)`.
    pub fn option(&self, level: i32, name: i32, to: &mut [u8]) -> Result<usize, Errno> {
        let number = match (level, name) {
            (SOL_SOCKET, SO_TYPE) => self.socket.ty(),
            (SOL_SOCKET, SO_DOMAIN) => self.socket.family(),
            (SOL_SOCKET, SO_PROTOCOL) => match self.socket.protocol() {
                Protocol::Unix => 0,
                Protocol::Tcp => IPPROTO_TCP,
                Protocol::Udp => IPPROTO_UDP,
                Protocol::UdpLite => IPPROTO_UDPLITE,
                Protocol::Raw(number) => number.into(),
            },
            _ => return self.socket.proto().option(self, level, name, to),
        };
        Ok(give_int(to, number))
    }
}
