//! What is wrong with objects is found.

use std::cell::Cell;
use std::ptr::NonNull;

use super::super::{Entry, Heap};
use super::{LOOKED_AT, fresh};

/// Hands out places in one block, at the given distance from each other, the first at `offset`.
struct Liar {
    block: Vec<Cell<u64>>,
    offset: usize,
    apart: usize,
    out: Cell<usize>,
    /// After so many there is no more.
    limit: usize,
}

impl Liar {
    fn new(offset: usize, apart: usize, limit: usize) -> Self {
        let block = vec![Cell::new(0); (apart * LOOKED_AT + 256) / 8];
        Self { block, offset, apart, out: Cell::new(0), limit }
    }
}

impl Heap for Liar {
    fn alloc(&self) -> Entry {
        let place = self.out.get();
        if place == self.limit {
            return None;
        }
        self.out.set(place + 1);
        let start = self.block.as_ptr() as usize;
        let first = start.next_multiple_of(16) - start + self.offset;
        NonNull::new(
            self.block.as_ptr().wrapping_byte_add(first + place * self.apart).cast_mut().cast(),
        )
    }

    unsafe fn free(&self, _: NonNull<u8>) {
        self.out.set(self.out.get() - 1);
    }
}

fn verdict(heap: &Liar) -> String {
    let told = fresh(heap, 64).map_or_else(|fault| fault.to_string(), |()| "right".to_owned());
    assert_eq!(heap.out.get(), 0, "everything is freed again");
    told
}

#[test]
fn right_objects_pass() {
    assert_eq!(verdict(&Liar::new(0, 64, LOOKED_AT)), "right");
    assert_eq!(verdict(&Liar::new(16, 96, LOOKED_AT)), "right");
}

#[test]
fn wrong_objects_do_not() {
    assert_eq!(verdict(&Liar::new(0, 48, LOOKED_AT)), "two objects overlap");
    assert_eq!(verdict(&Liar::new(0, 0, LOOKED_AT)), "two objects overlap");
    assert_eq!(verdict(&Liar::new(8, 64, LOOKED_AT)), "an object is not aligned to 16");
}

#[test]
fn no_memory_is_told_and_nothing_is_left() {
    for limit in [0, 1, 150, 151, LOOKED_AT - 1] {
        assert_eq!(verdict(&Liar::new(0, 64, limit)), "no memory for an object");
    }
}
