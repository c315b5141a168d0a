//! The calls: for each parameter the arguments that it is given, the ordinary one first.

use libc::*;

/// An argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg {
    /// The descriptor of the case.
    At,
    /// The second descriptor of the case.
    Other,
    /// An epoll.
    Epoll,
    N(i64),
    /// The address of bytes to read.
    In,
    /// The address of bytes to write.
    Out,
    Text(&'static str),
    /// A second text.
    Text2(&'static str),
    /// The address of a structure of these words.
    Words(&'static [u64]),
    /// A second structure.
    Words2(&'static [u64]),
    /// The address of a length.
    Length(u64),
    /// A list of buffers to read from, of these lengths, and its length: two arguments.
    From(&'static [u64]),
    /// A list of buffers to write to.
    Into(&'static [u64]),
    /// An address and its length: two arguments.
    Address(&'static [u64], i64),
    /// A message: its name, its buffers, its control message.
    Send(&'static [u64], &'static [u64], &'static [u64]),
    /// A message that passes the descriptor of the case.
    SendAt,
    /// Room for a message: for the name, the bytes, and control messages.
    Receive(u64, &'static [u64], u64),
    /// Two arguments.
    Two(i64, i64),
    /// A list of one descriptor that is polled for these events, and its length: two arguments.
    Poll(u16),
    /// What `select` takes: a number above the descriptor, and a set of it three times.
    Sets,
}

use Arg::*;

/// A call with the arguments for each parameter.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) number: i64,
    pub(crate) params: &'static [&'static [Arg]],
}

macro_rules! calls {
    ($($name:ident($($params:expr),*);)*) => {
        &[$(Call { name: stringify!($name), number: $name, params: &[$($params),*] }),*]
    };
}

/// Numbers as arguments.
macro_rules! n {
    ($($n:expr),*) => { &[$(N($n as i64)),*] };
}

const AT: &[Arg] = &[At];
const OTHER: &[Arg] = &[Other];
const IN: &[Arg] = &[In];
const OUT: &[Arg] = &[Out];
const MAX: i64 = i64::MAX;
const MIN: i64 = i64::MIN;
/// More buffers than a call takes, none of which has bytes.
const TOO_MANY: &[u64] = &[0; 1025];

const fn lock(ty: u16, whence: u16, start: i64, len: i64, pid: u64) -> [u64; 4] {
    [ty as u64 | (whence as u64) << 16, start as u64, len as u64, pid]
}

macro_rules! locks {
    ($(($ty:expr, $whence:expr, $start:expr, $len:expr, $pid:expr)),*) => {
        &[$(Words(&lock($ty as u16, $whence as u16, $start, $len, $pid))),*]
    };
}

const LOCKS: &[Arg] = locks![
    (F_RDLCK, 0, 0, 0, 0),
    (F_WRLCK, 0, 0, 0, 0),
    (F_UNLCK, 0, 0, 0, 0),
    (3, 0, 0, 0, 0),
    (0xffff, 0, 0, 0, 0),
    (F_RDLCK, 1, 0, 1, 0),
    (F_RDLCK, 2, 0, 1, 0),
    (F_WRLCK, 2, -1, 1, 0),
    (F_UNLCK, 3, 0, 0, 0),
    (F_RDLCK, 3, 0, 0, 0),
    (F_WRLCK, 0, -1, 0, 0),
    (F_WRLCK, 0, 5, -5, 0),
    (F_RDLCK, 0, 5, -6, 0),
    (F_RDLCK, 1, 1, MAX, 0),
    (F_WRLCK, 0, MAX, 1, 0),
    (F_WRLCK, 0, MAX, 2, 0),
    (F_RDLCK, 0, 0, 0, 1),
    (F_WRLCK, 0, 0, 0, 1),
    (F_UNLCK, 0, 0, 0, 1),
    (3, 3, -1, 0, 1)
];

/// Times: in the past, none of one, now, no nanoseconds of one, before 1970, the ends of time.
const TIMES: &[Arg] = &[
    N(0),
    Words(&[1000, 5, 2000, 6]),
    Words(&[1000, UTIME_OMIT as u64, 2000, 6]),
    Words(&[1000, 5, 2000, UTIME_OMIT as u64]),
    Words(&[0, UTIME_OMIT as u64, 0, UTIME_OMIT as u64]),
    Words(&[0, UTIME_NOW as u64, 0, UTIME_NOW as u64]),
    Words(&[0, 1_000_000_000, 0, 0]),
    Words(&[0, 0, 0, -1_i64 as u64]),
];

const EVENTS: &[Arg] = &[
    Words(&[EPOLLIN as u64 | 5 << 32, 0]),
    Words(&[0, 0]),
    Words(&[EPOLLOUT as u64 | EPOLLET as u32 as u64, 0]),
    Words(&[EPOLLIN as u64 | EPOLLEXCLUSIVE as u64, 0]),
    Words(&[EPOLLIN as u64 | EPOLLEXCLUSIVE as u64 | EPOLLONESHOT as u64, 0]),
    Words(&[u32::MAX as u64, 0]),
];

const XATTRS: &[Arg] = &[
    Text("user.x"),
    Text("trusted.x"),
    Text("security.x"),
    Text("system.x"),
    Text("system.sockprotoname"),
    Text("other.x"),
    Text("user."),
    Text("x"),
    Text(""),
];

const fn inet(port: u16, address: u32) -> [u64; 2] {
    [AF_INET as u64 | (port.to_be() as u64) << 16 | (address.to_be() as u64) << 32, 0]
}

/// A number at which nothing is open.
const CLOSED: u64 = super::system::CLOSED as u64;
/// Flags of `openat2`.
const RESOLVE_BENEATH: u64 = 8;
const RESOLVE_IN_ROOT: u64 = 16;

/// Addresses: of each family, of none, too short, too long.
const ADDRESSES: &[Arg] = &[
    Address(&inet(0, 0x7f00_0001), 16),
    Address(&inet(0, 0x7f00_0001), 15),
    Address(&inet(0, 0x7f00_0001), 28),
    Address(&inet(0, 0x0808_0808), 16),
    Address(&[AF_UNIX as u64 | 0x78_0000, 0], 3),
    Address(&[AF_UNIX as u64, 0], 2),
    Address(&[AF_UNIX as u64 | 0x78_0000, 0], 110),
    Address(&[AF_UNIX as u64 | 0x78_0000, 0], 111),
    Address(&[AF_INET6 as u64, 0, 0x0100_0000_0000_0000, 0], 28),
    Address(&[AF_INET6 as u64, 0, 0x0100_0000_0000_0000, 0], 24),
    Address(&[AF_UNSPEC as u64, 0], 16),
    Address(&[AF_UNSPEC as u64, 0], 2),
    Address(&[0x777, 0], 16),
    Address(&[0], 0),
    Address(&[0], 1),
    Address(&[0; 17], 129),
];

/// Addresses to send and to connect to. (No port is 0.)
const PEERS: &[Arg] = &[
    Address(&inet(1, 0x7f00_0001), 16),
    Address(&inet(1, 0x7f00_0001), 15),
    Address(&[AF_UNIX as u64 | 0x78_0000, 0], 3),
    Address(&[AF_UNIX as u64, 0], 2),
    Address(&[AF_UNIX as u64 | 0x78_0000, 0], 111),
    Address(&[AF_UNSPEC as u64, 0], 16),
    Address(&[AF_UNSPEC as u64, 0], 2),
    Address(&[0x777, 0], 16),
    Address(&[0], 1),
    Address(&[0; 17], 129),
];

const OPTIONS: &[Arg] = &[
    Two(SOL_SOCKET as i64, SO_REUSEADDR as i64),
    Two(SOL_SOCKET as i64, SO_TYPE as i64),
    Two(SOL_SOCKET as i64, SO_ERROR as i64),
    Two(SOL_SOCKET as i64, SO_LINGER as i64),
    Two(SOL_SOCKET as i64, SO_PASSCRED as i64),
    Two(SOL_SOCKET as i64, SO_ACCEPTCONN as i64),
    Two(SOL_SOCKET as i64, SO_DOMAIN as i64),
    Two(SOL_SOCKET as i64, SO_PROTOCOL as i64),
    Two(SOL_SOCKET as i64, 7777),
    Two(IPPROTO_TCP as i64, TCP_NODELAY as i64),
    Two(IPPROTO_TCP as i64, 7777),
    Two(IPPROTO_UDP as i64, 7777),
    Two(IPPROTO_IP as i64, IP_TTL as i64),
    Two(IPPROTO_IPV6 as i64, IPV6_V6ONLY as i64),
    Two(7777, 1),
    Two(-1, 1),
];

/// Lists of buffers: ordinary, without a buffer, without a byte, with empty ones, too long.
const INTO: &[Arg] =
    &[Into(&[8]), Into(&[]), Into(&[0]), Into(&[0, 8]), Into(&[4, 0, 4]), Into(TOO_MANY)];
const FROM: &[Arg] =
    &[From(&[8]), From(&[]), From(&[0]), From(&[0, 8]), From(&[4, 0, 4]), From(TOO_MANY)];
const OFFSETS: &[Arg] = &[N(0), Words(&[0]), Words(&[2]), Words(&[u64::MAX]), Words(&[MAX as u64])];
const OFFSETS2: &[Arg] =
    &[N(0), Words2(&[0]), Words2(&[2]), Words2(&[u64::MAX]), Words2(&[MAX as u64])];

/// Paths. None leads out of the case's directory, because many calls change files.
const PATHS: &[Arg] = &[Text(""), Text("x"), Text(".")];
const NEW: &[Arg] = &[Text("x"), Text(""), Text(".")];
const SEND_FLAGS: &[Arg] = &[
    N(MSG_NOSIGNAL as i64),
    N(MSG_DONTROUTE as i64),
    N(MSG_EOR as i64),
    N(MSG_MORE as i64),
    N(MSG_ERRQUEUE as i64),
    N(MSG_OOB as i64),
    N(MSG_CMSG_CLOEXEC as i64),
];
const RECEIVE_FLAGS: &[Arg] = &[
    N(0),
    N(MSG_PEEK as i64),
    N(MSG_TRUNC as i64),
    N((MSG_PEEK | MSG_TRUNC) as i64),
    N(MSG_WAITALL as i64),
    N(MSG_ERRQUEUE as i64),
    N(MSG_OOB as i64),
    N(MSG_CMSG_CLOEXEC as i64),
];

/// Sizes that are as large as they can be are refused before anything is read.
const SIZES: &[Arg] = n![8, 0, -1, MAX];
const OFFSETS64: &[Arg] = n![0, 2, -1, MAX, MIN];
/// Offsets and lengths to allocate. (A length that fits fills the memory of a host that allows it.)
const RANGES: &[Arg] = &[
    Two(0, 10),
    Two(3, 10),
    Two(0, 0),
    Two(-1, 10),
    Two(0, -1),
    Two(MAX, 1),
    Two(1, MAX),
    Two(MAX, MAX),
    Two(MIN, MIN),
    Two(4096, 4096),
];
const MODES: &[Arg] = n![0o600, 0o7777, 0, 0o170_644, -1];
const IDS: &[Arg] = n![-1, 0, 1000, 0x7fff_ffff];
/// Flags of calls that take a path.
const AT_FLAGS: &[Arg] = n![
    AT_EMPTY_PATH,
    0,
    AT_SYMLINK_NOFOLLOW,
    AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW,
    AT_EMPTY_PATH | 0x200,
    AT_EMPTY_PATH | AT_SYMLINK_FOLLOW,
    AT_EMPTY_PATH | AT_NO_AUTOMOUNT,
    AT_EMPTY_PATH | 0x6000,
    1,
    -1
];
const NEW_FDS: &[Arg] = n![901, 1023, 1024, -1, i32::MAX];
/// What `F_SETFL` sets.
const STATUS: &[Arg] =
    n![O_NONBLOCK, 0, O_APPEND, O_DIRECT, O_NOATIME, O_ASYNC, O_RDWR | O_TRUNC, O_PATH, -1];
const ADVICE: &[Arg] = n![0, 1, -1];

#[rustfmt::skip] // a table
pub(crate) const CALLS: &[Call] = calls! {
    // Bytes.
    SYS_read(AT, OUT, n![8, 0, 1, 4, 7, 1024]);
    SYS_write(AT, IN, n![8, 0, 1, 4, 7, 1024]);
    SYS_pread64(AT, OUT, n![8, 0, 1024], OFFSETS64);
    SYS_pwrite64(AT, IN, n![8, 0, 1024], OFFSETS64);
    SYS_readv(AT, INTO);
    SYS_writev(AT, FROM);
    SYS_preadv(AT, INTO, n![0, 2, -1, MAX]);
    SYS_pwritev(AT, FROM, n![0, 2, -1, MAX]);
    SYS_lseek(AT, OFFSETS64, n![0, 1, 2, 3, 4, 5, -1]);
    SYS_fallocate(AT, n![0, 1, 2, 3, 4, 8, 9, 0x10, 0x20, 0x40, 0x80, 0x100, -1], RANGES);
    SYS_ftruncate(AT, n![1, 0, 1_i64 << 40, -1, MAX, MIN]);
    SYS_fsync(AT);
    SYS_fdatasync(AT);
    SYS_syncfs(AT);
    SYS_getdents64(AT, OUT, n![256, 0, 1, 23, 24]);
    SYS_copy_file_range(AT, OFFSETS, OTHER, OFFSETS2, SIZES, ADVICE);
    SYS_sendfile(OTHER, AT, OFFSETS, SIZES);
    SYS_splice(AT, OFFSETS, OTHER, OFFSETS2, SIZES, n![2, 0, 15, 16, -1]);
    SYS_tee(AT, OTHER, SIZES, n![2, 0, 15, 16, -1]);
    // (Without SPLICE_F_NONBLOCK it waits, also at a pipe that does not.)
    SYS_vmsplice(AT, FROM, n![2, 15, 16, -1]);
    // Descriptors.
    SYS_close(AT);
    SYS_close_range(AT, n![1023, 3, -1], n![0, 4, 1, 8, -1]);
    SYS_dup(AT);
    SYS_dup2(AT, NEW_FDS);
    SYS_dup2(AT, AT);
    SYS_dup3(AT, NEW_FDS, n![0, O_CLOEXEC, O_NONBLOCK, -1]);
    SYS_dup3(AT, AT, n![0, O_CLOEXEC, 1]);
    SYS_dup3(OTHER, AT, n![0, 1]);
    SYS_fcntl(AT, n![F_DUPFD, F_DUPFD_CLOEXEC], n![0, 10, 1023, 1024, -1, 1_i64 << 32]);
    SYS_fcntl(AT, n![F_GETFD, F_GETFL, F_GETPIPE_SZ, 7777, -1], n![0, 1, -1]);
    SYS_fcntl(AT, n![F_SETFD], n![0, 1, 2, -1]);
    SYS_fcntl(AT, n![F_SETFL], STATUS);
    SYS_fcntl(AT, n![F_SETPIPE_SZ], n![8192, 0, 1, 4096, 4097, 1 << 20, (1 << 20) + 1,
        1_i64 << 31, (1_i64 << 31) + 1, -1]);
    SYS_fcntl(AT, n![F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW], LOCKS);
    SYS_flock(AT, n![LOCK_EX | LOCK_NB, LOCK_SH | LOCK_NB, LOCK_UN, LOCK_UN | LOCK_NB, 0,
        LOCK_NB, 3, 16, 32, 32 | 64, 64, -1]);
    SYS_ioctl(AT, n![FIONREAD, TIOCOUTQ, 0x8905, FIOCLEX, FIONCLEX, 0x7777, TCGETS, -1],
        &[Words(&[0])]);
    SYS_ioctl(AT, n![FIONBIO], &[Words(&[1]), Words(&[0])]);
    // Events.
    SYS_epoll_ctl(&[Epoll], n![1, 2, 3, 0, 4, -1], AT, EVENTS);
    SYS_epoll_ctl(AT, n![1, 2, 3, 0], OTHER, EVENTS);
    SYS_epoll_ctl(AT, n![1, 2, 3, 0], AT, EVENTS);
    SYS_epoll_wait(AT, OUT, n![1, 0], n![0, 1]);
    SYS_epoll_pwait2(AT, OUT, n![1, 0], &[Words(&[0, 0]), Words(&[0, 1]), Words(&[0,
        1_000_000_000]), Words(&[u64::MAX, 0])], n![0], n![8]);
    SYS_poll(&[Poll(0x2fff), Poll(0), Poll(POLLIN as u16), Poll(POLLOUT as u16)], n![0, 1]);
    SYS_ppoll(&[Poll(0x2fff), Poll(0)], &[Words2(&[0, 0]), Words2(&[0, 1]), Words2(&[0,
        1_000_000_000]), Words2(&[u64::MAX, 0])], n![0], n![8]);
    SYS_select(&[Sets], &[Words2(&[0, 0])]);
    SYS_timerfd_settime(AT, n![0, 1, 2, 3, 4, -1], &[Words(&[0; 4]), Words(&[0, 0, 1 << 20, 0]),
        Words(&[1, 1, 1 << 20, 0]),
        Words(&[0, 0, 0, 1_000_000_000]), Words(&[0, u64::MAX, 0, 0]), Words(&[0, 0, u64::MAX,
        0])], &[Words2(&[0]), N(0)]);
    SYS_timerfd_gettime(AT, OUT);
    SYS_signalfd4(AT, &[Words(&[1 << 11]), Words(&[0]), Words(&[u64::MAX])], n![8], n![0,
        SFD_NONBLOCK, SFD_CLOEXEC, 1, -1]);
    SYS_inotify_add_watch(AT, &[Text("."), Text(""), Text("nothing")], n![IN_MODIFY, 0,
        IN_ALL_EVENTS, IN_ONLYDIR, 0x3000_0002, IN_MODIFY | IN_MASK_CREATE, 1_i64 << 27, u32::MAX]);
    SYS_inotify_rm_watch(AT, n![1, 0, 2, -1, i32::MAX]);
    // Sockets.
    SYS_bind(AT, ADDRESSES);
    SYS_listen(AT, n![1, 0, -1, i32::MAX]);
    SYS_connect(AT, PEERS);
    SYS_accept(AT, n![0], n![0]);
    SYS_accept4(AT, OUT, &[Length(128), Length(0)], n![0, SOCK_NONBLOCK, SOCK_CLOEXEC, 1, -1]);
    SYS_getsockname(AT, OUT, &[Length(128), Length(0), Length(1)]);
    SYS_getpeername(AT, OUT, &[Length(128), Length(0), Length(1)]);
    SYS_shutdown(AT, n![0, 1, 2, 3, -1]);
    SYS_sendto(AT, IN, n![8, 0, 1024], SEND_FLAGS, n![0], n![0]);
    SYS_sendto(AT, IN, n![8, 0], n![0], PEERS);
    SYS_sendmsg(AT, &[Send(&[], &[8], &[]), Send(&[], &[], &[]), Send(&[], &[0], &[]), Send(&[],
        &[4, 0, 4], &[]), Send(&[], TOO_MANY, &[]),
        Send(&inet(1, 0x7f00_0001), &[8], &[]), Send(&[AF_UNIX as u64, 0], &[8], &[]),
        Send(&[0x777, 0], &[8], &[]), Send(&[0; 17], &[8], &[]),
        Send(&[], &[8], &[0]), Send(&[], &[8], &[16, 1 | 7777 << 32]), Send(&[], &[8], &[17,
        1 | 1 << 32, 0]), Send(&[], &[8], &[20, 1 | 1 << 32, CLOSED]), SendAt], SEND_FLAGS);
    SYS_sendmmsg(AT, &[Send(&[], &[8], &[]), Send(&[], &[], &[]), Send(&[], TOO_MANY, &[])],
        n![1, 0], SEND_FLAGS);
    SYS_recvfrom(AT, OUT, n![8, 0, 1], RECEIVE_FLAGS, n![0], n![0]);
    SYS_recvfrom(AT, OUT, n![8], n![0], &[Words(&[0])], &[Length(128), Length(0)]);
    SYS_recvmsg(AT, &[Receive(0, &[8], 0), Receive(0, &[], 0), Receive(0, &[0], 0), Receive(0,
        &[1, 0, 1], 0), Receive(0, TOO_MANY, 0), Receive(16, &[8], 64)], RECEIVE_FLAGS);
    SYS_recvmmsg(AT, &[Receive(0, &[8], 0), Receive(0, &[], 0), Receive(0, TOO_MANY, 0)], n![1,
        0], RECEIVE_FLAGS, n![0]);
    SYS_setsockopt(AT, OPTIONS, &[Words(&[1, 0]), Words(&[0, 0]), Words(&[u64::MAX, 0])], n![4,
        0, 1, 3, 8, 16]);
    SYS_getsockopt(AT, OPTIONS, OUT, &[Length(4), Length(0), Length(1), Length(8), Length(64)]);
    // The tree.
    SYS_fchdir(AT);
    SYS_fstat(AT, OUT);
    SYS_newfstatat(AT, PATHS, OUT, AT_FLAGS);
    SYS_statx(AT, PATHS, AT_FLAGS, n![0x7ff, 0, 0xfff, 1_i64 << 31], OUT);
    SYS_fstatfs(AT, OUT);
    SYS_faccessat2(AT, PATHS, n![0, 1, 2, 4, 7, 8, -1], AT_FLAGS);
    SYS_readlinkat(AT, PATHS, OUT, n![64, 0, 1]);
    SYS_fchmod(AT, MODES);
    SYS_fchmodat2(AT, PATHS, MODES, AT_FLAGS);
    SYS_fchown(AT, IDS, IDS);
    SYS_fchownat(AT, PATHS, IDS, IDS, AT_FLAGS);
    SYS_utimensat(AT, n![0], TIMES, n![0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1, -1]);
    SYS_utimensat(AT, PATHS, TIMES, AT_FLAGS);
    SYS_fsetxattr(AT, XATTRS, IN, n![4, 0, 65_537], n![0, 1, 2, 3, 4, -1]);
    SYS_fgetxattr(AT, XATTRS, OUT, n![64, 0, 1]);
    SYS_flistxattr(AT, OUT, n![64, 0, 1]);
    SYS_fremovexattr(AT, XATTRS);
    SYS_openat(AT, NEW, n![O_RDWR | O_CREAT, O_RDONLY, O_PATH, O_DIRECTORY, O_RDWR | O_TMPFILE,
        O_WRONLY | O_CREAT | O_EXCL, 3, O_CREAT | O_DIRECTORY], n![0o600, 0]);
    SYS_openat2(AT, NEW, &[Words(&[0, 0, 0]), Words(&[O_RDWR as u64 | O_CREAT as u64, 0o600, 0]),
        Words(&[0, 0o600, 0]), Words(&[0, 0, RESOLVE_BENEATH]),
        Words(&[0, 0, RESOLVE_IN_ROOT]), Words(&[0, 0, RESOLVE_BENEATH | RESOLVE_IN_ROOT]),
        Words(&[0, 0, 1 << 20]), Words(&[1 << 60, 0, 0])], n![24]);
    SYS_mkdirat(AT, NEW, MODES);
    SYS_mknodat(AT, NEW, n![S_IFIFO | 0o600, S_IFREG, 0o600, S_IFDIR, S_IFSOCK, S_IFLNK, -1],
        n![0]);
    SYS_symlinkat(&[Text("target"), Text("")], AT, &[Text2("x"), Text2(""), Text2(".")]);
    SYS_unlinkat(AT, PATHS, n![0, AT_REMOVEDIR, 1, -1]);
    SYS_renameat(AT, NEW, AT, &[Text2("x"), Text2("y"), Text2("")]);
    SYS_renameat2(AT, NEW, OTHER, &[Text2("x"), Text2("y"), Text2("")], n![0, 1, 2, 3, 4, 8, -1]);
    SYS_linkat(AT, PATHS, OTHER, &[Text2("y"), Text2(""), Text2(".")], AT_FLAGS);
    SYS_linkat(AT, PATHS, n![AT_FDCWD], &[Text2("y"), Text2(""), Text2(".")], AT_FLAGS);
};
