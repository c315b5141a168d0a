//! One thread allocates, another frees: what a connection that is accepted here and closed there does.

use std::sync::Arc;

use quietline_platform::atomic::AtomicBool;

use super::bulk::aligned;
use super::ring::{Ring, Seen};
use super::run::cycle;
use super::{Entry, Heap, NoMemory, Pattern, RULE, bits, examine};
use crate::harness::{Fault, Seat};
use crate::workloads::slab::PASSED;

/// The rings of an arena: one for each two threads.
pub(crate) struct Lanes(Vec<Arc<Ring>>);

impl Lanes {
    /// Rings for so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self((0..threads / 2).map(|_| Arc::new(Ring::new())).collect())
    }
}

/// One side of a ring. Both sides count the objects that pass, so the time per operation is that of an object's whole way.
pub(crate) struct Remote {
    ring: Arc<Ring>,
    allocates: bool,
    seen: Seen,
    /// The group in hand.
    group: [Entry; PASSED],
}

impl Remote {
    /// The side of this thread: even ones allocate. A seat has one worker at a time.
    ///
    /// # Panics
    ///
    /// If the number of threads is odd and this is the last one.
    pub(crate) fn new(lanes: &Lanes, seat: Seat) -> Self {
        let ring = lanes.0[seat.thread / 2].clone();
        let seen = ring.seen();
        Self { ring, allocates: seat.thread.is_multiple_of(2), seen, group: [None; PASSED] }
    }

    #[inline(always)]
    fn allocate<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let closing = Closing(&self.ring);
        let mut unsent = 0;
        let done = cycle(PASSED as u64, ops, stop, |cycles| {
            let mut seen = 0;
            for _ in 0..cycles {
                if !heap.alloc_bulk(&mut self.group) {
                    return Err(NoMemory);
                }
                seen |= bits(self.group[0]) | bits(self.group[PASSED - 1]);
                // SAFETY: even threads only send, and a seat has one worker.
                if !unsafe { closing.0.send(&self.group, &mut self.seen, stop) } {
                    // SAFETY: allocated just now, and not sent.
                    unsafe { heap.free_bulk(&mut self.group) };
                    unsent += PASSED as u64;
                }
            }
            Ok(aligned::<H>(seen))
        });
        // When stopped, at least one group had gone through, or the sample has no result.
        let done = done? - unsent;
        Fault::unless(done > 0, || "no object was taken before the sample was stopped".to_owned())?;
        Ok(done)
    }

    #[inline(always)]
    fn free<H: Heap>(&mut self, heap: &H) -> Result<u64, Fault> {
        let (mut done, mut names) = (0, 0);
        // SAFETY: odd threads only receive, and a seat has one worker.
        while unsafe { self.ring.receive(&mut self.group, &mut self.seen) } {
            names |= bits(self.group[0]) | bits(self.group[PASSED - 1]);
            // SAFETY: the sender allocated them and gave them away.
            unsafe { heap.free_bulk(&mut self.group) };
            done += PASSED as u64;
        }
        let right = aligned::<H>(names);
        Fault::unless(right, || format!("a result broke the rule: {RULE}")).map(|()| done)
    }
}

/// Closes the ring at the end of a sample, however that comes, so that the receiver does not wait for ever.
struct Closing<'a>(&'a Ring);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Pattern for Remote {
    #[inline(always)]
    fn run<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        if self.allocates { self.allocate(heap, ops, stop) } else { self.free(heap) }
    }

    fn check<H: Heap>(&mut self, heap: &H, size: usize) -> Result<(), Fault> {
        examine::fresh(heap, size)
    }
}
