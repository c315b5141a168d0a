//! The pool of buffers in front of the slab that the discussion of 2015 set aside: `qmempool`, on queues from an array
//! (`alf_queue`), which Jesper Brouer had proposed in December 2014.
//!
//! A thread takes buffers from a short queue of its own, and puts them back there: no locked instruction. When that is empty, or
//! full, sixteen go from or to a queue that all threads share: one locked exchange on its head, and then a wait until those
//! who came before have moved its tail. What the shared queue has no room for goes to the slab.
//!
//! ```text
//!   thread   own queue (32)  <──  16 at a time  ──>  shared queue  ···>  the slab, when it is full or empty
//!                                  head: exchange
//!                                  tail: in turn
//! ```
//!
//! In the thread of 2015 Brouer sets it aside: tuned, or without merging, the slab has become
//! faster than it. Duyck says of the queue there that it only adds overhead, and that its
//! clean-up frees two blocks where the ring has wrapped.
//!
//! # Differences from the kernel
//!
//! * A thread has its own queue by handle, not by its CPU. Buffers are values of any type, not addresses.
//! * Who waits for its turn yields after a while, since whoever is before it can be off its CPU.

mod raw;

use quietline_platform::AllocError;

pub use raw::AlfQueue;

/// Buffers that go between a thread's own queue and the shared one at a time (`QMEMPOOL_BULK`).
pub const BULK: usize = 16;
/// Buffers in a thread's own queue: refilled by half.
pub const LOCAL: usize = 2 * BULK;

/// The queue that all threads share.
pub struct Qmempool<T> {
    shared: AlfQueue<T>,
}

/// A thread's own queue. Its order is that of a queue, as in the original: what was put back first is taken first.
pub struct Local<T> {
    values: [Option<T>; LOCAL],
    first: usize,
    n: usize,
}

impl<T> Default for Local<T> {
    fn default() -> Self {
        Self { values: [const { None }; LOCAL], first: 0, n: 0 }
    }
}

impl<T> Local<T> {
    #[inline(always)]
    fn push(&mut self, value: T) {
        self.values[(self.first + self.n) % LOCAL] = Some(value);
        self.n += 1;
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        let value = self.values[self.first].take()?;
        self.first = (self.first + 1) % LOCAL;
        self.n -= 1;
        Some(value)
    }
}

impl<T: Send> Qmempool<T> {
    /// A pool without buffers, with room for so many in the shared queue: a power of two.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn new(shared: usize) -> Result<Self, AllocError> {
        Ok(Self { shared: AlfQueue::new(shared)? })
    }

    /// Buffers in the shared queue, when nobody is at it.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A buffer (`qmempool_alloc`); none if the pool has none: the slab is asked then.
    ///
    /// Writes the shared queue's consumer line once in sixteen times, by a locked instruction.
    #[inline(always)]
    pub fn alloc(&self, local: &mut Local<T>) -> Option<T> {
        if local.n == 0 {
            self.refill(local);
        }
        local.pop()
    }

    #[inline(never)]
    fn refill(&self, local: &mut Local<T>) {
        local.first = 0;
        local.n = self.shared.dequeue(&mut local.values[..BULK]);
    }

    /// Puts a buffer back (`qmempool_free`); what the pool has no room for goes to `slab`.
    ///
    /// Writes the shared queue's producer line once in sixteen times, by a locked instruction.
    #[inline(always)]
    pub fn free(&self, local: &mut Local<T>, value: T, slab: impl FnMut(T)) {
        if local.n == LOCAL {
            self.flush_half(local, slab);
        }
        local.push(value);
    }

    #[inline(never)]
    fn flush_half(&self, local: &mut Local<T>, mut slab: impl FnMut(T)) {
        let mut values: [Option<T>; BULK] = core::array::from_fn(|_| local.pop());
        if !self.shared.enqueue(&mut values) {
            values.into_iter().flatten().for_each(&mut slab);
        }
    }

    /// Gives all buffers of a thread's own queue, and of the shared one, to `slab`.
    pub fn drain(&self, local: &mut Local<T>, mut slab: impl FnMut(T)) {
        loop {
            while let Some(value) = local.pop() {
                slab(value);
            }
            self.refill(local);
            if local.n == 0 {
                return;
            }
        }
    }
}
