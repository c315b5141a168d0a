//! The bytes of a generated packet.
//!
//! ```text
//!   link header 14 │ IPv4 20 or IPv6 40 │ UDP 8 │ magic 4 │ flow 4 │ number 8 │ zeros
//! ```
//!
//! Headers are written once; of each packet what differs is put in, and added to sums of what does not.

use super::{Ends, Traffic};

/// What a generated payload begins with.
pub(in crate::device) const MAGIC: [u8; 4] = *b"QLgn";
/// Bytes of a payload that say something.
pub(in crate::device) const PAYLOAD: usize = 16;

const LINK: usize = 14;
const UDP: usize = 8;
const MOST: usize = LINK + 40 + UDP;

/// Headers, with zeros where packets differ.
pub(super) struct Template {
    bytes: [u8; MOST],
    headers: usize,
    /// Where the IPv4 header's checksum is, if there is one.
    ip_check: Option<usize>,
    /// Where the low 16 bits of the source are.
    source_at: usize,
    /// The low 16 bits of the source, and its port, of flow 0.
    source: u16,
    port: u16,
    /// Sums of what does not differ: of the IPv4 header; of what UDP's checksum is about.
    ip_sum: u64,
    udp_sum: u64,
}

/// The sum of 16-bit words, as the internet's checksum adds them, before it is folded. An odd byte is the upper half of a word.
pub(in crate::device) fn sum(bytes: &[u8]) -> u64 {
    let words =
        bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| (*low).into()));
    words.sum()
}

/// The checksum of a sum: zero for a sum that has its checksum in it.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// The sum of the words of a number.
#[inline(always)]
fn words(number: u64) -> u64 {
    (number & 0xffff) + (number >> 16 & 0xffff) + (number >> 32 & 0xffff) + (number >> 48)
}

impl Template {
    pub(super) fn new(traffic: &Traffic) -> Self {
        let [from, to] = traffic.links;
        let mut bytes = [0; MOST];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&from);
        // A size that is too small is refused later.
        let ip = traffic.size.saturating_sub(LINK);
        let (udp_at, source_at, ip_check) = match traffic.ends {
            Ends::V4([source, destination]) => {
                bytes[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
                bytes[14] = 0x45;
                bytes[16..18].copy_from_slice(&(ip as u16).to_be_bytes());
                // Don't fragment.
                bytes[20] = 0x40;
                bytes[22] = traffic.ttl;
                bytes[23] = 17;
                bytes[26..30].copy_from_slice(&source.octets());
                bytes[30..34].copy_from_slice(&destination.octets());
                (34, 28, Some(24))
            }
            Ends::V6([source, destination]) => {
                bytes[12..14].copy_from_slice(&0x86ddu16.to_be_bytes());
                bytes[14] = 0x60;
                bytes[18..20].copy_from_slice(&(ip.saturating_sub(40) as u16).to_be_bytes());
                bytes[20] = 17;
                bytes[21] = traffic.ttl;
                bytes[22..38].copy_from_slice(&source.octets());
                bytes[38..54].copy_from_slice(&destination.octets());
                (54, 36, None)
            }
        };
        let headers = udp_at + UDP;
        let udp_len = traffic.size.saturating_sub(udp_at) as u16;
        bytes[udp_at + 2..udp_at + 4].copy_from_slice(&traffic.ports[1].to_be_bytes());
        bytes[udp_at + 4..udp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
        let source = u16::from_be_bytes([bytes[source_at], bytes[source_at + 1]]);
        bytes[source_at..source_at + 2].fill(0);
        let addresses_at = if ip_check.is_some() { 26 } else { 22 };
        // Addresses, protocol and length are summed up besides the header and the payload.
        let udp_sum = sum(&bytes[addresses_at..headers]) + 17 + u64::from(udp_len) + sum(&MAGIC);
        let ip_sum = sum(&bytes[LINK..udp_at]);
        let port = traffic.ports[0];
        Self { bytes, headers, ip_check, source_at, source, port, ip_sum, udp_sum }
    }

    /// Bytes before the payload.
    pub(super) fn headers(&self) -> usize {
        self.headers
    }

    /// Writes a packet: all bytes of `frame`, which are as many as the template was made for.
    #[inline(always)]
    pub(super) fn write(&self, frame: &mut [u8], flow: u32, sequence: u64) {
        let (headers, payload) = frame.split_at_mut(self.headers);
        headers.copy_from_slice(&self.bytes[..self.headers]);
        let source = self.source.wrapping_add(flow as u16);
        let port = self.port.wrapping_add((flow >> 16) as u16);
        headers[self.source_at..self.source_at + 2].copy_from_slice(&source.to_be_bytes());
        let udp = self.headers - UDP;
        headers[udp..udp + 2].copy_from_slice(&port.to_be_bytes());
        if let Some(at) = self.ip_check {
            headers[at..at + 2].copy_from_slice(&fold(self.ip_sum + u64::from(source)).to_be_bytes());
        }
        let differs = u64::from(source) + u64::from(port) + words(flow.into()) + words(sequence);
        // No checksum is written as zero: that says that there is none.
        let check = match fold(self.udp_sum + differs) {
            0 => u16::MAX,
            check => check,
        };
        headers[udp + 6..udp + 8].copy_from_slice(&check.to_be_bytes());
        let (said, zeros) = payload.split_at_mut(PAYLOAD);
        said[..4].copy_from_slice(&MAGIC);
        said[4..8].copy_from_slice(&flow.to_be_bytes());
        said[8..].copy_from_slice(&sequence.to_be_bytes());
        zeros.fill(0);
    }
}
