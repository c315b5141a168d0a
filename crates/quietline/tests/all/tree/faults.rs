//! Memory that runs out under the calls on the tree: each allocation of each call fails once, and once all from it on. The call
//! says so or makes do; a call that fails has changed nothing; nothing is lost, neither pages nor heap; the call works afterwards.

use crate::support::{alone, pages_used};
use quietline::abi::*;
use quietline::inotify::*;
use quietline::locks::*;
use quietline::{
    Config, Errno, Kernel, MFD_CLOEXEC, MS_BIND, MS_MOVE, MS_REC, MS_REMOUNT, Process, dirents,
};
use quietline_platform::fault;
use std::fmt::Write;

/// Bytes in pages and on this thread's heap.
fn held() -> (usize, isize) {
    let pages = pages_used();
    (pages, quietline_testing::heap::bytes_of_thread())
}

const LONG: &str = "a name that does not fit into a dentry, because it is longer than its words";

/// A tree with one of each, and descriptors 0 on the file `/d/f`, 1 on the directory `/d`.
fn world() -> Process {
    let config = Config::default().privileged(true).fs_size(64 << 20).fs_inodes(100_000).proc(true);
    let p = Kernel::boot(config).unwrap().process().unwrap();
    for dir in ["/d", "/d/sub", "/d/sub/below", "/e", "/m", "/n"] {
        p.mkdir(dir, 0o755).unwrap();
    }
    assert_eq!(p.open("/d/f", O_CREAT | O_RDWR, 0o644), Ok(0));
    assert_eq!(p.write(0, &[7; 10_000]), Ok(10_000));
    assert_eq!(p.open("/d", O_RDONLY | O_DIRECTORY, 0), Ok(1));
    p.link("/d/f", "/d/g").unwrap();
    p.link("/d/f", format!("/d/{LONG}")).unwrap();
    p.symlink("d/f", "/l").unwrap();
    p.setxattr("/d/f", "user.one", b"first", 0).unwrap();
    p.close(p.creat("/x", 0o600).unwrap()).unwrap();
    p.mkdir("/mounted", 0o755).unwrap();
    p.mount("", "/mounted", "tmpfs", 0).unwrap();
    p.mkdir("/mounted/dir", 0o755).unwrap();
    p.mount("", "/mounted/dir", "tmpfs", 0).unwrap();
    p
}

/// All that can be seen of a kernel by a process, but for times of access; and for others, if they may change.
fn picture(p: &Process, times: bool) -> String {
    let mut out = String::new();
    let root = p.stat("/").unwrap();
    show(p, "/", (root.st_dev, times), &mut out);
    let mounts = p.open("/proc/mounts", O_RDONLY | O_CLOEXEC, 0).unwrap();
    let mut buffer = vec![0; 4096];
    let n = p.read(mounts, &mut buffer).unwrap();
    p.close(mounts).unwrap();
    write!(out, "{}", String::from_utf8_lossy(&buffer[..n])).unwrap();
    for path in ["/", "/mounted", "/mounted/dir"] {
        writeln!(out, "{path}: {:?}", p.statfs(path)).unwrap();
    }
    for fd in p.open_fds().unwrap() {
        let offset = p.lseek(fd, 0, SEEK_CUR);
        writeln!(out, "{fd}: {} {offset:?} {:?}", p.fd_name(fd).unwrap(), p.fcntl(fd, F_GETFD, 0))
            .unwrap();
    }
    let cwd = String::from_utf8(p.getcwd().unwrap()).unwrap();
    writeln!(out, "{cwd} {:?} {:?} {:?}", p.getresuid(), p.getgroups(), p.capabilities()).unwrap();
    out
}

fn show(p: &Process, path: &str, with: (u64, bool), out: &mut String) {
    let stat = p.lstat(path).unwrap();
    let Stat { st_mode, st_nlink, st_uid, st_size, st_blocks, st_ino, .. } = stat;
    let (dev, times) = with;
    let times = times.then_some((stat.st_ctim, stat.st_mtim));
    writeln!(
        out,
        "{path} {st_ino} {st_mode:o} {st_nlink} {st_uid} {st_size} {st_blocks} {times:?}"
    )
    .unwrap();
    let mut buffer = vec![0; 70_000];
    let n = p.llistxattr(path, &mut buffer).unwrap();
    let names = buffer[..n].to_vec();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let n = p.lgetxattr(path, name, &mut buffer).unwrap();
        writeln!(out, "  {} {n} {:?}", String::from_utf8_lossy(name), buffer.get(..n.min(20)))
            .unwrap();
    }
    match st_mode & S_IFMT {
        // What is generated changes by being looked at; and nobody touches what only takes room.
        S_IFDIR if p.statfs(path).unwrap().f_type == TMPFS_MAGIC && path != "/pad" => {
            let fd = p.open(path, O_RDONLY | O_CLOEXEC, 0).unwrap();
            let mut names = Vec::new();
            loop {
                let n = p.getdents64(fd, &mut buffer).unwrap();
                if n == 0 {
                    break;
                }
                names.extend(
                    dirents(&buffer[..n])
                        .map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()),
                );
            }
            p.close(fd).unwrap();
            for name in names.iter().filter(|name| *name != "." && *name != "..") {
                show(p, &format!("{}/{name}", path.trim_end_matches('/')), with, out);
            }
        }
        S_IFLNK => {
            let n = p.readlink(path, &mut buffer).unwrap();
            writeln!(out, "  -> {}", String::from_utf8_lossy(&buffer[..n])).unwrap();
        }
        S_IFREG if stat.st_dev == dev => {
            let fd = p.open(path, O_RDONLY | O_CLOEXEC, 0).unwrap();
            let n = p.pread(fd, &mut buffer, 0).unwrap();
            let sum = buffer[..n]
                .iter()
                .fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
            writeln!(out, "  {n} bytes, {sum:x}").unwrap();
            p.close(fd).unwrap();
        }
        _ => {}
    }
}

/// Places for objects of a cache that are free, in slabs and wherever else.
fn free(p: &Process, cache: &str) -> usize {
    let info = p.kernel().slabinfo();
    let stats = info.iter().find(|stats| stats.name == cache).expect("a cache of this name");
    stats.places - stats.active
}

/// Sees to it that the next object of each of the tree's caches needs a new slab, and any of them a new sheaf.
fn starve(p: &Process) {
    for cache in ["dname_small", "dname_large", "inode_cache", "dentry", "page"] {
        // One at a time out of the slabs: so it is known how many fill them.
        let knob = p.open(format!("/sys/kernel/slab/{cache}/cpu_partial"), O_WRONLY, 0).unwrap();
        p.write(knob, b"1").unwrap();
        p.close(knob).unwrap();
    }
    p.mkdir("/pad", 0o755).unwrap();
    let pad = p.open("/pad/f", O_CREAT | O_RDWR | O_CLOEXEC, 0o600).unwrap();
    p.pwrite(pad, b"x", 0).unwrap();
    for cache in ["dname_small", "dname_large"] {
        p.kernel().shrink();
        let fill = if cache == "dname_small" { 40 } else { 100 };
        for n in 0..free(p, cache) {
            p.link("/pad/f", format!("/pad/{n:0fill$}")).unwrap();
        }
    }
    p.kernel().shrink();
    for n in 0..free(p, "inode_cache") {
        p.mknod(format!("/pad/i{n}"), S_IFREG | 0o600, 0).unwrap();
    }
    p.kernel().shrink();
    for n in 0..free(p, "dentry") {
        p.link("/pad/f", format!("/pad/d{n}")).unwrap();
    }
    p.kernel().shrink();
    for n in 0..free(p, "page") {
        p.pwrite(pad, b"x", (n as i64 + 1) << 12).unwrap();
    }
    p.close(pad).unwrap();
    p.kernel().shrink();
    for cache in ["dname_small", "dname_large", "inode_cache", "dentry", "page"] {
        assert_eq!(free(p, cache), 0, "{cache}");
    }
}

/// A call on the tree, given what was prepared.
type Call = fn(&Process) -> Result<(), Errno>;

struct Step {
    name: &'static str,
    prepare: fn(&Process),
    call: Call,
    /// What it says when there is no memory.
    errno: Errno,
    /// Whether the whole of it happens or nothing.
    whole: bool,
    /// Whether it sets times before it does the rest, as Linux does.
    times_first: bool,
}

const fn step(name: &'static str, call: Call) -> Step {
    Step { name, prepare: |_| (), call, errno: Errno::NOMEM, whole: true, times_first: false }
}

fn opened(p: &Process, fd: Result<i32, Errno>) -> Result<(), Errno> {
    p.close(fd?)
}

fn any<T>(result: Result<T, Errno>) -> Result<(), Errno> {
    result.map(drop)
}

fn lock(ty: i16) -> Flock {
    Flock { l_type: ty, l_whence: 0, l_start: 5, l_len: 5, l_pid: 0 }
}

fn steps() -> Vec<Step> {
    vec![
        step("mkdir", |p| p.mkdir("/new", 0o755)),
        step("mkdir long", |p| p.mkdir(format!("/e/{LONG}"), 0o755)),
        step("mkdir in a directory of its own table", |p| p.mkdir("/d/sub/new", 0o755)),
        step("mknod", |p| p.mknod("/fifo", S_IFIFO | 0o600, 0)),
        step("creat", |p| opened(p, p.creat("/new", 0o600))),
        step("open", |p| opened(p, p.open("/d/f", O_RDWR, 0))),
        step("open by a link", |p| opened(p, p.open("/l", O_RDWR, 0))),
        step("open O_PATH", |p| opened(p, p.open("/d/sub", O_PATH, 0))),
        step("open O_ANYFD", |p| opened(p, p.open("/d/f", O_RDONLY | O_ANYFD, 0))),
        step("open O_TMPFILE", |p| opened(p, p.open("/d", O_TMPFILE | O_RDWR, 0o600))),
        Step {
            prepare: |p| assert_eq!(p.open("/d", O_TMPFILE | O_RDWR, 0o600), Ok(2)),
            ..step("linkat of what has no name", |p| {
                p.linkat(2, "", AT_FDCWD, "/named", AT_EMPTY_PATH)
            })
        },
        step("symlink", |p| p.symlink("target", "/s")),
        step("symlink, a long body", |p| p.symlink("t".repeat(3000), "/s")),
        step("link", |p| p.link("/d/f", "/e/h")),
        step("link, a long name", |p| p.link("/d/f", format!("/e/{LONG}"))),
        step("rename", |p| p.rename("/d/f", "/d/h")),
        step("rename to a long name", |p| p.rename("/d/g", format!("/d/{LONG}!"))),
        step("rename from a long name", |p| p.rename(format!("/d/{LONG}"), "/d/short")),
        step("rename across", |p| p.rename("/d/f", "/e/f")),
        step("rename over", |p| p.rename("/x", "/d/g")),
        step("rename of a directory", |p| p.rename("/d/sub", "/e/sub")),
        step("rename of a directory over another", |p| p.rename("/d/sub", "/e")),
        step("exchange", |p| p.renameat2(AT_FDCWD, "/x", AT_FDCWD, "/d/sub", RENAME_EXCHANGE)),
        step("exchange in a directory", |p| {
            p.renameat2(AT_FDCWD, "/d/f", AT_FDCWD, "/d/sub", RENAME_EXCHANGE)
        }),
        step("unlink", |p| p.unlink("/x")),
        step("unlink, a long name", |p| p.unlink(format!("/d/{LONG}"))),
        step("rmdir", |p| p.rmdir("/e")),
        step("setxattr", |p| p.setxattr("/x", "user.new", b"value", 0)),
        step("setxattr, replacing", |p| p.setxattr("/d/f", "user.one", b"another value", 0)),
        step("setxattr, large", |p| p.setxattr("/d/f", "user.large", &[3; 60_000], 0)),
        step("removexattr", |p| p.removexattr("/d/f", "user.one")),
        step("listxattr", |p| any(p.listxattr("/d/f", &mut [0; 100]))),
        Step { whole: false, ..step("write", |p| any(p.pwrite(0, &[1; 50_000], 10_000))) },
        Step {
            times_first: true,
            ..step("write of one byte far away", |p| any(p.pwrite(0, b"x", 1 << 40)))
        },
        Step {
            whole: false,
            ..step("writev", |p| any(p.pwritev(0, &[&[1; 5000], &[2; 9000]], 20_000)))
        },
        step("read", |p| any(p.pread(0, &mut [0; 10_000], 0))),
        step("truncate", |p| p.truncate("/d/f", 100)),
        step("truncate, growing", |p| p.truncate("/d/f", 1 << 30)),
        step("fallocate", |p| p.fallocate(0, 0, 0, 200_000)),
        step("fallocate, a hole", |p| {
            p.fallocate(0, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192)
        }),
        Step {
            prepare: |p| assert_eq!(p.open("/x", O_RDWR, 0), Ok(2)),
            whole: false,
            ..step("copy_file_range", |p| {
                any(p.copy_file_range(0, Some(&mut 0), 2, Some(&mut 0), 10_000, 0))
            })
        },
        step("getdents64", |p| {
            any(p.getdents64(1, &mut [0; 1000])).and_then(|()| any(p.lseek(1, 0, SEEK_SET)))
        }),
        step("getdents64 of proc", |p| {
            let fd = p.open("/proc/self/fd", O_RDONLY, 0)?;
            let listed = p.getdents64(fd, &mut [0; 1000]);
            p.close(fd)?;
            any(listed)
        }),
        step("stat", |p| any(p.stat("/d/sub/below"))),
        step("statx", |p| any(p.statx(AT_FDCWD, "/l", 0, 0x7ff))),
        step("statfs", |p| any(p.statfs("/mounted/dir"))),
        step("access", |p| p.access("/d/f", 4)),
        step("readlink", |p| any(p.readlink("/l", &mut [0; 100]))),
        step("readlink of a descriptor", |p| any(p.readlink("/proc/self/fd/0", &mut [0; 100]))),
        step("read of proc", |p| {
            let fd = p.open("/proc/self/status", O_RDONLY, 0)?;
            let text = p.read(fd, &mut [0; 4000]);
            p.close(fd)?;
            any(text)
        }),
        step("chmod", |p| p.chmod("/d/f", 0o600)),
        step("chown", |p| p.chown("/d/f", 5, 6)),
        step("futimens", |p| p.futimens(0, Some([Timespec { tv_sec: 5, tv_nsec: 6 }; 2]))),
        step("chdir", |p| p.chdir("/d/sub").and_then(|()| p.chdir("/"))),
        step("fchdir", |p| p.fchdir(1).and_then(|()| p.chdir("/"))),
        step("getcwd", |p| any(p.getcwd())),
        step("mount", |p| p.mount("", "/m", "tmpfs", 0)),
        step("mount proc", |p| p.mount("", "/m", "proc", 0)),
        step("mount sysfs", |p| p.mount("", "/m", "sysfs", 0)),
        step("bind", |p| p.mount("/d", "/m", "", MS_BIND)),
        step("bind a tree", |p| p.mount("/mounted", "/m", "", MS_BIND | MS_REC)),
        step("move a mount", |p| p.mount("/mounted", "/m", "", MS_MOVE)),
        step("remount", |p| p.mount("", "/mounted/dir", "", MS_REMOUNT | MS_BIND | 1)),
        step("umount", |p| p.umount2("/mounted/dir", 0)),
        step("umount, lazily", |p| p.umount2("/mounted", 2)),
        step("inotify_init1", |p| opened(p, p.inotify_init1(0))),
        Step {
            prepare: |p| assert_eq!(p.inotify_init1(O_NONBLOCK), Ok(2)),
            ..step("inotify_add_watch", |p| any(p.inotify_add_watch(2, "/d", IN_ALL_EVENTS)))
        },
        Step {
            prepare: |p| {
                assert_eq!(p.inotify_init1(O_NONBLOCK), Ok(2));
                assert_eq!(p.inotify_add_watch(2, "/d", IN_ALL_EVENTS), Ok(1));
            },
            ..step("an event", |p| p.mkdir("/d/watched", 0o755))
        },
        Step { errno: Errno::NOLCK, ..step("flock", |p| p.flock(0, LOCK_EX)) },
        Step {
            errno: Errno::NOLCK,
            ..step("a lock", |p| p.fcntl_lock(0, F_SETLK, &mut lock(F_WRLCK)))
        },
        Step {
            errno: Errno::NOLCK,
            ..step("an open file's lock", |p| p.fcntl_lock(0, F_OFD_SETLK, &mut lock(F_WRLCK)))
        },
        Step {
            prepare: |p| {
                p.fcntl_lock(0, F_SETLK, &mut Flock { l_start: 0, l_len: 100, ..lock(F_WRLCK) })
                    .unwrap();
            },
            errno: Errno::NOLCK,
            ..step("a hole in a lock", |p| p.fcntl_lock(0, F_SETLK, &mut lock(F_UNLCK)))
        },
        step("memfd_create", |p| opened(p, p.memfd_create("memory", MFD_CLOEXEC))),
        step("dup2", |p| any(p.dup2(0, 5000))),
        step("F_DUPFD", |p| any(p.fcntl(0, F_DUPFD, 300))),
        step("fork", |p| any(p.fork())),
        step("fd_name", |p| any(p.fd_name(0))),
        step("open_fds", |p| any(p.open_fds())),
        step("getgroups", |p| any(p.getgroups())),
        step("setgroups", |p| p.setgroups(&(0..100).collect::<Vec<_>>())),
        step("setresgid", |p| p.setresgid(1, 2, 3)),
        step("chroot", |p| p.chroot("/d").and_then(|()| p.chroot("."))),
        step("shrink", |p| {
            p.kernel().shrink();
            Ok(())
        }),
    ]
}

/// That a call which failed changed nothing.
#[track_caller]
fn same(before: &str, after: &str, what: &str) {
    if let Some((old, new)) = before.lines().zip(after.lines()).find(|(old, new)| old != new) {
        panic!("{what}: a call that failed changed something: {old} became {new}");
    }
    assert_eq!(
        before.lines().count(),
        after.lines().count(),
        "{what}: a call that failed changed something"
    );
}

/// One run of a step: whether the fault was met.
fn run(step: &Step, nth: u64, arm: fn(u64), reported: &mut u64, made_do: &mut u64) -> bool {
    let p = world();
    (step.prepare)(&p);
    starve(&p);
    let before = picture(&p, !step.times_first);
    p.kernel().shrink();
    arm(nth);
    let result = (step.call)(&p);
    // One that fails from the nth on stays armed: it is over when the call works without having met it.
    let mut met = !fault::armed();
    fault::fail_nth(0);
    let name = step.name;
    match result {
        Ok(()) => *made_do += u64::from(met),
        Err(errno) => {
            met = true;
            *reported += 1;
            assert_eq!(errno, step.errno, "{name}: allocation {nth} fails");
            if step.whole {
                same(
                    &before,
                    &picture(&p, !step.times_first),
                    &format!("{name}, allocation {nth}"),
                );
            }
            assert_eq!((step.call)(&p), Ok(()), "{name}: memory is back (allocation {nth})");
        }
    }
    // It still works.
    if name != "chroot" {
        picture(&p, true);
    }
    met
}

#[test]
fn each_allocation_of_each_call() {
    quietline_testing::isolated!();
    quietline_testing::heap::start();
    let _alone = alone();
    // What is made once is made before; the list of those who look after a fork of the host grows with what waits for its end.
    let crowd: Vec<_> = (0..20).map(|_| world()).collect();
    drop(crowd);
    for step in steps() {
        let p = world();
        (step.prepare)(&p);
        starve(&p);
        (step.call)(&p).unwrap_or_else(|errno| panic!("{}: {errno}", step.name));
    }
    let (mut reported, mut made_do, mut silent) = (0, 0, Vec::new());
    for step in steps() {
        let before = held();
        let (mut of_step, mut made) = (0, 0);
        let mut once = |nth, arm| {
            let met = run(&step, nth, arm, &mut of_step, &mut made);
            assert_eq!(held(), before, "{}: pages and heap after allocation {nth}", step.name);
            met
        };
        let end = (1..2000).find(|nth| !once(*nth, fault::fail_nth));
        let end = end.unwrap_or_else(|| panic!("{}: a call has no end of allocations", step.name));
        (1..end).for_each(|nth| {
            once(nth, fault::fail_from);
        });
        if of_step + made == 0 {
            silent.push(step.name);
        }
        reported += of_step;
        made_do += made;
    }
    println!(
        "{reported} failures reported, {made_do} made do with; no memory wanted by {silent:?}"
    );
    assert!(reported > 200, "{reported}");
    // These need none; all others do.
    for needs in [
        "mkdir",
        "creat",
        "link",
        "symlink",
        "rename to a long name",
        "setxattr",
        "write",
        "fallocate",
        "mount",
        "bind a tree",
        "inotify_add_watch",
        "flock",
        "fork",
        "getcwd",
    ] {
        assert!(!silent.contains(&needs), "{needs} met no fault");
    }
}
