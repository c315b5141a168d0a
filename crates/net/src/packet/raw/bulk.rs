//! Many packets ended at once, in the array that holds them.

use super::{CHUNK, Event, Packets, Remains, Skb, USUAL};
use crate::packet::NoBulk;
use core::mem::MaybeUninit;
use core::ptr;
use quietline_slab::Entry;

/// What is given back all at once: heads and data.
pub(in super::super) const ALL: bool = true;
/// Only heads whose data no other head has.
pub(in super::super) const HEADS: bool = false;

/// Storage that packets of an array have left: heads in the places of the first of them, data beside. What is in it when it
/// is dropped is given back: also if a listener unwinds, which must not, but then loses packets and no more.
struct Gathered<'a> {
    packets: &'a Packets,
    /// As many heads as are counted; what is behind them is references again, or none.
    heads: *mut Entry,
    nr_heads: usize,
    data: [MaybeUninit<Entry>; CHUNK],
    nr_data: usize,
    class: usize,
}

impl Gathered<'_> {
    #[inline(always)]
    fn give_back_data(&mut self) {
        debug_assert!(!NoBulk::is_entered(), "something is freed in bulk where that must not be");
        // SAFETY: so many were written; they are of this cache, and nobody uses them.
        unsafe {
            let data = core::slice::from_raw_parts_mut(
                self.data.as_mut_ptr().cast::<Entry>(),
                self.nr_data,
            );
            self.packets.data[self.class].free_bulk(data);
        }
        self.nr_data = 0;
    }

    /// Returns the gathered data, and begins with data of another class. Out of line: most arrays
    /// have one class, and its body in the loop costs each packet an instruction.
    #[cold]
    #[inline(never)]
    fn begin_class(&mut self, class: usize) {
        self.give_back_data();
        self.class = class;
    }

    #[inline(always)]
    fn add_data(&mut self, data: ptr::NonNull<u8>, class: usize) {
        if class != self.class {
            self.begin_class(class);
        }
        self.data[self.nr_data].write(Some(data));
        self.nr_data += 1;
    }
}

impl Drop for Gathered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.give_back_data();
        // SAFETY: so many heads were put into the array, which is borrowed as long as this lives; they are of this cache, and
        // nobody uses them. After this the entries are none.
        unsafe {
            let heads = core::slice::from_raw_parts_mut(self.heads, self.nr_heads);
            self.packets.heads.free_bulk(heads);
        }
    }
}

/// Ends all references in the array, of packets of `of` and of others, and gives back what is left of the former at once: all of
/// it, or [`HEADS`]. All entries are `None` after.
///
/// This is the way of all that free in bulk: where that [must not be](NoBulk), what would be freed is put off; elsewhere what was put off
/// is freed too.
#[inline(always)]
pub(in super::super) fn end_all<const WHAT: bool>(
    packets: &mut [Option<Skb<'_>>],
    of: &Packets,
    event: Event,
) {
    if of.may_have_put_off() && !may_free(packets, of, event) {
        return;
    }
    end_here::<WHAT>(packets, of, |_| event);
}

/// Where something was put off once: frees it, or puts more off.
#[cold]
fn may_free(packets: &mut [Option<Skb<'_>>], of: &Packets, event: Event) -> bool {
    if NoBulk::is_entered() {
        packets.iter_mut().filter_map(Option::take).for_each(|skb| Packets::put_off(skb, event));
        return false;
    }
    of.free_put_off();
    true
}

/// Packets on their way to be freed in bulk, with what is noted in them of how they ended.
pub(super) struct Ended<'n, 'p> {
    of: &'p Packets,
    packets: [Option<Skb<'n>>; 32],
    n: usize,
}

impl<'n, 'p> Ended<'n, 'p> {
    pub(super) fn new(of: &'p Packets) -> Self {
        Self { of, packets: [const { None }; 32], n: 0 }
    }

    pub(super) fn add(&mut self, skb: Skb<'n>) {
        // The place is free.
        core::mem::forget(self.packets[self.n].replace(skb));
        self.n += 1;
        if self.n == self.packets.len() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let n = core::mem::take(&mut self.n);
        end_here::<ALL>(&mut self.packets[..n], self.of, Skb::noted);
    }
}

impl Drop for Ended<'_, '_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// [`end_all`] where it may be.
#[inline(always)]
fn end_here<'n, const WHAT: bool>(
    packets: &mut [Option<Skb<'n>>],
    of: &Packets,
    event: impl Fn(&Skb<'n>) -> Event,
) {
    for chunk in packets.chunks_mut(CHUNK) {
        let entries = chunk.as_mut_ptr();
        let mut gathered = Gathered {
            packets: of,
            heads: entries.cast(),
            nr_heads: 0,
            data: [const { MaybeUninit::uninit() }; CHUNK],
            nr_data: 0,
            class: USUAL,
        };
        for i in 0..chunk.len() {
            // SAFETY: inside the chunk, and a reference or none: heads are put where a reference was taken before.
            let Some(skb) = (unsafe { (*entries.add(i)).take() }) else { continue };
            let event = event(&skb);
            if !ptr::eq(skb.packets(), of) || (WHAT == HEADS && skb.is_cloned()) {
                skb.end(event);
                continue;
            }
            let Some(Remains { head, data }) = skb.dismantle(event) else { continue };
            // SAFETY: not above `i`, so inside the chunk. An `Option` of a reference is a pointer, null for none, as an entry is.
            unsafe { gathered.heads.add(gathered.nr_heads).write(Some(head)) };
            gathered.nr_heads += 1;
            match data {
                Some((data, class)) if WHAT == ALL => gathered.add_data(data, class),
                // SAFETY: a packet of these has left it.
                Some((data, class)) => unsafe { of.data[class].free(data) },
                None => {}
            }
        }
    }
}

const _: () = assert!(size_of::<Option<Skb<'_>>>() == size_of::<Entry>());
