//! Neighbours that are found beside changes, in every interleaving: a reader finds a link address that the neighbour had, whole, or
//! that it is not known; never does it lose its way to one because another goes. And a packet that waits is given back by who learns of the
//! neighbour, or learns it itself.
//!
//! The table, its pool and those that are asked for are the library's own source, with RCU. Packets are numbers.
//!
//! # Faults that were planted
//!
//! In `neighbour/table.rs`: the store in `set` or the load in `find` relaxed (nearly all models); that of `remove` (`one_that_does_not_answer`) or
//! of `remove_old` (`one_behind_one_that_goes`); an entry whose next one is written after it is published (`one_behind...`); a neighbour that moves
//! written in place (`one_that_moves`). In `pool.rs`: what was given back is free at once, or has a number of the past, or its
//! number is not looked at (`one_that_moves`, `one_behind_an_entry_that_is_used_again`). In `neighbour.rs`: a packet that waits without a second
//! look, or an answer that is entered under another hold of the lock than the one under which those who wait were taken (`a_packet_that_waits`).
//!
//! # Limits
//!
//! How a segment of words is made is not modelled (`OnceLock`).
#![cfg(loom)]

/// As in the crate.
#[path = "../src/forward"]
#[allow(dead_code, unreachable_pub, missing_docs)]
mod forward {
    pub mod address;
    pub mod header;
    pub mod neighbour;
    pub mod pool;
    pub mod words;

    use crate::packet::Skb;
    use core::net::Ipv4Addr;
    use core::time::Duration;
    use header::Link;
    use neighbour::{HashKeys, Known, Neighbours, Waits};
    use quietline_platform::atomic::AtomicU32;
    use quietline_platform::{cpu, thread};
    use quietline_sync::rcu::Domain;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const MIXED: u8 = 99;

    struct World {
        domain: &'static Domain,
        neighbours: Neighbours<'static, Ipv4Addr>,
    }

    /// Each byte of a link address says which one it is.
    fn link(number: u8) -> Link {
        [number; 6]
    }

    /// Three in the same bucket of four, and one in another.
    const SAME: [Ipv4Addr; 3] =
        [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 6)];
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    impl World {
        /// A table for so many.
        fn new(most: u32) -> Arc<Self> {
            let domain: &'static Domain = Domain::leaked().unwrap();
            let keys = HashKeys::draw().unwrap();
            Arc::new(Self { domain, neighbours: Neighbours::new(domain, keys, 1, most).unwrap() })
        }

        /// Learns a neighbour for good.
        fn set(&self, address: Ipv4Addr, number: u8) {
            self.neighbours.set(0, address, link(number)).unwrap();
        }

        /// Learns a neighbour, at second 0.
        fn learn(&self, address: Ipv4Addr, number: u8) {
            let waited = self.neighbours.learn(0, address, link(number), true, Duration::ZERO);
            assert!(waited.iter().all(Option::is_none));
        }

        /// Forgets all but those that are known for good.
        fn forget(&self) {
            self.neighbours.forget(0, Duration::from_secs(1000));
        }

        /// Which link address one has; 0 for none, and `MIXED` for one that never was.
        fn get(&self, address: Ipv4Addr) -> u8 {
            match self.neighbours.get(0, address) {
                None => 0,
                Some(Known { link: found, .. }) if found == link(found[0]) => found[0],
                Some(_) => MIXED,
            }
        }

        /// As [`get`](Self::get), by what was remembered; at second 0.
        fn again(&self, remembered: &AtomicU32) -> u8 {
            let word = self.neighbours.way_again(remembered, 0, SAME[0], 0).unwrap_or(0);
            match word.to_le_bytes() {
                [number, rest @ .., 0, 0] if rest == [number; 5] => number,
                _ => MIXED,
            }
        }

        /// Looks these up in one section, on a thread of another CPU.
        fn reader<const N: usize>(
            self: &Arc<Self>,
            addresses: [Ipv4Addr; N],
            right: impl Fn([u8; N]) -> bool + 'static,
        ) -> thread::JoinHandle<()> {
            let world = self.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                let guard = world.domain.read();
                let links = addresses.map(|address| world.get(address));
                // (A section must not be left by a panic: a model that fails would wait for it.)
                drop(guard);
                assert!(right(links), "link addresses {links:?}");
            })
        }
    }

    fn explore(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
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

    /// An entry is seen with all its words, or not.
    #[test]
    fn one_that_comes() {
        explore(|| {
            let world = World::new(4);
            let reader =
                world.reader([SAME[0]; 2], |links| matches!(links, [0, 0] | [0, 1] | [1, 1]));
            world.set(SAME[0], 1);
            reader.join().unwrap();
            assert_eq!(world.get(SAME[0]), 1);
        });
    }

    /// One moves to another link address, and its old entry is used for another neighbour: after the readers.
    #[test]
    fn one_that_moves() {
        explore(|| {
            let world = World::new(2);
            world.set(SAME[0], 1);
            let reader =
                world.reader([SAME[0]; 2], |links| matches!(links, [1, 1] | [1, 2] | [2, 2]));
            world.set(SAME[0], 2);
            // It may lack an entry, as long as the reader is there.
            let entered = world.neighbours.set(0, OTHER, link(3)).is_ok();
            assert_eq!(world.get(OTHER), if entered { 3 } else { 0 });
            reader.join().unwrap();
            assert_eq!(world.get(SAME[0]), 2);
        });
    }

    /// One behind others in its bucket is found whole, while it comes and those before it come and go.
    #[test]
    fn one_behind_one_that_goes() {
        explore(|| {
            let world = World::new(4);
            let reader =
                world.reader([SAME[1]; 2], |links| matches!(links, [0, 0] | [0, 1] | [1, 1]));
            world.set(SAME[1], 1);
            world.learn(SAME[0], 2);
            world.forget();
            reader.join().unwrap();
            assert_eq!([world.get(SAME[0]), world.get(SAME[1])], [0, 1]);
        });
    }

    /// One behind another is found, while that goes and its entry is used in another bucket: after the readers.
    #[test]
    fn one_behind_an_entry_that_is_used_again() {
        explore(|| {
            let world = World::new(3);
            world.set(SAME[1], 1);
            world.learn(SAME[0], 2);
            let reader = world.reader([SAME[0], SAME[1]], |[first, behind]| {
                matches!(first, 0 | 2) && behind == 1
            });
            world.forget();
            let _ = world.neighbours.set(0, OTHER, link(3));
            let _ = world.neighbours.set(0, SAME[2], link(4));
            reader.join().unwrap();
            assert_eq!([world.get(SAME[0]), world.get(SAME[1])], [0, 1]);
        });
    }

    /// Looks a neighbour up, in two sections, by what was remembered of it.
    fn again(
        world: &Arc<World>,
        remembered: &Arc<AtomicU32>,
        right: impl Fn([u8; 3]) -> bool + 'static,
    ) -> thread::JoinHandle<()> {
        let (world, remembered) = (world.clone(), remembered.clone());
        thread::spawn(move || {
            cpu::migrate(1);
            let guard = world.domain.read();
            let first = [(); 2].map(|()| world.again(&remembered));
            drop(guard);
            let guard = world.domain.read();
            let last = world.again(&remembered);
            drop(guard);
            let links = [first[0], first[1], last];
            assert!(right(links), "link addresses {links:?}");
        })
    }

    /// One whose entry's number is remembered moves, and its old entry is used for another: after the readers.
    #[test]
    fn one_that_is_remembered_and_moves() {
        explore(|| {
            let world = World::new(2);
            world.set(SAME[0], 1);
            let remembered = Arc::new(AtomicU32::new(0));
            assert_eq!(world.again(&remembered), 1);
            let reader = again(&world, &remembered, |links| {
                links.is_sorted() && links.iter().all(|link| matches!(link, 1 | 2))
            });
            world.set(SAME[0], 2);
            let _ = world.neighbours.set(0, OTHER, link(3));
            reader.join().unwrap();
            assert_eq!(world.again(&remembered), 2);
        });
    }

    /// One whose entry's number is remembered is forgotten, and the entry is used for itself again: it is seen whole, or not.
    #[test]
    fn one_that_is_remembered_and_comes_again() {
        explore(|| {
            let world = World::new(1);
            world.learn(SAME[0], 1);
            let remembered = Arc::new(AtomicU32::new(0));
            assert_eq!(world.again(&remembered), 1);
            let reader = again(&world, &remembered, |links| {
                links.iter().filter(|link| **link != 0).is_sorted()
                    && links.iter().all(|link| *link <= 2)
            });
            world.forget();
            let entered = world.neighbours.set(0, SAME[0], link(2)).is_ok();
            reader.join().unwrap();
            assert_eq!(world.again(&remembered), if entered { 2 } else { 0 });
        });
    }

    /// One that is stale is forgotten after some questions.
    #[test]
    fn one_that_does_not_answer() {
        explore(|| {
            let world = World::new(3);
            let reader =
                world.reader([SAME[1]; 2], |links| matches!(links, [0, 0] | [0, 1] | [1, 1]));
            world.set(SAME[1], 1);
            world.learn(SAME[0], 2);
            for second in 0..4 {
                world.neighbours.is_to_be_asked(0, SAME[0], Duration::from_secs(100 + 2 * second));
            }
            reader.join().unwrap();
            assert_eq!([world.get(SAME[0]), world.get(SAME[1])], [0, 1]);
        });
    }

    /// A packet that comes while the answer does: it waited and is given to who has learned the answer, or it finds the answer.
    #[test]
    fn a_packet_that_waits() {
        explore(|| {
            let world = World::new(2);
            let now = Duration::from_secs(1);
            let first = world.neighbours.wait(0, OTHER, Skb::new(1), now);
            assert!(matches!(first, Waits::Queued { ask: true, pushed_out: [None, None, None] }));
            let sender = world.clone();
            let sender = thread::spawn(move || {
                cpu::migrate(1);
                let guard = sender.domain.read();
                let found = sender.get(OTHER);
                drop(guard);
                match found {
                    0 => match sender.neighbours.wait(0, OTHER, Skb::new(2), now) {
                        Waits::Known(known, skb) => {
                            assert_eq!((known.link, skb.number), (link(7), 2));
                            false
                        }
                        Waits::Queued { ask, pushed_out } => {
                            assert!(
                                !ask && pushed_out.iter().all(Option::is_none),
                                "it is asked for already"
                            );
                            true
                        }
                        Waits::Refused(_) => panic!("there is room"),
                    },
                    found => {
                        assert_eq!(found, 7);
                        false
                    }
                }
            });
            let waited = world.neighbours.learn(0, OTHER, link(7), false, now);
            let waited = waited.iter().flatten().fold(0, |sum, skb| sum * 10 + skb.number);
            let queued = sender.join().unwrap();
            assert_eq!(waited, if queued { 12 } else { 1 }, "in order, and none lost");
        });
    }
}

/// A packet.
mod packet {
    use core::marker::PhantomData;

    pub(crate) struct Skb<'n> {
        pub(crate) number: u32,
        of: PhantomData<&'n ()>,
    }

    impl Skb<'_> {
        pub(crate) fn new(number: u32) -> Self {
            Self { number, of: PhantomData }
        }
    }
}
