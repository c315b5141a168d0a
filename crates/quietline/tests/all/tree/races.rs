//! The tree under many hands: renames beside lookups, with what must hold at every moment;
//! unmounting under load.

use crate::support::{StopOnDrop, alone, pages_used};
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};
use quietline_testing::TimedLoop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// How often a directory is renamed: a million times at the full scale.
fn renames() -> u64 {
    if cfg!(debug_assertions) { quietline_testing::scaled(60_000) } else { 1_000_000 }
}

fn root() -> Process {
    Kernel::boot(Config::default().privileged(true)).unwrap().process().unwrap()
}

/// A million renames of five kinds beside lookups by path, by descriptor, upwards and of the
/// working directory: what is exchanged or replaced is never missing, what stands still is always
/// found, and nobody finds what was never there.
#[test]
fn a_million_renames_beside_lookups() {
    quietline_testing::isolated!();
    let full = renames();
    let _alone = alone();
    let before = pages_used();
    let p = root();
    for dir in ["/p", "/q", "/p/d", "/p/d/deep", "/still", "/still/here"] {
        p.mkdir(dir, 0o755).unwrap();
    }
    let make = |path: &str| {
        p.close(p.creat(path, 0o600).unwrap()).unwrap();
        p.stat(path).unwrap().st_ino
    };
    let (x, y, f) = (make("/x"), make("/q/y with a name that is kept apart"), make("/p/d/deep/f"));
    make("/current");
    make("/p/moving");
    let d = p.stat("/p/d").unwrap().st_ino;
    let [parent_p, parent_q] = ["/p", "/q"].map(|dir| p.stat(dir).unwrap().st_ino);
    let fd = p.open("/p/d", O_RDONLY | O_DIRECTORY, 0).unwrap();
    let inside = p.fork().unwrap();
    inside.chdir("/p/d/deep").unwrap();
    let (stop, renames, lookups) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        // Who renames: each its own names, so that none fails.
        scope.spawn(|| {
            let _stop = StopOnDrop(&stop);
            while renames.load(Relaxed) < full || lookups.load(Relaxed) < full {
                p.renameat2(
                    AT_FDCWD,
                    "/x",
                    AT_FDCWD,
                    "/q/y with a name that is kept apart",
                    RENAME_EXCHANGE,
                )
                .unwrap();
                p.close(p.creat("/p/next", 0o600).unwrap()).unwrap();
                p.rename("/p/next", "/current").unwrap();
                renames.fetch_add(2, Relaxed);
            }
        });
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                p.rename("/p/d", "/q/d").unwrap();
                p.rename("/q/d", "/p/d").unwrap();
                p.rename("/p/moving", "/p/a name of which the bytes do not fit into the dentry")
                    .unwrap();
                p.rename("/p/a name of which the bytes do not fit into the dentry", "/q/moving")
                    .unwrap();
                p.rename("/q/moving", "/p/moving").unwrap();
                renames.fetch_add(5, Relaxed);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    for path in ["/x", "/q/y with a name that is kept apart"] {
                        let found = p.stat(path).expect("exchanged, and never missing").st_ino;
                        assert!(found == x || found == y, "{path}");
                    }
                    p.stat("/current").expect("replaced, and never missing");
                    p.stat("/still/here").expect("nobody touches it");
                    assert_eq!(p.stat("/still/gone").map(drop), Err(Errno::NOENT));
                    assert_eq!(
                        p.fstatat(fd, "deep/f", 0).expect("by the directory itself").st_ino,
                        f
                    );
                    let up = p.fstatat(fd, "..", 0).unwrap().st_ino;
                    assert!(up == parent_p || up == parent_q);
                    let up = inside.stat("../..").unwrap().st_ino;
                    assert!(up == parent_p || up == parent_q);
                    let cwd = inside.getcwd().unwrap();
                    assert!(
                        cwd == b"/p/d/deep" || cwd == b"/q/d/deep",
                        "{}",
                        String::from_utf8_lossy(&cwd)
                    );
                    // In one place or the other; missed in both only if it moved in between.
                    for path in ["/p/d/deep/f", "/q/d/deep/f"] {
                        match p.stat(path) {
                            Ok(stat) => assert_eq!(stat.st_ino, f),
                            Err(errno) => assert_eq!(errno, Errno::NOENT),
                        }
                    }
                    match p.open("/p/d", O_PATH, 0) {
                        Ok(opened) => {
                            assert_eq!(p.fstat(opened).unwrap().st_ino, d);
                            p.close(opened).unwrap();
                        }
                        Err(errno) => assert_eq!(errno, Errno::NOENT),
                    }
                    lookups.fetch_add(12, Relaxed);
                }
            });
        }
    });
    println!("{} renames, {} lookups", renames.load(Relaxed), lookups.load(Relaxed));
    drop(inside);
    p.close(fd).unwrap();
    assert_eq!(p.stat("/p/d/deep/f").unwrap().st_ino, f);
    drop(p);
    assert_eq!(pages_used(), before);
}

/// Filesystems that are mounted, used by all, and unmounted while they are: an ordinary unmount is
/// refused or finds nobody there; a lazy one takes the place away from under those who use it,
/// whose files go on. Afterwards nothing is left.
#[test]
fn unmounting_under_load() {
    quietline_testing::isolated!();
    let full = if cfg!(debug_assertions) { quietline_testing::scaled(80) } else { 2_000 };
    let full = full as usize;
    let _alone = alone();
    let before = pages_used();
    let p = root();
    p.mkdir("/m", 0o755).unwrap();
    let (stop, used, busy, away) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for user in 0..3 {
            let (p, stop, used) = (&p, &stop, &used);
            scope.spawn(move || {
                // What may happen to who uses what is unmounted: it is not there, or is the empty
                // directory below.
                let allowed = |errno: Errno| {
                    assert!(
                        matches!(errno, Errno::NOENT | Errno::NOTEMPTY | Errno::XDEV),
                        "{errno}"
                    )
                };
                let dir = format!("/m/dir{user}");
                let _stop = StopOnDrop(stop);
                while !stop.load(Relaxed) {
                    if let Err(errno) = p.mkdir(&dir, 0o755) {
                        assert!(matches!(errno, Errno::EXIST | Errno::NOENT), "{errno}");
                    }
                    match p.open(format!("{dir}/file"), O_CREAT | O_RDWR, 0o600) {
                        Ok(fd) => {
                            // Ours as long as it is open, mounted or not.
                            assert_eq!(p.pwrite(fd, &[user; 6000], 100), Ok(6000));
                            let mut bytes = [9; 6000];
                            assert_eq!(p.pread(fd, &mut bytes, 100), Ok(6000));
                            assert_eq!(bytes, [user; 6000]);
                            assert_eq!(p.fstat(fd).unwrap().st_size, 6100);
                            p.close(fd).unwrap();
                            used.fetch_add(1, Relaxed);
                        }
                        Err(errno) => allowed(errno),
                    }
                    p.rename(format!("{dir}/file"), format!("{dir}/renamed"))
                        .unwrap_or_else(allowed);
                    p.unlink(format!("{dir}/renamed")).unwrap_or_else(allowed);
                    p.rmdir(&dir).unwrap_or_else(allowed);
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        let mut round = 0;
        // On until the mount has been found busy.
        while round < full || busy.load(Relaxed) == 0 && round < 1_000 * full {
            p.mount("", "/m", "tmpfs", 0).unwrap();
            // Until it is in use.
            let before = used.load(Relaxed);
            while used.load(Relaxed) < before + 3 && !stop.load(Relaxed) {
                thread::yield_now();
            }
            if round % 2 == 0 {
                while let Err(errno) = p.umount2("/m", 0) {
                    assert_eq!(errno, Errno::BUSY);
                    if busy.fetch_add(1, Relaxed) % 20 == 19 {
                        break;
                    }
                    thread::yield_now();
                }
            }
            // Whatever is there still.
            match p.umount2("/m", 2) {
                Ok(()) => _ = away.fetch_add(1, Relaxed),
                Err(errno) => assert_eq!(errno, Errno::INVAL, "nothing is mounted there any more"),
            }
            round += 1;
        }
    });
    let [used, busy, away] = [used, busy, away].map(AtomicU64::into_inner);
    println!("{full} mounts: used {used} times, found busy {busy} times, {away} unmounted lazily");
    assert!(busy > 0 && away > full as u64 / 2 - 1);
    p.kernel().shrink();
    for user in 0..3 {
        // What was made below while nothing was mounted.
        let _ = p.unlink(format!("/m/dir{user}/file"));
        let _ = p.unlink(format!("/m/dir{user}/renamed"));
        let _ = p.rmdir(format!("/m/dir{user}"));
    }
    p.rmdir("/m").unwrap();
    p.kernel().shrink();
    assert_eq!(
        (p.kernel().nr_dentry(), p.kernel().nr_inodes()),
        (0, 0),
        "dentries and inodes of what was unmounted"
    );
    drop(p);
    assert_eq!(pages_used(), before);
}

/// Making a mount read-only is refused only while somebody goes on writing, not because somebody
/// makes a name just now.
#[test]
fn who_is_soon_done_keeps_no_mount_writable() {
    quietline_testing::isolated!();
    let full = quietline_testing::scaled(500);
    let _alone = alone();
    let p = root();
    p.mkdir("/m", 0o755).unwrap();
    p.mount("", "/m", "tmpfs", 0).unwrap();
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for user in 0..3 {
            let (p, stop, made) = (&p, &stop, &made);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    match p
                        .mkdir(format!("/m/{user}"), 0o755)
                        .and_then(|()| p.rmdir(format!("/m/{user}")))
                    {
                        Ok(()) => _ = made.fetch_add(1, Relaxed),
                        Err(errno) => {
                            assert!(matches!(errno, Errno::ROFS | Errno::EXIST), "{errno}")
                        }
                    }
                    let _ = p.rmdir(format!("/m/{user}"));
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        let mut rounds = 0;
        while rounds < full || made.load(Relaxed) < full / 2 {
            // A writer that is preempted for long in the middle of its call makes it fail, as on
            // Linux.
            let patience = TimedLoop::new(Duration::ZERO);
            let mut done = false;
            while patience.goes_on(done) {
                match p.mount("", "/m", "", quietline::MS_REMOUNT | quietline::MS_BIND | 1) {
                    Ok(()) => done = true,
                    Err(errno) => assert_eq!(errno, Errno::BUSY),
                }
            }
            assert_eq!(p.mkdir("/m/main", 0o755), Err(Errno::ROFS));
            p.mount("", "/m", "", quietline::MS_REMOUNT | quietline::MS_BIND).unwrap();
            // Now and then until somebody has made something, or the others run only while they may
            // not.
            let before = made.load(Relaxed);
            let patience = if rounds % 2 == 0 { 100 } else { 0 };
            for _ in 0..patience {
                if made.load(Relaxed) > before {
                    break;
                }
                thread::yield_now();
            }
            rounds += 1;
        }
    });
    let fd = p.creat("/m/open", 0o600).unwrap();
    assert_eq!(
        p.mount("", "/m", "", quietline::MS_REMOUNT | quietline::MS_BIND | 1),
        Err(Errno::BUSY)
    );
    p.close(fd).unwrap();
    p.mount("", "/m", "", quietline::MS_REMOUNT | quietline::MS_BIND | 1).unwrap();
}
