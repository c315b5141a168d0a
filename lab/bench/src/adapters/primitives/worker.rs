//! Workers around workers: what is done once a sample, and operations that come several at a time.

use quietline_platform::atomic::AtomicBool;

use crate::harness::{Fault, Worker};

/// A worker that does `after` at the end of each sample, with the number of operations done.
pub(super) fn finishing(
    worker: Box<dyn Worker>,
    after: impl FnMut(u64) -> Result<(), Fault> + 'static,
) -> Box<dyn Worker> {
    Box::new(Finishing { worker, after })
}

struct Finishing<A> {
    worker: Box<dyn Worker>,
    after: A,
}

impl<A: FnMut(u64) -> Result<(), Fault>> Worker for Finishing<A> {
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let done = self.worker.run(ops, stop)?;
        (self.after)(done)?;
        Ok(done)
    }
}

/// A worker of which each cycle counts as `each` operations. It does whole cycles, so up to `each - 1` operations more
/// than it was asked for, and says so.
pub(super) fn bundled(worker: Box<dyn Worker>, each: u64) -> Box<dyn Worker> {
    Box::new(Bundled { worker, each })
}

struct Bundled {
    worker: Box<dyn Worker>,
    each: u64,
}

impl Worker for Bundled {
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        self.worker.run(ops.div_ceil(self.each), stop).map(|cycles| cycles * self.each)
    }
}
