//! The dentry cache under storms, at its limits, and without memory.

use crate::dcache::support::*;
use quietline_platform::fault;
use quietline_slab::LazyCache;
use quietline_sync::rcu;
use quietline_vfs::{DentryRef, Dirs, Step};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

/// A sixteenth of the full number where every instruction costs more, times the scale.
fn n(full: u32) -> u32 {
    if cfg!(debug_assertions) {
        quietline_testing::scaled(u64::from(full / 16)) as u32
    } else {
        full
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn found(dir: &DentryRef<'_>, called: &str) -> Option<u64> {
    let section = dir.vfs().read();
    ino_of(dir.seen(&section), &name(dir.vfs(), called))
}

fn rename(dir: &DentryRef<'_>, from: &str, to: &str) {
    let vfs = dir.vfs();
    let (moved, new) =
        (dir.lookup(&name(vfs, from)).unwrap(), dir.new_name(&name(vfs, to)).unwrap());
    let mut lock = dir.inode().unwrap().lock();
    assert!(moved.rename(&mut Dirs::Same(&mut lock), dir, new, None).unwrap().is_none());
}

/// Reads until the writer has done its work; at least some looks.
fn beside(write: impl FnOnce() + Send, look: impl Fn(&mut Random) + Sync) -> u64 {
    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|s| {
        for seed in 0..2 {
            let (over, looks, look) = (&over, &looks, &look);
            s.spawn(move || {
                let mut random = Random(seed);
                while !over.load(Relaxed) || looks.load(Relaxed) < 1000 {
                    look(&mut random);
                    looks.fetch_add(1, Relaxed);
                }
            });
        }
        s.spawn(|| {
            write();
            over.store(true, Relaxed);
        });
    });
    looks.load(Relaxed)
}

#[test]
fn a_million_exchanges_never_hide_a_name() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let long = "the other name, which is long enough to lie in a block of its own";
    let (a, b) = (make(&root, "a"), make(&root, long));
    let inos = [&a, &b].map(|d| d.inode().unwrap().ino());
    (0..20).for_each(|i| drop(make(&root, &format!("between{i}"))));
    let looks = beside(
        || {
            (0..n(1_000_000)).for_each(|_| {
                a.exchange(&mut Dirs::Same(&mut root.inode().unwrap().lock()), &b).unwrap()
            })
        },
        |random| {
            let called = if random.below(2) == 0 { "a" } else { long };
            let ino = found(&root, called).expect("one of the two has the name at any moment");
            assert!(inos.contains(&ino));
        },
    );
    println!("{looks} lookups");
}

#[test]
fn a_million_replacements_never_hide_a_name() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    drop(make(&root, "target"));
    let looks = beside(
        || {
            for _ in 0..n(1_000_000) {
                let (fresh, old) =
                    (make(&root, "fresh"), root.lookup(&name(&vfs, "target")).unwrap());
                let new = root.new_name(&name(&vfs, "target")).unwrap();
                let mut lock = root.inode().unwrap().lock();
                let pin = fresh.rename(&mut Dirs::Same(&mut lock), &root, new, Some(&old)).unwrap();
                drop(lock);
                drop(pin);
            }
        },
        |_| assert!(found(&root, "target").is_some()),
    );
    println!("{looks} lookups");
    root.clear();
    assert_only_roots(&vfs, 1);
}

#[test]
fn a_file_on_its_way_round_has_one_name() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let names: Vec<String> = (0..5).map(|i| format!("{i}{}", "-long".repeat(i * 4))).collect();
    let file = make(&root, &names[0]);
    beside(
        || {
            for i in 0..n(500_000) as usize {
                rename(&root, &names[i % 5], &names[(i + 1) % 5]);
            }
        },
        |random| {
            // By reference: what is found is the file, and its parent the root.
            if let Some(found) = root.lookup(&name(&vfs, &names[random.below(5)])) {
                assert!(found.same(&file) && found.parent().same(&root));
            }
        },
    );
    let section = vfs.read();
    let there = names.iter().filter(|called| {
        matches!(root.seen(&section).child(&name(&vfs, called)), Step::Found(found) if found.is(&file))
    });
    assert_eq!(there.count(), 1);
}

/// Moves the directory `dir`.
fn go<'k>(
    from: &DentryRef<'k>,
    to: &DentryRef<'k>,
    dir: &DentryRef<'k>,
    sb: &quietline_vfs::SuperBlock,
) {
    let new = dir.new_name(&name(dir.vfs(), "dir")).unwrap();
    let _renames = sb.lock_renames();
    let (mut a, mut b) = (from.inode().unwrap().lock(), to.inode().unwrap().lock());
    dir.rename(&mut Dirs::Two(&mut a, &mut b), to, new, None).unwrap();
}

/// Property 6 with two directories: each parent that is found is where the file was at one moment.
#[test]
fn parents_and_paths_while_files_and_directories_move() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let (one, two) = (mkdir(&root, "one"), mkdir(&root, "two"));
    let dir = mkdir(&one, "dir");
    let file = make(&dir, "file");
    beside(
        || {
            for _ in 0..n(100_000) {
                go(&one, &two, &dir, &sb);
                go(&two, &one, &dir, &sb);
            }
        },
        |_| {
            let parent = dir.parent();
            assert!(parent.same(&one) || parent.same(&two));
            assert!(file.is_below(&root) && file.is_below(&dir) && !dir.is_below(&file));
            let mut buffer = [0; 64];
            let mut path = quietline_vfs::PathBuffer::new(&mut buffer);
            file.path_in_filesystem(&mut path).unwrap();
            assert!(
                [&b"/one/dir/file"[..], b"/two/dir/file"].contains(&path.bytes()),
                "{:?}",
                path.bytes()
            );
        },
    );
    assert_eq!((one.count(), two.count(), dir.count()), (3, 2, 3));
}

#[test]
fn making_and_ending_the_same_names_on_all_threads() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let names: Vec<String> = (0..8).map(|i| format!("name{i}")).collect();
    thread::scope(|s| {
        for seed in 0..4 {
            let (root, names, vfs) = (&root, &names, &vfs);
            s.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..n(200_000) {
                    let called = &names[random.below(8)];
                    match random.below(4) {
                        0 => drop(
                            try_make(root, called, false).map_err(|e| assert_eq!(e, Errno::EXIST)),
                        ),
                        1 => drop(unlink(root, called)),
                        2 => {
                            if let Some(held) = root.lookup(&name(vfs, called)) {
                                assert!(held.parent().same(root) && held.count() > 0);
                            }
                        }
                        _ => drop(vfs.prune(4)),
                    }
                }
            });
        }
    });
    root.clear();
    assert_only_roots(&vfs, 1);
}

#[test]
fn unpinned_dentries_under_use_and_pressure() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let names: Vec<String> = (0..16).map(|i| format!("name{i}")).collect();
    thread::scope(|s| {
        for seed in 0..4 {
            let (root, names, vfs) = (&root, &names, &vfs);
            s.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..n(100_000) {
                    let called = name(vfs, &names[random.below(16)]);
                    if random.below(8) == 0 {
                        vfs.prune(random.below(4));
                    } else if root.lookup(&called).is_none() {
                        let new = root.alloc(&called).unwrap();
                        let mut lock = root.inode().unwrap().lock();
                        let section = vfs.read();
                        if matches!(root.seen(&section).child(&called), Step::Missing) {
                            drop(section);
                            drop(new.add(&mut lock).unwrap());
                        }
                    }
                }
            });
        }
    });
    assert_eq!(vfs.dentry_state().nr_unused, vfs.dentry_state().nr_negative);
    vfs.shrink();
    assert_only_roots(&vfs, 1);
}

#[test]
fn a_million_names_in_one_directory() {
    quietline_testing::isolated!();
    let count = i64::from(n(1_000_000));
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    for i in 0..count {
        drop(make(&root, &format!("{i}")));
    }
    assert_eq!(sb.nr_dentry(), count + 1);
    for i in (0..count).step_by(7) {
        assert!(
            found(&root, &format!("{i}")).is_some() && found(&root, &format!("{i}x")).is_none()
        );
    }
    for i in 0..count {
        assert!(i % 3 == 0 || unlink(&root, &format!("{i}")), "{i}");
    }
    for i in 0..count {
        assert_eq!(found(&root, &format!("{i}")).is_some(), i % 3 == 0, "{i}");
    }
    root.clear();
    vfs.shrink();
    assert_only_roots(&vfs, 1);
    // What readers might have seen goes after a grace period.
    rcu::global().unwrap().barrier();
    vfs.shrink();
    let [dentries, inodes, ..] = vfs.caches().map(LazyCache::stats);
    assert!(
        dentries.slabs < 100 && inodes.slabs < 100,
        "given back: {} and {} slabs",
        dentries.slabs,
        inodes.slabs
    );
}

#[test]
fn without_memory_nothing_changes_and_nothing_is_lost() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let long = "a name that is too long to lie in the dentry itself";
    // The table of the root is full for one more: this finds out where each step needs memory.
    (0..6).for_each(|i| drop(make(&root, &format!("f{i}"))));
    let mut failures = 0;
    for nth in 1.. {
        // What caches keep would serve instead.
        vfs.shrink();
        rcu::global().unwrap().barrier();
        vfs.shrink();
        fault::fail_from(nth);
        let result = (|| {
            let dir = try_make(&root, long, true)?;
            let file = try_make(&dir, "file", false)?;
            let new = root.new_name(&name(&vfs, &format!("{long} and more")))?;
            let (mut a, mut b) = (dir.inode().unwrap().lock(), root.inode().unwrap().lock());
            file.rename(&mut Dirs::Two(&mut a, &mut b), &root, new, None)?;
            Ok::<_, Errno>(())
        })();
        fault::fail_nth(0);
        if result.is_ok() {
            break;
        }
        assert_eq!(result, Err(Errno::NOMEM));
        failures += 1;
        unlink(&root, &format!("{long} and more"));
        if let Some(dir) = root.lookup(&name(&vfs, long)) {
            dir.clear();
            drop(dir);
            assert!(unlink(&root, long));
        }
        assert_eq!((sb.nr_dentry(), sb.nr_inodes()), (7, 7));
    }
    assert!(failures >= 5, "only {failures} allocations failed");
    // And a kernel and a filesystem themselves.
    let mut failures = 0;
    for nth in 1.. {
        fault::fail_nth(nth);
        let made = quietline_vfs::Vfs::new().and_then(|vfs| try_filesystem(&vfs).map(drop));
        let fired = !fault::armed();
        fault::fail_nth(0);
        match made {
            Ok(()) if !fired => break,
            Ok(()) => {}
            Err(errno) => assert_eq!(errno, Errno::NOMEM),
        }
        failures += u32::from(made.is_err());
    }
    assert!(failures >= 8, "only {failures} allocations failed");
}

#[test]
fn filesystems_end_while_their_files_are_in_use() {
    quietline_testing::isolated!();
    let vfs = vfs();
    for round in 0..n(400) {
        let sb = filesystem(&vfs);
        let root = sb.root();
        let dir = mkdir(&root, "dir");
        thread::scope(|s| {
            let (vfs, root) = (&vfs, &root);
            s.spawn(move || {
                for i in 0..50 {
                    // Once the tree is down there is no such directory to make names in.
                    match try_make(&dir, &format!("f{i}"), false) {
                        Ok(file) => assert!(file.parent().same(&dir)),
                        Err(errno) => assert_eq!(errno, Errno::NOENT),
                    }
                    let _ = root.lookup(&name(vfs, "dir")).map(|dir| dir.lookup(&name(vfs, "f7")));
                }
            });
            s.spawn(move || {
                (0..round % 40).for_each(|_| std::hint::spin_loop());
                drop(sb);
            });
        });
        drop(root);
    }
    vfs.shrink();
    assert_only_roots(&vfs, 0);
}
