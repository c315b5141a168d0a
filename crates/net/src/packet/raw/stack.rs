//! Storage of packets, heads and data of one kind, in arrays: to be given back many at a time, or to be used again.

use super::put_off::HEAD;
use super::{Away, Event, Packets, Remains, Skb};
use crate::packet::NoBulk;
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
    /// Whether what other CPUs have made is sent home to them.
    sends_home: bool,
    /// What is about to be sent home.
    away: Away<'n>,
}

impl<'n, const N: usize> Stack<'n, N> {
    /// An empty one.
    #[inline(always)]
    pub(in super::super) fn new(packets: &'n Packets, class: usize) -> Self {
        let (heads, data, away) = ([None; N], [None; N], Away::new());
        Self { packets, heads, nr_heads: 0, data, nr_data: 0, class, sends_home: false, away }
    }

    /// Says whether what other CPUs have made is sent home to them.
    pub(in super::super) fn set_sends_home(&mut self, sends_home: bool) {
        self.sends_home = sends_home;
    }

    pub(in super::super) fn packets(&self) -> &'n Packets {
        self.packets
    }

    /// Heads and data that are there, and packets that are about to be sent home.
    pub(in super::super) fn len(&self) -> [usize; 3] {
        [self.nr_heads, self.nr_data, self.away.len()]
    }

    /// Ends a reference. What the packet leaves, if it was the last, is kept, but for data of another kind; if there is no room,
    /// the `bulk` oldest of what is kept are given back before. A packet that another CPU has made
    /// is sent home to it, if that was asked for: with others, when there are some.
    #[inline(always)]
    pub(in super::super) fn end(&mut self, skb: Skb<'n>, event: Event, bulk: usize) {
        let foreign = !ptr::eq(skb.packets(), self.packets);
        if foreign || self.sends_home && skb.cpu() != cpu::current() {
            return self.end_foreign(skb, event, bulk);
        }
        self.keep(skb, event, bulk);
    }

    /// Ends a reference to what another CPU, or other packets, have made.
    #[inline(never)]
    fn end_foreign(&mut self, skb: Skb<'n>, event: Event, bulk: usize) {
        if !ptr::eq(skb.packets(), self.packets) {
            return skb.end(event);
        }
        match self.away.add(skb, event) {
            Ok(false) => {}
            Ok(true) => self.send_away(bulk),
            Err(skb) => self.keep(skb, event, bulk),
        }
    }

    /// Sends home what is about to be sent; what there is no room for stays here.
    pub(in super::super) fn send_away(&mut self, bulk: usize) {
        if self.away.len() > 0 {
            let mut away = core::mem::replace(&mut self.away, Away::new());
            away.send(self.packets, |skb, event| self.keep(skb, event, bulk));
        }
    }

    /// [`end`](Self::end) of what is to stay here.
    #[inline(always)]
    pub(in super::super) fn keep(&mut self, skb: Skb<'n>, event: Event, bulk: usize) {
        if self.packets.may_have_put_off() {
            if NoBulk::is_entered() {
                return Packets::put_off(skb, event);
            }
            self.packets.free_put_off();
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

    /// First by what other CPUs have sent home, then out of the caches. What is to be sent home itself is.
    #[cold]
    fn refill(&mut self, bulk: usize) -> Result<(), AllocError> {
        self.send_away(bulk);
        self.take_deferred(bulk);
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

    /// Keeps what other CPUs have sent home to this one: how many.
    pub(in super::super) fn take_deferred(&mut self, bulk: usize) -> usize {
        let packets = self.packets;
        packets.free_put_off();
        packets.each_deferred(|skb, event| self.keep(skb, event, bulk))
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

    /// Gives everything back, after what is to be sent home.
    #[inline(always)]
    pub(in super::super) fn give_back(&mut self) {
        self.send_away(N);
        if NoBulk::is_entered() {
            return self.put_off();
        }
        self.give_back_heads(self.nr_heads);
        self.give_back_data(self.nr_data);
    }
}

impl<const N: usize> Stack<'_, N> {
    /// [`give_back`](Self::give_back) where nothing may be freed.
    #[cold]
    fn put_off(&mut self) {
        let heads = self.heads[..self.nr_heads].iter_mut().map(|head| (head, HEAD));
        let data = self.data[..self.nr_data].iter_mut().map(|data| (data, self.class));
        for (entry, class) in heads.chain(data) {
            // SAFETY: of this cache, and nobody uses it.
            entry
                .take()
                .into_iter()
                .for_each(|storage| unsafe { self.packets.put_off_storage(storage, class) });
        }
        (self.nr_heads, self.nr_data) = (0, 0);
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
