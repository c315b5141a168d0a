//! The host kernel, by system calls.

use super::os::{MAX_EVENTS, Os};
use quietline::{EpollEvent, Errno};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::net::{self, AddressFamily, Shutdown, SocketAddrAny, SocketFlags, SocketType, sockopt};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// The calls of this process.
#[derive(Clone, Copy)]
pub(crate) struct Host;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn parts(event: EpollEvent) -> (epoll::EventData, epoll::EventFlags) {
    (epoll::EventData::new_u64(event.data), epoll::EventFlags::from_bits_retain(event.events))
}

impl Os for Host {
    type Fd = OwnedFd;

    fn socket(self) -> Result<OwnedFd, Errno> {
        net::socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)
    }

    fn reuse_port(self, fd: &OwnedFd) -> Result<(), Errno> {
        sockopt::set_socket_reuseport(fd, true)
    }

    fn no_delay(self, fd: &OwnedFd) -> Result<(), Errno> {
        sockopt::set_tcp_nodelay(fd, true)
    }

    fn bind(self, fd: &OwnedFd, port: u16) -> Result<(), Errno> {
        net::bind(fd, &loopback(port))
    }

    fn port(self, fd: &OwnedFd) -> Result<u16, Errno> {
        let name: SocketAddrAny = net::getsockname(fd)?;
        SocketAddr::try_from(name).map(|name| name.port())
    }

    fn listen(self, fd: &OwnedFd, backlog: i32) -> Result<(), Errno> {
        net::listen(fd, backlog)
    }

    fn accept(self, fd: &OwnedFd) -> Result<OwnedFd, Errno> {
        net::accept_with(fd, FLAGS)
    }

    fn connect(self, fd: &OwnedFd, port: u16) -> Result<(), Errno> {
        net::connect(fd, &loopback(port))
    }

    fn shutdown(self, fd: &OwnedFd) -> Result<(), Errno> {
        net::shutdown(fd, Shutdown::Write)
    }

    fn read(self, fd: &OwnedFd, to: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(fd, to)
    }

    fn write(self, fd: &OwnedFd, from: &[u8]) -> Result<usize, Errno> {
        // (A program ignores SIGPIPE if Rust's runtime has started it.)
        rustix::io::write(fd, from)
    }

    fn eventfd(self) -> Result<OwnedFd, Errno> {
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
    }

    fn epoll_create(self) -> Result<OwnedFd, Errno> {
        epoll::create(epoll::CreateFlags::CLOEXEC)
    }

    fn epoll_add(self, epoll: &OwnedFd, fd: &OwnedFd, event: EpollEvent) -> Result<(), Errno> {
        let (data, flags) = parts(event);
        epoll::add(epoll, fd, data, flags)
    }

    fn epoll_modify(self, epoll: &OwnedFd, fd: &OwnedFd, event: EpollEvent) -> Result<(), Errno> {
        let (data, flags) = parts(event);
        epoll::modify(epoll, fd, data, flags)
    }

    fn epoll_wait(
        self,
        epoll: &OwnedFd,
        events: &mut [EpollEvent; MAX_EVENTS],
        milliseconds: i32,
    ) -> Result<usize, Errno> {
        let none =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut found = [none; MAX_EVENTS];
        let timeout = u32::try_from(milliseconds).ok().map(|ms| Timespec {
            tv_sec: i64::from(ms / 1000),
            tv_nsec: i64::from(ms % 1000) * 1_000_000,
        });
        let n = epoll::wait(epoll, &mut found, timeout.as_ref())?;
        for (event, found) in events.iter_mut().zip(&found[..n]) {
            // (Its fields may lie at odd addresses.)
            let (flags, data) = (found.flags, found.data);
            *event = EpollEvent { events: flags.bits(), data: data.u64() };
        }
        Ok(n)
    }
}
