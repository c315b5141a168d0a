//! Looking up a path with a reference to each directory on the way (`fs/namei.c` and `fs/dcache.c` of 2.6.37, the last kernel
//! without the RCU walk).
//!
//! A lookup finds a name in the hash without a lock, and then takes the dentry's `d_lock` to see whether it still is what it
//! was found as, and to count it; then it puts the directory it came from. So each component costs three locked
//! instructions, and what they write is shared by all whose paths lead that way: of the root and the working directory, by
//! everybody.
//!
//! ```text
//!   path_init      read_lock(fs->lock), mnt_count, d_count of the working directory
//!   a component    d_lock and d_count of the child; d_count of its parent
//!   path_put       d_count of what was found, mnt_count
//! ```
//!
//! The tree does not change while it is looked at, and dentries never go, so readers need no RCU section (which was free in
//! the kernel); there are no links, no mounts below the first, no access lists.

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, heap};

use crate::atomic::{AtomicU32, Ordering};
use crate::ticket::{TicketLock, atomic_dec_and_lock};

/// Longest name.
const NAME: usize = 32;
/// The end of a hash chain.
const END: u32 = u32::MAX;
const EXEC: u32 = 0o111;

/// What `stat` tells of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub ino: u64,
    /// Its length.
    pub size: u64,
}

/// Why a path leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nowhere {
    /// There is no such name.
    NoEntry,
    /// There is a name in the middle that is no directory.
    NotDirectory,
}

struct Dentry {
    d_lock: TicketLock,
    d_count: AtomicU32,
    d_parent: u32,
    /// The next in the hash chain.
    d_hash: u32,
    hash: u32,
    len: usize,
    name: [u8; NAME],
    inode: Option<Inode>,
}

#[derive(Clone, Copy)]
struct Inode {
    attributes: Attributes,
    is_directory: bool,
    mode: u32,
}

/// A tree of names, and a mount.
pub struct Tree {
    dentries: Box<[CachePadded<Dentry>]>,
    made: u32,
    buckets: Box<[u32]>,
    mnt_count: CachePadded<AtomicU32>,
    dcache_lock: CachePadded<TicketLock>,
}

impl core::fmt::Debug for Tree {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tree").field("dentries", &self.made).finish()
    }
}

/// `struct fs_struct`: a process's working directory, here the root, with the process's references to it.
pub struct Process<'t> {
    tree: &'t Tree,
    /// A reader of the kernel's lock writes it like any other.
    lock: CachePadded<AtomicU32>,
}

impl core::fmt::Debug for Process<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Process").field("tree", self.tree).finish()
    }
}

/// The root directory.
pub const ROOT: u32 = 0;

impl Tree {
    /// A tree with room for so many names, and the root directory.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn new(names: u32) -> Result<Self, AllocError> {
        let count = names as usize + 1;
        let dentry = |_| {
            CachePadded::new(Dentry {
                d_lock: TicketLock::new(),
                d_count: AtomicU32::new(1),
                d_parent: ROOT,
                d_hash: END,
                hash: 0,
                len: 0,
                name: [0; NAME],
                inode: None,
            })
        };
        let mut dentries = heap::try_boxed_slice(count, dentry)?;
        let attributes = Attributes { ino: 1, size: 0 };
        dentries[0].inode = Some(Inode { attributes, is_directory: true, mode: 0o755 });
        for _dentry in &dentries {
            quietline_platform::name_words!(**_dentry => "dentry" { d_lock, d_count });
        }
        let buckets = heap::try_boxed_slice((count * 2).next_power_of_two(), |_| END)?;
        let mnt_count = CachePadded::new(AtomicU32::new(1));
        let dcache_lock = CachePadded::new(TicketLock::new());
        Ok(Self { dentries, made: 1, buckets, mnt_count, dcache_lock })
    }

    /// Adds a directory.
    ///
    /// # Panics
    /// If the tree is full, or the name too long.
    pub fn mkdir(&mut self, parent: u32, name: &[u8]) -> u32 {
        let attributes = Attributes { ino: u64::from(self.made) + 1, size: 0 };
        self.add(parent, name, Some(Inode { attributes, is_directory: true, mode: 0o755 }))
    }

    /// Adds a file.
    ///
    /// # Panics
    /// As [`mkdir`](Self::mkdir).
    pub fn create(&mut self, parent: u32, name: &[u8], size: u64) -> u32 {
        let attributes = Attributes { ino: u64::from(self.made) + 1, size };
        self.add(parent, name, Some(Inode { attributes, is_directory: false, mode: 0o644 }))
    }

    /// Adds a negative dentry: what the first lookup of a name that is not there leaves behind.
    ///
    /// # Panics
    /// As [`mkdir`](Self::mkdir).
    pub fn negative(&mut self, parent: u32, name: &[u8]) -> u32 {
        self.add(parent, name, None)
    }

    fn add(&mut self, parent: u32, name: &[u8], inode: Option<Inode>) -> u32 {
        let number = self.made;
        self.made += 1;
        let hash = hash(name);
        let bucket = self.bucket(parent, hash);
        let next = core::mem::replace(&mut self.buckets[bucket], number);
        let dentry = &mut self.dentries[number as usize];
        (dentry.d_parent, dentry.d_hash, dentry.hash, dentry.len) =
            (parent, next, hash, name.len());
        dentry.name[..name.len()].copy_from_slice(name);
        dentry.inode = inode;
        // Relaxed: nobody else is here. A child has a reference to its parent.
        self.at(parent).d_count.fetch_add(1, Ordering::Relaxed);
        number
    }

    fn bucket(&self, parent: u32, hash: u32) -> usize {
        hash.wrapping_add(parent.wrapping_mul(0x9e37_79b9)) as usize & (self.buckets.len() - 1)
    }

    fn at(&self, dentry: u32) -> &Dentry {
        &self.dentries[dentry as usize]
    }

    /// Gives the words outside the dentries their names, for whoever looks at lines. Where it is called the tree is to stay.
    pub fn name_words(&self) {
        quietline_platform::name_words!(self => "tree" { mnt_count, dcache_lock });
    }

    /// References to a dentry.
    pub fn count(&self, dentry: u32) -> u32 {
        // Relaxed: a statistic.
        self.at(dentry).d_count.load(Ordering::Relaxed)
    }

    /// References to the mount.
    pub fn mounts(&self) -> u32 {
        // Relaxed: a statistic.
        self.mnt_count.load(Ordering::Relaxed)
    }

    /// A process in the root directory.
    pub fn process(&self) -> Process<'_> {
        Process { tree: self, lock: CachePadded::new(AtomicU32::new(0)) }
    }

    /// `__d_lookup()`: a reference to the dentry of a name.
    ///
    /// Writes the dentry's line: two locked instructions and a store.
    fn d_lookup(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let hash = hash(name);
        let mut at = self.buckets[self.bucket(parent, hash)];
        while at != END {
            let dentry = self.at(at);
            if dentry.hash == hash && dentry.d_parent == parent {
                let _lock = dentry.d_lock.lock();
                // Looked at again under the lock, though nothing can have changed here.
                if dentry.d_parent == parent
                    && dentry.len == name.len()
                    && dentry.name[..dentry.len] == *name
                {
                    // Relaxed: a reference orders nothing; putting one does.
                    dentry.d_count.fetch_add(1, Ordering::Relaxed);
                    return Some(at);
                }
            }
            at = dentry.d_hash;
        }
        None
    }

    /// `dput()`. Writes the dentry's line: one locked instruction.
    fn dput(&self, dentry: u32) {
        let last = atomic_dec_and_lock(&self.at(dentry).d_count, &self.dcache_lock);
        debug_assert!(last.is_none(), "the tree has a reference to each");
    }
}

impl Process<'_> {
    /// `stat()` of a path from the working directory.
    ///
    /// # Errors
    /// [`Nowhere`].
    pub fn stat(&self, path: &[u8]) -> Result<Attributes, Nowhere> {
        let tree = self.tree;
        let mut at = self.path_init();
        let mut result = Err(Nowhere::NoEntry);
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let Some(_) =
                tree.at(at).inode.filter(|inode| inode.is_directory && inode.mode & EXEC != 0)
            else {
                result = Err(Nowhere::NotDirectory);
                break;
            };
            let Some(child) = tree.d_lookup(at, name) else {
                result = Err(Nowhere::NoEntry);
                break;
            };
            tree.dput(at);
            at = child;
            result = tree.at(at).inode.map(|inode| inode.attributes).ok_or(Nowhere::NoEntry);
            if result.is_err() {
                break;
            }
        }
        tree.dput(at);
        // ORDERING: release, so that what was done under the reference comes before its end.
        tree.mnt_count.fetch_sub(1, Ordering::Release);
        result
    }

    /// `path_get(&fs->pwd)`: references to the mount and the working directory.
    fn path_init(&self) -> u32 {
        // ORDERING: acquire, with the release below: a reader's lock. There are no writers.
        self.lock.fetch_add(1, Ordering::Acquire);
        // Relaxed: the process has references to both.
        self.tree.mnt_count.fetch_add(1, Ordering::Relaxed);
        self.tree.at(ROOT).d_count.fetch_add(1, Ordering::Relaxed);
        // ORDERING: release, as said.
        self.lock.fetch_sub(1, Ordering::Release);
        ROOT
    }
}

fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
