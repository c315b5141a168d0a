//! What advertisements of neighbours say, and do not say (RFC 4861, section 7.2.5), and what their questions do (section 7.2.3).

use super::frames::*;
use super::neighbours::neighbour;
use quietline_net::forward::header::{Link, protocol};
use quietline_net::forward::*;
use quietline_net::packet::{DropReason, Packets};

const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const MOVED: Link = [2, 9, 9, 9, 9, 9];

/// B6 advertises itself; what goes out then.
fn says<'n>(
    of: &Forwarder<'n>,
    packets: &'n Packets,
    flags: u8,
    link: Option<Link>,
    at: u64,
) -> Vec<(u32, Vec<u8>)> {
    let body = link.map_or(B6.octets().to_vec(), |link| neighbour(2, B6, link));
    let mut frame = icmp6(RIGHT, B6, RIGHT6, 255, 136, [flags, 0, 0, 0], &body);
    frame[6..12].copy_from_slice(&B);
    handle(of, packets, 1, &[frame], at)
}

/// B6 asks for RIGHT6; what goes out then, without the answer: it goes to `to`, behind a question to the same if one is `asked`.
fn asks<'n>(
    of: &Forwarder<'n>,
    packets: &'n Packets,
    link: Link,
    (to, asked): (Link, bool),
    at: u64,
) -> Vec<(u32, Vec<u8>)> {
    let mut frame = icmp6(RIGHT, B6, RIGHT6, 255, 135, [0; 4], &neighbour(1, RIGHT6, link));
    frame[6..12].copy_from_slice(&link);
    let mut sent = handle(of, packets, 1, &[frame], at);
    let (_, answer) = sent.pop().expect("an answer");
    assert_eq!((&answer[..6], answer[54]), (&to[..], 136), "{at}");
    let question = sent.pop_if(|(_, bytes)| is_question(bytes));
    assert_eq!(question.map(|(_, bytes)| bytes[..6].to_vec()), asked.then(|| to.to_vec()), "{at}");
    sent
}

/// Where a packet for behind B6 goes, and whether somebody is asked before, who is the same.
fn next<'n>(of: &Forwarder<'n>, packets: &'n Packets, at: u64) -> (Link, bool) {
    let sent = handle(of, packets, 0, &[udp6(A6, FAR6, 64, b"far")], at);
    let to: Link = sent.last().expect("something goes out").1[..6].try_into().unwrap();
    assert!(sent.iter().all(|(interface, bytes)| *interface == 1 && bytes[..6] == to), "{sent:x?}");
    let asks = is_question(&sent[0].1);
    assert!(sent.len() == 1 || sent.len() == 2 && asks && !is_question(&sent[1].1), "{sent:x?}");
    (to, asks)
}

fn is_question(frame: &[u8]) -> bool {
    frame[12..14] == [0x86, 0xdd] && (frame[20], frame[54]) == (protocol::ICMPV6, 135)
}

/// With each set of flags, with the link address that is known, with another one, and without.
#[test]
fn all_flags() {
    let packets = Packets::new().unwrap();
    let old = 10 + u64::from(REACHABLE) * 1000;
    let known = || {
        let of = forwarder(&packets);
        next(&of, &packets, 0);
        assert_eq!(says(&of, &packets, SOLICITED, Some(B), 10).len(), 1, "what has waited");
        assert_eq!(next(&of, &packets, 20), (B, false));
        of
    };

    // One that is asked for must say where it is; then it is there, if it was asked.
    let of = forwarder(&packets);
    next(&of, &packets, 0);
    for flags in [SOLICITED, SOLICITED | OVERRIDE, 0] {
        assert!(says(&of, &packets, flags, None, 1).is_empty());
        assert_eq!((of.neighbours(), of.waiting()), ([0, 0], 1));
    }
    assert_eq!(says(&of, &packets, 0, Some(B), 2).len(), 1);
    assert_eq!(next(&of, &packets, 3), (B, true), "nobody has heard that it hears us");
    // One that nobody has asked for is not entered.
    let of = forwarder(&packets);
    for link in [None, Some(B)] {
        assert!(says(&of, &packets, SOLICITED | OVERRIDE, link, 1).is_empty());
    }
    assert_eq!(of.neighbours(), [0, 0]);

    // One that answers is there for another time, whether it says where or not; a flow of one way lasts.
    let of = known();
    let mut at = old;
    for (round, link) in [None, Some(B), None, None].into_iter().enumerate() {
        for _ in 0..TRIES - 1 {
            assert_eq!(next(&of, &packets, at), (B, true), "{round}");
            at += 1000;
        }
        assert!(says(&of, &packets, SOLICITED, link, at).is_empty());
        assert_eq!(
            next(&of, &packets, at + u64::from(REACHABLE) * 1000 - 1010),
            (B, false),
            "{round}"
        );
        at += u64::from(REACHABLE) * 1000;
    }
    // What nobody has asked for does not prolong it.
    for (flags, link) in [(0, None), (0, Some(B)), (OVERRIDE, None), (OVERRIDE, Some(B))] {
        let of = known();
        says(&of, &packets, flags, link, 9_000);
        assert_eq!(next(&of, &packets, old - 1010), (B, false), "{flags:x} {link:?}");
        assert_eq!(next(&of, &packets, old), (B, true), "{flags:x} {link:?}");
    }

    // Another link address: taken if it is to replace the known one, and there if it was asked; else the known one is asked.
    for (flags, to, asks) in [
        (SOLICITED | OVERRIDE, MOVED, false),
        (OVERRIDE, MOVED, true),
        (SOLICITED, B, true),
        (0, B, true),
    ] {
        let of = known();
        says(&of, &packets, flags, Some(MOVED), 9_000);
        assert_eq!(next(&of, &packets, 9_010), (to, asks), "{flags:x}");
    }
    // Who says so again and again does not make us ask more often than once a second, and so give up one that is there.
    let of = known();
    for i in 0..20 {
        says(&of, &packets, 0, Some(MOVED), 9_000 + i);
        assert_eq!(next(&of, &packets, 9_000 + i), (B, i == 0));
    }
    // An address that no station has is not none.
    let of = known();
    let before = of.counts()[DropReason::BadHeader];
    assert_eq!(next(&of, &packets, old), (B, true));
    says(&of, &packets, SOLICITED | OVERRIDE, Some([3, 0, 0, 0, 0, 1]), old);
    assert_eq!(of.counts()[DropReason::BadHeader], before + 1);
    assert_eq!(next(&of, &packets, old + 1000), (B, true));
    assert_eq!(packets.head_stats().active, 0);
}

/// Who asks is not there for it: what he says of his link address is taken, and he is asked when it is used.
#[test]
fn questions() {
    let packets = Packets::new().unwrap();
    let old = 10 + u64::from(REACHABLE) * 1000;
    let known = || {
        let of = forwarder(&packets);
        next(&of, &packets, 0);
        assert_eq!(says(&of, &packets, SOLICITED, Some(B), 10).len(), 1, "what has waited");
        of
    };

    // New: what has waited goes, and the answer is the first use.
    let of = forwarder(&packets);
    next(&of, &packets, 0);
    assert_eq!(asks(&of, &packets, B, (B, true), 10).len(), 1, "what has waited");
    assert_eq!((of.neighbours(), of.waiting()), ([0, 1], 0));
    assert_eq!(next(&of, &packets, 20), (B, false), "asked in this second");
    assert_eq!(next(&of, &packets, 1_010), (B, true), "nobody has heard that it hears us");
    assert!(says(&of, &packets, SOLICITED, None, 1_020).is_empty());
    assert_eq!(next(&of, &packets, 30_010), (B, false));
    assert_eq!(next(&of, &packets, 31_010), (B, true));

    // Known there: reachable for as long as before.
    let of = known();
    assert!(asks(&of, &packets, B, (B, false), 9_000).is_empty());
    assert_eq!(next(&of, &packets, old - 1010), (B, false));
    assert_eq!(next(&of, &packets, old), (B, true));
    // Nor is it forgotten any later if it asks, and does not answer.
    for i in 1..u64::from(TRIES) {
        assert!(asks(&of, &packets, B, (B, true), old + i * 1000).is_empty());
    }
    asks(&of, &packets, B, (B, false), old + u64::from(TRIES) * 1000);
    assert_eq!(of.neighbours(), [0, 0]);

    // Another link address is taken.
    let of = known();
    assert!(asks(&of, &packets, MOVED, (MOVED, true), 9_000).is_empty());
    assert_eq!(next(&of, &packets, 9_010), (MOVED, false), "asked in this second");
    assert_eq!(next(&of, &packets, 10_010), (MOVED, true));
    // But not in the place of one that was entered for good.
    let of = with_neighbours(&packets);
    assert!(asks(&of, &packets, MOVED, (B, false), 9_000).is_empty());
    assert_eq!(next(&of, &packets, 9_000_000), (B, false));
    assert_eq!(packets.head_stats().active, 0);
}
