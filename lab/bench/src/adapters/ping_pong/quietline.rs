//! quietline: calls by descriptor, all threads one process.

use std::sync::Arc;

use quietline::abi::{AF_INET, AF_UNIX, SOCK_STREAM};
use quietline::eventpoll::{EPOLL_CTL_ADD, EPOLLIN};
use quietline::{Config, EpollEvent, Errno, Kernel, Process};

use super::system::{Ends, System};
use crate::adapters::probe::failed;
use crate::harness::Fault;
use crate::workloads::Route;

#[derive(Clone)]
pub(super) struct Quietline(Arc<Process>);

/// A descriptor, closed when it is dropped.
pub(super) struct Fd {
    process: Arc<Process>,
    fd: i32,
}

impl Drop for Fd {
    fn drop(&mut self) {
        self.process.close(self.fd).expect("it is open");
    }
}

impl Quietline {
    fn own(&self, fd: i32) -> Fd {
        Fd { process: self.0.clone(), fd }
    }

    fn stream(&self) -> Result<Fd, Errno> {
        Ok(self.own(self.0.socket(AF_INET, SOCK_STREAM, 0)?))
    }
}

impl System for Quietline {
    type Fd = Fd;
    type Error = Errno;

    fn boot() -> Result<Self, Fault> {
        let kernel = Kernel::boot(Config::default()).map_err(failed)?;
        Ok(Self(Arc::new(kernel.process().map_err(failed)?)))
    }

    fn ends(&self, route: Route) -> Result<[Ends<Fd>; 2], Errno> {
        let ends = match route {
            Route::Pipes => {
                let pipe = || self.0.pipe2(0).map(|ends| ends.map(|fd| self.own(fd)));
                return Ok(Ends::crossed([pipe()?, pipe()?]));
            }
            Route::Unix => self.0.socketpair(AF_UNIX, SOCK_STREAM, 0)?.map(|fd| self.own(fd)),
            Route::Tcp => {
                // The family, no port yet, 127.0.0.1.
                let mut address = [0; 16];
                address[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
                address[4..8].copy_from_slice(&[127, 0, 0, 1]);
                let listener = self.stream()?;
                self.0.bind(listener.fd, &address)?;
                self.0.listen(listener.fd, 1)?;
                let near = self.stream()?;
                self.0.connect(near.fd, self.0.getsockname(listener.fd)?.bytes())?;
                let far = self.own(self.0.accept(listener.fd)?.0);
                [near, far]
            }
        };
        Ok(ends.map(Ends::both))
    }

    fn epoll_on(&self, fd: &Fd) -> Result<Fd, Errno> {
        let epoll = self.own(self.0.epoll_create1(0)?);
        self.0.epoll_ctl(epoll.fd, EPOLL_CTL_ADD, fd.fd, &EpollEvent { events: EPOLLIN, data: 1 })?;
        Ok(epoll)
    }

    #[inline(always)]
    fn wait(&self, epoll: &Fd) -> Result<usize, Errno> {
        self.0.epoll_wait(epoll.fd, &mut [EpollEvent::default()], -1)
    }

    #[inline(always)]
    fn write(&self, fd: &Fd, bytes: &[u8]) -> Result<usize, Errno> {
        self.0.write(fd.fd, bytes)
    }

    #[inline(always)]
    fn read(&self, fd: &Fd, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(fd.fd, bytes)
    }
}
