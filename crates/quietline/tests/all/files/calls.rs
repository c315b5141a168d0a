//! The calls on open files of the tree: data, positions, directories, locks, attributes, watches.

use quietline::abi::*;
use quietline::inotify::*;
use quietline::locks::*;
use quietline::{Config, Errno, Kernel, MFD_CLOEXEC, Process, dirents};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

fn root() -> Process {
    Kernel::boot(Config::default().privileged(true)).unwrap().process().unwrap()
}

fn create(p: &Process, path: &str) -> i32 {
    p.open(path, O_CREAT | O_EXCL | O_RDWR, 0o644).unwrap()
}

#[test]
fn positions_holes_and_ends() {
    let p = root();
    let fd = create(&p, "f");
    assert_eq!(p.write(fd, b"abc"), Ok(3));
    assert_eq!(p.lseek(fd, 10_000, SEEK_SET), Ok(10_000));
    assert_eq!(p.writev(fd, &[b"de", b"", b"f"]), Ok(3));
    assert_eq!((p.lseek(fd, 0, SEEK_CUR), p.lseek(fd, -3, SEEK_END)), (Ok(10_003), Ok(10_000)));
    let (mut two, mut more) = ([0; 2], [0; 9]);
    assert_eq!(p.readv(fd, &mut [&mut two, &mut more]), Ok(3));
    assert_eq!((&two, more[0]), (b"de", b'f'));
    assert_eq!(p.lseek(fd, 3, SEEK_HOLE), Ok(4096));
    assert_eq!(p.lseek(fd, 4096, SEEK_DATA), Ok(8192));
    assert_eq!(p.lseek(fd, 10_003, SEEK_DATA), Err(Errno::NXIO));
    assert_eq!(p.fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), Ok(()));
    let mut byte = [9];
    assert_eq!((p.pread(fd, &mut byte, 0), byte), (Ok(1), [0]));
    assert_eq!(p.ftruncate(fd, 2), Ok(()));
    assert_eq!((p.fstat(fd).unwrap().st_size, p.fstat(fd).unwrap().st_blocks), (2, 0));
    assert_eq!(p.pwrite(fd, b"x", i64::MAX), Err(Errno::INVAL));
    assert_eq!(p.pread(fd, &mut byte, -1), Err(Errno::INVAL));
    let other = p.open("f", O_WRONLY | O_APPEND, 0).unwrap();
    assert_eq!((p.pwrite(other, b"yz", 0), p.read(other, &mut byte)), (Ok(2), Err(Errno::BADF)));
    assert_eq!(p.fstat(fd).unwrap().st_size, 4);
    let copy = create(&p, "g");
    let mut at = 0;
    assert_eq!(p.copy_file_range(fd, Some(&mut at), copy, None, 100, 0), Ok(4));
    assert_eq!((at, p.lseek(copy, 0, SEEK_CUR), p.fstat(copy).unwrap().st_size), (4, Ok(4), 4));
}

/// Appends by two threads are whole and none is lost.
#[test]
fn appends_come_one_after_the_other() {
    let p = root();
    p.close(create(&p, "log")).unwrap();
    std::thread::scope(|scope| {
        for n in 0..2u8 {
            let p = &p;
            scope.spawn(move || {
                let fd = p.open("log", O_WRONLY | O_APPEND, 0).unwrap();
                for _ in 0..2000 {
                    assert_eq!(p.write(fd, &[n; 24]), Ok(24));
                }
            });
        }
    });
    let fd = p.open("log", O_RDONLY, 0).unwrap();
    let mut all = vec![0; 2 * 2000 * 24];
    assert_eq!(p.pread(fd, &mut all, 0), Ok(all.len()));
    assert!(all.chunks(24).all(|record| record.iter().all(|byte| *byte == record[0])));
    assert_eq!(all.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 2000 * 24);
}

/// Who reads a directory in pieces sees every name that stays, once, while others come and go.
#[test]
fn directories_are_read_while_they_change() {
    let p = root();
    p.mkdir("d", 0o755).unwrap();
    for n in 0..300 {
        p.close(create(&p, &format!("d/stays{n}"))).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                let name = format!("d/goes{}", n % 50);
                p.close(create(&p, &name)).unwrap();
                p.rename(&name, "d/renamed").unwrap();
                p.unlink("d/renamed").unwrap();
                n += 1;
            }
        });
        for _ in 0..50 {
            let fd = p.open("d", O_RDONLY, 0).unwrap();
            let (mut seen, mut buffer) = (BTreeSet::new(), [0; 500]);
            loop {
                let n = p.getdents64(fd, &mut buffer).unwrap();
                if n == 0 {
                    break;
                }
                for entry in dirents(&buffer[..n]).filter(|entry| entry.name.starts_with(b"stays"))
                {
                    assert!(seen.insert(entry.name.to_vec()), "twice");
                }
            }
            assert_eq!(seen.len(), 300);
            p.close(fd).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A file that is read without a reference is never another one, however its descriptor is closed and opened meanwhile.
#[test]
fn reads_beside_closes() {
    let p = root();
    for name in ["a", "b"] {
        let fd = create(&p, name);
        p.write(fd, name.as_bytes()).unwrap();
        p.close(fd).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for name in ["a", "b"] {
                    let fd = p.open(name, O_RDONLY, 0).unwrap();
                    p.close(fd).unwrap();
                }
                let fd = p.eventfd(0, 0).unwrap();
                p.close(fd).unwrap();
            }
        });
        let mut read = 0;
        for _ in 0..300_000 {
            let mut byte = [0];
            match p.pread(0, &mut byte, 0) {
                Ok(n) => {
                    assert_eq!(n, 1);
                    assert!(byte == *b"a" || byte == *b"b");
                    read += 1;
                }
                Err(errno) => assert!([Errno::BADF, Errno::SPIPE].contains(&errno), "{errno}"),
            }
        }
        done.store(true, Ordering::Relaxed);
        println!("{read} of 300,000 found a file");
    });
}

#[test]
fn attributes_by_name() {
    let p = root();
    let fd = create(&p, "f");
    p.setxattr("f", "user.a", b"1", XATTR_CREATE).unwrap();
    p.fsetxattr(fd, "trusted.b", b"22", 0).unwrap();
    assert_eq!(p.setxattr("f", "user.a", b"1", XATTR_CREATE), Err(Errno::EXIST));
    assert_eq!(p.setxattr("f", "wrong.a", b"1", 0), Err(Errno::OPNOTSUPP));
    let mut buffer = [0; 64];
    assert_eq!(p.getxattr("f", "trusted.b", &mut buffer), Ok(2));
    assert_eq!(p.listxattr("f", &mut []), Ok(17));
    let somebody = p.fork().unwrap();
    somebody.setresuid(5, 5, 5).unwrap();
    assert_eq!(somebody.getxattr("f", "trusted.b", &mut buffer), Err(Errno::NODATA));
    assert_eq!(somebody.setxattr("f", "user.c", b"", 0), Err(Errno::ACCESS));
    assert_eq!(somebody.listxattr("f", &mut buffer), Ok(7));
    p.removexattr("f", "user.a").unwrap();
    assert_eq!(p.fremovexattr(fd, "user.a"), Err(Errno::NODATA));
}

#[test]
fn locks_go_with_descriptors() {
    let p = root();
    let (a, b) = (create(&p, "f"), p.open("f", O_RDWR, 0).unwrap());
    p.flock(a, LOCK_EX).unwrap();
    assert_eq!(p.flock(b, LOCK_SH | LOCK_NB), Err(Errno::WOULDBLOCK));
    p.close(a).unwrap();
    p.flock(b, LOCK_SH | LOCK_NB).unwrap();
    let other = p.fork().unwrap();
    let mut lock = Flock { l_type: F_WRLCK as _, l_whence: 0, l_start: 10, l_len: 5, l_pid: 0 };
    p.fcntl_lock(b, F_SETLK, &mut lock).unwrap();
    let mut asked = Flock { l_type: F_RDLCK as _, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    other.fcntl_lock(b, F_GETLK, &mut asked).unwrap();
    assert_eq!(
        (asked.l_type, asked.l_start, asked.l_len, asked.l_pid),
        (F_WRLCK as _, 10, 5, p.getpid())
    );
    assert_eq!(other.fcntl_lock(b, F_SETLK, &mut lock.clone()), Err(Errno::AGAIN));
    // Any descriptor of the file takes the process's locks with it.
    p.close(p.open("f", O_RDONLY, 0).unwrap()).unwrap();
    other.fcntl_lock(b, F_SETLK, &mut lock).unwrap();
    drop(other);
    p.fcntl_lock(b, F_SETLK, &mut lock).unwrap();
}

/// The events of an instance: watch, mask, cookie, name.
fn events(p: &Process, fd: i32) -> Vec<(i32, u32, u32, String)> {
    let mut buffer = [0; 4096];
    let n = match p.read(fd, &mut buffer) {
        Ok(n) => n,
        Err(Errno::AGAIN) => 0,
        Err(errno) => panic!("{errno}"),
    };
    let (mut rest, mut events) = (&buffer[..n], Vec::new());
    while !rest.is_empty() {
        let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
        let len = word(12) as usize;
        let name = String::from_utf8(
            rest[16..16 + len].iter().copied().take_while(|byte| *byte != 0).collect(),
        )
        .unwrap();
        events.push((word(0) as i32, word(4), word(8), name));
        rest = &rest[16 + len..];
    }
    events
}

#[test]
fn those_who_watch_are_told() {
    let p = root();
    p.mkdir("d", 0o755).unwrap();
    let watch = p.inotify_init1(IN_NONBLOCK).unwrap();
    let dir = p.inotify_add_watch(watch, "d", IN_ALL_EVENTS).unwrap();
    let fd = create(&p, "d/f");
    p.write(fd, b"x").unwrap();
    p.close(fd).unwrap();
    p.chmod("d/f", 0o600).unwrap();
    let masks =
        |events: &[(i32, u32, u32, String)]| events.iter().map(|event| event.1).collect::<Vec<_>>();
    let seen = events(&p, watch);
    assert_eq!(masks(&seen), [IN_CREATE, IN_OPEN, IN_MODIFY, IN_CLOSE_WRITE, IN_ATTRIB]);
    assert!(seen.iter().all(|event| event.0 == dir && event.3 == "f"));
    let file = p.inotify_add_watch(watch, "d/f", IN_DELETE_SELF | IN_MOVE_SELF).unwrap();
    p.rename("d/f", "d/g").unwrap();
    let moved = events(&p, watch);
    assert_eq!(masks(&moved), [IN_MOVED_FROM, IN_MOVED_TO, IN_MOVE_SELF]);
    assert!(moved[0].2 != 0 && moved[0].2 == moved[1].2, "one cookie for both");
    p.unlink("d/g").unwrap();
    let gone = events(&p, watch);
    assert!(
        masks(&gone).contains(&IN_DELETE) && masks(&gone).contains(&IN_DELETE_SELF),
        "{gone:?}"
    );
    assert!(gone.iter().any(|event| event.0 == file && event.1 == IN_IGNORED));
    p.inotify_rm_watch(watch, dir).unwrap();
    assert_eq!(masks(&events(&p, watch)), [IN_IGNORED]);
    p.mkdir("d/x", 0o755).unwrap();
    assert_eq!(events(&p, watch), []);
}

/// What an instance has to tell of a mask's events: their masks, each with the name in it.
fn told(p: &Process, watch: i32) -> Vec<(u32, String)> {
    events(p, watch).into_iter().map(|(_, mask, _, name)| (mask, name)).collect()
}

#[test]
fn an_open_that_fails_is_not_told_and_empties_nothing() {
    let p = Kernel::boot(Config::default().file_max(3)).unwrap().process().unwrap();
    let watch = p.inotify_init1(IN_NONBLOCK).unwrap();
    let f = create(&p, "f");
    p.write(f, b"abc").unwrap();
    p.inotify_add_watch(watch, "/", IN_ALL_EVENTS).unwrap();
    let last = p.eventfd(0, 0).unwrap();
    for flags in [O_RDONLY, O_RDWR, O_RDWR | O_TRUNC, O_RDONLY | O_TRUNC] {
        assert_eq!(p.open("f", flags, 0), Err(Errno::NFILE), "{flags:#o}");
        assert_eq!(told(&p, watch), [], "{flags:#o}");
    }
    assert_eq!(p.fstat(f).unwrap().st_size, 3);
    assert_eq!(p.open("new", O_CREAT | O_RDWR, 0o600), Err(Errno::NFILE));
    assert!(told(&p, watch).iter().all(|(mask, _)| *mask == IN_CREATE), "not opened");
    p.close(last).unwrap();
    let fd = p.open("f", O_RDONLY | O_TRUNC, 0).unwrap();
    p.close(fd).unwrap();
    let name = || "f".to_owned();
    assert_eq!(
        told(&p, watch),
        [(IN_OPEN, name()), (IN_MODIFY, name()), (IN_CLOSE_NOWRITE, name())]
    );
}

/// As Linux closes them: by `close_range` and at a process's end, also one that has locked bytes.
#[test]
fn the_last_descriptor_is_closed_first() {
    let p = root();
    let watch = p.inotify_init1(IN_NONBLOCK).unwrap();
    p.inotify_add_watch(watch, "/", IN_CLOSE_WRITE).unwrap();
    for end in ["close_range", "close_range with locks", "end", "end with locks"] {
        let child = p.fork().unwrap();
        let fds = ["a", "b", "c"].map(|name| child.open(name, O_CREAT | O_RDWR, 0o600).unwrap());
        // Of another bucket of the table.
        child.dup2(fds[1], 900).unwrap();
        child.close(fds[1]).unwrap();
        child.dup2(watch, 901).unwrap();
        if end.ends_with("with locks") {
            let mut lock =
                Flock { l_type: F_WRLCK as _, l_whence: 0, l_start: 0, l_len: 1, l_pid: 0 };
            child.fcntl_lock(fds[0], F_SETLK, &mut lock).unwrap();
        }
        if end.starts_with("close_range") {
            child.close_range(fds[0] as u32, 900, 0).unwrap();
            assert_eq!(child.open_fds().unwrap(), [watch, 901], "{end}");
        }
        drop(child);
        let order: String = told(&p, watch).into_iter().map(|(_, name)| name).collect();
        assert_eq!(order, "bca", "{end}");
    }
}

/// What goes through a named pipe is told to those who watch the pipe itself, however it goes.
#[test]
fn a_named_pipe_is_watched_by_itself() {
    let p = root();
    p.mknod("f", S_IFIFO | 0o600, 0).unwrap();
    let [watch, around] = [0; 2].map(|_| p.inotify_init1(IN_NONBLOCK).unwrap());
    p.inotify_add_watch(watch, "f", IN_ALL_EVENTS).unwrap();
    p.inotify_add_watch(around, "/", IN_ALL_EVENTS).unwrap();
    let f = p.open("f", O_RDWR | O_NONBLOCK, 0).unwrap();
    let [from, to] = p.pipe2(O_NONBLOCK).unwrap();
    p.write(to, b"abcdef").unwrap();
    assert_eq!(told(&p, watch), [(IN_OPEN, String::new())]);
    assert_eq!(told(&p, around), [(IN_OPEN, "f".to_owned())]);
    let mut two = [0; 2];
    type Call<'a> = &'a mut dyn FnMut() -> Result<usize, Errno>;
    let calls: [(&str, Call<'_>, usize, &[u32]); 13] = [
        ("write", &mut || p.write(f, b"hello"), 5, &[IN_MODIFY]),
        ("write nothing", &mut || p.write(f, b""), 0, &[]),
        ("writev nothing", &mut || p.writev(f, &[b""]), 0, &[]),
        ("read", &mut || p.read(f, &mut two), 2, &[IN_ACCESS]),
        ("read nothing", &mut || p.read(f, &mut []), 0, &[]),
        ("readv nothing", &mut || p.readv(f, &mut [&mut []]), 0, &[IN_ACCESS]),
        ("readv no buffers", &mut || p.readv(f, &mut []), 0, &[IN_ACCESS]),
        ("splice to it", &mut || p.splice(from, None, f, None, 2, 0), 2, &[IN_MODIFY]),
        ("splice from it", &mut || p.splice(f, None, to, None, 2, 0), 2, &[IN_ACCESS]),
        ("tee from it", &mut || p.tee(f, to, 2, 0), 2, &[IN_ACCESS]),
        ("tee to it", &mut || p.tee(from, f, 2, 0), 2, &[IN_MODIFY]),
        ("vmsplice to it", &mut || p.vmsplice(f, &[b"x"], 0), 1, &[IN_MODIFY]),
        ("vmsplice from it", &mut || p.vmsplice_from(f, &mut [&mut [0]], 0), 1, &[IN_ACCESS]),
    ];
    for (name, call, n, wanted) in calls {
        assert_eq!(call(), Ok(n), "{name}");
        let seen: Vec<u32> = told(&p, watch).into_iter().map(|(mask, _)| mask).collect();
        assert_eq!((seen.as_slice(), told(&p, around)), (wanted, vec![]), "{name}");
    }
    p.close(f).unwrap();
    assert_eq!(told(&p, around), [(IN_CLOSE_WRITE, "f".to_owned())]);
}

#[test]
fn files_that_no_path_leads_to() {
    let p = root();
    let fd = p.memfd_create("m", MFD_CLOEXEC).unwrap();
    assert_eq!(p.write(fd, &[1; 5000]), Ok(5000));
    let stat = p.fstat(fd).unwrap();
    assert_eq!((stat.st_size, stat.st_nlink, stat.st_blocks), (5000, 0, 16));
    p.close(fd).unwrap();
    assert_eq!(p.kernel().nr_inodes(), 0);
}
