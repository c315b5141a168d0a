//! What `/proc` and `/sys` say, and what may be said to them.

use quietline::abi::*;
use quietline::eventpoll::EPOLL_CTL_ADD;
use quietline::{Config, EpollEvent, Errno, Kernel, Process, dirents};
use quietline_platform::fault;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

fn kernel() -> Kernel {
    Kernel::boot(Config::default().owner(0, 0).proc(true)).expect("memory")
}

fn read(p: &Process, path: &str) -> Result<String, Errno> {
    let fd = p.open(path, O_RDONLY, 0)?;
    let mut text = Vec::new();
    let mut buffer = [0; 61];
    let done = loop {
        match p.read(fd, &mut buffer) {
            Ok(0) => break Ok(String::from_utf8(text).expect("text")),
            Ok(n) => text.extend_from_slice(&buffer[..n]),
            Err(errno) => break Err(errno),
        }
    };
    p.close(fd)?;
    done
}

fn write(p: &Process, path: &str, text: &str) -> Result<usize, Errno> {
    let fd = p.open(path, O_WRONLY | O_TRUNC, 0)?;
    let done = p.write(fd, text.as_bytes());
    p.close(fd)?;
    done
}

fn link(p: &Process, path: &str) -> Result<String, Errno> {
    let mut buffer = [0; 200];
    let n = p.readlink(path, &mut buffer)?;
    Ok(String::from_utf8(buffer[..n].to_vec()).expect("text"))
}

/// Names and types, as `getdents64` tells them, by a buffer of this size.
fn names(p: &Process, path: &str, size: usize) -> Result<Vec<(String, u8, u64)>, Errno> {
    let fd = p.open(path, O_RDONLY | O_DIRECTORY, 0)?;
    let (mut all, mut buffer) = (Vec::new(), vec![0; size]);
    let done = loop {
        match p.getdents64(fd, &mut buffer) {
            Ok(0) => break Ok(all),
            Ok(n) => all.extend(
                dirents(&buffer[..n])
                    .map(|e| (String::from_utf8(e.name.to_vec()).expect("text"), e.kind, e.ino)),
            ),
            Err(errno) => break Err(errno),
        }
    };
    p.close(fd)?;
    done
}

fn numbers(text: &str) -> Vec<i64> {
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn numbers_are_those_of_the_kernel() {
    quietline_testing::isolated!();
    let _alone = crate::support::alone();
    let k = kernel();
    let p = k.process().unwrap();
    let keep: Vec<_> = (0..7).map(|_| p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap()).collect();
    for path in ["file-nr", "dentry-state", "inode-nr", "inode-state", "file-max"] {
        // So that reading makes nothing new.
        read(&p, &format!("/proc/sys/fs/{path}")).unwrap();
    }
    let of = |path: &str| numbers(&read(&p, &format!("/proc/sys/fs/{path}")).unwrap());
    // The file that is being read is one.
    assert_eq!(of("file-nr"), [k.nr_files() + 1, 0, i64::MAX]);
    assert_eq!(k.nr_files(), 7);
    let state = of("dentry-state");
    assert_eq!((state.len(), state[0], state[2]), (6, k.nr_dentry(), 45));
    assert_eq!(of("inode-nr"), [k.nr_inodes(), 0]);
    assert_eq!(of("inode-state"), [k.nr_inodes(), 0, 0, 0, 0, 0, 0]);
    assert_eq!(of("nr_open"), [NR_OPEN as i64]);
    assert_eq!(of("protected_hardlinks"), [1]);
    for fd in keep {
        p.close(fd).unwrap();
    }
    assert_eq!(of("file-nr")[0], 1);
}

#[test]
fn slabinfo_has_every_cache() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    let fd = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let text = read(&p, "/proc/slabinfo").unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("slabinfo - version: 2.1"));
    assert!(lines.next().unwrap().starts_with("# name            <active_objs>"));
    let rows: BTreeMap<&str, Vec<usize>> = lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().expect("a name");
            (name, words.filter_map(|word| word.parse().ok()).collect())
        })
        .collect();
    let caches = k.slabinfo();
    assert_eq!(rows.len(), caches.len(), "names are different");
    for cache in &caches {
        let row = &rows[&*cache.name];
        assert_eq!(row.len(), 11, "{row:?}");
        assert_eq!(
            (row[2], row[3], row[4]),
            (cache.object_size, cache.objects_per_slab, cache.slab_size / 4096)
        );
    }
    let sockets =
        caches.iter().find(|cache| cache.name.contains("sock")).expect("sockets have a cache");
    assert_eq!(rows[&*sockets.name][0], 1);
    p.close(fd).unwrap();
}

#[test]
fn a_tunable_takes_what_linux_takes() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    let path = "/proc/sys/fs/file-max";
    for (text, written, value) in [
        ("100", 3, 100),
        (" 0x20\n", 6, 32),
        ("010\n", 4, 8),
        ("7 8", 2, 7),
        ("9223372036854775807", 19, i64::MAX as u64),
        ("123\n", 4, 123),
    ] {
        assert_eq!(write(&p, path, text), Ok(written), "{text:?}");
        assert_eq!(k.file_max(), value, "{text:?}");
        assert_eq!(read(&p, path), Ok(format!("{value}\n")));
    }
    for text in ["", "\n", "-1", "x", "5x", "9223372036854775808", "99999999999999999999999999"] {
        let done = write(&p, path, text);
        assert_eq!(done, if text.is_empty() { Ok(0) } else { Err(Errno::INVAL) }, "{text:?}");
        assert_eq!(k.file_max(), 123, "{text:?}");
    }
    // What is written behind a number is not another one; several buffers are one text.
    let fd = p.open(path, O_RDWR, 0).unwrap();
    assert_eq!(p.write(fd, b"50"), Ok(2));
    assert_eq!(p.write(fd, b"60"), Ok(2));
    assert_eq!(k.file_max(), 50);
    assert_eq!(p.pwritev(fd, &[b"6", b"1\n"], 0), Ok(3));
    assert_eq!(k.file_max(), 61);
    p.close(fd).unwrap();
    for (name, get) in
        [("max_queued_events", 16_384), ("max_user_instances", 128), ("max_user_watches", 1 << 20)]
    {
        let path = format!("/proc/sys/fs/inotify/{name}");
        assert_eq!(read(&p, &path), Ok(format!("{get}\n")));
        assert_eq!(write(&p, &path, "2147483648"), Err(Errno::INVAL));
        assert_eq!(write(&p, &path, "0"), Ok(1));
        assert_eq!(read(&p, &path), Ok("0\n".into()));
    }
    assert_eq!(p.inotify_init1(0), Err(Errno::MFILE), "no instance is allowed");
    write(&p, "/proc/sys/fs/inotify/max_user_instances", "1").unwrap();
    let fd = p.inotify_init1(0).unwrap();
    p.close(fd).unwrap();
    write(&p, path, "3").unwrap();
    assert_eq!(k.file_max(), 3);
}

#[test]
fn as_many_are_watched_as_the_tunable_says() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    let path = "/proc/sys/fs/epoll/max_user_watches";
    assert_eq!(read(&p, path), Ok("1048576\n".into()));
    assert_eq!(write(&p, path, "9223372036854775808"), Err(Errno::INVAL));
    assert_eq!(write(&p, path, "2"), Ok(1));
    let epoll = p.epoll_create1(0).unwrap();
    let fds = [(); 3].map(|()| p.eventfd(0, 0).unwrap());
    let add = |fd| p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &EpollEvent { events: 1, data: 0 });
    assert_eq!(fds.map(add), [Ok(()), Ok(()), Err(Errno::NOSPC)]);
    // Whoever has too many keeps them.
    assert_eq!(write(&p, path, "0"), Ok(1));
    p.close(fds[0]).unwrap();
    assert_eq!(add(fds[2]), Err(Errno::NOSPC));
    assert_eq!(write(&p, path, "2\n"), Ok(2));
    assert_eq!(add(fds[2]), Ok(()));
    for fd in [epoll, fds[1], fds[2]] {
        p.close(fd).unwrap();
    }
}

#[test]
fn modes_are_linuxs() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    for (path, mode) in [
        ("/proc", 0o40555),
        ("/proc/self", 0o120_777),
        ("/proc/mounts", 0o120_777),
        ("/proc/slabinfo", 0o100_400),
        ("/proc/filesystems", 0o100_444),
        ("/proc/sys", 0o40555),
        ("/proc/sys/fs/file-max", 0o100_644),
        ("/proc/sys/fs/file-nr", 0o100_444),
        ("/proc/1", 0o40555),
        ("/proc/1/fd", 0o40500),
        ("/proc/1/fdinfo", 0o40555),
        ("/proc/1/cwd", 0o120_777),
        ("/sys/kernel/slab", 0o40755),
        ("/sys/kernel/slab/dentry/object_size", 0o100_400),
        ("/sys/kernel/slab/dentry/min_partial", 0o100_600),
    ] {
        let stat = p.lstat(path).unwrap();
        assert_eq!((stat.st_mode, stat.st_uid, stat.st_gid), (mode, 0, 0), "{path}");
    }
    assert_eq!(p.statfs("/proc").unwrap().f_type, 0x9fa0);
    assert_eq!(p.statfs("/sys/kernel").unwrap().f_type, 0x6265_6572);
    for path in [
        "/proc/x",
        "/proc/01",
        "/proc/2",
        "/proc/sys/fs/x",
        "/proc/1/fd/0",
        "/proc/1/x",
        "/sys/kernel/slab/x",
    ] {
        assert_eq!(p.stat(path).map(drop), Err(Errno::NOENT), "{path}");
    }
    for path in ["/proc/slabinfo", "/proc/filesystems", "/proc/self/mounts", "/proc/self/status"] {
        assert_eq!(
            write(&p, path, "1"),
            Err(Errno::IO),
            "{path}: root may open it, but not write it"
        );
    }
    for path in ["/proc/sys/fs/file-nr", "/sys/kernel/slab/dentry/order"] {
        assert_eq!(write(&p, path, "1"), Err(Errno::ACCESS), "{path}: nor open it");
    }
    assert_eq!(p.unlink("/proc/sys/fs/file-nr"), Err(Errno::PERM));
    assert_eq!(p.rmdir("/proc/sys"), Err(Errno::PERM));
    assert_eq!(p.mkdir("/proc/new", 0o755), Err(Errno::PERM));
    assert_eq!(p.rename("/proc/sys", "/proc/sis"), Err(Errno::PERM));
    assert!(read(&p, "/proc/sys/fs/file-nr").is_ok(), "it is there still");
    assert_eq!(read(&p, "/proc/sys"), Err(Errno::ISDIR));
}

#[test]
fn others_may_look_but_not_change() {
    quietline_testing::isolated!();
    let k = kernel();
    let (root, p) = (k.process().unwrap(), k.process().unwrap());
    p.setresgid(1000, 1000, 1000).unwrap();
    p.setresuid(1000, 1000, 1000).unwrap();
    for path in ["/proc/sys/fs/file-max", "/proc/sys/fs/inotify/max_user_watches"] {
        assert!(read(&p, path).is_ok());
        assert_eq!(write(&p, path, "1"), Err(Errno::ACCESS), "{path}");
    }
    for path in ["/proc/slabinfo", "/sys/kernel/slab/dentry/objects", "/proc/1/fd"] {
        assert_eq!(p.open(path, O_RDONLY, 0), Err(Errno::ACCESS), "{path}");
    }
    let fd = root.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    assert_eq!(link(&p, &format!("/proc/1/fd/{fd}")), Err(Errno::ACCESS));
    assert!(names(&p, "/proc/2/fd", 200).is_ok(), "its own");
    // Whoever becomes somebody else takes his directory along.
    let stat = p.stat("/proc/self").unwrap();
    assert_eq!((stat.st_uid, stat.st_gid), (1000, 1000));
    assert_eq!(p.mount("none", "/", "tmpfs", 0), Err(Errno::PERM));
    assert_eq!(p.umount2("/proc", 0), Err(Errno::PERM));
    root.close(fd).unwrap();
}

#[test]
fn descriptors_are_links() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    assert_eq!(link(&p, "/proc/self"), Ok("1".into()));
    p.mkdir("/dir", 0o755).unwrap();
    let file = p.open("/dir/file", O_CREAT | O_RDWR, 0o644).unwrap();
    p.write(file, b"hello").unwrap();
    let socket = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let [read_end, write_end] = p.pipe2(O_CLOEXEC).unwrap();
    let event = p.eventfd(0, 0).unwrap();
    let reader = p.open("/dir/file", O_RDONLY, 0).unwrap();
    let at = |fd: i32| format!("/proc/self/fd/{fd}");
    for fd in [file, socket, read_end, write_end, event, reader] {
        assert_eq!(link(&p, &at(fd)), p.fd_name(fd), "{fd}");
        assert_eq!(p.lstat(at(fd)).unwrap().st_size, 64);
    }
    let mode = |fd: i32| p.lstat(at(fd)).unwrap().st_mode & 0o777;
    assert_eq!([file, read_end, write_end, reader].map(mode), [0o700, 0o500, 0o300, 0o500]);
    // They lead to what is open.
    for fd in [file, socket, read_end] {
        let (by_link, by_fd) = (p.stat(at(fd)).unwrap(), p.fstat(fd).unwrap());
        assert_eq!((by_link.st_mode, by_link.st_ino), (by_fd.st_mode, by_fd.st_ino), "{fd}");
    }
    let again = p.open(at(file), O_RDONLY, 0).unwrap();
    let mut buffer = [0; 10];
    assert_eq!(p.read(again, &mut buffer), Ok(5), "another file, that stands at the beginning");
    assert_eq!(&buffer[..5], b"hello");
    // Also when there is no path any more, and also to open it for what it was not opened for.
    p.unlink("/dir/file").unwrap();
    assert_eq!(link(&p, &at(file)), Ok("/dir/file (deleted)".into()));
    let writer = p.open(at(reader), O_WRONLY, 0).unwrap();
    assert_eq!(p.write(writer, b"HELL"), Ok(4));
    assert_eq!(p.pread(file, &mut buffer, 0), Ok(5));
    assert_eq!(&buffer[..5], b"HELLo");
    // A pipe is opened once more: the same pipe.
    let third = p.open(at(read_end), O_WRONLY, 0).unwrap();
    assert_eq!(p.fd_name(third), p.fd_name(read_end));
    assert_eq!(p.fcntl(third, F_GETFL, 0).map(|flags| flags & O_ACCMODE), Ok(O_WRONLY));
    assert_eq!(p.open(at(socket), O_RDWR, 0), Err(Errno::NXIO));
    assert_eq!(p.open(at(event), O_RDWR, 0), Err(Errno::NXIO));
    assert_eq!(p.open(at(event), O_RDONLY | O_NOFOLLOW, 0), Err(Errno::LOOP));
    let how = quietline::OpenHow { flags: O_RDONLY as u64, mode: 0, resolve: 2 };
    assert_eq!(p.openat2(AT_FDCWD, at(file), &how), Err(Errno::LOOP), "RESOLVE_NO_MAGICLINKS");
    // A directory: on from there.
    let dir = p.open("/dir", O_RDONLY | O_DIRECTORY, 0).unwrap();
    p.mkdir("/dir/sub", 0o755).unwrap();
    assert!(p.stat(format!("{}/sub", at(dir))).is_ok());
    p.chdir(at(dir)).unwrap();
    assert_eq!(link(&p, "/proc/self/cwd"), Ok("/dir".into()));
    assert_eq!(link(&p, "/proc/self/root"), Ok("/".into()));
    p.chdir("/proc/self/cwd/sub").unwrap();
    assert_eq!(p.getcwd().unwrap(), b"/dir/sub");
    // A descriptor that is another file now is another link.
    p.dup2(socket, file).unwrap();
    assert_eq!(link(&p, &at(file)), p.fd_name(socket));
    p.close(file).unwrap();
    assert_eq!(link(&p, &at(file)), Err(Errno::NOENT));
}

#[test]
fn fdinfo_says_how_a_file_is_open() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    let fd = p.open("/file", O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0o644).unwrap();
    p.write(fd, b"hello").unwrap();
    let text = read(&p, &format!("/proc/self/fdinfo/{fd}")).unwrap();
    let fields: BTreeMap<&str, &str> =
        text.lines().map(|line| line.split_once(":\t").expect("a field")).collect();
    assert_eq!(fields["pos"], "5");
    let flags = i32::from_str_radix(fields["flags"], 8).unwrap();
    assert_eq!(flags & (O_ACCMODE | O_APPEND | O_CLOEXEC), O_RDWR | O_APPEND | O_CLOEXEC);
    let ino = p.fstat(fd).unwrap().st_ino;
    assert_eq!(fields["ino"], ino.to_string());
    assert_eq!(fields["mnt_id"], p.statx(fd, "", AT_EMPTY_PATH, 0).unwrap().stx_mnt_id.to_string());
    let info = p.open(format!("/proc/self/fdinfo/{fd}"), O_RDONLY, 0).unwrap();
    p.close(fd).unwrap();
    assert_eq!(p.read(info, &mut [0; 10]), Err(Errno::NOENT));
    assert_eq!(p.open(format!("/proc/self/fdinfo/{fd}"), O_RDONLY, 0), Err(Errno::NOENT));
}

#[test]
fn a_text_is_of_one_moment() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    let fd = p.open("/proc/sys/fs/file-nr", O_RDONLY, 0).unwrap();
    let mut buffer = [0; 100];
    let n = p.read(fd, &mut buffer).unwrap();
    let before = buffer[..n].to_vec();
    assert_eq!(p.read(fd, &mut buffer), Ok(0));
    let more = p.eventfd(0, 0).unwrap();
    // By offsets: as it was read first.
    let at = |offset| {
        let mut one = [0; 1];
        assert_eq!(p.pread(fd, &mut one, offset), Ok(1));
        one[0]
    };
    let pieces: Vec<u8> = (1..n as i64).map(at).collect();
    assert_eq!(pieces, before[1..]);
    assert_eq!(p.pread(fd, &mut buffer, 1 << 40), Ok(0));
    // From the beginning: as it is.
    p.lseek(fd, 0, SEEK_SET).unwrap();
    let n = p.read(fd, &mut buffer).unwrap();
    assert_eq!(numbers(std::str::from_utf8(&buffer[..n]).unwrap())[0], 2);
    assert_ne!(buffer[..n], before);
    // Two that read have a text each.
    let other = p.open("/proc/sys/fs/file-nr", O_RDONLY, 0).unwrap();
    assert_eq!(p.pread(other, &mut buffer[..1], 0), Ok(1));
    assert_eq!(buffer[0], b'3');
    assert_eq!(p.pread(fd, &mut buffer, 1), Ok(n - 1));
    let mut big = vec![0; 1 << 17];
    assert_eq!(p.pread(other, &mut big, 0), Ok(n));
    for fd in [fd, other, more] {
        p.close(fd).unwrap();
    }
}

#[test]
fn processes_come_and_go() {
    quietline_testing::isolated!();
    let _alone = crate::support::alone();
    let k = kernel();
    let p = k.process().unwrap();
    let other = p.fork().unwrap();
    let fd = other.eventfd(0, 0).unwrap();
    let pids = |p: &Process| -> Vec<i32> {
        names(p, "/proc", 64).unwrap().iter().filter_map(|(name, ..)| name.parse().ok()).collect()
    };
    assert_eq!(pids(&p), [1, 2]);
    assert_eq!(link(&p, &format!("/proc/2/fd/{fd}")), Ok("anon_inode:[eventfd]".into()));
    assert!(read(&p, "/proc/2/status").unwrap().contains("Pid:\t2\nPPid:\t1\nUid:\t0\t0\t0\t0\n"));
    let status = p.open("/proc/2/status", O_RDONLY, 0).unwrap();
    let fds = p.open("/proc/2/fd", O_RDONLY, 0).unwrap();
    p.chdir("/proc/2").unwrap();
    let threads = thread::scope(|scope| {
        let by_others = scope.spawn(|| link(&other, "/proc/self"));
        by_others.join().unwrap()
    });
    assert_eq!(threads, Ok("2".into()), "whose process, not whose thread");
    drop(other);
    assert_eq!(pids(&p), [1]);
    for path in ["/proc/2", "/proc/2/fd", "fd/0", "cwd/x"] {
        assert_eq!(p.stat(path).map(drop), Err(Errno::NOENT), "{path}");
    }
    assert_eq!(p.read(status, &mut [0; 10]), Err(Errno::SRCH));
    assert_eq!(p.getdents64(fds, &mut [0; 100]), Err(Errno::NOENT));
    p.chdir("/").unwrap();
    p.close(status).unwrap();
    p.close(fds).unwrap();
}

#[test]
fn listing_goes_on_while_descriptors_come_and_go() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    // These stay.
    let kept: Vec<i32> = (0..300).map(|_| p.eventfd(0, 0).unwrap()).collect();
    let (kept, go): (Vec<i32>, Vec<i32>) = kept.into_iter().partition(|fd| fd % 3 == 0);
    for fd in go {
        p.close(fd).unwrap();
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = crate::support::StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let some: Vec<i32> = (0..50).map(|_| p.eventfd(0, 0).unwrap()).collect();
                    for fd in some {
                        p.close(fd).unwrap();
                    }
                }
            });
        }
        for _ in 0..200 {
            let listed = names(&p, "/proc/self/fd", 100).unwrap();
            let fds: Vec<i32> = listed.iter().filter_map(|(name, ..)| name.parse().ok()).collect();
            assert!(fds.is_sorted_by(|a, b| a < b), "each once");
            assert!(kept.iter().all(|fd| fds.binary_search(fd).is_ok()), "each that stayed");
            assert!(listed[2..].iter().all(|(_, kind, _)| *kind == DT_LNK));
        }
    });
}

#[test]
fn numbers_of_files_are_those_that_stat_tells() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    for dir in
        ["/proc", "/proc/sys/fs", "/proc/self", "/sys/kernel/slab", "/sys/kernel/slab/dentry"]
    {
        let listed = names(&p, dir, 4096).unwrap();
        assert!(listed.len() > 3, "{dir}");
        for (name, _, ino) in listed.iter().skip(2) {
            assert_eq!(p.lstat(format!("{dir}/{name}")).unwrap().st_ino, *ino, "{dir}/{name}");
        }
    }
}

#[test]
fn caches_are_tuned_by_files() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    let listed: Vec<String> = names(&p, "/sys/kernel/slab", 256)
        .unwrap()
        .into_iter()
        .skip(2)
        .map(|(name, ..)| name)
        .collect();
    assert_eq!(listed, k.slabinfo().map(|cache| cache.name.to_string()));
    let dentries = || *k.slabinfo().iter().find(|cache| cache.name == "dentry").unwrap();
    let at = |name: &str| format!("/sys/kernel/slab/dentry/{name}");
    let get = |name: &str| numbers(&read(&p, &at(name)).unwrap())[0] as usize;
    let cache = dentries();
    assert_eq!(
        (get("object_size"), get("slab_size"), get("objs_per_slab")),
        (cache.size, cache.object_size, cache.objects_per_slab)
    );
    assert_eq!(4096 << get("order"), cache.slab_size);
    assert!(get("objects") <= get("total_objects") && get("objects") > 0);
    assert!(get("partial") <= get("slabs"));
    for (name, value) in [("min_partial", 9), ("cpu_partial", 17)] {
        assert_eq!(write(&p, &at(name), &format!("{value}\n")), Ok(value.to_string().len() + 1));
        assert_eq!(get(name), value);
    }
    let now = dentries();
    assert_eq!((now.tunables.min_partial, now.tunables.cpu_partial), (9, 17));
    assert_eq!(
        now.tunables.sheaf_capacity, cache.tunables.sheaf_capacity,
        "nothing else has changed"
    );
    let other = k.slabinfo().iter().find(|cache| cache.name == "filp").copied().unwrap();
    assert_ne!(other.tunables.min_partial, 9, "no other cache has changed");
    for (name, text, errno) in [
        ("min_partial", "x", Errno::INVAL),
        ("min_partial", "-1", Errno::INVAL),
        ("min_partial", " 1", Errno::INVAL),
        ("min_partial", "0x1", Errno::INVAL),
        ("min_partial", "99999999999999999999", Errno::RANGE),
        ("cpu_partial", "4294967296", Errno::RANGE),
        ("shrink", "0", Errno::INVAL),
        ("validate", "1", Errno::INVAL),
        ("order", "1", Errno::ACCESS),
    ] {
        assert_eq!(write(&p, &at(name), text), Err(errno), "{name} {text:?}");
    }
    assert_eq!(write(&p, &at("min_partial"), ""), Ok(0));
    assert_eq!(dentries().tunables, now.tunables);
    // Dentries that were made and given back leave slabs that a shrink takes away: what waits for a grace period, which it
    // asks for, goes with the next one.
    let dirs: Vec<String> = (0..2000).map(|n| format!("/d{n}")).collect();
    for dir in &dirs {
        p.mkdir(dir, 0o755).unwrap();
    }
    let before = get("slabs");
    assert!(before * cache.objects_per_slab >= dirs.len());
    for dir in &dirs {
        p.rmdir(dir).unwrap();
    }
    write(&p, &at("min_partial"), "0").unwrap();
    assert_eq!(write(&p, &at("shrink"), "1\n"), Ok(2));
    crate::support::settle();
    assert_eq!(write(&p, &at("shrink"), "1\n"), Ok(2));
    assert!(get("slabs") < before / 2, "{before} before, {} after", get("slabs"));
    assert_eq!(read(&p, &at("shrink")), Ok(String::new()));
}

#[test]
fn mounts_are_listed_as_a_process_sees_them() {
    quietline_testing::isolated!();
    let k = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = k.process().unwrap();
    assert_eq!(p.stat("/proc").map(drop), Err(Errno::NOENT), "not unless it is asked for");
    p.mkdir("/p", 0o755).unwrap();
    p.mkdir("/a b", 0o755).unwrap();
    p.mount("proc", "/p", "proc", 0).unwrap();
    p.mount("none", "/a b", "tmpfs", 1 | 8).unwrap();
    let filesystems = read(&p, "/p/filesystems").unwrap();
    for fs in ["proc", "sysfs", "tmpfs"] {
        assert!(filesystems.contains(&format!("nodev\t{fs}\n")), "{filesystems}");
    }
    let all = "tmpfs / tmpfs rw,relatime,mode=755 0 0\nproc /p proc rw,relatime 0 0\n\
               none /a\\040b tmpfs ro,noexec,relatime 0 0\n";
    assert_eq!(read(&p, "/p/mounts"), Ok(all.into()));
    assert_eq!(p.mkdir("/a b/x", 0o755), Err(Errno::ROFS));
    p.mount("", "/a b", "", quietline::MS_REMOUNT | quietline::MS_BIND).unwrap();
    assert_eq!(p.mkdir("/a b/x", 0o755), Err(Errno::ROFS), "the file system is read-only");
    p.mount("", "/a b", "", quietline::MS_REMOUNT).unwrap();
    p.mkdir("/a b/x", 0o755).unwrap();
    p.mkdir("/c", 0o755).unwrap();
    p.mount("/a b", "/c", "", quietline::MS_BIND).unwrap();
    assert!(p.stat("/c/x").is_ok());
    assert!(read(&p, "/p/mounts").unwrap().ends_with("none /c tmpfs rw,relatime 0 0\n"));
    p.umount2("/c", 0).unwrap();
    assert_eq!(p.umount2("/c", 0), Err(Errno::INVAL));
    assert_eq!(p.mount("x", "/c", "ext4", 0), Err(Errno::NODEV));
    // Who has another root sees less.
    let jailed = p.fork().unwrap();
    p.mkdir("/a b/proc", 0o755).unwrap();
    p.mount("proc", "/a b/proc", "proc", 0).unwrap();
    jailed.chroot("/a b").unwrap();
    assert_eq!(
        read(&jailed, "/proc/mounts"),
        Ok("none / tmpfs rw,relatime 0 0\nproc /proc proc rw,relatime 0 0\n".into())
    );
    assert_eq!(link(&p, "/p/2/root"), Ok("/a b".into()));
    drop(jailed);
    // Busy while a file of it is open; then gone.
    let fd = p.open("/p/mounts", O_RDONLY, 0).unwrap();
    assert_eq!(p.umount2("/p", 0), Err(Errno::BUSY));
    p.close(fd).unwrap();
    p.umount2("/p", 0).unwrap();
    assert_eq!(p.stat("/p/self").map(drop), Err(Errno::NOENT));
}

#[test]
fn nothing_is_kept() {
    quietline_testing::isolated!();
    let _alone = crate::support::alone();
    let k = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = k.process().unwrap();
    p.mkdir("/p", 0o755).unwrap();
    let before = (k.nr_files(), k.nr_dentry(), k.nr_inodes());
    for _ in 0..20 {
        p.mount("proc", "/p", "proc", 0).unwrap();
        let other = p.fork().unwrap();
        let fd = other.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
        for _ in 0..20 {
            names(&p, "/p", 4096).unwrap();
            names(&p, "/p/2/fd", 4096).err();
            read(&p, "/p/sys/fs/file-nr").unwrap();
            read(&p, "/p/self/mounts").unwrap();
            let pid = other.getpid();
            p.stat(format!("/p/{pid}/fd/{fd}")).unwrap();
            link(&p, &format!("/p/{pid}/fd/{fd}")).unwrap();
        }
        drop(other);
        // What is cached is given back when memory is wanted: a directory when what was below it has gone, so once for each level.
        for _ in 0..4 {
            k.shrink();
        }
        assert!(k.nr_dentry() <= before.1 + 2, "{} dentries", k.nr_dentry());
        p.umount2("/p", 0).unwrap();
    }
    k.shrink();
    assert_eq!((k.nr_files(), k.nr_dentry(), k.nr_inodes()), before);
    drop(p);
    assert_eq!(k.nr_files(), 0);
}

#[test]
fn without_memory_nothing_is_half_done() {
    quietline_testing::isolated!();
    let _alone = crate::support::alone();
    let k = kernel();
    let p = k.process().unwrap();
    let fd = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let fds = format!("/proc/self/fd/{fd}");
    let jobs: [&dyn Fn() -> Result<(), Errno>; 6] = [
        &|| read(&p, "/proc/sys/fs/file-nr").map(drop),
        &|| names(&p, "/proc", 100).map(drop),
        &|| names(&p, "/proc/self/fd", 100).map(drop),
        &|| p.stat(&fds).map(drop),
        &|| link(&p, &fds).map(drop),
        &|| read(&p, "/proc/slabinfo").map(drop),
    ];
    for (which, job) in jobs.iter().enumerate() {
        let mut failed = 0;
        for nth in 1.. {
            k.shrink();
            fault::fail_nth(nth);
            let done = job();
            let armed = fault::armed();
            fault::fail_nth(0);
            match done {
                Ok(()) if armed => break,
                Ok(()) => {}
                Err(errno) => {
                    assert_eq!(errno, Errno::NOMEM, "job {which}, allocation {nth}");
                    failed += 1;
                }
            }
            assert!(nth < 10_000, "job {which} does not end");
        }
        assert!(failed > 0, "job {which} needs memory");
        assert_eq!(p.open_fds().unwrap(), [fd], "job {which} left a descriptor");
        assert_eq!(k.nr_files(), 1);
    }
    job_fork(&p, &k);
}

/// A fork that fails leaves no process behind.
fn job_fork(p: &Process, k: &Kernel) {
    for nth in 1.. {
        fault::fail_nth(nth);
        let done = p.fork();
        let armed = fault::armed();
        fault::fail_nth(0);
        let ok = done.is_ok();
        drop(done);
        let pids = names(p, "/proc", 4096)
            .unwrap()
            .iter()
            .filter(|(name, ..)| name.parse::<i32>().is_ok())
            .count();
        assert_eq!((pids, k.nr_files()), (1, 1), "allocation {nth}");
        if ok && armed {
            break;
        }
    }
}

#[test]
fn processes_end_while_others_look_at_them() {
    quietline_testing::isolated!();
    let k = kernel();
    let p = k.process().unwrap();
    let kept = p.open("/file", O_CREAT | O_RDWR, 0o644).unwrap();
    let (stop, seen) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let _stop = crate::support::StopOnDrop(&stop);
        let look = || {
            while !stop.load(Ordering::Relaxed) {
                for (pid, ..) in names(&p, "/proc", 300).unwrap() {
                    let dir = format!("/proc/{pid}");
                    let Ok(fds) = names(&p, &format!("{dir}/fd"), 100) else { continue };
                    for (fd, kind, _) in fds {
                        if kind != DT_LNK {
                            continue;
                        }
                        match (
                            link(&p, &format!("{dir}/fd/{fd}")),
                            p.stat(format!("{dir}/fd/{fd}")),
                        ) {
                            (Ok(_), _) => {
                                seen.fetch_add(1, Ordering::Relaxed);
                            }
                            (Err(errno), _) => assert_eq!(errno, Errno::NOENT),
                        }
                    }
                    let _ = p.stat(format!("{dir}/cwd/file"));
                }
            }
        };
        let lookers = [scope.spawn(look), scope.spawn(look)];
        // Until they have looked: at least at what stays.
        let mut rounds = 0;
        while rounds < 300 || seen.load(Ordering::Relaxed) < 300 {
            rounds += 1;
            assert!(rounds < 1_000_000, "nobody looks");
            let child = p.fork().unwrap();
            let fd = child.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
            child.dup2(kept, fd).unwrap();
            let grandchild = child.fork().unwrap();
            drop(child);
            let dir = format!("/{}", grandchild.getpid());
            grandchild.mkdir(&dir, 0o755).unwrap();
            grandchild.chdir(&dir).unwrap();
            grandchild.rmdir(&dir).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for looker in lookers {
            looker.join().unwrap();
        }
    });
    p.close(kept).unwrap();
    assert_eq!(k.nr_files(), 0);
}
