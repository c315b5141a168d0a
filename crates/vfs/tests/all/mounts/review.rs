//! Trees of mounts that are copied beside those who mount and unmount in the copies.

use crate::walk::support::*;
use quietline_vfs::{Path, UmountFlags, Vfs};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

fn rounds() -> u64 {
    if cfg!(debug_assertions) { quietline_testing::scaled(500) } else { 8_000 }
}

/// Says that it is over, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn left(vfs: &Vfs) -> (i64, i64) {
    (vfs.dentry_state().nr_dentry, vfs.nr_inodes())
}

/// What is at a path; it may be gone at any moment.
fn at<'k>(w: &World<'k>, path: &str) -> Result<Path<'k>, Errno> {
    w.vfs.path(&w.start(), path.as_bytes(), quietline_vfs::How::FOLLOW, &w.cred)
}

/// Binds a tree of three mounts again and again, beside `meddle`.
fn bind_beside(meddle: impl Fn(&World<'_>, &AtomicU32) + Sync) {
    let vfs = vfs();
    let w = World::with(&vfs, &["src/", "dst/"]);
    w.ns.attach(mount(&vfs, 2), w.path("src")).unwrap();
    w.make("src/m/");
    w.ns.attach(mount(&vfs, 3), w.path("src/m")).unwrap();
    w.make("src/m/n/");
    w.ns.attach(mount(&vfs, 4), w.path("src/m/n")).unwrap();
    w.make("src/m/n/f");
    let (before, mounts) = (left(&vfs), w.ns.mounts().unwrap().len());
    let (over, done) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Relaxed) {
                meddle(&w, &done);
            }
        });
        s.spawn(|| {
            let _over = Over(&over);
            for round in 0.. {
                let (from, to) = (at(&w, "/src").unwrap(), at(&w, "/dst").unwrap());
                w.ns.bind(&from, to, true).unwrap();
                while let Ok(top) = at(&w, "/dst") {
                    match w.ns.umount(top, UmountFlags::DETACH, &w.fs) {
                        Ok(()) => {}
                        Err(Errno::INVAL) => break,
                        Err(errno) => panic!("{errno}"),
                    }
                }
                if round >= rounds() && done.load(Relaxed) > 20 {
                    break;
                }
            }
        });
    });
    assert_eq!(w.ns.mounts().unwrap().len(), mounts, "what was mounted in a copy is gone with it");
    assert!(w.ino("src/m/n/f").is_ok());
    assert_eq!(left(&vfs), before);
    drop(w);
    assert_eq!(left(&vfs), (0, 0));
}

#[test]
fn a_copy_is_unmounted_while_it_is_made() {
    bind_beside(|w, done| {
        if let Ok(top) = at(w, "/dst")
            && w.ns.umount(top, UmountFlags::DETACH, &w.fs).is_ok()
        {
            done.fetch_add(1, Relaxed);
        }
    });
}

#[test]
fn somebody_mounts_in_a_copy_while_it_is_made() {
    bind_beside(|w, done| {
        if let Ok(place) = at(w, "/dst/m")
            && w.ns.attach(mount(w.vfs, 9), place).is_ok()
        {
            done.fetch_add(1, Relaxed);
        }
    });
}
