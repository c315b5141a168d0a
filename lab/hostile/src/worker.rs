//! A thread of the guest.

use crate::calls::{ARGUMENTS, Arguments, Call, Caller, Outcome};
use crate::guest::Guest;
use crate::kind::{BUFFER, Kind};
use crate::random::Random;
use crate::seat::{Seat, show};
use crate::victim::{self, is_unprivileged};
use quietline_sync::Interrupt;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Calls that a thread does in one process before it turns to another.
const IN_ONE_PROCESS: u64 = 40;
/// Calls that a thread remembers.
const REMEMBERED: usize = 24;

/// How often each call was made, and how often it succeeded.
#[derive(Debug, Clone)]
pub struct Tally {
    /// By index of the call.
    pub made: Vec<u64>,
    /// By index of the call.
    pub succeeded: Vec<u64>,
}

impl Tally {
    /// A tally of no calls.
    pub fn new(calls: usize) -> Self {
        Self { made: vec![0; calls], succeeded: vec![0; calls] }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(a, b)| *a += b);
        add(&mut self.made, &other.made);
        add(&mut self.succeeded, &other.succeeded);
    }
}

thread_local! {
    static LAST: RefCell<VecDeque<(usize, Arguments, Option<Outcome>)>> =
        const { RefCell::new(VecDeque::new()) };
}

/// Returns the last calls of the calling thread, one a line, the last one last.
pub fn last_calls(calls: &[&Call]) -> String {
    LAST.with_borrow(|last| {
        let line = |(call, arguments, outcome): &(usize, Arguments, Option<Outcome>)| {
            let outcome = outcome.map_or("...".to_owned(), |outcome| format!("{outcome:?}"));
            format!("  {} = {outcome}\n", show(calls[*call], arguments))
        };
        last.iter().map(line).collect()
    })
}

/// Makes `amount` random calls.
pub fn work(
    guest: &Guest,
    seat: &Seat,
    calls: &[&'static Call],
    mut random: Random,
    amount: u64,
) -> Tally {
    let _entered = Interrupt::enter(&seat.interrupt);
    seat.take();
    let mut tally = Tally::new(calls.len());
    let weights: u64 = calls.iter().map(|call| call.weight).sum();
    let mut input = vec![0; BUFFER];
    input.fill_with(|| random.word() as u8);
    let text = random.pick(&["0\n", "20\n", "1000\n", "1048576\n"]);
    input[..text.len()].copy_from_slice(text.as_bytes());
    let mut output = vec![0; BUFFER];
    let mut done = 0;
    while done < amount {
        let process = guest.pick(&mut random);
        for _ in 0..1 + random.below(IN_ONE_PROCESS) {
            let call = draw(calls, random.below(weights));
            let mut arguments = Arguments([0; ARGUMENTS]);
            for (value, kind) in arguments.0.iter_mut().zip(calls[call].kinds) {
                *value = kind.draw(&mut random);
            }
            let forbidden =
                is_unprivileged(&process) && elevate(calls[call], &mut arguments, &mut random);
            LAST.with_borrow_mut(|last| {
                last.truncate(REMEMBERED - 1);
                last.push_front((call, arguments, None));
            });
            let (input, output) = (&input[..], &mut output[..]);
            let mut caller = Caller { p: &process, guest, input, output, used: 0 };
            seat.begin(call, &arguments, process.getpid());
            let outcome = (calls[call].run)(&mut caller, &arguments);
            seat.end();
            check(caller.checked(calls[call], &arguments, outcome));
            assert!(
                !forbidden || outcome.is_err(),
                "a call on a path of user {} succeeds",
                victim::USER
            );
            LAST.with_borrow_mut(|last| last[0].2 = Some(outcome));
            tally.made[call] += 1;
            tally.succeeded[call] += u64::from(outcome.is_ok());
            done += 1;
        }
        seat.begin(usize::MAX, &Arguments::default(), process.getpid());
        drop(process);
        seat.end();
    }
    tally
}

/// Arguments that are paths and that the call does not always look up: the call, and the index.
const OTHER_PATHS: &[(&str, usize)] =
    &[("symlink", 0), ("symlinkat", 0), ("memfd_create", 0), ("mount", 0), ("utimensat", 1)];

/// Replaces some paths by paths of the victim. Returns whether the call must fail for that.
fn elevate(call: &Call, arguments: &mut Arguments, random: &mut Random) -> bool {
    let mut forbidden = false;
    for (index, (value, kind)) in arguments.0.iter_mut().zip(call.kinds).enumerate() {
        let replaced = match kind {
            Kind::Path => !OTHER_PATHS.contains(&(call.name, index)),
            Kind::Address => ["bind", "connect"].contains(&call.name),
            _ => false,
        };
        if replaced && random.below(8) == 0 {
            *value |= victim::SECRET;
            forbidden |= matches!(kind, Kind::Address) || victim::path(*value).1;
        }
    }
    forbidden
}

fn draw(calls: &[&Call], mut at: u64) -> usize {
    let passed = |call: &&Call| {
        let here = at < call.weight;
        at = at.wrapping_sub(call.weight);
        here
    };
    calls.iter().position(passed).expect("a number below the sum of the weights")
}

/// Panics if an error is none that Linux tells programs of.
fn check(outcome: Outcome) {
    if let Err(errno) = outcome {
        let number = errno.raw_os_error();
        assert!((1..=133).contains(&number), "a call fails with the error {number}");
    }
}
