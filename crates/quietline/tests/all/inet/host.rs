//! The host's sockets.

use crate::inet::call::System;
use std::io;
use std::mem::zeroed;
use std::time::Duration;

/// The host; `slow` gives its loopback device time after each call.
pub(crate) struct Host {
    pub(crate) slow: bool,
}

impl Host {
    fn done(&self, result: isize) -> Result<i32, i32> {
        let result = if result < 0 {
            Err(io::Error::last_os_error().raw_os_error().expect("an errno"))
        } else {
            Ok(result as i32)
        };
        self.rest();
        result
    }

    /// Lets the loopback device be late.
    pub(crate) fn rest(&self) {
        if self.slow {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

impl System for Host {
    fn socket(&mut self, family: i32, ty: i32) -> Result<i32, i32> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(family, ty | libc::SOCK_CLOEXEC, 0) };
        self.done(fd as isize)
    }

    fn close(&mut self, fd: i32) -> Result<i32, i32> {
        // SAFETY: the descriptor is this world's.
        let result = unsafe { libc::close(fd) };
        self.done(result as isize)
    }

    fn bind(&mut self, fd: i32, address: &[u8]) -> Result<i32, i32> {
        // SAFETY: the address has as many bytes as are said.
        let result = unsafe { libc::bind(fd, address.as_ptr().cast(), address.len() as u32) };
        self.done(result as isize)
    }

    fn listen(&mut self, fd: i32, backlog: i32) -> Result<i32, i32> {
        // SAFETY: no memory is passed.
        let result = unsafe { libc::listen(fd, backlog) };
        self.done(result as isize)
    }

    fn connect(&mut self, fd: i32, address: &[u8]) -> Result<i32, i32> {
        // SAFETY: as in `bind`.
        let result = unsafe { libc::connect(fd, address.as_ptr().cast(), address.len() as u32) };
        self.done(result as isize)
    }

    fn accept(&mut self, fd: i32) -> Result<(i32, Vec<u8>), i32> {
        let mut address = vec![0u8; 128];
        let mut len = 128;
        // SAFETY: the address has room for as many bytes as are said.
        let fd = unsafe {
            libc::accept4(
                fd,
                address.as_mut_ptr().cast(),
                &mut len,
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            )
        };
        address.truncate(len as usize);
        self.done(fd as isize).map(|fd| (fd, address))
    }

    fn name(&mut self, fd: i32, peer: bool) -> Result<Vec<u8>, i32> {
        let mut address = vec![0u8; 128];
        let mut len = 128;
        let raw = address.as_mut_ptr().cast();
        // SAFETY: the address has room for as many bytes as are said.
        let result = unsafe {
            if peer {
                libc::getpeername(fd, raw, &mut len)
            } else {
                libc::getsockname(fd, raw, &mut len)
            }
        };
        address.truncate(len as usize);
        if result < 0 {
            return Err(io::Error::last_os_error().raw_os_error().expect("an errno"));
        }
        Ok(address)
    }

    fn shutdown(&mut self, fd: i32, how: i32) -> Result<i32, i32> {
        // SAFETY: no memory is passed.
        let result = unsafe { libc::shutdown(fd, how) };
        self.done(result as isize)
    }

    fn send(&mut self, fd: i32, data: &[u8], flags: i32, to: &[u8]) -> Result<i32, i32> {
        let name = if to.is_empty() { std::ptr::null() } else { to.as_ptr() };
        // SAFETY: both buffers have as many bytes as are said.
        let sent = unsafe {
            libc::sendto(fd, data.as_ptr().cast(), data.len(), flags, name.cast(), to.len() as u32)
        };
        self.done(sent)
    }

    fn receive(
        &mut self,
        fd: i32,
        len: usize,
        flags: i32,
    ) -> Result<(i32, Vec<u8>, Vec<u8>, i32), i32> {
        let (mut data, mut from) = (vec![0u8; len], vec![0u8; 128]);
        let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: len };
        // SAFETY: all of it may be zero.
        let mut message: libc::msghdr = unsafe { zeroed() };
        (message.msg_name, message.msg_namelen) = (from.as_mut_ptr().cast(), 128);
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        // SAFETY: it points to buffers of the lengths that it says.
        let n = unsafe { libc::recvmsg(fd, &mut message, flags) };
        let n = self.done(n)?;
        data.truncate(n as usize);
        from.truncate(message.msg_namelen as usize);
        if flags & libc::MSG_TRUNC != 0 && from.is_empty() {
            // A stream's bytes are thrown away.
            data.clear();
        }
        Ok((n, data, from, message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC)))
    }

    fn read(&mut self, fd: i32, len: usize) -> Result<(i32, Vec<u8>), i32> {
        let mut data = vec![0u8; len];
        // SAFETY: the buffer has as many bytes as are said.
        let n = unsafe { libc::read(fd, data.as_mut_ptr().cast(), len) };
        let n = self.done(n)?;
        data.truncate(n as usize);
        Ok((n, data))
    }

    fn write(&mut self, fd: i32, data: &[u8]) -> Result<i32, i32> {
        // SAFETY: as in `read`; `SIGPIPE` is ignored by the runtime of Rust.
        let n = unsafe { libc::write(fd, data.as_ptr().cast(), data.len()) };
        self.done(n)
    }

    fn set_option(&mut self, fd: i32, level: i32, name: i32, value: i32) -> Result<i32, i32> {
        // A linger of no time, for those who linger.
        let value = [value, 0];
        // SAFETY: the value has as many bytes as are said.
        let result = unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), 8) };
        self.done(result as isize)
    }

    fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<i32, i32> {
        let (mut value, mut len) = (0i32, 4);
        // SAFETY: the value has room for as many bytes as are said.
        let result =
            unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) };
        self.done(result as isize).map(|_| value)
    }

    fn poll(&mut self, fds: &[i32]) -> Vec<i16> {
        let events = ALL;
        let mut fds: Vec<_> =
            fds.iter().map(|&fd| libc::pollfd { fd, events, revents: 0 }).collect();
        // SAFETY: the list has as many entries as are said.
        let result = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, 0) };
        assert!(result >= 0);
        fds.iter().map(|fd| fd.revents).collect()
    }

    fn readable(&mut self, fd: i32) -> Result<i32, i32> {
        let mut bytes = 0i32;
        // SAFETY: the number has room for what is written there.
        let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) };
        if result < 0 {
            Err(io::Error::last_os_error().raw_os_error().expect("an errno"))
        } else {
            Ok(bytes)
        }
    }
}

/// All that poll may say.
pub(crate) const ALL: i16 = 0x3 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x2000;
