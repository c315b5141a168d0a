//! Programs from seeds.

use crate::support::Random;
use crate::timers::call::{Call, How, Other, PLACES, Timeout, When};
use std::time::Duration;

/// Signals that are sent: some of each kind. Not those that cannot be blocked, nor those that the C library keeps for itself and
/// does not block in the threads that it makes.
const SIGNALS: [i32; 27] = [
    1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 13, 15, 17, 18, 18, 20, 21, 22, 31, 34, 34, 35, 36, 40, 63,
    64, 64,
];
const CLOCKS: [i32; 12] = [
    libc::CLOCK_MONOTONIC,
    libc::CLOCK_MONOTONIC,
    libc::CLOCK_MONOTONIC,
    libc::CLOCK_MONOTONIC,
    libc::CLOCK_REALTIME,
    libc::CLOCK_REALTIME,
    libc::CLOCK_BOOTTIME,
    libc::CLOCK_BOOTTIME_ALARM,
    libc::CLOCK_REALTIME_ALARM,
    libc::CLOCK_PROCESS_CPUTIME_ID,
    -1,
    77,
];

trait Dice {
    fn one_in(&mut self, n: usize) -> bool;
    fn place(&mut self) -> usize;
    fn of<T: Copy>(&mut self, all: &[T]) -> T;
    fn events(&mut self) -> u32;
    fn mask(&mut self) -> u64;
    fn when(&mut self) -> When;
    fn every(&mut self) -> Duration;
    fn timeout(&mut self) -> Timeout;
    fn polled(&mut self) -> Vec<(usize, i16)>;
    fn sets(&mut self) -> [u8; 3];
    fn nanos(&mut self) -> u32;
}

impl Dice for Random {
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
        let mut events = self.of(&[1, 1, 1, 5, 4, 0x41, 0, 0x3fff]);
        for (bit, n) in [(31, 2), (30, 5), (28, 12), (29, 20)] {
            if self.one_in(n) {
                events |= 1 << bit;
            }
        }
        events
    }

    fn mask(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 | 2 => u64::MAX,
            3 => 1 << self.below(64),
            _ => SIGNALS
                .iter()
                .filter(|_| self.one_in(2))
                .fold(0, |mask, signo| mask | 1 << (signo - 1)),
        }
    }

    /// Those that take time are few.
    fn when(&mut self) -> When {
        match self.below(32) {
            0..4 => When::Never,
            4..8 => When::Far(1 + self.below(300) as u32),
            8..13 => When::FarAt(1 + self.below(300) as u32),
            13..23 => When::PastAt(self.below(300) as u32),
            23 => When::Soon(self.nanos()),
            24 => When::SoonAt(self.nanos()),
            25..27 => When::First,
            27 => When::Last,
            28 => When::Seconds(self.of(&[
                9_223_372_035,
                9_223_372_036,
                9_223_372_037,
                i64::MAX as u64,
            ])),
            _ => When::Soon(1),
        }
    }

    fn every(&mut self) -> Duration {
        match self.below(16) {
            0..6 => Duration::ZERO,
            6..13 => Duration::from_secs(10) * (1 + self.below(40) as u32),
            13 => {
                Duration::new(10 + self.below(1000) as u64 * 10, self.below(1_000_000_000) as u32)
            }
            14 => Duration::from_secs(self.of(&[9_223_372_035, 9_223_372_036, 9_223_372_037])),
            _ => Duration::new(i64::MAX as u64, 999_999_999),
        }
    }

    fn timeout(&mut self) -> Timeout {
        match self.below(24) {
            0 => Timeout::Of(1),
            1 => Timeout::Of(999),
            2 => Timeout::Of(120_000),
            3 => Timeout::Of(1_000_001),
            4..7 => Timeout::Never,
            7..9 => Timeout::Longest,
            _ => Timeout::Of(0),
        }
    }

    fn polled(&mut self) -> Vec<(usize, i16)> {
        (0..self.below(5))
            .map(|_| (self.place(), self.of(&[1, 1, 4, 5, 0, 0x41, 2, 0x2007])))
            .collect()
    }

    fn sets(&mut self) -> [u8; 3] {
        std::array::from_fn(|_| self.below(1 << PLACES) as u8)
    }

    fn nanos(&mut self) -> u32 {
        self.of(&[1, 999, 20_000, 150_000, 1_000_000])
    }
}

/// A program: first a few things, then calls on them.
pub(crate) fn program(seed: u64) -> Vec<Call> {
    let dice = &mut Random(seed);
    let mut program = vec![Call::Epoll { at: 0 }];
    // Half of the programs are of timers, a third of signals, the others of both.
    let (timers, signals) = match dice.below(6) {
        0..3 => (true, false),
        3 | 4 => (false, true),
        _ => (true, true),
    };
    let flags =
        |dice: &mut Random| dice.of(&[libc::O_NONBLOCK, libc::O_NONBLOCK, 0, libc::O_CLOEXEC]);
    for at in 1..4 {
        if timers && (!signals || at != 2) {
            program.push(Call::Timer { at, clock: dice.of(&CLOCKS[..9]), flags: flags(dice) });
        } else {
            program.push(Call::Signals { at, mask: dice.mask(), flags: flags(dice) });
        }
        if !dice.one_in(3) {
            let (events, data) = (dice.events(), at as u64 * 1000);
            program.push(Call::Control { ep: 0, op: 1, at, events, data });
        }
    }
    if dice.one_in(3) {
        program.push(Call::Pipe { read: 5, write: 6 });
    }
    for _ in 0..dice.below(40) + 5 {
        program.push(step(dice, timers, signals));
    }
    program
}

fn step(dice: &mut Random, timers: bool, signals: bool) -> Call {
    let at = dice.place();
    match dice.below(100) {
        0..3 => Call::Timer {
            at,
            clock: dice.of(&CLOCKS),
            flags: dice.of(&[
                0,
                libc::O_NONBLOCK,
                libc::O_NONBLOCK | libc::O_CLOEXEC,
                1,
                libc::O_APPEND,
            ]),
        },
        3..6 => Call::Signals { at, mask: dice.mask(), flags: dice.of(&[0, libc::O_NONBLOCK, 2]) },
        6 => Call::Epoll { at },
        7 if dice.one_in(2) => Call::Place { at },
        7 => Call::Pipe { read: at, write: dice.place() },
        8 | 9 => Call::Dup { from: at, at: dice.place() },
        10..13 => Call::Close { at },
        13..28 if timers => {
            let when = dice.when();
            let odd = if dice.one_in(20) { dice.of(&[2, 2, 4, -1]) } else { 0 };
            let absolute = i32::from(when.is_absolute());
            Call::Arm { at, flags: absolute | odd, when, every: dice.every() }
        }
        13..28 => Call::Kill { signo: dice.of(&SIGNALS) },
        28 | 29 if timers => {
            let how = match dice.below(4) {
                0 => How::Read,
                1 => How::Poll(dice.polled()),
                2 => How::Select(dice.sets()),
                _ => How::Epoll(dice.events()),
            };
            Call::ArmWait { at, nanos: dice.nanos(), how }
        }
        30..36 if timers => Call::Get { at },
        28..34 => Call::Mask { at, mask: dice.mask(), flags: dice.of(&[0, libc::O_NONBLOCK, 1]) },
        34..36 => Call::Pending,
        36 | 37 if signals => Call::Kill { signo: dice.of(&[0, -1, 65, 100]) },
        36..42 if signals => Call::Kill { signo: dice.of(&SIGNALS) },
        36..54 => {
            let n: &[&[usize]] = &[
                &[8],
                &[8],
                &[128],
                &[128],
                &[512],
                &[256],
                &[7],
                &[0],
                &[127],
                &[300],
                &[64, 64, 128],
                &[4, 4],
                &[0, 8],
                &[100, 200],
                &[3, 0, 2],
            ];
            Call::Read { at, n: dice.of(n).to_vec() }
        }
        54..56 => Call::Write {
            at: if dice.one_in(2) { 6 } else { at },
            n: dice.of(&[0, 1, 8, 128, 70_000]),
        },
        56 => {
            let what =
                dice.of(&[Other::Seek, Other::Pread, Other::Pwrite, Other::Readable, Other::Flags]);
            Call::Other { at, what }
        }
        57 => Call::Nonblock { at, on: dice.one_in(2) },
        58..70 => Call::Control {
            ep: if dice.one_in(4) { dice.place() } else { 0 },
            op: dice.of(&[1, 1, 1, 3, 3, 2]),
            at,
            events: dice.events(),
            data: dice.below(1000) as u64,
        },
        70..86 => {
            let ep = if dice.one_in(4) { at } else { 0 };
            Call::Wait { ep, max: dice.of(&[1, 1, 2, 8]), timeout: dice.timeout() }
        }
        86..92 => Call::Poll { of: dice.polled(), timeout: dice.timeout() },
        92..95 => Call::PollMillis { of: dice.polled(), millis: dice.of(&[0, 0, -1, -7, 1]) },
        _ => Call::Select { sets: dice.sets(), timeout: dice.timeout() },
    }
}
