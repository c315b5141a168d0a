//! The host kernel, by system calls; each thread with descriptors of its own.

use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::{self, Errno, IoSlice, IoSliceMut};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};
use rustix::pipe::{PipeFlags, pipe_with};

use super::system::{Calls, System};
use crate::adapters::loopback;
use crate::adapters::probe::failed;
use crate::harness::Fault;
use crate::raw;

pub(super) struct Host;

/// A thread with a descriptor table of its own.
pub(super) struct Thread;

pub(super) struct Listener {
    fd: OwnedFd,
    address: SocketAddrAny,
}

impl System for Host {
    type Calls = Thread;

    fn boot() -> Result<Self, Fault> {
        Ok(Self)
    }

    fn enter(&self) -> Result<Thread, Fault> {
        raw::own_descriptor_table().map_err(failed)?;
        Ok(Thread)
    }

    fn open_files(&self) -> Option<i64> {
        None
    }
}

#[inline(always)]
fn connected(near: OwnedFd, to: &Listener) -> Result<[OwnedFd; 2], Errno> {
    net::connect(&near, &to.address)?;
    Ok([near, net::accept_with(&to.fd, SocketFlags::empty())?])
}

fn stream(family: AddressFamily) -> Result<OwnedFd, Errno> {
    net::socket_with(family, SocketType::STREAM, SocketFlags::empty(), None)
}

impl Calls for Thread {
    type Fd = OwnedFd;
    type Listener = Listener;
    type Error = Errno;

    #[inline(always)]
    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        drop(fd);
        Ok(())
    }

    fn pipe(&self) -> Result<[OwnedFd; 2], Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok([write, read])
    }

    #[inline(always)]
    fn pair(&self) -> Result<[OwnedFd; 2], Errno> {
        net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)
            .map(Into::into)
    }

    fn unix_listener(&self) -> Result<Listener, Errno> {
        let fd = stream(AddressFamily::UNIX)?;
        net::bind(&fd, &SocketAddrUnix::new_unnamed())?;
        net::listen(&fd, 1)?;
        Ok(Listener { address: net::getsockname(&fd)?, fd })
    }

    fn tcp_listener(&self) -> Result<Listener, Errno> {
        let fd = loopback::host_listener()?;
        Ok(Listener { address: net::getsockname(&fd)?, fd })
    }

    #[inline(always)]
    fn unix_connect(&self, to: &Listener) -> Result<[OwnedFd; 2], Errno> {
        connected(stream(AddressFamily::UNIX)?, to)
    }

    #[inline(always)]
    fn tcp_connect(&self, to: &Listener) -> Result<[OwnedFd; 2], Errno> {
        let near = stream(AddressFamily::INET)?;
        sockopt::set_socket_linger(&near, Some(Duration::ZERO))?;
        connected(near, to)
    }

    #[inline(always)]
    fn pass(&self, [from, to]: &[OwnedFd; 2], fd: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
        let fds = [fd.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        // It was made for one.
        let fits = control.push(SendAncillaryMessage::ScmRights(&fds));
        let sent = net::sendmsg(from, &[IoSlice::new(b"f")], &mut control, SendFlags::empty())?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let got =
            net::recvmsg(to, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::empty())?;
        let mut came = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                came = fds.last();
            }
        }
        Ok(came.filter(|_| fits && sent == 1 && got.bytes == 1 && byte == *b"f"))
    }

    fn write(&self, fd: &OwnedFd, byte: u8) -> Result<bool, Errno> {
        Ok(io::write(fd, &[byte])? == 1)
    }

    fn read(&self, fd: &OwnedFd) -> Result<u8, Errno> {
        let mut byte = [0];
        if io::read(fd, &mut byte)? == 1 { Ok(byte[0]) } else { Err(Errno::PIPE) }
    }

    fn open_here(&self) -> Result<Option<usize>, Errno> {
        let folder =
            fs::open("/proc/thread-self/fd", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut n = 0;
        for entry in fs::Dir::read_from(&folder)? {
            entry?;
            n += 1;
        }
        Ok(Some(n))
    }
}
