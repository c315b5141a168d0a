//! Slowdowns planted in every row, which the check must find.

use super::{Checkout, Column, Entry, Ledger, Sheet, compare, measure};
use crate::{Operation, Plant};
use std::collections::BTreeMap;

/// A slowdown that was planted in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planted {
    /// The operation's name.
    pub operation: &'static str,
    /// The slowdown.
    pub plant: Plant,
    /// The column that it must show in.
    pub column: Column,
    /// Whether the check failed for that row and column.
    pub found: bool,
}

/// A random slowdown for a row with so many instructions, and the column that it must show in.
fn choose(random: u64, instructions: u64) -> (Plant, Column) {
    match random % 8 {
        0 => {
            let n = 10.max(instructions / 50);
            (Plant::Instructions(u32::try_from(n).unwrap_or(u32::MAX)), Column::Instructions)
        }
        1 => (Plant::Locked, Column::Locked),
        2 => (Plant::Fence, Column::Fences),
        3 => (Plant::SystemCall, Column::SystemCalls),
        4 => (Plant::LibraryCall, Column::LibraryCalls),
        5 => (Plant::Allocation, Column::BytesAllocated),
        6 => (Plant::Leak, Column::BytesRetained),
        _ => (Plant::SharedLine, Column::SharedLinesOneProcess),
    }
}

/// Plants a slowdown in each operation, chosen by the seed, and looks whether the check finds it.
/// Calls `done` after each.
///
/// # Errors
/// If an operation cannot be measured.
pub fn plant_every_row(
    operations: &[Operation],
    checkout: &Checkout,
    mut seed: u64,
    mut done: impl FnMut(&Planted),
) -> anyhow::Result<Vec<Planted>> {
    let clean = measure(operations, Some(checkout), None, |_| ())?;
    let ledger = as_ledger(&clean);
    let mut all = Vec::new();
    for operation in operations {
        // The constants of Knuth's MMIX generator.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let before = clean.rows[operation.name].get(Column::Instructions).unwrap_or_default();
        let (plant, column) = choose(seed >> 33, before.thousandths() / 1000);
        let model = column.is_modelled().then_some(checkout);
        let sheet = measure(&[*operation], model, Some((operation.name, plant)), |_| ())?;
        let findings = compare(&ledger, &sheet, false);
        let found = findings.grown(operation.name).contains(&column);
        let planted = Planted { operation: operation.name, plant, column, found };
        done(&planted);
        all.push(planted);
    }
    Ok(all)
}

/// A ledger with one entry: the sheet.
fn as_ledger(sheet: &Sheet) -> Ledger {
    let rows: BTreeMap<_, _> =
        sheet.rows.iter().map(|(name, row)| ((*name).to_owned(), Some(*row))).collect();
    let entry = Entry {
        date: String::new(),
        commit: String::new(),
        compiler: sheet.compiler.clone(),
        profile: sheet.profile.clone(),
        reason: String::new(),
        adr: None,
        rows,
    };
    Ledger { entries: vec![entry] }
}
