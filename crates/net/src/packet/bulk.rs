//! Freeing many packets at once.
//!
//! # The problem
//!
//! A device says of up to 64 packets at a time that they are sent. Freed one by one, each takes its way into the allocator; those
//! whose slab is cold take a locked instruction each: a fifth of the kernel's time in 2015, in the profile of a forwarder.
//!
//! # Our way
//!
//! A [`Waitlist`] on the stack: [`add`](Waitlist::add) instead of freeing, and when it is full or the work is done, all go at once:
//! counts are looked at, destructors called, and what is left, heads and data, is given back by one operation on each
//! cache. Packets that others still have are skipped.
//!
//! Where nothing may be freed, because the thread may have been interrupted in the allocator, is [`NoBulk`].

use super::listeners::Event;
use super::raw::{ALL, HEADS, Skb, end_all};
use super::reason::DropReason;
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
#[cfg(not(loom))]
use quietline_platform::atomic::{AtomicBool, Ordering};

/// Packets that a waitlist holds unless told otherwise: as many as the patches of 2015.
pub const WAITLIST: usize = 32;

#[cfg(not(loom))]
quietline_platform::thread_local! {
    /// How many [`NoBulk`] the thread is inside of.
    static NO_BULK: Cell<u32> = const { Cell::new(0) };
}

#[cfg(loom)]
quietline_platform::thread_local! {
    static NO_BULK: Cell<u32> = Cell::new(0);
}

/// Whether a thread was ever inside of one. (Models have no statics: there only the thread's own is known.)
#[cfg(not(loom))]
static WAS_ENTERED: AtomicBool = AtomicBool::new(false);

/// While one lives, its thread is where packets may end but nothing may be freed: a signal handler, which may have interrupted
/// the allocator while it held a lock.
///
/// References are given up there as ever. But a packet whose last one ends there, in whatever way, one by one or in bulk, is put off: it waits
/// untouched in a list of its [`Packets`](super::Packets). Its destructor and listeners are called, and its memory is freed, by the
/// next thread that ends a packet of them elsewhere, makes some in bulk, [takes](super::Packets::take_deferred) what was sent home, or
/// [shrinks](super::Packets::shrink); at the latest when they end. What a poller's stack gives back there waits likewise. There is room for
/// all, since the list is made of the packets themselves.
///
/// # What may be called in a signal handler
/// [`enter`](Self::enter) first; then whatever ends references: [`drop`](Drop), [`Skb::consume_skb`], [`Skb::kfree_skb`],
/// [`kfree_skb_bulk`] and its like, [`Waitlist`]s and batches of the handler's own. They take no lock and no memory; what they write is
/// the packet, and a list by an exchange that is tried again only if another thread's came between. Nothing else may: packets cannot
/// be made there.
///
/// In a library that was loaded by `dlopen` a thread's first use of its thread-local memory may allocate that: such a thread must
/// have entered and left such a place before, outside of a handler.
#[derive(Debug)]
pub struct NoBulk {
    /// Not to be sent to another thread.
    here: PhantomData<*const ()>,
}

impl NoBulk {
    /// Enters such a place.
    pub fn enter() -> Self {
        // Relaxed, so below: who must know is this thread. Others free what was put off when they come to see it. Not written again.
        #[cfg(not(loom))]
        if !WAS_ENTERED.load(Ordering::Relaxed) {
            WAS_ENTERED.store(true, Ordering::Relaxed);
        }
        NO_BULK.with(|depth| depth.set(depth.get() + 1));
        Self { here: PhantomData }
    }

    /// Whether the calling thread is in such a place.
    #[inline(always)]
    pub fn is_entered() -> bool {
        Self::was_ever_entered() && NO_BULK.with(|depth| depth.get() > 0)
    }

    /// Whether any thread was ever in one, so that something may have been put off: a load of a line that is written once.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn was_ever_entered() -> bool {
        WAS_ENTERED.load(Ordering::Relaxed)
    }

    #[cfg(loom)]
    pub(super) fn was_ever_entered() -> bool {
        NO_BULK.with(|depth| depth.get() > 0)
    }
}

impl Drop for NoBulk {
    fn drop(&mut self) {
        NO_BULK.with(|depth| depth.set(depth.get() - 1));
    }
}

/// Ends references to packets, which were used, and gives back all at once what those leave of which they were the last:
/// heads and data, those of clones too (`kfree_skb_bulk`, as it was hoped to become). The entries are `None` after; those that
/// are `None` before are skipped.
///
/// Writes no shared line while the CPU's sheaves have room.
#[inline]
pub fn kfree_skb_bulk(packets: &mut [Option<Skb<'_>>]) {
    end_as(packets, Event::Consumed);
}

/// The same of packets that were dropped, all for one reason, which tracers and listeners are told of each.
#[inline]
pub fn kfree_skb_bulk_reason(packets: &mut [Option<Skb<'_>>], reason: DropReason) {
    end_as(packets, Event::Dropped(reason));
}

#[inline(always)]
fn end_as(packets: &mut [Option<Skb<'_>>], event: Event) {
    let Some(of) = packets.iter().flatten().next().map(Skb::packets) else { return };
    end_all::<ALL>(packets, of, event);
}

/// [`kfree_skb_bulk_reason`] of packets that come one by one, out of whatever list they are in: [`WAITLIST`] at a time
/// (`kfree_skb_list_reason`).
///
/// ```
/// use quietline_net::packet::{DropReason, Packets, kfree_skb_list_reason};
/// use std::collections::VecDeque;
///
/// let packets = Packets::new()?;
/// let mut queue: VecDeque<_> = (0..100).filter_map(|_| packets.alloc_skb(60).ok()).collect();
/// kfree_skb_list_reason(queue.drain(..), DropReason::QueueFull);
/// assert_eq!(packets.head_stats().active, 0);
/// # drop(queue);
/// # Ok::<(), quietline_slab::CacheError>(())
/// ```
pub fn kfree_skb_list_reason<'n>(packets: impl IntoIterator<Item = Skb<'n>>, reason: DropReason) {
    end_each(packets, Event::Dropped(reason));
}

/// [`kfree_skb_bulk`] of packets that come one by one, out of whatever list they are in (`kfree_skb_list`).
pub fn kfree_skb_list<'n>(packets: impl IntoIterator<Item = Skb<'n>>) {
    end_each(packets, Event::Consumed);
}

fn end_each<'n>(packets: impl IntoIterator<Item = Skb<'n>>, event: Event) {
    let mut packets = packets.into_iter().fuse();
    let mut some: [Option<Skb<'n>>; WAITLIST] = [const { None }; WAITLIST];
    loop {
        let mut n = 0;
        for (place, skb) in some.iter_mut().zip(&mut packets) {
            *place = Some(skb);
            n += 1;
        }
        end_as(&mut some[..n], event);
        if n < WAITLIST {
            return;
        }
    }
}

/// Whether there is no packet among these: without a branch for each.
#[inline]
pub(crate) fn are_none(packets: &[Option<Skb<'_>>]) -> bool {
    packets.iter().fold(true, |none, packet| none & packet.is_none())
}

/// [`kfree_skb_bulk`] as the patch of 2015 had it: only heads whose data no other head has go at once; data, and what has or is
/// a clone, is given back one by one. To be measured beside it.
pub fn kfree_skb_bulk_heads(packets: &mut [Option<Skb<'_>>]) {
    let Some(of) = packets.iter().flatten().next().map(Skb::packets) else { return };
    end_all::<HEADS>(packets, of, Event::Consumed);
}

/// Packets that are done with, freed when there are `N`, when it is flushed, or dropped (`dev_free_waitlist`). On the stack of
/// whoever goes through a device's completions.
///
/// ```
/// use quietline_net::packet::{Packets, WAITLIST, Waitlist};
///
/// let packets = Packets::new()?;
/// let mut done = Waitlist::<WAITLIST>::new();
/// for _ in 0..100 {
///     done.add(packets.alloc_skb(60).expect("memory"));
/// }
/// assert_eq!(done.len(), 100 % WAITLIST);
/// done.flush();
/// assert_eq!(packets.head_stats().active, 0);
/// # drop(done);
/// # Ok::<(), quietline_slab::CacheError>(())
/// ```
#[derive(Debug)]
pub struct Waitlist<'n, const N: usize = WAITLIST> {
    /// Of these only the first `n` are there: so only they are looked at when it is dropped.
    packets: ManuallyDrop<[Option<Skb<'n>>; N]>,
    n: usize,
}

impl<'n, const N: usize> Waitlist<'n, N> {
    /// An empty list.
    #[inline(always)]
    pub const fn new() -> Self {
        const { assert!(N > 0, "a waitlist has room for a packet") };
        Self { packets: ManuallyDrop::new([const { None }; N]), n: 0 }
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Adds a packet, which was used (`dev_free_waitlist_add`); frees all if it is the last that fits.
    #[inline(always)]
    pub fn add(&mut self, skb: Skb<'n>) {
        // The place is free.
        mem::forget(self.packets[self.n].replace(skb));
        self.n += 1;
        if self.n == N {
            self.flush();
        }
    }

    /// Adds the packets of an array, which were used; its entries are `None` after.
    #[inline(always)]
    pub(crate) fn add_all(&mut self, mut packets: &mut [Option<Skb<'n>>]) {
        while !packets.is_empty() {
            let (now, later) = packets.split_at_mut(packets.len().min(N - self.n));
            now.swap_with_slice(&mut self.packets[self.n..self.n + now.len()]);
            self.n += now.len();
            if self.n == N {
                self.flush();
            }
            packets = later;
        }
    }

    /// Frees all (`dev_free_waitlist_flush`); nothing if there are none.
    #[inline]
    pub fn flush(&mut self) {
        let n = core::mem::take(&mut self.n);
        if n == 0 {
            return;
        }
        kfree_skb_bulk(&mut self.packets[..n]);
    }
}

impl<const N: usize> Default for Waitlist<'_, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Drop for Waitlist<'_, N> {
    #[inline]
    fn drop(&mut self) {
        self.flush();
    }
}
