//! quietline: one process, whose descriptors are any free ones, so that its threads do not meet in the table.

use super::os::{MAX_EVENTS, Os};
use quietline::abi::*;
use quietline::eventpoll::{EPOLL_CTL_ADD, EPOLL_CTL_MOD};
use quietline::{EpollEvent, Errno, Process};

/// The calls of a process.
#[derive(Clone, Copy)]
pub(crate) struct Quietline<'p>(pub(crate) &'p Process);

/// A descriptor of it.
pub(crate) struct Fd<'p> {
    process: &'p Process,
    fd: i32,
}

impl Drop for Fd<'_> {
    fn drop(&mut self) {
        self.process.close(self.fd).expect("it is open");
    }
}

impl<'p> Quietline<'p> {
    fn own(self, fd: i32) -> Fd<'p> {
        Fd { process: self.0, fd }
    }
}

const TCP_NODELAY: i32 = 1;

/// `struct sockaddr_in` of 127.0.0.1.
fn loopback(port: u16) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    raw[2..4].copy_from_slice(&port.to_be_bytes());
    raw[4..8].copy_from_slice(&[127, 0, 0, 1]);
    raw
}

impl<'p> Os for Quietline<'p> {
    type Fd = Fd<'p>;

    fn socket(self) -> Result<Fd<'p>, Errno> {
        Ok(self.own(self.0.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | O_ANYFD, 0)?))
    }

    fn reuse_port(self, fd: &Fd<'p>) -> Result<(), Errno> {
        self.0.setsockopt(fd.fd, SOL_SOCKET, SO_REUSEPORT, &1_i32.to_ne_bytes())
    }

    fn no_delay(self, fd: &Fd<'p>) -> Result<(), Errno> {
        self.0.setsockopt(fd.fd, IPPROTO_TCP, TCP_NODELAY, &1_i32.to_ne_bytes())
    }

    fn bind(self, fd: &Fd<'p>, port: u16) -> Result<(), Errno> {
        self.0.bind(fd.fd, &loopback(port))
    }

    fn port(self, fd: &Fd<'p>) -> Result<u16, Errno> {
        let name = self.0.getsockname(fd.fd)?;
        let port = name.bytes().get(2..4).and_then(|port| port.try_into().ok());
        port.map(u16::from_be_bytes).ok_or(Errno::INVAL)
    }

    fn listen(self, fd: &Fd<'p>, backlog: i32) -> Result<(), Errno> {
        self.0.listen(fd.fd, backlog)
    }

    fn accept(self, fd: &Fd<'p>) -> Result<Fd<'p>, Errno> {
        Ok(self.own(self.0.accept4(fd.fd, SOCK_NONBLOCK | O_ANYFD)?.0))
    }

    fn connect(self, fd: &Fd<'p>, port: u16) -> Result<(), Errno> {
        self.0.connect(fd.fd, &loopback(port))
    }

    fn shutdown(self, fd: &Fd<'p>) -> Result<(), Errno> {
        self.0.shutdown(fd.fd, SHUT_WR)
    }

    fn read(self, fd: &Fd<'p>, to: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(fd.fd, to)
    }

    fn write(self, fd: &Fd<'p>, from: &[u8]) -> Result<usize, Errno> {
        self.0.write(fd.fd, from)
    }

    fn eventfd(self) -> Result<Fd<'p>, Errno> {
        Ok(self.own(self.0.eventfd(0, EFD_NONBLOCK | O_ANYFD)?))
    }

    fn epoll_create(self) -> Result<Fd<'p>, Errno> {
        Ok(self.own(self.0.epoll_create1(O_ANYFD)?))
    }

    fn epoll_add(self, epoll: &Fd<'p>, fd: &Fd<'p>, event: EpollEvent) -> Result<(), Errno> {
        self.0.epoll_ctl(epoll.fd, EPOLL_CTL_ADD, fd.fd, &event)
    }

    fn epoll_modify(self, epoll: &Fd<'p>, fd: &Fd<'p>, event: EpollEvent) -> Result<(), Errno> {
        self.0.epoll_ctl(epoll.fd, EPOLL_CTL_MOD, fd.fd, &event)
    }

    fn epoll_wait(
        self,
        epoll: &Fd<'p>,
        events: &mut [EpollEvent; MAX_EVENTS],
        milliseconds: i32,
    ) -> Result<usize, Errno> {
        self.0.epoll_wait(epoll.fd, events, milliseconds)
    }
}
