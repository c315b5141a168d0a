//! Runs many programs.

use crate::posix::call::{Step, read_script, script};
use crate::posix::compare::{Difference, Kinds, Report, run, run_right, say};
use crate::posix::generate::Making;
use crate::posix::outcome::Outcome;
use crate::posix::shrink::shrink;
use crate::posix::sys::{Setting, Sys};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Which programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Until so many calls have been compared.
    pub(crate) calls: u64,
    /// Whether processes are of several users.
    pub(crate) root: bool,
}

/// A program that tells the sides apart.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) case: u64,
    pub(crate) setting: Setting,
    pub(crate) program: Vec<Step>,
    pub(crate) difference: Difference,
    /// Programs that showed this kind of difference first.
    pub(crate) times: u64,
}

impl Failure {
    /// What to read, and what to replay.
    pub(crate) fn show(&self, seed: u64) -> String {
        let mut text = String::new();
        let Setting { pages, inodes, root } = self.setting;
        let _ = writeln!(text, "# {}", self.difference.kind);
        for line in self.difference.text.lines() {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "# seed {seed}, case {}, seen {} times", self.case, self.times);
        let _ = writeln!(text, "# pages {pages} inodes {inodes} root {root}");
        text + &script(&self.program)
    }
}

/// The setting that a script names, or the usual one.
pub(crate) fn setting_of(text: &str) -> Setting {
    let words = text
        .lines()
        .find(|line| line.starts_with("# pages "))
        .map(|line| line.split(' ').collect());
    let words: Vec<&str> = words.unwrap_or_default();
    match words[..] {
        [_, _, pages, _, inodes, _, root] => Setting {
            pages: pages.parse().expect("pages"),
            inodes: inodes.parse().expect("inodes"),
            root: root.parse().expect("root"),
        },
        _ => Setting { pages: 4096, inodes: 4096, root: true },
    }
}

/// Makes the program of this number, of calls that the other side has, and runs it on a side as it is made.
pub(crate) fn make(
    side: &mut dyn Sys,
    other: &dyn Sys,
    plan: Plan,
    number: u64,
) -> (Setting, Vec<Step>, Vec<Outcome>) {
    let (mut making, setting) = Making::new(plan.seed, number, plan.root);
    let (mut program, mut outcomes) = (Vec::new(), Vec::new());
    side.begin(setting);
    loop {
        let steps = making.more();
        if steps.is_empty() {
            side.end();
            return (setting, program, outcomes);
        }
        let offered: Vec<bool> = steps.iter().map(|step| other.offers(&step.call)).collect();
        let mut offered = offered.into_iter();
        let steps: Vec<Step> =
            steps.into_iter().filter(|_| offered.next().unwrap_or(false)).collect();
        let more = side.go(&steps);
        making.learn(&steps, &more);
        program.extend(steps);
        outcomes.extend(more);
    }
}

/// Stops at the first difference, which is made short.
pub(crate) fn until_difference(
    left: &mut dyn Sys,
    right: &mut dyn Sys,
    plan: Plan,
) -> (Report, Option<Failure>) {
    let (report, failures) = survey(left, right, plan, 1, &mut |_| ());
    (report, failures.into_iter().next())
}

/// Goes on until there are so many kinds of differences. Tells of each as it is found.
pub(crate) fn survey(
    left: &mut dyn Sys,
    right: &mut dyn Sys,
    plan: Plan,
    kinds: usize,
    found: &mut dyn FnMut(&Failure),
) -> (Report, Vec<Failure>) {
    let (mut report, mut failures) = (Report::default(), BTreeMap::<String, Failure>::new());
    let (start, mut told) = (Instant::now(), Instant::now());
    let (mut number, mut known) = (0, Kinds::new());
    while report.calls < plan.calls && number < plan.calls && failures.len() < kinds {
        let (setting, program, outcomes) = make(left, right, plan, number);
        if let Some(difference) =
            run_right(left, outcomes, right, setting, &program, &mut report, &known)
        {
            if let Some(failure) = failures.get_mut(&difference.kind) {
                failure.times += 1;
            } else {
                let (program, difference) =
                    shrink(left, right, setting, &program, difference, &known);
                let failure = Failure { case: number, setting, program, difference, times: 1 };
                found(&failure);
                known.insert(failure.difference.kind.clone());
                failures.insert(failure.difference.kind.clone(), failure);
            }
        }
        number += 1;
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let rate = report.calls as f64 / start.elapsed().as_secs_f64();
            let kinds = failures.len();
            println!(
                "{} of {} calls, {rate:.0} a second, {kinds} kinds of differences",
                report.calls, plan.calls
            );
        }
    }
    (report, failures.into_values().collect())
}

/// Runs a script on both sides, and shows what each call returns.
pub(crate) fn replay(left: &mut dyn Sys, right: &mut dyn Sys, text: &str) -> Option<Difference> {
    let program = read_script(text).unwrap_or_else(|line| panic!("not a step: {line}"));
    let setting = setting_of(text);
    let (lefts, rights) = (left.run(setting, &program), right.run(setting, &program));
    for ((step, l), r) in program.iter().zip(&lefts).zip(&rights) {
        println!(
            "{}\n  {:>9}: {}\n  {:>9}: {}",
            step.show(),
            left.name(),
            say(l),
            right.name(),
            say(r)
        );
    }
    let difference = run(left, right, setting, &program, &mut Report::default(), &Kinds::new());
    match &difference {
        Some(difference) => {
            println!("step {} differs: {}\n{}", difference.at, difference.kind, difference.text)
        }
        None => println!("no difference"),
    }
    difference
}
