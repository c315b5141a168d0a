//! Lookups beside changes of routes, in every interleaving: for its address a lookup gives the answer before or after each change,
//! and a next hop of which no word is another's.
//!
//! The table, its changes, next hops and pools are the library's own source, with RCU. Addresses have six bits here, of which each step
//! of a walk looks at two, and there are so few next hops and tails that what was given back has to be used again.
//!
//! # Faults that were planted
//!
//! In `routes/table.rs`: `store` or `load` relaxed (nearly all models; `a_chunk_goes` then does not end).
//! In `pool.rs`: what was given back is free at once, or has a number of the past, or its number is not looked at (`a_next_hop_is_used_again`,
//! `a_route_goes`, `a_chunk_comes`, `a_chunk_goes`). In `routes.rs`: a next hop is given back before its route is taken out
//! (`a_route_goes_beside_grace_periods`, and only there: it takes somebody else who moves grace periods on). In `change.rs`: a
//! chunk that is not filled with what is around it (`a_chunk_comes`); one that is emptied before what is left is built (`a_chunk_goes`);
//! a tail that is taken out without what was around it (`a_route_goes`). In `routes.rs`: waiting for readers under the lock
//! (`a_reader_asks_while_a_change_waits`).
//!
//! # Limits
//!
//! Two forced switches where there are three threads. How a segment of words is made is not modelled (`OnceLock`).
#![cfg(loom)]

/// As in the crate.
#[path = "../src/forward"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod forward {
    pub mod address;
    pub mod pool;
    pub mod routes;
    pub mod words;

    use address::{Address, Sealed};
    use core::fmt;
    use quietline_platform::{cpu, thread};
    use quietline_sync::rcu::{Domain, Guard};
    use routes::{NextHop, Prefix, Routes, Via};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// An address of six bits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Six(u32);

    impl fmt::Display for Six {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:06b}", self.0)
        }
    }

    impl Address for Six {}

    impl Sealed for Six {
        const WIDTH: u32 = 6;
        const STRIDE: u32 = 2;
        const ZERO: Self = Self(0);

        fn bits_at(self, at: u32, n: u32) -> usize {
            (((self.0 << at) & 63) >> (6 - n)) as usize
        }

        fn with_bits(self, at: u32, n: u32, bits: usize) -> Self {
            Self(self.0 | (bits as u32) << (6 - at - n))
        }

        fn prefix(self, len: u32) -> Self {
            Self(self.0 & !(63 >> len))
        }

        fn begins_with(self, prefix: Self, len: u32) -> bool {
            self.prefix(len) == prefix
        }

        fn to_words(self) -> [u32; 4] {
            [self.0 << 26, 0, 0, 0]
        }

        fn from_words(word: impl Fn(usize) -> u32) -> Self {
            Self(word(0) >> 26)
        }
    }

    /// The prefix of so many of these bits.
    fn prefix(bits: u32, len: u32) -> Prefix<Six> {
        Prefix::new(Six(bits << (6 - len)), len).unwrap()
    }

    const MIXED: u32 = 99;

    struct World {
        domain: &'static Domain,
        routes: Routes<Six>,
    }

    impl World {
        /// With room for so many tails, and twice as many chunks.
        fn new(tails: usize, routes: &[(Prefix<Six>, u32)]) -> Arc<Self> {
            let domain: &'static Domain = Domain::leaked().unwrap();
            let world = Self { domain, routes: Routes::in_domain(domain, tails * 32).unwrap() };
            routes.iter().for_each(|&(prefix, hop)| world.set(prefix, hop));
            // What that has given back can be used again: a change that takes a route out does not wait for it.
            domain.synchronize();
            Arc::new(world)
        }

        /// Each word of a next hop says which one it is.
        fn set(&self, prefix: Prefix<Six>, hop: u32) {
            self.routes
                .insert(prefix, NextHop { interface: hop, via: Via::Gateway(Six(hop)) })
                .unwrap();
        }

        fn remove(&self, prefix: Prefix<Six>) {
            self.routes.remove(prefix).unwrap();
        }

        /// The next hop of an address; 0 for none, and `MIXED` for one that never was.
        fn lookup(&self, guard: &Guard<'_>, address: u32) -> u32 {
            match self.routes.lookup(guard, Six(address)) {
                None => 0,
                Some(NextHop { interface, via: Via::Gateway(Six(hop)) }) if interface == hop => hop,
                Some(_) => MIXED,
            }
        }

        /// As the forwarder asks for a batch: first all walks, then all next hops.
        fn lookup_all<const N: usize>(&self, guard: &Guard<'_>, addresses: [u32; N]) -> [u32; N] {
            let numbers = addresses.map(|address| self.routes.hop(guard, Six(address)));
            numbers.map(|number| {
                match self.routes.onward(number, Six(0)).map(|hop| (hop.interface, hop.target)) {
                    None => 0,
                    Some((interface, Six(hop))) if interface == hop => hop,
                    Some(_) => MIXED,
                }
            })
        }

        /// Looks these addresses up in one section, on a thread of another CPU.
        fn reader<const N: usize>(
            self: &Arc<Self>,
            addresses: [u32; N],
            right: impl Fn([u32; N]) -> bool + 'static,
        ) -> thread::JoinHandle<()> {
            let world = self.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                let guard = world.domain.read();
                let hops = world.lookup_all(&guard, addresses);
                // (A section must not be left by a panic: a model that fails would wait for it.)
                drop(guard);
                assert!(right(hops), "next hops {hops:?}");
            })
        }

        /// What there is in the end.
        fn check<const N: usize>(&self, addresses: [u32; N], hops: [u32; N]) {
            let guard = self.domain.read();
            let found = addresses.map(|address| self.lookup(&guard, address));
            drop(guard);
            assert_eq!(found, hops);
        }
    }

    fn explore(f: impl Fn() + Sync + Send + 'static) {
        explore_with(None, f);
    }

    /// All orders, or those with so many forced switches.
    fn explore_with(switches: Option<usize>, f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(switches);
        builder.max_branches = 50_000;
        let tried = Arc::new(AtomicUsize::new(0));
        let count = tried.clone();
        builder.check(move || {
            count.fetch_add(1, Relaxed);
            f();
        });
        println!("{} orders", tried.load(Relaxed));
        assert!(tried.load(Relaxed) > 4, "the threads have not met");
    }

    /// A route that ends at the root: the leaf publishes its next hop.
    #[test]
    fn a_short_route_comes() {
        explore(|| {
            let world = World::new(2, &[]);
            let reader = world.reader([0b01_0101], |[hop]| hop < 2);
            world.set(prefix(0b01, 2), 1);
            reader.join().unwrap();
        });
    }

    /// One that is longer than the root's bits: the entry publishes a tail.
    #[test]
    fn a_long_route_comes() {
        explore(|| {
            let world = World::new(2, &[(prefix(0b01, 2), 1)]);
            let reader = world.reader([0b01_0101, 0b01_1111], |[inside, beside]| {
                matches!(inside, 1 | 2) && beside == 1
            });
            world.set(prefix(0b01_01, 4), 2);
            reader.join().unwrap();
        });
    }

    /// The route of no bits.
    #[test]
    fn a_default_route_comes_and_goes() {
        explore(|| {
            let world = World::new(2, &[]);
            let reader = world.reader([0, 0], |hops| hops.iter().all(|hop| *hop < 2));
            world.set(prefix(0, 0), 1);
            world.remove(prefix(0, 0));
            reader.join().unwrap();
            world.check([0], [0]);
        });
    }

    /// A route gets another next hop; the words of the old one are used again for a third, after the reader.
    #[test]
    fn a_next_hop_is_used_again() {
        explore(|| {
            let world = World::new(2, &[(prefix(0b01, 2), 1), (prefix(0b10, 2), 3)]);
            let reader =
                world.reader([0b01_0101; 2], |hops| matches!(hops, [1, 1] | [1, 2] | [2, 2]));
            world.set(prefix(0b01, 2), 2);
            world.set(prefix(0b11, 2), 4);
            reader.join().unwrap();
            world.check([0b01_0000, 0b10_0000, 0b11_0000], [2, 3, 4]);
        });
    }

    /// A route goes, and its next hop's words are used again.
    #[test]
    fn a_route_goes() {
        explore(|| {
            let gone = prefix(0b01_01, 4);
            let world = World::new(2, &[(prefix(0b01, 2), 2), (gone, 1), (prefix(0b11, 2), 3)]);
            let reader =
                world.reader([0b01_0101; 2], |hops| matches!(hops, [1, 1] | [1, 2] | [2, 2]));
            world.remove(gone);
            world.set(prefix(0b00, 2), 4);
            reader.join().unwrap();
            world.check([0b01_0101, 0b00_0000], [2, 4]);
        });
    }

    /// The same, while others wait for grace periods, which bring those of the table about.
    #[test]
    fn a_route_goes_beside_grace_periods() {
        explore_with(Some(2), || {
            let world =
                World::new(2, &[(prefix(0b01, 2), 1), (prefix(0b10, 2), 2), (prefix(0b11, 2), 3)]);
            let others = {
                let domain = world.domain;
                thread::spawn(move || domain.synchronize())
            };
            let reader = world.reader([0b01_0101], |[hop]| hop < 2);
            world.remove(prefix(0b01, 2));
            world.set(prefix(0b00, 2), 4);
            reader.join().unwrap();
            others.join().unwrap();
            world.check([0b01_0101, 0b00_0000], [0, 4]);
        });
    }

    /// A route parts from another: a chunk and a tail take the place of a tail, whose words are used again.
    #[test]
    fn a_chunk_comes() {
        explore(|| {
            let world = World::new(3, &[(prefix(0b01, 2), 1), (prefix(0b01_01_01, 6), 2)]);
            let reader = world.reader([0b01_0101, 0b01_0110, 0b01_0111, 0b01_1111], |hops| {
                matches!(hops, [2, 1 | 3, 1, 1])
            });
            world.set(prefix(0b01_01_10, 6), 3);
            world.set(prefix(0b10_01_01, 6), 3);
            world.set(prefix(0b11_01_01, 6), 3);
            reader.join().unwrap();
            world.check([0b01_0101, 0b01_0110, 0b01_1111, 0b11_0101], [2, 3, 1, 3]);
        });
    }

    /// A chunk is left with one route and makes way for a tail; both are used again.
    #[test]
    fn a_chunk_goes() {
        explore(|| {
            let before =
                [(prefix(0b01, 2), 1), (prefix(0b01_01_01, 6), 2), (prefix(0b01_01_10, 6), 3)];
            let world = World::new(2, &before);
            let reader = world.reader([0b01_0101, 0b01_0110, 0b01_1111], |[left, gone, beside]| {
                left == 2 && matches!(gone, 1 | 3) && beside == 1
            });
            world.remove(prefix(0b01_01_10, 6));
            world.set(prefix(0b10_01_01, 6), 3);
            reader.join().unwrap();
            world.check([0b01_0101, 0b01_0110, 0b01_1111, 0b10_0101], [2, 1, 1, 3]);
        });
    }

    /// A change waits for a reader, to use again what that one may see; meanwhile the reader asks for what is told under the lock.
    #[test]
    fn a_reader_asks_while_a_change_waits() {
        explore_with(Some(3), || {
            let gone = prefix(0b01_01, 4);
            let world = World::new(1, &[(gone, 1)]);
            let reader = {
                let world = world.clone();
                thread::spawn(move || {
                    cpu::migrate(1);
                    let guard = world.domain.read();
                    let (before, n) = (world.lookup(&guard, 0b01_0101), world.routes.len());
                    drop(guard);
                    assert!(before < 2 && n < 2, "{before}, {n}");
                })
            };
            world.remove(gone);
            world.set(prefix(0b10_01, 4), 2);
            reader.join().unwrap();
            world.check([0b01_0101, 0b10_0101], [0, 2]);
        });
    }

    /// A short route comes around longer ones, and covers what they leave.
    #[test]
    fn a_route_around_others() {
        explore(|| {
            let inside = [(prefix(0b01_01_01, 6), 2), (prefix(0b01_01_10, 6), 3)];
            let world = World::new(2, &inside);
            let reader = world.reader([0b01_0101, 0b01_0111, 0b01_1111], |[inside, near, far]| {
                inside == 2 && near < 2 && far < 2
            });
            world.set(prefix(0b01, 2), 1);
            reader.join().unwrap();
            world.check([0b01_0101, 0b01_0111, 0b01_1111], [2, 1, 1]);
        });
    }
}
