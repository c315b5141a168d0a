//! quietline: calls by descriptor, all threads one process.

use std::sync::Arc;

use quietline::abi::{AF_UNIX, SOCK_STREAM};
use quietline::eventpoll::{EPOLL_CTL_ADD, EPOLLIN};
use quietline::{Config, EpollEvent, Errno, Kernel, Process};

use super::system::{Ends, System};
use crate::adapters::loopback;
use crate::adapters::owned::Owned;
use crate::adapters::probe::failed;
use crate::harness::Fault;
use crate::workloads::Route;

#[derive(Clone)]
pub(super) struct Quietline(Arc<Process>);

impl Quietline {
    fn own(&self, fd: i32) -> Owned {
        Owned { process: self.0.clone(), fd }
    }
}

impl System for Quietline {
    type Fd = Owned;
    type Error = Errno;

    fn boot() -> Result<Self, Fault> {
        let kernel = Kernel::boot(Config::default()).map_err(failed)?;
        Ok(Self(Arc::new(kernel.process().map_err(failed)?)))
    }

    fn ends(&self, route: Route) -> Result<[Ends<Owned>; 2], Errno> {
        let ends = match route {
            Route::Pipes => {
                let pipe = || self.0.pipe2(0).map(|ends| ends.map(|fd| self.own(fd)));
                return Ok(Ends::crossed([pipe()?, pipe()?]));
            }
            Route::Eventfds => {
                let counter = || self.0.eventfd(0, 0).map(|fd| Arc::new(self.own(fd)));
                return Ok(Ends::counters([counter()?, counter()?]));
            }
            Route::Unix => self.0.socketpair(AF_UNIX, SOCK_STREAM, 0)?.map(|fd| self.own(fd)),
            Route::Tcp => loopback::tcp(&self.0)?,
        };
        Ok(ends.map(Ends::both))
    }

    fn epoll_on(&self, fd: &Owned) -> Result<Owned, Errno> {
        let epoll = self.own(self.0.epoll_create1(0)?);
        self.0.epoll_ctl(
            epoll.fd,
            EPOLL_CTL_ADD,
            fd.fd,
            &EpollEvent { events: EPOLLIN, data: 1 },
        )?;
        Ok(epoll)
    }

    #[inline(always)]
    fn wait(&self, epoll: &Owned) -> Result<usize, Errno> {
        self.0.epoll_wait(epoll.fd, &mut [EpollEvent::default()], -1)
    }

    #[inline(always)]
    fn write(&self, fd: &Owned, bytes: &[u8]) -> Result<usize, Errno> {
        self.0.write(fd.fd, bytes)
    }

    #[inline(always)]
    fn read(&self, fd: &Owned, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(fd.fd, bytes)
    }
}
