//! Lists that mostly have one value, which needs no memory of its own then.

use super::make_room;
use rustix::io::Errno;

/// Values in no order.
#[derive(Debug)]
pub(super) struct Few<V> {
    /// None only if there are no others.
    first: Option<V>,
    more: Vec<V>,
}

impl<V> Few<V> {
    pub(super) const fn new() -> Self {
        Self { first: None, more: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.first.iter().chain(&self.more)
    }

    /// The first value like this.
    pub(super) fn find_mut(&mut self, is: impl Fn(&V) -> bool) -> Option<&mut V> {
        match &mut self.first {
            Some(first) if is(first) => Some(first),
            _ => self.more.iter_mut().find(|value| is(value)),
        }
    }

    /// Adds a value. Allocates unless it is the only one.
    ///
    /// # Errors
    /// `ENOMEM`: nothing has happened.
    pub(super) fn push(&mut self, value: V) -> Result<(), Errno> {
        if self.first.is_none() {
            self.first = Some(value);
        } else {
            make_room(&mut self.more)?;
            self.more.push(value);
        }
        Ok(())
    }

    /// Takes out a value like this, if there is one.
    pub(super) fn take(&mut self, mut is: impl FnMut(&V) -> bool) -> Option<V> {
        if is(self.first.as_ref()?) {
            return core::mem::replace(&mut self.first, self.more.pop());
        }
        let at = self.more.iter().position(is)?;
        Some(self.more.swap_remove(at))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out_once() {
        let mut few = Few::new();
        assert_eq!((few.is_empty(), few.take(|_| true)), (true, None));
        for n in 0..5 {
            few.push(n).unwrap();
        }
        for n in 0..5 {
            *few.find_mut(|other| *other == n).unwrap() += 10;
        }
        assert_eq!(few.find_mut(|n| *n == 4), None);
        // The first, one of the others, the last, and one that is not there.
        for (n, found) in [(10, true), (12, true), (14, true), (12, false)] {
            assert_eq!(few.take(|other| *other == n), found.then_some(n));
        }
        let mut left: Vec<_> = few.iter().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [11, 13]);
        assert!(few.take(|_| true).is_some() && !few.is_empty());
        assert!(few.take(|_| true).is_some() && few.is_empty());
    }
}
