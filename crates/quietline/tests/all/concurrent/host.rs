//! The calls on the host, by their numbers: what closes a descriptor beside another's use of it does it on purpose, and
//! ThreadSanitizer, which looks at the C library's functions, is not to take that for a race of ours, nor the order that the host
//! gives to threads for ours.

use crate::concurrent::call::{Result, System, rights};
use std::ffi::CString;
use std::io;
use std::time::{Duration, Instant};

pub(crate) struct Host {
    fifo: CString,
}

impl Host {
    /// For the program of that number.
    pub(crate) fn new(tag: u64) -> Self {
        let fifo =
            CString::new(format!("/dev/shm/quietline-fifo-{}-{tag}", std::process::id())).unwrap();
        // One may be left of a process that had this number and was killed.
        // SAFETY: a string that lives; so below.
        unsafe { libc::unlink(fifo.as_ptr()) };
        // SAFETY: as above.
        let made = unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        Self { fifo }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: a string that lives.
        unsafe { libc::unlink(self.fifo.as_ptr()) };
    }
}

/// No address, no set of signals.
const NONE: *mut libc::c_void = core::ptr::null_mut();

/// What a call returned, or why it failed.
fn checked(result: libc::c_long) -> Result<usize> {
    usize::try_from(result)
        .map_err(|_| io::Error::last_os_error().raw_os_error().expect("a system error"))
}

fn descriptor(result: libc::c_long) -> Result<i32> {
    checked(result).map(|fd| fd as i32)
}

fn done(result: libc::c_long) -> Result<()> {
    checked(result).map(drop)
}

// SAFETY, of all blocks here: the pointers are to buffers that live during the call, with their lengths.
#[allow(clippy::undocumented_unsafe_blocks)]
impl System for Host {
    fn pipe(&self, flags: i32) -> Result<[i32; 2]> {
        let mut ends = [0; 2];
        done(unsafe { libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), flags) })?;
        Ok(ends)
    }

    fn counter(&self, flags: i32) -> Result<i32> {
        descriptor(unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags) })
    }

    fn epoll(&self) -> Result<i32> {
        descriptor(unsafe { libc::syscall(libc::SYS_epoll_create1, 0) })
    }

    fn pair(&self, family: i32, ty: i32) -> Result<[i32; 2]> {
        let mut ends = [0; 2];
        done(unsafe { libc::syscall(libc::SYS_socketpair, family, ty, 0, ends.as_mut_ptr()) })?;
        Ok(ends)
    }

    fn socket(&self, family: i32, ty: i32) -> Result<i32> {
        descriptor(unsafe { libc::syscall(libc::SYS_socket, family, ty, 0) })
    }

    fn bind(&self, fd: i32, name: &[u8]) -> Result<()> {
        done(unsafe { libc::syscall(libc::SYS_bind, fd, name.as_ptr(), name.len()) })
    }

    fn listen(&self, fd: i32, backlog: i32) -> Result<()> {
        done(unsafe { libc::syscall(libc::SYS_listen, fd, backlog) })
    }

    fn connect(&self, fd: i32, name: &[u8]) -> Result<()> {
        done(unsafe { libc::syscall(libc::SYS_connect, fd, name.as_ptr(), name.len()) })
    }

    fn accept(&self, fd: i32) -> Result<i32> {
        descriptor(unsafe { libc::syscall(libc::SYS_accept4, fd, NONE, NONE, 0) })
    }

    fn name(&self, fd: i32) -> Result<Vec<u8>> {
        let (mut name, mut len) = ([0u8; 128], 128u32);
        done(unsafe { libc::syscall(libc::SYS_getsockname, fd, name.as_mut_ptr(), &raw mut len) })?;
        Ok(name[..len as usize].to_vec())
    }

    fn shutdown(&self, fd: i32, how: i32) -> Result<()> {
        done(unsafe { libc::syscall(libc::SYS_shutdown, fd, how) })?;
        // The other end takes its time to say that it knows, and when that comes, whoever watches for edges is told again.
        const FIN_WAIT1: u8 = 4;
        let until = Instant::now() + Duration::from_millis(100);
        let (mut state, mut len) = (0u8, 1u32);
        let mut waits = || {
            let (level, name, info) = (libc::IPPROTO_TCP, libc::TCP_INFO, &raw mut state);
            let asked =
                unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, info, &raw mut len) };
            asked == 0 && state == FIN_WAIT1
        };
        while waits() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn open_fifo(&self, flags: i32) -> Result<i32> {
        descriptor(unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, self.fifo.as_ptr(), flags, 0)
        })
    }

    fn dup(&self, fd: i32) -> Result<i32> {
        descriptor(unsafe { libc::syscall(libc::SYS_dup, fd) })
    }

    fn dup2(&self, from: i32, to: i32) -> Result<i32> {
        assert_ne!(from, to, "that would be another call");
        descriptor(unsafe { libc::syscall(libc::SYS_dup3, from, to, 0) })
    }

    fn close(&self, fd: i32) -> Result<()> {
        done(unsafe { libc::syscall(libc::SYS_close, fd) })
    }

    fn read(&self, fd: i32, to: &mut [u8]) -> Result<usize> {
        checked(unsafe { libc::syscall(libc::SYS_read, fd, to.as_mut_ptr(), to.len()) })
    }

    fn write(&self, fd: i32, from: &[u8]) -> Result<usize> {
        checked(unsafe { libc::syscall(libc::SYS_write, fd, from.as_ptr(), from.len()) })
    }

    fn recv(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<usize> {
        checked(unsafe {
            libc::syscall(libc::SYS_recvfrom, fd, to.as_mut_ptr(), to.len(), flags, NONE, NONE)
        })
    }

    fn send(&self, fd: i32, from: &[u8], flags: i32, name: Option<&[u8]>) -> Result<usize> {
        let (at, len) = name.map_or((core::ptr::null(), 0), |name| (name.as_ptr(), name.len()));
        checked(unsafe {
            libc::syscall(libc::SYS_sendto, fd, from.as_ptr(), from.len(), flags, at, len)
        })
    }

    fn recv_file(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<(usize, Option<i32>)> {
        let mut control = [0u64; 3];
        let mut buffer = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut buffer, 1);
        (message.msg_control, message.msg_controllen) =
            ((&raw mut control).cast(), size_of_val(&control));
        let n = checked(unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, flags) })?;
        Ok((n, (message.msg_controllen != 0).then_some(control[2] as i32)))
    }

    fn send_file(&self, fd: i32, from: &[u8], flags: i32, name: &[u8], file: i32) -> Result<usize> {
        let control = rights(file);
        let mut buffer =
            libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut buffer, 1);
        (message.msg_control, message.msg_controllen) =
            ((&raw const control).cast_mut().cast(), size_of_val(&control));
        if !name.is_empty() {
            (message.msg_name, message.msg_namelen) =
                (name.as_ptr().cast_mut().cast(), name.len() as u32);
        }
        checked(unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const message, flags) })
    }

    fn splice(&self, from: i32, to: i32, len: usize, tee: bool) -> Result<usize> {
        let flags = libc::SPLICE_F_NONBLOCK;
        checked(match tee {
            true => unsafe { libc::syscall(libc::SYS_tee, from, to, len, flags) },
            false => unsafe { libc::syscall(libc::SYS_splice, from, NONE, to, NONE, len, flags) },
        })
    }

    fn no_delay(&self, fd: i32) -> Result<()> {
        let (on, len) = (1i32, size_of::<i32>() as u32);
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
        done(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, &raw const on, len) })
    }

    fn fcntl(&self, fd: i32, cmd: i32, arg: u64) -> Result<i32> {
        descriptor(unsafe { libc::syscall(libc::SYS_fcntl, fd, cmd, arg) })
    }

    fn readable(&self, fd: i32) -> Result<i32> {
        let mut n = 0i32;
        done(unsafe { libc::syscall(libc::SYS_ioctl, fd, libc::FIONREAD, &raw mut n) })?;
        Ok(n)
    }

    fn control(&self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
        let event = libc::epoll_event { events, u64: data };
        done(unsafe { libc::syscall(libc::SYS_epoll_ctl, ep, op, fd, &raw const event) })
    }

    fn wait(&self, ep: i32, max: usize, timeout: i32) -> Result<Vec<(u32, u64)>> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; max];
        let n = descriptor(unsafe {
            libc::syscall(libc::SYS_epoll_pwait, ep, events.as_mut_ptr(), max, timeout, NONE)
        })?;
        Ok(events[..n as usize].iter().map(|event| (event.events, event.u64)).collect())
    }

    fn poll(&self, of: &[(i32, i16)], timeout: i32) -> Result<Vec<i16>> {
        let mut fds: Vec<_> = of
            .iter()
            .map(|(fd, events)| libc::pollfd { fd: *fd, events: *events, revents: 0 })
            .collect();
        // None of a negative number, which is for ever.
        let time = u64::try_from(timeout).ok().map(Duration::from_millis);
        let mut time = time.map(|time| libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        });
        let time = time.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
        done(unsafe { libc::syscall(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), time, NONE) })?;
        Ok(fds.into_iter().map(|fd| fd.revents).collect())
    }
}
