//! The host kernel, by system calls.

use std::net::{Ipv4Addr, SocketAddrV4};

use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::pipe::{PipeFlags, pipe_with};

use super::system::{Ends, System};
use crate::harness::Fault;
use crate::workloads::Route;

#[derive(Clone)]
pub(super) struct Host;

impl System for Host {
    type Fd = OwnedFd;
    type Error = Errno;

    fn boot() -> Result<Self, Fault> {
        Ok(Self)
    }

    fn ends(&self, route: Route) -> Result<[Ends<OwnedFd>; 2], Errno> {
        let flags = SocketFlags::CLOEXEC;
        let (near, far) = match route {
            Route::Pipes => {
                let pipe = || pipe_with(PipeFlags::CLOEXEC).map(|(read, write)| [read, write]);
                return Ok(Ends::crossed([pipe()?, pipe()?]));
            }
            Route::Unix => net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?,
            Route::Tcp => {
                let socket = || net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
                let listener = socket()?;
                net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
                net::listen(&listener, 1)?;
                let near = socket()?;
                net::connect(&near, &net::getsockname(&listener)?)?;
                let far = net::accept_with(&listener, flags)?;
                for end in [&near, &far] {
                    sockopt::set_tcp_nodelay(end, true)?;
                }
                (near, far)
            }
        };
        Ok([near, far].map(Ends::both))
    }

    fn epoll_on(&self, fd: &OwnedFd) -> Result<OwnedFd, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, fd, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(epoll)
    }

    #[inline(always)]
    fn wait(&self, epoll: &OwnedFd) -> Result<usize, Errno> {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none];
        epoll::wait(epoll, &mut events, None)
    }

    #[inline(always)]
    fn write(&self, fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
        io::write(fd, bytes)
    }

    #[inline(always)]
    fn read(&self, fd: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
        io::read(fd, bytes)
    }
}
