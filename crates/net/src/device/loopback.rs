//! The device whose packets come back.

use super::{Batch, NetDevice, Stats, TxRing};
use core::fmt;
use rustix::io::Errno;

/// What is sent comes in, in the same order. A ring is between the two: who sends and does not poll fills it.
pub struct Loopback<'n> {
    ring: TxRing<'n>,
    stats: Stats,
}

impl Loopback<'_> {
    /// A device with a ring for so many packets.
    ///
    /// # Errors
    /// As [`TxRing::new`].
    pub fn new(ring: usize) -> Result<Self, Errno> {
        Ok(Self { ring: TxRing::new(ring)?, stats: Stats::default() })
    }
}

impl<'n> NetDevice<'n> for Loopback<'n> {
    fn name(&self) -> &str {
        "lo"
    }

    fn max_frame(&self) -> usize {
        u16::MAX.into()
    }

    fn xmit(&mut self, batch: &mut Batch<'n>) -> usize {
        let n = batch.len().min(self.ring.room());
        for skb in core::iter::from_fn(|| batch.pop()).take(n) {
            self.stats.tx(skb.len());
            let put = self.ring.put(skb);
            debug_assert!(put.is_ok(), "there was room");
        }
        self.ring.send(|_| true);
        n
    }

    fn poll(&mut self, budget: usize, out: &mut Batch<'n>) -> Result<usize, Errno> {
        let Self { ring, stats } = self;
        Ok(ring.complete_with(budget.min(out.room()), |skb| {
            stats.rx(skb.len());
            let pushed = out.push(skb);
            debug_assert!(pushed.is_ok(), "there was room");
        }))
    }

    /// Nothing: what is sent is not done with, but comes in.
    fn complete(&mut self, _budget: usize) -> usize {
        0
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }
}

impl fmt::Debug for Loopback<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loopback").field("ring", &self.ring).field("stats", &self.stats).finish()
    }
}
