//! The queue: slots that belong to whoever has reserved them.

#![allow(unsafe_code)]

use core::mem::MaybeUninit;

use crossbeam_utils::CachePadded;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{AllocError, heap, hint, thread};

/// One end of the queue: who reserves moves `head`; who is done, in turn, `tail`.
#[derive(Default)]
struct End {
    head: AtomicU32,
    tail: AtomicU32,
}

/// A queue in an array, of a power of two, for many threads at both ends.
pub struct AlfQueue<T> {
    producer: CachePadded<End>,
    consumer: CachePadded<End>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is used by who has reserved it, one at a time; values go from thread to thread.
unsafe impl<T: Send> Send for AlfQueue<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for AlfQueue<T> {}

impl<T> AlfQueue<T> {
    #[inline(always)]
    fn slot(&self, index: u32) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }
}

impl<T: Send> AlfQueue<T> {
    /// An empty queue for so many values: a power of two.
    ///
    /// # Errors
    /// [`AllocError`].
    ///
    /// # Panics
    /// With another number.
    pub fn new(size: usize) -> Result<Self, AllocError> {
        assert!(size.is_power_of_two() && size <= 1 << 20, "a power of two");
        let slots = heap::try_boxed_slice(size, |_| UnsafeCell::new(MaybeUninit::uninit()))?;
        Ok(Self { producer: CachePadded::default(), consumer: CachePadded::default(), slots })
    }

    /// Values in it, when nobody is at it.
    pub fn len(&self) -> usize {
        // Relaxed: a number for checks, when nobody is at it.
        let tail = self.producer.tail.load(Ordering::Relaxed);
        tail.wrapping_sub(self.consumer.tail.load(Ordering::Relaxed)) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts values in, all or none (`alf_mp_enqueue`): whether there was room. They are taken out of the array if so.
    ///
    /// # Panics
    /// If one of them is not there.
    pub fn enqueue(&self, values: &mut [Option<T>]) -> bool {
        assert!(values.iter().all(Option::is_some), "all or none");
        let (n, end) = (values.len() as u32, &*self.producer);
        // Relaxed: the exchange confirms it.
        let mut head = end.head.load(Ordering::Relaxed);
        loop {
            // ORDERING: Acquire pairs with the release of a consumer's `finish`: what was in the slots is read. An old tail, or an
            // old head, makes the queue look fuller than it is.
            let used = head.wrapping_sub(self.consumer.tail.load(Ordering::Acquire)) as usize;
            if used.saturating_add(n as usize) > self.slots.len() {
                return false;
            }
            // Relaxed: to reserve slots shows nobody anything; producers learn nothing from each other.
            let new = head.wrapping_add(n);
            match end.head.compare_exchange_weak(head, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(seen) => head = seen,
            }
        }
        for (value, index) in values.iter_mut().zip(0..) {
            let Some(value) = value.take() else { unreachable!("looked at above") };
            // SAFETY: reserved by the exchange, a lap ahead at most of what is read, and shown to nobody yet: ours alone.
            self.slot(head.wrapping_add(index)).with_mut(|slot| unsafe { (*slot).write(value) });
        }
        finish(end, head, n);
        true
    }

    /// Takes as many values as there are places, or as there are (`alf_mc_dequeue`): how many, in the first places.
    pub fn dequeue(&self, places: &mut [Option<T>]) -> usize {
        let end = &*self.consumer;
        // ORDERING: Acquire pairs with the release of the exchange: the tail that allowed the other consumer to come so far, or a
        // later one, is seen below.
        let mut head = end.head.load(Ordering::Acquire);
        let n = loop {
            // ORDERING: Acquire pairs with the release of a producer's `finish`: the values are in the slots.
            let there = self.producer.tail.load(Ordering::Acquire).wrapping_sub(head);
            let n = there.min(places.len() as u32);
            if n == 0 {
                return 0;
            }
            let new = head.wrapping_add(n);
            // ORDERING: Release pairs with the acquires of the head, here and above.
            match end.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Acquire) {
                Ok(_) => break n,
                Err(seen) => head = seen,
            }
        };
        for (place, index) in places.iter_mut().zip(0..n) {
            let slot = self.slot(head.wrapping_add(index));
            // SAFETY: reserved by the exchange, below the producers' tail: written, and ours alone.
            *place = Some(slot.with_mut(|slot| unsafe { (*slot).assume_init_read() }));
        }
        finish(end, head, n);
        n as usize
    }
}

/// Shows the other end what was done with `n` slots from `head` on, after those who came before have done so.
#[inline(always)]
fn finish(end: &End, head: u32, n: u32) {
    let mut waited = 0u32;
    // ORDERING: Acquire pairs with the release below: what the others of this end did is shown along with this.
    while end.tail.load(Ordering::Acquire) != head {
        waited += 1;
        if waited.is_multiple_of(1000) { thread::yield_now() } else { hint::spin_loop() }
    }
    // ORDERING: Release pairs with the acquires of the tail, at the other end and above.
    end.tail.store(head.wrapping_add(n), Ordering::Release);
}

impl<T> Drop for AlfQueue<T> {
    fn drop(&mut self) {
        // Relaxed: nobody else is left.
        let (mut head, tail) = (
            self.consumer.tail.load(Ordering::Relaxed),
            self.producer.tail.load(Ordering::Relaxed),
        );
        while head != tail {
            // SAFETY: between the ends: written, and not read.
            drop(unsafe { self.slot(head).with_mut(|slot| (*slot).assume_init_read()) });
            head = head.wrapping_add(1);
        }
    }
}
