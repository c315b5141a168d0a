//! The memory of packets: heads, data, and who has references to them.
//!
//! ```text
//!   Skb ── a reference ──> Head { users } ──────────────────┬──> data
//!   Skb ── a reference ──>   (the same)   ── a reference ──┐ │
//!                                                          Info { dataref, frags }     made by the first clone or fragment
//!   Skb ── a reference ──> Head (a clone's) ── a reference ┘
//! ```
//!
//! What most packets never need, the count of heads and the list of fragments, is not behind the data, where Linux has it, but by
//! itself: so neither making nor freeing a packet touches its data. And data has an odd number of lines, so that the packets of a
//! burst do not all lie in the same sets of the cache. (With counts behind data of 2 KiB a packet made and freed in a burst of 64 took
//! 17 ns; without, and with 33 lines instead of 32, see docs/adr/0018-packet-data.md.)
//!
//! A head is written by who has the only reference to it; data by who has the only reference to the only head of it. Who
//! finds a count at 1 with acquire has seen all that those did who have given their references back, and no new reference can
//! come but from his own.

#![allow(unsafe_code)]

mod away;
mod bulk;
mod deferred;
mod put_off;
mod skb;
mod stack;

pub(super) use away::{AWAY, Away};
use bulk::Ended;
pub(super) use bulk::{ALL, HEADS, end_all};
pub(super) use deferred::Deferred;
use put_off::PutOff;
pub use skb::{Destructor, Skb};
pub(super) use stack::Stack;

use super::frag::{Frag, MAX_FRAGS};
use super::listeners::Event;
use super::trace;
use super::{HEADROOM, PacketError};
use core::fmt;
use core::mem::{self, offset_of};
use core::ptr::{self, NonNull};
use crossbeam_utils::CachePadded;
use quietline_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
use quietline_platform::{AllocError, cpu};
#[cfg(not(loom))]
use quietline_slab::Debug;
use quietline_slab::{CacheError, Entry, Options, RawCache, Stats};

/// Bytes of data: an odd number of lines each.
pub(super) const SIZES: [usize; 4] = [9 * 64, 33 * 64, 65 * 64, 255 * 64];
/// The kind of data that a packet of an Ethernet's usual size has.
pub(super) const USUAL: usize = 1;
/// Objects that are allocated or freed at a time.
pub(super) const CHUNK: usize = 64;

/// A head (`struct sk_buff`): two lines, of which the first is what forwarding looks at.
#[repr(C, align(64))]
struct Head {
    users: AtomicU32,
    /// Linear bytes.
    len: u32,
    /// Bytes in fragments.
    frags_len: u32,
    device: u32,
    /// Where the linear bytes begin.
    offset: u16,
    protocol: u16,
    /// The CPU on which it was made.
    cpu: u16,
    /// The data's kind: where it ends is in [`SIZES`].
    class: u8,
    /// How it ended, of one that waits to be freed: see [`Event::code`]. Else zero.
    ended: u8,
    data: NonNull<u8>,
    packets: NonNull<Packets>,
    /// Null while the data has one head and no fragments.
    info: AtomicPtr<Info>,
    destructor: Option<extern "C" fn(u64)>,
    /// The next in a list of packets that wait to be freed. In the first line, so that who puts a packet there, and who takes it, has no
    /// other one to get from another CPU.
    next: AtomicPtr<Head>,

    cb: [u64; 5],
    timestamp: u64,
    mark: u32,
    hash: u32,
    argument: u64,
}

// (The model's atomics are larger.)
const _: () = assert!(cfg!(loom) || size_of::<Head>() == 128 && offset_of!(Head, cb) == 64);
const _: () = assert!(SIZES[SIZES.len() - 1] <= u16::MAX as usize);

/// What heads of the same data share besides it (`struct skb_shared_info`).
struct Info {
    /// Heads.
    dataref: AtomicU32,
    /// Changed by who has the only reference to the only head.
    frags: [Option<Frag>; MAX_FRAGS],
}

/// The packets of a kernel or a program: the caches of heads and of data.
///
/// It stays while packets live, which borrow it.
pub struct Packets {
    heads: RawCache,
    data: [RawCache; SIZES.len()],
    pub(super) deferred: Deferred,
    /// On a line of its own: the others are only read.
    put_off: CachePadded<PutOff>,
    /// Whether a model puts packets off, so that all its threads look for them: see [`may_have_put_off`](Self::may_have_put_off).
    #[cfg(loom)]
    pub puts_off: bool,
}

impl fmt::Debug for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets").field("heads", &self.heads.stats().active).finish_non_exhaustive()
    }
}

/// Which data a packet of so many bytes, headroom included, has.
pub(super) fn class_of(bytes: usize) -> Result<usize, PacketError> {
    SIZES.iter().position(|size| bytes <= *size).ok_or(PacketError::BadLength)
}

impl Packets {
    /// No packets yet.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn new() -> Result<Self, CacheError> {
        // A sheaf has room for a turn, of large data too: what a turn frees the next one makes, from the CPU's two sheaves.
        let cache = |name, size: usize| {
            let sheaf_capacity = (64 * 1024 / size).max(CHUNK);
            RawCache::new(Options { sheaf_capacity, ..Options::new(name, size, 64) })
        };
        // Where nobody looks at it: of a head that is free, its count of references says so, in debug builds.
        let link_offset = cfg!(debug_assertions).then_some(offset_of!(Head, next));
        let heads =
            Options { link_offset, ..Options::new("skbuff_head_cache", size_of::<Head>(), 64) };
        let [small, usual, page, large] =
            ["skbuff_small_data", "skbuff_data", "skbuff_page_data", "skbuff_large_data"];
        Ok(Self {
            heads: RawCache::new(heads)?,
            data: [
                cache(small, SIZES[0])?,
                cache(usual, SIZES[1])?,
                cache(page, SIZES[2])?,
                cache(large, SIZES[3])?,
            ],
            deferred: Deferred::new()?,
            put_off: CachePadded::new(PutOff::new()),
            #[cfg(loom)]
            puts_off: false,
        })
    }

    /// A packet without data, with room for `len` bytes behind [`HEADROOM`] bytes of headroom (`alloc_skb` and `skb_reserve`).
    ///
    /// Writes no shared line.
    ///
    /// # Errors
    /// [`PacketError::BadLength`] above 16,320 bytes with the headroom; [`PacketError::NoMemory`].
    #[inline]
    pub fn alloc_skb(&self, len: usize) -> Result<Skb<'_>, PacketError> {
        let class = class_of(len.checked_add(HEADROOM).ok_or(PacketError::BadLength)?)?;
        let head = self.heads.alloc()?;
        match self.data[class].alloc() {
            // SAFETY: both are fresh, and of these caches.
            Ok(data) => Ok(unsafe { self.begin(head, data, class, cpu::current()) }),
            Err(error) => {
                // SAFETY: allocated above.
                unsafe { self.heads.free(head) };
                Err(error.into())
            }
        }
    }

    /// As many packets as `packets` has room for, all or none (`napi_alloc_skb`, in bulk). What was there is dropped.
    ///
    /// Writes no shared line while the CPU's sheaves have enough.
    ///
    /// # Errors
    /// As [`alloc_skb`](Self::alloc_skb); then all entries are `None`.
    pub fn alloc_skb_bulk<'n>(
        &'n self,
        len: usize,
        packets: &mut [Option<Skb<'n>>],
    ) -> Result<(), PacketError> {
        packets.fill_with(|| None);
        self.free_put_off();
        let class = class_of(len.checked_add(HEADROOM).ok_or(PacketError::BadLength)?)?;
        for start in (0..packets.len()).step_by(CHUNK) {
            let end = packets.len().min(start + CHUNK);
            if let Err(error) = self.alloc_chunk(class, &mut packets[start..end]) {
                packets.fill_with(|| None);
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn alloc_chunk<'n>(
        &'n self,
        class: usize,
        packets: &mut [Option<Skb<'n>>],
    ) -> Result<(), AllocError> {
        let (mut heads, mut data): ([Entry; CHUNK], [Entry; CHUNK]) =
            ([None; CHUNK], [None; CHUNK]);
        let (heads, data) = (&mut heads[..packets.len()], &mut data[..packets.len()]);
        self.heads.alloc_bulk(heads)?;
        if let Err(error) = self.data[class].alloc_bulk(data) {
            // SAFETY: allocated above.
            unsafe { self.heads.free_bulk(heads) };
            return Err(error);
        }
        let cpu = cpu::current();
        for ((packet, head), data) in packets.iter_mut().zip(heads).zip(data) {
            let (Some(head), Some(data)) = (*head, *data) else { unreachable!("all or nothing") };
            // SAFETY: both are fresh, and of these caches.
            let skb = unsafe { self.begin(head, data, class, cpu) };
            // There was none.
            mem::forget(packet.replace(skb));
        }
        Ok(())
    }

    /// Makes a packet of a head and data, on a CPU.
    ///
    /// # Safety
    /// Both are the caller's, of the cache of heads and of that of `class`.
    #[inline(always)]
    unsafe fn begin(
        &self,
        head: NonNull<u8>,
        data: NonNull<u8>,
        class: usize,
        cpu: usize,
    ) -> Skb<'_> {
        let head = head.cast::<Head>();
        let new = Head {
            users: AtomicU32::new(1),
            len: 0,
            frags_len: 0,
            device: 0,
            offset: HEADROOM as u16,
            protocol: 0,
            cpu: cpu as u16,
            class: class as u8,
            ended: 0,
            data,
            packets: NonNull::from(self),
            info: AtomicPtr::new(ptr::null_mut()),
            destructor: None,
            argument: 0,
            cb: [0; 5],
            timestamp: 0,
            mark: 0,
            hash: 0,
            next: AtomicPtr::new(ptr::null_mut()),
        };
        // SAFETY: by contract memory of a head's size that nobody else uses.
        unsafe { head.write(new) };
        // SAFETY: it has one reference, which nobody else has; the packets live as long as this borrow.
        unsafe { Skb::from_head(head) }
    }

    /// Gives the packets that were sent to this CPU to `end`, with how they ended: how many.
    #[inline]
    pub(super) fn each_deferred<'n>(&'n self, end: impl FnMut(Skb<'n>, Event)) -> usize {
        let cpu = cpu::current();
        // SAFETY: these packets live for 'n, and a packet of a list has a reference that is ours.
        let n = unsafe { self.each_of(self.deferred.take(cpu), end) };
        self.deferred.took(cpu, n);
        n
    }

    /// Ends the packets that were sent to a CPU, in bulk: how many.
    pub(super) fn end_deferred(&self, cpu: usize) -> usize {
        // SAFETY: as above.
        let n = unsafe { self.end_chain(self.deferred.take(cpu)) };
        self.deferred.took(cpu, n);
        n
    }

    /// Ends the packets of a list in bulk: how many.
    ///
    /// # Safety
    /// As [`each_of`](Self::each_of).
    unsafe fn end_chain(&self, first: Option<NonNull<Head>>) -> usize {
        let mut ended = Ended::new(self);
        // SAFETY: passed on.
        unsafe { self.each_of(first, |skb, _| ended.add(skb)) }
    }

    /// Gives the packets of a list, linked by `next`, to `end`, with how they ended: how many.
    ///
    /// # Safety
    /// Each of the list was put in with its only reference, which is the caller's now; these packets live for `'n`.
    unsafe fn each_of<'n>(
        &self,
        first: Option<NonNull<Head>>,
        mut end: impl FnMut(Skb<'n>, Event),
    ) -> usize {
        let (mut at, mut n) = (first, 0);
        while let Some(head) = at {
            // SAFETY: by contract. Relaxed: seen with the list. These packets may have been moved meanwhile: what waits does not borrow
            // them.
            let skb = unsafe {
                at = NonNull::new(head.as_ref().next.load(Ordering::Relaxed));
                (*head.as_ptr()).packets = NonNull::from(self);
                Skb::from_head(head)
            };
            let event = skb.noted();
            end(skb, event);
            n += 1;
        }
        n
    }

    /// What the cache of heads holds now.
    pub fn head_stats(&self) -> Stats {
        self.heads.stats()
    }

    /// What the caches of data hold now, smallest first.
    pub fn data_stats(&self) -> [Stats; SIZES.len()] {
        core::array::from_fn(|class| self.data[class].stats())
    }

    /// The cache of heads, whose tunables may be changed and checks be turned on.
    pub fn head_cache(&self) -> &RawCache {
        &self.heads
    }

    /// Sets the checks of heads and data: see
    /// [`Control::set_debug`](quietline_slab::Control::set_debug). [`Debug::POISON`] finds writes to
    /// a packet after its end, [`Debug::RED_ZONE`] writes behind its buffer. The environment sets
    /// them too: `QUIETLINE_SLAB_DEBUG=FZPU,skbuff_*`.
    ///
    /// Not to be called by a destructor of a packet.
    ///
    /// # Errors
    /// [`FenceError`](quietline_platform::FenceError): see there. Some of the caches may be checked
    /// already.
    #[cfg(not(loom))]
    pub fn set_debug(&self, debug: Debug) -> Result<(), quietline_platform::FenceError> {
        self.caches().try_for_each(|cache| cache.set_debug(debug))
    }

    /// Looks at all heads and data that are checked, free ones and others: how many were found wrong, and reported.
    #[cfg(not(loom))]
    pub fn validate(&self) -> usize {
        self.caches().map(|cache| cache.validate()).sum()
    }

    fn caches(&self) -> impl Iterator<Item = &RawCache> {
        self.data.iter().chain([&self.heads])
    }

    /// Ends what waits for any CPU to free it, and gives cached memory back.
    pub fn shrink(&self) {
        self.free_put_off();
        (0..self.deferred.cpus()).for_each(|cpu| _ = self.end_deferred(cpu));
        self.caches().for_each(|cache| cache.shrink());
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        debug_assert!(!super::NoBulk::is_entered(), "packets end where nothing may be freed");
        self.free_put_off();
        (0..self.deferred.cpus()).for_each(|cpu| _ = self.end_deferred(cpu));
    }
}

/// Memory that a packet has left behind, to be given back to the caches that it is of.
struct Remains {
    head: NonNull<u8>,
    /// Its data and which kind, unless others have references to it.
    data: Option<(NonNull<u8>, usize)>,
}

impl Packets {
    /// Gives back what a packet has left, head and data one by one.
    ///
    /// # Safety
    /// A packet of these has left it.
    #[inline(always)]
    unsafe fn free(&self, remains: Remains) {
        // SAFETY: by contract, and nobody uses it any more.
        unsafe {
            if let Some((data, class)) = remains.data {
                self.data[class].free(data);
            }
            self.heads.free(remains.head);
        }
    }
}
