//! Entries with callbacks.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::WaitQueue;
use super::node::{Kind, Node};

/// What a callback says to the wake-up that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Not its business: the wake-up goes on as if the entry were not there.
    Ignored,
    /// Woken; an exclusive entry has used up one of the wake-up's exclusive ones.
    Woken,
    /// As [`Woken`](Self::Woken), and the entry leaves the queue.
    Done,
}

/// What an [`Entry`] does when its queue is woken.
///
/// `'static`, because an entry that is pinned and then leaked stays in its queue, and is called for as long as the
/// queue is woken: what it needs must be part of it.
pub trait Callback: Send + Sync + 'static {
    /// Called under the queue's lock with the key of the wake-up. Must be short, and must not touch this queue.
    fn wake(&self, key: u32) -> Reply;
}

impl<F: Fn(u32) -> Reply + Send + Sync + 'static> Callback for F {
    fn wake(&self, key: u32) -> Reply {
        self(key)
    }
}

/// A place in a queue, with a callback. Pinned, so that the queue may point to it; leaves the queue when dropped.
///
/// ```
/// use core::pin::pin;
/// use quietline_sync::{Entry, Reply, WaitQueue};
///
/// let queue = WaitQueue::new();
/// let entry = pin!(Entry::new(&queue, |_key| Reply::Woken, false));
/// entry.as_ref().add();
/// assert_eq!(queue.wake_all(), 1);
/// assert!(entry.as_ref().remove());
/// assert_eq!(queue.wake_all(), 0);
/// ```
///
/// An entry may not outlive its queue:
///
/// ```compile_fail
/// use quietline_sync::{Entry, Reply, WaitQueue};
/// let queue = WaitQueue::new();
/// let entry = Box::pin(Entry::new(&queue, |_key| Reply::Woken, false));
/// drop(queue);
/// entry.as_ref().add();
/// ```
#[repr(C)]
pub struct Entry<'q, C: Callback> {
    /// First, so that a pointer to it is one to the entry.
    node: Node,
    queue: &'q WaitQueue,
    callback: C,
    pinned: PhantomPinned,
}

impl<'q, C: Callback> Entry<'q, C> {
    /// An entry for `queue`, not in it yet.
    pub fn new(queue: &'q WaitQueue, callback: C, exclusive: bool) -> Self {
        let node = Node::new(Kind::Callback(call::<C>), exclusive);
        Self { node, queue, callback, pinned: PhantomPinned }
    }

    /// Enters the queue, unless it is there already. The caller looks at its condition after this, not before.
    ///
    /// Writes the queue's line and a neighbour's.
    pub fn add(self: Pin<&Self>) {
        let node = NonNull::from(self.get_ref()).cast::<Node>();
        // SAFETY: pinned: it stays where it is until it is dropped, and drop takes it off. The queue is always the same.
        unsafe { self.queue.add(node) };
    }

    /// Leaves the queue; false if it was not there. A call that is going on is waited for, so after this there is none.
    pub fn remove(self: Pin<&Self>) -> bool {
        self.queue.remove(&self.node)
    }

    /// Waits for a call that is going on. What the caller has changed before is seen by every call after this, and what those
    /// did who woke the queue before is seen by the caller. Writes the queue's line.
    pub fn settle(self: Pin<&Self>) {
        drop(self.queue.list.lock());
    }

    /// The callback.
    pub fn callback(&self) -> &C {
        &self.callback
    }
}

impl<C: Callback> Drop for Entry<'_, C> {
    fn drop(&mut self) {
        self.queue.remove(&self.node);
    }
}

impl<C: Callback> fmt::Debug for Entry<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("exclusive", &self.node.exclusive).finish_non_exhaustive()
    }
}

/// # Safety
/// The node is that of an entry with such a callback, alive and in its queue.
unsafe fn call<C: Callback>(node: NonNull<Node>, key: u32) -> Reply {
    // SAFETY: the node is the entry's first field, and the pointer was made from one to the whole entry. The lifetime of
    // the queue's borrow is of no matter to the layout, and the callback is 'static. Only a shared borrow of one field is
    // made: the owner may be about to drop the entry, and waits in `remove` then.
    let callback =
        unsafe { &*ptr::addr_of!((*node.cast::<Entry<'static, C>>().as_ptr()).callback) };
    callback.wake(key)
}
