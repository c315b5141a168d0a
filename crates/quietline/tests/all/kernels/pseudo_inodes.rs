//! Owners, modes and file systems of sockets, pipes and anonymous descriptors. The expected answers
//! are those of Linux 6.18.

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};

fn root() -> Process {
    let config = Config::default().owner(0, 0).privileged(true).proc(true);
    Kernel::boot(config).unwrap().process().unwrap()
}

fn become_user(p: &Process, id: u32) {
    p.setgroups(&[]).unwrap();
    p.setresgid(id, id, id).unwrap();
    p.setresuid(id, id, id).unwrap();
    p.set_dumpable(true);
}

/// Mode, user and group.
fn attributes(p: &Process, fd: i32) -> [u32; 3] {
    let stat = p.fstat(fd).unwrap();
    [stat.st_mode, stat.st_uid, stat.st_gid]
}

/// Mode, user and group by the link in `/proc`.
fn attributes_by_path(p: &Process, fd: i32) -> [u32; 3] {
    let stat = p.stat(format!("/proc/self/fd/{fd}")).unwrap();
    [stat.st_mode, stat.st_uid, stat.st_gid]
}

/// Sockets and pipes, made in each of the ways that there are.
fn objects(p: &Process) -> Vec<i32> {
    let tcp = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    let pair = p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let pipe = p.pipe2(0).unwrap();
    let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.bind(listener, &(AF_UNIX as u16).to_ne_bytes()).unwrap();
    p.listen(listener, 1).unwrap();
    let client = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.connect(client, p.getsockname(listener).unwrap().bytes()).unwrap();
    let (accepted, _) = p.accept4(listener, 0).unwrap();
    vec![tcp, pair[0], pair[1], pipe[0], pipe[1], listener, client, accepted]
}

/// A socket or a pipe belongs to the user that made it, and only that user may change it.
#[test]
fn an_object_belongs_to_its_maker() {
    quietline_testing::isolated!();
    let p = root();
    let of_root = objects(&p);
    let ids = |fd: &i32| attributes(&p, *fd)[1..].to_vec();
    assert!(of_root.iter().all(|fd| ids(fd) == [0, 0]));
    become_user(&p, 1000);
    for fd in &of_root {
        assert_eq!(ids(fd), [0, 0], "{fd}");
        assert_eq!(p.fchmod(*fd, 0o666), Err(Errno::PERM), "{fd}");
        assert_eq!(p.fchown(*fd, 1000, 1000), Err(Errno::PERM), "{fd}");
        assert_eq!(ids(fd), [0, 0], "{fd}");
    }
    let write_own = p.faccessat2(of_root[3], "", W_OK, AT_EMPTY_PATH);
    assert_eq!(write_own, Err(Errno::ACCESS), "a pipe of root's");
    for fd in objects(&p) {
        assert_eq!(ids(&fd), [1000, 1000], "{fd}");
        assert_eq!(p.fchmod(fd, 0o640), Ok(()), "{fd}");
        assert_eq!(attributes(&p, fd)[0] & 0o777, 0o640, "{fd}");
    }
    // A child has its own credentials.
    let child = p.fork().unwrap();
    let [read, _] = child.pipe2(0).unwrap();
    assert_eq!(attributes(&child, read), [S_IFIFO | 0o600, 1000, 1000]);
}

/// The owner of a new object is the user and the group for files, not the effective ones.
#[test]
fn the_ids_for_files_own_an_object() {
    quietline_testing::isolated!();
    let p = root();
    assert_eq!((p.setfsuid(5), p.setfsgid(6)), (Ok(0), Ok(0)));
    for fd in objects(&p) {
        assert_eq!(attributes(&p, fd)[1..], [5, 6]);
    }
    p.setfsuid(0).unwrap();
    let [read, _] = p.pipe2(0).unwrap();
    assert_eq!(attributes(&p, read), [S_IFIFO | 0o600, 0, 6]);
}

/// A path to an object has the object's mode and owner, and asks them.
#[test]
fn the_path_of_an_object_has_its_mode() {
    quietline_testing::isolated!();
    let p = root();
    let event = p.eventfd(0, 0).unwrap();
    let socket = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    let [of_root, _] = p.pipe2(0).unwrap();
    let reopen = |fd: i32| {
        let file = p.open(format!("/proc/self/fd/{fd}"), O_RDONLY | O_NONBLOCK, 0);
        file.map(|fd| p.close(fd).unwrap())
    };
    assert_eq!([event, socket].map(reopen), [Err(Errno::NXIO); 2]);
    p.fchmod(of_root, 0).unwrap();
    assert_eq!(reopen(of_root), Ok(()), "the superuser");
    become_user(&p, 1000);
    let [pipe, _] = p.pipe2(0).unwrap();
    assert_eq!((reopen(pipe), p.fchmod(pipe, 0)), (Ok(()), Ok(())));
    assert_eq!(reopen(pipe), Err(Errno::ACCESS));
    assert_eq!(attributes_by_path(&p, pipe), [S_IFIFO, 1000, 1000]);
    assert_eq!(attributes_by_path(&p, of_root), [S_IFIFO, 0, 0]);
    assert_eq!(attributes_by_path(&p, socket), [S_IFSOCK | 0o777, 0, 0]);
    assert_eq!(attributes_by_path(&p, event), [0o600, 0, 0]);
    assert_eq!([event, of_root].map(reopen), [Err(Errno::ACCESS); 2]);
    assert_eq!(reopen(socket), Err(Errno::NXIO));
}

/// Sockets, pipes and anonymous descriptors are in three file systems, each with a device number
/// that no other one has.
#[test]
fn objects_have_devices() {
    let p = root();
    let socket = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let [pipe, _] = p.pipe2(0).unwrap();
    let anonymous = [
        p.eventfd(0, 0).unwrap(),
        p.epoll_create1(0).unwrap(),
        p.timerfd_create(CLOCK_MONOTONIC, 0).unwrap(),
        p.signalfd(-1, 0, 0).unwrap(),
        p.inotify_init1(0).unwrap(),
    ];
    p.mkdir("/d", 0o755).unwrap();
    p.mount("", "/d", "tmpfs", 0).unwrap();
    let trees = ["/", "/d", "/proc"].map(|path| p.open(path, O_RDONLY, 0).unwrap());
    let device = |fd: i32| {
        let dev = p.fstat(fd).unwrap().st_dev;
        assert_eq!(p.fstatfs(fd).unwrap().f_fsid, [dev as i32, (dev >> 32) as i32], "{fd}");
        assert_eq!(p.statx(fd, "", AT_EMPTY_PATH, 0).unwrap().stat.st_dev, dev, "{fd}");
        dev
    };
    let of_anonymous = anonymous.map(device);
    assert!(of_anonymous.iter().all(|dev| *dev == of_anonymous[0]), "{of_anonymous:?}");
    let mut all = vec![device(socket), device(pipe), of_anonymous[0]];
    all.extend(trees.map(device));
    assert!(!all.contains(&0), "{all:?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "{all:?}");
}
