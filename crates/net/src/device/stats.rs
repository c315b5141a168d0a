//! What a device counts.

use crate::packet::DropReason;

/// Counts of one device. They are its thread's own: plain words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Their bytes, from the link header on.
    pub rx_bytes: u64,
    /// Packets that it took to send.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Stats {
    /// Counts a packet that came in.
    #[inline(always)]
    pub(super) fn rx(&mut self, len: usize) {
        self.rx_packets += 1;
        self.rx_bytes += len as u64;
    }

    /// Counts a packet that is sent.
    #[inline(always)]
    pub(super) fn tx(&mut self, len: usize) {
        self.tx_packets += 1;
        self.tx_bytes += len as u64;
    }

    /// Counts packets that came in, and their bytes.
    #[inline(always)]
    pub(super) fn rx_all(&mut self, packets: u64, bytes: u64) {
        self.rx_packets += packets;
        self.rx_bytes += bytes;
    }

    /// Counts packets that are sent, and their bytes.
    #[inline(always)]
    pub(super) fn tx_all(&mut self, packets: u64, bytes: u64) {
        self.tx_packets += packets;
        self.tx_bytes += bytes;
    }

    /// Counts packets that are dropped.
    pub fn drop_packets(&mut self, reason: DropReason, n: usize) {
        self.dropped[reason.number()] += n as u64;
    }

    /// Packets dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason.number()]
    }

    /// Reasons for which packets were dropped, and how many.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL
            .iter()
            .map(|reason| (*reason, self.dropped(*reason)))
            .filter(|(_, n)| *n > 0)
    }
}
