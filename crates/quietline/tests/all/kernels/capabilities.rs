//! Capabilities, one at a time: a thread of the host and a process of ours are user 1000 and have
//! one capability each. Every call that consults capabilities succeeds or fails alike.
#![allow(
    unsafe_code,
    reason = "system calls that change the credentials of one thread, which no safe wrapper offers"
)]

use core::time::Duration;
use quietline::abi::*;
use quietline::{Capabilities, Config, Errno, ItimerSpec, Kernel, Process, SendMsg};

/// The user and group of the callers. User 0 is the saved one, which keeps the permitted
/// capabilities.
const ID: u32 = 1000;

/// A user and group that the callers are not.
const OTHER: u32 = 2000;

/// The options that a capability allows, by level, name and value.
const OPTIONS: [(&str, i32, i32, i32); 4] = [
    ("SO_DEBUG", SOL_SOCKET, libc::SO_DEBUG, 1),
    ("SO_SNDBUFFORCE", SOL_SOCKET, libc::SO_SNDBUFFORCE, 4096),
    ("SO_RCVBUFFORCE", SOL_SOCKET, libc::SO_RCVBUFFORCE, 4096),
    ("SO_PRIORITY", SOL_SOCKET, libc::SO_PRIORITY, 7),
];

/// The sockets that are bound to a port below 1,024.
const BINDS: [(&str, i32, i32); 4] = [
    ("bind tcp", AF_INET, SOCK_STREAM),
    ("bind udp", AF_INET, SOCK_DGRAM),
    ("bind tcp6", AF_INET6, SOCK_STREAM),
    ("bind udp6", AF_INET6, SOCK_DGRAM),
];

/// The ids of an `SCM_CREDENTIALS` message: whether the process, the user and the group are the
/// sender's.
const CLAIMS: [(&str, [bool; 3]); 4] = [
    ("own credentials", [true, true, true]),
    ("a process of another", [false, true, true]),
    ("a user of another", [true, false, true]),
    ("a group of another", [true, true, false]),
];

/// The loopback address with a port.
fn address(family: i32, port: u16) -> Vec<u8> {
    let mut bytes = vec![0; if family == AF_INET { 16 } else { 28 }];
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    if family == AF_INET {
        bytes[4..8].copy_from_slice(&[127, 0, 0, 1]);
    } else {
        bytes[23] = 1;
    }
    bytes
}

/// An `SCM_CREDENTIALS` control message.
fn credentials([own_pid, own_user, own_group]: [bool; 3], own: i32, other: i32) -> Vec<u8> {
    let mut bytes = 28u64.to_ne_bytes().to_vec();
    bytes.extend(SOL_SOCKET.to_ne_bytes());
    bytes.extend(libc::SCM_CREDENTIALS.to_ne_bytes());
    bytes.extend((if own_pid { own } else { other }).to_ne_bytes());
    bytes.extend((if own_user { ID } else { OTHER }).to_ne_bytes());
    bytes.extend((if own_group { ID } else { OTHER }).to_ne_bytes());
    bytes.resize(32, 0);
    bytes
}

/// Results by the name of the call.
type Outcomes = Vec<(String, Result<(), i32>)>;

fn told<T>(result: Result<T, Errno>) -> Result<(), i32> {
    result.map(drop).map_err(Errno::raw_os_error)
}

/// The calls on a process of ours. `other` is the pid of a process of user 0.
fn ours(p: &Process, other: i32, alarm: i32, eventfd: i32) -> Outcomes {
    let mut all = Outcomes::new();
    for (name, family, ty) in BINDS {
        let fd = p.socket(family, ty, 0).unwrap();
        all.push((name.into(), told(p.bind(fd, &address(family, 700)))));
        p.close(fd).unwrap();
    }
    for (name, family, protocol) in
        [("raw", AF_INET, libc::IPPROTO_UDP), ("raw6", AF_INET6, libc::IPPROTO_UDP)]
    {
        all.push((name.into(), told(p.socket(family, libc::SOCK_RAW, protocol))));
    }
    let [a, b] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    for (name, level, option, value) in OPTIONS {
        all.push((name.into(), told(p.setsockopt(a, level, option, &value.to_ne_bytes()))));
    }
    for (name, own) in CLAIMS {
        let control = credentials(own, p.getpid(), other);
        let message = SendMsg { buffers: &[b"x"], control: &control, ..SendMsg::default() };
        all.push((name.into(), told(p.sendmsg(a, &message, 0))));
    }
    all.push(("kill".into(), told(p.kill(other, 0))));
    for (name, clock) in
        [("realtime alarm", libc::CLOCK_REALTIME_ALARM), ("alarm", libc::CLOCK_BOOTTIME_ALARM)]
    {
        all.push((name.into(), told(p.timerfd_create(clock, 0))));
    }
    let set = ItimerSpec { value: Duration::from_secs(1000), ..ItimerSpec::default() };
    all.push(("set an alarm".into(), told(p.timerfd_settime(alarm, 0, set))));
    all.push(("O_NOATIME".into(), told(p.fcntl(eventfd, F_SETFL, O_NOATIME as u64))));
    let [r, w] = p.pipe2(0).unwrap();
    all.push(("F_SETPIPE_SZ".into(), told(p.fcntl(r, F_SETPIPE_SZ, 4 << 20))));
    [a, b, r, w].into_iter().for_each(|fd| p.close(fd).unwrap());
    all
}

fn errno(result: i64) -> Result<(), i32> {
    if result < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(()) }
}

/// The first argument of `capget` and `capset`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

static HEADER: Header = Header { version: 0x2008_0522, pid: 0 };

/// The capabilities of the host's root, which a container may have bounded.
fn permitted() -> u64 {
    let mut data = [0u32; 6];
    // SAFETY: the pointers are to what lives here.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw const HEADER, data.as_mut_ptr()) };
    assert_eq!(errno(got), Ok(()));
    u64::from(data[1]) | u64::from(data[4]) << 32
}

/// Makes the calling thread of the host user 1000 with one capability.
fn become_user(capabilities: Capabilities) -> Result<(), i32> {
    // SAFETY: raw calls, which change this thread alone; the pointers are to what lives here.
    unsafe {
        errno(libc::syscall(libc::SYS_setgroups, 0, 0))?;
        errno(libc::syscall(libc::SYS_setresgid, ID, ID, 0))?;
        errno(libc::syscall(libc::SYS_setresuid, ID, ID, 0))?;
        let (low, high) = (capabilities.bits() as u32, (capabilities.bits() >> 32) as u32);
        let data = [low, low, 0, high, high, 0];
        errno(libc::syscall(libc::SYS_capset, &raw const HEADER, data.as_ptr()))
    }
}

/// The calls on a thread of the host.
fn host(other: i32, alarm: i32, eventfd: i32) -> Outcomes {
    let mut all = Outcomes::new();
    // SAFETY: raw calls and calls of libc, with pointers to variables of this function.
    unsafe {
        for (name, family, ty) in BINDS {
            let fd = libc::socket(family, ty, 0);
            assert!(fd >= 0);
            let mut bound = Err(libc::EADDRINUSE);
            for port in 700..1000 {
                let name = address(family, port);
                bound = errno(libc::bind(fd, name.as_ptr().cast(), name.len() as u32).into());
                if bound != Err(libc::EADDRINUSE) {
                    break;
                }
            }
            all.push((name.into(), bound));
            libc::close(fd);
        }
        for (name, family) in [("raw", AF_INET), ("raw6", AF_INET6)] {
            let fd = libc::socket(family, libc::SOCK_RAW, libc::IPPROTO_UDP);
            all.push((name.into(), errno(fd.into())));
            libc::close(fd);
        }
        let mut pair = [0; 2];
        assert_eq!(libc::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair.as_mut_ptr()), 0);
        let [a, b] = pair;
        for (name, level, option, value) in OPTIONS {
            let set = libc::setsockopt(a, level, option, (&raw const value).cast(), 4);
            all.push((name.into(), errno(set.into())));
        }
        for (name, own) in CLAIMS {
            let mut control = credentials(own, libc::getpid(), other);
            let mut byte = *b"x";
            let mut buffer = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
            let mut message: libc::msghdr = core::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut buffer, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = control.len() as _;
            all.push((name.into(), errno(libc::sendmsg(a, &raw const message, 0) as i64)));
        }
        all.push(("kill".into(), errno(libc::kill(other, 0).into())));
        for (name, clock) in
            [("realtime alarm", libc::CLOCK_REALTIME_ALARM), ("alarm", libc::CLOCK_BOOTTIME_ALARM)]
        {
            let fd = libc::timerfd_create(clock, 0);
            all.push((name.into(), errno(fd.into())));
            libc::close(fd);
        }
        let second = libc::timespec { tv_sec: 1000, tv_nsec: 0 };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let set = libc::itimerspec { it_interval: never, it_value: second };
        let set = libc::timerfd_settime(alarm, 0, &raw const set, core::ptr::null_mut());
        all.push(("set an alarm".into(), errno(set.into())));
        let set = libc::fcntl(eventfd, F_SETFL, O_NOATIME);
        all.push(("O_NOATIME".into(), errno(set.into())));
        let mut pipe = [0; 2];
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), 0), 0);
        let size = libc::fcntl(pipe[0], F_SETPIPE_SZ, 4 << 20);
        all.push(("F_SETPIPE_SZ".into(), errno(size.into())));
        [a, b, pipe[0], pipe[1]].into_iter().for_each(|fd| {
            libc::close(fd);
        });
    }
    all
}

#[test]
fn each_capability_allows_what_it_allows_on_the_host() {
    quietline_testing::isolated!();
    // SAFETY: asks for numbers. The parent is the program that runs the tests: a process of root.
    let (user, parent) = unsafe { (libc::geteuid(), libc::getppid()) };
    if user != 0 {
        return quietline_testing::skip_without_root("only root gives capabilities away");
    }
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let root = kernel.process().unwrap();
    let mut differences = Vec::new();
    let (mut allowed, mut refused) = (0, 0);
    let here = Capabilities::from_bits_truncate(permitted());
    println!("not on this host: {:?}", here.complement());
    for capabilities in here.iter().chain([Capabilities::empty(), here]) {
        // SAFETY: makes descriptors.
        let (alarm, eventfd) =
            unsafe { (libc::timerfd_create(libc::CLOCK_BOOTTIME_ALARM, 0), libc::eventfd(0, 0)) };
        assert!(alarm >= 0 && eventfd >= 0);
        let theirs = std::thread::spawn(move || {
            become_user(capabilities).map(|()| host(parent, alarm, eventfd))
        });
        let theirs = theirs.join().unwrap().expect("root takes its rights away");
        let p = root.fork().unwrap();
        let alarm = p.timerfd_create(libc::CLOCK_BOOTTIME_ALARM, 0).unwrap();
        let eventfd = p.eventfd(0, 0).unwrap();
        p.setgroups(&[]).unwrap();
        p.setresgid(ID, ID, 0).unwrap();
        p.setresuid(ID, ID, 0).unwrap();
        p.set_capabilities(capabilities, capabilities).unwrap();
        for ((name, host), (same, ours)) in
            theirs.into_iter().zip(ours(&p, root.getpid(), alarm, eventfd))
        {
            assert_eq!(name, same);
            *(if host.is_ok() { &mut allowed } else { &mut refused }) += 1;
            if host != ours {
                differences.push(format!("{capabilities:?}, {name}: host {host:?}, here {ours:?}"));
            }
        }
    }
    println!("{allowed} calls allowed, {refused} refused");
    assert!(allowed > 50 && refused > 50, "{allowed} calls allowed, {refused} refused");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The limit on open files binds a process without `CAP_SYS_ADMIN`, also in a privileged kernel.
#[test]
fn file_max_binds_without_sys_admin() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default().privileged(true).file_max(4)).unwrap();
    let root = kernel.process().unwrap();
    root.mkdir("/d", 0o777).unwrap();
    let user = root.fork().unwrap();
    user.setresuid(ID, ID, ID).unwrap();
    for _ in 0..4 {
        root.eventfd(0, 0).unwrap();
    }
    type Call = fn(&Process) -> Result<(), Errno>;
    let calls: [(&str, Call); 10] = [
        ("eventfd", |p| p.eventfd(0, 0).map(drop)),
        ("pipe2", |p| p.pipe2(0).map(drop)),
        ("socket", |p| p.socket(AF_INET, SOCK_STREAM, 0).map(drop)),
        ("socketpair", |p| p.socketpair(AF_UNIX, SOCK_STREAM, 0).map(drop)),
        ("timerfd", |p| p.timerfd_create(libc::CLOCK_MONOTONIC, 0).map(drop)),
        ("signalfd", |p| p.signalfd(-1, 0, 0).map(drop)),
        ("epoll", |p| p.epoll_create1(0).map(drop)),
        ("inotify", |p| p.inotify_init1(0).map(drop)),
        ("open", |p| p.open("/d", O_RDONLY, 0).map(drop)),
        ("memfd", |p| p.memfd_create("m", 0).map(drop)),
    ];
    for (name, call) in calls {
        assert_eq!(call(&user), Err(Errno::NFILE), "{name}");
        assert_eq!(call(&root), Ok(()), "{name}");
    }
}

/// A kernel may let all processes bind low ports.
#[test]
fn the_first_port_without_a_capability_is_configured() {
    let config = Config::default().unprivileged_port_start(700);
    let p = Kernel::boot(config).unwrap().process().unwrap();
    for ty in [SOCK_STREAM, SOCK_DGRAM] {
        let bound = |port| p.bind(p.socket(AF_INET, ty, 0).unwrap(), &address(AF_INET, port));
        assert_eq!((bound(699), bound(700)), (Err(Errno::ACCESS), Ok(())));
    }
}

/// Root of a kernel that is not privileged has the capabilities that its tree asks for, and no
/// others.
#[test]
fn root_of_an_unprivileged_kernel_is_bounded() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default().owner(0, 0)).unwrap().process().unwrap();
    assert_eq!(p.capabilities(), Capabilities::UNPRIVILEGED);
    let fd = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    assert_eq!(p.bind(fd, &address(AF_INET, 700)), Err(Errno::ACCESS));
    assert_eq!(p.socket(AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP), Err(Errno::PERM));
    let all = Capabilities::all();
    assert_eq!(p.set_capabilities(all, all), Err(Errno::PERM));
    p.mkdir("/d", 0o755).unwrap();
    p.mount("tmpfs", "/d", "tmpfs", 0).unwrap();
}
