//! The sheet: all rows, measured now.

use super::memory::ENVIRONMENT;
use super::{Checkout, model};
use crate::plant::VARIABLE;
use crate::{Amount, Column, Operation, Plant, Row, raw};
use anyhow::{Context, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::process::Command;

/// Counts of operations, as they are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sheet {
    /// Version of the compiler that made the counted code.
    pub compiler: String,
    /// Profile of the build.
    pub profile: String,
    /// Rows by the operation's name.
    pub rows: BTreeMap<&'static str, Row>,
}

/// Columns that [`count_row`](crate::count_row) fills, in its order.
const COUNTED: [Column; 5] = [
    Column::Instructions,
    Column::Locked,
    Column::Fences,
    Column::SystemCalls,
    Column::LibraryCalls,
];

/// Measures operations: each in processes of its own, on one CPU, with an empty environment and
/// addresses that are not random.
///
/// Without a checkout the columns of the model are left out. One operation may have a planted
/// slowdown. Calls `done` with the name of an operation when it is counted.
///
/// # Errors
/// If an operation cannot be measured, or a column is missing.
pub fn measure(
    operations: &[Operation],
    checkout: Option<&Checkout>,
    plant: Option<(&str, Plant)>,
    done: impl Fn(&str),
) -> anyhow::Result<Sheet> {
    ensure!(raw::fix_addresses(), "this system does not let a program fix its addresses");
    let mut rows: BTreeMap<&'static str, Row> = BTreeMap::new();
    for operation in operations {
        rows.insert(operation.name, Row::default());
    }
    if let Some(checkout) = checkout {
        model::add_columns(checkout, plant, &mut rows)?;
    }
    let before = sched_getaffinity(None)?;
    pin(&before)?;
    let result = operations.iter().try_for_each(|operation| {
        let row = rows.get_mut(operation.name).expect("each operation has a row");
        let plant = plant.filter(|(name, _)| *name == operation.name).map(|(_, plant)| plant);
        count(operation, plant, row)
            .with_context(|| format!("{} cannot be counted", operation.name))?;
        done(operation.name);
        Ok(())
    });
    sched_setaffinity(None, &before)?;
    result.map(|()| Sheet { compiler: compiler(), profile: profile(), rows })
}

/// Binds this thread to the first of the CPUs that it may use.
fn pin(allowed: &CpuSet) -> anyhow::Result<()> {
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut one = CpuSet::new();
    one.set(first.context("this thread may use no CPU")?);
    Ok(sched_setaffinity(None, &one)?)
}

/// Version of the compiler that made this program.
pub(super) fn compiler() -> String {
    env!("QUIETLINE_RUSTC").to_owned()
}

/// Profile of this program's build: the name of the folder that it lies in.
fn profile() -> String {
    let folder = std::env::current_exe().ok().and_then(|path| path.parent().map(|p| p.to_owned()));
    let name = folder.and_then(|folder| Some(folder.file_name()?.to_str()?.to_owned()));
    name.unwrap_or_else(|| "unknown".into())
}

/// Fills the columns that this machine counts.
fn count(operation: &Operation, plant: Option<Plant>, row: &mut Row) -> anyhow::Result<()> {
    let counts: [u64; 6] = child("count-row", operation, plant, None)?;
    for (column, count) in COUNTED.into_iter().zip(counts) {
        row.set(column, Amount::whole(count));
    }
    let [allocated, retained] = child("measure-bytes", operation, plant, Some(ENVIRONMENT))?;
    row.set(Column::BytesAllocated, Amount::whole(allocated + counts[5]));
    row.set(Column::BytesRetained, Amount::whole(retained));
    Ok(())
}

/// Runs a command of this program for an operation, in a process whose environment does not depend
/// on the caller's. Returns the numbers that it prints.
fn child<const N: usize>(
    command: &str,
    operation: &Operation,
    plant: Option<Plant>,
    variable: Option<(&str, &str)>,
) -> anyhow::Result<[u64; N]> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args([command, operation.name]).env_clear().envs(variable);
    // Counts do not depend on it, and it is how that is tested.
    child.envs(std::env::var("GLIBC_TUNABLES").map(|value| ("GLIBC_TUNABLES", value)));
    if let Some(plant) = plant {
        child.env(VARIABLE, format!("{}:{}", operation.name, plant.text()));
    }
    let output = child.output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<u64> =
        text.split_whitespace().map(str::parse).collect::<Result<_, _>>().context(text.clone())?;
    numbers.try_into().map_err(|_| anyhow::anyhow!("{command} printed {text:?}"))
}

impl Sheet {
    /// The sheet as JSON: a row in a line, sorted by name.
    pub fn to_json(&self) -> String {
        let rows: Vec<_> = self.rows.iter().map(|(name, row)| row.to_json(name)).collect();
        format!(
            "{{\"compiler\":\"{}\",\"profile\":\"{}\",\"rows\":[\n{}\n]}}\n",
            self.compiler,
            self.profile,
            rows.join(",\n")
        )
    }
}
