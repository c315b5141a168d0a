//! The slab of 2015: where a head's memory is, is decided by SLUB of 4.2 in miniature.
//!
//! Devices and packets are those of the other columns. An object of the miniature stands for a packet, which is made when the object
//! is handed out for the first time and comes back whenever it is handed out again: so a packet is warm or cold as its object is. That
//! costs a line of a table, and one of the object itself, where a kernel has the link in the head: the same in all of these
//! columns, which compare with each other, and not with quietline's own in time.
//!
//! What others have in the cache matters as much as the packets: a kernel merges caches of one size, and the heads of packets shared
//! slabs with whatever else took 256 bytes. Here these are [`HELD`] objects that stay, at random places, one of which is replaced
//! in each turn of 64 packets: in the cache of heads, or (`nomerge`) in a cache of their own. Both columns do the same work.

use std::sync::{Arc, Mutex, PoisonError};

use quietline_history::slab_bulk::{Current, KmemCache, Object};
use quietline_net::device::{BUDGET, Batch, Generator, Sink};
use quietline_net::packet::{PacketError, Packets, Skb, WAITLIST};
use quietline_platform::atomic::{AtomicUsize, Ordering};

use super::{Buffers, CPU_PARTIAL, Common, MIN_PARTIAL, Made, as_new};
use crate::adapters::forward::counts::Slow;
use crate::adapters::forward::world::World;
use crate::harness::{Fault, Seat};

/// Bytes of an object: a head of 2015, 232 bytes on lines of its own.
const SIZE: usize = 256;
/// Bytes of a cache's slabs, for each thread.
const MEMORY: usize = 2 << 20;
/// Objects of others that stay.
const HELD: usize = 512;
/// One by one.
pub(in crate::adapters::forward) const SINGLE: u8 = 0;
/// By a waitlist of 32, an array on the stack, as detached freelists: the seed's patches.
pub(in crate::adapters::forward) const BULK: u8 = 1;
/// The same, but packets wait in a list that goes through themselves, as was proposed in the discussion; what the slab takes is an array
/// all the same.
pub(in crate::adapters::forward) const LIST: u8 = 2;
/// The end of such a list.
const END: u64 = u64::MAX;

/// Objects of others that were there at first: one in four stays.
const FIRST: usize = 4 * HELD;

/// One of the ways below; in a cache that others use too or, `OWN`, not (`slab_nomerge`); with the tunables of its size or, `TUNED`,
/// with those that the seed's author wrote into its files.
pub(in crate::adapters::forward) struct OnSlub<const HOW: u8, const OWN: bool, const TUNED: bool> {
    packets: &'static Packets,
    heads: Current<'static>,
    /// Where the others are, if they have a cache of their own.
    elsewhere: Option<Current<'static>>,
    others: Others,
    /// By the place of an object.
    slots: Box<[Slot]>,
    /// Packets that this thread has made: they are in use or in a slot.
    made: usize,
    /// Of `made`, those that the others know of.
    told: usize,
    /// Locked exchanges to free, those of lists, and turns with the node's lock that were there
    /// before or were the others'.
    not_ours: [u64; 3],
    world: Arc<World<Self>>,
}

/// An object's packet while it is free, and the object while its packet is in use.
#[derive(Default)]
struct Slot {
    skb: Option<Skb<'static>>,
    object: Option<Object<'static>>,
}

/// What is in the slabs besides heads.
struct Others {
    held: Box<[Option<Object<'static>>]>,
    random: u64,
}

impl Others {
    /// Fills slabs, and keeps of each some objects at random.
    fn new(cpu: &Current<'static>, seat: Seat) -> Result<Self, Fault> {
        let mut others =
            Self { held: Box::default(), random: 0x9e37_79b9_7f4a_7c15 + seat.thread as u64 };
        let all = (0..FIRST).map(|_| cpu.alloc().map(Some)).collect::<Result<Vec<_>, _>>();
        let mut all = all.map_err(|e| Fault::new(format!("no memory for others: {e}")))?;
        for last in (HELD..FIRST).rev() {
            let gone = all.swap_remove(others.below(last + 1));
            gone.into_iter().for_each(|object| cpu.free(object));
        }
        others.held = all.into();
        Ok(others)
    }

    /// One of them goes, another comes.
    #[inline]
    fn replace(&mut self, cpu: &Current<'static>) {
        let place = self.below(HELD);
        self.held[place].take().into_iter().for_each(|object| cpu.free(object));
        self.held[place] = cpu.alloc().ok();
    }

    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % n as u64) as usize
    }
}

impl<const HOW: u8, const OWN: bool, const TUNED: bool> OnSlub<HOW, OWN, TUNED> {
    #[inline(always)]
    fn alloc(&mut self, len: usize) -> Result<Skb<'static>, PacketError> {
        let object = self.heads.alloc().map_err(|_| PacketError::NoMemory)?;
        // The slabs are one mapping, so that no two objects have the same place.
        let place = object.as_ptr().addr().get() / SIZE % self.slots.len();
        let slot = &mut self.slots[place];
        slot.object = Some(object);
        let skb = match slot.skb.take() {
            Some(skb) => skb,
            None => {
                self.made += 1;
                self.packets.alloc_skb(len)?
            }
        };
        as_new(skb, [place as u64, 0, 0, 0, 0])
    }

    #[inline(always)]
    fn free_singly(&mut self, to: &mut Sink<'static>) -> usize {
        let Self { heads, slots, .. } = self;
        let free = |skb| {
            Slot::put_back(slots, skb)
                .object
                .take()
                .into_iter()
                .for_each(|object| heads.free(object))
        };
        to.complete_with(BUDGET, free)
    }

    #[inline(always)]
    fn free_array(&mut self, to: &mut Sink<'static>) -> usize {
        let Self { heads, slots, .. } = self;
        let mut waiting = Waiting::new(heads);
        to.complete_with(BUDGET, |skb| waiting.add(Slot::put_back(slots, skb)))
    }

    #[inline(always)]
    fn free_list(&mut self, to: &mut Sink<'static>) -> usize {
        let Self { heads, slots, .. } = self;
        let mut first = END;
        let done = to.complete_with(BUDGET, |mut skb| {
            let place = skb.cb()[0];
            // A word of the head's that nobody uses by now is the link. (A packet that others have would be missed at the end.)
            if skb.set_timestamp(first).is_ok() {
                first = place;
            }
            Slot::put_back(slots, skb);
        });
        let mut waiting = Waiting::new(heads);
        while first != END {
            let slot = &mut slots[first as usize];
            first = slot.skb.as_ref().map_or(END, Skb::timestamp);
            waiting.add(slot);
        }
        done
    }
}

/// Objects that wait to be freed, [`WAITLIST`] at a time.
struct Waiting<'a> {
    heads: &'a Current<'static>,
    objects: [Option<Object<'static>>; WAITLIST],
    n: usize,
}

impl<'a> Waiting<'a> {
    #[inline(always)]
    fn new(heads: &'a Current<'static>) -> Self {
        Self { heads, objects: [const { None }; WAITLIST], n: 0 }
    }

    #[inline(always)]
    fn add(&mut self, slot: &mut Slot) {
        self.objects[self.n] = slot.object.take();
        self.n += 1;
        if self.n == WAITLIST {
            self.flush();
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.heads.free_bulk_look_ahead(&mut self.objects[..self.n]);
        self.n = 0;
    }
}

impl Drop for Waiting<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.flush();
    }
}

impl Slot {
    /// Puts a packet back: its slot.
    #[inline(always)]
    fn put_back<'a>(slots: &'a mut [Self], skb: Skb<'static>) -> &'a mut Self {
        let slot = &mut slots[skb.cb()[0] as usize];
        slot.skb = Some(skb);
        slot
    }
}

impl<const HOW: u8, const OWN: bool, const TUNED: bool> Buffers for OnSlub<HOW, OWN, TUNED> {
    const NAME: &'static str = match (HOW, OWN, TUNED) {
        (SINGLE, false, false) => "history-4.2-single",
        (BULK, false, false) => "history-4.2-bulk",
        (LIST, false, false) => "history-4.2-list",
        (SINGLE, true, false) => "history-4.2-single-nomerge",
        (BULK, true, false) => "history-4.2-bulk-nomerge",
        (SINGLE, false, true) => "history-4.2-single-tuned",
        (BULK, false, true) => "history-4.2-bulk-tuned",
        _ => panic!("a column that has no name"),
    };
    const SAYS: &'static str = match (HOW, OWN, TUNED) {
        (SINGLE, false, false) => {
            "heads of SLUB of 4.2, freed one by one; others use the same cache"
        }
        (BULK, false, false) => {
            "the same, freed by a waitlist of 32 as detached freelists: the seed's patches"
        }
        (LIST, false, false) => "the same, but what waits is linked through the packets",
        (SINGLE, true, false) => {
            "as history-4.2-single, the others in a cache of their own (slab_nomerge)"
        }
        (SINGLE, false, true) => "as history-4.2-single, with cpu_partial 256 and min_partial 9",
        (BULK, false, true) => "as history-4.2-bulk, with cpu_partial 256 and min_partial 9",
        _ => "as history-4.2-bulk, the others in a cache of their own (slab_nomerge)",
    };
    const OF_SLAB: bool = false;

    type Common = Slub<OWN, TUNED>;

    fn new(packets: &'static Packets, world: &Arc<World<Self>>, seat: Seat) -> Result<Self, Fault> {
        let Slub { heads, others, held, .. } = &world.common;
        let says = |e| Fault::new(format!("cannot enter a CPU: {e}"));
        let elsewhere = others
            .as_ref()
            .map(|cache| cache.cache.enter(seat.thread))
            .transpose()
            .map_err(says)?;
        let heads = heads.cache.enter(seat.thread).map_err(says)?;
        let slots = (0..memory(seat.threads) / SIZE).map(|_| Slot::default()).collect();
        let others = Others::new(elsewhere.as_ref().unwrap_or(&heads), seat)?;
        // Relaxed: read when no thread runs; so are the other numbers.
        held.fetch_add(HELD, Ordering::Relaxed);
        let (not_ours, world) = (paths(&heads), world.clone());
        Ok(Self { packets, heads, elsewhere, others, slots, made: 0, told: 0, not_ours, world })
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        let before = paths(&self.heads);
        self.others.replace(self.elsewhere.as_ref().unwrap_or(&self.heads));
        let after = paths(&self.heads);
        self.not_ours
            .iter_mut()
            .zip(after)
            .zip(before)
            .for_each(|((n, after), before)| *n += after - before);
        from.poll_with(n, out, |len| self.alloc(len))
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        match HOW {
            SINGLE => self.free_singly(to),
            BULK => self.free_array(to),
            _ => self.free_list(to),
        }
    }

    fn flush(&mut self) {
        self.world.common.made.fetch_add(self.made - self.told, Ordering::Relaxed);
        self.told = self.made;
    }

    fn slow(&self) -> Slow {
        let [words, list_words, locks] = paths(&self.heads);
        let [others_words, others_list_words, others_locks] = self.not_ours;
        Slow {
            words: Some(words - others_words),
            list_words: Some(list_words - others_list_words),
            locks: Some(locks - others_locks),
            ..Slow::default()
        }
    }
}

impl<const HOW: u8, const OWN: bool, const TUNED: bool> Drop for OnSlub<HOW, OWN, TUNED> {
    fn drop(&mut self) {
        let cpu = self.elsewhere.as_ref().unwrap_or(&self.heads);
        self.others.held.iter_mut().filter_map(Option::take).for_each(|object| cpu.free(object));
        self.world.common.held.fetch_sub(HELD, Ordering::Relaxed);
        self.world.common.made.fetch_sub(self.told, Ordering::Relaxed);
    }
}

/// The caches of an arena.
pub(in crate::adapters::forward) struct Slub<const OWN: bool, const TUNED: bool> {
    heads: Borrowed,
    /// That of the others.
    others: Option<Borrowed>,
    /// Objects of the others.
    held: AtomicUsize,
    /// Packets made.
    made: AtomicUsize,
}

impl<const OWN: bool, const TUNED: bool> Common for Slub<OWN, TUNED> {
    fn new(threads: usize) -> Result<Self, Fault> {
        let others = if OWN { Some(Borrowed::new(threads, false)?) } else { None };
        let (held, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { heads: Borrowed::new(threads, TUNED)?, others, held, made })
    }

    fn kept(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    fn settle(&self) -> Result<(), Fault> {
        let held = self.held.load(Ordering::Relaxed);
        let others = self.others.as_ref().map_or(0, |cache| cache.cache.active());
        let active = self.heads.cache.active() + others;
        Fault::unless(active == held, || {
            format!("{active} objects of the slab are out, {held} may be")
        })
    }
}

/// Locked exchanges that this CPU has made to free, those of lists, and times that it took the
/// node's lock.
#[inline(always)]
fn paths(cpu: &Current<'_>) -> [u64; 3] {
    [cpu.free_slowpath(), cpu.list_exchanges(), cpu.list_locks()]
}

fn memory(threads: usize) -> usize {
    MEMORY * threads.next_power_of_two()
}

/// Caches that nobody uses, by how many threads they are for, and whether they are tuned. There are never more than arenas at a time need.
static FREE: Mutex<Vec<(usize, bool, &'static KmemCache)>> = Mutex::new(Vec::new());

/// A cache that outlives those who use it.
struct Borrowed {
    threads: usize,
    tuned: bool,
    cache: &'static KmemCache,
}

impl Borrowed {
    fn new(threads: usize, tuned: bool) -> Result<Self, Fault> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) =
            free.iter().position(|(of, as_is, _)| (*of, *as_is) == (threads, tuned))
        {
            return Ok(Self { threads, tuned, cache: free.swap_remove(place).2 });
        }
        let cache = KmemCache::new(SIZE, threads, memory(threads));
        let cache = cache.map_err(|e| Fault::new(format!("cannot make a cache: {e}")))?;
        let cache = if tuned { cache.tuned(CPU_PARTIAL as u32, MIN_PARTIAL as u32) } else { cache };
        Ok(Self { threads, tuned, cache: Box::leak(Box::new(cache)) })
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // What a failed run has left behind stays with it.
        if self.cache.active() == 0 {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push((
                self.threads,
                self.tuned,
                self.cache,
            ));
        }
    }
}
