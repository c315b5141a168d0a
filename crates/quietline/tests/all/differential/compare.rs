//! Makes a call on both sides and compares.

use crate::differential::call::{Call, Outcome};
use crate::differential::explained::explained;
use crate::differential::host::Host;
use crate::differential::ours::Ours;
use crate::differential::state::Open;
use std::collections::BTreeMap;

/// What was compared.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Calls that were made on both sides.
    pub(crate) calls: u64,
    /// Calls that succeeded on both.
    pub(crate) succeeded: u64,
    /// Differences by the reason that explains them.
    pub(crate) explained: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Makes `call` on both sides. `Ok` with the outcome if they agree; `Err(Ok(reason))` for an explained
    /// difference, after which the two sides' descriptors may differ too; `Err(Err(difference))` for another.
    fn outcome(
        &mut self,
        host: &mut Host,
        ours: &Ours,
        call: Call,
    ) -> Result<Outcome, Result<(), String>> {
        let theirs = host.call(call);
        let mine = ours.call(call);
        self.calls += 1;
        if theirs == mine {
            self.succeeded += u64::from(mine.is_ok());
            return Ok(mine);
        }
        match explained(call, theirs, mine) {
            Some(reason) => {
                *self.explained.entry(reason).or_default() += 1;
                Err(Ok(()))
            }
            None => Err(Err(format!("{call:?}: host {}, quietline {}", say(theirs), say(mine)))),
        }
    }

    /// As `outcome`, and compares the descriptors. `Ok(None)` for an explained difference.
    pub(crate) fn step(
        &mut self,
        host: &mut Host,
        ours: &Ours,
        call: Call,
    ) -> Result<Option<Outcome>, String> {
        match self.outcome(host, ours, call) {
            Ok(outcome) => same_descriptors(host, ours, call).map(|()| Some(outcome)),
            Err(Ok(())) => Ok(None),
            Err(Err(difference)) => Err(difference),
        }
    }

    /// As `step`, but leaves the descriptors for later.
    pub(crate) fn step_without_state(
        &mut self,
        host: &mut Host,
        ours: &Ours,
        call: Call,
    ) -> Result<(), String> {
        match self.outcome(host, ours, call) {
            Ok(_) | Err(Ok(())) => Ok(()),
            Err(Err(difference)) => Err(difference),
        }
    }
}

/// Compares the open descriptors, their flags, their files' flags, names and identity.
pub(crate) fn same_descriptors(
    host: &Host,
    ours: &Ours,
    after: impl std::fmt::Debug,
) -> Result<(), String> {
    let (theirs, mine) = (host.snapshot(), ours.snapshot(host.tells_files()));
    if theirs == mine {
        return Ok(());
    }
    let (theirs_only, mine_only) = (missing(&theirs, &mine), missing(&mine, &theirs));
    Err(format!("descriptors after {after:?}:\nhost:\n{theirs_only}quietline:\n{mine_only}"))
}

/// The descriptors of one side that the other has not, or has otherwise.
fn missing(here: &[Open], there: &[Open]) -> String {
    here.iter().filter(|open| !there.contains(open)).map(|open| format!("  {open:?}\n")).collect()
}

fn say(outcome: Outcome) -> String {
    match outcome {
        Ok((value, None)) => value.to_string(),
        Ok((a, Some(b))) => format!("{a} and {b}"),
        Err(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}
