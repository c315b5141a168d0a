//! The columns that the model counts: `ql-sim costs`.

use crate::plant::VARIABLE;
use crate::{Amount, Checkout, Column, Plant, Row};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// Runs the model for operations, one of them perhaps with a planted slowdown, and adds its columns
/// to their rows.
///
/// # Errors
/// If the model cannot be built or fails, and if it leaves a count out.
pub(super) fn add_columns(
    checkout: &Checkout,
    plant: Option<(&str, Plant)>,
    rows: &mut BTreeMap<&'static str, Row>,
) -> anyhow::Result<()> {
    let mut arguments = vec!["costs", "--json", "-"];
    arguments.extend(rows.keys());
    let variable = plant.map(|(name, plant)| (VARIABLE, format!("{name}:{}", plant.text())));
    let text = checkout.run_model(&arguments, variable).context(
        "the columns of the model (lines_touched, shared_lines_*) are missing: `ql-sim` counts \
         them, and it cannot be built or run. `cargo lines` in the checkout says more",
    )?;
    fill(&text, rows)
}

/// Adds the columns of the model's answer to rows.
fn fill(text: &str, rows: &mut BTreeMap<&'static str, Row>) -> anyhow::Result<()> {
    let sheet: Value = serde_json::from_str(text).context("the model's answer is no JSON")?;
    let cpus = sheet["cpus"].as_u64().context("the model's answer has no number of CPUs")?;
    for counts in sheet["rows"].as_array().context("the model's answer has no rows")? {
        let name = counts["operation"].as_str().context("a row of the model has no name")?;
        let row = rows.get_mut(name).with_context(|| format!("nobody asked for {name}"))?;
        let operations = counts["window"].as_u64().unwrap_or(0) * cpus;
        let count = |key: &str| -> anyhow::Result<Amount> {
            let of = |part| counts[key][part].as_u64();
            let both = of("typical").zip(of("total"));
            let (typical, total) = both.with_context(|| format!("{name}: no {key}"))?;
            // What most operations do; or, if they do nothing, what some do.
            Ok(if typical > 0 { Amount::whole(typical) } else { Amount::mean(total, operations) })
        };
        match counts["sharing"].as_str() {
            Some("one-process") => {
                row.set(Column::LinesTouched, count("lines_touched")?);
                row.set(Column::SharedLinesOneProcess, count("shared_lines_written")?);
            }
            Some("own-processes") => {
                row.set(Column::LinesTouchedOwnProcesses, count("lines_touched")?);
                row.set(Column::SharedLinesOwnProcesses, count("shared_lines_written")?);
            }
            other => bail!("{name}: the model has a row for {other:?}"),
        }
    }
    for (name, row) in rows {
        for column in super::COLUMNS.into_iter().filter(|column| column.is_modelled()) {
            ensure!(
                row.get(column).is_some(),
                "{name} has no {}: the model's answer lacks it. Its program may be older than \
                 this one: delete target/sim and try again",
                column.key()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::fill;
    use crate::{Amount, Column, Row};
    use std::collections::BTreeMap;

    fn answer(rows: &str) -> String {
        format!(r#"{{"machine":"m","cpus":4,"rows":[{rows}]}}"#)
    }

    fn row(sharing: &str, typical: u64, total: u64) -> String {
        format!(
            r#"{{"operation":"stat-1","sharing":"{sharing}","window":1024,
            "lines_touched":{{"typical":20,"total":81920}},
            "shared_lines_written":{{"typical":{typical},"total":{total}}},"contended":[]}}"#
        )
    }

    #[test]
    fn typical_counts_and_means_of_rare_ones() {
        let mut rows = BTreeMap::from([("stat-1", Row::default())]);
        let text = answer(&(row("one-process", 2, 9000) + "," + &row("own-processes", 0, 4)));
        fill(&text, &mut rows).unwrap();
        let of = |column| rows["stat-1"].get(column).unwrap();
        assert_eq!(of(Column::LinesTouched), Amount::whole(20));
        assert_eq!(of(Column::LinesTouchedOwnProcesses), Amount::whole(20));
        assert_eq!(of(Column::SharedLinesOneProcess), Amount::whole(2));
        assert_eq!(of(Column::SharedLinesOwnProcesses).to_string(), "0.001");
    }

    #[test]
    fn a_count_that_is_left_out_is_an_error() {
        let mut rows = BTreeMap::from([("stat-1", Row::default())]);
        let error = fill(&answer(&row("one-process", 0, 0)), &mut rows).unwrap_err();
        assert!(error.to_string().contains("lines_touched_own_processes"), "{error}");
    }
}
