//! The short names of a poller's items: a number that fits into a byte, for as many as there are numbers.

use super::Watchable;
use super::item::Item;
use core::num::NonZeroU8;
use core::ptr::{self, NonNull};

/// Items that have a number; in the model fewer, so that it meets those that have none.
const MOST: usize = if cfg!(loom) { 2 } else { u8::MAX as usize };

/// Who has which number. Under the poller's lock.
pub(super) struct Numbers<F: Watchable> {
    /// By number, from one on.
    items: Vec<*mut Item<F>>,
    /// Numbers that were given and came back. Has room for all.
    free: Vec<NonZeroU8>,
}

impl<F: Watchable> Numbers<F> {
    pub(super) fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    /// A number; none if all are taken, or there is no memory. An item does without.
    pub(super) fn take(&mut self) -> Option<NonZeroU8> {
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        let next = self.items.len() + 1;
        if next > MOST || self.items.try_reserve(1).is_err() || self.free.try_reserve(next).is_err()
        {
            return None;
        }
        self.items.push(ptr::null_mut());
        NonZeroU8::new(next as u8)
    }

    /// Says whose number it is.
    pub(super) fn set(&mut self, number: NonZeroU8, item: NonNull<Item<F>>) {
        self.items[usize::from(number.get()) - 1] = item.as_ptr();
    }

    /// Whose number it is. Numbers that were pushed are somebody's: who leaves has waited for those who push.
    #[inline(always)]
    pub(super) fn get(&self, number: NonZeroU8) -> NonNull<Item<F>> {
        NonNull::new(self.items[usize::from(number.get()) - 1])
            .expect("an item that was pushed is there")
    }

    /// The number is nobody's any more.
    pub(super) fn put(&mut self, number: NonZeroU8) {
        self.items[usize::from(number.get()) - 1] = ptr::null_mut();
        self.free.push(number);
    }
}
