//! Queues of numbers, linked both ways, in arrays: a number enters, leaves from any position, and
//! needs no memory for it.

use quietline_platform::{AllocError, heap};

/// No number.
const NONE: u32 = u32::MAX;

/// Links of the numbers of all queues. A number is in one queue at most.
pub(super) struct QueueLinks(Vec<QueueLink>);

/// The numbers before and behind one in its queue.
#[derive(Clone, Copy)]
struct QueueLink {
    before: u32,
    behind: u32,
}

/// The ends of a queue.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    /// The number that entered before all others.
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

impl QueueLinks {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Numbers that may enter queues: those below.
    pub(super) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// Makes links for all numbers below a bound.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(super) fn grow(&mut self, numbers: u32) -> Result<(), AllocError> {
        let more = numbers.saturating_sub(self.len()) as usize;
        heap::try_reserve(&mut self.0, more)?;
        self.0.extend((0..more).map(|_| QueueLink { before: NONE, behind: NONE }));
        Ok(())
    }

    /// Appends a number that is in no queue.
    pub(super) fn push(&mut self, queue: &mut Queue, number: u32) {
        self.0[number as usize] = QueueLink { before: queue.last, behind: NONE };
        match queue.last {
            NONE => queue.first = number,
            last => self.0[last as usize].behind = number,
        }
        queue.last = number;
    }

    /// Takes a number out of the queue that it is in.
    pub(super) fn remove(&mut self, queue: &mut Queue, number: u32) {
        let QueueLink { before, behind } = self.0[number as usize];
        match before {
            NONE => queue.first = behind,
            before => self.0[before as usize].behind = behind,
        }
        match behind {
            NONE => queue.last = before,
            behind => self.0[behind as usize].before = before,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_leave_from_everywhere() {
        let mut links = QueueLinks::new();
        let mut queue = Queue::EMPTY;
        links.grow(5).unwrap();
        (0..5).for_each(|number| links.push(&mut queue, number));
        for (gone, first) in [(2, Some(0)), (0, Some(1)), (4, Some(1)), (1, Some(3)), (3, None)] {
            links.remove(&mut queue, gone);
            assert_eq!(queue.first(), first);
        }
        links.push(&mut queue, 4);
        links.push(&mut queue, 0);
        links.remove(&mut queue, 4);
        assert_eq!(queue.first(), Some(0));
    }
}
