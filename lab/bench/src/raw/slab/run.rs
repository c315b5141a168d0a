//! A pattern, run by a worker on a source.

use std::hint::black_box;
use std::sync::Arc;

use quietline_platform::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Heap, NoMemory, RULE, Source};
use crate::harness::{BETWEEN_LOOKS, Fault, Seat, Worker};

/// In which order a thread's objects come and go.
pub(crate) trait Pattern: 'static {
    /// Objects that the thread holds between samples.
    const HELD: usize = 0;

    /// Takes the objects that the thread will hold.
    ///
    /// # Errors
    ///
    /// If there is no memory; then none is held.
    fn enter<H: Heap>(&mut self, _heap: &H) -> Result<(), NoMemory> {
        Ok(())
    }

    /// Allocates and frees `ops` objects, some more to make whole cycles, or fewer if `stop` is set; how many.
    ///
    /// # Errors
    ///
    /// If there is no memory or a name is wrong.
    fn run<H: Heap>(&mut self, heap: &H, ops: u64, stop: &AtomicBool) -> Result<u64, Fault>;

    /// Looks closely at objects, outside the time measured: objects of its own, or those it holds.
    ///
    /// # Errors
    ///
    /// If one is not as it should be.
    fn check<H: Heap>(&mut self, heap: &H, size: usize) -> Result<(), Fault>;

    /// Frees the objects that the thread holds.
    fn leave<H: Heap>(&mut self, _heap: &H) {}
}

/// Objects that the workers of an arena hold between samples.
pub(crate) type Held = Arc<AtomicUsize>;

/// A worker with a pattern.
pub(crate) struct Run<S: Source, P: Pattern> {
    source: Arc<S>,
    seat: Seat,
    size: usize,
    held: Held,
    pattern: P,
}

impl<S: Source, P: Pattern> Run<S, P> {
    /// A worker for the calling thread, with objects of `size` bytes from `source`. What it holds is added to `held`.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub(crate) fn new(
        source: Arc<S>,
        seat: Seat,
        size: usize,
        held: Held,
        mut pattern: P,
    ) -> Result<Self, Fault> {
        pattern.enter(&source.heap(seat)?)?;
        // Relaxed, here and in `drop`: read while no worker runs, and the channels between order that.
        held.fetch_add(P::HELD, Ordering::Relaxed);
        Ok(Self { source, seat, size, held, pattern })
    }
}

impl<S: Source, P: Pattern> Worker for Run<S, P> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        self.pattern.run(&self.source.heap(self.seat)?, ops, stop)
    }

    fn check(&mut self) -> Result<(), Fault> {
        self.pattern.check(&self.source.heap(self.seat)?, self.size)
    }
}

impl<S: Source, P: Pattern> Drop for Run<S, P> {
    fn drop(&mut self) {
        // A thread that had a heap gets it again; if not, what it holds is found missing.
        if let Ok(heap) = self.source.heap(self.seat) {
            self.pattern.leave(&heap);
            self.held.fetch_sub(P::HELD, Ordering::Relaxed);
        }
    }
}

/// Does cycles of `each` objects until there are `ops`, or `stop` is set; how many objects. `cycles` does so many, and says
/// whether names were right.
///
/// # Errors
///
/// If there was no memory or a name was wrong.
#[inline(always)]
pub(super) fn cycle(
    each: u64,
    ops: u64,
    stop: &AtomicBool,
    mut cycles: impl FnMut(u64) -> Result<bool, NoMemory>,
) -> Result<u64, Fault> {
    let wanted = ops.div_ceil(each);
    let between = BETWEEN_LOOKS.div_ceil(each);
    let (mut right, mut done) = (true, 0);
    loop {
        let now = between.min(wanted - done);
        right &= cycles(now)?;
        done += now;
        // Relaxed: nothing is ordered by the flag; a late look costs some cycles more.
        if done == wanted || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Fault::unless(black_box(right), || format!("a result broke the rule: {RULE}"))
        .map(|()| done * each)
}
