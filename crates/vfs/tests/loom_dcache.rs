//! The dentry cache's protocols in every interleaving (properties 5 and 6, and that no reader misses a name that is there).
//!
//! What is modelled is the library's own source: dentries, their tables, references, lookups and changes. Their memory is not
//! (slabs are native): here dentries are never freed, and what would be freed is marked, so that a model can ask how
//! often each ended.
#![cfg(loom)]
// As in the crate's `raw`.
#![allow(unsafe_code, dead_code, unused_imports, unreachable_pub, missing_docs)]

#[path = "../src/dcache"]
mod dcache {
    pub(crate) mod name;
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

mod inode {
    use core::ptr::NonNull;

    /// A directory's lock, and who it is of.
    #[derive(Debug)]
    pub struct Inode {
        pub directory: bool,
        pub lock: loom::sync::Mutex<()>,
    }

    #[derive(Debug)]
    pub struct InodeRef<'k>(NonNull<Inode>, core::marker::PhantomData<&'k ()>);

    pub struct InodeGuard<'a>(&'a Inode, loom::sync::MutexGuard<'a, ()>);

    impl core::fmt::Debug for InodeGuard<'_> {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("InodeGuard")
        }
    }

    impl Inode {
        pub fn new(directory: bool) -> InodeRef<'static> {
            let inode = Self { directory, lock: loom::sync::Mutex::new(()) };
            InodeRef(NonNull::from(Box::leak(Box::new(inode))), core::marker::PhantomData)
        }

        pub fn is_dir(&self) -> bool {
            self.directory
        }

        pub fn same(&self, other: &Inode) -> bool {
            core::ptr::eq(self, other)
        }

        pub fn lock(&self) -> InodeGuard<'_> {
            InodeGuard(self, self.lock.lock().unwrap())
        }
    }

    impl<'a> InodeGuard<'a> {
        pub fn inode(&self) -> &'a Inode {
            self.0
        }

        /// Nothing is listed here.
        pub fn forget_listed(&mut self, _: &crate::dentry::Dentry) {}
    }

    impl InodeRef<'_> {
        pub(crate) fn into_raw(self) -> NonNull<Inode> {
            self.0
        }
    }
}

mod super_block {
    use crate::dentry::Dentry;
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
    pub(crate) mod dcache {
        pub(crate) mod change;
        pub(crate) mod children;
        pub(crate) mod entry;
        pub(crate) mod refs;
        pub(crate) mod seen;
        pub(crate) mod table;

        /// Names here are short.
        pub(crate) mod long_name {
            use crate::dcache::name::Name;
            use quietline_platform::AllocError;

            pub(crate) struct LongNames;

            #[derive(Clone, Copy)]
            pub(crate) enum LongName {}

            impl LongNames {
                pub(super) fn alloc(&self, _: &Name<'_>) -> Result<LongName, AllocError> {
                    unreachable!("names are short")
                }
                pub(super) unsafe fn free(&self, name: LongName) {
                    match name {}
                }
                pub(super) unsafe fn free_rcu(&self, name: LongName) {
                    match name {}
                }
            }

            impl LongName {
                pub(super) fn into_word(self) -> u64 {
                    match self {}
                }
                pub(super) unsafe fn from_word(_: u64, _: usize) -> Self {
                    unreachable!("names are short")
                }
                pub(super) fn equals(&self, _: &Name<'_>) -> bool {
                    match *self {}
                }
                pub(super) fn copy_to(&self, _: &mut [u8; 255]) {
                    match *self {}
                }
            }
        }

        /// One list without order: whether a dentry is on it.
        pub(crate) mod lru {
            use super::entry::Dentry;
            use quietline_platform::atomic::Ordering::Relaxed;

            pub(crate) struct Lru;

            impl Lru {
                pub(super) fn add(&self, d: &Dentry) {
                    d.lru_state.store(1, Relaxed);
                }
                pub(super) fn remove(&self, d: &Dentry) {
                    d.lru_state.store(0, Relaxed);
                }
            }

            /// Asked when all is quiet.
            pub(crate) fn is_on(d: &Dentry) -> bool {
                d.lru_state.load(Relaxed) == 1
            }

            /// What `prune` does with one dentry of the list.
            pub(crate) fn prune(d: &Dentry) -> bool {
                let Some(mut guard) = d.d_lockref.try_lock() else { return false };
                if guard.is_dead() {
                    return false;
                }
                d.lru_state.store(0, Relaxed);
                if guard.count() != 0 {
                    return false;
                }
                guard.get();
                drop(guard);
                // SAFETY: just taken.
                let dentry =
                    unsafe { super::refs::DentryRef::from_raw(core::ptr::NonNull::from(d)) };
                let parent = dentry.parent();
                let mut dir = parent.inode().expect("a directory").lock();
                dentry.count() == 1 && dentry.unhash(&mut dir).is_some()
            }
        }

        /// Dentries that are never freed.
        pub(crate) mod life {
            use super::entry::Dentry;
            use super::refs::{DentryRef, NewDentry};
            use crate::dcache::name::Name;
            use crate::super_block::SuperBlock;
            use crate::vfs::Vfs;
            use core::ptr::NonNull;
            use quietline_platform::atomic::Ordering::Relaxed;
            use rustix::io::Errno;

            /// A directory that is its own parent.
            pub(crate) fn root(
                vfs: &'static Vfs,
                sb: &SuperBlock,
                name: &Name<'_>,
            ) -> DentryRef<'static> {
                // SAFETY: its own parent, and never freed.
                let mut new =
                    unsafe { NewDentry::alloc(vfs, sb, name, core::ptr::null_mut(), true) }
                        .unwrap();
                new.instantiate(crate::inode::Inode::new(true));
                new.dentry().set_state(crate::dentry::DentryFlags::PINNED);
                new.into_unhashed()
            }

            /// In `d_offset`, which nothing else uses here: how often the dentry has ended.
            pub(crate) fn ends(d: &Dentry) -> u64 {
                d.offset()
            }

            pub(super) unsafe fn begin(
                _: &Vfs,
                sb: &SuperBlock,
                name: &Name<'_>,
                parent: *mut Dentry,
                counted: bool,
            ) -> Result<NonNull<Dentry>, Errno> {
                let dentry = Box::leak(Box::new(Dentry::unborn(
                    name,
                    None,
                    parent,
                    counted,
                    NonNull::from(sb),
                )));
                if parent.is_null() {
                    let this = NonNull::from(&*dentry).as_ptr();
                    dentry.d_parent.store(this, Relaxed);
                }
                Ok(NonNull::from(dentry))
            }

            pub(super) unsafe fn end(dentry: NonNull<Dentry>) -> Option<NonNull<Dentry>> {
                // SAFETY: never freed.
                let d = unsafe { dentry.as_ref() };
                d.set_offset(d.offset() + 1);
                let parent = d.parent_ptr();
                (parent != dentry && !d.is_uncounted()).then_some(parent)
            }
        }
    }
}

use core::ptr::NonNull;
use dcache::name::{Keys, Name};
use dentry::{Dentry, DentryFlags};
use inode::{Inode, InodeGuard};
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::thread;
use quietline_sync::rcu::Domain;
use raw::dcache::change::Dirs;
use raw::dcache::life::ends;
use raw::dcache::lru;
use raw::dcache::refs::{DentryRef, NewDentry};
use raw::dcache::seen::{Seen, Step};
use std::sync::Arc;
use super_block::SuperBlock;
use vfs::Vfs;

const KEYS: Keys = Keys::new([3, 5, 7, 11]);

fn name(bytes: &'static str) -> Name<'static> {
    Name::new(bytes.as_bytes(), &KEYS).unwrap()
}

fn explore(f: impl Fn() + Sync + Send + 'static) {
    explore_with(3, f);
}

/// All interleavings with so many forced switches.
fn explore_with(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(switches));
    builder.max_branches = 20_000;
    builder.check(f);
}

/// A root directory of a kernel that is never dropped.
fn root() -> DentryRef<'static> {
    let domain: &'static Domain = Domain::leaked().unwrap();
    let vfs: &'static Vfs = Box::leak(Box::new(Vfs {
        domain,
        long_names: raw::dcache::long_name::LongNames,
        lru: lru::Lru,
    }));
    let sb: &'static SuperBlock = Box::leak(Box::new(SuperBlock {
        vfs: NonNull::from(vfs),
        counts: super_block::Counts,
        moves: quietline_sync::SpinLock::new(()),
        move_seq: quietline_sync::Seqcount::new(),
    }));
    raw::dcache::life::root(vfs, sb, &name("/"))
}

fn make(
    parent: &DentryRef<'static>,
    called: &'static str,
    directory: bool,
    pinned: bool,
) -> DentryRef<'static> {
    let mut new = parent.alloc(&name(called)).unwrap();
    new.instantiate(Inode::new(directory));
    let mut dir = parent.inode().unwrap().lock();
    if pinned { new.add_pinned(&mut dir) } else { new.add(&mut dir) }.unwrap()
}

/// What has a name now, found without a reference.
fn find(parent: &DentryRef<'static>, called: &'static str) -> Option<NonNull<Dentry>> {
    let section = parent.vfs().read();
    match parent.seen(&section).child(&name(called)) {
        Step::Found(seen) => Some(NonNull::from(seen.dentry())),
        Step::Missing => None,
        Step::Stale => panic!("nobody renames the directory"),
    }
}

fn rename(
    dir: &DentryRef<'static>,
    moved: &DentryRef<'static>,
    to: &'static str,
    replaced: Option<&DentryRef<'static>>,
) {
    let new = dir.new_name(&name(to)).unwrap();
    let mut lock = dir.inode().unwrap().lock();
    drop(moved.rename(&mut Dirs::Same(&mut lock), dir, new, replaced).unwrap());
}

#[test]
fn a_name_that_is_replaced_is_never_missing() {
    explore(|| {
        let root = root();
        let (new, old) = (make(&root, "a", false, true), make(&root, "b", false, true));
        let (n, o) = (new.as_ptr(), old.as_ptr());
        let renamer = {
            let root = root.clone();
            thread::spawn(move || rename(&root, &new, "b", Some(&old)))
        };
        let found =
            find(&root, "b").expect("either the old or the new one has the name at any moment");
        assert!(found == n || found == o);
        if found == n {
            assert_eq!(find(&root, "a"), None, "it has the one name or the other");
        }
        renamer.join().unwrap();
        assert_eq!((find(&root, "a"), find(&root, "b")), (None, Some(n)));
    });
}

#[test]
fn a_renamed_file_has_one_name_at_any_moment() {
    explore(|| {
        let root = root();
        let file = make(&root, "a", false, true);
        let f = file.as_ptr();
        let renamer = {
            let root = root.clone();
            thread::spawn(move || rename(&root, &file, "b", None))
        };
        // Missing by the old name means that it has the new one from then on.
        if find(&root, "a").is_none() {
            assert_eq!(find(&root, "b"), Some(f));
        }
        renamer.join().unwrap();
        assert_eq!((find(&root, "a"), find(&root, "b")), (None, Some(f)));
    });
}

fn exchange(times: u32, switches: usize) {
    explore_with(switches, move || {
        let root = root();
        let (a, b) = (make(&root, "a", false, true), make(&root, "b", false, true));
        let both = [a.as_ptr(), b.as_ptr()];
        let renamer = {
            let root = root.clone();
            thread::spawn(move || {
                for _ in 0..times {
                    a.exchange(&mut Dirs::Same(&mut root.inode().unwrap().lock()), &b).unwrap();
                }
            })
        };
        let found = find(&root, "a").expect("one or the other has the name at any moment");
        assert!(both.contains(&found));
        renamer.join().unwrap();
        let [first, second] = [times % 2, 1 - times % 2].map(|i| Some(both[i as usize]));
        assert_eq!((find(&root, "a"), find(&root, "b")), (first, second));
    });
}

#[test]
fn exchanged_names_are_never_missing() {
    exchange(1, 3);
}

/// There and back: a reader that sleeps through both is not fooled either. With one forced switch here; with three, enough to
/// stop the reader between the two, it takes minutes: `LOOM_MAX_PREEMPTIONS=3`.
#[test]
fn names_exchanged_twice_are_never_missing() {
    exchange(2, 1);
}

#[test]
fn a_name_is_found_after_it_was_added_and_not_after_it_was_taken_out() {
    explore(|| {
        let root = root();
        let there = make(&root, "there", false, true).as_ptr();
        let changer = {
            let root = root.clone();
            thread::spawn(move || {
                let new = make(&root, "new", false, true);
                assert_eq!(find(&root, "new"), Some(new.as_ptr()));
                drop(new.unhash(&mut root.inode().unwrap().lock()));
                assert_eq!(find(&root, "new"), None);
            })
        };
        assert_eq!(find(&root, "there"), Some(there));
        if let Some(new) = find(&root, "new") {
            // SAFETY: never freed.
            assert!(unsafe { new.as_ref() }.inode().is_some(), "who finds it finds it made");
        }
        changer.join().unwrap();
        assert_eq!(find(&root, "new"), None);
    });
}

#[test]
fn a_file_that_moves_to_another_directory_is_in_one_of_them() {
    explore(|| {
        let root = root();
        let (one, two) = (make(&root, "1", true, true), make(&root, "2", true, true));
        let file = make(&one, "f", false, true);
        let f = file.as_ptr();
        let mover = {
            let (one, two) = (one.clone(), two.clone());
            thread::spawn(move || {
                let new = two.new_name(&name("f")).unwrap();
                let (mut from, mut to) = (one.inode().unwrap().lock(), two.inode().unwrap().lock());
                drop(file.rename(&mut Dirs::Two(&mut from, &mut to), &two, new, None).unwrap());
            })
        };
        if find(&one, "f").is_none() {
            assert_eq!(find(&two, "f"), Some(f));
        }
        mover.join().unwrap();
        assert_eq!((find(&one, "f"), find(&two, "f")), (None, Some(f)));
    });
}

/// Property 6: a parent that was found by reference was the parent at one moment.
#[test]
fn the_parent_was_the_parent_at_one_moment() {
    explore(|| {
        let root = root();
        let (one, two) = (make(&root, "1", true, true), make(&root, "2", true, true));
        let file = make(&one, "f", false, true);
        let mover = {
            let (one, two, file) = (one.clone(), two.clone(), file.clone());
            thread::spawn(move || {
                let new = two.new_name(&name("f")).unwrap();
                {
                    let (mut from, mut to) =
                        (one.inode().unwrap().lock(), two.inode().unwrap().lock());
                    drop(file.rename(&mut Dirs::Two(&mut from, &mut to), &two, new, None).unwrap());
                }
                // From here on it is not the first one any more.
                assert!(file.parent().same(&two));
            })
        };
        let first = file.parent();
        let second = file.parent();
        assert!(first.same(&one) || first.same(&two));
        assert!(!first.same(&two) || second.same(&two), "it does not go back");
        mover.join().unwrap();
        drop((first, second));
        assert_eq!((one.count(), two.count()), (2, 3), "the file's reference has moved, too");
    });
}

/// Property 5: the last put of a dentry that was taken out ends it, once; a get that fails leaves nothing behind.
#[test]
fn legitimising_against_the_end() {
    explore(|| {
        let root = root();
        let file = make(&root, "f", false, true);
        let f = file.as_ptr();
        // Only the directory's reference is left.
        drop(file);
        let remover = {
            let root = root.clone();
            thread::spawn(move || {
                let section = root.vfs().read();
                let Step::Found(seen) = root.seen(&section).child(&name("f")) else {
                    panic!("it is there")
                };
                drop(seen.unhash(&mut root.inode().unwrap().lock()));
            })
        };
        {
            let section = root.vfs().read();
            if let Step::Found(seen) = root.seen(&section).child(&name("f"))
                && let Some(held) = seen.acquire()
            {
                assert_eq!(ends(&held), 0, "what is held lives");
                drop(section);
                drop(held);
            }
        }
        remover.join().unwrap();
        // SAFETY: never freed.
        let f = unsafe { f.as_ref() };
        assert_eq!((ends(f), f.count()), (1, -128));
        assert_eq!(root.count(), 1, "the reference to the parent went with it, once");
    });
}

/// Property 9, of the dentry: what was taken out after it was seen is not legitimised, though it lives.
#[test]
fn what_was_taken_out_is_not_legitimised() {
    explore(|| {
        let root = root();
        let file = make(&root, "f", false, true);
        let out = Arc::new(AtomicU32::new(0));
        let section = root.vfs().read();
        let Step::Found(seen) = root.seen(&section).child(&name("f")) else {
            panic!("it is there")
        };
        let remover = {
            let (root, file, out) = (root.clone(), file.clone(), out.clone());
            thread::spawn(move || {
                drop(file.unhash(&mut root.inode().unwrap().lock()));
                // ORDERING: pairs with the acquire below.
                out.store(1, Ordering::Release);
            })
        };
        // ORDERING: pairs with the release above.
        let was_out = out.load(Ordering::Acquire) == 1;
        let held = seen.acquire();
        assert!(!was_out || held.is_none());
        remover.join().unwrap();
        drop(held);
        assert_eq!(
            (file.count(), ends(&file)),
            (1, 0),
            "an attempt that failed has left nothing behind"
        );
    });
}

/// Property 5, for what is kept unused: every put that leaves nothing keeps it or ends it, once.
#[test]
fn puts_and_gets_of_an_unpinned_dentry_while_it_is_taken_out() {
    explore(|| {
        let root = root();
        let file = make(&root, "f", false, false);
        let f = file.as_ptr();
        let again = file.clone();
        let putter = thread::spawn(move || drop(again));
        drop(file.unhash(&mut root.inode().unwrap().lock()));
        drop(file);
        putter.join().unwrap();
        // SAFETY: never freed.
        let f = unsafe { f.as_ref() };
        assert_eq!((ends(f), f.count(), lru::is_on(f)), (1, -128, false));
        assert_eq!(root.count(), 1);
    });
}

#[test]
fn an_unpinned_dentry_is_kept_or_pruned_but_not_lost() {
    explore(|| {
        let root = root();
        let f = make(&root, "f", false, false).as_ptr();
        // SAFETY: never freed.
        let d = unsafe { f.as_ref() };
        assert!(lru::is_on(d));
        let user = {
            let root = root.clone();
            thread::spawn(move || {
                let section = root.vfs().read();
                if let Step::Found(seen) = root.seen(&section).child(&name("f"))
                    && let Some(held) = seen.acquire()
                {
                    assert_eq!(ends(&held), 0);
                    drop(held);
                }
            })
        };
        lru::prune(d);
        user.join().unwrap();
        match ends(d) {
            0 => {
                assert!(
                    lru::is_on(d) && d.count() == 0 && d.is_hashed(),
                    "kept, and where it is found again"
                )
            }
            n => assert_eq!((n, d.count(), d.is_hashed(), lru::is_on(d)), (1, -128, false, false)),
        }
    });
}

/// Property 5: whoever takes out what it only sees gets a living dentry, also beside the last put.
#[test]
fn what_is_only_seen_is_taken_out_beside_its_last_put() {
    explore(|| {
        let root = root();
        let held = make(&root, "f", false, false);
        let f = held.as_ptr();
        let putter = thread::spawn(move || drop(held));
        {
            let section = root.vfs().read();
            let Step::Found(seen) = root.seen(&section).child(&name("f")) else {
                panic!("it is there")
            };
            let taken =
                seen.unhash(&mut root.inode().unwrap().lock()).expect("nobody else takes it out");
            drop(section);
            assert_eq!(ends(&taken), 0, "what is held lives");
        }
        putter.join().unwrap();
        // SAFETY: never freed.
        let f = unsafe { f.as_ref() };
        assert_eq!((ends(f), f.count(), lru::is_on(f)), (1, -128, false));
        assert_eq!(root.count(), 1);
    });
}
