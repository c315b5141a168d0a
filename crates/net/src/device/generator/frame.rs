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
const MOST: usize = LINK + 40 + UDP + PAYLOAD;
/// Bytes of headers.
const HEADERS4: usize = LINK + 20 + UDP;
const HEADERS6: usize = LINK + 40 + UDP;
/// Where the low 16 bits of the source are.
const SOURCE4: usize = 28;
const SOURCE6: usize = 36;
/// Where the IPv4 header's checksum is.
const CHECK4: usize = 24;

/// Headers and the beginning of the payload, with zeros where packets differ.
pub(super) struct Template {
    bytes: [u8; MOST],
    is_ipv4: bool,
    /// The low 16 bits of the source, and its port, of flow 0.
    source: u16,
    port: u16,
    /// Sums of what does not differ: of the IPv4 header; of what UDP's checksum is about.
    ip_sum: u64,
    udp_sum: u64,
}

/// The sum of 16-bit words, as the internet's checksum adds them, before it is folded. An odd byte is the upper half of a word.
pub(in crate::device) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| (*low).into()));
    words.sum()
}

/// The checksum of a sum: zero for a sum that has its checksum in it.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    // With its halves exchanged: what the lower half carries is added to the upper one.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    !((sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16)
}

impl Template {
    pub(super) fn new(traffic: &Traffic) -> Self {
        let [from, to] = traffic.links;
        let mut bytes = [0; MOST];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&from);
        // A size that is too small is refused later.
        let ip = traffic.size.saturating_sub(LINK);
        let (udp_at, source_at, addresses_at) = match traffic.ends {
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
                (HEADERS4 - UDP, SOURCE4, 26)
            }
            Ends::V6([source, destination]) => {
                bytes[12..14].copy_from_slice(&0x86ddu16.to_be_bytes());
                bytes[14] = 0x60;
                bytes[18..20].copy_from_slice(&(ip.saturating_sub(40) as u16).to_be_bytes());
                bytes[20] = 17;
                bytes[21] = traffic.ttl;
                bytes[22..38].copy_from_slice(&source.octets());
                bytes[38..54].copy_from_slice(&destination.octets());
                (HEADERS6 - UDP, SOURCE6, 22)
            }
        };
        let headers = udp_at + UDP;
        let udp_len = traffic.size.saturating_sub(udp_at) as u16;
        bytes[udp_at + 2..udp_at + 4].copy_from_slice(&traffic.ports[1].to_be_bytes());
        bytes[udp_at + 4..udp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
        let source = u16::from_be_bytes([bytes[source_at], bytes[source_at + 1]]);
        bytes[source_at..source_at + 2].fill(0);
        // Addresses, protocol and length are summed up besides the header and the payload.
        let udp_sum = sum(&bytes[addresses_at..headers]) + 17 + u64::from(udp_len) + sum(&MAGIC);
        let ip_sum = sum(&bytes[LINK..udp_at]);
        bytes[headers..headers + MAGIC.len()].copy_from_slice(&MAGIC);
        let port = traffic.ports[0];
        let is_ipv4 = matches!(traffic.ends, Ends::V4(_));
        Self { bytes, is_ipv4, source, port, ip_sum, udp_sum }
    }

    /// Bytes before the payload.
    pub(super) fn headers(&self) -> usize {
        if self.is_ipv4 { HEADERS4 } else { HEADERS6 }
    }

    /// Writes a packet: all bytes of `frame`, which are as many as the template was made for.
    #[inline(always)]
    pub(super) fn write(&self, frame: &mut [u8], flow: u32, sequence: u64) {
        if self.is_ipv4 {
            let start =
                self.write_as::<HEADERS4, { HEADERS4 + PAYLOAD }, SOURCE4>(frame, flow, sequence);
            let source = self.source.wrapping_add(flow as u16);
            put(start, CHECK4, fold(self.ip_sum + u64::from(source)).to_be_bytes());
        } else {
            self.write_as::<HEADERS6, { HEADERS6 + PAYLOAD }, SOURCE6>(frame, flow, sequence);
        }
    }

    /// Writes all but IPv4's checksum, of a family whose headers have so many bytes, those and what the payload says so many, and
    /// the low 16 bits of the source there; the headers and that.
    #[inline(always)]
    fn write_as<'f, const HEADERS: usize, const START: usize, const SOURCE: usize>(
        &self,
        frame: &'f mut [u8],
        flow: u32,
        sequence: u64,
    ) -> &'f mut [u8; START] {
        // Zeros behind what is said: by one store, as a rule. What is too much is written over.
        *frame.last_chunk_mut().expect("a frame has more bytes") = [0; 8];
        let (start, rest) =
            frame.split_first_chunk_mut::<START>().expect("as long as it was said to be");
        if rest.len() > 8 {
            rest.fill(0);
        }
        start.copy_from_slice(&self.bytes[..START]);
        let source = self.source.wrapping_add(flow as u16);
        let port = self.port.wrapping_add((flow >> 16) as u16);
        // Sums of 16-bit words are the same as of longer ones, folded.
        let differs = u64::from(source)
            + u64::from(port)
            + u64::from(flow)
            + (sequence >> 32)
            + (sequence & 0xffff_ffff);
        // No checksum is written as zero: that says that there is none.
        let check = match fold(self.udp_sum + differs) {
            0 => u16::MAX,
            check => check,
        };
        put(start, SOURCE, source.to_be_bytes());
        put(start, HEADERS - UDP, port.to_be_bytes());
        put(start, HEADERS - 2, check.to_be_bytes());
        put(start, HEADERS + 4, flow.to_be_bytes());
        put(start, HEADERS + 8, sequence.to_be_bytes());
        start
    }
}

#[inline(always)]
fn put<const LEN: usize, const N: usize>(bytes: &mut [u8; LEN], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}
