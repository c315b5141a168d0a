//! The kinds of descriptors: each is made by the same calls on both systems.

use super::system::{CLOSED, Outcome, System};
use libc::*;
use std::fmt;

/// A kind of descriptor in one state.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Makes a descriptor of the kind. Names that it makes in the working directory are among
    /// [`NAMES`].
    pub(crate) make: fn(&dyn System) -> i32,
    pub(crate) second: Second,
}

impl Kind {
    /// Whether the call is made on the kind. The host takes long to close an instance of inotify
    /// that has a watch, so few are.
    pub(crate) fn has(&self, call: i64) -> bool {
        const OF_EVENTS: &[i64] = &[
            SYS_read,
            SYS_readv,
            SYS_ioctl,
            SYS_poll,
            SYS_select,
            SYS_inotify_add_watch,
            SYS_inotify_rm_watch,
            SYS_close,
        ];
        self.name != "inotify, with an event" || OF_EVENTS.contains(&call)
    }
}

/// Whether a kind is also the second descriptor of calls that take two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    Never,
    /// With the ordinary arguments.
    Ordinarily,
    Always,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Names that kinds and calls make, in the order in which they can be removed.
pub(crate) const NAMES: &[(&str, i32)] = &[
    ("dir/x", 0),
    ("dir/x", AT_REMOVEDIR),
    ("dir/y", 0),
    ("dir", AT_REMOVEDIR),
    ("file", 0),
    ("other", 0),
    ("fifo", 0),
    ("link", 0),
    ("x", 0),
    ("x", AT_REMOVEDIR),
    ("y", 0),
];

/// A case with two descriptors may have made the name already.
fn made(outcome: Outcome) {
    assert!(matches!(outcome, Ok(0) | Err(EEXIST)), "{outcome:?}");
}

/// A file of five bytes.
fn file(s: &dyn System, flags: i32) -> i32 {
    let fd = s.open("file", O_RDWR | O_CREAT);
    s.write(fd, 5);
    s.close(fd);
    s.open("file", flags)
}

fn dir(s: &dyn System, flags: i32) -> i32 {
    let path = s.room().text(0, "dir");
    made(s.call(SYS_mkdirat, &[AT_FDCWD.into(), path, 0o755]));
    s.open("dir", flags)
}

fn fifo(s: &dyn System, flags: i32) -> i32 {
    let path = s.room().text(0, "fifo");
    made(s.call(SYS_mknodat, &[AT_FDCWD.into(), path, i64::from(S_IFIFO | 0o644), 0]));
    s.open("fifo", flags)
}

fn link(s: &dyn System) -> i32 {
    let path = s.room().text(0, "link");
    s.must(SYS_symlinkat, &[path, AT_FDCWD.into(), path]);
    s.open("link", O_PATH | O_NOFOLLOW)
}

/// Words of an internet address on the loopback with a free port.
const LOOPBACK: [u64; 2] = [AF_INET as u64 | 0x0100_007f << 32, 0];

fn bound(s: &dyn System, ty: i32) -> i32 {
    let fd = s.socket(AF_INET, ty);
    // Ends without TIME_WAIT, which would keep the host's ports.
    if ty == SOCK_STREAM {
        abort_on_close(s, fd);
    }
    let at = s.room().words(&LOOPBACK);
    s.must(SYS_bind, &[fd.into(), at, 16]);
    fd
}

fn abort_on_close(s: &dyn System, fd: i32) {
    let at = s.room().words(&[1]);
    s.must(SYS_setsockopt, &[fd.into(), SOL_SOCKET.into(), SO_LINGER.into(), at, 8]);
}

fn listening(s: &dyn System) -> i32 {
    let fd = bound(s, SOCK_STREAM);
    s.must(SYS_listen, &[fd.into(), 4]);
    fd
}

/// Connects `fd` to what `to` is bound to.
fn connect(s: &dyn System, fd: i32, to: i32) {
    let (at, len) = (s.room().words(&[0; 16]), s.room().length(128));
    s.must(SYS_getsockname, &[to.into(), at, len]);
    let len = s.room().int(len);
    let done = s.call(SYS_connect, &[fd.into(), at, len.into()]);
    assert!(matches!(done, Ok(0) | Err(EINPROGRESS)), "{done:?}");
}

/// The two ends of a TCP connection, the accepted one last.
fn tcp(s: &dyn System) -> [i32; 2] {
    let (listener, client) = (listening(s), bound(s, SOCK_STREAM));
    connect(s, client, listener);
    let server = s.must(SYS_accept4, &[listener.into(), 0, 0, SOCK_NONBLOCK.into()]) as i32;
    abort_on_close(s, server);
    s.close(listener);
    [client, server]
}

fn unix_bound(s: &dyn System, ty: i32) -> i32 {
    let fd = s.socket(AF_UNIX, ty);
    // Without a name, the system chooses one.
    let at = s.room().words(&[AF_UNIX as u64]);
    s.must(SYS_bind, &[fd.into(), at, 2]);
    fd
}

fn timer(s: &dyn System, first: [u64; 4]) -> i32 {
    let fd = s.must(SYS_timerfd_create, &[CLOCK_MONOTONIC.into(), TFD_NONBLOCK.into()]);
    let at = s.room().words(&first);
    s.must(SYS_timerfd_settime, &[fd, 0, at, 0]);
    fd as i32
}

fn event(s: &dyn System, count: i64, flags: i32) -> i32 {
    s.must(SYS_eventfd2, &[count, (flags | EFD_NONBLOCK).into()]) as i32
}

fn epoll(s: &dyn System) -> i32 {
    s.must(SYS_epoll_create1, &[0]) as i32
}

fn inotify(s: &dyn System) -> i32 {
    s.must(SYS_inotify_init1, &[IN_NONBLOCK.into()]) as i32
}

/// Watches a directory of the case, which ends with it.
fn watch(s: &dyn System, fd: i32) {
    s.close(dir(s, O_RDONLY));
    let path = s.room().text(0, "dir");
    s.must(SYS_inotify_add_watch, &[fd.into(), path, IN_CREATE.into()]);
}

macro_rules! kinds {
    ($($(#$second:ident)? $name:literal: $make:expr;)*) => {
        &[$(Kind { name: $name, make: $make, second: kinds!(@ $($second)?) }),*]
    };
    (@ $second:ident) => { Second::$second };
    (@) => { Second::Never };
}

/// All kinds, with those marked that are also second descriptors.
pub(crate) const KINDS: &[Kind] = kinds! {
    #Always "closed": |_| CLOSED;
    "-1": |_| -1;
    "highest": |_| i32::MAX;
    "AT_FDCWD": |_| AT_FDCWD;

    #Always "file": |s| file(s, O_RDWR);
    "file, to read": |s| file(s, O_RDONLY);
    "file, to write": |s| file(s, O_WRONLY);
    #Ordinarily "file, to append": |s| file(s, O_RDWR | O_APPEND);
    "file, without a name": |s| {
        let fd = file(s, O_RDWR);
        let path = s.room().text(0, "file");
        s.must(SYS_unlinkat, &[AT_FDCWD.into(), path, 0]);
        fd
    };
    #Always "directory": |s| dir(s, O_RDONLY);
    "directory, removed": |s| {
        let fd = dir(s, O_RDONLY);
        let path = s.room().text(0, "dir");
        s.must(SYS_unlinkat, &[AT_FDCWD.into(), path, AT_REMOVEDIR.into()]);
        fd
    };
    #Ordinarily "O_PATH of a file": |s| file(s, O_PATH);
    "O_PATH of a directory": |s| dir(s, O_PATH);
    "O_PATH of a fifo": |s| fifo(s, O_PATH);
    "O_PATH of a link": link;
    "memfd": |s| {
        let name = s.room().text(0, "memory");
        let fd = s.must(SYS_memfd_create, &[name, 0]) as i32;
        s.write(fd, 5);
        fd
    };
    "file of /proc": |s| s.open("/proc/sys/fs/inotify/max_queued_events", O_RDONLY);
    "directory of /proc": |s| s.open("/proc/sys/fs/inotify", O_RDONLY);

    #Ordinarily "fifo": |s| fifo(s, O_RDWR | O_NONBLOCK);
    "fifo, to read": |s| fifo(s, O_RDONLY | O_NONBLOCK);
    "fifo, to write": |s| {
        fifo(s, O_RDONLY | O_NONBLOCK);
        s.open("fifo", O_WRONLY | O_NONBLOCK)
    };
    #Ordinarily "pipe, to read": |s| {
        let [read, write] = s.pipe();
        s.write(write, 3);
        read
    };
    "pipe, to read, empty": |s| s.pipe()[0];
    "pipe, to read, without writer": |s| {
        let [read, write] = s.pipe();
        s.close(write);
        read
    };
    #Always "pipe, to write": |s| s.pipe()[1];
    "pipe, to write, full": |s| {
        let [_, write] = s.pipe();
        let [fd, size] = [write.into(), 4096];
        s.must(SYS_fcntl, &[fd, F_SETPIPE_SZ.into(), size]);
        let bytes = s.room().source();
        s.must(SYS_write, &[fd, bytes, size]);
        write
    };
    "pipe, to write, without reader": |s| {
        let [read, write] = s.pipe();
        s.close(read);
        write
    };

    "local stream": |s| s.socket(AF_UNIX, SOCK_STREAM);
    "local stream, bound": |s| unix_bound(s, SOCK_STREAM);
    "local stream, listening": |s| {
        let fd = unix_bound(s, SOCK_STREAM);
        s.must(SYS_listen, &[fd.into(), 4]);
        fd
    };
    "local stream, listening, with a connection": |s| {
        let fd = unix_bound(s, SOCK_STREAM);
        s.must(SYS_listen, &[fd.into(), 4]);
        connect(s, s.socket(AF_UNIX, SOCK_STREAM), fd);
        fd
    };
    #Ordinarily "local stream, connected": |s| {
        let [one, two] = s.pair(SOCK_STREAM);
        s.write(two, 3);
        one
    };
    "local stream, connected, empty": |s| s.pair(SOCK_STREAM)[0];
    "local stream, peer closed": |s| {
        let [one, two] = s.pair(SOCK_STREAM);
        s.close(two);
        one
    };
    "local stream, shut down": |s| {
        let [one, _] = s.pair(SOCK_STREAM);
        s.must(SYS_shutdown, &[one.into(), 2]);
        one
    };
    "local datagrams": |s| s.socket(AF_UNIX, SOCK_DGRAM);
    "local datagrams, bound": |s| unix_bound(s, SOCK_DGRAM);
    #Ordinarily "local datagrams, connected": |s| {
        let [one, two] = s.pair(SOCK_DGRAM);
        s.write(two, 3);
        one
    };
    "local datagrams, peer closed": |s| {
        let [one, two] = s.pair(SOCK_DGRAM);
        s.close(two);
        one
    };
    "local packets": |s| s.socket(AF_UNIX, SOCK_SEQPACKET);
    "local packets, connected": |s| {
        let [one, two] = s.pair(SOCK_SEQPACKET);
        s.write(two, 3);
        one
    };
    "tcp": |s| s.socket(AF_INET, SOCK_STREAM);
    "tcp6": |s| s.socket(AF_INET6, SOCK_STREAM);
    "tcp, bound": |s| bound(s, SOCK_STREAM);
    "tcp, listening": listening;
    "tcp, listening, with a connection": |s| {
        let listener = listening(s);
        connect(s, bound(s, SOCK_STREAM), listener);
        listener
    };
    #Ordinarily "tcp, connected": |s| {
        let [client, server] = tcp(s);
        s.write(client, 3);
        server
    };
    "tcp, connected, empty": |s| tcp(s)[0];
    "tcp, peer shut down": |s| {
        let [client, server] = tcp(s);
        s.must(SYS_shutdown, &[client.into(), 1]);
        server
    };
    "udp": |s| s.socket(AF_INET, SOCK_DGRAM);
    "udp6": |s| s.socket(AF_INET6, SOCK_DGRAM);
    "udp, bound": |s| bound(s, SOCK_DGRAM);
    #Ordinarily "udp, connected": |s| {
        let [one, two] = [bound(s, SOCK_DGRAM), bound(s, SOCK_DGRAM)];
        connect(s, one, two);
        connect(s, two, one);
        s.write(two, 3);
        one
    };

    #Ordinarily "eventfd": |s| event(s, 1, 0);
    "eventfd, zero": |s| event(s, 0, 0);
    "eventfd, semaphore": |s| event(s, 2, EFD_SEMAPHORE);
    "timerfd": |s| timer(s, [0; 4]);
    "timerfd, armed": |s| timer(s, [0, 0, 1 << 20, 0]);
    #Ordinarily "timerfd, expired": |s| {
        let fd = timer(s, [0, 0, 0, 1]);
        // Until the timer has expired.
        let list = s.room().structure(0, &[fd as u64 | (POLLIN as u64) << 32]);
        s.must(SYS_poll, &[list, 1, 10_000]);
        fd
    };
    #Ordinarily "signalfd": |s| {
        let mask = s.room().words(&[1 << 9]);
        s.must(SYS_signalfd4, &[-1, mask, 8, SFD_NONBLOCK.into()]) as i32
    };
    #Ordinarily "epoll": epoll;
    "epoll, with an event": |s| {
        let (fd, counter) = (epoll(s), event(s, 1, 0));
        let at = s.room().words(&[EPOLLIN as u64 | 7 << 32, 0]);
        s.must(SYS_epoll_ctl, &[fd.into(), EPOLL_CTL_ADD.into(), counter.into(), at]);
        fd
    };
    #Ordinarily "inotify": inotify;
    "inotify, with an event": |s| {
        let fd = inotify(s);
        watch(s, fd);
        s.close(s.open("dir/y", O_RDWR | O_CREAT));
        fd
    };
};
