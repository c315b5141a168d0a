//! The limit on a kernel's memory: guests that grow what they can grow until they are refused.

use quietline::abi::*;
use quietline::{Config, EpollEvent, Errno, Events, Kernel, Process};
use quietline_sync::rcu;

const LIMIT: usize = 4 << 20;

fn limited(bytes: usize) -> (Kernel, Process) {
    let kernel = Kernel::boot(Config::default().memory(bytes)).unwrap();
    let process = kernel.process().unwrap();
    (kernel, process)
}

/// Grows a kernel by one object, the number of which is passed, or says why not.
type Grow = fn(&Process, usize) -> Result<(), Errno>;

const GROWTHS: [(&str, Grow); 13] = [
    ("files of one page", |p, n| {
        let fd = p.open(format!("/f{n}"), O_CREAT | O_RDWR, 0o600)?;
        let written = p.write(fd, &[1; 4096]);
        p.close(fd).unwrap();
        written.map(drop)
    }),
    ("one file", |p, n| {
        let fd = p.open("/file", O_CREAT | O_RDWR | O_APPEND, 0o600)?;
        let written = p.write(fd, &[n as u8; 8192]);
        p.close(fd).unwrap();
        written.map(drop)
    }),
    ("directories", |p, n| p.mkdir(format!("/d{n}"), 0o700)),
    ("long names", |p, n| p.mkdir(format!("/{n:0>200}"), 0o700)),
    ("symbolic links", |p, n| p.symlink("/target", format!("/l{n}"))),
    ("sockets", |p, _| p.socket(AF_INET, SOCK_STREAM, 0).map(drop)),
    ("local sockets", |p, _| p.socketpair(AF_UNIX, SOCK_STREAM, 0).map(drop)),
    ("pipes with a page", |p, _| {
        let [_, writer] = p.pipe2(O_NONBLOCK)?;
        p.write(writer, &[1; 4096]).map(drop)
    }),
    ("counters", |p, _| p.eventfd(0, 0).map(drop)),
    ("timers", |p, _| p.timerfd_create(CLOCK_MONOTONIC, 0).map(drop)),
    ("signalfds", |p, _| p.signalfd(-1, 1, 0).map(drop)),
    ("pidfds", |p, _| p.pidfd_open(p.getpid(), 0).map(drop)),
    ("watched counters", |p, _| {
        let (epoll, fd) = (p.epoll_create1(0)?, p.eventfd(0, 0)?);
        p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &EpollEvent { events: Events::IN.bits(), data: 7 })
    }),
];

/// Each kind of object is grown until it is refused: with an error that Linux has for it, within the
/// limit, and without harm to what there is or to another kernel. All memory comes back.
#[test]
fn what_grows_is_refused_at_the_limit() {
    let neighbour = Kernel::boot(Config::default()).unwrap();
    let other = neighbour.process().unwrap();
    for (name, grow) in GROWTHS {
        let (kernel, process) = limited(LIMIT);
        let refused = (0..1_000_000).find_map(|n| grow(&process, n).err());
        let memory = kernel.memory();
        let errno = refused.unwrap_or_else(|| panic!("{name}: never refused"));
        assert!(matches!(errno, Errno::NOMEM | Errno::NOSPC | Errno::NFILE), "{name}: {errno}");
        assert!(memory.slabs <= LIMIT && memory.slabs > LIMIT / 2, "{name}: {memory:?}");
        assert!(memory.refusals > 0, "{name}");
        // A shorter name or a descriptor of another kernel: the neighbour has no limit.
        grow(&other, 1_000_000).unwrap_or_else(|errno| panic!("{name}, beside: {errno}"));
        // What there is goes on working.
        assert_eq!(process.stat("/").map(|stat| stat.st_mode & S_IFMT), Ok(S_IFDIR));
        // Room is made by giving something up. To list the names takes a file, for which there may
        // be no slab.
        process.close_range(0, u32::MAX, 0).unwrap();
        kernel.set_memory_limit(None);
        let names: Vec<Vec<u8>> = entries(&process);
        for entry in names {
            let path = [b"/", &entry[..]].concat();
            process.unlink(&path[..]).or_else(|_| process.rmdir(&path[..])).unwrap();
        }
        kernel.set_memory_limit(Some(LIMIT));
        kernel.shrink();
        // Slabs of files wait for a grace period.
        rcu::global().unwrap().barrier();
        assert_eq!(kernel.memory().slabs, 0, "{name}");
        grow(&process, 0).unwrap_or_else(|errno| panic!("{name}, again: {errno}"));
    }
}

/// Returns the names in the root directory.
fn entries(process: &Process) -> Vec<Vec<u8>> {
    let fd = process.open("/", O_RDONLY | O_DIRECTORY, 0).unwrap();
    let mut names = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let n = process.getdents64(fd, &mut buffer).unwrap();
        if n == 0 {
            break;
        }
        names.extend(quietline::dirents(&buffer[..n]).map(|entry| entry.name.to_vec()));
    }
    process.close(fd).unwrap();
    names.retain(|name| name != b"." && name != b"..");
    names
}

/// Limits below a slab, at one, and without one.
#[test]
fn limits_at_their_edges() {
    for bytes in [0, 1, 4095] {
        let (kernel, process) = limited(bytes);
        assert!(process.eventfd(0, 0).is_err(), "{bytes}");
        assert_eq!(process.stat("/").map(|stat| stat.st_mode & S_IFMT), Ok(S_IFDIR));
        assert_eq!((kernel.memory().slabs, kernel.memory().limit), (0, Some(bytes)));
        // More is allowed while it runs, and less again.
        kernel.set_memory_limit(None);
        let fd = process.eventfd(0, 0).unwrap();
        let used = kernel.memory().slabs;
        kernel.set_memory_limit(Some(used));
        process.close(fd).unwrap();
        assert!(process.eventfd(0, 0).is_ok());
        assert_eq!(kernel.memory().slabs, used);
    }
    let kernel = Kernel::boot(Config::default()).unwrap();
    assert_eq!(kernel.memory().limit, None);
}
