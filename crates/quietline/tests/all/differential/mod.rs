//! The host kernel is the reference: the same calls are made on a quietline process and, by real system calls, on a
//! thread of this process with a descriptor table of its own. After each call the results, the errors, and all that
//! can be seen of the open descriptors must be the same: their numbers, flags, status flags, names, which have one
//! inode and which one open file. (Property 3, as far as names go.)
//!
//! Differences that are meant are listed, with their reasons, in `explained.rs`, and nowhere else.
//!
//! `QUIETLINE_DIFF_CASES` is the number of random calls (default 20,000), `QUIETLINE_DIFF_SEED`
//! their seed.
#![allow(
    unsafe_code,
    reason = "system calls with arguments that no safe wrapper would let through"
)]

mod call;
mod compare;
mod explained;
mod grid;
mod host;
mod ours;
mod random;
mod state;

use compare::Report;
use host::{Host, Who, on_bare_thread};
use random::Plan;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}")),
        Err(_) => default,
    }
}

fn compare(
    who: Who,
    f: impl FnOnce(&mut Host, &mut Report) -> Result<(), String> + Send,
) -> Report {
    let outcome = on_bare_thread(who, |host| {
        let mut report = Report::default();
        f(host, &mut report).map(|()| (report, host.privileged))
    });
    match outcome {
        Ok((report, privileged)) => {
            let as_whom = if privileged { "with root's rights" } else { "without rights" };
            println!("{} calls {as_whom}, {} succeeded, 0 differ", report.calls, report.succeeded);
            for (reason, times) in &report.explained {
                println!("  {times} explained: {reason}");
            }
            report
        }
        Err(difference) => panic!("the host and quietline differ:\n{difference}"),
    }
}

#[test]
fn creating_calls_agree_over_the_grid() {
    quietline_testing::isolated!();
    for who in [Who::Root, Who::Nobody] {
        let report = compare(who, grid::run_creating);
        assert!(
            report.succeeded > 200 / quietline_testing::stride(grid::THINNED) as u64,
            "most of the grid are errors, but not all of it"
        );
    }
}

#[test]
fn calls_on_descriptors_agree_over_the_grid() {
    quietline_testing::isolated!();
    for who in [Who::Root, Who::Nobody] {
        let report = compare(who, grid::run_using);
        assert!(report.succeeded > 1000 / quietline_testing::stride(grid::THINNED) as u64);
    }
}

#[test]
fn random_sequences_agree() {
    quietline_testing::isolated!();
    let calls = quietline_testing::budget("QUIETLINE_DIFF_CASES", 20_000);
    let seed = number("QUIETLINE_DIFF_SEED", 1);
    println!("seed {seed}");
    let small = Plan { size: 20, look_every: 1, haunted: false };
    let plans = [
        (Who::Root, small, 3),
        (Who::Nobody, small, 2),
        (Who::Root, Plan { size: 64, ..small }, 1),
        (Who::Root, Plan { haunted: true, ..small }, 2),
        (Who::Root, Plan { size: 140, haunted: true, look_every: 8 }, 1),
        (Who::Root, Plan { size: 4200, haunted: true, look_every: 128 }, 1),
    ];
    let mut made = 0;
    for (who, plan, tenths) in plans {
        let report =
            compare(who, |host, report| random::run(host, report, plan, calls / 10 * tenths, seed));
        assert!(report.explained.is_empty(), "random calls need no explanation");
        made += report.calls;
    }
    assert!(made >= calls / 10 * 10);
}
