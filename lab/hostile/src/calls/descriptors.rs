//! Descriptors, and the calls that make them.

use super::{Call, calls, nothing};
use crate::kind::Kind::{Any, Bits, Fd, Length, Offset, One, Only, Path, Range, Seed};
use crate::kind::NOFILE;
use crate::victim::check_bytes;
use libc::*;
use quietline::abi::O_ANYFD;
use quietline::locks::Flock;

macro_rules! n {
    ($($n:expr),* $(,)?) => { &[$($n as i64),*] };
}

const NONBLOCK: i64 = O_NONBLOCK as i64;
/// Most descriptors do not wait.
const CREATED: &[i64] = n![NONBLOCK, NONBLOCK, NONBLOCK | O_CLOEXEC as i64, 0, O_ANYFD, O_CLOEXEC];
const LOCKS: &[i64] = n![F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW];
const COMMANDS: &[i64] = n![
    F_DUPFD,
    F_DUPFD_CLOEXEC,
    F_GETFD,
    F_SETFD,
    F_GETFL,
    F_SETFL,
    F_GETPIPE_SZ,
    F_SETPIPE_SZ,
    F_GETOWN,
    F_SETOWN,
    F_GET_SEALS,
    F_ADD_SEALS,
    7777,
];
const COMMAND_ARGUMENTS: &[i64] = n![
    0,
    1,
    10,
    O_NONBLOCK,
    O_APPEND,
    O_NONBLOCK | O_APPEND,
    O_DIRECT,
    4096,
    8192,
    65_536,
    1 << 20,
    -1,
    NOFILE,
];

#[rustfmt::skip] // a table
pub(super) const CALLS: &[Call] = calls! {
    50 close(Fd) |c, a| c.p.close(a.int(0)).map(nothing);
    1 close_range(Fd, One(&[2, 10, 30, 80]), Bits(&[0, 2, 4])) |c, a| {
        c.p.close_range(a.word(0), a.word(1), a.word(2)).map(nothing)
    };
    15 dup(Fd) |c, a| c.descriptor(c.p.dup(a.int(0))?);
    20 dup2(Fd, Fd) |c, a| c.descriptor(c.p.dup2(a.int(0), a.int(1))?);
    10 dup3(Fd, Fd, One(n![0, O_CLOEXEC])) |c, a| {
        c.descriptor(c.p.dup3(a.int(0), a.int(1), a.int(2))?)
    };
    30 fcntl(Fd, One(COMMANDS), One(COMMAND_ARGUMENTS)) |c, a| {
        let value = c.p.fcntl(a.int(0), a.int(1), a.0[2] as u64)?;
        if [F_DUPFD, F_DUPFD_CLOEXEC].contains(&a.int(1)) {
            c.descriptor(value)?;
        }
        Ok(value.into())
    };
    30 fcntl_lock(Fd, One(LOCKS), One(n![F_RDLCK, F_WRLCK, F_UNLCK]), One(&[0, 1, 2]), Offset,
        Range) |c, a| {
        let mut lock = Flock {
            l_type: a.int(2) as i16,
            l_whence: a.int(3) as i16,
            l_start: a.0[4],
            l_len: a.0[5],
            l_pid: 0,
        };
        c.p.fcntl_lock(a.int(0), a.int(1), &mut lock).map(nothing)
    };
    20 flock(Fd, One(n![LOCK_SH, LOCK_EX, LOCK_UN, LOCK_SH | LOCK_NB, LOCK_EX | LOCK_NB])) |c, a| {
        c.p.flock(a.int(0), a.int(1)).map(nothing)
    };
    8 file(Fd) |c, a| c.p.file(a.int(0)).map(|_| 0);
    5 install_file(Fd, Only(n![0, O_CLOEXEC, O_ANYFD])) |c, a| {
        c.descriptor(c.p.install_file(c.p.file(a.int(0))?, a.int(1))?)
    };
    8 fd_name(Fd) |c, a| {
        let name = c.p.fd_name(a.int(0))?;
        check_bytes(name.as_bytes());
        Ok(name.len() as i64)
    };
    3 open_fds() |c, _| c.p.open_fds().map(|fds| fds.len() as i64);
    1 nofile() |c, _| Ok(c.p.nofile() as i64);
    1 set_nofile(One(&[NOFILE as i64, 0, 1, 20])) |c, a| {
        // The limit of the table below stays.
        c.p.set_nofile((a.0[0] as usize).min(NOFILE)).map(nothing)
    };
    15 pipe2(Bits(CREATED)) |c, a| {
        let [read, write] = c.p.pipe2(a.int(0))?;
        c.descriptor(read)?;
        c.descriptor(write)
    };
    2 pipe_files(Bits(CREATED)) |c, a| c.p.pipe_files(a.int(0)).map(|_| 0);
    8 eventfd(Any, Bits(&[1, NONBLOCK, NONBLOCK, O_ANYFD as i64, O_CLOEXEC as i64])) |c, a| {
        c.descriptor(c.p.eventfd(a.word(0), a.int(1))?)
    };
    2 eventfd_file(Any, Bits(&[1, NONBLOCK])) |c, a| {
        c.p.eventfd_file(a.word(0), a.int(1)).map(|_| 0)
    };
    8 timerfd_create(One(&[0, 1, 7, 8, 9]), Bits(CREATED)) |c, a| {
        c.descriptor(c.p.timerfd_create(a.int(0), a.int(1))?)
    };
    2 timerfd_file(One(&[0, 1, 7, 8, 9]), Bits(CREATED)) |c, a| {
        c.p.timerfd_file(a.int(0), a.int(1)).map(|_| 0)
    };
    8 signalfd(Fd, Any, Bits(CREATED)) |c, a| {
        // Most make a new one.
        let fd = if a.0[1] & 3 == 0 { a.int(0) } else { -1 };
        c.descriptor(c.p.signalfd(fd, a.0[1] as u64, a.int(2))?)
    };
    2 signalfd_file(Any, Bits(CREATED)) |c, a| {
        c.p.signalfd_file(a.0[0] as u64, a.int(1)).map(|_| 0)
    };
    8 epoll_create1(Bits(n![0, EPOLL_CLOEXEC, O_ANYFD])) |c, a| {
        c.descriptor(c.p.epoll_create1(a.int(0))?)
    };
    2 epoll_create(One(&[1, 0, -1])) |c, a| c.descriptor(c.p.epoll_create(a.int(0))?);
    2 epoll_file(Bits(n![0, EPOLL_CLOEXEC])) |c, a| c.p.epoll_file(a.int(0)).map(|_| 0);
    8 inotify_init1(Bits(CREATED)) |c, a| c.descriptor(c.p.inotify_init1(a.int(0))?);
    6 memfd_create(Path, Bits(&[0, 1, 2])) |c, a| {
        c.descriptor(c.p.memfd_create(a.path(0), a.word(1))?)
    };
    15 socket(Only(n![AF_INET, AF_INET6, AF_UNIX]), Only(TYPES), One(&[0, 0, 0, 6, 17])) |c, a| {
        c.descriptor(c.p.socket(a.int(0), a.int(1), a.int(2))?)
    };
    3 socket(Any, Any, Any) |c, a| c.descriptor(c.p.socket(a.int(0), a.int(1), a.int(2))?);
    2 socket_file(Only(n![AF_INET, AF_INET6, AF_UNIX]), Only(TYPES), One(&[0])) |c, a| {
        c.p.socket_file(a.int(0), a.int(1), a.int(2)).map(|_| 0)
    };
    15 socketpair(Only(n![AF_UNIX, AF_UNIX, AF_INET]), Only(TYPES), One(&[0])) |c, a| {
        let [one, two] = c.p.socketpair(a.int(0), a.int(1), a.int(2))?;
        c.descriptor(one)?;
        c.descriptor(two)
    };
    2 socketpair_files(Only(n![AF_UNIX]), Only(TYPES), One(&[0])) |c, a| {
        c.p.socketpair_files(a.int(0), a.int(1), a.int(2)).map(|_| 0)
    };
    30 openat(Fd, Path, Bits(FLAGS), One(n![0o600, 0o666, 0o777, 0])) |c, a| {
        c.descriptor(c.p.openat(a.int(0), a.path(1), a.int(2), a.word(3))?)
    };
    50 open(Path, Bits(FLAGS), One(n![0o600, 0o666, 0o4777, 0])) |c, a| {
        c.descriptor(c.p.open(a.path(0), a.int(1), a.word(2))?)
    };
    3 openat_file(Fd, Path, Bits(FLAGS), One(n![0o600, 0])) |c, a| {
        c.p.openat_file(a.int(0), a.path(1), a.int(2), a.word(3)).map(|_| 0)
    };
    10 openat2(Fd, Path, Bits(FLAGS), One(n![0, 0o600]), Bits(&[0, 1, 2, 4, 8, 16, 32])) |c, a| {
        let how = quietline::OpenHow {
            flags: a.0[2] as u64,
            mode: a.0[3] as u64,
            resolve: a.0[4] as u64,
        };
        c.descriptor(c.p.openat2(a.int(0), a.path(1), &how)?)
    };
    5 creat(Path, One(n![0o600, 0o666, 0])) |c, a| c.descriptor(c.p.creat(a.path(0), a.word(1))?);
    // The texts of the process's own descriptors.
    20 open(Seed, Only(n![O_RDONLY | O_NONBLOCK, O_WRONLY | O_NONBLOCK, O_RDWR | O_NONBLOCK])) |c, a| {
        let directory = if a.0[0] & 1 == 0 { "fd" } else { "fdinfo" };
        let fd = (a.0[0] >> 1) as usize % NOFILE;
        c.descriptor(c.p.open(format!("/proc/self/{directory}/{fd}"), a.int(1), 0)?)
    };
    10 pread(Fd, Length, Offset) |c, a| {
        // A text that has just been opened, read and duplicated over another descriptor.
        let p = c.p;
        let fd = p.open(format!("/proc/self/fdinfo/{}", a.int(0)), O_RDONLY, 0)?;
        let n = super::into(c, a.0[1], |p, to| p.pread(fd, to, a.0[2].clamp(0, 50)));
        let _ = p.dup2(fd, a.int(0));
        let again = super::into(c, a.0[1], |p, to| p.read(fd, to));
        let _ = p.close(fd);
        again?;
        n
    };
};

const TYPES: &[i64] = n![
    SOCK_STREAM | SOCK_NONBLOCK,
    SOCK_STREAM | SOCK_NONBLOCK,
    SOCK_DGRAM | SOCK_NONBLOCK,
    SOCK_SEQPACKET | SOCK_NONBLOCK,
    SOCK_STREAM,
    SOCK_DGRAM,
    SOCK_SEQPACKET,
    SOCK_RAW,
    SOCK_STREAM | O_ANYFD,
    SOCK_DGRAM | SOCK_CLOEXEC,
];
const FLAGS: &[i64] = n![
    O_NONBLOCK,
    O_RDONLY | O_NONBLOCK,
    O_WRONLY | O_NONBLOCK,
    O_RDWR | O_NONBLOCK,
    O_RDWR,
    O_CREAT | O_RDWR,
    O_CREAT | O_RDWR | O_EXCL,
    O_TRUNC | O_RDWR,
    O_APPEND | O_WRONLY,
    O_DIRECTORY,
    O_NOFOLLOW,
    O_PATH,
    O_TMPFILE | O_RDWR,
    O_CLOEXEC,
    O_NOATIME,
    O_DIRECT,
    O_SYNC,
    O_ANYFD,
    O_RDONLY,
    O_WRONLY,
];
