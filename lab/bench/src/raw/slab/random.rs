//! Allocated in bulk, freed one by one in random order: what is left of locality when objects live for various times.

use std::hint::black_box;

use quietline_platform::atomic::AtomicBool;

use super::bulk::aligned;
use super::run::cycle;
use super::{Entry, Heap, NoMemory, Pattern, bits, examine};
use crate::harness::{Fault, Seat};
use crate::workloads::slab::RANDOM;

/// Orders that are gone through in turn, so that no branch predictor learns one by heart.
const ORDERS: usize = 64;

/// Some orders in which objects are freed, made beforehand.
pub(crate) struct Random {
    orders: Vec<[u8; RANDOM]>,
    next: usize,
}

impl Random {
    /// Orders of this thread's own.
    pub(crate) fn new(seat: Seat) -> Self {
        let mut dice = Dice::new(seat);
        let orders = (0..ORDERS).map(|_| {
            let mut order: [u8; RANDOM] = std::array::from_fn(|i| i as u8);
            for i in (1..RANDOM).rev() {
                order.swap(i, dice.below(i + 1));
            }
            order
        });
        Self { orders: orders.collect(), next: 0 }
    }
}

impl Pattern for Random {
    #[inline(always)]
    fn run<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let mut objects: [Entry; RANDOM] = [None; RANDOM];
        cycle(RANDOM as u64, ops, stop, |cycles| {
            let mut seen = 0;
            for _ in 0..cycles {
                if !heap.alloc_bulk(&mut objects) {
                    return Err(NoMemory);
                }
                black_box(&mut objects);
                self.next = (self.next + 1) % ORDERS;
                for &i in &self.orders[self.next] {
                    let object = objects[usize::from(i)];
                    seen |= bits(object);
                    // SAFETY: allocated just now; an order has each of them once.
                    unsafe { heap.free(object.unwrap_unchecked()) };
                }
            }
            Ok(aligned::<H>(seen))
        })
    }

    fn check<H: Heap>(&mut self, heap: &H, size: usize) -> Result<(), Fault> {
        examine::fresh(heap, size)
    }
}

/// Numbers that look random: xorshift, the same in every run.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seat: Seat) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seat.thread as u64 + 1) | 1)
    }

    /// A number below `limit`, which is far below 2^32.
    #[inline(always)]
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * limit as u64) >> 32) as usize
    }
}
