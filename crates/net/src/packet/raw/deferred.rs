//! The lists of packets that were sent home.
//!
//! A stack for each CPU, that many push chains to and one takes as a whole: no entry is ever taken alone, so an address that comes back
//! harms nothing.

use super::put_off::PutOff;
use super::{Head, Skb};
use crate::packet::DEFER_MAX;
use core::ptr::{self, NonNull};
use crossbeam_utils::CachePadded;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
use quietline_sync::PerCpu;

/// The lists.
pub(in super::super) struct Deferred {
    lists: PerCpu<CachePadded<List>>,
}

struct List {
    first: AtomicPtr<Head>,
    /// How many there are, and as many as are about to be put in or have just been taken.
    n: AtomicU32,
}

impl Deferred {
    pub(super) fn new() -> Result<Self, AllocError> {
        let list = |_| {
            CachePadded::new(List { first: AtomicPtr::new(ptr::null_mut()), n: AtomicU32::new(0) })
        };
        Ok(Self { lists: PerCpu::new(list)? })
    }

    /// Puts packets of one CPU, to each of which this is the only reference and in which is noted how it ended, into that CPU's list: the first
    /// of them that there is room for. How many; their places are empty then.
    ///
    /// Two locked instructions on the list's line, however many they are; three, if there is not room for all.
    pub(in super::super) fn push(&self, cpu: usize, packets: &mut [Option<Skb<'_>>]) -> usize {
        let Some(list) = self.lists.get(cpu) else { return 0 };
        let all = packets.len() as u32;
        // Relaxed, so below: a number that orders nothing.
        let room = DEFER_MAX.saturating_sub(list.n.fetch_add(all, Ordering::Relaxed));
        if room < all {
            list.n.fetch_sub(all - room, Ordering::Relaxed);
        }
        let mut chain: Option<[NonNull<Head>; 2]> = None;
        let mut n = 0;
        for skb in packets.iter_mut().take(room as usize).filter_map(Option::take) {
            let head = skb.into_head();
            if let Some([_, last]) = chain {
                Self::link(last, head.as_ptr());
            }
            chain = Some([chain.map_or(head, |[first, _]| first), head]);
            n += 1;
        }
        if let Some([first, last]) = chain {
            PutOff::push(&list.first, first, |next| Self::link(last, next));
        }
        n
    }

    /// Links a packet that is about to be put in.
    fn link(head: NonNull<Head>, next: *mut Head) {
        // SAFETY: the reference was the caller's and is ours, and keeps the head. Relaxed: published by the exchange.
        unsafe { head.as_ref() }.next.store(next, Ordering::Relaxed);
    }

    /// Takes all that wait for a CPU: the first, to which the others are linked. Each has a reference, which is the caller's now.
    pub(super) fn take(&self, cpu: usize) -> Option<NonNull<Head>> {
        PutOff::take(&self.lists.get(cpu)?.first)
    }

    /// So many were taken for a CPU, and there is room for as many again.
    pub(super) fn took(&self, cpu: usize, n: usize) {
        if let Some(list) = self.lists.get(cpu).filter(|_| n > 0) {
            // Relaxed: as in `push`.
            list.n.fetch_sub(n as u32, Ordering::Relaxed);
        }
    }

    pub(super) fn cpus(&self) -> usize {
        self.lists.cpus()
    }
}
