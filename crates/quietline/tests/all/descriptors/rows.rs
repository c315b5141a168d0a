//! The calls: a row is a call, as the host and as the library take it.

use crate::descriptors::Kind;
use crate::descriptors::world::{FREE, Fds, Host};
use quietline::abi::*;
use quietline::locks::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_SETLK, Flock, LOCK_EX, LOCK_NB, LOCK_UN,
};
use quietline::{EpollEvent, Errno, FdSet, ItimerSpec, OpenHow, PollFd, Process, RecvMsg, SendMsg};
use std::time::Duration;

type Outcome = Result<i64, i32>;

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) host: fn(&Host) -> Outcome,
    pub(crate) ours: fn(&Process, &Fds) -> Outcome,
    /// Where they are not the same call.
    pub(crate) passed_over: &'static [Kind],
}

/// What is compared of what a call says.
trait Said {
    fn said(self) -> i64;
}

macro_rules! number {
    ($($of:ty),*) => { $(impl Said for $of { fn said(self) -> i64 { self as i64 } })* };
}
number!(i32, i64, usize);

/// Where the number does not matter.
macro_rules! nothing {
    ($($of:ty),*) => { $(impl Said for $of { fn said(self) -> i64 { 0 } })* };
}
nothing!(
    (),
    quietline::abi::Stat,
    quietline::abi::Statx,
    quietline::abi::StatFs,
    ItimerSpec,
    quietline::SockAddr
);
nothing!((i32, quietline::SockAddr));

fn said<T: Said>(result: Result<T, Errno>) -> Outcome {
    result.map(Said::said).map_err(Errno::raw_os_error)
}

/// A call that makes a descriptor: whether it does.
fn made(p: &Process, fd: Result<i32, Errno>) -> Outcome {
    said(fd.and_then(|fd| p.close(fd)))
}

impl Host {
    fn made<const N: usize>(&self, number: i64, args: [i64; N]) -> Outcome {
        let fd = self.call(number, args)?;
        self.call(libc::SYS_close, [fd])
    }

    fn at(&self) -> i64 {
        self.fds.at.into()
    }

    fn file(&self) -> i64 {
        self.fds.file.into()
    }

    fn pipe(&self, end: usize) -> i64 {
        self.fds.pipe[end].into()
    }

    /// The address of a list of one buffer of 8 bytes.
    fn buffers(&self) -> i64 {
        self.with(400, &[self.zeros() as u64, 8])
    }

    /// The address of a message of one such buffer.
    fn message(&self) -> i64 {
        let buffers = self.buffers() as u64;
        self.with(320, &[0, 0, buffers, 1, 0, 0, 0, 0])
    }
}

const NB: i32 = MSG_DONTWAIT;
const EMPTY: i64 = AT_EMPTY_PATH as i64;

macro_rules! rows {
    ($($name:literal $(except $except:expr)?; |$h:ident| $host:expr; |$p:ident, $d:ident| $ours:expr;)*) => {
        &[$(Row {
            name: $name,
            host: |$h| $host,
            ours: |$p, $d| $ours,
            passed_over: &[$($except)?],
        }),*]
    };
}

/// The control message that passes a descriptor.
fn rights(fd: i32) -> [u64; 3] {
    let (level, ty) = (SOL_SOCKET as u64, SCM_RIGHTS as u64);
    [20, level | ty << 32, fd as u32 as u64]
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[rustfmt::skip] // a table
pub(crate) const ROWS: &[Row] = rows![
    // Bytes.
    "read"; |h| h.call(libc::SYS_read, [h.at(), h.zeros(), 8]); |p, d| said(p.read(d.at, &mut [0; 8]));
    "read, nothing"; |h| h.call(libc::SYS_read, [h.at(), h.zeros(), 0]); |p, d| said(p.read(d.at, &mut []));
    "write"; |h| h.call(libc::SYS_write, [h.at(), h.zeros(), 8]); |p, d| said(p.write(d.at, &[0; 8]));
    "write, nothing"; |h| h.call(libc::SYS_write, [h.at(), h.zeros(), 0]); |p, d| said(p.write(d.at, &[]));
    "pread"; |h| h.call(libc::SYS_pread64, [h.at(), h.zeros(), 8, 0]); |p, d| said(p.pread(d.at, &mut [0; 8], 0));
    "pread, before the beginning"; |h| h.call(libc::SYS_pread64, [h.at(), h.zeros(), 8, -1]);
        |p, d| said(p.pread(d.at, &mut [0; 8], -1));
    "pwrite"; |h| h.call(libc::SYS_pwrite64, [h.at(), h.zeros(), 8, 0]); |p, d| said(p.pwrite(d.at, &[0; 8], 0));
    "pwrite, before the beginning"; |h| h.call(libc::SYS_pwrite64, [h.at(), h.zeros(), 8, -1]);
        |p, d| said(p.pwrite(d.at, &[0; 8], -1));
    "readv"; |h| h.call(libc::SYS_readv, [h.at(), h.buffers(), 1]); |p, d| said(p.readv(d.at, &mut [&mut [0; 8]]));
    "readv, too many"; |h| h.call(libc::SYS_readv, [h.at(), h.zeros(), 1025]);
        |p, d| {
            let mut many: Vec<&mut [u8]> = (0..1025).map(|_| &mut [][..]).collect();
            said(p.readv(d.at, &mut many))
        };
    "writev"; |h| h.call(libc::SYS_writev, [h.at(), h.buffers(), 1]); |p, d| said(p.writev(d.at, &[&[0; 8]]));
    "writev, too many"; |h| h.call(libc::SYS_writev, [h.at(), h.zeros(), 1025]); |p, d| said(p.writev(d.at, &[&[][..]; 1025]));
    "preadv"; |h| h.call(libc::SYS_preadv, [h.at(), h.buffers(), 1, 0, 0]);
        |p, d| said(p.preadv(d.at, &mut [&mut [0; 8]], 0));
    "pwritev"; |h| h.call(libc::SYS_pwritev, [h.at(), h.buffers(), 1, 0, 0]); |p, d| said(p.pwritev(d.at, &[&[0; 8]], 0));
    "lseek"; |h| h.call(libc::SYS_lseek, [h.at(), 0, 0]); |p, d| said(p.lseek(d.at, 0, SEEK_SET));
    "lseek, to nowhere"; |h| h.call(libc::SYS_lseek, [h.at(), 0, 77]); |p, d| said(p.lseek(d.at, 0, 77));
    "fallocate"; |h| h.call(libc::SYS_fallocate, [h.at(), 0, 0, 10]); |p, d| said(p.fallocate(d.at, 0, 0, 10));
    "fallocate, of nothing"; |h| h.call(libc::SYS_fallocate, [h.at(), 0, 0, 0]); |p, d| said(p.fallocate(d.at, 0, 0, 0));
    "ftruncate"; |h| h.call(libc::SYS_ftruncate, [h.at(), 1]); |p, d| said(p.ftruncate(d.at, 1));
    "ftruncate, to less than nothing"; |h| h.call(libc::SYS_ftruncate, [h.at(), -1]); |p, d| said(p.ftruncate(d.at, -1));
    "fsync"; |h| h.call(libc::SYS_fsync, [h.at()]); |p, d| said(p.fsync(d.at));
    "fdatasync"; |h| h.call(libc::SYS_fdatasync, [h.at()]); |p, d| said(p.fdatasync(d.at));
    "syncfs"; |h| h.call(libc::SYS_syncfs, [h.at()]); |p, d| said(p.syncfs(d.at));
    "getdents64"; |h| h.call(libc::SYS_getdents64, [h.at(), h.zeros(), 256]).map(|n| n.min(1));
        |p, d| said(p.getdents64(d.at, &mut [0; 256]).map(|n| n.min(1)));
    "copy_file_range, from"; |h| h.call(libc::SYS_copy_file_range, [h.at(), 0, h.file(), 0, 8, 0]);
        |p, d| said(p.copy_file_range(d.at, None, d.file, None, 8, 0));
    "copy_file_range, to"; |h| h.call(libc::SYS_copy_file_range, [h.file(), 0, h.at(), 0, 8, 0]);
        |p, d| said(p.copy_file_range(d.file, None, d.at, None, 8, 0));
    "copy_file_range, flags"; |h| h.call(libc::SYS_copy_file_range, [h.file(), 0, h.at(), 0, 8, 1]);
        |p, d| said(p.copy_file_range(d.file, None, d.at, None, 8, 1));
    "sendfile, from"; |h| h.call(libc::SYS_sendfile, [h.pipe(1), h.at(), 0, 8]);
        |p, d| said(p.sendfile(d.pipe[1], d.at, None, 8));
    "sendfile, from an offset"; |h| h.call(libc::SYS_sendfile, [h.pipe(1), h.at(), h.zeros(), 8]);
        |p, d| said(p.sendfile(d.pipe[1], d.at, Some(&mut 0), 8));
    "sendfile, to"; |h| h.call(libc::SYS_sendfile, [h.at(), h.file(), h.zeros(), 8]);
        |p, d| said(p.sendfile(d.at, d.file, Some(&mut 0), 8));
    "splice, from"; |h| h.call(libc::SYS_splice, [h.at(), 0, h.pipe(1), 0, 8, 2]);
        |p, d| said(p.splice(d.at, None, d.pipe[1], None, 8, SPLICE_F_NONBLOCK));
    "splice, from an offset"; |h| h.call(libc::SYS_splice, [h.at(), h.zeros(), h.pipe(1), 0, 8, 2]);
        |p, d| said(p.splice(d.at, Some(&mut 0), d.pipe[1], None, 8, SPLICE_F_NONBLOCK));
    "splice, to an offset of a pipe"; |h| h.call(libc::SYS_splice, [h.at(), 0, h.pipe(1), h.zeros(), 8, 2]);
        |p, d| said(p.splice(d.at, None, d.pipe[1], Some(&mut 0), 8, SPLICE_F_NONBLOCK));
    "splice, to"; |h| h.call(libc::SYS_splice, [h.pipe(0), 0, h.at(), 0, 8, 2]);
        |p, d| said(p.splice(d.pipe[0], None, d.at, None, 8, SPLICE_F_NONBLOCK));
    "splice, to an offset"; |h| h.call(libc::SYS_splice, [h.pipe(0), 0, h.at(), h.zeros(), 8, 2]);
        |p, d| said(p.splice(d.pipe[0], None, d.at, Some(&mut 0), 8, SPLICE_F_NONBLOCK));
    "splice, flags"; |h| h.call(libc::SYS_splice, [h.pipe(0), 0, h.at(), 0, 8, 1 << 20]);
        |p, d| said(p.splice(d.pipe[0], None, d.at, None, 8, 1 << 20));
    "splice, nothing"; |h| h.call(libc::SYS_splice, [h.pipe(0), 0, h.at(), 0, 0, 0]);
        |p, d| said(p.splice(d.pipe[0], None, d.at, None, 0, 0));
    "tee, from"; |h| h.call(libc::SYS_tee, [h.at(), h.pipe(1), 8, 2]);
        |p, d| said(p.tee(d.at, d.pipe[1], 8, SPLICE_F_NONBLOCK));
    "tee, to"; |h| h.call(libc::SYS_tee, [h.pipe(0), h.at(), 8, 2]);
        |p, d| said(p.tee(d.pipe[0], d.at, 8, SPLICE_F_NONBLOCK));
    "tee, nothing"; |h| h.call(libc::SYS_tee, [h.pipe(0), h.at(), 0, 2]);
        |p, d| said(p.tee(d.pipe[0], d.at, 0, SPLICE_F_NONBLOCK));
    "vmsplice"; |h| h.call(libc::SYS_vmsplice, [h.at(), h.buffers(), 1, 2]);
        |p, d| said(p.vmsplice(d.at, &[&[0; 8]], SPLICE_F_NONBLOCK));
    // (Of one that can be written to the host's is the row above.)
    "vmsplice, from" except Kind::OpenFifo; |h| h.call(libc::SYS_vmsplice, [h.at(), h.buffers(), 1, 2]);
        |p, d| said(p.vmsplice_from(d.at, &mut [&mut [0; 8]], SPLICE_F_NONBLOCK));
    "vmsplice, pages"; |h| h.call(libc::SYS_vmsplice, [h.at(), h.buffers(), 1, 2]).map(|_| 0);
        |p, d| said(p.vmsplice_gift(d.at, &mut [], SPLICE_F_NONBLOCK));
    "ioctl, FIONREAD"; |h| h.call(libc::SYS_ioctl, [h.at(), FIONREAD as i64, h.zeros()]);
        |p, d| said(p.ioctl(d.at, FIONREAD, &mut 0));
    "ioctl, FIONBIO"; |h| h.call(libc::SYS_ioctl, [h.at(), FIONBIO as i64, h.zeros()]); |p, d| said(p.ioctl(d.at, FIONBIO, &mut 0));
    "ioctl, FIOCLEX"; |h| h.call(libc::SYS_ioctl, [h.at(), FIOCLEX as i64, 0]); |p, d| said(p.ioctl(d.at, FIOCLEX, &mut 0));
    "ioctl, SIOCATMARK"; |h| h.call(libc::SYS_ioctl, [h.at(), SIOCATMARK as i64, h.zeros()]);
        |p, d| said(p.ioctl(d.at, SIOCATMARK, &mut 0));
    "ioctl, none"; |h| h.call(libc::SYS_ioctl, [h.at(), 0x7777, h.zeros()]); |p, d| said(p.ioctl(d.at, 0x7777, &mut 0));
    // Descriptors.
    "close"; |h| h.call(libc::SYS_close, [h.at()]); |p, d| said(p.close(d.at));
    "dup"; |h| h.made(libc::SYS_dup, [h.at()]); |p, d| made(p, p.dup(d.at));
    "dup2"; |h| h.made(libc::SYS_dup2, [h.at(), 901]); |p, d| made(p, p.dup2(d.at, 901));
    "dup2, to itself"; |h| h.call(libc::SYS_dup2, [h.at(), h.at()]).map(|_| 0); |p, d| said(p.dup2(d.at, d.at).map(|_| 0));
    "dup3, in its place"; |h| h.call(libc::SYS_dup3, [h.pipe(0), h.at(), 0]).map(|_| 0);
        |p, d| said(p.dup3(d.pipe[0], d.at, 0).map(|_| 0));
    "F_DUPFD"; |h| h.made(libc::SYS_fcntl, [h.at(), F_DUPFD as i64, 0]); |p, d| made(p, p.fcntl(d.at, F_DUPFD, 0));
    "F_DUPFD_CLOEXEC"; |h| h.made(libc::SYS_fcntl, [h.at(), F_DUPFD_CLOEXEC as i64, 0]);
        |p, d| made(p, p.fcntl(d.at, F_DUPFD_CLOEXEC, 0));
    "F_DUPFD, too high"; |h| h.made(libc::SYS_fcntl, [h.at(), F_DUPFD as i64, i64::from(u32::MAX)]);
        |p, d| made(p, p.fcntl(d.at, F_DUPFD, u64::from(u32::MAX)));
    "F_GETFD"; |h| h.call(libc::SYS_fcntl, [h.at(), F_GETFD as i64, 0]); |p, d| said(p.fcntl(d.at, F_GETFD, 0));
    "F_SETFD"; |h| h.call(libc::SYS_fcntl, [h.at(), F_SETFD as i64, 1]); |p, d| said(p.fcntl(d.at, F_SETFD, 1));
    "F_GETFL"; |h| h.call(libc::SYS_fcntl, [h.at(), F_GETFL as i64, 0]); |p, d| said(p.fcntl(d.at, F_GETFL, 0));
    "F_SETFL"; |h| h.call(libc::SYS_fcntl, [h.at(), F_SETFL as i64, O_NONBLOCK as i64]);
        |p, d| said(p.fcntl(d.at, F_SETFL, O_NONBLOCK as u64));
    "F_GETPIPE_SZ"; |h| h.call(libc::SYS_fcntl, [h.at(), F_GETPIPE_SZ as i64, 0]); |p, d| said(p.fcntl(d.at, F_GETPIPE_SZ, 0));
    "F_SETPIPE_SZ"; |h| h.call(libc::SYS_fcntl, [h.at(), F_SETPIPE_SZ as i64, 8192]);
        |p, d| said(p.fcntl(d.at, F_SETPIPE_SZ, 8192));
    "fcntl, none"; |h| h.call(libc::SYS_fcntl, [h.at(), 7777, 0]); |p, d| said(p.fcntl(d.at, 7777, 0));
    "F_GETLK"; |h| h.call(libc::SYS_fcntl, [h.at(), F_GETLK as i64, h.zeros()]);
        |p, d| said(p.fcntl_lock(d.at, F_GETLK, &mut Flock::default()));
    "F_SETLK"; |h| h.call(libc::SYS_fcntl, [h.at(), F_SETLK as i64, h.zeros()]);
        |p, d| said(p.fcntl_lock(d.at, F_SETLK, &mut Flock::default()));
    "F_SETLK, of no kind"; |h| h.call(libc::SYS_fcntl, [h.at(), F_SETLK as i64, h.with(100, &[9])]);
        |p, d| said(p.fcntl_lock(d.at, F_SETLK, &mut Flock { l_type: 9, ..Flock::default() }));
    "F_OFD_GETLK"; |h| h.call(libc::SYS_fcntl, [h.at(), F_OFD_GETLK as i64, h.zeros()]);
        |p, d| said(p.fcntl_lock(d.at, F_OFD_GETLK, &mut Flock::default()));
    "F_OFD_SETLK"; |h| h.call(libc::SYS_fcntl, [h.at(), F_OFD_SETLK as i64, h.zeros()]);
        |p, d| said(p.fcntl_lock(d.at, F_OFD_SETLK, &mut Flock::default()));
    "fcntl of locks, none"; |h| h.call(libc::SYS_fcntl, [h.at(), 7777, h.zeros()]);
        |p, d| said(p.fcntl_lock(d.at, 7777, &mut Flock::default()));
    "flock"; |h| h.call(libc::SYS_flock, [h.at(), (LOCK_EX | LOCK_NB) as i64]); |p, d| said(p.flock(d.at, LOCK_EX | LOCK_NB));
    "flock, end"; |h| h.call(libc::SYS_flock, [h.at(), LOCK_UN as i64]); |p, d| said(p.flock(d.at, LOCK_UN));
    "flock, none"; |h| h.call(libc::SYS_flock, [h.at(), 64]); |p, d| said(p.flock(d.at, 64));
    // Events.
    "EPOLL_CTL_ADD"; |h| h.call(libc::SYS_epoll_ctl, [h.fds.epoll.into(), 1, h.at(), h.zeros()]);
        |p, d| said(p.epoll_ctl(d.epoll, 1, d.at, &EpollEvent::default()));
    "EPOLL_CTL_DEL"; |h| h.call(libc::SYS_epoll_ctl, [h.fds.epoll.into(), 2, h.at(), 0]);
        |p, d| said(p.epoll_ctl(d.epoll, 2, d.at, &EpollEvent::default()));
    "EPOLL_CTL_MOD"; |h| h.call(libc::SYS_epoll_ctl, [h.fds.epoll.into(), 3, h.at(), h.zeros()]);
        |p, d| said(p.epoll_ctl(d.epoll, 3, d.at, &EpollEvent::default()));
    "epoll_ctl, none"; |h| h.call(libc::SYS_epoll_ctl, [h.fds.epoll.into(), 9, h.at(), h.zeros()]);
        |p, d| said(p.epoll_ctl(d.epoll, 9, d.at, &EpollEvent::default()));
    "EPOLL_CTL_ADD, to it"; |h| h.call(libc::SYS_epoll_ctl, [h.at(), 1, h.fds.counter.into(), h.zeros()]);
        |p, d| said(p.epoll_ctl(d.at, 1, d.counter, &EpollEvent::default()));
    "EPOLL_CTL_ADD, to it what is closed"; |h| h.call(libc::SYS_epoll_ctl, [h.at(), 1, FREE.into(), h.zeros()]);
        |p, d| said(p.epoll_ctl(d.at, 1, FREE, &EpollEvent::default()));
    "EPOLL_CTL_ADD, to itself"; |h| h.call(libc::SYS_epoll_ctl, [h.at(), 1, h.at(), h.zeros()]);
        |p, d| said(p.epoll_ctl(d.at, 1, d.at, &EpollEvent::default()));
    "epoll_wait"; |h| h.call(libc::SYS_epoll_wait, [h.at(), h.zeros(), 1, 0]);
        |p, d| said(p.epoll_wait(d.at, &mut [EpollEvent::default()], 0));
    "epoll_wait, for a while"; |h| h.call(libc::SYS_epoll_wait, [h.at(), h.zeros(), 1, 1]);
        |p, d| said(p.epoll_wait(d.at, &mut [EpollEvent::default()], 1));
    "epoll_wait, no room"; |h| h.call(libc::SYS_epoll_wait, [h.at(), h.zeros(), 0, 0]);
        |p, d| said(p.epoll_wait(d.at, &mut [], 0));
    "poll"; |h| {
            let list = h.with(0, &[u64::from(h.fds.at as u32) | 0x2007 << 32]);
            h.call(libc::SYS_poll, [list, 1, 0]).map(|_| (h.word(0) >> 48) as i64)
        };
        |p, d| {
            let mut list = [PollFd::new(d.at, 0x2007)];
            said(p.poll(&mut list, 0).map(|_| i64::from(list[0].revents as u16)))
        };
    "poll, for a while"; |h| {
            let list = h.with(0, &[u64::from(h.fds.at as u32)]);
            h.call(libc::SYS_poll, [list, 1, 1]).map(|_| (h.word(0) >> 48) as i64)
        };
        |p, d| {
            let mut list = [PollFd::new(d.at, 0)];
            said(p.poll(&mut list, 1).map(|_| i64::from(list[0].revents as u16)))
        };
    "select"; |h| {
            let (word, bit) = (h.fds.at as usize / 64, 1 << (h.fds.at % 64));
            let [r, w, x] = [0, 16, 32].map(|at| h.with(at + word, &[bit]) - word as i64 * 8);
            h.call(libc::SYS_select, [h.at() + 1, r, w, x, h.with(60, &[0, 0])])
        };
        |p, d| {
            let mut sets = [const { FdSet::new() }; 3];
            sets.iter_mut().for_each(|set| set.insert(d.at).unwrap());
            let [r, w, x] = &mut sets;
            said(p.select(d.at + 1, Some(r), Some(w), Some(x), Some(Duration::ZERO)))
        };
    "timerfd_settime"; |h| h.call(libc::SYS_timerfd_settime, [h.at(), 0, h.zeros(), 0]);
        |p, d| said(p.timerfd_settime(d.at, 0, ItimerSpec::default()));
    "timerfd_settime, flags"; |h| h.call(libc::SYS_timerfd_settime, [h.at(), 8, h.zeros(), 0]);
        |p, d| said(p.timerfd_settime(d.at, 8, ItimerSpec::default()));
    "timerfd_gettime"; |h| h.call(libc::SYS_timerfd_gettime, [h.at(), h.zeros()]); |p, d| said(p.timerfd_gettime(d.at));
    "signalfd4"; |h| h.call(libc::SYS_signalfd4, [h.at(), h.zeros(), 8, 0]); |p, d| said(p.signalfd(d.at, 0, 0));
    "signalfd4, flags"; |h| h.call(libc::SYS_signalfd4, [h.at(), h.zeros(), 8, 1]); |p, d| said(p.signalfd(d.at, 0, 1));
    "inotify_add_watch"; |h| h.call(libc::SYS_inotify_add_watch, [h.at(), h.text("/"), 2]);
        |p, d| said(p.inotify_add_watch(d.at, "/", 2));
    "inotify_add_watch, for nothing"; |h| h.call(libc::SYS_inotify_add_watch, [h.at(), h.text("/"), 0]);
        |p, d| said(p.inotify_add_watch(d.at, "/", 0));
    "inotify_add_watch, against itself"; |h| h.call(libc::SYS_inotify_add_watch, [h.at(), h.text("/"), 0x3000_0002]);
        |p, d| said(p.inotify_add_watch(d.at, "/", 0x3000_0002));
    "inotify_rm_watch"; |h| h.call(libc::SYS_inotify_rm_watch, [h.at(), 1]); |p, d| said(p.inotify_rm_watch(d.at, 1));
    // Sockets.
    "bind"; |h| h.call(libc::SYS_bind, [h.at(), h.zeros(), 16]); |p, d| said(p.bind(d.at, &[0; 16]));
    "listen"; |h| h.call(libc::SYS_listen, [h.at(), 1]); |p, d| said(p.listen(d.at, 1));
    "connect"; |h| h.call(libc::SYS_connect, [h.at(), h.zeros(), 16]); |p, d| said(p.connect(d.at, &[0; 16]));
    "accept"; |h| h.call(libc::SYS_accept, [h.at(), 0, 0]); |p, d| said(p.accept(d.at));
    "accept4, flags"; |h| h.call(libc::SYS_accept4, [h.at(), 0, 0, 1]); |p, d| said(p.accept4(d.at, 1));
    "getsockname"; |h| h.call(libc::SYS_getsockname, [h.at(), h.zeros(), h.with(100, &[16])]); |p, d| said(p.getsockname(d.at));
    "getpeername"; |h| h.call(libc::SYS_getpeername, [h.at(), h.zeros(), h.with(100, &[16])]); |p, d| said(p.getpeername(d.at));
    "shutdown"; |h| h.call(libc::SYS_shutdown, [h.at(), 0]); |p, d| said(p.shutdown(d.at, 0));
    "shutdown, none"; |h| h.call(libc::SYS_shutdown, [h.at(), 9]); |p, d| said(p.shutdown(d.at, 9));
    "send"; |h| h.call(libc::SYS_sendto, [h.at(), h.zeros(), 8, NB.into(), 0, 0]); |p, d| said(p.send(d.at, &[0; 8], NB));
    "sendmsg"; |h| h.call(libc::SYS_sendmsg, [h.at(), h.message(), NB.into()]);
        |p, d| said(p.sendmsg(d.at, &SendMsg { buffers: &[&[0; 8]], ..SendMsg::default() }, NB));
    "sendmmsg"; |h| h.call(libc::SYS_sendmmsg, [h.at(), h.message(), 1, NB.into()]);
        |p, d| said(p.sendmmsg(d.at, &mut [SendMsg { buffers: &[&[0; 8]], ..SendMsg::default() }], NB));
    "sendmmsg, none"; |h| h.call(libc::SYS_sendmmsg, [h.at(), h.message(), 0, NB.into()]);
        |p, d| said(p.sendmmsg(d.at, &mut [], NB));
    "recv"; |h| h.call(libc::SYS_recvfrom, [h.at(), h.zeros(), 8, NB.into(), 0, 0]); |p, d| said(p.recv(d.at, &mut [0; 8], NB));
    "recvmsg"; |h| h.call(libc::SYS_recvmsg, [h.at(), h.message(), NB.into()]);
        |p, d| said(p.recvmsg(d.at, &mut RecvMsg { buffers: &mut [&mut [0; 8]], ..RecvMsg::default() }, NB));
    "recvmmsg"; |h| h.call(libc::SYS_recvmmsg, [h.at(), h.message(), 1, NB.into(), 0]);
        |p, d| said(p.recvmmsg(d.at, &mut [RecvMsg { buffers: &mut [&mut [0; 8]], ..RecvMsg::default() }], NB, None));
    "recvmmsg, none"; |h| h.call(libc::SYS_recvmmsg, [h.at(), h.message(), 0, NB.into(), 0]);
        |p, d| said(p.recvmmsg(d.at, &mut [], NB, None));
    "setsockopt"; |h| h.call(libc::SYS_setsockopt, [h.at(), SOL_SOCKET.into(), SO_SNDBUF.into(), h.with(0, &[9999]), 4]);
        |p, d| said(p.setsockopt(d.at, SOL_SOCKET, SO_SNDBUF, &9999_i32.to_ne_bytes()));
    "getsockopt"; |h| h.call(libc::SYS_getsockopt, [h.at(), SOL_SOCKET.into(), SO_SNDBUF.into(), h.zeros(), h.with(100, &[4])]);
        |p, d| said(p.getsockopt(d.at, SOL_SOCKET, SO_SNDBUF, &mut [0; 4]));
    "passed in a message"; |h| {
            let (control, buffers) = (h.with(100, &rights(h.fds.at)), h.buffers() as u64);
            let message = h.with(320, &[0, 0, buffers, 1, control as u64, 24, 0, 0]);
            h.call(libc::SYS_sendmsg, [h.fds.pair[0].into(), message, NB.into()])
        };
        |p, d| {
            let control = bytes(&rights(d.at));
            said(p.sendmsg(d.pair[0], &SendMsg { buffers: &[&[0; 8]], control: &control, ..SendMsg::default() }, NB))
        };
    // The tree.
    "fchdir"; |h| h.call(libc::SYS_fchdir, [h.at()]); |p, d| said(p.fchdir(d.at));
    "fstat"; |h| h.call(libc::SYS_fstat, [h.at(), h.zeros()]); |p, d| said(p.fstat(d.at));
    "fstatat, it"; |h| h.call(libc::SYS_newfstatat, [h.at(), h.text(""), h.zeros(), EMPTY]);
        |p, d| said(p.fstatat(d.at, "", AT_EMPTY_PATH));
    "fstatat, in it"; |h| h.call(libc::SYS_newfstatat, [h.at(), h.text("x"), h.zeros(), 0]); |p, d| said(p.fstatat(d.at, "x", 0));
    "statx, it"; |h| h.call(libc::SYS_statx, [h.at(), h.text(""), EMPTY, 0x7ff, h.zeros()]);
        |p, d| said(p.statx(d.at, "", AT_EMPTY_PATH, 0x7ff));
    "fstatfs"; |h| h.call(libc::SYS_fstatfs, [h.at(), h.zeros()]); |p, d| said(p.fstatfs(d.at));
    "faccessat2, it"; |h| h.call(libc::SYS_faccessat2, [h.at(), h.text(""), 0, EMPTY]);
        |p, d| said(p.faccessat2(d.at, "", 0, AT_EMPTY_PATH));
    "readlinkat, it"; |h| h.call(libc::SYS_readlinkat, [h.at(), h.text(""), h.zeros(), 64]);
        |p, d| said(p.readlinkat(d.at, "", &mut [0; 64]));
    "fchmod"; |h| h.call(libc::SYS_fchmod, [h.at(), 0o600]); |p, d| said(p.fchmod(d.at, 0o600));
    "fchmodat2, it"; |h| h.call(libc::SYS_fchmodat2, [h.at(), h.text(""), 0o600, EMPTY]);
        |p, d| said(p.fchmodat2(d.at, "", 0o600, AT_EMPTY_PATH));
    "fchown"; |h| h.call(libc::SYS_fchown, [h.at(), -1, -1]); |p, d| said(p.fchown(d.at, !0, !0));
    "fchownat, it"; |h| h.call(libc::SYS_fchownat, [h.at(), h.text(""), -1, -1, EMPTY]);
        |p, d| said(p.fchownat(d.at, "", !0, !0, AT_EMPTY_PATH));
    "futimens"; |h| h.call(libc::SYS_utimensat, [h.at(), 0, 0, 0]); |p, d| said(p.futimens(d.at, None));
    "futimens, flags"; |h| h.call(libc::SYS_utimensat, [h.at(), 0, 0, 0x100]);
        |p, d| said(p.utimensat(d.at, None::<&str>, None, 0x100));
    "utimensat, it"; |h| h.call(libc::SYS_utimensat, [h.at(), h.text(""), 0, EMPTY]);
        |p, d| said(p.utimensat(d.at, Some(""), None, AT_EMPTY_PATH));
    "fsetxattr"; |h| h.call(libc::SYS_fsetxattr, [h.at(), h.text("trusted.x"), h.zeros(), 1, 0]);
        |p, d| said(p.fsetxattr(d.at, "trusted.x", &[0], 0));
    "fgetxattr"; |h| h.call(libc::SYS_fgetxattr, [h.at(), h.text("trusted.x"), h.zeros(), 1]);
        |p, d| said(p.fgetxattr(d.at, "trusted.x", &mut [0]));
    "flistxattr"; |h| h.call(libc::SYS_flistxattr, [h.at(), h.zeros(), 64]); |p, d| said(p.flistxattr(d.at, &mut [0; 64]));
    "fremovexattr"; |h| h.call(libc::SYS_fremovexattr, [h.at(), h.text("trusted.x")]); |p, d| said(p.fremovexattr(d.at, "trusted.x"));
    "openat, in it"; |h| h.made(libc::SYS_openat, [h.at(), h.text("x"), 0x42, 0o600]);
        |p, d| made(p, p.openat(d.at, "x", O_RDWR | O_CREAT, 0o600));
    "openat2, in it"; |h| h.made(libc::SYS_openat2, [h.at(), h.text("x"), h.with(100, &[0, 0, 0]), 24]);
        |p, d| made(p, p.openat2(d.at, "x", &OpenHow { flags: 0, mode: 0, resolve: 0 }));
    "mkdirat"; |h| h.call(libc::SYS_mkdirat, [h.at(), h.text("x"), 0o700]); |p, d| said(p.mkdirat(d.at, "x", 0o700));
    "mknodat"; |h| h.call(libc::SYS_mknodat, [h.at(), h.text("x"), i64::from(S_IFIFO | 0o600), 0]);
        |p, d| said(p.mknodat(d.at, "x", S_IFIFO | 0o600, 0));
    "symlinkat"; |h| h.call(libc::SYS_symlinkat, [h.text("x"), h.at(), h.text("x")]); |p, d| said(p.symlinkat("x", d.at, "x"));
    "unlinkat"; |h| h.call(libc::SYS_unlinkat, [h.at(), h.text("x"), 0]); |p, d| said(p.unlinkat(d.at, "x", 0));
    "renameat2"; |h| h.call(libc::SYS_renameat2, [h.at(), h.text("x"), h.at(), h.text("x"), 0]);
        |p, d| said(p.renameat2(d.at, "x", d.at, "x", 0));
    "linkat, it"; |h| h.call(libc::SYS_linkat, [h.at(), h.text(""), h.at(), h.text("y"), EMPTY]);
        |p, d| said(p.linkat(d.at, "", d.at, "y", AT_EMPTY_PATH));
];
