//! The queued spinlock of Linux 4.2 and later (`kernel/locking/qspinlock.c`), as a machine has it
//! and as a virtual machine has it.
//!
//! Waiters form a queue, and each spins on a word of its own. A hand-over costs the same, however
//! many wait. The first waiter on a machine becomes the pending waiter instead of joining the
//! queue.
//!
//! In a virtual machine (`qspinlock_paravirt.h`) every waiter joins the queue. A CPU that comes
//! when the lock is free overtakes the queue. The first of the queue becomes the pending waiter to
//! end that.
//!
//! Differences from the kernel: `locked` and `tail` are changed one by one, so the first of the
//! queue takes the lock and leaves the queue by two instructions instead of one. A waiter yields
//! after a long spin where the kernel's virtual CPU halts.

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, heap, hint, thread};

use crate::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// Turns of a spin loop before the thread gives up its time slice.
const SPINS: u32 = 1 << 10;

/// A queued spinlock.
#[repr(C)]
pub(crate) struct QueuedLock {
    /// 1 while the lock is held.
    locked: AtomicU8,
    /// 1 while a waiter is next. No other CPU that sees it takes the lock.
    pending: AtomicU8,
    /// The last waiter's CPU and one, or 0.
    tail: AtomicU16,
}

/// A CPU's entry in the queue of the one lock that it waits for (`struct mcs_spinlock`).
struct QueueNode {
    /// The next waiter's CPU and one, or 0.
    next: AtomicU32,
    /// Not 0: this waiter is the first of the queue.
    first: AtomicU32,
}

/// The queue nodes of all CPUs (`mcs_nodes`).
pub(crate) struct QueueNodes {
    paravirtual: bool,
    nodes: Box<[CachePadded<QueueNode>]>,
}

impl QueueNodes {
    /// Makes nodes for the CPUs of a machine, or of a virtual machine.
    pub(crate) fn new(cpus: usize, paravirtual: bool) -> Result<Self, AllocError> {
        assert!(cpus < usize::from(u16::MAX), "a lock's tail has 16 bits");
        let node =
            |_| CachePadded::new(QueueNode { next: AtomicU32::new(0), first: AtomicU32::new(0) });
        let nodes = heap::try_boxed_slice(cpus, node)?;
        for _node in &nodes {
            quietline_platform::name_words!(**_node => "mcs_node" { next, first });
        }
        Ok(Self { paravirtual, nodes })
    }
}

impl QueuedLock {
    /// Returns an unlocked lock.
    pub(crate) fn new() -> Self {
        Self { locked: AtomicU8::new(0), pending: AtomicU8::new(0), tail: AtomicU16::new(0) }
    }

    /// Locks. `cpu` is the caller's: no other thread may use its node at the same time. Writes the
    /// lock's line, and the line of the waiter before.
    #[inline]
    pub(crate) fn lock(&self, nodes: &QueueNodes, cpu: usize) -> QueuedGuard<'_> {
        // Relaxed: a waiter that comes at this moment is overtaken, which breaks no rule.
        if self.tail.load(Ordering::Relaxed) != 0 || !self.try_lock() {
            self.lock_slow(nodes, cpu);
        }
        QueuedGuard { lock: self, paravirtual: nodes.paravirtual }
    }

    /// Takes the lock if it is free and no waiter is next.
    fn try_lock(&self) -> bool {
        // Relaxed: as in `lock`.
        self.pending.load(Ordering::Relaxed) == 0 && self.try_take()
    }

    /// Takes the lock if it is free.
    fn try_take(&self) -> bool {
        // ORDERING: Acquire pairs with the release in `QueuedGuard::drop`: what the last holder
        // wrote is seen. Relaxed on failure, and for the look before: nothing is touched.
        self.locked.load(Ordering::Relaxed) == 0
            && self.locked.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self, nodes: &QueueNodes, cpu: usize) {
        // Relaxed, as in `lock`.
        if !nodes.paravirtual && self.tail.load(Ordering::Relaxed) == 0 && self.begin_pending() {
            return self.finish_pending();
        }
        let (node, own) = (&nodes.nodes[cpu], cpu as u16 + 1);
        // Relaxed: the swap below publishes the node.
        node.next.store(0, Ordering::Relaxed);
        node.first.store(0, Ordering::Relaxed);
        // A last try. In a virtual machine it may overtake the queue (`pv_queued_spin_steal_lock`).
        let may_take = nodes.paravirtual || self.tail.load(Ordering::Relaxed) == 0;
        if may_take && self.try_lock() {
            return;
        }
        // ORDERING: release pairs with the acquire of the next waiter's swap, which writes to this
        // node then; acquire pairs with the release of the swap of the waiter before.
        let before = self.tail.swap(own, Ordering::AcqRel);
        if before != 0 {
            let before = &nodes.nodes[usize::from(before) - 1];
            // ORDERING: Release pairs with the acquire in `leave_queue`: that writes to this node.
            before.next.store(u32::from(own), Ordering::Release);
            // ORDERING: Acquire pairs with the release in `leave_queue`. Both orders end: the value
            // stays.
            spin_until(|| node.first.load(Ordering::Acquire) != 0);
        }
        if nodes.paravirtual {
            // Relaxed: only the first of the queue sets it, and it ends overtaking, if a little
            // later.
            self.pending.store(1, Ordering::Relaxed);
            self.finish_pending();
        } else {
            spin_until(|| self.try_lock());
        }
        self.leave_queue(nodes, node, own);
    }

    /// Becomes the pending waiter, which needs no node. Returns `false` if there is one.
    fn begin_pending(&self) -> bool {
        // Relaxed: the lock is taken by `finish_pending`.
        self.pending.load(Ordering::Relaxed) == 0 && self.pending.swap(1, Ordering::Relaxed) == 0
    }

    /// Waits for the lock as the pending waiter.
    fn finish_pending(&self) {
        spin_until(|| self.try_take());
        // Relaxed: the lock is held, so a CPU that sees this late or early cannot take it.
        self.pending.store(0, Ordering::Relaxed);
    }

    /// Makes the next waiter the first of the queue. The lock is held.
    fn leave_queue(&self, nodes: &QueueNodes, node: &QueueNode, own: u16) {
        // Relaxed, both: an empty queue publishes nothing.
        while self.tail.load(Ordering::Relaxed) == own {
            let tail = &self.tail;
            let exchange = tail.compare_exchange_weak(own, 0, Ordering::Relaxed, Ordering::Relaxed);
            if exchange.is_ok() {
                return;
            }
        }
        let mut next = 0;
        spin_until(|| {
            // ORDERING: Acquire pairs with the release of the next waiter's store to this node.
            next = node.next.load(Ordering::Acquire);
            next != 0
        });
        // ORDERING: Release pairs with the acquire in `lock_slow`.
        nodes.nodes[next as usize - 1].first.store(1, Ordering::Release);
    }
}

/// Spins until a condition holds. Yields after each [`SPINS`] turns: the thread that is waited for
/// may be off its CPU.
fn spin_until(mut condition: impl FnMut() -> bool) {
    let mut spins = 0u32;
    while !condition() {
        spins = spins.wrapping_add(1);
        if spins.is_multiple_of(SPINS) {
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    }
}

/// A guard: the lock is held until it is dropped.
#[must_use]
pub(crate) struct QueuedGuard<'a> {
    lock: &'a QueuedLock,
    paravirtual: bool,
}

impl Drop for QueuedGuard<'_> {
    /// Unlocks. Writes the lock's line: in a virtual machine by a locked instruction.
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release pairs with the acquire in `try_take`.
        if self.paravirtual {
            self.lock.locked.swap(0, Ordering::Release);
        } else {
            self.lock.locked.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
