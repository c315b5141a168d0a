//! Whether two sides agree on a program.

use crate::posix::call::Step;
use crate::posix::explained::explained;
use crate::posix::normal::Eyes;
use crate::posix::outcome::Outcome;
use crate::posix::sys::{Setting, Sys};
use std::collections::{BTreeMap, BTreeSet};

/// The first call on which the sides do not agree.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    /// The number of the step.
    pub(crate) at: usize,
    /// What kind of difference it is: the same for programs that show the same fault.
    pub(crate) kind: String,
    /// What each says.
    pub(crate) text: String,
}

/// Kinds of differences. Those that are known, and after which the sides have the same files, are passed over.
pub(crate) type Kinds = BTreeSet<String>;

/// What was compared.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Programs.
    pub(crate) programs: u64,
    /// Calls that both sides made, and answered alike.
    pub(crate) calls: u64,
    /// Those of them that succeeded.
    pub(crate) succeeded: u64,
    /// Differences by the reason that explains them. The rest of such a program is not compared.
    pub(crate) explained: BTreeMap<&'static str, u64>,
    /// Programs that had to run again for a tick of the host's clock.
    pub(crate) ties: u64,
    /// For each call how often it succeeded, and the errors that it gave.
    pub(crate) seen: BTreeMap<&'static str, (u64, BTreeMap<i32, u64>)>,
}

impl Report {
    /// Counts a call that both sides answered alike.
    fn agreed(&mut self, step: &Step, outcome: &Outcome) {
        self.calls += 1;
        let seen = self.seen.entry(step.call.name()).or_default();
        match outcome {
            Outcome::Failed(errno) => {
                *seen.1.entry(*errno).or_default() += 1;
            }
            _ => {
                self.succeeded += 1;
                seen.0 += 1;
            }
        }
    }

    /// Adds another's counts.
    pub(crate) fn add(&mut self, other: Report) {
        self.programs += other.programs;
        self.calls += other.calls;
        self.succeeded += other.succeeded;
        self.ties += other.ties;
        for (reason, times) in other.explained {
            *self.explained.entry(reason).or_default() += times;
        }
        for (name, (successes, errors)) in other.seen {
            let seen = self.seen.entry(name).or_default();
            seen.0 += successes;
            for (errno, times) in errors {
                *seen.1.entry(errno).or_default() += times;
            }
        }
    }

    /// How many errors of how many calls were seen.
    pub(crate) fn errors(&self) -> usize {
        self.seen.values().map(|(_, errors)| errors.len()).sum()
    }
}

/// Runs of a program that differs in nothing but times of change.
const TRIES: usize = 6;

/// Runs a program on both sides and compares call by call.
pub(crate) fn run(
    left: &mut dyn Sys,
    right: &mut dyn Sys,
    setting: Setting,
    program: &[Step],
    report: &mut Report,
    known: &Kinds,
) -> Option<Difference> {
    let lefts = left.run(setting, program);
    run_right(left, lefts, right, setting, program, report, known)
}

/// Runs a program that the left side has run already.
///
/// Where the host's clock of files cannot be made to step, whether two times are told apart can hang on a tick between
/// them: a difference in times alone counts only if it comes each time.
pub(crate) fn run_right(
    left: &mut dyn Sys,
    mut lefts: Vec<Outcome>,
    right: &mut dyn Sys,
    setting: Setting,
    program: &[Step],
    report: &mut Report,
    known: &Kinds,
) -> Option<Difference> {
    let fine = left.fine_times() && right.fine_times();
    let ordered = left.newest_first() && right.newest_first();
    let names = [left.name(), right.name()];
    let mut difference = None;
    for again in 0..TRIES {
        if again > 0 {
            lefts = left.run(setting, program);
        }
        let rights = right.run(setting, program);
        let mut tried = Report::default();
        difference = compare(&names, program, &lefts, &rights, [fine, ordered], &mut tried, known);
        let of_times = difference.as_ref().is_some_and(|difference| {
            let eyes = [false, ordered];
            let coarse =
                || compare(&names, program, &lefts, &rights, eyes, &mut Report::default(), known);
            fine && coarse().is_none_or(|other| other.at != difference.at)
        });
        if !of_times {
            report.add(tried);
            report.ties += u64::from(again > 0);
            return difference;
        }
    }
    difference
}

/// Compares outcomes until they differ.
fn compare(
    names: &[String; 2],
    program: &[Step],
    lefts: &[Outcome],
    rights: &[Outcome],
    [fine, ordered]: [bool; 2],
    report: &mut Report,
    known: &Kinds,
) -> Option<Difference> {
    assert_eq!(
        (lefts.len(), rights.len()),
        (program.len(), program.len()),
        "an outcome for each call"
    );
    let (mut left_eyes, mut right_eyes) = (Eyes::new(fine, ordered), Eyes::new(fine, ordered));
    report.programs += 1;
    for (at, ((step, l), r)) in program.iter().zip(lefts).zip(rights).enumerate() {
        let (l, r) =
            (left_eyes.normal(&step.call, l.clone()), right_eyes.normal(&step.call, r.clone()));
        if l == r {
            report.agreed(step, &l);
            continue;
        }
        if let Some(reason) = explained(&step.call, &l, &r) {
            *report.explained.entry(reason).or_default() += 1;
            return None;
        }
        let (details, fields) = tell(&l, &r);
        let [left, right] = names;
        let kind = kind(step, &l, &r, &fields);
        if known.contains(&kind) && l.is_success() == r.is_success() {
            continue;
        }
        let text = format!(
            "{}\n  {left:>9}: {}\n  {right:>9}: {}\n{details}",
            step.show(),
            say(&l),
            say(&r)
        );
        return Some(Difference { at, kind, text });
    }
    None
}

/// An error's name, or what there is in a line.
pub(crate) fn say(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(errno) => error_name(*errno),
        Outcome::Done(number) => number.to_string(),
        Outcome::Bytes(bytes) if bytes.len() <= 64 => {
            format!("{} bytes \"{}\"", bytes.len(), bytes.escape_ascii())
        }
        Outcome::Bytes(bytes) => {
            format!("{} bytes, checksum {:x}", bytes.len(), crate::posix::outcome::checksum(bytes))
        }
        Outcome::Events(events) => format!("{} events", events.len()),
        Outcome::Tree(nodes) => format!("a tree of {}", nodes.len()),
        Outcome::Fds(all) => format!("{} descriptors", all.len()),
        Outcome::Stat(stat) => format!(
            "mode {:o} nlink {} uid {} gid {} size {} blocks {} ...",
            stat.mode, stat.nlink, stat.uid, stat.gid, stat.size, stat.blocks
        ),
        other => format!("{other:?}"),
    }
}

fn error_name(errno: i32) -> String {
    format!(
        "{} ({errno})",
        std::io::Error::from_raw_os_error(errno).to_string().split(" (os").next().unwrap_or("")
    )
}

fn kind(step: &Step, left: &Outcome, right: &Outcome, fields: &BTreeSet<String>) -> String {
    let side = |outcome: &Outcome| match outcome {
        Outcome::Failed(errno) => error_name(*errno),
        _ => "success".to_owned(),
    };
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    format!("{}: {} / {} [{}]", step.call.name(), side(left), side(right), fields.join(" "))
}

/// Lines in which two successes differ, and the names of their fields.
fn tell(left: &Outcome, right: &Outcome) -> (String, BTreeSet<String>) {
    let mut fields = BTreeSet::new();
    if !left.is_success() || !right.is_success() {
        return (String::new(), fields);
    }
    let (left, right) = (format!("{left:#?}"), format!("{right:#?}"));
    let (left, right): (Vec<&str>, Vec<&str>) = (left.lines().collect(), right.lines().collect());
    let alike = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
    let head = |line: &&str| {
        line.trim_start().starts_with("path:") || line.trim_start().starts_with("fd:")
    };
    let of = left[..alike].iter().rev().copied().find(head).unwrap_or_default().trim();
    let (left, right) = (&left[alike..], &right[alike..]);
    let end = left.iter().rev().zip(right.iter().rev()).take_while(|(l, r)| l == r).count();
    let (left, right) = (&left[..left.len() - end], &right[..right.len() - end]);
    let mut text = if of.is_empty() { String::new() } else { format!("    of {of}\n") };
    for at in 0..left.len().max(right.len()).min(12) {
        let [l, r] = [left, right].map(|side| side.get(at).map_or("-", |line| line.trim()));
        if l != r {
            fields.extend(
                [l, r]
                    .iter()
                    .filter_map(|line| line.split_once(':'))
                    .map(|(field, _)| field.to_owned()),
            );
            text += &format!("    {l} | {r}\n");
        }
    }
    (text, fields)
}
