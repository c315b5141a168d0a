//! Names and attributes of embedders' files that change: as on tmpfs, and beside other threads.

use super::memory_fs::{MemoryFs, ROOT};
use crate::support::{Random, alone};
use quietline::abi::*;
use quietline::inotify::{IN_ALL_EVENTS, IN_NONBLOCK};
use quietline::{
    Caller, Changes, Config, Entry, Errno, FileOps, FileSystem, InodeOps, Kernel, MS_BIND,
    MS_REMOUNT, NewFile, Process, dirents,
};
use quietline_platform::fault;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, Weak};
use std::time::Duration;

/// Mounts a file system in memory on `/m`, and a tmpfs on `/t`, both with all permissions.
fn mounted(valid: Option<Duration>) -> (Arc<Process>, Arc<MemoryFs>) {
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = Arc::new(kernel.process().unwrap());
    let fs = MemoryFs::new(valid);
    for dir in ["/m", "/t"] {
        p.mkdir(dir, 0o755).unwrap();
    }
    p.mount_fs("/m", fs.clone(), 0).unwrap();
    p.mount("none", "/t", "tmpfs", 0).unwrap();
    p.chmod("/t", 0o777).unwrap();
    (p, fs)
}

/// The attributes that do not depend on the file system.
fn described(stat: Result<Stat, Errno>) -> String {
    match stat {
        Err(errno) => format!("{errno:?}"),
        Ok(s) => {
            let size = if s.st_mode & S_IFMT == S_IFDIR { 0 } else { s.st_size };
            format!("{:o} {} {}:{} {size}", s.st_mode, s.st_nlink, s.st_uid, s.st_gid)
        }
    }
}

/// The events of an inotify: without cookies.
fn events(p: &Process, inotify: i32) -> Vec<(u32, String)> {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(n) = p.read(inotify, &mut buffer) {
        let mut left = &buffer[..n];
        while !left.is_empty() {
            let word = |at| u32::from_ne_bytes(left[at..at + 4].try_into().unwrap());
            let (mask, len) = (word(4), word(12) as usize);
            let name = String::from_utf8(left[16..16 + len].to_vec()).unwrap();
            seen.push((mask, name.trim_end_matches('\0').into()));
            left = &left[16 + len..];
        }
    }
    seen
}

/// The calls of a test of one tree: the processes that make them, and the open files.
struct Tree<'a> {
    processes: [&'a Process; 2],
    root: &'a str,
    links: bool,
    shrinks: bool,
    /// Open files, each with its process.
    open: Vec<(usize, i32)>,
}

impl Tree<'_> {
    fn path(&self, random: &mut Random) -> String {
        let mut path = self.root.to_string();
        for _ in 0..[1, 1, 1, 2, 2, 3][random.below(6)] {
            const NAMES: [&str; 5] =
                ["a", "b", "c", "d", "a_name_that_is_not_in_the_dentry_itself"];
            path.push('/');
            path += if random.below(24) == 0 { "." } else { NAMES[random.below(5)] };
        }
        if random.below(20) == 0 {
            path.push('/');
        }
        path
    }

    /// Makes a call. Returns its result.
    fn call(&mut self, random: &mut Random) -> String {
        let who = random.below(3) / 2;
        let p = self.processes[who];
        let (one, two) = (self.path(random), self.path(random));
        let mode = [0o777, 0o1777, 0o2775, 0o755, 0o600, 0o4755, 0o2755, 0][random.below(8)];
        let id = [0, 1000, u32::MAX][random.below(3)];
        let times = [5, 9].map(|tv_sec| Timespec { tv_sec, tv_nsec: 7 });
        let done = |done: Result<(), Errno>| format!("{done:?}");
        let call = random.below(26);
        let said = match call {
            0..=2 => done(p.mkdir(&one, mode)),
            3 => done(p.rmdir(&one)),
            4 | 5 => done(p.unlink(&one)),
            6 | 7 => done(p.rename(&one, &two)),
            8 => {
                let flags = [RENAME_EXCHANGE, RENAME_NOREPLACE][random.below(2)];
                done(p.renameat2(AT_FDCWD, &one, AT_FDCWD, &two, flags))
            }
            9 if self.links => done(p.link(&one, &two)),
            10 => done(p.symlink(["a", "../b", "c/d"][random.below(3)], &one)),
            11 => done(p.mknod(&one, S_IFREG | mode, 0)),
            12..=15 => {
                let flags = [O_RDWR, O_WRONLY | O_APPEND, O_RDONLY][random.below(3)]
                    | [0, O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_TRUNC][random.below(5)]
                    | O_NONBLOCK;
                let opened = p.open(&one, flags, mode);
                let told = format!("{:?}", opened.map(|_| ()));
                if let Ok(fd) = opened {
                    self.open.push((who, fd));
                    if self.open.len() > 4 {
                        let (who, fd) = self.open.remove(0);
                        self.processes[who].close(fd).unwrap();
                    }
                }
                told
            }
            16 => done(p.truncate(&one, random.below(90) as i64)),
            17 => done(p.chmod(&one, mode)),
            18 => done(p.chown(&one, id, [0, 1000, u32::MAX][random.below(3)])),
            19 => {
                let set = p.utimensat(AT_FDCWD, Some(&one), Some(times), 0);
                let now = p.stat(&one).map(|stat| (stat.st_atim, stat.st_mtim));
                if set.is_ok() { format!("{now:?}") } else { done(set) }
            }
            20 => {
                let mut to = [0; 99];
                let n = p.readlink(&one, &mut to);
                format!("{n:?} {to:?}")
            }
            21 => {
                let name = ["user.a", "user.b", "trusted.c"][random.below(3)];
                let flags = [0, XATTR_CREATE, XATTR_REPLACE][random.below(3)];
                done(p.setxattr(&one, name, &[7; 9][..random.below(9)], flags))
            }
            22 => {
                let mut to = [0; 99];
                let n = p.getxattr(&one, "user.a", &mut to[..random.below(12)]);
                format!("{n:?} {to:?} {:?}", p.removexattr(&one, "user.b"))
            }
            23 => {
                let mut to = vec![0; 99];
                let n = p.listxattr(&one, &mut to);
                let mut names: Vec<_> = to.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
                names.sort();
                format!("{n:?} {names:?}")
            }
            24 if self.shrinks => {
                p.kernel().shrink();
                String::new()
            }
            _ => self.on_open(random),
        };
        let [one, two] = [&one, &two].map(|path| &path[self.root.len()..]);
        format!("{who} makes call {call} of {one} {two} {mode:o}: {said}")
    }

    /// Makes a call on an open file.
    fn on_open(&self, random: &mut Random) -> String {
        if self.open.is_empty() {
            return String::new();
        }
        let (who, fd) = self.open[random.below(self.open.len())];
        let p = self.processes[who];
        let done = match random.below(5) {
            0 => p.write(fd, b"some bytes"),
            1 => p.pwrite(fd, b"x", random.below(50) as i64),
            2 => p.ftruncate(fd, random.below(50) as i64).map(|()| 0),
            3 => p.fchmod(fd, 0o4711).map(|()| 0),
            _ => p.pread(fd, &mut [0; 20], 3),
        };
        format!("{done:?} {}", described(p.fstat(fd)))
    }

    /// Describes the files of the tree.
    fn describe(&self, path: &str, told: &mut Vec<String>) {
        let p = self.processes[0];
        let fd = p.open(path, O_RDONLY | O_DIRECTORY, 0).unwrap();
        let (mut names, mut buffer) = (Vec::new(), [0; 200]);
        loop {
            let n = p.getdents64(fd, &mut buffer).unwrap();
            if n == 0 {
                break;
            }
            let entry = |entry: quietline::Dirent<'_>| {
                (String::from_utf8(entry.name.to_vec()).unwrap(), entry.kind)
            };
            names.extend(dirents(&buffer[..n]).map(entry));
        }
        p.close(fd).unwrap();
        names.sort();
        for (name, kind) in names.into_iter().filter(|(name, _)| name != "." && name != "..") {
            let path = format!("{path}/{name}");
            let stat = p.lstat(&path);
            told.push(format!("{name} {kind} {}", described(stat)));
            if stat.unwrap().st_mode & S_IFMT == S_IFDIR {
                self.describe(&path, told);
            }
        }
    }
}

/// Runs a sequence of calls in a tree.
fn run(
    p: &Process,
    user: &Process,
    root: &str,
    seed: u64,
    links: bool,
    shrinks: bool,
) -> Vec<String> {
    let mut tree = Tree { processes: [p, user], root, links, shrinks, open: Vec::new() };
    let inotify = p.inotify_init1(IN_NONBLOCK).unwrap();
    p.inotify_add_watch(inotify, root, IN_ALL_EVENTS).unwrap();
    let (mut random, mut told) = (Random(seed), Vec::new());
    for _ in 0..200 {
        told.push(tree.call(&mut random));
        told.push(format!("{:?}", events(p, inotify)));
    }
    tree.describe(root, &mut told);
    for (who, fd) in std::mem::take(&mut tree.open) {
        tree.processes[who].close(fd).unwrap();
    }
    p.close(inotify).unwrap();
    told
}

#[test]
fn names_change_as_in_tmpfs() {
    let zero = Some(Duration::ZERO);
    for (seed, (valid, links, shrinks)) in
        (0..).zip([(zero, true, false), (zero, false, true), (None, false, true)].repeat(40))
    {
        // Each in a kernel of its own: links lead to files beside the tree, too.
        let [ours, tmpfs] = ["/m", "/t"].map(|root| {
            let (p, _) = mounted(valid);
            let user = p.fork().unwrap();
            user.setresgid(1000, 1000, 1000).unwrap();
            user.setresuid(1000, 1000, 1000).unwrap();
            run(&p, &user, root, seed, links, shrinks)
        });
        for (at, (ours, tmpfs)) in ours.iter().zip(&tmpfs).enumerate() {
            assert_eq!(ours, tmpfs, "seed {seed}, {valid:?}, line {at}");
        }
        assert_eq!(ours.len(), tmpfs.len());
    }
}

#[test]
fn a_file_is_made_as_its_directory_says() {
    let (p, _) = mounted(None);
    p.umask(0o27);
    p.mkdir("/m/d", 0o777).unwrap();
    p.chown("/m/d", 5, 7).unwrap();
    p.chmod("/m/d", 0o2777).unwrap();
    let user = p.fork().unwrap();
    user.setresgid(1000, 1000, 1000).unwrap();
    user.setresuid(1000, 1000, 1000).unwrap();
    user.close(user.creat("/m/d/file", 0o666).unwrap()).unwrap();
    user.mkdir("/m/d/dir", 0o777).unwrap();
    user.mknod("/m/d/pipe", S_IFIFO | 0o666, 9).unwrap();
    user.symlink("there", "/m/d/link").unwrap();
    assert_eq!(user.mknod("/m/d/tty", S_IFCHR | 0o666, 9), Err(Errno::PERM));
    p.mknod("/m/d/tty", S_IFCHR | 0o666, 9).unwrap();
    for _ in ["as it was made", "as it is looked up"] {
        let told = ["file", "dir", "pipe", "link", "tty"].map(|name| {
            let stat = p.lstat(format!("/m/d/{name}")).unwrap();
            (stat.st_mode, stat.st_uid, stat.st_gid, stat.st_rdev)
        });
        assert_eq!(told[0], (S_IFREG | 0o640, 1000, 7, 0));
        assert_eq!(told[1], (S_IFDIR | 0o2750, 1000, 7, 0));
        assert_eq!(told[2], (S_IFIFO | 0o640, 1000, 7, 0));
        assert_eq!(told[3], (S_IFLNK | 0o777, 1000, 7, 0));
        assert_eq!(told[4], (S_IFCHR | 0o640, 0, 7, 9));
        assert_eq!(p.stat("/m/d").unwrap().st_nlink, 3);
        p.kernel().shrink();
    }
    // A new file is opened whatever its mode says, and is not there twice.
    let fd = user.open("/m/d/new", O_RDWR | O_CREAT | O_EXCL | O_TRUNC, 0).unwrap();
    assert_eq!(user.write(fd, b"text"), Ok(4));
    assert_eq!(user.open("/m/d/new", O_RDWR | O_CREAT, 0), Err(Errno::ACCESS));
    assert_eq!(user.open("/m/d/new", O_RDWR | O_CREAT | O_EXCL, 0), Err(Errno::EXIST));
}

#[test]
fn a_write_takes_set_id_bits_away() {
    let (p, fs) = mounted(None);
    p.close(p.open("/m/file", O_CREAT, 0o777).unwrap()).unwrap();
    p.chmod("/m/file", 0o6777).unwrap();
    let modes = Arc::new(Mutex::new(Vec::new()));
    let seen = modes.clone();
    fs.set_hook(move |method, after| {
        if matches!(method, "setattr" | "write_at") && !after {
            seen.lock().unwrap().push(method.to_owned());
        }
    });
    p.setresuid(1000, 1000, 1000).unwrap();
    let fd = p.open("/m/file", O_WRONLY, 0).unwrap();
    p.write(fd, b"x").unwrap();
    p.write(fd, b"x").unwrap();
    assert_eq!(*modes.lock().unwrap(), ["setattr", "write_at", "write_at"]);
    p.kernel().shrink();
    assert_eq!(p.stat("/m/file").unwrap().st_mode, S_IFREG | 0o777);
}

#[test]
fn what_is_mounted_stays() {
    let (p, fs) = mounted(None);
    for dir in ["/m/d", "/m/e", "/m/d/below"] {
        p.mkdir(dir, 0o755).unwrap();
    }
    for file in ["/m/file", "/file", "/m/d/file"] {
        p.close(p.creat(file, 0o644).unwrap()).unwrap();
    }
    p.mount("none", "/m/e", "tmpfs", 0).unwrap();
    p.mount("/file", "/m/file", "", MS_BIND).unwrap();
    fs.set_hook(|method, _| {
        assert!(!matches!(method, "unlink" | "rmdir" | "rename" | "link"), "{method} is not asked");
    });
    assert_eq!(p.rmdir("/m/e"), Err(Errno::BUSY));
    assert_eq!(p.unlink("/m/file"), Err(Errno::BUSY));
    assert_eq!(p.rename("/m/file", "/m/x"), Err(Errno::BUSY));
    assert_eq!(p.rename("/m/d", "/m/e"), Err(Errno::BUSY));
    assert_eq!(p.rename("/m/d", "/m/d/below/x"), Err(Errno::INVAL));
    assert_eq!(p.rename("/m/d/file", "/t/file"), Err(Errno::XDEV));
    assert_eq!(p.link("/m/d/file", "/t/file"), Err(Errno::XDEV));
    assert_eq!(p.link("/t", "/m/x"), Err(Errno::XDEV));
    assert_eq!(p.rename("/m/d/.", "/m/x"), Err(Errno::BUSY));
    assert_eq!(p.rmdir("/m/d/."), Err(Errno::INVAL));
    p.mount("none", "/m", "", MS_REMOUNT | MS_BIND | 1).unwrap();
    for call in [
        p.unlink("/m/d/file"),
        p.rename("/m/d", "/m/x"),
        p.link("/m/d/file", "/m/x"),
        p.chmod("/m/d", 0o700),
        p.truncate("/m/d/file", 0),
        p.setxattr("/m/d/file", "user.x", b"", 0),
        p.symlink("x", "/m/x"),
    ] {
        assert_eq!(call, Err(Errno::ROFS));
    }
    assert_eq!(p.open("/m/x", O_CREAT, 0), Err(Errno::ROFS));
    fs.unhook();
    p.mount("none", "/m", "", MS_REMOUNT | MS_BIND).unwrap();
    // A directory takes the mounts below it along.
    p.mount("none", "/m/d/below", "tmpfs", 0).unwrap();
    p.close(p.creat("/m/d/below/mark", 0o644).unwrap()).unwrap();
    p.rename("/m/d", "/m/moved").unwrap();
    p.stat("/m/moved/below/mark").unwrap();
    assert_eq!(p.stat("/m/d"), Err(Errno::NOENT));
    p.chdir("/m/moved").unwrap();
    p.rename("/m/moved", "/m/again").unwrap();
    p.stat("below/mark").unwrap();
    assert_eq!(p.getcwd().unwrap(), b"/m/again");
    // A removed directory has no names.
    p.mkdir("/m/gone", 0o755).unwrap();
    p.chdir("/m/gone").unwrap();
    p.rmdir("/m/gone").unwrap();
    assert_eq!(p.mkdir("x", 0o755), Err(Errno::NOENT));
    assert_eq!(p.open("x", O_CREAT, 0o644), Err(Errno::NOENT));
    assert_eq!(p.stat("x"), Err(Errno::NOENT));
    let fd = p.open(".", O_RDONLY, 0).unwrap();
    assert_eq!(p.getdents64(fd, &mut [0; 99]), Err(Errno::NOENT));
    assert_eq!(p.fstat(fd).unwrap().st_nlink, 0);
}

/// A method may change the same names again, in the process that called it.
#[test]
fn methods_change_names_in_the_same_process() {
    quietline_testing::isolated!();
    let (p, fs) = mounted(Some(Duration::ZERO));
    for file in ["/m/one", "/m/two"] {
        p.close(p.creat(file, 0o644).unwrap()).unwrap();
    }
    p.mkdir("/m/d", 0o755).unwrap();
    let (weak, depth, calls) = (Arc::downgrade(&p), AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let count = calls.clone();
    fs.set_hook(move |method, after| {
        let p: Arc<Process> = Weak::upgrade(&weak).unwrap();
        if depth.fetch_add(1, SeqCst) == 0 {
            quietline_sync::might_sleep();
            quietline_sync::rcu::global().unwrap().synchronize();
            p.kernel().shrink();
            let name = format!("/m/{method}{after}");
            p.close(p.creat(&name, 0o644).unwrap()).unwrap();
            p.rename(&name, "/m/d/x").unwrap();
            p.link("/m/d/x", &name).unwrap();
            p.setxattr(&name, "user.x", b"1", 0).unwrap();
            p.truncate(&name, 7).unwrap();
            p.unlink(&name).unwrap();
            p.unlink("/m/d/x").unwrap();
            p.mkdir("/m/d/x", 0o755).unwrap();
            p.rename("/m/d/x", "/m/x").unwrap();
            p.rmdir("/m/x").unwrap();
            count.fetch_add(1, SeqCst);
        }
        depth.fetch_sub(1, SeqCst);
    });
    p.rename("/m/one", "/m/three").unwrap();
    p.renameat2(AT_FDCWD, "/m/two", AT_FDCWD, "/m/three", RENAME_EXCHANGE).unwrap();
    p.link("/m/two", "/m/four").unwrap();
    p.unlink("/m/two").unwrap();
    p.mkdir("/m/new", 0o755).unwrap();
    p.rmdir("/m/new").unwrap();
    let fd = p.open("/m/file", O_CREAT | O_RDWR, 0o644).unwrap();
    p.write(fd, b"x").unwrap();
    p.fchmod(fd, 0o600).unwrap();
    p.ftruncate(fd, 9).unwrap();
    p.fsetxattr(fd, "user.x", b"1", 0).unwrap();
    p.flistxattr(fd, &mut [0; 99]).unwrap();
    p.fgetxattr(fd, "user.x", &mut [0; 99]).unwrap();
    p.fremovexattr(fd, "user.x").unwrap();
    p.futimens(fd, None).unwrap();
    assert!(calls.load(SeqCst) > 40);
    fs.unhook();
    let names: Vec<_> = fs.files.lock().unwrap()[&ROOT].names.keys().cloned().collect();
    assert_eq!(names, [&b"d"[..], b"file", b"four", b"three"]);
}

/// The answer of a lookup that waits while the name changes is not kept.
#[test]
fn an_answer_that_is_older_than_a_change_is_asked_about_again() {
    type Change = fn(&Process) -> Result<(), Errno>;
    let changes: [Change; 4] = [
        |p| p.unlink("/m/x"),
        |p| p.rename("/m/x", "/m/y"),
        |p| p.rename("/m/y", "/m/x"),
        |p| p.renameat2(AT_FDCWD, "/m/x", AT_FDCWD, "/m/y", RENAME_EXCHANGE),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let (p, fs) = mounted(None);
        for file in ["/m/x", "/m/y"] {
            p.close(p.creat(file, 0o644).unwrap()).unwrap();
        }
        p.truncate("/m/y", 5).unwrap();
        p.kernel().shrink();
        let [answered, go] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
        let (a, g) = (answered.clone(), go.clone());
        let waits = AtomicBool::new(true);
        fs.set_hook(move |method, after| {
            if method == "lookup" && after && waits.swap(false, SeqCst) {
                a.wait();
                g.wait();
            }
        });
        std::thread::scope(|scope| {
            let old = scope.spawn(|| p.stat("/m/x").map(|stat| stat.st_size));
            answered.wait();
            change(&p).unwrap();
            go.wait();
            // Before the change or after it.
            let old = old.join().unwrap();
            assert!(matches!(old, Ok(0 | 5) | Err(Errno::NOENT)), "{n}: {old:?}");
        });
        let now = p.stat("/m/x").map(|stat| stat.st_size);
        let expected = [Err(Errno::NOENT), Err(Errno::NOENT), Ok(5), Ok(5)][n];
        assert_eq!(now, expected, "{n}");
    }
}

/// Whatever threads do at the same time, in the end the cache says what the file system says.
#[test]
fn the_cache_agrees_after_races() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d/a", "d/b"];
    for round in 0..12 {
        let (p, fs) = mounted((round % 3 == 0).then_some(Duration::from_micros(30)));
        let before = p.kernel().dentries().nr_dentry;
        p.mkdir("/m/d", 0o755).unwrap();
        fs.set_hook(|_, _| std::thread::yield_now());
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let p = &p;
                scope.spawn(move || {
                    let mut random = Random(round * 10 + thread);
                    for _ in 0..150 {
                        let [one, two] =
                            [(); 2].map(|()| format!("/m/{}", NAMES[random.below(NAMES.len())]));
                        let done = match random.below(9) {
                            0 => p.open(&one, O_CREAT | O_RDWR, 0o644).and_then(|fd| {
                                p.write(fd, b"x")?;
                                p.close(fd)
                            }),
                            1 => p.mkdir(&one, 0o755),
                            2 => p.unlink(&one),
                            3 => p.rmdir(&one),
                            4 => p.rename(&one, &two),
                            5 => p.renameat2(AT_FDCWD, &one, AT_FDCWD, &two, RENAME_EXCHANGE),
                            6 => p.link(&one, &two),
                            7 => {
                                p.kernel().shrink();
                                Ok(())
                            }
                            _ => p.stat(&one).map(drop),
                        };
                        let expected = [
                            Errno::NOENT,
                            Errno::EXIST,
                            Errno::ISDIR,
                            Errno::NOTDIR,
                            Errno::NOTEMPTY,
                            Errno::INVAL,
                            Errno::PERM,
                        ];
                        assert!(done.is_ok() || expected.contains(&done.unwrap_err()), "{done:?}");
                    }
                });
            }
        });
        fs.unhook();
        std::thread::sleep(Duration::from_micros(50));
        let files = fs.files.lock().unwrap();
        let dir = files[&ROOT].names.get(&b"d"[..]).copied();
        let told: Vec<_> = NAMES
            .iter()
            .map(|name| match name.strip_prefix("d/") {
                None => files[&ROOT].names.get(name.as_bytes()).copied(),
                Some(name) => dir.and_then(|dir| files[&dir].names.get(name.as_bytes()).copied()),
            })
            .collect();
        drop(files);
        for (name, ino) in NAMES.iter().zip(told) {
            let found = p.stat(format!("/m/{name}")).map(|stat| stat.st_ino);
            assert_eq!(found.ok(), ino, "{name} in round {round}: {found:?}");
        }
        p.close_range(0, u32::MAX, 0).unwrap();
        p.kernel().shrink();
        assert_eq!(p.kernel().dentries().nr_dentry, before);
    }
}

#[test]
fn each_allocation_of_a_change_may_fail() {
    quietline_testing::isolated!();
    let _alone = alone();
    type Call = fn(&Process) -> Result<(), Errno>;
    let long = "/m/a_name_that_is_not_in_the_dentry_itself";
    assert!(long.len() > 30);
    let calls: [(&str, Call); 9] = [
        ("create", |p| {
            p.close(p.open("/m/a_name_that_is_not_in_the_dentry_itself", O_CREAT, 0)?)
        }),
        ("create", |p| p.mkdir("/m/a_name_that_is_not_in_the_dentry_itself", 0o755)),
        ("create", |p| p.symlink("x", "/m/new")),
        ("link", |p| p.link("/m/file", "/m/a_name_that_is_not_in_the_dentry_itself")),
        ("unlink", |p| p.unlink("/m/file")),
        ("rmdir", |p| p.rmdir("/m/dir")),
        ("rename", |p| p.rename("/m/file", "/m/dir/a_name_that_is_not_in_the_dentry_itself")),
        ("rename", |p| p.rename("/m/file", "/m/other")),
        ("setattr", |p| p.chmod("/m/file", 0o600)),
    ];
    for (method, call) in calls {
        for n in 1.. {
            let (p, fs) = mounted(None);
            p.mkdir("/m/dir", 0o755).unwrap();
            for file in ["/m/file", "/m/other"] {
                p.close(p.creat(file, 0o644).unwrap()).unwrap();
            }
            let asked = Arc::new(AtomicBool::new(false));
            let a = asked.clone();
            fs.set_hook(move |at, _| {
                a.fetch_or(at == method, SeqCst);
            });
            fault::fail_nth(n);
            let done = call(&p);
            let met = !fault::armed();
            fault::fail_nth(0);
            fs.unhook();
            if let Err(errno) = done {
                assert_eq!(errno, Errno::NOMEM, "{method} {n}");
                // Only `open` needs the file that it has made, which is there then.
                let there = asked.load(SeqCst);
                assert_eq!(call(&p), Ok(()), "{method} {n}: asked before: {there}");
            }
            // The cache agrees, with and without its dentries.
            let look = || {
                ["file", "other", "dir", "new", &long[3..]].map(|name| {
                    p.stat(format!("/m/{name}")).map(|stat| (stat.st_ino, stat.st_mode))
                })
            };
            let cached = look();
            p.kernel().shrink();
            assert_eq!(look(), cached, "{method} {n}");
            if !met {
                break;
            }
        }
    }
}

/// A directory that answers changes as it is told.
#[derive(Default)]
struct Liar {
    lookup: Option<u32>,
    create: Option<u32>,
    error: Option<Errno>,
    value: usize,
    names: Vec<Vec<u8>>,
}

impl Liar {
    fn file(mode: u32) -> Entry {
        Entry::new(Arc::new(Self::default()), mode)
    }

    fn done(&self) -> Result<(), Errno> {
        self.error.map_or(Ok(()), Err)
    }
}

impl FileSystem for Liar {
    fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
        Ok(Entry::new(self, S_IFDIR | 0o777))
    }
}

impl InodeOps for Liar {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Entry, Errno> {
        let mode = if name == b"file" { Some(S_IFREG | 0o666) } else { self.lookup };
        mode.map(Self::file).ok_or(Errno::NOENT)
    }

    fn create(&self, _: &Caller<'_>, _: &[u8], _: &NewFile<'_>) -> Result<Entry, Errno> {
        self.done()?;
        self.create.map(Self::file).ok_or(Errno::EXIST)
    }

    fn unlink(&self, _: &Caller<'_>, _: &[u8]) -> Result<(), Errno> {
        self.done()
    }

    fn rename(
        &self,
        _: &Caller<'_>,
        _: &[u8],
        _: &dyn InodeOps,
        _: &[u8],
        _: u32,
    ) -> Result<(), Errno> {
        self.done()
    }

    fn link(&self, _: &Caller<'_>, _: &[u8], _: &dyn InodeOps) -> Result<(), Errno> {
        self.done()
    }

    fn setattr(&self, _: &Caller<'_>, _: &Changes) -> Result<(), Errno> {
        self.done()
    }

    fn getxattr(&self, _: &Caller<'_>, _: &[u8]) -> Result<Box<[u8]>, Errno> {
        Ok(vec![1; self.value].into())
    }

    fn listxattr(&self, _: &Caller<'_>, each: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        self.names.iter().for_each(|name| each(name));
        Ok(())
    }
}

impl FileOps for Liar {}

fn lying(liar: Liar) -> Process {
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = kernel.process().unwrap();
    p.mkdir("/m", 0o755).unwrap();
    p.mount_fs("/m", Arc::new(liar), 0).unwrap();
    p
}

#[test]
fn wrong_answers_to_changes_are_errors() {
    let restart = Errno::from_raw_os_error(512);
    let p = lying(Liar { error: Some(restart), ..Liar::default() });
    assert_eq!(p.mkdir("/m/new", 0), Err(Errno::IO));
    assert_eq!(p.open("/m/new", O_CREAT, 0), Err(Errno::IO));
    assert_eq!(p.unlink("/m/file"), Err(Errno::IO));
    assert_eq!(p.rename("/m/file", "/m/x"), Err(Errno::IO));
    assert_eq!(p.link("/m/file", "/m/x"), Err(Errno::IO));
    p.stat("/m/file").unwrap();
    // Another type, none at all, bits that no mode has.
    for mode in [S_IFDIR | 0o755, S_IFIFO, 0o644, S_IFREG | 1 << 20] {
        let p = lying(Liar { create: Some(mode), ..Liar::default() });
        assert_eq!(p.open("/m/new", O_CREAT, 0o644), Err(Errno::IO), "{mode:o}");
        assert_eq!(p.symlink("x", "/m/new"), Err(Errno::IO));
        let made = p.mkdir("/m/new", 0o755);
        assert_eq!(made, if mode == S_IFDIR | 0o755 { Ok(()) } else { Err(Errno::IO) });
    }
    // A name that is there when it is made, and not when it is looked up, or the other way round.
    let p = lying(Liar::default());
    assert_eq!(p.open("/m/new", O_CREAT, 0o644), Err(Errno::EXIST));
    assert_eq!(p.mkdir("/m/new", 0o644), Err(Errno::EXIST));
    let p = lying(Liar { create: Some(S_IFREG | 0o644), ..Liar::default() });
    let fd = p.open("/m/new", O_CREAT | O_EXCL, 0o644).unwrap();
    assert_eq!(p.fstat(fd).unwrap().st_mode, S_IFREG | 0o644);
    p.close(fd).unwrap();
    p.kernel().shrink();
    assert_eq!(p.stat("/m/new"), Err(Errno::NOENT));
    // A name that has been removed, renamed or linked, and is looked up all the same.
    p.unlink("/m/file").unwrap();
    p.stat("/m/file").unwrap();
    p.rename("/m/file", "/m/x").unwrap();
    p.stat("/m/x").unwrap();
    p.stat("/m/file").unwrap();
    p.link("/m/file", "/m/y").unwrap();
    assert_eq!(p.stat("/m/y").unwrap().st_nlink, 2);
    assert_eq!(p.rename("/m/x", "/m/y"), Ok(()));
}

#[test]
fn extended_attributes_are_checked() {
    let names = [&b"user.a"[..], b"trusted.b", b"user.c"].map(<[u8]>::to_vec).to_vec();
    let p = lying(Liar { names, value: 5, ..Liar::default() });
    assert_eq!(p.listxattr("/m", &mut []), Ok(24));
    assert_eq!(p.listxattr("/m", &mut [0; 23]), Err(Errno::RANGE));
    let mut list = [0; 24];
    assert_eq!(p.listxattr("/m", &mut list), Ok(24));
    assert_eq!(&list, b"user.a\0trusted.b\0user.c\0");
    assert_eq!(p.getxattr("/m", "user.x", &mut []), Ok(5));
    assert_eq!(p.getxattr("/m", "user.x", &mut [0; 4]), Err(Errno::RANGE));
    assert_eq!(p.getxattr("/m", "user.x", &mut [0; 9]), Ok(5));
    assert_eq!(p.getxattr("/m", "system.posix_acl_access", &mut []), Err(Errno::OPNOTSUPP));
    assert_eq!(p.setxattr("/m", "user.x", b"", 0), Err(Errno::OPNOTSUPP));
    assert_eq!(p.removexattr("/m", "user.x"), Err(Errno::OPNOTSUPP));
    p.setresuid(7, 7, 7).unwrap();
    assert_eq!(p.listxattr("/m", &mut list), Ok(14));
    assert_eq!(&list[..14], b"user.a\0user.c\0");
    let wrong: [Vec<u8>; 3] = [vec![], vec![b'a'; 256], b"user.\0".to_vec()];
    for name in wrong {
        let p = lying(Liar { names: vec![b"user.a".to_vec(), name], ..Liar::default() });
        assert_eq!(p.listxattr("/m", &mut [0; 999]), Err(Errno::IO));
    }
    let p = lying(Liar { names: vec![vec![b'a'; 255]; 257], value: 65_537, ..Liar::default() });
    assert_eq!(p.listxattr("/m", &mut []), Err(Errno::TOOBIG));
    assert_eq!(p.getxattr("/m", "user.x", &mut []), Err(Errno::IO));
}
