//! What came in, and whether what goes out follows from it.

use quietline_net::forward::header::{Arp, Ethernet, Icmp, Ipv4, Ipv6, Link, ether, protocol};
use std::collections::{HashMap, HashSet};
use std::mem::take;
use std::net::Ipv4Addr;

const ECHO: u8 = 8;
const ECHO6: u8 = 128;
/// An option of IPv4 that says nothing.
const NOTHING: u8 = 1;

/// Frames that came in.
#[derive(Default)]
pub(super) struct Came {
    /// Packets without what routers change, and with how many routers each might pass.
    whole: HashMap<Vec<u8>, HashSet<u8>>,
    /// The same, by what pieces and errors say of them.
    by_key: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Answers to echo requests of IPv4 that came in, without their sums and what routers change, by their keys.
    answers: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Echo requests of IPv6, without their sums and without whom they are for, which may be a group.
    echoes: HashSet<Vec<u8>>,
    /// Who asked for an address by ARP: sender, its link address, and whom it asked for.
    asked: HashSet<([u8; 4], Link, [u8; 4])>,
}

/// A packet without what routers change, and without what is behind it; and how many routers it may pass.
fn same(packet: &[u8]) -> Option<(Vec<u8>, u8)> {
    let (len, at) = match packet.first()? >> 4 {
        4 => (usize::from(Ipv4::of(packet)?.0.total.get()), 8),
        6 => (Ipv6::LEN + usize::from(Ipv6::of(packet)?.0.payload.get()), 7),
        _ => return None,
    };
    let mut same = packet.get(..len)?.to_vec();
    let hops = take(same.get_mut(at)?);
    forget_sum(&mut same)?;
    Some((same, hops))
}

/// Clears the header's sum, of IPv4.
fn forget_sum(same: &mut [u8]) -> Option<()> {
    if same.first()? >> 4 == 4 {
        same.get_mut(10..12)?.fill(0);
    }
    Some(())
}

/// What a packet and its pieces, or an error about it, have in common: which packet, of what, from whom, to whom.
fn key(same: &[u8]) -> Option<Vec<u8>> {
    Some(match same.first()? >> 4 {
        4 => [same.get(4..6)?, same.get(9..10)?, same.get(12..20)?].concat(),
        _ => [same.get(6..7)?, same.get(8..40)?].concat(),
    })
}

/// The answer to an echo request of IPv4, without its sums and hops: it may be cut, and if the request might not, it has another number.
fn answer4(request: &[u8]) -> Option<Vec<u8>> {
    if request.first()? >> 4 != 4 {
        return None;
    }
    let mut answer = request.to_vec();
    let (&ip, message) = (Ipv4::of(request)?.0, request.get(Ipv4::of(request)?.0.header_len()..)?);
    let icmp = Icmp::of(message)?.0;
    if ip.protocol != protocol::ICMP || ip.is_fragment() || icmp.kind != ECHO {
        return None;
    }
    let [which, sequence] = [[icmp.rest[0], icmp.rest[1]], [icmp.rest[2], icmp.rest[3]]];
    let (new, _) = Ipv4::of_mut(&mut answer)?;
    (new.source, new.destination, new.fragment) = (ip.destination, ip.source, 0.into());
    if ip.fragment.get() & Ipv4::DONT != 0 {
        new.id = u16::from_be_bytes(which).wrapping_add(u16::from_be_bytes(sequence)).into();
    }
    let (icmp, _) = Icmp::of_mut(answer.get_mut(ip.header_len()..)?)?;
    (icmp.kind, icmp.checksum) = (0, [0; 2]);
    Some(answer)
}

/// An echo request of IPv6, or the one that an answer is to, without what differs between both.
fn echo6(same: &[u8], is_answer: bool) -> Option<Vec<u8>> {
    let mut echo = same.to_vec();
    if same.first()? >> 4 != 6 || same[6] != protocol::ICMPV6 {
        return None;
    }
    let (from, to) = echo.get_mut(8..40)?.split_at_mut(16);
    if is_answer {
        from.copy_from_slice(to);
    }
    to.fill(0);
    let (icmp, _) = Icmp::of_mut(echo.get_mut(Ipv6::LEN..)?)?;
    if !is_answer && icmp.kind != ECHO6 {
        return None;
    }
    (icmp.kind, icmp.checksum) = (ECHO6, [0; 2]);
    Some(echo)
}

/// A packet of IPv4 in which a router has written down an address of its own, if there is room.
fn recorded(same: &[u8], own: Ipv4Addr) -> Option<Vec<u8>> {
    if same.first()? >> 4 != 4 {
        return None;
    }
    let (mut at, end) = (Ipv4::LEN, Ipv4::of(same)?.0.header_len());
    loop {
        let len = match *same.get(at..end)? {
            [] | [0, ..] => return None,
            [NOTHING, ..] => 1,
            [7, len, next, ..] => {
                let at_next = at + usize::from(next.checked_sub(1)?);
                if next < 4 || at_next + 4 > at + usize::from(len) {
                    return None;
                }
                let mut recorded = same.to_vec();
                recorded[at + 2] += 4;
                recorded.get_mut(at_next..at_next + 4)?.copy_from_slice(&own.octets());
                return Some(recorded);
            }
            [_, len, ..] if len >= 2 => usize::from(len),
            _ => return None,
        };
        at += len;
    }
}

impl Came {
    /// A frame comes in, by a forwarder of these addresses.
    pub(super) fn add(&mut self, frame: &[u8], own: &[Ipv4Addr]) {
        let Some((ethernet, rest)) = Ethernet::of(frame) else { return };
        if ethernet.protocol.get() == ether::ARP
            && let Some((arp, _)) = Arp::of(rest)
        {
            self.asked.insert((arp.sender, arp.sender_link, arp.target));
        } else if let Some((packet, hops)) = same(rest) {
            let recorded: Vec<_> = own.iter().filter_map(|own| recorded(&packet, *own)).collect();
            if recorded.is_empty() {
                self.whole.entry(packet.clone()).or_default().insert(hops);
            }
            self.add_packet(packet);
            // One in which the forwarder is to write where it was does not pass as it came.
            for packet in recorded {
                self.whole.entry(packet.clone()).or_default().insert(hops);
                self.add_packet(packet);
            }
        }
    }

    fn add_packet(&mut self, packet: Vec<u8>) {
        if let Some(answer) = answer4(&packet)
            && let Some(key) = key(&answer)
        {
            let like = self.answers.entry(key).or_default();
            if !like.contains(&answer) {
                like.push(answer);
            }
        }
        if let Some(echo) = echo6(&packet, false) {
            self.echoes.insert(echo);
        }
        if let Some(key) = key(&packet) {
            let like = self.by_key.entry(key).or_default();
            if !like.contains(&packet) {
                like.push(packet);
            }
        }
    }

    /// Those that have a packet's key.
    fn like(&self, same: &[u8]) -> &[Vec<u8>] {
        key(same).and_then(|key| self.by_key.get(&key)).map_or(&[], Vec::as_slice)
    }

    fn might_pass(&self, same: &[u8], hops: u8) -> bool {
        self.whole.get(same).is_some_and(|before| before.contains(&hops.wrapping_add(1)))
    }

    /// Whether a packet that goes out came in, all its bytes the same, and has passed one router more.
    pub(super) fn has_passed(&self, packet: &[u8]) -> bool {
        same(packet).is_some_and(|(same, hops)| self.might_pass(&same, hops))
    }

    /// Whether a packet of IPv4 is a piece of one that came in, was longer than so many bytes, and may be cut: with its bytes, where they
    /// were in it.
    pub(super) fn is_piece(&self, packet: &[u8], mtu: usize) -> bool {
        let Some((piece, hops)) = same(packet) else { return false };
        self.like(&piece).iter().any(|whole| {
            whole.len() > mtu
                && self.might_pass(whole, hops)
                && is_piece_of(&piece, whole).is_some()
        })
    }

    /// Whether an error of ours quotes what came in.
    pub(super) fn is_quoted(&self, quoted: &[u8]) -> bool {
        let mut quoted = quoted.to_vec();
        let at = if quoted.first().is_some_and(|first| first >> 4 == 4) { 8 } else { 7 };
        let Some(hops) = quoted.get_mut(at) else { return false };
        *hops = 0;
        forget_sum(&mut quoted).is_some()
            && self.like(&quoted).iter().any(|whole| whole.starts_with(&quoted))
    }

    /// Whether a packet of IPv4 is the answer to an echo request that came in, or a piece of one that is longer than so many bytes.
    pub(super) fn is_answer4(&self, packet: &[u8], mtu: usize) -> bool {
        let Some((mut answer, _)) = same(packet) else { return false };
        let Some((&ip, _)) = Ipv4::of(packet) else { return false };
        let sum = ip.header_len() + 2..ip.header_len() + 4;
        if ip.fragment.get() & Ipv4::OFFSET == 0
            && let Some(sum) = answer.get_mut(sum)
        {
            sum.fill(0);
        }
        let those =
            key(&answer).and_then(|key| self.answers.get(&key)).map_or(&[][..], Vec::as_slice);
        let is_piece = |whole: &Vec<u8>| whole.len() > mtu && is_piece_of(&answer, whole).is_some();
        those.iter().any(|whole| if ip.is_fragment() { is_piece(whole) } else { *whole == answer })
    }

    /// Whether an answer of IPv6 is to an echo request that came in.
    pub(super) fn is_answer6(&self, packet: &[u8]) -> bool {
        let request = same(packet).and_then(|(same, _)| echo6(&same, true));
        request.is_some_and(|request| self.echoes.contains(&request))
    }

    /// Whether an answer by ARP is to somebody who asked for it.
    pub(super) fn has_asked(&self, answer: &Arp) -> bool {
        self.asked.contains(&(answer.target, answer.target_link, answer.sender))
    }
}

/// Whether a piece is of a packet, both without what routers change.
fn is_piece_of(piece: &[u8], whole: &[u8]) -> Option<()> {
    let (&of, &is) = (Ipv4::of(whole)?.0, Ipv4::of(piece)?.0);
    let fields = |ip: &Ipv4| (ip.version, ip.tos, ip.id, ip.protocol, ip.source, ip.destination);
    let place = |ip: &Ipv4| usize::from(ip.fragment.get() & Ipv4::OFFSET) * 8;
    let more = |ip: &Ipv4| ip.fragment.get() & Ipv4::MORE != 0;
    let len = of.header_len();
    let (all, part) = (whole.get(len..)?, piece.get(len..)?);
    let begins = place(&is).checked_sub(place(&of))?;
    let ends = begins + part.len();
    let is_last = ends == all.len();
    // Options that do not belong into all pieces say nothing in those behind the first.
    let mut options = whole.get(Ipv4::LEN..len)?.iter().zip(piece.get(Ipv4::LEN..len)?);
    let right = fields(&of) == fields(&is)
        && of.fragment.get() & Ipv4::DONT == 0
        && is.fragment.get() & !(Ipv4::MORE | Ipv4::OFFSET) == 0
        && all.get(begins..ends)? == part
        && !part.is_empty()
        && (is_last || part.len() % 8 == 0)
        && more(&is) == (!is_last || more(&of))
        && place(&of) + all.len() <= usize::from(u16::MAX)
        && options.all(|(before, now)| before == now || place(&is) > 0 && *now == NOTHING);
    right.then_some(())
}
