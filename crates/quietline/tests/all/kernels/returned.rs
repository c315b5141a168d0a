//! Resources that `close` returns before it returns: limits, counts, ports and names. A read-side
//! critical section stays open meanwhile, so no grace period ends and no memory is freed.

use quietline::abi::*;
use quietline::inotify::IN_CREATE;
use quietline::{Config, EpollEvent, Errno, Kernel, Process, SendMsg};
use quietline_sync::rcu;

/// Rounds of each loop: more than the limit that the loop meets.
const ROUNDS: usize = 300;

/// A kernel's only process. User 1000, which every limit binds, owns the tree.
fn process(config: Config) -> Process {
    Kernel::boot(config.proc(true)).unwrap().process().unwrap()
}

/// Runs `round` inside a read-side critical section of the kernels' RCU domain.
fn rounds(p: &Process, round: impl Fn(&Process)) {
    let domain = rcu::global().unwrap();
    let section = domain.read();
    (0..ROUNDS).for_each(|_| round(p));
    drop(section);
}

/// Calls that look at a file without a reference of its own: they make its memory wait for a grace
/// period.
fn look(p: &Process, fd: i32) {
    let _ = p.read(fd, &mut [0; 8]);
    let _ = p.fstat(fd);
    let mut poll = [quietline::PollFd { fd, events: 1, revents: 0 }];
    p.poll(&mut poll, 0).unwrap();
}

#[test]
fn inotify_instances_and_watches() {
    quietline_testing::isolated!();
    let p = process(Config::default());
    p.mkdir("/d", 0o755).unwrap();
    rounds(&p, |p| {
        let fd = p.inotify_init1(O_NONBLOCK).unwrap();
        p.inotify_add_watch(fd, "/d", IN_CREATE).unwrap();
        p.mkdir("/d/e", 0o755).unwrap();
        look(p, fd);
        p.close(fd).unwrap();
        p.rmdir("/d/e").unwrap();
    });
    // A duplicate keeps the instance.
    let fd = p.inotify_init1(O_NONBLOCK).unwrap();
    p.inotify_add_watch(fd, "/d", IN_CREATE).unwrap();
    let other = p.dup(fd).unwrap();
    p.close(fd).unwrap();
    p.mkdir("/d/e", 0o755).unwrap();
    assert_eq!(p.read(other, &mut [0; 64]), Ok(32));
}

#[test]
fn inotify_watches_of_a_limit() {
    quietline_testing::isolated!();
    let root = process(Config::default().privileged(true));
    let limit = root.open("/proc/sys/fs/inotify/max_user_watches", O_WRONLY, 0).unwrap();
    root.write(limit, b"2").unwrap();
    root.mkdir("/d", 0o755).unwrap();
    rounds(&root, |p| {
        let fd = p.inotify_init1(O_NONBLOCK).unwrap();
        p.inotify_add_watch(fd, "/d", IN_CREATE).unwrap();
        p.inotify_add_watch(fd, "/", IN_CREATE).unwrap();
        assert_eq!(p.inotify_add_watch(fd, "/proc", IN_CREATE), Err(Errno::NOSPC));
        look(p, fd);
        p.close(fd).unwrap();
    });
}

#[test]
fn epoll_watches() {
    quietline_testing::isolated!();
    let p = process(Config::default().privileged(true));
    let limit = p.open("/proc/sys/fs/epoll/max_user_watches", O_WRONLY, 0).unwrap();
    p.write(limit, b"1").unwrap();
    let kept = p.epoll_create1(0).unwrap();
    let event = EpollEvent { events: 1, data: 0 };
    rounds(&p, |p| {
        // The epoll ends first.
        let [epoll, fd] = [p.epoll_create1(0).unwrap(), p.eventfd(1, 0).unwrap()];
        p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event).unwrap();
        assert_eq!(p.epoll_wait(epoll, &mut [EpollEvent::default()], 0), Ok(1));
        look(p, epoll);
        p.close(epoll).unwrap();
        // The watched file ends first.
        p.epoll_ctl(kept, EPOLL_CTL_ADD, fd, &event).unwrap();
        assert_eq!(p.epoll_wait(kept, &mut [EpollEvent::default()], 0), Ok(1));
        look(p, fd);
        p.close(fd).unwrap();
    });
}

#[test]
fn open_files() {
    quietline_testing::isolated!();
    let p = process(Config::default().file_max(3));
    p.mkdir("/d", 0o755).unwrap();
    rounds(&p, |p| {
        for make in [
            |p: &Process| p.eventfd(1, 0),
            |p: &Process| p.timerfd_create(libc::CLOCK_MONOTONIC, TFD_NONBLOCK),
            |p: &Process| p.signalfd(-1, 0, O_NONBLOCK),
            |p: &Process| p.epoll_create1(0),
            |p: &Process| p.inotify_init1(O_NONBLOCK),
            |p: &Process| p.open("/d", O_RDONLY, 0),
            |p: &Process| p.memfd_create("m", 0),
            |p: &Process| p.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0),
        ] {
            let all = [make(p).unwrap(), make(p).unwrap(), make(p).unwrap()];
            assert_eq!(make(p), Err(Errno::NFILE));
            all.into_iter().for_each(|fd| look(p, fd));
            all.into_iter().for_each(|fd| p.close(fd).unwrap());
        }
        let pipe = p.pipe2(O_NONBLOCK).unwrap();
        pipe.into_iter().for_each(|fd| look(p, fd));
        pipe.into_iter().for_each(|fd| p.close(fd).unwrap());
    });
}

fn in_name(port: u16) -> Vec<u8> {
    let mut name = (AF_INET as u16).to_ne_bytes().to_vec();
    name.extend(port.to_be_bytes());
    name.extend([127, 0, 0, 1]);
    name.resize(16, 0);
    name
}

#[test]
fn ports_and_names() {
    quietline_testing::isolated!();
    let p = process(Config::default());
    rounds(&p, |p| {
        for ty in [SOCK_STREAM, SOCK_DGRAM] {
            let fd = p.socket(AF_INET, ty | SOCK_NONBLOCK, 0).unwrap();
            p.bind(fd, &in_name(2000)).unwrap();
            if ty == SOCK_STREAM {
                p.listen(fd, 1).unwrap();
            }
            look(p, fd);
            p.close(fd).unwrap();
            let fd = p.socket(AF_UNIX, ty | SOCK_NONBLOCK, 0).unwrap();
            p.bind(fd, &[&(AF_UNIX as u16).to_ne_bytes()[..], b"\0name"].concat()).unwrap();
            look(p, fd);
            p.close(fd).unwrap();
        }
    });
}

/// An `SCM_RIGHTS` control message.
fn rights(fd: i32) -> Vec<u8> {
    let mut bytes = 20u64.to_ne_bytes().to_vec();
    bytes.extend(SOL_SOCKET.to_ne_bytes());
    bytes.extend(libc::SCM_RIGHTS.to_ne_bytes());
    bytes.extend(fd.to_ne_bytes());
    bytes.resize(24, 0);
    bytes
}

#[test]
fn files_in_flight() {
    quietline_testing::isolated!();
    // A process may have as many files in flight as descriptors.
    let p = process(Config::default().nofile(8));
    rounds(&p, |p| {
        for ty in [SOCK_STREAM, SOCK_DGRAM] {
            let [a, b] = p.socketpair(AF_UNIX, ty | SOCK_NONBLOCK, 0).unwrap();
            let fd = p.eventfd(0, 0).unwrap();
            for _ in 0..3 {
                let control = rights(fd);
                let message = SendMsg { buffers: &[b"f"], control: &control, ..SendMsg::default() };
                assert_eq!(p.sendmsg(a, &message, 0), Ok(1));
            }
            let mut poll = [quietline::PollFd { fd: b, events: 1, revents: 0 }];
            p.poll(&mut poll, 0).unwrap();
            [fd, a, b].into_iter().for_each(|fd| p.close(fd).unwrap());
        }
    });
    assert_eq!(p.kernel().nr_files(), 0);
}

#[test]
fn room_of_the_filesystem() {
    quietline_testing::isolated!();
    let config = Config::default().fs_size(4 << 12).fs_inodes(4);
    let p = Kernel::boot(config).unwrap().process().unwrap();
    rounds(&p, |p| {
        let fd = p.open("/f", O_RDWR | O_CREAT | O_EXCL, 0o644).unwrap();
        assert_eq!(p.write(fd, &[1; 3 << 12]), Ok(3 << 12));
        p.fsetxattr(fd, "user.a", &[1; 900], 0).unwrap();
        look(p, fd);
        p.unlink("/f").unwrap();
        p.close(fd).unwrap();
        let fd = p.memfd_create("m", 0).unwrap();
        assert_eq!(p.write(fd, &[1; 3 << 12]), Ok(3 << 12));
        look(p, fd);
        p.close(fd).unwrap();
        p.mkdir("/d", 0o755).unwrap();
        p.symlink("/somewhere/far/away", "/d/l").unwrap();
        p.unlink("/d/l").unwrap();
        p.rmdir("/d").unwrap();
    });
}
