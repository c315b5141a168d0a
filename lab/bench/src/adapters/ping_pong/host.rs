//! The host kernel, by system calls.

use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};

use super::system::{Ends, System};
use crate::adapters::loopback;
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
            Route::Eventfds => {
                let counter = || eventfd(0, EventfdFlags::CLOEXEC).map(Arc::new);
                return Ok(Ends::counters([counter()?, counter()?]));
            }
            Route::Unix => net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?,
            Route::Tcp => loopback::host_tcp()?.into(),
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
        let none =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
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
