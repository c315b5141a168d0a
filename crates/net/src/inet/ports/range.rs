//! Which ports are given out unasked, to whom, and which lie in a bucket together.
//!
//! ```text
//!   offset:    0   1   2   3 ...  126 127 | 128 129 ...
//!   bucket:   256 257 256 257 ... 256 257 | 258 259 ...      even ones for who connects, odd ones for who binds
//!             [ CPU 0's                   ...   ] [ CPU 1's     ...
//! ```
//!
//! Who connects takes the even ports of his CPU's part one after the other: as long as one of the next few is free, no
//! other CPU's connections write the lines of their buckets. Who binds is to be found by others, and gets an odd port from anywhere, so
//! that two such sockets seldom have their bucket in common.

use quietline_platform::cpu;

/// The first port that is given out unasked, and the last (`ip_local_port_range`).
pub(super) const EPHEMERAL: (u16, u16) = (32768, 60999);

/// Buckets of the ports that have to be asked for: neighbours lie in different ones.
const ASKED: usize = 256;
/// Ports of a block that are of one parity: those of a bucket.
const HALF: u32 = 64;
const BLOCKS: u32 = ALL.div_ceil(2 * HALF);
const ALL: u32 = (EPHEMERAL.1 - EPHEMERAL.0) as u32 + 1;

/// All buckets.
pub(super) const BUCKETS: usize = if cfg!(loom) { 1 } else { ASKED + 2 * BLOCKS as usize };

/// How many of its own a CPU looks at, before it looks elsewhere.
const OWN: u32 = 8;
/// At how many ports of the right parity it looks elsewhere, before it looks at all. Few: when most are taken, each look is in vain.
const SOME: u32 = 8;

/// In which bucket a port is.
#[inline]
pub(super) fn bucket(port: u16) -> usize {
    let bucket = if (EPHEMERAL.0..=EPHEMERAL.1).contains(&port) {
        let offset = u32::from(port - EPHEMERAL.0);
        ASKED + (offset / (2 * HALF) * 2 + offset % 2) as usize
    } else {
        usize::from(port) % ASKED
    };
    bucket % BUCKETS
}

fn port(offset: u32) -> u16 {
    EPHEMERAL.0 + offset as u16
}

/// Some ports of a parity from anywhere, and then all ports.
fn scattered(number: u32, parity: u32) -> impl Iterator<Item = u16> {
    // The golden ratio's multiples: of any few numbers in a row, and of those that CPUs begin with, none come to lie close together.
    let start = ((u64::from(number.wrapping_mul(0x9e37_79b9)) * u64::from(ALL)) >> 32) as u32;
    let some = (0..SOME).map(move |step| port(((start + step * (ALL / SOME)) % ALL) & !1 | parity));
    some.chain((0..ALL).map(move |step| port((start + step) % ALL)))
}

/// The ports for a socket that is bound, in the order in which they are tried; `number` is the next of the CPU's.
pub(super) fn to_bind(number: u32) -> impl Iterator<Item = u16> {
    scattered(number, 1)
}

/// Those for one that connects.
pub(super) fn to_connect(number: u32) -> impl Iterator<Item = u16> {
    own(number, cpu::current() as u32, cpu::nr_cpus() as u32).chain(scattered(number, 0))
}

/// The next of a CPU's own.
fn own(number: u32, cpu: u32, cpus: u32) -> impl Iterator<Item = u16> {
    // Whole blocks, and no part of the last one, which is not whole.
    let blocks = (BLOCKS - 1) / cpus.max(1);
    let (first, len) = match blocks {
        0 => (cpu % (BLOCKS - 1) * HALF, HALF),
        _ => (cpu % cpus * blocks * HALF, blocks * HALF),
    };
    (0..OWN).map(move |step| port((first + number.wrapping_add(step) % len) * 2))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_port_is_tried() {
        for number in [0, 1, 77_777, u32::MAX] {
            for parity in [0, 1] {
                let ports: Vec<u16> = scattered(number, parity).collect();
                assert_eq!(ports.len() as u32, SOME + ALL);
                assert_eq!(ports.iter().copied().collect::<BTreeSet<_>>().len() as u32, ALL);
                assert!(ports.iter().all(|port| (EPHEMERAL.0..=EPHEMERAL.1).contains(port)));
                assert!(ports[..SOME as usize].iter().all(|port| u32::from(port % 2) == parity));
            }
        }
    }

    #[test]
    fn cpus_connect_from_buckets_of_their_own() {
        for cpus in [1, 2, 16, 128, 220] {
            let mut whose = vec![None; BUCKETS];
            for cpu in 0..cpus {
                for number in (0..40_000).chain(u32::MAX - 100..=u32::MAX) {
                    let port = own(number, cpu, cpus).next().unwrap();
                    assert_eq!(port % 2, 0);
                    let owner = whose[bucket(port)].get_or_insert(cpu);
                    assert_eq!(*owner, cpu, "{port} of {cpus} CPUs");
                }
            }
        }
        // Where there are more CPUs than blocks some share one.
        for cpu in [0, 219, 220, 511] {
            assert!(own(5, cpu, 512).all(|port| (EPHEMERAL.0..=EPHEMERAL.1).contains(&port)));
        }
    }

    #[test]
    fn neighbours_that_were_asked_for_lie_apart() {
        assert_ne!(bucket(80), bucket(81));
        assert!((0..=u16::MAX).all(|port| bucket(port) < BUCKETS));
    }
}
