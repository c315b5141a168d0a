//! `/proc` as seen by programs that watch: the watches of an inotify instance, and changes of the
//! mounts.

use quietline::abi::*;
use quietline::eventpoll::{EPOLL_CTL_ADD, EPOLLERR, EPOLLIN, EPOLLPRI};
use quietline::inotify::{IN_ACCESS, IN_CREATE, IN_MODIFY, IN_ONESHOT};
use quietline::{Config, EpollEvent, Errno, Kernel, Process};

fn process() -> Process {
    let kernel = Kernel::boot(Config::default().privileged(true).proc(true)).unwrap();
    kernel.process().unwrap()
}

fn text(p: &Process, path: &str) -> String {
    let fd = p.open(path, O_RDONLY, 0).unwrap();
    let mut bytes = [0; 4096];
    let n = p.read(fd, &mut bytes).unwrap();
    p.close(fd).unwrap();
    String::from_utf8(bytes[..n].to_vec()).unwrap()
}

#[test]
fn fdinfo_has_a_line_for_each_watch() {
    let p = process();
    p.mkdir("/d", 0o755).unwrap();
    p.mkdir("/e", 0o755).unwrap();
    let fd = p.inotify_init1(O_NONBLOCK).unwrap();
    let path = format!("/proc/self/fdinfo/{fd}");
    assert_eq!(text(&p, &path).lines().count(), 4, "no watches");
    let watched = [("/d", IN_CREATE), ("/proc", IN_ACCESS | IN_ONESHOT), ("/e", IN_MODIFY)];
    for (path, mask) in watched {
        p.inotify_add_watch(fd, path, mask).unwrap();
    }
    let told = text(&p, &path);
    let expected: Vec<String> = [1, 2, 3]
        .into_iter()
        .zip(watched)
        .map(|(wd, (path, mask))| {
            let stat = p.stat(path).unwrap();
            format!(
                "inotify wd:{wd:x} ino:{:x} sdev:{:x} mask:{mask:x} ignored_mask:0 ",
                stat.st_ino, stat.st_dev
            )
        })
        .rev()
        .collect();
    assert_eq!(told.lines().skip(4).collect::<Vec<_>>(), expected, "the latest first, as on Linux");
    p.inotify_rm_watch(fd, 2).unwrap();
    assert_eq!(text(&p, &path).lines().count(), 6);
}

#[test]
fn fdinfo_says_where_an_object_is() {
    let p = process();
    let [pipe, _] = p.pipe2(0).unwrap();
    let socket = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let anonymous = [
        p.eventfd(0, 0).unwrap(),
        p.epoll_create1(0).unwrap(),
        p.timerfd_create(CLOCK_MONOTONIC, 0).unwrap(),
        p.signalfd(-1, 0, 0).unwrap(),
        p.inotify_init1(0).unwrap(),
    ];
    let of_tree = p.open("/", O_RDONLY, 0).unwrap();
    let told = |fd: i32| {
        let text = text(&p, &format!("/proc/self/fdinfo/{fd}"));
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.expect("a field").trim().parse::<u64>().unwrap()
        };
        let ino = field("ino:");
        assert_eq!(ino, p.fstat(fd).unwrap().st_ino);
        assert_ne!(ino, 0);
        (field("mnt_id:"), ino)
    };
    let (pipe, socket, tree) = (told(pipe).0, told(socket).0, told(of_tree).0);
    let all = anonymous.map(told);
    assert!(all.iter().all(|found| *found == all[0]), "one inode for all: {all:?}");
    let mounts = [pipe, socket, all[0].0, tree];
    for (n, mount) in mounts.iter().enumerate() {
        assert!(*mount != 0 && !mounts[..n].contains(mount), "{mounts:?}");
    }
}

#[test]
fn changes_of_the_mounts_are_events() {
    let p = process();
    p.mkdir("/d", 0o755).unwrap();
    p.mkdir("/e", 0o755).unwrap();
    let epoll = p.epoll_create1(0).unwrap();
    let mounts = p.open("/proc/self/mounts", O_RDONLY, 0).unwrap();
    let wanted = EpollEvent { events: EPOLLPRI | EPOLLERR, data: 7 };
    p.epoll_ctl(epoll, EPOLL_CTL_ADD, mounts, &wanted).unwrap();
    type Change = fn(&Process) -> Result<(), Errno>;
    let changes: [(&str, Change); 6] = [
        ("mount", |p| p.mount("", "/d", "tmpfs", 0)),
        ("move", |p| p.mount("/d", "/e", "", quietline::MS_MOVE)),
        ("bind", |p| p.mount("/e", "/d", "", quietline::MS_BIND)),
        ("remount", |p| p.mount("", "/d", "", quietline::MS_REMOUNT | quietline::MS_BIND)),
        ("umount", |p| p.umount2("/d", 0)),
        ("detach", |p| p.umount2("/e", 2)),
    ];
    let mut events = [EpollEvent::default(); 2];
    assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(0));
    for (name, change) in changes {
        change(&p).unwrap();
        assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(1), "{name}");
        assert_eq!(events[0], EpollEvent { events: EPOLLPRI | EPOLLERR, data: 7 }, "{name}");
        assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(0), "{name}: told once");
    }
    assert_eq!(p.mount("", "/missing", "tmpfs", 0), Err(Errno::NOENT));
    assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(0));
    // Each open file is told for itself.
    let other = p.open("/proc/self/mounts", O_RDONLY, 0).unwrap();
    let poll = |fd| {
        let mut poll = [quietline::PollFd { fd, events: !0, revents: 0 }];
        p.poll(&mut poll, 0).unwrap();
        poll[0].revents
    };
    assert_eq!(poll(other), 0x41);
    p.mount("", "/d", "tmpfs", 0).unwrap();
    assert_eq!(poll(other), 0x4b);
    assert_eq!((poll(other), poll(mounts)), (0x41, 0x4b));
    // A sleeper is woken.
    std::thread::scope(|scope| {
        let sleeper = crate::support::spawn_asleep(scope, || {
            let mut events = [EpollEvent::default(); 1];
            p.epoll_wait(epoll, &mut events, 60_000)
        });
        p.umount2("/d", 0).unwrap();
        assert_eq!(sleeper.join().unwrap(), Ok(1));
    });
}

/// The first `poll` of an open file reports the changes since its `open`, as on the host: a read in
/// between does not hide them.
#[test]
fn changes_since_the_open_are_events() {
    let p = process();
    p.mkdir("/d", 0o755).unwrap();
    let poll = |fd| {
        let mut poll = [quietline::PollFd { fd, events: !0, revents: 0 }];
        p.poll(&mut poll, 0).unwrap();
        poll[0].revents
    };
    let open = || p.open("/proc/self/mounts", O_RDONLY, 0).unwrap();
    let read = |fd| assert!(p.read(fd, &mut [0; 4096]).unwrap() > 0);
    let [polled, read_before, read_after] = [(); 3].map(|()| open());
    read(read_before);
    p.mount("", "/d", "tmpfs", 0).unwrap();
    read(read_after);
    for (name, fd) in [("polled", polled), ("before", read_before), ("after", read_after)] {
        assert_eq!((poll(fd), poll(fd)), (0x4b, 0x41), "{name}");
    }
    assert_eq!(poll(open()), 0x41, "opened after the change");
    // Duplicates are one open file.
    p.umount2("/d", 0).unwrap();
    let dup = p.dup(polled).unwrap();
    assert_eq!((poll(dup), poll(polled)), (0x4b, 0x41));
    p.close(polled).unwrap();
    assert_eq!(poll(dup), 0x41);
}

/// Whether epoll takes a file of `/proc` is as on the host.
#[test]
fn files_that_can_be_polled() {
    let p = process();
    let epoll = p.epoll_create1(0).unwrap();
    let wanted = EpollEvent { events: EPOLLIN, data: 0 };
    for (path, taken) in [
        ("/proc/self/mounts", true),
        ("/proc/mounts", true),
        ("/proc/filesystems", true),
        ("/proc/slabinfo", true),
        ("/proc/sys/fs/file-max", true),
        ("/proc/self/status", false),
        ("/proc/self/fdinfo/0", false),
        ("/proc/self", false),
        ("/", false),
    ] {
        let fd = p.open(path, O_RDONLY, 0).unwrap();
        let added = p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted);
        assert_eq!(added, if taken { Ok(()) } else { Err(Errno::PERM) }, "{path}");
        p.close(fd).unwrap();
    }
    let fd = p.open("/proc/self/mounts", O_PATH, 0).unwrap();
    assert_eq!(p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted), Err(Errno::BADF));
}

/// The offset of a watched text is not the list of its watches. (It was: the next use of the list
/// followed the offset as a pointer.)
#[test]
fn a_watched_text_has_an_offset() {
    quietline_testing::isolated!();
    let p = process();
    let epoll = p.epoll_create1(0).unwrap();
    let other = p.epoll_create1(0).unwrap();
    let event = EpollEvent { events: EPOLLIN, data: 1 };
    for offset in [0, 1, 0x2685, i64::MAX] {
        for first in [true, false] {
            let fd = p.open("/proc/self/mounts", O_RDONLY, 0).unwrap();
            let move_it = || assert_eq!(p.lseek(fd, offset, 0), Ok(offset));
            if first {
                move_it();
            }
            p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event).unwrap();
            if !first {
                move_it();
            }
            assert_eq!(p.lseek(fd, 0, 1), Ok(offset), "the watch does not move it");
            p.epoll_ctl(other, EPOLL_CTL_ADD, fd, &event).unwrap();
            let mut events = [EpollEvent::default(); 4];
            assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(1));
            let copy = p.dup(fd).unwrap();
            p.close(fd).unwrap();
            assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(1));
            p.close(copy).unwrap();
            assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(0), "its end ends its watches");
        }
    }
}

/// A write beyond the largest offset is refused, as the host refuses it for files of its `/proc`.
/// (It succeeded and moved the offset past the largest one.)
#[test]
fn a_text_ends_at_the_largest_offset() {
    let p = process();
    let fd = p.open("/proc/sys/fs/pipe-max-size", O_RDWR, 0).unwrap();
    for (offset, n) in [(i64::MAX, 1), (i64::MAX - 1, 6)] {
        assert_eq!(p.lseek(fd, offset, 0), Ok(offset));
        assert_eq!(p.write(fd, &b"65536\n"[..n]), Err(Errno::INVAL), "{n} bytes at {offset}");
        assert_eq!(p.writev(fd, &[&b"65536\n"[..n]]), Err(Errno::INVAL), "{n} bytes at {offset}");
        assert_eq!(p.pwrite(fd, &b"65536\n"[..n], offset), Err(Errno::INVAL));
        assert_eq!(p.lseek(fd, 0, 1), Ok(offset));
    }
}
