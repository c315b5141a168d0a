//! Inodes that wait for a grace period by the sheaf, as quietline's do: not one callback and one link in each, but an array of
//! their numbers, which is handed out again as it is.

/// Inodes of a sheaf; as in quietline for objects of this size.
const CAPACITY: usize = 28;

/// The sheaves of a CPU. Each is in one of the four places; nothing is written into an inode that waits.
pub(super) struct Sheaves {
    collecting: Vec<u32>,
    /// Waits for a tick.
    next: Vec<Vec<u32>>,
    /// Waits for the grace period that began at the last one.
    current: Vec<Vec<u32>>,
    /// May be used, the last one first.
    ready: Vec<Vec<u32>>,
    /// Arrays.
    empty: Vec<Vec<u32>>,
}

impl Sheaves {
    pub(super) fn new() -> Self {
        let (collecting, next, current) = (Vec::new(), Vec::new(), Vec::new());
        Self { collecting, next, current, ready: Vec::new(), empty: Vec::new() }
    }

    /// One whose grace period is over.
    #[inline]
    pub(super) fn alloc(&mut self) -> Option<u32> {
        loop {
            let inode = self.ready.last_mut()?.pop();
            if inode.is_some() {
                return inode;
            }
            self.empty.extend(self.ready.pop());
        }
    }

    /// One that nobody finds any more.
    #[inline]
    pub(super) fn free(&mut self, inode: u32) {
        if self.collecting.len() == CAPACITY {
            self.send();
        }
        self.collecting.push(inode);
    }

    /// What was collected waits for a grace period.
    #[cold]
    pub(super) fn send(&mut self) {
        let fresh = self.empty.pop().unwrap_or_else(|| Vec::with_capacity(CAPACITY));
        self.next.push(core::mem::replace(&mut self.collecting, fresh));
    }

    /// A grace period is over and the next begins.
    pub(super) fn tick(&mut self) {
        let over = core::mem::replace(&mut self.current, core::mem::take(&mut self.next));
        self.ready.extend(over);
    }

    /// Inodes that wait.
    pub(super) fn waiting(&self) -> usize {
        let all = self.next.iter().chain(&self.current).map(Vec::len);
        all.sum::<usize>() + self.collecting.len()
    }
}
