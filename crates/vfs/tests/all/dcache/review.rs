//! Dentries that no directory pins, put by some while others take them out of the tree; and
//! filesystems that end.

use crate::dcache::support::*;
use quietline_vfs::DentryRef;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

const ROUNDS: u32 = if cfg!(debug_assertions) { 20_000 } else { 60_000 };

/// Says that it is over, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `take_out` again and again on a directory with an unpinned "x", beside two threads that
/// look "x" up and put what they found, so that the last reference goes at any moment of it.
fn beside_puts(take_out: impl Fn(&DentryRef<'_>) + Sync) {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let (over, met) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let called = name(&vfs, "x");
                while !over.load(Relaxed) {
                    if let Some(found) = root.lookup(&called) {
                        assert!(found.count() > 0, "what is referred to is not dead");
                        met.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        s.spawn(|| {
            let _over = Over(&over);
            for round in 0.. {
                drop(make_unpinned(&root, "x", round % 2 == 0));
                take_out(&root);
                assert!(root.lookup(&name(&vfs, "x")).is_none());
                if round >= ROUNDS && met.load(Relaxed) > 100 {
                    break;
                }
            }
        });
    });
    assert_only_roots(&vfs, 1);
}

#[test]
fn a_tree_is_cleared_beside_last_puts() {
    beside_puts(|root| root.clear());
}

#[test]
fn a_name_is_taken_out_beside_last_puts() {
    beside_puts(|root| assert!(unlink(root, "x")));
}

#[test]
fn two_last_references_to_a_filesystem_are_put_at_once() {
    let vfs = vfs();
    for _ in 0..ROUNDS / 100 {
        let (first, barrier) = (filesystem(&vfs), Barrier::new(3));
        drop(make(&first.root(), "a"));
        let second = first.clone();
        thread::scope(|s| {
            for sb in [first, second] {
                let barrier = &barrier;
                s.spawn(move || {
                    barrier.wait();
                    drop(sb);
                });
            }
            // Whoever makes another filesystem frees those that are over.
            barrier.wait();
            drop(filesystem(&vfs));
        });
    }
    assert_only_roots(&vfs, 0);
}
