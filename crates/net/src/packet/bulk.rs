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

use super::raw::{ALL, HEADS, Skb, end_all};
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};

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

/// While one lives, its thread is where nothing must be freed in bulk: a signal handler, which may have interrupted
/// the allocator's slow path. A waitlist that is flushed there frees one by one (and fails an assertion in debug builds).
#[derive(Debug)]
pub struct NoBulk {
    /// Not to be sent to another thread.
    here: PhantomData<*const ()>,
}

impl NoBulk {
    /// Enters such a place.
    pub fn enter() -> Self {
        NO_BULK.with(|depth| depth.set(depth.get() + 1));
        Self { here: PhantomData }
    }

    /// Whether the calling thread is in such a place.
    #[inline]
    pub fn is_entered() -> bool {
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
    let Some(of) = packets.iter().flatten().next().map(Skb::packets) else { return };
    end_all::<ALL>(packets, of);
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
    end_all::<HEADS>(packets, of);
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
        let allowed = !NoBulk::is_entered();
        if allowed {
            kfree_skb_bulk(&mut self.packets[..n]);
        } else {
            self.packets[..n].fill_with(|| None);
        }
        debug_assert!(allowed, "a waitlist is flushed where nothing must be freed in bulk");
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
