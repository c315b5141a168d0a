//! Names and paths at their limits and past them, and bytes that no name can have.

use crate::support::{alone, pages_used};
use quietline::abi::*;
use quietline::inotify::IN_CREATE;
use quietline::{Config, Errno, Kernel, MFD_CLOEXEC, MS_BIND, OpenHow, Process};

fn root() -> Process {
    Kernel::boot(Config::default().privileged(true)).unwrap().process().unwrap()
}

/// A path with a zero byte in it, wherever it is, is refused by every call that takes one, and makes nothing.
#[test]
fn a_zero_byte_is_in_no_name() {
    quietline_testing::isolated!();
    let _alone = alone();
    let p = root();
    p.mkdir("/d", 0o755).unwrap();
    let fd = p.open("/d/f", O_CREAT | O_RDWR, 0o644).unwrap();
    let watches = p.inotify_init1(O_NONBLOCK).unwrap();
    let before = p.kernel().nr_dentry();
    let long = [&[b'x'; 300][..], b"\0"].concat();
    for bad in [
        &b"\0"[..],
        b"/\0",
        b"/d/f\0",
        b"/d/\0f",
        b"d\0/f",
        b"/d/a name of more than twenty bytes\0",
        &long,
    ] {
        let mut times = vec![];
        let mut refused = |what: &str, result: Result<(), Errno>| {
            assert_eq!(result, Err(Errno::INVAL), "{what} {bad:?}");
            times.push(what.to_owned());
        };
        refused("open", p.open(bad, O_RDONLY, 0).map(drop));
        refused("open, making", p.open(bad, O_CREAT | O_RDWR, 0o600).map(drop));
        refused("openat2", p.openat2(AT_FDCWD, bad, &OpenHow::default()).map(drop));
        refused("creat", p.creat(bad, 0o600).map(drop));
        refused("mkdir", p.mkdir(bad, 0o700));
        refused("mknod", p.mknod(bad, S_IFREG | 0o600, 0));
        refused("symlink", p.symlink("to", bad));
        refused("symlink's body", p.symlink(bad, "/body"));
        refused("link from", p.link(bad, "/new"));
        refused("link to", p.link("/d/f", bad));
        refused("unlink", p.unlink(bad));
        refused("rmdir", p.rmdir(bad));
        refused("rename from", p.rename(bad, "/new"));
        refused("rename to", p.rename("/d/f", bad));
        refused("exchange", p.renameat2(AT_FDCWD, "/d/f", AT_FDCWD, bad, RENAME_EXCHANGE));
        refused("stat", p.stat(bad).map(drop));
        refused("lstat", p.lstat(bad).map(drop));
        refused("fstatat", p.fstatat(AT_FDCWD, bad, AT_EMPTY_PATH).map(drop));
        refused("statx", p.statx(AT_FDCWD, bad, 0, 0x7ff).map(drop));
        refused("statfs", p.statfs(bad).map(drop));
        refused("access", p.access(bad, 0));
        refused("readlink", p.readlink(bad, &mut [0; 10]).map(drop));
        refused("chmod", p.chmod(bad, 0o700));
        refused("chown", p.chown(bad, 0, 0));
        refused("lchown", p.lchown(bad, 0, 0));
        refused("utimensat", p.utimensat(AT_FDCWD, Some(bad), None, 0));
        refused("truncate", p.truncate(bad, 0));
        refused("chdir", p.chdir(bad));
        refused("chroot", p.chroot(bad));
        refused("setxattr", p.setxattr(bad, "user.a", b"", 0));
        refused("getxattr", p.getxattr(bad, "user.a", &mut []).map(drop));
        refused("listxattr", p.listxattr(bad, &mut []).map(drop));
        refused("removexattr", p.removexattr(bad, "user.a"));
        refused("inotify_add_watch", p.inotify_add_watch(watches, bad, IN_CREATE).map(drop));
        refused("mount", p.mount("", bad, "tmpfs", 0));
        refused("bind", p.mount(bad, "/d", "", MS_BIND));
        refused("umount", p.umount2(bad, 0));
        assert_eq!(times.len(), 37);
    }
    for bad in [&b"user.\0"[..], b"user.a\0", b"user.a\0b", b"\0user.a"] {
        assert_eq!(p.setxattr("/d/f", bad, b"value", 0), Err(Errno::INVAL), "{bad:?}");
        assert_eq!(p.fsetxattr(fd, bad, b"value", 0), Err(Errno::INVAL), "{bad:?}");
        assert_eq!(p.getxattr("/d/f", bad, &mut []), Err(Errno::INVAL), "{bad:?}");
        assert_eq!(p.removexattr("/d/f", bad), Err(Errno::INVAL), "{bad:?}");
    }
    assert_eq!(p.memfd_create(b"a\0b", MFD_CLOEXEC), Err(Errno::INVAL));
    assert_eq!(p.listxattr("/d/f", &mut []), Ok(0));
    assert_eq!(p.kernel().nr_dentry(), before, "nothing was made");
}

#[test]
fn names_and_paths_have_a_length() {
    quietline_testing::isolated!();
    let _alone = alone();
    let p = root();
    let longest = "n".repeat(NAME_MAX);
    p.mkdir(&longest, 0o755).unwrap();
    assert_eq!(p.mkdir("n".repeat(NAME_MAX + 1), 0o755), Err(Errno::NAMETOOLONG));
    assert_eq!(p.stat("n".repeat(NAME_MAX + 1)).map(drop), Err(Errno::NAMETOOLONG));
    let file = format!("{longest}/{longest}");
    p.close(p.creat(&file, 0o644).unwrap()).unwrap();
    p.rename(&file, format!("{longest}/{}m", "n".repeat(NAME_MAX - 1))).unwrap();
    assert_eq!(p.rename(&longest, "n".repeat(NAME_MAX + 1)), Err(Errno::NAMETOOLONG));
    // A path with its zero has 4,096 bytes.
    let path = |len: usize| format!("{}{longest}", "/".repeat(len - longest.len()));
    assert!(p.stat(path(PATH_MAX - 1)).is_ok());
    assert_eq!(p.stat(path(PATH_MAX)).map(drop), Err(Errno::NAMETOOLONG));
    p.symlink("t".repeat(PATH_MAX - 1), "/link").unwrap();
    assert_eq!(p.symlink("t".repeat(PATH_MAX), "/other"), Err(Errno::NAMETOOLONG));
    assert_eq!(p.readlink("/link", &mut [0; PATH_MAX]), Ok(PATH_MAX - 1));
}

#[test]
fn forty_links_and_no_more() {
    quietline_testing::isolated!();
    let _alone = alone();
    let p = root();
    p.mkdir("/end", 0o755).unwrap();
    p.symlink("/end", "/l1").unwrap();
    for n in 2..=41 {
        p.symlink(format!("/l{}", n - 1), format!("/l{n}")).unwrap();
    }
    assert_eq!(p.stat("/l40").unwrap().st_ino, p.stat("/end").unwrap().st_ino);
    assert_eq!(p.stat("/l41").map(drop), Err(Errno::LOOP));
    assert_eq!(p.mkdir("/l40/in", 0o755), Ok(()));
    assert_eq!(p.mkdir("/l41/in", 0o755), Err(Errno::LOOP));
    // One beside the other in a path count, too.
    p.symlink("/", "/root").unwrap();
    assert!(p.stat("/root".repeat(40)).is_ok());
    assert_eq!(p.stat("/root".repeat(41)).map(drop), Err(Errno::LOOP));
    p.symlink("/self", "/self").unwrap();
    assert_eq!(p.stat("/self").map(drop), Err(Errno::LOOP));
}

/// A tree 4,000 deep: made, walked, told, moved and taken down.
#[test]
fn a_tree_4000_deep() {
    quietline_testing::isolated!();
    let _alone = alone();
    const DEEP: usize = 4000;
    let p = root();
    p.mkdir("/top", 0o755).unwrap();
    p.chdir("/top").unwrap();
    for _ in 0..DEEP {
        p.mkdir("d", 0o755).unwrap();
        p.chdir("d").unwrap();
    }
    assert_eq!(p.getcwd().map(drop), Err(Errno::NAMETOOLONG), "8,004 bytes");
    let here = p.open(".", O_PATH, 0).unwrap();
    // As far down as one path leads, and up again.
    p.chdir("/top").unwrap();
    p.chdir("d/".repeat(2000)).unwrap();
    assert_eq!(p.getcwd().unwrap().len(), 4 + 2 * 2000);
    assert_eq!(p.rename("/top", "/top/d/d/into"), Err(Errno::INVAL), "into itself");
    p.rename("/top", "/moved").unwrap();
    assert!(p.getcwd().unwrap().starts_with(b"/moved/d/d"));
    p.fchdir(here).unwrap();
    p.close(here).unwrap();
    for _ in 0..DEEP {
        p.chdir("..").unwrap();
        p.rmdir("d").unwrap();
    }
    assert_eq!(p.getcwd().unwrap(), b"/moved");
    assert_eq!(p.kernel().nr_dentry(), 1);
}

/// A directory with a million names: each is found, each is listed once, all go, and so does their memory.
#[test]
fn a_million_names_in_a_directory() {
    quietline_testing::isolated!();
    let _alone = alone();
    let names = if cfg!(debug_assertions) { quietline_testing::scaled(200_000) } else { 1_000_000 };
    let names = names as usize;
    let before = pages_used();
    let p = root();
    p.mkdir("/d", 0o755).unwrap();
    let dir = p.open("/d", O_RDONLY | O_DIRECTORY, 0).unwrap();
    p.mknodat(dir, "0", S_IFREG | 0o600, 0).unwrap();
    for n in 1..names {
        p.linkat(dir, "0", dir, n.to_string(), 0).unwrap();
    }
    assert_eq!(p.stat("/d/0").unwrap().st_nlink, names as u64);
    for n in (0..names).step_by(97) {
        assert!(p.fstatat(dir, n.to_string(), 0).is_ok(), "{n}");
        assert_eq!(p.fstatat(dir, format!("{n}x"), 0).map(drop), Err(Errno::NOENT));
    }
    let mut seen = vec![false; names];
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = p.getdents64(dir, &mut buffer).unwrap();
        if n == 0 {
            break;
        }
        for entry in quietline::dirents(&buffer[..n]).filter(|entry| entry.name[0] != b'.') {
            let number: usize = std::str::from_utf8(entry.name).unwrap().parse().unwrap();
            assert!(!std::mem::replace(&mut seen[number], true), "{number} is listed twice");
        }
    }
    assert!(seen.iter().all(|seen| *seen));
    assert_eq!(p.rmdir("/d"), Err(Errno::NOTEMPTY));
    for n in 0..names {
        p.unlinkat(dir, n.to_string(), 0).unwrap();
    }
    p.close(dir).unwrap();
    p.rmdir("/d").unwrap();
    assert_eq!((p.kernel().nr_dentry(), p.kernel().nr_inodes()), (0, 0));
    p.kernel().shrink();
    let left = pages_used().saturating_sub(before);
    assert!(left < 1 << 20, "{left} bytes are left of a million names");
    drop(p);
    assert_eq!(pages_used(), before);
}

/// Room for files and bytes: the last one fits, one more does not, and what goes makes room.
#[test]
fn room_ends_where_it_says() {
    quietline_testing::isolated!();
    let _alone = alone();
    let config = Config::default().privileged(true).fs_size(8 << 12).fs_inodes(4);
    let p = Kernel::boot(config).unwrap().process().unwrap();
    let fd = p.open("/a", O_CREAT | O_RDWR, 0o600).unwrap();
    p.mkdir("/b", 0o700).unwrap();
    p.symlink("x", "/c").unwrap();
    assert_eq!(p.mkdir("/d", 0o700), Err(Errno::NOSPC), "the root, and three more");
    assert_eq!(p.mknod("/d", S_IFIFO, 0), Err(Errno::NOSPC));
    p.unlink("/c").unwrap();
    p.mkdir("/d", 0o700).unwrap();
    assert_eq!(p.fallocate(fd, 0, 0, 9 << 12), Err(Errno::NOSPC));
    assert_eq!(p.statfs("/").unwrap().f_bfree, 8, "all or none");
    assert_eq!(p.fallocate(fd, 0, 0, 8 << 12), Ok(()));
    assert_eq!(p.pwrite(fd, b"x", 8 << 12), Err(Errno::NOSPC));
    assert_eq!(
        p.pwrite(fd, &[1; 10_000], (8 << 12) - 5_000),
        Ok(5_000),
        "as much as there is room for"
    );
    assert_eq!(p.ftruncate(fd, i64::MAX), Ok(()));
    assert_eq!(p.pwrite(fd, b"x", i64::MAX - 4096).map(drop), Err(Errno::NOSPC));
    p.ftruncate(fd, 4096).unwrap();
    assert_eq!(p.statfs("/").unwrap().f_bfree, 7);
}

/// In debug builds numbers begin a little below 2^32, so that this is about those beyond.
#[test]
fn inode_numbers_have_64_bits() {
    quietline_testing::isolated!();
    let _alone = alone();
    let p = root();
    let mut last = 0;
    let mut numbers = std::collections::BTreeSet::new();
    for _ in 0..10_000 {
        p.mknod("/f", S_IFREG | 0o600, 0).unwrap();
        last = p.stat("/f").unwrap().st_ino;
        assert!(numbers.insert(last), "{last} came again");
        let statx = p.statx(AT_FDCWD, "/f", 0, 0x7ff).unwrap();
        assert_eq!(statx.stat.st_ino, last);
        p.unlink("/f").unwrap();
    }
    if cfg!(debug_assertions) {
        assert!(last > u64::from(u32::MAX), "{last}");
    }
}
