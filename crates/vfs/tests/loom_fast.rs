//! The ordinary path walk beside a rename, in every interleaving: what it says was so at one moment, though it looks only once for
//! all whether a directory is still where it was.
//!
//! The walk, the components of a path and the sequence counts are the library's own source. Dentries are as much of one as the
//! walk looks at: places for two names, changed in the order in which `raw/dcache/change.rs` does it. How a name is found in a table beside a
//! rename is in `loom_dcache`.
//!
//! # Faults that were planted
//!
//! In `src/walk/fast.rs`: the directory not looked at again after its child was found (`a_file_that_was_never_there...`); not
//! looked at again after its child was missed (`a_name_that_is_always_there...`). the last
//! component's count not looked at in the end (`a_mixture...`). In `child_quick` below: the child's count taken after its name was
//! compared (the first two).
#![cfg(loom)]
// As in the crate.
#![allow(dead_code, unreachable_pub, missing_docs)]

#[path = "../src/dcache"]
mod dcache {
    pub(crate) mod name;
}

#[path = "../src/walk"]
mod walk {
    mod component;
    mod fast;
    /// Whoever makes or removes names is not here.
    mod last {
        pub(super) fn alone(_: &[u8]) -> Option<(&[u8], bool)> {
            unreachable!("nobody goes to a parent")
        }
    }
    /// No mounts, and no directories with rules of their own.
    mod step {
        use crate::raw::dcache::seen::Section;
        use crate::raw::walk_path::Spot;
        use crate::vfs::Vfs;

        pub(super) fn cross<'g, 'k>(
            _: &'k Vfs,
            at: Spot<'g, 'k>,
            _: &'g Section,
        ) -> (Spot<'g, 'k>, bool) {
            (at, false)
        }

        pub(super) fn has_own_rules<D>(_: &D) -> bool {
            false
        }

        pub(super) fn is_asked_about<D>(_: &D) -> bool {
            false
        }

        pub(super) fn is_timed<D>(_: &D) -> bool {
            false
        }

        pub(super) fn is_expired<D>(_: &D) -> bool {
            false
        }

        pub(super) fn current<'g, 'k>(at: Spot<'g, 'k>) -> Result<Spot<'g, 'k>, ()> {
            Ok(at)
        }
    }

    use crate::raw::dcache::seen::Section;
    use crate::raw::walk_path::Spot;
    use crate::vfs::Vfs;
    use fast::{Quickly, Until};

    /// What a walk comes to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum End {
        /// This one.
        There(usize),
        Nothing,
        /// The other walk goes on.
        Unsure,
    }

    pub(crate) fn walk(vfs: &'static Vfs, path: &[u8]) -> End {
        let section = Section;
        let root = Spot { mount: (), seen: vfs.seen(0) };
        let until = Until::Object { follow: true };
        match fast::quickly(vfs, &section, &crate::cred::Cred, root, path, until) {
            Quickly::There(spot) => End::There(spot.seen.number()),
            Quickly::Nothing => End::Nothing,
            Quickly::Onwards(..) => End::Unsure,
            Quickly::Short(..) => unreachable!("it goes to the end"),
            Quickly::No => unreachable!("the root is a directory"),
        }
    }
}

mod abi {
    pub const S_IFMT: u32 = 0o170_000;
    pub const S_IFDIR: u32 = 0o040_000;
    pub const S_IFLNK: u32 = 0o120_000;
}

mod cred {
    pub struct Cred;
}

mod permission {
    pub struct Mask;

    impl Mask {
        pub const EXEC: Self = Self;
    }

    pub fn permission(
        inode: &crate::inode::Inode,
        _: &crate::cred::Cred,
        _: Mask,
    ) -> Result<(), ()> {
        if inode.is_dir() { Ok(()) } else { Err(()) }
    }
}

mod dentry {
    bitflags::bitflags! {
        pub struct DentryFlags: u32 {
            const REVALIDATE = 32;
        }
    }
}

mod inode {
    bitflags::bitflags! {
        pub struct InodeFlags: u32 {
            const NODE = 1;
        }
    }

    pub struct Inode(pub u32);

    impl Inode {
        pub fn mode(&self) -> u32 {
            self.0
        }
        pub fn is_dir(&self) -> bool {
            self.0 & crate::abi::S_IFMT == crate::abi::S_IFDIR
        }
        pub fn flags(&self) -> InodeFlags {
            InodeFlags::empty()
        }
    }
}

mod vfs {
    use crate::dcache::name::{Keys, Name};
    use crate::raw::dcache::seen::{Dentry, Seen};
    use rustix::io::Errno;

    /// Dentries by number; the first is the root.
    pub struct Vfs {
        pub keys: Keys,
        pub dentries: Vec<Dentry>,
    }

    impl Vfs {
        pub fn name<'a>(&self, bytes: &'a [u8]) -> Result<Name<'a>, Errno> {
            Name::new(bytes, &self.keys)
        }

        pub fn seen(&'static self, number: usize) -> Seen<'static, 'static> {
            Seen::new(self, number)
        }
    }
}

mod raw {
    pub mod walk_path {
        use super::dcache::seen::Seen;

        #[derive(Clone, Copy)]
        pub struct Spot<'g, 'k> {
            pub mount: (),
            pub seen: Seen<'g, 'k>,
        }
    }

    pub mod dcache {
        pub mod seen {
            use crate::dcache::name::Name;
            use crate::dentry::DentryFlags;
            use crate::inode::Inode;
            use crate::vfs::Vfs;
            use core::marker::PhantomData;
            use quietline_platform::atomic::{AtomicU64, Ordering};
            use quietline_sync::Seqcount;

            /// Nothing is freed here.
            pub struct Section;

            /// Place of a name that is not in the tree.
            pub const NOWHERE: u64 = u64::MAX;
            /// Names that a directory has room for.
            const PLACES: usize = 2;
            /// Bits of a name that are its hash: `n` and `~` have the same.
            const TAG: u64 = 0xf;

            pub struct Dentry {
                pub seq: Seqcount,
                pub inode: Inode,
                pub parent: AtomicU64,
                pub name: AtomicU64,
                /// Each a dentry's number and its name, some bits of which stand for its hash.
                pub places: [AtomicU64; PLACES],
            }

            impl Dentry {
                pub fn new(mode: u32, parent: u64, name: u8) -> Self {
                    Self {
                        seq: Seqcount::new(),
                        inode: Inode(mode),
                        parent: AtomicU64::new(parent),
                        name: AtomicU64::new(u64::from(name)),
                        places: core::array::from_fn(|_| AtomicU64::new(0)),
                    }
                }
            }

            #[derive(Clone, Copy)]
            pub struct Seen<'g, 'k> {
                vfs: &'static Vfs,
                number: usize,
                seq: u32,
                of: PhantomData<(&'g (), &'k ())>,
            }

            pub enum Step<'g, 'k> {
                Found(Seen<'g, 'k>),
                Missing,
                Stale,
            }

            pub(crate) enum Quick<'g, 'k> {
                Found(Seen<'g, 'k>),
                Missing,
                Unsure,
            }

            impl Seen<'_, '_> {
                pub fn new(vfs: &'static Vfs, number: usize) -> Self {
                    Self {
                        vfs,
                        number,
                        seq: vfs.dentries[number].seq.read_begin(),
                        of: PhantomData,
                    }
                }

                pub fn number(self) -> usize {
                    self.number
                }

                fn dentry(self) -> &'static Dentry {
                    &self.vfs.dentries[self.number]
                }

                pub fn inode(self) -> Option<&'static Inode> {
                    Some(&self.dentry().inode)
                }

                pub fn is_special(self) -> bool {
                    false
                }

                pub fn flags(self) -> DentryFlags {
                    DentryFlags::empty()
                }

                pub fn valid(self) -> bool {
                    !self.dentry().seq.read_retry(self.seq)
                }

                /// In the order of the original: the place, the child's count, its parent and its name.
                pub(crate) fn child_quick<const N: usize>(
                    self,
                    _: u64,
                    words: [u64; N],
                ) -> Quick<'static, 'static> {
                    // ORDERING: pairs with the releases in `put`.
                    let mut found =
                        self.dentry().places.iter().map(|place| place.load(Ordering::Acquire));
                    let Some(number) = found
                        .find(|place| *place != 0 && place & TAG == words[0] & TAG)
                        .map(|place| place >> 8)
                    else {
                        return Quick::Missing;
                    };
                    let child = &self.vfs.dentries[number as usize];
                    let Some(seq) = child.seq.read_try() else { return Quick::Unsure };
                    // Relaxed, both: the count says whether they belong together.
                    let here = child.parent.load(Ordering::Relaxed) == self.number as u64;
                    if child.name.load(Ordering::Relaxed) == words[0] && here {
                        Quick::Found(Seen {
                            vfs: self.vfs,
                            number: number as usize,
                            seq,
                            of: PhantomData,
                        })
                    } else {
                        Quick::Unsure
                    }
                }

                pub fn child(self, _: &Name<'_>) -> Step<'static, 'static> {
                    unreachable!("names are short")
                }
            }
        }
    }
}

use abi::S_IFDIR;
use dcache::name::Keys;
use quietline_platform::atomic::Ordering;
use quietline_platform::thread;
use raw::dcache::seen::{Dentry, NOWHERE};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use vfs::Vfs;
use walk::{End, walk};

const DIR: u32 = S_IFDIR | 0o755;
const FILE: u32 = 0o100_644;

impl Vfs {
    /// Puts a dentry, by its name, into a directory's place.
    fn put(&self, dir: usize, place: usize, number: usize, name: u8) {
        let word = (number as u64) << 8 | u64::from(name);
        // ORDERING: pairs with the acquire in `child_quick`.
        self.dentries[dir].places[place].store(word, Ordering::Release);
    }

    /// Takes out what is in a directory's place (`unlink`).
    fn take(&self, dir: usize, place: usize) {
        let number = (self.dentries[dir].places[place].load(Ordering::Relaxed) >> 8) as usize;
        let dentry = &self.dentries[number];
        let _moves = dentry.seq.write();
        dentry.parent.store(NOWHERE, Ordering::Relaxed);
        // ORDERING: as above.
        self.dentries[dir].places[place].store(0, Ordering::Release);
    }

    /// Makes a file (`creat`).
    fn make(&self, dir: usize, place: usize, number: usize, name: u8) {
        let dentry = &self.dentries[number];
        // Relaxed: found by way of its place only.
        dentry.parent.store(dir as u64, Ordering::Relaxed);
        dentry.name.store(u64::from(name), Ordering::Relaxed);
        self.put(dir, place, number, name);
    }

    /// Exchanges two of the root's names (`RENAME_EXCHANGE`).
    fn exchange(&self) {
        let [a, b] = [0, 1].map(|place| self.dentries[0].places[place].load(Ordering::Relaxed));
        let [one, two] = [a, b].map(|word| &self.dentries[(word >> 8) as usize]);
        let (_one, _two) = (one.seq.write(), two.seq.write());
        one.name.store(b & 0xff, Ordering::Relaxed);
        two.name.store(a & 0xff, Ordering::Relaxed);
        self.put(0, 0, (b >> 8) as usize, a as u8);
        self.put(0, 1, (a >> 8) as usize, b as u8);
    }

    /// Renames the one in the root's first place: it gets the second.
    fn rename(&self, name: u8) {
        let word = self.dentries[0].places[0].load(Ordering::Relaxed);
        let dentry = &self.dentries[(word >> 8) as usize];
        let _moves = dentry.seq.write();
        dentry.name.store(u64::from(name), Ordering::Relaxed);
        self.put(0, 1, (word >> 8) as usize, name);
        self.dentries[0].places[0].store(0, Ordering::Release);
    }
}

/// A tree: the root, and what `dentries` says: type, parent, place in it, and name.
fn tree(dentries: &[(u32, u64, usize, u8)]) -> &'static Vfs {
    let mut all = vec![Dentry::new(DIR, 0, b'/')];
    all.extend(dentries.iter().map(|(mode, parent, _, name)| Dentry::new(*mode, *parent, *name)));
    let vfs: &'static Vfs =
        Box::leak(Box::new(Vfs { keys: Keys::new([3, 5, 7, 11]), dentries: all }));
    for (number, (_, parent, place, name)) in dentries.iter().enumerate() {
        if *parent != NOWHERE {
            vfs.put(*parent as usize, *place, number + 1, *name);
        }
    }
    vfs
}

/// What a walk comes to beside what `change` does; with the second walk there is one after it. The walker is spawned: see
/// `loom_pages`.
fn beside(
    tree: fn() -> &'static Vfs,
    change: fn(&Vfs),
    path: &'static str,
    right: fn(End) -> bool,
    at_the_end: End,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let vfs = tree();
        let walker = thread::spawn(move || walk(vfs, path.as_bytes()));
        change(vfs);
        let end = walker.join().unwrap();
        assert!(end == End::Unsure || right(end), "{end:?}");
        assert_eq!(walk(vfs, path.as_bytes()), at_the_end);
    });
    assert!(tried.load(Ordering::Relaxed) > 20, "the threads have not met");
}

/// `a` becomes `c`, and then gets a file: `a/n` is never there, and a walk that has seen `a` does not find the file.
#[test]
fn a_file_that_was_never_there_is_not_found() {
    let tree = || tree(&[(DIR, 0, 0, b'a'), (FILE, NOWHERE, 0, b'n')]);
    let change = |vfs: &Vfs| {
        vfs.rename(b'c');
        vfs.make(1, 0, 2, b'n');
    };
    beside(tree, change, "a/n", |end| end == End::Nothing, End::Nothing);
}

/// Both `a` and `c` have an `n`. They are exchanged, and what is `c` now loses it: `a/n` is there all the time, as the one or the
/// other.
#[test]
fn a_name_that_is_always_there_is_not_missed() {
    let tree =
        || tree(&[(DIR, 0, 0, b'a'), (DIR, 0, 1, b'c'), (FILE, 1, 0, b'n'), (FILE, 2, 0, b'n')]);
    let change = |vfs: &Vfs| {
        vfs.exchange();
        vfs.take(1, 0);
    };
    beside(tree, change, "a/n", |end| end == End::There(3) || end == End::There(4), End::There(4));
}

/// As above, one directory deeper, with slashes and dots on the way.
#[test]
fn nor_below_it() {
    let tree = || {
        tree(&[
            (DIR, 0, 0, b'a'),
            (DIR, 0, 1, b'c'),
            (DIR, 1, 0, b'd'),
            (DIR, 2, 0, b'd'),
            (FILE, 3, 0, b'n'),
            (FILE, 4, 0, b'n'),
        ])
    };
    beside(
        tree,
        |vfs| vfs.exchange(),
        "./a//d/n",
        |end| end == End::There(5) || end == End::There(6),
        End::There(6),
    );
}

/// `a/~` becomes `c/n`, and the two names have the same hash: that it is in `a` still and has its new name already is a mixture,
/// which was never there.
#[test]
fn a_mixture_of_two_places_is_not_found() {
    let tree = || tree(&[(DIR, 0, 0, b'a'), (DIR, 0, 1, b'c'), (FILE, 1, 0, b'~')]);
    let change = |vfs: &Vfs| {
        let _moves = vfs.dentries[3].seq.write();
        vfs.dentries[3].name.store(u64::from(b'n'), Ordering::Relaxed);
        vfs.dentries[3].parent.store(2, Ordering::Relaxed);
        vfs.put(2, 0, 3, b'n');
        // ORDERING: pairs with the acquire in `child_quick`.
        vfs.dentries[1].places[0].store(0, Ordering::Release);
    };
    beside(tree, change, "a/n", |end| end == End::Nothing, End::Nothing);
}

/// A file that is taken out, and another one made by its name in its directory, which has been renamed before: only the first
/// was ever there.
#[test]
fn a_file_that_took_a_name_too_late() {
    let tree = || tree(&[(DIR, 0, 0, b'a'), (FILE, 1, 0, b'n'), (FILE, NOWHERE, 0, b'n')]);
    let change = |vfs: &Vfs| {
        vfs.rename(b'c');
        vfs.take(1, 0);
        vfs.make(1, 0, 3, b'n');
    };
    beside(tree, change, "a/n", |end| end == End::There(2) || end == End::Nothing, End::Nothing);
}
