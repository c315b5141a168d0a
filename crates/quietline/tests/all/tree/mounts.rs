//! Trees of many mounts.

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, MS_BIND, MS_REC, Process};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const MNT_DETACH: u32 = 2;

/// Returns the CPU time that the thread has used.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn process() -> Process {
    let p = Kernel::boot(Config::default().owner(0, 0)).unwrap().process().unwrap();
    for path in ["/base", "/empty", "/empty/m", "/copy"] {
        p.mkdir(path, 0o755).unwrap();
    }
    p.mount("none", "/base", "tmpfs", 0).unwrap();
    p.mkdir("/base/m", 0o755).unwrap();
    p
}

fn bind(p: &Process, path: &str) {
    p.mount("/empty", path, "", MS_BIND).unwrap();
}

/// A way to put mounts below `/base`.
type Shape = (&'static str, fn(&Process, usize));

const SHAPES: [Shape; 3] = [
    ("on directories of one mount", |p, mounts| {
        for n in 0..mounts {
            let path = format!("/base/{n}");
            p.mkdir(&path, 0o755).unwrap();
            bind(p, &path);
        }
    }),
    ("one on the other", |p, mounts| (0..mounts).for_each(|_| bind(p, "/base/m"))),
    ("each in the one before", |p, mounts| {
        p.chdir("/base").unwrap();
        for _ in 0..mounts {
            bind(p, "m");
            p.chdir("m").unwrap();
        }
        p.chdir("/").unwrap();
    }),
];

/// Detaching a tree of mounts takes time linear in its size. The lock of all mounts is held
/// meanwhile.
#[test]
fn detaching_is_linear() {
    quietline_testing::isolated!();
    // So many that they leave the near caches, as the many do.
    const FEW: usize = 500;
    const FACTOR: u32 = 10;
    for (shape, build) in SHAPES {
        let time = |mounts: usize| {
            let p = process();
            let tries = (0..3).map(|_| {
                build(&p, mounts);
                let began = cpu_time();
                p.umount2("/base", MNT_DETACH).unwrap();
                let took = cpu_time() - began;
                p.mount("none", "/base", "tmpfs", 0).unwrap();
                p.mkdir("/base/m", 0o755).unwrap();
                took
            });
            tries.min().expect("three tries")
        };
        let (few, many) = (time(FEW), time(FEW * FACTOR as usize));
        println!("{FEW} mounts {shape}: {few:?}; {FACTOR} times as many: {many:?}");
        // Beside other work it takes up to 3 times as long for each. Quadratic time is 10 times.
        assert!(many < few * FACTOR * 6, "{shape}: {few:?}, {many:?}");
    }
}

/// A detached mount takes along the mounts on it. Mounts elsewhere stay, also on the same
/// directories.
#[test]
fn detaching_leaves_what_is_mounted_elsewhere() {
    let p = process();
    p.mknod("/empty/m/below", S_IFREG | 0o644, 0).unwrap();
    p.mkdir("/src", 0o755).unwrap();
    p.mkdir("/src/m", 0o755).unwrap();
    // Two mounts of one directory, with other mounts on the same directory of both.
    for copy in ["/base/m", "/copy"] {
        p.mount("/src", copy, "", MS_BIND).unwrap();
        p.mount("/empty", format!("{copy}/m"), "", MS_BIND).unwrap();
        p.mount("/empty/m", format!("{copy}/m/m"), "", MS_BIND).unwrap();
    }
    p.mkdir("/all", 0o755).unwrap();
    p.mount("/base", "/all", "", MS_BIND | MS_REC).unwrap();
    let found = |path: &str| p.stat(path).map(drop);
    for path in ["/base/m/m/m/below", "/copy/m/m/below", "/all/m/m/m/below"] {
        assert_eq!(found(path), Ok(()), "{path}");
    }
    p.umount2("/base", MNT_DETACH).unwrap();
    assert_eq!(found("/base/m"), Err(Errno::NOENT));
    assert_eq!(found("/copy/m/m/below"), Ok(()), "on the same directory of another mount");
    assert_eq!(found("/all/m/m/m/below"), Ok(()));
    assert_eq!(p.umount2("/copy/m", 0), Err(Errno::BUSY), "something is mounted on it");
    p.umount2("/copy/m", MNT_DETACH).unwrap();
    assert_eq!((found("/copy/m"), found("/copy/m/m")), (Ok(()), Err(Errno::NOENT)));
    assert_eq!(found("/all/m/m/m/below"), Ok(()));
    p.umount2("/all", MNT_DETACH).unwrap();
    p.umount2("/copy", 0).unwrap();
    // Nothing is mounted on any of them any more.
    for path in ["/base", "/all", "/copy", "/src/m", "/src", "/empty/m/below"] {
        let removed = if path.ends_with("below") { p.unlink(path) } else { p.rmdir(path) };
        assert_eq!(removed, Ok(()), "{path}");
    }
}
