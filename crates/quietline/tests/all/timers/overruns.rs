//! Timers that expire while a test runs: how often they say so, between the least and the most that the clock allows. Both
//! systems' timers run beside each other.

use crate::support::Random;
use crate::timers::call::System;
use crate::timers::host::Host;
use crate::timers::ours::Ours;
use crate::timers::own;
use std::time::{Duration, Instant};

/// A timer that goes on.
struct Timer {
    fd: i32,
    /// Between these moments it was armed, and expires first after this time.
    armed: [Instant; 2],
    first: Duration,
    every: Duration,
    /// Expiries that were read.
    read: u64,
}

impl Timer {
    /// Expiries up to a moment, if it was armed at another.
    fn expiries(&self, armed: Instant, until: Instant) -> u64 {
        match until.duration_since(armed).checked_sub(self.first) {
            Some(past) => (past.as_nanos() / self.every.as_nanos()) as u64 + 1,
            None => 0,
        }
    }

    fn arm(&mut self, on: &mut dyn System, first: Duration, every: Duration) {
        let before = Instant::now();
        on.set(self.fd, 0, [first, every]).expect("armed");
        *self = Self { fd: self.fd, armed: [before, Instant::now()], first, every, read: 0 };
    }

    /// Reads it. What was read in all is as much as has expired before, or after, and no more. A reader that does not find the
    /// first expiry may be before it is told; what it reads is not.
    fn read(&mut self, on: &mut dyn System, name: &str) {
        let before = Instant::now();
        let read = on.read(self.fd, &[8]);
        let after = Instant::now();
        let most = self.expiries(self.armed[0], after);
        match read {
            Ok(bytes) => {
                self.read += u64::from_ne_bytes(*bytes.first_chunk().expect("a number"));
                let least = self.expiries(self.armed[1], before);
                let read = self.read;
                assert!(
                    (least..=most).contains(&read),
                    "{name}: {read} expiries, not {least} to {most}"
                );
            }
            Err(errno) => assert_eq!(errno, libc::EAGAIN),
        }
    }

    /// What is left is no more than an interval, and not more than what was left at first.
    fn get(&self, on: &mut dyn System, name: &str) {
        let [value, interval] = on.get(self.fd).expect("its time");
        assert_eq!(interval, self.every, "{name}");
        assert!(value <= self.first.max(self.every), "{name}: {value:?} left");
    }
}

#[test]
fn counts_of_fast_timers() {
    if own::elsewhere("timers::overruns::counts_of_fast_timers") {
        return;
    }
    let rounds = quietline_testing::budget("QUIETLINE_TIMERS_PROGRAMS", 1_000) / 100;
    let mut dice = Random(crate::timers::number("QUIETLINE_TIMERS_SEED", 1));
    let (mut host, mut ours) = (Host::new(), Ours::new());
    let mut systems: [(&str, &mut dyn System); 2] = [("host", &mut host), ("quietline", &mut ours)];
    let clocks = [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME, libc::CLOCK_BOOTTIME];
    let mut timers: Vec<[Timer; 2]> = Vec::new();
    for clock in clocks {
        timers.push(systems.each_mut().map(|(_, on)| {
            let fd = on.timer(clock, libc::O_NONBLOCK).expect("a timer");
            let now = Instant::now();
            Timer { fd, armed: [now; 2], first: Duration::ZERO, every: Duration::ZERO, read: 0 }
        }));
    }
    for round in 0..rounds {
        own::begins(round + 1);
        for timer in &mut timers {
            let first = Duration::from_nanos([1, 30_000, 500_000, 2_000_000][dice.below(4)]);
            let every = Duration::from_nanos(
                [50_000, 100_001, 333_333, 1_000_000, 7_000_000][dice.below(5)],
            );
            for ((_, on), timer) in systems.iter_mut().zip(timer) {
                timer.arm(*on, first, every);
            }
        }
        for _ in 0..20 {
            let timer = &mut timers[dice.below(clocks.len())];
            let what = dice.below(4);
            for ((name, on), timer) in systems.iter_mut().zip(timer) {
                match what {
                    0 => timer.get(*on, name),
                    1 => {
                        // It comes: nobody sleeps past it.
                        let found =
                            on.poll(&[(timer.fd, libc::POLLIN)], Some(Duration::from_secs(60)));
                        assert_eq!(found, Ok(vec![libc::POLLIN]), "{name}");
                        let read = timer.read;
                        timer.read(*on, name);
                        assert!(timer.read > read, "{name}: told to be readable");
                    }
                    _ => timer.read(*on, name),
                }
            }
            if dice.below(3) == 0 {
                std::thread::sleep(Duration::from_micros(dice.below(400) as u64));
            }
        }
    }
    for ((_, on), at) in systems.iter_mut().zip(0..) {
        timers.iter().for_each(|timer| on.close(timer[at].fd).expect("closed"));
    }
}
