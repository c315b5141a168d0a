//! Differences from the host that do not come again, for tests that run generated programs on both.

use std::fmt;
use std::thread;
use std::time::Duration;

/// How often a program that has differed is run again. If it differs in two of these runs that is no chance.
pub(crate) const AGAIN: usize = 5;
/// Before each of them: what a thread did not get its turn for may last.
const PAUSE: Duration = Duration::from_millis(20);

/// Counts them.
pub(crate) struct Chance {
    allowed: u64,
    once: u64,
}

impl Chance {
    /// Of so many programs one in `one_in` may differ, and then at most once more; and two, however few there are.
    pub(crate) fn new(programs: u64, one_in: u64) -> Self {
        Self { allowed: 2 + programs / one_in, once: 0 }
    }

    /// Runs a program again that has differed, as it says: how it differs again. If it does not, or once, that is counted.
    ///
    /// # Panics
    /// When there is more of it than may be.
    #[track_caller]
    pub(crate) fn is_it<D>(&mut self, said: &str, mut run: impl FnMut() -> Option<D>) -> Option<D> {
        let mut runs = (0..AGAIN).filter_map(|_| {
            thread::sleep(PAUSE);
            run()
        });
        let again = runs.next().and_then(|_| runs.next());
        if again.is_none() {
            eprintln!("once, and not twice in {AGAIN} runs after that: {said}");
            self.once += 1;
            assert!(self.once <= self.allowed, "{} programs differ once: no chance", self.once);
        }
        again
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "but for {} that differed once", self.once)
    }
}

#[test]
fn chance_has_an_end() {
    let mut chance = Chance::new(600, 200);
    assert_eq!(chance.is_it("differs", || Some(7)), Some(7));
    for _ in 0..5 {
        assert_eq!(chance.is_it("differs once", || None::<()>), None);
    }
    // Also what differs in the first and the last of the runs is found.
    let runs = std::cell::Cell::new(0);
    let two = || {
        runs.set(runs.get() + 1);
        [1, AGAIN].contains(&runs.get()).then_some(())
    };
    assert_eq!(chance.is_it("differs now and then", two), Some(()));
    let more = std::panic::AssertUnwindSafe(|| chance.is_it("more", || None::<()>));
    assert!(std::panic::catch_unwind(more).is_err(), "more than is allowed");
}
