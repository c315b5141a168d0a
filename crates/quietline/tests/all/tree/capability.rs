//! `security.capability` and access control lists: the same calls on a tmpfs of the host and here.
#![allow(
    unsafe_code,
    reason = "system calls that change the credentials of one thread, which no safe wrapper offers"
)]

use core::fmt::Debug;
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};
use std::ffi::CString;

const CAPABILITY: &str = "security.capability";
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The user that is not root.
const USER: u32 = 1000;

type Result<T> = core::result::Result<T, i32>;

/// The calls on one system. Paths are names in a directory of its own.
trait Sys {
    fn set(&self, path: &str, name: &str, value: &[u8], flags: i32) -> Result<()>;
    fn get(&self, path: &str, name: &str, room: usize) -> Result<Vec<u8>>;
    fn remove(&self, path: &str, name: &str) -> Result<()>;
    /// Whether the list of names has this one.
    fn lists(&self, path: &str, name: &str) -> Result<bool>;
    fn open(&self, path: &str, flags: i32) -> Result<i32>;
    fn close(&self, fd: i32);
    fn pwrite(&self, fd: i32, bytes: &[u8], at: i64) -> Result<usize>;
    fn ftruncate(&self, fd: i32, length: i64) -> Result<()>;
    fn truncate(&self, path: &str, length: i64) -> Result<()>;
    fn fallocate(&self, fd: i32, mode: i32, at: i64, n: i64) -> Result<()>;
    fn copy(&self, from: i32, to: i32, n: usize) -> Result<usize>;
    fn sendfile(&self, to: i32, from: i32, n: usize) -> Result<usize>;
    fn chown(&self, path: &str, uid: u32, gid: u32) -> Result<()>;
    fn chmod(&self, path: &str, mode: u32) -> Result<()>;
    fn mode(&self, path: &str) -> Result<u32>;
    fn make(&self, path: &str, mode: u32);
    fn symlink(&self, path: &str);
    /// Makes the calls as user 1000.
    fn as_user(&self, f: &(dyn Fn(&dyn Sys) -> Vec<String> + Sync)) -> Vec<String>;
}

struct Ours(Process);

fn told<T>(result: core::result::Result<T, Errno>) -> Result<T> {
    result.map_err(Errno::raw_os_error)
}

impl Sys for Ours {
    fn set(&self, path: &str, name: &str, value: &[u8], flags: i32) -> Result<()> {
        told(self.0.lsetxattr(path, name, value, flags))
    }
    fn get(&self, path: &str, name: &str, room: usize) -> Result<Vec<u8>> {
        let mut value = vec![0; room];
        let n = told(self.0.lgetxattr(path, name, &mut value))?;
        value.resize(n, 0);
        Ok(value)
    }
    fn remove(&self, path: &str, name: &str) -> Result<()> {
        told(self.0.lremovexattr(path, name))
    }
    fn lists(&self, path: &str, name: &str) -> Result<bool> {
        let mut names = [0; 1000];
        let n = told(self.0.llistxattr(path, &mut names))?;
        Ok(names[..n].split(|&byte| byte == 0).any(|listed| listed == name.as_bytes()))
    }
    fn open(&self, path: &str, flags: i32) -> Result<i32> {
        told(self.0.open(path, flags, 0o644))
    }
    fn close(&self, fd: i32) {
        self.0.close(fd).unwrap();
    }
    fn pwrite(&self, fd: i32, bytes: &[u8], at: i64) -> Result<usize> {
        told(self.0.pwrite(fd, bytes, at))
    }
    fn ftruncate(&self, fd: i32, length: i64) -> Result<()> {
        told(self.0.ftruncate(fd, length))
    }
    fn truncate(&self, path: &str, length: i64) -> Result<()> {
        told(self.0.truncate(path, length))
    }
    fn fallocate(&self, fd: i32, mode: i32, at: i64, n: i64) -> Result<()> {
        told(self.0.fallocate(fd, mode, at, n))
    }
    fn copy(&self, from: i32, to: i32, n: usize) -> Result<usize> {
        let (mut from_at, mut to_at) = (0, 0);
        told(self.0.copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), n, 0))
    }
    fn sendfile(&self, to: i32, from: i32, n: usize) -> Result<usize> {
        told(self.0.sendfile(to, from, Some(&mut 0), n))
    }
    fn chown(&self, path: &str, uid: u32, gid: u32) -> Result<()> {
        told(self.0.fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW))
    }
    fn chmod(&self, path: &str, mode: u32) -> Result<()> {
        told(self.0.chmod(path, mode))
    }
    fn mode(&self, path: &str) -> Result<u32> {
        told(self.0.lstat(path)).map(|stat| stat.st_mode)
    }
    fn make(&self, path: &str, mode: u32) {
        if mode & S_IFMT == S_IFDIR {
            self.0.mkdir(path, mode & 0o7777).unwrap();
        } else {
            self.0.mknodat(AT_FDCWD, path, mode, 0).unwrap();
        }
        self.0.chmod(path, mode & 0o7777).unwrap();
    }
    fn symlink(&self, path: &str) {
        self.0.symlinkat("nowhere", AT_FDCWD, path).unwrap();
    }
    fn as_user(&self, f: &(dyn Fn(&dyn Sys) -> Vec<String> + Sync)) -> Vec<String> {
        let user = self.0.fork().unwrap();
        user.setresgid(USER, USER, USER).unwrap();
        user.setresuid(USER, USER, USER).unwrap();
        f(&Self(user))
    }
}

/// The host. The working directory is on a tmpfs.
struct Host;

fn errno(result: i64) -> Result<usize> {
    usize::try_from(result)
        .map_err(|_| std::io::Error::last_os_error().raw_os_error().expect("a number"))
}

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

// SAFETY, all: strings end with a zero, and lengths are those of the buffers.
impl Sys for Host {
    fn set(&self, path: &str, name: &str, value: &[u8], flags: i32) -> Result<()> {
        let at = value.as_ptr().cast();
        // SAFETY: as above.
        errno(unsafe {
            libc::lsetxattr(c(path).as_ptr(), c(name).as_ptr(), at, value.len(), flags).into()
        })
        .map(drop)
    }
    fn get(&self, path: &str, name: &str, room: usize) -> Result<Vec<u8>> {
        let mut value = vec![0u8; room];
        let at = value.as_mut_ptr().cast();
        // SAFETY: as above.
        let n =
            errno(unsafe { libc::lgetxattr(c(path).as_ptr(), c(name).as_ptr(), at, room) as i64 })?;
        value.resize(n, 0);
        Ok(value)
    }
    fn remove(&self, path: &str, name: &str) -> Result<()> {
        // SAFETY: as above.
        errno(unsafe { libc::lremovexattr(c(path).as_ptr(), c(name).as_ptr()).into() }).map(drop)
    }
    fn lists(&self, path: &str, name: &str) -> Result<bool> {
        let mut names = [0u8; 1000];
        let at = names.as_mut_ptr().cast();
        // SAFETY: as above.
        let n = errno(unsafe { libc::llistxattr(c(path).as_ptr(), at, names.len()) as i64 })?;
        Ok(names[..n].split(|&byte| byte == 0).any(|listed| listed == name.as_bytes()))
    }
    fn open(&self, path: &str, flags: i32) -> Result<i32> {
        // SAFETY: as above.
        errno(unsafe { libc::open(c(path).as_ptr(), flags, 0o644).into() }).map(|fd| fd as i32)
    }
    fn close(&self, fd: i32) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::close(fd) }, 0);
    }
    fn pwrite(&self, fd: i32, bytes: &[u8], at: i64) -> Result<usize> {
        // SAFETY: as above.
        errno(unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), at) as i64 })
    }
    fn ftruncate(&self, fd: i32, length: i64) -> Result<()> {
        // SAFETY: as above.
        errno(unsafe { libc::ftruncate(fd, length).into() }).map(drop)
    }
    fn truncate(&self, path: &str, length: i64) -> Result<()> {
        // SAFETY: as above.
        errno(unsafe { libc::truncate(c(path).as_ptr(), length).into() }).map(drop)
    }
    fn fallocate(&self, fd: i32, mode: i32, at: i64, n: i64) -> Result<()> {
        // SAFETY: as above.
        errno(unsafe { libc::fallocate(fd, mode, at, n).into() }).map(drop)
    }
    fn copy(&self, from: i32, to: i32, n: usize) -> Result<usize> {
        let (mut from_at, mut to_at) = (0i64, 0i64);
        // SAFETY: as above.
        errno(unsafe {
            libc::copy_file_range(from, &raw mut from_at, to, &raw mut to_at, n, 0) as i64
        })
    }
    fn sendfile(&self, to: i32, from: i32, n: usize) -> Result<usize> {
        let mut at = 0i64;
        // SAFETY: as above.
        errno(unsafe { libc::sendfile(to, from, &raw mut at, n) as i64 })
    }
    fn chown(&self, path: &str, uid: u32, gid: u32) -> Result<()> {
        // SAFETY: as above.
        errno(unsafe { libc::lchown(c(path).as_ptr(), uid, gid).into() }).map(drop)
    }
    fn chmod(&self, path: &str, mode: u32) -> Result<()> {
        // SAFETY: as above.
        errno(unsafe { libc::chmod(c(path).as_ptr(), mode).into() }).map(drop)
    }
    fn mode(&self, path: &str) -> Result<u32> {
        // SAFETY: as above; zeroes are a `stat`.
        unsafe {
            let mut stat: libc::stat = core::mem::zeroed();
            errno(libc::lstat(c(path).as_ptr(), &raw mut stat).into()).map(|_| stat.st_mode)
        }
    }
    fn make(&self, path: &str, mode: u32) {
        // SAFETY: as above.
        let made = unsafe {
            if mode & S_IFMT == S_IFDIR {
                libc::mkdir(c(path).as_ptr(), mode & 0o7777)
            } else {
                libc::mknod(c(path).as_ptr(), mode, 0)
            }
        };
        assert_eq!((made, self.chmod(path, mode & 0o7777)), (0, Ok(())));
    }
    fn symlink(&self, path: &str) {
        std::os::unix::fs::symlink("nowhere", path).unwrap();
    }
    fn as_user(&self, f: &(dyn Fn(&dyn Sys) -> Vec<String> + Sync)) -> Vec<String> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: raw calls change this thread alone.
                unsafe {
                    assert_eq!(libc::syscall(libc::SYS_setgroups, 0, 0), 0);
                    assert_eq!(libc::syscall(libc::SYS_setresgid, USER, USER, USER), 0);
                    assert_eq!(libc::syscall(libc::SYS_setresuid, USER, USER, USER), 0);
                }
                f(&Self)
            });
            thread.join().unwrap()
        })
    }
}

/// The forms that a value can have.
fn values() -> Vec<(&'static str, Vec<u8>)> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let long: Vec<u8> = words(&[0x0200_0001, 1 << 10, 0, 0, 0, 0]);
    vec![
        ("empty", vec![]),
        ("a byte", vec![1]),
        ("20 bytes", vec![b'y'; 20]),
        ("version 1", words(&[0x0100_0001, 1 << 10, 0])),
        ("version 2", words(&[0x0200_0001, 1 << 10, 0, 0, 0])),
        ("version 2, not effective", words(&[0x0200_0000, 1 << 10, 0, 0, 0])),
        ("version 2, unknown flags", words(&[0x0200_0003, 1 << 10, 0, 0, 0])),
        ("version 2, short", words(&[0x0200_0001, 1 << 10, 0, 0])),
        ("version 2, long", long),
        ("version 2, unknown capabilities", words(&[0x0200_0001, !0, !0, !0, !0])),
        ("version 3, user 0", words(&[0x0300_0001, 1 << 10, 0, 0, 0, 0])),
        ("version 3, user 1000", words(&[0x0300_0000, 1 << 10, 0, 0, 0, 1000])),
        ("version 3, no user", words(&[0x0300_0001, 1 << 10, 0, 0, 0, !0])),
        ("version 3, short", words(&[0x0300_0001, 1 << 10, 0, 0, 0])),
        ("version 4", words(&[0x0400_0001, 1 << 10, 0, 0, 0, 0])),
    ]
}

fn valid() -> Vec<u8> {
    values().remove(4).1
}

/// What the calls come to.
#[derive(Default)]
struct Log(Vec<String>);

impl Log {
    fn add(&mut self, what: &str, result: impl Debug) {
        self.0.push(format!("{what}: {result:?}"));
    }
}

fn values_are_checked(sys: &dyn Sys, log: &mut Log) {
    sys.make("file", S_IFREG | 0o644);
    for (name, value) in values() {
        let _ = sys.remove("file", CAPABILITY);
        for flags in [XATTR_REPLACE, XATTR_CREATE, XATTR_CREATE, 0] {
            log.add(name, sys.set("file", CAPABILITY, &value, flags));
        }
        for room in [0, 4, 20, 24, 100] {
            log.add(name, sys.get("file", CAPABILITY, room));
        }
        log.add(name, sys.lists("file", CAPABILITY));
    }
    log.add("removed", sys.remove("file", CAPABILITY));
    log.add("removed", sys.remove("file", CAPABILITY));
}

/// Each change of a file, and whether the attribute is there afterwards.
fn changes_take_it_away(sys: &dyn Sys, log: &mut Log) {
    type Change = fn(&dyn Sys, i32, i32) -> Result<usize>;
    let changes: [(&str, Change); 16] = [
        ("a read-only open", |sys, _, _| {
            sys.open("f", O_RDONLY).map(|fd| sys.close(fd)).map(|()| 0)
        }),
        ("an open to write", |sys, _, _| {
            sys.open("f", O_WRONLY).map(|fd| sys.close(fd)).map(|()| 0)
        }),
        ("O_TRUNC", |sys, _, _| {
            sys.open("f", O_RDWR | O_TRUNC).map(|fd| sys.close(fd)).map(|()| 0)
        }),
        ("a write of nothing", |sys, fd, _| sys.pwrite(fd, b"", 0)),
        ("a write", |sys, fd, _| sys.pwrite(fd, b"abc", 0)),
        ("ftruncate to the same", |sys, fd, _| sys.ftruncate(fd, 3).map(|()| 0)),
        ("ftruncate", |sys, fd, _| sys.ftruncate(fd, 10).map(|()| 0)),
        ("truncate", |sys, _, _| sys.truncate("f", 2).map(|()| 0)),
        ("fallocate", |sys, fd, _| sys.fallocate(fd, 0, 0, 10).map(|()| 0)),
        ("a hole", |sys, fd, _| sys.fallocate(fd, 3, 0, 10).map(|()| 0)),
        ("copy_file_range", |sys, fd, other| sys.copy(other, fd, 2)),
        ("sendfile", |sys, fd, other| sys.sendfile(fd, other, 2)),
        ("chown to nobody", |sys, _, _| sys.chown("f", u32::MAX, u32::MAX).map(|()| 0)),
        ("chown", |sys, _, _| sys.chown("f", 5, 5).map(|()| 0)),
        ("chmod", |sys, _, _| sys.chmod("f", 0o6755).map(|()| 0)),
        ("a write to a set-id file", |sys, fd, _| {
            sys.chmod("f", 0o6755)?;
            sys.pwrite(fd, b"abc", 0)
        }),
    ];
    sys.make("f", S_IFREG | 0o644);
    sys.make("other", S_IFREG | 0o644);
    let other = sys.open("other", O_RDWR).unwrap();
    sys.pwrite(other, b"abcdef", 0).unwrap();
    let fd = sys.open("f", O_RDWR).unwrap();
    for value in [valid(), Vec::new()] {
        for (name, change) in changes {
            sys.set("f", CAPABILITY, &value, 0).unwrap();
            log.add(name, change(sys, fd, other));
            log.add(name, (sys.lists("f", CAPABILITY), sys.mode("f")));
        }
    }
    for (name, mode) in [("d", S_IFDIR | 0o755), ("p", S_IFIFO | 0o644), ("l", 0)] {
        if mode == 0 {
            sys.symlink(name)
        } else {
            sys.make(name, mode)
        }
        log.add(name, sys.set(name, CAPABILITY, &valid(), 0));
        log.add(name, sys.chown(name, 5, 5));
        log.add(name, sys.lists(name, CAPABILITY));
    }
    [fd, other].into_iter().for_each(|fd| sys.close(fd));
}

fn lists_of_access(sys: &dyn Sys, log: &mut Log) {
    const NAMES: [&str; 5] =
        [ACCESS, DEFAULT, "system.", "system.posix_acl_accessx", "system.other"];
    let header = 2u32.to_le_bytes().to_vec();
    let junk = [&header[..], &[0; 5]].concat();
    for path in ["f", "d", "p", "l", "missing"] {
        for name in NAMES {
            log.add(name, sys.get(path, name, 100));
            for value in [&[][..], b"x", b"junk", &header, &junk] {
                log.add(name, (value, sys.set(path, name, value, 0)));
            }
            log.add(name, sys.remove(path, name));
            log.add(name, sys.lists(path, name));
        }
    }
}

fn users(sys: &dyn Sys, log: &mut Log) {
    for (path, mode, owner) in
        [("own", 0o700, USER), ("locked", 0, USER), ("shared", 0o777, 0), ("closed", 0o700, 0)]
    {
        sys.make(path, S_IFREG | mode);
        sys.chown(path, owner, owner).unwrap();
        sys.set(path, CAPABILITY, &valid(), 0).unwrap();
    }
    log.0.extend(sys.as_user(&|sys| {
        let mut log = Log::default();
        for path in ["own", "locked", "shared", "closed"] {
            log.add(path, sys.get(path, CAPABILITY, 100));
            log.add(path, sys.remove(path, CAPABILITY));
            for (name, value) in values() {
                log.add(name, sys.set(path, CAPABILITY, &value, 0));
            }
            log.add(path, sys.set(path, "security.other", b"", 0));
            for name in [ACCESS, DEFAULT] {
                log.add(path, sys.get(path, name, 100));
                log.add(path, sys.set(path, name, &2u32.to_le_bytes(), 0));
                log.add(path, sys.remove(path, name));
            }
            let written = sys.open(path, O_WRONLY).map(|fd| {
                let written = sys.pwrite(fd, b"x", 0);
                sys.close(fd);
                written
            });
            log.add(path, (written, sys.lists(path, CAPABILITY)));
        }
        log.0
    }));
    // The others have lost it to an empty value.
    sys.set("shared", CAPABILITY, &valid(), 0).unwrap();
    log.0.extend(sys.as_user(&|sys| {
        let fd = sys.open("shared", O_WRONLY).unwrap();
        let written = sys.pwrite(fd, b"x", 0);
        sys.close(fd);
        vec![format!("{written:?} {:?}", sys.lists("shared", CAPABILITY))]
    }));
}

fn all(sys: &dyn Sys) -> Vec<String> {
    let mut log = Log::default();
    values_are_checked(sys, &mut log);
    changes_take_it_away(sys, &mut log);
    lists_of_access(sys, &mut log);
    users(sys, &mut log);
    log.0
}

#[test]
fn a_file_keeps_and_loses_capabilities_as_on_the_host() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default().privileged(true).root_mode(0o777)).unwrap();
    let ours = all(&Ours(p.process().unwrap()));
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return quietline_testing::skip_without_root("only root sets capabilities");
    }
    let dir = format!("/dev/shm/quietline-capability-{}", std::process::id());
    // Of a former process with the same number.
    let _ = std::fs::remove_dir_all(&dir);
    if std::fs::create_dir(&dir).is_err() {
        return quietline_testing::skip_without_root("there is no tmpfs at /dev/shm");
    }
    std::env::set_current_dir(&dir).unwrap();
    // SAFETY: sets a number, of this process alone.
    unsafe { libc::umask(0) };
    Host.chmod(&dir, 0o777).unwrap();
    let host = all(&Host);
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(ours.len() > 300 && host.len() == ours.len());
    let differences: Vec<_> = host
        .iter()
        .zip(&ours)
        .filter(|(host, ours)| host != ours)
        .map(|(h, o)| format!("host {h}\nhere {o}"))
        .collect();
    assert!(
        differences.is_empty(),
        "{} of {}:\n{}",
        differences.len(),
        ours.len(),
        differences.join("\n")
    );
}
