//! The host's tmpfs is the reference for the file system: the same random programs of system calls, by several
//! processes and users, run on a tmpfs of the host and on a quietline kernel. Results, errors, attributes, names and
//! contents must be the same, call by call.
//!
//! The tester is tested too: two tmpfs of the host must agree, and a side with a fault planted must be found out.
//!
//! `QUIETLINE_POSIX_CALLS` is the number of calls (default 100,000), `QUIETLINE_POSIX_SEED` their
//! seed, or several with commas between them, for as many calls each; `QUIETLINE_POSIX_SCRIPT` a
//! file with a program to run instead, as failures print them. With `QUIETLINE_POSIX_SURVEY` a run
//! goes on after a difference, and writes the shortest program for each kind of them to that file.
//!
//! ```text
//!   generate ── Program ──┬── host (a tmpfs, a thread for each process) ── outcomes ──┐
//!       dice, names       └── quietline (a Kernel, a Process for each) ─── outcomes ──┴── normal form ── compare ── shrink
//! ```
#![allow(
    unsafe_code,
    reason = "system calls with arguments that no safe wrapper would let through"
)]

mod arg;
mod call;
mod compare;
mod composed;
mod dice;
mod drive;
mod explained;
mod faults;
mod generate;
mod host;
mod names;
mod normal;
mod outcome;
mod quietline;
mod shrink;
mod sys;

use self::quietline::Quietline;
use compare::Report;
use drive::Plan;
use host::Host;
use host::rootless::{Rights, Way, way};
use sys::Sys;

/// Runs a test with so many tmpfs of the host, or says why it does not. (In a user namespace the test runs again,
/// from the start, under its name.)
fn with_hosts<const N: usize>(test: &str, f: impl FnOnce([Host; N], bool)) {
    let rights = match way(test) {
        Way::Here(rights) => rights,
        Way::Done => return,
        Way::Nowhere(why) => return println!("SKIPPED {test}: {why}"),
    };
    let mut hosts = Vec::new();
    for _ in 0..N {
        match Host::mount() {
            Ok(host) => hosts.push(host),
            Err(why) => return println!("SKIPPED {test}: no tmpfs to compare with: {why}"),
        }
    }
    f(hosts.try_into().expect("so many"), rights == Rights::Root);
}

fn tell(report: &Report) {
    println!(
        "{} calls in {} programs alike, {} of them successes; {} errors of {} calls seen; {} ties",
        report.calls,
        report.programs,
        report.succeeded,
        report.errors(),
        report.seen.len(),
        report.ties,
    );
    for (reason, times) in &report.explained {
        println!("  {times} explained: {reason}");
    }
}

#[test]
fn a_script_is_read_as_it_is_written() {
    quietline_testing::isolated!();
    with_hosts("posix::a_script_is_read_as_it_is_written", |[mut host], root| {
        for number in 0..50 {
            let (_, program, _) = drive::make(
                &mut host,
                &Quietline::default(),
                Plan { seed: 7, calls: 0, root },
                number,
            );
            let text = call::script(&program);
            assert_eq!(call::read_script(&text).as_ref(), Ok(&program), "{text}");
        }
    });
}

/// The seeds that the environment asks for.
fn seeds() -> Vec<u64> {
    let Ok(text) = std::env::var("QUIETLINE_POSIX_SEED") else { return vec![1] };
    let seed = |text: &str| {
        text.trim().parse().unwrap_or_else(|e| panic!("QUIETLINE_POSIX_SEED={text}: {e}"))
    };
    text.split(',').map(seed).collect()
}

/// What the environment asks for, by its first seed, or this share of the usual number of calls.
fn plan(share: u64, root: bool) -> Plan {
    let calls = quietline_testing::budget("QUIETLINE_POSIX_CALLS", 50_000) / share;
    Plan { seed: seeds()[0], calls, root }
}

/// Goes on over differences, and writes them to a file.
fn survey(path: &str, left: &mut dyn Sys, right: &mut dyn Sys, plan: Plan) {
    const KINDS: usize = 200;
    let write = |text: &str| std::fs::write(path, text).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut text = String::new();
    let (report, failures) = drive::survey(left, right, plan, KINDS, &mut |failure| {
        text += &format!("{}\n", failure.show(plan.seed));
        write(&text);
    });
    tell(&report);
    let all: Vec<String> = failures.iter().map(|failure| failure.show(plan.seed)).collect();
    write(&all.join("\n"));
    println!("{} kinds of differences", failures.len());
}

#[test]
fn quietline_agrees_with_the_host() {
    quietline_testing::isolated!();
    with_hosts("posix::quietline_agrees_with_the_host", |[mut host], root| {
        let mut ours = Quietline::default();
        let plan = plan(1, root);
        if let Ok(path) = std::env::var("QUIETLINE_POSIX_SURVEY") {
            return survey(&path, &mut host, &mut ours, plan);
        }
        let (mut all, begun) = (Report::default(), std::time::Instant::now());
        for seed in seeds() {
            let plan = Plan { seed, ..plan };
            let (report, failure) = drive::until_difference(&mut host, &mut ours, plan);
            println!("seed {seed}: {} calls in {} programs", report.calls, report.programs);
            all.add(report);
            if let Some(failure) = failure {
                tell(&all);
                panic!("the host and quietline differ:\n{}", failure.show(seed));
            }
        }
        tell(&all);
        println!(
            "{:.0} calls a second on each side",
            all.calls as f64 / begun.elapsed().as_secs_f64()
        );
    });
}

#[test]
fn quietline_agrees_with_the_host_on_the_scripts() {
    quietline_testing::isolated!();
    with_hosts("posix::quietline_agrees_with_the_host_on_the_scripts", |[mut host], root| {
        if !root {
            return quietline_testing::skip_without_root("scripts need root, for several users");
        }
        run_scripts(&mut host, &mut Quietline::default());
    });
}

#[test]
fn two_hosts_agree() {
    quietline_testing::isolated!();
    with_hosts("posix::two_hosts_agree", |[mut left, mut right], root| {
        let plan = plan(3, root);
        let (report, failure) = drive::until_difference(&mut left, &mut right, plan);
        tell(&report);
        if let Some(failure) = failure {
            panic!("the tester is at fault, two hosts differ:\n{}", failure.show(plan.seed));
        }
        for name in call::Call::NAMES {
            let (successes, errors) = report.seen.get(name).cloned().unwrap_or_default();
            println!("{name:16} {successes:7} successes, errors {errors:?}");
            assert!(successes > 0 || report.calls < 50_000 || !root, "{name} never succeeds");
        }
    });
}

#[test]
#[ignore = "soak: compares the host with a spoilt host, and not this library, for 20 s"]
fn planted_faults_are_found() {
    quietline_testing::isolated!();
    /// By then every fault must have been met.
    const CALLS: u64 = 200_000;
    with_hosts("posix::planted_faults_are_found", |[mut left, mut right], root| {
        for &(name, spoil) in faults::FAULTS {
            let mut faulty = faults::Faulty::new(&mut right, spoil);
            let plan = Plan { calls: CALLS, ..plan(1, root) };
            let (report, failure) = drive::until_difference(&mut left, &mut faulty, plan);
            let Some(failure) = failure else {
                let needs_users = name.contains("without the right");
                assert!(
                    !root && needs_users,
                    "not found in {CALLS} calls: {name} ({} lies)",
                    faulty.spoilt
                );
                continue;
            };
            let steps = failure.program.len();
            println!(
                "after {:6} calls, by {steps} of them: {name}: {}",
                report.calls, failure.difference.kind
            );
            assert!(steps <= 24, "a script should be short:\n{}", failure.show(plan.seed));
        }
    });
}

/// The scripts that are kept, by file name: rules that random programs meet seldom.
const SCRIPTS: &[(&str, &str)] = &[
    ("far", include_str!("scripts/far.txt")),
    ("full", include_str!("scripts/full.txt")),
    ("into_removed", include_str!("scripts/into_removed.txt")),
    ("order", include_str!("scripts/order.txt")),
    ("places", include_str!("scripts/places.txt")),
    ("removed", include_str!("scripts/removed.txt")),
    ("rename", include_str!("scripts/rename.txt")),
    ("resolve", include_str!("scripts/resolve.txt")),
    ("sizes", include_str!("scripts/sizes.txt")),
    ("sticky", include_str!("scripts/sticky.txt")),
    ("symlinks", include_str!("scripts/symlinks.txt")),
    ("times", include_str!("scripts/times.txt")),
    ("watches", include_str!("scripts/watches.txt")),
    ("whiteout", include_str!("scripts/whiteout.txt")),
];

/// Runs the scripts that are kept.
fn run_scripts(left: &mut dyn Sys, right: &mut dyn Sys) {
    let mut failed = Vec::new();
    for &(name, text) in SCRIPTS {
        let program =
            call::read_script(text).unwrap_or_else(|line| panic!("{name}: not a step: {line}"));
        let program: Vec<_> = program.into_iter().filter(|step| right.offers(&step.call)).collect();
        let mut report = Report::default();
        let difference = compare::run(
            left,
            right,
            drive::setting_of(text),
            &program,
            &mut report,
            &compare::Kinds::new(),
        );
        println!("{name}: {} calls alike, {} successes", report.calls, report.succeeded);
        failed.extend(
            difference
                .map(|difference| format!("{name}, step {}: {}", difference.at, difference.text)),
        );
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn two_hosts_agree_on_the_scripts() {
    quietline_testing::isolated!();
    with_hosts("posix::two_hosts_agree_on_the_scripts", |[mut left, mut right], root| {
        if !root {
            return quietline_testing::skip_without_root("scripts need root, for several users");
        }
        run_scripts(&mut left, &mut right);
    });
}

/// With `QUIETLINE_POSIX_SCRIPT` the host and quietline run a script, and what each says to it is shown.
#[test]
fn a_script_is_replayed() {
    quietline_testing::isolated!();
    let Ok(path) = std::env::var("QUIETLINE_POSIX_SCRIPT") else { return };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    with_hosts("posix::a_script_is_replayed", |[mut host], _| {
        let difference = drive::replay(&mut host, &mut Quietline::default(), &text);
        assert!(difference.is_none(), "the host and quietline differ");
    });
}
