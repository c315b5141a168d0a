//! Sums that are finished, beside those that are made in one piece.

use super::finish;
use crate::forward::checksum::{Sum, checksum, pseudo6};

/// A frame whose checksum has the pseudo-header's sum in it, and where the segment begins.
fn frame(v6: bool, protocol: u8, options: &[u8], payload: usize) -> (Vec<u8>, usize) {
    let segment: Vec<u8> = (0..20 + payload).map(|i| (i * 7 + 3) as u8).collect();
    let len = segment.len() as u16;
    let mut frame = vec![2; 12];
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((len + options.len() as u16).to_be_bytes());
        frame.extend([if options.is_empty() { protocol } else { 60 }, 64]);
        frame.extend((0..32).map(|i| i * 5));
    } else {
        frame.extend([0x08, 0x00, 0x45 + (options.len() / 4) as u8, 0]);
        frame.extend((20 + options.len() as u16 + len).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    frame.extend(options);
    let at = frame.len();
    frame.extend(segment);
    let field = at + if protocol == 6 { 16 } else { 6 };
    let pseudo = pseudo(&frame, at, protocol).checksum();
    frame[field..field + 2].copy_from_slice(&pseudo.map(|byte| !byte));
    // Padding, which is no part of it.
    frame.extend([0x77; 5]);
    (frame, at)
}

fn pseudo(frame: &[u8], at: usize, protocol: u8) -> Sum {
    let len = (frame.len() - at) as u16;
    if frame[12] == 0x86 {
        let address = |at: usize| frame[at..at + 16].try_into().unwrap();
        return pseudo6(&address(22), &address(38), len.into(), protocol);
    }
    Sum::default().with(&frame[26..34]).with(&[0, protocol]).with(&len.to_be_bytes())
}

/// The outer packet of a tunnel: its sum is right, or there is none, and the one that is not made is further inside.
#[test]
fn what_is_not_a_pseudo_header_s_sum_is_left() {
    for (v6, protocol) in [(false, 6), (false, 17), (true, 6), (true, 17)] {
        let (mut whole, at) = frame(v6, protocol, &[], 100);
        assert!(finish(&mut whole));
        assert!(!finish(&mut whole), "twice");
        let field = at + if protocol == 6 { 16 } else { 6 };
        whole[field..field + 2].fill(0);
        let before = whole.clone();
        assert!(!finish(&mut whole) && whole == before);
    }
}

#[test]
fn sums_are_as_if_made_in_one_piece() {
    let options6 = [6, 0, 1, 4, 0, 0, 0, 0];
    let options6_udp = [17, 0, 1, 4, 0, 0, 0, 0];
    for (v6, protocol, options) in [
        (false, 6, &[][..]),
        (false, 17, &[]),
        (false, 6, &[1, 1, 1, 1]),
        (true, 6, &[]),
        (true, 17, &[]),
        (true, 6, &options6),
        (true, 17, &options6_udp),
    ] {
        for payload in [0, 1, 2, 3, 700, 1401] {
            let (mut frame, at) = frame(v6, protocol, options, payload);
            let end = frame.len() - 5;
            let before = frame.clone();
            assert!(!pseudo(&frame[..end], at, protocol).with(&frame[at..end]).is_right());
            assert!(finish(&mut frame));
            assert!(
                pseudo(&frame[..end], at, protocol).with(&frame[at..end]).is_right(),
                "{protocol} {payload}"
            );
            let changed = before.iter().zip(&frame).filter(|(a, b)| a != b).count();
            assert!((1..=2).contains(&changed), "{changed} bytes changed");
        }
    }
}

#[test]
fn no_sum_of_udp_is_zero() {
    let (mut frame, at) = frame(false, 17, &[], 2);
    // What makes the whole one of all ones, whose checksum is zero.
    let end = frame.len() - 5;
    frame[end - 2..end].fill(0);
    let rest = checksum(&frame[at..end]);
    frame[end - 2..end].copy_from_slice(&rest);
    assert_eq!(checksum(&frame[at..end]), [0, 0]);
    assert!(finish(&mut frame));
    assert_eq!(frame[at + 6..at + 8], [0xff, 0xff]);
}

#[test]
fn what_is_not_known_is_left() {
    let (whole, at) = frame(true, 6, &[], 10);
    for len in 0..at + 18 {
        let mut short = whole[..len].to_vec();
        assert!(!finish(&mut short) && short == whole[..len], "{len}");
    }
    let (mut other, _) = frame(false, 6, &[], 10);
    other[23] = 132;
    assert!(!finish(&mut other));
    let mut no_ip = whole.clone();
    no_ip[12] = 0x88;
    assert!(!finish(&mut no_ip));
    // A header that is longer than the packet.
    let (mut wrong, _) = frame(false, 6, &[], 10);
    wrong[16..18].copy_from_slice(&[0, 10]);
    assert!(!finish(&mut wrong));
}
