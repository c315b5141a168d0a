//! Routes: longest prefixes against a model that compares all of them, at limits, without memory, and beside readers.

use quietline_net::forward::{Address, NextHop, Prefix, Routes, Routes4, Routes6, Via};
use quietline_platform::fault;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// An address family, for tests of both.
trait Family: Address {
    const BITS: u32;
    fn from_bytes(byte: impl FnMut() -> u8) -> Self;
    fn offset(self, by: i8) -> Self;
}

impl Family for Ipv4Addr {
    const BITS: u32 = 32;
    fn from_bytes(mut byte: impl FnMut() -> u8) -> Self {
        Self::from(std::array::from_fn::<u8, 4, _>(|_| byte()))
    }
    fn offset(self, by: i8) -> Self {
        Self::from_bits(self.to_bits().wrapping_add_signed(by.into()))
    }
}

impl Family for Ipv6Addr {
    const BITS: u32 = 128;
    fn from_bytes(mut byte: impl FnMut() -> u8) -> Self {
        Self::from(std::array::from_fn::<u8, 16, _>(|_| byte()))
    }
    fn offset(self, by: i8) -> Self {
        Self::from_bits(self.to_bits().wrapping_add_signed(by.into()))
    }
}

/// An address of few different bytes, so that prefixes have much in common.
fn address<A: Family>(random: &mut Random) -> A {
    let wild = random.below(4) == 0;
    A::from_bytes(|| match random.below(8) {
        _ if wild => random.next() as u8,
        0..=3 => 0,
        4 | 5 => 0x80,
        6 => 0xff,
        _ => 1,
    })
}

fn prefix<A: Family>(random: &mut Random) -> Prefix<A> {
    let len = match random.below(4) {
        0 => random.below(u64::from(A::BITS) + 1),
        1 => u64::from(A::BITS) - random.below(4),
        2 => 8 * random.below(u64::from(A::BITS) / 8 + 1),
        _ => 12 + random.below(16),
    };
    Prefix::of(address(random), len as u32).unwrap()
}

fn hop<A: Family>(random: &mut Random) -> NextHop<A> {
    let via = match random.below(5) {
        0 => Via::Link,
        1 => Via::Local,
        2 => Via::Broadcast,
        3 => Via::Unreachable,
        _ => Via::Gateway(address(random)),
    };
    NextHop { interface: random.below(7) as u32, via }
}

/// All prefixes, compared one by one.
type Model<A> = BTreeMap<Prefix<A>, NextHop<A>>;

fn longest<A: Family>(model: &Model<A>, address: A) -> Option<NextHop<A>> {
    let fits = model.iter().filter(|(prefix, _)| prefix.contains(address));
    fits.max_by_key(|(prefix, _)| prefix.len()).map(|(_, hop)| *hop)
}

/// Addresses at which answers may change: around a prefix's first and last.
fn edges<A: Family>(prefix: Prefix<A>) -> [A; 4] {
    let first = prefix.address();
    // The last address: all bits behind the prefix set, one byte at a time.
    let mut at = 0;
    let all = A::from_bytes(|| {
        at += 8;
        let fixed = prefix.len().saturating_sub(at - 8).min(8);
        0xffu8.checked_shr(fixed).unwrap_or(0)
    });
    let last = add(first, all);
    [first, last, first.offset(-1), last.offset(1)]
}

fn add<A: Family>(one: A, other: A) -> A {
    let bytes = |a: A| -> Vec<u8> {
        match a.to_string().parse().unwrap() {
            std::net::IpAddr::V4(a) => a.octets().to_vec(),
            std::net::IpAddr::V6(a) => a.octets().to_vec(),
        }
    };
    let (one, other) = (bytes(one), bytes(other));
    let mut both = one.iter().zip(&other).map(|(a, b)| a | b);
    A::from_bytes(|| both.next().unwrap())
}

fn check_all<A: Family>(routes: &Routes<A>, model: &Model<A>, random: &mut Random) {
    let guard = routes.domain().read();
    for address in model.keys().flat_map(|prefix| edges(*prefix)) {
        assert_eq!(routes.lookup(&guard, address), longest(model, address), "{address}");
    }
    for _ in 0..50 {
        let address = address(random);
        assert_eq!(routes.lookup(&guard, address), longest(model, address), "{address}");
    }
    drop(guard);
    assert_eq!(routes.len(), model.len());
    let mut listed = BTreeMap::new();
    routes.for_each(|prefix, hop| assert_eq!(listed.insert(prefix, hop), None));
    assert_eq!(&listed, model);
}

fn random_operations<A: Family>(seed: u64, limit: usize) -> u64 {
    let random = &mut Random(seed);
    let routes = Routes::<A>::with_limit(limit).unwrap();
    let mut model = Model::new();
    let mut refused = 0;
    for step in 0..1500 {
        // Fewer and more, in turns.
        let grow = step / 300 % 2 == 0;
        let known = (random.below(2) == 0)
            .then(|| model.keys().nth(random.below(model.len().max(1) as u64) as usize));
        let prefix = known.flatten().copied().unwrap_or_else(|| prefix(random));
        assert_eq!(routes.get(prefix), model.get(&prefix).copied());
        if random.below(10) < if grow { 7 } else { 3 } {
            let hop = hop(random);
            match routes.insert(prefix, hop) {
                Ok(old) => assert_eq!(old, model.insert(prefix, hop), "insert {prefix}"),
                Err(errno) => {
                    assert_eq!(errno, Errno::NOMEM);
                    refused += 1;
                }
            }
        } else {
            assert_eq!(routes.remove(prefix), model.remove(&prefix), "remove {prefix}");
        }
        if step % 50 == 0 {
            check_all(&routes, &model, random);
        } else {
            let guard = routes.domain().read();
            for address in edges(prefix) {
                assert_eq!(
                    routes.lookup(&guard, address),
                    longest(&model, address),
                    "{address} at {step}"
                );
            }
        }
    }
    for prefix in model.keys() {
        assert!(routes.remove(*prefix).is_some());
    }
    let usage = routes.usage();
    assert_eq!((usage.routes, usage.next_hops, usage.chunks, usage.tails), (0, 0, 0, 0));
    refused
}

#[test]
fn as_the_model_says() {
    quietline_testing::isolated!();
    for seed in 0..8 {
        assert_eq!(random_operations::<Ipv4Addr>(seed, 64 << 20), 0, "there is room");
        assert_eq!(random_operations::<Ipv6Addr>(seed, 64 << 20), 0, "there is room");
    }
}

/// With room for some chunks only, insertions are refused, and change nothing; what is given back is used again.
#[test]
fn at_the_limit() {
    quietline_testing::isolated!();
    let refused = |family: fn(u64, usize) -> u64, limit| {
        (100..104).map(|seed| family(seed, limit)).sum::<u64>()
    };
    assert!(refused(random_operations::<Ipv4Addr>, 8 << 10) > 0);
    assert!(refused(random_operations::<Ipv6Addr>, 1 << 10) > 0);
    assert!(refused(random_operations::<Ipv4Addr>, 0) > 0);
}

fn without_memory<A: Family>(seed: u64) {
    let random = &mut Random(seed);
    let mut failed = 0;
    for nth in 1..40 {
        fault::fail_nth(nth);
        let Ok(routes) = Routes::<A>::with_limit(64 << 20) else {
            failed += 1;
            continue;
        };
        let mut model = Model::new();
        for _ in 0..60 {
            let (prefix, hop) = (prefix(random), hop(random));
            match routes.insert(prefix, hop) {
                Ok(_) => drop(model.insert(prefix, hop)),
                Err(_) => failed += 1,
            }
        }
        check_all(&routes, &model, random);
        // Removing needs none at all.
        fault::fail_from(1);
        while let Some((&prefix, &hop)) =
            model.iter().nth(random.below(model.len().max(1) as u64) as usize)
        {
            model.remove(&prefix);
            assert_eq!(routes.remove(prefix), Some(hop));
            assert_eq!(routes.len(), model.len());
        }
        fault::fail_nth(0);
        check_all(&routes, &model, random);
        let left = routes.usage();
        assert_eq!((left.chunks, left.tails), (0, 0), "the last prefix takes its chunks along");
    }
    fault::fail_nth(0);
    assert!(failed > 5, "only {failed} failures");
}

#[test]
fn without_memory_nothing_changes() {
    quietline_testing::isolated!();
    without_memory::<Ipv4Addr>(1);
    without_memory::<Ipv6Addr>(2);
}

#[test]
fn prefixes() {
    quietline_testing::isolated!();
    let bad = Ipv4Addr::new(10, 0, 0, 1);
    assert_eq!(Prefix::new(bad, 8), Err(Errno::INVAL));
    assert_eq!(Prefix::new(bad, 33), Err(Errno::INVAL));
    assert_eq!(Prefix::of(bad, 33), Err(Errno::INVAL));
    assert_eq!(Prefix::of(bad, 8).unwrap().to_string(), "10.0.0.0/8");
    assert!(Prefix::new(Ipv4Addr::UNSPECIFIED, 0).unwrap().is_empty());
    assert!(Prefix::of(Ipv6Addr::LOCALHOST, 128).unwrap().contains(Ipv6Addr::LOCALHOST));
}

/// A writer adds and takes away prefixes around and inside one that stays; each reader's answer must be one of those that may be
/// there for its address, and never none.
fn beside_readers<A: Family>(address_of: impl Fn(u8, u8) -> A + Sync, lens: [u32; 4]) {
    let routes = Routes::<A>::with_limit(64 << 20).unwrap();
    let hop = |interface| NextHop { interface, via: Via::Link };
    let stays = Prefix::of(address_of(0, 0), lens[0]).unwrap();
    routes.insert(stays, hop(0)).unwrap();
    let prefixes: Vec<(Prefix<A>, u32)> = (0..60u32)
        .map(|i| {
            let len = lens[1 + i as usize % 3];
            (Prefix::of(address_of(i as u8 % 5 * 51, i as u8 % 7), len).unwrap(), i + 1)
        })
        .collect();
    let (done, looked) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = if cfg!(debug_assertions) { 4000 } else { 40_000 };
    thread::scope(|scope| {
        for seed in 0..2 {
            let (routes, prefixes, done, looked, address_of) =
                (&routes, &prefixes, &done, &looked, &address_of);
            scope.spawn(move || {
                let random = &mut Random(seed);
                while !done.load(Ordering::Relaxed) {
                    let guard = routes.domain().read();
                    for _ in 0..64 {
                        let address = address_of(random.next() as u8, random.below(8) as u8);
                        let found =
                            routes.lookup(&guard, address).expect("a route stays").interface;
                        let may = |(prefix, hop): &&(Prefix<A>, u32)| {
                            *hop == found && prefix.contains(address)
                        };
                        assert!(
                            found == 0 || prefixes.iter().any(|it| may(&it)),
                            "{address}: {found}"
                        );
                    }
                    looked.fetch_add(64, Ordering::Relaxed);
                }
            });
        }
        let random = &mut Random(99);
        for _ in 0..rounds {
            let (prefix, number) = prefixes[random.below(60) as usize];
            if random.below(2) == 0 {
                routes.insert(prefix, hop(number)).unwrap();
            } else {
                routes.remove(prefix);
            }
        }
        while looked.load(Ordering::Relaxed) < 10_000 {
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    prefixes.iter().for_each(|(prefix, _)| {
        assert!(routes.remove(*prefix).is_none_or(|hop| hop.interface > 0))
    });
    let usage = routes.usage();
    assert_eq!((usage.routes, usage.chunks, usage.tails), (1, 0, usize::from(lens[0] > 16)));
}

#[test]
fn readers_beside_a_writer() {
    quietline_testing::isolated!();
    beside_readers(|a, b| Ipv4Addr::new(10, b & 1, a, b), [8, 16, 24, 32]);
    beside_readers(
        |a, b| Ipv6Addr::new(0x2001, 0xdb8, a.into(), 0, 0, 0, b.into(), a.into()),
        [32, 48, 110, 128],
    );
}

/// A million routes as large tables have them: most of 24 bits (48 of IPv6), beside longer and shorter ones.
fn a_million<A: Family>(mut prefix: impl FnMut(u64, &mut Random) -> Prefix<A>, most: usize) {
    let random = &mut Random(7);
    let routes = Routes::<A>::new().unwrap();
    let n: u64 = if cfg!(debug_assertions) { quietline_testing::scaled(50_000) } else { 1_000_000 };
    let mut entered: BTreeMap<Prefix<A>, u32> = BTreeMap::new();
    let mut i = 0;
    while entered.len() < n as usize {
        let prefix = prefix(i, random);
        let interface = random.below(200) as u32;
        entered.insert(prefix, interface);
        routes.insert(prefix, NextHop { interface, via: Via::Link }).unwrap();
        i += 1;
    }
    let usage = routes.usage();
    println!("{usage:?}: {} bytes for a route", usage.bytes / usage.routes);
    assert_eq!((usage.routes, usage.next_hops), (n as usize, 200));
    assert!(usage.bytes < most, "{usage:?}");
    let guard = routes.domain().read();
    for _ in 0..20_000 {
        let near = *entered.keys().nth(random.below(1000) as usize).unwrap();
        let any = A::from_bytes(|| random.next() as u8);
        for address in edges(near).into_iter().chain([any]) {
            let expected =
                (0..=A::BITS).rev().find_map(|len| entered.get(&Prefix::of(address, len).unwrap()));
            assert_eq!(routes.lookup(&guard, address).map(|hop| hop.interface), expected.copied());
        }
    }
    drop(guard);
    for prefix in entered.keys() {
        assert!(routes.remove(*prefix).is_some());
    }
    let usage = routes.usage();
    assert_eq!((usage.routes, usage.chunks, usage.tails), (0, 0, 0));
}

#[test]
fn a_million_of_ipv4() {
    quietline_testing::isolated!();
    let len = |random: &mut Random| match random.below(100) {
        0..=59 => 24,
        60..=94 => 16 + random.below(8) as u32,
        95..=98 => 25 + random.below(8) as u32,
        _ => 8 + random.below(8) as u32,
    };
    let random_prefix = |_, random: &mut Random| {
        let len = len(random);
        Prefix::of(Ipv4Addr::from_bits(random.next() as u32), len).unwrap()
    };
    a_million::<Ipv4Addr>(random_prefix, 256 << 20);
}

#[test]
fn a_million_of_ipv6() {
    quietline_testing::isolated!();
    let random_prefix = |i: u64, random: &mut Random| {
        // Blocks of 32 bits from one of 3, each cut into some of 48 and fewer of 64.
        let block = 0x2000 << 112 | u128::from(random.below(40_000) * 0x9E3_779B % (1 << 29)) << 96;
        let len = [48, 48, 40, 44, 64, 32, 128][i as usize % 7];
        Prefix::of(Ipv6Addr::from_bits(block | u128::from(random.next()) << 32), len).unwrap()
    };
    a_million::<Ipv6Addr>(random_prefix, 400 << 20);
}

#[test]
fn both_names() {
    quietline_testing::isolated!();
    assert!(Routes4::new().unwrap().is_empty() && Routes6::new().unwrap().is_empty());
}

fn in_ipv6(text: &str) -> Prefix<Ipv6Addr> {
    let (address, len) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), len.parse().unwrap()).unwrap()
}

fn by(interface: u32) -> NextHop<Ipv6Addr> {
    NextHop { interface, via: Via::Link }
}

/// The way to prefixes is as long as there are places where they part; and again when one that parted from them has gone.
#[test]
fn what_prefixes_have_in_common_is_skipped() {
    quietline_testing::isolated!();
    let routes = Routes6::new().unwrap();
    routes.insert(in_ipv6("2001:db8::1/128"), by(1)).unwrap();
    assert_eq!((routes.usage().chunks, routes.usage().tails), (0, 1));
    routes.insert(in_ipv6("2001:db8::2/128"), by(2)).unwrap();
    let two = routes.usage();
    assert_eq!((two.chunks, two.tails), (1, 1), "one place, and a tail that leads there");
    // Part from them in between; end in between; end where they part.
    for other in ["2001:db8:0:1::/64", "2001:db8::/62", "2001:db8::/124", "2001::/17"] {
        routes.insert(in_ipv6(other), by(3)).unwrap();
        assert_eq!(routes.usage().chunks, 2, "{other}");
        routes.remove(in_ipv6(other)).unwrap();
        assert_eq!(
            (routes.usage().chunks, routes.usage().tails),
            (two.chunks, two.tails),
            "{other}"
        );
        let guard = routes.domain().read();
        for last in 0..4 {
            let found = routes.lookup(&guard, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
            assert_eq!(found, [None, Some(by(1)), Some(by(2)), None][usize::from(last)]);
        }
    }
}

/// A chunk that could not become a tail, for lack of memory, and then loses its last prefix, hides nothing that is around it.
#[test]
fn a_chunk_that_had_to_stay() {
    quietline_testing::isolated!();
    let routes = Routes6::with_limit(4096).unwrap();
    let [inside, beside, around] =
        ["2001:db8::/48", "2001:db8:1::/48", "2001:db8::/44"].map(in_ipv6);
    for (prefix, interface) in [(inside, 1), (beside, 2), (around, 3)] {
        routes.insert(prefix, by(interface)).unwrap();
    }
    let full = (0x3000..).find(|first| {
        let one = Ipv6Addr::new(*first, 0, 0, 0, 0, 0, 0, 1);
        routes.insert(Prefix::new(one, 128).unwrap(), by(9)).is_err()
    });
    assert!(full.is_some_and(|full| full > 0x3010), "there is room for some");
    let find = |third| {
        let guard = routes.domain().read();
        routes.lookup(&guard, Ipv6Addr::new(0x2001, 0xdb8, third, 0, 0, 0, 0, 1))
    };
    let chunks = routes.usage().chunks;
    routes.remove(inside).unwrap();
    assert_eq!(routes.usage().chunks, chunks, "there was no memory for a tail");
    assert_eq!([0, 1, 2, 16].map(find), [Some(by(3)), Some(by(2)), Some(by(3)), None]);
    routes.remove(beside).unwrap();
    assert_eq!([0, 1, 2, 16].map(find), [Some(by(3)), Some(by(3)), Some(by(3)), None]);
    routes.remove(around).unwrap();
    assert_eq!([0, 1, 2, 16].map(find), [None; 4]);
    assert_eq!(routes.usage().chunks, 0);
}

/// A change that waits for a reader holds no lock meanwhile: all that takes it may be asked for inside a section.
#[test]
fn a_reader_asks_while_a_change_waits() {
    quietline_testing::isolated!();
    // With room for one tail.
    let routes: &'static Routes<Ipv4Addr> = Box::leak(Box::new(Routes4::with_limit(32).unwrap()));
    let [gone, new] =
        [[10, 1, 1, 1], [10, 2, 2, 2]].map(|host| Prefix::new(Ipv4Addr::from(host), 32).unwrap());
    let hop = NextHop { interface: 1, via: Via::Link };
    routes.insert(gone, hop).unwrap();
    let (inside, is_inside) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let (go, gone_on) = mpsc::channel();
    thread::spawn(move || {
        let guard = routes.domain().read();
        inside.send(()).unwrap();
        // Until the other one has taken out what this one may see, and waits to use it again.
        gone_on.recv().unwrap();
        let mut listed = 0;
        routes.for_each(|_, _| listed += 1);
        let asked =
            (routes.get(gone), routes.len(), routes.is_empty(), routes.usage().tails, listed);
        assert!(format!("{routes:?}").contains("routes: 0"));
        drop(guard);
        done.send(asked).unwrap();
    });
    is_inside.recv().unwrap();
    assert_eq!(routes.remove(gone), Some(hop));
    let (entered, is_entered) = mpsc::channel();
    thread::spawn(move || entered.send(routes.insert(new, hop)).unwrap());
    assert!(
        is_entered.recv_timeout(Duration::from_millis(100)).is_err(),
        "the only tail may still be looked at"
    );
    go.send(()).unwrap();
    let asked = is_done
        .recv_timeout(Duration::from_secs(120))
        .expect("the reader does not wait for the change");
    assert_eq!(asked, (None, 0, true, 0, 0));
    let entered = is_entered
        .recv_timeout(Duration::from_secs(120))
        .expect("the change goes on behind the reader");
    assert_eq!((entered, routes.get(new), routes.usage().tails), (Ok(None), Some(hop), 1));
}
