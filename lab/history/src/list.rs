//! The kernel's doubly linked list (`include/linux/list.h`).
//!
//! Linking an element writes the head and the element that was first; unlinking one writes both its
//! neighbours: lines of objects that belong to other CPUs.

use crate::raw::Link;

/// `struct list_head`: the head of a list, or an object's place in one. Guarded by the list's lock.
#[repr(C)]
pub(crate) struct ListHead {
    next: Link<ListHead>,
    prev: Link<ListHead>,
}

impl ListHead {
    /// A head that points nowhere until [`ListHead::init`], which needs its final address.
    pub(crate) fn new() -> Self {
        Self { next: Link::null(), prev: Link::null() }
    }

    /// `INIT_LIST_HEAD()`: an empty list, or an object that is on none.
    #[inline]
    pub(crate) fn init(&self) {
        self.next.store(Some(self));
        self.prev.store(Some(self));
    }

    /// `list_empty()`.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        core::ptr::eq(self.next(), self)
    }

    /// `list_add()`: puts `new` first in this list. Writes the head, `new` and the element that was first.
    #[inline]
    pub(crate) fn add(&self, new: &ListHead) {
        let first = self.next();
        first.prev.store(Some(new));
        new.next.store(Some(first));
        new.prev.store(Some(self));
        self.next.store(Some(new));
    }

    /// `list_del_init()`: takes this element off its list. Writes it and both its neighbours.
    #[inline]
    pub(crate) fn del_init(&self) {
        let (prev, next) = (self.prev(), self.next());
        next.prev.store(Some(prev));
        prev.next.store(Some(next));
        self.init();
    }

    /// The addresses of the elements, first to last; the links are checked on the way.
    pub(crate) fn elements(&self) -> Vec<usize> {
        let mut elements = Vec::new();
        let (mut before, mut element) = (self, self.next());
        loop {
            assert!(core::ptr::eq(element.prev(), before), "a list's links disagree");
            if core::ptr::eq(element, self) {
                return elements;
            }
            elements.push(core::ptr::from_ref(element).addr());
            (before, element) = (element, element.next());
        }
    }

    #[inline]
    fn next(&self) -> &ListHead {
        self.next.load().expect("the list head was initialised")
    }

    #[inline]
    fn prev(&self) -> &ListHead {
        self.prev.load().expect("the list head was initialised")
    }
}
