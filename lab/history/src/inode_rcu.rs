//! Making and removing files in a ramfs of 2.6.36 (`fs/inode.c`, `fs/dcache.c`, `fs/libfs.c`), and
//! the three ways of freeing an inode that were weighed in November 2010; beside them quietline's.
//!
//! The thread measured "a new kernel" and does not name it. 2.6.37 has per-CPU counters of inodes
//! and of their numbers, and no list of inodes in use. This one has the locked ones of 2.6.36 in
//! all ways.
//!
//! Lookup of paths without a lock needs inodes that stay readable while they are removed. The
//! thread's question was what that costs a loop that makes and removes files:
//!
//! | way | an inode's memory | the next inode |
//! |---|---|---|
//! | [`Immediate`](FreeWay::Immediate) | is free at once | has it, hot |
//! | [`CallRcu`](FreeWay::CallRcu) | is free after a grace period, with a callback for each | has some that is cold |
//! | [`Typesafe`](FreeWay::Typesafe) | is free at once, but for inodes only (`SLAB_DESTROY_BY_RCU`) | has it, hot; what readers may look at stays as it was, and readers must look twice |
//! | [`Sheaf`](FreeWay::Sheaf) | is free after a grace period, by arrays of 28, without a callback or a link in it | has some that is cold |
//!
//! The thread's figures for the second, relative to the first, on a ramfs, its "worst possible
//! case": 12 % more for one file at a time, 4.5 % for a thousand made and then removed.
//!
//! ```text
//!   create   dir's i_mutex | dentry; inode: inode_lock (counted, numbered, on two lists); dcache_lock (hashed, tied)
//!   unlink   dir's i_mutex | d_lock; dcache_lock (unhashed); inode_lock (off both lists) | inode freed in its way
//! ```
//!
//! # Limits
//!
//! Dentries are freed by a callback in all ways, as in the kernel. Each directory has a part of the hash table to itself,
//! so that a lookup under its `i_mutex` meets no change and needs no read section; `dcache_lock` is taken where the kernel
//! takes it. There is no file (`creat` takes one, `close` puts it),
//! no access check, and no page cache. A name is a number. A timer tick comes with every 800th file
//! that a CPU removes: a millisecond at the thread's 800,000 files a second. There are no readers,
//! so each batch of callbacks has its grace period by the next tick: 800 to 1,600 files wait.

mod cpu;
mod sheaves;
mod slots;

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, heap};

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::ticket::TicketLock;
pub use cpu::Cpu;
use slots::Slots;

/// What becomes of an inode's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FreeWay {
    /// It is free at once, as before 2.6.38.
    Immediate,
    /// It is free after a grace period (`call_rcu`), as since.
    CallRcu,
    /// It is free at once, for inodes (`SLAB_DESTROY_BY_RCU`).
    Typesafe,
    /// It is free after a grace period, by the sheaf: not of 2010, but quietline's.
    Sheaf,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The name is there (`EEXIST`).
    Exists,
    /// The name is not there (`ENOENT`).
    NoEntry,
    /// No room for more (`ENOSPC`).
    NoSpace,
}

impl core::fmt::Display for Failed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Exists => "the name is there",
            Self::NoEntry => "the name is not there",
            Self::NoSpace => "there is no room for more",
        })
    }
}

/// No object.
const NONE: u32 = u32::MAX;
/// Words of an inode beside those that have a name here; nine lines in all, as the kernel's 576 bytes.
const BODY: usize = 64;
/// Every so many of these one is initialised again for each file (`inode_init_always`); the others once, when a slab is made.
const AGAIN: usize = 2;
/// Of the latter are, if memory is type-safe, also the first of all, which readers may look at (its lock, its tree of pages).
const KEPT: usize = 8;

/// `struct inode`.
#[repr(C, align(64))]
struct Inode {
    /// The next free one; the callback's link.
    next: AtomicU32,
    i_count: AtomicU32,
    i_nlink: AtomicU32,
    i_mode: AtomicU32,
    i_ino: AtomicU64,
    /// `i_list` and `i_sb_list`: next and previous.
    i_list: [AtomicU32; 2],
    i_sb_list: [AtomicU32; 2],
    body: [AtomicU64; BODY],
}

/// `struct dentry`.
#[repr(C, align(64))]
struct Dentry {
    next: AtomicU32,
    d_count: AtomicU32,
    d_parent: AtomicU32,
    d_inode: AtomicU32,
    d_name: AtomicU64,
    /// The next in the hash chain.
    d_hash: AtomicU32,
    d_lock: TicketLock,
    body: [AtomicU64; 18],
}

/// `i_mutex` of a directory, and its `d_count`, which its children write.
struct Directory {
    i_mutex: TicketLock,
    d_count: AtomicU32,
}

/// What `inode_lock` guards.
struct Inodes {
    nr_inodes: AtomicU64,
    last_ino: AtomicU64,
    /// The first inodes of `inode_in_use` and `s_inodes`.
    in_use: AtomicU32,
    s_inodes: AtomicU32,
}

/// Directories in which files are made and removed.
pub struct Ramfs {
    way: FreeWay,
    directories: Box<[CachePadded<Directory>]>,
    inode_lock: CachePadded<TicketLock>,
    inodes_stat: CachePadded<Inodes>,
    dcache_lock: CachePadded<TicketLock>,
    dentry_hashtable: Box<[AtomicU32]>,
    inodes: Slots<Inode>,
    dentries: Slots<Dentry>,
}

impl core::fmt::Debug for Ramfs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ramfs")
            .field("way", &self.way)
            .field("nr_inodes", &self.nr_inodes())
            .finish()
    }
}

fn words<const N: usize>() -> [AtomicU64; N] {
    core::array::from_fn(|_| AtomicU64::new(0))
}

fn pair() -> [AtomicU32; 2] {
    core::array::from_fn(|_| AtomicU32::new(NONE))
}

impl Ramfs {
    /// So many empty directories, and room for so many files, those that wait for a grace period among them.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn new(way: FreeWay, directories: u32, files: u32) -> Result<Self, AllocError> {
        let directory = |_| {
            CachePadded::new(Directory { i_mutex: TicketLock::new(), d_count: AtomicU32::new(1) })
        };
        let directories = heap::try_boxed_slice(directories as usize, directory)?;
        for _directory in &directories {
            quietline_platform::name_words!(**_directory => "dir" { i_mutex, d_count });
        }
        let inode = || Inode {
            next: AtomicU32::new(NONE),
            i_count: AtomicU32::new(0),
            i_nlink: AtomicU32::new(0),
            i_mode: AtomicU32::new(0),
            i_ino: AtomicU64::new(0),
            i_list: pair(),
            i_sb_list: pair(),
            body: words(),
        };
        let dentry = || Dentry {
            next: AtomicU32::new(NONE),
            d_count: AtomicU32::new(0),
            d_parent: AtomicU32::new(0),
            d_inode: AtomicU32::new(NONE),
            d_name: AtomicU64::new(0),
            d_hash: AtomicU32::new(NONE),
            d_lock: TicketLock::new(),
            body: words(),
        };
        let inodes_stat = CachePadded::new(Inodes {
            nr_inodes: AtomicU64::new(0),
            last_ino: AtomicU64::new(1),
            in_use: AtomicU32::new(NONE),
            s_inodes: AtomicU32::new(NONE),
        });
        let buckets = (files as usize * 2).next_power_of_two() * directories.len();
        Ok(Self {
            way,
            directories,
            inode_lock: CachePadded::new(TicketLock::new()),
            inodes_stat,
            dcache_lock: CachePadded::new(TicketLock::new()),
            dentry_hashtable: heap::try_boxed_slice(buckets, |_| AtomicU32::new(NONE))?,
            inodes: Slots::new(files, inode)?,
            dentries: Slots::new(files, dentry)?,
        })
    }

    /// Gives the words that all share their names, for whoever looks at lines. Where it is called the file system is to stay.
    pub fn name_words(&self) {
        quietline_platform::name_words!(self => "ramfs" { inode_lock, dcache_lock });
        quietline_platform::name_words!(*self.inodes_stat => "inodes_stat" { nr_inodes, last_ino, in_use, s_inodes });
    }

    /// Inodes there are.
    pub fn nr_inodes(&self) -> u64 {
        // Relaxed: a statistic.
        self.inodes_stat.nr_inodes.load(Ordering::Relaxed)
    }

    /// Inodes on the list of all: the same, counted.
    pub fn listed(&self) -> u64 {
        let _lock = self.inode_lock.lock();
        let mut at = self.inodes_stat.s_inodes.load(Ordering::Relaxed);
        let mut listed = 0;
        while at != NONE {
            listed += 1;
            at = self.inodes.at(at).i_sb_list[0].load(Ordering::Relaxed);
        }
        listed
    }

    fn bucket(&self, directory: u32, name: u64) -> &AtomicU32 {
        let each = self.dentry_hashtable.len() / self.directories.len();
        let hash = name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.dentry_hashtable[directory as usize * each + (hash as usize & (each - 1))]
    }

    /// `d_lookup()`, under the directory's `i_mutex`.
    fn find(&self, directory: u32, name: u64) -> Option<u32> {
        // Relaxed, here and in all that follows: what is a directory's changes under its `i_mutex`.
        let mut at = self.bucket(directory, name).load(Ordering::Relaxed);
        while at != NONE {
            let dentry = self.dentries.at(at);
            let same = dentry.d_name.load(Ordering::Relaxed) == name;
            if same && dentry.d_parent.load(Ordering::Relaxed) == directory {
                return Some(at);
            }
            at = dentry.d_hash.load(Ordering::Relaxed);
        }
        None
    }

    /// `new_inode()` after its memory was taken: `inode_init_always()`, then counted, numbered and listed under `inode_lock`.
    fn init_inode(&self, number: u32) {
        let inode = self.inodes.at(number);
        // Relaxed: nobody else has it.
        inode.i_count.store(1, Ordering::Relaxed);
        inode.i_nlink.store(1, Ordering::Relaxed);
        inode.i_mode.store(0o100_644, Ordering::Relaxed);
        let kept = if self.way == FreeWay::Typesafe { KEPT } else { 0 };
        inode.body[kept..].iter().step_by(AGAIN).for_each(|word| word.store(0, Ordering::Relaxed));
        let stat = &*self.inodes_stat;
        let _lock = self.inode_lock.lock();
        add(&stat.nr_inodes, 1);
        add(&stat.last_ino, 1);
        inode.i_ino.store(stat.last_ino.load(Ordering::Relaxed), Ordering::Relaxed);
        self.link(number, &stat.in_use, |inode| &inode.i_list);
        self.link(number, &stat.s_inodes, |inode| &inode.i_sb_list);
    }

    /// `iput()` of the last reference: off the lists, under `inode_lock`.
    fn drop_inode(&self, number: u32) {
        let stat = &*self.inodes_stat;
        let _lock = self.inode_lock.lock();
        self.unlink_from(number, &stat.in_use, |inode| &inode.i_list);
        self.unlink_from(number, &stat.s_inodes, |inode| &inode.i_sb_list);
        add(&stat.nr_inodes, u64::MAX);
    }

    fn link(&self, number: u32, head: &AtomicU32, list: impl Fn(&Inode) -> &[AtomicU32; 2]) {
        let first = head.load(Ordering::Relaxed);
        let [next, prev] = list(self.inodes.at(number));
        next.store(first, Ordering::Relaxed);
        prev.store(NONE, Ordering::Relaxed);
        if first != NONE {
            list(self.inodes.at(first))[1].store(number, Ordering::Relaxed);
        }
        head.store(number, Ordering::Relaxed);
    }

    fn unlink_from(&self, number: u32, head: &AtomicU32, list: impl Fn(&Inode) -> &[AtomicU32; 2]) {
        let [next, prev] =
            list(self.inodes.at(number)).each_ref().map(|word| word.load(Ordering::Relaxed));
        match prev {
            NONE => head.store(next, Ordering::Relaxed),
            _ => list(self.inodes.at(prev))[0].store(next, Ordering::Relaxed),
        }
        if next != NONE {
            list(self.inodes.at(next))[1].store(prev, Ordering::Relaxed);
        }
    }

    /// `d_instantiate()` and `d_rehash()`, under `dcache_lock`.
    fn hash(&self, number: u32, directory: u32, name: u64) {
        let bucket = self.bucket(directory, name);
        let _lock = self.dcache_lock.lock();
        let dentry = self.dentries.at(number);
        dentry.d_hash.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        bucket.store(number, Ordering::Relaxed);
        // The child's reference.
        self.directories[directory as usize].d_count.fetch_add(1, Ordering::Relaxed);
    }

    /// `__d_drop()`, under `dcache_lock` and the dentry's lock.
    fn unhash(&self, number: u32, directory: u32, name: u64) {
        let _dcache = self.dcache_lock.lock();
        let dentry = self.dentries.at(number);
        let _lock = dentry.d_lock.lock();
        let next = dentry.d_hash.load(Ordering::Relaxed);
        let mut at = self.bucket(directory, name);
        while at.load(Ordering::Relaxed) != number {
            at = &self.dentries.at(at.load(Ordering::Relaxed)).d_hash;
        }
        at.store(next, Ordering::Relaxed);
        self.directories[directory as usize].d_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds under a lock.
fn add(word: &AtomicU64, change: u64) {
    // Relaxed: under the lock.
    word.store(word.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
}
