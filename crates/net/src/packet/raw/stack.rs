//! Storage of packets, heads and data of one kind, in arrays: to be given back many at a time, or to be used again.

use super::{Event, Packets, Remains, Skb};
use core::ptr;
use quietline_platform::{AllocError, cpu};
use quietline_slab::Entry;

/// Up to `N` heads, and up to `N` times data of one kind, of one [`Packets`]. What is in it when it is dropped is given back.
pub(in super::super) struct Stack<'n, const N: usize> {
    packets: &'n Packets,
    heads: [Entry; N],
    nr_heads: usize,
    data: [Entry; N],
    nr_data: usize,
    /// The data's kind.
    class: usize,
}

impl<'n, const N: usize> Stack<'n, N> {
    /// An empty one.
    #[inline(always)]
    pub(in super::super) fn new(packets: &'n Packets, class: usize) -> Self {
        Self { packets, heads: [None; N], nr_heads: 0, data: [None; N], nr_data: 0, class }
    }

    pub(in super::super) fn packets(&self) -> &'n Packets {
        self.packets
    }

    /// Heads and data that are there.
    pub(in super::super) fn len(&self) -> [usize; 2] {
        [self.nr_heads, self.nr_data]
    }

    /// Ends a reference. What the packet leaves, if it was the last, is kept, but for data of another kind; if there is no room,
    /// the `bulk` oldest of what is kept are given back before.
    #[inline(always)]
    pub(in super::super) fn end(&mut self, skb: Skb<'n>, event: Event, bulk: usize) {
        if !ptr::eq(skb.packets(), self.packets) {
            return skb.end(event);
        }
        let Some(Remains { head, data }) = skb.dismantle(event) else { return };
        if self.nr_heads == N {
            self.give_back_heads(bulk);
        }
        self.heads[self.nr_heads] = Some(head);
        self.nr_heads += 1;
        let Some((data, class)) = data else { return };
        if class != self.class {
            // SAFETY: a packet of these has left it.
            return unsafe { self.packets.data[class].free(data) };
        }
        if self.nr_data == N {
            self.give_back_data(bulk);
        }
        self.data[self.nr_data] = Some(data);
        self.nr_data += 1;
    }

    /// A packet of what is there: first [refilled](Self::refill) by `bulk`, if something is not.
    #[inline(always)]
    pub(in super::super) fn alloc(&mut self, bulk: usize) -> Result<Skb<'n>, AllocError> {
        if self.nr_heads == 0 || self.nr_data == 0 {
            self.refill(bulk)?;
        }
        self.nr_heads -= 1;
        self.nr_data -= 1;
        let (head, data) = (self.heads[self.nr_heads].take(), self.data[self.nr_data].take());
        let (Some(head), Some(data)) = (head, data) else { unreachable!("as many as are counted") };
        // SAFETY: of the caches of these packets, and ours until now.
        Ok(unsafe { self.packets.begin(head, data, self.class, cpu::current()) })
    }

    #[cold]
    fn refill(&mut self, bulk: usize) -> Result<(), AllocError> {
        if self.nr_heads == 0 {
            self.packets.heads.alloc_bulk(&mut self.heads[..bulk])?;
            self.nr_heads = bulk;
        }
        if self.nr_data == 0 {
            self.packets.data[self.class].alloc_bulk(&mut self.data[..bulk])?;
            self.nr_data = bulk;
        }
        Ok(())
    }

    #[inline(always)]
    fn give_back_heads(&mut self, n: usize) {
        // SAFETY: of this cache, and nobody uses them.
        unsafe { self.packets.heads.free_bulk(&mut self.heads[..n]) };
        move_down(&mut self.heads, &mut self.nr_heads, n);
    }

    #[inline(always)]
    fn give_back_data(&mut self, n: usize) {
        // SAFETY: of this cache, and nobody uses them.
        unsafe { self.packets.data[self.class].free_bulk(&mut self.data[..n]) };
        move_down(&mut self.data, &mut self.nr_data, n);
    }

    /// Gives everything back.
    #[inline(always)]
    pub(in super::super) fn give_back(&mut self) {
        self.give_back_heads(self.nr_heads);
        self.give_back_data(self.nr_data);
    }
}

/// What is above the first `n`, which are gone, takes their places.
#[inline(always)]
fn move_down<const N: usize>(entries: &mut [Entry; N], len: &mut usize, n: usize) {
    let left = *len - n;
    if left > 0 {
        entries.copy_within(n..*len, 0);
        entries[left..*len].fill(None);
    }
    *len = left;
}

impl<const N: usize> Drop for Stack<'_, N> {
    #[inline(always)]
    fn drop(&mut self) {
        self.give_back();
    }
}
