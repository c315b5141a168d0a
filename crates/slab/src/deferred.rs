//! Objects that are to be freed after a grace period when there is no memory for a sheaf in which they could wait.
//!
//! # The problem
//!
//! The caller of a free by RCU may be inside a read section, so it must not wait for a grace period; and memory may have run
//! out. The object itself cannot carry a link, because readers may still be looking at all of it.
//!
//! # Our way
//!
//! A slab of a cache that names its domain ([`Options::rcu`](crate::Options::rcu)) has room for two bits for each object.
//!
//! ```text
//!   defer ──> the object's bit in `Waiting`
//!               └── nothing of the slab flies ──> what waits is what flies; the slab's head is queued ──grace period──> each is released
//! ```
//!
//! # Guarantees
//!
//! An operation allocates no memory. It waits only for the lock of the partial list, which it holds
//! for as many steps as a slab has words of bits.
//!
//! # Limits
//!
//! An object that is deferred while others of its slab wait for a grace period waits for the one
//! after it. If another thread was releasing objects of a slab at a fork, the child leaks those
//! objects and all that it defers in that slab later.

use crate::control::Control;
use crate::slab::Slab;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use quietline_sync::Shared;
use quietline_sync::rcu::{Domain, Head};

/// Which of a slab's two sets of objects.
#[derive(Clone, Copy)]
enum Set {
    Waiting,
    Flying,
}

/// The words of a slab that say which of its objects are deferred: the owner of the cache that flies with them, 0 while none
/// do, and as many words for each set as have a bit for each object. For the holder of the lock of the cache's slabs; what
/// flies, also for the callback.
struct Marks {
    at: NonNull<usize>,
    words: usize,
}

const BITS: usize = usize::BITS as usize;

/// Bytes of the marks of so many objects.
pub(crate) const fn bytes(objects: usize) -> usize {
    (1 + 2 * objects.div_ceil(BITS)) * size_of::<usize>()
}

impl Marks {
    /// None if the slab has none.
    fn of(slab: &Slab) -> Option<Self> {
        Some(Self { at: slab.marks()?.cast(), words: slab.layout().objects.div_ceil(BITS) })
    }

    fn owner(&self) -> *mut *mut Control {
        self.at.as_ptr().cast()
    }

    fn word(&self, set: Set, n: usize) -> *mut usize {
        debug_assert!(n < self.words);
        // SAFETY: inside the marks.
        unsafe { self.at.add(1 + set as usize * self.words + n).as_ptr() }
    }
}

impl Control {
    /// Frees an object after a grace period, without memory. False if its slab has no room for that.
    pub(crate) fn defer(&self, domain: &Domain, object: usize) -> bool {
        // SAFETY: the object is the caller's to give back, so it lies in a live slab.
        let slab = unsafe { Slab::of(object) };
        let Some(marks) = Marks::of(slab) else { return false };
        // Relaxed: a statistic.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let index = usize::from(slab.index_of(object));
        let lock = self.slabs().partial.lock();
        // SAFETY: under the lock.
        let flies = unsafe {
            *marks.word(Set::Waiting, index / BITS) |= 1 << (index % BITS);
            (*marks.owner()).is_null() && self.fly(&marks)
        };
        drop(lock);
        if flies {
            // SAFETY: the slab, and its head, live while objects of it are out; nothing of it flew.
            unsafe { domain.call(slab.head(), after_grace_period) };
        }
        true
    }

    /// What waits in a slab flies, if anything does. The caller queues the slab's head.
    ///
    /// # Safety
    /// Nothing flies. The caller holds the lock.
    unsafe fn fly(&self, marks: &Marks) -> bool {
        let mut any = false;
        // SAFETY: by contract. A Control is always inside a Shared, and the caller owns it.
        unsafe {
            for n in 0..marks.words {
                let waiting = marks.word(Set::Waiting, n).replace(0);
                *marks.word(Set::Flying, n) = waiting;
                any |= waiting != 0;
            }
            if any {
                *marks.owner() = Shared::into_raw(Shared::again(self)).as_ptr();
            }
        }
        any
    }

    /// Releases what flew, and sends what waits.
    fn land(&self, slab: &Slab) {
        let marks = Marks::of(slab).expect("a slab with deferred objects has marks");
        let release = |object: NonNull<u8>| {
            // Relaxed: a statistic.
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.release(object.as_ptr() as usize);
        };
        // The slab lives until its last object is released.
        let mut last = None;
        for n in 0..marks.words {
            // SAFETY: what flies is ours.
            let mut bits = unsafe { marks.word(Set::Flying, n).replace(0) };
            while bits != 0 {
                let object = slab.object((n * BITS) as u16 + bits.trailing_zeros() as u16);
                bits &= bits - 1;
                last.replace(object).into_iter().for_each(&release);
            }
        }
        let lock = self.slabs().partial.lock();
        // SAFETY: under the lock, and nothing flies any more.
        let flies = unsafe {
            *marks.owner() = core::ptr::null_mut();
            self.fly(&marks)
        };
        drop(lock);
        if flies && let Some(domain) = self.options().rcu {
            // SAFETY: as in `defer`.
            unsafe { domain.call(slab.head(), after_grace_period) };
        }
        last.into_iter().for_each(release);
    }
}

unsafe fn after_grace_period(head: NonNull<Head>) {
    // SAFETY: the head is that of a slab with marks, in which `fly` has left an owner of the cache. The slab lives while
    // its objects fly.
    unsafe {
        let slab = Slab::of_head(head);
        let marks = Marks::of(slab.as_ref()).expect("a slab with deferred objects has marks");
        let owner = Shared::from_raw(NonNull::new_unchecked(*marks.owner()));
        owner.land(slab.as_ref());
    }
}
