//! Inodes (`fs/inode.c` of 2.6.27, and the series' patches 2, 3 and 5).
//!
//! In the base every inode is on two global lists under one global lock. `new_inode()` dirties the lock, the
//! two heads and the two elements that were first, `nr_inodes` and `last_ino`; `iput()` the lock, four
//! neighbours and `nr_inodes`.

use core::array;

use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::errno::Errno;
use crate::globals::Globals;
use crate::list::ListHead;
use crate::percpu::{Cpu, Current};
use crate::raw::Link;
use crate::slab::{KmemCacheCpu, Object, Page, Slot};
use crate::superblock::SuperBlock;
use crate::ticket::{TicketGuard, TicketLock, atomic_dec_and_lock, atomic_dec_and_test};

/// Inode numbers that a CPU takes at a time, from [`Rung::LastIno`](crate::Rung::LastIno) on.
pub(crate) const LAST_INO_BATCH: u32 = 1024;
const I_FREEING: u32 = 32;
const I_CLEAR: u32 = 64;

/// `struct inode`, with what is wrapped around it for pipes and sockets. The first line holds the list links.
#[repr(C, align(64))]
pub(crate) struct Inode {
    /// Place in `inode_in_use`.
    pub(crate) i_list: ListHead,
    /// Place in the superblock's `s_inodes`.
    pub(crate) i_sb_list: ListHead,
    /// The dentries of this inode, under `dcache_lock`.
    pub(crate) i_dentry: ListHead,
    slot: Slot<Inode>,

    pub(crate) i_count: AtomicU32,
    pub(crate) i_ino: AtomicU32,
    i_state: AtomicU32,
    i_nlink: AtomicU32,
    i_mode: AtomicU32,
    i_uid: AtomicU32,
    i_gid: AtomicU32,
    /// `i_mutex`, here a spinlock.
    pub(crate) i_mutex: TicketLock,
    pub(crate) i_sb: Link<SuperBlock>,
    /// Open ends of the pipe, under `i_mutex`.
    pub(crate) readers: AtomicU32,
    pub(crate) writers: AtomicU32,
    /// `i_size`, `i_version`, times, block counts and the rest that `alloc_inode()` sets.
    attributes: [AtomicU64; 10],
}

impl Object for Inode {
    const NAME: &'static str = "sock_inode_cache";

    fn new() -> Self {
        Self {
            i_list: ListHead::new(),
            i_sb_list: ListHead::new(),
            i_dentry: ListHead::new(),
            slot: Slot::new(),
            i_count: AtomicU32::new(0),
            i_ino: AtomicU32::new(0),
            i_state: AtomicU32::new(0),
            i_nlink: AtomicU32::new(0),
            i_mode: AtomicU32::new(0),
            i_uid: AtomicU32::new(0),
            i_gid: AtomicU32::new(0),
            i_mutex: TicketLock::new(),
            i_sb: Link::null(),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            attributes: array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn name_words(&self) {
        quietline_platform::name_words!(*self => "inode" { i_list, i_sb_list, i_dentry, slot, i_count, i_ino });
        quietline_platform::name_words!(*self => "inode" { i_state, i_nlink, i_mode, i_uid, i_gid, i_mutex });
        quietline_platform::name_words!(*self => "inode" { i_sb, readers, writers, attributes });
    }

    #[inline(always)]
    fn slot(&self) -> &Slot<Self> {
        &self.slot
    }

    #[inline(always)]
    fn cpu_slab(cpu: &Cpu) -> &KmemCacheCpu<Self> {
        &cpu.inode
    }

    fn rcu_free_slab<'a>(current: Current<'a>, page: &'a Page<Self>) {
        current.globals.inode_cachep.free_pages(current, page);
    }
}

/// `new_inode()`, or `new_inode_single()` from [`Rung::SingleInode`](crate::Rung::SingleInode) on:
/// an inode of a pseudo file with one reference.
///
/// # Errors
///
/// `ENOMEM`.
#[inline]
pub(crate) fn new_pseudo_inode<'a>(
    current: Current<'a>,
    sb: &'a SuperBlock,
    mode: u32,
) -> Result<&'a Inode, Errno> {
    if current.globals.build.patches.single_inode {
        new_inode_single(current, sb, mode)
    } else {
        new_inode(current, sb, mode)
    }
}

/// `new_inode()`: an inode on `inode_in_use` and on its superblock's list.
///
/// Writes the lines of `inode_lock`, `inode_in_use`, `s_inodes`, of the inodes that were first on these, and
/// below their rungs `nr_inodes` and `last_ino`.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn new_inode<'a>(
    current: Current<'a>,
    sb: &'a SuperBlock,
    mode: u32,
) -> Result<&'a Inode, Errno> {
    let globals = current.globals;
    let inode = alloc_inode(current, sb, mode)?;
    if globals.build.patches.nr_inodes {
        globals.nr_inodes.add(current.cpu, 1);
    }
    let guard = globals.inode_lock.0.lock();
    if !globals.build.patches.nr_inodes {
        inodes_stat_add(globals, 1, &guard);
    }
    globals.inode_in_use.0.add(&inode.i_list);
    sb.s_inodes.0.add(&inode.i_sb_list);
    let ino = if globals.build.patches.last_ino {
        last_ino_get(current)
    } else {
        // Relaxed: under `inode_lock`.
        let ino = globals.last_ino.0.load(Ordering::Relaxed).wrapping_add(1);
        globals.last_ino.0.store(ino, Ordering::Relaxed);
        ino
    };
    inode.i_ino.store(ino, Ordering::Relaxed);
    inode.i_state.store(0, Ordering::Relaxed);
    drop(guard);
    Ok(inode)
}

/// `new_inode_single()` of patch 5: an inode on no list. Writes the CPU's own lines and the inode.
fn new_inode_single<'a>(
    current: Current<'a>,
    sb: &'a SuperBlock,
    mode: u32,
) -> Result<&'a Inode, Errno> {
    let inode = alloc_inode(current, sb, mode)?;
    inode.i_list.init();
    inode.i_sb_list.init();
    current.globals.nr_inodes.add(current.cpu, 1);
    // Relaxed: the inode is not published yet.
    inode.i_ino.store(last_ino_get(current), Ordering::Relaxed);
    inode.i_state.store(0, Ordering::Relaxed);
    Ok(inode)
}

/// `alloc_inode()`: memory for an inode, its fields set.
fn alloc_inode<'a>(
    current: Current<'a>,
    sb: &'a SuperBlock,
    mode: u32,
) -> Result<&'a Inode, Errno> {
    let inode = current.globals.inode_cachep.alloc(current)?;
    inode.i_sb.store(Some(sb));
    inode.i_dentry.init();
    // Relaxed: the inode is not published yet.
    inode.i_count.store(1, Ordering::Relaxed);
    inode.i_nlink.store(1, Ordering::Relaxed);
    inode.i_mode.store(mode, Ordering::Relaxed);
    inode.i_uid.store(0, Ordering::Relaxed);
    inode.i_gid.store(0, Ordering::Relaxed);
    inode.readers.store(0, Ordering::Relaxed);
    inode.writers.store(0, Ordering::Relaxed);
    for attribute in &inode.attributes {
        attribute.store(0, Ordering::Relaxed);
    }
    Ok(inode)
}

/// `last_ino_get()` of patch 3: a number from the CPU's batch. Writes the CPU's own line, and the shared
/// `last_ino` once in 1,024 calls. As in the series, the number wraps at 2^32 and 0 is not left out then.
#[inline]
fn last_ino_get(current: Current<'_>) -> u32 {
    let own = &current.cpu.last_ino;
    // Relaxed: only this CPU writes its word, and numbers order nothing.
    let mut ino = own.load(Ordering::Relaxed);
    if ino.is_multiple_of(LAST_INO_BATCH) {
        ino = current.globals.last_ino.0.fetch_add(LAST_INO_BATCH, Ordering::Relaxed);
    }
    ino = ino.wrapping_add(1);
    own.store(ino, Ordering::Relaxed);
    ino
}

/// `iput()`: gives up a reference to an inode that may be on lists. Writes `i_count`; the last reference
/// takes `inode_lock` and writes the lines of the inode's four neighbours, and below its rung `nr_inodes`.
#[inline]
pub(crate) fn iput(current: Current<'_>, inode: &Inode) {
    if let Some(guard) = atomic_dec_and_lock(&inode.i_count, &current.globals.inode_lock.0) {
        generic_forget_inode(current, inode, guard);
    }
}

/// `iput_single()` of patch 5: gives up a reference to an inode that is on no list. Writes `i_count`.
#[inline]
pub(crate) fn iput_single<'a>(current: Current<'a>, inode: &'a Inode) {
    if atomic_dec_and_test(&inode.i_count) {
        clear_inode(inode);
        current.globals.nr_inodes.add(current.cpu, -1);
        current.globals.inode_cachep.free(current, inode);
    }
}

fn generic_forget_inode<'a>(current: Current<'a>, inode: &'a Inode, guard: TicketGuard<'a>) {
    let globals = current.globals;
    inode.i_list.del_init();
    inode.i_sb_list.del_init();
    // Relaxed: under `inode_lock`.
    inode.i_state.store(inode.i_state.load(Ordering::Relaxed) | I_FREEING, Ordering::Relaxed);
    if !globals.build.patches.nr_inodes {
        inodes_stat_add(globals, -1, &guard);
    }
    drop(guard);
    if globals.build.patches.nr_inodes {
        globals.nr_inodes.add(current.cpu, -1);
    }
    clear_inode(inode);
    wake_up_inode(globals, inode);
    globals.inode_cachep.free(current, inode);
}

fn clear_inode(inode: &Inode) {
    // Relaxed: no one else has the inode any more.
    inode.i_state.store(I_CLEAR, Ordering::Relaxed);
}

/// `wake_up_inode()`: looks for sleepers in the hashed wait table. Fences, and reads a line that no one
/// writes.
fn wake_up_inode(globals: &Globals, inode: &Inode) {
    // ORDERING: a sleeper would queue itself, fence, and look at `i_state`: either it sees the state, or we
    // see it. The miniature has no sleepers; the fence is here because the kernel pays for it.
    fence(Ordering::SeqCst);
    let address = core::ptr::from_ref(inode).addr();
    let queue = &globals.wait_table[(address >> 6) % globals.wait_table.len()];
    assert!(queue.is_empty(), "no one sleeps on an inode here");
}

/// `inodes_stat.nr_inodes`, below [`Rung::NrInodes`](crate::Rung::NrInodes): a plain word, under
/// `inode_lock`.
fn inodes_stat_add(globals: &Globals, amount: i64, _inode_lock: &TicketGuard<'_>) {
    let nr_inodes = &globals.inodes_stat.0.nr_inodes;
    // Relaxed: under the lock.
    nr_inodes.store(nr_inodes.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}
