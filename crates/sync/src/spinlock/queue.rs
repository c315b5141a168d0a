//! The lock of a [`SpinLock`](super::SpinLock) without its data: a word to hold, a slot for one
//! spinning waiter, and a queue for the other waiters.

use core::ptr;
use core::time::Duration;

use quietline_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
#[cfg(not(loom))]
use quietline_platform::clock;
use quietline_platform::const_unless_loom;

use super::parking;
use super::waiter::Waiter;
use crate::backoff::{Backoff, Spin};

/// A lock for whoever comes first while it is free, with one spinning waiter and a queue of
/// sleeping ones.
///
/// ```text
///   newcomers ──┬─ free? ───────────────────────────────> holder
///               ├─ slot vacant? ──> spinner (one) ──────────^
///               └─ queue: tail ... second, head ──> slot
/// ```
///
/// A thread that runs takes a free lock past all waiters. Handing the lock to a sleeper instead
/// leaves it idle for the length of a wake-up, 5 to 60 microseconds. Meanwhile more threads come
/// and fall asleep, and each hand-over then costs a wake-up. Few waiters are awake, and what
/// newcomers may take from them is bounded:
///
/// * The spinner looks politely, so that the holder does several sections while their lines are in
///   its cache. After [`SPINS`] hints it demands the lock, and the next unlock grants it.
/// * The head of the queue sleeps while the slot is taken. An unlock that finds the slot vacant
///   wakes it. After [`BOUND`] it reserves the slot.
/// * A waiter behind a sleeper sleeps at once.
#[derive(Debug)]
pub(super) struct QueuedLock {
    held: AtomicU32,
    /// The slot, and what an unlock must know of the waiters.
    slot: AtomicU32,
    tail: AtomicPtr<Waiter>,
}

/// [`QueuedLock::held`]: no thread holds the lock.
const FREE: u32 = 0;
/// [`QueuedLock::held`]: a thread holds it.
const HELD: u32 = 1;
/// [`QueuedLock::held`]: no thread holds it, and only the spinner may take it.
const GRANTED: u32 = 2;

/// [`QueuedLock::slot`]: there is no spinner. The queue may have entries all the same.
const VACANT: u32 = 0;
/// [`QueuedLock::slot`]: there is a spinner, which watches `held`.
const TAKEN: u32 = 1 << 0;
/// [`QueuedLock::slot`]: the spinner sleeps, or is about to.
const ASLEEP: u32 = 1 << 1;
/// [`QueuedLock::slot`]: the spinner has been passed over for long enough.
const DEMANDED: u32 = 1 << 2;
/// [`QueuedLock::slot`]: the head of the queue sleeps, or is about to.
const HEAD_ASLEEP: u32 = 1 << 3;
/// [`QueuedLock::slot`]: the head of the queue gets the slot next.
const RESERVED: u32 = 1 << 4;

/// The spinner's flags.
const SPINNERS: u32 = TAKEN | ASLEEP | DEMANDED;

/// Hints that a newcomer gives before it queues up behind a spinner.
const PATIENCE: u32 = if cfg!(loom) { 0 } else { 32 };

/// Hints that a waiter gives before it sleeps, or, in the slot, before it demands the lock: some 2
/// to 10 microseconds, less than a sleep and a wake-up cost.
pub(super) const SPINS: u32 = 200;

/// Hints that the spinner gives after it has demanded the lock, and after each wake-up.
const SPINS_DEMANDED: u32 = 100;

/// The time for which newcomers may pass the head of the queue on the way to the slot.
#[cfg(not(loom))]
const BOUND: Duration = Duration::from_micros(250);

/// The longest sleep of the spinner, in case the unlock did not see it fall asleep; and of a head
/// that has reserved the slot.
const NAP: Duration = Duration::from_millis(1);

impl QueuedLock {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self {
                held: AtomicU32::new(FREE),
                slot: AtomicU32::new(VACANT),
                tail: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    #[inline]
    pub(super) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    /// Takes the lock if it is free and not granted to the spinner.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.take(FREE)
    }

    /// Releases the lock: by one plain store, unless a waiter wants to be granted it or woken.
    #[inline]
    pub(super) fn unlock(&self) {
        // Without sleepers there are no flags. A look at the slot would only give the model orders
        // to try.
        #[cfg(loom)]
        if !crate::backoff::sleeps() {
            // A read-modify-write, because loom may place a plain store between the two halves of
            // another thread's, and then gives up (tokio-rs/loom 389).
            // ORDERING: as below.
            self.held.swap(FREE, Ordering::Release);
            return;
        }
        // Relaxed: for the spinner's flags a hint, because its sleep is bounded. The head's flag is
        // seen if it matters: it is set only while the slot is taken, and the thread that leaves
        // the slot does so by a read-modify-write of this word before it comes here.
        if self.slot.load(Ordering::Relaxed) > TAKEN {
            self.unlock_slow();
        } else {
            // ORDERING: pairs with the Acquire of take. The next holder sees what this one wrote.
            self.held.store(FREE, Ordering::Release);
        }
    }

    /// Makes the lock free, with no waiters, as if new.
    ///
    /// # Safety
    ///
    /// No other thread uses the lock: the caller is the only thread of a child process, say.
    pub(super) unsafe fn reset(&self) {
        // Relaxed: there is no other thread to order anything for.
        self.tail.store(ptr::null_mut(), Ordering::Relaxed);
        self.slot.store(VACANT, Ordering::Relaxed);
        self.held.store(FREE, Ordering::Relaxed);
    }

    #[inline]
    fn take(&self, from: u32) -> bool {
        // ORDERING: Acquire pairs with the Release stores of unlock and unlock_slow. Success sees
        // what the last holder wrote; failure gives no access and orders nothing.
        self.held.compare_exchange(from, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock, grants it if that is demanded, and wakes one sleeper: the spinner, or the
    /// head of the queue if there is no spinner.
    #[cold]
    fn unlock_slow(&self) {
        // Relaxed, here and below: as in unlock.
        let slot = self.slot.load(Ordering::Relaxed);
        let (sleeper, word) =
            if slot & TAKEN == 0 { (HEAD_ASLEEP, &self.slot) } else { (ASLEEP, &self.held) };
        let wakes = slot & sleeper != 0;
        if wakes {
            // The unlocks until it runs do not wake it again.
            self.slot.fetch_and(!sleeper, Ordering::Relaxed);
        }
        let word = ptr::from_ref(word).cast();
        let next = if slot & DEMANDED == 0 { FREE } else { GRANTED };
        // ORDERING: as in unlock. After this store the lock's memory may be gone, so the sleeper is
        // woken by the address alone.
        self.held.store(next, Ordering::Release);
        if wakes {
            parking::wake_raw(word, 1);
        }
    }

    /// Waits for the slot, in the queue if need be, then for the lock.
    #[cold]
    fn lock_slow(&self) {
        if !self.claim_slot_soon() {
            self.queue_up();
        }
        self.wait_for_lock();
        // Relaxed: the slot gives no access to anything; the lock does. The head's flags stay, and
        // this thread's unlock looks at them.
        self.slot.fetch_and(!SPINNERS, Ordering::Relaxed);
    }

    /// Claims the slot if it falls vacant soon. Returns `false`, without waiting, if the head has
    /// reserved it or the spinner sleeps.
    fn claim_slot_soon(&self) -> bool {
        let mut spin = Spin::polite(PATIENCE);
        loop {
            let slot = look(&self.slot);
            if slot & (TAKEN | RESERVED) == 0 && self.change_slot(slot, slot | TAKEN) {
                return true;
            }
            if slot & (ASLEEP | RESERVED) != 0 || !spin.again() {
                return false;
            }
        }
    }

    fn change_slot(&self, from: u32, to: u32) -> bool {
        // Relaxed, both ways: the slot gives no access to anything; the lock does, by take.
        self.slot.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Waits in the slot for the lock: politely at first, then demands it, then sleeps.
    fn wait_for_lock(&self) {
        let mut spin = Spin::polite(SPINS);
        let mut demanded = false;
        loop {
            let held = look(&self.held);
            if held != HELD {
                if self.take(held) {
                    return;
                }
            } else if !spin.again() {
                if demanded {
                    // Relaxed, also below: unlock takes it for a hint, and the sleep is bounded.
                    self.slot.fetch_or(ASLEEP, Ordering::Relaxed);
                    parking::wait(&self.held, HELD, Some(NAP));
                } else {
                    demanded = true;
                    self.slot.fetch_or(DEMANDED, Ordering::Relaxed);
                }
                spin = Spin::eager(SPINS_DEMANDED);
            }
        }
    }

    /// Waits in the queue for the slot.
    fn queue_up(&self) {
        let me = Waiter::new();
        quietline_platform::name_words!(me, "SpinLock waiter");
        me.begins_or_ends();
        let mine = ptr::from_ref(&me).cast_mut();
        // ORDERING: Release makes the entry above visible to the successor, which reads the pointer
        // by the Acquire of its own swap here and then writes `next`. A null read orders nothing:
        // no entry is ahead.
        let ahead = self.tail.swap(mine, Ordering::AcqRel);
        if !ahead.is_null() {
            // SAFETY: the entry came from the tail. Its thread leaves it only when the tail still
            // names it (the swap above made that impossible) or when it has found `next`, which
            // only the store below sets.
            let ahead = unsafe { &*ahead };
            ahead.is_used();
            // Relaxed: a hint.
            let head_sleeps = self.slot.load(Ordering::Relaxed) & HEAD_ASLEEP != 0;
            let behind_sleeper = head_sleeps || ahead.is_asleep();
            // ORDERING: pairs with the Acquire loads in leave. The thread ahead sees this entry's
            // fields through it, or sees null and waits for it.
            ahead.next.store(mine, Ordering::Release);
            me.wait_for_turn(behind_sleeper);
        }
        self.wait_for_slot();
        self.leave(&me);
        me.begins_or_ends();
    }

    /// Waits as the head of the queue for the slot: spins a while, then sleeps, then reserves it.
    fn wait_for_slot(&self) {
        let mut spin = Spin::polite(SPINS);
        let mut until = None;
        loop {
            let slot = look(&self.slot);
            if slot & TAKEN == 0 {
                if self.change_slot(slot, slot & !(HEAD_ASLEEP | RESERVED) | TAKEN) {
                    return;
                }
                continue;
            }
            if slot & ASLEEP == 0 && spin.again() {
                continue;
            }
            let nap = time_left(&mut until);
            if nap.is_none() && slot & RESERVED == 0 {
                // Relaxed: as in change_slot.
                self.slot.fetch_or(RESERVED, Ordering::Relaxed);
                spin = Spin::eager(SPINS);
                continue;
            }
            // The thread that leaves the slot does so by a read-modify-write of this word. It
            // either sees the flag or makes this exchange fail.
            let asleep = slot | HEAD_ASLEEP;
            if self.change_slot(slot, asleep) {
                // In the model without a limit: the wake-up must not depend on the clock.
                let limit = (!cfg!(loom)).then_some(nap.unwrap_or(NAP));
                parking::wait(&self.slot, asleep, limit);
                // Relaxed: a hint. A flag that is still there means that no unlock woke this
                // thread: the time is up, or another flag changed before it slept.
                if self.slot.load(Ordering::Relaxed) & HEAD_ASLEEP == 0 {
                    spin = Spin::polite(SPINS);
                }
            }
        }
    }

    /// Makes the next entry the head of the queue. No thread uses `me` after this.
    fn leave(&self, me: &Waiter) {
        let mine = ptr::from_ref(me).cast_mut();
        // ORDERING (both loads of next): pair with the Release store in queue_up. A pointer seen
        // brings the successor's fields; null means that there is none, or that it has not linked
        // itself yet.
        let mut next = me.next.load(Ordering::Acquire);
        if next.is_null() {
            // Relaxed: the null that this leaves is never followed; a failure only says that a
            // successor came.
            let empty = self.tail.compare_exchange(
                mine,
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
        // SAFETY: the successor stays in wait_for_turn, its entry alive, until make_head's last
        // store.
        let next = unsafe { &*next };
        next.is_used();
        next.make_head();
    }
}

/// Looks at a word without writing its line. An exchange follows, and decides.
fn look(word: &AtomicU32) -> u32 {
    #[cfg(not(loom))]
    return word.load(Ordering::Relaxed);
    // The model remembers only the last access to a word, so a load hides from it that other
    // threads may come between earlier ones; an exchange that always fails does not.
    #[cfg(loom)]
    return word
        .compare_exchange(u32::MAX, u32::MAX, Ordering::Relaxed, Ordering::Relaxed)
        .unwrap_or_else(|now| now);
}

/// Returns the time for which the head of the queue still lets newcomers pass. It begins with the
/// first call. `None` once it is over, in the model at once.
fn time_left(until: &mut Option<Duration>) -> Option<Duration> {
    #[cfg(loom)]
    return until.take();
    #[cfg(not(loom))]
    {
        let now = clock::monotonic();
        let left = until.get_or_insert(now + BOUND).saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod pretence {
    use super::*;

    /// States of the slot and the queue without the threads.
    pub(in super::super) const SPINNER_SLEEPS: u32 = TAKEN | ASLEEP;
    pub(in super::super) const SPINNER_DEMANDS: u32 = TAKEN | DEMANDED;
    pub(in super::super) const HEAD_SLEEPS: u32 = HEAD_ASLEEP;
    pub(in super::super) const EVERYTHING: u32 = SPINNERS | HEAD_ASLEEP | RESERVED;

    impl QueuedLock {
        pub(in super::super) fn pretend_that_threads_wait(&self, slot: u32) {
            // Relaxed, also below: one thread, no order.
            self.slot.store(slot, Ordering::Relaxed);
            self.tail.store(ptr::dangling_mut(), Ordering::Relaxed);
        }

        pub(in super::super) fn is_granted(&self) -> bool {
            self.held.load(Ordering::Relaxed) == GRANTED
        }

        pub(in super::super) fn would_wake(&self) -> bool {
            self.slot.load(Ordering::Relaxed) & (ASLEEP | HEAD_ASLEEP) != 0
        }
    }
}
