//! Programs.

use quietline::Events;
use quietline::abi::*;

/// What a program is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pipes,
    Counters,
    Fifos,
    Transfers,
}

/// A call. Descriptors are named by the order in which they were made.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Pipe {
        flags: i32,
    },
    Eventfd {
        count: u32,
        flags: i32,
    },
    Fifo {
        flags: i32,
    },
    File,
    Dup(usize),
    Close(usize),
    Read(usize, usize),
    Write(usize, usize),
    Readv(usize, Vec<usize>),
    Writev(usize, Vec<usize>),
    Count(usize, u64),
    Counts(usize, Vec<u64>),
    Poll(usize),
    Readable(usize),
    SetSize(usize, u32),
    Size(usize),
    SetFlags(usize, i32),
    Seek(usize, i64, i32),
    Pread(usize, usize, i64),
    Pwrite(usize, usize, i64),
    Splice {
        from: usize,
        from_at: Option<i64>,
        to: usize,
        to_at: Option<i64>,
        len: usize,
        flags: u32,
    },
    Tee {
        from: usize,
        to: usize,
        len: usize,
        flags: u32,
    },
    Vmsplice(usize, Vec<usize>, u32),
    /// Pages of the caller's own, of each of which so many bytes are given.
    Gift(usize, Vec<usize>),
    VmspliceFrom(usize, Vec<usize>),
    Sendfile {
        to: usize,
        from: usize,
        at: Option<i64>,
        len: usize,
    },
    Sync(usize),
    /// What both sides' epolls say, which watch all descriptors from their making on, for edges or levels.
    Wait,
}

/// Calls in their order.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// How descriptors are watched.
    pub(crate) watch: u32,
    pub(crate) calls: Vec<Call>,
}

/// Descriptors that a program names.
const NAMES: usize = 10;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn name(&mut self) -> usize {
        self.below(NAMES)
    }

    fn len(&mut self) -> usize {
        match self.below(8) {
            0 => self.below(3),
            1 | 2 => self.below(64),
            3 => 4090 + self.below(12),
            4 => self.below(4097),
            5 => 4096 * (1 + self.below(4)),
            6 => self.below(20_000),
            _ => self.below(90_000),
        }
    }

    fn lens(&mut self) -> Vec<usize> {
        let n = self.below(5);
        (0..n).map(|_| if self.below(4) == 0 { 0 } else { self.below(6000) }).collect()
    }

    fn lens_in_pages(&mut self) -> Vec<usize> {
        let n = self.below(5);
        (0..n).map(|_| self.of(&[0, 4096, 4096, 1]).max(self.below(4097) * self.below(2))).collect()
    }

    fn at(&mut self) -> Option<i64> {
        match self.below(4) {
            0 => Some(self.below(20_000) as i64),
            1 => self.of(&[Some(0), Some(4096), Some(-1)]),
            _ => None,
        }
    }

    fn call(&mut self, kind: Kind) -> Call {
        if self.below(5) == 0 {
            return Call::Wait;
        }
        let about = match kind {
            Kind::Pipes => self.of(&[0, 1, 1, 1, 1, 1, 1, 2]),
            Kind::Counters => self.of(&[3, 3, 3, 1, 2]),
            Kind::Fifos => self.of(&[4, 4, 1, 1, 1, 2]),
            Kind::Transfers => self.of(&[0, 1, 1, 1, 5, 5, 5, 5, 2]),
        };
        match about {
            0 => match self.below(3) {
                0 => Call::Pipe { flags: O_NONBLOCK | self.of(&[0, 0, O_DIRECT]) },
                1 => Call::Close(self.name()),
                _ => Call::Dup(self.name()),
            },
            1 => match self.below(12) {
                0..3 => Call::Read(self.name(), self.len()),
                3..7 => Call::Write(self.name(), self.len()),
                7 => Call::Readv(self.name(), self.lens()),
                8 => Call::Writev(self.name(), self.lens()),
                9 => Call::Readable(self.name()),
                _ => Call::Poll(self.name()),
            },
            2 => match self.below(8) {
                0 => Call::SetSize(
                    self.name(),
                    self.of(&[
                        0,
                        1,
                        4096,
                        4097,
                        8192,
                        65_536,
                        131_072,
                        1 << 20,
                        (1 << 20) + 1,
                        u32::MAX,
                        1 << 31,
                    ]),
                ),
                1 => Call::Size(self.name()),
                2 => {
                    // A file in memory takes O_DIRECT here, on some hosts not.
                    let direct = if kind == Kind::Transfers { 0 } else { O_DIRECT };
                    Call::SetFlags(self.name(), O_NONBLOCK | self.of(&[0, direct, O_APPEND]))
                }
                3 => Call::Seek(
                    self.name(),
                    self.of(&[0, 1]),
                    self.of(&[SEEK_SET, SEEK_CUR, SEEK_END]),
                ),
                4 => Call::Pread(self.name(), self.below(10), self.of(&[0, 5, -1])),
                5 => Call::Pwrite(self.name(), self.below(10), self.of(&[0, 5, -1])),
                6 => Call::Sync(self.name()),
                _ => Call::Poll(self.name()),
            },
            3 => match self.below(8) {
                0 => Call::Eventfd {
                    count: self.of(&[0, 1, 3, u32::MAX]),
                    flags: O_NONBLOCK | self.of(&[0, EFD_SEMAPHORE]),
                },
                1 => Call::Close(self.name()),
                2..5 => Call::Count(
                    self.name(),
                    self.of(&[0, 1, 2, u64::MAX - 2, u64::MAX - 1, u64::MAX, 1 << 40]),
                ),
                5 => {
                    let n = self.below(4);
                    Call::Counts(
                        self.name(),
                        (0..n).map(|_| self.of(&[0, 1, 7, u64::MAX - 1, u64::MAX])).collect(),
                    )
                }
                6 => Call::Read(self.name(), self.of(&[0, 4, 7, 8, 9, 16])),
                _ => Call::Readv(
                    self.name(),
                    self.of(&[&[8][..], &[4, 4], &[4, 3], &[0, 8], &[3, 6], &[]]).to_vec(),
                ),
            },
            4 => match self.below(3) {
                0 => Call::Close(self.name()),
                _ => Call::Fifo {
                    flags: self.of(&[
                        O_RDONLY | O_NONBLOCK,
                        O_WRONLY | O_NONBLOCK,
                        O_RDWR | O_NONBLOCK,
                    ]) | self.of(&[0, 0, 0, O_DIRECT, O_TRUNC, O_APPEND]),
                },
            },
            _ => match self.below(10) {
                0 => Call::File,
                1..5 => Call::Splice {
                    from: self.name(),
                    from_at: self.at(),
                    to: self.name(),
                    to_at: self.at(),
                    len: self.len(),
                    flags: self.of(&[0, SPLICE_F_NONBLOCK, SPLICE_F_MOVE | SPLICE_F_MORE, 16]),
                },
                5 | 6 => Call::Tee {
                    from: self.name(),
                    to: self.name(),
                    len: self.len(),
                    flags: self.of(&[0, SPLICE_F_NONBLOCK, 32]),
                },
                7 if self.below(2) == 0 => Call::Gift(self.name(), self.lens_in_pages()),
                7 => Call::Vmsplice(self.name(), self.lens(), self.of(&[0, SPLICE_F_GIFT])),
                8 => Call::VmspliceFrom(self.name(), self.lens()),
                _ => Call::Sendfile {
                    to: self.name(),
                    from: self.name(),
                    at: self.at(),
                    len: self.len(),
                },
            },
        }
    }
}

impl Program {
    /// A program of a kind.
    pub(crate) fn random(kind: Kind, seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x1234_5678_9abc_def1) ^ kind as u64);
        let mut calls = match kind {
            Kind::Pipes => {
                vec![Call::Pipe { flags: O_NONBLOCK }, Call::Pipe { flags: O_NONBLOCK | O_DIRECT }]
            }
            Kind::Counters => vec![Call::Eventfd { count: 0, flags: O_NONBLOCK }],
            Kind::Fifos => vec![Call::Fifo { flags: O_RDONLY | O_NONBLOCK }],
            Kind::Transfers => {
                vec![
                    Call::Pipe { flags: O_NONBLOCK },
                    Call::Pipe { flags: O_NONBLOCK },
                    Call::File,
                    Call::Write(4, 30_000),
                ]
            }
        };
        let length = 20 + dice.below(100);
        calls.extend((0..length).map(|_| dice.call(kind)));
        let watch = Events::all().bits() & !Events::NVAL.bits() | dice.of(&[0, 1 << 31, 1 << 31]);
        Self { watch, calls }
    }

    /// Leaves out what can be left out of a program that makes a difference.
    pub(crate) fn shortest(
        mut self,
        mut difference: String,
        differs: impl Fn(&Program) -> Option<String>,
    ) -> (Self, String) {
        let mut chunk = self.calls.len() / 2;
        while chunk > 0 {
            let mut from = 0;
            while from < self.calls.len() {
                let mut fewer = self.clone();
                fewer.calls.drain(from..(from + chunk).min(self.calls.len()));
                match differs(&fewer) {
                    Some(again) => (self, difference) = (fewer, again),
                    None => from += chunk,
                }
            }
            chunk /= 2;
        }
        (self, difference)
    }
}
