//! Random sequences of calls.

use crate::differential::call::Call;
use crate::differential::compare::{Report, same_descriptors};
use crate::differential::host::Host;
use crate::differential::ours::Ours;
use quietline::abi::*;

/// Calls in a sequence.
const LENGTH: usize = 256;

/// How sequences are made and looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Descriptors' limits and numbers lie around this.
    pub(crate) size: i32,
    /// Calls after which the descriptors are compared.
    pub(crate) look_every: usize,
    /// Whether quietline also hands out numbers that need not be the lowest, and takes them back.
    pub(crate) haunted: bool,
}

/// Runs sequences until `calls` calls have been made. A sequence that tells the sides apart is cut down to the calls
/// that it takes.
pub(crate) fn run(
    host: &mut Host,
    report: &mut Report,
    plan: Plan,
    calls: u64,
    seed: u64,
) -> Result<(), String> {
    let mut dice = Dice(seed);
    let end = report.calls + calls;
    while report.calls < end {
        let nofile = dice.below(plan.size + 1) as usize;
        let calls: Vec<Call> = (0..LENGTH).map(|_| dice.call(plan.size)).collect();
        if let Err(difference) = sequence(host, report, plan, nofile, &calls) {
            return Err(shortest(host, plan, nofile, calls, difference, seed));
        }
    }
    Ok(())
}

/// Leaves out what can be left out, and tells the rest.
fn shortest(
    host: &mut Host,
    plan: Plan,
    nofile: usize,
    mut calls: Vec<Call>,
    mut difference: String,
    seed: u64,
) -> String {
    let mut chunk = calls.len() / 2;
    while chunk > 0 {
        let mut from = 0;
        while from < calls.len() {
            let mut fewer = calls.clone();
            fewer.drain(from..(from + chunk).min(calls.len()));
            match sequence(host, &mut Report::default(), plan, nofile, &fewer) {
                Err(again) => (calls, difference) = (fewer, again),
                Ok(()) => from += chunk,
            }
        }
        chunk /= 2;
    }
    format!("{difference}seed {seed}, {plan:?}, limit {nofile}, the calls:\n{calls:#?}")
}

fn sequence(
    host: &mut Host,
    report: &mut Report,
    plan: Plan,
    nofile: usize,
    calls: &[Call],
) -> Result<(), String> {
    host.reset(nofile);
    let ours = Ours::new(host.privileged, nofile);
    for (n, &call) in calls.iter().enumerate() {
        if plan.haunted && n % 3 == 0 {
            ours.haunt(n % 5);
        }
        if n % plan.look_every == 0 {
            report.step(host, &ours, call)?;
        } else {
            report.step_without_state(host, &ours, call)?;
        }
    }
    same_descriptors(host, &ours, "all calls")?;
    ours.assert_clean();
    Ok(())
}

/// A random generator (SplitMix64), and what it makes.
struct Dice(u64);

impl Dice {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: i32) -> i32 {
        (self.word() % n as u64) as i32
    }

    /// True once in `n`.
    fn once_in(&mut self, n: i32) -> bool {
        self.below(n) == 0
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as i32) as usize]
    }

    /// A descriptor, mostly one that is likely open.
    fn fd(&mut self, size: i32) -> i32 {
        match self.below(12) {
            0..7 => self.below(size / 2),
            7..11 => self.below(size + 2),
            _ => self.one_of(&[-1, -2, i32::MIN, i32::MAX, 1 << 20]),
        }
    }

    /// A word of some of the known bits, now and then with one that is not known. Never one that needs an explanation.
    fn flags(&mut self, known: &[i32], unknown: &[i32]) -> i32 {
        let choice = self.word();
        let some = known
            .iter()
            .enumerate()
            .filter(|(n, _)| choice >> n & 1 != 0)
            .fold(0, |all, (_, bit)| all | bit);
        if self.once_in(16) { some | self.one_of(unknown) } else { some }
    }

    /// A call that both sides must answer alike.
    fn call(&mut self, size: i32) -> Call {
        match self.below(76) {
            0..8 => self.socket(),
            8..13 => Call::Pipe2 {
                flags: self.flags(&[O_CLOEXEC, O_NONBLOCK, O_DIRECT], &[1, O_APPEND, i32::MIN]),
            },
            13..17 => {
                let flags = self.flags(&[EFD_SEMAPHORE, O_CLOEXEC, O_NONBLOCK], &[2, 1 << 29]);
                Call::Eventfd { count: self.word() as u32, flags }
            }
            17..20 => {
                let clock = if self.once_in(4) {
                    self.below(14) - 1
                } else {
                    self.one_of(&[0, 1, 7, 8, 9])
                };
                Call::Timerfd { clock, flags: self.flags(&[O_CLOEXEC, O_NONBLOCK], &[1]) }
            }
            20..24 => {
                let fd = if self.once_in(2) { -1 } else { self.fd(size) };
                Call::Signalfd {
                    fd,
                    mask: self.word(),
                    flags: self.flags(&[O_CLOEXEC, O_NONBLOCK], &[1, i32::MIN]),
                }
            }
            24..30 => Call::Dup { fd: self.fd(size) },
            30..35 => Call::Dup2 { old: self.fd(size), new: self.fd(size) },
            35..40 => {
                let flags = self.flags(&[O_CLOEXEC], &[O_NONBLOCK, 1]);
                Call::Dup3 { old: self.fd(size), new: self.fd(size), flags }
            }
            40..57 => self.fcntl(size),
            57..73 => Call::Close { fd: self.fd(size) },
            73 | 74 => self.close_range(size),
            _ => Call::Limit { nofile: self.below(size + 3) as usize },
        }
    }

    fn socket(&mut self) -> Call {
        let domain = if self.once_in(10) {
            self.one_of(&[-1, 46])
        } else {
            self.one_of(&[AF_UNIX, AF_INET, AF_INET6])
        };
        let ty =
            if self.once_in(5) { self.one_of(&[0, 3, 4, 5, 11]) } else { self.one_of(&[1, 2]) };
        let flags = self.flags(&[SOCK_CLOEXEC, SOCK_NONBLOCK], &[16, 1 << 20, i32::MIN]);
        let protocol =
            if self.once_in(6) { self.one_of(&[-1, 1, 6, 17, 58, 255, 263, 300]) } else { 0 };
        Call::Socket { domain, ty: ty | flags, protocol }
    }

    fn fcntl(&mut self, size: i32) -> Call {
        let fd = self.fd(size);
        let (cmd, arg) = match self.below(20) {
            0 => (F_GETFD, self.word()),
            1 => (F_GETFL, self.word()),
            2..5 => (F_SETFD, self.word()),
            5 => (F_SETFL, self.word()),
            6..10 => {
                let known = [O_APPEND, O_NONBLOCK, O_NOATIME, O_ASYNC, O_RDWR, O_CLOEXEC];
                (F_SETFL, self.flags(&known, &[O_DIRECT]) as u64)
            }
            10..14 => (F_DUPFD, self.below(size + 2) as u64),
            14..18 => (F_DUPFD_CLOEXEC, self.below(size + 2) as u64),
            18 => (F_DUPFD, self.word()),
            _ => (self.one_of(&[-1, 18, 39, 63, 1023, 2000, i32::MAX]), self.word()),
        };
        Call::Fcntl { fd, cmd, arg }
    }

    fn close_range(&mut self, size: i32) -> Call {
        let mut bound = || match self.below(6) {
            0 => self.one_of(&[u32::MAX, 1 << 31, 1 << 20]),
            _ => self.below(size + 3) as u32,
        };
        let (first, last) = (bound(), bound());
        let flags =
            if self.once_in(8) { self.word() as u32 } else { self.one_of(&[0, 2, 4, 4, 6]) };
        Call::CloseRange { first, last, flags }
    }
}
