//! Sockets that are connected, of both systems, and the calls on them.

use quietline::{Errno, Process};

/// What a call returned, and bytes.
pub(super) type Said = Result<(i64, Vec<u8>), i32>;

static ON: i32 = 1;

pub(super) trait Sockets {
    fn ends(&mut self, family: i32, ty: i32) -> [i32; 3];
    fn close(&mut self, fd: i32);
    /// `TCP_NODELAY`.
    fn at_once(&mut self, fd: i32);
    fn set(&mut self, fd: i32, name: i32, value: &[u8]) -> Said;
    fn get(&mut self, fd: i32, name: i32, len: usize) -> Said;
    fn send(&mut self, fd: i32, bytes: &[u8], flags: i32) -> Said;
    fn receive(&mut self, fd: i32, len: usize, flags: i32) -> Said;
    fn read(&mut self, fd: i32, len: usize) -> Said;
    fn shutdown(&mut self, fd: i32, how: i32) -> Said;
    fn accept(&mut self, fd: i32) -> Said;
    fn poll(&mut self, fds: [i32; 3]) -> [i16; 3];
}

pub(super) struct Host;

fn said(result: isize, mut bytes: Vec<u8>) -> Said {
    if result < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().expect("an errno"));
    }
    bytes.truncate(result as usize);
    Ok((result as i64, bytes))
}

/// 127.0.0.1, any port.
fn loopback() -> Vec<u8> {
    let mut raw = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    raw.extend([0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    raw
}

// SAFETY, of all calls below: they are given buffers of the lengths that they are told.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Sockets for Host {
    fn ends(&mut self, family: i32, ty: i32) -> [i32; 3] {
        let bound = |ty: i32| unsafe {
            let (fd, mut raw) = (libc::socket(family, ty | libc::SOCK_CLOEXEC, 0), loopback());
            if family == libc::AF_UNIX {
                // Any name.
                raw = (family as u16).to_ne_bytes().to_vec();
            }
            assert_eq!(libc::bind(fd, raw.as_ptr().cast(), raw.len() as u32), 0);
            let (mut name, mut len) = (vec![0u8; 128], 128);
            assert_eq!(libc::getsockname(fd, name.as_mut_ptr().cast(), &mut len), 0);
            name.truncate(len as usize);
            (fd, name)
        };
        let connect = |fd: i32, name: &[u8]| unsafe {
            assert_eq!(libc::connect(fd, name.as_ptr().cast(), name.len() as u32), 0);
        };
        let (listener, name) = bound(if ty == libc::SOCK_DGRAM { libc::SOCK_STREAM } else { ty });
        unsafe {
            assert_eq!(libc::listen(listener, 1), 0);
            if family == libc::AF_UNIX {
                let mut ends = [0; 2];
                assert_eq!(
                    libc::socketpair(family, ty | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()),
                    0
                );
                return [ends[0], ends[1], listener];
            }
            if ty == libc::SOCK_DGRAM {
                let (one, other) = (bound(ty), bound(ty));
                connect(one.0, &other.1);
                connect(other.0, &one.1);
                return [one.0, other.0, listener];
            }
            let client = libc::socket(family, ty | libc::SOCK_CLOEXEC, 0);
            connect(client, &name);
            [client, libc::accept(listener, std::ptr::null_mut(), std::ptr::null_mut()), listener]
        }
    }

    fn close(&mut self, fd: i32) {
        unsafe { libc::close(fd) };
    }

    fn at_once(&mut self, fd: i32) {
        let on = (&raw const ON).cast();
        assert_eq!(unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, on, 4) }, 0);
    }

    fn set(&mut self, fd: i32, name: i32, value: &[u8]) -> Said {
        let (to, len) = (value.as_ptr().cast(), value.len() as u32);
        said(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, to, len) } as isize, Vec::new())
    }

    fn get(&mut self, fd: i32, name: i32, len: usize) -> Said {
        let (mut value, mut n) = (vec![0u8; len], len as u32);
        let to = value.as_mut_ptr().cast();
        let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, to, &mut n) };
        said(if done < 0 { -1 } else { n as isize }, value)
    }

    fn send(&mut self, fd: i32, bytes: &[u8], flags: i32) -> Said {
        let flags = flags | libc::MSG_NOSIGNAL;
        said(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) }, Vec::new())
    }

    fn receive(&mut self, fd: i32, len: usize, flags: i32) -> Said {
        let mut bytes = vec![0; len];
        said(unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), len, flags) }, bytes)
    }

    fn read(&mut self, fd: i32, len: usize) -> Said {
        let mut bytes = vec![0; len];
        said(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), len) }, bytes)
    }

    fn shutdown(&mut self, fd: i32, how: i32) -> Said {
        said(unsafe { libc::shutdown(fd, how) } as isize, Vec::new())
    }

    fn accept(&mut self, fd: i32) -> Said {
        said(
            unsafe { libc::accept(fd, std::ptr::null_mut(), std::ptr::null_mut()) } as isize,
            Vec::new(),
        )
    }

    fn poll(&mut self, fds: [i32; 3]) -> [i16; 3] {
        let mut fds = fds.map(|fd| libc::pollfd { fd, events: 0x2005, revents: 0 });
        assert!(unsafe { libc::poll(fds.as_mut_ptr(), 3, 0) } >= 0);
        fds.map(|fd| fd.revents)
    }
}

fn told<T>(result: Result<T, Errno>, bytes: Vec<u8>, number: impl FnOnce(T) -> i64) -> Said {
    let n = result.map(number).map_err(Errno::raw_os_error)?;
    let mut bytes = bytes;
    bytes.truncate(n as usize);
    Ok((n, bytes))
}

impl Sockets for Process {
    fn ends(&mut self, family: i32, ty: i32) -> [i32; 3] {
        let bound = |ty: i32| {
            let fd = self.socket(family, ty, 0).unwrap();
            let any = if family == libc::AF_UNIX { loopback_of(family) } else { loopback() };
            self.bind(fd, &any).unwrap();
            (fd, self.getsockname(fd).unwrap().bytes().to_vec())
        };
        let (listener, name) = bound(if ty == libc::SOCK_DGRAM { libc::SOCK_STREAM } else { ty });
        self.listen(listener, 1).unwrap();
        if family == libc::AF_UNIX {
            let [one, other] = self.socketpair(family, ty, 0).unwrap();
            return [one, other, listener];
        }
        if ty == libc::SOCK_DGRAM {
            let (one, other) = (bound(ty), bound(ty));
            self.connect(one.0, &other.1).unwrap();
            self.connect(other.0, &one.1).unwrap();
            return [one.0, other.0, listener];
        }
        let client = self.socket(family, ty, 0).unwrap();
        self.connect(client, &name).unwrap();
        [client, self.accept4(listener, 0).unwrap().0, listener]
    }

    fn close(&mut self, fd: i32) {
        Process::close(self, fd).unwrap();
    }

    fn at_once(&mut self, fd: i32) {
        self.setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &ON.to_ne_bytes()).unwrap();
    }

    fn set(&mut self, fd: i32, name: i32, value: &[u8]) -> Said {
        told(self.setsockopt(fd, libc::SOL_SOCKET, name, value), Vec::new(), |()| 0)
    }

    fn get(&mut self, fd: i32, name: i32, len: usize) -> Said {
        let mut value = vec![0; len];
        let n = self.getsockopt(fd, libc::SOL_SOCKET, name, &mut value);
        told(n, value, |n| n as i64)
    }

    fn send(&mut self, fd: i32, bytes: &[u8], flags: i32) -> Said {
        told(Process::send(self, fd, bytes, flags | libc::MSG_NOSIGNAL), Vec::new(), |n| n as i64)
    }

    fn receive(&mut self, fd: i32, len: usize, flags: i32) -> Said {
        let mut bytes = vec![0; len];
        let n = self.recv(fd, &mut bytes, flags);
        told(n, bytes, |n| n as i64)
    }

    fn read(&mut self, fd: i32, len: usize) -> Said {
        let mut bytes = vec![0; len];
        let n = Process::read(self, fd, &mut bytes);
        told(n, bytes, |n| n as i64)
    }

    fn shutdown(&mut self, fd: i32, how: i32) -> Said {
        told(Process::shutdown(self, fd, how), Vec::new(), |()| 0)
    }

    fn accept(&mut self, fd: i32) -> Said {
        told(self.accept4(fd, 0), Vec::new(), |(fd, _)| fd.into())
    }

    fn poll(&mut self, fds: [i32; 3]) -> [i16; 3] {
        let mut fds = fds.map(|fd| quietline::PollFd::new(fd, 0x2005));
        Process::poll(self, &mut fds, 0).unwrap();
        fds.map(|fd| fd.revents)
    }
}

fn loopback_of(family: i32) -> Vec<u8> {
    (family as u16).to_ne_bytes().to_vec()
}
