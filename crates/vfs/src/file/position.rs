//! Where a file stands, and who is moving it.

use core::time::Duration;
use quietline_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use quietline_platform::{futex, hint, thread};

/// Set while somebody moves the position. Positions are below 2^63, so the bit is free.
const HELD: u64 = 1 << 63;

/// The position of an open file (`f_pos`), one word with its own lock.
///
/// Reads and writes that move it come one after the other, as POSIX wants: whoever begins one holds the position
/// until it has moved. Nobody holds it for long, so that a waiter looks again after a while and is not woken.
#[derive(Debug)]
pub(crate) struct Position(AtomicU64);

/// A position that is held: stored, and let go of, when dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    word: &'a AtomicU64,
    /// Where the file stands.
    pub(crate) at: u64,
}

/// Looks before a waiter offers its CPU, and offers before it sleeps.
const LOOKS: u32 = 100;

impl Position {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Begins a life of the file. Only the owner of a new life calls this.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        // Relaxed: `FileRef::init` publishes it.
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether it is anything but 0, or held: a look.
    pub(crate) fn is_set(&self) -> bool {
        // Relaxed: a look, which orders nothing.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the offset at this moment, without the lock. Writes nothing.
    pub(crate) fn offset(&self) -> u64 {
        // Relaxed: a snapshot, which orders nothing.
        self.0.load(Ordering::Relaxed) & !HELD
    }

    /// Takes hold. One locked instruction on the file's line while nobody else has it.
    #[inline]
    pub(crate) fn hold(&self) -> Held<'_> {
        // Relaxed: a guess, which the exchange confirms.
        let at = self.0.load(Ordering::Relaxed);
        // ORDERING: pairs with the release in `drop` of the holder before: what it did to the file comes before.
        if at & HELD == 0
            && self.0.compare_exchange(at, at | HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Held { word: &self.0, at };
        }
        self.hold_slow()
    }

    #[cold]
    fn hold_slow(&self) -> Held<'_> {
        let mut looks = 0u32;
        loop {
            // Relaxed and ORDERING: as in `hold`.
            let at = self.0.load(Ordering::Relaxed);
            if at & HELD == 0
                && self
                    .0
                    .compare_exchange(at, at | HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Held { word: &self.0, at };
            }
            looks = looks.saturating_add(1);
            match looks {
                0..LOOKS => hint::spin_loop(),
                LOOKS..200 => thread::yield_now(),
                // A word that nobody wakes: the timeout ends the sleep.
                _ => futex::wait(&AtomicU32::new(0), 0, Some(Duration::from_micros(50))),
            }
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(self.at & HELD == 0, "a position is below 2^63");
        // ORDERING: pairs with the acquire in `hold`.
        self.word.store(self.at & !HELD, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_come_one_after_the_other() {
        let position = Position::new();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut held = position.hold();
                        let at = held.at;
                        hint::spin_loop();
                        held.at = at + 3;
                    }
                });
            }
        });
        assert_eq!(position.hold().at, 180_000);
    }
}
