//! Two devices, each of which receives what the other sends.

use super::raw::spsc::{self, Consumer, Producer};
use super::{Batch, NetDevice, Stats};
use crate::packet::Skb;
use core::fmt;
use rustix::io::Errno;

/// One end of a pair in memory (as `veth`). The ends may be on two threads: what one sends belongs to who polls the other.
///
/// # Shared lines
/// For each batch, the sender's index, and the slots that it writes. The receiver's index only when a lap is used up.
pub struct Pair<'n> {
    name: &'static str,
    tx: Producer<Skb<'n>>,
    rx: Consumer<Skb<'n>>,
    stats: Stats,
}

impl Pair<'_> {
    /// Both ends, with a ring for so many packets each way: a power of two, 65,536 at most.
    ///
    /// # Errors
    /// `EINVAL` for another number; `ENOMEM`.
    pub fn new(ring: usize) -> Result<[Self; 2], Errno> {
        if !ring.is_power_of_two() || ring > 1 << 16 {
            return Err(Errno::INVAL);
        }
        let make = || spsc::ring(ring).map_err(|_| Errno::NOMEM);
        let ((to_b, from_a), (to_a, from_b)) = (make()?, make()?);
        let end = |name, tx, rx| Self { name, tx, rx, stats: Stats::default() };
        Ok([end("pair0", to_b, from_b), end("pair1", to_a, from_a)])
    }
}

impl<'n> NetDevice<'n> for Pair<'n> {
    fn name(&self) -> &str {
        self.name
    }

    fn max_frame(&self) -> usize {
        u16::MAX.into()
    }

    #[inline]
    fn xmit(&mut self, batch: &mut Batch<'n>) -> usize {
        let n = self.tx.room(batch.len());
        for skb in core::iter::from_fn(|| batch.pop()).take(n) {
            self.stats.tx(skb.len());
            self.tx.push(skb);
        }
        if n > 0 {
            self.tx.publish();
        }
        n
    }

    #[inline]
    fn poll(&mut self, budget: usize, out: &mut Batch<'n>) -> Result<usize, Errno> {
        let n = self.rx.available(budget.min(out.room()));
        for _ in 0..n {
            let skb = self.rx.pop();
            self.stats.rx(skb.len());
            let pushed = out.push(skb);
            debug_assert!(pushed.is_ok(), "there was room");
        }
        if n > 0 {
            self.rx.publish();
        }
        Ok(n)
    }

    /// Nothing: what is sent is the other end's.
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

impl fmt::Debug for Pair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("name", &self.name)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
