//! The device that packets come out of.

mod frame;

pub(super) use frame::{MAGIC, PAYLOAD, sum};

use self::frame::Template;
use super::{Batch, NetDevice, Stats};
use crate::packet::{DropReason, PacketError, Packets, Skb};
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;
use rustix::io::Errno;

/// Bytes that a generated frame may have, link header included and checksum of the link not: an Ethernet's.
pub const GENERATOR_SIZES: RangeInclusive<usize> = 64..=1514;

/// The source and the destination of generated packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// IPv4.
    V4([Ipv4Addr; 2]),
    /// IPv6.
    V6([Ipv6Addr; 2]),
}

impl Ends {
    /// Addresses that are set apart for measuring: 198.18.0.1 and 198.19.0.1 (RFC 2544).
    pub const TEST_V4: Self =
        Self::V4([Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 19, 0, 1)]);
    /// The same for IPv6: 2001:2::1 and 2001:2:0:1::1 (RFC 5180).
    pub const TEST_V6: Self = Self::V6([
        Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1),
    ]);
}

/// What a [`Generator`] makes: UDP packets of a number of flows in turn.
///
/// A flow is told by the source: its number is added to the low 16 bits of the address, and what is above 16 bits to the port. The
/// payload says which flow it is and, counted from 0 in each flow, which packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of a frame: in [`GENERATOR_SIZES`], and 78 at least for IPv6.
    pub size: usize,
    /// Flows, from 1 to 2^24.
    pub flows: u32,
    /// Packets in all; endless if there is no number.
    pub count: Option<u64>,
    /// Link addresses, source and destination.
    pub links: [[u8; 6]; 2],
    /// Addresses.
    pub ends: Ends,
    /// Ports, source and destination.
    pub ports: [u16; 2],
    /// The TTL, or the hop limit.
    pub ttl: u8,
}

impl Default for Traffic {
    /// Endless packets of 64 bytes, of one flow, by IPv4, with addresses for measuring, from port 1024 to 9 (discard).
    fn default() -> Self {
        Self {
            size: 64,
            flows: 1,
            count: None,
            links: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
            ends: Ends::TEST_V4,
            ports: [1024, 9],
            ttl: 64,
        }
    }
}

/// Makes packets when it is polled, as fast as it is polled. What is sent into it is dropped: it is down in that direction.
pub struct Generator<'n> {
    packets: &'n Packets,
    template: Template,
    size: usize,
    flows: u32,
    /// Packets that are still to be made.
    left: u64,
    flow: u32,
    sequence: u64,
    stats: Stats,
}

impl<'n> Generator<'n> {
    /// A generator of such packets.
    ///
    /// # Errors
    /// `EINVAL` for a size or a number of flows that cannot be.
    pub fn new(packets: &'n Packets, traffic: &Traffic) -> Result<Self, Errno> {
        let Traffic { size, flows, .. } = *traffic;
        let template = Template::new(traffic);
        let fits = GENERATOR_SIZES.contains(&size) && size >= template.headers() + PAYLOAD;
        if !fits || !(1..=1 << 24).contains(&flows) {
            return Err(Errno::INVAL);
        }
        let left = traffic.count.unwrap_or(u64::MAX);
        Ok(Self {
            packets,
            template,
            size,
            flows,
            left,
            flow: 0,
            sequence: 0,
            stats: Stats::default(),
        })
    }

    /// Packets made.
    pub fn made(&self) -> u64 {
        self.stats.rx_packets
    }

    /// Whether all are made.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// As [`poll`](NetDevice::poll), with packets that are allocated one by one, by `alloc`, which is told how many bytes one has.
    ///
    /// # Errors
    /// What `alloc` says; packets made before stay in `out`.
    #[inline]
    pub fn poll_with(
        &mut self,
        budget: usize,
        out: &mut Batch<'n>,
        mut alloc: impl FnMut(usize) -> Result<Skb<'n>, PacketError>,
    ) -> Result<usize, PacketError> {
        let n = self.turn(budget, out);
        for _ in 0..n {
            let mut skb = alloc(self.size)?;
            self.fill([&mut skb])?;
            let pushed = out.push(skb);
            debug_assert!(pushed.is_ok(), "there was room");
        }
        Ok(n)
    }

    /// How many packets this turn makes.
    fn turn(&self, budget: usize, out: &Batch<'_>) -> usize {
        budget.min(out.room()).min(self.left.min(usize::MAX as u64) as usize)
    }

    /// Makes empty packets the next ones.
    #[inline(always)]
    fn fill<'s>(
        &mut self,
        packets: impl IntoIterator<Item = &'s mut Skb<'n>>,
    ) -> Result<(), PacketError>
    where
        'n: 's,
    {
        let (mut flow, mut sequence, mut n) = (self.flow, self.sequence, 0);
        let made = packets.into_iter().try_for_each(|skb| {
            self.template.write(skb.put(self.size)?, flow, sequence);
            n += 1;
            flow += 1;
            if flow == self.flows {
                flow = 0;
                sequence += 1;
            }
            Ok(())
        });
        (self.flow, self.sequence) = (flow, sequence);
        self.left -= n;
        self.stats.rx_all(n, n * self.size as u64);
        made
    }
}

impl<'n> NetDevice<'n> for Generator<'n> {
    fn name(&self) -> &str {
        "generator"
    }

    fn max_frame(&self) -> usize {
        *GENERATOR_SIZES.end()
    }

    fn xmit(&mut self, batch: &mut Batch<'n>) -> usize {
        let n = batch.kfree(DropReason::DeviceDown);
        self.stats.drop_packets(DropReason::DeviceDown, n);
        0
    }

    /// Packets that are allocated in bulk. `ENOMEM`: all or none.
    #[inline]
    fn poll(&mut self, budget: usize, out: &mut Batch<'n>) -> Result<usize, Errno> {
        let n = self.turn(budget, out);
        let (packets, size) = (self.packets, self.size);
        let filled = out.fill(n, |places| {
            packets.alloc_skb_bulk(size, places)?;
            self.fill(places.iter_mut().flatten())
        });
        // Lengths were looked at in `new`.
        filled.map_err(|_| Errno::NOMEM)
    }

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

impl fmt::Debug for Generator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator")
            .field("size", &self.size)
            .field("flows", &self.flows)
            .field("made", &self.made())
            .finish_non_exhaustive()
    }
}
