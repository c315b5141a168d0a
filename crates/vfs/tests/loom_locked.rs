//! Directories that are kept by their lock alone (`LockedDir`), in every interleaving: whoever has the lock has a directory that stays,
//! a name is never made in one that was removed, of several who want the same name one gets it, and what ends has no user left.
//!
//! What is modelled is the library's own source: dentries, tables, references, lookups, changes, lists, and what is done under the lock.
//! Inodes are not: here they have a lock, a flag, and two cells. Whoever has a dentry by a reference or by a lock reads the first one, and
//! who ends it writes that; whoever may still look at it, in a section, reads the second one, which is written when it would be freed.
//! So the model sees who is not alone. Nothing is really freed.
//!
//! The callers are put together here as in `walk/quick.rs`, `namei/remove.rs` and `namei/rename.rs`: the quick way without a reference, and
//! with one if that does not go. What the model tries depends on which of two threads is spawned: so each is, in turn. And each model says
//! which outcomes there are, all of which must be seen.
//!
//! Longer than most files, because what stands for the callers is in it.
//!
//! # Limits
//!
//! Two threads; two to four forced switches. All directories are pinned, as those of a ramfs are. Attributes, mounts, limits and
//! permissions are not there, and a file that is renamed replaces none. Spinning in the section of a lookup, or on a lock, shows as too
//! many branches.
//!
//! # Faults that were planted
//!
//! In `locked.rs`, found: in `try_lock`, no look at what was seen, or one before the lock is had (all models with `rmdir`, and that of
//! another name); no `valid` (another name); to wait for the lock (opposite directions). In `remove_sole`, no look at the count under the lock
//! (all that remove a name beside somebody who sees it); nothing marked dead; not written to `d_seq`, or only after the count is
//! dead, or no more when the name is taken out (readers go round and round); `UNCOUNTED` taken away; left as if it were hashed. In
//! `hold`, nothing counted.
//!
//! Here, found: `rmdir` without the victim's lock; the slow way without `not_removed`; two locks one after the other, each waited for;
//! no grace period; a `try_lock` that excludes nobody.
//!
//! Not found: in `try_lock`, no look at whether it is pinned and hashed, or `DEAD`, or neither: beside `rmdir`, `valid` makes up for
//! both. And what ends by `remove_sole` while the directory is still locked: only the order of locks forbids it, which no model here
//! asks for.
#![cfg(loom)]
// As in the crate's `raw`.
#![allow(unsafe_code, dead_code, unused_imports, unreachable_pub, missing_docs)]

#[path = "../src/dcache"]
mod dcache {
    pub(crate) mod name;
}

#[path = "../src/ramfs"]
mod ramfs {
    pub(crate) mod dirlog;
}

mod dentry {
    pub use crate::raw::dcache::entry::Dentry;

    bitflags::bitflags! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct DentryFlags: u32 {
            const UNHASHED = 1;
            const PINNED = 8;
            const MOUNTED = 16;
            const REVALIDATE = 32;
            const UNCOUNTED = 64;
            const TIMED = 128;
        }
    }
}

#[path = "loom_locked_support/inode.rs"]
mod inode;

mod super_block {
    use crate::vfs::Vfs;
    use core::ptr::NonNull;

    pub(crate) const NEGATIVES: usize = 0;

    /// What is counted here does not matter.
    pub struct Counts;

    impl Counts {
        pub fn add(&self, _: usize, _: u64) {}
    }

    pub struct SuperBlock {
        pub(crate) vfs: NonNull<Vfs>,
        pub(crate) counts: Counts,
        pub(crate) moves: quietline_sync::SpinLock<()>,
        pub(crate) move_seq: quietline_sync::Seqcount,
        pub(crate) renames: quietline_sync::SpinLock<()>,
    }
}

mod vfs {
    use crate::raw::dcache::long_name::LongNames;
    use crate::raw::dcache::lru::Lru;
    use quietline_sync::rcu::Domain;

    pub struct Vfs {
        pub(crate) domain: &'static Domain,
        pub(crate) long_names: LongNames,
        pub(crate) lru: Lru,
    }

    impl core::fmt::Debug for Vfs {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("Vfs")
        }
    }
}

#[path = "../src/raw"]
mod raw {
    pub(crate) mod listing;

    pub(crate) mod dcache {
        pub(crate) mod change;
        pub(crate) mod children;
        pub(crate) mod entry;
        pub(crate) mod locked;
        pub(crate) mod refs;
        pub(crate) mod seen;
        pub(crate) mod table;

        #[path = "../../../tests/loom_locked_support/long_name.rs"]
        pub(crate) mod long_name;

        /// All names here are pinned, so that none rests.
        pub(crate) mod lru {
            use super::entry::Dentry;

            pub(crate) struct Lru;

            impl Lru {
                pub(super) fn add(&self, d: &Dentry) {
                    assert!(
                        d.is_root(),
                        "a directory's reference is not put before the name is taken out"
                    );
                }
                pub(super) fn remove(&self, _: &Dentry) {}
            }
        }

        #[path = "../../../tests/loom_locked_support/life.rs"]
        pub(crate) mod life;
    }
}

use core::ptr::NonNull;
use dcache::name::{Keys, Name};
use dentry::{Dentry, DentryFlags};
use inode::{Changes, Inode, InodeFlags};
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{cpu, thread};
use quietline_sync::rcu::Domain;
use raw::dcache::locked::LockedDir;
use raw::dcache::refs::DentryRef;
use raw::dcache::seen::{Section, Seen, Step};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use super_block::SuperBlock;
use vfs::Vfs;

type Dir = DentryRef<'static>;
type Locked = LockedDir<'static>;

const KEYS: Keys = Keys::new([3, 5, 7, 11]);

fn name(bytes: &'static str) -> Name<'static> {
    Name::new(bytes.as_bytes(), &KEYS).unwrap()
}

/// All interleavings with so many forced switches, each of which has one of these outcomes, and each of those comes.
fn explore(
    switches: usize,
    outcomes: &[&'static str],
    f: impl Fn(bool) -> &'static str + Copy + Sync + Send + 'static,
) {
    for swapped in [false, true] {
        explore_one(switches, outcomes, move || f(swapped));
    }
}

fn explore_one(
    switches: usize,
    outcomes: &[&'static str],
    f: impl Fn() -> &'static str + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(switches));
    builder.max_branches = 20_000;
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let count = seen.clone();
    builder.check(move || {
        let outcome = f();
        *count.lock().unwrap().entry(outcome).or_insert(0u32) += 1;
    });
    let seen = seen.lock().unwrap();
    println!("{seen:?}");
    let mut wanted = outcomes.to_vec();
    wanted.sort_unstable();
    assert!(seen.keys().copied().eq(wanted), "not all outcomes, or others: {seen:?}");
    assert!(seen.values().sum::<u32>() > 4, "the threads have not met");
}

/// Another thread, on another CPU.
fn beside<R: 'static>(root: &Dir, f: impl FnOnce(&Dir) -> R + 'static) -> thread::JoinHandle<R> {
    let root = root.clone();
    thread::spawn(move || {
        cpu::migrate(1);
        f(&root)
    })
}

/// Two threads; which of the two is the first one, the model's order of things depends on.
fn two<A: 'static, B: 'static>(
    root: &Dir,
    swapped: bool,
    one: impl FnOnce(&Dir) -> A + 'static,
    other: impl FnOnce(&Dir) -> B + 'static,
) -> (A, B) {
    if swapped {
        let one = beside(root, one);
        let other = other(root);
        (one.join().unwrap(), other)
    } else {
        let other = beside(root, other);
        let one = one(root);
        (one, other.join().unwrap())
    }
}

/// A root directory of a kernel that is never dropped.
fn root() -> Dir {
    let domain: &'static Domain = Domain::leaked().unwrap();
    let vfs: &'static Vfs = Box::leak(Box::new(Vfs {
        domain,
        long_names: raw::dcache::long_name::LongNames,
        lru: raw::dcache::lru::Lru,
    }));
    let sb: &'static SuperBlock = Box::leak(Box::new(SuperBlock {
        vfs: NonNull::from(vfs),
        counts: super_block::Counts,
        moves: quietline_sync::SpinLock::new(()),
        move_seq: quietline_sync::Seqcount::new(),
        renames: quietline_sync::SpinLock::new(()),
    }));
    raw::dcache::life::root(vfs, sb, &name("/"))
}

/// What has a name, seen in a section.
fn find<'g>(dir: Seen<'g, 'static>, called: &'static str) -> Option<Seen<'g, 'static>> {
    loop {
        match dir.child(&name(called)) {
            Step::Found(seen) => return Some(seen),
            Step::Missing => return None,
            Step::Stale if !dir.is_hashed() => return None,
            // Renamed: as it was seen is as good for those who want to know what it has.
            Step::Stale => panic!("nobody looks into what is renamed"),
        }
    }
}

/// Does something in a directory that is locked: the root, or one below. As `quick_parent`, and then as `parent` and `not_removed`.
fn within<R>(
    root: &Dir,
    below: Option<&'static str>,
    change: impl FnOnce(&Locked) -> R,
) -> Result<R, Errno> {
    let section = root.vfs().read();
    let seen = root.seen(&section);
    let seen = match below {
        Some(below) => find(seen, below).ok_or(Errno::NOENT)?,
        None => seen,
    };
    let quick = LockedDir::try_lock(seen);
    drop(section);
    let dir = match quick {
        Some(dir) => {
            // Nobody asks here whether it has been removed: it has not.
            assert!(!dir.inode().flags().contains(InodeFlags::DEAD) && dir.dir().is_hashed());
            dir
        }
        None => {
            let held = below.map_or_else(|| Some(root.clone()), |below| root.lookup(&name(below)));
            let dir = LockedDir::lock(held.ok_or(Errno::NOENT)?)?;
            not_removed(&dir)?;
            dir
        }
    };
    dir.inode().use_it();
    let done = change(&dir);
    dir.inode().use_it();
    Ok(done)
}

fn not_removed(dir: &Locked) -> Result<(), Errno> {
    if dir.inode().flags().contains(InodeFlags::DEAD) { Err(Errno::NOENT) } else { Ok(()) }
}

/// Makes a name in a locked directory; what it is of.
fn make(dir: &Locked, called: &'static str, directory: bool) -> Result<NonNull<Dentry>, Errno> {
    let called = name(called);
    if dir.find(&called).is_some() {
        return Err(Errno::EXIST);
    }
    let mut new = dir.alloc(&called)?;
    new.instantiate(Inode::new(directory));
    dir.enter(new)?;
    dir.change(&Changes);
    Ok(NonNull::from(dir.find(&called).expect("it was just made")))
}

/// As `unlink`: with one step if nobody refers to the file, and what is to be put when the directory is unlocked if somebody does.
fn unlink(dir: &Locked, called: &'static str) -> Result<Option<[Dir; 2]>, Errno> {
    let victim = dir.find(&name(called)).ok_or(Errno::NOENT)?;
    inode(victim).use_it();
    if dir.remove_sole(victim) {
        return Ok(None);
    }
    let victim = dir.hold(victim);
    inode(&victim).use_it();
    let pin = dir.remove(&victim).expect("it was found in it");
    Ok(Some([pin, victim]))
}

/// As `rmdir`, of what is in the root. `told`: somebody is to be told of it, so that it does not go in one step.
fn rmdir(root: &Dir, called: &'static str, told: bool) -> Result<(), Errno> {
    let held = within(root, None, |dir| {
        let victim = dir.find(&name(called)).ok_or(Errno::NOENT)?;
        let mut locked = inode(victim).lock();
        if locked.listing.len() != 0 {
            return Err(Errno::NOTEMPTY);
        }
        let mut held = None;
        if told || !dir.remove_sole(victim) {
            let victim = dir.hold(victim);
            held = Some([dir.remove(&victim).expect("it was found in it"), victim]);
        }
        locked.set_dead();
        Ok(held)
    })??;
    drop(held);
    Ok(())
}

fn inode(dentry: &Dentry) -> &Inode {
    dentry.inode().expect("all here stand for something")
}

fn get(dentry: NonNull<Dentry>) -> &'static Dentry {
    // SAFETY: never freed.
    unsafe { &*dentry.as_ptr() }
}

/// Makes a name in the root.
fn made(root: &Dir, called: &'static str, directory: bool) -> &'static Dentry {
    get(within(root, None, |dir| make(dir, called, directory)).unwrap().unwrap())
}

/// Frees what this thread has ended, as soon as that may be.
fn free(root: &Dir, dentry: &Dentry) {
    if inode(dentry).is_mine_to_free() {
        root.vfs().domain.synchronize();
        inode(dentry).free();
    }
}

/// What has a name in a locked directory.
fn has(root: &Dir, below: Option<&'static str>, called: &'static str) -> Option<NonNull<Dentry>> {
    within(root, below, |dir| dir.find(&name(called)).map(NonNull::from)).unwrap()
}

fn a_name_is_made_beside_rmdir(told: bool) {
    explore(3, &["made", "removed"], move |swapped| {
        let root = root();
        let d = made(&root, "d", true);
        let (removed, made) = two(
            &root,
            swapped,
            move |root| {
                let removed = rmdir(root, "d", told);
                free(root, d);
                removed
            },
            |root| within(root, Some("d"), |dir| make(dir, "f", false).unwrap()),
        );
        assert_eq!(root.count(), 1, "references that were taken are put");
        match (removed, made) {
            (Ok(()), Err(Errno::NOENT)) => {
                assert_eq!((inode(d).ends(), has(&root, None, "d")), (1, None));
                "removed"
            }
            (Err(Errno::NOTEMPTY), Ok(f)) => {
                assert_eq!(
                    (inode(d).ends(), d.count(), has(&root, Some("d"), "f")),
                    (0, 1, Some(f))
                );
                "made"
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_name_is_made_in_a_directory_that_stays() {
    a_name_is_made_beside_rmdir(false);
}

#[test]
fn a_name_is_made_in_a_directory_that_stays_while_somebody_is_told() {
    a_name_is_made_beside_rmdir(true);
}

/// Who has made a name and taken it away again, under one lock, is not in the way; the directory ends once, by the one or the other.
#[test]
fn a_name_comes_and_goes_beside_rmdir() {
    explore(3, &["found", "gone"], |swapped| {
        let root = root();
        let d = made(&root, "d", true);
        let visit = |dir: &Locked| {
            let f = get(make(dir, "f", false).unwrap());
            assert!(unlink(dir, "f").unwrap().is_none(), "nobody else has it");
            f
        };
        let remove = move |root: &Dir| {
            rmdir(root, "d", false).expect("nobody finds a name in it");
            free(root, d);
        };
        let ((), visited) = two(&root, swapped, remove, move |root| within(root, Some("d"), visit));
        assert_eq!((inode(d).ends(), root.count()), (1, 1));
        match visited {
            Ok(f) => {
                assert_eq!(inode(f).ends(), 1);
                "found"
            }
            Err(errno) => {
                assert_eq!(errno, Errno::NOENT);
                "gone"
            }
        }
    });
}

/// A directory that was renamed since it was seen is not the one that was asked for.
#[test]
fn a_name_is_not_made_in_a_directory_of_another_name() {
    explore(3, &["made", "renamed"], |swapped| {
        let root = root();
        let d = made(&root, "d", true);
        let renamed = |dir: &Locked| {
            let new = dir.dir().new_name(&name("e")).unwrap();
            assert!(dir.rename(dir.find(&name("d")).unwrap(), None, new, None).unwrap().is_none());
        };
        let rename = move |root: &Dir| {
            within(root, None, renamed).unwrap();
            // By now nobody finds it by its old name.
            has(root, Some("e"), "f").is_some()
        };
        let (there, made) = two(&root, swapped, rename, |root| {
            within(root, Some("d"), |dir| make(dir, "f", false).unwrap())
        });
        assert_eq!(made.is_ok(), has(&root, Some("e"), "f").is_some());
        assert_eq!((d.count(), inode(d).ends(), root.count()), (1, 0, 1));
        match (there, made) {
            (false, Err(Errno::NOENT)) => "renamed",
            (true, Ok(_)) => "made",
            other => panic!("made by a name that it had no more: {other:?}"),
        }
    });
}

#[test]
fn one_of_two_makes_a_name() {
    explore(4, &["the first", "the second"], |swapped| {
        let root = root();
        let make = |root: &Dir| within(root, None, |dir| make(dir, "f", false)).unwrap();
        let (mine, other) = two(&root, swapped, make, make);
        let there = has(&root, None, "f");
        assert_eq!(root.count(), 1);
        match (mine, other) {
            (Ok(f), Err(Errno::EXIST)) if there == Some(f) => "the first",
            (Err(Errno::EXIST), Ok(f)) if there == Some(f) => "the second",
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn one_of_two_removes_a_name() {
    explore(4, &["the first", "the second"], |swapped| {
        let root = root();
        let f = made(&root, "f", false);
        let remove = |root: &Dir| within(root, None, |dir| unlink(dir, "f")).unwrap().map(drop);
        let (mine, other) = two(&root, swapped, remove, remove);
        assert_eq!((inode(f).ends(), root.count(), has(&root, None, "f")), (1, 1, None));
        match (mine, other) {
            (Ok(()), Err(Errno::NOENT)) => "the first",
            (Err(Errno::NOENT), Ok(())) => "the second",
            other => panic!("{other:?}"),
        }
    });
}

/// Who sees a file that goes has a reference to one that lives, or none.
#[test]
fn a_file_is_removed_beside_a_reader() {
    explore(3, &["held", "refused", "missed"], |swapped| {
        let root = root();
        let f = made(&root, "f", false);
        let remove = move |root: &Dir| {
            within(root, None, |dir| unlink(dir, "f")).unwrap().map(drop).unwrap();
            free(root, f);
        };
        let ((), outcome) = two(&root, swapped, remove, |root| {
            let section = root.vfs().read();
            let Some(seen) = find(root.seen(&section), "f") else { return "missed" };
            let Some(held) = seen.acquire() else { return "refused" };
            drop(section);
            inode(&held).use_it();
            "held"
        });
        assert_eq!((inode(f).ends(), f.count(), f.is_hashed(), root.count()), (1, -128, false, 1));
        outcome
    });
}

/// The same, and the name is made again: a reader finds the old one, nothing, or the new one.
#[test]
fn a_file_is_removed_and_made_again_beside_a_lookup() {
    explore(2, &["old", "new", "none"], |swapped| {
        let root = root();
        let f = made(&root, "f", false);
        let remove = |root: &Dir| {
            within(root, None, |dir| unlink(dir, "f")).unwrap().map(drop).unwrap();
            made(root, "f", false)
        };
        let (new, found) = two(&root, swapped, remove, |root| {
            let held = root.lookup(&name("f"))?;
            inode(&held).use_it();
            Some(get(held.as_ptr()))
        });
        assert_eq!((inode(f).ends(), inode(new).ends()), (1, 0));
        assert_eq!((new.count(), root.count()), (1, 1));
        match found {
            None => "none",
            Some(found) if found.same(f) => "old",
            Some(found) => {
                assert!(found.same(new));
                "new"
            }
        }
    });
}

/// As `rename_quickly` from one directory to another, and then as `rename`.
fn rename(
    root: &Dir,
    from: &'static str,
    to: &'static str,
    called: &'static str,
) -> Result<(), Errno> {
    let section = root.vfs().read();
    let seen = [from, to].map(|dir| find(root.seen(&section), dir));
    let [Some(first), Some(second)] = seen else { return Err(Errno::NOENT) };
    let quick = [first, second].map(LockedDir::try_lock);
    drop(section);
    if let [Some(from), Some(to)] = &quick {
        return moved(from, to, called);
    }
    drop(quick);
    // The library orders by address. The model repeats executions, and addresses would differ in
    // each, so names stand for them.
    let to_first = to < from;
    let held = [from, to].map(|dir| root.lookup(&name(dir)));
    let [Some(from), Some(to)] = held else { return Err(Errno::NOENT) };
    let _renames = root.super_block().renames.lock();
    let (first, second);
    let (from, to) = if to_first {
        second = LockedDir::lock(to)?;
        first = LockedDir::lock(from)?;
        (&first, &second)
    } else {
        first = LockedDir::lock(from)?;
        second = LockedDir::lock(to)?;
        (&first, &second)
    };
    not_removed(from)?;
    not_removed(to)?;
    moved(from, to, called)
}

/// Renames a file from one locked directory to another.
fn moved(from: &Locked, to: &Locked, called: &'static str) -> Result<(), Errno> {
    [from, to].iter().for_each(|dir| dir.inode().use_it());
    let source = from.find(&name(called)).ok_or(Errno::NOENT)?;
    assert!(to.find(&name(called)).is_none());
    let new = from.dir().new_name(&name(called))?;
    assert!(from.rename(source, Some(to), new, None)?.is_none(), "nothing was replaced");
    [from, to].iter().for_each(|dir| dir.inode().use_it());
    Ok(())
}

/// There and back, at once: each locks what the other one has, or none does.
#[test]
fn a_file_is_renamed_in_opposite_directions() {
    explore(3, &["there", "there and back"], |swapped| {
        let root = root();
        let dirs = ["a", "b"].map(|dir| made(&root, dir, true));
        let f = within(&root, Some("a"), |dir| make(dir, "f", false)).unwrap().unwrap();
        let there =
            |root: &Dir| rename(root, "a", "b", "f").expect("nobody else takes it from there");
        let ((), back) = two(&root, swapped, there, |root| rename(root, "b", "a", "f"));
        let there = ["a", "b"].map(|dir| has(&root, Some(dir), "f"));
        assert_eq!((dirs.map(|dir| dir.count()), root.count()), ([1, 1], 1));
        assert_eq!((get(f).count(), inode(get(f)).ends()), (1, 0));
        match (back, there) {
            (Ok(()), [Some(found), None]) if found == f => "there and back",
            (Err(Errno::NOENT), [None, Some(found)]) if found == f => "there",
            other => panic!("{other:?}"),
        }
    });
}

/// A file comes to a directory, or that is removed.
#[test]
fn a_file_is_renamed_to_a_directory_beside_rmdir() {
    explore(3, &["moved", "removed"], |swapped| {
        let root = root();
        let dirs = ["a", "b"].map(|dir| made(&root, dir, true));
        let f = within(&root, Some("a"), |dir| make(dir, "f", false)).unwrap().unwrap();
        let remove = move |root: &Dir| {
            let removed = rmdir(root, "b", false);
            free(root, dirs[1]);
            removed
        };
        let (removed, moved) = two(&root, swapped, remove, |root| rename(root, "a", "b", "f"));
        assert_eq!((dirs[0].count(), root.count()), (1, 1));
        assert_eq!((get(f).count(), inode(get(f)).ends()), (1, 0));
        let stays = has(&root, Some("a"), "f");
        match (removed, moved) {
            (Ok(()), Err(Errno::NOENT)) => {
                assert_eq!((inode(dirs[1]).ends(), stays), (1, Some(f)));
                "removed"
            }
            (Err(Errno::NOTEMPTY), Ok(())) => {
                let there = has(&root, Some("b"), "f");
                assert_eq!((inode(dirs[1]).ends(), stays, there), (0, None, Some(f)));
                "moved"
            }
            other => panic!("{other:?}"),
        }
    });
}
