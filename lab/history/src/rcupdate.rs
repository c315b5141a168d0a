//! Classic RCU of 2.6.27 (`kernel/rcuclassic.c`): callbacks wait on their CPU for a batch, batches wait for
//! every CPU to pass through a quiescent state, and then all that waited is freed at once, long cold.
//!
//! ```text
//!   call_rcu -> nxtlist --tick--> curlist (has a batch number) --grace period over, at a tick--> freed
//! ```
//!
//! There is no timer here. A tick comes with every [`TICK`]th callback of a CPU: a millisecond (`HZ=1000`) at
//! the 1.561 µs that an open+close took on the machine of the series. A world that is built with
//! `Tick::Caller` has ticks when its caller says so. A quiescent state is any moment at
//! which a CPU is in no read section, and the grace period's end finds that by looking. For that, a reader
//! must mark itself and pay for a fence, where the kernel pays with the timer interrupt. No reader is on the
//! path that is measured.

use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::build::Tick;
use crate::file::{File, file_free_rcu};
use crate::percpu::{Cpu, Current};
use crate::raw::Link;
use crate::slab::Page;
use crate::ticket::TicketLock;

/// Callbacks of one CPU between two of its ticks.
pub(crate) const TICK: u32 = 640;

/// `struct rcu_head`: a callback that waits, with what it will free.
#[repr(C)]
pub(crate) struct RcuHead {
    next: Link<RcuHead>,
    file: Link<File>,
    slab: Link<Page<File>>,
}

/// What a callback frees.
pub(crate) enum Callback<'a> {
    /// `file_free_rcu()`.
    File(&'a File),
    /// `rcu_free_slab()` of the type-safe cache.
    Slab(&'a Page<File>),
}

/// `struct rcu_data`: a CPU's callbacks, each list in order with a link to its last. Written by that CPU
/// alone.
#[repr(C)]
pub(crate) struct RcuData {
    nxtlist: Link<RcuHead>,
    nxttail: Link<RcuHead>,
    curlist: Link<RcuHead>,
    /// The batch that `curlist` waits for.
    batch: AtomicU64,
    qlen: AtomicU64,
    ticks: AtomicU32,
}

/// `struct rcu_ctrlblk`: the batch that runs and the last that is done. All but the lock is under the lock.
#[repr(C, align(64))]
pub(crate) struct RcuCtrlblk {
    lock: TicketLock,
    cur: AtomicU64,
    completed: AtomicU64,
    next_pending: AtomicU32,
    /// Each CPU's `rcu_seq` when the batch began.
    snapshots: Vec<AtomicU32>,
}

/// An RCU read section of a CPU.
#[must_use]
pub(crate) struct RcuReadGuard<'a> {
    cpu: &'a Cpu,
}

impl RcuHead {
    /// A head that waits for nothing.
    pub(crate) fn new() -> Self {
        Self { next: Link::null(), file: Link::null(), slab: Link::null() }
    }
}

impl RcuData {
    /// A CPU without callbacks.
    pub(crate) fn new() -> Self {
        Self {
            nxtlist: Link::null(),
            nxttail: Link::null(),
            curlist: Link::null(),
            batch: AtomicU64::new(0),
            qlen: AtomicU64::new(0),
            ticks: AtomicU32::new(0),
        }
    }

    /// Callbacks that wait.
    pub(crate) fn qlen(&self) -> u64 {
        // Relaxed: a count that orders nothing.
        self.qlen.load(Ordering::Relaxed)
    }
}

impl RcuCtrlblk {
    /// No batch runs. `snapshots` has a zero for each CPU.
    pub(crate) fn new(snapshots: Vec<AtomicU32>) -> Self {
        // Near the wrap-around in debug builds.
        let first = if cfg!(debug_assertions) { u64::MAX - 2 } else { 0 };
        quietline_platform::name_words!(snapshots[..], "rcu_ctrlblk.snapshots");
        Self {
            lock: TicketLock::new(),
            cur: AtomicU64::new(first),
            completed: AtomicU64::new(first),
            next_pending: AtomicU32::new(0),
            snapshots,
        }
    }
}

/// `rcu_read_lock()`. Writes the CPU's own line, and fences.
#[inline]
pub(crate) fn rcu_read_lock(cpu: &Cpu) -> RcuReadGuard<'_> {
    let seq = &cpu.rcu_seq.0;
    // Relaxed: only this CPU writes the word; the fence orders the store.
    seq.store(seq.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    // ORDERING: pairs with the fence in `rcu_start_batch`: if that one comes first, this reader finds what
    // was unlinked before gone; if this one comes first, the batch sees the odd number and waits.
    fence(Ordering::SeqCst);
    RcuReadGuard { cpu }
}

impl Drop for RcuReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let seq = &self.cpu.rcu_seq.0;
        // Relaxed load: only this CPU writes the word.
        // ORDERING: Release pairs with the acquire in `rcu_start_batch` and `rcu_check_quiescent`: who sees
        // the reader gone sees all it did done; who does not waits on.
        seq.store(seq.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// `call_rcu()`: frees after a grace period. Writes the CPU's own line and the callback queued before, and at
/// every [`TICK`]th the shared control block.
#[inline]
pub(crate) fn call_rcu<'a>(current: Current<'a>, head: &'a RcuHead, callback: Callback<'a>) {
    match callback {
        Callback::File(file) => head.file.store(Some(file)),
        Callback::Slab(slab) => head.slab.store(Some(slab)),
    }
    head.next.store(None);
    let rdp = &current.cpu.rcu_data;
    rdp.nxttail.load().map_or(&rdp.nxtlist, |last| &last.next).store(Some(head));
    rdp.nxttail.store(Some(head));
    // Relaxed, here and below: a CPU's own counts.
    rdp.qlen.store(rdp.qlen.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    if current.globals.build.tick == Tick::Caller {
        return;
    }
    let ticks = rdp.ticks.load(Ordering::Relaxed) + 1;
    if ticks >= TICK {
        rdp.ticks.store(0, Ordering::Relaxed);
        rcu_check_callbacks(current);
    } else {
        rdp.ticks.store(ticks, Ordering::Relaxed);
    }
}

/// `rcu_check_callbacks()`, `rcu_process_callbacks()` and `rcu_do_batch()`: what the timer tick sets off.
#[cold]
pub(crate) fn rcu_check_callbacks(current: Current<'_>) {
    let rcp = &current.globals.rcu_ctrlblk;
    let rdp = &current.cpu.rcu_data;
    let mut donelist = None;
    {
        let _guard = rcp.lock.lock();
        rcu_check_quiescent(current);
        // Relaxed, here and below: under the lock.
        let completed = rcp.completed.load(Ordering::Relaxed);
        if rdp.curlist.load().is_some()
            && !batch_before(completed, rdp.batch.load(Ordering::Relaxed))
        {
            donelist = rdp.curlist.load();
            rdp.curlist.store(None);
        }
        if rdp.curlist.load().is_none() && rdp.nxtlist.load().is_some() {
            rdp.curlist.store(rdp.nxtlist.load());
            rdp.nxtlist.store(None);
            rdp.nxttail.store(None);
            // What was unlinked before this lock was taken is covered by a batch that begins after.
            rdp.batch.store(rcp.cur.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            rcp.next_pending.store(1, Ordering::Relaxed);
        }
        rcu_start_batch(current);
    }
    rcu_do_batch(current, donelist);
}

/// `rcu_start_batch()`: begins the next batch if one is wanted and none runs. The lock is held.
fn rcu_start_batch(current: Current<'_>) {
    let rcp = &current.globals.rcu_ctrlblk;
    let cur = rcp.cur.load(Ordering::Relaxed);
    if rcp.next_pending.load(Ordering::Relaxed) == 0 || rcp.completed.load(Ordering::Relaxed) != cur
    {
        return;
    }
    rcp.next_pending.store(0, Ordering::Relaxed);
    rcp.cur.store(cur.wrapping_add(1), Ordering::Relaxed);
    // ORDERING: pairs with the fence in `rcu_read_lock`, which see.
    fence(Ordering::SeqCst);
    for (snapshot, cpu) in rcp.snapshots.iter().zip(&current.globals.cpus) {
        // ORDERING: pairs with the release in `RcuReadGuard::drop`, which see.
        snapshot.store(cpu.rcu_seq.0.load(Ordering::Acquire), Ordering::Relaxed);
    }
}

/// `cpu_quiet()`: ends the batch that runs if every CPU was outside a read section since it began. The lock
/// is held.
fn rcu_check_quiescent(current: Current<'_>) {
    let rcp = &current.globals.rcu_ctrlblk;
    let cur = rcp.cur.load(Ordering::Relaxed);
    if rcp.completed.load(Ordering::Relaxed) == cur {
        return;
    }
    let quiet = rcp.snapshots.iter().zip(&current.globals.cpus).all(|(snapshot, cpu)| {
        let snapshot = snapshot.load(Ordering::Relaxed);
        // ORDERING: pairs with the release in `RcuReadGuard::drop`, which see.
        snapshot.is_multiple_of(2) || cpu.rcu_seq.0.load(Ordering::Acquire) != snapshot
    });
    if quiet {
        rcp.completed.store(cur, Ordering::Relaxed);
    }
}

fn rcu_do_batch<'a>(current: Current<'a>, mut list: Option<&'a RcuHead>) {
    let rdp = &current.cpu.rcu_data;
    while let Some(head) = list {
        // The callback gives the head's memory to the next user, so look at what follows first.
        list = head.next.load();
        rdp.qlen.store(rdp.qlen.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        if let Some(file) = head.file.load() {
            file_free_rcu(current, file);
        } else {
            let slab = head.slab.load().expect("a callback has something to free");
            current.globals.filp_cachep.free_pages(current, slab);
        }
    }
}

/// Whether batch `a` is before `b`, also across the wrap-around.
fn batch_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[cfg(test)]
mod tests;
