//! quietline: calls by descriptor, all threads one process.

use std::sync::Arc;

use quietline::abi::{
    AF_UNIX, O_ANYFD, O_NONBLOCK, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM, SPLICE_F_NONBLOCK,
};
use quietline::eventpoll::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use quietline::{Config, EpollEvent, Errno, Events, Kernel, PollFd, Process};

use super::system::{Control, MAX_EVENTS, Page, System};
use crate::adapters::loopback;
use crate::adapters::owned::Owned;
use crate::adapters::probe::failed;
use crate::harness::Fault;
use crate::workloads::Channel;

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

    fn channel(&self, channel: Channel) -> Result<[Arc<Owned>; 2], Errno> {
        let ends = match channel {
            Channel::Eventfd => {
                let both = Arc::new(self.own(self.0.eventfd(0, O_NONBLOCK | O_ANYFD)?));
                return Ok([both.clone(), both]);
            }
            Channel::Pipe => self.0.pipe2(O_NONBLOCK | O_ANYFD)?,
            Channel::Unix => {
                self.0.socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | O_ANYFD, 0)?
            }
            Channel::UnixDatagrams => {
                self.0.socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | O_ANYFD, 0)?
            }
            Channel::Tcp => return Ok(loopback::tcp(&self.0)?.map(Arc::new)),
            Channel::Udp => return Ok(loopback::udp(&self.0)?.map(Arc::new)),
        };
        Ok(ends.map(|fd| Arc::new(self.own(fd))))
    }

    fn epoll(&self) -> Result<Owned, Errno> {
        Ok(self.own(self.0.epoll_create1(O_ANYFD)?))
    }

    #[inline(always)]
    fn control(&self, epoll: &Owned, fd: &Owned, what: Control) -> Result<(), Errno> {
        let (op, data) = match what {
            Control::Add(data) => (EPOLL_CTL_ADD, data),
            Control::Modify(data) => (EPOLL_CTL_MOD, data),
            Control::Delete => (EPOLL_CTL_DEL, 0),
        };
        self.0.epoll_ctl(epoll.fd, op, fd.fd, &EpollEvent { events: Events::IN.bits(), data })
    }

    #[inline(always)]
    fn wait(&self, epoll: &Owned, data: &mut [u64; MAX_EVENTS]) -> Result<usize, Errno> {
        let mut events = [EpollEvent::default(); MAX_EVENTS];
        let n = self.0.epoll_wait(epoll.fd, &mut events, 0)?;
        data.iter_mut().zip(&events[..n]).for_each(|(data, event)| *data = event.data);
        Ok(n)
    }

    #[inline(always)]
    fn poll(&self, fd: &Owned) -> Result<bool, Errno> {
        let mut fds = [PollFd { fd: fd.fd, events: Events::IN.bits() as i16, revents: 0 }];
        let n = self.0.poll(&mut fds, 0)?;
        Ok(n == 1 && fds[0].revents == Events::IN.bits() as i16)
    }

    #[inline(always)]
    fn write(&self, fd: &Owned, bytes: &[u8]) -> Result<usize, Errno> {
        self.0.write(fd.fd, bytes)
    }

    #[inline(always)]
    fn read(&self, fd: &Owned, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(fd.fd, bytes)
    }

    /// A page of its own each time.
    #[inline(always)]
    fn give(
        &self,
        [read, write]: [&Owned; 2],
        number: u64,
        _: &mut [Page; 2],
    ) -> Result<Option<[u64; 2]>, Errno> {
        let mut page = self.0.gift_page()?;
        Page::mark(page.room(), number);
        page.set_len(4096);
        let n = self.0.vmsplice_gift(write.fd, &mut [Some(page)], SPLICE_F_NONBLOCK)?;
        let mut to = [None];
        let taken = self.0.take_pages(read.fd, &mut to, SPLICE_F_NONBLOCK)?;
        Ok(if n == taken { to[0].as_ref().and_then(|page| Page::ends(page)) } else { None })
    }

    fn would_wait(error: &Errno) -> bool {
        *error == Errno::AGAIN
    }
}
