//! Dentries (`fs/dcache.c` of 2.6.27, and the series' patches 1 and 4).
//!
//! In the base a socket's dentry is a child of its file system's root. `d_alloc()` dirties the root's count,
//! `dcache_lock`, the root's child list and `nr_dentry`; `d_instantiate()` takes `dcache_lock` again; and
//! `dput()` takes it to undo it all, with two neighbours on the child list and a compare-exchange on the
//! root's count.

use core::array;

use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::errno::Errno;
use crate::globals::Globals;
use crate::inode::{Inode, iput, iput_single};
use crate::list::ListHead;
use crate::percpu::{Cpu, Current};
use crate::raw::Link;
use crate::slab::{KmemCacheCpu, Object, Page, Slot};
use crate::superblock::SuperBlock;
use crate::ticket::{TicketGuard, TicketLock, atomic_dec_and_lock, atomic_dec_and_test};

const DCACHE_DISCONNECTED: u32 = 0x04;
const DCACHE_UNHASHED: u32 = 0x10;
/// Patch 4's flag: a dentry with no parent and no alias list.
const DCACHE_SINGLE: u32 = 0x40;

/// `struct dentry`, its fields in the lines where a 64-bit 2.6.27 had them. The count and the parent
/// are in the first, the lists in the second, and the rest in the third.
#[repr(C, align(64))]
pub(crate) struct Dentry {
    pub(crate) d_count: AtomicU32,
    d_flags: AtomicU32,
    d_lock: TicketLock,
    d_mounted: AtomicU32,
    d_inode: Link<Inode>,
    d_hash: [AtomicU64; 2],
    d_parent: Link<Dentry>,
    d_name: [AtomicU64; 2],

    d_lru: ListHead,
    /// Place in the parent's `d_subdirs`, under `dcache_lock`.
    pub(crate) d_child: ListHead,
    /// The children, under `dcache_lock`.
    pub(crate) d_subdirs: ListHead,
    /// Place in the inode's `i_dentry`, under `dcache_lock`.
    pub(crate) d_alias: ListHead,

    d_time: AtomicI64,
    d_fsdata: AtomicU64,
    d_sb: Link<SuperBlock>,
    d_iname: [AtomicU64; 3],
    slot: Slot<Dentry>,
}

impl Object for Dentry {
    const NAME: &'static str = "dentry";

    fn new() -> Self {
        Self {
            d_count: AtomicU32::new(0),
            d_flags: AtomicU32::new(0),
            d_lock: TicketLock::new(),
            d_mounted: AtomicU32::new(0),
            d_inode: Link::null(),
            d_hash: array::from_fn(|_| AtomicU64::new(0)),
            d_parent: Link::null(),
            d_name: array::from_fn(|_| AtomicU64::new(0)),
            d_lru: ListHead::new(),
            d_child: ListHead::new(),
            d_subdirs: ListHead::new(),
            d_alias: ListHead::new(),
            d_time: AtomicI64::new(0),
            d_fsdata: AtomicU64::new(0),
            d_sb: Link::null(),
            d_iname: array::from_fn(|_| AtomicU64::new(0)),
            slot: Slot::new(),
        }
    }

    fn name_words(&self) {
        quietline_platform::name_words!(*self => "dentry" { d_count, d_flags, d_lock, d_mounted, d_inode, d_hash });
        quietline_platform::name_words!(*self => "dentry" { d_parent, d_name, d_lru, d_child, d_subdirs, d_alias });
        quietline_platform::name_words!(*self => "dentry" { d_time, d_fsdata, d_sb, d_iname, slot });
    }

    #[inline(always)]
    fn slot(&self) -> &Slot<Self> {
        &self.slot
    }

    #[inline(always)]
    fn cpu_slab(cpu: &Cpu) -> &KmemCacheCpu<Self> {
        &cpu.dentry
    }

    fn rcu_free_slab<'a>(current: Current<'a>, page: &'a Page<Self>) {
        current.globals.dentry_cachep.free_pages(current, page);
    }
}

impl Dentry {
    /// The inode, which a dentry in use has.
    #[inline]
    pub(crate) fn inode(&self) -> &Inode {
        self.d_inode.load().expect("a dentry in use has an inode")
    }

    fn is_root(&self) -> bool {
        core::ptr::eq(self.parent(), self)
    }

    fn parent(&self) -> &Dentry {
        self.d_parent.load().expect("a dentry has a parent, if only itself")
    }

    fn flags(&self) -> u32 {
        // Relaxed: only whoever holds the dentry alone changes its flags here.
        self.d_flags.load(Ordering::Relaxed)
    }

    fn set_flags(&self, flags: u32) {
        // Relaxed: as above.
        self.d_flags.store(flags, Ordering::Relaxed);
    }
}

/// The dentry of a pseudo file: `d_alloc()` below the root and `d_instantiate()`, or
/// `d_alloc_single()` from [`Rung::SingleDentry`](crate::Rung::SingleDentry) on. The inode's
/// reference becomes the dentry's.
///
/// # Errors
///
/// `ENOMEM`; then the inode's reference is still the caller's.
#[inline]
pub(crate) fn d_alloc_pseudo<'a>(
    current: Current<'a>,
    sb: &'a SuperBlock,
    inode: &'a Inode,
) -> Result<&'a Dentry, Errno> {
    let patches = &current.globals.build.patches;
    if patches.single_dentry {
        return d_alloc_single(current, sb, inode);
    }
    let dentry = if patches.no_parent {
        let dentry = d_alloc(current, None)?;
        dentry.d_sb.store(Some(sb));
        // The patch leaves NULL here. Hellwig proposed the dentry itself, as roots have it.
        dentry.d_parent.store(Some(dentry));
        dentry
    } else {
        d_alloc(current, Some(sb.root()))?
    };
    // The file systems of this kind pretend that the dentry is hashed, so that d_path() does not call it
    // deleted.
    dentry.set_flags(dentry.flags() & !DCACHE_UNHASHED);
    d_instantiate(current, dentry, inode);
    Ok(dentry)
}

/// `d_alloc()`: a dentry below `parent`, or one that will be a root.
///
/// Writes the lines of the parent's count, `dcache_lock`, the parent's list, the child that was first on it,
/// and below its rung `nr_dentry`.
///
/// # Errors
///
/// `ENOMEM`.
fn d_alloc<'a>(current: Current<'a>, parent: Option<&'a Dentry>) -> Result<&'a Dentry, Errno> {
    let globals = current.globals;
    let dentry = globals.dentry_cachep.alloc(current)?;
    // Relaxed: the dentry is not published yet.
    for word in dentry.d_iname.iter().chain(&dentry.d_name).chain(&dentry.d_hash) {
        word.store(0, Ordering::Relaxed);
    }
    dentry.d_count.store(1, Ordering::Relaxed);
    dentry.set_flags(DCACHE_UNHASHED);
    dentry.d_mounted.store(0, Ordering::Relaxed);
    dentry.d_time.store(0, Ordering::Relaxed);
    dentry.d_fsdata.store(0, Ordering::Relaxed);
    dentry.d_inode.store(None);
    dentry.d_lru.init();
    dentry.d_child.init();
    dentry.d_subdirs.init();
    dentry.d_alias.init();
    if let Some(parent) = parent {
        dentry.d_parent.store(Some(dget(parent)));
        dentry.d_sb.store(parent.d_sb.load());
    }
    if globals.build.patches.nr_dentry {
        globals.nr_dentry.add(current.cpu, 1);
        if let Some(parent) = parent {
            let _guard = globals.dcache_lock.0.lock();
            parent.d_subdirs.add(&dentry.d_child);
        }
    } else {
        let guard = globals.dcache_lock.0.lock();
        if let Some(parent) = parent {
            parent.d_subdirs.add(&dentry.d_child);
        }
        dentry_stat_add(globals, 1, &guard);
    }
    Ok(dentry)
}

/// `d_alloc_root()`: the root of a file system.
///
/// # Errors
///
/// `ENOMEM`; then the inode's reference is still the caller's.
pub(crate) fn d_alloc_root<'a>(
    current: Current<'a>,
    sb: &'a SuperBlock,
    inode: &'a Inode,
) -> Result<&'a Dentry, Errno> {
    let root = d_alloc(current, None)?;
    root.d_sb.store(Some(sb));
    root.d_parent.store(Some(root));
    d_instantiate(current, root, inode);
    Ok(root)
}

/// `d_alloc_single()` of patch 4: a dentry that is its own parent and on no list. Writes the dentry, and the
/// CPU's own lines.
fn d_alloc_single<'a>(
    current: Current<'a>,
    sb: &'a SuperBlock,
    inode: &'a Inode,
) -> Result<&'a Dentry, Errno> {
    let dentry = d_alloc(current, None)?;
    dentry.d_sb.store(Some(sb));
    dentry.d_parent.store(Some(dentry));
    dentry.set_flags(dentry.flags() | DCACHE_SINGLE | DCACHE_DISCONNECTED);
    dentry.d_inode.store(Some(inode));
    inotify_d_instantiate(dentry);
    Ok(dentry)
}

/// `d_instantiate()`: gives the dentry its inode. Writes the lines of `dcache_lock` and of the inode's alias
/// list.
fn d_instantiate<'a>(current: Current<'a>, dentry: &'a Dentry, inode: &'a Inode) {
    let _guard = current.globals.dcache_lock.0.lock();
    inode.i_dentry.add(&dentry.d_alias);
    dentry.d_inode.store(Some(inode));
    inotify_d_instantiate(dentry);
}

/// `inotify_d_instantiate()`: looks whether the parent is watched. It never is, but the look reads the
/// parent's first line, which is the one that holds its count.
fn inotify_d_instantiate(dentry: &Dentry) {
    let _guard = dentry.d_lock.lock();
    let watched = dentry.parent().d_inode.load().is_none();
    assert!(!watched || dentry.is_root(), "a parent has an inode");
}

/// `dget()`: one more reference. Writes the count's line, by one locked instruction.
#[inline]
pub(crate) fn dget(dentry: &Dentry) -> &Dentry {
    // Relaxed: the caller has a reference already.
    dentry.d_count.fetch_add(1, Ordering::Relaxed);
    dentry
}

/// `dput()`: gives up a reference.
///
/// Writes the count's line; the last reference of an ordinary dentry takes `dcache_lock`, writes the lines of
/// both neighbours on the child list, of those on the alias list, below its rung `nr_dentry`, and then gives
/// up the parent. That of a single dentry writes nothing that is shared.
#[inline]
pub(crate) fn dput<'a>(current: Current<'a>, dentry: &'a Dentry) {
    if dentry.flags() & DCACHE_SINGLE != 0 {
        return dput_single(current, dentry);
    }
    let mut next = Some(dentry);
    while let Some(dentry) = next {
        let Some(guard) = atomic_dec_and_lock(&dentry.d_count, &current.globals.dcache_lock.0)
        else {
            return;
        };
        let d_lock = dentry.d_lock.lock();
        // sockfs_delete_dentry() and its like: restore the truth, not hashed; so the dentry is not kept.
        dentry.set_flags(dentry.flags() | DCACHE_UNHASHED);
        next = d_kill(current, dentry, guard, d_lock);
    }
}

/// `dput_single()` of patch 4.
fn dput_single<'a>(current: Current<'a>, dentry: &'a Dentry) {
    if !atomic_dec_and_test(&dentry.d_count) {
        return;
    }
    let inode = dentry.inode();
    if current.globals.build.patches.single_inode {
        iput_single(current, inode);
    } else {
        iput(current, inode);
    }
    d_free(current, dentry);
}

/// `d_kill()`: unlinks and frees the dentry; what is left to give up is its parent.
fn d_kill<'a>(
    current: Current<'a>,
    dentry: &'a Dentry,
    dcache_lock: TicketGuard<'a>,
    d_lock: TicketGuard<'a>,
) -> Option<&'a Dentry> {
    let globals = current.globals;
    dentry.d_child.del_init();
    if !globals.build.patches.nr_dentry {
        dentry_stat_add(globals, -1, &dcache_lock);
    }
    // dentry_iput()
    let inode = dentry.inode();
    dentry.d_inode.store(None);
    dentry.d_alias.del_init();
    drop(d_lock);
    drop(dcache_lock);
    iput(current, inode);

    let parent = (!dentry.is_root()).then(|| dentry.parent());
    d_free(current, dentry);
    parent
}

/// `d_free()`: at once, for the dentry was never hashed.
fn d_free<'a>(current: Current<'a>, dentry: &'a Dentry) {
    if current.globals.build.patches.nr_dentry {
        current.globals.nr_dentry.add(current.cpu, -1);
    }
    current.globals.dentry_cachep.free(current, dentry);
}

/// `dentry_stat.nr_dentry`, below [`Rung::NrDentry`](crate::Rung::NrDentry): a plain word, under
/// `dcache_lock`.
fn dentry_stat_add(globals: &Globals, amount: i64, _dcache_lock: &TicketGuard<'_>) {
    let nr_dentry = &globals.dentry_stat.0.nr_dentry;
    // Relaxed: under the lock.
    nr_dentry.store(nr_dentry.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}
