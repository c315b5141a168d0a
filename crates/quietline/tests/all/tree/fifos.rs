//! Opening named pipes: waits, memory freed meanwhile, and read-only mounts.

use crate::support::spawn_asleep;
use quietline::abi::*;
use quietline::{Config, Errno, Interrupt, Kernel, MS_BIND, MS_REMOUNT, OpenHow, Process, Shared};
use quietline_testing::heap;
use std::thread;
use std::time::{Duration, Instant};

const MS_RDONLY: u64 = 1;
/// Longer than the test takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn root() -> Process {
    Kernel::boot(Config::default().owner(0, 0).proc(true)).unwrap().process().unwrap()
}

/// A process with a tmpfs at `/m`, which has a file of each type.
fn with_mount() -> Process {
    let p = root();
    p.mkdir("/m", 0o755).unwrap();
    p.mount("none", "/m", "tmpfs", 0).unwrap();
    for (name, mode) in
        [("f", S_IFIFO), ("c", S_IFCHR), ("b", S_IFBLK), ("s", S_IFSOCK), ("r", S_IFREG)]
    {
        p.mknod(format!("/m/{name}"), mode | 0o666, 0).unwrap();
    }
    p
}

fn set_read_only(p: &Process, read_only: bool) -> Result<(), Errno> {
    let flag = if read_only { MS_RDONLY } else { 0 };
    p.mount("none", "/m", "", MS_REMOUNT | MS_BIND | flag)
}

/// An `open` of `/f` with these flags.
type Open<'p> = Box<dyn Fn(i32) -> Result<i32, Errno> + Sync + 'p>;

/// The ways to open a named pipe that reach different code.
fn ways(p: &Process) -> Vec<(&'static str, Open<'_>)> {
    let (dir, link) = (p.open("/", O_RDONLY, 0).unwrap(), p.open("/f", O_PATH, 0).unwrap());
    vec![
        ("by a path", Box::new(|flags| p.open("/f", flags, 0))),
        ("that is made if it is missing", Box::new(|flags| p.open("/f", flags | O_CREAT, 0o600))),
        ("from a directory", Box::new(move |flags| p.openat(dir, "f", flags, 0))),
        (
            "within a directory",
            Box::new(move |flags| {
                let how = OpenHow { flags: flags as u64, mode: 0, resolve: RESOLVE_BENEATH };
                p.openat2(dir, "f", &how)
            }),
        ),
        (
            "by a descriptor's link",
            Box::new(move |flags| p.open(format!("/proc/self/fd/{link}"), flags, 0)),
        ),
    ]
}

/// Replaced credentials are freed while an `open` of a named pipe waits for its other end.
#[test]
fn an_open_that_waits_keeps_no_memory_from_being_freed() {
    quietline_testing::isolated!();
    heap::start();
    const ROUNDS: isize = 10_000;
    const GROUPS: usize = 250;
    let p = root();
    p.mknod("/f", S_IFIFO | 0o600, 0).unwrap();
    let groups: Vec<u32> = (0..GROUPS as u32).collect();
    for (name, open) in ways(&p) {
        for (mine, theirs) in [(O_WRONLY, O_RDONLY), (O_RDONLY, O_WRONLY)] {
            thread::scope(|scope| {
                let waits = spawn_asleep(scope, || open(mine));
                let before = heap::bytes();
                for _ in 0..ROUNDS {
                    p.setgroups(&groups).unwrap();
                }
                let all = ROUNDS * (GROUPS * size_of::<u32>()) as isize;
                let kept = || heap::bytes() - before;
                let began = Instant::now();
                // A backlog is freed by the calls that follow.
                while kept() > all / 10 && began.elapsed() < LONG {
                    thread::sleep(Duration::from_millis(1));
                    p.setgroups(&[]).unwrap();
                }
                let kept = kept();
                let other = p.open("/f", theirs, 0).unwrap();
                let fd = waits.join().unwrap().unwrap();
                p.close(fd).unwrap();
                p.close(other).unwrap();
                assert!(kept <= all / 10, "{kept} bytes of {all} are kept by an open {name}");
            });
        }
    }
}

/// An open that waits ends with `EINTR`, and leaves no half-open end.
#[test]
fn an_open_that_waits_can_be_interrupted() {
    quietline_testing::isolated!();
    let p = root();
    p.mknod("/f", S_IFIFO | 0o600, 0).unwrap();
    for (name, open) in ways(&p) {
        for flags in [O_WRONLY, O_RDONLY] {
            let interrupt = Shared::new(Interrupt::new()).unwrap();
            thread::scope(|scope| {
                let waits = spawn_asleep(scope, || {
                    let _entered = Interrupt::enter(&interrupt);
                    open(flags)
                });
                interrupt.raise();
                assert_eq!(waits.join().unwrap(), Err(Errno::INTR), "{name}");
            });
            assert_eq!(p.open("/f", O_WRONLY | O_NONBLOCK, 0), Err(Errno::NXIO), "{name}");
        }
    }
}

/// An open that waits needs the name and the permission of the pipe at its beginning only.
#[test]
fn an_open_that_waits_has_its_pipe() {
    quietline_testing::isolated!();
    let p = root();
    p.mknod("/f", S_IFIFO | 0o600, 0).unwrap();
    thread::scope(|scope| {
        let reader = spawn_asleep(scope, || p.open("/f", O_RDONLY, 0));
        p.link("/f", "/g").unwrap();
        p.unlink("/f").unwrap();
        p.chmod("/g", 0).unwrap();
        let writer = p.open("/g", O_WRONLY, 0).unwrap();
        let reader = reader.join().unwrap().unwrap();
        p.write(writer, b"x").unwrap();
        assert_eq!(p.read(reader, &mut [0; 2]), Ok(1));
    });
}

/// What a read-only mount forbids: Linux's answers, for each type of file.
#[test]
fn a_read_only_mount_forbids_what_changes_it() {
    let p = with_mount();
    let reader = p.open("/m/f", O_RDONLY | O_NONBLOCK, 0).unwrap();
    for read_only in [false, true] {
        set_read_only(&p, read_only).unwrap();
        let regular = if read_only { Err(Errno::ROFS) } else { Ok(()) };
        for flags in [
            O_WRONLY | O_NONBLOCK,
            O_RDWR,
            O_WRONLY | O_CREAT | O_NONBLOCK,
            O_RDWR | O_TRUNC,
            O_WRONLY | O_CREAT | O_TRUNC,
        ] {
            let open = |path| p.open(path, flags, 0o666).map(|fd| p.close(fd).expect("it is open"));
            assert_eq!(open("/m/f"), Ok(()), "{read_only} {flags:#o}");
            assert_eq!(open("/m/r"), regular, "{read_only} {flags:#o}");
            for special in ["/m/c", "/m/b", "/m/s"] {
                assert_eq!(open(special), Err(Errno::NXIO), "{read_only} {flags:#o} {special}");
            }
            let new = if read_only && flags & O_CREAT != 0 {
                Err(Errno::ROFS)
            } else if flags & O_CREAT != 0 {
                Ok(())
            } else {
                Err(Errno::NOENT)
            };
            assert_eq!(open("/m/new"), new, "{read_only} {flags:#o}");
            if new.is_ok() {
                p.unlink("/m/new").unwrap();
            }
        }
        let exclusive = p.open("/m/f", O_WRONLY | O_CREAT | O_EXCL, 0o666);
        assert_eq!(exclusive, Err(Errno::EXIST), "{read_only}");
        assert_eq!(p.open("/m/f", O_RDWR | O_DIRECT, 0), Err(Errno::INVAL), "{read_only}");
        for special in ["/m/f", "/m/c", "/m/b", "/m/s"] {
            assert_eq!(p.access(special, W_OK), Ok(()), "{read_only} {special}");
        }
        assert_eq!(p.access("/m/r", W_OK), regular);
    }
    p.close(reader).unwrap();
}

/// A writer of a named pipe, open or waiting, does not keep its mount writable. Bytes that pass
/// through a pipe on a read-only mount change no times.
#[test]
fn a_writer_of_a_named_pipe_keeps_no_mount_writable() {
    quietline_testing::isolated!();
    let p = with_mount();
    let both = |when: &str| {
        assert_eq!(set_read_only(&p, true), Ok(()), "{when}");
        assert_eq!(set_read_only(&p, false), Ok(()), "{when}");
    };
    let fd = p.open("/m/f", O_RDWR, 0).unwrap();
    both("open for both");
    p.close(fd).unwrap();
    both("closed");
    for flags in [O_WRONLY, O_WRONLY | O_CREAT] {
        thread::scope(|scope| {
            let writer = spawn_asleep(scope, || p.open("/m/f", flags, 0o600));
            both("a writer that waits");
            let reader = p.open("/m/f", O_RDONLY, 0).unwrap();
            p.close(writer.join().unwrap().unwrap()).unwrap();
            p.close(reader).unwrap();
        });
    }
    both("after a writer that has waited");
    let regular = p.open("/m/r", O_WRONLY, 0).unwrap();
    assert_eq!(set_read_only(&p, true), Err(Errno::BUSY), "writers of regular files are counted");
    p.close(regular).unwrap();
    let fd = p.open("/m/f", O_RDWR, 0).unwrap();
    for read_only in [true, false] {
        set_read_only(&p, read_only).unwrap();
        let before = p.stat("/m/f").unwrap();
        p.write(fd, b"x").unwrap();
        let written = p.stat("/m/f").unwrap();
        let moved = (written.st_mtim != before.st_mtim, written.st_ctim != before.st_ctim);
        assert_eq!(moved, (!read_only, !read_only), "the times of a write");
        p.read(fd, &mut [0; 1]).unwrap();
        let read = p.stat("/m/f").unwrap();
        assert_eq!(read.st_atim != before.st_atim, !read_only, "the time of a read");
    }
    // An open that fails takes and gives back no leave to write.
    p.close(fd).unwrap();
    p.kernel().set_file_max(0);
    assert_eq!(p.open("/m/f", O_RDWR, 0), Err(Errno::NFILE));
    p.kernel().set_file_max(u64::MAX);
    both("after an open that failed");
    let regular = p.open("/m/r", O_WRONLY, 0).unwrap();
    assert_eq!(set_read_only(&p, true), Err(Errno::BUSY));
    p.close(regular).unwrap();
}

/// The limit on open files refuses an `open` before it waits, and a waiting `open` has its file.
#[test]
fn the_file_comes_before_the_wait() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    p.mknod("/f", S_IFIFO | 0o600, 0).unwrap();
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    for flags in [O_RDONLY, O_WRONLY] {
        thread::scope(|scope| {
            let waiting = spawn_asleep(scope, || {
                let _entered = Interrupt::enter(&interrupt);
                p.open("/f", flags, 0)
            });
            assert_eq!(p.kernel().nr_files(), 1, "the file of the open that waits");
            p.kernel().set_file_max(1);
            // An open that waits fails with EINTR.
            let raised = Shared::new(Interrupt::new()).unwrap();
            raised.raise();
            {
                let _entered = Interrupt::enter(&raised);
                assert_eq!(p.open("/f", flags, 0), Err(Errno::NFILE));
            }
            p.kernel().set_file_max(u64::MAX);
            interrupt.raise();
            assert_eq!(waiting.join().unwrap(), Err(Errno::INTR));
            interrupt.clear();
        });
        assert_eq!(p.kernel().nr_files(), 0, "an open that fails leaves no file");
    }
}
