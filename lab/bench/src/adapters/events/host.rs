//! The host kernel, by system calls.

use std::sync::Arc;

use rustix::event::{self, EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};

use super::system::{Control, MAX_EVENTS, Page, System};
use crate::adapters::loopback;
use crate::harness::Fault;
use crate::raw;
use crate::workloads::Channel;

#[derive(Clone)]
pub(super) struct Host;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn socketpair(kind: SocketType) -> Result<(OwnedFd, OwnedFd), Errno> {
    net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

impl System for Host {
    type Fd = OwnedFd;
    type Error = Errno;

    fn boot() -> Result<Self, Fault> {
        Ok(Self)
    }

    fn channel(&self, channel: Channel) -> Result<[Arc<OwnedFd>; 2], Errno> {
        let (read, write) = match channel {
            Channel::Eventfd => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                let both = Arc::new(event::eventfd(0, flags)?);
                return Ok([both.clone(), both]);
            }
            Channel::Pipe => pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?,
            Channel::Unix => socketpair(SocketType::STREAM)?,
            Channel::UnixDatagrams => socketpair(SocketType::DGRAM)?,
            Channel::Tcp => return Ok(loopback::host_tcp()?.map(Arc::new)),
            Channel::Udp => return Ok(loopback::host_udp()?.map(Arc::new)),
        };
        Ok([Arc::new(read), Arc::new(write)])
    }

    fn epoll(&self) -> Result<OwnedFd, Errno> {
        epoll::create(epoll::CreateFlags::CLOEXEC)
    }

    #[inline(always)]
    fn control(&self, epoll: &OwnedFd, fd: &OwnedFd, what: Control) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64;
        match what {
            Control::Add(number) => epoll::add(epoll, fd, data(number), epoll::EventFlags::IN),
            Control::Modify(number) => {
                epoll::modify(epoll, fd, data(number), epoll::EventFlags::IN)
            }
            Control::Delete => epoll::delete(epoll, fd),
        }
    }

    #[inline(always)]
    fn wait(&self, epoll: &OwnedFd, data: &mut [u64; MAX_EVENTS]) -> Result<usize, Errno> {
        let none =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; MAX_EVENTS];
        let n = epoll::wait(epoll, &mut events, Some(&NOW))?;
        data.iter_mut().zip(&events[..n]).for_each(|(data, event)| *data = event.data.u64());
        Ok(n)
    }

    #[inline(always)]
    fn poll(&self, fd: &OwnedFd) -> Result<bool, Errno> {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let n = event::poll(&mut fds, Some(&NOW))?;
        Ok(n == 1 && fds[0].revents() == PollFlags::IN)
    }

    #[inline(always)]
    fn write(&self, fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
        io::write(fd, bytes)
    }

    #[inline(always)]
    fn read(&self, fd: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
        io::read(fd, bytes)
    }

    #[inline(always)]
    fn give(
        &self,
        [read, write]: [&OwnedFd; 2],
        number: u64,
        [given, room]: &mut [Page; 2],
    ) -> Result<Option<[u64; 2]>, Errno> {
        Page::mark(&mut given.0, number);
        Page::mark(&mut room.0, 0);
        let n = raw::vmsplice_gift(write, &given.0)?;
        let taken = io::read(read, &mut room.0)?;
        Ok(if n == taken { Page::ends(&room.0[..taken]) } else { None })
    }

    fn would_wait(error: &Errno) -> bool {
        *error == Errno::AGAIN
    }
}
