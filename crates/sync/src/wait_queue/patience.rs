//! What a sleeper does before it sleeps.
//!
//! The waiter is in its queue and not ASLEEP: who wakes it now makes no system call, and neither has the waiter made one. So a
//! wake-up that comes at once is worth a short look around; one that does not come makes that look a waste. Which of the two
//! it will be is guessed from the thread's last waits:
//!
//! ```text
//!   the last waker ran on    the waiter
//!   ─────────────────────    ─────────────────────────────────────────────────────────────
//!   nobody has come yet      sleeps
//!   another CPU              looks at its own word for SPIN, and sleeps
//!   this CPU                 offers the CPU once: the waker is next, or nobody; and sleeps
//! ```
//!
//! A look that nobody answers is a miss; after it the next 2^misses - 2 waits sleep at once. A hit takes one miss back. So a
//! thread whose wake-ups are slow looks before every 127th wait, and one whose wake-ups are fast before each.
//!
//! An offered CPU may go to somebody who keeps it: for a slice of some milliseconds, where the whole wait would have taken
//! microseconds. What came back late is not offered again for a hundred times as long, whatever was found: so the thread loses
//! no more than a hundredth of its time.
//!
//! # Limits
//!
//! * It is kept by thread, not by queue: one that waits by turns for somebody fast and for somebody slow looks in vain
//!   now and then.
//! * A look that the end of the time cuts short is a miss; one that an interrupt ends teaches nothing.
//! * While it looks it is not asleep, so it uses the CPU, at most SPIN; and one that has offered its CPU gets it back when the
//!   scheduler says so, not when it is woken.

use core::cell::Cell;
use core::time::Duration;

use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{clock, cpu, hint, thread};

use super::Interrupt;
use super::waiter::{PHASE, Until, WOKEN, Waiter};

/// How long to look: about what the wake-up of a sleeper on another CPU costs, so that a miss at most doubles it.
const SPIN: Duration = Duration::from_micros(4);
/// Looks at the word between two at the clock. A hint takes from 10 to 450 ns, the clock 20 to 30.
const LOOKS: u32 = 4;
/// An offered CPU that comes back later than this had something else to do. A wake-up would have put a sleeper before that;
/// and whoever works so long before he wakes the other gains nothing by two system calls less.
const LATE: Duration = Duration::from_micros(50);
/// So many times as long as it was away it is not offered again: an offer that is taken up saves some 15 % of a round trip, and
/// what may be lost by others is to be a small part of that. (Beside a thread that never sleeps, a round trip took 3 to 6 us
/// without offers, and 1,400 us when a late one counted as a mere miss.)
const KEEP: u32 = 100;
/// With less time left than this the CPU is not offered: others on it may keep it for a few slices of some milliseconds.
const ROOM: Duration = Duration::from_millis(10);
/// After this many misses in a row nothing gets worse: 126 waits are skipped, and the look before the 127th costs each of
/// them some 30 ns.
const MISSES: u8 = 7;

/// What to do before a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The last waker was on another CPU.
    Spin,
    /// It was on this one.
    Yield,
}

/// How a thread's last waits ended.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// The CPU of the last waker; NOBODY before the first.
    waker: u32,
    /// Looks in vain, less those that found something.
    misses: u8,
    /// Waits before the next look.
    skip: u8,
    /// When the CPU may be offered again.
    keep_until: Duration,
}

/// No CPU's number.
const NOBODY: u32 = u32::MAX;

quietline_platform::thread_local! {
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::new()) };
}

impl Patience {
    const fn new() -> Self {
        Self { waker: NOBODY, misses: 0, skip: 0, keep_until: Duration::ZERO }
    }

    /// How the thread looks around before a sleep on CPU `here`, if it does. Counts a wait that is skipped.
    fn look(&mut self, here: u32) -> Option<Look> {
        if self.waker == NOBODY {
            return None;
        }
        if let Some(left) = self.skip.checked_sub(1) {
            self.skip = left;
            return None;
        }
        Some(if self.waker == here { Look::Yield } else { Look::Spin })
    }

    /// The wake-up came while the thread looked.
    fn hit(&mut self) {
        self.misses = self.misses.saturating_sub(1);
    }

    /// It did not. The first time is forgiven: even the fastest peer is interrupted now and then.
    fn miss(&mut self) {
        self.misses = (self.misses + 1).min(MISSES);
        self.skip = ((1u32 << self.misses) - 2) as u8;
    }

    /// Whether the CPU may be offered.
    fn may_offer(&self, now: Duration) -> bool {
        now >= self.keep_until
    }

    /// It was, and has come back.
    fn back(&mut self, now: Duration, gone: Duration) {
        if gone > LATE {
            self.keep_until = now.saturating_add(gone.saturating_mul(KEEP));
        }
    }
}

/// Where a waiter's waker ran; beside the waiter's key, on a line that the waker writes anyhow.
pub(super) struct Origin(UnsafeCell<u32>);

impl Origin {
    pub(super) fn new() -> Self {
        Self(UnsafeCell::new(NOBODY))
    }

    /// The caller's CPU.
    ///
    /// # Safety
    /// The waiter is CLAIMED by the caller.
    pub(super) unsafe fn tell(&self) {
        // SAFETY: by contract nobody else uses it.
        self.0.with_mut(|cpu| unsafe { *cpu = cpu::current() as u32 });
    }

    /// Keeps it for the calling thread's next wait. Writes no shared line.
    ///
    /// # Safety
    /// The waiter is the caller's, and WOKEN.
    pub(super) unsafe fn keep(&self) {
        // SAFETY: by contract the waker is done with it.
        let waker = self.0.with(|cpu| unsafe { *cpu });
        PATIENCE.set(Patience { waker, ..PATIENCE.get() });
    }
}

/// Looks around before the waiter sleeps, if that has paid lately; whether it was woken meanwhile.
///
/// Ends early when the time is up or the interrupt is raised, and leaves it to the caller to find that. Writes no shared line;
/// reads the waiter's own.
pub(super) fn look_again(waiter: &Waiter, until: &Until, interrupt: Option<&Interrupt>) -> bool {
    let mut patience = PATIENCE.get();
    let look = patience.look(cpu::current() as u32);
    PATIENCE.set(patience);
    let Some(look) = look else { return false };
    let left = until.left();
    // One raised before the alarm was in its queue has left no bit in the word.
    if left == Some(Duration::ZERO) || interrupt.is_some_and(Interrupt::is_pending) {
        return false;
    }
    let found = match look {
        Look::Spin => spin(&waiter.word, left.map_or(SPIN, |left| left.min(SPIN))),
        Look::Yield if left.is_some_and(|left| left < ROOM) => return false,
        Look::Yield => offer(&waiter.word, &mut patience),
    };
    match found {
        Found::Woken => patience.hit(),
        Found::Nothing => patience.miss(),
        Found::Disturbed | Found::Unseen => {}
    }
    PATIENCE.set(patience);
    found == Found::Woken
}

/// What a look at the word found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Woken,
    /// An interrupt.
    Disturbed,
    /// It was not looked at.
    Unseen,
}

fn see(word: &AtomicU32) -> Found {
    // ORDERING: Acquire pairs with the release in `Claimed::drop`, as in `Waiter::phase`.
    let now = word.load(Ordering::Acquire);
    match now & PHASE {
        WOKEN => Found::Woken,
        _ if now & !PHASE != 0 => Found::Disturbed,
        // Or CLAIMED: the waker is about to say so.
        _ => Found::Nothing,
    }
}

/// Looks at the word for a while, or until it says something.
fn spin(word: &AtomicU32, most: Duration) -> Found {
    let end = clock::monotonic() + most;
    loop {
        for _ in 0..LOOKS {
            let found = see(word);
            if found != Found::Nothing {
                return found;
            }
            hint::spin_loop();
        }
        if clock::monotonic() >= end {
            return see(word);
        }
    }
}

/// Lets others use the CPU once, if it came back soon the last time.
fn offer(word: &AtomicU32, patience: &mut Patience) -> Found {
    let before = clock::monotonic();
    if !patience.may_offer(before) {
        return Found::Unseen;
    }
    let found = see(word);
    if found != Found::Nothing {
        return found;
    }
    thread::yield_now();
    let now = clock::monotonic();
    patience.back(now, now.saturating_sub(before));
    see(word)
}

#[cfg(test)]
mod tests;
