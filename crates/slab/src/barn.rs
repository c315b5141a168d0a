//! Where sheaves wait between CPUs: a few full ones and a few empty ones.

use core::ptr::NonNull;
use quietline_platform::fork::AtFork;
use quietline_platform::percpu::{OwnedSheaf, Sheaf};
use quietline_sync::SpinLock;

/// Sheaves of each kind that a barn keeps.
pub const BARN_LIMIT: usize = 10;

#[derive(Debug)]
pub(crate) struct Barn {
    piles: SpinLock<Piles>,
}

#[derive(Debug)]
struct Piles {
    full: Pile,
    empty: Pile,
}

/// Sheaves linked through themselves.
#[derive(Debug)]
struct Pile {
    top: usize,
    len: usize,
}

impl Pile {
    fn push(&mut self, mut sheaf: OwnedSheaf) -> Result<(), OwnedSheaf> {
        if self.len == BARN_LIMIT {
            return Err(sheaf);
        }
        sheaf.set_link(self.top);
        self.top = sheaf.into_raw().as_ptr() as usize;
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<OwnedSheaf> {
        let raw = NonNull::new(self.top as *mut Sheaf)?;
        // SAFETY: the pile owns its sheaves.
        let sheaf = unsafe { OwnedSheaf::from_raw(raw) };
        self.top = sheaf.link();
        self.len -= 1;
        Some(sheaf)
    }
}

impl Barn {
    pub(crate) fn new() -> Self {
        let pile = || Pile { top: 0, len: 0 };
        Self { piles: SpinLock::new(Piles { full: pile(), empty: pile() }) }
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
        if sheaf.is_empty() { piles.empty.push(sheaf) } else { piles.full.push(sheaf) }
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
                let mut sheaf = core::mem::ManuallyDrop::new(unsafe { OwnedSheaf::from_raw(sheaf) });
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
