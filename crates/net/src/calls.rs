//! The calls on sockets: what is the same for all families, and then the family's.

use crate::abi::*;
use crate::address::SockAddr;
use crate::caller::Nobody;
use crate::message::{Control, Incoming, Outgoing};
use crate::options::give_int;
use crate::proto::On;
use crate::socket::Protocol;
use quietline_vfs::{Sink, Source};
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
        // In all families it comes before the state of the socket.
        if !matches!(how, SHUT_RD | SHUT_WR | SHUT_RDWR) {
            return Err(Errno::INVAL);
        }
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

    /// `read`, where `try_read` and a wait do not do; none where they do. Of a stream where it may have to wait in the middle because
    /// it wants more than a byte. Of messages wherever it waits: each of them wakes one reader, who takes one, so nobody wakes the
    /// next because there are more (what is left when somebody has only looked waits for the next message, as on Linux).
    pub fn read(&self, to: &mut Sink<'_, '_>) -> Option<Result<usize, Errno>> {
        if !self.waits(0) || to.left() == 0 {
            return None;
        }
        if self.socket.ty() == SOCK_STREAM && self.socket.proto().least(self.socket, to.left()) <= 1
        {
            return None;
        }
        let (mut name, mut control) = (SockAddr::NONE, Control::new(&mut []));
        let mut message =
            Incoming { name: &mut name, data: to, control: &mut control, flags: 0, found: 0 };
        Some(self.socket.proto().receive(self, &mut message))
    }

    /// `write`, of a local message where it may wait: for a place in the receiver's queue, in turn with those who send; none where
    /// `try_write` and a wait do.
    pub fn write(&self, from: &mut Source<'_, '_>) -> Option<Result<usize, Errno>> {
        if !self.waits(0) || self.socket.ty() == SOCK_STREAM || self.socket.family() != AF_UNIX {
            return None;
        }
        let on = On { who: &Nobody, ..*self };
        let mut message = Outgoing { name: &SockAddr::NONE, data: from, control: &[], flags: 0 };
        Some(self.socket.proto().send(&on, &mut message))
    }

    /// What is to be told once (`sock_error`).
    ///
    /// # Errors
    /// That.
    pub fn take_error(&self) -> Result<(), Errno> {
        let mut error = [0; 4];
        // A socket that has no such option has no error.
        let _ = self.socket.proto().option(self, SOL_SOCKET, SO_ERROR, &mut error);
        match i32::from_ne_bytes(error) {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }

    /// A call on several messages has failed after the first: the next call is told.
    pub fn keep_error(&self, errno: Errno) {
        self.socket.proto().keep_error(self.socket, errno);
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
