//! The calls, on the host and on quietline.

use crate::sleepers::call::Outcome;
use quietline::{Errno, PollFd, Process};
use std::io;

pub(crate) type Result<T> = std::result::Result<T, i32>;

/// What both can do.
pub(crate) trait System: Send + Sync + 'static {
    fn pair(&self) -> [i32; 2];
    fn socket(&self) -> i32;
    fn bind(&self, fd: i32, name: &[u8]) -> Result<()>;
    fn listen(&self, fd: i32) -> Result<()>;
    fn connect(&self, fd: i32, name: &[u8]) -> Result<()>;
    fn accept(&self, fd: i32) -> Result<i32>;
    fn name(&self, fd: i32) -> Vec<u8>;
    fn counter(&self, flags: i32) -> i32;
    fn read(&self, fd: i32, to: &mut [u8]) -> Result<usize>;
    fn write(&self, fd: i32, from: &[u8]) -> Result<usize>;
    fn recv(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<usize>;
    fn send(&self, fd: i32, from: &[u8], flags: i32) -> Result<usize>;
    /// `setsockopt` of `SOL_SOCKET`.
    fn set(&self, fd: i32, option: i32, value: i32) -> Result<()>;
    /// `FIONREAD`.
    fn readable(&self, fd: i32) -> Result<i32>;
    /// `poll`, without waiting.
    fn poll(&self, fd: i32, events: i16) -> i16;
    fn shutdown(&self, fd: i32, how: i32) -> Result<()>;
    fn close(&self, fd: i32);
}

/// A read of so many bytes, by `read` or `recv`.
pub(crate) fn read(on: &dyn System, fd: i32, len: usize, by_recv: bool) -> Outcome {
    let mut bytes = vec![0; len];
    let result = if by_recv { on.recv(fd, &mut bytes, 0) } else { on.read(fd, &mut bytes) };
    bytes.truncate(result.unwrap_or(0));
    Outcome { result, bytes }
}

/// What there is, at most so many bytes: nothing if there is none, or no more.
pub(crate) fn drain(on: &dyn System, fd: i32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let n = on.recv(fd, &mut bytes, libc::MSG_DONTWAIT).unwrap_or(0);
    bytes.truncate(n);
    bytes
}

/// A connection over the loopback device.
pub(crate) fn connection(on: &dyn System) -> [i32; 2] {
    let mut name = [0; 16];
    name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    name[4..8].copy_from_slice(&[127, 0, 0, 1]);
    let [listener, client] = [(); 2].map(|()| on.socket());
    on.bind(listener, &name).unwrap();
    on.listen(listener).unwrap();
    on.connect(client, &on.name(listener)).unwrap();
    let server = on.accept(listener).unwrap();
    on.close(listener);
    [client, server]
}

pub(crate) struct Host;

fn checked(result: isize) -> Result<usize> {
    usize::try_from(result)
        .map_err(|_| io::Error::last_os_error().raw_os_error().expect("a system error"))
}

fn done(result: i32) -> Result<()> {
    checked(result as isize).map(drop)
}

// SAFETY, of all blocks here: the pointers are to buffers that live during the call, with their lengths.
#[allow(clippy::undocumented_unsafe_blocks)]
impl System for Host {
    fn pair(&self) -> [i32; 2] {
        let mut ends = [0; 2];
        let made =
            unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
        done(made).unwrap();
        ends
    }

    fn socket(&self) -> i32 {
        checked(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) } as isize).unwrap()
            as i32
    }

    fn bind(&self, fd: i32, name: &[u8]) -> Result<()> {
        done(unsafe { libc::bind(fd, name.as_ptr().cast(), name.len() as u32) })
    }

    fn listen(&self, fd: i32) -> Result<()> {
        done(unsafe { libc::listen(fd, 1) })
    }

    fn connect(&self, fd: i32, name: &[u8]) -> Result<()> {
        done(unsafe { libc::connect(fd, name.as_ptr().cast(), name.len() as u32) })
    }

    fn accept(&self, fd: i32) -> Result<i32> {
        let new = unsafe { libc::accept4(fd, core::ptr::null_mut(), core::ptr::null_mut(), 0) };
        checked(new as isize).map(|fd| fd as i32)
    }

    fn name(&self, fd: i32) -> Vec<u8> {
        let (mut name, mut len) = ([0u8; 128], 128);
        done(unsafe { libc::getsockname(fd, name.as_mut_ptr().cast(), &mut len) }).unwrap();
        name[..len as usize].to_vec()
    }

    fn counter(&self, flags: i32) -> i32 {
        checked(unsafe { libc::eventfd(0, flags) } as isize).unwrap() as i32
    }

    fn read(&self, fd: i32, to: &mut [u8]) -> Result<usize> {
        checked(unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) })
    }

    fn write(&self, fd: i32, from: &[u8]) -> Result<usize> {
        checked(unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) })
    }

    fn recv(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<usize> {
        checked(unsafe { libc::recv(fd, to.as_mut_ptr().cast(), to.len(), flags) })
    }

    fn send(&self, fd: i32, from: &[u8], flags: i32) -> Result<usize> {
        checked(unsafe { libc::send(fd, from.as_ptr().cast(), from.len(), flags) })
    }

    fn set(&self, fd: i32, option: i32, value: i32) -> Result<()> {
        let (at, len) = ((&raw const value).cast(), size_of::<i32>() as u32);
        done(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, at, len) })
    }

    fn readable(&self, fd: i32) -> Result<i32> {
        let mut n = 0;
        done(unsafe { libc::ioctl(fd, libc::FIONREAD, &mut n) })?;
        Ok(n)
    }

    fn poll(&self, fd: i32, events: i16) -> i16 {
        let mut of = libc::pollfd { fd, events, revents: 0 };
        done(unsafe { libc::poll(&mut of, 1, 0) }).unwrap();
        of.revents
    }

    fn shutdown(&self, fd: i32, how: i32) -> Result<()> {
        done(unsafe { libc::shutdown(fd, how) })
    }

    fn close(&self, fd: i32) {
        done(unsafe { libc::close(fd) }).unwrap();
    }
}

pub(crate) struct Ours(pub(crate) Process);

fn told<T>(result: std::result::Result<T, Errno>) -> Result<T> {
    result.map_err(Errno::raw_os_error)
}

impl System for Ours {
    fn pair(&self) -> [i32; 2] {
        self.0.socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap()
    }

    fn socket(&self) -> i32 {
        self.0.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap()
    }

    fn bind(&self, fd: i32, name: &[u8]) -> Result<()> {
        told(self.0.bind(fd, name))
    }

    fn listen(&self, fd: i32) -> Result<()> {
        told(self.0.listen(fd, 1))
    }

    fn connect(&self, fd: i32, name: &[u8]) -> Result<()> {
        told(self.0.connect(fd, name))
    }

    fn accept(&self, fd: i32) -> Result<i32> {
        told(self.0.accept(fd)).map(|(fd, _)| fd)
    }

    fn name(&self, fd: i32) -> Vec<u8> {
        self.0.getsockname(fd).unwrap().bytes().to_vec()
    }

    fn counter(&self, flags: i32) -> i32 {
        self.0.eventfd(0, flags).unwrap()
    }

    fn read(&self, fd: i32, to: &mut [u8]) -> Result<usize> {
        told(self.0.read(fd, to))
    }

    fn write(&self, fd: i32, from: &[u8]) -> Result<usize> {
        told(self.0.write(fd, from))
    }

    fn recv(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<usize> {
        told(self.0.recv(fd, to, flags))
    }

    fn send(&self, fd: i32, from: &[u8], flags: i32) -> Result<usize> {
        told(self.0.send(fd, from, flags))
    }

    fn set(&self, fd: i32, option: i32, value: i32) -> Result<()> {
        told(self.0.setsockopt(fd, libc::SOL_SOCKET, option, &value.to_ne_bytes()))
    }

    fn readable(&self, fd: i32) -> Result<i32> {
        let mut n = 0;
        told(self.0.ioctl(fd, libc::FIONREAD, &mut n)).map(|_| n)
    }

    fn poll(&self, fd: i32, events: i16) -> i16 {
        let mut of = [PollFd::new(fd, events)];
        self.0.poll(&mut of, 0).unwrap();
        of[0].revents
    }

    fn shutdown(&self, fd: i32, how: i32) -> Result<()> {
        told(self.0.shutdown(fd, how))
    }

    fn close(&self, fd: i32) {
        self.0.close(fd).unwrap();
    }
}
