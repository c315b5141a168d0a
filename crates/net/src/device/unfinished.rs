//! Checksums that another interface of the host has left to the hardware, which there is none of.
//!
//! What a `veth` hands over may have in place of its checksum the sum of the pseudo-header alone. The rest is added here: all
//! from the transport header on, that sum included.
//!
//! Known are TCP and UDP, by IPv4 and IPv6 with the usual extension headers. Inside a tunnel nothing says where the sum is; that
//! it is not in the outer header shows in that there is another sum than that of the pseudo-header there.

use super::LINK_HEADER;
use crate::forward::checksum::{Sum, checksum};

/// Puts the checksum of a frame in; false if this does not know where it is.
pub fn finish(frame: &mut [u8]) -> bool {
    let Some((protocol, addresses, segment)) = segment(frame) else { return false };
    let at = match protocol {
        6 => 16,
        17 => 6,
        _ => return false,
    };
    let pseudo = addresses.with(&[0, protocol]).with(&(segment.len() as u16).to_be_bytes());
    if segment.get(at..at + 2) != Some(&pseudo.checksum().map(|byte| !byte)) {
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

/// The protocol of a frame, the sum of its addresses, and all from its header on; without what an Ethernet pads short frames with.
fn segment(frame: &mut [u8]) -> Option<(u8, Sum, &mut [u8])> {
    let kind = [*frame.get(12)?, *frame.get(13)?];
    let packet = &mut frame[LINK_HEADER..];
    match kind {
        [0x08, 0x00] => {
            let header = usize::from(packet.first()? & 15) * 4;
            let (len, protocol) = (usize::from(word(packet, 2)?), *packet.get(9)?);
            let addresses = Sum::default().with(packet.get(12..20)?);
            Some((protocol, addresses, packet.get_mut(header..len)?))
        }
        [0x86, 0xdd] => {
            let len = 40 + usize::from(word(packet, 4)?);
            let (mut next, mut at) = (*packet.get(6)?, 40);
            // Options of each hop, a routing header, options of the destination.
            while [0, 43, 60].contains(&next) {
                next = *packet.get(at)?;
                at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
            }
            let addresses = Sum::default().with(packet.get(8..40)?);
            Some((next, addresses, packet.get_mut(at..len)?))
        }
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests;
