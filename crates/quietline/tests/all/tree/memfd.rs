//! Files in memory without a path: the same calls on the host and here.
#![allow(unsafe_code, reason = "calls of the host with arguments that no safe wrapper offers")]

use quietline::abi::*;
use quietline::inotify::IN_ALL_EVENTS;
use quietline::{Config, Errno, Kernel, MFD_CLOEXEC, MFD_EXEC, MS_BIND, MS_REMOUNT};
use quietline_testing::heap;
use quietline_vfs::MountFlags;
use std::ffi::CString;

/// Mode, whether it has a link, size, status flags and the name that `/proc` shows.
type Told = (u32, bool, i64, i32, Vec<u8>);

fn host(name: &str, flags: u32) -> Result<Told, i32> {
    let name = CString::new(name).unwrap();
    // SAFETY: the name ends with a zero; zeroes are a `stat`.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), flags);
        if fd < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
        }
        let mut stat: libc::stat = core::mem::zeroed();
        assert_eq!(libc::fstat(fd, &raw mut stat), 0);
        let shown = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        let shown = std::os::unix::ffi::OsStringExt::into_vec(shown.into_os_string());
        let status = libc::fcntl(fd, F_GETFL);
        libc::close(fd);
        Ok((stat.st_mode, stat.st_nlink != 0, stat.st_size, status, shown))
    }
}

fn ours(p: &quietline::Process, name: &str, flags: u32) -> Result<Told, i32> {
    let fd = p.memfd_create(name, flags).map_err(Errno::raw_os_error)?;
    let stat = p.fstat(fd).unwrap();
    let mut shown = [0; 4096];
    let n = p.readlink(format!("/proc/self/fd/{fd}"), &mut shown).unwrap();
    assert_eq!(p.fd_name(fd).unwrap().as_bytes(), &shown[..n]);
    let status = p.fcntl(fd, F_GETFL, 0).unwrap();
    p.close(fd).unwrap();
    Ok((stat.st_mode, stat.st_nlink != 0, stat.st_size, status, shown[..n].to_vec()))
}

#[test]
fn names_and_modes_are_those_of_the_host() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default().privileged(true).proc(true)).unwrap().process().unwrap();
    // SAFETY: sets a number, of this process alone.
    unsafe { libc::umask(0o077) };
    p.umask(0o077);
    let long = "x".repeat(249);
    let too_long = "x".repeat(250);
    for name in ["a", "", "a/b", "with a space", "a\nb", &long, &too_long] {
        for flags in [0, MFD_CLOEXEC, MFD_EXEC, 0x20, 0x8000_0000] {
            assert_eq!(ours(&p, name, flags), host(name, flags), "{name:?} {flags:#x}");
        }
    }
    // In another root, too.
    p.mkdir("/jail", 0o755).unwrap();
    let fd = p.memfd_create("a", 0).unwrap();
    p.chroot("/jail").unwrap();
    assert_eq!(p.fd_name(fd).unwrap(), "/memfd:a (deleted)");
}

#[test]
fn the_root_directory_has_no_part_in_it() {
    quietline_testing::isolated!();
    let config = Config::default().privileged(true).fs_size(8 << 12);
    let kernel = Kernel::boot(config).unwrap();
    let p = kernel.process().unwrap();
    // Files in the root directory get its group.
    p.chown("/", 7, 7).unwrap();
    p.chmod("/", 0o2555).unwrap();
    let user = p.fork().unwrap();
    user.setresgid(1000, 1000, 1000).unwrap();
    user.setresuid(1000, 1000, 1000).unwrap();
    let fd = user.memfd_create("a", 0).unwrap();
    let stat = user.fstat(fd).unwrap();
    assert_eq!((stat.st_uid, stat.st_gid, stat.st_mode), (1000, 1000, S_IFREG | 0o777));
    // It is on a mount of its own, which nothing else is on.
    user.chdir("/").unwrap();
    let link = |p: &quietline::Process, fd| p.linkat(fd, "", AT_FDCWD, "/name", AT_EMPTY_PATH);
    assert_eq!(link(&user, fd), Err(Errno::XDEV));
    let read_only = MS_REMOUNT | MS_BIND | u64::from(MountFlags::RDONLY.bits());
    p.mount("", "/", "", read_only).unwrap();
    assert_eq!(p.mkdir("/d", 0o755), Err(Errno::ROFS));
    let fd = p.memfd_create("a", 0).unwrap();
    assert_eq!(p.write(fd, &[1]), Ok(1));
}

/// Bytes of the events of an instance, apart: mask and name.
fn events(mut bytes: &[u8]) -> Vec<(u32, String)> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let (name, rest) = bytes[16..].split_at(word(12) as usize);
        let name = name.iter().copied().take_while(|byte| *byte != 0).collect();
        events.push((word(4), String::from_utf8(name).unwrap()));
        bytes = rest;
    }
    events
}

/// What a watch is told of a file of each kind that is in no directory, by name.
#[derive(Debug, PartialEq, Eq)]
struct Watched {
    memfd: Vec<(u32, String)>,
    tmpfile: Vec<(u32, String)>,
    unlinked: Vec<(u32, String)>,
    pipe: Vec<(u32, String)>,
}

/// Replaces the number in a name that has one.
fn unnumbered(events: Vec<(u32, String)>) -> Vec<(u32, String)> {
    let name = |name: String| if name.starts_with('#') { "#".into() } else { name };
    events.into_iter().map(|(mask, of)| (mask, name(of))).collect()
}

fn watched_on_the_host() -> Watched {
    let dir = std::env::temp_dir().join(format!("quietline-memfd-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let path = |name: &str| CString::new(dir.join(name).to_str().unwrap()).unwrap();
    // SAFETY: paths end with a zero; buffers are of the length that is told.
    let watched = unsafe {
        let watch = libc::inotify_init1(libc::IN_NONBLOCK);
        for path in [c"/", c"/dev/shm", &path("")] {
            libc::inotify_add_watch(watch, path.as_ptr(), IN_ALL_EVENTS);
        }
        // Other programs use these directories too.
        let told = |of: &str| {
            let mut buffer = vec![0; 1 << 16];
            let n = libc::read(watch, buffer.as_mut_ptr().cast(), buffer.len());
            let mut told = events(&buffer[..n.max(0) as usize]);
            told.retain(|(_, name)| name.starts_with(of) && !name.is_empty());
            unnumbered(told)
        };
        let used = |fd: i32| {
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            libc::write(fd, c"abc".as_ptr().cast(), 3);
            libc::ftruncate(fd, 2);
            let mut byte = 0u8;
            libc::pread(fd, (&raw mut byte).cast(), 1, 0);
            libc::fchmod(fd, 0o600);
            libc::close(fd);
        };
        used(libc::memfd_create(c"a".as_ptr(), 0));
        let memfd = told("memfd:");
        used(libc::open(path("").as_ptr(), O_TMPFILE | O_RDWR, 0o600));
        let tmpfile = told("#");
        let fd = libc::open(path("f").as_ptr(), O_CREAT | O_RDWR, 0o600);
        libc::unlink(path("f").as_ptr());
        told("");
        used(fd);
        let unlinked = told("f");
        let mut ends = [0; 2];
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        ends.into_iter().for_each(used);
        let pipe = told("pipe:");
        libc::close(watch);
        Watched { memfd, tmpfile, unlinked, pipe }
    };
    std::fs::remove_dir(&dir).unwrap();
    watched
}

fn watched_here() -> Watched {
    let config = Config::default().privileged(true).proc(true).root_mode(0o1777);
    let p = Kernel::boot(config).unwrap().process().unwrap();
    p.mkdir("/d", 0o777).unwrap();
    // Another user's, which may read these directories.
    let user = p.fork().unwrap();
    user.setresuid(1000, 1000, 1000).unwrap();
    let watch = user.inotify_init1(O_NONBLOCK).unwrap();
    for path in ["/", "/d", "/proc", "/sys"] {
        user.inotify_add_watch(watch, path, IN_ALL_EVENTS).unwrap();
    }
    let told = || {
        let mut buffer = vec![0; 1 << 16];
        let n = match user.read(watch, &mut buffer) {
            Err(Errno::AGAIN) => 0,
            n => n.unwrap(),
        };
        unnumbered(events(&buffer[..n]))
    };
    let used = |fd: i32| {
        let _ = p.write(fd, b"abc");
        let _ = p.ftruncate(fd, 2);
        let _ = p.pread(fd, &mut [0], 0);
        p.fchmod(fd, 0o600).unwrap();
        p.close(fd).unwrap();
    };
    let fd = p.memfd_create("a", 0).unwrap();
    used(fd);
    let memfd = told();
    used(p.open("/d", O_TMPFILE | O_RDWR, 0o600).unwrap());
    let tmpfile = told();
    let fd = p.open("/d/f", O_CREAT | O_RDWR, 0o600).unwrap();
    p.unlink("/d/f").unwrap();
    told();
    used(fd);
    let unlinked = told();
    p.pipe2(0).unwrap().into_iter().for_each(used);
    let pipe = told();
    Watched { memfd, tmpfile, unlinked, pipe }
}

/// No directory has these files, so a watch on a directory, another user's even, is told neither
/// their names nor what is done with them. Files that had a name in a directory, or were made in
/// one without a name, are told there, as on the host.
#[test]
fn no_watch_on_a_directory_is_told_of_them() {
    quietline_testing::isolated!();
    let (ours, host) = (watched_here(), watched_on_the_host());
    assert_eq!(ours, host);
    assert_eq!((ours.memfd, ours.pipe), (vec![], vec![]));
    assert!(ours.tmpfile.len() > 3 && ours.unlinked.len() > 2, "the watch is told of others");
}

/// They are in a filesystem of their own, which is mounted nowhere, as on the host.
#[test]
fn they_have_a_filesystem_of_their_own() {
    quietline_testing::isolated!();
    let config = Config::default().privileged(true).proc(true);
    let kernel = Kernel::boot(config.clone()).unwrap();
    let p = kernel.process().unwrap();
    let fd = p.memfd_create("a", 0).unwrap();
    p.write(fd, &[1; 3 << 12]).unwrap();
    let ours = p.fstatfs(fd).unwrap();
    // SAFETY: the name ends with a zero; zeroes are a `statfs`.
    let host = unsafe {
        let fd = libc::memfd_create(c"a".as_ptr(), 0);
        let mut statfs: libc::statfs = core::mem::zeroed();
        assert_eq!(libc::fstatfs(fd, &raw mut statfs), 0);
        libc::close(fd);
        statfs
    };
    assert_eq!(
        (ours.f_type, ours.f_bsize, ours.f_frsize, ours.f_namelen),
        (host.f_type, host.f_bsize, host.f_frsize, host.f_namelen)
    );
    assert_eq!(
        [ours.f_blocks, ours.f_bfree, ours.f_bavail, ours.f_files, ours.f_ffree],
        [host.f_blocks, host.f_bfree, host.f_bavail, host.f_files, host.f_ffree]
    );
    assert_eq!(ours.f_flags, ST_VALID, "no flag of a mount");
    let dev = p.fstat(fd).unwrap().st_dev;
    let [pipe, _] = p.pipe2(0).unwrap();
    let others = ["/", "/proc", "/sys"].map(|path| p.stat(path).unwrap().st_dev);
    assert!(!others.contains(&dev) && p.fstat(pipe).unwrap().st_dev != dev, "{dev} {others:?}");
    p.mkdir("/d", 0o755).unwrap();
    p.mount("", "/d", "tmpfs", 0).unwrap();
    assert_ne!(p.stat("/d").unwrap().st_dev, dev);
    // No copy in the kernel from one filesystem to another.
    let file = p.open("/f", O_CREAT | O_RDWR, 0o644).unwrap();
    assert_eq!(p.copy_file_range(fd, Some(&mut 0), file, None, 1, 0), Err(Errno::XDEV));
    let other = p.memfd_create("b", 0).unwrap();
    assert_eq!(p.copy_file_range(fd, Some(&mut 0), other, None, 1, 0), Ok(1));
    // No mount is listed.
    let mut mounts = vec![0; 4096];
    let list = p.open("/proc/self/mounts", O_RDONLY, 0).unwrap();
    let n = p.read(list, &mut mounts).unwrap();
    let mounts = String::from_utf8_lossy(&mounts[..n]).into_owned();
    assert_eq!(mounts.lines().count(), 4, "{mounts}");
    // Their root is in no number.
    let fresh = Kernel::boot(Config::default()).unwrap();
    assert_eq!((fresh.nr_dentry(), fresh.nr_inodes()), (0, 0));
}

/// The limits of the root filesystem are those of files in memory too, each filesystem by itself.
#[test]
fn limits_are_those_of_the_root_filesystem() {
    quietline_testing::isolated!();
    const PAGES: usize = 8;
    let config = Config::default().privileged(true).fs_size((PAGES as u64) << 12).fs_inodes(5);
    let p = Kernel::boot(config).unwrap().process().unwrap();
    let before = p.statfs("/").unwrap();
    let fd = p.memfd_create("a", 0).unwrap();
    let other = p.memfd_create("b", 0).unwrap();
    assert_eq!(p.write(fd, &[1; 5 << 12]), Ok(5 << 12));
    assert_eq!(p.write(other, &[1; 5 << 12]), Ok(3 << 12), "together as much as the root");
    assert_eq!(p.write(other, &[1]), Err(Errno::NOSPC));
    let full = p.fstatfs(fd).unwrap();
    assert_eq!((full.f_blocks, full.f_bfree), (PAGES as u64, 0));
    assert_eq!(p.statfs("/").unwrap(), before, "the root filesystem has as much room as before");
    let file = p.open("/f", O_CREAT | O_RDWR, 0o644).unwrap();
    assert_eq!(p.write(file, &[1; (PAGES + 1) << 12]), Ok(PAGES << 12));
    let more: Vec<_> = (0..3).map(|_| p.memfd_create("c", 0)).collect();
    assert!(more[..2].iter().all(Result::is_ok) && more[2] == Err(Errno::NOSPC), "{more:?}");
    p.mkdir("/d", 0o755).unwrap();
    // What a file had is free when it is closed.
    p.close(fd).unwrap();
    assert_eq!(p.write(other, &[1; 6 << 12]), Ok(5 << 12));
    p.memfd_create("d", 0).unwrap();
}

/// All files in memory are on one mount, on the host and here.
#[test]
fn all_are_on_one_mount() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    let ours = [(); 2].map(|()| {
        let fd = p.memfd_create("a", 0).unwrap();
        p.statx(fd, "", AT_EMPTY_PATH, 0x1000).unwrap().stx_mnt_id
    });
    // SAFETY: the name ends with a zero; zeroes are a `statx`.
    let theirs = [(); 2].map(|()| unsafe {
        let fd = libc::memfd_create(c"a".as_ptr(), 0);
        let mut statx: libc::statx = core::mem::zeroed();
        let (path, to) = (c"".as_ptr(), &raw mut statx);
        assert_eq!(libc::statx(fd, path, AT_EMPTY_PATH, libc::STATX_MNT_ID, to), 0);
        statx.stx_mnt_id
    });
    assert_eq!(theirs[0], theirs[1]);
    assert_eq!(ours[0], ours[1]);
}

/// A file in memory ends completely in a thread to which the host refuses `membarrier`. Its memory
/// is free when another thread has ended a grace period.
#[test]
fn nothing_is_left_where_membarrier_is_refused() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    heap::start();
    let turn = |n: usize| {
        let refused = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let refused = quietline_testing::refuse_membarrier();
                for _ in 0..n {
                    let fd = p.memfd_create("a", 0).unwrap();
                    p.close(fd).unwrap();
                }
                refused
            });
            thread.join().unwrap()
        });
        p.kernel().shrink();
        refused.then(heap::bytes)
    };
    turn(300);
    let (Some(few), Some(many)) = (turn(1), turn(300)) else {
        return println!("skipped: no system call can be refused");
    };
    // Threads leave some bytes of their own.
    assert!(many < few + 300 * 32, "{few} bytes, and {many} after 300 files");
}
