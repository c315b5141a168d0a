//! The ticket spinlock of 2.6.25 to 4.1 (`include/asm-x86/spinlock.h`).
//!
//! Fair, and bad under contention: every waiter spins on the word that the holder must write to unlock and
//! that every newcomer must write to draw a ticket, so one hand-over costs a transfer of the line per waiter.

use quietline_platform::{hint, thread};

use crate::atomic::{AtomicU16, AtomicU32, Ordering};

/// Turns of the spin loop before the thread gives up its time slice.
const SPINS: u32 = 1 << 10;

/// A ticket spinlock: the ticket being served beside the next one to be drawn, in one line.
///
/// The kernel draws with one locked add on a word that holds both halves and unlocks with a plain increment
/// of one half. So does this, on two adjacent words. Unlike the kernel's, a waiter yields after a long spin:
/// in user space the holder can be off its CPU.
#[repr(C)]
pub(crate) struct TicketLock {
    owner: AtomicU16,
    next: AtomicU16,
}

impl TicketLock {
    /// An unlocked lock.
    pub(crate) fn new() -> Self {
        // Near the wrap-around in debug builds.
        let first = if cfg!(debug_assertions) { u16::MAX - 2 } else { 0 };
        Self { owner: AtomicU16::new(first), next: AtomicU16::new(first) }
    }

    /// Draws a ticket and waits for its turn. Writes the lock's line: one locked instruction.
    #[inline]
    pub(crate) fn lock(&self) -> TicketGuard<'_> {
        // Relaxed: drawing a ticket orders nothing; the acquire below does.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // ORDERING: pairs with the release in `TicketGuard::drop`: when the ticket before ours is done, all
        // that its holder wrote is seen; while it is not, nothing is touched.
        if self.owner.load(Ordering::Acquire) != ticket {
            self.wait_slow(ticket);
        }
        TicketGuard { lock: self }
    }

    /// Takes the lock if no one holds it or waits for it.
    pub(crate) fn try_lock(&self) -> Option<TicketGuard<'_>> {
        // Relaxed: if it is out of date the compare-exchange fails.
        let ticket = self.owner.load(Ordering::Relaxed);
        // Relaxed: drawing orders nothing, as in `lock`.
        self.next
            .compare_exchange_weak(
                ticket,
                ticket.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .ok()?;
        // ORDERING: as in `lock`; the value is `ticket` already, for no one else holds that number.
        if self.owner.load(Ordering::Acquire) != ticket {
            self.wait_slow(ticket);
        }
        Some(TicketGuard { lock: self })
    }

    #[cold]
    fn wait_slow(&self, ticket: u16) {
        let mut spins = 0;
        // ORDERING: as in `lock`.
        while self.owner.load(Ordering::Acquire) != ticket {
            spins += 1;
            if spins % SPINS == 0 {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }
}

/// The right to what the lock guards; dropping it unlocks.
#[must_use]
pub(crate) struct TicketGuard<'a> {
    lock: &'a TicketLock,
}

impl Drop for TicketGuard<'_> {
    /// Serves the next ticket. Writes the lock's line: no locked instruction.
    #[inline]
    fn drop(&mut self) {
        // Relaxed: only the holder writes `owner`, and that is us.
        let ticket = self.lock.owner.load(Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `lock` and `wait_slow`.
        self.lock.owner.store(ticket.wrapping_add(1), Ordering::Release);
    }
}

/// `_atomic_dec_and_lock()` (`lib/dec_and_lock.c`): decrements `count`, and takes `lock` if it falls to zero.
///
/// Writes the count's line always, and the lock's whenever the count was 1.
#[inline]
pub(crate) fn atomic_dec_and_lock<'a>(
    count: &AtomicU32,
    lock: &'a TicketLock,
) -> Option<TicketGuard<'a>> {
    // Relaxed: confirmed by the compare-exchange.
    let mut seen = count.load(Ordering::Relaxed);
    while seen != 1 {
        // ORDERING: Release pairs with the acquire of the last decrement: what was done under this reference
        // is seen by whoever frees the object. Relaxed on failure: only the value is used, to try again.
        match count.compare_exchange_weak(seen, seen - 1, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return None,
            Err(now) => seen = now,
        }
    }
    let guard = lock.lock();
    atomic_dec_and_test(count).then_some(guard)
}

/// `atomic_dec_and_test()`: decrements `count` and says whether it fell to zero. One locked instruction.
#[inline]
pub(crate) fn atomic_dec_and_test(count: &AtomicU32) -> bool {
    // ORDERING: AcqRel pairs with itself in the other holders: the last one sees all that was done under the
    // references given up before; the others publish what they did.
    count.fetch_sub(1, Ordering::AcqRel) == 1
}

#[cfg(test)]
mod tests;
