//! Which packets of a flow have come: the next number, and which of the 64 before it are there (as the window against replay of
//! RFC 4303).

use super::Tally;

/// Packets before the newest that are known one by one.
const WINDOW: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct Flow {
    /// The greatest number that came, if any did.
    newest: u64,
    /// Bit `i` is for number `newest - i`. 0 before any has come.
    seen: u64,
}

impl Flow {
    /// Packets that there should be by now.
    pub(super) fn expected(&self) -> u64 {
        if self.seen == 0 { 0 } else { self.newest.saturating_add(1) }
    }

    /// A packet has come.
    #[inline(always)]
    pub(super) fn came(&mut self, number: u64, tally: &mut Tally) {
        if number > self.newest || self.seen == 0 {
            let ahead = number - self.newest;
            self.seen = if ahead < WINDOW { self.seen << ahead | 1 } else { 1 };
            self.newest = number;
        } else {
            self.came_late(self.newest - number, tally);
        }
    }

    #[cold]
    fn came_late(&mut self, back: u64, tally: &mut Tally) {
        if back >= WINDOW {
            tally.late += 1;
        } else if self.seen & 1 << back != 0 {
            tally.duplicated += 1;
        } else {
            self.seen |= 1 << back;
            tally.reordered += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Flow, Tally};

    fn after(numbers: &[u64]) -> (Flow, Tally) {
        let (mut flow, mut tally) = (Flow::default(), Tally::default());
        numbers.iter().for_each(|number| flow.came(*number, &mut tally));
        (flow, tally)
    }

    #[test]
    fn what_came_and_how() {
        let counts = |numbers: &[u64]| {
            let (flow, tally) = after(numbers);
            (flow.expected(), tally.duplicated, tally.reordered, tally.late)
        };
        assert_eq!(counts(&[]), (0, 0, 0, 0));
        assert_eq!(counts(&[0, 1, 2]), (3, 0, 0, 0));
        assert_eq!(counts(&[0, 2, 1, 3]), (4, 0, 1, 0));
        assert_eq!(counts(&[0, 0, 1, 0]), (2, 2, 0, 0));
        assert_eq!(counts(&[2, 1, 1, 0]), (3, 1, 2, 0));
        // The edges of the window: 63 back is known, 64 is not.
        assert_eq!(counts(&[0, 63, 0]), (64, 1, 0, 0));
        assert_eq!(counts(&[0, 64, 0]), (65, 0, 0, 1));
        assert_eq!(counts(&[0, 64, 1]), (65, 0, 1, 0));
        assert_eq!(counts(&[u64::MAX, u64::MAX - 1]), (u64::MAX, 0, 1, 0));
    }
}
