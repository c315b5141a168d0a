//! The device that packets end in.

mod sequence;

use self::sequence::Flow;
use super::generator::{MAGIC, PAYLOAD, sum};
use super::{Batch, NetDevice, Stats, TxRing};
use crate::packet::Skb;
use core::fmt;
use quietline_platform::heap;
use rustix::io::Errno;

/// What a [`Sink`] found in the packets of a [`Generator`](super::Generator) that ended in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Packets of the generator.
    pub received: u64,
    /// Those that came a second time.
    pub duplicated: u64,
    /// Those that came after a later one of their flow.
    pub reordered: u64,
    /// Those so late, more than 64 packets, that they may have come before: neither counted as duplicated nor as reordered.
    pub late: u64,
    /// Those that did not come, though a later one of their flow did. (The late ones among them.)
    pub lost: u64,
    /// Those whose checksum is wrong; counted only where [checksums](Sink::check_sums) are looked at.
    pub bad_sums: u64,
    /// Packets that are no generator's, or of a flow that there is not.
    pub foreign: u64,
}

impl Tally {
    /// Whether there were `n` packets, each once, in order, as they were made, and no others.
    pub fn is_exactly(&self, n: u64) -> bool {
        *self == Self { received: n, ..Self::default() }
    }
}

/// Takes packets into a TX ring, looks at their sequence numbers, says at once that they are sent, and frees them when they are
/// [completed](NetDevice::complete).
pub struct Sink<'n> {
    ring: TxRing<'n>,
    flows: Box<[Flow]>,
    tally: Tally,
    check_sums: bool,
    stats: Stats,
}

impl<'n> Sink<'n> {
    /// A sink for packets of so many flows, with a ring for so many packets.
    ///
    /// # Errors
    /// As [`TxRing::new`]; `ENOMEM`.
    pub fn new(ring: usize, flows: u32) -> Result<Self, Errno> {
        let flows =
            heap::try_boxed_slice(flows as usize, |_| Flow::default()).map_err(|_| Errno::NOMEM)?;
        let ring = TxRing::new(ring)?;
        Ok(Self {
            ring,
            flows,
            tally: Tally::default(),
            check_sums: false,
            stats: Stats::default(),
        })
    }

    /// Whether checksums are looked at, of headers and payloads: not so unless this says so.
    pub fn check_sums(&mut self, check: bool) {
        self.check_sums = check;
    }

    /// What was found until now.
    pub fn tally(&self) -> Tally {
        // A number from elsewhere may be any.
        let expected = self.flows.iter().map(Flow::expected).fold(0, u64::saturating_add);
        let Tally { received, duplicated, late, .. } = self.tally;
        Tally { lost: expected.saturating_sub(received - duplicated - late), ..self.tally }
    }

    /// Packets that are sent and not yet freed.
    #[inline]
    pub fn completed(&self) -> usize {
        self.ring.completed()
    }

    /// As [`complete`](NetDevice::complete), with `free` for freeing.
    #[inline(always)]
    pub fn complete_with(&mut self, budget: usize, free: impl FnMut(Skb<'n>)) -> usize {
        self.ring.complete_with(budget, free)
    }

    /// As [`complete`](NetDevice::complete), [without a waitlist](TxRing::complete_in_place).
    pub fn complete_in_place(&mut self, budget: usize) -> usize {
        self.ring.complete_in_place(budget)
    }
}

/// Counts a packet that ends; true if it is a generator's, whose number is still to be counted.
#[inline(always)]
fn count(skb: &Skb<'_>, flows: &mut [Flow], tally: &mut Tally, check_sums: bool) -> bool {
    let said = said(skb.data());
    let Some((flow, sequence)) =
        said.and_then(|(flow, number)| Some((flows.get_mut(flow as usize)?, number)))
    else {
        tally.foreign += 1;
        return false;
    };
    flow.came(sequence, tally);
    if check_sums && !sums_hold(skb.data()) {
        tally.bad_sums += 1;
    }
    true
}

/// Flow and number of a generated packet; none of another one.
#[inline(always)]
fn said(frame: &[u8]) -> Option<(u32, u64)> {
    let headers: &[u8; 24] = frame.first_chunk()?;
    let payload: &[u8; PAYLOAD] = match u16::from_be_bytes([headers[12], headers[13]]) {
        0x0800 if headers[14] == 0x45 && headers[23] == 17 => frame.get(42..)?.first_chunk()?,
        0x86dd if headers[20] == 17 => frame.get(62..)?.first_chunk()?,
        _ => return None,
    };
    let (magic, said) = payload.split_first_chunk()?;
    let (flow, sequence) = said.split_first_chunk()?;
    (u32::from_ne_bytes(*magic) == u32::from_ne_bytes(MAGIC))
        .then_some((u32::from_be_bytes(*flow), u64::from_be_bytes(*sequence.first_chunk()?)))
}

/// Whether the checksums of a generated packet, which is whole, hold. Every word is added up, unlike where they were made.
#[cold]
fn sums_hold(frame: &[u8]) -> bool {
    let holds = |mut sum: u64| {
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        sum == 0xffff
    };
    let (addresses, udp) = if frame[12] == 0x08 { (26, 34) } else { (22, 54) };
    let len = u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]);
    let of_udp = frame.get(udp..udp + usize::from(len));
    let check = u16::from_be_bytes([frame[udp + 6], frame[udp + 7]]);
    (udp != 34 || holds(sum(&frame[14..34])))
        && check != 0
        && of_udp.is_some_and(|udp_bytes| {
            holds(sum(&frame[addresses..udp]) + sum(udp_bytes) + 17 + u64::from(len))
        })
}

impl<'n> NetDevice<'n> for Sink<'n> {
    fn name(&self) -> &str {
        "sink"
    }

    fn max_frame(&self) -> usize {
        u16::MAX.into()
    }

    #[inline]
    fn xmit(&mut self, batch: &mut Batch<'n>) -> usize {
        let n = batch.len().min(self.ring.room());
        let Self { ring, flows, tally, stats, check_sums } = self;
        let (mut received, mut bytes) = (0, 0);
        for skb in batch.iter().take(n) {
            received += u64::from(count(skb, flows, tally, *check_sums));
            bytes += skb.len() as u64;
        }
        tally.received += received;
        stats.tx_all(n as u64, bytes);
        ring.put_sent(batch, n);
        n
    }

    /// Nothing comes in.
    fn poll(&mut self, _budget: usize, _out: &mut Batch<'n>) -> Result<usize, Errno> {
        Ok(0)
    }

    fn complete(&mut self, budget: usize) -> usize {
        self.ring.complete(budget)
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }
}

impl fmt::Debug for Sink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink")
            .field("ring", &self.ring)
            .field("tally", &self.tally())
            .finish_non_exhaustive()
    }
}
