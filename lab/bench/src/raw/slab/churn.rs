//! Objects that stay for a while: a working set in which random ones are replaced.

use quietline_platform::atomic::AtomicBool;

use super::bulk::aligned;
use super::random::Dice;
use super::run::cycle;
use super::{Entry, Heap, NoMemory, Pattern, bits, examine};
use crate::harness::{Fault, Seat};
use crate::workloads::slab::HELD;

/// The thread's working set.
pub(crate) struct Churn {
    held: Box<[Entry; HELD]>,
    dice: Dice,
}

impl Churn {
    /// A working set with nothing in it yet.
    pub(crate) fn new(seat: Seat) -> Self {
        Self { held: Box::new([None; HELD]), dice: Dice::new(seat) }
    }
}

impl Pattern for Churn {
    const HELD: usize = HELD;

    fn enter<H: Heap>(&mut self, heap: &H) -> Result<(), NoMemory> {
        for i in 0..HELD {
            self.held[i] = heap.alloc();
            if self.held[i].is_none() {
                self.leave(heap);
                return Err(NoMemory);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn run<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        cycle(1, ops, stop, |cycles| {
            let mut seen = 0;
            for _ in 0..cycles {
                let place = &mut self.held[self.dice.below(HELD)];
                if let Some(object) = place.take() {
                    // SAFETY: from this source, held here alone, and taken out.
                    unsafe { heap.free(object) };
                }
                *place = heap.alloc();
                if place.is_none() {
                    return Err(NoMemory);
                }
                seen |= bits(*place);
            }
            Ok(aligned::<H>(seen))
        })
    }

    fn check<H: Heap>(&mut self, heap: &H, size: usize) -> Result<(), Fault> {
        // SAFETY: the thread's own, all of them.
        unsafe { examine::all(heap, &self.held[..], size) }
    }

    fn leave<H: Heap>(&mut self, heap: &H) {
        for object in self.held.iter_mut().filter_map(Option::take) {
            // SAFETY: as in `run`.
            unsafe { heap.free(object) };
        }
    }
}
