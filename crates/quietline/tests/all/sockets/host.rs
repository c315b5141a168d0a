//! The calls on the host.

use crate::sockets::call::SLOTS;
use crate::sockets::drive::{Received, Sys, cmsg};
use std::ffi::CString;
use std::io::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory for the programs' names, as long as it lives.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ql-sockets-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A program that has failed may have left something.
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Waits until the host has ended all sockets that nobody can reach.
///
/// It looks for them in one thread, and closes their files in another, whichever come first. So a socket that only its own queue
/// holds, with the end of a pipe, is given up twice: the second is looked for when all that was found with the first is closed.
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
pub(crate) fn collect_all() {
    let mut host = Host;
    for _ in 0..2 {
        let ([a, b], mut pipe) = (host.pair(libc::SOCK_STREAM).unwrap(), [0; 2]);
        done(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }).unwrap();
        let mut control = Vec::new();
        cmsg(&mut control, libc::SCM_RIGHTS, &[b, pipe[1]].map(i32::to_ne_bytes).concat());
        host.send(a, &[], &[0], &control, 0).unwrap();
        for fd in [b, pipe[1], a] {
            host.close(fd).unwrap();
        }
        let mut poll = libc::pollfd { fd: pipe[0], events: 0, revents: 0 };
        assert_eq!(
            unsafe { libc::poll(&mut poll, 1, 60_000) },
            1,
            "a socket that nobody can reach"
        );
        host.close(pipe[0]).unwrap();
    }
}

pub(crate) struct Host;

fn raw(result: i64) -> Result<i64, i32> {
    if result < 0 { Err(Error::last_os_error().raw_os_error().unwrap()) } else { Ok(result) }
}

fn done(result: i32) -> Result<(), i32> {
    raw(result.into()).map(drop)
}

fn len(bytes: &[u8]) -> u32 {
    bytes.len() as u32
}

const TYPE: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

// SAFETY, of all blocks here: the pointers are to buffers that live during the call, with their lengths.
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl Sys for Host {
    fn socket(&mut self, ty: i32) -> Result<i32, i32> {
        raw(unsafe { libc::socket(libc::AF_UNIX, ty | TYPE, 0) }.into()).map(|fd| fd as i32)
    }

    fn pair(&mut self, ty: i32) -> Result<[i32; 2], i32> {
        let mut fds = [0; 2];
        done(unsafe { libc::socketpair(libc::AF_UNIX, ty | TYPE, 0, fds.as_mut_ptr()) })?;
        Ok(fds)
    }

    fn bind(&mut self, fd: i32, name: &[u8]) -> Result<(), i32> {
        done(unsafe { libc::bind(fd, name.as_ptr().cast(), len(name)) })
    }

    fn listen(&mut self, fd: i32, backlog: i32) -> Result<(), i32> {
        done(unsafe { libc::listen(fd, backlog) })
    }

    fn connect(&mut self, fd: i32, name: &[u8]) -> Result<(), i32> {
        done(unsafe { libc::connect(fd, name.as_ptr().cast(), len(name)) })
    }

    fn accept(&mut self, fd: i32) -> Result<(i32, Vec<u8>), i32> {
        let (mut name, mut n) = ([0u8; 128], 128);
        let fd = raw(unsafe { libc::accept4(fd, name.as_mut_ptr().cast(), &mut n, TYPE) }.into())?;
        Ok((fd as i32, name[..n as usize].to_vec()))
    }

    fn send(
        &mut self,
        fd: i32,
        name: &[u8],
        bytes: &[u8],
        control: &[u8],
        flags: i32,
    ) -> Result<usize, i32> {
        let mut iov =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_namelen = len(name);
        message.msg_iov = &mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.as_ptr().cast_mut().cast();
        message.msg_controllen = control.len() as _;
        raw(unsafe { libc::sendmsg(fd, &message, flags) } as i64).map(|n| n as usize)
    }

    fn recv(&mut self, fd: i32, len: usize, control: usize, flags: i32) -> Result<Received, i32> {
        let (mut bytes, mut room, mut name) = (vec![0u8; len], vec![0u8; control], [0u8; 128]);
        let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = 128;
        message.msg_iov = &mut iov;
        message.msg_iovlen = 1;
        message.msg_control =
            if control == 0 { core::ptr::null_mut() } else { room.as_mut_ptr().cast() };
        message.msg_controllen = control as _;
        let n = raw(unsafe { libc::recvmsg(fd, &mut message, flags) } as i64)? as usize;
        bytes.truncate(n.min(len));
        room.truncate(message.msg_controllen as usize);
        let name = name[..message.msg_namelen as usize].to_vec();
        Ok(Received { len: n, bytes, name, control: room, flags: message.msg_flags })
    }

    fn read(&mut self, fd: i32, to: &mut [u8]) -> Result<usize, i32> {
        raw(unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) } as i64).map(|n| n as usize)
    }

    fn write(&mut self, fd: i32, from: &[u8]) -> Result<usize, i32> {
        raw(unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) } as i64).map(|n| n as usize)
    }

    fn shutdown(&mut self, fd: i32, how: i32) -> Result<(), i32> {
        done(unsafe { libc::shutdown(fd, how) })
    }

    fn close(&mut self, fd: i32) -> Result<(), i32> {
        done(unsafe { libc::close(fd) })
    }

    fn name(&mut self, fd: i32, peer: bool) -> Result<Vec<u8>, i32> {
        let (mut name, mut n) = ([0u8; 128], 128);
        let call = if peer { libc::getpeername } else { libc::getsockname };
        done(unsafe { call(fd, name.as_mut_ptr().cast(), &mut n) })?;
        Ok(name[..n as usize].to_vec())
    }

    fn set(&mut self, fd: i32, option: i32, value: &[u8]) -> Result<(), i32> {
        done(unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, option, value.as_ptr().cast(), len(value))
        })
    }

    fn get(&mut self, fd: i32, option: i32, to: &mut [u8]) -> Result<usize, i32> {
        let mut n = len(to);
        done(unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, option, to.as_mut_ptr().cast(), &mut n)
        })?;
        Ok(n as usize)
    }

    fn ioctl(&mut self, fd: i32, request: u64) -> Result<i32, i32> {
        let mut answer = 0;
        done(unsafe { libc::ioctl(fd, request as _, &mut answer) })?;
        Ok(answer)
    }

    fn polls(&mut self, fds: &[Option<i32>; SLOTS]) -> [u32; SLOTS] {
        // One of none is passed over.
        let mut polls =
            fds.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: 0x37ff, revents: 0 });
        unsafe { libc::poll(polls.as_mut_ptr(), SLOTS as _, 0) };
        polls.map(|poll| poll.revents as u16 as u32)
    }

    fn unlink(&mut self, path: &[u8]) -> Result<(), i32> {
        let path = CString::new(path).unwrap();
        done(unsafe { libc::unlink(path.as_ptr()) })
    }

    fn id(&mut self, fd: i32) -> u64 {
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        assert_eq!(unsafe { libc::fstat(fd, &mut stat) }, 0);
        stat.st_ino
    }

    fn pid(&self) -> i32 {
        std::process::id() as i32
    }

    fn collect(&mut self) {
        for fd in self.pair(libc::SOCK_STREAM).unwrap() {
            self.close(fd).unwrap();
        }
    }
}
