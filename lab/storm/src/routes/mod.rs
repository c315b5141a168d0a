//! Tables of routes under random changes, held against a map of prefixes that is asked for each length, longest first.
//!
//! Addresses have few different bytes, so that prefixes are inside each other and part at all bits. Held against the model: what
//! a lookup finds, at the edges of what has just changed and anywhere; what inserting and removing give back; and that a
//! change which met a limit or an injected failure of memory has changed nothing. In the end nothing is left.

use crate::input::Input;
use quietline_net::forward::{Address, NextHop, Prefix, Routes, Via};
use quietline_platform::fault;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Changes and lookups.
    pub operations: u64,
    /// Routes entered or changed.
    pub entered: u64,
    /// Changes that lacked memory.
    pub failed: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.entered += other.entered;
        self.failed += other.failed;
    }
}

/// Does what the bytes say, until there are none left.
///
/// # Panics
/// When the table differs from the model.
pub fn run(bytes: &[u8]) -> Tally {
    let mut input = Input::new(bytes);
    match input.below(2) {
        0 => play::<Ipv4Addr>(&mut input, 32, |octets| {
            Ipv4Addr::from_octets(*octets.first_chunk().expect("sixteen"))
        }),
        _ => play::<Ipv6Addr>(&mut input, 128, Ipv6Addr::from_octets),
    }
}

/// An address of few different bytes.
fn octets(input: &mut Input<'_>, bits: usize) -> [u8; 16] {
    let mut octets = [0; 16];
    for octet in &mut octets[..bits / 8] {
        *octet = match input.byte() {
            wild @ 0..32 => (wild * 8) as u8,
            32..160 => 0,
            160..200 => 0x80,
            200..230 => 1,
            _ => 0xff,
        };
    }
    octets
}

fn play<A: Address>(input: &mut Input<'_>, bits: usize, address: impl Fn([u8; 16]) -> A) -> Tally {
    let limit = input.pick(&[1 << 30, 1 << 30, 16 << 10, 2 << 10]);
    let routes = Routes::<A>::with_limit(limit).expect("there is memory");
    let mut model: BTreeMap<Prefix<A>, NextHop<A>> = BTreeMap::new();
    let mut tally = Tally::default();
    let mut last = Vec::new();
    while !input.is_empty() {
        tally.operations += 1;
        let mut octets = octets(input, bits);
        let known = (input.one_in(3) && !model.is_empty())
            .then(|| model.keys().nth(input.below(model.len().min(256))).copied())
            .flatten();
        let prefix = known.unwrap_or_else(|| {
            Prefix::of(address(octets), input.below(bits + 1) as u32)
                .expect("a length of the family's")
        });
        match input.below(8) {
            0..4 => {
                let via = match input.below(4) {
                    0 => Via::Link,
                    1 => Via::Unreachable,
                    _ => Via::Gateway(address(octets)),
                };
                let hop = NextHop { interface: input.below(5) as u32, via };
                if input.one_in(16) {
                    fault::fail_nth(1);
                }
                let done = routes.insert(prefix, hop);
                fault::fail_nth(0);
                match done {
                    Ok(before) => {
                        assert_eq!(before, model.insert(prefix, hop), "insert {prefix}");
                        tally.entered += 1;
                    }
                    Err(_) => tally.failed += 1,
                }
            }
            4..6 => assert_eq!(routes.remove(prefix), model.remove(&prefix), "remove {prefix}"),
            6 => assert_eq!(routes.get(prefix), model.get(&prefix).copied(), "get {prefix}"),
            _ => last.clear(),
        }
        // At and behind what has changed, where it has changed before, and at a bit's distance.
        last.push(prefix.address());
        last.push(address(octets));
        let bit = input.below(bits);
        octets[bit / 8] ^= 0x80 >> (bit % 8);
        last.push(address(octets));
        let guard = routes.domain().read();
        for address in last.iter().rev().take(8) {
            let longest = (0..=bits as u32).rev().find_map(|len| {
                model.get(&Prefix::of(*address, len).expect("a length of the family's"))
            });
            assert_eq!(routes.lookup(&guard, *address), longest.copied(), "lookup {address}");
        }
    }
    assert_eq!(routes.len(), model.len());
    let mut listed = BTreeMap::new();
    routes.for_each(|prefix, hop| assert_eq!(listed.insert(prefix, hop), None, "{prefix} twice"));
    assert!(listed == model, "what is listed is what is there");
    // Removing needs no memory.
    fault::fail_from(1);
    for (prefix, hop) in &model {
        assert_eq!(routes.remove(*prefix), Some(*hop), "remove {prefix}");
    }
    fault::fail_nth(0);
    let usage = routes.usage();
    assert_eq!(
        (usage.routes, usage.next_hops, usage.chunks, usage.tails),
        (0, 0, 0, 0),
        "nothing is left"
    );
    tally
}
