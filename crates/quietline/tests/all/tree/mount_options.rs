//! Options and flags of `mount`, beside the host in a mount namespace of the test's own; and types
//! of file systems that a program registers.
#![allow(unsafe_code, reason = "system calls of the host")]

use quietline::abi::*;
use quietline::{
    Caller, Config, Entry, Errno, FileOps, FileSystem, InodeOps, Kernel, MS_BIND, MS_MOVE,
    MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW, MS_PRIVATE,
    MS_RDONLY, MS_REC, MS_RELATIME, MS_REMOUNT, MS_SHARED, MS_SILENT, MS_SLAVE, MS_STRICTATIME,
    MS_UNBINDABLE, MountRequest, Process,
};
use std::ffi::CString;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const MNT_DETACH: u32 = 2;
const MS_SYNCHRONOUS: u64 = 16;
const MS_MANDLOCK: u64 = 64;
const MS_DIRSYNC: u64 = 128;
const MS_LAZYTIME: u64 = 1 << 25;
const MAGIC: u64 = 0xc0ed_0000;

/// A system with mounts: the host or a kernel. Paths are below a directory of the test's own.
trait System {
    fn mount(&self, mount: &Mount) -> Result<(), Errno>;
    fn umount(&self, path: &str) -> Result<(), Errno>;
    fn mkdir(&self, path: &str) -> Result<(), Errno>;
    fn write(&self, path: &str, bytes: usize) -> Result<usize, Errno>;
    /// Mode, user and group.
    fn stat(&self, path: &str) -> Result<[u32; 3], Errno>;
    /// Blocks, free ones, files, free ones, flags.
    fn statfs(&self, path: &str) -> Result<[u64; 5], Errno>;
    fn mounts(&self) -> String;
    fn base(&self) -> &str;

    fn at(&self, path: &str) -> String {
        if path.is_empty() { String::new() } else { format!("{}/{path}", self.base()) }
    }
}

/// The arguments of `mount`.
#[derive(Debug, Clone)]
struct Mount {
    source: String,
    /// Whether the source is a path.
    from: bool,
    target: String,
    fstype: &'static str,
    flags: u64,
    data: String,
}

struct Host {
    base: String,
}

impl Drop for Host {
    fn drop(&mut self) {
        let base = c(&self.base);
        // SAFETY: a string that ends with a zero.
        unsafe { libc::umount2(base.as_ptr(), libc::MNT_DETACH) };
        let _ = std::fs::remove_dir(&self.base);
    }
}

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn host<T>(result: i32, value: T) -> Result<T, Errno> {
    let error = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap();
    if result == -1 { Err(error()) } else { Ok(value) }
}

impl System for Host {
    fn mount(&self, of: &Mount) -> Result<(), Errno> {
        let source = c(&if of.from { self.at(&of.source) } else { of.source.clone() });
        let (target, fstype, data) = (c(&self.at(&of.target)), c(of.fstype), c(&of.data));
        // SAFETY: strings that end with zeros.
        let result = unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                fstype.as_ptr(),
                of.flags as libc::c_ulong,
                data.as_ptr().cast(),
            )
        };
        host(result, ())
    }

    fn umount(&self, path: &str) -> Result<(), Errno> {
        let path = c(&self.at(path));
        // SAFETY: a string that ends with a zero.
        host(unsafe { libc::umount2(path.as_ptr(), MNT_DETACH as i32) }, ())
    }

    fn mkdir(&self, path: &str) -> Result<(), Errno> {
        let path = c(&self.at(path));
        // SAFETY: as above.
        host(unsafe { libc::mkdir(path.as_ptr(), 0o755) }, ())
    }

    fn write(&self, path: &str, bytes: usize) -> Result<usize, Errno> {
        let path = c(&self.at(path));
        let buffer = vec![1u8; bytes];
        // SAFETY: as above, and a buffer of this length.
        unsafe {
            let fd = libc::open(path.as_ptr(), O_CREAT | O_WRONLY | O_TRUNC, 0o600);
            host(fd, ())?;
            let n = libc::write(fd, buffer.as_ptr().cast(), bytes);
            let written = host(n as i32, n as usize);
            libc::close(fd);
            written
        }
    }

    fn stat(&self, path: &str) -> Result<[u32; 3], Errno> {
        let path = c(&self.at(path));
        // SAFETY: as above; zeros are a `stat`.
        unsafe {
            let mut stat: libc::stat = core::mem::zeroed();
            let result = libc::stat(path.as_ptr(), &raw mut stat);
            host(result, [stat.st_mode, stat.st_uid, stat.st_gid])
        }
    }

    fn statfs(&self, path: &str) -> Result<[u64; 5], Errno> {
        let path = c(&self.at(path));
        // SAFETY: as above.
        unsafe {
            let mut of: libc::statvfs = core::mem::zeroed();
            let result = libc::statvfs(path.as_ptr(), &raw mut of);
            let flags = of.f_flag;
            host(result, [of.f_blocks, of.f_bfree, of.f_files, of.f_ffree, flags])
        }
    }

    fn mounts(&self) -> String {
        std::fs::read_to_string("/proc/thread-self/mounts").unwrap()
    }

    fn base(&self) -> &str {
        &self.base
    }
}

impl System for Process {
    fn mount(&self, of: &Mount) -> Result<(), Errno> {
        let source = if of.from { self.at(&of.source) } else { of.source.clone() };
        self.mount_with(source, self.at(&of.target), of.fstype, of.flags, &of.data)
    }

    fn umount(&self, path: &str) -> Result<(), Errno> {
        self.umount2(self.at(path), MNT_DETACH)
    }

    fn mkdir(&self, path: &str) -> Result<(), Errno> {
        Process::mkdir(self, self.at(path), 0o755)
    }

    fn write(&self, path: &str, bytes: usize) -> Result<usize, Errno> {
        let fd = self.open(self.at(path), O_CREAT | O_WRONLY | O_TRUNC, 0o600)?;
        let written = Process::write(self, fd, &vec![1; bytes]);
        self.close(fd).unwrap();
        written
    }

    fn stat(&self, path: &str) -> Result<[u32; 3], Errno> {
        let stat = Process::stat(self, self.at(path))?;
        Ok([stat.st_mode, stat.st_uid, stat.st_gid])
    }

    fn statfs(&self, path: &str) -> Result<[u64; 5], Errno> {
        let of = Process::statfs(self, self.at(path))?;
        Ok([of.f_blocks, of.f_bfree, of.f_files, of.f_ffree, (of.f_flags & !ST_VALID) as u64])
    }

    fn mounts(&self) -> String {
        text(self, "/proc/self/mounts")
    }

    fn base(&self) -> &str {
        "/base"
    }
}

fn text(p: &Process, path: &str) -> String {
    let fd = p.open(path, O_RDONLY, 0).unwrap();
    let mut text = vec![0; 1 << 16];
    let n = p.read(fd, &mut text).unwrap();
    p.close(fd).unwrap();
    String::from_utf8(text[..n].to_vec()).unwrap()
}

/// The mounts below the test's directory, with paths from there. Numbers of inodes have 64 bits on
/// a host that says so without being asked.
fn shown(system: &dyn System) -> Vec<String> {
    let mounts = system.mounts();
    let below = format!(" {}", system.base());
    mounts
        .lines()
        .filter(|line| line.contains(&below))
        .map(|line| line.replace(&below, " ").replace(",inode64", ""))
        .collect()
}

/// A mount namespace of the process's own in which nothing is propagated, and a directory there.
fn own_mounts() -> Option<Host> {
    // SAFETY: strings that end with zeros.
    unsafe {
        if libc::geteuid() != 0 || libc::unshare(libc::CLONE_NEWNS) != 0 {
            return None;
        }
        let (none, root) = (c("none"), c("/"));
        let flags = (MS_REC | MS_PRIVATE) as libc::c_ulong;
        let made =
            libc::mount(none.as_ptr(), root.as_ptr(), core::ptr::null(), flags, core::ptr::null());
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    }
    let base = format!("/tmp/quietline-mounts-{}", std::process::id());
    std::fs::create_dir(&base).unwrap();
    let host = Host { base };
    // The mounts below go with the namespace.
    let (target, fstype) = (c(&host.base), c("tmpfs"));
    // SAFETY: as above.
    let made = unsafe {
        libc::mount(target.as_ptr(), target.as_ptr(), fstype.as_ptr(), 0, core::ptr::null())
    };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    Some(host)
}

fn tmpfs(target: &str) -> Mount {
    Mount {
        source: "none".into(),
        from: false,
        target: target.into(),
        fstype: "tmpfs",
        flags: 0,
        data: String::new(),
    }
}

struct Both {
    host: Host,
    ours: Process,
    log: String,
}

impl Both {
    fn new() -> Option<Self> {
        let host = own_mounts()?;
        let ours =
            Kernel::boot(Config::default().owner(0, 0).proc(true)).unwrap().process().unwrap();
        Process::mkdir(&ours, "/base", 0o755).unwrap();
        ours.mount_with("/base", "/base", "tmpfs", 0, "").unwrap();
        let both = Self { host, ours, log: String::new() };
        for name in ["a", "b", "c"] {
            both.host.mkdir(name).and(System::mkdir(&both.ours, name)).unwrap();
        }
        Some(both)
    }

    fn ask<T: PartialEq + std::fmt::Debug>(&self, ask: impl Fn(&dyn System) -> T) -> T {
        let (theirs, mine) = (ask(&self.host), ask(&self.ours));
        assert_eq!(mine, theirs, "ours and the host's differ after:\n{}", self.log);
        mine
    }

    /// Mounts, and compares what there is then.
    fn mount(&mut self, of: &Mount) -> Result<(), Errno> {
        let _ = writeln!(self.log, "{of:?}");
        let done = self.ask(|system| system.mount(of));
        let _ = writeln!(self.log, "    {done:?}");
        self.look();
        done
    }

    fn look(&self) {
        let lines = self.ask(|system| {
            shown(system).iter().map(|line| line.replace(system.base(), "base")).collect::<Vec<_>>()
        });
        for path in ["a", "b", "c"] {
            let _ = self.ask(|system| system.stat(path));
            // Sizes that were not given are a part of the host's memory. Some flags of file
            // systems are not told.
            let told = self.ask(|system| {
                system.statfs(path).map(|all| all[4] & !(MS_SYNCHRONOUS | MS_MANDLOCK))
            });
            assert!(told.is_ok());
            let line = lines.iter().rfind(|line| line.contains(&format!(" /{path} "))).cloned();
            for (word, at) in [(",size=", 0), (",nr_inodes=", 2)] {
                if line.as_ref().is_some_and(|line| line.contains(word)) {
                    let _ =
                        self.ask(|system| system.statfs(path).map(|all| [all[at], all[at + 1]]));
                }
            }
        }
    }
}

const FLAGS: [u64; 14] = [
    MS_RDONLY,
    MS_NOSUID,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSYMFOLLOW,
    MS_NOATIME,
    MS_NODIRATIME,
    MS_RELATIME,
    MS_STRICTATIME,
    MS_SILENT,
    MS_SYNCHRONOUS,
    MS_DIRSYNC,
    MS_LAZYTIME,
    MAGIC,
];

const DATA: [&str; 40] = [
    "",
    "size=1m",
    "size=4097",
    "size=0x2000",
    "size=020000",
    "size=64K,nr_inodes=50",
    "size=1%",
    "size=10%",
    "size=1m,size=2m",
    "size=5x",
    "size=",
    "size",
    "size=1k%",
    "size=-1",
    "nr_blocks=17",
    "nr_blocks=1k",
    "nr_blocks=9223372036854775808",
    "nr_inodes=10",
    "nr_inodes=1k",
    "nr_inodes=1",
    "mode=700",
    "mode=01777",
    "mode=17777",
    "mode=8",
    "mode=0x1ff",
    "mode=+755",
    "mode=",
    "uid=5,gid=6",
    "uid=0x10",
    "uid=010",
    "gid=4294967295",
    "uid=-1",
    "uid=5 ",
    "mode=755,uid=1,gid=2,size=100k,nr_inodes=20",
    "ro",
    "ro,rw,size=1m",
    "sync,dirsync,lazytime",
    "ro=1",
    ",,=5,",
    "bogus",
];

fn skip() {
    quietline_testing::skip_without_root("the host mounts in a namespace of the test's own");
}

#[test]
fn options_and_flags_beside_the_host() {
    quietline_testing::isolated!();
    let Some(mut both) = Both::new() else { return skip() };
    for data in DATA {
        if both.mount(&Mount { data: data.into(), ..tmpfs("a") }).is_ok() {
            both.ask(|system| system.umount("a")).unwrap();
        }
    }
    for flags in FLAGS {
        for other in FLAGS {
            // Some together are a flag that only the kernel may set.
            if both.mount(&Mount { flags: flags | other, ..tmpfs("a") }).is_err() {
                continue;
            }
            let remount = MS_REMOUNT | if other & flags == 0 { MS_BIND } else { 0 };
            both.mount(&Mount { flags: remount | other, ..tmpfs("a") }).unwrap();
            both.mount(&Mount { flags: MS_REMOUNT, ..tmpfs("a") }).unwrap();
            both.ask(|system| system.umount("a")).unwrap();
        }
    }
    for len in [4095, 4096] {
        let of = Mount { source: "x".repeat(len), ..tmpfs("b") };
        assert_eq!(both.mount(&of).is_ok(), len == 4095);
    }
    both.ask(|system| system.umount("b")).unwrap();
    for source in ["", "x", "a b", "a#b\\c\td"] {
        if !source.is_empty() {
            both.mount(&Mount { source: source.into(), ..tmpfs("b") }).unwrap();
            both.ask(|system| system.umount("b")).unwrap();
        }
        let bind = Mount { source: source.into(), flags: MS_BIND, ..tmpfs("b") };
        assert!(both.mount(&bind).is_err());
        assert!(both.mount(&Mount { flags: MS_MOVE, ..bind }).is_err());
    }
    for (fstype, data) in [
        ("", ""),
        ("nothing", ""),
        ("pipefs", ""),
        ("sockfs", ""),
        ("proc", "hidepid=0"),
        ("proc", "hidepid=off"),
        ("proc", "hidepid=9"),
        ("proc", "bogus"),
        ("sysfs", "bogus"),
        ("sysfs", "ro"),
    ] {
        // What the host's own /proc and /sys show is not compared.
        let of = Mount { fstype, data: data.into(), ..tmpfs("c") };
        let done = both.ask(|system| system.mount(&of));
        if done.is_ok() {
            both.ask(|system| system.umount("c")).unwrap();
        }
    }
    // Places that cannot be, and flags that contradict each other.
    both.ask(|system| system.write("a/file", 1)).unwrap();
    for target in ["a/file", "a/none", "a/file/x", ""] {
        for flags in [0, MS_BIND, MS_MOVE, MS_REMOUNT, MS_REMOUNT | MS_BIND, MS_PRIVATE, MS_SHARED]
        {
            let of = Mount { source: "b".into(), from: true, flags, ..tmpfs(target) };
            let _ = both.mount(&of);
        }
    }
    for flags in [MS_PRIVATE | MS_SLAVE, MS_PRIVATE | MS_NOSUID, MS_UNBINDABLE | MS_MOVE, 1 << 31] {
        assert_eq!(both.mount(&Mount { flags, ..tmpfs("b") }), Err(Errno::INVAL));
    }
}

#[test]
fn a_file_system_and_its_mounts_beside_the_host() {
    quietline_testing::isolated!();
    let Some(mut both) = Both::new() else { return skip() };
    let bind = |from: &str, to: &str, flags| Mount {
        source: from.into(),
        from: true,
        flags: MS_BIND | flags,
        ..tmpfs(to)
    };
    let change = |to: &str, flags, data: &str| Mount {
        flags: MS_REMOUNT | flags,
        data: data.into(),
        ..tmpfs(to)
    };
    both.mount(&Mount { data: "size=1m".into(), ..tmpfs("a") }).unwrap();
    both.mount(&bind("a", "b", 0)).unwrap();
    both.mount(&change("b", MS_BIND | MS_RDONLY, "")).unwrap();
    let writes = |both: &Both| {
        ["a", "b", "c"].map(|path| both.ask(|system| system.write(&format!("{path}/f"), 5)))
    };
    assert_eq!(writes(&both), [Ok(5), Err(Errno::ROFS), Ok(5)]);
    // By one mount read-only, and so by all; then as each is by itself.
    both.mount(&change("a", MS_RDONLY, "")).unwrap();
    assert_eq!(writes(&both), [Err(Errno::ROFS), Err(Errno::ROFS), Ok(5)]);
    both.mount(&bind("a", "c", 0)).unwrap();
    assert_eq!(writes(&both)[2], Err(Errno::ROFS));
    both.mount(&change("b", MS_BIND, "")).unwrap();
    assert_eq!(writes(&both)[1], Err(Errno::ROFS));
    both.mount(&change("b", 0, "")).unwrap();
    let _ = writes(&both);
    both.mount(&change("a", 0, "ro")).unwrap();
    let _ = writes(&both);
    both.mount(&change("a", MS_RDONLY, "rw")).unwrap();
    let _ = writes(&both);
    both.mount(&change("a", 0, "rw")).unwrap();
    let _ = writes(&both);
    // Sizes: not less than there is, and not after none.
    both.ask(|system| system.write("a/large", 100_000)).unwrap();
    for data in [
        "size=50k",
        "size=200k",
        "size=2m,nr_inodes=10",
        "nr_inodes=2",
        "size=1m,nr_inodes=1",
        "mode=700",
        "uid=7",
        "bogus",
        "size=300k,bogus",
        "noswap",
        "",
        "size=110592",
    ] {
        let _ = both.mount(&change("a", 0, data));
        let _ = both.ask(|system| system.write("a/more", 500_000));
        let _ = writes(&both);
    }
    both.ask(|system| system.umount("c")).unwrap();
    // An unbindable mount is not bound.
    let say = |to: &str, flags| Mount { flags, ..tmpfs(to) };
    both.ask(|system| system.mkdir("a/d")).unwrap();
    both.mount(&tmpfs("a/d")).unwrap();
    both.mount(&say("a/d", MS_UNBINDABLE)).unwrap();
    both.mount(&bind("a/d", "c", 0)).unwrap_err();
    both.mount(&bind("a", "c", MS_REC)).unwrap();
    both.ask(|system| system.umount("c")).unwrap();
    both.mount(&say("a", MS_PRIVATE | MS_REC)).unwrap();
    both.mount(&bind("a", "c", MS_REC)).unwrap();
    both.ask(|system| system.umount("c")).unwrap();
    both.mount(&say("a", MS_UNBINDABLE | MS_REC)).unwrap();
    both.mount(&bind("a", "c", MS_REC)).unwrap_err();
    both.mount(&say("a", MS_SLAVE)).unwrap();
    let _ = both.mount(&bind("a", "c", MS_REC));
    both.mount(&say("b/f", MS_PRIVATE)).unwrap_err();
}

/// A mount that was detached is one of its file system's all the same (as on Linux, by hand).
#[test]
fn a_remount_reaches_detached_mounts() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default().owner(0, 0)).unwrap().process().unwrap();
    for path in ["/a", "/b"] {
        Process::mkdir(&p, path, 0o755).unwrap();
    }
    let remount = |flags| p.mount("", "/a", "", MS_REMOUNT | flags);
    p.mount("none", "/a", "tmpfs", 0).unwrap();
    p.mount("/a", "/b", "", MS_BIND).unwrap();
    let directory = p.open("/b", O_RDONLY, 0).unwrap();
    let file = p.open("/b/f", O_WRONLY | O_CREAT, 0o600).unwrap();
    p.umount2("/b", MNT_DETACH).unwrap();
    assert_eq!(remount(MS_RDONLY), Err(Errno::BUSY));
    assert_eq!(Process::write(&p, file, b"x"), Ok(1));
    assert_eq!(p.mkdirat(directory, "stays", 0o755), Ok(()), "nothing has changed");
    p.close(file).unwrap();
    remount(MS_RDONLY).unwrap();
    assert_eq!(p.mkdirat(directory, "d", 0o755), Err(Errno::ROFS));
    remount(0).unwrap();
    p.mkdirat(directory, "d", 0o755).unwrap();
    p.close(directory).unwrap();
    remount(MS_RDONLY).unwrap();
}

/// The unmount of a process's own root makes the file system read-only, by whichever mount.
#[test]
fn the_root_is_not_unmounted_but_made_read_only() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default().owner(0, 0)).unwrap().process().unwrap();
    Process::mkdir(&p, "/b", 0o755).unwrap();
    p.mount("/", "/b", "", MS_BIND).unwrap();
    let file = p.open("/b/f", O_WRONLY | O_CREAT, 0o600).unwrap();
    assert_eq!(p.umount2("/", 0), Err(Errno::BUSY), "a file is open for writing");
    p.close(file).unwrap();
    p.umount2("/", 0).unwrap();
    for path in ["/d", "/b/d"] {
        assert_eq!(Process::mkdir(&p, path, 0o755), Err(Errno::ROFS), "{path}");
    }
    p.mount("", "/", "", MS_REMOUNT | MS_BIND).unwrap();
    assert_eq!(Process::mkdir(&p, "/d", 0o755), Err(Errno::ROFS), "the file system is so");
    p.mount("", "/", "", MS_REMOUNT).unwrap();
    Process::mkdir(&p, "/b/d", 0o755).unwrap();
}

#[test]
fn random_mounts_beside_the_host() {
    quietline_testing::isolated!();
    let Some(mut both) = Both::new() else { return skip() };
    let mut seed = quietline_testing::budget("QUIETLINE_MOUNT_SEED", 1);
    let mut next = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let paths = ["a", "b", "c"];
    for _ in 0..quietline_testing::scaled(600) {
        let target = paths[next(3)];
        let mut flags = 0;
        (0..next(4)).for_each(|_| flags |= FLAGS[next(FLAGS.len())]);
        let mut of = Mount { flags, data: DATA[next(DATA.len())].into(), ..tmpfs(target) };
        match next(8) {
            0 | 1 => {}
            2 | 3 => of.flags |= MS_REMOUNT,
            4 => of.flags |= MS_REMOUNT | MS_BIND,
            5 => {
                of = Mount { source: paths[next(3)].into(), from: true, ..of };
                of.flags |= MS_BIND | if next(2) == 0 { MS_REC } else { 0 };
            }
            6 => {
                let _ = writeln!(both.log, "umount {target}");
                let _ = both.ask(|system| system.umount(target));
                both.look();
                continue;
            }
            _ => {
                let path = format!("{target}/{}", next(3));
                let bytes = next(200_000);
                let _ = writeln!(both.log, "write {bytes} to {path}");
                let _ = both.ask(|system| system.write(&path, bytes));
                continue;
            }
        }
        let _ = both.mount(&of);
        if shown(&both.ours).len() > 12 {
            for path in paths {
                while both.ask(|system| system.umount(path)).is_ok() {}
            }
        }
    }
}

#[test]
fn a_registered_type_is_mounted_by_name() {
    quietline_testing::isolated!();
    struct Empty(Arc<AtomicUsize>);
    impl FileOps for Empty {}
    impl InodeOps for Empty {}
    impl FileSystem for Empty {
        fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
            Ok(Entry::new(self, S_IFDIR | 0o755))
        }
    }
    impl Drop for Empty {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    type Told = (Vec<u8>, Vec<u8>, bool, u32);
    let (ended, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::<Told>::new())));
    let kernel = Kernel::boot(Config::default().owner(0, 0).proc(true)).unwrap();
    let make = {
        let (ended, told) = (ended.clone(), told.clone());
        move |caller: &Caller<'_>, of: &MountRequest<'_>| {
            let all = (of.source.to_vec(), of.options.to_vec(), of.read_only, caller.uid());
            told.lock().unwrap().push(all);
            match of.options {
                b"fail" => Err(Errno::NXIO),
                _ => Ok(Arc::new(Empty(ended.clone())) as Arc<dyn FileSystem>),
            }
        }
    };
    for (name, errno) in
        [("", Errno::INVAL), ("a b", Errno::INVAL), ("proc", Errno::BUSY), ("pipefs", Errno::BUSY)]
    {
        assert_eq!(kernel.register_file_system(name, make.clone()), Err(errno), "{name}");
    }
    kernel.register_file_system("empty", make.clone()).unwrap();
    assert_eq!(kernel.register_file_system("empty", make), Err(Errno::BUSY));
    let p = kernel.process().unwrap();
    assert_eq!(
        text(&p, "/proc/filesystems"),
        "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tsockfs\nnodev\tpipefs\nnodev\tempty\n"
    );
    Process::mkdir(&p, "/e", 0o755).unwrap();
    assert_eq!(p.mount_with("s", "/e", "empty", 0, "fail"), Err(Errno::NXIO));
    p.mount_with("the source", "/e", "empty", MS_RDONLY | MS_NODEV, "one,two=2").unwrap();
    let expected =
        [(&b"s"[..], &b"fail"[..], false), (&b"the source"[..], &b"one,two=2"[..], true)];
    let told: Vec<Told> = told.lock().unwrap().clone();
    let expected = expected.map(|(source, options, ro)| (source.to_vec(), options.to_vec(), ro, 0));
    assert_eq!(told, expected);
    let line = "the\\040source /e empty ro,nodev,relatime,one,two=2 0 0\n";
    assert!(text(&p, "/proc/self/mounts").ends_with(line));
    // Its options stay, whatever a remount says; its flags change.
    p.mount_with("", "/e", "", MS_REMOUNT | MS_NOEXEC, "three").unwrap();
    let line = "the\\040source /e empty rw,noexec,relatime,one,two=2 0 0\n";
    assert!(text(&p, "/proc/self/mounts").ends_with(line));
    kernel.unregister_file_system("empty").unwrap();
    assert_eq!(kernel.unregister_file_system("empty"), Err(Errno::INVAL));
    assert_eq!(kernel.unregister_file_system("tmpfs"), Err(Errno::INVAL));
    assert_eq!(p.mount("", "/e", "empty", 0), Err(Errno::NODEV));
    assert_eq!(Process::stat(&p, "/e").unwrap().st_mode, S_IFDIR | 0o755);
    p.umount2("/e", 0).unwrap();
    drop(p);
    drop(kernel);
    assert_eq!(ended.load(Ordering::Relaxed), 1);
}

/// A size in percent is one of the limit on the kernel's memory.
#[test]
fn percents_are_of_the_memory_limit() {
    quietline_testing::isolated!();
    let config = Config::default().owner(0, 0).memory(64 << 20);
    let p = Kernel::boot(config).unwrap().process().unwrap();
    Process::mkdir(&p, "/t", 0o755).unwrap();
    p.mount_with("none", "/t", "tmpfs", 0, "size=25%").unwrap();
    assert_eq!(Process::statfs(&p, "/t").unwrap().f_blocks, 4096);
}
