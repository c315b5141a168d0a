//! The library's sockets.

use crate::inet::call::System;
use crate::inet::host::ALL;
use quietline::{Config, Errno, Kernel, PollFd, Process, RecvMsg};

/// A process of a kernel of its own.
pub(crate) struct Ours {
    pub(crate) process: Process,
}

impl Ours {
    pub(crate) fn new() -> Self {
        let kernel = Kernel::boot(Config::default()).expect("boots");
        Self { process: kernel.process().expect("a process") }
    }
}

fn done<T>(result: Result<T, Errno>, number: impl FnOnce(T) -> i32) -> Result<i32, i32> {
    result.map(number).map_err(Errno::raw_os_error)
}

fn nothing((): ()) -> i32 {
    0
}

impl System for Ours {
    fn socket(&mut self, family: i32, ty: i32) -> Result<i32, i32> {
        done(self.process.socket(family, ty, 0), |fd| fd)
    }

    fn close(&mut self, fd: i32) -> Result<i32, i32> {
        done(self.process.close(fd), nothing)
    }

    fn bind(&mut self, fd: i32, address: &[u8]) -> Result<i32, i32> {
        done(self.process.bind(fd, address), nothing)
    }

    fn listen(&mut self, fd: i32, backlog: i32) -> Result<i32, i32> {
        done(self.process.listen(fd, backlog), nothing)
    }

    fn connect(&mut self, fd: i32, address: &[u8]) -> Result<i32, i32> {
        done(self.process.connect(fd, address), nothing)
    }

    fn accept(&mut self, fd: i32) -> Result<(i32, Vec<u8>), i32> {
        let done = self.process.accept4(fd, libc::SOCK_NONBLOCK);
        done.map(|(fd, address)| (fd, address.bytes().to_vec())).map_err(Errno::raw_os_error)
    }

    fn name(&mut self, fd: i32, peer: bool) -> Result<Vec<u8>, i32> {
        let name = if peer { self.process.getpeername(fd) } else { self.process.getsockname(fd) };
        name.map(|name| name.bytes().to_vec()).map_err(Errno::raw_os_error)
    }

    fn shutdown(&mut self, fd: i32, how: i32) -> Result<i32, i32> {
        done(self.process.shutdown(fd, how), nothing)
    }

    fn send(&mut self, fd: i32, data: &[u8], flags: i32, to: &[u8]) -> Result<i32, i32> {
        done(self.process.sendto(fd, data, flags, to), |n| n as i32)
    }

    fn receive(
        &mut self,
        fd: i32,
        len: usize,
        flags: i32,
    ) -> Result<(i32, Vec<u8>, Vec<u8>, i32), i32> {
        let mut data = vec![0; len];
        let mut buffers = [&mut data[..]];
        let mut message = RecvMsg { buffers: &mut buffers, ..RecvMsg::default() };
        let n = self.process.recvmsg(fd, &mut message, flags).map_err(Errno::raw_os_error)?;
        let (from, found) = (message.name.bytes().to_vec(), message.flags);
        data.truncate(n);
        if flags & libc::MSG_TRUNC != 0 && from.is_empty() {
            data.clear();
        }
        Ok((n as i32, data, from, found & (libc::MSG_TRUNC | libc::MSG_CTRUNC)))
    }

    fn read(&mut self, fd: i32, len: usize) -> Result<(i32, Vec<u8>), i32> {
        let mut data = vec![0; len];
        let n = self.process.read(fd, &mut data).map_err(Errno::raw_os_error)?;
        data.truncate(n);
        Ok((n as i32, data))
    }

    fn write(&mut self, fd: i32, data: &[u8]) -> Result<i32, i32> {
        done(self.process.write(fd, data), |n| n as i32)
    }

    fn set_option(&mut self, fd: i32, level: i32, name: i32, value: i32) -> Result<i32, i32> {
        let value = [value.to_ne_bytes(), [0; 4]].concat();
        done(self.process.setsockopt(fd, level, name, &value), nothing)
    }

    fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<i32, i32> {
        let mut value = [0; 4];
        done(self.process.getsockopt(fd, level, name, &mut value), |_| 0)?;
        Ok(i32::from_ne_bytes(value))
    }

    fn poll(&mut self, fds: &[i32]) -> Vec<i16> {
        let mut fds: Vec<_> =
            fds.iter().map(|&fd| PollFd { fd, events: ALL, revents: 0 }).collect();
        self.process.poll(&mut fds, 0).expect("polled");
        fds.iter().map(|fd| fd.revents).collect()
    }

    fn readable(&mut self, fd: i32) -> Result<i32, i32> {
        let mut bytes = 0;
        done(self.process.ioctl(fd, libc::FIONREAD, &mut bytes), |_| 0).map(|_| bytes)
    }
}
