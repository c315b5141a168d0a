//! Checksums that another interface of the host has left to the hardware, which there is none of.
//!
//! What a `veth` hands over may have in place of its checksum the sum of the pseudo-header alone. The rest is added here: all
//! from the transport header on, that sum included.
//!
//! Known are TCP and UDP, by IPv4 and IPv6 with the usual extension headers. Inside a tunnel, whose outer packet is whole, nothing says
//! where the sum is.

use super::LINK_HEADER;
use crate::forward::checksum::checksum;

/// Puts the checksum of a frame in; false if this does not know where it is.
pub(super) fn finish(frame: &mut [u8]) -> bool {
    let Some((protocol, segment)) = segment(frame) else { return false };
    let at = match protocol {
        6 => 16,
        17 => 6,
        _ => return false,
    };
    if segment.len() < at + 2 {
        return false;
    }
    let sum = match checksum(segment) {
        // To UDP, zero says that there is none; and to everybody it is the same as this.
        [0, 0] if protocol == 17 => [0xff; 2],
        sum => sum,
    };
    segment[at..at + 2].copy_from_slice(&sum);
    true
}

/// The protocol of a frame, and all from its header on; without what an Ethernet pads short frames with.
fn segment(frame: &mut [u8]) -> Option<(u8, &mut [u8])> {
    let kind = [*frame.get(12)?, *frame.get(13)?];
    let packet = &mut frame[LINK_HEADER..];
    match kind {
        [0x08, 0x00] => {
            let header = usize::from(packet.first()? & 15) * 4;
            let (len, protocol) = (usize::from(word(packet, 2)?), *packet.get(9)?);
            Some((protocol, packet.get_mut(header..len)?))
        }
        [0x86, 0xdd] => {
            let len = 40 + usize::from(word(packet, 4)?);
            let (mut next, mut at) = (*packet.get(6)?, 40);
            // Options of each hop, a routing header, options of the destination.
            while [0, 43, 60].contains(&next) {
                next = *packet.get(at)?;
                at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
            }
            Some((next, packet.get_mut(at..len)?))
        }
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests;
