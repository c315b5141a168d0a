//! What to call a word.

use crate::ledger::{LINE, Word};

/// The name that the word was given; or which CPU's it is; or who writes it.
pub(crate) fn of_word(word: &Word) -> String {
    if let Some(name) = name_of(word.address) {
        return name;
    }
    let by = word.written_by.or(word.read_by).map(|by| format!("{}:{}", by.file(), by.line()));
    let by = by.unwrap_or_else(|| "nobody".to_owned());
    match per_cpu(word.address) {
        Some(_) => format!("per-CPU word, {by}"),
        None if word.written_by.is_some() => {
            format!("word +{} written at {by}", word.address % LINE)
        }
        None => format!("word +{} read at {by}", word.address % LINE),
    }
}

#[cfg(quietline_sim)]
fn name_of(address: usize) -> Option<String> {
    quietline_platform::sim::name_of(address).map(|name| name.into_owned())
}

#[cfg(quietline_sim)]
fn per_cpu(address: usize) -> Option<usize> {
    quietline_platform::sim::owner_of(address)
}

#[cfg(not(quietline_sim))]
fn name_of(_: usize) -> Option<String> {
    None
}

#[cfg(not(quietline_sim))]
fn per_cpu(_: usize) -> Option<usize> {
    None
}
