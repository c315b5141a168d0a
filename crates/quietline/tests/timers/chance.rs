//! Differences that do not come again.

use std::fmt;
use std::thread;
use std::time::Duration;

/// How often a program that has differed is run again. If it differs in two of these runs that is no chance.
pub(crate) const AGAIN: usize = 5;
/// Before each of them: what a thread did not get its turn for may last.
const PAUSE: Duration = Duration::from_millis(20);

/// How many of so many programs may differ, and then at most once more. With fifty threads for each CPU one in 1,150 did.
pub(crate) const fn allowed(programs: u64) -> u64 {
    2 + programs / 200
}

/// Counts them.
pub(crate) struct Chance {
    programs: u64,
    once: u64,
}

impl Chance {
    pub(crate) fn new(programs: u64) -> Self {
        Self { programs, once: 0 }
    }

    /// Runs a program again that has differed, as it says: how it differs again. If it does not, or once, that is counted.
    ///
    /// # Panics
    /// When there is more of it than may be.
    #[track_caller]
    pub(crate) fn is_it<D>(&mut self, said: &str, run: impl Fn() -> Option<D>) -> Option<D> {
        let mut runs = (0..AGAIN).filter_map(|_| {
            thread::sleep(PAUSE);
            run()
        });
        let again = runs.next().and_then(|_| runs.next());
        if again.is_none() {
            eprintln!("once, and not twice in {AGAIN} runs after that: {said}");
            self.once += 1;
            assert!(self.once <= allowed(self.programs), "{} programs differ once: no chance", self.once);
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
    let mut chance = Chance::new(300);
    assert_eq!(chance.is_it("differs", || Some(7)), Some(7));
    for _ in 0..allowed(300) {
        assert_eq!(chance.is_it("differs once", || None::<()>), None);
    }
    // Also what differs in the first and the last of the runs is found.
    let runs = std::cell::Cell::new(0);
    let two = || {
        runs.set(runs.get() + 1);
        [1, AGAIN].contains(&runs.get()).then_some(())
    };
    assert_eq!(chance.is_it("differs now and then", two), Some(()));
    let more =
        std::panic::AssertUnwindSafe(|| Chance { once: allowed(300), ..chance }.is_it("more", || None::<()>));
    assert!(std::panic::catch_unwind(more).is_err(), "more than is allowed");
}
