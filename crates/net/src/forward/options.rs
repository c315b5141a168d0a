//! Options of IPv4, of packets that go on: which way they have taken is written down, which way they are to take is not obeyed.

use super::checksum::update;
use super::header::Ipv4;
use core::net::Ipv4Addr;

/// Options that say which way to go: packets with one are not forwarded (RFC 7126).
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;
/// Each router writes its address into this one, if there is room: behind kind and length, the number, from 1 on, of the byte where the next
/// address belongs.
const RECORD_ROUTE: u8 = 7;
/// Options of one byte: the end of all, and nothing.
const END: u8 = 0;
const NOTHING: u8 = 1;
/// In an option's kind: it belongs into each piece.
const COPIED: u8 = 0x80;
/// Bytes of an address.
const ADDRESS: usize = size_of::<Ipv4Addr>();

/// Why a packet does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It says which way to go. Nobody is told.
    Route,
    /// Its options make no sense, from this byte of the header on.
    Wrong(u8),
}

/// Looks at the options of a header: where in it the option begins in which there is room for the address of a router, if there is one.
#[cold]
pub(super) fn look(header: &[u8]) -> Result<Option<usize>, Refused> {
    let (mut at, mut has_record, mut room) = (Ipv4::LEN, false, None);
    while let Some(options) = header.get(at..) {
        // (A header has 60 bytes at most.)
        let wrong = |byte| Err(Refused::Wrong((at + byte) as u8));
        let (kind, len) = match *options {
            [] | [END, ..] => break,
            [NOTHING, ..] => (NOTHING, 1),
            [LOOSE_ROUTE | STRICT_ROUTE, ..] => return Err(Refused::Route),
            [kind, len, ..] if (2..=options.len()).contains(&len.into()) => (kind, len.into()),
            [_] => return wrong(0),
            _ => return wrong(1),
        };
        if kind == RECORD_ROUTE {
            let next = match options[..len] {
                _ if has_record => return wrong(0),
                [_, _, next, ..] => usize::from(next),
                _ => return wrong(1),
            };
            has_record = true;
            match next {
                4.. if next > len => {}
                4.. if next - 1 + ADDRESS <= len => room = Some(at),
                _ => return wrong(2),
            }
        }
        at += len;
    }
    Ok(room)
}

/// Writes an address into the option that [`look`] has found, and what follows from that into the header's checksum.
#[cold]
pub(super) fn fill_in(header: &mut [u8], at: usize, address: Ipv4Addr) {
    let mut before = [0; 40];
    let options = Ipv4::LEN..header.len();
    before[..options.len()].copy_from_slice(&header[options.clone()]);
    let next = &mut header[at + 2];
    let place = at + usize::from(*next) - 1;
    *next += ADDRESS as u8;
    header[place..place + ADDRESS].copy_from_slice(&address.octets());
    let Some((ip, now)) = Ipv4::of_mut(header) else { return };
    let word = |pair: &[u8]| u16::from_be_bytes([pair[0], pair[1]]);
    let pairs = before.chunks_exact(2).zip(now.chunks_exact(2));
    let sum =
        pairs.fold(ip.checksum.get(), |sum, (before, now)| update(sum, word(before), word(now)));
    ip.checksum = sum.into();
}

/// Options that are not to be copied into the other pieces of a packet that is cut become options that say nothing (RFC 791, section 3.2):
/// so all pieces' headers are of one length.
pub(super) fn blank_options(mut options: &mut [u8]) {
    while let [kind, ..] = *options {
        let len = match (kind, options.get(1)) {
            (END, _) => return,
            (NOTHING, _) => 1,
            (_, Some(len)) if (2..=options.len()).contains(&usize::from(*len)) => usize::from(*len),
            // No option: such a packet is not forwarded.
            _ => return,
        };
        let (option, rest) = options.split_at_mut(len);
        if kind & COPIED == 0 {
            option.fill(NOTHING);
        }
        options = rest;
    }
}
