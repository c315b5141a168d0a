//! The lists of packets that were sent home.
//!
//! A stack for each CPU, that many push to and one takes as a whole: no entry is ever taken alone, so an address that comes back
//! harms nothing.

use super::put_off::PutOff;
use super::{Event, Head, Skb};
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
        let list =
            |_| CachePadded::new(List { first: AtomicPtr::new(ptr::null_mut()), n: AtomicU32::new(0) });
        Ok(Self { lists: PerCpu::new(list)? })
    }

    /// Puts a packet, to which this is the only reference, into its CPU's list, and notes how it ended; gives it back if that is full, or
    /// there is no such CPU.
    pub(in super::super) fn push<'n>(&self, skb: Skb<'n>, event: Event) -> Result<(), Skb<'n>> {
        let Some(list) = self.lists.get(skb.cpu()) else { return Err(skb) };
        // Relaxed: a number that orders nothing.
        if list.n.fetch_add(1, Ordering::Relaxed) >= DEFER_MAX {
            list.n.fetch_sub(1, Ordering::Relaxed);
            return Err(skb);
        }
        skb.note(event);
        let head = skb.into_head();
        PutOff::push(&list.first, head, |next| {
            // SAFETY: the reference was the caller's and is ours, and keeps the head. Relaxed: published by the exchange.
            unsafe { head.as_ref() }.next.store(next, Ordering::Relaxed);
        });
        Ok(())
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
