//! The middle layer: sheaves that wait between the CPUs, some full ones and some empty ones.

use crate::options::Options;
use crate::slabs::Slabs;
use crate::stats;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use crossbeam_utils::CachePadded;
use quietline_platform::percpu::{OwnedSheaf, Sheaf};
use quietline_sync::SpinLock;

/// The least number of sheaves of each kind that a barn keeps.
pub const BARN_LIMIT: usize = 10;

#[derive(Debug)]
pub(crate) struct Barn {
    /// On lines of its own: the fields around it are read on every slow path.
    pub(crate) piles: CachePadded<SpinLock<Piles>>,
    pub(crate) slabs: Slabs,
}

#[derive(Debug)]
pub(crate) struct Piles {
    full: Pile,
    empty: Pile,
    /// The number of sheaves that each pile holds: 0 while the barn is closed.
    limit: usize,
}

/// Sheaves linked through themselves.
#[derive(Debug)]
struct Pile {
    top: usize,
    len: usize,
    /// The least length since the last [`cut`](Self::cut): so many sheaves at the bottom lay unused.
    low: usize,
}

impl Pile {
    const EMPTY: Self = Self { top: 0, len: 0, low: 0 };

    fn push(&mut self, mut sheaf: OwnedSheaf, limit: usize) -> Result<(), OwnedSheaf> {
        if self.len >= limit {
            return Err(sheaf);
        }
        sheaf.set_link(self.top);
        self.top = sheaf.into_raw().as_ptr() as usize;
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<OwnedSheaf> {
        let sheaf = ManuallyDrop::into_inner(self.iter().next()?);
        self.top = sheaf.link();
        self.len -= 1;
        self.low = self.low.min(self.len);
        Some(sheaf)
    }

    /// The sheaves, from the top. The pile owns them.
    fn iter(&self) -> impl Iterator<Item = ManuallyDrop<OwnedSheaf>> + use<> {
        let sheaf = |link: usize| {
            let raw = NonNull::new(link as *mut Sheaf)?;
            // SAFETY: a sheaf on a pile lives, and the copy is not dropped.
            Some(ManuallyDrop::new(unsafe { OwnedSheaf::from_raw(raw) }))
        };
        core::iter::successors(sheaf(self.top), move |above| sheaf(above.link()))
    }

    /// Cuts off the lower half of the sheaves that lay unused, at least one, and begins a new
    /// measurement. O(length).
    fn cut(&mut self) -> Pile {
        let len = self.low.div_ceil(2);
        self.len -= len;
        self.low = self.len;
        let top = match self.len.checked_sub(1) {
            Some(last) => {
                let mut last = self.iter().nth(last).expect("a pile is as long as it says");
                let below = last.link();
                last.set_link(0);
                below
            }
            None => core::mem::take(&mut self.top),
        };
        Pile { top, len, low: 0 }
    }
}

impl Drop for Pile {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl Barn {
    /// A closed barn.
    pub(crate) fn new(slabs: Slabs) -> Self {
        let piles = Piles { full: Pile::EMPTY, empty: Pile::EMPTY, limit: 0 };
        Self { piles: CachePadded::new(SpinLock::new(piles)), slabs }
    }

    /// Keeps sheaves from now on.
    pub(crate) fn open(&self) {
        self.piles.lock().limit = Options::barn_limit();
    }

    /// Keeps no sheaf from now on.
    pub(crate) fn close(&self) {
        self.piles.lock().limit = 0;
        self.drain();
    }

    /// A sheaf with objects in it.
    pub(crate) fn take_full(&self) -> Option<OwnedSheaf> {
        let full = self.piles.lock().full.pop()?;
        self.slabs.count(stats::BARN_GET);
        Some(full)
    }

    pub(crate) fn take_empty(&self) -> Option<OwnedSheaf> {
        self.piles.lock().empty.pop()
    }

    /// Keeps a sheaf, or returns it if there are enough of its kind.
    pub(crate) fn put(&self, sheaf: OwnedSheaf) -> Result<(), OwnedSheaf> {
        let empty = sheaf.is_empty();
        {
            let mut piles = self.piles.lock();
            let limit = piles.limit;
            let pile = if empty { &mut piles.empty } else { &mut piles.full };
            pile.push(sheaf, limit)?;
        }
        if !empty {
            self.slabs.count(stats::BARN_PUT);
        }
        Ok(())
    }

    /// Keeps a sheaf, or gives its objects to their slabs.
    pub(crate) fn give(&self, sheaf: OwnedSheaf) {
        if let Err(over) = self.put(sheaf) {
            drop(self.flush(over));
        }
    }

    /// Gives a sheaf's objects to their slabs.
    pub(crate) fn flush(&self, mut sheaf: OwnedSheaf) -> OwnedSheaf {
        if !sheaf.is_empty() {
            self.slabs.count(stats::FLUSH);
            self.slabs.gather(sheaf.values());
            while sheaf.pop().is_some() {}
        }
        sheaf
    }

    /// Gives the objects of all sheaves to their slabs.
    pub(crate) fn drain(&self) {
        let pop = || {
            let mut piles = self.piles.lock();
            piles.full.pop().or_else(|| piles.empty.pop())
        };
        while let Some(sheaf) = pop() {
            drop(self.flush(sheaf));
        }
    }

    /// Drains half of the sheaves that lay unused since the last call.
    pub(crate) fn decay(&self) {
        let mut piles = self.piles.lock();
        let (mut full, empty) = (piles.full.cut(), piles.empty.cut());
        drop(piles);
        drop(empty);
        while let Some(sheaf) = full.pop() {
            drop(self.flush(sheaf));
        }
    }

    /// The number of objects inside.
    pub(crate) fn content(&self) -> usize {
        self.piles.lock().full.iter().map(|sheaf| sheaf.len()).sum()
    }

    /// Calls `f` with the content of each sheaf; how many are full and empty.
    #[cfg(test)]
    pub(crate) fn each_content(&self, f: &mut impl FnMut(&[usize])) -> (usize, usize) {
        let piles = self.piles.lock();
        for pile in [&piles.full, &piles.empty] {
            let lengths = pile.iter().map(|mut sheaf| f(sheaf.values()));
            assert_eq!(lengths.count(), pile.len);
        }
        (piles.full.len, piles.empty.len)
    }
}
