//! Walks beside those who rename, mount and unmount.

use crate::walk::support::{World, filesystem, mkdir, vfs};
use quietline_testing::TimedLoop;
use quietline_vfs::{How, MountFlags, Path, UmountFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 400 } else { 300 });

fn count(n: &AtomicU64) {
    n.fetch_add(1, Relaxed);
}

/// Walkers by both ways through a mountpoint that is mounted and unmounted all the time: each finds the file below or the one
/// above, and takes references that hold. Nothing is left in the end.
#[test]
fn through_a_mountpoint() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/", "m/f", "m/d/"]);
    let sb = filesystem(&vfs, 2);
    let above = {
        let root = sb.root();
        mkdir(&root, "f");
        mkdir(&root, "d");
        root
    };
    let before = (vfs.dentry_state().nr_dentry, vfs.nr_inodes());
    let (stop, seen, busy, done) = (
        AtomicBool::new(false),
        [const { AtomicU64::new(0) }; 2],
        AtomicU64::new(0),
        AtomicU64::new(0),
    );
    std::thread::scope(|s| {
        for n in 0..3 {
            let (w, stop, seen) = (&w, &stop, &seen);
            s.spawn(move || {
                while !stop.load(Relaxed) {
                    let path: &[u8] = [b"m/f", b"m/d/../f" as &[u8], b"/m/d/.././f"][n];
                    let dev = w.vfs.look(&w.start(), path, How::FOLLOW, &w.cred, |found| {
                        let dev = found.dentry().super_block().s_dev();
                        assert_eq!(dev == 2, found.mount().id() != w.ns.root().mount().id());
                        dev
                    });
                    // From the directory below, `..` leads to a directory with an `f` whichever is mounted; but what was walked to may
                    // be unmounted before `..` is.
                    let dev = dev.unwrap();
                    count(&seen[dev as usize - 1]);
                    let place = w.vfs.path(&w.start(), path, How::FOLLOW, &w.cred).unwrap();
                    assert!(place.dentry().count() > 0 && place.dentry().is_hashed());
                    assert_eq!(
                        place.mount().super_block().s_dev(),
                        place.dentry().super_block().s_dev()
                    );
                    drop(place);
                    let place =
                        w.vfs.path_by_reference(&w.start(), path, How::FOLLOW, &w.cred).unwrap();
                    assert_eq!(
                        place.mount().super_block().s_dev(),
                        place.dentry().super_block().s_dev()
                    );
                }
            });
        }
        let time = TimedLoop::new(TIME);
        // A dozen times at least, where each takes long (walkers keep the mount busy).
        let enough = || done.load(Relaxed) >= 12 && seen.iter().all(|n| n.load(Relaxed) > 0);
        while time.goes_on(enough()) {
            let mount = vfs.new_mount(sb.clone(), MountFlags::empty()).unwrap();
            w.ns.attach(mount, w.path("m")).unwrap();
            std::thread::yield_now();
            let mut flags = if done.load(Relaxed) % 3 == 0 {
                UmountFlags::DETACH
            } else {
                UmountFlags::empty()
            };
            for attempt in 0.. {
                // Walkers that never leave it are no reason to wait for ever.
                if attempt == 100 {
                    flags = UmountFlags::DETACH;
                }
                match w.ns.umount(Path::root_of(w.path("m").mount().clone()), flags, &w.fs) {
                    Ok(()) => break,
                    Err(Errno::BUSY) => count(&busy),
                    Err(errno) => panic!("{errno}"),
                }
            }
            count(&done);
            // Now and then somebody shall have walked to what is below.
            let below = seen[0].load(Relaxed);
            while done.load(Relaxed) % 4 == 0
                && seen[0].load(Relaxed) == below
                && time.goes_on(true)
            {
                std::thread::yield_now();
            }
        }
        stop.store(true, Relaxed);
    });
    println!("mounted {done:?} times, {busy:?} times busy, walked below and above {seen:?}");
    assert!(seen.iter().all(|n| n.load(Relaxed) > 0));
    vfs.shrink();
    assert_eq!((vfs.dentry_state().nr_dentry, vfs.nr_inodes()), before);
    drop(above);
    assert_eq!(w.ns.mounts().unwrap().len(), 1);
}

/// Each filesystem is used until it is unmounted, lazily, and ends when its last user goes.
#[test]
fn unmounted_under_load() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/"]);
    let before = vfs.dentry_state().nr_dentry;
    let (stop, found) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rounds = 0;
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut kept = None;
                while !stop.load(Relaxed) {
                    match w.vfs.path(&w.start(), b"m/a/b/c", How::FOLLOW, &w.cred) {
                        Ok(place) => {
                            count(&found);
                            let mut at = place.dentry().clone();
                            while !at.is_root() {
                                at = at.parent();
                            }
                            assert!(at.super_block().s_dev() > 1);
                            kept = Some(place);
                        }
                        Err(errno) => assert_eq!(errno, Errno::NOENT),
                    }
                    if let Some(kept) = &kept {
                        assert!(kept.dentry().count() > 0);
                    }
                }
            });
        }
        let time = TimedLoop::new(TIME);
        while time.goes_on(rounds > 10 && found.load(Relaxed) > 0) {
            let sb = filesystem(&vfs, 2);
            let mut at = sb.root();
            for name in ["a", "b", "c"] {
                at = mkdir(&at, name);
            }
            drop(at);
            w.ns.attach(vfs.new_mount(sb, MountFlags::empty()).unwrap(), w.path("m")).unwrap();
            std::thread::sleep(Duration::from_micros(200));
            w.ns.umount(w.path("m"), UmountFlags::DETACH, &w.fs).unwrap();
            rounds += 1;
        }
        stop.store(true, Relaxed);
    });
    println!("{rounds} filesystems, found {found:?} times");
    assert!(rounds > 10 && found.load(Relaxed) > 0);
    assert_eq!(vfs.dentry_state().nr_dentry, before, "nothing is left of any");
}

/// A tree that is renamed all the time: each name is always there once, so each walk finds what it looks for.
#[test]
fn through_a_tree_that_is_renamed() {
    let vfs = vfs();
    let w = World::with(
        &vfs,
        &["a/", "b/", "a/x/", "a/x/y/", "a/x/y/f", "l -> a/../b/../here", "here/", "here/f"],
    );
    let (stop, walked) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut renames = 0u64;
    std::thread::scope(|s| {
        for n in 0..3 {
            let (w, stop, walked) = (&w, &stop, &walked);
            s.spawn(move || {
                let f = w.vfs.path(&w.start(), b"here/f", How::FOLLOW, &w.cred).unwrap();
                while !stop.load(Relaxed) {
                    count(walked);
                    // It is in one of the two at any moment; a walk that looks into one and then into the other may miss it in both.
                    let found = [b"a/x/y/f" as &[u8], b"b/x/y/f"].map(|path| {
                        let ino = w.vfs.look(&w.start(), path, How::FOLLOW, &w.cred, |found| {
                            found.inode().ino()
                        });
                        ino.inspect_err(|errno| assert_eq!(*errno, Errno::NOENT)).ok()
                    });
                    let _ = found;
                    // Neither of these goes through what is renamed.
                    let through = w.vfs.look(&w.start(), b"l/f", How::FOLLOW, &w.cred, |found| {
                        found.inode().ino()
                    });
                    assert_eq!(through, Ok(f.dentry().inode().unwrap().ino()));
                    // Up from below what is renamed, one comes out.
                    if n == 0
                        && let Ok(y) = w.vfs.path(&w.start(), b"a/x/y", How::FOLLOW, &w.cred)
                    {
                        let start = quietline_vfs::Start::at(&w.fs, y.borrow());
                        let up =
                            w.vfs.look(&start, b"../../../here/f", How::FOLLOW, &w.cred, |found| {
                                found.inode().ino()
                            });
                        assert_eq!(up, Ok(f.dentry().inode().unwrap().ino()));
                    }
                    if n == 1
                        && let Ok(y) =
                            w.vfs.path_by_reference(&w.start(), b"b/x/y", How::FOLLOW, &w.cred)
                    {
                        let mut buffer = [0; 100];
                        let mut path = quietline_vfs::PathBuffer::new(&mut buffer);
                        w.vfs.d_path(&y, &w.fs.root_path(), &mut path).unwrap();
                        assert!(
                            [b"/a/x/y", b"/b/x/y"]
                                .contains(&path.bytes().first_chunk::<6>().unwrap())
                        );
                    }
                }
            });
        }
        let time = TimedLoop::new(TIME);
        while time.goes_on(walked.load(Relaxed) > 100) {
            for _ in 0..50 {
                w.rename("a/x", "b/x");
                w.rename("b/x", "a/x");
                renames += 2;
            }
        }
        stop.store(true, Relaxed);
    });
    println!("{renames} renames, {walked:?} walks");
    assert!(walked.load(Relaxed) > 100);
}

/// A name that is always there, in a directory whose other names come and go, is always found; and so is one that is renamed over.
#[test]
fn a_name_that_is_replaced_is_always_there() {
    let vfs = vfs();
    let w = World::with(&vfs, &["d/", "d/target"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    w.vfs.look(&w.start(), b"d/target", How::FOLLOW, &w.cred, |_| ()).unwrap();
                    let place = w.vfs.path(&w.start(), b"d/target", How::FOLLOW, &w.cred).unwrap();
                    assert!(place.dentry().inode().is_some());
                }
            });
        }
        let time = TimedLoop::new(TIME);
        let mut n = 0;
        while time.goes_on(true) {
            n += 1;
            w.make(&format!("d/new{n}"));
            w.rename(&format!("d/new{n}"), "d/target");
        }
        stop.store(true, Relaxed);
    });
}

/// A process that changes its root and its directory while its threads look up paths.
#[test]
fn changing_directory_under_walks() {
    let vfs = vfs();
    let w = World::with(&vfs, &["a/", "a/f", "b/", "b/f"]);
    let (a, b) = (w.path("a"), w.path("b"));
    let expected = [w.ino("a/f"), w.ino("b/f")];
    w.fs.set_pwd(a.clone());
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    let f = w
                        .vfs
                        .look(&w.start(), b"f", How::FOLLOW, &w.cred, |found| found.inode().ino());
                    assert!(expected.contains(&f));
                    let at = w.fs.pwd_path();
                    assert!(at.same(&a) || at.same(&b));
                }
            });
        }
        let time = TimedLoop::new(TIME);
        while time.goes_on(true) {
            for to in [&b, &a] {
                w.fs.set_pwd(to.clone());
            }
        }
        stop.store(true, Relaxed);
    });
    drop((a, b));
    w.fs.set_pwd(w.fs.root_path());
    assert_eq!(w.path("a").dentry().count(), 3, "the directory's, ours, and that of its child");
}
