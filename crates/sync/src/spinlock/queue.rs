//! The lock of a [`SpinLock`](super::SpinLock) without its data: a word to hold and a queue to wait in.
//!
//! Longer than most files here: the waiting is there twice, for the machine and for the model, which cannot sleep. So
//! the model check covers the queue and the hand-over; falling asleep and waking is run by stress tests only.

use core::ptr;

use quietline_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
use quietline_platform::{hint, thread};

#[cfg(not(loom))]
use core::time::Duration;
#[cfg(loom)]
use quietline_platform::cell::UnsafeCell;
#[cfg(not(loom))]
use quietline_platform::futex;

use crate::backoff::Backoff;

/// A word that says whether the lock is held, a place for the one who gets it next, and a queue for that place.
///
/// ```text
///   holder ── held ◄── first ◄── head of the queue ◄── ... ◄── tail
/// ```
///
/// The place in front exists because with two threads, the common case, a queue costs three line transfers more
/// for each hand-over than watching the word does.
#[derive(Debug)]
pub(super) struct QueuedLock {
    held: AtomicU32,
    first: AtomicU32,
    tail: AtomicPtr<Waiter>,
}

/// [`QueuedLock::held`]: nobody holds the lock.
const FREE: u32 = 0;
/// [`QueuedLock::held`]: somebody does.
const HELD: u32 = 1;

/// [`QueuedLock::first`]: nobody is first.
const VACANT: u32 = 0;
/// [`QueuedLock::first`]: somebody is, and watches `held`.
const TAKEN: u32 = 1 << 0;
/// [`QueuedLock::first`]: that one sleeps, or is about to.
#[cfg(not(loom))]
const DOZING: u32 = 1 << 1;
/// [`QueuedLock::first`]: the head of the queue sleeps, or is about to.
const HEAD_ASLEEP: u32 = 1 << 2;

/// Looks at the place in front before a thread queues up for it.
const PATIENCE: u32 = if cfg!(loom) { 0 } else { 32 };

/// A thread's place in the queue, on its own stack.
struct Waiter {
    next: AtomicPtr<Waiter>,
    turn: AtomicU32,
    /// Written when the node is made and when it is left, read by others who use it: so the model sees whether all
    /// use of the node lies between the two.
    #[cfg(loom)]
    life: UnsafeCell<()>,
}

impl Waiter {
    fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            turn: AtomicU32::new(QUEUED),
            #[cfg(loom)]
            life: UnsafeCell::new(()),
        }
    }

    /// The owner makes or leaves the node.
    #[inline(always)]
    fn begins_or_ends(&self) {
        #[cfg(loom)]
        self.life.with_mut(|_| ());
    }

    /// Another thread uses the node.
    #[inline(always)]
    fn is_used(&self) {
        #[cfg(loom)]
        self.life.with(|_| ());
    }
}

/// [`Waiter::turn`]: somebody is ahead, and this waiter spins.
const QUEUED: u32 = 0;
/// [`Waiter::turn`]: somebody is ahead, and this waiter sleeps or is about to.
#[cfg(not(loom))]
const ASLEEP: u32 = 1;
/// [`Waiter::turn`]: the one ahead is waking this waiter and still uses its node.
#[cfg(not(loom))]
const WAKING: u32 = 2;
/// [`Waiter::turn`]: nobody is ahead in the queue; nobody else uses the node.
const HEAD: u32 = 3;

impl QueuedLock {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self {
            held: AtomicU32::new(FREE),
            first: AtomicU32::new(VACANT),
            tail: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            held: AtomicU32::new(FREE),
            first: AtomicU32::new(VACANT),
            tail: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    pub(super) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    /// Takes the lock if it is free and nobody waits for it.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        // Relaxed: a courtesy to those who wait; the exchange decides.
        self.first.load(Ordering::Relaxed) == VACANT && self.queue_is_empty() && self.try_hold()
    }

    /// Lets go by one plain store.
    ///
    /// The sleeper is looked for before the store, for after it the lock's memory may be gone. So one who falls
    /// asleep between the look and the store is not woken: its sleep is short and ends by itself.
    #[inline]
    pub(super) fn unlock(&self) {
        // Relaxed: a hint, as just said.
        #[cfg(not(loom))]
        let dozing = self.first.load(Ordering::Relaxed) & DOZING != 0;
        #[cfg(not(loom))]
        let address = self.held.as_ptr().cast_const();
        // ORDERING: pairs with the Acquire of try_hold. The next holder sees what this one wrote.
        self.held.store(FREE, Ordering::Release);
        #[cfg(not(loom))]
        if dozing {
            wake_slow(address);
        }
    }

    /// Makes the lock free, with nobody waiting, as if new.
    ///
    /// # Safety
    ///
    /// No other thread uses the lock: the caller is the only thread of a child process, say.
    pub(super) unsafe fn reset(&self) {
        // Relaxed: there is no other thread to order anything for.
        self.tail.store(ptr::null_mut(), Ordering::Relaxed);
        self.first.store(VACANT, Ordering::Relaxed);
        self.held.store(FREE, Ordering::Relaxed);
    }

    #[inline]
    fn queue_is_empty(&self) -> bool {
        // Relaxed: nothing is read through the pointer.
        #[cfg(not(loom))]
        let tail = self.tail.load(Ordering::Relaxed);
        // The model remembers only the last access to a word, so a load hides from it that other threads may come
        // between earlier ones; an exchange does not.
        #[cfg(loom)]
        let tail = {
            let null = ptr::null_mut();
            let seen = self.tail.compare_exchange(null, null, Ordering::Relaxed, Ordering::Relaxed);
            seen.unwrap_or_else(|tail| tail)
        };
        tail.is_null()
    }

    #[inline]
    fn try_hold(&self) -> bool {
        // ORDERING: Acquire pairs with the Release store of unlock. Success sees what the last holder wrote; failure
        // gives no access and orders nothing.
        self.held.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Claims the place in front.
    #[inline]
    fn try_be_first(&self) -> bool {
        // Relaxed, both ways: the place gives no access to anything; the lock itself does, by try_hold.
        self.first.compare_exchange(VACANT, TAKEN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Waits to be first, in the queue if need be, then for the holder.
    #[cold]
    fn lock_slow(&self) {
        if !self.be_first_soon() {
            self.queue_up();
        }
        self.wait_for_holder();
        // Relaxed: as in try_be_first. A read-modify-write, so that a head that fell asleep is not overlooked.
        let before = self.first.swap(VACANT, Ordering::Relaxed);
        if before & HEAD_ASLEEP != 0 {
            self.wake_head();
        }
    }

    /// Claims the place in front if it falls vacant while nobody queues for it: whoever is first may be about to
    /// leave it, and to queue up costs more than to wait for that.
    fn be_first_soon(&self) -> bool {
        for _ in 0..PATIENCE {
            if !self.queue_is_empty() {
                return false;
            }
            // Relaxed: looks without writing the line; the exchange decides.
            if self.first.load(Ordering::Relaxed) == VACANT && self.try_be_first() {
                return true;
            }
            hint::spin_loop();
        }
        false
    }

    /// Waits in the queue and comes back as the first.
    fn queue_up(&self) {
        let me = Waiter::new();
        quietline_platform::name_words!(me, "SpinLock waiter");
        me.begins_or_ends();
        let my_place = ptr::from_ref(&me).cast_mut();
        // ORDERING: Release makes the node above visible to the successor, who reads the pointer by the Acquire of
        // its own swap here and then writes `next`. A null read orders nothing: nobody is ahead.
        let ahead = self.tail.swap(my_place, Ordering::AcqRel);
        if !ahead.is_null() {
            // SAFETY: the node came from the tail. Its thread leaves it only when the tail still names it (the swap
            // above made that impossible) or when it has found `next`, which only this store sets.
            let ahead = unsafe { &*ahead };
            ahead.is_used();
            // ORDERING: pairs with the Acquire loads in leave. The one ahead sees this node's fields through it, or
            // sees null and waits for it.
            ahead.next.store(my_place, Ordering::Release);
            me.wait_for_turn();
        }
        self.wait_to_be_first();
        self.leave(&me);
        me.begins_or_ends();
    }

    /// Makes the next one the head of the queue. The node is nobody's business after this.
    fn leave(&self, me: &Waiter) {
        let my_place = ptr::from_ref(me).cast_mut();
        // ORDERING (both loads of next): pair with the Release store in queue_up. A pointer seen brings the
        // successor's fields; null means that there is none, or that it has not linked itself yet.
        let mut next = me.next.load(Ordering::Acquire);
        if next.is_null() {
            // Relaxed: the null that this leaves is never followed; a failure only says that someone came.
            let empty = self.tail.compare_exchange(
                my_place,
                ptr::null_mut(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if empty.is_ok() {
                return;
            }
            let mut backoff = Backoff::alone();
            while next.is_null() {
                // Between its swap and its store the successor may have lost its CPU.
                backoff.wait();
                next = me.next.load(Ordering::Acquire);
            }
        }
        // SAFETY: the successor stays in wait_for_turn, its node alive, until make_head's last store.
        let next = unsafe { &*next };
        next.is_used();
        next.make_head();
    }
}

/// How the two in front wait: a while by spinning, then asleep.
#[cfg(not(loom))]
impl QueuedLock {
    /// The first waits for the lock itself.
    fn wait_for_holder(&self) {
        let mut backoff = Backoff::alone();
        // Relaxed: looks without writing the holder's line; the exchange decides.
        while !(self.held.load(Ordering::Relaxed) == FREE && self.try_hold()) {
            if !backoff.spin() {
                // Relaxed: unlock takes it for a hint, and the sleep is bounded.
                self.first.fetch_or(DOZING, Ordering::Relaxed);
                futex::wait(&self.held, HELD, Some(NAP));
            }
        }
    }

    /// The head of the queue waits for the place in front.
    fn wait_to_be_first(&self) {
        let mut backoff = Backoff::alone();
        loop {
            // Relaxed: as in try_be_first.
            let first = self.first.load(Ordering::Relaxed);
            if first == VACANT {
                if self.try_be_first() {
                    return;
                }
            } else if !backoff.spin() {
                // Relaxed: whoever vacates the place does it by a read-modify-write of this word, and so either sees
                // the flag or makes this exchange fail.
                let flag = first | HEAD_ASLEEP;
                if self
                    .first
                    .compare_exchange(first, flag, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
                {
                    futex::wait(&self.first, flag, Some(NAP));
                }
            }
        }
    }

    #[cold]
    fn wake_head(&self) {
        futex::wake(&self.first, 1);
    }
}

/// The longest sleep of the first, in case the unlock did not see it fall asleep; and of the head of the queue, whose
/// word the first changes when it falls asleep itself.
#[cfg(not(loom))]
const NAP: Duration = Duration::from_millis(1);

/// Wakes the first, by address only.
#[cfg(not(loom))]
#[cold]
fn wake_slow(held: *const u32) {
    futex::wake_raw(held, 1);
}

/// In the model nobody sleeps.
#[cfg(loom)]
impl QueuedLock {
    fn wait_for_holder(&self) {
        while !self.try_hold() {
            thread::yield_now();
        }
    }

    fn wait_to_be_first(&self) {
        while !self.try_be_first() {
            thread::yield_now();
        }
    }

    fn wake_head(&self) {
        unreachable!("nobody sleeps in the model");
    }
}

#[cfg(not(loom))]
impl Waiter {
    /// Waits until the one ahead makes this waiter the first: spins a while, then sleeps until woken.
    fn wait_for_turn(&self) {
        let mut backoff = Backoff::alone();
        loop {
            // ORDERING: pairs with the Release stores of make_head: its use of this node is over. Until then, wait.
            match self.turn.load(Ordering::Acquire) {
                HEAD => return,
                QUEUED if backoff.spin() => {}
                QUEUED => {
                    // Relaxed: the sleeper publishes nothing. A failure means that the turn has just come.
                    let _ = self.turn.compare_exchange(
                        QUEUED,
                        ASLEEP,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                ASLEEP => futex::wait(&self.turn, ASLEEP, None),
                // WAKING: the one ahead is inside the wake-up call, and about to store HEAD.
                _ => thread::yield_now(),
            }
        }
    }

    /// Makes this waiter the first. Its node may be gone as soon as HEAD is stored.
    fn make_head(&self) {
        // ORDERING: Release, here and below, pairs with the Acquire in wait_for_turn: all use of the node (the load
        // of its fields, the wake-up) is over when the waiter goes on. Failure: it sleeps, nothing is ordered yet.
        if self.turn.compare_exchange(QUEUED, HEAD, Ordering::Release, Ordering::Relaxed).is_err() {
            // Relaxed: only keeps the sleeper from sleeping again; HEAD follows.
            self.turn.store(WAKING, Ordering::Relaxed);
            futex::wake(&self.turn, 1);
            self.turn.store(HEAD, Ordering::Release); // ORDERING: as above.
        }
    }
}

/// In the model nobody sleeps.
#[cfg(loom)]
impl Waiter {
    fn wait_for_turn(&self) {
        // ORDERING: pairs with the Release store of make_head: its use of this node is over.
        while self.turn.load(Ordering::Acquire) != HEAD {
            thread::yield_now();
        }
    }

    fn make_head(&self) {
        // ORDERING: pairs with the Acquire in wait_for_turn.
        self.turn.store(HEAD, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
impl QueuedLock {
    /// The words as they are when one thread is first and others queue, without the threads.
    pub(super) fn pretend_that_threads_wait(&self) {
        // Relaxed: one thread, no order.
        self.first.store(TAKEN | DOZING | HEAD_ASLEEP, Ordering::Relaxed);
        self.tail.store(ptr::dangling_mut(), Ordering::Relaxed);
    }
}
