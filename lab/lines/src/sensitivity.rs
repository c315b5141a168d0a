//! Which conclusions from the ladder hold when latencies are not what the machine's file says.

use crate::ladder::{BEFORE, Ladder, reported_on_8};
use core::fmt;
use core::ops::RangeInclusive;
use quietline_history::Rung;
use serde::Serialize;

/// What all latencies between CPUs, and to memory, are multiplied by: the file's first.
pub const LATENCIES: [f64; 3] = [1.0, 0.7, 1.3];

/// A conclusion: a ratio, what was reported for it, and within which bounds the conclusion is true.
#[derive(Debug, Clone, Serialize)]
pub struct Conclusion {
    /// In words.
    pub says: &'static str,
    /// From the seconds that were reported.
    pub reported: f64,
    /// The bounds.
    pub from: f64,
    /// As `from`.
    pub to: f64,
    /// In the model, for each of [`LATENCIES`].
    pub modelled: Vec<f64>,
}

impl Conclusion {
    /// Whether it is true, for each of [`LATENCIES`].
    pub fn holds(&self) -> impl Iterator<Item = bool> + '_ {
        self.modelled.iter().map(|ratio| (self.from..=self.to).contains(ratio))
    }

    /// Whether it is true for all of them.
    pub fn always_holds(&self) -> bool {
        self.holds().all(|holds| holds)
    }
}

/// Within 30 %.
fn near(reported: f64) -> RangeInclusive<f64> {
    reported * 0.7..=reported * 1.3
}

/// The conclusions from one ladder for each of [`LATENCIES`].
pub fn conclusions(ladders: &[Ladder]) -> Vec<Conclusion> {
    let conclude =
        |says, reported: f64, bounds: RangeInclusive<f64>, ratio: &dyn Fn(&Ladder) -> f64| {
            let modelled = ladders.iter().map(ratio).collect();
            Conclusion { says, reported, from: *bounds.start(), to: *bounds.end(), modelled }
        };
    // On 8 CPUs: how much longer one rung takes than another.
    let modelled =
        |ladder: &Ladder, slow: Rung, fast: Rung| on_8(ladder, slow) / on_8(ladder, fast);
    let reported = |slow: Rung, fast: Rung| reported_on_8(slow) / reported_on_8(fast);
    let step = |says, slow, fast, bounds| {
        conclude(says, reported(slow, fast), bounds, &move |ladder| modelled(ladder, slow, fast))
    };
    use Rung::{Base, LastIno, Norefcount, SingleDentry, SingleInode, TypesafeFiles};
    let versions = quietline_seeds::table("sockets-2008", "versions");
    let base_on_1 = versions.expect(BEFORE, "1 CPU");
    let last_on_1 = versions.expect("version 3", "1 CPU");
    let (end_on_1, end) = (last_on_1 / base_on_1, reported_on_8(Norefcount) / last_on_1);
    let base = |ladder: &Ladder| ladder.steps[0].on_8 / ladder.steps[0].on_1;
    let slower = reported_on_8(Base) / base_on_1;
    let counters = reported(Base, LastIno);
    let (dentry, inode) = (reported(LastIno, SingleDentry), reported(SingleDentry, SingleInode));
    let files = reported(SingleInode, TypesafeFiles);
    let mounts = reported(TypesafeFiles, Norefcount);
    vec![
        // More than 8 times as long on 8 CPUs: one alone would be done sooner.
        conclude("base: 8 CPUs do less than 1", slower, 8.0..=f64::MAX, &base),
        conclude("    how much longer, within 30 %", slower, near(slower), &base),
        // A tenth is noise of who meets whom.
        conclude("no patch makes it slower (the worst step)", 1.0, 0.0..=1.1, &|ladder| {
            ladder.steps.windows(2).map(|pair| pair[1].on_8 / pair[0].on_8).fold(0.0, f64::max)
        }),
        step("three counters alone bring a tenth", Base, LastIno, 1.05..=1.15),
        step("    how much, within 30 %", Base, LastIno, near(counters)),
        step("single dentries bring something", LastIno, SingleDentry, 1.1..=3.0),
        step("    how much, within 30 %", LastIno, SingleDentry, near(dentry)),
        // No other step is half of it.
        step("single inodes are the jump", SingleDentry, SingleInode, 3.0..=f64::MAX),
        step("    how much, within 30 %", SingleDentry, SingleInode, near(inode)),
        step("typesafe files bring something", SingleInode, TypesafeFiles, 1.1..=3.0),
        step("    how much, within 30 %", SingleInode, TypesafeFiles, near(files)),
        step("uncounted mounts bring something", TypesafeFiles, Norefcount, 1.1..=3.0),
        step("    how much, within 30 %", TypesafeFiles, Norefcount, near(mounts)),
        step(
            "the series on 8 CPUs, in all, within 30 %",
            Base,
            Norefcount,
            near(reported(Base, Norefcount)),
        ),
        // Half of the 30 % more or less.
        conclude("in the end 8 CPUs take 30 % longer than 1", end, 1.15..=1.45, &|ladder| {
            let last = ladder.steps.last().expect("a ladder has rungs");
            last.on_8 / last.on_1
        }),
        conclude("on 1 CPU it gains a fifth", end_on_1, 0.75..=0.85, &|ladder| {
            let last = ladder.steps.last().expect("a ladder has rungs");
            last.on_1 / ladder.steps[0].on_1
        }),
    ]
}

fn on_8(ladder: &Ladder, rung: Rung) -> f64 {
    let step = ladder.steps.iter().find(|step| step.rung == rung.name());
    step.expect("a ladder has every rung").on_8
}

/// The conclusions as a table.
#[derive(Debug)]
pub struct Table<'a>(pub &'a [Conclusion]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:46} {:>9} {:>13}",
            "conclusion (a ratio of seconds)", "reported", "true within"
        )?;
        LATENCIES.iter().try_for_each(|by| write!(f, "  latencies x {by:.1}"))?;
        writeln!(f)?;
        for conclusion in self.0 {
            let Conclusion { says, reported, from, to, modelled } = conclusion;
            let bounds = if *to == f64::MAX {
                format!("{from:.2}..")
            } else {
                format!("{from:.2}..{to:.2}")
            };
            write!(f, "{says:46} {reported:9.2} {bounds:>13}")?;
            for (ratio, holds) in modelled.iter().zip(conclusion.holds()) {
                let verdict = if holds { "holds" } else { "does not" };
                write!(f, "  {:>15}", format!("{ratio:.2} {verdict}"))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
