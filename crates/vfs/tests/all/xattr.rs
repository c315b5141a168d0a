//! Extended attributes beside the host's tmpfs.

use quietline_platform::fault;
use quietline_vfs::ramfs::xattr::{self, Asker, Budget, Name, Namespace, SIZE_MAX, Target, Xattrs};
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::os::fd::OwnedFd;

struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

struct Limit {
    used: Cell<u64>,
    max: u64,
}

impl Limit {
    fn new(max: u64) -> Self {
        Self { used: Cell::new(0), max }
    }
}

impl Budget for Limit {
    fn charge(&self, bytes: u64) -> bool {
        let fits = self.used.get() + bytes <= self.max;
        if fits {
            self.used.set(self.used.get() + bytes);
        }
        fits
    }

    fn uncharge(&self, bytes: u64) {
        assert!(bytes <= self.used.get(), "more is given back than was taken");
        self.used.set(self.used.get() - bytes);
    }
}

const ROOT: Asker = Asker { admin: true, owner: true };

/// As the system call does it.
fn set(
    on: &mut Xattrs,
    budget: &impl Budget,
    name: &[u8],
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    xattr::check_set(&[], flags)?;
    if name.is_empty() || name.len() > xattr::NAME_MAX {
        return Err(Errno::RANGE);
    }
    xattr::check_set(value, flags)?;
    let name = Name::new(name)?;
    name.check_write(ROOT, Target::File)?;
    on.set(budget, name, value, flags)
}

fn get(on: &Xattrs, name: &[u8], to: &mut [u8]) -> Result<usize, Errno> {
    let name = Name::new(name)?;
    name.check_read(ROOT, Target::File)?;
    on.get(name, to)
}

/// A file on a tmpfs of the host's; none without the right to set all sorts of attributes there.
fn host_file() -> Option<OwnedFd> {
    let file = rustix::fs::memfd_create("xattr", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let may = |name: &str| rustix::fs::fsetxattr(&file, name, b"1", XattrFlags::empty()).is_ok();
    let all = may("user.a") && may("trusted.a") && may("security.a");
    for name in ["user.a", "trusted.a", "security.a"] {
        let _ = rustix::fs::fremovexattr(&file, name);
    }
    all.then_some(file)
}

fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for prefix in ["user.", "trusted.", "security.", "system.", "os2.", ""] {
        for rest in ["", "a", "b", "a.b", "Z", "\u{e9}", "selinux2", "aa"] {
            names.push(format!("{prefix}{rest}").into_bytes());
        }
    }
    for n in [255, 256, 300] {
        names.push([b"user.".to_vec(), vec![b'x'; n - 5]].concat());
    }
    names
}

#[test]
fn like_the_host() {
    quietline_testing::isolated!();
    let Some(host) = host_file() else {
        eprintln!("skipped: no tmpfs here on which all sorts of attributes may be set");
        return;
    };
    let (mut ours, limit, names) = (Xattrs::new(), Limit::new(u64::MAX), names());
    let mut random = Sequence(11);
    let mut done = [0; 4];
    for call in 0..60_000 {
        let name = &names[random.below(names.len())];
        let sizes = [0, 1, 10, 100, 4096, SIZE_MAX, SIZE_MAX + 1];
        let size = sizes[random.below(if call % 50 == 0 { 7 } else { 4 })];
        let what = random.below(10);
        match what {
            0..4 => {
                let value: Vec<u8> = (0..size).map(|i| (i + call) as u8).collect();
                let flags = [0, 0, 1, 2, 3, 4][random.below(6)];
                let got = set(&mut ours, &limit, name, &value, flags);
                let there = rustix::fs::fsetxattr(
                    &host,
                    &**name,
                    &value,
                    XattrFlags::from_bits_retain(flags as u32),
                );
                assert_eq!(got, there, "set {name:?} to {size} bytes, flags {flags}");
                done[0] += usize::from(got.is_ok());
            }
            4..6 => {
                let (mut a, mut b) = (vec![7; size], vec![7; size]);
                let got = get(&ours, name, &mut a);
                let there = match size {
                    0 => rustix::fs::fgetxattr_query(&host, &**name),
                    _ => rustix::fs::fgetxattr(&host, &**name, &mut b[..]),
                };
                assert_eq!(got, there, "get {name:?}, {size}");
                assert_eq!(a, b, "value of {name:?}");
                done[1] += usize::from(got.is_ok());
            }
            6 => {
                let got = Name::new(name).and_then(|name| ours.remove(&limit, name));
                assert_eq!(got, rustix::fs::fremovexattr(&host, &**name), "remove {name:?}");
                done[2] += usize::from(got.is_ok());
            }
            _ => {
                let (mut a, mut b) = (vec![7; size], vec![7; size]);
                let got = ours.list(true, &mut a);
                let there = match size {
                    0 => rustix::fs::flistxattr_query(&host),
                    _ => rustix::fs::flistxattr(&host, &mut b[..]),
                };
                assert_eq!(got, there, "list into {size}");
                assert_eq!(a, b, "list");
                done[3] += usize::from(got.is_ok());
            }
        }
    }
    assert!(done.iter().all(|done| *done > 500), "successes: {done:?}");
    ours.clear(&limit);
    assert_eq!(limit.used.get(), 0);
}

/// As many attributes of a size go in as into a tmpfs with as much room.
#[test]
fn the_budget_is_that_of_tmpfs() {
    quietline_testing::isolated!();
    let at = std::env::temp_dir().join(format!("xattr-{}", std::process::id()));
    std::fs::create_dir_all(&at).unwrap();
    // A thread of its own, whose mounts nobody else sees.
    let counted = std::thread::scope(|s| s.spawn(|| count_on_host(&at)).join().unwrap());
    std::fs::remove_dir(&at).unwrap();
    let Ok(counted) = counted else {
        eprintln!("skipped: a tmpfs cannot be mounted here");
        return;
    };
    for (size, there) in counted {
        // 8 inodes of 1 KiB, less the root and the file.
        let (mut ours, limit) = (Xattrs::new(), Limit::new(6 * 1024));
        let fits = (0..)
            .take_while(|i| set(&mut ours, &limit, &nth(*i), &vec![1; size], 0).is_ok())
            .count();
        assert_eq!(fits, there, "attributes of {size} bytes");
        assert_eq!(set(&mut ours, &limit, &nth(fits), &vec![1; size], 0), Err(Errno::NOSPC));
        // There is no room for old and new at once.
        assert_eq!(set(&mut ours, &limit, &nth(0), &vec![2; size], 0), Err(Errno::NOSPC));
        assert_eq!(ours.remove(&limit, Name::new(&nth(0)).unwrap()), Ok(()));
        assert_eq!(set(&mut ours, &limit, &nth(fits), &vec![1; size], 0), Ok(()));
        ours.clear(&limit);
        assert_eq!(limit.used.get(), 0);
    }
}

fn nth(i: usize) -> Vec<u8> {
    format!("user.{i:05}").into_bytes()
}

#[allow(unsafe_code)]
fn count_on_host(at: &std::path::Path) -> Result<Vec<(usize, usize)>, Errno> {
    use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
    // SAFETY: only this thread's view of the mounts, its root and its working directory becomes its own.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let mut counted = Vec::new();
    for size in [0, 1, 100, 1000] {
        rustix::mount::mount("none", at, "tmpfs", MountFlags::empty(), c"nr_inodes=8")?;
        let file = rustix::fs::open(at.join("f"), OFlags::CREATE | OFlags::RDWR, Mode::RUSR)?;
        let mut n = 0;
        while rustix::fs::fsetxattr(&file, &*nth(n), &vec![1; size], XattrFlags::empty()).is_ok() {
            n += 1;
        }
        counted.push((size, n));
        drop(file);
        rustix::mount::unmount(at, UnmountFlags::empty())?;
    }
    Ok(counted)
}

#[test]
fn who_may() {
    quietline_testing::isolated!();
    let name = |bytes: &'static [u8]| Name::new(bytes).unwrap();
    let nobody = Asker::default();
    let owner = Asker { owner: true, ..nobody };
    let (file, sticky) = (Target::File, Target::Directory { sticky: true });
    let plain = Target::Directory { sticky: false };
    let user = name(b"user.a");
    assert!(user.asks_mode() && user.namespace() == Namespace::User);
    for target in [file, plain, sticky] {
        assert_eq!(user.check_read(nobody, target), Ok(()));
        assert_eq!(user.check_write(owner, target), Ok(()));
    }
    assert_eq!(user.check_write(nobody, plain), Ok(()));
    assert_eq!(user.check_write(nobody, sticky), Err(Errno::PERM));
    assert_eq!(user.check_write(ROOT, Target::Other), Err(Errno::PERM));
    assert_eq!(user.check_read(ROOT, Target::Other), Err(Errno::NODATA));
    let trusted = name(b"trusted.a");
    assert!(!trusted.asks_mode());
    assert_eq!(trusted.check_read(owner, file), Err(Errno::NODATA));
    assert_eq!(trusted.check_write(owner, file), Err(Errno::PERM));
    assert_eq!(
        (trusted.check_read(ROOT, file), trusted.check_write(ROOT, Target::Other)),
        (Ok(()), Ok(()))
    );
    let security = name(b"security.a");
    assert_eq!(security.check_read(nobody, file), Ok(()));
    assert_eq!(security.check_write(owner, file), Err(Errno::PERM));
    assert_eq!(security.check_write(ROOT, file), Ok(()));
}

#[test]
fn trusted_names_are_not_shown() {
    quietline_testing::isolated!();
    let mut ours = Xattrs::new();
    for name in [&b"user.b"[..], b"trusted.x", b"security.c", b"user.a"] {
        set(&mut ours, &(), name, b"v", 0).unwrap();
    }
    let mut names = [0; 64];
    let n = ours.list(false, &mut names).unwrap();
    assert_eq!(&names[..n], b"user.b\0user.a\0security.c\0");
    assert_eq!(ours.list(false, &mut []), Ok(n));
    assert_eq!(ours.list(true, &mut []), Ok(n + 10));
    assert_eq!(ours.list(false, &mut names[..n - 1]), Err(Errno::RANGE));
}

/// Every allocation fails once: nothing is changed then.
#[test]
fn memory_runs_out() {
    quietline_testing::isolated!();
    let mut failures = 0;
    for nth in 1.. {
        let (mut ours, limit) = (Xattrs::new(), Limit::new(u64::MAX));
        let mut expect = Vec::new();
        fault::fail_nth(nth);
        for (name, value) in [("user.b", "1"), ("user.a", "22"), ("user.b", "333"), ("user.c", "")]
        {
            match set(&mut ours, &limit, name.as_bytes(), value.as_bytes(), 0) {
                Ok(()) => {
                    expect.retain(|(there, _)| *there != name);
                    expect.push((name, value));
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::NOMEM);
                    failures += 1;
                }
            }
        }
        let fired = !fault::armed();
        fault::fail_nth(0);
        for (name, value) in &expect {
            let mut to = [0; 8];
            assert_eq!(get(&ours, name.as_bytes(), &mut to), Ok(value.len()));
            assert_eq!(&to[..value.len()], value.as_bytes());
        }
        assert_eq!(ours.list(true, &mut []), Ok(7 * expect.len()));
        ours.clear(&limit);
        assert_eq!((limit.used.get(), ours.is_empty()), (0, true));
        if !fired {
            assert!(failures >= 7, "memory ran out {failures} times");
            return;
        }
    }
}
