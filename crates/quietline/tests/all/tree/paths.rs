//! The calls that take paths: what they do, and what they say when they do not.

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process, dirents};

fn root() -> Process {
    Kernel::boot(Config::default().privileged(true)).unwrap().process().unwrap()
}

fn user() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

fn file(p: &Process, path: &str, content: &[u8]) {
    let fd = p.open(path, O_CREAT | O_EXCL | O_WRONLY, 0o644).unwrap();
    assert_eq!(p.write(fd, content), Ok(content.len()));
    p.close(fd).unwrap();
}

fn content(p: &Process, path: &str) -> Vec<u8> {
    let fd = p.open(path, O_RDONLY, 0).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let n = p.read(fd, &mut buffer).unwrap();
    p.close(fd).unwrap();
    buffer.truncate(n);
    buffer
}

fn names(p: &Process, path: &str) -> Vec<String> {
    let fd = p.open(path, O_RDONLY | O_DIRECTORY, 0).unwrap();
    let (mut names, mut buffer) = (Vec::new(), [0; 200]);
    loop {
        let n = p.getdents64(fd, &mut buffer).unwrap();
        if n == 0 {
            break;
        }
        names.extend(
            dirents(&buffer[..n]).map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()),
        );
    }
    p.close(fd).unwrap();
    names.sort();
    names
}

#[test]
fn a_file_from_its_making_to_its_end() {
    let p = root();
    p.mkdir("/tmp", 0o1777).unwrap();
    file(&p, "/tmp/a", b"hello");
    let stat = p.stat("/tmp/a").unwrap();
    assert_eq!(
        (stat.st_mode, stat.st_size, stat.st_nlink, stat.st_blocks),
        (S_IFREG | 0o644, 5, 1, 8)
    );
    assert_eq!(content(&p, "/tmp/a"), b"hello");
    p.link("/tmp/a", "/tmp/b").unwrap();
    assert_eq!(p.stat("/tmp/b").unwrap().st_ino, stat.st_ino);
    assert_eq!(p.stat("/tmp/b").unwrap().st_nlink, 2);
    p.rename("/tmp/a", "/tmp/c").unwrap();
    assert_eq!(p.stat("/tmp/a"), Err(Errno::NOENT));
    assert_eq!(names(&p, "/tmp"), [".", "..", "b", "c"]);
    p.unlink("/tmp/b").unwrap();
    assert_eq!(p.rmdir("/tmp"), Err(Errno::NOTEMPTY));
    let fd = p.open("/tmp/c", O_RDWR, 0).unwrap();
    p.unlink("/tmp/c").unwrap();
    assert_eq!(p.pwrite(fd, b"after", 5), Ok(5));
    let mut buffer = [0; 20];
    assert_eq!(p.pread(fd, &mut buffer, 0), Ok(10));
    assert_eq!(&buffer[..10], b"helloafter");
    assert_eq!(p.fstat(fd).unwrap().st_nlink, 0);
    p.close(fd).unwrap();
    p.rmdir("/tmp").unwrap();
    assert_eq!(names(&p, "/"), [".", ".."]);
    assert_eq!((p.kernel().nr_dentry(), p.kernel().nr_inodes(), p.kernel().nr_files()), (0, 0, 0));
}

#[test]
fn directories_count_their_links() {
    let p = root();
    let links = |path: &str| p.stat(path).unwrap().st_nlink;
    assert_eq!(links("/"), 2);
    p.mkdir("a", 0o755).unwrap();
    p.mkdir("a/b", 0o755).unwrap();
    p.mkdir("c", 0o755).unwrap();
    assert_eq!((links("/"), links("/a"), links("/a/b")), (4, 3, 2));
    assert_eq!(p.rename("a", "a/b/x"), Err(Errno::INVAL), "into itself");
    assert_eq!(p.rename("a/b", "a"), Err(Errno::NOTEMPTY), "over its parent");
    p.rename("a/b", "c/b").unwrap();
    assert_eq!((links("/a"), links("/c")), (2, 3));
    p.rename("a", "c/b").unwrap();
    assert_eq!((links("/"), links("/c"), links("/c/b")), (3, 3, 2));
    p.renameat2(AT_FDCWD, "c/b", AT_FDCWD, "c", RENAME_EXCHANGE).unwrap_err();
    file(&p, "f", b"");
    p.renameat2(AT_FDCWD, "c/b", AT_FDCWD, "f", RENAME_EXCHANGE).unwrap();
    assert_eq!((links("/"), links("/c"), links("/f")), (4, 2, 2));
    assert_eq!(p.renameat2(AT_FDCWD, "f", AT_FDCWD, "c", RENAME_NOREPLACE), Err(Errno::EXIST));
}

#[test]
fn links_lead_on() {
    let p = root();
    p.mkdir("d", 0o755).unwrap();
    p.symlink("d/f", "to").unwrap();
    p.symlink("/to", "d/round").unwrap();
    assert_eq!(p.open("to", O_RDONLY, 0), Err(Errno::NOENT));
    // What is made is made where the link leads.
    let fd = p.open("d/round", O_CREAT | O_RDWR, 0o600).unwrap();
    p.write(fd, b"x").unwrap();
    assert_eq!(content(&p, "d/f"), b"x");
    assert_eq!(p.open("to", O_CREAT | O_EXCL | O_RDWR, 0o600), Err(Errno::EXIST));
    assert_eq!(p.open("to", O_NOFOLLOW, 0), Err(Errno::LOOP));
    assert_eq!(p.lstat("to").unwrap().st_size, 3);
    let mut buffer = [0; 2];
    assert_eq!(p.readlink("to", &mut buffer), Ok(2));
    assert_eq!(&buffer, b"d/");
    let link = p.open("to", O_PATH | O_NOFOLLOW, 0).unwrap();
    assert_eq!(p.readlinkat(link, "", &mut [0; 9]), Ok(3));
    assert_eq!(p.read(link, &mut [0; 9]), Err(Errno::BADF));
    p.symlink("loop", "loop").unwrap();
    assert_eq!(p.stat("loop"), Err(Errno::LOOP));
}

#[test]
fn where_a_process_is() {
    let p = root();
    p.mkdir("a", 0o755).unwrap();
    p.mkdir("a/b", 0o755).unwrap();
    p.chdir("a/b").unwrap();
    assert_eq!(p.getcwd().unwrap(), b"/a/b");
    file(&p, "f", b"1");
    assert_eq!(content(&p, "/a/b/f"), b"1");
    let child = p.fork().unwrap();
    child.chdir("..").unwrap();
    assert_eq!((child.getcwd().unwrap(), p.getcwd().unwrap()), (b"/a".to_vec(), b"/a/b".to_vec()));
    let dir = child.open(".", O_RDONLY, 0).unwrap();
    assert_eq!(child.fstatat(dir, "b/f", 0).unwrap().st_size, 1);
    child.chroot("b").unwrap();
    assert_eq!(child.stat("/f").unwrap().st_size, 1);
    child.fchdir(dir).unwrap();
    assert!(child.getcwd().unwrap().starts_with(b"(unreachable)"));
    assert_eq!(p.umask(0o077), 0o022);
    p.mkdir("m", 0o777).unwrap();
    assert_eq!(p.stat("m").unwrap().st_mode, S_IFDIR | 0o700);
    p.chdir("m").unwrap();
    p.rmdir("../m").unwrap();
    assert_eq!(p.getcwd(), Err(Errno::NOENT));
    assert_eq!(p.mkdir("x", 0o777), Err(Errno::NOENT));
    assert_eq!(p.open("x", O_CREAT | O_RDWR, 0o777), Err(Errno::NOENT));
}

#[test]
fn who_may_do_what() {
    let p = root();
    p.chmod("/", 0o755).unwrap();
    p.mkdir("shared", 0).unwrap();
    p.chmod("shared", 0o1777).unwrap();
    file(&p, "secret", b"s");
    p.chmod("secret", 0o600).unwrap();
    let somebody = p.fork().unwrap();
    somebody.setresgid(7, 7, 7).unwrap();
    somebody.setresuid(7, 7, 7).unwrap();
    let other = p.fork().unwrap();
    other.setresuid(8, 8, 8).unwrap();
    assert_eq!(somebody.open("secret", O_RDONLY, 0), Err(Errno::ACCESS));
    assert_eq!(somebody.mkdir("mine", 0o755), Err(Errno::ACCESS));
    file(&somebody, "shared/f", b"");
    assert_eq!(p.stat("shared/f").unwrap().st_uid, 7);
    assert_eq!(other.unlink("shared/f"), Err(Errno::PERM), "sticky");
    assert_eq!(other.chmod("shared/f", 0o666), Err(Errno::PERM));
    assert_eq!(somebody.chown("shared/f", 8, u32::MAX), Err(Errno::PERM));
    somebody.chmod("shared/f", 0o4755).unwrap();
    assert_eq!(other.access("shared/f", X_OK | R_OK), Ok(()));
    assert_eq!(other.access("shared/f", W_OK), Err(Errno::ACCESS));
    let fd = somebody.open("shared/f", O_WRONLY, 0).unwrap();
    somebody.write(fd, b"x").unwrap();
    assert_eq!(p.stat("shared/f").unwrap().st_mode, S_IFREG | 0o755, "written by who is not root");
    somebody.unlink("shared/f").unwrap();
    let u = user();
    assert_eq!(u.stat("/").unwrap().st_uid, 1000);
    u.mkdir("home", 0o755).unwrap();
    assert_eq!(u.mknod("dev", S_IFCHR | 0o600, 1 << 8 | 3), Err(Errno::PERM));
    u.mknod("fifo", S_IFIFO | 0o600, 0).unwrap();
}

#[test]
fn a_filesystem_has_limits() {
    let kernel =
        Kernel::boot(Config::default().privileged(true).fs_size(2 * 4096).fs_inodes(3)).unwrap();
    let p = kernel.process().unwrap();
    let fd = p.open("a", O_CREAT | O_RDWR, 0o600).unwrap();
    assert_eq!(p.pwrite(fd, &[1; 3 * 4096], 0), Ok(2 * 4096));
    assert_eq!(p.pwrite(fd, &[1; 1], 2 * 4096), Err(Errno::NOSPC));
    p.mkdir("b", 0o755).unwrap();
    assert_eq!(p.mkdir("c", 0o755), Err(Errno::NOSPC));
    assert_eq!(p.link("a", "c"), Err(Errno::NOSPC));
    let full = p.statfs("/").unwrap();
    assert_eq!((full.f_blocks, full.f_bfree, full.f_files, full.f_ffree), (2, 0, 3, 0));
    p.rmdir("b").unwrap();
    p.link("a", "c").unwrap();
    p.unlink("a").unwrap();
    p.unlink("c").unwrap();
    assert_eq!(p.statfs("/").unwrap().f_bfree, 0, "open");
    p.close(fd).unwrap();
    let empty = p.fstatfs(p.open("/", O_PATH, 0).unwrap()).unwrap();
    assert_eq!((empty.f_bfree, empty.f_ffree), (2, 2));
}

#[test]
fn files_without_a_name() {
    let p = root();
    let fd = p.open("/", O_TMPFILE | O_RDWR, 0o600).unwrap();
    p.write(fd, b"late").unwrap();
    assert_eq!(p.fstat(fd).unwrap().st_nlink, 0);
    p.linkat(fd, "", AT_FDCWD, "name", AT_EMPTY_PATH).unwrap();
    assert_eq!(content(&p, "name"), b"late");
    let sealed = p.open("/", O_TMPFILE | O_EXCL | O_RDWR, 0o600).unwrap();
    assert_eq!(p.linkat(sealed, "", AT_FDCWD, "other", AT_EMPTY_PATH), Err(Errno::NOENT));
}

/// A descriptor alone is linked with the credentials that opened it. Those of a child are others.
#[test]
fn a_child_links_no_file_of_its_parent() {
    let p = root();
    p.mkdir("/d", 0o777).unwrap();
    p.chmod("/d", 0o777).unwrap();
    p.setresuid(1000, 1000, 1000).unwrap();
    let link = |p: &Process, fd: i32, to: &str| p.linkat(fd, "", AT_FDCWD, to, AT_EMPTY_PATH);
    let fd = p.open("/d/file", O_CREAT | O_RDWR, 0o644).unwrap();
    let child = p.fork().unwrap();
    assert_eq!(link(&child, fd, "/d/child"), Err(Errno::NOENT));
    assert_eq!(link(&p, fd, "/d/parent"), Ok(()));
    let own = child.open("/d/own", O_CREAT | O_RDWR, 0o644).unwrap();
    assert_eq!(link(&child, own, "/d/child"), Ok(()));
}

#[test]
fn a_change_that_was_told_of_is_followed_by_a_later_one() {
    let p = root();
    let fd = p.open("f", O_CREAT | O_RDWR, 0o600).unwrap();
    let mut last = p.fstat(fd).unwrap();
    for n in 0..100 {
        p.pwrite(fd, b"x", n).unwrap();
        let now = p.fstat(fd).unwrap();
        assert!(now.st_mtim > last.st_mtim && now.st_ctim > last.st_ctim, "{now:?}");
        last = now;
    }
    p.utimensat(
        AT_FDCWD,
        Some("f"),
        Some([Timespec { tv_sec: 1, tv_nsec: 2 }, Timespec { tv_sec: 3, tv_nsec: UTIME_OMIT }]),
        0,
    )
    .unwrap();
    let set = p.stat("f").unwrap();
    assert_eq!((set.st_atim, set.st_mtim), (Timespec { tv_sec: 1, tv_nsec: 2 }, last.st_mtim));
    assert!(set.st_ctim > last.st_ctim);
}

/// Set-group on a file in a directory that hands its group on: whoever is not of the group loses it if the group's right to
/// execute was asked for, even if the umask then withholds that.
#[test]
fn set_group_goes_before_the_umask() {
    let process = root();
    process.mkdir("/d", 0o777).unwrap();
    process.chown("/d", 0, 20).unwrap();
    process.chmod("/d", 0o2777).unwrap();
    process.setresuid(1, 1, 1).unwrap();
    process.umask(0o010);
    let fd = process.open("/d/f", O_CREAT | O_RDWR, 0o2030).unwrap();
    assert_eq!(process.fstat(fd).unwrap().st_mode, S_IFREG | 0o020);
}
