//! A poller's list of items that may be ready, and the items of a file.

use super::Watchable;
use super::item::Item;
use core::ptr::{self, NonNull};

/// Items in order, each on one list at most. Whoever has a list has the lock of the poller whose items are on it.
pub(super) struct List<F: Watchable> {
    first: *mut Item<F>,
    last: *mut Item<F>,
}

impl<F: Watchable> List<F> {
    pub(super) fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    #[inline(always)]
    pub(super) fn first(&self) -> Option<NonNull<Item<F>>> {
        NonNull::new(self.first)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, item: NonNull<Item<F>>) {
        let last = self.last;
        // SAFETY: items that are on a list, or on their way to it, live; the lock is held. So in all of this.
        unsafe {
            item.as_ref()
                .own(|own| (own.next, own.prev, own.listed) = (ptr::null_mut(), last, true));
        }
        self.last = item.as_ptr();
        self.set_next(last, item.as_ptr());
    }

    /// Puts an item to the end, unless it is on a list: then it keeps its place.
    #[inline(always)]
    pub(super) fn push_new(&mut self, item: NonNull<Item<F>>) {
        // SAFETY: as in `push`.
        if !unsafe { item.as_ref().own(|own| own.listed) } {
            self.push(item);
        }
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, item: NonNull<Item<F>>) {
        // SAFETY: as in `push`.
        let (next, prev) = unsafe {
            item.as_ref().own(|own| {
                own.listed = false;
                (own.next, own.prev)
            })
        };
        self.set_next(prev, next);
        self.set_prev(next, prev);
    }

    /// Moves all of `other` to the end.
    #[inline(always)]
    pub(super) fn append(&mut self, other: &mut Self) {
        if other.is_empty() {
            return;
        }
        let (first, last) = (other.first, other.last);
        *other = Self::new();
        let before = self.last;
        // SAFETY: as in `push`; not null, because the other list was not empty.
        unsafe { (*first).own(|own| own.prev = before) };
        self.set_next(before, first);
        self.last = last;
    }

    /// Says what comes after an item, or first.
    #[inline(always)]
    fn set_next(&mut self, item: *mut Item<F>, next: *mut Item<F>) {
        // SAFETY: as in `push`.
        match unsafe { item.as_ref() } {
            // SAFETY: as in `push`.
            Some(item) => unsafe { item.own(|own| own.next = next) },
            None => self.first = next,
        }
    }

    /// Says what comes before an item, or last.
    #[inline(always)]
    fn set_prev(&mut self, item: *mut Item<F>, prev: *mut Item<F>) {
        // SAFETY: as in `push`.
        match unsafe { item.as_ref() } {
            // SAFETY: as in `push`.
            Some(item) => unsafe { item.own(|own| own.prev = prev) },
            None => self.last = prev,
        }
    }
}

/// Puts an item in front of those of its file.
///
/// # Safety
/// The caller holds the file's lock, whose word `first` is.
pub(super) unsafe fn join_file<F: Watchable>(first: &mut *mut Item<F>, item: NonNull<Item<F>>) {
    // SAFETY: what is in the file's list lives.
    unsafe {
        item.as_ref().beside(|beside| (beside.next, beside.prev) = (*first, ptr::null_mut()));
        if let Some(next) = first.as_ref() {
            next.beside(|beside| beside.prev = item.as_ptr());
        }
    }
    *first = item.as_ptr();
}

/// Takes an item out of those of its file.
///
/// # Safety
/// As [`join_file`]; the item is in that list.
pub(super) unsafe fn leave_file<F: Watchable>(first: &mut *mut Item<F>, item: NonNull<Item<F>>) {
    // SAFETY: what is in the file's list lives.
    unsafe {
        let (next, prev) = item.as_ref().beside(|beside| (beside.next, beside.prev));
        match prev.as_ref() {
            Some(prev) => prev.beside(|beside| beside.next = next),
            None => *first = next,
        }
        if let Some(next) = next.as_ref() {
            next.beside(|beside| beside.prev = prev);
        }
    }
}
