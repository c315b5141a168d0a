//! A queue's list, and what every entry of it has.

use core::ptr::{self, NonNull};

use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::cell::UnsafeCell;

use super::Reply;

/// What every entry begins with.
#[derive(Debug)]
pub(super) struct Node {
    links: UnsafeCell<Links>,
    pub(super) kind: Kind,
    pub(super) exclusive: bool,
    /// An exclusive one that goes before those that came earlier.
    newest_first: bool,
}

/// What a wake-up does with an entry.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A sleeping thread that waits for these events: the node is the first field of a `Waiter`.
    Sleeper(u32),
    /// A function, called with the entry and the wake-up's key under the queue's lock.
    Callback(unsafe fn(NonNull<Node>, u32) -> Reply),
}

#[derive(Debug)]
struct Links {
    next: *mut Node,
    prev: *mut Node,
    linked: bool,
}

// SAFETY: links are read and written under the queue's lock, or by a waker that has claimed the node; the rest does not
// change.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    pub(super) fn new(kind: Kind, exclusive: bool) -> Self {
        let links = Links { next: ptr::null_mut(), prev: ptr::null_mut(), linked: false };
        Self { links: UnsafeCell::new(links), kind, exclusive, newest_first: false }
    }

    /// The same, of which the one that came last is the first among the exclusive ones.
    pub(super) fn newest_first(self, newest_first: bool) -> Self {
        Self { newest_first, ..self }
    }

    /// Sets what comes after a node that is on no list.
    ///
    /// # Safety
    /// The node is off the list, and the caller's alone until it is handed back.
    pub(super) unsafe fn chain(&self, next: *mut Node) {
        // SAFETY: by contract nobody else uses the links.
        self.links.with_mut(|links| unsafe { (*links).next = next });
    }

    /// What [`chain`](Self::chain) has set.
    ///
    /// # Safety
    /// As for [`chain`](Self::chain).
    pub(super) unsafe fn chained(&self) -> *mut Node {
        // SAFETY: by contract nobody else uses the links.
        self.links.with(|links| unsafe { (*links).next })
    }
}

/// The right to use the links of the nodes on a queue's list: it is inside the queue's lock. A node is used with one
/// queue only (the contract of `WaitQueue::add`).
#[derive(Debug)]
pub(super) struct List {
    tail: *mut Node,
}

// SAFETY: the pointer is followed under the lock only, and nodes may be used by any thread.
unsafe impl Send for List {}

impl List {
    pub(super) const fn new() -> Self {
        Self { tail: ptr::null_mut() }
    }

    fn with<R>(&self, node: &Node, f: impl FnOnce(&Links) -> R) -> R {
        // SAFETY: whoever has the list has the lock.
        node.links.with(|links| f(unsafe { &*links }))
    }

    fn with_mut<R>(&mut self, node: &Node, f: impl FnOnce(&mut Links) -> R) -> R {
        // SAFETY: whoever has the list has the lock, and `f` gets at no other node's links.
        node.links.with_mut(|links| f(unsafe { &mut *links }))
    }

    pub(super) fn is_linked(&self, node: &Node) -> bool {
        self.with(node, |links| links.linked)
    }

    pub(super) fn next(&self, node: &Node) -> *mut Node {
        self.with(node, |links| links.next)
    }

    /// Links a node: one that is not exclusive at the beginning; one that is at the end, or before the first such. Goes along
    /// those that are not exclusive then; of an epoll's queue none is.
    pub(super) fn link(&mut self, head: &AtomicPtr<Node>, at: NonNull<Node>, node: &Node) {
        // Relaxed, here and in `unlink`: written under the lock; the fence in `WaitQueue::add` orders it for wakers, and
        // whoever follows it takes the lock first.
        let first = head.load(Ordering::Relaxed);
        let (prev, next) = match (node.exclusive, node.newest_first) {
            (false, _) => (ptr::null_mut(), first),
            (true, false) => (self.tail, ptr::null_mut()),
            (true, true) => self.before_exclusive(first),
        };
        self.with_mut(node, |links| *links = Links { next, prev, linked: true });
        self.join(head, prev, at.as_ptr());
        self.join(head, at.as_ptr(), next);
    }

    /// What a node is put between that goes before every exclusive one.
    fn before_exclusive(&self, first: *mut Node) -> (*mut Node, *mut Node) {
        let (mut prev, mut next) = (ptr::null_mut(), first);
        // SAFETY: nodes on the list live.
        while let Some(node) = unsafe { next.as_ref() }
            && !node.exclusive
        {
            (prev, next) = (next, self.next(node));
        }
        (prev, next)
    }

    /// Takes a linked node off.
    pub(super) fn unlink(&mut self, head: &AtomicPtr<Node>, node: &Node) {
        let (prev, next) = self.with_mut(node, |links| {
            links.linked = false;
            (links.prev, links.next)
        });
        self.join(head, prev, next);
    }

    /// Makes two nodes neighbours; null stands for the list's ends.
    fn join(&mut self, head: &AtomicPtr<Node>, before: *mut Node, after: *mut Node) {
        // SAFETY: not null, so a node on the list, which lives.
        match unsafe { before.as_ref() } {
            Some(node) => self.with_mut(node, |links| links.next = after),
            None => head.store(after, Ordering::Relaxed),
        }
        // SAFETY: as above.
        match unsafe { after.as_ref() } {
            Some(node) => self.with_mut(node, |links| links.prev = before),
            None => self.tail = before,
        }
    }
}
