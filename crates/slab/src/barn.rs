//! Where sheaves wait between CPUs: a few full ones and a few empty ones.

use core::ptr::NonNull;
use quietline_platform::fork::AtFork;
use quietline_platform::percpu::{OwnedSheaf, Sheaf};
use quietline_sync::SpinLock;

/// Sheaves of each kind that a barn keeps, at least.
pub const BARN_LIMIT: usize = 10;

#[derive(Debug)]
pub(crate) struct Barn {
    piles: SpinLock<Piles>,
}

#[derive(Debug)]
struct Piles {
    full: Pile,
    empty: Pile,
    /// Sheaves that fit on each.
    limit: usize,
}

/// Sheaves linked through themselves.
#[derive(Debug)]
pub(crate) struct Pile {
    top: usize,
    len: usize,
    /// The fewest there were since the last [`cut`](Self::cut): so many at the bottom lay unused.
    low: usize,
}

impl Pile {
    fn new() -> Self {
        Self { top: 0, len: 0, low: 0 }
    }

    fn push(&mut self, mut sheaf: OwnedSheaf, limit: usize) -> Result<(), OwnedSheaf> {
        if self.len >= limit {
            return Err(sheaf);
        }
        sheaf.set_link(self.top);
        self.top = sheaf.into_raw().as_ptr() as usize;
        self.len += 1;
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<OwnedSheaf> {
        let raw = NonNull::new(self.top as *mut Sheaf)?;
        // SAFETY: the pile owns its sheaves.
        let sheaf = unsafe { OwnedSheaf::from_raw(raw) };
        self.top = sheaf.link();
        self.len -= 1;
        self.low = self.low.min(self.len);
        Some(sheaf)
    }

    /// Cuts off the lower half of what lay unused, at least one; a new measurement begins. O(length).
    fn cut(&mut self) -> Pile {
        let cut = self.low.div_ceil(2);
        let kept = self.len - cut;
        let mut below = Pile { len: cut, ..Pile::new() };
        (self.len, self.low) = (kept, kept);
        // Walk to the last one that stays, and unlink what is below it.
        let mut last = None;
        let mut next = self.top;
        for _ in 0..kept {
            let raw = NonNull::new(next as *mut Sheaf).expect("a pile is as long as it says");
            // SAFETY: the pile owns its sheaves.
            let sheaf = core::mem::ManuallyDrop::new(unsafe { OwnedSheaf::from_raw(raw) });
            next = sheaf.link();
            last = Some(sheaf);
        }
        below.top = next;
        match last {
            Some(mut sheaf) => sheaf.set_link(0),
            None => self.top = 0,
        }
        below
    }
}

impl Barn {
    pub(crate) fn new(limit: usize) -> Self {
        Self { piles: SpinLock::new(Piles { full: Pile::new(), empty: Pile::new(), limit }) }
    }

    /// Half of the full and of the empty sheaves that nobody has wanted since this was asked last. They are the caller's,
    /// who takes all of them out.
    pub(crate) fn take_idle(&self) -> (Pile, Pile) {
        let mut piles = self.piles.lock();
        (piles.full.cut(), piles.empty.cut())
    }

    /// A sheaf with objects in it.
    pub(crate) fn take_full(&self) -> Option<OwnedSheaf> {
        self.piles.lock().full.pop()
    }

    pub(crate) fn take_empty(&self) -> Option<OwnedSheaf> {
        self.piles.lock().empty.pop()
    }

    /// Stores a sheaf on the pile that fits it, or gives it back if there are enough of its kind.
    pub(crate) fn put(&self, sheaf: OwnedSheaf) -> Result<(), OwnedSheaf> {
        let mut piles = self.piles.lock();
        let limit = piles.limit;
        if sheaf.is_empty() {
            piles.empty.push(sheaf, limit)
        } else {
            piles.full.push(sheaf, limit)
        }
    }

    /// Objects inside.
    pub(crate) fn content(&self) -> usize {
        let piles = self.piles.lock();
        let mut objects = 0;
        let mut next = piles.full.top;
        while let Some(sheaf) = NonNull::new(next as *mut Sheaf) {
            // SAFETY: the pile owns its sheaves, and is locked.
            let sheaf = core::mem::ManuallyDrop::new(unsafe { OwnedSheaf::from_raw(sheaf) });
            objects += sheaf.len();
            next = sheaf.link();
        }
        objects
    }
}

#[cfg(test)]
impl Barn {
    /// Calls `f` with the content of each sheaf; how many are full and empty.
    pub(crate) fn each_content(&self, f: &mut impl FnMut(&[usize])) -> (usize, usize) {
        let piles = self.piles.lock();
        for pile in [&piles.full, &piles.empty] {
            let (mut next, mut n) = (pile.top, 0);
            while let Some(sheaf) = NonNull::new(next as *mut Sheaf) {
                // SAFETY: the pile owns its sheaves, and is locked.
                let mut sheaf =
                    core::mem::ManuallyDrop::new(unsafe { OwnedSheaf::from_raw(sheaf) });
                f(sheaf.values());
                next = sheaf.link();
                n += 1;
            }
            assert_eq!(n, pile.len);
        }
        (piles.full.len, piles.empty.len)
    }
}

// SAFETY: the barn's only lock is held between the two.
unsafe impl AtFork for Barn {
    fn before(&self) {
        self.piles.before();
    }

    fn after(&self, child: bool) {
        self.piles.after(child);
    }
}

impl Drop for Barn {
    fn drop(&mut self) {
        let piles = self.piles.get_mut();
        while piles.full.pop().or_else(|| piles.empty.pop()).is_some() {}
    }
}
