//! Programs from seeds.

use crate::events::call::{Call, Kind, PLACES};

/// Numbers that look random and are always the same (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn place(&mut self) -> usize {
        self.below(PLACES)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn events(&mut self) -> u32 {
        let mut events = self.of(&[1, 4, 5, 5, 1, 0x41, 0x104, 0x2001, 0, 2, 8, 0x10, 0x3fff]);
        for (bit, n) in [(31, 3), (30, 5), (28, 12), (29, 20)] {
            if self.one_in(n) {
                events |= 1 << bit;
            }
        }
        events
    }
}

/// A program: first a few things, then calls on them.
pub(crate) fn program(dice: &mut Dice) -> Vec<Call> {
    let mut program = vec![Call::Make { at: 0, kind: Kind::Epoll }];
    let pipes = !dice.one_in(3);
    if pipes {
        program.push(Call::Pipe { read: 1, write: 2 });
    }
    for _ in 0..dice.below(50) + 5 {
        let at = dice.place();
        program.push(match dice.below(100) {
            0..10 => Call::Make {
                at,
                kind: dice.of(&[
                    Kind::Counter,
                    Kind::Counter,
                    Kind::Counter,
                    Kind::Semaphore,
                    Kind::Semaphore,
                    Kind::Epoll,
                    Kind::Epoll,
                    Kind::Place,
                ]),
            },
            10..13 if pipes => Call::Pipe { read: at, write: dice.place() },
            10..16 => Call::Dup { from: at, at: dice.place() },
            16..21 => Call::Close { at },
            21..36 => {
                let n = dice.of(&[
                    0,
                    1,
                    2,
                    3,
                    7,
                    4096,
                    30_000,
                    65_536,
                    u64::MAX - 1,
                    u64::MAX - 2,
                    u64::MAX,
                ]);
                Call::Write { at, n }
            }
            36..48 => Call::Read { at, n: dice.of(&[8, 8, 8, 1, 7, 4096, 70_000]) },
            48..72 => Call::Control {
                ep: if dice.one_in(3) { dice.place() } else { 0 },
                op: dice.of(&[1, 1, 1, 1, 3, 3, 2, 4, 0]),
                at,
                events: dice.events(),
                data: dice.below(1000) as u64,
            },
            72..90 => {
                Call::Wait { ep: if dice.one_in(3) { at } else { 0 }, max: dice.of(&[1, 1, 2, 8]) }
            }
            90..97 => {
                let of = (0..dice.below(5))
                    .map(|_| (dice.place(), dice.of(&[1, 4, 5, 0, 0x41, 0x104, 2, 0x2007])));
                Call::Poll { of: of.collect() }
            }
            _ => Call::Select { sets: std::array::from_fn(|_| dice.below(256) as u8) },
        });
    }
    program
}
